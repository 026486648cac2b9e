//! Doorbell registers: the hot path between a driver's lanes and the model's executor.
//!
//! Ringing is a few loads and one store; the executor looks with one load. Each doorbell's word carries the enable
//! epoch of the handle that wrote it, so that a handle from before a reset can be told at any time, even when it
//! rings at the very moment of the reset. Handles also have a generation, which ends when they are revoked.
//!
//! Where a queue's doorbells have shadows in memory, a ring says that the shadow is to be looked at and nothing else:
//! `shadow` looks there, and what it finds stands here as if it had been rung.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::board::Board;
use super::violation::{DoorbellId, Violation};
use crate::bus::Doorbell;
use crate::spec::registers::{DoorbellKind, offset};

/// The half of a word that holds the epoch.
const EPOCH: u64 = 0xFFFF_FFFF << 32;

/// One doorbell, on a cache line of its own: each has its own writer.
#[derive(Default)]
#[repr(align(64))]
struct Word {
    /// Epoch in the upper half, value in the lower.
    rung: AtomicU64,
    /// Entries of the queue, 0 while there is none or it has shadows.
    size: AtomicU32,
    /// Entries of a queue that has shadows, else 0.
    shadowed_size: AtomicU32,
    /// The epoch in which a doorbell with a shadow was rung and that has not been seen, else 0.
    call: AtomicU32,
}

/// All doorbells of a controller.
pub(super) struct Doorbells {
    words: Box<[Word]>,
    dstrd: u8,
    /// Counts resets; handles given out belong to the epoch of that time. Starts at 1.
    epoch: AtomicU32,
    /// In the upper half the epoch while EN and RDY are 1, else 0; in the lower the generation of handles that lead
    /// here. One word, so that a ring compares once.
    live: AtomicU64,
}

impl Doorbells {
    /// Doorbells for `queues` I/O queue pairs and the admin queues.
    pub(super) fn new(queues: u16, dstrd: u8) -> Self {
        let words = (0..2 * (usize::from(queues) + 1)).map(|_| Word::default()).collect();
        Self { words, dstrd, epoch: AtomicU32::new(1), live: AtomicU64::new(0) }
    }

    /// The first offset after the doorbells.
    pub(super) fn end(&self) -> u64 {
        offset::DOORBELLS + ((self.words.len() as u64) << (2 + self.dstrd))
    }

    /// Which doorbell is at `offset` of BAR 0.
    pub(super) fn at(&self, offset: u64) -> Option<DoorbellId> {
        let bytes = offset.checked_sub(offset::DOORBELLS)?;
        let stride = 4 << self.dstrd;
        let index = bytes / stride;
        if !bytes.is_multiple_of(stride) || index >= self.words.len() as u64 {
            return None;
        }
        let kind = if index.is_multiple_of(2) { DoorbellKind::SubmissionTail } else { DoorbellKind::CompletionHead };
        Some(DoorbellId { qid: (index / 2) as u16, kind })
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// From now on doorbells are heard: RDY has become 1. Returns the epoch.
    pub(super) fn start(&self) -> u32 {
        let epoch = self.epoch();
        self.set_live(|live| Mark::new(epoch, live.generation()));
        epoch
    }

    /// Whether doorbells of `epoch` are heard now.
    #[inline]
    pub(super) fn is_live(&self, epoch: u32) -> bool {
        self.live().epoch() == epoch
    }

    /// From now on no handle given out so far is heard, and none of them is to blame.
    pub(super) fn revoke(&self) {
        self.set_live(|live| Mark::new(live.epoch(), live.generation().wrapping_add(1)));
    }

    /// What a handle that is given out now carries.
    pub(super) fn mark(&self) -> Mark {
        Mark::new(self.epoch(), self.live().generation())
    }

    #[inline]
    fn live(&self) -> Mark {
        Mark(self.live.load(Ordering::Acquire))
    }

    fn set_live(&self, change: impl Fn(Mark) -> Mark) {
        let change = |live| Some(change(Mark(live)).0);
        // It always changes: `change` never refuses.
        let _ = self.live.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }

    /// From now on no doorbell is heard, and no handle given out so far ever again: EN has become 0.
    pub(super) fn stop(&self) {
        self.set_live(|live| Mark::new(0, live.generation()));
        // Under the registers' lock; 0 is the mark of "not live" and is stepped over.
        let next = self.epoch().checked_add(1).unwrap_or(1);
        self.epoch.store(next, Ordering::Release);
    }

    /// Sets a doorbell to 0 for a new queue of `size` entries.
    pub(super) fn open(&self, doorbell: DoorbellId, size: u32) {
        let word = self.word(doorbell);
        word.rung.store(u64::from(self.epoch()) << 32, Ordering::Relaxed);
        word.call.store(0, Ordering::Relaxed);
        word.size.store(size, Ordering::Release);
    }

    /// The queue is gone.
    pub(super) fn close(&self, doorbell: DoorbellId) {
        let word = self.word(doorbell);
        word.size.store(0, Ordering::Release);
        word.shadowed_size.store(0, Ordering::Release);
    }

    /// From now on, until it is closed, an open doorbell has a shadow.
    pub(super) fn cast_shadow(&self, doorbell: DoorbellId) {
        let word = self.word(doorbell);
        let size = word.size.swap(0, Ordering::AcqRel);
        // 0 where it had one already, in other buffers.
        if size != 0 {
            word.shadowed_size.store(size, Ordering::Release);
        }
    }

    /// Takes what the shadow of a doorbell says.
    pub(super) fn take(&self, doorbell: DoorbellId, value: u32, epoch: u32) -> Result<(), Violation> {
        let word = self.word(doorbell);
        let size = word.shadowed_size.load(Ordering::Relaxed);
        if value >= size {
            return Err(Violation::DoorbellOutOfRange { doorbell, value, size });
        }
        word.rung.store(u64::from(epoch) << 32 | u64::from(value), Ordering::Relaxed);
        Ok(())
    }

    /// Whether a doorbell with a shadow was rung in `epoch` since the last time.
    pub(super) fn was_called(&self, doorbell: DoorbellId, epoch: u32) -> bool {
        // Acquire: the shadow that was written before it was rung.
        self.word(doorbell).call.swap(0, Ordering::AcqRel) == epoch
    }

    /// The value last rung in `epoch`.
    #[inline]
    pub(super) fn value(&self, doorbell: DoorbellId, epoch: u32) -> Option<u32> {
        // Acquire: the entries that the driver wrote before it rang.
        let rung = self.word(doorbell).rung.load(Ordering::Acquire);
        ((rung >> 32) as u32 == epoch).then_some(rung as u32)
    }

    /// Rings a doorbell through a handle with `mark`; what must not be is not heard.
    #[inline]
    pub(super) fn ring(&self, doorbell: DoorbellId, value: u32, mark: Mark) -> Result<(), Refusal> {
        if self.live() != mark {
            return Err(self.refusal(doorbell, value, mark));
        }
        let word = self.word(doorbell);
        let size = word.size.load(Ordering::Acquire);
        if value >= size {
            return self.call(doorbell, value, size, mark);
        }
        // Release: the device that sees the value sees the entries before it.
        word.rung.store(mark.0 & EPOCH | u64::from(value), Ordering::Release);
        Ok(())
    }

    /// A ring that is no value for this doorbell: its queue has a shadow, or the value is wrong.
    #[cold]
    fn call(&self, doorbell: DoorbellId, value: u32, size: u32, mark: Mark) -> Result<(), Refusal> {
        let word = self.word(doorbell);
        let wrong = match (size, word.shadowed_size.load(Ordering::Acquire)) {
            (0, 0) => Violation::DoorbellWithoutQueue { doorbell, value },
            (0, shadowed) if value < shadowed => {
                // Release: the device that hears the call sees the shadow.
                word.call.store(mark.epoch(), Ordering::Release);
                return Ok(());
            }
            (size, shadowed) => Violation::DoorbellOutOfRange { doorbell, value, size: size.max(shadowed) },
        };
        Err(Refusal::Violation(wrong))
    }

    #[cold]
    fn refusal(&self, doorbell: DoorbellId, value: u32, mark: Mark) -> Refusal {
        let now = self.mark();
        if mark.generation() != now.generation() {
            Refusal::Revoked
        } else if mark.epoch() == now.epoch() {
            Refusal::Violation(Violation::DoorbellWhileNotReady { doorbell, value })
        } else {
            Refusal::Violation(Violation::DoorbellOfFormerEpoch { doorbell, value })
        }
    }

    #[inline]
    fn word(&self, doorbell: DoorbellId) -> &Word {
        &self.words[2 * usize::from(doorbell.qid) + doorbell.kind as usize]
    }
}

/// When a handle was given out: the epoch in the upper half, the generation in the lower. Packed, so that a ring
/// compares and stores it as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

impl Mark {
    fn new(epoch: u32, generation: u32) -> Self {
        Self(u64::from(epoch) << 32 | u64::from(generation))
    }

    /// Resets before it.
    #[inline]
    fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Revocations before it.
    fn generation(self) -> u32 {
        self.0 as u32
    }
}

/// Why a ring was not heard.
pub(super) enum Refusal {
    /// The handle had been revoked: it leads nowhere, as was wanted.
    Revoked,
    /// A driver must not ring so.
    Violation(Violation),
}

/// A handle to one doorbell, for one enable epoch.
pub(super) struct DoorbellHandle {
    board: Arc<Board>,
    doorbell: DoorbellId,
    mark: Mark,
}

impl DoorbellHandle {
    pub(super) fn new(board: Arc<Board>, doorbell: DoorbellId) -> Self {
        let mark = board.doorbells.mark();
        Self { board, doorbell, mark }
    }
}

impl Doorbell for DoorbellHandle {
    #[inline]
    fn ring(&self, value: u16) {
        if let Err(refusal) = self.board.doorbells.ring(self.doorbell, value.into(), self.mark) {
            self.board.refuse(refusal);
        }
    }
}
