//! Queues: how commands reach a controller and completions come back.
//!
//! A [`QueuePair`] owns one submission and one completion queue with their memory, the slots of the commands in
//! flight and the list pages of each slot. It is used by one lane, by `&mut`: there is no lock and no atomic
//! read-modify-write in it. [`ControllerLimits`] and [`Limits`] say what fits into a command; [`prp`] writes where
//! the bytes are, and [`sgl`] does where PRPs cannot. An [`IoCommand`] is a command on a namespace that is checked
//! against its [`Limits`] before a device sees it.
//!
//! Making queues known to the controller, deadlines and resets are left to [`controller`](crate::controller).
//! The device is not trusted: a completion that names no command in flight is counted and dropped.

mod command;
mod format;
mod limits;
mod pair;
pub mod prp;
mod ranges;
mod reach;
mod ring;
pub mod sgl;
mod shadow;
mod slots;

pub use command::{IoCommand, IoError, Protection};
pub use format::{MetadataFormat, MetadataPlacement, PROTECTION_INFORMATION, ProtectionFormat, ProtectionType};
pub use limits::{ControllerLimits, Limits, LimitsError, OptionalCommands, PointerError, PointerKind};
pub use pair::{Anomalies, Completion, Completions, PairCounters, QueuePair, QueuePairError, SubmitError};
pub use prp::Extent;
pub use ranges::{RangeError, RangeList};
pub use reach::{ReachEnd, ReachEnded};
pub(crate) use shadow::DoorbellBuffers;
pub use slots::Cid;

#[cfg(test)]
mod model_tests;
