//! How a port looks after its controller.
//!
//! The port owns what a controller thread would: deadlines and recovery. Now and then it has the driver attend to the
//! controller. What was interrupted is asked for again a few times, and fails after that; so are writes that had
//! succeeded and waited for a Flush, as a reset may have emptied the cache they were in. Where the controller is given
//! up, every task of the port fails, and so does every later one; other ports go on.

use std::sync::TryLockError;

use tentpeg_driver::controller::{Attended, ControllerError};
use tentpeg_driver::queue::{QueuePair, ReachEnded};
use tentpeg_driver::spec::status::StatusCode;

use super::CommandTasks;
use super::ends::{again, end_part};
use super::port::Port;
use crate::clock::Clock;
use crate::device::{Held, SharedDevice, lock};

/// Busy turns between two looks at the clock.
const TURNS: u32 = 256;
/// Milliseconds between two looks at the controller.
const INTERVAL: u32 = 10;

/// How often a controller is recovered that fails again when it is asked for its namespace.
const TRIES: u32 = 3;

/// When the port looks next, and whom it looks after.
pub(super) struct Watch {
    device: SharedDevice,
    clock: Clock,
    turns: u32,
    /// When it last looked at the controller.
    last: Option<u32>,
    /// The controller has been given up.
    removed: bool,
}

impl Watch {
    pub(super) fn new(device: SharedDevice, clock: Clock) -> Self {
        Self { device, clock, turns: 0, last: None, removed: false }
    }

    /// Whether it is time to look at the clock: after some busy turns, or after any other.
    #[inline]
    pub(super) fn is_due(&mut self, busy: bool) -> bool {
        self.turns = self.turns.wrapping_add(1);
        !busy || self.turns.is_multiple_of(TURNS)
    }

    /// Whether the controller has been given up.
    #[inline]
    pub(super) fn is_removed(&self) -> bool {
        self.removed
    }
}

impl Port {
    /// Has the driver attend to the controller, when it is time, and deals with what that has interrupted.
    #[cold]
    pub(super) fn look_after_controller(&mut self) {
        let now = self.watch.clock.milliseconds();
        self.pair.set_now(now);
        // The clock wraps after seven weeks, in which a port may not have been turned.
        if self.watch.last.is_some_and(|last| now.wrapping_sub(last) < INTERVAL) {
            return;
        }
        let mut interrupted: Vec<CommandTasks> = Vec::new();
        // Who has the controller may wait for an admin command, which has a deadline of its own; I/O goes on meanwhile.
        let mut device = match self.watch.device.try_lock() {
            Ok(device) => device,
            Err(TryLockError::Poisoned(device)) => device.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.watch.last = Some(now);
        let attended = match &mut *device {
            Some(device) => attend(device, &mut self.pair, now, |token| interrupted.push(token)),
            None => return,
        };
        drop(device);
        match attended {
            Attended::Fine => {}
            Attended::Recovered { .. } => self.recovered(interrupted),
            Attended::Removed { .. } => {
                self.watch.removed = true;
                // Their memory is out of the device's reach: each can be told, and there is nobody to ask again.
                self.abandon();
            }
        }
    }

    /// The controller is a new one: these commands of the former one have no completion, and its cache may be lost.
    fn recovered(&mut self, interrupted: Vec<CommandTasks>) {
        let waited = self.durable.interrupted();
        for token in interrupted.into_iter().chain(waited) {
            if !token.flags.is_empty() {
                self.special_ended(token, None);
                continue;
            }
            let Self { active, alone, ground, .. } = self;
            let Some(Some(entry)) = active.get_mut(token.place as usize) else { continue };
            entry.in_flight -= 1;
            if !again(&mut entry.in_flight, token, None, alone) {
                for index in token.indices() {
                    end_part(&entry.batch, ground.lane, index, StatusCode::COMMAND_ABORTED_BY_HOST.status().into());
                }
            }
            self.leave_if_done(token.place);
        }
    }

    /// Ends every task that has not ended as FAILED, those in flight by the proof that they may be.
    pub(crate) fn abandon_after(&mut self, ended: &ReachEnded) {
        self.pair.interrupt(ended, |_| ());
        self.abandon();
    }
}

/// Attends to the controller. One that has been enabled anew must have the namespace still that it had: before anything
/// is issued to it again.
fn attend(
    device: &mut Held,
    pair: &mut QueuePair<CommandTasks>,
    now: u32,
    mut interrupted: impl FnMut(CommandTasks),
) -> Attended {
    let mut attended = device.controller.attend(&mut [&mut *pair], now, &mut interrupted);
    for _ in 0..TRIES {
        let Attended::Recovered { .. } = attended else { return attended };
        match has_its_namespace(device) {
            Ok(true) => return attended,
            Ok(false) => break,
            Err(error) => {
                attended = device.controller.recover(&mut [&mut *pair], &mut interrupted, error.to_string());
            }
        }
    }
    let ended = device.controller.stop_reach();
    pair.interrupt(&ended, interrupted);
    Attended::Removed {
        how: ended.how(),
        reason: "after its reset it does not have the namespace that it had".to_owned(),
    }
}

/// Whether the controller has the namespace that plans are made for: with the identifiers that it had, and all the
/// blocks, in the same format. A namespace may have grown.
fn has_its_namespace(device: &mut Held) -> Result<bool, ControllerError> {
    let was = &device.namespace.identify;
    let Ok(limits) = device.namespace.limits else { return Ok(false) };
    let Some(now) = device.controller.rescan(device.namespace.nsid)? else { return Ok(false) };
    let Ok(found) = now.limits else { return Ok(false) };
    let same_format = found.lba_size() == limits.lba_size() && found.metadata() == limits.metadata();
    let enough = found.nsze() >= limits.nsze() && found.max_blocks() >= limits.max_blocks();
    Ok(same_format && enough && (now.identify.nguid, now.identify.eui64) == (was.nguid, was.eui64))
}

impl Drop for Port {
    /// A port that was given back has nothing left. One that was not, a caller's or that of a thread that panicked,
    /// takes the controller with it: its tasks may end only when no device touches their memory (invariant 7).
    fn drop(&mut self) {
        self.take_in();
        if self.is_idle() {
            return self.inquiries.close();
        }
        match &mut *lock(&self.watch.device) {
            Some(device) => {
                let ended = device.controller.stop_reach();
                self.pair.interrupt(&ended, |_| ());
            }
            // The engine closes without this port: within the deadlines of its controller that comes to an end.
            None => {
                while !self.closing.is_finished() {
                    std::thread::yield_now();
                }
            }
        }
        self.abandon();
        self.inquiries.close();
    }
}

#[cfg(test)]
mod tests;
