//! What an engine knows of the ownership of its devices: what it claimed when it opened one, and who has taken it since.

use std::fmt;

use thiserror::Error;
use uuid::Uuid;

use super::reservation::{Fencing, Other};
use crate::label::Owner;

/// How a device is this node's: by its label, by a reservation, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// This node.
    pub node: Uuid,
    /// The owner's epoch.
    pub epoch: u64,
    /// How other hosts are kept away; where they are not, the reason.
    pub fencing: Fencing,
}

/// Who has a device now that was this node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewOwner {
    /// A host, as the Reservation Report has it.
    Host(Other),
    /// A node, as the label has it.
    Node(Owner),
    /// Nobody says so.
    Unknown,
}

impl fmt::Display for NewOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Node(Owner { node, name, epoch }) => {
                write!(f, "node {node} ({}, epoch {epoch})", name.escape_debug())
            }
            Self::Unknown => f.write_str("somebody who does not hold it any more"),
        }
    }
}

/// Host: another host has taken a device from a running engine. Its tasks are FAILED from then on, and nothing more is
/// issued to it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{device} was taken over by {by}: this host has lost it and writes nothing more; open it again to contend for it"
)]
pub struct TakenOver {
    /// The device.
    pub device: String,
    /// Who has it now.
    pub by: NewOwner,
}
