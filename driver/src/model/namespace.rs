//! Namespace 1 and the commands of the NVM Command Set (NVM Command Set 1.1, 3.3).

use std::io;

use super::board::Board;
use super::config::{ModelConfig, ModelError};
use super::iommu::Reach;
use super::store::Store;
use super::transfer::{Transfer, permanent};
use crate::dma::Access;
use crate::spec::command::{DirectiveType, Fuse, NSID_ALL, NvmOpcode, Sqe};
use crate::spec::status::{Status, StatusCode};

/// The only namespace.
pub(super) const NSID: u32 = 1;

/// Blocks, the store that holds them, and what may be done with them.
pub(super) struct Namespace {
    pub(super) store: Store,
    /// Logical blocks.
    pub(super) nsze: u64,
    /// Bytes of a block as a power of two.
    pub(super) lbads: u32,
    /// Most bytes that one command may move; `u64::MAX` is no limit.
    max_transfer: u64,
    /// Whether writes may stay in a volatile cache.
    pub(super) cached: bool,
}

impl Namespace {
    pub(super) fn new(config: &ModelConfig, max_transfer: u64) -> Result<Self, ModelError> {
        let lbads = config.lba_size.trailing_zeros();
        Ok(Self {
            store: Store::open(config)?,
            nsze: config.size >> lbads,
            lbads,
            max_transfer,
            cached: config.volatile_write_cache,
        })
    }

    /// Executes a command of an I/O queue.
    #[inline]
    pub(super) fn execute(
        &mut self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        if sqe.fuse() != Fuse::NORMAL {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        match sqe.nvm_opcode() {
            NvmOpcode::READ => self.read(reach, board, transfer, sqid, sqe),
            NvmOpcode::WRITE => self.write(reach, board, transfer, sqid, sqe),
            NvmOpcode::FLUSH => self.flush(board, sqe),
            _ => Err(permanent(StatusCode::INVALID_COMMAND_OPCODE)),
        }
    }

    #[inline]
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

    #[inline]
    fn write(
        &self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        sqid: u16,
        sqe: &Sqe,
    ) -> Result<(), Status> {
        board.counters.writes.add(1);
        let (offset, len) = self.range(sqe)?;
        if sqe.dtype() != DirectiveType::IDENTIFY {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if !self.store.writable() {
            return Err(permanent(StatusCode::NAMESPACE_IS_WRITE_PROTECTED));
        }
        let pieces = transfer.resolve(reach, board, sqid, sqe, len, Access::DEVICE_READS)?;
        board.counters.write_bytes.add(len);
        self.store.write(offset, pieces).map_err(|error| failed(board, &error, StatusCode::WRITE_FAULT))?;
        if sqe.fua() || !self.cached { self.persist(board) } else { Ok(()) }
    }

    fn flush(&self, board: &Board, sqe: &Sqe) -> Result<(), Status> {
        board.counters.flushes.add(1);
        if !matches!(sqe.nsid, NSID | NSID_ALL) {
            return Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
        }
        self.persist(board)
    }

    #[inline]
    fn persist(&self, board: &Board) -> Result<(), Status> {
        board.counters.persists.add(1);
        self.store.flush().map_err(|error| failed(board, &error, StatusCode::WRITE_FAULT))
    }

    /// The bytes of the namespace that a command names: offset and length.
    #[inline]
    fn range(&self, sqe: &Sqe) -> Result<(u64, u64), Status> {
        if sqe.nsid != NSID {
            return Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
        }
        let (slba, nlb) = (sqe.slba(), u64::from(sqe.nlb().count()));
        let len = nlb << self.lbads;
        if len > self.max_transfer {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if slba >= self.nsze || nlb > self.nsze - slba {
            return Err(permanent(StatusCode::LBA_OUT_OF_RANGE));
        }
        Ok((slba << self.lbads, len))
    }
}

/// The status of a command that the host has failed.
#[cold]
fn failed(board: &Board, error: &io::Error, code: StatusCode) -> Status {
    board.store_failed(error);
    code.status()
}
