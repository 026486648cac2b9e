//! An I/O address space of iommufd, and what one would take.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::capability::IommuInfo;
use super::cdev::IOMMUFD;
use super::ioctl::iommufd;
use super::space::Container;
use crate::dma::{Access, Iova, IovaRange, Translation};

/// Whether an address space of iommufd takes `len` bytes of a dma-buf, from an offset on: maps them in one that has no device
/// and goes before this returns.
///
/// # Errors
/// The kernel's: ENOENT without iommufd, another one where it does not take this kind of dma-buf.
pub fn try_dma_buf(file: (BorrowedFd<'_>, u64), len: u64) -> io::Result<()> {
    /// Any address will do.
    const START: u64 = 1 << 30;
    let ioas = Ioas::allocate(File::options().read(true).write(true).open(IOMMUFD)?)?;
    let range = Iova::new(START).and_then(|start| IovaRange::new(start, len));
    let range = range.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: no device is attached to the space, so nobody reaches the bytes by it.
    unsafe { ioas.map_dma_buf(range, file, Access::all()) }
}

/// An address space, and the descriptor that it lives as long as.
pub(super) struct Ioas {
    iommufd: File,
    id: u32,
}

impl Ioas {
    /// A new one of `iommufd`.
    pub(super) fn allocate(iommufd: File) -> io::Result<Self> {
        Ok(Self { id: iommufd::allocate(&iommufd)?, iommufd })
    }

    /// Takes a device, by its own file, for this process.
    pub(super) fn bind(&self, device: &File) -> io::Result<()> {
        iommufd::bind(device, &self.iommufd)
    }

    /// Has the IOMMU translate by this space for a device that is bound.
    pub(super) fn attach(&self, device: &File) -> io::Result<()> {
        iommufd::attach(device, self.id)
    }

    /// What can be mapped for the devices that are attached.
    pub(super) fn info(&self, host_page: u64) -> io::Result<IommuInfo> {
        let (ranges, alignment) = iommufd::iova_ranges(&self.iommufd, self.id)?;
        Ok(IommuInfo::of_ranges(&ranges, alignment.max(host_page)))
    }
}

impl Container for Ioas {
    const TRANSLATION: Translation = Translation::Iommufd;

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { iommufd::map(&self.iommufd, self.id, range, memory, access) }
    }

    unsafe fn map_file(
        &self,
        range: IovaRange,
        memory: NonNull<u8>,
        file: (BorrowedFd<'_>, u64),
        access: Access,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on as it is.
        let mapped = unsafe { iommufd::map_file(&self.iommufd, self.id, range, file, access) };
        match mapped.as_ref().err().and_then(io::Error::raw_os_error) {
            // A kernel that maps no files (before Linux 6.13), or none of this kind: then what the file is mapped as here.
            Some(libc::ENOTTY | libc::EINVAL | libc::EOPNOTSUPP) => {
                // SAFETY: as above.
                unsafe { self.map(range, memory, access) }
            }
            _ => mapped,
        }
    }

    unsafe fn map_dma_buf(&self, range: IovaRange, file: (BorrowedFd<'_>, u64), access: Access) -> io::Result<()> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { iommufd::map_file(&self.iommufd, self.id, range, file, access) }
    }

    fn unmap(&self, range: IovaRange) -> io::Result<u64> {
        iommufd::unmap(&self.iommufd, self.id, range.start().get(), range.len())
    }

    fn unmap_all(&self) -> io::Result<()> {
        iommufd::unmap(&self.iommufd, self.id, 0, u64::MAX).map(drop)
    }

    fn detach(&self, device: &File) -> io::Result<()> {
        iommufd::detach(device)
    }
}
