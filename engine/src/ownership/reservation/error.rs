//! Why a namespace is not ours to the controllers.

use std::fmt;

use tentpeg_driver::controller::{ControllerError, HostIdentifier, Registered};
use tentpeg_driver::spec::reservation::ReservationType;
use thiserror::Error;
use uuid::Uuid;

/// Why there is no reservation.
#[derive(Debug, Error)]
pub enum ReservationError {
    /// Host: another host holds the namespace.
    #[error("namespace {nsid} is reserved by {by}: end its engine, or take the namespace over with --take-over")]
    Held {
        /// The namespace.
        nsid: u32,
        /// Who holds it.
        by: Other,
    },
    /// Host: another host has taken the namespace over from this one. Nothing may be written any more.
    #[error(
        "namespace {nsid} was taken over by {by}: this host has lost it and writes nothing more; open it again to contend for it"
    )]
    TakenOver {
        /// The namespace.
        nsid: u32,
        /// Who has it now.
        by: Other,
    },
    /// Caller: another host has registered the very key that is asked for, so that neither could be told from the other.
    #[error("epoch {epoch} is in use on namespace {nsid} by {by}: take one that is higher than every key there")]
    EpochInUse {
        /// The namespace.
        nsid: u32,
        /// The epoch.
        epoch: u64,
        /// Who has it.
        by: Other,
    },
    /// Caller: 0 is no key.
    #[error("epoch 0 cannot be the key of a reservation: epochs begin with 1")]
    NoEpoch,
    /// Host: somebody has told the controller another name for this host, and a controller takes only one until it is reset.
    #[error(
        "the controller knows this host as {} and not as {}: reset the controller, or configure that as the node's UUID",
        Name(found),
        Name(wanted)
    )]
    OtherHost {
        /// Who this host is to the controller.
        found: HostIdentifier,
        /// Who it should be.
        wanted: HostIdentifier,
    },
    /// Host: other software of this very host holds it, in another way.
    #[error("namespace {nsid} is reserved by this host itself, as {}: release that first", .rtype.name().unwrap_or("an unknown type"))]
    OtherType {
        /// The namespace.
        nsid: u32,
        /// How it is held.
        rtype: ReservationType,
    },
    /// Device: what it was told and what it reports do not agree, however often it was tried.
    #[error("namespace {nsid} was reserved, but the Reservation Report names {} as its holder", .found.map_or("nobody".to_owned(), |found| found.to_string()))]
    NotKept {
        /// The namespace.
        nsid: u32,
        /// Who holds it by the report.
        found: Option<Other>,
    },
    /// Device: the controller refused, or did not answer.
    #[error(transparent)]
    Controller(#[from] ControllerError),
}

/// A host in a Reservation Report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other {
    /// Its Host Identifier: the UUID of the node, where it is one of ours.
    pub host: HostIdentifier,
    /// Its key: the epoch of the owner, where it is one of ours.
    pub key: u64,
}

impl From<&Registered> for Other {
    fn from(registered: &Registered) -> Self {
        Self { host: registered.host, key: registered.key }
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {} (epoch {})", Name(&self.host), self.key)
    }
}

/// A Host Identifier as it is written.
struct Name<'a>(&'a HostIdentifier);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            HostIdentifier::Extended(bytes) => write!(f, "{}", Uuid::from_bytes(*bytes)),
            HostIdentifier::Short(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
