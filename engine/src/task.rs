//! Tasks: one admitted request each, 64 bytes, in the batch's own memory.
//!
//! A task's request is written by the submitter before the batch's tail is published, and only read afterwards. Its
//! progress belongs to the one lane that plans the batch; the state word is what everybody may read. All of it is
//! atomic so that no `unsafe` is needed: a Relaxed access costs what a plain one does, and the orderings stand where
//! something is published: the batch's tail, and the state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tentpeg_driver::dma::Iova;
use tentpeg_driver::spec::status::Status;

use crate::TransferState;
use crate::admission::Admitted;
use crate::request::OpCode;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Moves bytes.
    Transfer(Admitted),
    /// Makes what was written durable.
    Flush,
    /// Nothing: the request was refused.
    Nothing,
}

const READ: u32 = 1;
const WRITE: u32 = 2;
const FLUSH: u32 = 3;

/// One task. A cache line, so that two lanes never share one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Task {
    slba: AtomicU64,
    iova: AtomicU64,
    length: AtomicU64,
    work: AtomicU32,
    /// Commands in flight for it, and one more while it is not planned to its end. The command that ends its planning
    /// takes that one over, so that a task of one command costs nothing here until it ends.
    open: AtomicU32,
    /// State in bits 0 to 7, the NVMe status that decided it in bits 16 to 30.
    state: AtomicU32,
    /// The first status other than success of its commands.
    failure: AtomicU32,
}

const _: () = assert!(size_of::<Task>() == 64);

impl Task {
    /// Makes it a pending task, or an invalid one where there is nothing to do. By the submitter, before it publishes
    /// the task.
    pub(crate) fn prepare(&self, work: Work) {
        let (kind, state) = match work {
            Work::Transfer(admitted) => {
                self.slba.store(admitted.slba, Ordering::Relaxed);
                self.iova.store(admitted.iova.get(), Ordering::Relaxed);
                self.length.store(admitted.length, Ordering::Relaxed);
                (if admitted.opcode == OpCode::Read { READ } else { WRITE }, TransferState::Pending)
            }
            Work::Flush => (FLUSH, TransferState::Pending),
            Work::Nothing => (0, TransferState::Invalid),
        };
        self.work.store(kind, Ordering::Relaxed);
        self.open.store(1, Ordering::Relaxed);
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// What is to be done.
    #[inline]
    pub(crate) fn work(&self) -> Work {
        let opcode = match self.work.load(Ordering::Relaxed) {
            READ => OpCode::Read,
            WRITE => OpCode::Write,
            FLUSH => return Work::Flush,
            _ => return Work::Nothing,
        };
        let Some(iova) = Iova::new(self.iova.load(Ordering::Relaxed)) else {
            return Work::Nothing;
        };
        Work::Transfer(Admitted {
            opcode,
            slba: self.slba.load(Ordering::Relaxed),
            iova,
            length: self.length.load(Ordering::Relaxed),
        })
    }

    /// One more command of it is in flight, and it will not be the last. By its lane.
    #[inline]
    pub(crate) fn command_issued(&self) {
        self.open.store(self.open.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A command of it has ended. By its lane. The task's end, if that was its last one.
    #[inline]
    pub(crate) fn part_ended(&self, status: Status) -> Option<TransferState> {
        if !status.is_success() && self.failure.load(Ordering::Relaxed) == 0 {
            self.failure.store(status.bits().into(), Ordering::Relaxed);
        }
        let open = self.open.load(Ordering::Relaxed) - 1;
        self.open.store(open, Ordering::Relaxed);
        if open != 0 {
            return None;
        }
        let failure = self.failure.load(Ordering::Relaxed);
        let state = if failure == 0 { TransferState::Completed } else { TransferState::Failed };
        self.end(state, failure);
        Some(state)
    }

    /// Ends it as canceled. By its lane, before a command of it was issued.
    pub(crate) fn cancel(&self) {
        self.end(TransferState::Canceled, 0);
    }

    /// Ends it as failed, with no status from a device: the device has been stopped.
    pub(crate) fn abandon(&self) {
        self.end(TransferState::Failed, 0);
    }

    /// Publishes the end. Release: whoever sees it sees the bytes that the device wrote.
    #[inline]
    fn end(&self, state: TransferState, failure: u32) {
        self.state.store(state as u32 | failure << 16, Ordering::Release);
    }

    /// The state, and the NVMe status that made it FAILED.
    #[inline]
    pub(crate) fn state(&self) -> (TransferState, Option<Status>) {
        let word = self.state.load(Ordering::Acquire);
        let failure = (word >> 16) as u16;
        (TransferState::from_number(word as u8), (failure != 0).then(|| Status::from_bits(failure)))
    }

    /// Bytes that the request names; 0 where there is none.
    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

/// Chunks of tasks: the first has [`FIRST_CHUNK`], each further one twice as many as the one before.
const CHUNKS: usize = 27;
/// Tasks of the first chunk, as a power of two.
const FIRST_CHUNK_SHIFT: u32 = 5;

/// A list of tasks that grows and never moves, so that a lane reads old ones while new ones are appended.
#[derive(Debug)]
pub(crate) struct TaskList {
    chunks: [OnceLock<Box<[Task]>>; CHUNKS],
}

impl TaskList {
    /// The most tasks of a list.
    pub(crate) const MAX: u32 = (((1u64 << CHUNKS) - 1) << FIRST_CHUNK_SHIFT) as u32;

    /// An empty list with room for `capacity` tasks.
    pub(crate) fn with_capacity(capacity: u32) -> Self {
        let list = Self { chunks: [const { OnceLock::new() }; CHUNKS] };
        list.reserve(capacity);
        list
    }

    /// Makes room for `count` tasks in all, at most [`MAX`](Self::MAX).
    pub(crate) fn reserve(&self, count: u32) {
        let Some(last) = count.min(Self::MAX).checked_sub(1) else { return };
        for chunk in 0..=place(last).0 {
            self.chunks[chunk]
                .get_or_init(|| (0..1usize << (chunk as u32 + FIRST_CHUNK_SHIFT)).map(|_| Task::default()).collect());
        }
    }

    /// The task of this index, where there is room for it.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&Task> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }
}

/// The chunk of a task and its place there.
#[inline]
fn place(index: u32) -> (usize, usize) {
    // Shifted by the first chunk's length the chunks start at powers of two.
    let shifted = u64::from(index) + (1 << FIRST_CHUNK_SHIFT);
    let power = 63 - shifted.leading_zeros();
    ((power - FIRST_CHUNK_SHIFT) as usize, (shifted - (1 << power)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tentpeg_driver::spec::status::StatusCode;

    #[test]
    fn each_index_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for index in 0..100_000 {
            assert_eq!(place(index), expected);
            expected.1 += 1;
            if expected.1 == 1 << (expected.0 as u32 + FIRST_CHUNK_SHIFT) {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place(TaskList::MAX - 1).0, CHUNKS - 1);
        let list = TaskList::with_capacity(33);
        assert!(list.get(95).is_some() && list.get(96).is_none());
        list.reserve(97);
        assert!(list.get(96).is_some());
    }

    #[test]
    fn a_task_ends_with_its_last_command_and_keeps_the_first_failure() {
        let task = Task::default();
        assert_eq!(task.state(), (TransferState::Initial, None));
        let admitted = Admitted { opcode: OpCode::Read, slba: 7, iova: Iova::new(4096).unwrap(), length: 8192 };
        task.prepare(Work::Transfer(admitted));
        assert_eq!(task.work(), Work::Transfer(admitted));
        task.command_issued();
        task.command_issued();
        assert_eq!(task.part_ended(Status::SUCCESS), None);
        let first = Status::from(StatusCode::LBA_OUT_OF_RANGE);
        assert_eq!(task.part_ended(first), None);
        assert_eq!(task.state().0, TransferState::Pending);
        assert_eq!(task.part_ended(Status::from(StatusCode::INVALID_FIELD_IN_COMMAND)), Some(TransferState::Failed));
        assert_eq!(task.state(), (TransferState::Failed, Some(first)));
    }
}
