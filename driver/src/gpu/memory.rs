//! Memory of a GPU, and host memory that a GPU reaches.

use std::ffi::{c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use thiserror::Error;

use super::device::Gpu;
use super::error::{CudaError, code};
use super::provider::{PlaceError, Placement, PointerQueries, locate};
use crate::dma::{AcceleratorMemory, Backing, DmaView, HostMemory, HostMemoryError};

/// Bytes of a GPU's page, as other devices see its memory: what BAR1 mappings are made of.
pub const GPU_PAGE: u64 = 64 << 10;
/// CU_MEMHOSTREGISTER_PORTABLE and CU_MEMHOSTREGISTER_DEVICEMAP.
const PORTABLE_AND_MAPPED: c_uint = 1 | 2;

/// Why there is no such memory. The host is at fault.
#[derive(Debug, Error)]
pub enum GpuMemoryError {
    /// The GPU has no room.
    #[error("GPU {ordinal} has no room for {len} bytes: ask for less, or free some of its {total}")]
    NoRoom {
        /// The GPU.
        ordinal: u32,
        /// Bytes asked for.
        len: usize,
        /// Bytes that it has in all.
        total: u64,
    },
    /// The host has none.
    #[error(transparent)]
    Host(#[from] HostMemoryError),
    /// The GPU has another address for host memory than the host has.
    #[error("GPU {ordinal} does not use the host's own addresses for its memory, as it must here")]
    OtherAddresses {
        /// The GPU.
        ordinal: u32,
    },
    /// CUDA refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Memory of a GPU, from cuMemAlloc. Where it lies in the host's address space is where the GPU has it, but the host
/// cannot touch it.
#[derive(Debug)]
pub struct GpuMemory {
    gpu: Arc<Gpu>,
    /// What CUDA gave, to be given back.
    allocated: u64,
    address: u64,
    len: usize,
}

impl GpuMemory {
    /// `len` bytes, whatever was in them.
    ///
    /// # Errors
    /// [`GpuMemoryError`].
    pub fn allocate(gpu: &Arc<Gpu>, len: usize) -> Result<Self, GpuMemoryError> {
        let mut address: CUdeviceptr = 0;
        let _entered = gpu.enter()?;
        // SAFETY: `address` is writable.
        let code = unsafe { (gpu.cuda().symbols.cuMemAlloc_v2)(&raw mut address, len) };
        if code == code::OUT_OF_MEMORY {
            return Err(GpuMemoryError::NoRoom { ordinal: gpu.info().ordinal, len, total: gpu.info().memory });
        }
        gpu.cuda().check("cuMemAlloc", code)?;
        Ok(Self { gpu: Arc::clone(gpu), allocated: address, address, len })
    }

    /// At least `len` bytes, as whole pages of [`GPU_PAGE`] bytes: what other devices are given.
    ///
    /// # Errors
    /// [`GpuMemoryError`].
    pub fn allocate_pages(gpu: &Arc<Gpu>, len: usize) -> Result<Self, GpuMemoryError> {
        let page = GPU_PAGE as usize;
        let no_room = || GpuMemoryError::NoRoom { ordinal: gpu.info().ordinal, len, total: gpu.info().memory };
        let len = len.max(1).checked_next_multiple_of(page).ok_or_else(no_room)?;
        // What is large lies on a page already; only small allocations have to be found a place in a larger one.
        let plain = Self::allocate(gpu, len)?;
        if plain.address.is_multiple_of(GPU_PAGE) {
            return Ok(plain);
        }
        drop(plain);
        let mut found = Self::allocate(gpu, len.checked_add(page).ok_or_else(no_room)?)?;
        (found.address, found.len) = (found.allocated.next_multiple_of(GPU_PAGE), len);
        Ok(found)
    }

    /// The first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes, not 0.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The GPU that it is of.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: allocated in `allocate`, and used by nobody after its owner. Without a context it is gone already.
            let _ = unsafe { (self.gpu.cuda().symbols.cuMemFree_v2)(self.allocated) };
        }
    }
}

// SAFETY: the address and the length do not change, and it is freed when the value is dropped and not before.
unsafe impl AcceleratorMemory for GpuMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}

/// Memory of a GPU that the caller has allocated, or is thought to have: nothing is asked of CUDA before it is
/// [located](Self::locate).
#[derive(Debug)]
pub struct CallerGpuMemory {
    address: u64,
    len: u64,
}

impl CallerGpuMemory {
    /// The `len` bytes at `address`.
    ///
    /// # Safety
    /// What CUDA has allocated there is neither freed nor unmapped until this value, and what is [made](Self::pages) of it,
    /// has been dropped: a device may write there until then.
    pub const unsafe fn new(address: u64, len: u64) -> Self {
        Self { address, len }
    }

    /// The first address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes, as it was given.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte, which [`locate`](Self::locate) refuses.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it lies: memory of GPU `wanted` all of it.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn locate(&self, queries: &dyn PointerQueries, wanted: u32) -> Result<Placement, PlaceError> {
        locate(queries, wanted, self.address, self.len)
    }

    /// The whole pages of `page` bytes, a power of two, that it lies on: what can be mapped for devices. Commands name
    /// nothing of the rest of the first and the last page, which belong to the same allocations.
    ///
    /// # Errors
    /// [`PlaceError::Pages`] where they do not.
    pub fn pages(&self, placement: &Placement, page: u64) -> Result<GpuPages, PlaceError> {
        let Self { address, len } = *self;
        // Located, so neither overflows, and the placement has an allocation.
        let (base, last) = (address / page * page, address.saturating_add(len - 1));
        let end = (last / page + 1).checked_mul(page);
        let pages = end.map(|end| end - base).filter(|pages| placement.holds(base, *pages));
        let pages = pages.ok_or(PlaceError::Pages { address, len, page })?;
        Ok(GpuPages { base, len: pages, before: address - base })
    }
}

/// Whole pages of GPU memory that the caller has allocated ([`CallerGpuMemory::pages`]).
#[derive(Debug)]
pub struct GpuPages {
    base: u64,
    len: u64,
    before: u64,
}

impl GpuPages {
    /// Bytes on the first page before the memory that they are of.
    pub fn before(&self) -> u64 {
        self.before
    }
}

// SAFETY: the numbers do not change; that the memory is the GPU's was looked up, and whoever named it has promised that it
// is as long as this value is there.
unsafe impl AcceleratorMemory for GpuPages {
    fn address(&self) -> u64 {
        self.base
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// Memory of this process that a GPU reaches at the process's own addresses, until dropped.
#[derive(Debug)]
pub(super) struct Registration {
    gpu: Arc<Gpu>,
    base: NonNull<u8>,
}

// SAFETY: it is an address that is only ever given back to CUDA.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// # Safety
    /// The memory stays mapped until the result is dropped.
    pub(super) unsafe fn new(gpu: &Arc<Gpu>, base: NonNull<u8>, len: usize) -> Result<Self, GpuMemoryError> {
        if !gpu.uses_host_addresses() {
            return Err(GpuMemoryError::OtherAddresses { ordinal: gpu.info().ordinal });
        }
        let _entered = gpu.enter()?;
        let address = base.as_ptr().cast::<c_void>();
        // SAFETY: the caller vouches for the range.
        let code = unsafe { (gpu.cuda().symbols.cuMemHostRegister_v2)(address, len, PORTABLE_AND_MAPPED) };
        gpu.cuda().check("cuMemHostRegister", code)?;
        Ok(Self { gpu: Arc::clone(gpu), base })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: registered in `new`.
            let _ = unsafe { (self.gpu.cuda().symbols.cuMemHostUnregister)(self.base.as_ptr().cast()) };
        }
    }
}

/// Host memory of our own that a GPU reaches too, on hugepages where there are some. A device reaches it as any host
/// memory.
#[derive(Debug)]
pub struct PinnedMemory {
    // Before the memory: in this order they are dropped.
    _registration: Registration,
    memory: HostMemory,
}

impl PinnedMemory {
    /// At least `len` bytes, zeroed.
    ///
    /// # Errors
    /// [`GpuMemoryError`].
    pub fn allocate(gpu: &Arc<Gpu>, len: usize) -> Result<Self, GpuMemoryError> {
        let memory = HostMemory::allocate(len)?;
        // SAFETY: the memory is dropped after the registration.
        let registration = unsafe { Registration::new(gpu, memory.base(), memory.len()) }?;
        Ok(Self { _registration: registration, memory })
    }

    /// The bytes.
    pub fn view(&self) -> DmaView<'_> {
        // SAFETY: the memory outlives the view; nobody makes a reference to it.
        unsafe { DmaView::new(self.memory.base(), self.memory.len()) }
    }

    /// The first address, the same for host and GPU.
    pub fn address(&self) -> u64 {
        self.memory.base().addr().get() as u64
    }
}

// SAFETY: as `HostMemory`, which it is.
unsafe impl Backing for PinnedMemory {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.memory.file()
    }
}
