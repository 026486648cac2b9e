//! Memory of a test's own, as a caller has it.

use tentpeg_driver::dma::{Access, Backing, CallerMemory, DmaView, HostMemory, PageSize, Region};
use tentpeg_driver::model::SoftwareIommu;

/// Memory on ordinary pages that the engine under test did not allocate. It outlives what is registered of it.
pub(crate) struct Own {
    region: Region<HostMemory>,
}

impl Own {
    pub(crate) fn new(len: usize) -> Self {
        let memory = HostMemory::allocate_on(len, PageSize::Ordinary).unwrap();
        // An address space in which nobody is, for its view.
        Self { region: SoftwareIommu::new().space().register(memory, Access::all()).unwrap() }
    }

    pub(crate) fn view(&self) -> DmaView<'_> {
        self.region.view()
    }

    pub(crate) fn address(&self) -> u64 {
        self.region.backing().base().addr().get() as u64
    }

    /// A part of it, to be registered.
    pub(crate) fn part(&self, offset: usize, len: usize) -> CallerMemory {
        assert!(offset + len <= self.region.backing().len());
        // SAFETY: the test drops this after its engine, and looks at the bytes through views alone.
        unsafe { CallerMemory::new(self.region.backing().base().add(offset), len) }.unwrap()
    }
}
