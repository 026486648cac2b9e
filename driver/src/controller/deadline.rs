//! Waiting with a deadline (invariant 5).

use std::time::Duration;

use crate::bus::Function;

/// How long a wait may take.
pub(super) struct Deadline {
    limit: Duration,
}

impl Deadline {
    /// A deadline `limit` after the wait has begun.
    pub(super) fn after(limit: Duration) -> Self {
        Self { limit }
    }

    /// The whole wait.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Calls `look` until it gives something, or the deadline has passed by the function's clock; then once more, as
    /// this thread may have slept through all of it. Between two looks the controller has the processor.
    pub(super) fn wait<T>(&self, function: &dyn Function, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let start = function.now();
        loop {
            let late = function.now().saturating_duration_since(start) >= self.limit;
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
