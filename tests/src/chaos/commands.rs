//! Commands on the namespace: submitted, ended, looked at, issued again.

use std::fmt;

use tentpeg_driver::queue::SubmitError;
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::{NvmOpcode, Sqe};
use tentpeg_driver::spec::status::Status;

use super::Mistake;
use super::blocks::{Moment, WriteEnd, WrongByte, word};
use super::drive::{Drive, Event};
use super::memory::Buffer;

/// The namespace of all commands.
const NSID: u32 = 1;
/// How often a command is issued at the most.
const MOST_ATTEMPTS: u32 = 4;
/// The most bytes of a command, where the drive takes more.
const MOST_BYTES: u64 = 128 << 10;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    /// With a completion.
    Completed(Status),
    /// By the end of the controller's reach.
    Interrupted,
    /// With its queue, which the controller had deleted, or with the controller, which was shut down.
    GivenUp,
}

/// A command of the owner's.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) operation: Operation,
    pub(super) slba: u64,
    pub(super) nlb: u32,
    /// The number of what it writes, else 0.
    pub(super) write: u32,
    /// Whether its end is waited for, and looked at by whoever does.
    pub(super) alone: bool,
    pub(super) qid: u16,
    buffer: Option<Buffer>,
    submitted: Moment,
    attempts: u32,
}

/// How a command ended that was waited for.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) end: End,
    /// What a read that succeeded found wrong.
    pub(super) wrong: Option<WrongByte>,
    /// What it found.
    pub(super) words: Vec<u64>,
}

impl Command {
    pub(super) fn new(operation: Operation, slba: u64, nlb: u32, write: u32) -> Self {
        Self { operation, slba, nlb, write, alone: false, qid: 0, buffer: None, submitted: 0, attempts: 0 }
    }

    fn sqe(&self) -> Sqe {
        let nlb = ZeroesBased::<u16>::from_raw(self.nlb.saturating_sub(1) as u16);
        match self.operation {
            Operation::Read => Sqe::read(NSID, self.slba, nlb),
            Operation::Write => Sqe::write(NSID, self.slba, nlb),
            Operation::Flush => Sqe::flush(NSID),
        }
    }

    fn blocks(&self) -> std::ops::Range<u64> {
        self.slba..self.slba + u64::from(self.nlb)
    }

    fn moves_data(&self) -> bool {
        matches!(self.operation, Operation::Read | Operation::Write)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, slba, nlb, write, qid, submitted, attempts, .. } = self;
        write!(
            f,
            "{operation:?} of {nlb} blocks from {slba}, write {write}, queue {qid}, submitted at {submitted}, attempt {attempts}"
        )
    }
}

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

    pub(super) fn max_blocks(&self) -> u64 {
        let max = self.limits.map_or(1, |(_, limits)| u64::from(limits.max_blocks()));
        // One region is to have room for it, wherever in a page it starts.
        let room = (self.shape.region_pages - 1) as u64 * self.shape.page as u64;
        max.min(MOST_BYTES.min(room) / self.shape.lba_size()).min(self.blocks.count())
    }

    fn draw(&mut self) -> Command {
        let operation = match self.dice.below(20) {
            0 => Operation::Flush,
            1..=10 => Operation::Read,
            _ => Operation::Write,
        };
        if operation == Operation::Flush {
            return Command::new(operation, 0, 0, 0);
        }
        let max = self.max_blocks();
        let nlb = if self.dice.percent(85) { self.dice.between(1, max.min(6)) } else { self.dice.between(1, max) };
        // Some blocks are hot, so that commands meet on them.
        let places = self.blocks.count() - nlb + 1;
        let slba = if self.dice.percent(40) { self.dice.below(places.min(12)) } else { self.dice.below(places) };
        let write = if operation == Operation::Write { self.blocks.number() } else { 0 };
        Command::new(operation, slba, nlb as u32, write)
    }

    /// Submits a command on a lane, without the doorbell; gives it back when there is no slot, or no memory.
    pub(super) fn submit(&mut self, lane: usize, mut command: Command) -> Result<Option<Command>, String> {
        if self.lanes[lane].pair.free_slots() == 0 {
            return Ok(Some(command));
        }
        let mut extents = Vec::new();
        if command.moves_data() {
            let len = u64::from(command.nlb) * self.shape.lba_size();
            let Some(buffer) = self.memory.allocate(&mut self.dice, len as usize, self.now)? else {
                return Ok(Some(command));
            };
            if command.operation == Operation::Write {
                let words = self.blocks.words();
                let write = command.write;
                let of = |block| (0..words).map(move |place| word(write, block, place));
                self.memory.write(&buffer, command.blocks().flat_map(of));
            }
            extents = self.memory.extents(&buffer);
            command.buffer = Some(buffer);
        }
        self.tokens += 1;
        let token = self.tokens;
        let sqe = command.sqe();
        let pair = &mut self.lanes[lane].pair;
        command.qid = pair.qid();
        match pair.submit(sqe, &extents, token) {
            Ok(_) => {}
            Err(SubmitError::NoSlot { slots }) => {
                return Err(format!("a slot is free, and there is none of {slots}"));
            }
            Err(error) => return Err(format!("a right command was refused: {error}: {command} with {extents:?}")),
        }
        let Command { qid, slba, nlb, write, .. } = command;
        self.note(Event::Submitted { token, qid, opcode: sqe.opcode, slba, nlb });
        command.submitted = self.now;
        command.attempts += 1;
        let forgotten = self.mistake == Some(Mistake::ForgetsAWrite) && write.is_multiple_of(20);
        if command.operation == Operation::Write && !forgotten {
            self.blocks.begin(write, false, command.blocks());
        }
        self.flying.insert(token, command);
        Ok(None)
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
        self.count(&command, end);
        let succeeded = matches!(end, End::Completed(status) if status.is_success());
        if let End::Completed(status) = end
            && !succeeded
        {
            self.expect_error(status, &command)?;
        }
        let mut alone = Alone { end, wrong: None, words: Vec::new() };
        match (command.operation, &command.buffer) {
            (Operation::Read, Some(buffer)) if succeeded => {
                alone.words = self.memory.read(buffer);
                alone.wrong = self.look_at(&command, &alone.words);
                if let Some(wrong) = alone.wrong.as_ref().filter(|_| !command.alone) {
                    return Err(format!("a wrong byte: {wrong}; {command}"));
                }
            }
            (Operation::Write, _) => {
                let trusted = end == End::Interrupted && self.mistake == Some(Mistake::TrustsInterruptedWrites);
                // Success may be a lie where the command is told one.
                let done = succeeded && !command.alone || trusted;
                let end = if done { WriteEnd::Succeeded } else { WriteEnd::Failed };
                let oldest = self.flying.values().next().map_or(self.now, |oldest| oldest.submitted);
                self.blocks.end(command.write, command.blocks(), end, command.submitted, self.now, oldest);
            }
            _ => {}
        }
        if let Some(buffer) = command.buffer.take() {
            let until = self.now + self.dice.below(60);
            self.memory.rest(buffer, until)?;
        }
        if command.alone {
            self.alone = Some(alone);
        } else if !succeeded && command.attempts < MOST_ATTEMPTS && self.dice.percent(60) {
            self.counters.retries += 1;
            self.retries.push_back(command);
        }
        Ok(())
    }

    /// The write `write` of these blocks is known to have been done.
    pub(super) fn write_is_done(&mut self, command: (u64, u32, u32)) {
        let (slba, nlb, write) = command;
        let now = self.now;
        self.blocks.end(write, slba..slba + u64::from(nlb), WriteEnd::Succeeded, now, now, now);
    }

    fn count(&mut self, command: &Command, end: End) {
        let counters = &mut self.counters;
        counters.operations += 1;
        *match command.operation {
            Operation::Read => &mut counters.reads,
            Operation::Write => &mut counters.writes,
            Operation::Flush => &mut counters.flushes,
        } += 1;
        *match end {
            End::Completed(status) if status.is_success() => &mut counters.succeeded,
            End::Completed(_) => &mut counters.failed,
            End::Interrupted => &mut counters.interrupted,
            End::GivenUp => &mut counters.given_up,
        } += 1;
    }

    /// What is wrong with what a read found.
    fn look_at(&mut self, command: &Command, words: &[u64]) -> Option<WrongByte> {
        let of_block = self.blocks.words();
        let mut wrong = None;
        for (block, words) in command.blocks().zip(words.chunks_exact(of_block)) {
            self.counters.blocks_checked += 1;
            wrong = wrong.or(self.blocks.check(block, words, command.submitted, self.now).err());
        }
        wrong
    }

    /// Whether so many error statuses can be: each was injected, or asked for by an Abort.
    fn expect_error(&mut self, status: Status, command: &Command) -> Result<(), String> {
        use tentpeg_driver::model::faults::Kind::{IommuFault, Misplaced, Status as Injected};
        self.error_statuses += 1;
        let faults = self.faults.counters();
        let aborts = self.controller.as_ref().map_or(0, |controller| controller.recovery_counters().aborts);
        let most = [Injected, IommuFault, Misplaced].into_iter().map(|kind| faults.get(kind)).sum::<u64>()
            + self.former_aborts
            + aborts;
        if self.error_statuses > most {
            return Err(format!("an error that nobody injected: {status}; {command}"));
        }
        Ok(())
    }

    /// A mistake: the pages of a read in flight are given to others.
    fn reuse_memory_in_flight(&mut self) -> Result<(), String> {
        let now = self.now;
        let buffer = self
            .flying
            .values_mut()
            .find_map(|command| if command.operation == Operation::Read { command.buffer.take() } else { None });
        match buffer {
            Some(buffer) => self.memory.rest(buffer, now),
            None => Ok(()),
        }
    }
}

/// The opcode that a lie about an operation is told to.
pub(super) fn opcode(operation: Operation) -> u8 {
    match operation {
        Operation::Read => NvmOpcode::READ.raw(),
        Operation::Write => NvmOpcode::WRITE.raw(),
        Operation::Flush => NvmOpcode::FLUSH.raw(),
    }
}
