//! How a lane with a thread sleeps: it says that it does, has the devices interrupt it, looks at everything once more, and
//! sleeps only where that was in vain (see `bell`). Devices go on interrupting it when it is up: having them stop and begin
//! is dear. It has them stop when it finds that it does not sleep any more.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Lane;
use super::bell::Alarm;
use super::port::Port;

/// How long it sleeps at most, where commands are in flight: their deadlines are looked after that often.
const WITH_COMMANDS: Duration = Duration::from_millis(10);
/// And where none is: a controller may have events to tell, or be wanted back.
const WITHOUT: Duration = Duration::from_millis(100);

/// Why a lane that was about to sleep is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Woken {
    /// It did not sleep: the last look found something, or a device with commands in flight does not interrupt.
    Never,
    /// Somebody has given it something to do, or stops it.
    Called,
    /// A device has interrupted it.
    Interrupted,
    /// It was time.
    Time,
}

/// How often a lane has slept, by what woke it: written by its thread.
#[derive(Debug, Default)]
pub(crate) struct Sleeps {
    begun: AtomicU64,
    called: AtomicU64,
    interrupted: AtomicU64,
    time: AtomicU64,
}

impl Sleeps {
    fn begin(&self) {
        add_one(&self.begun);
    }

    pub(super) fn end(&self, woken: Woken) {
        match woken {
            Woken::Never => {}
            Woken::Called => add_one(&self.called),
            Woken::Interrupted => add_one(&self.interrupted),
            Woken::Time => add_one(&self.time),
        }
    }

    /// How often it has begun to sleep; how often somebody has woken it, a device, and the time.
    pub(crate) fn read(&self) -> [u64; 4] {
        // Those that woke it first, so that no more are seen to have ended than to have begun.
        let ended = [&self.called, &self.interrupted, &self.time].map(|counter| counter.load(Ordering::Acquire));
        [self.begun.load(Ordering::Acquire), ended[0], ended[1], ended[2]]
    }
}

/// Adds to a counter that this thread alone writes.
fn add_one(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

impl Lane {
    /// Sleeps until `alarm` sounds, a device interrupts, or it is time to look after a controller. `stopped` is looked at
    /// once more before.
    pub(super) fn sleep(&mut self, alarm: &Alarm, sleeps: &Sleeps, stopped: impl Fn() -> bool) -> Woken {
        self.ports.iter().for_each(|port| port.bell.lie_down());
        let woken = if self.ports.iter_mut().all(Port::arm) && !stopped() && !self.turn() {
            sleeps.begin();
            self.wait_for(alarm)
        } else {
            Woken::Never
        };
        self.ports.iter().for_each(|port| port.bell.get_up());
        alarm.take();
        woken
    }

    /// Has no device interrupt any more: it is busy.
    pub(super) fn disarm(&mut self) {
        self.ports.iter_mut().for_each(Port::disarm);
    }

    fn wait_for(&self, alarm: &Alarm) -> Woken {
        let interrupts = self.ports.iter().filter_map(Port::armed_interrupt);
        let descriptors = [alarm.as_fd()].into_iter().chain(interrupts.map(AsFd::as_fd));
        let mut polled: Vec<PollFd<'_>> =
            descriptors.map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN)).collect();
        let limit = if self.is_idle() { WITHOUT } else { WITH_COMMANDS };
        let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut polled, Some(&limit)) {
            Ok(0) => Woken::Time,
            Ok(_) if polled[0].revents().is_empty() => Woken::Interrupted,
            // A signal is as good a reason to look as any.
            Ok(_) | Err(_) => Woken::Called,
        }
    }
}

impl Port {
    /// Has the device interrupt, where there is something that it could interrupt for, and from then on until the lane has
    /// become busy. Whether its lane can sleep.
    fn arm(&mut self) -> bool {
        // One that interrupts already is armed anew: what it has told of would keep the lane awake.
        if self.is_idle() && !self.is_armed {
            return true;
        }
        self.is_armed = self.interrupt.as_mut().is_some_and(|interrupt| interrupt.arm().is_ok());
        self.is_armed
    }

    /// Has it interrupt no more.
    pub(super) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed)
            && let Some(interrupt) = &mut self.interrupt
        {
            interrupt.disarm();
        }
    }
}
