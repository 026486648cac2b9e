//! Memory of somebody else in this process, registered where it lies.
//!
//! [`CallerMemory`] is a range of addresses, and what the kernel says of it (`mappings`): whether it is there, what may be
//! done with it, whether it is memory at all or a window of a file. Who owns it keeps it mapped; that is the one promise
//! that nobody here can check, and the reason why the constructor is unsafe.
//!
//! A mapping for devices is whole pages, so devices can reach what lies beside the memory on its first and last page, too
//! ([`WholePages`]). No command names it; what a broken device does to it only an IOMMU with smaller pages could stop.

mod mappings;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use thiserror::Error;

use super::host_memory::ordinary_page_size;
use super::{Access, DmaView};

/// Why memory of the caller cannot be what devices, or copies for them, use.
#[derive(Debug, Error)]
pub enum CallerMemoryError {
    /// There is no byte, or the end is no address.
    #[error(
        "memory {address:#x} with a length of {len} bytes is no range: the length must be 1 or more, and the end an address"
    )]
    NoRange {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
    },
    /// A part of it is not mapped in this process.
    #[error("memory {address:#x} with a length of {len} bytes is not all there: nothing is mapped at {hole:#x}")]
    NotMapped {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
        /// The first address at which nothing is.
        hole: usize,
    },
    /// A part of it may not be read.
    #[error("memory {address:#x} with a length of {len} bytes may not be read at {at:#x}: see mprotect(2)")]
    NotReadable {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
        /// The first address that may not be read.
        at: usize,
    },
    /// Devices were to write it, and a part of it may not be written.
    #[error(
        "memory {address:#x} with a length of {len} bytes may not be written at {at:#x}: register it for devices to read only (DEVICE_READS), or make it writable"
    )]
    ReadOnly {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
        /// The first address that may not be written.
        at: usize,
    },
    /// It is a window of a file, of which the kernel may move or write back a page at any time.
    #[error(
        "memory {address:#x} with a length of {len} bytes is a mapping of {file}, behind whose back no device may go: allow staging where it is registered, or have the data in memory of its own"
    )]
    File {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
        /// The file.
        file: String,
    },
    /// The kernel has no pages for it, such as hugepages that were promised and are not there.
    #[error("memory {address:#x} with a length of {len} bytes cannot be faulted in (MADV_POPULATE): {source}")]
    Absent {
        /// The first byte's address.
        address: usize,
        /// The length in bytes.
        len: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel does not say what is mapped.
    #[error("cannot read /proc/self/maps, where it stands what memory is: {source}; is /proc mounted?")]
    Mappings {
        /// The kernel's error.
        source: io::Error,
    },
}

/// The pages that memory lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WholePages {
    /// The first page.
    pub base: NonNull<u8>,
    /// Their length in bytes.
    pub len: usize,
    /// Bytes of the first page that lie before the memory.
    pub before: usize,
    /// Bytes of the last page that lie behind it.
    pub after: usize,
}

/// Addresses of this process whose bytes belong to somebody else.
pub struct CallerMemory {
    base: NonNull<u8>,
    len: usize,
    /// The file that the bytes are a shared mapping of, and where in it they begin.
    file: Option<(OwnedFd, u64)>,
    /// The first address that may not be written.
    read_only: Option<usize>,
    /// The file, where it is a window of one that is no memory.
    window: Option<String>,
}

// SAFETY: the value is an address with a promise of its creator that holds for the process.
unsafe impl Send for CallerMemory {}
// SAFETY: as above; it hands out no reference to the bytes.
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// The `len` bytes at `base`, as they are now.
    ///
    /// # Errors
    /// [`CallerMemoryError`]: they are not all there, or may not be read.
    ///
    /// # Safety
    /// As long as they are registered with an engine, and as long as a [`Region`](super::Region) has the value, the bytes
    /// stay mapped, with at least the permissions that they have now, and stay the same bytes: they are not unmapped,
    /// freed, remapped or moved. And while a request that names some of them has not ended, nobody makes a reference to
    /// those, but a shared one where the request reads them only.
    ///
    /// What comes of a promise that is not kept: where an IOMMU translates, the pages stay what the device reaches, as they
    /// are pinned, so that its data go to pages that nobody has any more; whatever this process copies itself, for staging
    /// or for a model, is a touch of memory that is not there, or is somebody else's.
    pub unsafe fn new(base: NonNull<u8>, len: usize) -> Result<Self, CallerMemoryError> {
        let address = base.addr().get();
        if len == 0 || address.checked_add(len).is_none_or(|end| end > isize::MAX as usize) {
            return Err(CallerMemoryError::NoRange { address, len });
        }
        let mappings::Found { read_only, window } = mappings::look_up(address, len)?;
        Ok(Self { base, len, file: None, read_only, window })
    }

    /// As [`new`](Self::new), for a shared mapping of `file`, of which the first byte is the one at `offset`: a controller
    /// in another process (vfio-user) can reach no other memory. A memfd that is sealed against shrinking is right.
    ///
    /// # Errors
    /// As of `new`.
    ///
    /// # Safety
    /// As of `new`; and the bytes are those of the file, shared.
    pub unsafe fn of_file(
        base: NonNull<u8>,
        len: usize,
        file: OwnedFd,
        offset: u64,
    ) -> Result<Self, CallerMemoryError> {
        // SAFETY: the caller's promise is passed on.
        let memory = unsafe { Self::new(base, len) }?;
        Ok(Self { file: Some((file, offset)), ..memory })
    }

    /// The address of the first byte.
    pub fn address(&self) -> usize {
        self.base.addr().get()
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether all of it may be written.
    pub fn is_writable(&self) -> bool {
        self.read_only.is_none()
    }

    pub(super) fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        self.file.as_ref().map(|(file, offset)| (file.as_fd(), *offset))
    }

    /// The pages of `page_size` bytes, a power of two, or of this machine's where those are larger, that it lies on.
    ///
    /// # Errors
    /// [`CallerMemoryError::NoRange`]: its last page ends beyond all addresses.
    pub fn whole_pages(&self, page_size: u64) -> Result<WholePages, CallerMemoryError> {
        let (address, len) = (self.address(), self.len);
        let page = usize::try_from(page_size).unwrap_or(usize::MAX).max(ordinary_page_size());
        let before = address & (page - 1);
        let whole = before.checked_add(len).and_then(|len| len.checked_next_multiple_of(page));
        let (Some(whole), Some(base)) = (whole, NonNull::new(self.base.as_ptr().wrapping_sub(before))) else {
            return Err(CallerMemoryError::NoRange { address, len });
        };
        Ok(WholePages { base, len: whole, before, after: whole - before - len })
    }

    /// Whether devices, or copies for them, may do that with it.
    ///
    /// # Errors
    /// [`CallerMemoryError::ReadOnly`].
    pub fn check_access(&self, access: Access) -> Result<(), CallerMemoryError> {
        match self.read_only {
            Some(at) if access.contains(Access::DEVICE_WRITES) => {
                Err(CallerMemoryError::ReadOnly { address: self.address(), len: self.len, at })
            }
            _ => Ok(()),
        }
    }

    /// Whether it is memory, and no window of a file.
    pub(super) fn check_kind(&self) -> Result<(), CallerMemoryError> {
        match &self.window {
            Some(file) => Err(CallerMemoryError::File { address: self.address(), len: self.len, file: file.clone() }),
            None => Ok(()),
        }
    }

    /// Faults every page in, for writing where that may be done: so that there is a page, that it is this memory's own, and
    /// that a later write of the process does not replace it by another one, which no device would see. On a kernel without
    /// `MADV_POPULATE_WRITE` (before Linux 5.14) the mapping does that, or a touch.
    pub(super) fn fault_in(&self) -> Result<(), CallerMemoryError> {
        let WholePages { base, len, .. } = self.whole_pages(1)?;
        let advice = if self.is_writable() { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // SAFETY: pages on which there is memory of the caller, which stays mapped; their contents do not change.
        if unsafe { libc::madvise(base.as_ptr().cast(), len, advice) } == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        if source.raw_os_error() == Some(libc::EINVAL) {
            return Ok(());
        }
        Err(CallerMemoryError::Absent { address: self.address(), len: self.len, source })
    }

    /// Copies from `offset` into the whole of `to`. An offset that leaves the memory panics.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.view().read(offset, to);
    }

    /// Copies `from` to `offset`. An offset that leaves the memory, or memory that may not be written, panics.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.is_writable(), "{self:?} may not be written");
        self.view().write(offset, from);
    }

    fn view(&self) -> DmaView<'_> {
        // SAFETY: the creator has promised that the bytes stay mapped as they were found, and that there are no references
        // while they are used for a request; nothing is written where they were not found writable.
        unsafe { DmaView::new(self.base, self.len) }
    }
}

impl fmt::Debug for CallerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len, self.address())
    }
}

#[cfg(test)]
mod tests;
