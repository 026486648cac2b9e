//! One GPU, and the context in which everything here happens.
//!
//! It is the primary context, the one that the runtime API and the frameworks use, so that their memory is known in it.
//! A call makes it current for as long as it takes and gives the caller's thread back the one it had. Calls can block:
//! none belongs into a poll.

use std::ffi::{c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute as Attribute, CUflushGPUDirectRDMAWritesScope_enum as FlushScope,
    CUflushGPUDirectRDMAWritesTarget_enum as FlushTarget,
};

use super::error::CudaError;
use super::library::{Cuda, CudaVersion, LibraryError};

/// CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED.
const DMA_BUF_MMAP_SUPPORTED: u32 = 152;
/// The first CUDA that knows it.
const WITH_DMA_BUF_MMAP: CudaVersion = CudaVersion(13_030);

/// Whom the GPU keeps writes from other devices in order for, without a flush (cuda.h,
/// CUGPUDirectRDMAWritesOrdering).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritesOrdering {
    /// For nobody.
    Nobody,
    /// For itself.
    Owner,
    /// For every GPU.
    AllDevices,
}

impl fmt::Display for WritesOrdering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "nobody",
            Self::Owner => "the GPU itself",
            Self::AllDevices => "all devices",
        })
    }
}

/// What a GPU is like. All of it read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number among those that the driver shows.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its PCI address as the kernel writes it: `0000:3b:00.0`.
    pub pci_address: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability, major and minor.
    pub compute_capability: (u32, u32),
    /// What of other devices' writes is in order without a flush.
    pub writes_ordering: WritesOrdering,
    /// Whether the host can flush other devices' writes.
    pub host_flush: bool,
    /// Whether other devices can reach its memory at all.
    pub rdma: bool,
    /// Whether memory can be exported as a dma-buf.
    pub dma_buf: bool,
    /// Whether such a dma-buf can be mapped by a process. `None`: the driver is older than the question.
    pub dma_buf_mmap: Option<bool>,
}

impl GpuInfo {
    /// Whether a reader of `scope` sees other devices' writes only after a flush.
    pub fn needs_flush(&self, scope: WritesOrdering) -> bool {
        self.writes_ordering < scope
    }
}

/// A GPU with its primary context held.
pub struct Gpu {
    cuda: Arc<Cuda>,
    device: CUdevice,
    context: CUcontext,
    info: GpuInfo,
    uses_host_addresses: bool,
    /// Kernels launched.
    launches: AtomicU64,
}

// SAFETY: a context may be used from any thread, by several at a time; the handle is never changed.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gpu").field(&self.info).finish()
    }
}

/// The context, current in this thread until dropped.
pub(super) struct Entered<'a> {
    gpu: &'a Gpu,
    /// It belongs to this thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut former: CUcontext = std::ptr::null_mut();
        // SAFETY: `former` is writable. What is popped was pushed by `enter` in this thread.
        let _ = unsafe { (self.gpu.cuda.symbols.cuCtxPopCurrent_v2)(&raw mut former) };
    }
}

impl Gpu {
    /// Opens GPU `ordinal`.
    ///
    /// # Errors
    /// [`LibraryError`]: there is no such GPU, or CUDA refuses.
    pub fn open(cuda: &Arc<Cuda>, ordinal: u32) -> Result<Arc<Self>, LibraryError> {
        let count = cuda.device_count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or(LibraryError::NoSuchDevice { ordinal, count })?;
        let symbols = &cuda.symbols;
        let mut device: CUdevice = 0;
        // SAFETY: `device` is writable.
        cuda.check("cuDeviceGet", unsafe { (symbols.cuDeviceGet)(&raw mut device, number) })?;
        let info = read_info(cuda, device, ordinal)?;
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
        let uses_host_addresses = read_attribute(cuda, device, attribute as u32)? != 0;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: `context` is writable; the device is one of CUDA's.
        cuda.check("cuDevicePrimaryCtxRetain", unsafe {
            (symbols.cuDevicePrimaryCtxRetain)(&raw mut context, device)
        })?;
        let launches = AtomicU64::new(0);
        Ok(Arc::new(Self { cuda: Arc::clone(cuda), device, context, info, uses_host_addresses, launches }))
    }

    /// The library that it was opened with.
    pub fn cuda(&self) -> &Arc<Cuda> {
        &self.cuda
    }

    /// What it is like.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Whether it reaches registered memory of this process at the process's own addresses.
    pub(super) fn uses_host_addresses(&self) -> bool {
        self.uses_host_addresses
    }

    /// Kernels that were launched through this value, by whomever.
    pub fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// A kernel was launched.
    pub(super) fn count_launch(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the context current in this thread.
    pub(super) fn enter(&self) -> Result<Entered<'_>, CudaError> {
        // SAFETY: the context is held by this value.
        self.cuda.check("cuCtxPushCurrent", unsafe { (self.cuda.symbols.cuCtxPushCurrent_v2)(self.context) })?;
        Ok(Entered { gpu: self, thread: PhantomData })
    }

    /// Makes writes of other devices that have reached this GPU visible to `scope`. Kernels that run already are
    /// promised nothing.
    ///
    /// # Errors
    /// [`CudaError`].
    pub fn flush(&self, scope: WritesOrdering) -> Result<(), CudaError> {
        let scope = match scope {
            WritesOrdering::Nobody => return Ok(()),
            WritesOrdering::Owner => FlushScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
            WritesOrdering::AllDevices => FlushScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES,
        };
        let target = FlushTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
        let _entered = self.enter()?;
        // SAFETY: numbers of cuda.h; it touches no memory of ours.
        let code = unsafe { (self.cuda.symbols.cuFlushGPUDirectRDMAWrites)(target as u32, scope as u32) };
        self.cuda.check("cuFlushGPUDirectRDMAWrites", code)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Who destroyed it before, or ended CUDA, has released it for us.
        // SAFETY: retained in `open`, once.
        let _ = unsafe { (self.cuda.symbols.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

fn read_info(cuda: &Cuda, device: CUdevice, ordinal: u32) -> Result<GpuInfo, CudaError> {
    let symbols = &cuda.symbols;
    let mut text = [0u8; 256];
    let (room, len) = (text.as_mut_ptr().cast::<c_char>(), text.len() as c_int);
    // SAFETY: `text` has as many bytes as are said.
    cuda.check("cuDeviceGetName", unsafe { (symbols.cuDeviceGetName)(room, len, device) })?;
    let name = until_zero(&text);
    let (room, len) = (text.as_mut_ptr().cast::<c_char>(), text.len() as c_int);
    // SAFETY: as above.
    cuda.check("cuDeviceGetPCIBusId", unsafe { (symbols.cuDeviceGetPCIBusId)(room, len, device) })?;
    let pci_address = until_zero(&text).to_lowercase();
    let mut memory = 0usize;
    // SAFETY: `memory` is writable.
    cuda.check("cuDeviceTotalMem", unsafe { (symbols.cuDeviceTotalMem_v2)(&raw mut memory, device) })?;
    let attribute = |number: u32| read_attribute(cuda, device, number);
    let known = |named: Attribute| attribute(named as u32);
    let dma_buf_mmap = match cuda.version() {
        older if older < WITH_DMA_BUF_MMAP => None,
        _ => Some(attribute(DMA_BUF_MMAP_SUPPORTED)? != 0),
    };
    Ok(GpuInfo {
        ordinal,
        name,
        pci_address,
        memory: memory as u64,
        multiprocessors: known(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        compute_capability: (
            known(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            known(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        writes_ordering: match known(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)? {
            200.. => WritesOrdering::AllDevices,
            100.. => WritesOrdering::Owner,
            _ => WritesOrdering::Nobody,
        },
        host_flush: known(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)? & 1 != 0,
        rdma: known(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)? != 0,
        dma_buf: known(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)? != 0,
        dma_buf_mmap,
    })
}

fn read_attribute(cuda: &Cuda, device: CUdevice, number: u32) -> Result<u32, CudaError> {
    let mut value: c_int = 0;
    // SAFETY: `value` is writable.
    let code = unsafe { (cuda.symbols.cuDeviceGetAttribute)(&raw mut value, number, device) };
    cuda.check("cuDeviceGetAttribute", code).map(|()| u32::try_from(value).unwrap_or(0))
}

fn until_zero(text: &[u8]) -> String {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}
