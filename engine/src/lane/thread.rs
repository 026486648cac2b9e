//! A lane with a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::{io, thread};

use super::Lane;

/// The thread that turns a lane, and gives it back when it is stopped.
pub(crate) struct LaneThread {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Lane>,
}

impl LaneThread {
    pub(crate) fn start(mut lane: Lane) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("tentpeg-lane".to_owned()).spawn(move || {
            // An empty turn gives the processor away (see Function::pause).
            while !stopped.load(Ordering::Relaxed) {
                lane.turn();
            }
            lane
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread after its turn. `None` when it panicked.
    pub(crate) fn stop(self) -> Option<Lane> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}
