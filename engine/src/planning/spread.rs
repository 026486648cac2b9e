//! Planning of spread tasks: what lies over several extents or devices, goes through staging memory, or has none.
//!
//! A lane plans its share alone. A *part* is what one command does: consecutive blocks of the lane's device, which need
//! not follow each other in the segment, as chunks of a stripe do not. Where a part begins says all that it is, so that
//! it can be planned again.

use tentpeg_driver::dma::Iova;
use tentpeg_driver::queue::{Extent, IoCommand};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;

use super::{Ground, MAX_EXTENTS, append};
use crate::segment::{Durability, Piece, SegmentMap};
use crate::task::{Operation, Spread};

/// How a device does what it need not have a command for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means {
    pub(crate) zeroes: Zeroes,
    /// The most blocks of a deallocation.
    pub(crate) deallocation: u64,
    /// Bytes of a staging buffer, a multiple of the block.
    pub(crate) staging: u64,
}

/// By what blocks are made to read as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeroes {
    /// Write Zeroes of so many blocks at the most; with DEAC where deallocated blocks read as zeroes.
    Command { most: u64, deallocate: bool },
    /// Writes of zeroes, which lie in so many bytes from this IOVA on.
    Writes { iova: Iova, len: u64 },
}

/// What one command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// First block on the device.
    pub(crate) slba: u64,
    /// Blocks.
    pub(crate) blocks: u64,
    /// Bytes of the task behind it: where planning goes on.
    pub(crate) next: u64,
    /// Of what is staged, where in the first block its bytes begin, and how many they are.
    pub(crate) staged: (u64, u64),
}

impl Part {
    /// Where the bytes of a staged part belong, or come from.
    pub(crate) fn staged_address(&self, task: &Spread) -> Option<u64> {
        let (_, len) = self.staged;
        self.next.checked_sub(len).and_then(|at| task.memory.checked_add(at))
    }
}

/// The next part of a lane's share of `task` from byte `planned` of it on; the memory of a read or write is put into
/// `extents`. `None`: there is no more.
pub(crate) fn next_part(
    task: &Spread,
    planned: u64,
    map: &SegmentMap,
    ground: &Ground,
    means: &Means,
    extents: &mut Vec<Extent>,
) -> Option<Part> {
    extents.clear();
    let limits = &ground.limits;
    let shift = limits.lba_shift();
    let end = task.offset.checked_add(task.length)?;
    let from = task.offset.checked_add(planned).filter(|from| *from < end)?;
    let end_block = ((end - 1) >> shift) + 1;
    let first = map.next_on(ground.lane, from >> shift, end_block)?;
    let most = match task.head.operation() {
        Operation::Read | Operation::Write => limits.max_transfer() >> shift,
        Operation::StagedRead | Operation::StagedWrite => {
            return Some(staged_part(task, first, from, end, shift, means));
        }
        Operation::Zeroes => match means.zeroes {
            Zeroes::Command { most, .. } => most,
            Zeroes::Writes { .. } => limits.max_transfer() >> shift,
        },
        Operation::Deallocate => means.deallocation,
        Operation::Flush => return None,
    };
    let has_memory = matches!(task.head.operation(), Operation::Read | Operation::Write);
    let memory = |piece: &Piece, blocks: u64| {
        let within = (piece.block << shift).checked_sub(task.offset)?;
        let iova = Iova::new(task.memory)?.checked_add(within)?;
        Some(Extent { iova, len: blocks << shift })
    };
    let most = most.max(1);
    let mut blocks = first.blocks.min(most);
    if has_memory {
        extents.push(memory(&first, blocks)?);
    }
    let mut next = first.block + blocks;
    // Pieces that follow on the device, as long as all before them are whole.
    let mut whole = blocks == first.blocks;
    while whole && blocks < most && extents.len() < MAX_EXTENTS {
        let Some(piece) = map.next_on(ground.lane, next, end_block) else { break };
        if piece.slba != first.slba + blocks {
            break;
        }
        let taken = piece.blocks.min(most - blocks);
        if has_memory && !append(memory(&piece, taken)?, limits, extents) {
            break;
        }
        blocks += taken;
        next = piece.block + taken;
        whole = taken == piece.blocks;
    }
    Some(Part { slba: first.slba, blocks, next: (next << shift).checked_sub(task.offset)?, staged: (0, 0) })
}

/// The blocks that have the bytes of a staged task from `from` on, up to a buffer's length.
fn staged_part(task: &Spread, first: Piece, from: u64, end: u64, shift: u32, means: &Means) -> Part {
    // The first block may begin before the bytes that are wanted, and the last one end behind them.
    let start = from.max(first.block << shift);
    let blocks = first.blocks.min((means.staging >> shift).max(1));
    let stop = end.min((first.block + blocks) << shift);
    Part { slba: first.slba, blocks, next: stop - task.offset, staged: (start - (first.block << shift), stop - start) }
}

/// The command of a part that moves data or zeroes blocks. `None`: its numbers fit into no command, which admission does
/// not let through.
pub(crate) fn command(
    task: &Spread,
    part: &Part,
    ground: &Ground,
    means: &Means,
    extents: &mut Vec<Extent>,
) -> Option<Sqe> {
    let nlb = u32::try_from(part.blocks).ok().and_then(ZeroesBased::<u16>::from_count)?;
    let fua = ground.volatile && task.head.durability() == Durability::Fua;
    let (nsid, slba) = (ground.nsid, part.slba);
    match (task.head.operation(), means.zeroes) {
        (Operation::Read | Operation::StagedRead, _) => Some(Sqe::read(nsid, slba, nlb)),
        (Operation::Write | Operation::StagedWrite, _) => Some(Sqe::write(nsid, slba, nlb).with_fua(fua)),
        (Operation::Zeroes, Zeroes::Command { deallocate, .. }) => {
            let command = IoCommand::write_zeroes(slba, part.blocks as u32, deallocate);
            let command = if fua { command.with_fua() } else { command };
            command.sqe(nsid, &ground.limits).ok()
        }
        (Operation::Zeroes, Zeroes::Writes { iova, len }) => {
            zero_extents(iova, len, part.blocks << ground.limits.lba_shift(), extents);
            Some(Sqe::write(nsid, slba, nlb).with_fua(fua))
        }
        (Operation::Deallocate | Operation::Flush, _) => None,
    }
}

/// The same zeroes as often as it takes: every seam is the begin of a page, as the memory is whole pages.
fn zero_extents(iova: Iova, len: u64, bytes: u64, extents: &mut Vec<Extent>) {
    extents.clear();
    let mut left = bytes;
    while left != 0 {
        let piece = left.min(len);
        extents.push(Extent { iova, len: piece });
        left -= piece;
    }
}

#[cfg(test)]
mod tests;
