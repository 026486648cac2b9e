//! Planning: how tasks become commands.
//!
//! A command covers one range of logical blocks and any number of memory extents. So a task longer than a command may
//! carry is cut, and tasks that follow each other on the device are joined, up to what `Limits` allows, when their
//! memory can stand in one PRP list: every inner seam on a memory page. That is the normal case of a paged KV cache,
//! where a block is contiguous on the device and scattered in memory. Tasks that are no transfers are planned in
//! [`spread`].

pub(crate) mod spread;

use tentpeg_driver::queue::{Extent, Limits};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;

use crate::OpCode;
use crate::segment::Durability;
use crate::task::{Head, Transfer, Walk};

/// The most extents of a command: a page each would be 2 MiB.
pub(crate) const MAX_EXTENTS: usize = 512;

/// How far the planning of a batch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    /// The next task.
    pub(crate) task: u32,
    /// Bytes of it that are planned already.
    pub(crate) planned: u64,
}

/// The next command of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    /// The command, without CID and PRPs.
    pub(crate) sqe: Sqe,
    /// What its tasks are.
    pub(crate) head: Head,
    /// The first task that it serves.
    pub(crate) first: u32,
    /// How many consecutive tasks it serves.
    pub(crate) tasks: u32,
    /// Bytes that it moves.
    pub(crate) bytes: u64,
    /// Where planning goes on.
    pub(crate) next: Cursor,
}

/// What a lane plans by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ground {
    /// The lane's number, and the device's.
    pub(crate) lane: u8,
    pub(crate) nsid: u32,
    pub(crate) limits: Limits,
    /// Whether the device has a volatile write cache: only then durability is a matter.
    pub(crate) volatile: bool,
}

/// Plans the next command from `cursor` on, before `tail`. Its memory is put into `extents`. `None` when there is no
/// task, or one that is no transfer of this lane; the caller looks at the task itself then.
///
/// With `alone` a command serves one task only.
// Always: a call and the return of a whole `Step` through memory cost 50 instructions a command.
#[inline(always)]
pub(crate) fn next_command(
    tasks: &mut Walk<'_>,
    cursor: Cursor,
    tail: u32,
    alone: bool,
    ground: &Ground,
    extents: &mut Vec<Extent>,
) -> Option<Step> {
    extents.clear();
    let task = tasks.get(cursor.task)?;
    let first = task.transfer(task.head()).filter(|first| first.head.lane() == ground.lane)?;
    let limits = &ground.limits;
    let max = limits.max_transfer();
    let left = first.length.checked_sub(cursor.planned)?;
    let mut bytes = left.min(max);
    extents.push(Extent { iova: first.iova.checked_add(cursor.planned)?, len: bytes });
    let slba = first.slba + (cursor.planned >> limits.lba_shift());
    let mut next = if bytes == left {
        Cursor { task: cursor.task + 1, planned: 0 }
    } else {
        Cursor { task: cursor.task, planned: cursor.planned + bytes }
    };
    // Only a task that this command ends can be followed by another one in it.
    if !alone && next.planned == 0 {
        while next.task < tail && extents.len() < MAX_EXTENTS {
            let Some(task) = tasks.get(next.task) else { break };
            // One segment, one lane, one direction and one durability: all of that is in the head.
            let goes_on = slba + (bytes >> limits.lba_shift());
            let Some(follower) = task.transfer_at(first.head, goes_on) else { break };
            if !joins(bytes, &follower, max, limits, extents) {
                break;
            }
            bytes += follower.length;
            next.task += 1;
        }
    }
    let nlb = ZeroesBased::<u16>::from_count((bytes >> limits.lba_shift()) as u32)?;
    let sqe = match first.head.opcode() {
        OpCode::Read => Sqe::read(ground.nsid, slba, nlb),
        OpCode::Write => {
            let fua = ground.volatile && first.head.durability() == Durability::Fua;
            Sqe::write(ground.nsid, slba, nlb).with_fua(fua)
        }
    };
    let served = next.task - cursor.task + u32::from(next.planned != 0);
    Some(Step { sqe, head: first.head, first: cursor.task, tasks: served, bytes, next })
}

/// Whether `follower`, which follows on the device, can be the next part of a command that has `bytes`; its memory is
/// added to `extents` then.
#[inline]
fn joins(bytes: u64, follower: &Transfer, max: u64, limits: &Limits, extents: &mut Vec<Extent>) -> bool {
    if bytes.checked_add(follower.length).is_none_or(|sum| sum > max) {
        return false;
    }
    append(Extent { iova: follower.iova, len: follower.length }, limits, extents)
}

/// Adds memory to that of a command, where PRPs can name the whole. Whether it was added.
#[inline]
fn append(memory: Extent, limits: &Limits, extents: &mut Vec<Extent>) -> bool {
    let Some(last) = extents.last_mut() else { return false };
    if last.iova.checked_add(last.len) == Some(memory.iova) {
        // Contiguous in memory too: no seam at all.
        last.len += memory.len;
        return true;
    }
    let seam = (last.iova.get() + last.len) | memory.iova.get();
    if seam & (limits.page_size() - 1) != 0 {
        return false;
    }
    extents.push(memory);
    true
}

#[cfg(test)]
mod tests;
