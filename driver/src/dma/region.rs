//! Memory that devices can reach, and the one safe order of giving it up.

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Access, DmaSpace, DmaView, Iova, IovaRange};

/// Whoever owns the bytes of a region.
///
/// # Safety
/// Until the value is dropped `base()` is the same, `len()` is the same and not 0, the `len()` bytes there are
/// mapped, readable and writable, and nobody makes a reference to them. Where `file()` names a file, they are a shared
/// mapping of it.
pub unsafe trait Backing: Send + Sync + 'static {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// The length in bytes, not 0.
    fn len(&self) -> usize;
    /// The file that the bytes are a shared mapping of, and the offset of the first one there; none: anonymous memory.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
    /// Whether there is no byte: never.
    fn is_empty(&self) -> bool {
        false
    }
}

// SAFETY: the value is dropped with the box.
unsafe impl<T: Backing + ?Sized> Backing for Box<T> {
    fn base(&self) -> NonNull<u8> {
        (**self).base()
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        (**self).file()
    }
}

/// An IOVA range, the mapping that put it there, and the owner of the bytes.
///
/// Dropping a region is always safe and needs nothing from a device: the mapping goes first, exactly as it was made,
/// then the IOVAs are *retired* (a device that still holds one meets an unmapped address, never somebody else's
/// memory), then the owner of the bytes goes. Where it is known that no device holds an IOVA of it any more,
/// [`release`](Self::release) makes them usable again at once. If the mapping cannot be removed the bytes are leaked:
/// leak rather than corrupt (invariant 2).
pub struct Region<B> {
    space: Arc<DmaSpace>,
    range: IovaRange,
    access: Access,
    quiet: bool,
    backing: ManuallyDrop<B>,
}

impl<B> Region<B> {
    pub(super) fn new(space: Arc<DmaSpace>, range: IovaRange, backing: B, access: Access) -> Self {
        Self { space, range, access, quiet: false, backing: ManuallyDrop::new(backing) }
    }

    /// The first IOVA.
    #[inline]
    pub fn iova(&self) -> Iova {
        self.range.start()
    }

    /// The IOVA `offset` bytes in, `None` at the end and beyond.
    pub fn iova_at(&self, offset: u64) -> Option<Iova> {
        if offset < self.range.len() { self.range.start().checked_add(offset) } else { None }
    }

    /// All IOVAs.
    pub fn range(&self) -> IovaRange {
        self.range
    }

    /// What devices may do with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The owner of the bytes.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Gives the region up; its IOVAs are free at once. For a caller who knows that no device holds one of them:
    /// every command that named it has its CQE, or the controller has stopped since.
    pub fn release(mut self) {
        self.set_quiet();
    }

    /// Makes the end of this region that of [`release`](Self::release), whenever it comes.
    pub(crate) fn set_quiet(&mut self) {
        self.quiet = true;
    }
}

impl<B: Backing> Region<B> {
    /// The bytes.
    #[inline]
    pub fn view(&self) -> DmaView<'_> {
        // SAFETY: `Backing` promises mapped bytes without references until it is dropped, and `self` outlives the
        // view.
        unsafe { DmaView::new(self.backing.base(), self.backing.len()) }
    }
}

impl<B> Drop for Region<B> {
    fn drop(&mut self) {
        if self.space.unmap(self.range).is_err() {
            // The device may still reach the bytes: neither they nor the IOVAs are ever used again.
            return;
        }
        self.space.give_back(self.range, self.quiet);
        // SAFETY: the backing is dropped here and nowhere else, after the mapping is gone.
        unsafe { ManuallyDrop::drop(&mut self.backing) }
    }
}

#[cfg(test)]
mod tests;
