//! How commands end, and with them tasks.

use std::collections::VecDeque;
use std::sync::TryLockError;
use std::sync::atomic::{Ordering, fence};

use tentpeg_driver::spec::status::Status;

use super::bell::Bell;
use super::port::Active;
use super::recovery::Watch;
use super::{ATTEMPTS, CommandTasks, Inbox};
use crate::batch::{Ends, Shared};
use crate::device::lock;
use crate::segment::Segment;
use crate::statistics::{self, Key, Recorder, Scene};
use crate::task::{Outcome, Task, Walk, Work};

/// Whether what a command was to do is asked for again, one task a command, and if so puts it among those. `status` is
/// what the device says of it, `None` where it was interrupted.
///
/// Of several tasks one may be the cause of a failure: each is asked for alone, so that the others are served. A task
/// alone is asked for again where the device does not say Do Not Retry, or said nothing.
#[cold]
pub(super) fn again(
    in_flight: &mut u32,
    token: CommandTasks,
    status: Option<Status>,
    alone: &mut VecDeque<CommandTasks>,
    recorder: &Recorder,
) -> bool {
    let attempts = if token.tasks > 1 && status.is_some() { 0 } else { token.attempts + 1 };
    if attempts > ATTEMPTS || token.tasks == 1 && status.is_some_and(|status| status.dnr()) {
        return false;
    }
    recorder.again();
    *in_flight += u32::from(token.tasks);
    alone.extend(token.indices().map(|task| {
        let planned = if task == token.first { token.planned } else { 0 };
        CommandTasks { first: task, tasks: 1, attempts, planned, ..token }
    }));
    true
}

/// Lets go of a batch if it has no more work here; a submit brings it back.
pub(super) fn leave_if_done(active: &mut [Option<Active>], lane: u8, place: u32, free_places: &mut Vec<u32>) {
    let Some(slot) = active.get_mut(place as usize) else { return };
    if let Some(active) = slot.take_if(|active| active.is_done()) {
        active.batch.lane(lane).planned.store(active.cursor.task, Ordering::Relaxed);
        active.batch.let_go(lane);
        free_places.push(place);
    }
}

/// Commands of transfers that have ended in a row, all of one batch: it is looked up once for them, and counts once.
pub(super) struct Row<'a> {
    /// The batch's place.
    place: u32,
    in_flight: &'a mut u32,
    batch: &'a Shared,
    tasks: Walk<'a>,
    ends: Ends,
}

/// Commands with one key that end in a row: how long they took is counted once for them. No part of a [`Row`], which goes
/// from hand to hand for each command.
#[derive(Default)]
pub(super) struct Alike {
    key: Key,
    commands: u64,
}

impl Alike {
    /// One more command has ended.
    #[inline(always)]
    pub(super) fn add(&mut self, token: CommandTasks, status: Status, recorder: &mut Recorder) {
        if token.key != self.key {
            self.next(token, status, recorder);
        }
        self.commands += 1;
    }

    /// A command that is not counted with those before it: it was issued in another turn, or is of another kind.
    // Never: it is called once for all that have one key.
    #[inline(never)]
    fn next(&mut self, token: CommandTasks, status: Status, recorder: &mut Recorder) {
        self.end(recorder);
        (self.key, self.commands) = (token.key, 0);
        if recorder.is_slow(token.key) {
            // Counted here, and with none, so that each of them comes here.
            recorder.ended(token.key, 1);
            recorder.keep_slow(token, status);
            self.key = Key::NONE;
        }
    }

    /// There are no more.
    pub(super) fn end(&self, recorder: &Recorder) {
        recorder.ended(self.key, self.commands);
    }
}

impl<'a> Row<'a> {
    /// Begins with the batch at a place.
    #[inline(always)]
    pub(super) fn begin(active: &'a mut Active, place: u32) -> Self {
        let Active { batch, in_flight, .. } = active;
        Self { place, tasks: batch.walk(), batch, in_flight, ends: Ends::default() }
    }

    /// Whether a command is of the same batch.
    #[inline(always)]
    pub(super) fn is_of(&self, token: CommandTasks) -> bool {
        self.place == token.place
    }

    /// One more command of it has ended.
    #[inline(always)]
    pub(super) fn command_ended(
        &mut self,
        token: CommandTasks,
        status: Status,
        watch: &mut Watch,
        alone: &mut VecDeque<CommandTasks>,
        recorder: &Recorder,
    ) {
        *self.in_flight -= 1;
        if !status.is_success() {
            return self.command_failed(token, status, watch, alone, recorder);
        }
        self.end_tasks(token, Outcome::SUCCESS);
    }

    /// One more command of it has failed: its tasks are asked for again, or end with its status.
    // Never: it would be in the way of those that succeed.
    #[cold]
    #[inline(never)]
    fn command_failed(
        &mut self,
        token: CommandTasks,
        status: Status,
        watch: &mut Watch,
        alone: &mut VecDeque<CommandTasks>,
        recorder: &Recorder,
    ) {
        if watch.sees_conflict(status) || !again(self.in_flight, token, Some(status), alone, recorder) {
            self.end_tasks(token, status.into());
        }
    }

    #[inline(always)]
    fn end_tasks(&mut self, token: CommandTasks, outcome: Outcome) {
        for index in token.indices() {
            if let Some(state) = self.tasks.get(index).and_then(|task| task.part_ended(outcome)) {
                self.ends.add(state);
            }
        }
    }

    /// The row is at its end: the batch's place.
    #[inline(always)]
    pub(super) fn end(self, lane: u8) -> u32 {
        self.batch.count_ended(lane, self.ends);
        self.place
    }
}

/// A command of a transfer has ended, or its planning.
pub(super) fn end_part(batch: &Shared, lane: u8, index: u32, outcome: Outcome) {
    if let Some(state) = batch.task(index).and_then(|task| task.part_ended(outcome)) {
        batch.count_ended(lane, Ends::one(state));
    }
}

/// This lane's share of a spread task has ended.
pub(super) fn end_share(batch: &Shared, lane: u8, index: u32, outcome: Outcome) {
    if let Some(state) = batch.task(index).and_then(|task| task.share_ended(outcome)) {
        batch.count_ended(lane, Ends::one(state));
    }
}

/// Gives up a task of which no command was issued, as far as it is this lane's; its end is added to `ends`. `false`:
/// another lane has begun it, so it runs to its end.
pub(super) fn cancel(batch: &Shared, lane: u8, index: u32, ends: &mut Ends) -> bool {
    let Some(task) = batch.task(index) else { return true };
    match task.work() {
        Work::Transfer(transfer) if transfer.head.lane() == lane => ends.add(task.give_up(Outcome::CANCELED)),
        Work::Spread(spread) if spread.lanes.contains(lane) => {
            if task.has_begun() {
                return false;
            }
            if let Some(state) = task.share_ended(Outcome::CANCELED) {
                ends.add(state);
            }
        }
        _ => {}
    }
    true
}

/// Tells of the commands of the batch at `place` that were slow and have just ended, before the batch may leave.
#[inline]
pub(super) fn tell_slow(
    recorder: &mut Recorder,
    active: &[Option<Active>],
    place: u32,
    segments: &[Segment],
    device: &str,
    lane: u8,
) {
    if recorder.has_slow()
        && let Some(Some(entry)) = active.get(place as usize)
    {
        tell_slow_of(recorder, entry, place, segments, device, lane);
    }
}

#[cold]
pub(super) fn tell_slow_of(
    recorder: &mut Recorder,
    entry: &Active,
    place: u32,
    segments: &[Segment],
    device: &str,
    lane: u8,
) {
    let task = |index| entry.batch.task(index).map(Task::work);
    let scene = Scene { task: &task, taken: entry.taken, segments, device, lane };
    while let Some((token, status)) = recorder.take_slow(place) {
        statistics::tell(recorder, &scene, token, status);
    }
}

/// Ends what of a batch is this lane's and has not ended, and lets go of it: no device touches its memory any more. Of its
/// tasks from `unplanned` on nothing was issued, and of the spread ones among them the lane's share has not ended.
pub(super) fn give_up(batch: &Shared, lane: u8, unplanned: u32, outcome: Outcome) {
    let tail = batch.tail();
    let canceled = batch.is_canceled();
    for index in 0..tail {
        let outcome = if canceled && index >= unplanned { Outcome::CANCELED } else { outcome };
        let Some(task) = batch.task(index) else { break };
        match task.work() {
            Work::Transfer(transfer) if transfer.head.lane() == lane && !task.state().0.is_terminal() => {
                batch.count_ended(lane, Ends::one(task.give_up(outcome)));
            }
            Work::Spread(spread) if index >= unplanned && spread.lanes.contains(lane) => {
                end_share(batch, lane, index, outcome);
            }
            _ => {}
        }
    }
    batch.lane(lane).planned.store(tail, Ordering::Relaxed);
    batch.let_go(lane);
}

/// As [`give_up_inbox`], and waits for whoever does it at the moment: no batch that was in the inbox has a task of this lane
/// then that has not ended. Not by a notifier.
pub(crate) fn wait_for_inbox(inbox: &Inbox, lane: u8, bell: &Bell) {
    let giving_up = lock(&bell.giving_up);
    give_up_all(inbox, lane);
    drop(giving_up);
    give_up_inbox(inbox, lane, bell);
}

/// Under the lock of whoever gives up.
fn give_up_all(inbox: &Inbox, lane: u8) {
    while let Some(batch) = inbox.pop() {
        batch.take(lane);
        let unplanned = batch.lane(lane).planned.load(Ordering::Relaxed);
        give_up(&batch, lane, unplanned, Outcome::NO_LANE);
    }
}

/// Gives up the batches in the inbox of a port that is no more: by the port as the last that it does, then by whoever
/// puts one there. One at a time, as a lane's counts have one writer.
pub(crate) fn give_up_inbox(inbox: &Inbox, lane: u8, bell: &Bell) {
    while !inbox.is_empty() {
        let giving_up = match bell.giving_up.try_lock() {
            Ok(giving_up) => giving_up,
            Err(TryLockError::Poisoned(giving_up)) => giving_up.into_inner(),
            // Whoever does it looks once more when he has let go; a notifier that submits is called by him.
            Err(TryLockError::WouldBlock) => return,
        };
        give_up_all(inbox, lane);
        drop(giving_up);
        // Between letting go and the look; whoever has put a batch there has a barrier of his own before his try (see
        // `Bell::ring`).
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
