//! What is in flight: one task each, with its piece of memory.

use std::ops::Range;

use tentpeg_engine::Batch;

use crate::chaos::blocks::Moment;

/// Bytes of memory that each task in flight has for itself.
pub(super) const SLOT: usize = 64 << 10;
/// Bytes of it that data lies in, at the most, with all that stays free before and behind it.
pub(super) const ROOM: u64 = 40 << 10;
/// What memory is filled with that a read must not touch.
pub(super) const POISON: u8 = 0xA5;
/// Bytes on either side of a read's memory that are looked at.
pub(super) const MARGIN: u64 = 64;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    /// Of any bytes: the first one in its first block, and how many.
    Unaligned {
        skip: u64,
        length: u64,
    },
    Write,
    Zeroes,
    Deallocate,
    Flush,
}

impl Kind {
    /// Whether its request names memory.
    pub(super) fn has_memory(self) -> bool {
        matches!(self, Self::Read | Self::Unaligned { .. } | Self::Write)
    }
}

/// A task that has not ended.
pub(super) struct Flight {
    pub(super) batch: Batch,
    pub(super) task: u32,
    pub(super) kind: Kind,
    /// Which of the segments.
    pub(super) segment: usize,
    /// Blocks concerned.
    pub(super) blocks: Range<u64>,
    /// The number of its write, where it changes blocks.
    pub(super) write: u32,
    pub(super) submitted: Moment,
    pub(super) slot: usize,
    /// Where in the slot its memory begins, and how many bytes a read has there.
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Which batch it is of.
    pub(super) number: u64,
    /// Whether it may be CANCELED: its batch was canceled or freed, or its memory unregistered.
    pub(super) given_up: bool,
}
