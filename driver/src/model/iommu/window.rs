//! A controller's own memory, which commands address beside what is mapped: its Controller Memory Buffer.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Mapping, PAGE_SIZE};
use crate::dma::{Access, Backing, DmaView, HostMemory, HostMemoryError, Iova, IovaRange};

/// The bit of a base that says that the window is open; bases are multiples of pages.
const OPEN: u64 = 1;

/// A window of addresses that lead to memory of the controller's own. It goes before what is mapped at the same
/// addresses; a host must not have both.
pub(in crate::model) struct Window {
    /// The memory; of the range only its length counts.
    mapping: Mapping,
    /// Where it begins, and [`OPEN`]; 0 while it is closed.
    base: AtomicU64,
    memory: HostMemory,
}

impl Window {
    /// A closed window of `pages` times 4 KiB; none for 0.
    pub(in crate::model) fn new(pages: u32) -> Result<Option<Self>, HostMemoryError> {
        let len = u64::from(pages) * PAGE_SIZE;
        let Some(range) = Iova::new(PAGE_SIZE).and_then(|start| IovaRange::new(start, len)) else { return Ok(None) };
        let memory = HostMemory::allocate(len as usize)?;
        let base: NonNull<u8> = memory.base();
        let mapping = Mapping { range, base, access: Access::all(), moved: Access::empty(), number: 0 };
        Ok(Some(Self { mapping, base: AtomicU64::new(0), memory }))
    }

    /// Bytes of it.
    pub(in crate::model) fn len(&self) -> u64 {
        self.mapping.range.len()
    }

    /// From now on it begins at `base`, a multiple of 4 KiB, or is closed.
    pub(in crate::model) fn set_base(&self, base: Option<u64>) {
        self.base.store(base.map_or(0, |base| base | OPEN), Ordering::Release);
    }

    /// The memory, as whoever reaches it through a BAR sees it.
    pub(in crate::model) fn view(&self) -> DmaView<'_> {
        // SAFETY: the memory lasts as long as `self`, and nobody makes references to it.
        unsafe { DmaView::new(self.memory.base(), self.len() as usize) }
    }

    /// The memory that `address` leads to, and how far in.
    pub(super) fn find(&self, address: u64) -> Option<(&Mapping, u64)> {
        let base = self.base.load(Ordering::Acquire);
        let offset = address.wrapping_sub(base & !OPEN);
        (base & OPEN != 0 && offset < self.len()).then_some((&self.mapping, offset))
    }
}
