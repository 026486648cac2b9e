//! The thread of a model that runs itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::config::ModelError;
use super::executor::Executor;

/// Empty turns before the processor is given away, where there is another to spare.
const SPINS: u32 = 64;
/// How long a model without work yields before it sleeps.
const PATIENCE: Duration = Duration::from_millis(4);
/// A step of sleep: with the kernel's slack of 50 us the next command is seen within about 100 us.
const NAP: Duration = Duration::from_micros(50);

/// Runs an executor until dropped.
pub(super) struct ModelThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ModelThread {
    pub(super) fn start(executor: Executor) -> Result<Self, ModelError> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::Builder::new()
            .name("tentpeg-model".to_owned())
            .spawn(move || run(executor, &flag))
            .map_err(|source| ModelError::Thread { source })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl ModelThread {
    /// Whether it runs no more, although nobody told it to end.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for ModelThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            // Its panic has been printed where it happened; a second one here would end the process.
            debug_assert!(thread::panicking(), "the model's thread panicked");
        }
    }
}

fn run(mut executor: Executor, stop: &AtomicBool) {
    // Where there is one processor, every spin keeps the driver from ringing.
    let spins = if thread::available_parallelism().is_ok_and(|count| count.get() > 1) { SPINS } else { 0 };
    let mut idle = 0;
    let mut since = None;
    while !stop.load(Ordering::Relaxed) {
        if executor.turn() {
            (idle, since) = (0, None);
        } else if idle < spins {
            idle += 1;
            std::hint::spin_loop();
        } else if since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            thread::yield_now();
        } else {
            thread::sleep(NAP);
        }
    }
}
