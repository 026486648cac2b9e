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
}

#[derive(Clone, Copy)]
struct Slot<T> {
    /// The CID of the command in flight, or of the next one.
    cid: Cid,
    in_flight: bool,
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
        let slots = (0..count).map(|index| Slot { cid: index, in_flight: false, token: T::default() }).collect();
        let index_mask = (u32::from(count).next_power_of_two().max(2) - 1) as u16;
        Self { slots, free: (0..count).rev().collect(), index_mask }
    }

    /// How many slots are free.
    #[inline]
    pub(super) fn free(&self) -> usize {
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

    /// Takes a slot for a command and gives the command's CID.
    #[inline]
    pub(super) fn take(&mut self, token: T) -> Option<Cid> {
        let index = *self.free.last()?;
        let slot = self.slots.get_mut(usize::from(index))?;
        self.free.pop();
        slot.in_flight = true;
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
        if slot.cid != cid || !slot.in_flight {
            return Err(if slot.in_flight { Stray::Stale } else { Stray::NotInFlight });
        }
        slot.in_flight = false;
        // The carry out of the 16 bits starts the generations anew. The last one is left out, whose CID could be
        // FFFFh: its bits above the index are all ones.
        let next = cid.wrapping_add(self.index_mask + 1);
        slot.cid = if next | self.index_mask == Cid::MAX { index } else { next };
        self.free.push(index);
        Ok(slot.token)
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
        let first = slots.take(7).unwrap();
        assert_eq!(slots.complete(3), Err(Stray::OutOfRange), "index 3 of 3 slots");
        assert_eq!(slots.complete(1), Err(Stray::NotInFlight), "never issued");
        assert_eq!(slots.complete(first), Ok(7));
        assert_eq!(slots.complete(first), Err(Stray::NotInFlight), "twice");
        let second = slots.take(8).unwrap();
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
            while slots.free() > 1 {
                slots.take(()).unwrap();
            }
            for _ in 0..1 << 17 {
                let cid = slots.take(()).unwrap();
                assert_ne!(cid, Cid::MAX);
                seen.insert(cid);
                slots.complete(cid).unwrap();
            }
            let generations = (1usize << 16) / (usize::from(slots.index_mask) + 1);
            assert_eq!(seen.len(), generations - 1, "{count} slots");
        }
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
                    match slots.take(number) {
                        Some(cid) => prop_assert!(in_flight.insert(cid, number).is_none(), "a CID in flight twice"),
                        None => prop_assert_eq!(in_flight.len(), usize::from(count)),
                    }
                } else {
                    // Half of the guesses are of a command that is in flight.
                    let cid = in_flight.keys().nth(usize::from(cid) % 80).copied().unwrap_or(cid);
                    prop_assert_eq!(slots.complete(cid).ok(), in_flight.remove(&cid));
                }
                prop_assert_eq!(slots.free() + in_flight.len(), usize::from(count));
            }
        }
    }
}
