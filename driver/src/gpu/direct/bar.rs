//! A part of a GPU's BAR1, mapped into this process so that the kernel can be told of it by its address. Nobody here
//! touches what is mapped.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use super::gdrdrv;

/// GPU memory as a dma-buf: its file, and where in it the memory begins.
#[derive(Debug, Clone)]
pub struct DmaBuf {
    /// The dma-buf.
    pub file: Arc<OwnedFd>,
    /// Bytes before the memory's first one.
    pub offset: u64,
}

impl DmaBuf {
    /// A dma-buf that begins with the memory.
    pub fn new(file: OwnedFd) -> Self {
        Self { file: Arc::new(file), offset: 0 }
    }
}

/// A mapping of a part of BAR1, until dropped.
#[derive(Debug)]
pub struct BarMapping {
    base: NonNull<u8>,
    len: usize,
    source: Source,
}

/// What it is a mapping of.
#[derive(Debug)]
enum Source {
    DmaBuf(DmaBuf),
    /// A pin of gdrdrv's, which ends by its number.
    Pin(File, u64),
}

// SAFETY: the mapping belongs to this value alone and stays where it is until Drop; it is touched by nobody.
unsafe impl Send for BarMapping {}
// SAFETY: as above.
unsafe impl Sync for BarMapping {}

impl BarMapping {
    /// Maps `len` bytes of a dma-buf.
    ///
    /// # Errors
    /// The kernel's errno.
    pub fn of_dma_buf(dma_buf: DmaBuf, len: u64) -> Result<Self, i32> {
        let (base, len) = map(dma_buf.file.as_fd(), dma_buf.offset, len)?;
        Ok(Self { base, len, source: Source::DmaBuf(dma_buf) })
    }

    /// Maps `len` bytes that gdrdrv has pinned as number `handle`, which ends with the result, or with an error.
    pub(super) fn of_pin(file: File, handle: u64, len: u64) -> Result<Self, i32> {
        // gdrdrv finds a pin by the page that is asked for (gdrdrv.c, gdrdrv_mmap).
        let offset = handle.checked_mul(host_page()).ok_or(libc::EINVAL);
        match offset.and_then(|offset| map(file.as_fd(), offset, len)) {
            Ok((base, len)) => Ok(Self { base, len, source: Source::Pin(file, handle) }),
            Err(errno) => {
                gdrdrv::unpin(&file, handle);
                Err(errno)
            }
        }
    }

    /// The first byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes, not 0.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What keeps the memory where it is, as long as somebody has it open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::DmaBuf(dma_buf) => dma_buf.file.as_fd(),
            Source::Pin(file, _) => file.as_fd(),
        }
    }
}

impl Drop for BarMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it after its owner.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(done, 0, "the whole of a mapping of ours");
        if let Source::Pin(file, handle) = &self.source {
            gdrdrv::unpin(file, *handle);
        }
    }
}

/// Maps a part of a file, for this process and no child of it.
fn map(file: BorrowedFd<'_>, offset: u64, len: u64) -> Result<(NonNull<u8>, usize), i32> {
    let (Ok(len), Ok(offset)) = (usize::try_from(len), libc::off_t::try_from(offset)) else { return Err(libc::EINVAL) };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; no existing memory is touched.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), offset) };
    let base = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED).ok_or_else(last_errno)?;
    // A child that inherited it would hold the GPU's memory after we have given it up.
    // SAFETY: the range is the whole of our own new mapping; its contents do not change.
    if unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
        let errno = last_errno();
        // SAFETY: the mapping was made above and is used by nobody.
        let _ = unsafe { libc::munmap(base.as_ptr().cast(), len) };
        return Err(errno);
    }
    Ok((base, len))
}

/// Bytes of a page of the host.
fn host_page() -> u64 {
    crate::dma::PageSize::Ordinary.bytes() as u64
}

/// Why the call before this one has failed.
pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
