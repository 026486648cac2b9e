//! Memory of a GPU, and host memory that a GPU reaches.

use std::ffi::{c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use thiserror::Error;

use super::device::Gpu;
use super::error::{CudaError, code};
use crate::dma::{AcceleratorMemory, Backing, DmaView, HostMemory, HostMemoryError};

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
        Ok(Self { gpu: Arc::clone(gpu), address, len })
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
            let _ = unsafe { (self.gpu.cuda().symbols.cuMemFree_v2)(self.address) };
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
