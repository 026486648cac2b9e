//! The machine's own answers: dma-bufs of CUDA, gdrdrv, iommufd.
//!
//! gdrdrv's requests are those of its `gdrdrv.h`, iommufd's those of Linux's `iommufd.h`. Whatever is tried is given
//! up again before the answer.

use std::ffi::{c_int, c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::CUdeviceptr;

use super::{GDRDRV_WITH_ATTRIBUTES, Gdrdrv, GdrdrvVersion, PathProbe};
use crate::gpu::device::{Gpu, GpuInfo};
use crate::gpu::error::CudaError;
use crate::gpu::library::CudaVersion;

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF_FD: u32 = 1;

/// `_IOWR(0xDA, number, a pointer)`.
const fn gdrdrv_request(number: c_ulong) -> c_ulong {
    3 << 30 | (size_of::<*const c_void>() as c_ulong) << 16 | 0xDA << 8 | number
}
const GDRDRV_GET_ATTRIBUTE: c_ulong = gdrdrv_request(6);
const GDRDRV_GET_VERSION: c_ulong = gdrdrv_request(255);
/// GDR_ATTR_USE_PERSISTENT_MAPPING.
const PERSISTENT_MAPPING: u32 = 1;

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

    fn export(&self, address: u64, len: u64) -> Result<OwnedFd, CudaError> {
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
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn map(&self, dma_buf: &OwnedFd, len: u64) -> Result<(), i32> {
        let (protection, fd) = (libc::PROT_READ | libc::PROT_WRITE, dma_buf.as_raw_fd());
        // SAFETY: a new mapping at an address of the kernel's choice; nothing touches it.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, protection, libc::MAP_SHARED, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(last_errno());
        }
        // SAFETY: the mapping was made above and is used by nobody.
        let _ = unsafe { libc::munmap(address, len as usize) };
        Ok(())
    }

    fn import(&self, dma_buf: &OwnedFd, len: u64) -> Result<(), i32> {
        // The address space that is made here goes when the file is closed, and the import with it.
        let iommu = open("/dev/iommu")?;
        let mut made = IoasAlloc { size: size_of::<IoasAlloc>() as u32, ..IoasAlloc::default() };
        request(&iommu, IOAS_ALLOC, &mut made)?;
        let mut map = IoasMapFile {
            size: size_of::<IoasMapFile>() as u32,
            flags: READ_WRITE,
            ioas_id: made.ioas_id,
            fd: dma_buf.as_raw_fd(),
            length: len,
            ..IoasMapFile::default()
        };
        request(&iommu, IOAS_MAP_FILE, &mut map)
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        let file = open("/dev/gdrdrv")?;
        // The version of the module, and the oldest of the library that it serves.
        let mut versions = [0u32; 2];
        request(&file, GDRDRV_GET_VERSION, &mut versions)?;
        let version = GdrdrvVersion { major: (versions[0] >> 16) as u16, minor: versions[0] as u16 };
        if version < GDRDRV_WITH_ATTRIBUTES {
            return Ok(Gdrdrv { version, persistent: None });
        }
        let mut attribute = [PERSISTENT_MAPPING, 0];
        let answered = request(&file, GDRDRV_GET_ATTRIBUTE, &mut attribute);
        Ok(Gdrdrv { version, persistent: answered.ok().map(|()| attribute[1] != 0) })
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
    fn requests_have_the_numbers_of_their_headers() {
        // From C: _IOWR(0xDA, 255, void *), _IOWR(0xDA, 6, void *), _IO(';', 0x81), _IO(';', 0x8f).
        assert_eq!((GDRDRV_GET_VERSION, GDRDRV_GET_ATTRIBUTE), (0xC008_DAFF, 0xC008_DA06));
        assert_eq!((IOAS_ALLOC, IOAS_MAP_FILE), (0x3B81, 0x3B8F));
    }

    #[test]
    fn a_device_file_that_is_not_there_is_its_errno() {
        assert_eq!(open("/nowhere/gdrdrv").unwrap_err(), libc::ENOENT);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(request(&file, GDRDRV_GET_VERSION, &mut [0u32; 2]), Err(libc::ENOTTY));
    }
}
