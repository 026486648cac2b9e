//! Memory that is being unregistered: how ports say which tasks use it still, and give up those that need not.
//!
//! Whoever unregisters it has taken it out of what requests can name, and has waited for the submits in progress: from then
//! on no task more names it. Each port is asked once. It looks through the batches that it has, and answers with those that
//! have such tasks; on the way of a request nothing is counted for that. The state of each task then says when hardware is
//! done with it (invariant 7).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tentpeg_driver::dma::IovaRange;

use super::port::{Active, Port};
use crate::batch::{Ends, Shared};
use crate::device::lock;
use crate::lanes::LaneSet;
use crate::memory::Memory;
use crate::staging::Staging;
use crate::task::{Task, Work};

/// A batch with tasks that name the memory.
struct Pending {
    batch: Arc<Shared>,
    /// The first task that is not known to have nothing to do with it any more, and where the tasks end.
    next: u32,
    tail: u32,
}

/// What ports are asked of some memory.
pub(crate) struct Withdrawal {
    /// `None`: no device reaches it.
    iovas: Option<IovaRange>,
    /// The first address, and the length.
    addresses: (u64, u64),
    /// Whether tasks of which no command was issued are given up.
    gives_up: bool,
    pending: Mutex<Vec<Pending>>,
    /// Ports that have not answered.
    unanswered: AtomicUsize,
}

impl Withdrawal {
    /// A question to so many ports.
    pub(crate) fn new(memory: &Memory, gives_up: bool, ports: usize) -> Arc<Self> {
        Arc::new(Self {
            iovas: memory.iovas(),
            addresses: (memory.address(), memory.len() as u64),
            gives_up,
            pending: Mutex::default(),
            unanswered: AtomicUsize::new(ports),
        })
    }

    /// Whether every port has answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.load(Ordering::Acquire) == 0
    }

    /// Tasks that name the memory and have not ended, by the answers so far.
    pub(crate) fn tasks(&self) -> usize {
        let uses =
            |pending: &Pending| (pending.next..pending.tail).filter(|index| self.uses(&pending.batch, *index)).count();
        lock(&self.pending).iter().map(uses).sum()
    }

    /// Whether every task that names the memory has ended, by the answers so far.
    pub(crate) fn is_over(&self) -> bool {
        let mut pending = lock(&self.pending);
        pending.retain_mut(|Pending { batch, next, tail }| {
            *next = (*next..*tail).find(|index| self.uses(batch, *index)).unwrap_or(*tail);
            next < tail
        });
        pending.is_empty()
    }

    fn uses(&self, batch: &Shared, index: u32) -> bool {
        batch.task(index).is_some_and(|task| self.is_named_by(task) && !task.state().0.is_terminal())
    }

    /// Whether a task names the memory: admission has seen to it that what it names is in one region.
    fn is_named_by(&self, task: &Task) -> bool {
        let iova = match task.work() {
            Work::Transfer(transfer) => transfer.iova.get(),
            Work::Spread(spread) if spread.head.operation().is_staged() => {
                let (address, len) = self.addresses;
                return spread.memory.wrapping_sub(address) < len;
            }
            // 0, where there is none, is no IOVA.
            Work::Spread(spread) => spread.memory,
            Work::Nothing => return false,
        };
        self.iovas.is_some_and(|iovas| iova.wrapping_sub(iovas.start().get()) < iovas.len())
    }

    /// One port's answer.
    fn answer(&self, found: impl IntoIterator<Item = Pending>) {
        let mut pending = lock(&self.pending);
        for found in found {
            // Of a batch that several ports have each finds the tasks of all.
            match pending.iter_mut().find(|known| Arc::ptr_eq(&known.batch, &found.batch)) {
                Some(known) => (known.next, known.tail) = (known.next.min(found.next), known.tail.max(found.tail)),
                None => pending.push(found),
            }
        }
        self.unanswered.fetch_sub(1, Ordering::Release);
    }
}

/// The questions to one port.
#[derive(Default)]
pub(crate) struct Inquiries {
    /// Whether there is one.
    asked: AtomicBool,
    /// `None`: the port is no more, and has ended all its tasks.
    questions: Mutex<Option<Vec<Arc<Withdrawal>>>>,
}

impl Inquiries {
    /// For a port that is about to be.
    pub(crate) fn open() -> Arc<Self> {
        Arc::new(Self { asked: AtomicBool::new(false), questions: Mutex::new(Some(Vec::new())) })
    }

    /// Asks the port.
    pub(crate) fn ask(&self, question: &Arc<Withdrawal>) {
        match &mut *lock(&self.questions) {
            Some(questions) => {
                questions.push(Arc::clone(question));
                self.asked.store(true, Ordering::Release);
            }
            None => question.answer(None),
        }
    }

    /// Whether the port was asked.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn take(&self) -> Vec<Arc<Withdrawal>> {
        let mut questions = lock(&self.questions);
        self.asked.store(false, Ordering::Relaxed);
        questions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// By a port that is no more, and has ended all its tasks.
    pub(super) fn close(&self) {
        let questions = lock(&self.questions).take();
        questions.iter().flatten().for_each(|question| question.answer(None));
    }
}

impl Port {
    /// Answers what it is asked.
    #[cold]
    pub(super) fn answer_inquiries(&mut self) {
        let questions = self.inquiries.take();
        // After the questions are seen: what was submitted before one of them is in the inbox at least.
        self.take_in();
        let Self { active, staging, ground, .. } = self;
        for question in questions {
            let look = |(place, active)| look_through(active, place, ground.lane, &question, staging);
            let found: Vec<_> = (0..)
                .zip(&*active)
                .filter_map(|(place, active)| Some((place, active.as_ref()?)))
                .filter_map(look)
                .collect();
            question.answer(found);
        }
    }
}

/// Looks through a batch for tasks that name the memory, and gives up those of which it may and can: no other lane has to do
/// with them.
fn look_through(
    active: &Active,
    place: u32,
    lane: u8,
    question: &Withdrawal,
    staging: &mut Staging,
) -> Option<Pending> {
    let Active { batch, cursor, .. } = active;
    let (tail, mut tasks, mut ends) = (batch.tail(), batch.walk(), Ends::default());
    let mut first = None;
    for index in 0..tail {
        let Some(task) = tasks.get(index) else { break };
        if task.state().0.is_terminal() || !question.is_named_by(task) {
            continue;
        }
        let unplanned = index > cursor.task || index == cursor.task && cursor.planned == 0;
        if question.gives_up && unplanned && task.work().lanes() == LaneSet::one(lane) {
            ends.add(task.withdraw());
            if index == cursor.task {
                // It may have waited for a staging buffer.
                staging.leave_line(batch.priority(), place);
            }
        } else {
            first.get_or_insert(index);
        }
    }
    batch.count_ended(lane, ends);
    first.map(|next| Pending { batch: Arc::clone(batch), next, tail })
}

#[cfg(test)]
mod tests {
    use tentpeg_driver::dma::Iova;

    use super::*;
    use crate::OpCode;
    use crate::segment::Durability;
    use crate::task::{Head, Operation, Spread, Transfer};

    /// Of memory of a page whose address is one thing and whose IOVA is another.
    fn question(iovas: Option<IovaRange>) -> Withdrawal {
        let (pending, unanswered) = (Mutex::default(), AtomicUsize::new(1));
        Withdrawal { iovas, addresses: (0x9000, 0x1000), gives_up: false, pending, unanswered }
    }

    fn transfer(memory: u64) -> Work {
        let head = Head::transfer(OpCode::Read, Durability::None, 0, 0);
        Work::Transfer(Transfer { head, slba: 0, iova: Iova::new(memory).unwrap(), length: 16 })
    }

    fn spread(operation: Operation, memory: u64) -> Work {
        let head = Head::spread(operation, Durability::None, 0);
        Work::Spread(Spread { head, lanes: LaneSet::one(0), offset: 0, memory, length: 16 })
    }

    #[test]
    fn a_task_names_memory_by_its_iova_or_where_it_is_staged_by_its_address() {
        use Operation::{Flush, Read, StagedRead, StagedWrite, Write};
        let question = question(IovaRange::new(Iova::new(0x2_0000).unwrap(), 0x1000));
        let is_named = |work: Work| {
            let task = Task::default();
            task.prepare(work);
            question.is_named_by(&task)
        };
        for (memory, by_iova, by_address) in [
            (0x1_FFFF, false, false),
            (0x2_0000, true, false),
            (0x2_0FFF, true, false),
            (0x2_1000, false, false),
            (0x8FFF, false, false),
            (0x9000, false, true),
            (0x9FFF, false, true),
            (0xA000, false, false),
        ] {
            assert_eq!(is_named(transfer(memory)), by_iova, "{memory:#x}");
            assert_eq!([Read, Write].map(|operation| is_named(spread(operation, memory))), [by_iova; 2]);
            let staged = [StagedRead, StagedWrite].map(|operation| is_named(spread(operation, memory)));
            assert_eq!(staged, [by_address; 2], "{memory:#x}");
        }
        assert!(!is_named(spread(Flush, 0)) && !is_named(Work::Nothing));
    }

    #[test]
    fn what_no_device_reaches_has_no_iova_that_a_task_could_name() {
        let task = Task::default();
        for work in [transfer(0x9000), spread(Operation::Read, 0x9000), spread(Operation::Flush, 0)] {
            task.prepare(work);
            assert!(!question(None).is_named_by(&task));
        }
        task.prepare(spread(Operation::StagedRead, 0x9000));
        assert!(question(None).is_named_by(&task));
    }

    #[test]
    fn a_port_is_asked_until_it_has_taken_the_question() {
        let (inquiries, question) = (Inquiries::open(), Arc::new(question(None)));
        assert!(!inquiries.is_asked());
        inquiries.ask(&question);
        assert!(inquiries.is_asked() && !question.is_answered());
        assert_eq!(inquiries.take().len(), 1);
        assert!(!inquiries.is_asked());
        inquiries.close();
        inquiries.ask(&question);
        assert!(question.is_answered(), "a port that is no more has no such task");
    }
}
