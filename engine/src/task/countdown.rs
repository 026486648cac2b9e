//! How the shares of a spread task, each of another lane, come to one end.

use std::sync::atomic::{AtomicU32, Ordering};

/// An atomic word: the standard library's, or loom's.
pub(super) trait Word {
    fn load(&self, order: Ordering) -> u32;
    fn fetch_sub(&self, value: u32, order: Ordering) -> u32;
    fn compare_exchange(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32>;
}

impl Word for AtomicU32 {
    fn load(&self, order: Ordering) -> u32 {
        AtomicU32::load(self, order)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        AtomicU32::fetch_sub(self, value, order)
    }

    fn compare_exchange(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        AtomicU32::compare_exchange(self, current, new, success, failure)
    }
}

/// One share has ended, with this outcome, of which 0 is success. By its lane, once. What became of all of them, if it was
/// the last one: the first outcome that was no success, `weak` only where there is no other.
pub(super) fn share_ended(open: &impl Word, first_failure: &impl Word, outcome: u32, weak: u32) -> Option<u32> {
    if outcome != 0 {
        // The first to fail decides; whoever ends the task reads it behind the countdown.
        let decides = |over| first_failure.compare_exchange(over, outcome, Ordering::Relaxed, Ordering::Relaxed);
        if decides(0) == Err(weak) {
            let _ = decides(weak);
        }
    }
    // Release: the outcome, and the bytes, of this share are seen by whoever ends the task; Acquire: so are those of the
    // other shares.
    if open.fetch_sub(1, Ordering::AcqRel) != 1 {
        return None;
    }
    Some(first_failure.load(Ordering::Relaxed))
}

#[cfg(test)]
mod loom_tests;
