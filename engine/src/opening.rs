//! Opening: devices become an engine by what their labels say.
//!
//! Each device is locked, met (who holds its reservation?) and looked at before anything is written. Then:
//!
//! - a label: its segments. Opened for writing, the device becomes this node's: by the label, and by a reservation where
//!   it has one; both ends of the label are brought to one state, and changes of stripes that were interrupted are
//!   finished or dropped. Opened for reading nothing is written, also not to another node's device: what is pending is
//!   decided and left.
//! - no label, nothing foreign: the whole device is one segment.
//! - no label, foreign contents: refused for writing; for reading the whole device is one segment.
//! - a label that is damaged, of a later version, or another namespace's: an error that says what to do.
//!
//! A stripe is served when all its members are open; one that is incomplete is [reported](Engine::not_opened) and never
//! served.

mod layouts;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use tentpeg_driver::bus::Function;
use uuid::Uuid;

use crate::administration::Administration;
use crate::device::{Devices, OpenError};
use crate::engine::{Engine, EngineConfig, LaneMode};
use crate::label::stripe::SetError;
use crate::lane::Lane;
use crate::ownership::lock::LockFolder;
use crate::uri::{DeviceUri, PciUri, StoreUri};

/// A device that is to be opened.
#[derive(Clone)]
pub enum DeviceSource {
    /// What a URI names.
    Uri(String),
    /// A function that the caller has opened, and keeps alive.
    Function {
        /// The function.
        function: Arc<dyn Function>,
        /// Whether its namespace may be written.
        writable: bool,
    },
}

impl From<&str> for DeviceSource {
    fn from(uri: &str) -> Self {
        Self::Uri(uri.to_owned())
    }
}

impl From<String> for DeviceSource {
    fn from(uri: String) -> Self {
        Self::Uri(uri)
    }
}

impl DeviceSource {
    /// Opens it as the next one of `devices`.
    pub(crate) fn open(&self, devices: &mut Devices, read_only: bool) -> Result<usize, OpenError> {
        match self {
            Self::Uri(uri) if read_only => devices.open_read_only(uri),
            Self::Uri(uri) => devices.open(uri),
            Self::Function { function, writable } => devices.add(Arc::clone(function), *writable && !read_only),
        }
    }

    /// The function of this machine that it is.
    fn pci(&self) -> Option<PciUri> {
        let Self::Uri(uri) = self else { return None };
        match uri.parse() {
            Ok(DeviceUri::Pci(settings)) => Some(settings),
            _ => None,
        }
    }

    /// Its file, whatever it is called, where it has one that exists.
    fn file(&self) -> Option<(u64, u64)> {
        let Self::Uri(uri) = self else { return None };
        let Ok(DeviceUri::Model(settings)) = uri.parse() else { return None };
        let StoreUri::File { path, .. } = settings.store else { return None };
        fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    fn name(&self) -> &str {
        match self {
            Self::Uri(uri) => uri,
            Self::Function { function, .. } => function.name(),
        }
    }
}

/// What of a device is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// The segments of its label; where it has none, and nothing foreign, all of it.
    #[default]
    Segments,
    /// All of it as one segment. What has a label can only be read that way.
    Device,
}

/// Which segments may be read at any byte, through staging.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum UnalignedReads {
    /// None.
    #[default]
    None,
    /// All.
    All,
    /// Those of these names.
    Of(BTreeSet<String>),
}

/// How an engine opens its devices. The default is safe: what is foreign, another node's or another host's is refused.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// How the engine is run.
    pub config: EngineConfig,
    /// Who turns its lanes.
    pub lanes: LaneMode,
    /// Nothing is written, whatever the devices allow.
    pub read_only: bool,
    /// A device that is another node's, or that another host holds, is taken over: the former owner is fenced where the
    /// device has reservations. For this once: with the next opening the device is this node's.
    pub take_over: bool,
    /// UUID of this node; without, the one that follows from its machine-id.
    pub node: Option<Uuid>,
    /// Where locks are; without, the user's folder.
    pub locks: Option<LockFolder>,
    /// What is served.
    pub scope: Scope,
    /// Which segments may be read at any byte.
    pub unaligned_reads: UnalignedReads,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            config: EngineConfig::default(),
            lanes: LaneMode::Thread,
            read_only: false,
            take_over: false,
            node: None,
            locks: None,
            scope: Scope::Segments,
            unaligned_reads: UnalignedReads::None,
        }
    }
}

/// A striped segment that is on the devices, and not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotOpened {
    /// Its name.
    pub name: String,
    /// Why: which members are missing, say.
    pub reason: SetError,
}

/// Opens an engine.
pub(crate) fn open(sources: Vec<DeviceSource>, options: OpenOptions) -> Result<(Engine, Option<Lane>), OpenError> {
    let names: Vec<String> = sources.iter().map(|source| source.name().to_owned()).collect();
    let twice =
        |first: usize, second: usize| OpenError::Twice { first: names[first].clone(), second: names[second].clone() };
    // Before anything is opened: what is wrong must not create a file.
    options.config.lanes.threads(options.lanes, sources.len())?;
    let mut files = HashMap::new();
    let mut devices = Devices::new(options.lanes, options.config.clone());
    devices.expect(sources.len());
    devices.reach(&sources.iter().filter_map(DeviceSource::pci).collect::<Vec<_>>())?;
    for (number, source) in sources.iter().enumerate() {
        // Whoever comes second would only be told that the file is in use.
        if let Some(first) = source.file().and_then(|file| files.get(&file)) {
            return Err(twice(*first, number));
        }
        source.open(&mut devices, options.read_only)?;
        // It may have been made just now.
        files.extend(source.file().map(|file| (file, number)));
    }
    let mut opened: Vec<Administration> = Vec::new();
    for device in devices.into_devices() {
        let device = Administration::look(device, &options)?;
        let same = |other: &Administration| other.lock_name().is_some() && other.lock_name() == device.lock_name();
        if let Some(first) = opened.iter().position(same) {
            return Err(twice(first, opened.len()));
        }
        opened.push(device);
    }
    let (layouts, not_opened) = layouts::layouts(&mut opened, &options)?;
    let devices = opened.into_iter().map(Administration::into_device).collect();
    Engine::start(devices, layouts, not_opened, options.lanes, options.config)
}

#[cfg(test)]
mod contention;
#[cfg(test)]
mod tests;
