//! From the data pointer of a command to pieces of memory.

use super::board::Board;
use super::iommu::{Piece, Pieces, Reach};
use super::prp::{PrpError, PrpWalk};
use super::violation::{Target, Violation};
use crate::dma::Access;
use crate::spec::command::{Psdt, Sqe};
use crate::spec::status::{Status, StatusCode};

/// A status that will not change when the command is sent again.
pub(super) fn permanent(code: StatusCode) -> Status {
    code.status().with_dnr(true)
}

/// What it takes to find the memory of a command, kept from command to command.
#[derive(Default)]
pub(super) struct Transfer {
    walk: PrpWalk,
    pieces: Pieces,
    /// Bytes of a memory page, CC.MPS.
    pub(super) page_size: u64,
}

impl Transfer {
    /// From now on, or no longer, only the first half of a command's data is moved: a fault.
    pub(super) fn set_torn(&mut self, torn: bool) {
        self.pieces.set_torn(torn);
    }

    /// The memory that `sqe` of queue `sqid` names for its `len` bytes, all of it mapped for `wanted`. What is
    /// wrong is recorded on the board.
    #[inline]
    pub(super) fn resolve<'a>(
        &'a mut self,
        reach: &'a Reach<'_>,
        board: &Board,
        sqid: u16,
        sqe: &Sqe,
        len: u64,
        wanted: Access,
    ) -> Result<&'a [Piece<'a>], Status> {
        if sqe.psdt() != Psdt::PRP {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let walked = self.walk.walk(reach, self.page_size, (sqe.prp1, sqe.prp2), len);
        if self.walk.list_pages() > 0 {
            board.counters.prp_list_entries.add(self.walk.list_entries());
            board.counters.prp_list_pages.add(self.walk.list_pages());
        }
        if let Err(error) = walked {
            return Err(refuse_walk(board, sqid, sqe.cid, error));
        }
        self.pieces.resolve(reach, self.walk.extents(), wanted).map_err(|fault| {
            board.counters.faults.add(1);
            board.violations.record(Violation::dma(Target::Data { sqid, cid: sqe.cid }, fault));
            StatusCode::DATA_TRANSFER_ERROR.status()
        })
    }
}

#[cold]
fn refuse_walk(board: &Board, sqid: u16, cid: u16, error: PrpError) -> Status {
    match error {
        PrpError::Offset { place, entry } => {
            board.violations.record(Violation::PrpOffset { sqid, cid, place, entry });
            permanent(StatusCode::PRP_OFFSET_INVALID)
        }
        PrpError::List(fault) => {
            board.counters.faults.add(1);
            board.violations.record(Violation::dma(Target::PrpList { sqid, cid }, fault));
            StatusCode::DATA_TRANSFER_ERROR.status()
        }
    }
}
