//! A stand-in's memory, and what devices are given of it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::StandIn;
use crate::dma::{AcceleratorMemory, Backing, DmaView, HostMemory};
use crate::gpu::memory::GPU_PAGE;

/// Memory of somebody else's that a stand-in's is a part of, another function's BAR for one.
pub struct StandInWindow {
    /// The memory. Its file, if it has one, is a dma-buf.
    pub memory: Box<dyn Backing>,
    /// What a mapping of it is made of, and where in that it begins.
    pub file: Arc<OwnedFd>,
    /// Where in that the memory begins.
    pub offset: u64,
}

/// An allocation.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) buffer_id: u64,
    /// Bytes of its files before it: it begins on a page of the GPU.
    pub(super) before: u64,
    /// The file that devices are given, and where it is mapped here: of the memory, or of what becomes that by a flush.
    pub(super) window: Option<(Arc<OwnedFd>, u64)>,
}

impl Known {
    /// Whether devices write somewhere else first.
    pub(super) fn is_posted(&self) -> bool {
        self.window.as_ref().is_some_and(|(_, window)| *window != self.base)
    }

    /// `offset` bytes into what devices are given.
    pub(super) fn in_window(&self, offset: u64) -> Option<u64> {
        self.window.as_ref().map(|(_, window)| window + offset)
    }
}

/// Host memory that an allocation is.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) memory: HostMemory,
    /// Where devices write first.
    pub(super) posted: Option<HostMemory>,
}

impl Home {
    pub(super) fn known(&self, len: u64, has_window: bool) -> Known {
        let base = address_of(&self.memory).next_multiple_of(GPU_PAGE);
        let before = base - address_of(&self.memory);
        let window = self.posted.as_ref().unwrap_or(&self.memory);
        let window = duplicate(window).filter(|_| has_window).map(|file| (file, address_of(window) + before));
        Known { base, len, buffer_id: 0, before, window }
    }
}

/// The first part of a window that no allocation has.
pub(super) fn free_part(window: &StandInWindow, known: &[Known], len: u64) -> Option<Known> {
    let first = window.memory.base().addr().get() as u64;
    let end = first + window.memory.len() as u64;
    // It begins on a page of the GPU.
    let mut base = first.next_multiple_of(GPU_PAGE);
    while let Some(taken) = known.iter().find(|known| base < known.base + known.len && known.base < base + len) {
        base = taken.base + taken.len;
    }
    let fits = base.checked_add(len).is_some_and(|last| last <= end);
    let before = window.offset + (base - first);
    fits.then(|| Known { base, len, buffer_id: 0, before, window: Some((Arc::clone(&window.file), base)) })
}

/// The file of host memory, once more.
fn duplicate(memory: &HostMemory) -> Option<Arc<OwnedFd>> {
    let (file, _): (BorrowedFd<'_>, u64) = memory.file()?;
    file.try_clone_to_owned().ok().map(Arc::new)
}

fn address_of(memory: &HostMemory) -> u64 {
    memory.base().as_ptr().expose_provenance() as u64
}

/// Memory of a stand-in.
#[derive(Debug)]
pub struct StandInMemory {
    pub(super) stand_in: Arc<StandIn>,
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    /// What it is of, where it is no part of a window.
    pub(super) _home: Option<Home>,
}

// SAFETY: the memory belongs to this value alone, or is a part of the window that is nobody else's; no reference to its
// bytes is handed out.
unsafe impl Send for StandInMemory {}
// SAFETY: as above.
unsafe impl Sync for StandInMemory {}

impl StandInMemory {
    /// The bytes, as the GPU has them. Where writes of devices are not ordered, what is written here and not by the GPU's
    /// copies is unknown to devices, and gone with a flush.
    pub fn view(&self) -> DmaView<'_> {
        // SAFETY: the memory outlives the view, which is a part of it; nobody makes a reference to it.
        unsafe { DmaView::new(self.base, self.len) }
    }
}

impl Drop for StandInMemory {
    fn drop(&mut self) {
        let base = self.address();
        self.stand_in.lock().retain(|known| known.base != base);
    }
}

// SAFETY: as the host memory that it is.
unsafe impl AcceleratorMemory for StandInMemory {
    fn address(&self) -> u64 {
        self.base.addr().get() as u64
    }

    fn len(&self) -> u64 {
        self.len as u64
    }
}
