//! Commands on the namespace: what there are, and which is next.

use std::fmt;
use std::ops::Range;

use tentpeg_driver::queue::{Extent, IoCommand, Limits};
use tentpeg_driver::spec::command::{DatasetManagementRange, NvmOpcode};
use tentpeg_driver::spec::status::Status;

use super::blocks::{Moment, WrongByte};
use super::drive::Drive;
use super::layout::Layout;
use super::memory::Buffer;

/// The most bytes of a command, where the drive takes more.
const MOST_BYTES: u64 = 128 << 10;

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
    WriteZeroes {
        deallocate: bool,
    },
    /// Dataset Management with one range.
    Deallocate,
    Compare,
    Verify,
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
    /// The number of what it changes blocks to, else 0.
    pub(super) write: u32,
    /// What a Compare takes each block to hold.
    pub(super) compared: Vec<u32>,
    /// Whether the controller makes and takes protection information, where there is any.
    pub(super) generated: bool,
    /// Whether its end is waited for, and looked at by whoever does.
    pub(super) alone: bool,
    pub(super) qid: u16,
    pub(super) data: Option<Buffer>,
    pub(super) metadata: Option<Buffer>,
    pub(super) submitted: Moment,
    pub(super) attempts: u32,
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

impl Operation {
    pub(super) fn opcode(self) -> NvmOpcode {
        match self {
            Self::Read => NvmOpcode::READ,
            Self::Write => NvmOpcode::WRITE,
            Self::Flush => NvmOpcode::FLUSH,
            Self::WriteZeroes { .. } => NvmOpcode::WRITE_ZEROES,
            Self::Deallocate => NvmOpcode::DATASET_MANAGEMENT,
            Self::Compare => NvmOpcode::COMPARE,
            Self::Verify => NvmOpcode::VERIFY,
        }
    }

    /// Whether blocks hold something else afterwards; of those that do, whether it is zeroes.
    pub(super) fn changes(self) -> Option<bool> {
        match self {
            Self::Write => Some(false),
            Self::WriteZeroes { .. } | Self::Deallocate => Some(true),
            Self::Read | Self::Flush | Self::Compare | Self::Verify => None,
        }
    }
}

impl Command {
    pub(super) fn new(operation: Operation, slba: u64, nlb: u32, write: u32) -> Self {
        Self {
            operation,
            slba,
            nlb,
            write,
            compared: Vec::new(),
            generated: false,
            alone: false,
            qid: 0,
            data: None,
            metadata: None,
            submitted: 0,
            attempts: 0,
        }
    }

    pub(super) fn blocks(&self) -> Range<u64> {
        self.slba..self.slba + u64::from(self.nlb)
    }

    /// Bytes of its data and of its metadata in memory.
    pub(super) fn lengths(&self, layout: &Layout) -> (usize, usize) {
        match self.operation {
            Operation::Read | Operation::Write | Operation::Compare => {
                (layout.data_len(self.nlb), layout.metadata_len(self.nlb))
            }
            Operation::Deallocate => (size_of::<DatasetManagementRange>(), 0),
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Verify => (0, 0),
        }
    }

    /// The typed command with its data, but for a Dataset Management.
    pub(super) fn io<'a>(&self, layout: &Layout, data: &'a [Extent]) -> IoCommand<'a> {
        let (slba, nlb) = (self.slba, self.nlb);
        match self.operation {
            Operation::Read => IoCommand::read(slba, nlb, data).with_protection(layout.protection(slba)),
            Operation::Write => IoCommand::write(slba, nlb, data).with_protection(layout.protection(slba)),
            Operation::Compare => IoCommand::compare(slba, nlb, data),
            Operation::Verify => IoCommand::verify(slba, nlb).with_protection(layout.protection(slba)),
            Operation::WriteZeroes { deallocate } => {
                IoCommand::write_zeroes(slba, nlb, deallocate).with_protection(layout.protection_of_zeroes(slba))
            }
            Operation::Flush | Operation::Deallocate => IoCommand::flush(),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, slba, nlb, write, generated, qid, submitted, attempts, .. } = self;
        write!(
            f,
            "{operation:?} of {nlb} blocks from {slba}, write {write}, PRACT {generated}, queue {qid}, submitted at \
             {submitted}, attempt {attempts}"
        )
    }
}

impl Drive {
    /// How a command has the namespace's blocks in memory.
    pub(super) fn layout(&self, generated: bool) -> Result<Layout, String> {
        self.namespace_limits().map(|limits| Layout::new(&limits, generated))
    }

    pub(super) fn namespace_limits(&self) -> Result<Limits, String> {
        self.limits.map(|(_, limits)| limits).ok_or_else(|| "a command before the namespace is known".to_owned())
    }

    /// The most blocks of a command that moves data.
    pub(super) fn max_blocks(&self) -> u64 {
        let Ok(limits) = self.namespace_limits() else { return 1 };
        let block = limits.lba_size() + limits.metadata().map_or(0, |metadata| metadata.size.into());
        // One region is to have room for data and metadata, wherever in a page each starts and ends.
        let room = (self.shape.region_pages - 3) as u64 * self.shape.page as u64;
        u64::from(limits.max_blocks()).min(MOST_BYTES.min(room) / block).min(self.blocks.count())
    }

    /// The next command.
    pub(super) fn draw(&mut self) -> Command {
        let plain = self.namespace_limits().is_ok_and(|limits| limits.metadata().is_none());
        let operation = match self.dice.below(40) {
            0 | 1 => Operation::Flush,
            2 | 3 => Operation::WriteZeroes { deallocate: self.dice.percent(50) },
            4 => Operation::Deallocate,
            5 => Operation::Verify,
            6 | 7 if plain => Operation::Compare,
            8..=22 => Operation::Write,
            _ => Operation::Read,
        };
        if operation == Operation::Flush {
            return Command::new(operation, 0, 0, 0);
        }
        let max = self.max_blocks();
        let nlb = if self.dice.percent(85) { self.dice.between(1, max.min(6)) } else { self.dice.between(1, max) };
        // Some blocks are hot, so that commands meet on them.
        let places = self.blocks.count() - nlb + 1;
        let slba = if self.dice.percent(40) { self.dice.below(places.min(12)) } else { self.dice.below(places) };
        let write = if operation.changes().is_some() { self.blocks.number() } else { 0 };
        let mut command = Command::new(operation, slba, nlb as u32, write);
        // A Verify moves nothing that could be made or taken.
        command.generated = operation != Operation::Verify && self.dice.percent(40);
        if operation == Operation::Compare {
            let wrong = self.dice.percent(30);
            let now = self.now + 1;
            let held = command.blocks().map(|block| self.blocks.certain(block, now).unwrap_or(0) + u32::from(wrong));
            command.compared = held.collect();
        }
        command
    }
}
