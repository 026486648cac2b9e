//! What TENT asks and is told: requests, and the status of their tasks.
//!
//! Names and numbers are those of Mooncake's TENT (`tent/common/types.h`).

use std::fmt;

/// A segment's number. TENT's 0 is the local segment, so ours start at 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u64);

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// From the segment into memory.
    Read,
    /// From memory into the segment.
    Write,
}

/// One transfer between memory and a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which way the bytes go.
    pub opcode: OpCode,
    /// The address of the memory in this process, inside registered memory.
    pub source: u64,
    /// The segment.
    pub target_id: SegmentId,
    /// Where in the segment, in bytes; a multiple of its block.
    pub target_offset: u64,
    /// How many bytes; a multiple of the segment's block, not 0.
    pub length: u64,
}

/// The state of a task (TENT's `TransferStatusEnum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TransferState {
    /// Not submitted.
    Initial = 0,
    /// Submitted, not at its end.
    Pending = 1,
    /// The request is wrong; nothing was transferred.
    Invalid = 2,
    /// Given up before it was issued; nothing was transferred.
    Canceled = 3,
    /// All bytes were transferred.
    Completed = 4,
    /// It took too long.
    Timeout = 5,
    /// The device reported an error; the bytes are of no meaning.
    Failed = 6,
}

impl TransferState {
    /// The state of this number; an unknown one is `Initial`.
    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Pending,
            2 => Self::Invalid,
            3 => Self::Canceled,
            4 => Self::Completed,
            5 => Self::Timeout,
            6 => Self::Failed,
            _ => Self::Initial,
        }
    }

    /// Whether the task has ended: no hardware touches its memory any more (invariant 7).
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Initial | Self::Pending)
    }
}

impl fmt::Display for TransferState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Initial => "INITIAL",
            Self::Pending => "PENDING",
            Self::Invalid => "INVALID",
            Self::Canceled => "CANCELED",
            Self::Completed => "COMPLETED",
            Self::Timeout => "TIMEOUT",
            Self::Failed => "FAILED",
        })
    }
}

/// The state of a task and how many bytes it has moved: all of them, or none (TENT's `TransferStatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferStatus {
    /// The state.
    pub state: TransferState,
    /// The full length once COMPLETED, 0 before and else.
    pub transferred_bytes: u64,
}
