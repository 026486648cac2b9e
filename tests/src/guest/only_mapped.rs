//! A BAR without its file, so that only its mapping can be given to the kernel.

use std::ptr::NonNull;

use tentpeg_driver::dma::Backing;
use tentpeg_driver::vfio::BarMemory;

/// A BAR of which nothing is known but what it is mapped as here.
pub(super) struct OnlyMapped(BarMemory);

impl OnlyMapped {
    pub(super) fn new(bar: BarMemory) -> Self {
        Self(bar)
    }
}

// SAFETY: it is what it holds, less its file.
unsafe impl Backing for OnlyMapped {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
