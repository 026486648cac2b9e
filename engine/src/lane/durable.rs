//! What a port knows of a volatile write cache.
//!
//! Writes that have to be durable wait here for a Flush that is submitted after their completion; one at a time is in
//! flight, and serves all that waited when it was issued. A reset, or a loss of power behind it, may have taken what was
//! in the cache: so writes that wait are then asked for *themselves* again, as their memory is still theirs. Writes that
//! were COMPLETED without waiting cannot be: their segment has lost something, and its next Flush says so by failing.

use std::mem;

use super::CommandTasks;

/// A port's writes that are in a volatile cache, or may be.
#[derive(Debug, Default)]
pub(super) struct Durable {
    /// Commands that have succeeded and wait for a Flush.
    waiting: Vec<CommandTasks>,
    /// Those that the Flush in flight serves.
    served: Vec<CommandTasks>,
    in_flight: bool,
    /// How often that Flush has been issued before.
    attempts: u8,
    /// Counts writes that have gone into the cache.
    moment: u64,
    /// Everything up to that moment is durable, or was given up as lost.
    settled: u64,
    /// By segment: the moment of its last write, and whether it has lost any.
    segments: Box<[(u64, bool)]>,
}

impl Durable {
    pub(super) fn new(segments: usize) -> Self {
        Self { segments: vec![(0, false); segments].into(), ..Self::default() }
    }

    /// A write of `segment` that waits for nothing has succeeded.
    pub(super) fn wrote(&mut self, segment: usize) {
        self.moment += 1;
        if let Some((last, _)) = self.segments.get_mut(segment) {
            *last = self.moment;
        }
    }

    /// A command that has succeeded has to wait for a Flush.
    pub(super) fn wait(&mut self, command: CommandTasks) {
        self.waiting.push(command);
    }

    /// The moment that a Flush which is issued now covers.
    pub(super) fn moment(&self) -> u64 {
        self.moment
    }

    /// A Flush that was issued at `moment` has succeeded.
    pub(super) fn flushed(&mut self, moment: u64) {
        self.settled = self.settled.max(moment);
    }

    /// Whether a Flush of the port's own is to be issued: some wait, and none is in flight.
    pub(super) fn wants_flush(&self) -> bool {
        !(self.in_flight || self.waiting.is_empty() && self.served.is_empty())
    }

    /// A Flush of the port's own was issued, and serves all that wait. How often it was before, for the same.
    pub(super) fn flush_issued(&mut self) -> u8 {
        self.in_flight = true;
        if self.served.is_empty() {
            self.attempts = 0;
            mem::swap(&mut self.served, &mut self.waiting);
        }
        self.attempts
    }

    /// The Flush of the port's own has failed, and is to be issued again.
    pub(super) fn flush_again(&mut self) {
        self.in_flight = false;
        self.attempts = self.attempts.saturating_add(1);
    }

    /// The Flush of the port's own has ended for good: whom it served.
    pub(super) fn flush_ended(&mut self) -> Vec<CommandTasks> {
        self.in_flight = false;
        mem::take(&mut self.served)
    }

    /// The controller was reset: what was in its cache may be gone. The commands that waited, to be issued again.
    pub(super) fn interrupted(&mut self) -> Vec<CommandTasks> {
        for (last, lost) in &mut self.segments {
            *lost |= *last > self.settled;
        }
        self.settled = self.moment;
        self.in_flight = false;
        let mut waited = mem::take(&mut self.served);
        waited.append(&mut self.waiting);
        waited
    }

    /// Whether `segment` has lost writes since this was last asked.
    pub(super) fn take_lost(&mut self, segment: usize) -> bool {
        self.segments.get_mut(segment).is_some_and(|(_, lost)| mem::take(lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(first: u32) -> CommandTasks {
        CommandTasks { first, tasks: 1, ..CommandTasks::default() }
    }

    fn firsts(commands: Vec<CommandTasks>) -> Vec<u32> {
        commands.iter().map(|command| command.first).collect()
    }

    #[test]
    fn one_flush_serves_those_that_waited_when_it_was_issued() {
        let mut durable = Durable::new(1);
        assert!(!durable.wants_flush());
        durable.wait(command(1));
        durable.wait(command(2));
        assert!(durable.wants_flush());
        assert_eq!(durable.flush_issued(), 0);
        durable.wait(command(3));
        assert!(!durable.wants_flush(), "one at a time");
        durable.flush_again();
        assert!(durable.wants_flush());
        assert_eq!(durable.flush_issued(), 1, "for the same");
        assert_eq!(firsts(durable.flush_ended()), [1, 2]);
        assert!(durable.wants_flush());
        assert_eq!(durable.flush_issued(), 0);
        durable.wait(command(4));
        assert_eq!(firsts(durable.interrupted()), [3, 4]);
        assert!(!durable.wants_flush());
    }

    #[test]
    fn what_was_in_the_cache_at_a_reset_is_lost_and_told_once() {
        let mut durable = Durable::new(3);
        durable.wrote(0);
        durable.wrote(0);
        let covered = durable.moment();
        durable.wrote(1);
        durable.flushed(covered);
        assert!(durable.interrupted().is_empty());
        assert_eq!([0, 1, 2].map(|segment| durable.take_lost(segment)), [false, true, false]);
        assert!(!durable.take_lost(1));
        durable.interrupted();
        assert!(!durable.take_lost(1), "nothing was written since");
        durable.wrote(1);
        durable.interrupted();
        durable.wrote(1);
        durable.flushed(durable.moment());
        assert!(durable.take_lost(1), "a Flush of what came later brings nothing back");
    }
}
