//! Waiting with a deadline (invariant 5).

use std::time::{Duration, Instant};

use crate::bus::Function;

/// The end of a wait.
pub(super) struct Deadline {
    start: Instant,
    limit: Duration,
}

impl Deadline {
    /// A deadline `limit` from now.
    pub(super) fn after(limit: Duration) -> Self {
        Self { start: Instant::now(), limit }
    }

    /// The whole wait.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Calls `look` until it gives something, or the deadline has passed; then once more, as this thread may have
    /// slept through all of it. Between two looks the controller has the processor.
    pub(super) fn wait<T>(&self, function: &dyn Function, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            let late = self.start.elapsed() >= self.limit;
            if let Some(found) = look() {
                return Some(found);
            }
            if late {
                return None;
            }
            function.pause();
        }
    }
}
