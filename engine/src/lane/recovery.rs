//! How a port looks after its controller.
//!
//! The port owns what a controller thread would: deadlines and recovery. Now and then it has the driver attend to the
//! controller. What was interrupted is asked for again a few times, and fails after that; so are writes that had
//! succeeded and waited for a Flush, as a reset may have emptied the cache they were in. Where the controller is given
//! up, every task of the port fails, and so does every later one; other ports go on. So they do, with Reservation Conflict
//! as their status, when another host has taken the device over: after a reset the reservation is claimed again before any
//! I/O, and a command that ends in a conflict is the last that the port issues.

use std::sync::{Arc, OnceLock, TryLockError};

use tentpeg_driver::controller::{Attended, ControllerError};
use tentpeg_driver::queue::{QueuePair, ReachEnded};
use tentpeg_driver::spec::status::{Status, StatusCode};

use super::CommandTasks;
use super::ends::{again, end_part, give_up_inbox};
use super::port::Port;
use crate::clock::Clock;
use crate::device::{Held, SharedDevice, lock};
use crate::ownership::{NewOwner, TakenOver};
use crate::task::Outcome;

/// Busy turns between two looks at the clock.
const TURNS: u32 = 256;
/// Milliseconds between two looks at the controller.
const INTERVAL: u32 = 10;

/// How often a controller is recovered that fails again when it is asked for its namespace.
const TRIES: u32 = 3;

/// Whether a port may issue commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It may.
    On,
    /// A command has ended with Reservation Conflict: no more is issued, and what is in flight is waited for.
    Conflict,
    /// Another host has the device.
    TakenOver,
    /// The controller has been given up.
    Removed,
}

/// When the port looks next, and whom it looks after.
pub(super) struct Watch {
    device: SharedDevice,
    clock: Clock,
    turns: u32,
    /// When it last looked at the controller.
    last: Option<u32>,
    state: State,
    /// What the device is called, and who has taken it over, for the engine to tell.
    name: String,
    taken_over: Arc<OnceLock<TakenOver>>,
}

impl Watch {
    pub(super) fn new(device: SharedDevice, clock: Clock, name: String, taken_over: Arc<OnceLock<TakenOver>>) -> Self {
        Self { device, clock, turns: 0, last: None, state: State::On, name, taken_over }
    }

    /// Whether it is time to look at the clock: after some busy turns, or after any other.
    #[inline]
    pub(super) fn is_due(&mut self, busy: bool) -> bool {
        self.turns = self.turns.wrapping_add(1);
        !busy || self.turns.is_multiple_of(TURNS)
    }

    /// Whether commands may be issued.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.state == State::On
    }

    /// Whether no command will ever be issued again, and none is in flight.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, State::TakenOver | State::Removed)
    }

    /// How tasks end that are given up.
    pub(super) fn outcome(&self) -> Outcome {
        match self.state {
            State::On | State::Removed => Outcome::LOST,
            State::Conflict | State::TakenOver => StatusCode::RESERVATION_CONFLICT.status().into(),
        }
    }

    /// Whether a command has failed because another host has the device: then it is not asked for again, and nothing else
    /// is.
    #[cold]
    pub(super) fn sees_conflict(&mut self, status: Status) -> bool {
        let conflict = status.code() == StatusCode::RESERVATION_CONFLICT;
        if conflict && self.state == State::On {
            self.state = State::Conflict;
        }
        conflict
    }

    /// Its device's clock.
    #[inline]
    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What its device is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn taken_over_by(&mut self, by: NewOwner) {
        tracing::error!(device = self.name, by = %by, "another host has taken the device over");
        self.state = State::TakenOver;
        // It is told once: nothing is issued after that.
        let _ = self.taken_over.set(TakenOver { device: self.name.clone(), by });
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
        let seen = match &mut *device {
            Some(device) => attend(device, &mut self.pair, now, |token| interrupted.push(token)),
            None => return,
        };
        drop(device);
        // Where there is nobody to ask again, memory is out of the device's reach, and each task can be told.
        match seen {
            Seen::Attended(Attended::Fine) => {}
            Seen::Attended(Attended::Recovered { how, reason }) => {
                let commands = interrupted.len();
                tracing::warn!(device = self.watch.name, %how, reason, commands, "the controller was reset");
                self.recovered(interrupted);
            }
            Seen::Attended(Attended::Removed { how, reason }) => {
                tracing::error!(device = self.watch.name, %how, reason, "the controller is given up");
                self.watch.state = State::Removed;
                self.abandon();
            }
            Seen::TakenOver(by) => {
                self.watch.taken_over_by(by);
                self.abandon();
            }
        }
    }

    /// A turn after a command has ended with Reservation Conflict: takes in what ends as the others do, waits for what is
    /// in flight, and asks then who has the device.
    #[cold]
    pub(super) fn turn_in_conflict(&mut self) -> bool {
        self.recorder.begin_turn();
        let busy = self.take_in() | (self.complete() > 0);
        self.publish_counters();
        if self.pair.free_slots() < self.pair.slots() {
            self.look_after_controller();
            return busy;
        }
        let by = match &mut *lock(&self.watch.device) {
            Some(device) => device.lose(&mut self.pair),
            None => return busy,
        };
        self.watch.taken_over_by(by);
        self.abandon();
        true
    }

    /// The controller is a new one: these commands of the former one have no completion, and its cache may be lost.
    fn recovered(&mut self, interrupted: Vec<CommandTasks>) {
        self.recorder.reset();
        // What a reset has left of its interrupts nobody knows.
        self.disarm();
        self.flush_for_interrupted();
        let waited = self.durable.interrupted();
        for token in interrupted.into_iter().chain(waited) {
            if !token.flags.is_empty() {
                self.special_ended(token, None);
                continue;
            }
            let Self { active, alone, ground, recorder, .. } = self;
            let Some(Some(entry)) = active.get_mut(token.place as usize) else { continue };
            entry.in_flight -= 1;
            if !again(&mut entry.in_flight, token, None, alone, recorder) {
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

/// What a look at the controller has shown.
enum Seen {
    Attended(Attended),
    /// It has been enabled anew, and another host has the namespace.
    TakenOver(NewOwner),
}

/// Attends to the controller. One that has been enabled anew must have the namespace still that it had, and this host must
/// still have it: before anything is issued to it again.
fn attend(
    device: &mut Held,
    pair: &mut QueuePair<CommandTasks>,
    now: u32,
    mut interrupted: impl FnMut(CommandTasks),
) -> Seen {
    let mut attended = device.controller.attend(&mut [&mut *pair], now, &mut interrupted);
    for _ in 0..TRIES {
        let Attended::Recovered { .. } = attended else { return Seen::Attended(attended) };
        let reason = match has_its_namespace(device) {
            Ok(true) => match device.reclaim(pair) {
                Ok(None) => return Seen::Attended(attended),
                Ok(Some(by)) => return Seen::TakenOver(by),
                Err(error) => error.to_string(),
            },
            Ok(false) => break,
            Err(error) => error.to_string(),
        };
        attended = device.controller.recover(&mut [&mut *pair], &mut interrupted, reason);
    }
    let ended = device.controller.stop_reach();
    pair.interrupt(&ended, interrupted);
    Seen::Attended(Attended::Removed {
        how: ended.how(),
        reason: "after its reset it does not have the namespace that it had".to_owned(),
    })
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
    /// takes the controller with it where it has work: its tasks may end only when no device touches their memory (invariant
    /// 7). What is submitted to it later is given up by whoever submits it.
    fn drop(&mut self) {
        self.take_in();
        if !self.is_idle() {
            self.end_all();
        }
        self.bell.leave();
        give_up_inbox(&self.inbox, self.ground.lane, &self.bell);
        // Last: who is answered by this takes all tasks to have ended.
        self.inquiries.close();
    }
}

impl Port {
    /// Ends everything, with the reach of the controller.
    fn end_all(&mut self) {
        let outcome = if self.closing.is_open() { Outcome::NO_LANE } else { self.watch.outcome() };
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
        self.abandon_as(outcome);
    }
}

#[cfg(test)]
mod tests;
