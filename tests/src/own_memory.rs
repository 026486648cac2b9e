//! Memory of a test's own, as an application has it that registers it with an engine.

use std::os::fd::AsFd;

use tentpeg_driver::dma::{
    Access, Backing, CallerMemory, CallerMemoryError, DmaView, HostMemory, HostMemoryError, PageSize, Region,
};
use tentpeg_driver::model::SoftwareIommu;

/// Memory on ordinary pages that no engine has allocated. It must outlive what is registered of it.
pub(crate) struct OwnMemory {
    region: Region<HostMemory>,
}

impl OwnMemory {
    /// Memory of `len` bytes, or more.
    pub(crate) fn new(len: usize) -> Result<Self, HostMemoryError> {
        let memory = HostMemory::allocate_on(len, PageSize::Ordinary)?;
        let len = memory.len();
        // An address space in which nobody is, for its view.
        let region = SoftwareIommu::new().space().register(memory, Access::all());
        region.map(|region| Self { region }).map_err(|_| HostMemoryError::Length { len, max: 0 })
    }

    /// The bytes.
    pub(crate) fn view(&self) -> DmaView<'_> {
        self.region.view()
    }

    /// The first byte's address.
    pub(crate) fn address(&self) -> u64 {
        self.region.backing().base().addr().get() as u64
    }

    /// A part of it, to be registered: by its file, as every controller can reach it.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Result<CallerMemory, CallerMemoryError> {
        let file = self.region.backing().as_fd().try_clone_to_owned();
        let file = file.map_err(|source| CallerMemoryError::Mappings { source })?;
        let base = self.view().slice(offset, len).base();
        // SAFETY: tests drop this after their engines, and look at the bytes by views alone; they are those of the file.
        unsafe { CallerMemory::of_file(base, len, file, offset as u64) }
    }

    /// As [`part`](Self::part), by its addresses alone.
    pub(crate) fn part_without_file(&self, offset: usize, len: usize) -> Result<CallerMemory, CallerMemoryError> {
        let base = self.view().slice(offset, len).base();
        // SAFETY: as above.
        unsafe { CallerMemory::new(base, len) }
    }
}
