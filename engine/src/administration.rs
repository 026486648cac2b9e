//! A device that has been opened and looked at: its label can be looked at or changed, or an engine can have it. It has no
//! lane: what is done here is done when the call returns.
//!
//! Before anything is written five things hold: the device may be written, nobody else has it open on this node, nothing
//! is on it that is not Tentpeg's, its label, if it has one, is not another node's, and no other host holds it. A file that
//! a model keeps its bytes in is locked by the model; a namespace behind a function is locked here, by what it is called.
//! The reservation comes last, and is given back when this is closed or dropped.

mod claim;
mod error;

use tentpeg_driver::controller::ControllerError;
use tentpeg_driver::spec::identify::Oncs;
use tentpeg_driver::spec::log::SmartLog;
use uuid::Uuid;

pub use error::AdministrationError;

use crate::blocks::Blocks;
use crate::device::{Device, Devices, OpenError};
use crate::foreign::{self, ForeignContents};
use crate::label::{
    self, Finding, Findings, Identity, Label, LabelError, Mode, NewLabel, OWNER_NAME_BYTES, Owner, Repair, SlotPlace,
};
use crate::opening::{DeviceSource, OpenOptions};
use crate::ownership::lock::{Lock, LockFolder, LockMode, LockName};
use crate::ownership::node::Node;
use crate::{BlockExtent, DeviceInfo};

/// Bytes at each end of a namespace that a label owns.
const END: u64 = 1 << 20;

/// An open device, of which nobody but the holder of this changes the label.
pub struct Administration {
    /// Taken only by what consumes this.
    device: Option<Device>,
    identity: Identity,
    findings: Option<Findings>,
    /// Whether it begins with a label that it cannot have any more.
    remnant: bool,
    foreign: Vec<ForeignContents>,
    /// The name of its lock, where it was locked here.
    lock_name: Option<LockName>,
    /// The configured UUID of this node.
    configured: Option<Uuid>,
    take_over: bool,
}

impl Administration {
    /// Opens what `uri` names, and looks at what is on it. Nothing is written.
    ///
    /// # Errors
    /// [`OpenError`]; nothing is left open, and no file is created, then.
    pub fn open(uri: &str) -> Result<Self, OpenError> {
        Self::open_with(uri, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with what of `options` is about whose the device is: reading only, taking over, the node,
    /// and the folder of locks.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(source: impl Into<DeviceSource>, options: &OpenOptions) -> Result<Self, OpenError> {
        let mut devices = Devices::new(crate::LaneMode::CallerDriven, options.config.clone());
        source.into().open(&mut devices, options.read_only)?;
        match devices.into_devices().pop() {
            Some(device) => Self::look(device, options),
            None => unreachable!("a device that was opened is there"),
        }
    }

    /// Locks a device, sees who holds it, and looks at what is on it.
    pub(crate) fn look(mut device: Device, options: &OpenOptions) -> Result<Self, OpenError> {
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
        let mut lock_name = None;
        if !device.is_locked() {
            let info = device.info();
            let locked = LockName::of_namespace(&identifiers, &info.controller.serial_number(), info.nsid, &name);
            let mode = if info.writable { LockMode::Exclusive } else { LockMode::Shared };
            let folder = options.locks.clone().map_or_else(LockFolder::of_this_user, Ok)?;
            device.keep_lock(Lock::of_namespace(&folder, &locked, mode)?);
            lock_name = Some(locked);
        }
        let blank = device.is_blank();
        let mut administration = Self {
            device: Some(device),
            identity,
            findings: None,
            remnant: false,
            foreign: Vec::new(),
            lock_name,
            configured: options.node,
            take_over: options.take_over,
        };
        administration.meet_holder()?;
        if !blank && let Err(error) = administration.look_again() {
            // A holder may not even let it be read.
            return Err(administration.holder_instead_of(error).into());
        }
        Ok(administration)
    }

    fn device(&self) -> &Device {
        match &self.device {
            Some(device) => device,
            None => unreachable!("it is taken only by what consumes this"),
        }
    }

    fn device_mut(&mut self) -> &mut Device {
        match &mut self.device {
            Some(device) => device,
            None => unreachable!("it is taken only by what consumes this"),
        }
    }

    /// The device, for an engine; what is held of it stays held.
    pub(crate) fn into_device(mut self) -> Device {
        match self.device.take() {
            Some(device) => device,
            None => unreachable!("it is taken only by what consumes this"),
        }
    }

    /// Its label has a scratch extent, where an engine's proofs may write.
    pub(crate) fn set_scratch(&mut self, scratch: Option<BlockExtent>) {
        if let Some(device) = &mut self.device {
            device.set_scratch(scratch);
        }
    }

    /// By what it was locked here.
    pub(crate) fn lock_name(&self) -> Option<&LockName> {
        self.lock_name.as_ref()
    }

    fn name(&self) -> String {
        self.device().info().name.clone()
    }

    /// The controller's SMART / Health Information.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer.
    pub fn smart_log(&mut self) -> Result<SmartLog, ControllerError> {
        self.device_mut().parts().0.smart_log()
    }

    /// What the host last said when it failed the store of a model: why a label was not written, then.
    pub fn store_error(&self) -> Option<String> {
        self.device().store_error()
    }

    /// Looks at what is on the device, which was changed.
    ///
    /// # Errors
    /// [`AdministrationError`] when it does not read.
    pub fn look_again(&mut self) -> Result<(), AdministrationError> {
        let name = self.name();
        let mut blocks = self.blocks()?;
        let (findings, remnant) = match label::inspect(&mut *blocks) {
            Ok(findings) => (Some(findings), false),
            // Too small for one, say: then there is none, or what is left of one.
            Err(LabelError::Unsuitable { .. }) => (None, false),
            Err(LabelError::Remnant { .. }) => (None, true),
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
        (self.findings, self.remnant, self.foreign) = (findings, remnant, found);
        Ok(())
    }

    /// What is known of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.device().info()
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
        Err(AdministrationError::Foreign { device: self.name(), found: self.foreign.clone() })
    }

    /// What the four slots hold; none where the namespace is too small for a label.
    pub fn findings(&self) -> Option<&Findings> {
        self.findings.as_ref()
    }

    /// Whether a slot begins as a label does, be it damaged or of a later version, or on a namespace that can have none
    /// any more.
    pub fn has_label(&self) -> bool {
        self.remnant || self.findings.as_ref().is_some_and(is_label)
    }

    /// Opens the label for reading.
    ///
    /// # Errors
    /// [`AdministrationError::Label`].
    pub fn label(&mut self) -> Result<Label, AdministrationError> {
        let (identity, device) = (self.identity, self.name());
        let mut blocks = self.blocks()?;
        Label::open(&mut *blocks, &identity, Mode::ReadOnly)
            .map_err(|source| AdministrationError::Label { device, source })
    }

    /// Refuses what [`change`](Self::change) would refuse. Nothing is written.
    ///
    /// # Errors
    /// [`AdministrationError`].
    pub fn require_change(&mut self) -> Result<(), AdministrationError> {
        self.changeable().map(drop)
    }

    /// The owner so far of a device that may be changed.
    fn changeable(&mut self) -> Result<Owner, AdministrationError> {
        drop(self.blocks_to_write()?);
        let owner = self.label()?.owner().clone();
        let node = self.node()?;
        self.require_owner(&owner, &node)?;
        Ok(owner)
    }

    /// Makes the device this node's, and opens its label for changes, with the blocks that they are lent. A label that is
    /// nobody's, or is taken over, becomes the node's with the next epoch.
    ///
    /// # Errors
    /// [`AdministrationError`]; nothing was written, unless it is [`AdministrationError::Label`] of
    /// [`LabelError::Blocks`].
    pub fn change(&mut self) -> Result<(Label, Box<dyn Blocks + '_>), AdministrationError> {
        // Opening for changes may write, so whose it is comes first.
        let former = self.changeable()?;
        let owner = self.claim(&former, Renew::IfTaken)?;
        // From here on no other host can change it; one may have, just before.
        let now = self.label()?.owner().clone();
        if now != former {
            return Err(AdministrationError::Owned { device: self.name(), owner: now, this: owner.node });
        }
        let (identity, device) = (self.identity, self.name());
        let failed = |source| AdministrationError::Label { device: device.clone(), source };
        let mut blocks = self.blocks_to_write()?;
        let mut label = Label::open(&mut *blocks, &identity, Mode::ReadWrite).map_err(failed)?;
        if *label.owner() != owner {
            label.set_owner(&mut *blocks, owner).map_err(failed)?;
        }
        Ok((label, blocks))
    }

    /// Makes a label, which is this node's. Identity and owner are not taken from `new`.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn create_label(&mut self, new: &NewLabel) -> Result<Label, AdministrationError> {
        let (identity, device) = (self.identity, self.name());
        let former = former_owner(&mut *self.blocks_to_write()?);
        let owner = self.claim(&former, Renew::Always)?;
        let mut blocks = self.blocks_to_write()?;
        let new = NewLabel { identity, owner, ..new.clone() };
        let label = label::create(&mut *blocks, &new);
        let label = label.map_err(|source| AdministrationError::Label { device, source })?;
        drop(blocks);
        self.look_again()?;
        Ok(label)
    }

    /// Mends the label, if it is this node's or nobody's. The slots that were written.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn repair_label(&mut self, options: Repair) -> Result<Vec<SlotPlace>, AdministrationError> {
        let (identity, device) = (self.identity, self.name());
        let mut blocks = self.blocks_of_former()?;
        label::repair(&mut *blocks, &identity, options).map_err(|source| AdministrationError::Label { device, source })
    }

    /// Removes the label, if it is this node's or nobody's, or damaged.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn erase_label(&mut self) -> Result<(), AdministrationError> {
        let device = self.name();
        let mut blocks = self.blocks_of_former()?;
        label::erase(&mut *blocks).map_err(|source| AdministrationError::Label { device, source })
    }

    /// Gives the device back, and shuts the controller down. A file that was created for the device stays; without this it
    /// goes again.
    ///
    /// # Errors
    /// [`AdministrationError::Controller`]; the device's reach has ended all the same.
    pub fn close(mut self) -> Result<(), AdministrationError> {
        let released = self.device_mut().release();
        let (info, mut held, (pair, _)) = self.into_device().into_parts();
        held.keep_file();
        let closed = held.shutdown();
        drop(pair);
        released.and(closed).map_err(|source| AdministrationError::Controller { device: info.name, source })
    }

    fn blocks(&mut self) -> Result<Box<dyn Blocks + '_>, AdministrationError> {
        let device = self.name();
        match self.device_mut().blocks() {
            Ok(blocks) => Ok(Box::new(blocks)),
            Err(source) => Err(AdministrationError::Namespace { device, source }),
        }
    }

    fn blocks_to_write(&mut self) -> Result<Box<dyn Blocks + '_>, AdministrationError> {
        if !self.info().writable {
            return Err(AdministrationError::ReadOnly { device: self.name() });
        }
        self.require_no_foreign()?;
        self.blocks()
    }

    /// The blocks of a device that is this node's from now on, whether its label is whole or not.
    fn blocks_of_former(&mut self) -> Result<Box<dyn Blocks + '_>, AdministrationError> {
        let former = former_owner(&mut *self.blocks_to_write()?);
        self.claim(&former, Renew::IfTaken)?;
        self.blocks_to_write()
    }
}

impl Drop for Administration {
    fn drop(&mut self) {
        if let Some(device) = &mut self.device {
            // What it was opened for has failed, and says why.
            let _ = device.release();
        }
    }
}

/// When an owner has the next epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renew {
    /// When it is another one than before: a restart is no take-over.
    IfTaken,
    /// Each time.
    Always,
}

fn is_label(findings: &Findings) -> bool {
    findings.0.iter().any(|finding| !matches!(finding, Finding::Blank | Finding::Foreign))
}

/// Whose the label is that is there; nobody's, where none can be read.
fn former_owner(blocks: &mut dyn Blocks) -> Owner {
    Label::read(blocks).map(|label| label.owner().clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
