//! A device that is opened for its label to be looked at or changed. It has no lane: what is done here is done when the
//! call returns.
//!
//! Before anything is written four things hold: the device may be written, nobody else has it open on this node, nothing
//! is on it that is not Tentpeg's, and its label, if it has one, is not another node's. A file that a model keeps its
//! bytes in is locked by the model; a namespace behind a function is locked here, by what it is called. Reservations,
//! which hold other hosts apart, are left to others.

use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::ControllerError;
use tentpeg_driver::model::ModelError;
use thiserror::Error;
use uuid::Uuid;

use crate::blocks::{Blocks, BlocksError, NamespaceBlocksError};
use crate::device::{Device, Devices};
use crate::foreign::{self, ForeignContents};
use crate::label::{
    self, Finding, Findings, Identity, Label, LabelError, Mode, NewLabel, OWNER_NAME_BYTES, Owner, Repair, SlotPlace,
};
use crate::ownership::lock::{Lock, LockError, LockFolder, LockMode, LockName, store_in_use};
use crate::ownership::node::Node;
use crate::{DeviceInfo, EngineConfig, LaneMode, OpenError};

/// Bytes at each end of a namespace that a label owns.
const END: u64 = 1 << 20;

/// Why a label is not looked at or changed.
#[derive(Debug, Error)]
pub enum AdministrationError {
    /// The device was not opened.
    #[error(transparent)]
    Open(OpenError),
    /// Host: somebody else has it open, or there is no lock.
    #[error(transparent)]
    Lock(#[from] LockError),
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
    #[error("{device} belongs to node {} ({}), and this is node {this}: do it there", owner.node, owner.name.escape_debug())]
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

/// An open device, of which nobody but the holder of this changes the label.
pub struct Administration {
    device: Device,
    identity: Identity,
    findings: Option<Findings>,
    foreign: Vec<ForeignContents>,
    // Last: whoever waits for it finds that the device has been left.
    _lock: Option<Lock>,
}

impl Administration {
    /// Opens what `uri` names, and looks at what is on it. Nothing is written.
    ///
    /// # Errors
    /// [`AdministrationError`]; nothing is left open, and no file is created, then.
    pub fn open(uri: &str) -> Result<Self, AdministrationError> {
        let mut devices = Self::none();
        devices.open(uri).map_err(|error| match error {
            OpenError::Model(ModelError::InUse { path }) => AdministrationError::Lock(store_in_use(&path)),
            error => AdministrationError::Open(error),
        })?;
        Self::look(devices, None)
    }

    /// Takes a function that the caller has opened, and locks its namespace in `locks`: alone, if it is `writable`, else
    /// together with others that only read.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_function(
        function: Arc<dyn Function>,
        writable: bool,
        locks: &LockFolder,
    ) -> Result<Self, AdministrationError> {
        let mut devices = Self::none();
        devices.add(function, writable).map_err(AdministrationError::Open)?;
        Self::look(devices, Some(locks))
    }

    fn none() -> Devices {
        Devices::new(LaneMode::CallerDriven, EngineConfig::default())
    }

    fn look(mut devices: Devices, locks: Option<&LockFolder>) -> Result<Self, AdministrationError> {
        let Some(mut device) = devices.take_last() else {
            let device = String::new();
            return Err(AdministrationError::Open(OpenError::NoNamespace { device, reason: None }));
        };
        let name = device.info().name.clone();
        let failed = |source| AdministrationError::Controller { device: name.clone(), source };
        let metadata = device.info().limits.metadata();
        let (controller, namespace, _) = device.parts();
        let identifiers = controller.namespace_identity(namespace).map_err(failed)?;
        let identity = Identity {
            nguid: identifiers.nguid.unwrap_or_default(),
            eui64: identifiers.eui64.unwrap_or_default(),
            uuid: identifiers.uuid.map(Uuid::from_bytes).unwrap_or_default(),
            ms: metadata.map_or(0, |metadata| metadata.size),
            pit: namespace.identify.dps.pit(),
        };
        let lock = match locks {
            None => None,
            Some(locks) => {
                let info = device.info();
                let serial_number = info.controller.serial_number();
                let lock_name = LockName::of_namespace(&identifiers, &serial_number, info.nsid, &name);
                let mode = if info.writable { LockMode::Exclusive } else { LockMode::Shared };
                Some(Lock::of_namespace(locks, &lock_name, mode)?)
            }
        };
        let mut administration = Self { device, identity, findings: None, foreign: Vec::new(), _lock: lock };
        administration.look_again()?;
        Ok(administration)
    }

    /// Looks at what is on the device.
    fn look_again(&mut self) -> Result<(), AdministrationError> {
        let name = self.device.info().name.clone();
        let mut blocks = blocks_of(&mut self.device)?;
        let findings = match label::inspect(&mut *blocks) {
            Ok(findings) => Some(findings),
            // Too small for one, say: then there is none.
            Err(LabelError::Unsuitable { .. }) => None,
            Err(source) => return Err(AdministrationError::Label { device: name, source }),
        };
        let found = foreign::find(&mut *blocks);
        let mut found = found.map_err(|source| AdministrationError::Blocks { device: name, source })?;
        let bytes = blocks.blocks().saturating_mul(u64::from(blocks.block_size()));
        if findings.as_ref().is_some_and(is_label) {
            // Between the ends are tenants' bytes, which may look like anything.
            found.retain(|contents| contents.places.iter().any(|at| *at < END || bytes.saturating_sub(*at) <= END));
        }
        drop(blocks);
        (self.findings, self.foreign) = (findings, found);
        Ok(())
    }

    /// What is known of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    /// Which namespace it says that it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What is on it that is not Tentpeg's. Where it has a label, at its two ends only: what lies between belongs to
    /// whoever writes the segments.
    pub fn foreign(&self) -> &[ForeignContents] {
        &self.foreign
    }

    /// Refuses a device that holds what is not Tentpeg's.
    ///
    /// # Errors
    /// [`AdministrationError::Foreign`].
    pub fn require_no_foreign(&self) -> Result<(), AdministrationError> {
        if self.foreign.is_empty() {
            return Ok(());
        }
        Err(AdministrationError::Foreign { device: self.device.info().name.clone(), found: self.foreign.clone() })
    }

    /// What the four slots hold; none where the namespace is too small for a label.
    pub fn findings(&self) -> Option<&Findings> {
        self.findings.as_ref()
    }

    /// Whether a slot begins as a label does, be it damaged or of a later version.
    pub fn has_label(&self) -> bool {
        self.findings.as_ref().is_some_and(is_label)
    }

    /// Opens the label for reading.
    ///
    /// # Errors
    /// [`AdministrationError::Label`].
    pub fn label(&mut self) -> Result<Label, AdministrationError> {
        let (identity, device) = (self.identity, self.device.info().name.clone());
        let mut blocks = blocks_of(&mut self.device)?;
        Label::open(&mut *blocks, &identity, Mode::ReadOnly)
            .map_err(|source| AdministrationError::Label { device, source })
    }

    /// Refuses what [`change`](Self::change) by `node` would refuse. Nothing is written.
    ///
    /// # Errors
    /// [`AdministrationError`].
    pub fn require_change(&mut self, node: &Node) -> Result<(), AdministrationError> {
        let (identity, device) = (self.identity, self.device.info().name.clone());
        let mut blocks = self.blocks_to_write()?;
        let label = Label::open(&mut *blocks, &identity, Mode::ReadOnly);
        let label = label.map_err(|source| AdministrationError::Label { device: device.clone(), source })?;
        require_owner(&device, label.owner(), node)
    }

    /// Opens the label for changes by `node`, and the blocks that they are lent. A label that is nobody's becomes the
    /// node's, with the next epoch.
    ///
    /// # Errors
    /// [`AdministrationError`]; nothing was written, unless it is [`AdministrationError::Label`] of
    /// [`LabelError::Blocks`].
    pub fn change(&mut self, node: &Node) -> Result<(Label, Box<dyn Blocks + '_>), AdministrationError> {
        // Opening for changes may write, so whose it is comes first.
        self.require_change(node)?;
        let (identity, device) = (self.identity, self.device.info().name.clone());
        let failed = |source| AdministrationError::Label { device: device.clone(), source };
        let mut blocks = self.blocks_to_write()?;
        let mut label = Label::open(&mut *blocks, &identity, Mode::ReadWrite).map_err(failed)?;
        if label.owner().node.is_nil() {
            let owner = next_owner(label.owner(), node).map_err(failed)?;
            label.set_owner(&mut *blocks, owner).map_err(failed)?;
        }
        Ok((label, blocks))
    }

    /// Makes a label, which is `node`'s. Identity and owner are not taken from `new`.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn create_label(&mut self, node: &Node, new: &NewLabel) -> Result<Label, AdministrationError> {
        let (identity, device) = (self.identity, self.device.info().name.clone());
        let failed = |source| AdministrationError::Label { device: device.clone(), source };
        let mut blocks = self.blocks_to_write()?;
        let former = former_owner(&mut *blocks);
        require_owner(&device, &former, node)?;
        let owner = next_owner(&former, node).map_err(failed)?;
        let new = NewLabel { identity, owner, ..new.clone() };
        let label = label::create(&mut *blocks, &new).map_err(failed)?;
        drop(blocks);
        self.look_again()?;
        Ok(label)
    }

    /// Mends the label, if it is `node`'s or nobody's. The slots that were written.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn repair_label(&mut self, node: &Node, options: Repair) -> Result<Vec<SlotPlace>, AdministrationError> {
        let (identity, device) = (self.identity, self.device.info().name.clone());
        let mut blocks = self.blocks_to_write()?;
        require_owner(&device, &former_owner(&mut *blocks), node)?;
        label::repair(&mut *blocks, &identity, options).map_err(|source| AdministrationError::Label { device, source })
    }

    /// Removes the label, if it is `node`'s or nobody's, or damaged.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn erase_label(&mut self, node: &Node) -> Result<(), AdministrationError> {
        let device = self.device.info().name.clone();
        let mut blocks = self.blocks_to_write()?;
        require_owner(&device, &former_owner(&mut *blocks), node)?;
        label::erase(&mut *blocks).map_err(|source| AdministrationError::Label { device, source })
    }

    /// Shuts the controller down. A file that was created for the device stays; without this it goes again.
    ///
    /// # Errors
    /// [`AdministrationError::Controller`]; the device's reach has ended all the same.
    pub fn close(self) -> Result<(), AdministrationError> {
        let (info, mut held, pair) = self.device.into_parts();
        held.keep_file();
        let closed = held.shutdown();
        drop(pair);
        closed.map_err(|source| AdministrationError::Controller { device: info.name, source })
    }

    fn blocks_to_write(&mut self) -> Result<Box<dyn Blocks + '_>, AdministrationError> {
        if !self.device.info().writable {
            return Err(AdministrationError::ReadOnly { device: self.device.info().name.clone() });
        }
        self.require_no_foreign()?;
        blocks_of(&mut self.device)
    }
}

fn blocks_of(device: &mut Device) -> Result<Box<dyn Blocks + '_>, AdministrationError> {
    let name = device.info().name.clone();
    match device.blocks() {
        Ok(blocks) => Ok(Box::new(blocks)),
        Err(source) => Err(AdministrationError::Namespace { device: name, source }),
    }
}

fn is_label(findings: &Findings) -> bool {
    findings.0.iter().any(|finding| !matches!(finding, Finding::Blank | Finding::Foreign))
}

/// Whose the label is that is there; nobody's, where none can be read.
fn former_owner(blocks: &mut dyn Blocks) -> Owner {
    Label::read(blocks).map(|label| label.owner().clone()).unwrap_or_default()
}

fn require_owner(device: &str, owner: &Owner, node: &Node) -> Result<(), AdministrationError> {
    if owner.node.is_nil() || owner.node == node.uuid() {
        return Ok(());
    }
    Err(AdministrationError::Owned { device: device.to_owned(), owner: owner.clone(), this: node.uuid() })
}

/// `node`, as the next owner after `former`.
fn next_owner(former: &Owner, node: &Node) -> Result<Owner, LabelError> {
    let epoch = former.epoch.checked_add(1).ok_or(LabelError::Exhausted { what: "the owner's epoch" })?;
    let name = node.name();
    let most = name.floor_char_boundary(OWNER_NAME_BYTES);
    Ok(Owner { node: node.uuid(), name: name[..most].trim_end().replace('/', "_"), epoch })
}

#[cfg(test)]
mod tests;
