//! A GPU as an engine uses it, with nothing of CUDA in the signatures: so that a [stand-in](super::StandIn) can be in its
//! place where there is none.

use std::fmt;
use std::sync::Arc;

use super::copier::{Copier, CopierConfig, CopierCounters, CopyError, Ticket};
use super::device::{Gpu, WritesOrdering};
use super::error::CudaError;
use super::kernels::{KernelError, WordSeries};
use super::ladder::PathProbe;
use super::memory::{GpuMemory, GpuMemoryError, PinnedMemory};
use super::mover::CudaMover;
use super::provider::PointerQueries;
use super::stream::GpuProducer;
use crate::dma::{AcceleratorMemory, Backing, MemoryCopy, Mover};

/// One GPU: what lies at its addresses, which ways lead there, memory of it, and what copies to and from it.
pub trait Accelerator: PathProbe + PointerQueries + fmt::Debug + Send + Sync {
    /// At least `len` bytes of its memory, in whole pages of [`GPU_PAGE`](super::GPU_PAGE) bytes.
    ///
    /// # Errors
    /// [`GpuMemoryError`].
    fn allocate(self: Arc<Self>, len: usize) -> Result<Arc<dyn AcceleratorMemory>, GpuMemoryError>;

    /// At least `len` bytes of host memory that it reaches at the host's own addresses, zeroed.
    ///
    /// # Errors
    /// [`GpuMemoryError`].
    fn allocate_pinned(self: Arc<Self>, len: usize) -> Result<Box<dyn Backing>, GpuMemoryError>;

    /// A mover for a controller in software, one of `sharers` that run at the same time.
    ///
    /// # Errors
    /// [`KernelError`].
    fn mover(self: Arc<Self>, sharers: u32) -> Result<Box<dyn Mover>, KernelError>;

    /// What makes copies for one owner.
    ///
    /// # Errors
    /// [`KernelError`].
    fn copier(self: Arc<Self>, config: CopierConfig) -> Result<Box<dyn Copies>, KernelError>;

    /// Waits until work that others have begun is done, and what it has written is visible to devices. It blocks.
    ///
    /// # Errors
    /// [`CudaError`]: it failed, or is none of this GPU's.
    fn wait_for(&self, producer: GpuProducer) -> Result<(), CudaError>;

    /// Makes writes of devices that have reached it visible to `scope`.
    ///
    /// # Errors
    /// [`CudaError`].
    fn flush(&self, scope: WritesOrdering) -> Result<(), CudaError>;

    /// Kernels launched so far, by whatever was made here.
    fn launches(&self) -> u64;
}

/// What a [`Copier`] does; its methods say more.
pub trait Copies: Send {
    /// As [`Copier::begin`].
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// As there.
    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<Ticket, CopyError>;

    /// As [`Copier::write_series`].
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// As there.
    unsafe fn write_series(&mut self, series: &[WordSeries]) -> Result<Ticket, CopyError>;

    /// As [`Copier::check_series`].
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// As there.
    unsafe fn check_series(&mut self, series: &[WordSeries]) -> Result<Option<(u64, u64)>, CopyError>;

    /// As [`Copier::is_done`]: one load, no call.
    fn is_done(&self, ticket: Ticket) -> bool;

    /// As [`Copier::check`].
    ///
    /// # Errors
    /// [`CudaError`].
    fn check(&self) -> Result<(), CudaError>;

    /// As [`Copier::wait`].
    ///
    /// # Errors
    /// [`CudaError`].
    fn wait(&self, ticket: Ticket) -> Result<(), CudaError>;

    /// What it has done.
    fn counters(&self) -> CopierCounters;
}

impl Accelerator for Gpu {
    fn allocate(self: Arc<Self>, len: usize) -> Result<Arc<dyn AcceleratorMemory>, GpuMemoryError> {
        Ok(Arc::new(GpuMemory::allocate_pages(&self, len)?))
    }

    fn allocate_pinned(self: Arc<Self>, len: usize) -> Result<Box<dyn Backing>, GpuMemoryError> {
        Ok(Box::new(PinnedMemory::allocate(&self, len)?))
    }

    fn mover(self: Arc<Self>, sharers: u32) -> Result<Box<dyn Mover>, KernelError> {
        Ok(Box::new(CudaMover::new(&self, sharers)?))
    }

    fn copier(self: Arc<Self>, config: CopierConfig) -> Result<Box<dyn Copies>, KernelError> {
        Ok(Box::new(Copier::new(&self, config)?))
    }

    fn wait_for(&self, producer: GpuProducer) -> Result<(), CudaError> {
        producer.wait(self)
    }

    fn flush(&self, scope: WritesOrdering) -> Result<(), CudaError> {
        Self::flush(self, scope)
    }

    fn launches(&self) -> u64 {
        Self::launches(self)
    }
}

impl Copies for Copier {
    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<Ticket, CopyError> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { Self::begin(self, copies) }
    }

    unsafe fn write_series(&mut self, series: &[WordSeries]) -> Result<Ticket, CopyError> {
        // SAFETY: as above.
        unsafe { Self::write_series(self, series) }
    }

    unsafe fn check_series(&mut self, series: &[WordSeries]) -> Result<Option<(u64, u64)>, CopyError> {
        // SAFETY: as above.
        unsafe { Self::check_series(self, series) }
    }

    fn is_done(&self, ticket: Ticket) -> bool {
        Self::is_done(self, ticket)
    }

    fn check(&self) -> Result<(), CudaError> {
        Self::check(self)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), CudaError> {
        Self::wait(self, ticket)
    }

    fn counters(&self) -> CopierCounters {
        self.counters()
    }
}
