//! Staging: bytes that no command can move to where they belong go through buffers that devices reach.
//!
//! Each device has [`BUFFERS`] of them in pinned memory, or [`GPU_BUFFERS`] where memory of a GPU is staged, allocated when they
//! may first be needed: when a segment is opened for reads of any bytes, or when memory is registered that is to be staged. Its port hands them out, one to a command, so a
//! long request is many commands, of which some are with the device while others are copied. A command has its buffer
//! until it has ended and no longer: not while a write waits for a Flush, nor while it waits to be issued again.
//!
//! When all are in use, batches wait in line ([`waiting`]); commands that are issued again go before them. Only the port
//! uses any of this, so there is no lock.

mod waiting;

use std::sync::{Arc, Mutex, OnceLock};

use tentpeg_driver::dma::{Access, Backing, DmaSpace, HostMemory, Iova, MemoryCopy, Region};
use tentpeg_driver::gpu::{Accelerator, CopierConfig, Copies, KernelError};
use tentpeg_driver::queue::{Extent, Limits};

use crate::batch::Priority;
use crate::device::lock;
use crate::memory::{MemoryError, Registered};
use waiting::Waiting;

/// Buffers of a device.
pub(crate) const BUFFERS: u16 = 32;
/// Buffers of a device where a GPU copies to and from them: enough to fill its link while as many are with the device.
pub(crate) const GPU_BUFFERS: u16 = 512;
/// Pieces of 16 KiB that a GPU's copies may be cut into: all buffers at once.
const GPU_PIECES: u32 = 1 << 13;
/// Bytes of a buffer, where a block is no longer and a command may carry as many.
const BUFFER: u64 = 64 << 10;

/// Bytes of a buffer for a device with these limits, a multiple of its block.
pub(crate) fn buffer(limits: &Limits) -> u64 {
    limits.max_transfer().min(BUFFER).max(limits.lba_size())
}

/// The buffers of a device.
pub(crate) struct StagingMemory {
    region: Region<Box<dyn Backing>>,
    /// From one buffer to the next, in bytes: each is on pages of its own.
    stride: u64,
    /// Bytes of a buffer.
    buffer: usize,
    buffers: u16,
    /// What copies between them and a GPU, until the port takes it.
    copier: Mutex<Option<Box<dyn Copies>>>,
    /// Why nothing does, though the engine has a GPU.
    no_copier: Option<Arc<KernelError>>,
}

/// Where a port finds the memory of its buffers, once there is some.
pub(crate) type StagingCell = Arc<OnceLock<StagingMemory>>;

impl StagingMemory {
    /// For a device with these limits; by that GPU, where memory of it is staged.
    pub(crate) fn new(
        space: &Arc<DmaSpace>,
        limits: &Limits,
        gpu: Option<&Arc<dyn Accelerator>>,
    ) -> Result<Self, MemoryError> {
        let buffer = buffer(limits);
        let stride = buffer.next_multiple_of(limits.page_size());
        let config = CopierConfig { pieces: GPU_PIECES, ..CopierConfig::default() };
        // Without what copies to a GPU there are buffers for the host's memory still, which may be all that is staged.
        let (with, no_copier) = match gpu.map(|gpu| Ok((gpu, Arc::clone(gpu).copier(config)?))).transpose() {
            Ok(with) => (with, None),
            Err(error) => (None, Some(Arc::new(error))),
        };
        let buffers = if with.is_some() { GPU_BUFFERS } else { BUFFERS };
        let bytes = (stride * u64::from(buffers)) as usize;
        let (memory, copier): (Box<dyn Backing>, _) = match with {
            None => (Box::new(HostMemory::allocate(bytes)?), None),
            Some((gpu, copier)) => (Arc::clone(gpu).allocate_pinned(bytes)?, Some(copier)),
        };
        let region = space.register(memory, Access::all())?;
        Ok(Self { region, stride, buffer: buffer as usize, buffers, copier: Mutex::new(copier), no_copier })
    }

    /// Whether memory of the GPU can be staged by it.
    ///
    /// # Errors
    /// [`MemoryError::GpuStaging`].
    pub(crate) fn reaches_gpu(&self) -> Result<(), MemoryError> {
        match &self.no_copier {
            Some(error) => Err(MemoryError::GpuStaging(Arc::clone(error))),
            None => Ok(()),
        }
    }

    /// Where a buffer begins in the memory.
    fn offset(&self, number: u16) -> u64 {
        u64::from(number) * self.stride
    }
}

/// A port's buffers.
pub(crate) struct Staging {
    memory: StagingCell,
    /// Whether those of the memory are among the free ones, or were.
    is_open: bool,
    free: Vec<u16>,
    /// What is on its way between a buffer and where it belongs.
    scratch: Vec<u8>,
    waiting: Waiting,
}

impl Staging {
    /// A port's, with the memory that is there now or will be.
    pub(crate) fn new(memory: StagingCell) -> Self {
        Self { memory, is_open: false, free: Vec::new(), scratch: Vec::new(), waiting: Waiting::default() }
    }

    /// Has the buffers of the memory, when there is some.
    fn open(&mut self) {
        if let Some(memory) = self.memory.get().filter(|_| !self.is_open) {
            self.is_open = true;
            self.free = (0..memory.buffers).rev().collect();
            self.scratch = vec![0; memory.buffer];
        }
    }

    /// Whether a batch may take a buffer now; else it stands in line from now on.
    pub(crate) fn may_take(&mut self, priority: Priority, place: u32) -> bool {
        self.open();
        self.waiting.may_take(priority, place, self.free.len())
    }

    /// A batch wants no buffer at the moment.
    #[cold]
    pub(crate) fn leave_line(&mut self, priority: Priority, place: u32) {
        if !self.waiting.is_empty() {
            self.waiting.leave(priority, place);
        }
    }

    /// No batch is in line any more.
    pub(crate) fn clear_line(&mut self) {
        self.waiting = Waiting::default();
    }

    /// Takes a buffer for a batch. `None`: all are in use.
    pub(crate) fn take(&mut self, place: u32) -> Option<u16> {
        self.open();
        let number = self.free.pop()?;
        self.waiting.taken(place);
        Some(number)
    }

    /// The first `len` bytes of a buffer, for a command.
    pub(crate) fn extent(&self, number: u16, len: u64) -> Option<Extent> {
        let memory = self.memory.get().filter(|memory| len <= memory.buffer as u64)?;
        let iova: Iova = memory.region.iova_at(memory.offset(number))?;
        Some(Extent { iova, len })
    }

    /// What copies between the buffers and a GPU, where there is such a thing and nobody has taken it yet.
    pub(crate) fn take_copier(&mut self) -> Option<Box<dyn Copies>> {
        self.memory.get().and_then(|memory| lock(&memory.copier).take())
    }

    /// The copy of `len` bytes from `skip` on of a buffer to memory of a GPU at `address`, or the other way. `None`: the
    /// buffer is shorter.
    pub(crate) fn gpu_copy(
        &self,
        number: u16,
        (skip, len): (u64, u64),
        address: u64,
        to_gpu: bool,
    ) -> Option<MemoryCopy> {
        let memory =
            self.memory.get().filter(|memory| skip.checked_add(len).is_some_and(|end| end <= memory.buffer as u64))?;
        let near = memory.region.backing().base().addr().get() as u64 + memory.offset(number) + skip;
        Some(if to_gpu { MemoryCopy::new(address, near, len) } else { MemoryCopy::new(near, address, len) })
    }

    /// Copies `len` bytes from `skip` on of a buffer to `address`. Whether there is memory for them.
    pub(crate) fn copy_out(&mut self, number: u16, (skip, len): (u64, u64), address: u64, to: &Registered) -> bool {
        let Some((memory, bytes)) = self.piece(skip, len) else { return false };
        let Some((target, offset)) = to.find(address, len) else { return false };
        memory.region.view().read((memory.offset(number) + skip) as usize, bytes);
        target.write(offset, bytes);
        true
    }

    /// Copies `len` bytes from `address` to the begin of a buffer. Whether there is memory that has them.
    pub(crate) fn copy_in(&mut self, number: u16, len: u64, address: u64, from: &Registered) -> bool {
        let Some((memory, bytes)) = self.piece(0, len) else { return false };
        let Some((source, offset)) = from.find(address, len) else { return false };
        source.read(offset, bytes);
        memory.region.view().write(memory.offset(number) as usize, bytes);
        true
    }

    /// The memory, and room for `len` bytes on their way, that lie `skip` bytes behind a buffer's begin.
    fn piece(&mut self, skip: u64, len: u64) -> Option<(&StagingMemory, &mut [u8])> {
        let end = usize::try_from(skip.checked_add(len)?).ok()?;
        let memory = self.memory.get().filter(|memory| end <= memory.buffer)?;
        Some((memory, self.scratch.get_mut(..len as usize)?))
    }

    /// No command of the batch names that buffer any more.
    pub(crate) fn give_back(&mut self, place: u32, number: u16) {
        self.waiting.given_back(place);
        self.free.push(number);
    }
}
