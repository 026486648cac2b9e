//! The commands in flight, by CID.
//!
//! A CID is a slot's index in its low bits and the slot's generation above them, so that a completion that comes
//! twice, or late from a former command, is told from the one that is awaited. It is never FFFFh, which a controller
//! uses for "no command" (NVM Express Base 2.1, 5.1.12.1.2, Error Information).

/// A command identifier (NVM Express Base 2.1, 4.2, Command Dword 0).
pub type Cid = u16;

/// Why a completion belongs to no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stray {
    /// No slot has this index.
    OutOfRange,
    /// The slot is free: the completion came twice, or for a command that was never issued.
    NotInFlight,
    /// The slot holds a later command.
    Stale,
    /// It is the command's own; whoever submitted it has given up waiting. The slot is free now.
    Disowned,
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    InFlight,
    /// A command in flight whose end nobody is told.
    Disowned,
}

#[derive(Clone, Copy)]
struct Slot<T> {
    /// The CID of the command in flight, or of the next one.
    cid: Cid,
    state: State,
    /// Whether the controller has been asked to abort the command.
    abort_asked: bool,
    /// When the command was issued, or when its abort was asked for; in the owner's ticks.
    since: u32,
    token: T,
}

/// A fixed number of slots, each with what the lane wants to know when its command is complete.
pub(super) struct Slots<T> {
    slots: Box<[Slot<T>]>,
    free: Vec<u16>,
    /// Selects the index in a CID.
    index_mask: u16,
}

impl<T: Copy + Default> Slots<T> {
    /// The most slots there can be: four bits of a CID are left for the generation.
    pub(super) const MAX: usize = 1 << 12;

    /// `count` free slots, 1 to [`MAX`](Self::MAX).
    pub(super) fn new(count: u16) -> Self {
        debug_assert!((1..=Self::MAX).contains(&usize::from(count)));
        let slots = (0..count)
            .map(|index| Slot { cid: index, state: State::Free, abort_asked: false, since: 0, token: T::default() })
            .collect();
        let index_mask = (u32::from(count).next_power_of_two().max(2) - 1) as u16;
        Self { slots, free: (0..count).rev().collect(), index_mask }
    }

    /// How many slots are free.
    #[inline]
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// How many slots there are.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// The index of the slot that [`take`](Self::take) would take.
    #[inline]
    pub(super) fn peek(&self) -> Option<u16> {
        self.free.last().copied()
    }

    /// Takes a slot for a command that is issued at tick `now`, and gives the command's CID.
    #[inline]
    pub(super) fn take(&mut self, token: T, now: u32) -> Option<Cid> {
        let index = *self.free.last()?;
        let slot = self.slots.get_mut(usize::from(index))?;
        self.free.pop();
        slot.state = State::InFlight;
        slot.abort_asked = false;
        slot.since = now;
        slot.token = token;
        Some(slot.cid)
    }

    /// Frees the slot of the command `cid` and gives what it held.
    #[inline]
    pub(super) fn complete(&mut self, cid: Cid) -> Result<T, Stray> {
        let index = cid & self.index_mask;
        let Some(slot) = self.slots.get_mut(usize::from(index)) else {
            return Err(Stray::OutOfRange);
        };
        if slot.cid != cid || slot.state != State::InFlight {
            return Err(self.stray(index, cid));
        }
        let token = slot.token;
        self.free(index);
        Ok(token)
    }

    /// Why a completion with this CID, whose index is a slot's, ends no command of the owner's.
    #[cold]
    fn stray(&mut self, index: u16, cid: Cid) -> Stray {
        let Some(slot) = self.slots.get(usize::from(index)) else { return Stray::OutOfRange };
        match slot.state {
            State::Free => Stray::NotInFlight,
            State::Disowned if slot.cid == cid => {
                self.free(index);
                Stray::Disowned
            }
            State::InFlight | State::Disowned => Stray::Stale,
        }
    }

    /// Nobody is told of the end of a command in flight any more. Its slot stays in quarantine until then.
    pub(super) fn disown(&mut self, cid: Cid) {
        if let Some(slot) = self.slots.get_mut(usize::from(cid & self.index_mask))
            && slot.cid == cid
            && slot.state == State::InFlight
        {
            slot.state = State::Disowned;
        }
    }

    /// A command whose last event (it was issued, or its abort was asked for) is more than `limit` ticks before `now`.
    pub(super) fn overdue(&self, now: u32, limit: u32, abort_asked: bool) -> Option<Cid> {
        let overdue = |slot: &&Slot<T>| {
            slot.state != State::Free && slot.abort_asked == abort_asked && now.wrapping_sub(slot.since) > limit
        };
        self.slots.iter().find(overdue).map(|slot| slot.cid)
    }

    /// Notes that the abort of a command in flight was asked for at tick `now`.
    pub(super) fn note_abort(&mut self, cid: Cid, now: u32) {
        if let Some(slot) = self.slots.get_mut(usize::from(cid & self.index_mask))
            && slot.cid == cid
        {
            slot.abort_asked = true;
            slot.since = now;
        }
    }

    /// Frees every slot in use and gives what it held. Completions that come later are strays.
    pub(super) fn end_all(&mut self, mut ended: impl FnMut(T)) {
        for index in 0..self.slots.len() as u16 {
            let Slot { state, token, .. } = self.slots[usize::from(index)];
            if state != State::Free {
                self.free(index);
            }
            if state == State::InFlight {
                ended(token);
            }
        }
    }

    /// Frees a slot in use, with the CID of its next command.
    #[inline]
    fn free(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return };
        slot.state = State::Free;
        // The carry out of the 16 bits starts the generations anew. The last one is left out, whose CID could be
        // FFFFh: its bits above the index are all ones.
        let next = slot.cid.wrapping_add(self.index_mask + 1);
        slot.cid = if next | self.index_mask == Cid::MAX { index } else { next };
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_stray_is_told_apart() {
        let mut slots = Slots::<u32>::new(3);
        let first = slots.take(7, 0).unwrap();
        assert_eq!(slots.complete(3), Err(Stray::OutOfRange), "index 3 of 3 slots");
        assert_eq!(slots.complete(1), Err(Stray::NotInFlight), "never issued");
        assert_eq!(slots.complete(first), Ok(7));
        assert_eq!(slots.complete(first), Err(Stray::NotInFlight), "twice");
        let second = slots.take(8, 0).unwrap();
        assert_ne!(first, second);
        assert_eq!(slots.complete(first), Err(Stray::Stale));
        assert_eq!(slots.complete(second), Ok(8));
    }

    #[test]
    fn generations_go_round_without_ffffh() {
        for count in [1u16, 2, 3, 64, 127, 1023, 4095, 4096] {
            let mut slots = Slots::<()>::new(count);
            let mut seen = std::collections::HashSet::new();
            // The free list is a stack: the slot that was just freed is taken again. Hold all but the last.
            while slots.free_count() > 1 {
                slots.take((), 0).unwrap();
            }
            for _ in 0..1 << 17 {
                let cid = slots.take((), 0).unwrap();
                assert_ne!(cid, Cid::MAX);
                seen.insert(cid);
                slots.complete(cid).unwrap();
            }
            let generations = (1usize << 16) / (usize::from(slots.index_mask) + 1);
            assert_eq!(seen.len(), generations - 1, "{count} slots");
        }
    }

    #[test]
    fn what_is_overdue_and_what_is_past_its_abort() {
        let mut slots = Slots::<u32>::new(4);
        // The ticks wrap.
        let start = u32::MAX - 5;
        let first = slots.take(1, start).unwrap();
        let second = slots.take(2, start.wrapping_add(8)).unwrap();
        let at = |ticks: u32| start.wrapping_add(ticks);
        assert_eq!(slots.overdue(at(10), 10, false), None);
        assert_eq!(slots.overdue(at(11), 10, false), Some(first));
        slots.note_abort(first, at(11));
        slots.note_abort(first ^ 0x10, at(500));
        assert_eq!(slots.overdue(at(11), 10, false), None, "asked for already");
        assert_eq!(slots.overdue(at(19), 10, false), Some(second));
        assert_eq!(slots.overdue(at(16), 5, true), None);
        assert_eq!(slots.overdue(at(17), 5, true), Some(first));
        slots.complete(first).unwrap();
        assert_eq!(slots.overdue(at(17), 5, true), None);
        let mut ended = Vec::new();
        slots.end_all(|token| ended.push(token));
        assert_eq!((ended, slots.free_count()), (vec![2], 4));
        assert_eq!(slots.complete(second), Err(Stray::NotInFlight), "a late completion is a stray");
    }

    #[test]
    fn a_disowned_command_keeps_its_slot_and_ends_for_nobody() {
        let mut slots = Slots::<u32>::new(2);
        let [first, second] = [7, 8].map(|token| slots.take(token, 0).unwrap());
        slots.disown(first);
        slots.disown(second ^ 2);
        assert_eq!((slots.free_count(), slots.overdue(5, 4, false)), (0, Some(first)), "it has its deadlines still");
        assert_eq!(slots.complete(first ^ 2), Err(Stray::Stale), "another generation");
        assert_eq!(slots.complete(first), Err(Stray::Disowned));
        assert_eq!(slots.complete(first), Err(Stray::NotInFlight), "once");
        assert_eq!((slots.free_count(), slots.complete(second)), (1, Ok(8)));
        let third = slots.take(9, 0).unwrap();
        slots.disown(third);
        slots.end_all(|token| panic!("{token} is nobody's"));
        assert_eq!(slots.free_count(), 2);
    }

    proptest! {
        #[test]
        fn each_command_ends_once_and_only_with_its_own_cid(
            count in 1u16..40, steps in prop::collection::vec((any::<bool>(), any::<u16>()), 1..400)
        ) {
            let mut slots = Slots::<usize>::new(count);
            let mut in_flight = HashMap::new();
            for (number, (submit, cid)) in steps.into_iter().enumerate() {
                if submit {
                    match slots.take(number, 0) {
                        Some(cid) => prop_assert!(in_flight.insert(cid, number).is_none(), "a CID in flight twice"),
                        None => prop_assert_eq!(in_flight.len(), usize::from(count)),
                    }
                } else {
                    // Half of the guesses are of a command that is in flight.
                    let cid = in_flight.keys().nth(usize::from(cid) % 80).copied().unwrap_or(cid);
                    prop_assert_eq!(slots.complete(cid).ok(), in_flight.remove(&cid));
                }
                prop_assert_eq!(slots.free_count() + in_flight.len(), usize::from(count));
            }
        }
    }
}
