//! An address space of the kernel: what the IOMMU translates for every function in it.
//!
//! A mapping is made by one call however long it is, and is removed by one call for exactly the same range; the kernel
//! says how many bytes it has removed, and that is checked. When the last group has left a container of type 1 the
//! kernel has removed every mapping by itself.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{PoisonError, RwLock};

use vfio_bindings::bindings::vfio::{VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE};

use super::capability::IommuInfo;
use super::ioctl;
use crate::dma::{Access, AddressSpace, IovaRange, MapError, Translation};

/// The kernel's side of an address space.
pub(super) trait Container: Send + Sync {
    /// Which memory of other devices it takes.
    const TRANSLATION: Translation;

    /// # Safety
    /// As [`AddressSpace::map`].
    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> io::Result<()>;

    /// # Safety
    /// As [`AddressSpace::map_file`].
    unsafe fn map_file(
        &self,
        range: IovaRange,
        memory: NonNull<u8>,
        file: (BorrowedFd<'_>, u64),
        access: Access,
    ) -> io::Result<()> {
        let _ = file;
        // SAFETY: the caller's promise is more than what is asked for.
        unsafe { self.map(range, memory, access) }
    }

    /// # Safety
    /// As [`AddressSpace::map_dma_buf`].
    unsafe fn map_dma_buf(&self, _: IovaRange, _: (BorrowedFd<'_>, u64), _: Access) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn unmap(&self, range: IovaRange) -> io::Result<u64>;
    fn unmap_all(&self) -> io::Result<()>;
    /// Takes a member out: a group, by its file, or a device by its own.
    fn detach(&self, member: &File) -> io::Result<()>;
}

// A container of type 1.
impl Container for File {
    const TRANSLATION: Translation = Translation::Type1;

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> io::Result<()> {
        let flags = [(Access::DEVICE_READS, VFIO_DMA_MAP_FLAG_READ), (Access::DEVICE_WRITES, VFIO_DMA_MAP_FLAG_WRITE)];
        let flags = flags.into_iter().filter(|(bit, _)| access.contains(*bit)).fold(0, |flags, (_, flag)| flags | flag);
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

/// An address space that functions are taken out of.
pub(super) trait Members: Send + Sync {
    /// Takes a member out of the space: a group, no device of which is open any more, or a device. When this returns
    /// nothing of it reaches memory.
    ///
    /// The kernel refuses a group of which somebody still holds a device, as a child of this process may that was forked
    /// and runs no other program. Then every mapping of the space goes instead, for all functions, and none is made
    /// again: rather no I/O at all than I/O of a device that nobody owns.
    fn detach(&self, member: &File);
}

/// The address space that a [`Container`] is.
pub(super) struct ContainerSpace<C> {
    container: C,
    page_size: u64,
    limit: usize,
    /// Read while a mapping is made, written while a member leaves, so that none is made behind the back of the other.
    state: RwLock<State>,
}

/// Who is in the space.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Groups or devices that were attached and have not been detached since.
    members: usize,
    /// Whether a member could not be detached: no mapping is made any more.
    closed: bool,
    /// Whether every mapping was taken away for that reason.
    emptied: bool,
}

impl State {
    /// Whether a mapping would be for nobody, or for a member that should be gone.
    fn takes_none(self) -> bool {
        self.members == 0 || self.closed
    }

    /// Whether no mapping is left.
    fn is_empty(self) -> bool {
        self.members == 0 || self.emptied
    }
}

impl<C: Container> ContainerSpace<C> {
    /// Makes a mapping of memory that may be mapped, as long as there is somebody to make it for.
    fn make(&self, range: IovaRange, place: u64, map: impl FnOnce() -> io::Result<()>) -> Result<(), MapError> {
        let aligned = |value: u64| value.is_multiple_of(self.page_size);
        if !(aligned(range.start().get()) && aligned(range.len()) && aligned(place)) {
            return Err(MapError::Misaligned { range, page_size: self.page_size });
        }
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.takes_none() {
            return Err(MapError::Detached { range });
        }
        let Err(error) = map() else { return Ok(()) };
        if error.kind() == io::ErrorKind::Unsupported && error.raw_os_error().is_none() {
            return Err(MapError::NoDmaBuf { range });
        }
        Err(match error.raw_os_error().unwrap_or_default() {
            libc::ENOSPC => MapError::EntryLimit { range, limit: self.limit },
            libc::EEXIST => MapError::Occupied { range, mapped: range },
            libc::ENOMEM => MapError::LockedMemory { range },
            libc::EFAULT if C::TRANSLATION == Translation::Iommufd => MapError::DeviceMemory { range },
            errno => MapError::Kernel { range, errno },
        })
    }

    /// The space of `container`, which has `members` groups or devices.
    pub(super) fn new(container: C, info: &IommuInfo, members: usize) -> Self {
        let limit = info.mappings_left.map_or(usize::MAX, |left| left as usize);
        Self {
            container,
            page_size: info.page_size,
            limit,
            state: RwLock::new(State { members, closed: false, emptied: false }),
        }
    }
}

impl<C: Container> Members for ContainerSpace<C> {
    fn detach(&self, member: &File) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if self.container.detach(member).is_ok() {
            state.members = state.members.saturating_sub(1);
            return;
        }
        state.closed = true;
        let nothing_there = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT));
        state.emptied |= match self.container.unmap_all() {
            Ok(()) => true,
            // The last group has gone with its device, and every mapping with it: then there is nothing to unmap from.
            // Whatever else it is, mappings may be left: an unmap that fails from now on says so, and what it was of is
            // kept rather than given back under a device that may still write there.
            Err(error) => state.members <= 1 && nothing_there(&error),
        };
    }
}

impl<C: Container> AddressSpace for ContainerSpace<C> {
    fn translation(&self) -> Translation {
        C::TRANSLATION
    }

    fn page_size(&self) -> u64 {
        self.page_size
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        self.make(range, memory.addr().get() as u64, || {
            // SAFETY: the caller's promise is passed on as it is.
            unsafe { self.container.map(range, memory, access) }
        })
    }

    unsafe fn map_file(
        &self,
        range: IovaRange,
        memory: NonNull<u8>,
        file: (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        self.make(range, memory.addr().get() as u64, || {
            // SAFETY: the caller's promise is passed on as it is.
            unsafe { self.container.map_file(range, memory, file, access) }
        })
    }

    unsafe fn map_dma_buf(
        &self,
        range: IovaRange,
        dma_buf: (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        self.make(range, dma_buf.1, || {
            // SAFETY: the caller's promise is passed on as it is.
            unsafe { self.container.map_dma_buf(range, dma_buf, access) }
        })
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        let unmapped = self.container.unmap(range);
        // Afterwards: the last member may have left meanwhile, and every mapping with it.
        let state = *self.state.read().unwrap_or_else(PoisonError::into_inner);
        match unmapped {
            Ok(bytes) if bytes == range.len() => Ok(()),
            // Nothing is left of any mapping, or nobody whom it would be for.
            _ if state.is_empty() => Ok(()),
            Ok(_) => Err(MapError::NotMapped { range }),
            // Type 1 says the first of a range that cuts mappings, iommufd either.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {
                Err(MapError::NotMapped { range })
            }
            Err(error) => Err(MapError::Kernel { range, errno: error.raw_os_error().unwrap_or_default() }),
        }
    }
}

#[cfg(test)]
mod tests;
