//! Planning: how tasks become commands.
//!
//! A command covers one range of logical blocks and any number of memory extents. So a task longer than a command may
//! carry is cut, and tasks that follow each other on the device are joined, up to what `Limits` allows, when their
//! memory can stand in one PRP list: every inner seam on a memory page. That is the normal case of a paged KV cache,
//! where a block is contiguous on the device and scattered in memory.

use tentpeg_driver::queue::{Extent, Limits};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;

use crate::OpCode;
use crate::admission::Admitted;
use crate::batch::Shared;
use crate::task::Work;

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
    /// The first task that it serves.
    pub(crate) first: u32,
    /// How many consecutive tasks it serves.
    pub(crate) tasks: u32,
    /// Bytes that it moves.
    pub(crate) bytes: u64,
    /// Where planning goes on.
    pub(crate) next: Cursor,
}

/// Plans the next command from `cursor` on, before `tail`. Its memory is put into `extents`. `None` when a task needs
/// no command or there is none; the caller looks at the task itself then.
///
/// With `alone` a command serves one task only.
// Always: a call and the return of a whole `Step` through memory cost 50 instructions a command.
#[inline(always)]
pub(crate) fn next_command(
    batch: &Shared,
    cursor: Cursor,
    tail: u32,
    alone: bool,
    nsid: u32,
    limits: &Limits,
    extents: &mut Vec<Extent>,
) -> Option<Step> {
    extents.clear();
    let first = match batch.task(cursor.task)?.work() {
        Work::Transfer(first) => first,
        Work::Flush => {
            let next = Cursor { task: cursor.task + 1, planned: 0 };
            return Some(Step { sqe: Sqe::flush(nsid), first: cursor.task, tasks: 1, bytes: 0, next });
        }
        Work::Nothing => return None,
    };
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
            let Some(task) = batch.task(next.task) else { break };
            let Work::Transfer(follower) = task.work() else { break };
            if !joins(&first, slba, bytes, &follower, max, limits, extents) {
                break;
            }
            bytes += follower.length;
            next.task += 1;
        }
    }
    let nlb = ZeroesBased::<u16>::from_count((bytes >> limits.lba_shift()) as u32)?;
    let sqe = match first.opcode {
        OpCode::Read => Sqe::read(nsid, slba, nlb),
        OpCode::Write => Sqe::write(nsid, slba, nlb),
    };
    let tasks = next.task - cursor.task + u32::from(next.planned != 0);
    Some(Step { sqe, first: cursor.task, tasks, bytes, next })
}

/// Whether `follower` can be the next part of a command that starts at `slba` and has `bytes`; its memory is added to
/// `extents` then.
#[inline]
fn joins(
    first: &Admitted,
    slba: u64,
    bytes: u64,
    follower: &Admitted,
    max: u64,
    limits: &Limits,
    extents: &mut Vec<Extent>,
) -> bool {
    let goes_on = follower.opcode == first.opcode && follower.slba == slba + (bytes >> limits.lba_shift());
    if !goes_on || bytes.checked_add(follower.length).is_none_or(|sum| sum > max) {
        return false;
    }
    let Some(last) = extents.last_mut() else { return false };
    if last.iova.checked_add(last.len) == Some(follower.iova) {
        // Contiguous in memory too: no seam at all.
        last.len += follower.length;
        return true;
    }
    let seam = (last.iova.get() + last.len) | follower.iova.get();
    if seam & (limits.page_size() - 1) != 0 {
        return false;
    }
    extents.push(Extent { iova: follower.iova, len: follower.length });
    true
}

#[cfg(test)]
mod tests;
