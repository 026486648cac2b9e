//! Recovery: what is done about a controller that does not answer, each step with a deadline.
//!
//! [`Controller::attend`] is called by the owner of the admin queue, now and then, with its queue pairs. Commands that
//! are overdue are aborted first, one by one. Where that does not help, or the controller reports a fatal status or is
//! gone, it is stopped: by the mildest step that works, until its *reach* of memory has ended (invariant 2). Then, and
//! only then, commands in flight are given back to the owner as interrupted, each once; the controller is enabled anew
//! and the same queue pairs are made known to it. A controller that cannot be brought back is removed: its reach has
//! ended too, for good.
//!
//! What to do with an interrupted command, to retry it or to fail it, is the owner's to decide: every command of the
//! NVM command set that this driver issues can be issued again.

use std::time::Duration;

use super::namespace::{self, Learned};
use super::quirks::QuirkFlags;
use super::{Controller, ControllerError, enable};
use crate::queue::{QueuePair, ReachEnd, ReachEnded};
use crate::spec::ZeroesBased;
use crate::spec::command::{QueuePriority, Sqe};
use crate::spec::registers::{Csts, offset};

/// When recovery begins, and how often its steps are tried.
#[derive(Debug, Clone)]
pub struct RecoveryConfig {
    /// How long a command may take before its abort is asked for.
    pub command_timeout: Duration,
    /// How long a command may take from then on before the controller is stopped.
    pub abort_timeout: Duration,
    /// How often the registers are looked at for a fatal status, or for nobody behind them.
    pub health_interval: Duration,
    /// How often a controller is enabled anew before it is given up.
    pub restarts: u32,
}

impl Default for RecoveryConfig {
    fn default() -> Self {
        Self {
            command_timeout: Duration::from_secs(30),
            abort_timeout: Duration::from_secs(5),
            health_interval: Duration::from_millis(100),
            restarts: 3,
        }
    }
}

/// How often each step was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryCounters {
    /// Aborts that the controller was asked for.
    pub aborts: u64,
    /// Aborts after which the controller said that it has aborted the command.
    pub aborted: u64,
    /// Controller resets that ended its reach.
    pub resets: u64,
    /// Function Level Resets that ended its reach, after a controller reset had not.
    pub function_resets: u64,
    /// How often bus mastering was switched off to end its reach, after both resets had not.
    pub bus_mastering_off: u64,
    /// How often it was cut off: it was gone, or nothing else had worked.
    pub cut_off: u64,
    /// How often it was enabled anew.
    pub restarts: u64,
    /// Commands that were interrupted.
    pub interrupted: u64,
}

/// What [`Controller::attend`] has done.
#[derive(Debug)]
pub enum Attended {
    /// Nothing that the owner of the pairs must know of.
    Fine,
    /// The controller was stopped and enabled anew; its pairs are empty and work again.
    Recovered {
        /// What ended its former life.
        how: ReachEnd,
        /// Why it was stopped.
        reason: String,
    },
    /// The controller is given up. Its pairs are empty; what is submitted all the same is given back the next time.
    Removed {
        /// What ended its reach.
        how: ReachEnd,
        /// Why it could not be brought back.
        reason: String,
    },
}

/// What a controller's recovery keeps in mind.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    pub(super) counters: RecoveryCounters,
    /// When the registers were last looked at, by the owner's clock, which may have begun anywhere.
    last_health: Option<u32>,
    /// What ended its reach, when it has been given up.
    pub(super) removed: Option<ReachEnd>,
}

impl Controller {
    /// How often each step of recovery was taken.
    pub fn recovery_counters(&self) -> RecoveryCounters {
        self.recovery.counters
    }

    /// What ended the controller's reach, when it has been given up.
    pub fn removed(&self) -> Option<ReachEnd> {
        self.recovery.removed
    }

    /// Looks after the controller: asks for the abort of commands of `pairs` that are overdue, and recovers where that
    /// did not help or the registers say that it must. `now` is in milliseconds and may wrap; it is the clock of the
    /// pairs too. Tokens of commands that ended without a completion are given to `interrupted`.
    ///
    /// It costs nothing but a scan of the slots when all is well; when it is not it may take as long as the deadlines
    /// of its steps.
    pub fn attend<T: Copy + Default>(
        &mut self,
        pairs: &mut [&mut QueuePair<T>],
        now: u32,
        mut interrupted: impl FnMut(T),
    ) -> Attended {
        if let Some(how) = self.recovery.removed {
            // For ever: what is in its pairs goes nowhere, whoever stopped it, and whenever it was submitted.
            return match self.give_back(pairs, &ReachEnded::by(how), &mut interrupted) {
                0 => Attended::Fine,
                _ => Attended::Removed { how, reason: "the controller had been given up before".to_owned() },
            };
        }
        for pair in &mut *pairs {
            pair.set_now(now);
        }
        match self.must_stop(pairs, now) {
            None => Attended::Fine,
            Some(reason) => self.recover(pairs, &mut interrupted, reason),
        }
    }

    /// Stops the controller, interrupts what is in flight, and enables it anew.
    pub fn recover<T: Copy + Default>(
        &mut self,
        pairs: &mut [&mut QueuePair<T>],
        interrupted: &mut impl FnMut(T),
        reason: String,
    ) -> Attended {
        let asked_back = self.function.removal_requested();
        if asked_back && self.stopped.is_none() {
            // What its caches hold is written while it still answers; where it does not, nothing can be done.
            let _ = self.say_shutdown();
        }
        let mut ended = self.stop_reach();
        let first = ended.how();
        self.give_back(pairs, &ended, interrupted);
        if asked_back {
            // Who asked for it waits until nobody has it.
            self.function.cut_off();
            self.recovery.removed = Some(first);
        }
        let mut last = reason.clone();
        for _ in 0..self.config.recovery.restarts {
            if self.recovery.removed.is_some() {
                break;
            }
            match self.restart(pairs) {
                Ok(()) => return Attended::Recovered { how: first, reason },
                Err(error) => last = format!("{reason}; enabling it anew: {error}"),
            }
            ended = self.stop_reach();
        }
        if self.recovery.removed.is_none() {
            self.recovery.removed = Some(ended.how());
        }
        Attended::Removed { how: ended.how(), reason: last }
    }

    /// Gives back what is in flight. How many commands that were.
    fn give_back<T: Copy + Default>(
        &mut self,
        pairs: &mut [&mut QueuePair<T>],
        ended: &ReachEnded,
        interrupted: &mut impl FnMut(T),
    ) -> u64 {
        let mut count = 0;
        for pair in pairs {
            pair.interrupt(ended, |token| {
                count += 1;
                interrupted(token);
            });
        }
        self.recovery.counters.interrupted += count;
        count
    }

    /// Ends the controller's reach of memory, by the mildest step that works. It always ends: the last step needs
    /// nothing from the device.
    pub fn stop_reach(&mut self) -> ReachEnded {
        // First of all: from here on no lane can ring while EN or RDY is 0.
        self.function.revoke_doorbells();
        let how = self.mildest_stop();
        self.stopped = Some(how);
        let counters = &mut self.recovery.counters;
        match how {
            ReachEnd::NotReady => counters.resets += 1,
            ReachEnd::FunctionReset => counters.function_resets += 1,
            ReachEnd::BusMasteringOff => counters.bus_mastering_off += 1,
            ReachEnd::CutOff => counters.cut_off += 1,
        }
        if matches!(how, ReachEnd::BusMasteringOff | ReachEnd::CutOff) {
            self.recovery.removed = Some(how);
        }
        ReachEnded::by(how)
    }

    fn mildest_stop(&mut self) -> ReachEnd {
        let function = &*self.function;
        match enable::disable(function, self.cap, &self.config) {
            // RDY = 0 is the device's word. A broken one can go on all the same, so it is kept off the bus as well until
            // it is enabled anew.
            Ok(()) if function.disable_bus_mastering().is_ok() => return ReachEnd::NotReady,
            Ok(()) | Err(ControllerError::Gone { .. }) => {}
            Err(_) => {
                let reset = function.reset().is_ok();
                if reset && enable::is_reset(function, self.cap) && function.disable_bus_mastering().is_ok() {
                    return ReachEnd::FunctionReset;
                }
                if enable::still_there(function, self.cap, 0).is_ok() && function.disable_bus_mastering().is_ok() {
                    return ReachEnd::BusMasteringOff;
                }
            }
        }
        function.cut_off();
        ReachEnd::CutOff
    }

    /// Enables the controller anew and makes `pairs` known to it.
    fn restart<T: Copy + Default>(&mut self, pairs: &mut [&mut QueuePair<T>]) -> Result<(), ControllerError> {
        let started = enable::enable(&self.function, &self.config)?;
        self.stopped = None;
        self.cc = started.cc;
        self.keep_event_counters();
        self.admin = started.admin;
        let Learned { identify, limits, .. } =
            namespace::learn(&mut self.admin, started.cap, started.cc, &self.config)?;
        // Pairs, plans and the owner's limits are of the former life: they must hold for this one.
        if started.cap != self.cap || identify.sn != self.identify.sn || limits != self.limits {
            return Err(ControllerError::Changed);
        }
        self.identify = identify;
        self.granted = self.ask_for_queues()?;
        self.in_use = vec![false; self.granted.into()];
        self.cast_shadows()?;
        self.renew_memory_buffer()?;
        for pair in pairs {
            self.renew_queue_pair(pair)?;
        }
        self.listen()?;
        self.recovery.counters.restarts += 1;
        Ok(())
    }

    /// Creates the queues of a pair of the controller's former life, under the same identifier.
    fn renew_queue_pair<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> Result<(), ControllerError> {
        let qid = pair.qid();
        let place = usize::from(qid).wrapping_sub(1);
        if place >= self.in_use.len() {
            return Err(ControllerError::NoQueueLeft { granted: self.granted });
        }
        pair.renew(&self.function, self.cap)?;
        self.create_queues(pair)?;
        self.in_use[place] = true;
        Ok(())
    }

    /// Makes the two queues of `pair` known to the controller.
    pub(super) fn create_queues<T: Copy + Default>(&mut self, pair: &mut QueuePair<T>) -> Result<(), ControllerError> {
        let qid = pair.qid();
        let none = ControllerError::NoQueueLeft { granted: self.granted };
        if let Some(buffers) = &self.doorbell_buffers {
            pair.cast_shadows(buffers);
        }
        let qsize = ZeroesBased::<u16>::from_count(pair.entries().into()).ok_or(none)?;
        let completion_queue = pair.completion_queue().get();
        self.admin.execute(Sqe::create_io_completion_queue(qid, qsize, completion_queue, pair.vector()))?;
        let submission_queue = pair.submission_queue().get();
        let medium = self.quirks.has(QuirkFlags::MEDIUM_PRIORITY);
        let priority = if medium { QueuePriority::MEDIUM } else { QueuePriority::URGENT };
        let create = Sqe::create_io_submission_queue(qid, qsize, submission_queue, qid, priority);
        if let Err(error) = self.admin.execute(create) {
            // The first error is the one to report; an undeleted queue keeps its identifier.
            if let Some(used) = self.in_use.get_mut(usize::from(qid).wrapping_sub(1)) {
                *used = self.admin.execute(Sqe::delete_io_completion_queue(qid)).is_err();
            }
            return Err(error);
        }
        Ok(())
    }

    /// Why the controller must be stopped, if it must. Asks for aborts on the way.
    fn must_stop<T: Copy + Default>(&mut self, pairs: &mut [&mut QueuePair<T>], now: u32) -> Option<String> {
        if self.admin.is_lost() {
            return Some("an admin command had no completion, and the admin queue is of no use since".to_owned());
        }
        let abort_limit = milliseconds(self.config.recovery.abort_timeout);
        for pair in &*pairs {
            if let Some(cid) = pair.past_abort(abort_limit) {
                return Some(format!("command {cid:#06x} of queue {} did not end after its abort", pair.qid()));
            }
        }
        let command_limit = milliseconds(self.config.recovery.command_timeout);
        // Aborts are waited for one by one, and nobody takes completions meanwhile. Those that are not asked for in time
        // are the next look's, which first sees whether the others have helped.
        let begun = self.function.now();
        'aborts: for pair in &mut *pairs {
            while let Some(cid) = pair.overdue(command_limit) {
                if self.function.now().saturating_duration_since(begun) >= self.config.recovery.abort_timeout {
                    break 'aborts;
                }
                self.recovery.counters.aborts += 1;
                match self.admin.execute(Sqe::abort(pair.qid(), cid)) {
                    // Bit 0 of the result is 0 where the command was aborted (Base 2.1, 5.1.1).
                    Ok(completion) => self.recovery.counters.aborted += u64::from(completion.dw0 & 1 == 0),
                    // Its limit is reached, or it has no such command: the deadline after it will tell.
                    Err(ControllerError::Command { .. }) => {}
                    Err(error) => {
                        return Some(format!("the abort of command {cid:#06x} of queue {}: {error}", pair.qid()));
                    }
                }
                pair.note_abort(cid);
            }
        }
        let interval = milliseconds(self.config.recovery.health_interval);
        if self.recovery.last_health.is_some_and(|last| now.wrapping_sub(last) < interval) {
            return None;
        }
        self.recovery.last_health = Some(now);
        self.ill()
    }

    /// What the registers say against the controller.
    fn ill(&self) -> Option<String> {
        let csts = self.function.read_u32(offset::CSTS);
        let status = Csts::from_bits(csts);
        if let Err(gone) = enable::still_there(&*self.function, self.cap, csts) {
            return Some(gone.to_string());
        }
        if status.cfs() {
            return Some(format!("CSTS.CFS is set ({csts:#010x})"));
        }
        if !status.rdy() {
            return Some(format!("CSTS.RDY is 0 without our doing ({csts:#010x})"));
        }
        if self.function.removal_requested() {
            return Some("the function is wanted back, to be unplugged or unbound".to_owned());
        }
        self.function.error_reported().then(|| "the bus reports an error that cannot be corrected (AER)".to_owned())
    }
}

/// A time in ticks of a millisecond, less than half of what wraps.
fn milliseconds(time: Duration) -> u32 {
    time.as_millis().min(1 << 30) as u32
}

#[cfg(test)]
mod tests;
