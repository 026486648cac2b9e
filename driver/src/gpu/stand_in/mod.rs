//! A stand-in for a GPU: host memory under addresses that nobody but its own copies touches, for everything above that
//! works the same with and without a GPU.
//!
//! It answers as CUDA would: about addresses, of memory that was freed, of ranges past an allocation. Devices reach it where
//! it is told to have [ways](StandInWays), each of them by a file in the place of BAR1; where their writes are not ordered,
//! they arrive there and are in its memory only after a flush. No figure is to be had from it.

mod copies;
mod memory;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::accelerator::{Accelerator, Copies};
use super::copier::CopierConfig;
use super::device::{GpuInfo, WritesOrdering};
use super::direct::{BarMapping, DmaBuf};
use super::error::{CudaError, code};
use super::kernels::{KernelError, WordSeries};
use super::ladder::{Gdrdrv, GdrdrvVersion, PathProbe};
use super::library::CudaVersion;
use super::memory::{GPU_PAGE, GpuMemoryError};
use super::provider::{PointerAttributes, PointerQueries};
use super::stream::GpuProducer;
use crate::dma::{AcceleratorMemory, Backing, HostMemory, HostMemoryError, MemoryCopy, Mover, PageSize};
use copies::{StandInCopier, StandInMover, make, write_words};
use memory::{Home, Known, free_part};
pub use memory::{StandInMemory, StandInWindow};

/// CU_MEMORYTYPE_DEVICE.
const DEVICE: u32 = 2;

/// Which ways lead to a stand-in's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandInWays {
    /// Whether its dma-bufs can be mapped.
    pub mmap: bool,
    /// Its gdrdrv, if it has one.
    pub gdrdrv: Option<Gdrdrv>,
    /// Bytes of BAR1.
    pub bar1: u64,
    /// For whom writes of devices are ordered.
    pub writes_ordering: WritesOrdering,
    /// Whether the host can flush them.
    pub host_flush: bool,
}

impl Default for StandInWays {
    /// By mapped dma-bufs, as much as there are, in order.
    fn default() -> Self {
        let writes_ordering = WritesOrdering::AllDevices;
        Self { mmap: true, gdrdrv: None, bar1: u64::MAX, writes_ordering, host_flush: true }
    }
}

/// A GPU that is none.
pub struct StandIn {
    info: GpuInfo,
    ways: Option<StandInWays>,
    /// Where its memory lies; without, each allocation is memory of its own.
    window: Option<StandInWindow>,
    known: Mutex<Vec<Known>>,
    /// What is mapped of BAR1, each with its bytes.
    mapped: Mutex<Vec<(Weak<OwnedFd>, u64)>>,
    next: AtomicU64,
    launches: AtomicU64,
    flushes: AtomicU64,
    flush_fails: AtomicBool,
    no_kernels: AtomicBool,
    astray: AtomicBool,
    /// Work that was begun and is not done yet.
    begun: Mutex<Vec<(usize, WordSeries)>>,
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StandIn").field(&self.info.name).finish()
    }
}

impl StandIn {
    /// One with `memory` bytes that no device reaches.
    pub fn new(memory: u64) -> Arc<Self> {
        Self::with(memory, None, None)
    }

    /// One with `memory` bytes that devices reach in these ways.
    pub fn with_ways(memory: u64, ways: StandInWays) -> Arc<Self> {
        Self::with(memory, Some(ways), None)
    }

    /// One whose memory is that of a window, which devices reach by its file or its dma-buf.
    pub fn over(window: StandInWindow) -> Arc<Self> {
        // Exposed, so that copies by addresses can be made there.
        let _ = window.memory.base().as_ptr().expose_provenance();
        let gdrdrv = Some(Gdrdrv { version: GdrdrvVersion { major: 2, minor: 5 }, persistent: Some(true) });
        let ways = StandInWays { gdrdrv, ..StandInWays::default() };
        Self::with(window.memory.len() as u64, Some(ways), Some(window))
    }

    fn with(memory: u64, ways: Option<StandInWays>, window: Option<StandInWindow>) -> Arc<Self> {
        let info = GpuInfo {
            ordinal: 0,
            name: "stand-in".to_owned(),
            pci_address: "0000:00:00.0".to_owned(),
            memory,
            multiprocessors: 1,
            compute_capability: (0, 0),
            writes_ordering: ways.map_or(WritesOrdering::AllDevices, |ways| ways.writes_ordering),
            host_flush: ways.is_some_and(|ways| ways.host_flush),
            rdma: true,
            dma_buf: ways.is_some(),
            dma_buf_mmap: ways.map(|ways| ways.mmap),
        };
        Arc::new(Self {
            info,
            ways,
            window,
            known: Mutex::default(),
            mapped: Mutex::default(),
            next: AtomicU64::new(1),
            launches: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            flush_fails: AtomicBool::new(false),
            no_kernels: AtomicBool::new(false),
            astray: AtomicBool::new(false),
            begun: Mutex::default(),
        })
    }

    /// Memory of it, to be looked into: for a caller who has allocated his own.
    ///
    /// # Errors
    /// [`GpuMemoryError::NoRoom`] where all of it is given away, or the host has none.
    pub fn allocate_memory(self: &Arc<Self>, len: usize) -> Result<Arc<StandInMemory>, GpuMemoryError> {
        let (ordinal, total) = (self.info.ordinal, self.info.memory);
        let no_room = || GpuMemoryError::NoRoom { ordinal, len, total };
        let pages = len.max(1).checked_next_multiple_of(GPU_PAGE as usize).ok_or_else(no_room)?;
        let mut known = self.lock();
        let used: u64 = known.iter().map(|known| known.len).sum();
        if total.checked_sub(used).is_none_or(|free| free < pages as u64) {
            return Err(no_room());
        }
        let buffer_id = self.next.fetch_add(1, Ordering::Relaxed);
        let (allocation, home) = match &self.window {
            Some(window) => (free_part(window, &known, pages as u64).ok_or_else(no_room)?, None),
            None => {
                let home = self.home(pages).ok_or_else(no_room)??;
                (home.known(pages as u64, self.ways.is_some()), Some(home))
            }
        };
        let base = NonNull::new(ptr::with_exposed_provenance_mut(allocation.base as usize)).ok_or_else(no_room)?;
        known.push(Known { buffer_id, ..allocation });
        drop(known);
        Ok(Arc::new(StandInMemory { stand_in: Arc::clone(self), base, len: pages, _home: home }))
    }

    /// Memory of its own for an allocation; `None`: it is too long.
    fn home(&self, len: usize) -> Option<Result<Home, HostMemoryError>> {
        // It begins on a page of the GPU.
        let room = len.checked_add(GPU_PAGE as usize)?;
        // For readers on the GPU itself, which all copies here are.
        let posts = self.ways.is_some_and(|ways| ways.writes_ordering < WritesOrdering::Owner);
        let posts = posts || self.astray.load(Ordering::Relaxed);
        let allocate = || HostMemory::allocate_on(room, PageSize::Ordinary);
        let posted = || if posts { allocate().map(Some) } else { Ok(None) };
        Some(allocate().and_then(|memory| Ok(Home { memory, posted: posted()? })))
    }

    /// How often it was flushed.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// No flush succeeds from now on.
    pub fn break_flushes(&self) {
        self.flush_fails.store(true, Ordering::Relaxed);
    }

    /// There are no kernels for it from now on, as on a GPU that is too old for them.
    pub fn lose_kernels(&self) {
        self.no_kernels.store(true, Ordering::Relaxed);
    }

    /// Begins to write words, as somebody else's kernel would: they are there when it was waited for, and not before.
    ///
    /// # Safety
    /// They lie in memory of this stand-in, on multiples of 8, which nobody else uses until then.
    pub unsafe fn begin_work(&self, series: WordSeries) -> GpuProducer {
        let number = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push((number, series));
        // SAFETY: nothing of CUDA's is behind it.
        unsafe { GpuProducer::event(number) }
    }

    /// What is allocated from now on is behind BAR1 in another place than the GPU's own copies find it.
    pub fn lead_astray(&self) {
        self.astray.store(true, Ordering::Relaxed);
    }

    /// The allocation that begins at `base` is `len` bytes from now on, and what is behind them somebody else's.
    pub fn cut(&self, base: u64, len: u64) {
        self.lock().iter_mut().filter(|known| known.base == base).for_each(|known| known.len = len);
    }

    /// Maps a file as a part of BAR1, where there is room.
    fn map_window(&self, window: DmaBuf, len: u64) -> Result<BarMapping, i32> {
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|(file, _)| file.strong_count() > 0);
        let used: u64 = mapped.iter().map(|(_, len)| len).sum();
        if self.ways.is_none_or(|ways| ways.bar1.saturating_sub(used) < len) {
            return Err(libc::ENOMEM);
        }
        mapped.push((Arc::downgrade(&window.file), len));
        drop(mapped);
        BarMapping::of_dma_buf(window, len)
    }

    /// The part of its BAR1 that `len` bytes at `address` are.
    fn window(&self, address: u64, len: u64) -> Option<DmaBuf> {
        let known = self.find(address)?;
        let offset = address - known.base;
        let (file, _) = known.window.filter(|_| len <= known.len - offset)?;
        Some(DmaBuf { file: Arc::new(file.try_clone().ok()?), offset: known.before + offset })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        // Each change leaves the list whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, address: u64) -> Option<Known> {
        self.lock().iter().find(|known| address >= known.base && address - known.base < known.len).cloned()
    }

    /// What the GPU has written is what devices see, too.
    ///
    /// # Safety
    /// The range was just written, by whoever may write it, in memory that is mapped.
    unsafe fn show(&self, address: u64, len: u64) {
        let shown = |known: &Known| known.is_posted() && !self.astray.load(Ordering::Relaxed);
        let Some(known) = self.find(address).filter(shown) else { return };
        if let Some(to) = known.in_window(address - known.base) {
            // SAFETY: the window is as long as the memory, so the range lies in both, which nobody has references to.
            unsafe { make(MemoryCopy::new(to, address, len)) }
        }
    }
}

impl PointerQueries for StandIn {
    fn attributes(&self, address: u64) -> Result<PointerAttributes, CudaError> {
        let attributes = |known: Known| PointerAttributes {
            memory_type: DEVICE,
            buffer_id: known.buffer_id,
            has_context: true,
            rdma_capable: true,
            ..PointerAttributes::default()
        };
        Ok(self.find(address).map(attributes).unwrap_or_default())
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let unknown = || CudaError {
            call: "cuMemGetAddressRange",
            code: code::INVALID_VALUE,
            name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
        };
        self.find(address).map(|known| (known.base, known.len)).ok_or_else(unknown)
    }
}

impl PathProbe for StandIn {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn driver(&self) -> CudaVersion {
        CudaVersion(0)
    }

    fn export(&self, address: u64, len: u64) -> Result<DmaBuf, CudaError> {
        let name = "CUDA_ERROR_NOT_SUPPORTED".to_owned();
        let refused = CudaError { call: "cuMemGetHandleForAddressRange", code: code::NOT_SUPPORTED, name };
        let plain = self.window(address, len).ok_or(refused.clone())?;
        // The whole window is one dma-buf.
        match self.window.as_ref().map(|window| (window.memory.file(), window.offset)) {
            Some((Some((file, offset)), begin)) => {
                let file = file.try_clone_to_owned().map_err(|_| refused)?;
                Ok(DmaBuf { file: Arc::new(file), offset: offset + (plain.offset - begin) })
            }
            _ => Ok(plain),
        }
    }

    fn map(&self, dma_buf: DmaBuf, len: u64) -> Result<BarMapping, i32> {
        // As drivers that cannot do it answer.
        let mmap = self.ways.is_some_and(|ways| ways.mmap);
        if mmap { self.map_window(dma_buf, len) } else { Err(524) }
    }

    fn pin(&self, address: u64, len: u64) -> Result<BarMapping, i32> {
        self.map_window(self.window(address, len).ok_or(libc::EINVAL)?, len)
    }

    fn import(&self, _: &DmaBuf, _: u64) -> Result<(), i32> {
        let dma_buf = self.window.as_ref().is_some_and(|window| window.memory.file().is_some());
        if dma_buf { Ok(()) } else { Err(libc::ENODEV) }
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        self.ways.and_then(|ways| ways.gdrdrv).ok_or(libc::ENOENT)
    }

    fn bar1_free(&self) -> Option<u64> {
        // As one that is not asked, so that what does not fit is found out by the mapping.
        None
    }
}

impl Accelerator for StandIn {
    fn allocate(self: Arc<Self>, len: usize) -> Result<Arc<dyn AcceleratorMemory>, GpuMemoryError> {
        Ok(self.allocate_memory(len)?)
    }

    fn allocate_pinned(self: Arc<Self>, len: usize) -> Result<Box<dyn Backing>, GpuMemoryError> {
        Ok(Box::new(HostMemory::allocate(len)?))
    }

    fn mover(self: Arc<Self>, _: u32) -> Result<Box<dyn Mover>, KernelError> {
        Ok(Box::new(StandInMover::new(self)))
    }

    fn copier(self: Arc<Self>, _: CopierConfig) -> Result<Box<dyn Copies>, KernelError> {
        if self.no_kernels.load(Ordering::Relaxed) {
            return Err(KernelError::Capability { ordinal: self.info.ordinal, have: self.info.compute_capability });
        }
        Ok(Box::new(StandInCopier::new(self)))
    }

    fn wait_for(&self, producer: GpuProducer) -> Result<(), CudaError> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(place) = begun.iter().position(|(number, _)| *number == producer.number()) else {
            let name = "CUDA_ERROR_INVALID_HANDLE".to_owned();
            return Err(CudaError { call: "cuEventSynchronize", code: 400, name });
        };
        let (_, series) = begun.swap_remove(place);
        // SAFETY: whoever began it vouches for the words.
        unsafe { write_words(self, series) };
        Ok(())
    }

    fn flush(&self, _: WritesOrdering) -> Result<(), CudaError> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.flush_fails.load(Ordering::Relaxed) {
            let name = "CUDA_ERROR_LAUNCH_FAILED".to_owned();
            return Err(CudaError { call: "cuFlushGPUDirectRDMAWrites", code: 719, name });
        }
        for known in self.lock().iter().filter(|known| known.is_posted()) {
            if let Some(from) = known.in_window(0) {
                // SAFETY: both are mapped as long as the allocation is known, and nobody has references to either.
                unsafe { make(MemoryCopy::new(known.base, from, known.len)) }
            }
        }
        Ok(())
    }

    fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }
}
