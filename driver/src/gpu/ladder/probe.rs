//! The machine's own answers: dma-bufs of CUDA, gdrdrv, iommufd, and what is free of BAR1.
//!
//! iommufd's requests are those of Linux's `iommufd.h`; what it imports here is given up again before the answer.

use std::ffi::{c_int, c_ulong};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::CUdeviceptr;

use super::{Gdrdrv, PathProbe};
use crate::gpu::device::{Gpu, GpuInfo};
use crate::gpu::direct::{self, BarMapping, DmaBuf};
use crate::gpu::error::CudaError;
use crate::gpu::library::CudaVersion;
use crate::gpu::management;

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF_FD: u32 = 1;

/// `_IO(';', 0x80 + number)`.
const fn iommufd_request(number: c_ulong) -> c_ulong {
    (b';' as c_ulong) << 8 | (0x80 + number)
}
const IOAS_ALLOC: c_ulong = iommufd_request(1);
const IOAS_MAP_FILE: c_ulong = iommufd_request(0xF);
/// IOMMU_IOAS_MAP_WRITEABLE and IOMMU_IOAS_MAP_READABLE.
const READ_WRITE: u32 = 2 | 4;

/// `struct iommu_ioas_alloc`.
#[repr(C)]
#[derive(Default)]
struct IoasAlloc {
    size: u32,
    flags: u32,
    ioas_id: u32,
}

/// `struct iommu_ioas_map_file`.
#[repr(C)]
#[derive(Default)]
struct IoasMapFile {
    size: u32,
    flags: u32,
    ioas_id: u32,
    fd: i32,
    start: u64,
    length: u64,
    iova: u64,
}

const _: () = assert!(size_of::<IoasAlloc>() == 12 && size_of::<IoasMapFile>() == 40);

impl PathProbe for Gpu {
    fn info(&self) -> &GpuInfo {
        self.info()
    }

    fn driver(&self) -> CudaVersion {
        self.cuda().version()
    }

    fn export(&self, address: u64, len: u64) -> Result<DmaBuf, CudaError> {
        let mut fd: c_int = -1;
        let _entered = self.enter()?;
        // SAFETY: `fd` is writable; the range is only looked up.
        let code = unsafe {
            (self.cuda().symbols.cuMemGetHandleForAddressRange)(
                (&raw mut fd).cast(),
                address as CUdeviceptr,
                len as usize,
                DMA_BUF_FD,
                0,
            )
        };
        self.cuda().check("cuMemGetHandleForAddressRange", code)?;
        if fd < 0 {
            return Err(self.cuda().error("cuMemGetHandleForAddressRange", 0));
        }
        // SAFETY: the descriptor is new and ours alone.
        Ok(DmaBuf::new(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn map(&self, dma_buf: DmaBuf, len: u64) -> Result<BarMapping, i32> {
        BarMapping::of_dma_buf(dma_buf, len)
    }

    fn pin(&self, address: u64, len: u64) -> Result<BarMapping, i32> {
        direct::pin(address, len)
    }

    fn import(&self, dma_buf: &DmaBuf, len: u64) -> Result<(), i32> {
        // The address space that is made here goes when the file is closed, and the import with it.
        let iommu = open("/dev/iommu")?;
        let mut made = IoasAlloc { size: size_of::<IoasAlloc>() as u32, ..IoasAlloc::default() };
        request(&iommu, IOAS_ALLOC, &mut made)?;
        let mut map = IoasMapFile {
            size: size_of::<IoasMapFile>() as u32,
            flags: READ_WRITE,
            ioas_id: made.ioas_id,
            fd: dma_buf.file.as_raw_fd(),
            start: dma_buf.offset,
            length: len,
            ..IoasMapFile::default()
        };
        request(&iommu, IOAS_MAP_FILE, &mut map)
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        direct::ask()
    }

    fn bar1_free(&self) -> Option<u64> {
        management(&self.info().pci_address).map(|known| known.bar1_free)
    }
}

fn open(path: &str) -> Result<File, i32> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}

/// One ioctl with `argument`, which the driver may change.
fn request<T>(file: &File, number: c_ulong, argument: &mut T) -> Result<(), i32> {
    // SAFETY: the requests above are used with the structures that their headers have for them, as large as there.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), number as _, std::ptr::from_mut(argument)) };
    if done < 0 { Err(last_errno()) } else { Ok(()) }
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_their_header() {
        // From C: _IO(';', 0x81), _IO(';', 0x8f).
        assert_eq!((IOAS_ALLOC, IOAS_MAP_FILE), (0x3B81, 0x3B8F));
    }

    #[test]
    fn a_device_file_that_is_not_there_is_its_errno() {
        assert_eq!(open("/nowhere/iommu").unwrap_err(), libc::ENOENT);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(request(&file, IOAS_ALLOC, &mut IoasAlloc::default()), Err(libc::ENOTTY));
    }
}
