//! How a URI becomes a device, and several devices an engine. Here alone.
//!
//! [`Devices`] are what an engine will own. They are opened one after the other into one address space, so that memory
//! has one IOVA for all of them; before lanes take them over each lends out its blocks, for a label to be read or foreign
//! contents to be found. [`Devices::start`] makes an engine of them. Whose a device is, is not asked here: that is what
//! [opening](crate::opening) does.

mod error;
mod file_store;
mod function;
mod held;
mod info;
mod model;
mod serial;

use std::io::ErrorKind;
use std::sync::Arc;

use tentpeg_driver::bus::{Function, Interrupt};
use tentpeg_driver::controller::quirks::PciId;
use tentpeg_driver::controller::{Controller, ControllerConfig, ControllerError, Namespace, PairWithInterrupt};
use tentpeg_driver::dma::DmaSpace;
use tentpeg_driver::model::{Model, ModelError, SoftwareIommu};
use tentpeg_driver::queue::QueuePair;
use tentpeg_driver::spec::identify::Oncs;

pub use error::OpenError;
pub use file_store::FileStoreError;
pub(crate) use held::{Held, Hold, SharedDevice, lock};
pub use info::DeviceInfo;

use crate::MAX_DEVICES;
use crate::blocks::{NamespaceBlocks, NamespaceBlocksError};
use crate::clock::Clock;
use crate::engine::{Engine, EngineConfig, LaneMode};
use crate::lane::{CommandTasks, Lane, LaneIdle};
use crate::ownership::Ownership;
use crate::ownership::lock::{Lock, store_in_use};
use crate::ownership::reservation::{Reservation, ReservationError};
use crate::segment::{BlockExtent, DeviceTraits, SegmentLayout};
use crate::uri::{DeviceUri, PciUri, StoreUri};

/// An open device without a lane: its queue pair is idle, and may be lent.
pub struct Device {
    info: DeviceInfo,
    held: Held,
    pair: QueuePair<CommandTasks>,
    /// What the pair's completion queue interrupts by, where its lane may sleep and there is one.
    interrupt: Option<Box<dyn Interrupt>>,
    /// Nothing can be on it: it was made a moment ago, or keeps nothing.
    blank: bool,
    /// Where its label lets proofs of it write.
    scratch: Option<BlockExtent>,
}

/// What is known of a device before its controller is enabled.
struct Found {
    name: String,
    function: Arc<dyn Function>,
    writable: bool,
    moves_data: bool,
    model: Option<Model>,
    created: Option<file_store::Created>,
    /// Its identifiers, where they are known.
    pci: Option<PciId>,
    has_mover: bool,
}

impl Found {
    /// A function that is no model of ours, and moves its data.
    fn of_function(name: String, function: Arc<dyn Function>, writable: bool) -> Self {
        let (model, created, pci, has_mover) = (None, None, None, false);
        Self { name, function, writable, moves_data: true, model, created, pci, has_mover }
    }
}

impl Device {
    /// Enables the controller, finds the namespace and makes the queue pair.
    fn enable(found: Found, blank: bool, config: &EngineConfig, mode: LaneMode) -> Result<Self, OpenError> {
        let Found { name, function, writable, moves_data, model, created, pci, has_mover } = found;
        let failed = |source| OpenError::Controller { device: name.clone(), source };
        let clock = Clock::new(&function);
        let controller = ControllerConfig { pci: pci.or(config.controller.pci), ..config.controller.clone() };
        let mut controller = Controller::enable(function, controller).map_err(failed)?;
        let namespaces = controller.namespaces().map_err(failed)?;
        let reason = namespaces.first().and_then(not_served);
        let served = namespaces.into_iter().find(|namespace| not_served(namespace).is_none());
        let served = served.and_then(|namespace| namespace.limits.ok().map(|limits| (namespace, limits)));
        let Some((namespace, limits)) = served else {
            return Err(OpenError::NoNamespace { device: name, reason });
        };
        let entries = config.queue_entries.min(controller.limits().max_queue_entries);
        let (pair, interrupt) = if mode == LaneMode::Thread && config.lanes.idle != LaneIdle::Poll {
            controller.create_queue_pair_with_interrupt(entries).map_err(failed)?
        } else {
            (controller.create_queue_pair(entries).map_err(failed)?, None)
        };
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
            has_mover,
            queue_pairs: controller.queue_pairs(),
            depth: pair.slots(),
            created_file: created.as_ref().map(|created: &file_store::Created| created.path().to_owned()),
            ownership: None,
        };
        let held = Held { controller, namespace, clock, model, created, hold: None, lock: None };
        Ok(Self { info, held, pair, interrupt, blank, scratch: None })
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

    /// What the host last said when it failed a model's store.
    pub(crate) fn store_error(&self) -> Option<String> {
        self.held.model.as_ref().and_then(Model::store_error)
    }

    /// Whether nothing can be on it, so that there is nothing to look at.
    pub(crate) fn is_blank(&self) -> bool {
        self.blank
    }

    /// Whether whoever opened it has locked it: a model has locked the file that it keeps its bytes in.
    pub(crate) fn is_locked(&self) -> bool {
        self.held.model.is_some() || self.held.lock.is_some()
    }

    /// Keeps a lock until the controller has been left.
    pub(crate) fn keep_lock(&mut self, lock: Lock) {
        self.held.lock = Some(lock);
    }

    /// It is this node's from now on, and as long as `hold` lasts the controllers keep others away.
    pub(crate) fn set_ownership(&mut self, ownership: Ownership, hold: Option<Hold>) {
        self.info.ownership = Some(ownership);
        self.held.hold = hold;
    }

    /// Asks about its reservation, or changes it.
    pub(crate) fn reserve<T>(
        &mut self,
        ask: impl FnOnce(&mut Reservation<'_, CommandTasks>) -> Result<T, ReservationError>,
    ) -> Result<T, ReservationError> {
        let Held { controller, namespace, .. } = &mut self.held;
        ask(&mut Reservation { controller, pair: &mut self.pair, namespace })
    }

    /// Gives back what is held of it, if anything is.
    pub(crate) fn release(&mut self) -> Result<(), ControllerError> {
        self.info.ownership = None;
        self.held.release(&mut self.pair)
    }

    /// The address space that its memory accesses go through.
    pub(crate) fn space(&self) -> &Arc<DmaSpace> {
        self.held.clock.function().dma()
    }

    /// Where its label lets proofs of it write.
    pub(crate) fn scratch(&self) -> Option<BlockExtent> {
        self.scratch
    }

    /// Its label has a scratch extent.
    pub(crate) fn set_scratch(&mut self, scratch: Option<BlockExtent>) {
        self.scratch = scratch;
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

    /// What an engine shares of it, and the pair with its interrupt, which are a port's from now on.
    pub(crate) fn into_parts(self) -> (DeviceInfo, Held, PairWithInterrupt<CommandTasks>) {
        (self.info, self.held, (self.pair, self.interrupt))
    }
}

/// The devices of an engine that is about to be, in the order in which layouts name them.
pub struct Devices {
    devices: Vec<Device>,
    iommu: Arc<SoftwareIommu>,
    reach: function::Reach,
    mode: LaneMode,
    config: EngineConfig,
    /// How many models have a mover at the same time: each has its part of the GPU.
    sharers: u32,
}

impl Devices {
    /// No device yet, for an engine that is run like this.
    pub fn new(mode: LaneMode, config: EngineConfig) -> Self {
        let reach = function::Reach::default();
        Self { devices: Vec::new(), iommu: SoftwareIommu::new(), reach, mode, config, sharers: 1 }
    }

    /// How many devices there are to be: where they are models that reach a GPU, each has its part of it.
    pub fn expect(&mut self, devices: usize) {
        self.sharers = u32::try_from(devices).unwrap_or(u32::MAX).max(1);
    }

    /// Opens what `uri` names. Its number, by which layouts name it: they count from 0.
    ///
    /// # Errors
    /// [`OpenError`]; nothing of that device is left open, and no file is created, then.
    pub fn open(&mut self, uri: &str) -> Result<usize, OpenError> {
        self.open_settings(uri.parse()?)
    }

    /// As [`open`](Self::open), for reading only, whatever the URI says. No file is created.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open_read_only(&mut self, uri: &str) -> Result<usize, OpenError> {
        let mut uri = uri.parse()?;
        match &mut uri {
            DeviceUri::Model(settings) => {
                if let StoreUri::File { path, overwrite } = &mut settings.store {
                    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                        return Err(FileStoreError::Absent { path: path.clone() }.into());
                    }
                    *overwrite = false;
                }
            }
            DeviceUri::Pci(settings) => settings.overwrite = false,
            DeviceUri::VfioUser(settings) => settings.overwrite = false,
        }
        let device = self.open_settings(uri)?;
        self.devices[device].info.writable = false;
        Ok(device)
    }

    /// Opens functions of this machine together, so that they share an address space. Each becomes a device when it is
    /// opened by its URI.
    ///
    /// # Errors
    /// [`OpenError`]; none of them is open then.
    pub(crate) fn reach(&mut self, functions: &[PciUri]) -> Result<(), OpenError> {
        self.reach.open(functions)
    }

    fn open_settings(&mut self, uri: DeviceUri) -> Result<usize, OpenError> {
        let settings = match uri {
            DeviceUri::Model(settings) => settings,
            DeviceUri::Pci(settings) => {
                let found = self.reach.find(settings)?;
                return self.take(found, false);
            }
            DeviceUri::VfioUser(settings) => return self.take(function::find_behind_socket(&settings)?, false),
        };
        let gpu = self.config.gpu.as_ref().map(|gpu| (gpu, self.sharers));
        let found = model::find(&settings, self.mode, &self.iommu, gpu).map_err(|error| match error {
            OpenError::Model(ModelError::InUse { path }) => OpenError::Lock(store_in_use(&path)),
            error => error,
        })?;
        let blank = found.created.is_some() || !matches!(settings.store, StoreUri::File { .. });
        self.take(found, blank)
    }

    /// Takes a function that the caller has opened, and keeps alive. Its number.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`OpenError::AddressSpace`] where it does not share that of the devices before it.
    pub fn add(&mut self, function: Arc<dyn Function>, writable: bool) -> Result<usize, OpenError> {
        let name = function.name().to_owned();
        self.take(Found::of_function(name, function, writable), false)
    }

    fn take(&mut self, found: Found, blank: bool) -> Result<usize, OpenError> {
        if self.devices.len() >= MAX_DEVICES {
            return Err(OpenError::TooManyDevices { device: found.name });
        }
        if self.devices.first().is_some_and(|first| !Arc::ptr_eq(first.space(), found.function.dma())) {
            return Err(OpenError::AddressSpace { device: found.name });
        }
        let place = (found.name.clone(), found.function.numa_node());
        let Self { config, mode, .. } = self;
        let enable = || Device::enable(found, blank, config, *mode);
        let device = config.lanes.near(self.devices.len(), place, enable)??;
        self.devices.push(device);
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

    /// The devices, to be looked at one by one.
    pub(crate) fn into_devices(self) -> Vec<Device> {
        self.devices
    }

    /// Makes an engine of them that serves these segments, and the lane that the caller drives, where it is to be so.
    /// Nothing on the devices is looked at, and whose they are is not asked: whoever says where segments lie answers for
    /// that. [`Engine::open`] does not need to be told.
    ///
    /// # Errors
    /// [`OpenError::Layout`] where the devices cannot have such segments, or what the host lacks; nothing is left open,
    /// and no file is created, then.
    pub fn start(self, layouts: Vec<SegmentLayout>) -> Result<(Engine, Option<Lane>), OpenError> {
        Engine::start(self.devices, layouts, Vec::new(), self.mode, self.config)
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
