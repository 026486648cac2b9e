//! One function that VFIO has given to this process.
//!
//! [`VfioDevice`] owns the descriptors of the device and of its group, if that was opened, and every mapping of its BARs.
//! Registers are read and written by calls on the device's descriptor: of a device that is gone such a call says so,
//! where an access to mapped memory could be a signal. Once it is [cut off](VfioDevice::cut_off) the descriptors are
//! closed, nothing of the device reaches memory, and its mappings lead nowhere; what it was is forgotten, and sysfs is
//! not asked again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_RESET, VFIO_PCI_BAR0_REGION_INDEX, VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_REQ_IRQ_INDEX,
};

use super::bar::BarMemory;
use super::capability::{Area, RegionInfo};
use super::event::Event;
use super::mapping::Mapping;
use super::space::Members;
use super::{VfioError, ioctl};
use crate::bus::{BusError, PciFunction};
use crate::dma::DmaSpace;
use crate::keeper::{Keeper, Kept};

/// BAR 0 as VFIO numbers regions; the other BARs follow.
pub(super) const BAR0: u32 = VFIO_PCI_BAR0_REGION_INDEX;
/// BARs of a function.
const BARS: u32 = 6;
/// The Command register in configuration space (PCI Express Base 6.0, 7.5.1.1.3) and its bits.
const COMMAND: u64 = 4;
const MEMORY_SPACE_ENABLE: u16 = 1 << 1;
const BUS_MASTER_ENABLE: u16 = 1 << 2;
/// How often a reset is asked for where the kernel is at the device itself just then, and how long it is left in peace
/// between two times.
const RESET_TRIES: u32 = 20;
const RESET_PAUSE: Duration = Duration::from_millis(5);

/// What is open while the function is ours.
struct Open {
    device: File,
    /// Its group, where it was opened through that.
    group: Option<File>,
}

/// One function of this machine, open through VFIO.
pub struct VfioDevice {
    name: String,
    function: PciFunction,
    bars: Vec<RegionInfo>,
    config: RegionInfo,
    has_reset: bool,
    /// Whether it was opened by a device file of its own.
    by_file: bool,
    open: RwLock<Option<Open>>,
    /// Held while a register of configuration space is changed.
    changing: Mutex<()>,
    /// Every mapping of a BAR that was made and may still be there.
    mappings: Mutex<Vec<Weak<Mapping>>>,
    /// What holds its descriptor beyond the end of this process.
    kept: Mutex<Option<Kept>>,
    removal: Event,
    removal_requested: AtomicBool,
    errors: Event,
    dma: Arc<DmaSpace>,
    space: Arc<dyn Members>,
}

impl VfioDevice {
    pub(super) fn new(
        function: PciFunction,
        device: File,
        group: Option<File>,
        dma: Arc<DmaSpace>,
        space: Arc<dyn Members>,
    ) -> Result<Self, VfioError> {
        let name = function.address.to_string();
        let failed = |step| {
            let name = name.clone();
            move |source| VfioError::Kernel { name, step, source }
        };
        let info = ioctl::device_info(&device).map_err(failed("ask what it is"))?;
        let region = |index| {
            let reply = ioctl::region_info(&device, index).map_err(failed("ask for its regions"))?;
            Ok::<_, VfioError>(RegionInfo::read(&reply))
        };
        let bars = (BAR0..BAR0 + BARS).map(region).collect::<Result<_, _>>()?;
        let config = region(VFIO_PCI_CONFIG_REGION_INDEX)?;
        let [removal, errors] = [(); 2].map(|()| Event::new().map_err(failed("make an event")));
        let (removal, errors) = (removal?, errors?);
        // A kernel without one of them (the first is of Linux 4.0) says that the device has 0 of the kind.
        for (event, index) in [(&removal, VFIO_PCI_REQ_IRQ_INDEX), (&errors, VFIO_PCI_ERR_IRQ_INDEX)] {
            if ioctl::irq_count(&device, index).unwrap_or(0) > 0 {
                ioctl::signal_events(&device, index, &[event.as_fd()]).map_err(failed("be told of its events"))?;
            }
        }
        let opened = Self {
            has_reset: info.flags & VFIO_DEVICE_FLAGS_RESET != 0,
            by_file: group.is_none(),
            name,
            function,
            bars,
            config,
            open: RwLock::new(Some(Open { device, group })),
            changing: Mutex::new(()),
            mappings: Mutex::new(Vec::new()),
            kept: Mutex::new(None),
            removal,
            removal_requested: AtomicBool::new(false),
            errors,
            dma,
            space,
        };
        let enabled = opened.change_command(|command| command | MEMORY_SPACE_ENABLE);
        enabled.map_err(|source| VfioError::Kernel { name: opened.name.clone(), step: "enable its memory", source })?;
        Ok(opened)
    }

    /// Its PCI address, as text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What sysfs said of it when it was opened.
    pub fn function(&self) -> &PciFunction {
        &self.function
    }

    /// The address space that it shares with the functions that were opened with it.
    pub fn dma(&self) -> &Arc<DmaSpace> {
        &self.dma
    }

    /// The memory of a BAR, for another function's DMA.
    ///
    /// # Errors
    /// [`VfioError::NoBar`] where it has none that can be mapped as a whole.
    pub fn bar(&self, bar: u32) -> Result<BarMemory, VfioError> {
        let region = self.bars.get(bar as usize);
        let len = region.map_or(0, |region| region.len);
        let no_bar = || VfioError::NoBar { name: self.name.clone(), bar, len };
        let whole = Area { offset: 0, len };
        if len == 0 || !region.is_some_and(|region| region.areas.contains(&whole)) {
            return Err(no_bar());
        }
        let mapping = self.map(bar, whole)?;
        // Type 1 needs none. A kernel that exports none may still be asked to map the BAR as it is.
        let export = |device: &File| Ok(ioctl::iommufd::export_dma_buf(device, bar, len).ok());
        let dma_buf = if self.by_file { self.on_device("export its BAR", export)? } else { None };
        Ok(BarMemory::new(mapping, dma_buf))
    }

    /// A duplicate of its file, and where in that a BAR begins: what a mapping of the BAR can be made of again. Who has it
    /// keeps the device open, also when it has been cut off: it is to go, with what was mapped of it, before the device.
    ///
    /// # Errors
    /// [`VfioError`]: there is no such BAR, or the device has been cut off.
    pub fn bar_file(&self, bar: u32) -> Result<(OwnedFd, u64), VfioError> {
        let region = self.bars.get(bar as usize).filter(|region| region.len != 0);
        let no_bar = || VfioError::NoBar { name: self.name.clone(), bar, len: 0 };
        let offset = region.ok_or_else(no_bar)?.file_offset;
        let file = self.on_device("duplicate its file", |device| device.as_fd().try_clone_to_owned())?;
        Ok((file, offset))
    }

    /// Has its descriptor close last where this process is killed: after those of the controllers that reach its memory.
    /// Once for each device is enough.
    ///
    /// # Errors
    /// [`VfioError::Keeper`], and where it has been cut off.
    pub fn keep_by(&self, keeper: &Keeper) -> Result<(), VfioError> {
        let kept = self.on_device("have it kept", |device| Ok(keeper.keep(device.as_fd())))?;
        let kept = kept.map_err(|source| VfioError::Keeper { name: self.name.clone(), source })?;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
        Ok(())
    }

    /// Has the kernel turn the first `count` MSI-X interrupts into events; those of before are gone. 0 switches
    /// interrupts off.
    ///
    /// # Errors
    /// [`VfioError`].
    pub fn interrupts(&self, count: u32) -> Result<Vec<Event>, VfioError> {
        self.on_device("hand out its interrupts", |device| {
            let available = ioctl::irq_count(device, VFIO_PCI_MSIX_IRQ_INDEX)?;
            if count > available {
                return Ok(Err(VfioError::Interrupts { name: self.name.clone(), wanted: count, available }));
            }
            let events = (0..count).map(|_| Event::new()).collect::<io::Result<Vec<_>>>()?;
            let fds: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
            ioctl::signal_events(device, VFIO_PCI_MSIX_IRQ_INDEX, &fds)?;
            Ok(Ok(events))
        })?
    }

    /// How many MSI-X interrupts there are; none where the device does not answer.
    pub(super) fn interrupt_vectors(&self) -> u32 {
        self.with_device(|device| ioctl::irq_count(device, VFIO_PCI_MSIX_IRQ_INDEX)).unwrap_or(0)
    }

    /// Has the kernel turn one MSI-X interrupt into an event from now on, or into nothing.
    pub(super) fn signal(&self, vector: u16, event: Option<&Event>) -> io::Result<()> {
        let event = event.map(AsFd::as_fd);
        self.with_device(|device| ioctl::signal_event(device, VFIO_PCI_MSIX_IRQ_INDEX, vector.into(), event))
    }

    /// Whether the kernel has asked for the device back: it is to be removed, or unbound. It waits until the device is
    /// [cut off](Self::cut_off).
    pub fn removal_requested(&self) -> bool {
        // The kernel asks again and again; once is enough.
        if self.removal.take() {
            self.removal_requested.store(true, Ordering::Relaxed);
        }
        self.removal_requested.load(Ordering::Relaxed)
    }

    /// Whether the bus has reported an error of the device that cannot be corrected, since the last call.
    pub fn error_reported(&self) -> bool {
        self.errors.take()
    }

    /// The descriptor that becomes readable when the kernel asks for the device back.
    pub fn removal_event(&self) -> BorrowedFd<'_> {
        self.removal.as_fd()
    }

    /// Gives the device up for ever: closes it and takes it, or its group, out of the address space. Needs nothing from the
    /// device. When this returns nothing of it reaches memory, and every mapping of its BARs leads to ordinary memory
    /// that nobody sees.
    pub fn cut_off(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        let Some(Open { device, group }) = open.take() else { return };
        // The kernel does not let go of what somebody else has open.
        drop(self.kept.lock().unwrap_or_else(PoisonError::into_inner).take());
        // A mapping holds the device open: each must lead elsewhere before the device can be closed. Nobody makes one
        // meanwhile, as that takes the lock that is held here.
        let mappings = std::mem::take(&mut *self.mappings.lock().unwrap_or_else(PoisonError::into_inner));
        for mapping in mappings.iter().filter_map(Weak::upgrade) {
            // One that stays makes the kernel refuse the detach below, for which there is another way.
            let _ = mapping.revoke();
        }
        match group {
            // The kernel lets a group go once its devices are closed.
            Some(group) => {
                drop(device);
                self.space.detach(&group);
            }
            None => self.space.detach(&device),
        }
    }

    /// BAR 0.
    pub(super) fn registers(&self) -> &RegionInfo {
        &self.bars[0]
    }

    /// Reads from BAR 0. `None` where the device does not answer, or has nothing there.
    pub(super) fn read_register<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let at = file_offset(self.registers(), offset, N)?;
        self.with_device(|device| device.read_exact_at(&mut bytes, at)).ok()?;
        Some(bytes)
    }

    /// Writes to BAR 0; what the device does not take is lost.
    pub(super) fn write_register<const N: usize>(&self, offset: u64, bytes: [u8; N]) {
        if let Some(at) = file_offset(self.registers(), offset, N) {
            // It is lost: whoever waits for its effect has a deadline.
            let _ = self.with_device(|device| device.write_all_at(&bytes, at));
        }
    }

    /// Reads `N` bytes of configuration space.
    pub(super) fn read_config<const N: usize>(&self, offset: u64) -> io::Result<[u8; N]> {
        let at = file_offset(&self.config, offset, N).ok_or(io::ErrorKind::InvalidInput)?;
        let mut bytes = [0; N];
        self.with_device(|device| device.read_exact_at(&mut bytes, at))?;
        Ok(bytes)
    }

    /// Maps a part of a BAR that can be mapped.
    pub(super) fn map(&self, bar: u32, area: Area) -> Result<Arc<Mapping>, VfioError> {
        let offset = self.bars.get(bar as usize).and_then(|region| region.file_offset.checked_add(area.offset));
        self.on_device("map its BAR", |device| {
            let offset = offset.ok_or(io::ErrorKind::InvalidInput)?;
            let mapping = Arc::new(Mapping::new(device, offset, area.len)?);
            let mut mappings = self.mappings.lock().unwrap_or_else(PoisonError::into_inner);
            mappings.retain(|mapping| mapping.strong_count() > 0);
            mappings.push(Arc::downgrade(&mapping));
            Ok(mapping)
        })
    }

    /// Whether its memory answers: a mapped access to memory that is disabled would be a signal.
    pub(super) fn memory_enabled(&self) -> bool {
        self.read_config(COMMAND).is_ok_and(|bytes| u16::from_le_bytes(bytes) & MEMORY_SPACE_ENABLE != 0)
    }

    /// Sets or clears Bus Master Enable.
    pub(super) fn set_bus_mastering(&self, on: bool) -> io::Result<()> {
        self.change_command(|command| if on { command | BUS_MASTER_ENABLE } else { command & !BUS_MASTER_ENABLE })
    }

    /// Resets the function, with bus mastering off before and after.
    pub(super) fn reset(&self) -> Result<(), BusError> {
        let gone = BusError::Gone { what: "Function Level Reset" };
        if !self.has_reset {
            return Err(BusError::NoReset);
        }
        // The kernel puts the Command register back as it finds it.
        self.set_bus_mastering(false).map_err(|_| gone)?;
        for _ in 0..RESET_TRIES {
            match self.with_device(ioctl::reset) {
                Ok(()) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => std::thread::sleep(RESET_PAUSE),
                Err(_) => break,
            }
        }
        Err(gone)
    }

    fn change_command(&self, change: impl Fn(u16) -> u16) -> io::Result<()> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let command = change(u16::from_le_bytes(self.read_config(COMMAND)?)).to_le_bytes();
        let at = file_offset(&self.config, COMMAND, command.len()).ok_or(io::ErrorKind::InvalidInput)?;
        self.with_device(|device| device.write_all_at(&command, at))
    }

    /// Does something on the device, which stays open meanwhile.
    fn with_device<T>(&self, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        act(&open.device)
    }

    /// As [`with_device`](Self::with_device), with an error that says what was tried.
    fn on_device<T>(&self, step: &'static str, act: impl FnOnce(&File) -> io::Result<T>) -> Result<T, VfioError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = open.as_ref() else { return Err(VfioError::CutOff { name: self.name.clone() }) };
        act(&open.device).map_err(|source| VfioError::Kernel { name: self.name.clone(), step, source })
    }
}

impl Drop for VfioDevice {
    fn drop(&mut self) {
        self.cut_off();
    }
}

/// Where `len` bytes at `offset` of a region are in the device's file; `None` where the region does not have them.
fn file_offset(region: &RegionInfo, offset: u64, len: usize) -> Option<u64> {
    let whole = Area { offset: 0, len: region.len };
    if whole.contains(offset, len as u64) { region.file_offset.checked_add(offset) } else { None }
}
