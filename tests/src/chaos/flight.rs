//! Commands in flight: submitted, ended, looked at, issued again.

use tentpeg_driver::model::faults::Kind;
use tentpeg_driver::queue::{Extent, IoCommand, IoError, SubmitError};
use tentpeg_driver::spec::status::{Status, StatusCode};

use super::Mistake;
use super::blocks::{WriteEnd, WrongByte};
use super::commands::{Alone, Command, End, Operation};
use super::drive::{Drive, Event};
use super::layout::{Bytes, Layout};
use super::memory::Seams;

/// The namespace of all commands.
const NSID: u32 = 1;
/// How often a command is issued at the most.
const MOST_ATTEMPTS: u32 = 4;
/// How long the memory of a command that has ended is nobody's, at the most.
const MOST_REST: u64 = 60;

impl Drive {
    /// Some commands on one lane, and mostly its doorbell.
    pub(super) fn submit_some(&mut self) -> Result<(), String> {
        if self.mistake == Some(Mistake::ReusesMemoryInFlight) && self.dice.percent(5) {
            self.reuse_memory_in_flight()?;
        }
        let Some(lane) = self.any_lane() else { return self.attend() };
        for _ in 0..self.dice.between(1, 5) {
            let command = match self.retries.pop_front() {
                Some(again) => again,
                None => self.draw(),
            };
            if let Some(back) = self.submit(lane, command)? {
                if back.attempts > 0 {
                    self.retries.push_front(back);
                }
                break;
            }
        }
        if self.dice.percent(90) {
            self.lanes[lane].pair.ring();
        }
        Ok(())
    }

    /// Commands that are to be issued again are, as many as a lane takes.
    pub(super) fn retry_some(&mut self) -> Result<(), String> {
        let Some(lane) = self.any_lane() else { return Ok(()) };
        while let Some(command) = self.retries.pop_front() {
            if let Some(back) = self.submit(lane, command)? {
                self.retries.push_front(back);
                break;
            }
        }
        self.lanes[lane].pair.ring();
        Ok(())
    }

    pub(super) fn any_lane(&mut self) -> Option<usize> {
        let usable: Vec<usize> = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].usable).collect();
        if usable.is_empty() { None } else { Some(self.dice.pick(&usable)) }
    }

    /// Submits a command on a lane, without the doorbell; gives it back when there is no slot, or no memory, or when
    /// its memory is such as the controller cannot take.
    pub(super) fn submit(&mut self, lane: usize, mut command: Command) -> Result<Option<Command>, String> {
        if self.lanes[lane].pair.free_slots() == 0 {
            return Ok(Some(command));
        }
        let layout = self.layout(command.generated)?;
        if !self.give_memory(&mut command, &layout)? {
            return Ok(Some(command));
        }
        let extents = command.data.as_ref().map_or(Vec::new(), |buffer| self.memory.extents(buffer));
        let right = extents.is_empty() || self.can_be_named(&extents);
        self.tokens += 1;
        let token = self.tokens;
        command.qid = self.lanes[lane].pair.qid();
        match (self.write_to_queue(lane, &command, &layout, &extents, token)?, right) {
            (Ok(()), true) => {}
            (Err(IoError::Submit(SubmitError::Pointer(_))), false) => {
                self.counters.refused += 1;
                self.take_memory(&mut command, 0)?;
                return Ok(Some(command));
            }
            (outcome, _) => return Err(format!("submitted: {outcome:?}: {command} with {extents:?}")),
        }
        let Command { qid, slba, nlb, .. } = command;
        self.note(Event::Submitted { token, qid, opcode: command.operation.opcode().raw(), slba, nlb });
        command.submitted = self.now;
        command.attempts += 1;
        let forgotten = self.mistake == Some(Mistake::ForgetsAWrite) && command.write.is_multiple_of(20);
        if let Some(zeroes) = command.operation.changes().filter(|_| !forgotten) {
            self.blocks.begin(command.write, zeroes, command.blocks());
        }
        self.flying.insert(token, command);
        Ok(None)
    }

    /// Gives a command memory, with its bytes in it. Whether there was any.
    fn give_memory(&mut self, command: &mut Command, layout: &Layout) -> Result<bool, String> {
        let (data, metadata) = command.lengths(layout);
        let now = self.now;
        if data > 0 {
            let seams = match command.operation {
                Operation::Deallocate => Seams::None,
                _ if self.dice.percent(if self.has_sgl() { 40 } else { 2 }) => Seams::Anywhere(self.sgl_alignment()),
                _ => Seams::OnPages,
            };
            command.data = self.memory.allocate(&mut self.dice, data, seams, now)?;
        }
        if metadata > 0 && command.data.is_some() {
            command.metadata = self.memory.allocate(&mut self.dice, metadata, Seams::None, now)?;
        }
        if command.data.is_none() && data > 0 || command.metadata.is_none() && metadata > 0 {
            self.take_memory(command, 0)?;
            return Ok(false);
        }
        let bytes = match command.operation {
            Operation::Write => layout.written(command.write, command.blocks()),
            Operation::Compare => layout.compared(&command.compared, command.slba),
            _ => Bytes::default(),
        };
        for (buffer, bytes) in [(&command.data, bytes.data), (&command.metadata, bytes.metadata)] {
            if let Some(buffer) = buffer.as_ref().filter(|_| !bytes.is_empty()) {
                self.memory.write(buffer, &bytes);
            }
        }
        Ok(true)
    }

    /// A command's memory is nobody's from now on, for up to `most` moments.
    fn take_memory(&mut self, command: &mut Command, most: u64) -> Result<(), String> {
        for buffer in [command.data.take(), command.metadata.take()].into_iter().flatten() {
            let until = self.now + self.dice.between(0, most);
            self.memory.rest(buffer, until)?;
        }
        Ok(())
    }

    fn write_to_queue(
        &mut self,
        lane: usize,
        command: &Command,
        layout: &Layout,
        extents: &[Extent],
        token: u64,
    ) -> Result<Result<(), IoError>, String> {
        let limits = self.namespace_limits()?;
        let list;
        let mut io = command.io(layout, extents);
        if let Some(metadata) = &command.metadata {
            let [metadata] = self.memory.extents(metadata)[..] else {
                return Err("a metadata buffer in pieces".to_owned());
            };
            io = io.with_metadata(metadata);
        }
        if command.operation == Operation::Deallocate {
            let Some(buffer) = &command.data else { return Err("no memory for ranges".to_owned()) };
            list = self.memory.range_list(buffer, &limits, command.slba, command.nlb)?;
            io = IoCommand::deallocate(&list);
        }
        let pair = &mut self.lanes[lane].pair;
        pair.set_now(self.function.milliseconds());
        Ok(pair.submit_io(NSID, &limits, &io, token).map(|_| ()))
    }

    pub(super) fn poll_some(&mut self) -> Result<(), String> {
        if self.lanes.is_empty() {
            return self.attend();
        }
        let lane = self.dice.index(self.lanes.len());
        let most = self.dice.between(1, 40) as usize;
        self.poll(lane, most)
    }

    pub(super) fn poll_all(&mut self) -> Result<(), String> {
        (0..self.lanes.len()).try_for_each(|lane| self.poll(lane, usize::MAX))
    }

    fn poll(&mut self, lane: usize, most: usize) -> Result<(), String> {
        let mut ended = Vec::new();
        self.lanes[lane].pair.poll(most, |completion| ended.push(completion));
        ended.into_iter().try_for_each(|completion| self.end(completion.token, End::Completed(completion.status)))
    }

    /// A command has ended: its token never comes again, and its memory is nobody's.
    pub(super) fn end(&mut self, token: u64, end: End) -> Result<(), String> {
        let Some(mut command) = self.flying.remove(&token) else {
            return Err(format!("the command with token {token} ended twice, or was never submitted"));
        };
        self.note(Event::Ended { token, end });
        self.counters.count(command.operation, end);
        let succeeded = matches!(end, End::Completed(status) if status.is_success());
        self.judge(&command, end)?;
        let mut alone = Alone { end, wrong: None, words: Vec::new() };
        if command.operation == Operation::Read && succeeded {
            (alone.words, alone.wrong) = self.look_at(&command)?;
            if let Some(wrong) = alone.wrong.as_ref().filter(|_| !command.alone) {
                return Err(format!("a wrong byte: {wrong}; {command}"));
            }
        }
        if command.operation.changes().is_some() {
            let trusted = end == End::Interrupted && self.mistake == Some(Mistake::TrustsInterruptedWrites);
            // Success may be a lie where the command is told one, and a deallocated block may keep what it held.
            let certain =
                !command.alone && (command.operation != Operation::Deallocate || self.shape.deallocated_is_zero());
            let end = if succeeded && certain || trusted { WriteEnd::Succeeded } else { WriteEnd::Failed };
            let oldest = self.flying.values().next().map_or(self.now, |oldest| oldest.submitted);
            self.blocks.end(command.write, command.blocks(), end, command.submitted, self.now, oldest);
        }
        self.take_memory(&mut command, MOST_REST)?;
        if command.alone {
            self.alone = Some(alone);
        } else if !succeeded && command.attempts < MOST_ATTEMPTS && self.dice.percent(60) {
            self.counters.retries += 1;
            self.retries.push_back(command);
        }
        Ok(())
    }

    /// The write `write` of these blocks is known to have been done.
    pub(super) fn write_is_done(&mut self, (slba, nlb, write): (u64, u32, u32)) {
        let now = self.now;
        self.blocks.end(write, slba..slba + u64::from(nlb), WriteEnd::Succeeded, now, now, now);
    }

    /// What a read has moved, and what is wrong with it.
    fn look_at(&mut self, command: &Command) -> Result<(Vec<u64>, Option<WrongByte>), String> {
        // Its memory is in other hands: a deliberate mistake.
        let Some(data) = &command.data else { return Ok((Vec::new(), None)) };
        let layout = self.layout(command.generated)?;
        let metadata = command.metadata.as_ref().map_or(Ok(Vec::new()), |buffer| self.memory.read(buffer))?;
        let bytes = Bytes { data: self.memory.read(data)?, metadata };
        let words = layout.words(&bytes);
        let mut wrong = None;
        for (index, (block, found)) in command.blocks().zip(words.chunks_exact(self.blocks.words())).enumerate() {
            self.counters.blocks_checked += 1;
            match self.blocks.check(block, found, command.submitted, self.now) {
                Ok(Some(write)) if !command.alone => layout
                    .check_metadata(&bytes, index, block, write)
                    .map_err(|what| format!("wrong metadata: {what}; {command}"))?,
                Ok(_) => {}
                Err(byte) => wrong = wrong.or(Some(byte)),
            }
        }
        Ok((words, wrong))
    }

    /// Whether a command may have ended so.
    fn judge(&mut self, command: &Command, end: End) -> Result<(), String> {
        let End::Completed(status) = end else { return Ok(()) };
        if command.operation == Operation::Compare {
            let held: Option<Vec<u32>> =
                command.blocks().map(|block| self.blocks.certain(block, command.submitted)).collect();
            let equal = held.map(|held| held == command.compared);
            let differs = status.code() == StatusCode::COMPARE_FAILURE;
            match equal {
                Some(false) if status.is_success() => return Err(format!("equal, and it is not: {command}")),
                Some(false) | None if differs => return Ok(()),
                _ => {}
            }
        }
        if status.is_success() { Ok(()) } else { self.expect_error(status, command) }
    }

    /// Whether so many error statuses can be: each was injected, or asked for by an Abort.
    fn expect_error(&mut self, status: Status, command: &Command) -> Result<(), String> {
        self.error_statuses += 1;
        let faults = self.faults.counters();
        let aborts = self.controller.as_ref().map_or(0, |controller| controller.recovery_counters().aborts);
        let injected = [Kind::Status, Kind::IommuFault, Kind::Misplaced, Kind::Torn].map(|kind| faults.get(kind));
        if self.error_statuses > injected.iter().sum::<u64>() + self.former_aborts + aborts {
            return Err(format!("an error that nobody injected: {status}; {command}"));
        }
        Ok(())
    }

    fn has_sgl(&self) -> bool {
        self.limits.is_some_and(|(limits, _)| limits.sgl.is_some())
    }

    /// What addresses and lengths of an SGL's data blocks are multiples of.
    fn sgl_alignment(&self) -> usize {
        self.limits.and_then(|(limits, _)| limits.sgl).map_or(4, |sgl| sgl.alignment as usize)
    }

    /// Whether the controller has a pointer for such memory.
    fn can_be_named(&self, extents: &[Extent]) -> bool {
        self.limits.is_some_and(|(limits, _)| limits.pointer(extents).is_ok())
    }

    /// A mistake: the pages of a read in flight are given to others.
    fn reuse_memory_in_flight(&mut self) -> Result<(), String> {
        let now = self.now;
        let buffer = self
            .flying
            .values_mut()
            .find_map(|command| if command.operation == Operation::Read { command.data.take() } else { None });
        match buffer {
            Some(buffer) => self.memory.rest(buffer, now),
            None => Ok(()),
        }
    }
}
