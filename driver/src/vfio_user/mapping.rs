//! Memory of the other end, mapped here by a file descriptor that it has sent.
//!
//! What is behind such a descriptor belongs to somebody who is not trusted, and who may cut it short: then a touch
//! is a signal. So a mapping is made only of a regular file that is long enough, is sealed against being cut short
//! (F_SEAL_SHRINK, which a memfd has and which nobody can take back), and whose pages could be faulted in. What is
//! left is a hole that its owner makes in hugepages when no other is free.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::dma::DmaView;

/// What is asked of a file before it is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seal {
    /// That it cannot be made shorter.
    Required,
    /// Nothing: its owner is trusted not to make it shorter.
    Trusted,
}

/// A part of a file, mapped for reading and writing.
#[derive(Debug)]
pub(super) struct FileMapping {
    base: NonNull<u8>,
    len: usize,
    detached: AtomicBool,
}

// SAFETY: the mapping belongs to this value alone; it hands out no reference to its bytes.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps `len` bytes of `file` from `offset` on, both multiples of the kernel's page.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64, seal: Seal) -> Result<Self, Errno> {
        let stat = fstat(file)?;
        let end = offset.checked_add(len).ok_or(Errno::OVERFLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || len == 0 {
            return Err(Errno::INVAL);
        }
        // Before the length: what is sealed does not become shorter after the look at it.
        if seal == Seal::Required && !fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            return Err(Errno::PERM);
        }
        if !u64::try_from(fstat(file)?.st_size).is_ok_and(|size| end <= size) {
            return Err(Errno::NXIO);
        }
        let len = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; no existing memory is touched.
        let base = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, offset)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let mapping = Self { base, len, detached: AtomicBool::new(false) };
        // SAFETY: the range is the whole of our own mapping.
        match unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
            // A kernel before 5.14 cannot be asked.
            Ok(()) | Err(Errno::INVAL) => Ok(mapping),
            Err(errno) => Err(errno),
        }
    }

    /// The bytes.
    pub(super) fn view(&self) -> DmaView<'_> {
        // SAFETY: the mapping lasts as long as `self`, and nobody makes references to its bytes.
        unsafe { DmaView::new(self.base, self.len) }
    }

    /// The first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Puts anonymous pages in the place of the file's: whoever still holds the mapping reaches nobody's memory. Others
    /// may be using it meanwhile.
    pub(super) fn detach(&self) {
        self.detached.store(true, Ordering::Release);
        let (base, protection) = (self.base.as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is the whole of our own mapping, whose bytes nobody refers to; views of it find other bytes there,
        // mapped, readable and writable. Where the kernel refuses, all is as before.
        let _ = unsafe { mmap_anonymous(base, self.len, protection, flags) };
    }

    /// Whether it has been [detached](Self::detach).
    pub(super) fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Acquire)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it after its owner.
        let done = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "the whole of a mapping of ours");
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::*;

    fn memfd(len: u64, seals: SealFlags) -> File {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(len).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    }

    #[test]
    fn a_part_of_a_sealed_file_is_mapped() {
        let file = memfd(16384, SealFlags::SHRINK);
        let mapping = FileMapping::new(file.as_fd(), 4096, 8192, Seal::Required).unwrap();
        file.write_at(b"here", 4100).unwrap();
        let mut bytes = [0; 4];
        mapping.view().read(4, &mut bytes);
        assert_eq!(&bytes, b"here");
        mapping.detach();
        assert!(mapping.is_detached());
        mapping.view().read(4, &mut bytes);
        assert_eq!(bytes, [0; 4], "anonymous pages are in its place");
        mapping.view().write(4, b"lost");
        file.read_exact_at(&mut bytes, 4100).unwrap();
        assert_eq!(&bytes, b"here");
    }

    #[test]
    fn what_could_be_a_signal_is_refused() {
        let map = |file: &File, offset, len, seal| FileMapping::new(file.as_fd(), offset, len, seal).map(drop);
        let sealed = memfd(8192, SealFlags::SHRINK);
        assert_eq!(map(&sealed, 0, 12288, Seal::Required), Err(Errno::NXIO), "behind its end");
        assert_eq!(map(&sealed, 8192, 4096, Seal::Required), Err(Errno::NXIO));
        assert_eq!(map(&sealed, u64::MAX - 4095, 8192, Seal::Required), Err(Errno::OVERFLOW));
        assert_eq!(map(&sealed, 0, 0, Seal::Required), Err(Errno::INVAL));
        assert_eq!(map(&sealed, 1, 4096, Seal::Required), Err(Errno::INVAL), "not on a page");
        let open = memfd(8192, SealFlags::GROW);
        assert_eq!(map(&open, 0, 8192, Seal::Required), Err(Errno::PERM), "it could be cut short");
        assert_eq!(map(&open, 0, 8192, Seal::Trusted), Ok(()));
        let device = File::open("/dev/zero").unwrap();
        assert_eq!(map(&device, 0, 4096, Seal::Trusted), Err(Errno::INVAL), "no regular file");
        let ordinary = tempfile::tempfile().unwrap();
        ordinary.set_len(8192).unwrap();
        assert_eq!(map(&ordinary, 0, 8192, Seal::Required), Err(Errno::PERM), "it cannot be sealed");
        let written = memfd(8192, SealFlags::SHRINK | SealFlags::WRITE);
        assert_eq!(map(&written, 0, 8192, Seal::Required), Err(Errno::PERM), "it cannot be written");
    }
}
