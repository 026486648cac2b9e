//! What an owner does about its controller: enables it, looks after it, resets it, gives it up, and takes it again.

use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Attended, Controller, ControllerError};
use tentpeg_driver::dma::IovaRange;
use tentpeg_driver::queue::{QueuePair, ReachEnd};
use tentpeg_driver::spec::registers::{Cc, offset};

use super::Mistake;
use super::commands::End;
use super::drive::{Drive, Event, Lane};

/// How often a new controller is enabled before that is taken for a failure; half of it without faults.
const MOST_TRIES: u32 = 40;
/// Turns of a pulled drive before it is put back.
const MOST_PULLED_TURNS: u64 = 20;

impl Drive {
    /// Looks after the controller, as an owner does now and then.
    pub(super) fn attend(&mut self) -> Result<(), String> {
        let now = self.function.milliseconds();
        let Some(controller) = &mut self.controller else { return self.enable() };
        let mut tokens = Vec::new();
        let mut pairs: Vec<&mut QueuePair<u64>> = self.lanes.iter_mut().map(|lane| &mut lane.pair).collect();
        let attended = controller.attend(&mut pairs, now, |token| tokens.push(token));
        self.attended(attended, tokens)
    }

    pub(super) fn reset_without_cause(&mut self) -> Result<(), String> {
        let Some(controller) = &mut self.controller else { return self.attend() };
        self.counters.causeless += 1;
        let mut tokens = Vec::new();
        let mut pairs: Vec<&mut QueuePair<u64>> = self.lanes.iter_mut().map(|lane| &mut lane.pair).collect();
        let attended = controller.recover(&mut pairs, &mut |token| tokens.push(token), "no cause".to_owned());
        self.attended(attended, tokens)
    }

    /// The controller's reach may have ended: then no command is in flight any more.
    fn attended(&mut self, attended: Attended, tokens: Vec<u64>) -> Result<(), String> {
        for token in &tokens {
            self.end(*token, End::Interrupted)?;
            if self.mistake == Some(Mistake::EndsTwice) {
                self.end(*token, End::Interrupted)?;
            }
        }
        match attended {
            Attended::Fine if tokens.is_empty() => return Ok(()),
            Attended::Fine => return Err(format!("{} commands were interrupted, and all is fine", tokens.len())),
            Attended::Recovered { how, .. } => {
                self.note(Event::Recovered(name(how)));
                self.nothing_in_flight("a recovery")?;
                self.memory.check()?;
                self.memory.reclaim();
                self.lanes.iter_mut().for_each(|lane| lane.usable = true);
            }
            Attended::Removed { how, .. } => {
                self.note(Event::Removed(name(how)));
                self.counters.removed += 1;
                self.nothing_in_flight("a removal")?;
                self.memory.check()?;
                // The drive may go on, with its queues still there.
                self.go_on()?;
                self.drop_lanes();
                self.drop_controller();
                self.put_back()?;
                self.enable()?;
            }
        }
        Ok(())
    }

    fn nothing_in_flight(&self, after: &str) -> Result<(), String> {
        match self.flying.keys().next() {
            None => Ok(()),
            Some(token) => Err(format!("command {token} is in flight after {after}: {} are", self.flying.len())),
        }
    }

    /// A pulled drive goes on for a while, its memory in other hands.
    fn go_on(&mut self) -> Result<(), String> {
        let turns = self.dice.below(MOST_PULLED_TURNS);
        self.turns(turns);
        self.memory.check()
    }

    /// A pulled drive is put back after a while.
    fn put_back(&mut self) -> Result<(), String> {
        self.go_on()?;
        self.faults.put_back();
        self.counters.put_back += 1;
        self.note(Event::PutBack);
        Ok(())
    }

    /// Enables a new controller, with queue pairs; where that fails the drive is put in anew.
    pub(super) fn enable(&mut self) -> Result<(), String> {
        for attempt in 0..MOST_TRIES {
            if attempt > 0 {
                self.counters.enables_failed += 1;
                self.note(Event::NotEnabled);
                self.put_back()?;
            }
            if attempt == MOST_TRIES / 2 {
                self.faults.clear();
            }
            if self.try_enable()? {
                self.note(Event::Enabled);
                return Ok(());
            }
        }
        Err(format!("the controller could not be enabled in {MOST_TRIES} tries"))
    }

    /// Enables a new controller, checks that it is the one that it was, and creates queue pairs.
    fn try_enable(&mut self) -> Result<bool, String> {
        self.pass();
        let function: Arc<dyn Function> = self.function.clone();
        let mut controller = match Controller::enable(function, self.shape.controller.clone()) {
            Ok(controller) => controller,
            Err(error) => {
                self.left_disabled(&error)?;
                return Ok(false);
            }
        };
        self.counters.enables += 1;
        self.memory.reclaim();
        // An owner knows its drive: identify data can be garbage.
        let serial = controller.identify().sn;
        let known = serial.trim_ascii_end() == self.shape.model.serial.as_bytes();
        let found = controller.namespaces().ok().and_then(|namespaces| match &namespaces[..] {
            [namespace] if namespace.nsid == 1 => namespace.limits.ok(),
            _ => None,
        });
        let found = found.map(|limits| (*controller.limits(), limits));
        self.controller = Some(controller);
        if self.limits.is_none() {
            self.limits = found;
        }
        if known && found.is_some() && found == self.limits {
            for _ in 0..self.shape.pairs {
                self.create_lane()?;
            }
        }
        if self.lanes.is_empty() {
            self.drop_controller();
            return Ok(false);
        }
        Ok(true)
    }

    /// A controller that could not be enabled is disabled, where it answers.
    fn left_disabled(&self, error: &ControllerError) -> Result<(), String> {
        let cc = self.function.read_u32(offset::CC);
        if cc != u32::MAX && Cc::from_bits(cc).en() {
            return Err(format!("after {error}: CC.EN is still 1 ({cc:#010x})"));
        }
        Ok(())
    }

    /// Creates or deletes a queue pair.
    pub(super) fn change_lanes(&mut self) -> Result<(), String> {
        if self.lanes.is_empty() || self.lanes.len() < self.shape.pairs && self.dice.percent(50) {
            self.create_lane()?;
            return if self.lanes.is_empty() { self.reset_without_cause() } else { Ok(()) };
        }
        self.delete_lane()
    }

    fn create_lane(&mut self) -> Result<(), String> {
        let Some(controller) = &mut self.controller else { return self.attend() };
        let entries = self.shape.entries.min(controller.limits().max_queue_entries);
        match controller.create_queue_pair(entries) {
            Ok(pair) => {
                self.memory.fresh(range_of(&pair))?;
                self.note(Event::Created(pair.qid()));
                self.counters.pairs_created += 1;
                self.lanes.push(Lane { pair, usable: true });
            }
            Err(ControllerError::NoQueueLeft { .. }) => {}
            Err(_) => {
                self.note(Event::NotCreated);
                self.counters.pairs_failed += 1;
            }
        }
        Ok(())
    }

    fn delete_lane(&mut self) -> Result<(), String> {
        let place = self.dice.index(self.lanes.len());
        let lane = &mut self.lanes[place];
        let Some(controller) = self.controller.as_mut().filter(|_| lane.usable) else { return self.attend() };
        let qid = lane.pair.qid();
        if controller.delete_queue_pair(&mut lane.pair).is_err() {
            // What of it is left is not known. Its memory is kept until the controller has been reset.
            lane.usable = false;
            self.note(Event::NotDeleted(qid));
            self.counters.pairs_failed += 1;
            return self.reset_without_cause();
        }
        let lane = self.lanes.swap_remove(place);
        self.counters.add_anomalies(lane.pair.anomalies());
        self.counters.pairs_deleted += 1;
        self.note(Event::Deleted(qid));
        drop(lane);
        self.give_up(|of| of == qid)
    }

    /// Shuts the controller down or just drops it, with commands in flight, and enables a new one.
    pub(super) fn begin_anew(&mut self) -> Result<(), String> {
        self.keep_counts();
        let Some(controller) = self.controller.take() else { return self.attend() };
        self.counters.shutdowns += 1;
        if self.dice.percent(50) {
            let outcome = controller.shutdown();
            self.note(Event::ShutDown(outcome.is_ok()));
        } else {
            drop(controller);
            self.note(Event::Dropped);
        }
        self.drop_lanes();
        self.give_up(|_| true)?;
        self.memory.check()?;
        self.enable()
    }

    /// Commands of queues that are gone end without a completion.
    fn give_up(&mut self, of: impl Fn(u16) -> bool) -> Result<(), String> {
        let tokens: Vec<u64> =
            self.flying.iter().filter(|(_, command)| of(command.qid)).map(|(token, _)| *token).collect();
        tokens.into_iter().try_for_each(|token| self.end(token, End::GivenUp))
    }

    pub(super) fn drop_lanes(&mut self) {
        for lane in std::mem::take(&mut self.lanes) {
            self.counters.add_anomalies(lane.pair.anomalies());
            self.memory.retire(range_of(&lane.pair));
        }
    }

    pub(super) fn drop_controller(&mut self) {
        self.keep_counts();
        self.controller = None;
    }

    fn keep_counts(&mut self) {
        if let Some(controller) = &self.controller {
            let counters = controller.recovery_counters();
            self.former_aborts += counters.aborts;
            self.counters.add_recovery(counters);
        }
    }
}

/// The IOVAs of a pair's submission queue.
fn range_of(pair: &QueuePair<u64>) -> IovaRange {
    let start = pair.submission_queue();
    let len = pair.completion_queue().get() - start.get();
    IovaRange::new(start, len).unwrap_or_else(|| unreachable!("the completion queue lies behind the submission queue"))
}

fn name(how: ReachEnd) -> &'static str {
    match how {
        ReachEnd::NotReady => "RDY = 0",
        ReachEnd::FunctionReset => "a Function Level Reset",
        ReachEnd::BusMasteringOff => "bus mastering off",
        ReachEnd::CutOff => "a cut",
    }
}
