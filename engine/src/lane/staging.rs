//! Staging: memory that a device reads into where a request is no whole blocks, and from which the bytes that were asked
//! for are copied.

use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::dma::{Access, HostMemory, Iova, Region};
use tentpeg_driver::queue::Extent;

use crate::memory::{MemoryError, Registered};

/// Buffers of a port.
const BUFFERS: u16 = 32;

/// A port's staging buffers.
pub(super) struct Staging {
    region: Region<HostMemory>,
    /// From one buffer to the next, in bytes.
    stride: u64,
    free: Vec<u16>,
    /// What is on its way from a buffer to where it was asked for.
    scratch: Vec<u8>,
}

impl Staging {
    /// Buffers of `buffer` bytes, whole blocks, for a device whose memory pages have `page_size`.
    pub(super) fn new(function: &Arc<dyn Function>, buffer: u64, page_size: u64) -> Result<Self, MemoryError> {
        // Each on pages of its own.
        let stride = buffer.next_multiple_of(page_size);
        let memory = HostMemory::allocate((stride * u64::from(BUFFERS)) as usize)?;
        let region = function.dma().register(memory, Access::DEVICE_WRITES)?;
        Ok(Self { region, stride, free: (0..BUFFERS).rev().collect(), scratch: vec![0; buffer as usize] })
    }

    /// Takes a buffer. `None`: all are in use.
    pub(super) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// The first `len` bytes of a buffer.
    pub(super) fn extent(&self, number: u16, len: u64) -> Extent {
        let offset = u64::from(number) * self.stride;
        let iova: Iova = self.region.iova_at(offset).unwrap_or(self.region.iova());
        Extent { iova, len: len.min(self.stride) }
    }

    /// Copies `len` bytes from `skip` on of a buffer to `address`. Whether there is memory for them.
    pub(super) fn copy(&mut self, number: u16, (skip, len): (u64, u64), address: u64, memory: &Registered) -> bool {
        let inside = skip.checked_add(len).is_some_and(|end| end <= self.scratch.len() as u64);
        let Some((region, offset)) = memory.find(address, len).filter(|_| inside) else { return false };
        let bytes = &mut self.scratch[..len as usize];
        let start = u64::from(number) * self.stride + skip;
        self.region.view().read(start as usize, bytes);
        region.view().write(offset, bytes);
        true
    }

    /// No command names that buffer any more.
    pub(super) fn give_back(&mut self, number: u16) {
        self.free.push(number);
    }
}
