//! The two rings of a queue pair (NVM Express Base 2.1, 3.3.1).
//!
//! A ring knows its place in the pair's memory, but not the memory: whoever calls passes it, as [`RingMemory`]. Writing
//! an entry and telling the device of it are two steps, so that one doorbell serves many entries.
//!
//! **Memory order.** SQEs are plain stores; [`RingMemory::stores_before_doorbell`] stands between them and the
//! doorbell. Of a CQE the dword with the phase is read first, by an Acquire load: only when it is new do the other
//! dwords, and the data that the command moved, mean anything. The device may write a CQE's place again only when it
//! knows the new head, so the head doorbell is rung after the entry has been read. `loom_tests` runs both rings against
//! a device in another thread, and shows that each of these orderings is needed.

use std::sync::atomic::Ordering;

use zerocopy::transmute;

use super::shadow::{RingDoorbell, ShadowWords};
use crate::bus::Doorbell;
use crate::dma::{DmaView, barrier};
use crate::spec::command::Sqe;
use crate::spec::completion::Cqe;

/// Memory that a ring shares with a device. Offsets are bytes from its start.
pub(super) trait RingMemory: Copy {
    /// Writes an SQE.
    fn write_entry(self, offset: usize, words: &[u64; 8]);

    /// Orders every entry written before the doorbell that is rung after.
    fn stores_before_doorbell(self);

    /// Reads the dword with the phase of the CQE at `offset`, by an Acquire load.
    fn acquire_phase(self, offset: usize) -> u32;

    /// Reads a CQE.
    fn read_entry(self, offset: usize) -> [u64; 2];

    /// Orders every entry read before the doorbell that is rung after.
    fn loads_before_doorbell(self);
}

impl RingMemory for DmaView<'_> {
    #[inline]
    fn write_entry(self, offset: usize, words: &[u64; 8]) {
        self.write_words(offset, words);
    }

    #[inline]
    fn stores_before_doorbell(self) {
        barrier::stores_before_doorbell();
    }

    #[inline]
    fn acquire_phase(self, offset: usize) -> u32 {
        let last = self.atomic_u32(offset + 12).load(Ordering::Acquire);
        barrier::loads_after_phase();
        last
    }

    #[inline]
    fn read_entry(self, offset: usize) -> [u64; 2] {
        let mut words = [0; 2];
        self.read_words(offset, &mut words);
        words
    }

    #[inline]
    fn loads_before_doorbell(self) {
        barrier::loads_before_doorbell();
    }
}

/// Bytes of an SQE.
pub(super) const SQE: usize = size_of::<Sqe>();
/// Bytes of a CQE.
pub(super) const CQE: usize = size_of::<Cqe>();

/// A submission queue: commands that the device fetches.
pub(super) struct SubmissionRing {
    offset: usize,
    entries: u16,
    tail: u16,
    rung: u16,
    doorbell: RingDoorbell,
}

impl SubmissionRing {
    /// A ring of `entries` at `offset` of the pair's memory.
    pub(super) fn new(offset: usize, entries: u16, doorbell: Box<dyn Doorbell>) -> Self {
        Self { offset, entries, tail: 0, rung: 0, doorbell: RingDoorbell::new(doorbell) }
    }

    /// Writes `sqe` in place at the tail. Does not tell the device of it.
    ///
    /// There is always room: the pair has one slot fewer than the ring has entries, and a slot is freed only by the
    /// completion of a command that the device had fetched.
    #[inline]
    pub(super) fn push(&mut self, memory: impl RingMemory, sqe: Sqe) {
        let words: [u64; 8] = transmute!(sqe);
        memory.write_entry(self.offset + usize::from(self.tail) * SQE, &words);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
        }
    }

    /// Tells the device of every command written since the last time. Whether a doorbell was written for it: not where
    /// there is no command, nor where the device looks by itself.
    #[inline]
    pub(super) fn ring(&mut self, memory: impl RingMemory) -> bool {
        if self.rung == self.tail {
            return false;
        }
        self.rung = self.tail;
        memory.stores_before_doorbell();
        self.doorbell.ring(self.tail)
    }

    /// Starts anew with a ring that the device knows as new: nothing in it, and `doorbell` of the device's new life.
    pub(super) fn renew(&mut self, doorbell: Box<dyn Doorbell>) {
        (self.tail, self.rung) = (0, 0);
        self.doorbell = RingDoorbell::new(doorbell);
    }

    /// Gives the doorbell a shadow, or none, of a queue that the device does not know yet.
    pub(super) fn cast_shadow(&mut self, words: Option<ShadowWords>) {
        self.doorbell.cast_shadow(words);
    }

    /// Whether the device's head pointer names an entry of this ring.
    #[inline]
    pub(super) fn holds(&self, sqhd: u16) -> bool {
        sqhd < self.entries
    }
}

/// A completion queue: what the device says of commands.
pub(super) struct CompletionRing {
    offset: usize,
    entries: u16,
    head: u16,
    rung: u16,
    /// The phase of a new entry; the device inverts it each time around, starting with 1.
    phase: bool,
    doorbell: RingDoorbell,
}

impl CompletionRing {
    /// A ring of `entries` at `offset` of the pair's memory, which must be zeroed.
    pub(super) fn new(offset: usize, entries: u16, doorbell: Box<dyn Doorbell>) -> Self {
        Self { offset, entries, head: 0, rung: 0, phase: true, doorbell: RingDoorbell::new(doorbell) }
    }

    /// Takes the next entry, if the device has written it. Does not tell the device that its place is free.
    // Always: the entry would go through memory.
    #[inline(always)]
    pub(super) fn pop(&mut self, memory: impl RingMemory) -> Option<Cqe> {
        let at = self.offset + usize::from(self.head) * CQE;
        // CID in the low half, phase and status in the high half (NVM Express Base 2.1, 4.2.1).
        let last = memory.acquire_phase(at);
        if (last >> 16 & 1 == 1) != self.phase {
            return None;
        }
        let mut words = memory.read_entry(at);
        // The dword that was found new counts, not what the device may have put there since.
        words[1] = words[1] & u64::from(u32::MAX) | u64::from(last) << 32;
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(transmute!(words))
    }

    /// Tells the device of every place freed since the last time. Whether a doorbell was written for it, as above.
    #[inline]
    pub(super) fn ring(&mut self, memory: impl RingMemory) -> bool {
        if self.rung == self.head {
            return false;
        }
        self.rung = self.head;
        memory.loads_before_doorbell();
        self.doorbell.ring(self.head)
    }

    /// Starts anew with a ring that the device knows as new, and `doorbell` of the device's new life. The ring's memory
    /// must be zeroed: a completion of the former life must not be found new.
    pub(super) fn renew(&mut self, doorbell: Box<dyn Doorbell>) {
        (self.head, self.rung, self.phase) = (0, 0, true);
        self.doorbell = RingDoorbell::new(doorbell);
    }

    /// As for a submission queue.
    pub(super) fn cast_shadow(&mut self, words: Option<ShadowWords>) {
        self.doorbell.cast_shadow(words);
    }
}

#[cfg(test)]
mod loom_tests;
