//! What devices have written into GPU memory, and whether the GPU sees it.
//!
//! A completion in host memory does not prove that the data before it has landed in another device: where the GPU does not
//! order the writes of others, a lane has them flushed before it tells of the reads that brought them, once for all that it
//! finds in a turn.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use tentpeg_driver::dma::IovaRange;
use tentpeg_driver::gpu::{Accelerator, CudaError, WritesOrdering};

/// Which writes have to be flushed, and what flushes them. Shared by an engine's ports.
pub(crate) struct Visibility {
    accelerator: Arc<dyn Accelerator>,
    scope: WritesOrdering,
    /// Where GPU memory is that devices write directly.
    ranges: ArcSwap<Vec<IovaRange>>,
    /// Whether there is any.
    any: AtomicBool,
}

impl fmt::Debug for Visibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visibility").field("scope", &self.scope).field("ranges", &self.ranges.load().len()).finish()
    }
}

impl Visibility {
    pub(crate) fn new(accelerator: Arc<dyn Accelerator>, scope: WritesOrdering) -> Arc<Self> {
        Arc::new(Self { accelerator, scope, ranges: ArcSwap::default(), any: AtomicBool::new(false) })
    }

    /// GPU memory is there from now on: before any request can name it. Under the lock of unregistering.
    pub(crate) fn add(&self, range: IovaRange) {
        let mut ranges = Vec::clone(&self.ranges.load());
        ranges.push(range);
        self.ranges.store(Arc::new(ranges));
        // A request that names it is handed over behind this, by a queue that orders it.
        self.any.store(true, Ordering::Relaxed);
    }

    /// No device reaches it any more. Under the lock of unregistering.
    pub(crate) fn remove(&self, range: IovaRange) {
        let mut ranges = Vec::clone(&self.ranges.load());
        ranges.retain(|other| *other != range);
        self.any.store(!ranges.is_empty(), Ordering::Relaxed);
        self.ranges.store(Arc::new(ranges));
    }

    /// Whether there is anything to flush for at all.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Whether what is written at `iova` has to be flushed.
    pub(crate) fn holds(&self, iova: u64) -> bool {
        self.ranges.load().iter().any(|range| iova.wrapping_sub(range.start().get()) < range.len())
    }

    /// Flushes what has arrived.
    ///
    /// # Errors
    /// [`CudaError`]: nobody may be told that it is there.
    pub(crate) fn flush(&self) -> Result<(), CudaError> {
        self.accelerator.flush(self.scope)
    }
}
