//! What can go wrong with a controller, by who is at fault.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::dma::AllocateError;
use crate::queue::{LimitsError, QueuePairError, ReachEnd, SubmitError};
use crate::spec::identify::DescriptorError;
use crate::spec::status::Status;

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// CSTS.RDY = 1 after EN = 1.
    Ready,
    /// CSTS.RDY = 0 after EN = 0.
    NotReady,
    /// CSTS.SHST = 10b after CC.SHN = 01b.
    ShutdownComplete,
    /// The completion of an admin command with this opcode.
    Admin {
        /// The command's name.
        command: &'static str,
    },
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => write!(f, "CSTS.RDY did not become 1 after CC.EN = 1"),
            Self::NotReady => write!(f, "CSTS.RDY did not become 0 after CC.EN = 0"),
            Self::ShutdownComplete => write!(f, "CSTS.SHST did not become 10b after CC.SHN = 01b"),
            Self::Admin { command } => write!(f, "{command} has no completion"),
        }
    }
}

/// Why a controller does not do what it was asked.
#[derive(Debug, Error)]
pub enum ControllerError {
    /// Device: the registers read all ones or all zeroes.
    #[error("the controller is gone: CAP reads {cap:#018x}, CSTS reads {csts:#010x}")]
    Gone {
        /// CAP as it was read.
        cap: u64,
        /// CSTS as it was read.
        csts: u32,
    },
    /// Device: something did not happen in time.
    #[error("{wait} within {} ms (CSTS reads {csts:#010x})", limit.as_millis())]
    Timeout {
        /// What was waited for.
        wait: Wait,
        /// How long.
        limit: Duration,
        /// CSTS at the end.
        csts: u32,
    },
    /// Device: it reported a fatal error.
    #[error("the controller reports a fatal error: CSTS.CFS is set ({csts:#010x}) while waiting: {wait}")]
    Fatal {
        /// CSTS as it was read.
        csts: u32,
        /// What was waited for.
        wait: Wait,
    },
    /// Device: it was reset by somebody else, or has been stopped.
    #[error("the controller is not ready: CSTS.RDY is 0 ({csts:#010x})")]
    NotReady {
        /// CSTS as it was read.
        csts: u32,
    },
    /// Device: an admin command ended in an error.
    #[error("{command} ended with {status}")]
    Command {
        /// The command's name.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// Device: the list of namespaces does not end, or is not in order.
    #[error("the list of active namespaces has {nsid:#x} after {after:#x}: namespace identifiers must ascend")]
    NamespaceList {
        /// The identifier that is out of order.
        nsid: u32,
        /// The one before.
        after: u32,
    },
    /// Device: it has more namespaces than anybody counts on.
    #[error("the controller lists more than {max} namespaces: raise the limit if it really has them")]
    TooManyNamespaces {
        /// The most that are looked at ([`ControllerConfig::max_namespaces`](super::ControllerConfig::max_namespaces)).
        max: u32,
    },
    /// Device: a page that it returned says what cannot be.
    #[error("{page}: {field} is {value:#x}: {right}")]
    Page {
        /// The page.
        page: &'static str,
        /// The field.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What would be right.
        right: &'static str,
    },
    /// Device: its list of namespace identification descriptors is broken.
    #[error(transparent)]
    Descriptor(#[from] DescriptorError),
    /// Device: it does not have what it was asked for.
    #[error("the controller does not have {what} ({field})")]
    NotSupported {
        /// What it was asked for.
        what: &'static str,
        /// The field of Identify Controller that says so.
        field: &'static str,
    },
    /// Device: it is known to need what this driver does not do.
    #[error("PCI device {vendor:04x}:{device:04x} cannot be driven: {reason}")]
    Undrivable {
        /// PCI Vendor ID.
        vendor: u16,
        /// PCI Device ID.
        device: u16,
        /// Why.
        reason: &'static str,
    },
    /// Caller: an argument that the controller, or any controller, cannot do with.
    #[error("{argument} is {value:#x}: {right}")]
    Argument {
        /// Which argument.
        argument: &'static str,
        /// Its value.
        value: u64,
        /// What would be right.
        right: &'static str,
    },
    /// Device: it has what this driver cannot drive.
    #[error("the controller cannot be driven: {0}")]
    Limits(#[from] LimitsError),
    /// Device: it does not have the NVM command set.
    #[error("CAP.CSS is {css:#04x}: the controller has no NVM command set")]
    NoNvmCommandSet {
        /// CAP.CSS.
        css: u8,
    },
    /// Device or host: no page size that both have.
    #[error("the controller's smallest memory page is {min} bytes, more than the {max} that this driver uses")]
    PageSize {
        /// CAP.MPSMIN in bytes.
        min: u64,
        /// The largest page of ours.
        max: u64,
    },
    /// Caller: all queue pairs are in use.
    #[error("all {granted} I/O queue pairs that the controller granted are in use")]
    NoQueueLeft {
        /// Queue pairs granted.
        granted: u16,
    },
    /// Host: no memory for a queue.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// Device: it did not stop by itself, or was stopped before: its reach of memory was ended in another way.
    #[error("the controller was not shut down in the orderly way: its reach of memory was ended by {how}")]
    Stopped {
        /// What ended it.
        how: ReachEnd,
    },
    /// Device: after a reset it is not what it was.
    #[error("after its reset the controller has another serial number, other capabilities or other limits")]
    Changed,
    /// Host: the admin queue is unusable after a command that got no answer.
    #[error("the admin queue is not used again after a command that had no completion: enable the controller anew")]
    AdminQueueLost,
    /// Host: no IOVAs for the Controller Memory Buffer.
    #[error("the Controller Memory Buffer cannot be opened: {0}")]
    Iovas(#[from] AllocateError),
    /// Host: no memory for admin data.
    #[error("no memory for admin data: {0}")]
    AdminMemory(String),
    /// Caller: an admin command could not be written.
    #[error("{command} could not be submitted: {source}")]
    Submit {
        /// The command's name.
        command: &'static str,
        /// Why.
        source: SubmitError,
    },
}
