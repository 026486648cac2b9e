//! The machine's own answers: dma-bufs of CUDA, gdrdrv, iommufd, and what is free of BAR1.

use std::ffi::c_int;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::CUdeviceptr;

use super::{Gdrdrv, PathProbe};
use crate::gpu::device::{Gpu, GpuInfo};
use crate::gpu::direct::{self, BarMapping, DmaBuf};
use crate::gpu::error::CudaError;
use crate::gpu::library::CudaVersion;
use crate::gpu::management;
use crate::vfio;

/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF_FD: u32 = 1;

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
        vfio::try_dma_buf((dma_buf.file.as_fd(), dma_buf.offset), len)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        direct::ask()
    }

    fn bar1_free(&self) -> Option<u64> {
        management(&self.info().pci_address).map(|known| known.bar1_free)
    }
}
