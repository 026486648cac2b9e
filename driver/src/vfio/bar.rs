//! A BAR as memory: the target of another function's DMA.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;
use crate::dma::{Backing, DmaView};

/// A BAR of a function, mapped as a whole: memory of another device, an accelerator's for one, that an NVMe controller
/// can read from and write to once it is [registered](crate::dma::DmaSpace::register).
///
/// Through a container of type 1 the kernel takes the addresses of the BAR from the mapping. They stay in the IOMMU until
/// the region is dropped, even where the device goes away. iommufd refuses that; it takes the dma-buf of a function that
/// was opened by its device file (Linux 6.19), and no more of it where the device is reset or goes away.
/// When the function it belongs to is cut off, the program sees ordinary memory in its place.
#[derive(Debug)]
pub struct BarMemory {
    mapping: Arc<Mapping>,
    dma_buf: Option<OwnedFd>,
}

impl BarMemory {
    pub(super) fn new(mapping: Arc<Mapping>, dma_buf: Option<OwnedFd>) -> Self {
        Self { mapping, dma_buf }
    }

    /// The bytes.
    pub fn view(&self) -> DmaView<'_> {
        // SAFETY: the mapping stays where it is, readable and writable, as long as `self` holds it, and nobody makes a
        // reference to its bytes.
        unsafe { DmaView::new(self.mapping.base(), self.mapping.len()) }
    }
}

// SAFETY: the mapping stays where it is, readable and writable, until the last who holds it drops it (a revocation puts
// other memory in its place, in one step); nothing hands out a reference to its bytes. The dma-buf is the whole BAR.
unsafe impl Backing for BarMemory {
    fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.dma_buf.as_ref().map(|dma_buf| (dma_buf.as_fd(), 0))
    }
}
