//! The two rings of a queue pair (NVM Express Base 2.1, 3.3.1).
//!
//! A ring knows its place in the pair's memory, but not the memory: whoever calls passes the view. Writing an entry
//! and telling the device of it are two steps, so that one doorbell serves many entries.
//!
//! **Memory order.** SQEs are plain stores; the doorbell handle orders itself behind them. Of a CQE the dword with
//! the phase is read first, by an Acquire load: only when it is new do the other dwords, and the data that the
//! command moved, mean anything. The device may write a CQE's place again only when it knows the new head, so the
//! head doorbell is rung after the entry has been read.

use std::sync::atomic::Ordering;

use zerocopy::transmute;

use crate::bus::Doorbell;
use crate::dma::{DmaView, barrier};
use crate::spec::command::Sqe;
use crate::spec::completion::Cqe;

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
    doorbell: Box<dyn Doorbell>,
}

impl SubmissionRing {
    /// A ring of `entries` at `offset` of the pair's memory.
    pub(super) fn new(offset: usize, entries: u16, doorbell: Box<dyn Doorbell>) -> Self {
        Self { offset, entries, tail: 0, rung: 0, doorbell }
    }

    /// Writes `sqe` in place at the tail. Does not tell the device of it.
    ///
    /// There is always room: the pair has one slot fewer than the ring has entries, and a slot is freed only by the
    /// completion of a command that the device had fetched.
    #[inline]
    pub(super) fn push(&mut self, memory: DmaView<'_>, sqe: Sqe) {
        let words: [u64; 8] = transmute!(sqe);
        memory.write_words(self.offset + usize::from(self.tail) * SQE, &words);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
        }
    }

    /// Tells the device of every command written since the last time; no doorbell when there is none.
    #[inline]
    pub(super) fn ring(&mut self) -> bool {
        if self.rung == self.tail {
            return false;
        }
        self.rung = self.tail;
        barrier::stores_before_doorbell();
        self.doorbell.ring(self.tail);
        true
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
    doorbell: Box<dyn Doorbell>,
}

impl CompletionRing {
    /// A ring of `entries` at `offset` of the pair's memory, which must be zeroed.
    pub(super) fn new(offset: usize, entries: u16, doorbell: Box<dyn Doorbell>) -> Self {
        Self { offset, entries, head: 0, rung: 0, phase: true, doorbell }
    }

    /// Takes the next entry, if the device has written it. Does not tell the device that its place is free.
    #[inline]
    pub(super) fn pop(&mut self, memory: DmaView<'_>) -> Option<Cqe> {
        let at = self.offset + usize::from(self.head) * CQE;
        // CID in the low half, phase and status in the high half (NVM Express Base 2.1, 4.2.1).
        let last = memory.atomic_u32(at + 12).load(Ordering::Acquire);
        if (last >> 16 & 1 == 1) != self.phase {
            return None;
        }
        barrier::loads_after_phase();
        let mut words = [0u64; 2];
        memory.read_words(at, &mut words);
        // The dword that was found new counts, not what the device may have put there since.
        words[1] = words[1] & u64::from(u32::MAX) | u64::from(last) << 32;
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        Some(transmute!(words))
    }

    /// Tells the device of every place freed since the last time; no doorbell when there is none.
    #[inline]
    pub(super) fn ring(&mut self) -> bool {
        if self.rung == self.head {
            return false;
        }
        self.rung = self.head;
        self.doorbell.ring(self.head);
        true
    }
}
