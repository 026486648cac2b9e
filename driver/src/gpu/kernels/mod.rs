//! The copy kernels: what they take, and their PTX.
//!
//! `copy.cu` is their source; `tests/gpu/ptx` makes `copy.ptx` of it with CUDA 13.0's nvcc, for compute capability 7.5 and
//! newer. A driver takes PTX as new as itself and no newer: [`OLDEST_DRIVER`].

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUfunction, CUmodule};
use thiserror::Error;

use super::device::Gpu;
use super::error::{CudaError, code};
use super::library::{CudaVersion, LibraryError};
use super::memory::GpuMemoryError;
use super::stream::Stream;
use crate::dma::MemoryCopy;

const PTX: &str = include_str!("copy.ptx");

/// The oldest driver that takes the PTX, by its `.version` (PTX ISA, release notes: 9.0 came with CUDA 13.0).
pub const OLDEST_DRIVER: CudaVersion = CudaVersion(13_000);
/// The least compute capability that the PTX is for.
const LEAST_CAPABILITY: (u32, u32) = (7, 5);

/// Threads of a block, 8 warps.
pub(super) const THREADS: u32 = 256;
/// Warps of a block.
const WARPS: u32 = THREADS / 32;

/// Why the kernels cannot be used.
#[derive(Debug, Error)]
pub enum KernelError {
    /// The driver is too old, or is none.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The GPU is too old.
    #[error(
        "GPU {ordinal} has compute capability {}.{}, and the kernels need {}.{}", have.0, have.1, LEAST_CAPABILITY.0,
        LEAST_CAPABILITY.1
    )]
    Capability {
        /// The GPU.
        ordinal: u32,
        /// What it has.
        have: (u32, u32),
    },
    /// No memory for what they need.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// CUDA refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Words of 8 bytes in memory, each `step` more than the one before, modulo 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct WordSeries {
    /// The first address, a multiple of 8.
    pub address: u64,
    /// How many words.
    pub words: u64,
    /// The first word.
    pub first: u64,
    /// How much each is more than the one before.
    pub step: u64,
}

/// Where a paged KV pool has its blocks.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct KvPool {
    pub(super) planes: u64,
    pub(super) block_stride: u64,
    pub(super) plane_count: u32,
    pub(super) piece: u32,
}

const _: () = assert!(size_of::<WordSeries>() == 32 && size_of::<MemoryCopy>() == 32 && size_of::<KvPool>() == 24);

/// The kernels, loaded.
pub(super) struct Kernels {
    gpu: Arc<Gpu>,
    module: CUmodule,
    copy: CUfunction,
    feed: CUfunction,
    kv: CUfunction,
    write_series: CUfunction,
    check_series: CUfunction,
}

// SAFETY: a module and its functions may be used from any thread.
unsafe impl Send for Kernels {}

/// What the feeder is launched with. Addresses are the GPU's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Feed {
    pub(super) control: u64,
    pub(super) ring: u64,
    pub(super) done: u64,
    pub(super) mask: u32,
    pub(super) state: u64,
    pub(super) head: u32,
    pub(super) generation: u32,
    pub(super) idle_ns: u64,
    pub(super) life_ns: u64,
}

impl Kernels {
    pub(super) fn load(gpu: &Arc<Gpu>) -> Result<Self, KernelError> {
        gpu.cuda().require(OLDEST_DRIVER)?;
        let have = gpu.info().compute_capability;
        if have < LEAST_CAPABILITY {
            return Err(KernelError::Capability { ordinal: gpu.info().ordinal, have });
        }
        let text = CString::new(PTX).unwrap_or_default();
        let mut module: CUmodule = std::ptr::null_mut();
        let _entered = gpu.enter()?;
        // SAFETY: `module` is writable; PTX is a text that ends in zero.
        let code = unsafe { (gpu.cuda().symbols.cuModuleLoadData)(&raw mut module, text.as_ptr().cast()) };
        if code == code::UNSUPPORTED_PTX_VERSION {
            return Err(LibraryError::DriverTooOld { have: gpu.cuda().version(), need: OLDEST_DRIVER }.into());
        }
        gpu.cuda().check("cuModuleLoadData", code)?;
        let mut loaded = Self {
            gpu: Arc::clone(gpu),
            module,
            copy: std::ptr::null_mut(),
            feed: std::ptr::null_mut(),
            kv: std::ptr::null_mut(),
            write_series: std::ptr::null_mut(),
            check_series: std::ptr::null_mut(),
        };
        loaded.copy = loaded.function(c"tentpeg_copy")?;
        loaded.feed = loaded.function(c"tentpeg_feed")?;
        loaded.kv = loaded.function(c"tentpeg_kv")?;
        loaded.write_series = loaded.function(c"tentpeg_write_series")?;
        loaded.check_series = loaded.function(c"tentpeg_check_series")?;
        Ok(loaded)
    }

    fn function(&self, name: &std::ffi::CStr) -> Result<CUfunction, CudaError> {
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: `function` is writable; the module is loaded.
        let code =
            unsafe { (self.gpu.cuda().symbols.cuModuleGetFunction)(&raw mut function, self.module, name.as_ptr()) };
        self.gpu.cuda().check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// Blocks for so many warps of work: as many as two for each multiprocessor, which is more than the link needs.
    fn blocks(&self, warps: u64) -> u32 {
        let most = self.gpu.info().multiprocessors.max(1) * 2;
        u32::try_from(warps.div_ceil(WARPS.into())).unwrap_or(u32::MAX).clamp(1, most)
    }

    /// Copies the list of `count` at `list`.
    ///
    /// # Safety
    /// The list and all that it names are memory that the GPU reaches, until the stream has come past it; no two copies
    /// write the same bytes, and nobody else writes them.
    pub(super) unsafe fn copy(&self, stream: &Stream, list: u64, count: u32) -> Result<(), CudaError> {
        let (mut list, mut count) = (list, count);
        let mut arguments = [argument(&mut list), argument(&mut count)];
        let blocks = self.blocks(u64::from(count));
        // SAFETY: the kernel takes an address and a count, for which the caller vouches.
        unsafe { stream.launch(self.copy, blocks, THREADS, &mut arguments) }
    }

    /// Starts the feeder with as many blocks.
    ///
    /// # Safety
    /// What `feed` names is memory that the GPU reaches and as large as `mask` says, until the feeder has retired; each
    /// descriptor that is ever shown to it is as in [`copy`](Self::copy).
    pub(super) unsafe fn feed(&self, stream: &Stream, blocks: u32, mut feed: Feed) -> Result<(), CudaError> {
        let mut arguments = [
            argument(&mut feed.control),
            argument(&mut feed.ring),
            argument(&mut feed.done),
            argument(&mut feed.mask),
            argument(&mut feed.state),
            argument(&mut feed.head),
            argument(&mut feed.generation),
            argument(&mut feed.idle_ns),
            argument(&mut feed.life_ns),
        ];
        // SAFETY: the kernel takes these nine in this order; the caller vouches for them.
        unsafe { stream.launch(self.feed, blocks, THREADS, &mut arguments) }
    }

    /// Moves `count` blocks of `pool`, whose numbers are at `blocks`, from or to the objects whose addresses are at
    /// `objects`.
    ///
    /// # Safety
    /// All that is named is memory that the GPU reaches, until the stream has come past it; each block's pieces and each
    /// object lie in theirs; what is written is written by nobody else.
    pub(super) unsafe fn kv(
        &self,
        stream: &Stream,
        pool: KvPool,
        (objects, blocks, count): (u64, u64, u32),
        (chunk, unpack): (u32, bool),
    ) -> Result<(), CudaError> {
        let (mut pool, mut objects, mut blocks, mut count) = (pool, objects, blocks, count);
        let (mut chunk, mut unpack) = (chunk, u32::from(unpack));
        let parts = u64::from(pool.piece.div_ceil(chunk));
        let grid = self.blocks(u64::from(count) * u64::from(pool.plane_count) * parts);
        let mut arguments = [
            argument(&mut pool),
            argument(&mut objects),
            argument(&mut blocks),
            argument(&mut count),
            argument(&mut chunk),
            argument(&mut unpack),
        ];
        // SAFETY: the kernel takes these six in this order; the caller vouches for them.
        unsafe { stream.launch(self.kv, grid, THREADS, &mut arguments) }
    }

    /// Writes the list of `count` series at `list`.
    ///
    /// # Safety
    /// As in [`copy`](Self::copy).
    pub(super) unsafe fn write_series(&self, stream: &Stream, list: u64, count: u32) -> Result<(), CudaError> {
        let (mut list, mut count) = (list, count);
        let mut arguments = [argument(&mut list), argument(&mut count)];
        let blocks = self.blocks(u64::from(count) * u64::from(WARPS));
        // SAFETY: the kernel takes an address and a count, for which the caller vouches.
        unsafe { stream.launch(self.write_series, blocks, THREADS, &mut arguments) }
    }

    /// Compares the list of `count` series at `list` with what is there: `wrong` are two words, the words that differ are
    /// added to the first, and the second becomes the least number of a series that has any.
    ///
    /// # Safety
    /// As in [`copy`](Self::copy).
    pub(super) unsafe fn check_series(
        &self,
        stream: &Stream,
        list: u64,
        count: u32,
        wrong: u64,
    ) -> Result<(), CudaError> {
        let (mut list, mut count, mut wrong) = (list, count, wrong);
        let mut arguments = [argument(&mut list), argument(&mut count), argument(&mut wrong)];
        let blocks = self.blocks(u64::from(count) * u64::from(WARPS));
        // SAFETY: the kernel takes two addresses and a count, for which the caller vouches.
        unsafe { stream.launch(self.check_series, blocks, THREADS, &mut arguments) }
    }
}

/// What a kernel's argument is passed as.
fn argument<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: loaded in `load`; whoever launched something waits for it before it drops these.
            let _ = unsafe { (self.gpu.cuda().symbols.cuModuleUnload)(self.module) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_is_for_the_driver_and_the_gpus_that_are_named() {
        let line = |start: &str| PTX.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_default();
        // PTX ISA 9.0 came with CUDA 13.0; another version asks for another driver.
        assert_eq!((line(".version "), OLDEST_DRIVER.to_string().as_str()), ("9.0", "13.0"));
        assert_eq!((line(".target "), LEAST_CAPABILITY), ("sm_75", (7, 5)));
        assert!(!PTX.contains('\0'));
        for name in ["copy", "feed", "kv", "write_series", "check_series"] {
            assert!(PTX.contains(&format!(".visible .entry tentpeg_{name}(")), "{name}");
        }
    }

    /// How many arguments each kernel takes: a launch with others would read what is not there.
    #[test]
    fn the_kernels_take_what_they_are_given() {
        let count = |name: &str| {
            let head = PTX.split(&format!(".entry tentpeg_{name}(")).nth(1).unwrap_or_default();
            head.split(')').next().unwrap_or_default().matches(".param").count()
        };
        assert_eq!(["copy", "feed", "kv", "write_series", "check_series"].map(count), [2, 9, 6, 2, 3]);
        // The pool goes by value, with its size.
        assert!(PTX.contains(&format!("tentpeg_kv_param_0[{}]", size_of::<KvPool>())));
    }
}
