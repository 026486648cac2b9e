//! Batches: the tasks of requests that were submitted together, in memory of their own.
//!
//! A batch is made by [`Engine::allocate_batch`](crate::Engine::allocate_batch). Submitters append tasks and publish
//! a new tail; lanes plan them and end them; anybody reads their states. Dropping the last handle frees it; work
//! that is still in flight keeps it, and the memory that the device uses, until it has ended.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tentpeg_driver::spec::status::Status;
use thiserror::Error;

use crate::admission::RequestError;
use crate::lanes::LaneSet;
use crate::progress::{self, Progress};
use crate::task::{Task, TaskList, Work};
use crate::{TransferState, TransferStatus};

/// A task that a batch does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the batch has no task {task}: it has {tasks}")]
pub struct NoSuchTask {
    /// The task asked for.
    pub task: u32,
    /// Tasks of the batch.
    pub tasks: u32,
}

/// Why requests were not appended. None of them was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SubmitError {
    /// The batch is another engine's.
    #[error("the batch belongs to another engine: submit it to the one that allocated it")]
    OtherEngine,
    /// More tasks than a batch can hold.
    #[error("{requests} requests do not fit: the batch has {tasks} tasks and holds at most {max}")]
    BatchFull {
        /// Requests of the call.
        requests: usize,
        /// Tasks that the batch has.
        tasks: u32,
        /// Tasks that it can hold.
        max: u32,
    },
}

/// Why a wait ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{left} of {tasks} tasks have not ended within {} ms", limit.as_millis())]
pub struct WaitError {
    /// Tasks that have not ended.
    pub left: u32,
    /// Tasks of the batch.
    pub tasks: u32,
    /// How long was waited.
    pub limit: Duration,
}

/// How the tasks of a batch stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchStatus {
    /// Tasks in all.
    pub tasks: u32,
    /// Tasks that have ended, in whatever way.
    pub ended: u32,
    /// Tasks that have ended other than COMPLETED.
    pub unsuccessful: u32,
}

impl BatchStatus {
    /// Whether every task has ended.
    pub fn is_finished(self) -> bool {
        self.ended == self.tasks
    }
}

/// What submitters, the lane and readers share.
#[derive(Debug)]
pub(crate) struct Shared {
    tasks: TaskList,
    /// Tasks published.
    tail: AtomicU32,
    /// Tasks refused; written by submitters, under the lock, after the tail.
    invalid: AtomicU32,
    canceled: AtomicBool,
    /// What the first lane, and each of the others, has of it.
    first_lane: LaneState,
    other_lanes: Box<[LaneState]>,
    /// Held while tasks are appended; the reasons of invalid ones.
    refusals: Mutex<Vec<(u32, RequestError)>>,
    progress: Arc<Progress>,
    /// Batches of the engine that live; this one is counted.
    live: Arc<AtomicUsize>,
}

/// A lane's progress in a batch: a cache line of its own, written by that lane alone but for the link.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct LaneState {
    /// Tasks ended by the lane, and those of them that did not complete.
    ended: AtomicU32,
    unsuccessful: AtomicU32,
    /// Whether the batch is in the lane's inbox, or about to be.
    linked: AtomicBool,
    /// Where the lane keeps it while it has work.
    pub(crate) place: AtomicU32,
    /// How many tasks the lane has planned when it let go of it.
    pub(crate) planned: AtomicU32,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Tasks published. Acquire: their requests are to be read.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn task(&self, index: u32) -> Option<&Task> {
        self.tasks.get(index)
    }

    /// What lane `lane` has of it; that of the first one where there is no such lane.
    #[inline]
    pub(crate) fn lane(&self, lane: u8) -> &LaneState {
        match lane {
            0 => &self.first_lane,
            _ => self.other_lanes.get(usize::from(lane) - 1).unwrap_or(&self.first_lane),
        }
    }

    /// By a lane, before it reads the tail: a submit from now on links the batch again.
    pub(crate) fn unlink(&self, lane: u8) {
        // A read-modify-write, so that it reads what the submitter's swap wrote and orders itself behind it: a
        // submitter that found the batch linked has published its tail before this.
        self.lane(lane).linked.swap(false, Ordering::AcqRel);
    }

    /// By a submitter, after it has published the tail: whether the batch must be put into the lane's inbox.
    pub(crate) fn link(&self, lane: u8) -> bool {
        !self.lane(lane).linked.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn cancel(&self) {
        self.canceled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Relaxed)
    }

    /// Counts a task that the lane has ended.
    // Always: a call a task, which is what is counted in tests/instructions.json.
    #[inline(always)]
    pub(crate) fn count_ended(&self, lane: u8, completed: bool) {
        let state = self.lane(lane);
        if !completed {
            state.unsuccessful.store(state.unsuccessful.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        let ended = state.ended.load(Ordering::Relaxed) + 1;
        // Release: whoever finds all ended reads each state, and the bytes, after it.
        state.ended.store(ended, Ordering::Release);
        // What others count at this moment may be missed here; `settle` makes up for it. With several lanes it is left
        // to that altogether.
        if self.other_lanes.is_empty()
            && ended + self.invalid.load(Ordering::Relaxed) >= self.tail.load(Ordering::Relaxed)
        {
            self.progress.announce();
        }
    }

    /// By a lane, when it lets go of the batch. Who counts tasks at the same moment as another, a submitter those that
    /// were refused, another lane those that it ended, may miss the other's count, and what either announces then is not
    /// the end. Each counts before it comes here, and here at least one of two lanes sees both counts; of refused tasks
    /// every lane is told, so that it has seen them.
    pub(crate) fn settle(&self) {
        let invalid = self.invalid.load(Ordering::Relaxed);
        if invalid == 0 && self.other_lanes.is_empty() {
            return;
        }
        // Between this lane's count and the look at the others'.
        fence(Ordering::SeqCst);
        if self.ended_by_lanes() + invalid >= self.tail.load(Ordering::Relaxed) {
            self.progress.announce();
        }
    }

    /// Tasks that lanes have ended. Acquire: their states are to be read.
    #[inline]
    fn ended_by_lanes(&self) -> u32 {
        let others: u32 = self.other_lanes.iter().map(|lane| lane.ended.load(Ordering::Acquire)).sum();
        self.first_lane.ended.load(Ordering::Acquire) + others
    }

    /// Those of them that did not complete.
    #[inline]
    fn unsuccessful(&self) -> u32 {
        let others: u32 = self.other_lanes.iter().map(|lane| lane.unsuccessful.load(Ordering::Relaxed)).sum();
        self.first_lane.unsuccessful.load(Ordering::Relaxed) + others
    }

    fn refusals(&self) -> MutexGuard<'_, Vec<(u32, RequestError)>> {
        // Every step under this lock leaves the list whole.
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to a batch. Clones name the same one.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) shared: Arc<Shared>,
}

impl Batch {
    /// A batch of an engine with `lanes` lanes, 1 or more.
    pub(crate) fn new(capacity: u32, lanes: usize, progress: Arc<Progress>, live: Arc<AtomicUsize>) -> Self {
        let shared = Shared {
            tasks: TaskList::with_capacity(capacity),
            tail: AtomicU32::new(0),
            invalid: AtomicU32::new(0),
            canceled: AtomicBool::new(false),
            first_lane: LaneState::default(),
            other_lanes: (1..lanes).map(|_| LaneState::default()).collect(),
            refusals: Mutex::new(Vec::new()),
            progress,
            live,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Appends a task for each of `works`, all or none, and publishes them. The first one's index, and the lanes that
    /// must be told.
    #[inline]
    pub(crate) fn append(
        &self,
        works: impl ExactSizeIterator<Item = Result<Work, RequestError>>,
    ) -> Result<(u32, LaneSet), SubmitError> {
        let shared = &*self.shared;
        let mut refusals = shared.refusals();
        let first = shared.tail.load(Ordering::Relaxed);
        let count = works.len();
        let tail =
            u32::try_from(count).ok().and_then(|count| first.checked_add(count)).filter(|tail| *tail <= TaskList::MAX);
        let Some(tail) = tail else {
            return Err(SubmitError::BatchFull { requests: count, tasks: first, max: TaskList::MAX });
        };
        shared.tasks.reserve(tail);
        let (mut invalid, mut lanes) = (0, LaneSet::default());
        for (index, work) in (first..tail).zip(works) {
            let Some(task) = shared.tasks.get(index) else { break };
            match work {
                Ok(work) => {
                    lanes = lanes.union(work.lanes());
                    task.prepare(work);
                }
                Err(error) => {
                    task.prepare(Work::Nothing);
                    refusals.push((index, error));
                    invalid += 1;
                }
            }
        }
        shared.tail.store(tail, Ordering::Release);
        if invalid > 0 {
            // After the tail: counted before, they would stand for tasks of the old tail that have not ended.
            shared.invalid.store(shared.invalid.load(Ordering::Relaxed) + invalid, Ordering::Release);
            shared.progress.announce();
            lanes = LaneSet::first(1 + shared.other_lanes.len());
        }
        Ok((first, lanes))
    }

    /// Whether it was allocated by the engine that counts its batches in `live`.
    pub(crate) fn is_counted_in(&self, live: &Arc<AtomicUsize>) -> bool {
        Arc::ptr_eq(&self.shared.live, live)
    }

    /// Tasks that were submitted so far.
    pub fn tasks(&self) -> u32 {
        self.shared.tail()
    }

    /// The state of task `task`: a few atomic loads.
    ///
    /// # Errors
    /// [`NoSuchTask`]; never for a task that exists.
    #[inline]
    pub fn status(&self, task: u32) -> Result<TransferStatus, NoSuchTask> {
        let entry = self.existing(task)?;
        let (state, _) = entry.state();
        let transferred_bytes = if state == TransferState::Completed { entry.length() } else { 0 };
        Ok(TransferStatus { state, transferred_bytes })
    }

    /// The NVMe status that made task `task` FAILED; `None` when none did.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn nvme_status(&self, task: u32) -> Result<Option<Status>, NoSuchTask> {
        Ok(self.existing(task)?.state().1)
    }

    /// Why task `task` is INVALID; `None` when it is not.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn refusal(&self, task: u32) -> Result<Option<RequestError>, NoSuchTask> {
        self.existing(task)?;
        let refusals = self.shared.refusals();
        Ok(refusals.binary_search_by_key(&task, |(index, _)| *index).ok().map(|at| refusals[at].1))
    }

    /// How all tasks stand: a few atomic loads.
    #[inline]
    pub fn overall(&self) -> BatchStatus {
        let shared = &*self.shared;
        let invalid = shared.invalid.load(Ordering::Acquire);
        let ended = shared.ended_by_lanes() + invalid;
        let unsuccessful = shared.unsuccessful() + invalid;
        // The tail last: each task that is counted above is then among `tasks`. Read before, a task that was
        // appended and ended meanwhile would stand for an older one that is pending.
        let tasks = shared.tail();
        // A task that failed since `ended` was read is counted with its end, at the next look.
        BatchStatus { tasks, ended, unsuccessful: unsuccessful.min(ended) }
    }

    /// Gives up the tasks of which no command has been issued; they end as CANCELED at the lanes' next turns. The
    /// others run to their end; a task that one lane begins in the moment in which another gives it up is FAILED. Tasks
    /// that are submitted later are given up too.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    /// Waits until every task has ended, with a lane that has a thread of its own.
    ///
    /// # Errors
    /// [`WaitError`] after `limit`. The tasks go on, and so does the use of their memory.
    pub fn wait(&self, limit: Duration) -> Result<BatchStatus, WaitError> {
        let deadline = progress::deadline(limit);
        loop {
            let seen = self.shared.progress.now();
            let status = self.overall();
            if status.is_finished() {
                return Ok(status);
            }
            if !self.shared.progress.wait(seen, deadline) && Instant::now() >= deadline {
                let status = self.overall();
                let left = status.tasks - status.ended;
                return if left == 0 { Ok(status) } else { Err(WaitError { left, tasks: status.tasks, limit }) };
            }
        }
    }

    fn existing(&self, task: u32) -> Result<&Task, NoSuchTask> {
        let tasks = self.shared.tail();
        if task >= tasks {
            return Err(NoSuchTask { task, tasks });
        }
        self.shared.task(task).ok_or(NoSuchTask { task, tasks })
    }
}

#[cfg(test)]
mod tests;
