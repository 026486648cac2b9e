//! One submission queue, one completion queue, and the commands between them.

use std::sync::Arc;

use thiserror::Error;

use super::ReachEnded;
use super::limits::{ControllerLimits, PointerError};
use super::prp::{self, DataPointer, Extent, ListPages, PrpError};
use super::ring::{CQE, CompletionRing, SQE, SubmissionRing};
use super::sgl::{self, SglSupport};
use super::shadow::DoorbellBuffers;
use super::slots::{Cid, Slots, Stray};
use crate::bus::{BusError, Doorbell, Function};
use crate::dma::{Access, HostMemory, HostMemoryError, Iova, Region, RegisterError};
use crate::spec::command::{Psdt, Sqe};
use crate::spec::registers::{Cap, DoorbellKind, doorbell_offset};
use crate::spec::status::Status;

/// Why a queue pair was not made.
#[derive(Debug, Error)]
pub enum QueuePairError {
    /// The caller asked for a size that the controller does not have.
    #[error("a queue of {entries} entries cannot be had: 2 to {max} are possible")]
    Entries {
        /// Entries asked for.
        entries: u32,
        /// Entries of the largest queue.
        max: u32,
    },
    /// The host has no memory for the queues.
    #[error("no memory for a queue pair: {0}")]
    Memory(#[from] HostMemoryError),
    /// The queues' memory could not be mapped.
    #[error("memory of a queue pair: {0}")]
    Register(#[from] RegisterError),
    /// The function has no such doorbell.
    #[error("queue pair {qid}: {source}")]
    Doorbell {
        /// The queues' identifier.
        qid: u16,
        /// The bus's reason.
        source: BusError,
    },
}

/// Why a command was not written. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// Every slot holds a command in flight.
    #[error("all {slots} slots hold commands in flight: poll, then submit again")]
    NoSlot {
        /// Slots of the pair.
        slots: usize,
    },
    /// The memory can be named by PRPs as little as by an SGL.
    #[error(transparent)]
    Pointer(#[from] PointerError),
}

/// The end of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion<T> {
    /// What [`QueuePair::submit`] was given.
    pub token: T,
    /// What the controller says of it.
    pub status: Status,
    /// Command-specific result.
    pub dw0: u32,
}

/// What a pair has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PairCounters {
    /// Commands written to the submission queue.
    pub commands: u64,
    /// Commands whose completion was taken.
    pub completions: u64,
    /// Doorbell writes of both queues; those that only a shadow was written for are not among them.
    pub doorbells: u64,
}

/// Completions that a sound device would not have sent. Each was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anomalies {
    /// The CID's index is no slot's.
    pub out_of_range_cid: u64,
    /// No command with this CID is in flight: a duplicate, or one that was never issued.
    pub unknown_cid: u64,
    /// The CID is of a former command of a slot that is in use again.
    pub stale_cid: u64,
    /// The submission queue identifier is not this pair's: queues count their CIDs alike, and the command that ended is
    /// another queue's.
    pub wrong_sqid: u64,
    /// The head pointer lies outside the submission queue; the completion itself was taken.
    pub bad_sqhd: u64,
}

impl Anomalies {
    /// How many there were in all.
    pub fn total(&self) -> u64 {
        self.out_of_range_cid + self.unknown_cid + self.stale_cid + self.wrong_sqid + self.bad_sqhd
    }
}

/// A submission queue and its completion queue, used by one lane.
///
/// `T` is what the lane wants to have back with a completion. The pair is `Send`, and used by `&mut`.
///
/// Dropping a pair takes its memory out of the device's reach, whatever the device does then (see [`Region`]); it
/// does not delete the queues in the controller.
pub struct QueuePair<T> {
    // Hot: every command touches these.
    slots: Slots<T>,
    submission: SubmissionRing,
    completion: CompletionRing,
    memory: Region<HostMemory>,
    page_size: u64,
    lists_offset: usize,
    list_bytes: usize,
    counters: PairCounters,
    /// The owner's clock; see [`set_now`](QueuePair::set_now).
    now: u32,
    // Cold.
    sgl: Option<SglSupport>,
    max_transfer: u64,
    anomalies: Anomalies,
    qid: u16,
    entries: u16,
    completion_offset: u64,
    /// The interrupt vector of the completion queue, where it has one.
    vector: Option<u16>,
}

impl<T: Copy + Default> QueuePair<T> {
    /// Allocates queue `qid` of `entries` for a controller with these capabilities and limits. Does not make it known
    /// to the controller.
    ///
    /// # Errors
    /// [`QueuePairError`]; nothing is held then.
    pub fn new(
        function: &Arc<dyn Function>,
        cap: Cap,
        limits: &ControllerLimits,
        qid: u16,
        entries: u32,
    ) -> Result<Self, QueuePairError> {
        let max = limits.max_queue_entries;
        let wrong = QueuePairError::Entries { entries, max };
        if !(2..=max).contains(&entries) {
            return Err(wrong);
        }
        let Ok(entries) = u16::try_from(entries) else {
            return Err(wrong);
        };

        // The rings, then the lists, each on pages of the controller's own size. The whole is a multiple of that
        // page, and so is the IOVA (see DmaSpace::register).
        let page = limits.page_size as usize;
        let slots = entries - 1;
        let submission_bytes = (usize::from(entries) * SQE).next_multiple_of(page);
        let completion_bytes = (usize::from(entries) * CQE).next_multiple_of(page);
        let list_bytes = limits.list_pages as usize * page;
        let lists_offset = submission_bytes + completion_bytes;
        let len = lists_offset + usize::from(slots) * list_bytes;
        let memory = HostMemory::allocate(len.next_multiple_of(page))?;
        let memory = function.dma().register(memory, Access::all())?;

        let [submission, completion] = doorbells(function, cap, qid)?;
        Ok(Self {
            slots: Slots::new(slots),
            submission: SubmissionRing::new(0, entries, submission),
            completion: CompletionRing::new(submission_bytes, entries, completion),
            memory,
            page_size: limits.page_size,
            lists_offset,
            list_bytes,
            counters: PairCounters::default(),
            now: 0,
            sgl: limits.sgl,
            max_transfer: limits.max_transfer,
            anomalies: Anomalies::default(),
            qid,
            entries,
            completion_offset: submission_bytes as u64,
            vector: None,
        })
    }

    /// The identifier of both queues.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// Entries of each queue.
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Where the submission queue lies.
    pub fn submission_queue(&self) -> Iova {
        self.memory.iova()
    }

    /// Where the completion queue lies.
    pub fn completion_queue(&self) -> Iova {
        self.memory.iova_at(self.completion_offset).unwrap_or(self.memory.iova())
    }

    /// The interrupt vector that the controller is told for the completion queue; without one it does not interrupt.
    pub fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// Gives the completion queue an interrupt vector. Before the controller knows the queue.
    pub(crate) fn set_vector(&mut self, vector: u16) {
        self.vector = Some(vector);
    }

    /// How many commands can be in flight.
    pub fn slots(&self) -> usize {
        self.slots.count()
    }

    /// How many more commands can be submitted now.
    #[inline]
    pub fn free_slots(&self) -> usize {
        self.slots.free_count()
    }

    /// What the pair has done.
    pub fn counters(&self) -> PairCounters {
        self.counters
    }

    /// What the device has sent that belongs to no command.
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// Writes a command into the submission queue, with its CID and, unless `extents` is empty, its data pointer: PRPs
    /// where they can name the memory, else an SGL where the controller has SGLs. Does not ring the doorbell.
    ///
    /// The memory named by `extents` belongs to the device until the completion that carries `token`.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was written to the queue then.
    // Always: the SQE is written in place then, and not first into memory of the caller's.
    #[inline(always)]
    pub fn submit(&mut self, mut sqe: Sqe, extents: &[Extent], token: T) -> Result<Cid, SubmitError> {
        let Some(slot) = self.slots.peek() else {
            return Err(SubmitError::NoSlot { slots: self.slots.count() });
        };
        if !extents.is_empty() {
            let pointer = match prp::build(extents, self.page_size, || self.list_of(slot)) {
                Ok(pointer) => pointer,
                Err(error) => {
                    // MPTR, where there is one, addresses one contiguous buffer either way.
                    sqe = sqe.with_psdt(Psdt::SGL_MPTR_BUFFER);
                    self.scatter(extents, slot, error)?
                }
            };
            sqe.prp1 = pointer.prp1;
            sqe.prp2 = pointer.prp2;
        }
        let Some(cid) = self.slots.take(token, self.now) else {
            return Err(SubmitError::NoSlot { slots: self.slots.count() });
        };
        sqe.cid = cid;
        self.submission.push(self.memory.view(), sqe);
        self.counters.commands += 1;
        Ok(cid)
    }

    /// Tells the device of the commands submitted since the last time: one doorbell, or none.
    #[inline]
    pub fn ring(&mut self) {
        self.counters.doorbells += u64::from(self.submission.ring(self.memory.view()));
    }

    /// Takes up to `most` completions and gives each to `complete`, then tells the device of the freed places: one
    /// doorbell, or none. Returns how many commands ended.
    #[inline]
    pub fn poll(&mut self, most: usize, complete: impl FnMut(Completion<T>)) -> usize {
        let mut completions = self.completions(most);
        completions.by_ref().for_each(complete);
        completions.ended()
    }

    /// Up to `most` completions, one after the other; the device is told of the freed places when they are dropped.
    #[inline]
    pub fn completions(&mut self, most: usize) -> Completions<'_, T> {
        Completions { pair: self, left: most, ended: 0 }
    }

    /// Sets the clock by which commands are timed, in ticks of the owner's choice that may wrap.
    #[inline]
    pub fn set_now(&mut self, now: u32) {
        self.now = now;
    }

    /// A command that was issued more than `limit` ticks ago and whose abort has not been asked for.
    pub fn overdue(&self, limit: u32) -> Option<Cid> {
        self.slots.overdue(self.now, limit, false)
    }

    /// A command whose abort was asked for more than `limit` ticks ago, and that has not ended.
    pub fn past_abort(&self, limit: u32) -> Option<Cid> {
        self.slots.overdue(self.now, limit, true)
    }

    /// Notes that the controller was asked to abort a command.
    pub fn note_abort(&mut self, cid: Cid) {
        self.slots.note_abort(cid, self.now);
    }

    /// Has the end of a command told to nobody: whoever submitted it on a pair that was lent has given up waiting. Its
    /// slot and its list pages stay in quarantine until it ends, as those of any other.
    pub(crate) fn disown(&mut self, cid: Cid) {
        self.slots.disown(cid);
    }

    /// Ends every command in flight without a completion, and gives each one's token. A slot and its memory are in
    /// quarantine until then: only the end of the controller's reach lets go of them (invariant 2).
    pub fn interrupt(&mut self, _ended: &ReachEnded, interrupted: impl FnMut(T)) {
        self.slots.end_all(interrupted);
    }

    /// Makes the queues new again, for a controller that was enabled anew and does not know them yet: both rings empty
    /// and zeroed, with doorbell handles of the new life. Commands in flight must have been
    /// [interrupted](Self::interrupt).
    pub(crate) fn renew(&mut self, function: &Arc<dyn Function>, cap: Cap) -> Result<(), QueuePairError> {
        debug_assert_eq!(self.slots.free_count(), self.slots.count());
        let [submission, completion] = doorbells(function, cap, self.qid)?;
        self.memory.view().slice(0, self.lists_offset).fill(0);
        self.submission.renew(submission);
        self.completion.renew(completion);
        Ok(())
    }

    /// Has both doorbells shadowed in `buffers`. The controller knows the buffers, and the queues not yet.
    pub(crate) fn cast_shadows(&mut self, buffers: &Arc<DoorbellBuffers>) {
        self.submission.cast_shadow(buffers.words(self.qid, DoorbellKind::SubmissionTail));
        self.completion.cast_shadow(buffers.words(self.qid, DoorbellKind::CompletionHead));
    }

    /// Notes that the controller has deleted both queues: the IOVAs of their memory are free as soon as it is dropped.
    pub(crate) fn set_deleted(&mut self) {
        self.memory.set_quiet();
    }

    /// The SGL of memory that has no PRPs, for the reason `prp`, as the two words that stand where PRPs would.
    #[cold]
    fn scatter(&self, extents: &[Extent], slot: u16, prp: PrpError) -> Result<DataPointer, PointerError> {
        let support = self.sgl.ok_or(PointerError::Prp(prp))?;
        let list = self.list_of(slot);
        let descriptor = sgl::build(extents, support, self.max_transfer, self.page_size, list)?;
        let [prp1, prp2] = descriptor.words();
        Ok(DataPointer { prp1, prp2 })
    }

    #[cold]
    fn count(&mut self, stray: Stray) {
        match stray {
            Stray::OutOfRange => self.anomalies.out_of_range_cid += 1,
            Stray::NotInFlight => self.anomalies.unknown_cid += 1,
            Stray::Stale => self.anomalies.stale_cid += 1,
            Stray::Disowned => self.counters.completions += 1,
        }
    }

    /// The list pages of a slot.
    #[inline]
    fn list_of(&self, slot: u16) -> ListPages<'_> {
        let offset = self.lists_offset + usize::from(slot) * self.list_bytes;
        ListPages {
            view: self.memory.view().slice(offset, self.list_bytes),
            // The offset lies inside the region unless a slot has no list pages; then nothing is written there.
            iova: self.memory.iova_at(offset as u64).unwrap_or(self.memory.iova()),
        }
    }
}

/// The completions that [`QueuePair::completions`] takes.
pub struct Completions<'a, T: Copy + Default> {
    pair: &'a mut QueuePair<T>,
    /// Entries of the queue that may still be taken: bounded, whatever a device goes on writing.
    left: usize,
    /// Commands that have ended.
    ended: usize,
}

impl<T: Copy + Default> Completions<'_, T> {
    /// How many commands have ended so far.
    #[inline]
    pub fn ended(&self) -> usize {
        self.ended
    }
}

impl<T: Copy + Default> Iterator for Completions<'_, T> {
    type Item = Completion<T>;

    // Always: the completion would go through memory.
    #[inline(always)]
    fn next(&mut self) -> Option<Completion<T>> {
        let pair = &mut *self.pair;
        while self.left != 0 {
            let cqe = pair.completion.pop(pair.memory.view())?;
            self.left -= 1;
            if cqe.sqid != pair.qid {
                pair.anomalies.wrong_sqid += 1;
                continue;
            }
            if !pair.submission.holds(cqe.sqhd) {
                pair.anomalies.bad_sqhd += 1;
            }
            match pair.slots.complete(cqe.cid) {
                Ok(token) => {
                    self.ended += 1;
                    return Some(Completion { token, status: cqe.status.status(), dw0: cqe.dw0 });
                }
                Err(stray) => pair.count(stray),
            }
        }
        None
    }
}

impl<T: Copy + Default> Drop for Completions<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let pair = &mut *self.pair;
        pair.counters.completions += self.ended as u64;
        pair.counters.doorbells += u64::from(pair.completion.ring(pair.memory.view()));
    }
}

/// Handles to the doorbells of a pair: the submission queue's tail, the completion queue's head.
fn doorbells(function: &Arc<dyn Function>, cap: Cap, qid: u16) -> Result<[Box<dyn Doorbell>; 2], QueuePairError> {
    let doorbell = |kind| {
        let offset = doorbell_offset(cap.dstrd(), qid, kind);
        function.doorbell(offset).map_err(|source| QueuePairError::Doorbell { qid, source })
    };
    Ok([doorbell(DoorbellKind::SubmissionTail)?, doorbell(DoorbellKind::CompletionHead)?])
}

#[cfg(test)]
mod tests;
