//! Why a device is not looked at, owned or changed.

use tentpeg_driver::controller::ControllerError;
use thiserror::Error;
use uuid::Uuid;

use crate::blocks::{BlocksError, NamespaceBlocksError};
use crate::foreign::ForeignContents;
use crate::label::{LabelError, Owner};
use crate::ownership::node::NodeError;
use crate::ownership::reservation::ReservationError;

/// Why a device is not looked at, owned or changed.
#[derive(Debug, Error)]
pub enum AdministrationError {
    /// Host or caller: this host does not know who it is.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Host: another host holds it; or device: its reservations do not work.
    #[error("{device}: {source}")]
    Reservation {
        /// The device.
        device: String,
        /// Why.
        source: Box<ReservationError>,
    },
    /// Device: it does not say which namespace it is, or does not shut down.
    #[error("{device}: {source}")]
    Controller {
        /// The device.
        device: String,
        /// Why.
        source: ControllerError,
    },
    /// Device or host: its blocks cannot be had.
    #[error("{device}: {source}")]
    Namespace {
        /// The device.
        device: String,
        /// Why.
        source: NamespaceBlocksError,
    },
    /// Device: what must be looked at before a write cannot be read.
    #[error("{device}: {source}")]
    Blocks {
        /// The device.
        device: String,
        /// Why.
        source: BlocksError,
    },
    /// Caller: the device was opened for reading only.
    #[error("{device} is open for reading only: a file that exists is written only where the URI says `overwrite`")]
    ReadOnly {
        /// The device.
        device: String,
    },
    /// Caller: something is on it that is not Tentpeg's.
    #[error(
        "{device} is not written, for it holds {}: if nobody needs that, remove it first, such as by wipefs",
        list(found)
    )]
    Foreign {
        /// The device.
        device: String,
        /// What it is.
        found: Vec<ForeignContents>,
    },
    /// Caller: the label is another node's.
    #[error("{device} belongs to node {} ({}), and this is node {this}: do it there, or take the device over with --take-over", owner.node, owner.name.escape_debug())]
    Owned {
        /// The device.
        device: String,
        /// Whose it is.
        owner: Owner,
        /// The UUID of this node.
        this: Uuid,
    },
    /// The label: see [`LabelError`].
    #[error("{device}: {source}")]
    Label {
        /// The device.
        device: String,
        /// Why.
        source: LabelError,
    },
}

fn list(found: &[ForeignContents]) -> String {
    found.iter().map(ForeignContents::to_string).collect::<Vec<_>>().join("; ")
}
