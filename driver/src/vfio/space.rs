//! The address space of a VFIO container: what the IOMMU translates for every function in it.
//!
//! A mapping is made by one call however long it is, and is removed by one call for exactly the same range; the kernel
//! says how many bytes it has removed, and that is checked. When the last group has left the container the kernel has
//! removed every mapping by itself.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use vfio_bindings::bindings::vfio::{VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE};

use super::capability::IommuInfo;
use super::ioctl;
use crate::dma::{Access, AddressSpace, IovaRange, MapError};

/// The kernel's side of a container.
pub(super) trait Container: Send + Sync {
    /// # Safety
    /// As [`AddressSpace::map`].
    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, flags: u32) -> io::Result<()>;
    fn unmap(&self, range: IovaRange) -> io::Result<u64>;
    fn unmap_all(&self) -> io::Result<()>;
    fn detach(&self, group: &File) -> io::Result<()>;
}

impl Container for File {
    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, flags: u32) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { ioctl::map_dma(self, range.start().get(), range.len(), memory, flags) }
    }

    fn unmap(&self, range: IovaRange) -> io::Result<u64> {
        ioctl::unmap_dma(self, range.start().get(), range.len())
    }

    fn unmap_all(&self) -> io::Result<()> {
        ioctl::unmap_all(self)
    }

    fn detach(&self, group: &File) -> io::Result<()> {
        ioctl::unset_container(group)
    }
}

/// The address space of a container.
pub(super) struct ContainerSpace<C = File> {
    container: C,
    page_size: u64,
    limit: usize,
    /// Read while a mapping is made, written while a group leaves, so that none is made behind the back of the other.
    state: RwLock<State>,
}

/// Who is in the container.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Groups that were attached and have not been detached since.
    groups: usize,
    /// Whether every mapping was taken away because a group could not be detached.
    emptied: bool,
}

impl State {
    /// Whether the kernel holds no mapping, and takes none.
    fn is_empty(self) -> bool {
        self.groups == 0 || self.emptied
    }
}

impl<C: Container> ContainerSpace<C> {
    /// The space of `container`, which has `groups` groups.
    pub(super) fn new(container: C, info: &IommuInfo, groups: usize) -> Self {
        let limit = info.mappings_left.map_or(usize::MAX, |left| left as usize);
        Self { container, page_size: info.page_size, limit, state: RwLock::new(State { groups, emptied: false }) }
    }

    /// Takes a group, no device of which is open any more, out of the space. When this returns nothing of the group
    /// reaches memory.
    ///
    /// The kernel refuses while somebody still holds a device of it, as a child of this process may that was forked
    /// and runs no other program. Then every mapping of the space goes instead, for all functions, and none is made
    /// again: rather no I/O at all than I/O of a device that nobody owns.
    pub(super) fn detach(&self, group: &File) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if self.container.detach(group).is_ok() {
            state.groups = state.groups.saturating_sub(1);
            return;
        }
        state.emptied = true;
        let emptied = self.container.unmap_all();
        debug_assert!(emptied.is_ok(), "the kernel can always unmap: {emptied:?}");
    }
}

impl<C: Container> AddressSpace for ContainerSpace<C> {
    fn page_size(&self) -> u64 {
        self.page_size
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        let aligned = |value: u64| value.is_multiple_of(self.page_size);
        if !(aligned(range.start().get()) && aligned(range.len()) && aligned(memory.addr().get() as u64)) {
            return Err(MapError::Misaligned { range, page_size: self.page_size });
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.is_empty() {
            return Err(MapError::Detached { range });
        }
        let flags = [(Access::DEVICE_READS, VFIO_DMA_MAP_FLAG_READ), (Access::DEVICE_WRITES, VFIO_DMA_MAP_FLAG_WRITE)];
        let flags = flags.into_iter().filter(|(bit, _)| access.contains(*bit)).fold(0, |flags, (_, flag)| flags | flag);
        // SAFETY: the caller's promise is passed on as it is.
        let Err(error) = (unsafe { self.container.map(range, memory, flags) }) else { return Ok(()) };
        Err(match error.raw_os_error().unwrap_or_default() {
            libc::ENOSPC => MapError::EntryLimit { range, limit: self.limit },
            libc::EEXIST => MapError::Occupied { range, mapped: range },
            libc::ENOMEM => MapError::LockedMemory { range },
            errno => MapError::Kernel { range, errno },
        })
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        let state = *self.state.read().unwrap_or_else(PoisonError::into_inner);
        match self.container.unmap(range) {
            Ok(bytes) if bytes == range.len() => Ok(()),
            // Nothing is left of any mapping: of this one neither.
            _ if state.is_empty() => Ok(()),
            Ok(_) => Err(MapError::NotMapped { range }),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(MapError::NotMapped { range }),
            Err(error) => Err(MapError::Kernel { range, errno: error.raw_os_error().unwrap_or_default() }),
        }
    }
}

#[cfg(test)]
mod tests;
