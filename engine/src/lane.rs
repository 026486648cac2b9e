//! Lanes: who plans batches, submits their commands and reads the completions.
//!
//! A [`Lane`] owns a queue pair and is used by one thread: one of its own, or the caller's. Batches come to it through
//! an inbox; in a turn it takes them in, reads completions, plans tasks while it has free slots, and rings each
//! doorbell once. Tasks that are not planned yet are the backlog, so full queues are never a request's error.

mod closing;
mod recovery;
mod thread;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_queue::ArrayQueue;
use tentpeg_driver::bus::Function;
use tentpeg_driver::queue::{Completion, Extent, Limits, QueuePair};
use tentpeg_driver::spec::status::{Status, StatusCode};

use crate::TransferState;
use crate::batch::Shared;
use crate::counters::{LaneCounters, SharedCounters};
use crate::device::{Device, SharedDevice};
use crate::planning::{self, Cursor, MAX_EXTENTS, Step};
use crate::progress;

pub(crate) use closing::Closing;
pub(crate) use thread::LaneThread;

use recovery::Watch;

/// Commands that a batch may plan before the next one's turn comes.
const QUANTUM: usize = 32;
/// How often bytes are asked for again before their task fails.
const ATTEMPTS: u8 = 5;
/// Completions that one turn takes at the most, so that planning is never far.
const COMPLETIONS_A_TURN: usize = 64;

/// Batches on their way to a lane. As large as the number of batches that can live, so that it cannot fill.
pub(crate) type Inbox = Arc<ArrayQueue<Arc<Shared>>>;

/// Which tasks a command serves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandTasks {
    /// The batch's place in the lane.
    place: u32,
    first: u32,
    /// How many, at most [`MAX_EXTENTS`].
    tasks: u16,
    /// How often these bytes have been asked for before.
    attempts: u8,
    /// Where in the first task the command begins, in bytes.
    planned: u64,
}

impl CommandTasks {
    fn indices(self) -> Range<u32> {
        self.first..self.first + u32::from(self.tasks)
    }
}

/// A batch with work in this lane.
struct Active {
    batch: Arc<Shared>,
    cursor: Cursor,
    /// Commands in flight.
    in_flight: u32,
    /// Whether it stands in the round of batches that have tasks to plan.
    in_round: bool,
}

/// One poller with its queue pair.
pub struct Lane {
    pair: QueuePair<CommandTasks>,
    function: Arc<dyn Function>,
    nsid: u32,
    limits: Limits,
    inbox: Inbox,
    active: Vec<Option<Active>>,
    free_places: Vec<u32>,
    /// Batches with tasks to plan, in turn.
    round: VecDeque<u32>,
    /// What is to be issued again, one task a command: its common command failed, or was interrupted.
    alone: VecDeque<CommandTasks>,
    extents: Vec<Extent>,
    counters: LaneCounters,
    shared_counters: Arc<SharedCounters>,
    /// What the engine says when it closes without this lane.
    closing: Arc<Closing>,
    watch: Watch,
}

impl Lane {
    /// A lane for queue pair `pair` of the device that `device` holds.
    pub(crate) fn new(
        pair: QueuePair<CommandTasks>,
        opened: &Device,
        device: SharedDevice,
        inbox: Inbox,
        shared_counters: Arc<SharedCounters>,
        closing: Arc<Closing>,
    ) -> Self {
        Self {
            pair,
            function: Arc::clone(opened.controller.function()),
            nsid: opened.namespace.nsid,
            limits: opened.limits,
            inbox,
            active: Vec::new(),
            free_places: Vec::new(),
            round: VecDeque::new(),
            alone: VecDeque::new(),
            extents: Vec::with_capacity(MAX_EXTENTS),
            counters: LaneCounters::default(),
            shared_counters,
            closing,
            watch: Watch::new(device),
        }
    }

    /// One turn: takes batches in, reads completions, plans, and rings the doorbells. Whether there was anything to
    /// do; after an empty turn the controller had the processor. When the engine has closed, tasks end as FAILED.
    pub fn turn(&mut self) -> bool {
        if !self.closing.is_open() {
            return self.end_with_engine();
        }
        let taken = self.take_in();
        let ended = self.complete();
        let planned = self.plan();
        if planned > 0 {
            self.pair.ring();
        }
        let busy = taken | (ended > 0) | (planned > 0);
        if self.watch.is_due(busy) {
            self.look_after_controller();
        }
        if busy {
            self.publish_counters();
        } else {
            self.pause();
        }
        busy
    }

    /// The turn of a lane whose engine closes: nothing may be issued any more, and no task can be told before the
    /// controller has stopped (invariant 7).
    #[cold]
    fn end_with_engine(&mut self) -> bool {
        if self.closing.is_finished() {
            self.abandon();
        } else {
            self.pause();
        }
        false
    }

    /// Gives the controller the processor, as an empty turn does.
    pub fn pause(&self) {
        self.function.pause();
    }

    /// Whether nothing is planned, in flight or waiting.
    pub fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.free_places.len() == self.active.len()
    }

    fn take_in(&mut self) -> bool {
        let mut taken = false;
        while let Some(batch) = self.inbox.pop() {
            taken = true;
            // Before the tail is read: a submit that comes after links it again.
            batch.unlink();
            let known = batch.place.load(Ordering::Relaxed);
            let place = match self.active.get(known as usize) {
                Some(Some(active)) if Arc::ptr_eq(&active.batch, &batch) => known,
                _ => self.enter(batch),
            };
            self.join_round(place);
        }
        taken
    }

    /// Gives a batch a place; planning goes on where it ended, if the batch was here before.
    fn enter(&mut self, batch: Arc<Shared>) -> u32 {
        let cursor = Cursor { task: batch.planned.load(Ordering::Relaxed), planned: 0 };
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() as u32 - 1
        });
        batch.place.store(place, Ordering::Relaxed);
        self.active[place as usize] = Some(Active { batch, cursor, in_flight: 0, in_round: false });
        place
    }

    fn join_round(&mut self, place: u32) {
        if let Some(Some(active)) = self.active.get_mut(place as usize)
            && !active.in_round
        {
            active.in_round = true;
            self.round.push_back(place);
        }
    }

    /// Reads completions, ends tasks, and lets go of batches that have no more work.
    fn complete(&mut self) -> usize {
        let Self { pair, active, alone, free_places, .. } = self;
        pair.poll(COMPLETIONS_A_TURN, |Completion { token, status, .. }| {
            let Some(slot) = active.get_mut(token.place as usize) else { return };
            let Some(entry) = slot else { return };
            entry.in_flight -= 1;
            if status.is_success() || !again(entry, token, Some(status), alone) {
                for index in token.indices() {
                    end_part(&entry.batch, index, status);
                }
            }
            if entry.is_done() {
                leave(slot, token.place, free_places);
            }
        })
    }

    /// Plans while there are free slots: first what must go alone, then a quantum of each batch in turn.
    fn plan(&mut self) -> usize {
        let mut planned = 0;
        while self.pair.free_slots() > 0
            && let Some(part) = self.alone.pop_front()
        {
            planned += self.plan_alone(part);
        }
        for _ in 0..self.round.len() {
            if self.pair.free_slots() == 0 {
                break;
            }
            let Some(place) = self.round.pop_front() else { break };
            planned += self.plan_batch(place);
        }
        planned
    }

    /// Plans up to a quantum of a batch's tasks, and puts it back into the round where it has more.
    fn plan_batch(&mut self, place: u32) -> usize {
        let Self { pair, active, extents, counters, free_places, round, limits, nsid, .. } = self;
        let Some(slot) = active.get_mut(place as usize) else { return 0 };
        let Some(entry) = slot else { return 0 };
        let tail = entry.batch.tail();
        let canceled = entry.batch.is_canceled();
        let mut planned = 0;
        while entry.cursor.task < tail && planned < QUANTUM && pair.free_slots() > 0 {
            if canceled && entry.cursor.planned == 0 {
                cancel(&entry.batch, entry.cursor.task);
                entry.cursor.task += 1;
                continue;
            }
            let Some(step) = planning::next_command(&entry.batch, entry.cursor, tail, false, *nsid, limits, extents)
            else {
                skip(&entry.batch, entry.cursor.task);
                entry.cursor = Cursor { task: entry.cursor.task + 1, planned: 0 };
                continue;
            };
            if step.next.planned != 0
                && let Some(task) = entry.batch.task(step.first)
            {
                // More commands of it follow: the last one takes the place of the planning (see Task).
                task.command_issued();
            }
            let begin = entry.cursor.planned;
            entry.cursor = step.next;
            issue(pair, entry, place, &step, (begin, 0), extents, counters);
            planned += 1;
        }
        if entry.cursor.task < tail {
            round.push_back(place);
        } else {
            entry.in_round = false;
            if entry.is_done() {
                leave(slot, place, free_places);
            }
        }
        planned
    }

    /// Issues again, alone, the part of a task whose command has failed with others, or was interrupted.
    #[cold]
    fn plan_alone(&mut self, part: CommandTasks) -> usize {
        let CommandTasks { place, first: task, planned, attempts, .. } = part;
        let Self { pair, active, extents, counters, free_places, limits, nsid, .. } = self;
        let Some(slot) = active.get_mut(place as usize) else { return 0 };
        let Some(entry) = slot else { return 0 };
        // It was counted as in flight since its former command ended.
        entry.in_flight -= 1;
        let cursor = Cursor { task, planned };
        match planning::next_command(&entry.batch, cursor, task + 1, true, *nsid, limits, extents) {
            Some(step) => issue(pair, entry, place, &step, (planned, attempts), extents, counters),
            None => skip(&entry.batch, task),
        }
        if entry.is_done() {
            leave(slot, place, free_places);
        }
        1
    }

    /// Gives up what has no command in flight, and waits up to `limit` for the rest. Whether all has ended.
    pub(crate) fn drain(&mut self, limit: Duration) -> bool {
        let deadline = progress::deadline(limit);
        loop {
            self.take_in();
            for active in self.active.iter().flatten() {
                active.batch.cancel();
            }
            self.turn();
            if self.is_idle() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
        }
    }

    /// Ends every task that has not ended as FAILED: the controller has stopped, or can reach nothing any more.
    pub(crate) fn abandon(&mut self) {
        self.take_in();
        for active in self.active.iter_mut().filter_map(Option::take) {
            for index in 0..active.batch.tail() {
                if let Some(task) = active.batch.task(index)
                    && !task.state().0.is_terminal()
                {
                    task.abandon();
                    active.batch.count_ended(false);
                }
            }
        }
        self.active.clear();
        self.free_places.clear();
        self.round.clear();
        self.alone.clear();
    }

    /// The queue pair, to be deleted.
    pub(crate) fn pair(&mut self) -> &mut QueuePair<CommandTasks> {
        &mut self.pair
    }

    fn publish_counters(&self) {
        self.shared_counters.publish(&self.counters, self.pair.counters(), self.pair.anomalies().total());
    }
}

impl Active {
    fn is_done(&self) -> bool {
        self.in_flight == 0 && !self.in_round
    }
}

/// Submits a planned command.
#[inline]
fn issue(
    pair: &mut QueuePair<CommandTasks>,
    entry: &mut Active,
    place: u32,
    step: &Step,
    (planned, attempts): (u64, u8),
    extents: &[Extent],
    counters: &mut LaneCounters,
) {
    let token = CommandTasks { place, first: step.first, tasks: step.tasks as u16, attempts, planned };
    match pair.submit(step.sqe, extents, token) {
        Ok(_) => {
            entry.in_flight += 1;
            counters.count(step);
        }
        Err(error) => {
            // Admission and planning keep to `Limits`, so this is a mistake of ours; the tasks end all the same.
            debug_assert!(false, "a planned command was refused: {error}");
            for index in token.indices() {
                end_part(&entry.batch, index, StatusCode::INVALID_FIELD_IN_COMMAND.into());
            }
        }
    }
}

/// Whether what a command was to do is asked for again, one task a command, and if so puts it among those. `status` is
/// what the device says of it, `None` where it was interrupted.
///
/// Of several tasks one may be the cause of a failure: each is asked for alone, so that the others are served. A task
/// alone is asked for again where the device does not say Do Not Retry, or said nothing.
#[cold]
fn again(entry: &mut Active, token: CommandTasks, status: Option<Status>, alone: &mut VecDeque<CommandTasks>) -> bool {
    let attempts = if token.tasks > 1 && status.is_some() { 0 } else { token.attempts + 1 };
    if attempts > ATTEMPTS || token.tasks == 1 && status.is_some_and(|status| status.dnr()) {
        return false;
    }
    entry.in_flight += u32::from(token.tasks);
    alone.extend(token.indices().map(|task| {
        let planned = if task == token.first { token.planned } else { 0 };
        CommandTasks { first: task, tasks: 1, attempts, planned, ..token }
    }));
    true
}

/// Lets go of a batch that has no more work here; a submit brings it back.
fn leave(slot: &mut Option<Active>, place: u32, free_places: &mut Vec<u32>) {
    if let Some(active) = slot.take() {
        active.batch.planned.store(active.cursor.task, Ordering::Relaxed);
        active.batch.settle();
        free_places.push(place);
    }
}

/// A command of the task has ended, or its planning.
#[inline]
fn end_part(batch: &Shared, index: u32, status: Status) {
    if let Some(task) = batch.task(index)
        && let Some(state) = task.part_ended(status)
    {
        batch.count_ended(state == TransferState::Completed);
    }
}

/// Ends a task of which no command has been issued.
fn cancel(batch: &Shared, index: u32) {
    if let Some(task) = batch.task(index)
        && !task.state().0.is_terminal()
    {
        task.cancel();
        batch.count_ended(false);
    }
}

/// Passes a task that needs no command: it was refused. One that is pending has numbers that admission would not have
/// let through, and fails.
fn skip(batch: &Shared, index: u32) {
    if batch.task(index).is_some_and(|task| !task.state().0.is_terminal()) {
        end_part(batch, index, StatusCode::INVALID_FIELD_IN_COMMAND.into());
    }
}

#[cfg(test)]
mod tests;
