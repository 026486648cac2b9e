//! How a lane that was not given back learns that its engine closes.

use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const CLOSED: u8 = 2;

/// How far the closing of an engine has come. Shared by the engine, which writes it, and its lane.
#[derive(Debug, Default)]
pub(crate) struct Closing(AtomicU8);

impl Closing {
    /// Nothing may be submitted from the lane's next turn on; what is in flight is the device's still. Of no effect on
    /// one that has begun: an engine that was closed is dropped as well.
    pub(crate) fn begin(&self) {
        // Release as in `finish`; who lost has nothing to say, so what it read orders nothing.
        let _ = self.0.compare_exchange(OPEN, CLOSING, Ordering::Release, Ordering::Relaxed);
    }

    /// The controller has stopped: no device touches any memory now, and every task can be told.
    pub(crate) fn finish(&self) {
        self.0.store(CLOSED, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) == OPEN
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.0.load(Ordering::Acquire) == CLOSED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_closed_stays_closed() {
        let closing = Closing::default();
        assert!(closing.is_open());
        closing.begin();
        assert!(!closing.is_open() && !closing.is_finished());
        closing.finish();
        closing.begin();
        assert!(closing.is_finished());
    }
}
