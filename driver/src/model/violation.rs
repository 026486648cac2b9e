//! What a driver did that no driver must ever do.
//!
//! A controller answers most mistakes with a status, and some with nothing that a driver could see. The model
//! keeps the grave ones, so that a test fails on each and says which address or value it was.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::iommu::{Fault, FaultKind};
use super::prp::PrpPlace;
use crate::dma::Access;
use crate::spec::registers::DoorbellKind;
use crate::spec::sgl::SglDescriptor;
use crate::spec::status::StatusCode;

/// Violations that are kept: the first are the telling ones.
const KEPT: usize = 1024;

/// One of the two doorbells of queue `qid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoorbellId {
    /// The queue.
    pub qid: u16,
    /// Tail of a submission queue or head of a completion queue.
    pub kind: DoorbellKind,
}

/// What the model accessed when it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// An SQE of queue `qid`.
    SubmissionQueue {
        /// The queue.
        qid: u16,
    },
    /// A CQE of queue `qid`.
    CompletionQueue {
        /// The queue.
        qid: u16,
    },
    /// The word of a doorbell in the Shadow Doorbell buffer or the EventIdx buffer.
    ShadowDoorbell {
        /// Which.
        doorbell: DoorbellId,
    },
    /// A PRP list of command `cid` of queue `sqid`.
    PrpList {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
    },
    /// The data of command `cid` of queue `sqid`.
    Data {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
    },
    /// An SGL segment of command `cid` of queue `sqid`.
    SglSegment {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
    },
    /// The separate metadata of command `cid` of queue `sqid`.
    Metadata {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
    },
}

/// One violation, with the values that decide it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A doorbell was rung while CC.EN or CSTS.RDY was 0 (invariant 5).
    DoorbellWhileNotReady {
        /// Which.
        doorbell: DoorbellId,
        /// What was written.
        value: u32,
    },
    /// A doorbell was rung through a handle from before the last reset.
    DoorbellOfFormerEpoch {
        /// Which.
        doorbell: DoorbellId,
        /// What was written.
        value: u32,
    },
    /// A doorbell was rung whose queue does not exist.
    DoorbellWithoutQueue {
        /// Which.
        doorbell: DoorbellId,
        /// What was written.
        value: u32,
    },
    /// A doorbell got a value outside its queue (Base 2.1, 5.1.2: Invalid Doorbell Write Value).
    DoorbellOutOfRange {
        /// Which.
        doorbell: DoorbellId,
        /// What was written.
        value: u32,
        /// Entries of the queue.
        size: u32,
    },
    /// A new tail passed the head: entries were overwritten before they were fetched.
    SubmissionQueueOverrun {
        /// The queue.
        qid: u16,
        /// Its head.
        head: u32,
        /// The new tail.
        tail: u32,
    },
    /// A new head passed the tail: entries were taken that had not been posted.
    CompletionQueueOverrun {
        /// The queue.
        qid: u16,
        /// The new head.
        head: u32,
        /// Its tail.
        tail: u32,
    },
    /// A PRP entry with an offset that it must not have (Base 2.1, 4.3.1).
    PrpOffset {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
        /// Which entry.
        place: PrpPlace,
        /// Its value.
        entry: u64,
    },
    /// An SGL descriptor that cannot be, or not where it is (Base 2.1, 4.3.2).
    Sgl {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
        /// Its address; 0 for the one in the command.
        at: u64,
        /// The descriptor.
        descriptor: SglDescriptor,
        /// What the command was answered.
        code: StatusCode,
    },
    /// An SGL that describes another length than the transfer's (Base 2.1, 4.3.2).
    SglLength {
        /// The command's queue.
        sqid: u16,
        /// The command.
        cid: u16,
        /// Bytes that it describes.
        described: u64,
        /// Bytes of the transfer.
        wanted: u64,
    },
    /// An access outside what is mapped, or against its rights.
    Dma {
        /// What the model was after.
        target: Target,
        /// The first address that was refused.
        address: u64,
        /// What it wanted to do there.
        wanted: Access,
        /// Why it could not.
        kind: FaultKind,
    },
    /// CC.EN was set while CSTS.RDY was still 1 (Base 2.1, 3.1.4.5).
    EnabledWhileReady,
    /// CC.EN was set with values that no controller can work with.
    UnusableConfiguration {
        /// Which, and what would be right.
        reason: &'static str,
        /// The value.
        value: u64,
    },
    /// A field of CC was changed that must hold still while CC.EN is 1 (Base 2.1, 3.1.4.5).
    ConfigurationChanged {
        /// CC before.
        was: u32,
        /// What was written.
        written: u32,
    },
    /// AQA, ASQ or ACQ was written while CC.EN was 1.
    AdminQueueChanged {
        /// The register's offset.
        offset: u64,
    },
}

impl Violation {
    pub(super) fn dma(target: Target, fault: Fault) -> Self {
        Self::Dma { target, address: fault.address, wanted: fault.wanted, kind: fault.kind }
    }
}

impl fmt::Display for DoorbellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DoorbellKind::SubmissionTail => write!(f, "tail doorbell of SQ {}", self.qid),
            DoorbellKind::CompletionHead => write!(f, "head doorbell of CQ {}", self.qid),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SubmissionQueue { qid } => write!(f, "SQ {qid}"),
            Self::CompletionQueue { qid } => write!(f, "CQ {qid}"),
            Self::ShadowDoorbell { doorbell } => write!(f, "the shadow of the {doorbell}"),
            Self::PrpList { sqid, cid } => write!(f, "the PRP list of command {cid:#x} of SQ {sqid}"),
            Self::Data { sqid, cid } => write!(f, "the data of command {cid:#x} of SQ {sqid}"),
            Self::SglSegment { sqid, cid } => write!(f, "an SGL segment of command {cid:#x} of SQ {sqid}"),
            Self::Metadata { sqid, cid } => write!(f, "the metadata of command {cid:#x} of SQ {sqid}"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoorbellWhileNotReady { doorbell, value } => {
                write!(f, "{value} was written to the {doorbell} while CC.EN or CSTS.RDY was 0")
            }
            Self::DoorbellOfFormerEpoch { doorbell, value } => {
                write!(f, "{value} was written to the {doorbell} through a handle from before the last reset")
            }
            Self::DoorbellWithoutQueue { doorbell, value } => {
                write!(f, "{value} was written to the {doorbell}, which does not exist")
            }
            Self::DoorbellOutOfRange { doorbell, value, size } => {
                write!(f, "{value} was written to the {doorbell}, which has {size} entries")
            }
            Self::SubmissionQueueOverrun { qid, head, tail } => {
                write!(f, "the new tail {tail} of SQ {qid} passed its head {head}")
            }
            Self::CompletionQueueOverrun { qid, head, tail } => {
                write!(f, "the new head {head} of CQ {qid} passed its tail {tail}")
            }
            Self::PrpOffset { sqid, cid, place, entry } => {
                write!(f, "command {cid:#x} of SQ {sqid}: the PRP entry {entry:#x} ({place:?}) has a wrong offset")
            }
            Self::Sgl { sqid, cid, at, descriptor, code } => {
                write!(
                    f,
                    "command {cid:#x} of SQ {sqid}: the SGL descriptor at {at:#x} is wrong: {code}: {descriptor:?}"
                )
            }
            Self::SglLength { sqid, cid, described, wanted } => {
                write!(f, "command {cid:#x} of SQ {sqid}: its SGL describes {described} bytes and not {wanted}")
            }
            Self::Dma { target, address, wanted, kind } => {
                let access = if wanted.contains(Access::DEVICE_WRITES) { "written" } else { "read" };
                let why = match kind {
                    FaultKind::Unmapped => "is not mapped",
                    FaultKind::Denied => "is mapped without that right",
                    FaultKind::Accelerator => "is memory of an accelerator, which this command cannot use",
                };
                write!(f, "{target}: {address:#x} was to be {access}, but {why}")
            }
            Self::EnabledWhileReady => f.write_str("CC.EN was set while CSTS.RDY was still 1"),
            Self::UnusableConfiguration { reason, value } => write!(f, "CC.EN was set, but {reason}: {value:#x}"),
            Self::ConfigurationChanged { was, written } => {
                write!(f, "CC was changed from {was:#x} to {written:#x} while CC.EN was 1")
            }
            Self::AdminQueueChanged { offset } => {
                write!(f, "the admin queue register at {offset:#x} was written while CC.EN was 1")
            }
        }
    }
}

/// Violations so far. Taken by lock: a right driver never causes one.
#[derive(Default)]
pub(super) struct Violations {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    list: Vec<Violation>,
    /// Where violations by DMA go instead while a fault has the model do what no driver asked for.
    diverted: Option<Vec<Violation>>,
}

impl Violations {
    #[cold]
    pub(super) fn record(&self, violation: Violation) {
        let mut kept = self.lock();
        let Kept { list, diverted } = &mut *kept;
        match diverted {
            Some(diverted) if matches!(violation, Violation::Dma { .. } | Violation::PrpOffset { .. }) => {
                diverted.push(violation);
            }
            _ if list.len() < KEPT => list.push(violation),
            _ => {}
        }
    }

    /// From now on violations by DMA are not the driver's.
    pub(super) fn divert(&self) {
        self.lock().diverted = Some(Vec::new());
    }

    /// They are again. What they were meanwhile.
    pub(super) fn end_diversion(&self) -> Vec<Violation> {
        self.lock().diverted.take().unwrap_or_default()
    }

    pub(super) fn snapshot(&self) -> Vec<Violation> {
        self.lock().list.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
