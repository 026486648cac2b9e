//! Batches: the tasks of requests that were submitted together, in memory of their own.
//!
//! A batch is made by [`Engine::allocate_batch`](crate::Engine::allocate_batch). Submitters append tasks and publish
//! a new tail; lanes plan them and end them; anybody reads their states. Dropping the last handle gives it up at some time:
//! work that is still in flight keeps it, and the memory that the device uses, until it has ended. [`Batch::free`] waits for
//! that.

mod hold;
mod shared;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use tentpeg_driver::gpu::CudaError;
use tentpeg_driver::spec::status::Status;
use thiserror::Error;

pub(crate) use shared::{Ends, Shared};

use crate::admission::RequestError;
use crate::lane::Lane;
use crate::lanes::LaneSet;
use crate::progress::{self, Progress};
use crate::task::{Task, Transfer, Work};
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
    /// The batch was freed.
    #[error("the batch has been freed: allocate another one")]
    Freed,
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

/// Why requests were not appended that read what a GPU was to write first.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SubmitAfterError {
    /// The engine has no GPU.
    #[error("this engine was opened without a GPU: name one in EngineConfig::gpu")]
    NoGpu,
    /// The work has failed, or is none of the engine's GPU.
    #[error("what the requests read is not written: {0}")]
    Producer(#[from] CudaError),
    /// They were not appended for another reason.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// How urgent the tasks of a batch are, by TENT's numbers; without a word they are all of high priority, as its requests
/// are.
///
/// Tasks of a higher priority are issued before those of a lower one. Of each device no more than 64 commands of medium and
/// 32 of low priority are in flight, so that no more stand before one of a higher priority in the device's queue; and for
/// each eight commands for which a lower priority has to wait it has one of its own, so that it never starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// What somebody waits for.
    #[default]
    High = 0,
    /// What somebody will want soon.
    Medium = 1,
    /// What can wait.
    Low = 2,
}

impl Priority {
    /// All of them, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Medium, Self::Low];
}

/// What a batch is allocated with.
#[derive(Default)]
pub struct BatchOptions {
    /// Tasks that it has room for; it grows when more are submitted.
    pub capacity: u32,
    /// How urgent its tasks are.
    pub priority: Priority,
    /// Called when tasks have ended, with how all of them stand: one call or more after each end, several ends may have
    /// one call. Of a batch that has several devices two calls can come at the same time, and the later one may know
    /// less.
    ///
    /// The caller is a lane, in the middle of its turn; where that is no more, whoever submits. The call should be short, must
    /// not wait for anything that a lane does; a panic is an error event (`tracing`) and nothing else. It may submit and
    /// cancel. After [`Batch::free`] none comes, and what it holds has been dropped, by whoever freed the batch: that must
    /// not free the same batch. Of a batch that is dropped and not freed, a lane may be the one that drops it.
    pub notifier: Option<Box<dyn Fn(BatchStatus) + Send + Sync>>,
}

impl BatchOptions {
    /// Room for `capacity` tasks, and nothing else.
    pub fn with_capacity(capacity: u32) -> Self {
        Self { capacity, ..Self::default() }
    }
}

impl fmt::Debug for BatchOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, priority, .. } = self;
        let mut shown = f.debug_struct("BatchOptions");
        shown.field("capacity", capacity).field("priority", priority).finish_non_exhaustive()
    }
}

/// Why a task is FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FailureReason {
    /// A device has said so.
    #[error("{0}")]
    Status(Status),
    /// A device was lost, or what it had was.
    #[error("the device was lost, or has lost what was written")]
    Lost,
    /// Nobody turns the lane of a device any more: the caller has dropped it while its engine lived, or its thread has
    /// panicked.
    #[error(
        "the lane of the device was dropped while its engine lived, so that nobody serves the device: open it again"
    )]
    NoLane,
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

/// A handle to a batch. Clones name the same one.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(crate) shared: Arc<Shared>,
}

impl Batch {
    /// A batch of an engine with `lanes` lanes, 1 or more.
    pub(crate) fn new(options: BatchOptions, lanes: usize, progress: Arc<Progress>, live: Arc<AtomicUsize>) -> Self {
        Self { shared: Arc::new(Shared::new(options, lanes, progress, live)) }
    }

    /// See [`Shared::append`].
    #[inline]
    pub(crate) fn append<R>(
        &self,
        requests: &[R],
        transfer: impl FnMut(&R) -> Option<Transfer>,
        other: impl Fn(&R) -> Result<Work, RequestError>,
        hand: impl FnMut(u8),
    ) -> Result<(u32, LaneSet), SubmitError> {
        self.shared.append(requests, transfer, other, hand)
    }

    /// What tells it apart from other batches that live, in events.
    pub(crate) fn name(&self) -> u64 {
        Arc::as_ptr(&self.shared).addr() as u64
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

    /// Why task `task` is FAILED; `None` when it is not.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn failure(&self, task: u32) -> Result<Option<FailureReason>, NoSuchTask> {
        let entry = self.existing(task)?;
        Ok(match entry.state() {
            (TransferState::Failed, Some(status)) => Some(FailureReason::Status(status)),
            (TransferState::Failed, None) if entry.has_no_lane() => Some(FailureReason::NoLane),
            (TransferState::Failed, None) => Some(FailureReason::Lost),
            _ => None,
        })
    }

    /// Why task `task` is INVALID; `None` when it is not.
    ///
    /// # Errors
    /// [`NoSuchTask`].
    pub fn refusal(&self, task: u32) -> Result<Option<RequestError>, NoSuchTask> {
        self.existing(task)?;
        Ok(self.shared.refusal(task))
    }

    /// How all tasks stand: a few atomic loads.
    #[inline]
    pub fn overall(&self) -> BatchStatus {
        self.shared.overall()
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
            self.shared.progress.wait(seen, deadline);
            // Also where other batches move it on all the time.
            if Instant::now() >= deadline {
                let status = self.overall();
                let left = status.tasks - status.ended;
                return if left == 0 { Ok(status) } else { Err(WaitError { left, tasks: status.tasks, limit }) };
            }
        }
    }

    /// Frees it: gives up what was not issued, as [`cancel`](Self::cancel) does, takes no more, and returns when nothing
    /// of the engine uses it any more. Then every task has ended, so that no hardware touches its memory, and no call of
    /// its notifier is under way or will come: what that holds has been dropped. It counts for
    /// [`max_batches`](crate::EngineConfig::max_batches) no more. Other handles may be asked for states still.
    ///
    /// For an engine whose lanes have threads, or whose lane has been dropped; not to be called by a notifier, which this would
    /// wait for. How long it takes is bounded by the deadlines by which the engine recovers a controller that does not end a command.
    pub fn free(self) {
        self.shared.free();
        loop {
            let seen = self.shared.progress.now();
            if self.shared.is_let_go() {
                return self.shared.retire();
            }
            self.shared.progress.wait(seen, progress::deadline(Duration::MAX));
        }
    }

    /// As [`free`](Self::free), of an engine whose lane, this one, the caller drives: turns it meanwhile.
    pub fn free_with(self, lane: &mut Lane) {
        self.shared.free();
        while !self.shared.is_let_go() {
            lane.turn();
        }
        self.shared.retire();
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
