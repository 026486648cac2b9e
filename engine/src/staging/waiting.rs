//! Who waits for staging buffers.
//!
//! Each batch that stands before another in line has a buffer reserved, and nobody takes one who has more of them than the
//! first one in line: so whoever waits gets one in turn, and equals go side by side. A higher priority stands before a
//! lower one; but a lower one that waits earns a buffer for each [`PRICE`] that higher ones take, and that one is its own:
//! none starves.

use std::collections::VecDeque;

use crate::batch::Priority;

/// Buffers that higher priorities take for which a lower one that waits has one of its own.
const PRICE: usize = 8;

/// The batches of one priority, by their places in the port.
#[derive(Debug, Default)]
struct Line {
    places: VecDeque<u32>,
    /// Buffers that higher priorities have taken while this one waited, and not paid for yet.
    owed: usize,
}

impl Line {
    fn has_earned(&self) -> bool {
        self.owed >= PRICE && !self.places.is_empty()
    }
}

/// How a batch stands.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// Buffers that it has.
    held: u16,
    in_line: bool,
}

/// The lines, one for each priority.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    lines: [Line; Priority::ALL.len()],
    /// By place.
    standings: Vec<Standing>,
    /// Batches in all of the lines.
    batches: usize,
}

impl Waiting {
    /// Whether a batch may take one of `free` buffers. It leaves the line then, and is put at its end otherwise, unless it
    /// stands there already.
    pub(super) fn may_take(&mut self, priority: Priority, place: u32, free: usize) -> bool {
        let Standing { held, in_line } = *self.standing(place);
        let (higher, own_and_lower) = self.lines.split_at(priority as usize);
        let [own, lower @ ..] = own_and_lower else { return false };
        // Where more wait than there are buffers, it does not matter how many.
        let ahead = own.places.iter().take(free).take_while(|other| **other != place).count();
        let mut before = ahead + lower.iter().filter(|line| line.has_earned()).count();
        let waiting_higher = higher.iter().map(|line| line.places.len()).sum::<usize>();
        // What a line has earned is for the first one in it.
        if waiting_higher != 0 && !(own.owed >= PRICE && ahead == 0) {
            before += waiting_higher;
        }
        let first = own.places.front().filter(|first| **first != place);
        let has_more =
            first.and_then(|first| self.standings.get(*first as usize)).is_some_and(|first| held > first.held);
        if before < free && !has_more {
            self.passed(priority);
            self.leave(priority, place);
            return true;
        }
        if !in_line {
            self.standing(place).in_line = true;
            self.lines[priority as usize].places.push_back(place);
            self.batches += 1;
        }
        false
    }

    /// A batch of that priority takes a buffer: what lower ones that wait are owed for it, and what it pays itself.
    fn passed(&mut self, priority: Priority) {
        let [own, lower @ ..] = &mut self.lines[priority as usize..] else { return };
        own.owed = own.owed.saturating_sub(PRICE);
        for line in lower.iter_mut().filter(|line| !line.places.is_empty()) {
            line.owed = (line.owed + 1).min(PRICE);
        }
    }

    /// A batch wants no buffer.
    pub(super) fn leave(&mut self, priority: Priority, place: u32) {
        let standing = self.standing(place);
        if !std::mem::take(&mut standing.in_line) {
            return;
        }
        let line = &mut self.lines[priority as usize];
        if let Some(at) = line.places.iter().position(|other| *other == place) {
            line.places.remove(at);
            self.batches -= 1;
        }
    }

    /// A batch has one buffer more.
    pub(super) fn taken(&mut self, place: u32) {
        self.standing(place).held += 1;
    }

    /// A batch has one buffer less.
    pub(super) fn given_back(&mut self, place: u32) {
        let held = &mut self.standing(place).held;
        *held = held.saturating_sub(1);
    }

    fn standing(&mut self, place: u32) -> &mut Standing {
        let place = place as usize;
        if place >= self.standings.len() {
            self.standings.resize(place + 1, Standing::default());
        }
        &mut self.standings[place]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use Priority::{High, Low, Medium};

    #[test]
    fn who_waits_has_a_buffer_reserved() {
        let mut waiting = Waiting::default();
        assert!(waiting.may_take(High, 1, 1));
        assert!(!waiting.may_take(High, 2, 0));
        assert!(!waiting.may_take(High, 3, 1), "it is 2's");
        assert!(waiting.may_take(High, 4, 3), "there is one for each of them, and one more");
        assert!(!waiting.may_take(High, 4, 2));
        assert!(waiting.may_take(High, 2, 1));
        assert!(waiting.may_take(High, 3, 1));
        assert!(waiting.may_take(High, 4, 1));
        assert!(waiting.is_empty());
    }

    #[test]
    fn who_leaves_holds_nobody_up() {
        let mut waiting = Waiting::default();
        for place in 0..40 {
            assert!(!waiting.may_take(High, place, 0));
            assert!(!waiting.may_take(High, place, 0), "once in line");
        }
        assert!(!waiting.may_take(High, 40, 32));
        (0..40).for_each(|place| waiting.leave(High, place));
        assert!(waiting.may_take(High, 40, 1));
        assert!(waiting.is_empty());
        waiting.leave(Low, 7);
        assert!(waiting.is_empty());
    }

    #[test]
    fn a_lower_priority_waits_and_earns_one() {
        let mut waiting = Waiting::default();
        for (priority, place) in [(Low, 1), (Low, 2), (Medium, 3), (High, 4)] {
            assert!(!waiting.may_take(priority, place, 0));
        }
        assert!(!waiting.may_take(Low, 1, 2), "one for high and one for medium");
        assert!(waiting.may_take(High, 4, 1));
        assert!(!waiting.may_take(High, 4, 0));
        for _ in 1..PRICE {
            assert!(waiting.may_take(High, 4, 1));
            assert!(!waiting.may_take(High, 4, 0));
        }
        assert!(!waiting.may_take(High, 4, 2), "one for medium and one for low");
        assert!(!waiting.may_take(Medium, 3, 1), "low has earned it");
        assert!(waiting.may_take(Low, 1, 1));
        assert!(!waiting.may_take(Low, 2, 1));
        assert!(waiting.may_take(Medium, 3, 1));
        assert!(waiting.may_take(High, 4, 1), "nobody is owed any more");
    }

    proptest! {
        /// As a port does it: in each turn some buffers come back, and each batch, by priority, takes what it may. Batches
        /// that want buffers without end each get some, and those of a priority about as many.
        #[test]
        fn nobody_starves(
            batches in prop::collection::vec(0usize..3, 1..40), returns in prop::collection::vec(1usize..6, 1..20)
        ) {
            let mut waiting = Waiting::default();
            let (mut holders, mut taken) = (VecDeque::new(), vec![0u32; batches.len()]);
            for turn in 0..4_000usize {
                for priority in Priority::ALL {
                    for place in (0..batches.len()).filter(|place| batches[*place] == priority as usize) {
                        while waiting.may_take(priority, place as u32, 32 - holders.len()) {
                            waiting.taken(place as u32);
                            holders.push_back(place);
                            taken[place] += 1;
                        }
                    }
                }
                for place in holders.drain(..returns[turn % returns.len()].min(holders.len())) {
                    waiting.given_back(place as u32);
                }
            }
            for priority in 0..3 {
                let of_it = || batches.iter().zip(&taken).filter(|(of, _)| **of == priority).map(|(_, taken)| *taken);
                let (least, most) = (of_it().min().unwrap_or(1), of_it().max().unwrap_or(1));
                prop_assert!(least > 0 && most <= 2 * least + 32, "{:?} of {:?}", taken, batches);
            }
        }
    }
}
