//! A BAR as memory: the target of another function's DMA.

use std::ptr::NonNull;
use std::sync::Arc;

use super::mapping::Mapping;
use crate::dma::Backing;

/// A BAR of a function, mapped as a whole: memory of another device, an accelerator's for one, that an NVMe controller
/// can read from and write to once it is [registered](crate::dma::DmaSpace::register).
///
/// Registering it works through a container of type 1, whose kernel takes the addresses of the BAR from the mapping
/// (iommufd refuses that). They stay in the IOMMU until the region is dropped, even where the device goes away.
/// When the function it belongs to is cut off, the program sees ordinary memory in its place.
#[derive(Debug)]
pub struct BarMemory(Arc<Mapping>);

impl BarMemory {
    pub(super) fn new(mapping: Arc<Mapping>) -> Self {
        Self(mapping)
    }
}

// SAFETY: the mapping stays where it is, readable and writable, until the last who holds it drops it (a revocation puts
// other memory in its place, in one step); nothing hands out a reference to its bytes.
unsafe impl Backing for BarMemory {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
