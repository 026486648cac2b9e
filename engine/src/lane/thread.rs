//! A lane with a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::bell::Alarm;
use super::cpus::{self, CpuList};
use super::sleep::{Sleeps, Woken};
use super::{Lane, LaneError, LaneIdle};
use crate::OpenError;

/// Busy turns since it last slept after which a lane has the devices interrupt it no more.
const BUSY: u32 = 64;

/// The thread that turns a lane, and gives it back when it is stopped.
pub(crate) struct LaneThread {
    stop: Arc<AtomicBool>,
    alarm: Arc<Alarm>,
    sleeps: Arc<Sleeps>,
    cpus: Option<CpuList>,
    thread: JoinHandle<Lane>,
}

impl LaneThread {
    /// Starts a thread for `lane`, which `alarm` wakes, on `cpus`.
    ///
    /// # Errors
    /// [`OpenError::Thread`], or [`OpenError::Lane`] where the kernel does not let it run there.
    pub(crate) fn start(
        lane: Lane,
        idle: LaneIdle,
        alarm: Arc<Alarm>,
        cpus: Option<CpuList>,
    ) -> Result<Self, OpenError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (pinned, begun) = mpsc::sync_channel(1);
        let sleeps = Arc::new(Sleeps::default());
        tracing::debug!(cpus = cpus.as_ref().map(tracing::field::display), ?idle, "a lane starts");
        let pinned_to = cpus.clone();
        let thread = {
            let (stop, alarm, sleeps) = (Arc::clone(&stop), Arc::clone(&alarm), Arc::clone(&sleeps));
            thread::Builder::new().name("tentpeg-lane".to_owned()).spawn(move || {
                let result = pinned_to.map_or(Ok(()), |cpus| cpus::pin(&cpus));
                let runs = result.is_ok();
                // Who started it waits for this.
                let _ = pinned.send(result);
                if runs { run(lane, idle, &alarm, &stop, &sleeps) } else { lane }
            })
        };
        let thread = thread.map_err(OpenError::Thread)?;
        match begun.recv() {
            Ok(Err(error)) => Err(LaneError::Kernel(error).into()),
            // A thread that has ended without a word has panicked; whoever stops it learns of that.
            Ok(Ok(())) | Err(_) => Ok(Self { stop, alarm, sleeps, cpus, thread }),
        }
    }

    /// The processors that it is pinned to, where it is.
    pub(crate) fn cpus(&self) -> Option<&CpuList> {
        self.cpus.as_ref()
    }

    /// How it has slept.
    pub(crate) fn sleeps(&self) -> &Sleeps {
        &self.sleeps
    }

    /// Tells the thread to end after its turn.
    pub(crate) fn tell_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
        // Sounded whether it sleeps or not: one that is about to sleep finds it.
        self.alarm.sound();
    }

    /// Waits for the thread, which was told to stop. `None` when it panicked, and where it is the caller, in the middle of a
    /// turn: it has dropped the last handle of its engine, by a notifier say. Then its lane is one that was not given back.
    pub(crate) fn join(self) -> Option<Lane> {
        if self.thread.thread().id() == thread::current().id() {
            return None;
        }
        self.thread.join().ok()
    }
}

/// Turns the lane until it is stopped.
fn run(mut lane: Lane, idle: LaneIdle, alarm: &Alarm, stop: &AtomicBool, sleeps: &Sleeps) -> Lane {
    let stopped = || stop.load(Ordering::Acquire);
    // Since when it has looked in vain.
    let mut since: Option<Instant> = None;
    let mut busy_turns: u32 = 0;
    while !stopped() {
        // An empty turn gives the processor away (see Function::pause).
        if lane.turn() {
            since = None;
            busy_turns = busy_turns.wrapping_add(1);
            if busy_turns == BUSY {
                lane.disarm();
            }
            continue;
        }
        let LaneIdle::Sleep { after } = idle else { continue };
        if since.get_or_insert_with(Instant::now).elapsed() < after {
            continue;
        }
        let woken = lane.sleep(alarm, sleeps, stopped);
        sleeps.end(woken);
        busy_turns = 0;
        if woken == Woken::Never {
            since = None;
        }
    }
    lane
}
