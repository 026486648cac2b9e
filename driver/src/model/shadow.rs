//! Doorbells in memory: the Shadow Doorbell buffer and the EventIdx buffer (NVM Express Base 2.1, 5.2.5 and Annex B.5).
//!
//! The host writes a new tail or head to the shadow of a doorbell, and to the doorbell itself only where the new value
//! passes what the controller has written to the doorbell's EventIdx. The model looks at a shadow in every turn as long
//! as it finds news there. Where it does not, it says in EventIdx what it has seen, looks once more, and then no more
//! until the doorbell is rung: a host that does not ring when it should is never served, as behind a real controller.
//!
//! The admin queue has no shadow: all drivers ring its doorbells, and so must a host here.

use std::sync::atomic::{Ordering, fence};

use super::board::Board;
use super::doorbells::Doorbells;
use super::iommu::{Fault, Hint, Reach};
use super::violation::{DoorbellId, Target, Violation};

/// The shadow of one doorbell.
struct Shadow {
    doorbell: DoorbellId,
    /// As last seen there.
    value: u32,
    /// Whether it is looked at without being called.
    awake: bool,
}

/// The shadows of all doorbells of I/O queues.
pub(super) struct ShadowDoorbells {
    /// Where the two buffers begin.
    shadow_doorbells: u64,
    event_idx: u64,
    dstrd: u8,
    shadows: Vec<Shadow>,
    hint: Hint,
}

/// An access to the shadow of this doorbell was refused.
pub(super) struct ShadowFault(DoorbellId, Fault);

impl ShadowFault {
    pub(super) fn violation(self) -> Violation {
        Violation::dma(Target::ShadowDoorbell { doorbell: self.0 }, self.1)
    }
}

impl ShadowDoorbells {
    pub(super) fn new(shadow_doorbells: u64, event_idx: u64, dstrd: u8) -> Self {
        Self { shadow_doorbells, event_idx, dstrd, shadows: Vec::new(), hint: Hint::default() }
    }

    /// Bytes from the start of a buffer to the word of `doorbell`.
    fn place(&self, doorbell: DoorbellId) -> u64 {
        (2 * u64::from(doorbell.qid) + doorbell.kind as u64) << (2 + self.dstrd)
    }

    /// Writes what was rung last, for a queue that had no shadow before.
    pub(super) fn write(&mut self, reach: &Reach<'_>, doorbell: DoorbellId, value: u32) -> Result<(), Fault> {
        let place = self.place(doorbell);
        reach.store_dword(self.shadow_doorbells.wrapping_add(place), value, &mut self.hint)?;
        reach.store_dword(self.event_idx.wrapping_add(place), value, &mut self.hint)
    }

    /// An open doorbell casts a shadow from now on. What is there is looked at in the next turn.
    pub(super) fn add(&mut self, doorbell: DoorbellId, doorbells: &Doorbells) {
        if doorbell.qid != 0 {
            doorbells.cast_shadow(doorbell);
            self.shadows.push(Shadow { doorbell, value: u32::MAX, awake: true });
        }
    }

    pub(super) fn remove(&mut self, doorbell: DoorbellId) {
        self.shadows.retain(|shadow| shadow.doorbell != doorbell);
    }

    /// Looks at those shadows that are to be looked at. Whether there was news.
    pub(super) fn look(&mut self, reach: &Reach<'_>, board: &Board, epoch: u32) -> Result<bool, ShadowFault> {
        let mut found = false;
        for at in 0..self.shadows.len() {
            let doorbell = self.shadows[at].doorbell;
            self.shadows[at].awake |= board.doorbells.was_called(doorbell, epoch);
            if self.shadows[at].awake {
                found |= self.look_at(at, reach, board, epoch).map_err(|fault| ShadowFault(doorbell, fault))?;
            }
        }
        Ok(found)
    }

    fn look_at(&mut self, at: usize, reach: &Reach<'_>, board: &Board, epoch: u32) -> Result<bool, Fault> {
        let doorbell = self.shadows[at].doorbell;
        let place = self.place(doorbell);
        let Self { shadow_doorbells, event_idx, shadows, hint, .. } = self;
        let shadow = &mut shadows[at];
        let address = shadow_doorbells.wrapping_add(place);
        let mut value = reach.load_dword(address, hint)?;
        if value == shadow.value {
            reach.store_dword(event_idx.wrapping_add(place), value, hint)?;
            // The host writes the shadow, then reads EventIdx; here it is the other way round, and each side has a full
            // barrier between the two. So the host sees this EventIdx and rings, or its value is seen now.
            fence(Ordering::SeqCst);
            value = reach.load_dword(address, hint)?;
            shadow.awake = value != shadow.value;
            if !shadow.awake {
                return Ok(false);
            }
        }
        shadow.value = value;
        if let Err(violation) = board.doorbells.take(doorbell, value, epoch) {
            board.blame(violation);
        }
        Ok(true)
    }
}
