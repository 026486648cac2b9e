//! Tasks: one admitted request each, 64 bytes, in the batch's own memory.
//!
//! A task's request is written by the submitter before the batch's tail is published, and only read afterwards. A
//! *transfer* is contiguous on one device: its progress belongs to the one lane that plans it, and costs a plain store.
//! Everything else is *spread*: over extents, over devices, through staging memory, or without memory. Of a spread task
//! each lane concerned has one share, which it counts down by itself; the last share to end is the task's end. The
//! state word is what everybody may read. All of it is atomic so that no `unsafe` is needed: a Relaxed access costs
//! what a plain one does, and the orderings stand where something is published: the batch's tail, a share's end, and the
//! state.

mod countdown;
mod list;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tentpeg_driver::dma::Iova;
use tentpeg_driver::spec::status::Status;

pub(crate) use list::{TaskList, Walk};

use crate::TransferState;
use crate::lanes::LaneSet;
use crate::request::OpCode;
use crate::segment::Durability;

/// What a spread task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// From the segment into registered memory, whole blocks.
    Read,
    /// From registered memory into the segment.
    Write,
    /// From the segment through staging memory to an address: any bytes.
    StagedRead,
    /// Has blocks read as zeroes.
    Zeroes,
    /// Tells the devices that blocks are of no use any more.
    Deallocate,
    /// Makes what was written durable.
    Flush,
    /// From an address through staging memory into the segment: whole blocks.
    StagedWrite,
}

impl Operation {
    /// Whether its bytes go through staging memory, and its memory is an address.
    pub(crate) const fn is_staged(self) -> bool {
        matches!(self, Self::StagedRead | Self::StagedWrite)
    }
}

/// Kind, durability, lane and segment of a task in one word, so that two tasks of a kind are told by one comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head(u32);

const NOTHING: u32 = 0;
const READ: u32 = 1;
const WRITE: u32 = 2;
/// The kinds from here on are spread.
const SPREAD: u32 = 8;

impl Head {
    const fn new(kind: u32, durability: Durability, lane: u8, segment: u16) -> Self {
        Self(kind | (durability as u32) << 4 | (lane as u32) << 8 | (segment as u32) << 16)
    }

    /// That of a transfer, by lane `lane`.
    pub(crate) const fn transfer(opcode: OpCode, durability: Durability, lane: u8, segment: u16) -> Self {
        let kind = match opcode {
            OpCode::Read => READ,
            OpCode::Write => WRITE,
        };
        Self::new(kind, durability, lane, segment)
    }

    /// That of a spread task.
    pub(crate) const fn spread(operation: Operation, durability: Durability, segment: u16) -> Self {
        Self::new(SPREAD + operation as u32, durability, 0, segment)
    }

    const fn kind(self) -> u32 {
        self.0 & 0xF
    }

    /// Whether it is a transfer's.
    #[inline]
    const fn is_transfer(self) -> bool {
        self.kind().wrapping_sub(READ) <= WRITE - READ
    }

    /// Which way a transfer goes.
    #[inline]
    pub(crate) const fn opcode(self) -> OpCode {
        if self.kind() == WRITE { OpCode::Write } else { OpCode::Read }
    }

    /// What a spread task does.
    pub(crate) const fn operation(self) -> Operation {
        const FLUSH: u32 = SPREAD + Operation::Flush as u32;
        const DEALLOCATE: u32 = SPREAD + Operation::Deallocate as u32;
        const ZEROES: u32 = SPREAD + Operation::Zeroes as u32;
        const STAGED_READ: u32 = SPREAD + Operation::StagedRead as u32;
        const STAGED_WRITE: u32 = SPREAD + Operation::StagedWrite as u32;
        const SPREAD_WRITE: u32 = SPREAD + Operation::Write as u32;
        match self.kind() {
            FLUSH => Operation::Flush,
            DEALLOCATE => Operation::Deallocate,
            ZEROES => Operation::Zeroes,
            STAGED_READ => Operation::StagedRead,
            STAGED_WRITE => Operation::StagedWrite,
            SPREAD_WRITE => Operation::Write,
            _ => Operation::Read,
        }
    }

    /// When a write is COMPLETED.
    #[inline]
    pub(crate) const fn durability(self) -> Durability {
        match self.0 >> 4 & 3 {
            0 => Durability::None,
            1 => Durability::Fua,
            _ => Durability::Flush,
        }
    }

    /// The lane of a transfer.
    #[inline]
    pub(crate) const fn lane(self) -> u8 {
        (self.0 >> 8) as u8
    }

    /// The segment's place in the engine's list.
    #[inline]
    pub(crate) const fn segment(self) -> usize {
        (self.0 >> 16) as usize
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kind {} {:?} of segment {} on lane {}", self.kind(), self.durability(), self.segment(), self.lane())
    }
}

/// A request that is contiguous on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) head: Head,
    /// The first logical block on the device.
    pub(crate) slba: u64,
    /// Where the device finds the memory.
    pub(crate) iova: Iova,
    /// Bytes, a multiple of the block.
    pub(crate) length: u64,
}

/// Any other request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spread {
    pub(crate) head: Head,
    /// The lanes concerned, one or more; each has a share.
    pub(crate) lanes: LaneSet,
    /// The first byte in the segment.
    pub(crate) offset: u64,
    /// The IOVA of the memory; its address where it is staged; 0 where there is none.
    pub(crate) memory: u64,
    /// Bytes.
    pub(crate) length: u64,
}

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Moves bytes between memory and consecutive blocks of one device.
    Transfer(Transfer),
    /// Anything else.
    Spread(Spread),
    /// Nothing: the request was refused.
    Nothing,
}

impl Work {
    /// The lanes that must do something about it.
    #[inline]
    pub(crate) fn lanes(&self) -> LaneSet {
        match self {
            Self::Transfer(transfer) => LaneSet::one(transfer.head.lane()),
            Self::Spread(spread) => spread.lanes,
            Self::Nothing => LaneSet::default(),
        }
    }
}

/// How a command, or a lane's share of a task, ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outcome(u32);

impl Outcome {
    /// As it should.
    pub(crate) const SUCCESS: Self = Self(0);
    /// Not, and no device said so: it was stopped, or has lost what it had.
    pub(crate) const LOST: Self = Self(1 << 15);
    /// Given up before a command was issued.
    pub(crate) const CANCELED: Self = Self(1 << 16);
    /// Not: nobody turns the lane that would have to see to it.
    pub(crate) const NO_LANE: Self = Self(1 << 17);

    /// Of what ended so first, and then as `next`: the first that was no success.
    pub(crate) fn or(self, next: Self) -> Self {
        if self == Self::SUCCESS { next } else { self }
    }

    /// The NVMe status that says so.
    const fn status(self) -> u16 {
        self.0 as u16 & 0x7FFF
    }
}

impl From<Status> for Outcome {
    #[inline]
    fn from(status: Status) -> Self {
        if status.is_success() { Self::SUCCESS } else { Self(status.bits() as u32) }
    }
}

/// The bit of a task's state that says that it has failed for want of a lane.
const NO_LANE: u32 = 1 << 8;

/// One task. A cache line, so that two lanes never share one for two tasks.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Task {
    /// First block of a transfer; first byte in the segment of a spread task.
    at: AtomicU64,
    memory: AtomicU64,
    length: AtomicU64,
    /// Lanes of a spread task.
    lanes: AtomicU64,
    head: AtomicU32,
    /// Of a transfer, the commands in flight for it, and one more while it is not planned to its end. The command that
    /// ends its planning takes that one over, so that a task of one command costs nothing here until it ends. Of a
    /// spread task, the shares that have not ended.
    open: AtomicU32,
    /// State in bits 0 to 7, whether it has failed for want of a lane in bit 8, the NVMe status that decided it in bits 16 to
    /// 30.
    state: AtomicU32,
    /// The first outcome other than success; of a spread task CANCELED stands back behind any other.
    failure: AtomicU32,
    /// Whether a command of a spread task was issued.
    begun: AtomicU32,
}

const _: () = assert!(size_of::<Task>() == 64);

impl Task {
    /// Makes it a pending transfer. By the submitter, before it publishes the task.
    #[inline(always)]
    pub(crate) fn prepare_transfer(&self, Transfer { head, slba, iova, length }: Transfer) {
        self.at.store(slba, Ordering::Relaxed);
        self.memory.store(iova.get(), Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.head.store(head.0, Ordering::Relaxed);
        self.open.store(1, Ordering::Relaxed);
        self.state.store(TransferState::Pending as u32, Ordering::Relaxed);
    }

    /// Makes it a pending task, or an invalid one where there is nothing to do. By the submitter, as above.
    pub(crate) fn prepare(&self, work: Work) {
        let (head, state) = match work {
            Work::Transfer(transfer) => return self.prepare_transfer(transfer),
            Work::Spread(Spread { head, lanes, offset, memory, length }) => {
                self.at.store(offset, Ordering::Relaxed);
                self.memory.store(memory, Ordering::Relaxed);
                self.length.store(length, Ordering::Relaxed);
                self.lanes.store(lanes.bits(), Ordering::Relaxed);
                self.open.store(lanes.count(), Ordering::Relaxed);
                (head, TransferState::Pending)
            }
            Work::Nothing => (Head(NOTHING), TransferState::Invalid),
        };
        self.head.store(head.0, Ordering::Relaxed);
        self.state.store(state as u32, Ordering::Relaxed);
    }

    /// What is to be done.
    pub(crate) fn work(&self) -> Work {
        let head = self.head();
        if head.kind() >= SPREAD {
            return Work::Spread(Spread {
                head,
                lanes: LaneSet::from_bits(self.lanes.load(Ordering::Relaxed)),
                offset: self.at.load(Ordering::Relaxed),
                memory: self.memory.load(Ordering::Relaxed),
                length: self.length.load(Ordering::Relaxed),
            });
        }
        self.transfer(head).map_or(Work::Nothing, Work::Transfer)
    }

    /// What is to be done, if that is a transfer; `head` is the task's own.
    #[inline]
    pub(crate) fn transfer(&self, head: Head) -> Option<Transfer> {
        if !head.is_transfer() {
            return None;
        }
        Some(Transfer {
            head,
            slba: self.at.load(Ordering::Relaxed),
            iova: Iova::new(self.memory.load(Ordering::Relaxed))?,
            length: self.length.load(Ordering::Relaxed),
        })
    }

    /// What is to be done, if that is a transfer with this head that begins at block `slba`.
    #[inline]
    pub(crate) fn transfer_at(&self, head: Head, slba: u64) -> Option<Transfer> {
        let begins = self.head() == head && self.at.load(Ordering::Relaxed) == slba;
        if begins { self.transfer(head) } else { None }
    }

    /// Its kind, lane and segment.
    #[inline]
    pub(crate) fn head(&self) -> Head {
        Head(self.head.load(Ordering::Relaxed))
    }

    /// One more command of a transfer is in flight, and it will not be the last. By its lane.
    #[inline]
    pub(crate) fn command_issued(&self) {
        self.open.store(self.open.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// A command of a transfer has ended. By its lane. The task's end, if that was its last one.
    #[inline]
    pub(crate) fn part_ended(&self, outcome: Outcome) -> Option<TransferState> {
        if outcome != Outcome::SUCCESS && self.failure.load(Ordering::Relaxed) == 0 {
            self.failure.store(outcome.0, Ordering::Relaxed);
        }
        let open = self.open.load(Ordering::Relaxed);
        if open > 1 {
            self.open.store(open - 1, Ordering::Relaxed);
            return None;
        }
        Some(self.end(Outcome(self.failure.load(Ordering::Relaxed))))
    }

    /// A command of a spread task is issued: it cannot be CANCELED any more.
    pub(crate) fn begin(&self) {
        self.begun.store(1, Ordering::Relaxed);
    }

    /// Whether a command of a spread task was issued, as far as this lane can see.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != 0
    }

    /// The share of a lane has ended, with this outcome. By that lane, once. The task's end, if it was the last one.
    pub(crate) fn share_ended(&self, outcome: Outcome) -> Option<TransferState> {
        let failure = Outcome(countdown::share_ended(&self.open, &self.failure, outcome.0, Outcome::CANCELED.0)?);
        Some(self.end(if failure == Outcome::CANCELED && self.has_begun() { Outcome::LOST } else { failure }))
    }

    /// Ends a transfer without looking at its commands: none was issued, or the device has been stopped. As the first of them
    /// that has failed, if there is one.
    pub(crate) fn give_up(&self, outcome: Outcome) -> TransferState {
        self.end(Outcome(self.failure.load(Ordering::Relaxed)).or(outcome))
    }

    /// Publishes the end. Release: whoever sees it sees the bytes that the device wrote.
    #[inline]
    fn end(&self, outcome: Outcome) -> TransferState {
        if outcome != Outcome::SUCCESS {
            return self.end_without_success(outcome);
        }
        self.state.store(TransferState::Completed as u32, Ordering::Release);
        TransferState::Completed
    }

    /// Ends a transfer of which no command was issued, or a spread task of which this is the only lane, and takes it out of
    /// what is planned. By its lane.
    pub(crate) fn withdraw(&self) -> TransferState {
        self.head.store(NOTHING, Ordering::Relaxed);
        self.end(Outcome::CANCELED)
    }

    /// Publishes an end with a status, or without bytes.
    #[cold]
    fn end_without_success(&self, outcome: Outcome) -> TransferState {
        let state = if outcome == Outcome::CANCELED { TransferState::Canceled } else { TransferState::Failed };
        let no_lane = if outcome == Outcome::NO_LANE { NO_LANE } else { 0 };
        self.state.store(state as u32 | no_lane | u32::from(outcome.status()) << 16, Ordering::Release);
        state
    }

    /// The state, and the NVMe status that made it FAILED.
    #[inline]
    pub(crate) fn state(&self) -> (TransferState, Option<Status>) {
        let word = self.state.load(Ordering::Acquire);
        let failure = (word >> 16) as u16;
        (TransferState::from_number(word as u8), (failure != 0).then(|| Status::from_bits(failure)))
    }

    /// Whether it is FAILED for want of a lane.
    pub(crate) fn has_no_lane(&self) -> bool {
        self.state.load(Ordering::Acquire) & NO_LANE != 0
    }

    /// Bytes that the request names; 0 where there is none.
    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tentpeg_driver::spec::status::StatusCode;

    #[test]
    fn a_transfer_ends_with_its_last_command_and_keeps_the_first_failure() {
        let task = Task::default();
        assert_eq!(task.state(), (TransferState::Initial, None));
        let head = Head::transfer(OpCode::Read, Durability::None, 3, 9);
        let transfer = Work::Transfer(Transfer { head, slba: 7, iova: Iova::new(4096).unwrap(), length: 8192 });
        task.prepare(transfer);
        assert_eq!(task.work(), transfer);
        assert_eq!(transfer.lanes(), LaneSet::one(3));
        task.command_issued();
        task.command_issued();
        assert_eq!(task.part_ended(Outcome::SUCCESS), None);
        let first = Status::from(StatusCode::LBA_OUT_OF_RANGE);
        assert_eq!(task.part_ended(first.into()), None);
        assert_eq!(task.state().0, TransferState::Pending);
        let second = Status::from(StatusCode::INVALID_FIELD_IN_COMMAND);
        assert_eq!(task.part_ended(second.into()), Some(TransferState::Failed));
        assert_eq!(task.state(), (TransferState::Failed, Some(first)));
    }

    #[test]
    fn a_head_says_what_was_put_into_it() {
        use Durability::{Flush, Fua, None};
        for (durability, lane, segment) in [(None, 0, 0), (Fua, 63, 1), (Flush, 7, u16::MAX)] {
            for opcode in [OpCode::Read, OpCode::Write] {
                let head = Head::transfer(opcode, durability, lane, segment);
                let found = (head.opcode(), head.durability(), head.lane(), head.segment());
                assert_eq!(found, (opcode, durability, lane, usize::from(segment)));
            }
            use Operation::{Deallocate, Read, StagedRead, Write, Zeroes};
            for operation in [Read, Write, StagedRead, Zeroes, Deallocate, Operation::Flush] {
                let head = Head::spread(operation, durability, segment);
                assert_eq!(
                    (head.operation(), head.durability(), head.segment()),
                    (operation, durability, segment.into())
                );
            }
        }
    }

    fn spread(lanes: usize) -> Task {
        let task = Task::default();
        let head = Head::spread(Operation::Write, Durability::None, 0);
        let work =
            Work::Spread(Spread { head, lanes: LaneSet::first(lanes), offset: 512, memory: 4096, length: 1 << 20 });
        task.prepare(work);
        assert_eq!(task.work(), work);
        task
    }

    #[test]
    fn a_spread_task_ends_with_its_last_share() {
        let failed = Status::from(StatusCode::WRITE_FAULT);
        for (outcomes, begun, state, status) in [
            ([Outcome::SUCCESS; 3], true, TransferState::Completed, None),
            ([Outcome::SUCCESS, failed.into(), Outcome::LOST], true, TransferState::Failed, Some(failed)),
            ([Outcome::LOST, failed.into(), Outcome::SUCCESS], true, TransferState::Failed, None),
            ([Outcome::CANCELED; 3], false, TransferState::Canceled, None),
            ([Outcome::CANCELED, Outcome::SUCCESS, Outcome::CANCELED], true, TransferState::Failed, None),
            ([Outcome::CANCELED, failed.into(), Outcome::LOST], true, TransferState::Failed, Some(failed)),
            ([Outcome::CANCELED, failed.into(), Outcome::CANCELED], true, TransferState::Failed, Some(failed)),
            ([failed.into(), Outcome::CANCELED, Outcome::SUCCESS], true, TransferState::Failed, Some(failed)),
        ] {
            let task = spread(3);
            if begun {
                task.begin();
            }
            assert_eq!(task.share_ended(outcomes[0]), None);
            assert_eq!(task.share_ended(outcomes[1]), None);
            assert_eq!(task.state().0, TransferState::Pending);
            assert_eq!(task.share_ended(outcomes[2]), Some(state));
            assert_eq!(task.state(), (state, status));
        }
    }

    /// Whichever lane is last, one of them ends the task.
    #[test]
    fn shares_that_end_at_the_same_time_end_the_task_once() {
        for _ in 0..2000 {
            let task = spread(2);
            let ends: Vec<_> = std::thread::scope(|scope| {
                let lanes = [0, 1].map(|_| scope.spawn(|| task.share_ended(Outcome::SUCCESS)));
                lanes.map(|lane| lane.join().unwrap()).into_iter().flatten().collect()
            });
            assert_eq!(ends, [TransferState::Completed]);
        }
    }
}
