//! A port: a lane's end at one device.
//!
//! Batches come to it through an inbox; in a turn it takes them in, reads completions, plans tasks while it has free
//! slots, and rings each doorbell once. Tasks that are not planned yet are the backlog, so full queues are never a
//! request's error. Here is the way of transfers; whatever else there is goes by `special`.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tentpeg_driver::bus::{Function, Interrupt};
use tentpeg_driver::dma::{HostMemory, Region};
use tentpeg_driver::queue::{Completion, Extent, QueuePair};
use tentpeg_driver::spec::status::Status;

use super::bell::Bell;
use super::closing::Closing;
use super::copies::{Copied, GpuCopies};
use super::durable::Durable;
use super::ends::{Alike, Row, cancel, end_part, end_share, give_up, leave_if_done, tell_slow};
use super::issue::{Issued, issue};
use super::lists::Lists;
use super::recovery::Watch;
use super::rounds::Rounds;
use super::shares::Shares;
use super::withdrawal::Inquiries;
use super::{COMPLETIONS_A_TURN, CommandTasks, Flags, Inbox, QUANTUM};
use crate::batch::{Ends, Priority, Shared};
use crate::clock::Clock;
use crate::counters::SharedCounters;
use crate::device::SharedDevice;
use crate::gpu::Visibility;
use crate::memory::Registered;
use crate::ownership::TakenOver;
use crate::planning::spread::Means;
use crate::planning::{self, Cursor, Ground, MAX_EXTENTS};
use crate::segment::Segment;
use crate::staging::{Staging, StagingCell};
use crate::statistics::Recorder;
use crate::task::Outcome;

/// A batch with work in this port.
pub(super) struct Active {
    pub(super) batch: Arc<Shared>,
    pub(super) cursor: Cursor,
    /// The share of the spread task that the cursor is in, once a command of it was issued.
    pub(super) share: Option<u16>,
    /// Commands in flight, waiting for a Flush, or to be issued again.
    pub(super) in_flight: u32,
    /// When it last came without having tasks to plan before, in ticks.
    pub(super) taken: u64,
    /// Whether it stands in the round of batches that have tasks to plan.
    in_round: bool,
}

/// What a port is made of.
pub(crate) struct PortParts {
    pub(crate) pair: QueuePair<CommandTasks>,
    pub(crate) ground: Ground,
    pub(crate) means: Means,
    /// Zeroes to be written, where the device has no Write Zeroes.
    pub(crate) zeroes: Option<Region<HostMemory>>,
    pub(crate) clock: Clock,
    pub(crate) device: SharedDevice,
    pub(crate) inbox: Inbox,
    pub(crate) bell: Arc<Bell>,
    /// What its completion queue interrupts by, where that was asked for and can be had.
    pub(crate) interrupt: Option<Box<dyn Interrupt>>,
    pub(crate) inquiries: Arc<Inquiries>,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) recorder: Recorder,
    pub(crate) closing: Arc<Closing>,
    /// Where it says who has taken the device over, and what that is called.
    pub(crate) taken_over: Arc<OnceLock<TakenOver>>,
    pub(crate) name: String,
    pub(crate) segments: Arc<[Segment]>,
    pub(crate) registered: Arc<ArcSwap<Registered>>,
    pub(crate) staging: StagingCell,
    /// By what direct reads into GPU memory are made visible, where they have to be.
    pub(crate) visibility: Option<Arc<Visibility>>,
}

/// A lane's end at one device.
pub(crate) struct Port {
    pub(super) pair: QueuePair<CommandTasks>,
    pub(super) ground: Ground,
    function: Arc<dyn Function>,
    pub(super) inbox: Inbox,
    pub(super) bell: Arc<Bell>,
    pub(super) interrupt: Option<Box<dyn Interrupt>>,
    /// Whether it is armed.
    pub(super) is_armed: bool,
    pub(super) inquiries: Arc<Inquiries>,
    pub(super) active: Vec<Option<Active>>,
    pub(super) free_places: Vec<u32>,
    /// Batches with tasks to plan, in turn.
    rounds: Rounds,
    /// What is to be issued again, one task a command: its common command failed, or was interrupted.
    pub(super) alone: VecDeque<CommandTasks>,
    pub(super) extents: Vec<Extent>,
    /// Commands that have ended and are more than a transfer's.
    pub(super) special: Vec<(CommandTasks, Status)>,
    pub(super) shares: Shares,
    pub(super) durable: Durable,
    pub(super) means: Means,
    pub(super) staging: Staging,
    pub(super) copies: GpuCopies,
    /// Commands whose copies are made, while they are dealt with.
    pub(super) copied: Vec<Copied>,
    pub(super) lists: Option<Lists>,
    pub(super) segments: Arc<[Segment]>,
    pub(super) registered: Arc<ArcSwap<Registered>>,
    /// Kept for as long as a command may read it.
    _zeroes: Option<Region<HostMemory>>,
    pub(super) counters: Arc<SharedCounters>,
    pub(super) recorder: Recorder,
    /// What the engine says when it closes without this port.
    pub(super) closing: Arc<Closing>,
    pub(super) watch: Watch,
    pub(super) visibility: Option<Arc<Visibility>>,
}

impl Port {
    /// The port of the device that `parts` are of.
    ///
    /// # Errors
    /// [`MemoryError`](crate::MemoryError): there is none for lists of ranges.
    pub(crate) fn new(parts: PortParts) -> Result<Self, crate::MemoryError> {
        let PortParts { pair, ground, means, zeroes, clock, device, inbox, .. } = parts;
        let function = Arc::clone(clock.function());
        let lists = (means.deallocation != 0).then(|| Lists::new(&function, pair.slots())).transpose()?;
        Ok(Self {
            pair,
            ground,
            function,
            inbox,
            bell: parts.bell,
            interrupt: parts.interrupt,
            is_armed: false,
            inquiries: parts.inquiries,
            active: Vec::new(),
            free_places: Vec::new(),
            rounds: Rounds::default(),
            alone: VecDeque::new(),
            extents: Vec::with_capacity(MAX_EXTENTS),
            special: Vec::with_capacity(COMPLETIONS_A_TURN),
            shares: Shares::default(),
            durable: Durable::new(parts.segments.len()),
            means,
            staging: Staging::new(parts.staging),
            copies: GpuCopies::default(),
            copied: Vec::new(),
            lists,
            segments: parts.segments,
            registered: parts.registered,
            _zeroes: zeroes,
            counters: parts.counters,
            recorder: parts.recorder,
            closing: parts.closing,
            watch: Watch::new(device, clock, parts.name, parts.taken_over),
            visibility: parts.visibility,
        })
    }

    /// Whether it is the port of the device that is told by `closing` when its engine closes.
    pub(crate) fn is_of(&self, closing: &Arc<Closing>) -> bool {
        Arc::ptr_eq(&self.closing, closing)
    }

    /// What the device is called, and the NUMA node that it is near to.
    pub(crate) fn place(&self) -> (String, Option<u32>) {
        (self.function.name().to_owned(), self.function.numa_node())
    }

    /// One turn. Whether there was anything to do.
    #[inline]
    pub(super) fn turn(&mut self) -> bool {
        if self.inquiries.is_asked() {
            self.answer_inquiries();
        }
        if !self.closing.is_open() || !self.watch.is_on() {
            return self.turn_without_controller();
        }
        self.recorder.begin_turn();
        let taken = self.take_in();
        let ended = self.complete();
        // They have waited for a buffer and a copy: what comes now does not take their slots.
        let ready = self.copies.is_busy() && self.submit_ready();
        let planned = if self.watch.is_on() { self.plan() } else { 0 };
        if planned > 0 {
            self.pair.ring();
        }
        let busy = taken | ready | (ended > 0) | (planned > 0) | (self.copies.is_busy() && self.turn_copies());
        if self.watch.is_due(busy) {
            self.look_after_controller();
        }
        if busy {
            self.publish_counters();
        }
        busy
    }

    /// How much the device has to do, and what its queue pair has counted.
    pub(super) fn publish_counters(&self) {
        self.recorder.occupied((self.pair.slots() - self.pair.free_slots()) as u64);
        self.counters.publish(self.pair.counters(), self.pair.anomalies().total());
    }

    /// The turn of a port whose engine closes, whose controller was given up, or whose device is another host's: nothing
    /// may be issued any more, and no task can be told before the controller has stopped or its commands have ended
    /// (invariant 7).
    #[cold]
    fn turn_without_controller(&mut self) -> bool {
        if self.closing.is_finished() || self.watch.has_ended() {
            self.abandon();
            return false;
        }
        self.closing.is_open() && self.turn_in_conflict()
    }

    /// Gives the controller the processor.
    pub(super) fn pause(&self) {
        self.function.pause();
    }

    /// What the device interrupts by, while it is armed.
    pub(super) fn armed_interrupt(&self) -> Option<&dyn Interrupt> {
        self.interrupt.as_deref().filter(|_| self.is_armed)
    }

    /// Whether nothing is planned, in flight or waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.is_empty() && self.free_places.len() == self.active.len()
    }

    /// Takes in what is in the inbox. What a notifier puts there meanwhile waits for the next turn.
    #[inline]
    pub(super) fn take_in(&mut self) -> bool {
        let Some(first) = self.inbox.pop() else { return false };
        let others = self.inbox.len();
        self.take_batch(first);
        for _ in 0..others {
            let Some(batch) = self.inbox.pop() else { break };
            self.take_batch(batch);
        }
        true
    }

    #[inline]
    fn take_batch(&mut self, batch: Arc<Shared>) {
        // Before the tail is read: a submit that comes after links it again.
        batch.take(self.ground.lane);
        let known = batch.lane(self.ground.lane).place.load(Ordering::Relaxed);
        let place = match self.active.get(known as usize) {
            Some(Some(active)) if Arc::ptr_eq(&active.batch, &batch) => known,
            _ => self.enter(batch),
        };
        self.join_round(place);
    }

    /// Gives a batch a place; planning goes on where it ended, if the batch was here before.
    fn enter(&mut self, batch: Arc<Shared>) -> u32 {
        let state = batch.lane(self.ground.lane);
        let cursor = Cursor { task: state.planned.load(Ordering::Relaxed), planned: 0 };
        let place = self.free_places.pop().unwrap_or_else(|| {
            self.active.push(None);
            self.active.len() as u32 - 1
        });
        state.place.store(place, Ordering::Relaxed);
        self.active[place as usize] =
            Some(Active { batch, cursor, share: None, in_flight: 0, taken: 0, in_round: false });
        place
    }

    fn join_round(&mut self, place: u32) {
        if let Some(Some(active)) = self.active.get_mut(place as usize)
            && !active.in_round
        {
            active.in_round = true;
            active.taken = self.recorder.now(self.watch.clock());
            if self.pair.free_slots() == self.pair.slots() {
                // Nobody has looked at the time while there was nothing to do: what is issued now has waited for nothing.
                self.pair.set_now(self.watch.clock().milliseconds());
            }
            self.rounds.push(active.batch.priority(), place);
        }
    }

    /// Reads completions, ends tasks, and lets go of batches that have no more work.
    #[inline]
    pub(super) fn complete(&mut self) -> usize {
        if let Some(visibility) = &self.visibility
            && visibility.is_wanted()
        {
            return self.complete_visibly();
        }
        let Self { pair, ground, active, alone, free_places, special, watch, recorder, segments, .. } = self;
        let mut completions = pair.completions(COMPLETIONS_A_TURN);
        let mut row: Option<Row<'_>> = None;
        let mut alike = Alike::default();
        for Completion { token, status, .. } in completions.by_ref() {
            if !token.flags.is_empty() {
                special.push((token, status));
                continue;
            }
            let mut current = match row {
                Some(row) if row.is_of(token) => row,
                other => {
                    if let Some(place) = other.map(|other| other.end(ground.lane)) {
                        tell_slow(recorder, active, place, segments, watch.name(), ground.lane);
                        leave_if_done(active, ground.lane, place, free_places);
                    }
                    recorder.now(watch.clock());
                    let Some(Some(entry)) = active.get_mut(token.place as usize) else {
                        row = None;
                        continue;
                    };
                    Row::begin(entry, token.place)
                }
            };
            alike.add(token, status, recorder);
            current.command_ended(token, status, watch, alone, recorder);
            row = Some(current);
        }
        alike.end(recorder);
        if let Some(place) = row.map(|row| row.end(ground.lane)) {
            tell_slow(recorder, active, place, segments, watch.name(), ground.lane);
            leave_if_done(active, ground.lane, place, free_places);
        }
        let ended = completions.ended();
        drop(completions);
        if !self.special.is_empty() {
            self.complete_special();
        }
        ended
    }

    /// Plans while there are free slots: first the Flush that others wait for, then what must go alone, then a quantum
    /// of each batch in turn.
    #[inline]
    fn plan(&mut self) -> usize {
        let mut planned = 0;
        if self.durable.wants_flush() {
            planned += self.plan_flush();
        }
        while self.pair.free_slots() > 0
            && let Some(part) = self.alone.pop_front()
        {
            match self.plan_alone(part) {
                Some(commands) => planned += commands,
                None => {
                    self.alone.push_front(part);
                    break;
                }
            }
        }
        if self.rounds.are_of_one_priority() {
            return planned + self.plan_round(Priority::High, usize::MAX);
        }
        planned + self.plan_by_priority()
    }

    /// Plans what has to wait for others, or others for it.
    #[cold]
    fn plan_by_priority(&mut self) -> usize {
        let mut planned = 0;
        for priority in Priority::ALL {
            let in_flight = |priority: Priority| -> usize {
                let of_it = self.active.iter().flatten().filter(|active| active.batch.priority() == priority);
                of_it.map(|active| active.in_flight as usize).sum()
            };
            let most = self.rounds.allowance(priority, self.pair.free_slots(), in_flight);
            let commands = self.plan_round(priority, most);
            self.rounds.planned(priority, commands);
            planned += commands;
        }
        planned
    }

    /// Plans a quantum of each batch of a priority in turn, up to `most` commands in all.
    #[inline]
    fn plan_round(&mut self, priority: Priority, most: usize) -> usize {
        let mut planned = 0;
        for _ in 0..self.rounds.len(priority) {
            if self.pair.free_slots() == 0 || planned >= most {
                break;
            }
            let Some(place) = self.rounds.pop(priority) else { break };
            planned += self.plan_batch(place, QUANTUM.min(most - planned));
        }
        planned
    }

    /// Plans up to `most` commands of a batch's tasks, and puts it back into the round where it has more.
    // Never: what `plan_round` holds would be in its loop's way, at 20 instructions a command.
    #[inline(never)]
    fn plan_batch(&mut self, place: u32, most: usize) -> usize {
        let Some(tail) = self.entry(place).map(|entry| entry.batch.tail()) else { return 0 };
        let mut planned = 0;
        loop {
            let canceled = self.entry(place).is_some_and(|entry| entry.batch.is_canceled());
            let end = if canceled { self.pass_canceled(place, tail) } else { tail };
            let Self { pair, active, extents, counters, ground, recorder, watch, .. } = self;
            let Some(Some(entry)) = active.get_mut(place as usize) else { return planned };
            let Active { batch, cursor, in_flight, .. } = entry;
            let mut tasks = batch.walk();
            let mut alike = Issued::default();
            while cursor.task < end && planned < most && pair.free_slots() > 0 {
                let Some(step) = planning::next_command(&mut tasks, *cursor, end, false, ground, extents) else {
                    break;
                };
                if step.next.planned != 0
                    && let Some(task) = tasks.get(step.first)
                {
                    // More commands of it follow: the last one takes the place of the planning (see Task).
                    task.command_issued();
                }
                if step.head != alike.head {
                    alike.end(in_flight, counters, recorder);
                    alike = Issued::begin(step.head, recorder, watch.clock());
                }
                let begin = cursor.planned;
                *cursor = step.next;
                if issue(pair, batch, place, &step, (begin, 0), alike.key, ground, extents) {
                    alike.commands += 1;
                    alike.bytes += step.bytes;
                    alike.requests += step.tasks - u32::from(begin != 0);
                }
                planned += 1;
            }
            alike.end(in_flight, counters, recorder);
            if cursor.task >= tail || planned >= most || pair.free_slots() == 0 {
                break;
            }
            if cursor.task >= end {
                continue;
            }
            // A task that is no transfer of this lane.
            match self.plan_other(place) {
                Some(commands) => planned += commands,
                None => break,
            }
        }
        let Self { ground, active, free_places, rounds, .. } = self;
        let Some(Some(entry)) = active.get_mut(place as usize) else { return planned };
        if entry.cursor.task < tail {
            rounds.push(entry.batch.priority(), place);
        } else {
            entry.in_round = false;
            leave_if_done(active, ground.lane, place, free_places);
        }
        planned
    }

    /// Goes past the tasks at a canceled batch's cursor of which nothing was issued, and ends them, as far as they are this
    /// lane's. Where planning has to stop: behind the one at the cursor then, which others or this lane have begun.
    #[cold]
    fn pass_canceled(&mut self, place: u32, tail: u32) -> u32 {
        let Self { active, ground, staging, .. } = self;
        let Some(Some(entry)) = active.get_mut(place as usize) else { return tail };
        let Active { batch, cursor, .. } = entry;
        let mut ends = Ends::default();
        while cursor.task < tail && cursor.planned == 0 && cancel(batch, ground.lane, cursor.task, &mut ends) {
            // It may have waited for a staging buffer.
            staging.leave_line(batch.priority(), place);
            cursor.task += 1;
        }
        batch.count_ended(ground.lane, ends);
        tail.min(cursor.task + 1)
    }

    /// Issues again, alone, the part of a task whose command has failed with others, or was interrupted. How many
    /// commands that was; `None` where it has to wait.
    #[cold]
    fn plan_alone(&mut self, part: CommandTasks) -> Option<usize> {
        if part.flags.has(Flags::SPREAD) {
            return self.plan_spread_again(part);
        }
        let CommandTasks { place, first: task, planned, attempts, .. } = part;
        let Self { pair, active, extents, counters, free_places, ground, recorder, watch, .. } = self;
        let Some(Some(entry)) = active.get_mut(place as usize) else { return Some(0) };
        // It was counted as in flight since its former command ended.
        entry.in_flight -= 1;
        let cursor = Cursor { task, planned };
        match planning::next_command(&mut entry.batch.walk(), cursor, task + 1, true, ground, extents) {
            Some(step) => {
                let mut alike = Issued::begin(step.head, recorder, watch.clock());
                if issue(pair, &entry.batch, place, &step, (planned, attempts), alike.key, ground, extents) {
                    (alike.commands, alike.bytes) = (1, step.bytes);
                }
                alike.end(&mut entry.in_flight, counters, recorder);
            }
            None => end_part(&entry.batch, ground.lane, task, Outcome::LOST),
        }
        leave_if_done(active, ground.lane, place, free_places);
        Some(1)
    }

    /// Gives up what has no command in flight, and waits up to `limit` for the rest. Whether all has ended.
    pub(crate) fn drain(&mut self, limit: Duration) -> bool {
        let start = self.function.now();
        loop {
            self.take_in();
            for active in self.active.iter().flatten() {
                active.batch.cancel();
            }
            if !self.turn() {
                self.pause();
            }
            if self.is_idle() {
                return true;
            }
            if self.function.now().saturating_duration_since(start) >= limit {
                return false;
            }
        }
    }

    /// Ends all that has not ended as FAILED, as far as it is this port's: the controller has stopped, or can reach
    /// nothing any more.
    pub(crate) fn abandon(&mut self) {
        self.abandon_as(self.watch.outcome());
    }

    /// As [`abandon`](Self::abandon), with what is to be said of the tasks.
    pub(super) fn abandon_as(&mut self, outcome: Outcome) {
        self.take_in();
        // A terminal status says of a GPU's copies, too, that none goes there any more.
        self.copies.settle();
        self.flush_for_interrupted();
        let lane = self.ground.lane;
        for share in self.shares.take_all() {
            if let Some(Some(active)) = self.active.get(share.place as usize) {
                end_share(&active.batch, lane, share.task, share.given_up(outcome));
            }
        }
        for active in self.active.iter_mut().filter_map(Option::take) {
            // A spread task that the cursor is in the middle of has a share, which has just ended.
            let unplanned = active.cursor.task + u32::from(active.cursor.planned != 0);
            give_up(&active.batch, lane, unplanned, outcome);
        }
        self.active.clear();
        self.free_places.clear();
        self.rounds.clear();
        self.staging.clear_line();
        self.alone.clear();
        self.special.clear();
        // None of them will be told of again.
        drop(self.durable.interrupted());
    }

    /// Whether the controller is there, and the device this host's.
    pub(crate) fn may_issue(&self) -> bool {
        self.watch.is_on()
    }

    /// The queue pair, to be deleted.
    pub(crate) fn pair(&mut self) -> &mut QueuePair<CommandTasks> {
        &mut self.pair
    }

    pub(super) fn entry(&mut self, place: u32) -> Option<&mut Active> {
        self.active.get_mut(place as usize)?.as_mut()
    }

    /// Lets go of a batch if it has no more work here.
    pub(super) fn leave_if_done(&mut self, place: u32) {
        leave_if_done(&mut self.active, self.ground.lane, place, &mut self.free_places);
    }
}

impl Active {
    pub(super) fn is_done(&self) -> bool {
        self.in_flight == 0 && !self.in_round
    }
}
