//! What ties a batch to a lane, and how both are parted.
//!
//! A submitter *links* the batch after it has published its tasks, and puts it into the lane's inbox where it was not
//! linked yet. The lane *takes* it before it reads the tail, so that tasks published later link it again, and *lets go* of
//! it when it has no more work with it. Whoever frees the batch has stopped its submitters, and waits until it is neither
//! linked nor held: then nobody will touch it. `loom_tests` runs all of that, and `unregister_loom_tests` memory that is
//! unregistered meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

/// An atomic flag: the standard library's, or loom's.
pub(super) trait Flag {
    fn load(&self, order: Ordering) -> bool;
    fn store(&self, value: bool, order: Ordering);
    fn swap(&self, value: bool, order: Ordering) -> bool;
}

impl Flag for AtomicBool {
    #[inline]
    fn load(&self, order: Ordering) -> bool {
        AtomicBool::load(self, order)
    }

    #[inline]
    fn store(&self, value: bool, order: Ordering) {
        AtomicBool::store(self, value, order);
    }

    #[inline]
    fn swap(&self, value: bool, order: Ordering) -> bool {
        AtomicBool::swap(self, value, order)
    }
}

/// How a batch stands with one lane.
#[derive(Debug, Default)]
pub(super) struct Hold<F> {
    /// Whether it is in the lane's inbox, or about to be.
    linked: F,
    /// Whether the lane has it.
    held: F,
}

impl<F: Flag> Hold<F> {
    /// By a submitter, after it has published the tail: whether the batch must be put into the lane's inbox.
    pub(super) fn link(&self) -> bool {
        // Release: a lane that takes the batch reads the tail behind it.
        !self.linked.swap(true, Ordering::AcqRel)
    }

    /// By the lane, before it reads the tail.
    pub(super) fn take(&self) {
        self.held.store(true, Ordering::Relaxed);
        // A read-modify-write, so that it reads what the submitter's swap wrote and orders itself behind it: a submitter
        // that found the batch linked has published its tail before this. Release: who finds it no longer linked finds
        // it held.
        self.linked.swap(false, Ordering::AcqRel);
    }

    /// By the lane, when it has done all with it.
    pub(super) fn let_go(&self) {
        // Release: who finds it neither linked nor held has all that the lane did before him.
        self.held.store(false, Ordering::Release);
    }

    /// Whether the lane does not have it and is not to get it, when nobody links it any more.
    pub(super) fn is_quiet(&self) -> bool {
        // In this order: held is set before linked is cleared.
        !self.linked.load(Ordering::Acquire) && !self.held.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod unregister_loom_tests;
