//! Submission and completion queues as the controller keeps them (NVM Express Base 2.1, 3.3).
//!
//! Entries are reached by IOVA through the IOMMU, one at a time; positions come from doorbells and are checked.

use super::doorbells::Doorbells;
use super::interrupts::Vectors;
use super::iommu::{Fault, Hint, Reach};
use super::shadow::ShadowDoorbells;
use super::violation::{DoorbellId, Violation};
use crate::spec::command::Sqe;
use crate::spec::completion::{Cqe, StatusField};
use crate::spec::registers::DoorbellKind;
use crate::spec::status::Status;

/// Bytes of an SQE and of a CQE.
const SQE_BYTES: u64 = size_of::<Sqe>() as u64;
const CQE_BYTES: u64 = size_of::<Cqe>() as u64;

/// A submission queue.
pub(super) struct SubmissionQueue {
    pub(super) qid: u16,
    /// Where its commands complete.
    pub(super) cqid: u16,
    base: u64,
    size: u32,
    head: u32,
    /// As last seen; a tail that cannot be is not taken.
    tail: u32,
    /// CIDs of entries that wait here and are to be aborted instead of executed.
    condemned: Vec<u16>,
    hint: Hint,
}

impl SubmissionQueue {
    pub(super) fn new(qid: u16, cqid: u16, base: u64, size: u32) -> Self {
        Self { qid, cqid, base, size, head: 0, tail: 0, condemned: Vec::new(), hint: Hint::default() }
    }

    pub(super) fn doorbell(&self) -> DoorbellId {
        DoorbellId { qid: self.qid, kind: DoorbellKind::SubmissionTail }
    }

    /// Takes the tail from the doorbell. Whether there are entries to be fetched.
    #[inline]
    pub(super) fn update(&mut self, doorbells: &Doorbells, epoch: u32) -> Result<bool, Violation> {
        if let Some(tail) = doorbells.value(self.doorbell(), epoch)
            && tail != self.tail
        {
            let (new, held) = (distance(self.tail, tail, self.size), distance(self.head, self.tail, self.size));
            self.tail = tail;
            if new + held >= self.size {
                return Err(Violation::SubmissionQueueOverrun { qid: self.qid, head: self.head, tail });
            }
        }
        Ok(self.head != self.tail)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// A fault: an SQHD that lies outside the queue; its head where every number lies in it.
    pub(super) fn bad_head(&self, random: u64) -> u16 {
        match 0x1_0000 - self.size {
            0 => self.head(),
            outside => (self.size + (random % u64::from(outside)) as u32) as u16,
        }
    }

    /// The head: entries before it have been fetched.
    #[inline]
    pub(super) fn head(&self) -> u16 {
        self.head as u16
    }

    /// Fetches the entry at the head into `sqe`. The caller has seen that there is one.
    #[inline]
    pub(super) fn fetch(&mut self, reach: &Reach<'_>, sqe: &mut Sqe) -> Result<(), Fault> {
        let address = self.base.wrapping_add(u64::from(self.head) * SQE_BYTES);
        let bytes: &mut [u8; SQE_BYTES as usize] = zerocopy::transmute_mut!(sqe);
        reach.read(address, bytes, &mut self.hint)?;
        self.head = next(self.head, self.size);
        Ok(())
    }

    /// Looks for an entry with `cid` among those that have not been fetched, which is then to be aborted.
    #[cold]
    fn condemn(&mut self, reach: &Reach<'_>, cid: u16) -> bool {
        let mut at = self.head;
        while at != self.tail && !self.condemned.contains(&cid) {
            let mut sqe = Sqe::ZERO;
            let bytes: &mut [u8; SQE_BYTES as usize] = zerocopy::transmute_mut!(&mut sqe);
            let address = self.base.wrapping_add(u64::from(at) * SQE_BYTES);
            // What cannot be read is told when it is fetched.
            if reach.read(address, bytes, &mut self.hint).is_ok() && sqe.cid == cid {
                self.condemned.push(cid);
                return true;
            }
            at = next(at, self.size);
        }
        false
    }

    /// Whether some entry is to be aborted.
    #[inline]
    pub(super) fn has_condemned(&self) -> bool {
        !self.condemned.is_empty()
    }

    /// Whether the entry that was fetched last, with `cid`, is to be aborted.
    #[cold]
    pub(super) fn take_condemned(&mut self, cid: u16) -> bool {
        let before = self.condemned.len();
        self.condemned.retain(|other| *other != cid);
        self.condemned.len() < before
    }
}

/// A completion queue.
pub(super) struct CompletionQueue {
    pub(super) qid: u16,
    /// Submission queues that complete here.
    pub(super) users: u32,
    base: u64,
    size: u32,
    /// As last seen: entries before it have been taken by the host.
    head: u32,
    tail: u32,
    phase: bool,
    hint: Hint,
    /// What it interrupts by, if it does.
    vector: Option<u16>,
    /// Whether entries have been posted since it last interrupted.
    posted: bool,
}

impl CompletionQueue {
    pub(super) fn new(qid: u16, base: u64, size: u32) -> Self {
        let (vector, posted) = (None, false);
        Self { qid, users: 0, base, size, head: 0, tail: 0, phase: true, hint: Hint::default(), vector, posted }
    }

    /// The queue interrupts from now on.
    pub(super) fn set_vector(&mut self, vector: u16) {
        self.vector = Some(vector);
    }

    pub(super) fn doorbell(&self) -> DoorbellId {
        DoorbellId { qid: self.qid, kind: DoorbellKind::CompletionHead }
    }

    /// Whether an entry can be posted, by the head as the doorbell has it.
    #[inline]
    pub(super) fn has_room(&mut self, doorbells: &Doorbells, epoch: u32) -> Result<bool, Violation> {
        if let Some(head) = doorbells.value(self.doorbell(), epoch)
            && head != self.head
        {
            if distance(self.head, head, self.size) > distance(self.head, self.tail, self.size) {
                let (qid, tail) = (self.qid, self.tail);
                self.head = head;
                return Err(Violation::CompletionQueueOverrun { qid, head, tail });
            }
            self.head = head;
        }
        Ok(next(self.tail, self.size) != self.head)
    }

    /// How many entries can be posted, by the head as it was last seen.
    pub(super) fn room(&self) -> usize {
        (self.size - 1 - distance(self.head, self.tail, self.size)) as usize
    }

    /// Posts an entry. The caller has seen that there is room.
    #[inline]
    pub(super) fn post(
        &mut self,
        reach: &Reach<'_>,
        dw0: u32,
        (sqid, sqhd, cid): (u16, u16, u16),
        status: Status,
    ) -> Result<(), Fault> {
        let cqe = Cqe { dw0, dw1: 0, sqhd, sqid, cid, status: StatusField::new(self.phase, status) };
        let address = self.base.wrapping_add(u64::from(self.tail) * CQE_BYTES);
        reach.publish(address, zerocopy::transmute!(cqe), &mut self.hint)?;
        self.advance();
        Ok(())
    }

    /// A fault: posts an entry with the phase tag of the former round. Returns where, and what belongs there.
    pub(super) fn post_hidden(
        &mut self,
        reach: &Reach<'_>,
        dw0: u32,
        (sqid, sqhd, cid): (u16, u16, u16),
        status: Status,
    ) -> Result<(u64, [u32; 4]), Fault> {
        let right = Cqe { dw0, dw1: 0, sqhd, sqid, cid, status: StatusField::new(self.phase, status) };
        let hidden = Cqe { status: StatusField::new(!self.phase, status), ..right };
        let address = self.base.wrapping_add(u64::from(self.tail) * CQE_BYTES);
        reach.publish(address, zerocopy::transmute!(hidden), &mut self.hint)?;
        self.advance();
        Ok((address, zerocopy::transmute!(right)))
    }

    #[inline]
    fn advance(&mut self) {
        self.posted = true;
        self.tail = next(self.tail, self.size);
        if self.tail == 0 {
            self.phase = !self.phase;
        }
    }
}

#[inline]
fn next(index: u32, size: u32) -> u32 {
    if index + 1 == size { 0 } else { index + 1 }
}

/// Steps from `from` to `to` round a queue of `size` entries. Both are below `size`.
#[inline]
fn distance(from: u32, to: u32, size: u32) -> u32 {
    if to >= from { to - from } else { to + size - from }
}

/// All queues of a controller, by identifier; 0 is the admin queues.
pub(super) struct Queues {
    submission: Vec<Option<SubmissionQueue>>,
    completion: Vec<Option<CompletionQueue>>,
    /// I/O submission queues in the order in which they are served.
    active: Vec<u16>,
    /// Where the next turn begins: round robin over turns.
    first: usize,
    /// Whether an I/O queue has been created since the controller was enabled.
    pub(super) created: bool,
    /// Whether one of the completion queues may interrupt.
    interrupts: bool,
    /// Where the doorbells of I/O queues have shadows, if they do.
    pub(super) shadow: Option<ShadowDoorbells>,
}

impl Queues {
    /// Room for `queues` I/O queue pairs and the admin queues.
    pub(super) fn new(queues: u16) -> Self {
        let room = usize::from(queues) + 1;
        Self {
            submission: (0..room).map(|_| None).collect(),
            completion: (0..room).map(|_| None).collect(),
            active: Vec::new(),
            first: 0,
            created: false,
            interrupts: false,
            shadow: None,
        }
    }

    pub(super) fn submission(&self, qid: u16) -> Option<&SubmissionQueue> {
        self.submission.get(usize::from(qid))?.as_ref()
    }

    pub(super) fn completion(&self, qid: u16) -> Option<&CompletionQueue> {
        self.completion.get(usize::from(qid))?.as_ref()
    }

    /// A submission queue and where it completes.
    #[inline]
    pub(super) fn pair(&mut self, qid: u16) -> Option<(&mut SubmissionQueue, &mut CompletionQueue)> {
        let submission = self.submission.get_mut(usize::from(qid))?.as_mut()?;
        let completion = self.completion.get_mut(usize::from(submission.cqid))?.as_mut()?;
        Some((submission, completion))
    }

    /// Has entry `cid` of queue `sqid` aborted instead of executed, if it has not been fetched yet. Whether it was found.
    pub(super) fn condemn(&mut self, reach: &Reach<'_>, sqid: u16, cid: u16) -> bool {
        let queue = self.submission.get_mut(usize::from(sqid)).and_then(Option::as_mut);
        queue.is_some_and(|queue| queue.condemn(reach, cid))
    }

    /// Adds a completion queue under an identifier that is in range and free, and sets its doorbell to 0.
    pub(super) fn add_completion(&mut self, queue: CompletionQueue, doorbells: &Doorbells) {
        doorbells.open(queue.doorbell(), queue.size);
        if let Some(shadow) = &mut self.shadow {
            shadow.add(queue.doorbell(), doorbells);
        }
        self.created |= queue.qid != 0;
        self.interrupts |= queue.vector.is_some();
        let qid = usize::from(queue.qid);
        self.completion[qid] = Some(queue);
    }

    /// Adds a submission queue under an identifier that is in range and free, for a completion queue that exists,
    /// and sets its doorbell to 0.
    pub(super) fn add_submission(&mut self, queue: SubmissionQueue, doorbells: &Doorbells) {
        doorbells.open(queue.doorbell(), queue.size);
        if let Some(shadow) = &mut self.shadow {
            shadow.add(queue.doorbell(), doorbells);
        }
        if let Some(completion) = &mut self.completion[usize::from(queue.cqid)] {
            completion.users += 1;
        }
        let qid = queue.qid;
        if qid != 0 {
            self.created = true;
            self.active.push(qid);
        }
        self.submission[usize::from(qid)] = Some(queue);
    }

    /// Removes a submission queue; what it still holds is never fetched.
    pub(super) fn remove_submission(&mut self, qid: u16, doorbells: &Doorbells) {
        if let Some(queue) = self.submission[usize::from(qid)].take() {
            doorbells.close(queue.doorbell());
            if let Some(shadow) = &mut self.shadow {
                shadow.remove(queue.doorbell());
            }
            self.active.retain(|other| *other != qid);
            if let Some(completion) = &mut self.completion[usize::from(queue.cqid)] {
                completion.users -= 1;
            }
        }
    }

    /// Removes a completion queue.
    pub(super) fn remove_completion(&mut self, qid: u16, doorbells: &Doorbells) {
        if let Some(queue) = self.completion[usize::from(qid)].take() {
            doorbells.close(queue.doorbell());
            if let Some(shadow) = &mut self.shadow {
                shadow.remove(queue.doorbell());
            }
        }
    }

    /// Removes every queue.
    pub(super) fn clear(&mut self, doorbells: &Doorbells) {
        for qid in 0..self.submission.len() as u16 {
            self.remove_submission(qid, doorbells);
            self.remove_completion(qid, doorbells);
        }
        (self.first, self.created, self.interrupts, self.shadow) = (0, false, false, None);
    }

    /// Whether a completion queue may interrupt.
    #[inline]
    pub(super) fn may_interrupt(&self) -> bool {
        self.interrupts
    }

    /// Interrupts by what was posted since the last time.
    pub(super) fn interrupt(&mut self, vectors: &Vectors) {
        for queue in self.completion.iter_mut().flatten() {
            if let Some(vector) = queue.vector
                && std::mem::take(&mut queue.posted)
            {
                vectors.raise(vector);
            }
        }
    }

    /// Gives the doorbells of all I/O queues shadows, which hold what was rung last.
    pub(super) fn cast_shadows(
        &mut self,
        reach: &Reach<'_>,
        doorbells: &Doorbells,
        mut shadow: ShadowDoorbells,
    ) -> Result<(), Fault> {
        let submission = self.submission.iter().flatten().map(SubmissionQueue::doorbell);
        let completion = self.completion.iter().flatten().map(CompletionQueue::doorbell);
        let all: Vec<_> = submission.chain(completion).filter(|doorbell| doorbell.qid != 0).collect();
        for doorbell in &all {
            let rung = doorbells.value(*doorbell, doorbells.epoch());
            shadow.write(reach, *doorbell, rung.unwrap_or(0))?;
        }
        for doorbell in all {
            shadow.add(doorbell, doorbells);
        }
        self.shadow = Some(shadow);
        Ok(())
    }

    /// Takes all queues away as they are: nothing is heard of them any more.
    pub(super) fn take(&mut self, doorbells: &Doorbells) -> Self {
        let taken = std::mem::replace(self, Self::new(self.submission.len() as u16 - 1));
        for queue in taken.submission.iter().flatten() {
            doorbells.close(queue.doorbell());
        }
        for queue in taken.completion.iter().flatten() {
            doorbells.close(queue.doorbell());
        }
        taken
    }

    /// I/O submission queues, and the place in the order where this turn begins. The next begins one further on.
    #[inline]
    pub(super) fn begin_turn(&mut self) -> usize {
        self.first = if self.first + 1 >= self.active.len() { 0 } else { self.first + 1 };
        self.first
    }

    /// The I/O submission queue at `place` in the order, which wraps round.
    #[inline]
    pub(super) fn active(&self, place: usize) -> u16 {
        self.active[place % self.active.len()]
    }

    /// How many I/O submission queues there are.
    #[inline]
    pub(super) fn active_count(&self) -> usize {
        self.active.len()
    }
}
