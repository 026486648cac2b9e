//! What submitters, lanes and readers share of a batch.

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::hold::Hold;
use super::{BatchOptions, BatchStatus, Priority, SubmitError};
use crate::TransferState;
use crate::admission::RequestError;
use crate::lanes::LaneSet;
use crate::progress::Progress;
use crate::task::{Task, TaskList, Transfer, Walk, Work};

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
    /// Held while tasks are appended.
    appended: Mutex<Appended>,
    /// Whether somebody frees it. Written under that lock.
    freed: AtomicBool,
    priority: Priority,
    /// Whether there is a notifier: most batches have none, and look no further.
    notifies: bool,
    /// Taken out when the batch has been freed. Lanes that have the batch read it, also one in the other's call.
    notifier: RwLock<Option<Notifier>>,
    pub(super) progress: Arc<Progress>,
    /// Batches of the engine that live, and whether this one is counted still.
    pub(super) live: Arc<AtomicUsize>,
    is_counted: AtomicBool,
}

/// What submitters have left under their lock.
#[derive(Debug, Default)]
struct Appended {
    /// The reasons of invalid tasks, by task.
    refusals: Vec<(u32, RequestError)>,
}

/// What is called when tasks of a batch have ended.
struct Notifier(Box<dyn Fn(BatchStatus) + Send + Sync>);

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notifier")
    }
}

/// A lane's progress in a batch: a cache line of its own, written by that lane alone but for the link.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct LaneState {
    /// Tasks ended by the lane, and those of them that did not complete.
    ended: AtomicU32,
    unsuccessful: AtomicU32,
    hold: Hold<AtomicBool>,
    /// Where the lane keeps it while it has work.
    pub(crate) place: AtomicU32,
    /// How many tasks the lane has planned when it let go of it.
    pub(crate) planned: AtomicU32,
    /// Of how many refused tasks the lane has told.
    told: AtomicU32,
}

/// Ends of tasks that a lane has not counted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ends {
    tasks: u32,
    unsuccessful: u32,
}

impl Ends {
    /// The end of one task.
    pub(crate) fn one(state: TransferState) -> Self {
        let mut ends = Self::default();
        ends.add(state);
        ends
    }

    /// And that of another one.
    #[inline(always)]
    pub(crate) fn add(&mut self, state: TransferState) {
        self.tasks += 1;
        self.unsuccessful += u32::from(state != TransferState::Completed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.uncount();
    }
}

impl Shared {
    /// That of a batch of an engine with `lanes` lanes, 1 or more.
    pub(super) fn new(options: BatchOptions, lanes: usize, progress: Arc<Progress>, live: Arc<AtomicUsize>) -> Self {
        Self {
            tasks: TaskList::with_capacity(options.capacity),
            tail: AtomicU32::new(0),
            invalid: AtomicU32::new(0),
            canceled: AtomicBool::new(false),
            first_lane: LaneState::default(),
            other_lanes: (1..lanes).map(|_| LaneState::default()).collect(),
            appended: Mutex::default(),
            freed: AtomicBool::new(false),
            priority: options.priority,
            notifies: options.notifier.is_some(),
            notifier: RwLock::new(options.notifier.map(Notifier)),
            progress,
            live,
            is_counted: AtomicBool::new(true),
        }
    }

    /// How urgent its tasks are.
    #[inline]
    pub(crate) fn priority(&self) -> Priority {
        self.priority
    }

    /// Tasks published. Acquire: their requests are to be read.
    #[inline]
    pub(crate) fn tail(&self) -> u32 {
        self.tail.load(Ordering::Acquire)
    }

    /// The tasks for a walk over them.
    #[inline]
    pub(crate) fn walk(&self) -> Walk<'_> {
        self.tasks.walk()
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

    /// By a lane that has it from its inbox, before it reads the tail: a submit from now on links the batch again. The
    /// lane has the batch until it lets go of it.
    pub(crate) fn take(&self, lane: u8) {
        self.lane(lane).hold.take();
        // Of refused tasks nobody else tells; whoever has refused one has told every lane.
        let (invalid, told) = (self.invalid.load(Ordering::Relaxed), &self.lane(lane).told);
        if invalid != told.load(Ordering::Relaxed) {
            told.store(invalid, Ordering::Relaxed);
            self.notify();
        }
    }

    /// By a lane that has no more work with it.
    pub(crate) fn let_go(&self, lane: u8) {
        self.settle();
        self.lane(lane).hold.let_go();
        // Either this sees that somebody frees it, or that one sees that the lane has let go.
        fence(Ordering::SeqCst);
        if self.freed.load(Ordering::Relaxed) {
            self.progress.announce();
        }
    }

    pub(crate) fn cancel(&self) {
        self.canceled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Relaxed)
    }

    /// Counts tasks that the lane has ended, each of them once.
    #[inline]
    pub(crate) fn count_ended(&self, lane: u8, ends: Ends) {
        if ends.tasks == 0 {
            return;
        }
        let state = self.lane(lane);
        if ends.unsuccessful != 0 {
            state.unsuccessful.store(state.unsuccessful.load(Ordering::Relaxed) + ends.unsuccessful, Ordering::Relaxed);
        }
        let ended = state.ended.load(Ordering::Relaxed) + ends.tasks;
        // Release: whoever finds all ended reads each state, and the bytes, after it.
        state.ended.store(ended, Ordering::Release);
        // What others count at this moment may be missed here; `settle` makes up for it. With several lanes it is left
        // to that altogether.
        if self.other_lanes.is_empty()
            && ended + self.invalid.load(Ordering::Relaxed) >= self.tail.load(Ordering::Relaxed)
        {
            self.progress.announce();
        }
        self.notify();
    }

    /// Tells whoever wants to know that tasks have ended. By lanes alone, which have the batch then.
    #[inline]
    fn notify(&self) {
        if self.notifies
            && let Some(Notifier(notifier)) = &*self.notifier.read().unwrap_or_else(PoisonError::into_inner)
        {
            // Between this lane's count and the look at the others': of two that count at the same time the later one
            // tells of both.
            fence(Ordering::SeqCst);
            // Its panic is its own: nobody is to wait for a lane that has gone by it.
            let status = self.overall();
            if panic::catch_unwind(AssertUnwindSafe(|| notifier(status))).is_err() {
                tracing::error!(?status, "a notifier has panicked");
            }
        }
    }

    /// By a lane, when it lets go of the batch. Who counts tasks at the same moment as another, a submitter those that
    /// were refused, another lane those that it ended, may miss the other's count, and what either announces then is not
    /// the end. Each counts before it comes here, and here at least one of two lanes sees both counts; of refused tasks
    /// every lane is told, so that it has seen them.
    pub(super) fn settle(&self) {
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

    fn appended(&self) -> MutexGuard<'_, Appended> {
        // Every step under this lock leaves the list whole.
        self.appended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How all tasks stand.
    #[inline]
    pub(super) fn overall(&self) -> BatchStatus {
        let invalid = self.invalid.load(Ordering::Acquire);
        let ended = self.ended_by_lanes() + invalid;
        let unsuccessful = self.unsuccessful() + invalid;
        // The tail last: each task that is counted above is then among `tasks`. Read before, a task that was
        // appended and ended meanwhile would stand for an older one that is pending.
        let tasks = self.tail();
        // A task that failed since `ended` was read is counted with its end, at the next look.
        BatchStatus { tasks, ended, unsuccessful: unsuccessful.min(ended) }
    }

    /// Why a task was refused; `None`: it was not.
    pub(super) fn refusal(&self, task: u32) -> Option<RequestError> {
        let appended = self.appended();
        let found = appended.refusals.binary_search_by_key(&task, |(index, _)| *index).ok()?;
        Some(appended.refusals[found].1)
    }

    /// Refuses every task from now on, and gives up those of which no command was issued.
    pub(super) fn free(&self) {
        let appended = self.appended();
        self.freed.store(true, Ordering::Relaxed);
        drop(appended);
        self.cancel();
        // See `let_go`.
        fence(Ordering::SeqCst);
    }

    /// Whether no lane has it, or is to get it: for whoever frees it.
    pub(super) fn is_let_go(&self) -> bool {
        self.first_lane.hold.is_quiet() && self.other_lanes.iter().all(|lane| lane.hold.is_quiet())
    }

    /// By whoever has freed it, when every lane has let go: it is no live batch any more, and what its notifier holds goes
    /// in this thread, whatever handles, or a lane that is just about to drop its own, keep of it.
    pub(super) fn retire(&self) {
        let mut notifier = self.notifier.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: of two who free it neither returns before it is gone.
        notifier.take();
        drop(notifier);
        self.uncount();
    }

    fn uncount(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            // Release: see `Engine::allocate_batch_with`.
            self.live.fetch_sub(1, Ordering::Release);
        }
    }

    /// Appends a task for each of `requests`, all or none, and publishes them. What a request is says `transfer`, and
    /// where that says nothing `other`. `hand` puts the batch into the inbox of a lane, once for each that is returned with
    /// the first one's index.
    #[inline]
    pub(super) fn append<R>(
        &self,
        requests: &[R],
        mut transfer: impl FnMut(&R) -> Option<Transfer>,
        other: impl Fn(&R) -> Result<Work, RequestError>,
        mut hand: impl FnMut(u8),
    ) -> Result<(u32, LaneSet), SubmitError> {
        let mut appended = self.appended();
        if self.freed.load(Ordering::Relaxed) {
            return Err(SubmitError::Freed);
        }
        let first = self.tail.load(Ordering::Relaxed);
        let count = requests.len();
        let tail =
            u32::try_from(count).ok().and_then(|count| first.checked_add(count)).filter(|tail| *tail <= TaskList::MAX);
        let Some(tail) = tail else {
            return Err(SubmitError::BatchFull { requests: count, tasks: first, max: TaskList::MAX });
        };
        self.tasks.reserve(tail);
        let (mut invalid, mut lanes) = (0, LaneSet::default());
        let mut tasks = self.walk();
        for (index, request) in (first..tail).zip(requests) {
            let Some(task) = tasks.get(index) else { break };
            match transfer(request) {
                Some(transfer) => {
                    lanes = lanes.union(LaneSet::one(transfer.head.lane()));
                    task.prepare_transfer(transfer);
                }
                None => match prepare_other(task, other(request)) {
                    Ok(concerned) => lanes = lanes.union(concerned),
                    Err(error) => {
                        appended.refusals.push((index, error));
                        invalid += 1;
                    }
                },
            }
        }
        self.tail.store(tail, Ordering::Release);
        if invalid > 0 {
            // After the tail: counted before, they would stand for tasks of the old tail that have not ended.
            self.invalid.store(self.invalid.load(Ordering::Relaxed) + invalid, Ordering::Release);
            self.progress.announce();
            lanes = LaneSet::first(1 + self.other_lanes.len());
        }
        // Under the lock, so that whoever frees the batch sees that a lane is to get it; and whoever appends behind this, and
        // finds it linked, finds it in the inbox: a port that is asked then for tasks that name some memory sees his, too.
        lanes = lanes.iter().filter(|lane| self.lane(*lane).hold.link()).collect();
        lanes.iter().for_each(&mut hand);
        Ok((first, lanes))
    }
}

/// Prepares the task of a request that is no plain transfer: the lanes concerned, or why it is INVALID.
#[cold]
fn prepare_other(task: &Task, work: Result<Work, RequestError>) -> Result<LaneSet, RequestError> {
    match work {
        Ok(work) => {
            task.prepare(work);
            Ok(work.lanes())
        }
        Err(error) => {
            task.prepare(Work::Nothing);
            Err(error)
        }
    }
}
