//! A namespace and the commands of the NVM Command Set (NVM Command Set 1.1, 3.3).
//!
//! Here are plain reads and writes: PRPs, no metadata, no cache, bytes in the store as the host has them. All else
//! is in `blocks`.

use std::io;

use super::blocks::{Blocks, Io};
use super::board::Board;
use super::config::{ModelConfig, ModelError};
use super::io_config::MetadataConfig;
use super::iommu::Reach;
use super::media::Media;
use super::protection::Protection;
use super::reservations::Reservations;
use super::transfer::{Transfer, permanent};
use crate::dma::Access;
use crate::spec::command::{DirectiveType, NvmOpcode, Sqe};
use crate::spec::status::{Status, StatusCode};

/// Why no command is plain: the store's blocks are not bytes as the host has them.
const NOT_PLAIN: u8 = 1;
/// Why no command is plain: a reservation may forbid it.
const RESERVED: u8 = 2;
/// Why no command is plain: a mover makes its copies.
const MOVED: u8 = 4;

/// Blocks, the store that holds them, and what may be done with them.
pub(super) struct Namespace {
    pub(super) store: Media,
    /// Logical blocks.
    pub(super) nsze: u64,
    /// Bytes of a block as a power of two.
    pub(super) lbads: u32,
    /// Most bytes that one command may move; `u64::MAX` is no limit.
    pub(super) max_transfer: u64,
    /// Whether writes may stay in a volatile cache.
    pub(super) cached: bool,
    /// Not zero where no command is plain.
    special: u8,
    /// What is not plain.
    pub(super) blocks: Blocks,
    pub(super) reservations: Reservations,
}

impl Namespace {
    pub(super) fn new(config: &ModelConfig, max_transfer: u64) -> Result<Self, ModelError> {
        let lbads = config.lba_size.trailing_zeros();
        let store = Media::open(config)?;
        Ok(Self {
            special: if store.is_plain() { 0 } else { NOT_PLAIN },
            store,
            nsze: config.size >> lbads,
            lbads,
            max_transfer,
            cached: config.volatile_write_cache,
            blocks: Blocks::new(config),
            reservations: Reservations::default(),
        })
    }

    /// Executes a command of an I/O queue. Inlined where the executor does so, not where a fault has it done.
    #[inline(always)]
    pub(super) fn execute(
        &mut self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        // FUSE and PSDT are 0 in what is plain.
        match sqe.nvm_opcode() {
            NvmOpcode::READ if sqe.flags | self.special == 0 => self.read(reach, board, transfer, sqid, sqe),
            NvmOpcode::WRITE if sqe.flags | self.special == 0 => self.write(reach, board, transfer, sqid, sqe),
            _ => self.execute_other(Io { reach, board, transfer, sqid, sqe }),
        }
    }

    #[inline(always)]
    fn read(
        &self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        board.counters.reads.add(1);
        let (offset, len) = self.range(sqe)?;
        let pieces = transfer.resolve(reach, board, sqid, sqe, len, Access::DEVICE_WRITES)?;
        board.counters.read_bytes.add(len);
        self.store.read(offset, pieces).map_err(|error| failed(board, &error, StatusCode::UNRECOVERED_READ_ERROR))?;
        // FUA asks that what is read be on the medium, too (NVM Command Set 1.1, 3.3.4).
        if sqe.fua() { self.persist(board) } else { Ok(()) }
    }

    #[inline(always)]
    fn write(
        &self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        board.counters.writes.add(1);
        let (offset, len) = self.written(sqe)?;
        let pieces = transfer.resolve(reach, board, sqid, sqe, len, Access::DEVICE_READS)?;
        board.counters.write_bytes.add(len);
        self.store.write(offset, pieces).map_err(|error| failed(board, &error, StatusCode::WRITE_FAULT))?;
        if sqe.fua() || !self.cached { self.persist(board) } else { Ok(()) }
    }

    /// The bytes that a write names, and whether it may write them.
    #[inline(always)]
    pub(super) fn written(&self, sqe: &Sqe) -> Result<(u64, u64), Status> {
        let range = self.range(sqe)?;
        if sqe.dtype() != DirectiveType::IDENTIFY {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if !self.store.writable() {
            return Err(permanent(StatusCode::NAMESPACE_IS_WRITE_PROTECTED));
        }
        Ok(range)
    }

    /// From now on a mover makes the copies of plain reads and writes.
    pub(super) fn set_moved(&mut self) {
        self.special |= MOVED;
    }

    /// Whether a mover makes the copies of `sqe`, a read or write: it has nothing but PRPs, and the blocks are plain.
    pub(super) fn is_moved(&self, sqe: &Sqe) -> bool {
        self.special & (MOVED | NOT_PLAIN) == MOVED && sqe.flags == 0
    }

    /// Changes reservations. From then on commands are asked whether they may be executed, or no longer.
    #[cold]
    pub(super) fn change_reservations<T>(&mut self, change: impl FnOnce(&mut Reservations) -> T) -> T {
        let changed = change(&mut self.reservations);
        self.special = self.special & !RESERVED | if self.reservations.is_held() { RESERVED } else { 0 };
        changed
    }

    /// Metadata as it is formatted.
    pub(super) fn metadata(&self) -> &MetadataConfig {
        self.blocks.metadata()
    }

    /// Erases all of its `size` bytes and gives it blocks of 2 ^ `lbads` bytes.
    #[cold]
    pub(super) fn reformat(&mut self, size: u64, lbads: u32, metadata: MetadataConfig) -> io::Result<()> {
        self.store.reformat(size, 1 << lbads, Protection::new(&metadata))?;
        self.blocks.set_metadata(metadata);
        self.lbads = lbads;
        self.nsze = size >> lbads;
        Ok(())
    }

    /// Makes all that was written durable.
    #[cold]
    pub(super) fn flush(&mut self, board: &Board) -> Result<(), Status> {
        board.counters.persists.add(1);
        self.store.flush().map_err(|error| failed(board, &error, StatusCode::WRITE_FAULT))
    }

    /// Makes what is in the store durable.
    #[inline]
    pub(super) fn persist(&self, board: &Board) -> Result<(), Status> {
        board.counters.persists.add(1);
        self.store.persist().map_err(|error| failed(board, &error, StatusCode::WRITE_FAULT))
    }

    /// The bytes of the namespace that a command names: offset and length.
    #[inline]
    pub(super) fn range(&self, sqe: &Sqe) -> Result<(u64, u64), Status> {
        let (slba, nlb) = (sqe.slba(), u64::from(sqe.nlb().count()));
        let len = nlb << self.lbads;
        if len > self.max_transfer {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        self.check_lbas(slba, nlb)?;
        Ok((slba << self.lbads, len))
    }

    /// Whether the namespace has these `nlb` blocks from `slba` on.
    #[inline]
    pub(super) fn check_lbas(&self, slba: u64, nlb: u64) -> Result<(), Status> {
        if slba >= self.nsze || nlb > self.nsze - slba {
            return Err(permanent(StatusCode::LBA_OUT_OF_RANGE));
        }
        Ok(())
    }
}

/// The status of a command that the host has failed.
#[cold]
pub(super) fn failed(board: &Board, error: &io::Error, code: StatusCode) -> Status {
    board.store_failed(error);
    code.status()
}
