//! What is known of an open device.

use std::path::PathBuf;

use tentpeg_driver::queue::Limits;
use tentpeg_driver::spec::identify::{IdentifyController, IdentifyNamespace};
use tentpeg_driver::spec::registers::{Cap, Vs};

use crate::ownership::Ownership;

/// What an engine knows of a device.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// The device's URI, with every setting, or the function's name.
    pub name: String,
    /// Controller Capabilities.
    pub cap: Cap,
    /// The version of the specification that the controller follows.
    pub version: Vs,
    /// Identify Controller.
    pub controller: Box<IdentifyController>,
    /// The namespace that is served.
    pub nsid: u32,
    /// Identify Namespace.
    pub namespace: Box<IdentifyNamespace>,
    /// What fits into a command.
    pub limits: Limits,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it keeps what is written; a null store does not.
    pub moves_data: bool,
    /// Whether a mover copies for it, so that it reaches memory of the engine's GPU: a model that was made so.
    pub has_mover: bool,
    /// I/O queue pairs that the controller granted.
    pub queue_pairs: u16,
    /// Commands that can be in flight on its lane.
    pub depth: usize,
    /// The file that opening created for it, where it did.
    pub created_file: Option<PathBuf>,
    /// How it is this node's: where it may be written and has a label, or knows reservations.
    pub ownership: Option<Ownership>,
}
