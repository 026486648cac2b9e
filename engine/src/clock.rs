//! The clock by which commands of a device are timed: its function's own, in milliseconds.
//!
//! A function may have a time of its own, which passes as its controller is stepped; so waits take as many looks on a
//! busy machine as on an idle one. All that attends to a controller counts from the same moment, as the controller
//! remembers when it is due next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tentpeg_driver::bus::Function;

/// A device's clock. Clones show the same time.
#[derive(Clone)]
pub(crate) struct Clock {
    function: Arc<dyn Function>,
    start: Instant,
}

impl Clock {
    /// A clock that begins now.
    pub(crate) fn new(function: &Arc<dyn Function>) -> Self {
        Self { function: Arc::clone(function), start: function.now() }
    }

    /// Milliseconds since it began. They wrap after 49 days; who compares them subtracts.
    pub(crate) fn milliseconds(&self) -> u32 {
        self.elapsed().as_millis() as u32
    }

    /// How long it has run.
    #[inline]
    pub(crate) fn elapsed(&self) -> Duration {
        self.function.now().saturating_duration_since(self.start)
    }

    /// As if it had begun earlier.
    #[cfg(test)]
    pub(crate) fn rewind(&mut self, by: Duration) {
        self.start -= by;
    }

    /// The function whose time it is.
    pub(crate) fn function(&self) -> &Arc<dyn Function> {
        &self.function
    }
}
