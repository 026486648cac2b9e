//! Opening: how a URI becomes a device, and several devices an engine. Here alone.
//!
//! [`Devices`] are what an engine will own. They are opened one after the other into one address space, so that memory
//! has one IOVA for all of them; before lanes take them over each lends out its blocks, for a label to be read or foreign
//! contents to be found. [`Devices::start`] makes an engine of them.

mod file_store;
mod info;
mod model;
mod serial;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Controller, ControllerError, Namespace};
use tentpeg_driver::dma::DmaSpace;
use tentpeg_driver::model::{Model, ModelError, SoftwareIommu};
use tentpeg_driver::queue::QueuePair;
use tentpeg_driver::spec::identify::Oncs;
use thiserror::Error;

pub use file_store::FileStoreError;
pub use info::DeviceInfo;

use crate::MAX_DEVICES;
use crate::blocks::{NamespaceBlocks, NamespaceBlocksError};
use crate::clock::Clock;
use crate::engine::{Engine, EngineConfig, LaneMode};
use crate::lane::{CommandTasks, Lane};
use crate::memory::MemoryError;
use crate::segment::{DeviceTraits, LayoutError, SegmentLayout};
use crate::uri::{DeviceUri, UriError};

/// Why a device was not opened, or an engine not started.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Caller: the URI is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// Caller or host: the file of a store.
    #[error(transparent)]
    File(#[from] FileStoreError),
    /// Caller or host: the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Device: the controller.
    #[error("{device}: {source}")]
    Controller {
        /// The device.
        device: String,
        /// What is wrong with it.
        source: ControllerError,
    },
    /// Device: it has no namespace that can be served.
    #[error("{device} has no namespace that can be served{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())]
    NoNamespace {
        /// The device.
        device: String,
        /// Why not the first one that it has.
        reason: Option<String>,
    },
    /// Caller: one device more than an engine can own.
    #[error("{device} is one device too many: an engine owns {MAX_DEVICES} at the most")]
    TooManyDevices {
        /// The device.
        device: String,
    },
    /// Caller or host: the device's memory accesses do not go through the address space of those before it.
    #[error("{device} cannot join the address space of the devices that are open already: memory would have two IOVAs")]
    AddressSpace {
        /// The device.
        device: String,
    },
    /// Caller, or the label: segments that these devices cannot have.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Host: no memory for lists of ranges, zeroes or staging.
    #[error("{device}: {source}")]
    Memory {
        /// The device.
        device: String,
        /// Why.
        source: MemoryError,
    },
    /// Host: no thread.
    #[error("cannot start a thread for a lane: {0}")]
    Thread(std::io::Error),
}

/// An open device without a lane: its queue pair is idle, and may be lent.
pub struct Device {
    info: DeviceInfo,
    held: Held,
    pair: QueuePair<CommandTasks>,
}

/// What stands behind a device, but for the queue pair, which is its port's: the controller, the namespace that is
/// served, and what there is to be kept alive.
pub(crate) struct Held {
    // In this order: the controller is told to stop before the model that it is goes away.
    pub(crate) controller: Controller,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Clock,
    pub(crate) model: Option<Model>,
    /// The file that was made for it, until all of the engine has been opened.
    created: Option<file_store::Created>,
}

/// What an engine and a port share of a device; taken out when the engine closes.
pub(crate) type SharedDevice = Arc<Mutex<Option<Held>>>;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What these protect is whole at every step, so a panic elsewhere leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a device before its controller is enabled.
struct Found {
    name: String,
    function: Arc<dyn Function>,
    writable: bool,
    moves_data: bool,
    model: Option<Model>,
    created: Option<file_store::Created>,
}

impl Device {
    /// Enables the controller, finds the namespace and makes the queue pair.
    fn enable(found: Found, config: &EngineConfig) -> Result<Self, OpenError> {
        let Found { name, function, writable, moves_data, model, created } = found;
        let failed = |source| OpenError::Controller { device: name.clone(), source };
        let clock = Clock::new(&function);
        let mut controller = Controller::enable(function, config.controller.clone()).map_err(failed)?;
        let namespaces = controller.namespaces().map_err(failed)?;
        let reason = namespaces.first().and_then(not_served);
        let served = namespaces.into_iter().find(|namespace| not_served(namespace).is_none());
        let served = served.and_then(|namespace| namespace.limits.ok().map(|limits| (namespace, limits)));
        let Some((namespace, limits)) = served else {
            return Err(OpenError::NoNamespace { device: name, reason });
        };
        let entries = config.queue_entries.min(controller.limits().max_queue_entries);
        let pair = controller.create_queue_pair(entries).map_err(failed)?;
        let info = DeviceInfo {
            name,
            cap: controller.cap(),
            version: controller.version(),
            controller: Box::new(controller.identify().clone()),
            nsid: namespace.nsid,
            namespace: namespace.identify.clone(),
            limits,
            writable,
            moves_data,
            queue_pairs: controller.queue_pairs(),
            depth: pair.slots(),
            created_file: created.as_ref().map(|created: &file_store::Created| created.path().to_owned()),
        };
        Ok(Self { info, held: Held { controller, namespace, clock, model, created }, pair })
    }

    /// What is known of it.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Its blocks. Unless the device may be written nothing is.
    ///
    /// # Errors
    /// [`NamespaceBlocksError`].
    pub fn blocks(&mut self) -> Result<NamespaceBlocks<'_, impl Copy + Default + use<>>, NamespaceBlocksError> {
        let Held { controller, namespace, clock, .. } = &mut self.held;
        NamespaceBlocks::with_clock(controller, &mut self.pair, namespace, self.info.writable, clock.clone())
    }

    /// Controller, namespace and the pair, which is idle: what reservations and identities are asked by.
    pub fn parts(&mut self) -> (&mut Controller, &Namespace, &mut QueuePair<impl Copy + Default + use<>>) {
        (&mut self.held.controller, &self.held.namespace, &mut self.pair)
    }

    /// The address space that its memory accesses go through.
    pub(crate) fn space(&self) -> &Arc<DmaSpace> {
        self.held.clock.function().dma()
    }

    /// What segments on it can be.
    pub(crate) fn traits(&self) -> DeviceTraits {
        DeviceTraits {
            limits: self.info.limits,
            writable: self.info.writable,
            deallocates: self.held.controller.limits().optional.oncs.contains(Oncs::DATASET_MANAGEMENT),
            deallocated_is_zero: self.held.namespace.identify.dlfeat.drb() == 1,
        }
    }

    /// What an engine shares of it, and the pair, which is a port's from now on.
    pub(crate) fn into_parts(self) -> (DeviceInfo, Held, QueuePair<CommandTasks>) {
        (self.info, self.held, self.pair)
    }
}

impl Held {
    /// The file that was made for it stays: opening has come to its end.
    pub(crate) fn keep_file(&mut self) {
        if let Some(created) = self.created.take() {
            created.keep();
        }
    }

    /// Shuts the controller down.
    ///
    /// # Errors
    /// [`ControllerError`] when it does not follow in time; its reach has ended all the same.
    pub(crate) fn shutdown(self) -> Result<(), ControllerError> {
        self.controller.shutdown()
    }
}

/// The devices of an engine that is about to be, in the order in which layouts name them.
pub struct Devices {
    devices: Vec<Device>,
    iommu: Arc<SoftwareIommu>,
    mode: LaneMode,
    config: EngineConfig,
}

impl Devices {
    /// No device yet, for an engine that is run like this.
    pub fn new(mode: LaneMode, config: EngineConfig) -> Self {
        Self { devices: Vec::new(), iommu: SoftwareIommu::new(), mode, config }
    }

    /// Opens what `uri` names. Its number, by which layouts name it: they count from 0.
    ///
    /// # Errors
    /// [`OpenError`]; nothing of that device is left open, and no file is created, then.
    pub fn open(&mut self, uri: &str) -> Result<usize, OpenError> {
        let DeviceUri::Model(settings) = uri.parse()?;
        let found = model::find(&settings, self.mode, &self.iommu)?;
        self.take(found)
    }

    /// Takes a function that the caller has opened, and keeps alive. Its number.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`OpenError::AddressSpace`] where it does not share that of the devices before it.
    pub fn add(&mut self, function: Arc<dyn Function>, writable: bool) -> Result<usize, OpenError> {
        let name = function.name().to_owned();
        self.take(Found { name, function, writable, moves_data: true, model: None, created: None })
    }

    fn take(&mut self, found: Found) -> Result<usize, OpenError> {
        if self.devices.len() >= MAX_DEVICES {
            return Err(OpenError::TooManyDevices { device: found.name });
        }
        if self.devices.first().is_some_and(|first| !Arc::ptr_eq(first.space(), found.function.dma())) {
            return Err(OpenError::AddressSpace { device: found.name });
        }
        self.devices.push(Device::enable(found, &self.config)?);
        Ok(self.devices.len() - 1)
    }

    /// The devices that are open.
    pub fn as_slice(&self) -> &[Device] {
        &self.devices
    }

    /// A device, to look into it.
    pub fn get_mut(&mut self, device: usize) -> Option<&mut Device> {
        self.devices.get_mut(device)
    }

    /// The device that was opened last, which is no engine's then.
    pub(crate) fn take_last(&mut self) -> Option<Device> {
        self.devices.pop()
    }

    /// Each device as one segment, under this name, with its number behind it where there are several.
    pub fn whole(&self, name: &str) -> Vec<SegmentLayout> {
        let several = self.devices.len() > 1;
        let layout = |(device, opened): (usize, &Device)| {
            let name = if several { format!("{name}-{device}") } else { name.to_owned() };
            SegmentLayout::whole(&name, device, opened.info.limits.nsze())
        };
        self.devices.iter().enumerate().map(layout).collect()
    }

    /// Makes an engine of them that serves these segments, and the lane that the caller drives, where it is to be so.
    ///
    /// # Errors
    /// [`OpenError::Layout`] where the devices cannot have such segments, or what the host lacks; nothing is left open,
    /// and no file is created, then.
    pub fn start(self, layouts: Vec<SegmentLayout>) -> Result<(Engine, Option<Lane>), OpenError> {
        Engine::start(self.devices, layouts, self.mode, self.config)
    }
}

/// Why the engine does not serve a namespace that the driver may well: its segments are bytes, and have no place for
/// metadata.
fn not_served(namespace: &Namespace) -> Option<String> {
    match &namespace.limits {
        Err(error) => Some(error.to_string()),
        Ok(limits) => limits.metadata().map(|metadata| {
            format!(
                "namespace {} has {} bytes of metadata a block: an engine serves namespaces without (format it with MS = 0)",
                namespace.nsid, metadata.size
            )
        }),
    }
}
