//! What is more than a transfer: spread tasks, durability, staging, zeroes and deallocations.

use tentpeg_driver::queue::IoCommand;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::spec::status::{Status, StatusCode};

use super::copies::Copied;
use super::ends::{again, end_part, end_share, tell_slow_of};
use super::port::{Active, Port};
use super::{ATTEMPTS, CommandTasks, Flags};
use crate::memory::Registered;
use crate::planning::spread::{self, Part};
use crate::planning::{Cursor, Ground};
use crate::segment::Durability;
use crate::task::{Operation, Outcome, Spread, Task, Work};

/// What became of the planning of a part.
enum Planned {
    /// A command was issued; planning goes on at that byte of the task.
    Issued { next: u64 },
    /// There is nothing more of the task for this lane.
    Finished,
    /// There is, and it cannot be done.
    Failed(Outcome),
    /// It has to wait: for a slot, a staging buffer or a list.
    Waits,
}

impl Port {
    /// Goes past the task at a batch's cursor that is no transfer of this lane, or plans a part of it. How many commands
    /// that was; `None` where it has to wait.
    #[cold]
    pub(super) fn plan_other(&mut self, place: u32) -> Option<usize> {
        let lane = self.ground.lane;
        let entry = self.entry(place)?;
        let index = entry.cursor.task;
        let past = Cursor { task: index + 1, planned: 0 };
        let task = entry.batch.task(index)?;
        let spread = match task.work() {
            Work::Spread(spread) if spread.lanes.contains(lane) => spread,
            Work::Transfer(transfer) if transfer.head.lane() == lane => {
                // Its numbers are none that admission would have let through: it fails.
                end_part(&entry.batch, lane, index, StatusCode::INVALID_FIELD_IN_COMMAND.status().into());
                entry.cursor = past;
                return Some(0);
            }
            _ => {
                entry.cursor = past;
                return Some(0);
            }
        };
        let (planned, priority) = (entry.cursor.planned, entry.batch.priority());
        // Before there is a share: who waits for a buffer has begun nothing, and can be canceled.
        if spread.head.operation().is_staged() && !self.staging.may_take(priority, place) {
            return None;
        }
        let entry = self.entry(place)?;
        let share = match entry.share {
            Some(share) => share,
            None => {
                let share = self.shares.begin(place, index)?;
                self.entry(place)?.share = Some(share);
                share
            }
        };
        let token = CommandTasks { planned, place, first: index, tasks: 1, share, ..CommandTasks::default() };
        let outcome = match self.issue_part(&spread, token) {
            Planned::Issued { next } => {
                self.shares.command_issued(share);
                let entry = self.entry(place)?;
                entry.in_flight += 1;
                // A Flush is one command, and whoever has no byte left to plan is at the end.
                if next < spread.length {
                    entry.cursor.planned = next;
                    return Some(1);
                }
                Outcome::SUCCESS
            }
            Planned::Waits => {
                // Nothing of it was issued: it can be given up still.
                if planned == 0 {
                    self.shares.take_back(share);
                    self.entry(place)?.share = None;
                }
                return None;
            }
            Planned::Finished => Outcome::SUCCESS,
            Planned::Failed(outcome) => outcome,
        };
        // The planning's own part of the share.
        self.end_share_part(place, share, outcome);
        let entry = self.entry(place)?;
        (entry.cursor, entry.share) = (past, None);
        Some(1)
    }

    /// Issues a part of a spread task again. How many commands that was; `None` where it has to wait.
    #[cold]
    pub(super) fn plan_spread_again(&mut self, token: CommandTasks) -> Option<usize> {
        let Some(entry) = self.entry(token.place) else { return Some(0) };
        let Some(Work::Spread(spread)) = entry.batch.task(token.first).map(|task| task.work()) else { return Some(0) };
        match self.issue_part(&spread, token) {
            // It was counted as in flight since its former command ended, and still is.
            Planned::Issued { .. } => return Some(1),
            Planned::Waits => return None,
            Planned::Finished => self.end_special(token, Outcome::LOST),
            Planned::Failed(outcome) => self.end_special(token, outcome),
        }
        Some(0)
    }

    /// Plans and submits the part of a spread task that begins where `token` says.
    fn issue_part(&mut self, spread: &Spread, mut token: CommandTasks) -> Planned {
        let operation = spread.head.operation();
        token.flags = Flags::SPREAD.and(cares(operation, spread.head.durability(), &self.ground));
        if operation == Operation::Flush {
            return self.issue_flush(spread, token);
        }
        let Some(segment) = self.segments.get(spread.head.segment()) else { return Planned::Failed(Outcome::LOST) };
        let (ground, means) = (&self.ground, &self.means);
        let Some(part) = spread::next_part(spread, token.planned, &segment.map, ground, means, &mut self.extents)
        else {
            return Planned::Finished;
        };
        let bytes = part.blocks << ground.limits.lba_shift();
        let sqe = match operation {
            Operation::Deallocate => match self.list_of(&part, &mut token) {
                Ok(sqe) => sqe,
                Err(planned) => return planned,
            },
            _ => {
                let sqe = spread::command(spread, &part, ground, means, &mut self.extents);
                let Some(sqe) = sqe else {
                    return Planned::Failed(StatusCode::INVALID_FIELD_IN_COMMAND.status().into());
                };
                if operation.is_staged() {
                    match self.stage(spread, &part, (sqe, bytes), &mut token) {
                        Ok(Staged::Ready) => {}
                        Ok(Staged::Copied) => return Planned::Issued { next: part.next },
                        Err(planned) => return planned,
                    }
                }
                sqe
            }
        };
        match self.submit_special(sqe, token, bytes) {
            true => Planned::Issued { next: part.next },
            false => Planned::Failed(StatusCode::INVALID_FIELD_IN_COMMAND.status().into()),
        }
    }

    /// Takes a staging buffer for a part, with what is to be written, and puts it among the extents. What a GPU has to copy
    /// into it first is submitted when it has.
    fn stage(
        &mut self,
        spread: &Spread,
        part: &Part,
        (sqe, bytes): (Sqe, u64),
        token: &mut CommandTasks,
    ) -> Result<Staged, Planned> {
        let Self { staging, extents, registered, counters, copies, active, .. } = self;
        let Some(buffer) = staging.take(token.place) else { return Err(Planned::Waits) };
        extents.clear();
        extents.extend(staging.extent(buffer, bytes));
        let writes = spread.head.operation() == Operation::StagedWrite;
        let address = part.staged_address(spread);
        if writes && let Some(address) = address.filter(|address| is_gpu(&registered.load(), *address, bytes)) {
            copies.open(|| staging.take_copier());
            let mut token = *token;
            token.resource = buffer;
            token.flags = token.flags.and(Flags::STAGED);
            let copy = staging.gpu_copy(buffer, (0, bytes), address, false);
            if copy.is_none_or(|copy| !copies.add(copy, Copied { token, command: Some((sqe, bytes)) })) {
                staging.give_back(token.place, buffer);
                return Err(Planned::Failed(Outcome::LOST));
            }
            counters.count_staged_write(bytes);
            // From now on the GPU reads the task's memory.
            if let Some(Some(entry)) = active.get(token.place as usize)
                && let Some(task) = entry.batch.task(token.first)
            {
                task.begin();
            }
            return Ok(Staged::Copied);
        }
        let copied =
            !writes || address.is_some_and(|address| staging.copy_in(buffer, bytes, address, &registered.load()));
        if extents.is_empty() || !copied {
            staging.give_back(token.place, buffer);
            return Err(Planned::Failed(Outcome::LOST));
        }
        if writes {
            counters.count_staged_write(bytes);
        }
        token.resource = buffer;
        token.flags = token.flags.and(Flags::STAGED);
        Ok(Staged::Ready)
    }

    /// The part of a turn that has copies of a GPU: ends what they were waited for by, submits writes whose bytes are there,
    /// and begins the next list. Whether anything was done, or is being copied, of which no interrupt tells.
    #[cold]
    pub(super) fn turn_copies(&mut self) -> bool {
        let (mut ended, mut done) = (std::mem::take(&mut self.copied), false);
        while let Some(made) = self.copies.look(&mut ended) {
            done = true;
            for copied in ended.drain(..) {
                match (copied.command, made) {
                    (Some(_), true) => self.copies.make_ready(copied),
                    (_, made) => {
                        let token = self.give_back(copied.token);
                        self.end_special(token, if made { Outcome::SUCCESS } else { Outcome::LOST });
                    }
                }
            }
        }
        self.copied = ended;
        let submitted = self.submit_ready();
        self.copies.begin();
        done || submitted || self.copies.is_copying()
    }

    /// Submits writes whose bytes are in their buffers, while there are slots. Whether there was one.
    #[cold]
    pub(super) fn submit_ready(&mut self) -> bool {
        let mut submitted = false;
        while self.watch.is_on()
            && self.pair.free_slots() > 0
            && let Some(Copied { token, command: Some((sqe, bytes)) }) = self.copies.take_ready()
        {
            self.extents.clear();
            self.extents.extend(self.staging.extent(token.resource, bytes));
            submitted = true;
            // Whoever refuses it gives its buffer back.
            let without_buffer = self.extents.is_empty();
            if without_buffer {
                self.give_back(token);
            }
            if without_buffer || !self.submit_special(sqe, token, bytes) {
                self.end_special(token, StatusCode::INVALID_FIELD_IN_COMMAND.status().into());
            }
        }
        if submitted {
            self.pair.ring();
        }
        submitted
    }

    /// Writes the list of a deallocation, and puts its memory among the extents.
    fn list_of(&mut self, part: &Part, token: &mut CommandTasks) -> Result<Sqe, Planned> {
        let refused = Planned::Failed(StatusCode::INVALID_FIELD_IN_COMMAND.status().into());
        let Some(lists) = &mut self.lists else { return Err(refused) };
        let limits = &self.ground.limits;
        let (number, list) = match lists.write(limits, part.slba, part.blocks) {
            Some(Ok(list)) => list,
            Some(Err(_)) => return Err(refused),
            None => return Err(Planned::Waits),
        };
        let command = IoCommand::deallocate(&list);
        self.extents.clear();
        self.extents.extend_from_slice(command.data());
        match command.sqe(self.ground.nsid, limits) {
            Ok(sqe) => {
                token.resource = number;
                token.flags = token.flags.and(Flags::LISTED);
                Ok(sqe)
            }
            Err(_) => {
                lists.give_back(number);
                Err(refused)
            }
        }
    }

    /// The Flush of a Flush task. It fails where the segment has lost what it would have made durable.
    fn issue_flush(&mut self, spread: &Spread, mut token: CommandTasks) -> Planned {
        if self.durable.take_lost(spread.head.segment()) {
            return Planned::Failed(Outcome::LOST);
        }
        token.flags = Flags::SPREAD.and(Flags::FLUSHES);
        token.planned = self.durable.moment();
        self.extents.clear();
        match self.submit_special(Sqe::flush(self.ground.nsid), token, 0) {
            true => Planned::Issued { next: u64::MAX },
            false => Planned::Failed(StatusCode::INVALID_FIELD_IN_COMMAND.status().into()),
        }
    }

    /// Issues the Flush that completed writes wait for. How many commands that was.
    #[cold]
    pub(super) fn plan_flush(&mut self) -> usize {
        if self.pair.free_slots() == 0 {
            return 0;
        }
        let (planned, attempts) = (self.durable.moment(), self.durable.flush_issued());
        let token = CommandTasks { planned, attempts, flags: Flags::SERVES, ..CommandTasks::default() };
        self.extents.clear();
        if !self.submit_special(Sqe::flush(self.ground.nsid), token, 0) {
            self.flush_ended(token, Some(StatusCode::INVALID_FIELD_IN_COMMAND.status()));
        }
        1
    }

    /// Submits a command whose memory is in `extents`. Whether the queue took it; its resource is given back otherwise.
    fn submit_special(&mut self, sqe: Sqe, mut token: CommandTasks, bytes: u64) -> bool {
        let counted = self.count_special(&mut token);
        match self.pair.submit(sqe, &self.extents, token) {
            Ok(_) => {
                self.counters.count(sqe.nvm_opcode(), 1, bytes);
                self.recorder.issued(token.key, counted, 1, bytes);
                if let Some(Some(entry)) = self.active.get(token.place as usize)
                    && token.flags.has(Flags::SPREAD)
                    && let Some(task) = entry.batch.task(token.first)
                {
                    task.begin();
                }
                true
            }
            Err(error) => {
                // Admission and planning keep to `Limits`, so this is a mistake of ours; the task ends all the same.
                debug_assert!(false, "a planned command was refused: {error}");
                self.give_back(token);
                false
            }
        }
    }

    /// Says when a command is issued and where it is counted. How many requests are counted with it: that of a task whose
    /// first command it is, on the first of the task's devices.
    fn count_special(&mut self, token: &mut CommandTasks) -> u64 {
        let Self { active, recorder, watch, ground, .. } = self;
        let entry = if token.flags.has(Flags::SERVES) { None } else { active.get(token.place as usize) };
        let work = entry.and_then(Option::as_ref).and_then(|entry| entry.batch.task(token.first)).map(Task::work);
        let Some(Work::Spread(spread)) = work else {
            token.key = recorder.key_of_own(watch.clock());
            return 0;
        };
        token.key = recorder.key(watch.clock(), spread.head.segment(), spread.head.operation().into());
        let begins = token.planned == 0 || token.flags.has(Flags::FLUSHES);
        u64::from(begins && token.attempts == 0 && spread.lanes.iter().next() == Some(ground.lane))
    }

    /// Deals with commands that have ended and are more than a transfer's.
    #[cold]
    pub(super) fn complete_special(&mut self) {
        let mut ended = std::mem::take(&mut self.special);
        for (token, status) in ended.drain(..) {
            self.special_ended(token, Some(status));
        }
        self.special = ended;
    }

    /// Counts how long a command took, and tells of a slow one, which has not left its batch yet.
    pub(super) fn time_special(&mut self, token: CommandTasks, status: Status) {
        let Self { recorder, watch, active, segments, ground, .. } = self;
        recorder.now(watch.clock());
        recorder.ended(token.key, 1);
        if recorder.is_slow(token.key)
            && let Some(Some(entry)) = active.get(token.place as usize)
            && !token.flags.has(Flags::SERVES)
        {
            recorder.keep_slow(token, status);
            tell_slow_of(recorder, entry, token.place, segments, watch.name(), ground.lane);
        }
    }

    /// A command has ended with this status, or `None` where it was interrupted.
    pub(super) fn special_ended(&mut self, token: CommandTasks, status: Option<Status>) {
        if let Some(status) = status {
            self.time_special(token, status);
        }
        if token.flags.has(Flags::SERVES) {
            return self.flush_ended(token, status);
        }
        let succeeded = status.is_some_and(|status| status.is_success());
        let arrival = match succeeded && token.flags.has(Flags::STAGED) {
            true => self.staged_command_succeeded(token),
            false => Arrival::There,
        };
        if arrival == Arrival::UnderWay {
            // It ends with its copy.
            return;
        }
        let copied = arrival == Arrival::There;
        let token = self.give_back(token);
        if !succeeded {
            let conflict = status.is_some_and(|status| self.watch.sees_conflict(status));
            let Self { active, alone, recorder, .. } = self;
            let Some(Some(entry)) = active.get_mut(token.place as usize) else { return };
            entry.in_flight -= 1;
            if !conflict && again(&mut entry.in_flight, token, status, alone, recorder) {
                return;
            }
            entry.in_flight += 1;
            let outcome = status.unwrap_or(StatusCode::COMMAND_ABORTED_BY_HOST.status());
            return self.end_special(token, outcome.into());
        }
        if token.flags.has(Flags::WAITS) {
            return self.durable.wait(token);
        }
        if token.flags.has(Flags::DIRTIES)
            && let Some(entry) = self.entry(token.place)
            && let Some(segment) = entry.batch.task(token.first).map(|task| task.head().segment())
        {
            self.durable.wrote(segment);
        }
        if token.flags.has(Flags::FLUSHES) {
            self.durable.flushed(token.planned);
        }
        self.end_special(token, if copied { Outcome::SUCCESS } else { Outcome::LOST });
    }

    /// The Flush that others wait for has ended.
    fn flush_ended(&mut self, token: CommandTasks, status: Option<Status>) {
        // Where it was interrupted those that waited are issued again themselves.
        let Some(status) = status else { return };
        let conflict = !status.is_success() && self.watch.sees_conflict(status);
        if !status.is_success() && !conflict && !status.dnr() && token.attempts < ATTEMPTS {
            return self.durable.flush_again();
        }
        if status.is_success() {
            self.durable.flushed(token.planned);
        }
        for served in self.durable.flush_ended() {
            self.end_special(served, status.into());
        }
    }

    /// The command of a staged task has succeeded: copies what was read to where it was asked for, or leaves that to the
    /// GPU's copies where it belongs there.
    fn staged_command_succeeded(&mut self, token: CommandTasks) -> Arrival {
        let Self { active, segments, ground, means, extents, staging, registered, counters, copies, .. } = self;
        let Some(Some(entry)) = active.get(token.place as usize) else { return Arrival::Lost };
        let Some(Work::Spread(spread)) = entry.batch.task(token.first).map(|task| task.work()) else {
            return Arrival::Lost;
        };
        if spread.head.operation() != Operation::StagedRead {
            return Arrival::There;
        }
        let Some(segment) = segments.get(spread.head.segment()) else { return Arrival::Lost };
        // The same part again: where it begins says all that it is.
        let part = spread::next_part(&spread, token.planned, &segment.map, ground, means, extents);
        let Some((part, address)) = part.and_then(|part| Some((part, part.staged_address(&spread)?))) else {
            return Arrival::Lost;
        };
        let registered = registered.load();
        let arrival = if is_gpu(&registered, address, part.staged.1) {
            copies.open(|| staging.take_copier());
            let copy = staging.gpu_copy(token.resource, part.staged, address, true);
            match copy.is_some_and(|copy| copies.add(copy, Copied { token, command: None })) {
                true => Arrival::UnderWay,
                false => Arrival::Lost,
            }
        } else if staging.copy_out(token.resource, part.staged, address, &registered) {
            Arrival::There
        } else {
            Arrival::Lost
        };
        if arrival != Arrival::Lost {
            counters.count_staged_read(part.staged.1);
        }
        arrival
    }

    /// No command has its staging buffer, or its list, any more: nor has what is left of it, which may wait for a Flush
    /// and be interrupted then, so that it ends a second time.
    fn give_back(&mut self, mut token: CommandTasks) -> CommandTasks {
        if token.flags.has(Flags::STAGED) {
            self.staging.give_back(token.place, token.resource);
        }
        if token.flags.has(Flags::LISTED)
            && let Some(lists) = &mut self.lists
        {
            lists.give_back(token.resource);
        }
        token.flags = token.flags.without(Flags::STAGED.and(Flags::LISTED));
        token
    }

    /// A command has ended for good: so have its part of a share, or its transfers.
    pub(super) fn end_special(&mut self, token: CommandTasks, outcome: Outcome) {
        let lane = self.ground.lane;
        if let Some(entry) = self.entry(token.place) {
            entry.in_flight -= 1;
            if !token.flags.has(Flags::SPREAD) {
                for index in token.indices() {
                    end_part(&entry.batch, lane, index, outcome);
                }
            }
        }
        if token.flags.has(Flags::SPREAD) {
            self.end_share_part(token.place, token.share, outcome);
        }
        self.leave_if_done(token.place);
    }

    /// A part of a share has ended.
    fn end_share_part(&mut self, place: u32, share: u16, outcome: Outcome) {
        let Some((task, outcome)) = self.shares.part_ended(share, outcome) else { return };
        let lane = self.ground.lane;
        if let Some(Active { batch, .. }) = self.entry(place) {
            end_share(batch, lane, task, outcome);
        }
    }
}

/// What became of a staging buffer that was taken.
enum Staged {
    /// It has what it needs for its command.
    Ready,
    /// A GPU copies into it first; the command is submitted then.
    Copied,
}

/// Where the bytes of a staged command that has succeeded are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// Where they belong.
    There,
    /// A GPU copies them there.
    UnderWay,
    /// Nowhere: they cannot be copied.
    Lost,
}

/// Whether that memory is a GPU's.
fn is_gpu(registered: &Registered, address: u64, len: u64) -> bool {
    registered.find(address, len).is_some_and(|(memory, _)| memory.is_gpu())
}

/// What a command's success is followed by.
fn cares(operation: Operation, durability: Durability, ground: &Ground) -> Flags {
    let changes =
        matches!(operation, Operation::Write | Operation::StagedWrite | Operation::Zeroes | Operation::Deallocate);
    if !changes || !ground.volatile {
        return Flags::default();
    }
    match durability {
        Durability::None => Flags::DIRTIES,
        // Dataset Management has no FUA.
        Durability::Fua if operation != Operation::Deallocate => Flags::default(),
        Durability::Fua | Durability::Flush => Flags::WAITS,
    }
}

#[cfg(test)]
mod tests;
