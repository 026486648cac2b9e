//! A store in memory: one private mapping as large as the namespace, of which only what is written takes room.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::super::config::ModelError;
use super::super::iommu::Piece;

/// The unit in which memory is given back, in bytes: the kernel's page or a multiple of it.
const PAGE: usize = 64 << 10;

/// Zeroes until written.
pub(in crate::model) struct MemoryStore {
    /// Those of `mapped`.
    base: NonNull<u8>,
    len: usize,
    mapped: Arc<Mapped>,
}

// SAFETY: no reference to the mapping's bytes is made.
unsafe impl Send for MemoryStore {}

/// The mapping of a store. Whoever shares it keeps it where it is, and its pages in it.
pub(in crate::model) struct Mapped {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is an address and a length; the bytes are touched by the store and by movers alone.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(in crate::model) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(in crate::model) fn len(&self) -> usize {
        self.len
    }
}

impl MemoryStore {
    pub(super) fn new(size: u64) -> Result<Self, ModelError> {
        let refused = |source| ModelError::NoAddressSpace { size, source };
        let len = usize::try_from(size)
            .ok()
            .filter(|len| isize::try_from(*len).is_ok())
            .ok_or_else(|| refused(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // SAFETY: a new mapping at an address of the kernel's choice; no existing memory is touched.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = match NonNull::new(address.cast::<u8>()) {
            Some(base) if address != libc::MAP_FAILED => base,
            _ => return Err(refused(io::Error::last_os_error())),
        };
        // Large pages are only faster: a kernel without them serves as well.
        // SAFETY: the range is the whole of the new mapping.
        let _ = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        Ok(Self { base, len, mapped: Arc::new(Mapped { base, len }) })
    }

    pub(super) fn resize(&mut self, size: u64) -> io::Result<()> {
        let len = usize::try_from(size).ok().filter(|len| isize::try_from(*len).is_ok());
        let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let Some(mapped) = Arc::get_mut(&mut self.mapped) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "a store that a mover reaches cannot be resized"));
        };
        // SAFETY: the whole of a mapping of ours, to whose bytes there is no reference; it may move.
        let address = unsafe { libc::mremap(self.base.as_ptr().cast(), self.len, len, libc::MREMAP_MAYMOVE) };
        match NonNull::new(address.cast::<u8>()) {
            Some(base) if address != libc::MAP_FAILED => {
                (self.base, self.len) = (base, len);
                (mapped.base, mapped.len) = (base, len);
                Ok(())
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The mapping, shared.
    pub(super) fn share(&self) -> Arc<Mapped> {
        Arc::clone(&self.mapped)
    }

    /// Where the `len` bytes from `offset` on lie.
    pub(super) fn address(&self, offset: u64, len: u64) -> u64 {
        let end = offset.checked_add(len).filter(|end| *end <= self.len as u64);
        end.expect("the namespace is as large as its store, and commands are checked against it");
        self.base.addr().get() as u64 + offset
    }

    #[inline]
    pub(super) fn read(&self, offset: u64, pieces: &[Piece<'_>]) {
        self.each(offset, pieces, |stored, piece| {
            // SAFETY: `each` gives as many stored bytes as the piece has; the store is mapped by nobody else, so the
            // two do not overlap.
            unsafe { ptr::copy_nonoverlapping(stored.as_ptr(), piece.base().as_ptr(), piece.len()) }
        });
    }

    #[inline]
    pub(super) fn write(&self, offset: u64, pieces: &[Piece<'_>]) {
        self.each(offset, pieces, |stored, piece| {
            // SAFETY: as in `read`.
            unsafe { ptr::copy_nonoverlapping(piece.base().as_ptr(), stored.as_ptr(), piece.len()) }
        });
    }

    /// Makes bytes zero; whole pages are given back to the kernel.
    pub(super) fn discard(&self, offset: u64, len: u64) {
        let range = usize::try_from(offset).ok().zip(usize::try_from(len).ok());
        let inside = range.filter(|(offset, len)| offset.checked_add(*len).is_some_and(|end| end <= self.len));
        let (start, len) = inside.expect("the namespace is as large as its store, and commands are checked against it");
        let end = start + len;
        // The mapping begins on a page.
        let (first, last) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        let zero = |from: usize, to: usize| {
            // SAFETY: `from..to` lies in `start..end`, and so in the mapping, of which there are no references.
            unsafe { self.base.add(from).write_bytes(0, to - from) }
        };
        // Pages that a mover has pinned would stay its own, and others take their place here.
        if first >= last || Arc::strong_count(&self.mapped) > 1 {
            return zero(start, end);
        }
        zero(start, first);
        zero(last, end);
        // SAFETY: whole pages of our own mapping; private and anonymous ones read as zeroes afterwards.
        let given = unsafe { libc::madvise(self.base.add(first).as_ptr().cast(), last - first, libc::MADV_DONTNEED) };
        if given != 0 {
            zero(first, last);
        }
    }

    /// Calls `copy` for each piece with the stored bytes that belong to it.
    #[inline]
    fn each(&self, offset: u64, pieces: &[Piece<'_>], copy: impl Fn(NonNull<u8>, &Piece<'_>)) {
        let mut offset = offset as usize;
        for piece in pieces {
            let end = offset.checked_add(piece.len()).filter(|end| *end <= self.len);
            let end = end.expect("the namespace is as large as its store, and commands are checked against it");
            // SAFETY: `offset` is at most `end`, which lies in the mapping.
            copy(unsafe { self.base.add(offset) }, piece);
            offset = end;
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it after its owner.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(done, 0, "the whole of a mapping of ours");
    }
}
