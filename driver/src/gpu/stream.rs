//! A stream of work on a GPU.
//!
//! Non-blocking towards the default stream, so that what an embedding program does there and what is done here do not
//! wait for one another. Work is only begun here; nothing of it belongs into a poll.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUstream};

use super::device::Gpu;
use super::error::{CudaError, code};

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: c_uint = 1;

/// Work on a GPU that others have begun: what a command reads has to be written before it is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProducer(Begun);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    /// A CUevent: all before its last record.
    Event(usize),
    /// A CUstream: all that was put there so far.
    Stream(usize),
}

impl GpuProducer {
    /// All work before the last cuEventRecord of `event`, a CUevent.
    ///
    /// # Safety
    /// It is an event of the GPU's primary context, not destroyed before the last call that is given this has returned.
    pub const unsafe fn event(event: usize) -> Self {
        Self(Begun::Event(event))
    }

    /// All work that was put into `stream`, a CUstream, 0 for the default one.
    ///
    /// # Safety
    /// It is a stream of the GPU's primary context, not destroyed before the last call that is given this has returned.
    pub const unsafe fn stream(stream: usize) -> Self {
        Self(Begun::Stream(stream))
    }

    /// Waits until it is done.
    pub(super) fn wait(self, gpu: &Gpu) -> Result<(), CudaError> {
        let (cuda, _entered) = (gpu.cuda(), gpu.enter()?);
        match self.0 {
            Begun::Event(event) => {
                let event = std::ptr::with_exposed_provenance_mut(event);
                // SAFETY: whoever made this value vouches for the event.
                cuda.check("cuEventSynchronize", unsafe { (cuda.symbols.cuEventSynchronize)(event) })
            }
            Begun::Stream(stream) => {
                let stream = std::ptr::with_exposed_provenance_mut(stream);
                // SAFETY: whoever made this value vouches for the stream.
                cuda.check("cuStreamSynchronize", unsafe { (cuda.symbols.cuStreamSynchronize)(stream) })
            }
        }
    }

    /// The number that it was made of, for a stand-in.
    pub(super) fn number(self) -> usize {
        match self.0 {
            Begun::Event(number) | Begun::Stream(number) => number,
        }
    }
}

/// A stream, in whose order work is done.
pub(super) struct Stream {
    gpu: Arc<Gpu>,
    raw: CUstream,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}

impl Stream {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let mut raw: CUstream = std::ptr::null_mut();
        let _entered = gpu.enter()?;
        // SAFETY: `raw` is writable.
        let code = unsafe { (gpu.cuda().symbols.cuStreamCreate)(&raw mut raw, NON_BLOCKING) };
        gpu.cuda().check("cuStreamCreate", code)?;
        Ok(Self { gpu: Arc::clone(gpu), raw })
    }

    pub(super) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Launches `function` with as many blocks of as many threads, all in one dimension.
    ///
    /// # Safety
    /// `arguments` are pointers to what the kernel takes, in order and of the right types, and what the kernel does with
    /// them is sound until it has ended.
    pub(super) unsafe fn launch(
        &self,
        function: CUfunction,
        blocks: u32,
        threads: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the caller vouches for the arguments; they are copied before the call returns.
        let code = unsafe {
            (self.gpu.cuda().symbols.cuLaunchKernel)(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                self.raw,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.gpu.cuda().check("cuLaunchKernel", code)?;
        self.gpu.count_launch();
        Ok(())
    }

    /// Copies by a copy engine.
    ///
    /// # Safety
    /// Both ranges are memory that the GPU reaches until the copy is done; nobody else writes either, or reads the first.
    pub(super) unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: passed on as it is.
        let code = unsafe { (self.gpu.cuda().symbols.cuMemcpyAsync)(to, from, len, self.raw) };
        self.gpu.cuda().check("cuMemcpyAsync", code)
    }

    /// Sets `len` bytes.
    ///
    /// # Safety
    /// As [`copy`](Self::copy) has it for what is written.
    pub(super) unsafe fn fill(&self, to: u64, byte: u8, len: usize) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: passed on as it is.
        let code = unsafe { (self.gpu.cuda().symbols.cuMemsetD8Async)(to, byte, len, self.raw) };
        self.gpu.cuda().check("cuMemsetD8Async", code)
    }

    /// Writes `value` when all that was begun before is done and visible.
    ///
    /// # Safety
    /// `to` is a word of memory that the GPU reaches, written by nobody else.
    pub(super) unsafe fn write_value(&self, to: u64, value: u32) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: passed on as it is. 0 is CU_STREAM_WRITE_VALUE_DEFAULT, with a barrier before the write.
        let code = unsafe { (self.gpu.cuda().symbols.cuStreamWriteValue32_v2)(self.raw, to as CUdeviceptr, value, 0) };
        self.gpu.cuda().check("cuStreamWriteValue32", code)
    }

    /// Whether all that was begun is done; an error where some of it failed.
    pub(super) fn is_idle(&self) -> Result<bool, CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the stream is this value's.
        match unsafe { (self.gpu.cuda().symbols.cuStreamQuery)(self.raw) } {
            code::NOT_READY => Ok(false),
            code => self.gpu.cuda().check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Waits until all that was begun is done.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        let _entered = self.gpu.enter()?;
        // SAFETY: the stream is this value's.
        let code = unsafe { (self.gpu.cuda().symbols.cuStreamSynchronize)(self.raw) };
        self.gpu.cuda().check("cuStreamSynchronize", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.gpu.enter() {
            // SAFETY: the stream is this value's and is not used again; what it has begun goes on to its end.
            let _ = unsafe { (self.gpu.cuda().symbols.cuStreamDestroy_v2)(self.raw) };
        }
    }
}
