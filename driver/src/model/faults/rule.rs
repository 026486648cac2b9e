//! Faults of commands: which commands, when, and what becomes of them.

use super::Kind;
use crate::spec::command::{AdminOpcode, Cns, NvmOpcode, Sqe};
use crate::spec::status::Status;

/// Which commands a fault befalls, when, and what it does to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Where the command comes from.
    pub queue: CommandQueue,
    /// Its opcode; none is any, but Asynchronous Event Request, which is always meant by name.
    pub opcode: Option<u8>,
    /// Which of the commands that match.
    pub when: When,
    /// What becomes of it. A command that this cannot befall does not match.
    pub action: Action,
}

/// Where a command comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandQueue {
    /// The Admin Submission Queue.
    Admin,
    /// An I/O submission queue.
    Io,
}

/// Which of the commands that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// The nth, counted from 1, once.
    Nth(u64),
    /// The next so many.
    Next(u64),
    /// Each with a chance of `per_million` in a million, at most `times`.
    Chance {
        /// Cases in a million.
        per_million: u32,
        /// The most.
        times: u64,
    },
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It completes with this status, after its execution or in place of it.
    Status {
        /// The status, with or without Do Not Retry.
        status: Status,
        /// Whether it is executed first; how that ended is not told.
        execute: bool,
    },
    /// It completes with success and this dword 0 in place of its execution. For Abort, 1 is "not aborted".
    Answer {
        /// Dword 0 of the CQE.
        dw0: u32,
    },
    /// It is kept for so many turns with DMA and executed only then; others overtake it. Abort finds it.
    Delay {
        /// Turns; 0 is the next look at what is kept.
        turns: u32,
    },
    /// It never completes. Abort does not find it.
    Drop {
        /// Whether it is executed.
        execute: bool,
    },
    /// It completes twice.
    Duplicate {
        /// Turns between the two.
        turns: u32,
    },
    /// A completion with a CID that is not the command's.
    StrangeCid {
        /// Which.
        cid: StrangeCid,
        /// Whether it comes in place of the right one, or before it.
        instead: bool,
    },
    /// Its completion has an SQHD outside the submission queue. In a queue of 65,536 entries every
    /// number lies in it; there it is right.
    BadSqhd,
    /// Its completion is written with the phase tag of the former round, so that nobody sees it, nor what comes
    /// behind it.
    StalePhase {
        /// Turns after which the right tag is written; none is never.
        turns: Option<u32>,
    },
    /// The first half of its data is moved and success reported. Read and Write.
    Torn,
    /// Its data is moved from or to a place `blocks` earlier, or later where there is none earlier. Read and Write.
    Misplaced {
        /// Logical blocks.
        blocks: u64,
    },
    /// The IOMMU refuses the second half of its data, as if that were not mapped. Read and Write. No violation.
    IommuFault,
    /// Identify, Active Namespace ID list: a full page that is followed by another for ever.
    EndlessList(EndlessList),
    /// Identify and Get Log Page: random bytes and success.
    Garbage,
}

/// A CID that is not the command's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrangeCid {
    /// The command's with bit 14 inverted: one that a host with few commands, or with generations, has not in
    /// flight. It is far from those that it takes next, so that it cannot become right before the host reads it.
    Unknown,
    /// FFFFh, which is no command's (Base 2.1, 4.1).
    OutOfRange,
}

impl StrangeCid {
    pub(in crate::model) fn of(self, cid: u16) -> u16 {
        match self {
            Self::Unknown => cid ^ 1 << 14,
            Self::OutOfRange => 0xFFFF,
        }
    }
}

/// A namespace list that never ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndlessList {
    /// The same page each time, NSIDs 1 to 1,024, whatever it was to begin after.
    Cycle,
    /// The 1,024 NSIDs that follow.
    Ascending,
}

impl Rule {
    /// Whether it can befall `sqe`.
    pub(super) fn matches(&self, queue: CommandQueue, sqe: &Sqe) -> bool {
        let admin = queue == CommandQueue::Admin;
        let named = match self.opcode {
            Some(opcode) => opcode == sqe.opcode,
            None => !(admin && sqe.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST),
        };
        let possible = match self.action {
            Action::Torn | Action::Misplaced { .. } | Action::IommuFault => {
                !admin && matches!(sqe.nvm_opcode(), NvmOpcode::READ | NvmOpcode::WRITE)
            }
            Action::EndlessList(_) => {
                admin && sqe.admin_opcode() == AdminOpcode::IDENTIFY && sqe.cns() == Cns::ACTIVE_NAMESPACE_LIST
            }
            Action::Garbage => admin && matches!(sqe.admin_opcode(), AdminOpcode::IDENTIFY | AdminOpcode::GET_LOG_PAGE),
            _ => true,
        };
        self.queue == queue && named && possible
    }
}

impl Action {
    /// What it counts as.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Status { .. } => Kind::Status,
            Self::Answer { .. } => Kind::Answer,
            Self::Delay { .. } => Kind::Delay,
            Self::Drop { .. } => Kind::Drop,
            Self::Duplicate { .. } => Kind::Duplicate,
            Self::StrangeCid { cid: StrangeCid::Unknown, .. } => Kind::UnknownCid,
            Self::StrangeCid { cid: StrangeCid::OutOfRange, .. } => Kind::OutOfRangeCid,
            Self::BadSqhd => Kind::BadSqhd,
            Self::StalePhase { .. } => Kind::StalePhase,
            Self::Torn => Kind::Torn,
            Self::Misplaced { .. } => Kind::Misplaced,
            Self::IommuFault => Kind::IommuFault,
            Self::EndlessList(_) => Kind::EndlessList,
            Self::Garbage => Kind::Garbage,
        }
    }
}
