//! Whose turn it is: the batches that have tasks to plan, by priority.
//!
//! A port plans the batches of one priority in turn, a quantum each, and those of a higher priority before those of a
//! lower one. Two rules stand beside that. A device takes commands in the order in which they were issued, so of a lower
//! priority only so many may be in flight: that many stand before a command of a higher one at the most. And a lower priority
//! that has to wait earns one slot for each [`PRICE`] that higher ones take, so that it never starves.

use std::collections::VecDeque;

use crate::batch::Priority;

/// Commands of a lower priority that may be in flight in a port.
const MEDIUM_IN_FLIGHT: usize = 64;
const LOW_IN_FLIGHT: usize = 32;
/// Commands of higher priorities for which a lower one that waits has one of its own.
const PRICE: usize = 8;

/// The most commands of a priority that may be in flight.
const fn most_in_flight(priority: Priority) -> usize {
    match priority {
        Priority::High => usize::MAX,
        Priority::Medium => MEDIUM_IN_FLIGHT,
        Priority::Low => LOW_IN_FLIGHT,
    }
}

/// The batches of one priority, by their places in the port.
#[derive(Debug, Default)]
struct Round {
    places: VecDeque<u32>,
    /// Commands that higher priorities have had while this one waited, and not paid for yet.
    owed: usize,
}

/// The rounds of a port.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    rounds: [Round; Priority::ALL.len()],
    /// Batches in the lower ones.
    lower: usize,
}

impl Rounds {
    /// Puts a batch at the end of its round.
    pub(super) fn push(&mut self, priority: Priority, place: u32) {
        self.rounds[priority as usize].places.push_back(place);
        self.lower += usize::from(priority != Priority::High);
    }

    /// Takes the first batch of a round.
    pub(super) fn pop(&mut self, priority: Priority) -> Option<u32> {
        let place = self.rounds[priority as usize].places.pop_front()?;
        self.lower -= usize::from(priority != Priority::High);
        Some(place)
    }

    /// How many batches a round has.
    pub(super) fn len(&self, priority: Priority) -> usize {
        self.rounds[priority as usize].places.len()
    }

    /// Whether there is nothing but high priority: the usual case.
    #[inline]
    pub(super) fn are_of_one_priority(&self) -> bool {
        self.lower == 0
    }

    /// How many commands of `priority` may be planned now, when `free` slots are free and `in_flight` says how many
    /// commands of a priority are in flight.
    pub(super) fn allowance(&self, priority: Priority, free: usize, in_flight: impl Fn(Priority) -> usize) -> usize {
        let room = |priority| most_in_flight(priority).saturating_sub(in_flight(priority));
        let lower = Priority::ALL.into_iter().filter(|lower| *lower > priority && self.len(*lower) != 0);
        let earned: usize = lower.map(|lower| (self.rounds[lower as usize].owed / PRICE).min(room(lower))).sum();
        free.saturating_sub(earned).min(room(priority))
    }

    /// Commands of a priority were planned.
    pub(super) fn planned(&mut self, priority: Priority, commands: usize) {
        let own = &mut self.rounds[priority as usize];
        own.owed = own.owed.saturating_sub(commands * PRICE);
        for lower in Priority::ALL.into_iter().filter(|lower| *lower > priority) {
            let round = &mut self.rounds[lower as usize];
            // What is owed does not grow without end: it would be paid at once.
            round.owed = if round.places.is_empty() { 0 } else { (round.owed + commands).min(PRICE * LOW_IN_FLIGHT) };
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{High, Low, Medium};

    #[test]
    fn each_priority_has_a_round_of_its_own() {
        let mut rounds = Rounds::default();
        assert!(rounds.are_of_one_priority());
        for (priority, place) in [(High, 1), (Low, 2), (High, 3), (Medium, 4)] {
            rounds.push(priority, place);
        }
        assert!(!rounds.are_of_one_priority());
        assert_eq!([High, Medium, Low].map(|priority| rounds.len(priority)), [2, 1, 1]);
        assert_eq!([rounds.pop(High), rounds.pop(High), rounds.pop(High)], [Some(1), Some(3), None]);
        assert_eq!([rounds.pop(Low), rounds.pop(Medium)], [Some(2), Some(4)]);
        assert!(rounds.are_of_one_priority());
    }

    #[test]
    fn what_is_cleared_is_forgotten() {
        let mut rounds = Rounds::default();
        Priority::ALL.into_iter().for_each(|priority| rounds.push(priority, 1));
        rounds.planned(High, 100);
        rounds.clear();
        assert!(rounds.are_of_one_priority());
        assert_eq!([High, Medium, Low].map(|priority| rounds.len(priority)), [0; 3]);
        rounds.push(Low, 1);
        assert_eq!(rounds.allowance(High, 10, |_| 0), 10, "nothing is owed");
    }

    #[test]
    fn of_lower_priorities_only_so_many_are_in_flight() {
        let rounds = Rounds::default();
        let allowance = |priority, in_flight| rounds.allowance(priority, 255, |_| in_flight);
        assert_eq!([0, 31, 32, 40].map(|in_flight| allowance(Low, in_flight)), [32, 1, 0, 0]);
        assert_eq!([0, 63, 64].map(|in_flight| allowance(Medium, in_flight)), [64, 1, 0]);
        assert_eq!([0, 300].map(|in_flight| allowance(High, in_flight)), [255, 255]);
        assert_eq!(rounds.allowance(Low, 3, |_| 0), 3, "slots that there are");
    }

    #[test]
    fn who_waits_earns_slots_and_pays_for_them() {
        let mut rounds = Rounds::default();
        rounds.push(Low, 1);
        rounds.planned(High, 7);
        assert_eq!(rounds.allowance(High, 10, |_| 0), 10);
        rounds.planned(Medium, 9);
        assert_eq!(rounds.allowance(High, 10, |_| 0), 8, "two are earned, of either");
        assert_eq!(rounds.allowance(Medium, 1, |_| 0), 0, "before the last slot of a higher one");
        assert_eq!(rounds.allowance(High, 10, |priority| if priority == Low { 31 } else { 0 }), 9, "as there is room");
        rounds.planned(Low, 1);
        assert_eq!(rounds.allowance(High, 10, |_| 0), 9);
        rounds.planned(High, usize::from(u16::MAX));
        assert_eq!(rounds.allowance(High, 255, |_| 0), 223, "no more than may be in flight");
        rounds.planned(Low, 31);
        assert_eq!(rounds.allowance(High, 255, |_| 0), 254, "it has paid for each of them");
        assert_eq!(rounds.pop(Low), Some(1));
        rounds.planned(High, 1);
        rounds.push(Low, 1);
        assert_eq!(rounds.allowance(High, 10, |_| 0), 10, "who did not wait is owed nothing");
    }
}
