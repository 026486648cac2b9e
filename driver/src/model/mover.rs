//! The model's side of a mover: how its commands reach memory of an accelerator.
//!
//! Plain reads and writes leave their copies here. The executor has them begun a list at a time and posts no completion
//! before the command's copies are made, all in the turn in which it was fetched: the table of what is mapped is held as
//! long, so that an unmap waits for them (see [`iommu`](super::iommu)). Memory of this process is copied at once, as
//! by a model without a mover.

use std::sync::Arc;
use std::thread;

use super::blocks::Io;
use super::iommu::{Hint, Span};
use super::namespace::{Namespace, failed};
use super::store::Mapped;
use crate::dma::{Access, MemoryCopy, Mover, MoverError};
use crate::spec::command::NvmOpcode;
use crate::spec::status::{Status, StatusCode};

/// Looks at a mover before the processor is given away.
const SPINS: u32 = 1 << 12;

/// Copies of a turn, and who makes them.
pub(super) struct Moves {
    // Dropped before what it reaches.
    mover: Box<dyn Mover>,
    _admitted: Vec<Arc<Mapped>>,
    /// The copies of the next list.
    list: Vec<MemoryCopy>,
    /// Lists begun, and how many of them are no longer in progress.
    begun: u64,
    ended: u64,
    /// Where a look-up ended.
    pub(super) hint: Hint,
}

impl Moves {
    /// Copies by `mover`, which is made to reach `stores`.
    pub(super) fn new(mut mover: Box<dyn Mover>, stores: Vec<Arc<Mapped>>) -> Result<Self, MoverError> {
        for store in &stores {
            // SAFETY: the mapping is kept beside the mover, dropped after it, and neither resized nor emptied while it is
            // shared; the store makes no reference to its bytes.
            unsafe { mover.admit(store.base(), store.len()) }?;
        }
        Ok(Self { mover, _admitted: stores, list: Vec::new(), begun: 0, ended: 0, hint: Hint::default() })
    }

    /// The list that the copies which are left here now will belong to: none where there are no more than `before`.
    pub(super) fn list_of(&self, before: usize) -> Option<u64> {
        (self.list.len() > before).then_some(self.begun + 1)
    }

    /// Copies that wait for the next list.
    pub(super) fn waiting(&self) -> usize {
        self.list.len()
    }

    /// Whether the copies of a list are made. A list that an error has ended counts as made only after
    /// [`forget`](Self::forget).
    pub(super) fn is_made(&self, list: Option<u64>) -> bool {
        list.is_none_or(|list| list <= self.ended)
    }

    /// Begins the copies that commands have left here.
    pub(super) fn begin(&mut self) -> Result<(), MoverError> {
        if self.list.is_empty() {
            return Ok(());
        }
        // SAFETY: each copy is between an admitted store and mapped memory of an accelerator, both of which stay until
        // `finish` has returned: whoever unmaps waits for the turn.
        unsafe { self.mover.begin(&self.list) }?;
        self.list.clear();
        self.begun += 1;
        Ok(())
    }

    /// Looks at what is in progress.
    pub(super) fn look(&mut self) -> Result<(), MoverError> {
        if self.ended < self.begun {
            self.ended = self.mover.ended()?;
        }
        Ok(())
    }

    /// Begins what is left, and waits until all copies are made. With an error none is made any more.
    pub(super) fn finish(&mut self) -> Result<(), MoverError> {
        self.begin()?;
        let mut looks = 0u32;
        while self.ended < self.begun {
            self.look()?;
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(SPINS) {
                thread::yield_now();
            }
        }
        Ok(())
    }

    /// After an error: what it ended is nobody's any more.
    pub(super) fn forget(&mut self) {
        self.list.clear();
        self.ended = self.begun;
    }
}

impl Namespace {
    /// A plain read or write, by a mover where the memory is an accelerator's (NVM Command Set 1.1, 3.3.4 and 3.3.6).
    pub(super) fn move_blocks(&mut self, io: Io<'_, '_>) -> Result<(), Status> {
        let Io { reach, board, transfer, sqid, sqe } = io;
        let read = sqe.nvm_opcode() == NvmOpcode::READ;
        let (wanted, code) = if read {
            board.counters.reads.add(1);
            (Access::DEVICE_WRITES, StatusCode::UNRECOVERED_READ_ERROR)
        } else {
            board.counters.writes.add(1);
            (Access::DEVICE_READS, StatusCode::WRITE_FAULT)
        };
        let (offset, len) = if read { self.range(sqe)? } else { self.written(sqe)? };
        transfer.spans(reach, (board, sqid, sqe), len, wanted, |moves, done, span| match span {
            Span::Host(piece) if read => {
                self.store.read(offset + done, &[piece]).map_err(|error| failed(board, &error, code))
            }
            Span::Host(piece) => self.store.write(offset + done, &[piece]).map_err(|error| failed(board, &error, code)),
            Span::Accelerator { address, len } => {
                if let Some(stored) = self.store.address(offset + done, len) {
                    let (to, from) = if read { (address, stored) } else { (stored, address) };
                    moves.list.push(MemoryCopy::new(to, from, len));
                }
                Ok(())
            }
        })?;
        let bytes = if read { &board.counters.read_bytes } else { &board.counters.write_bytes };
        bytes.add(len);
        if sqe.fua() || !read && !self.cached { self.persist(board) } else { Ok(()) }
    }
}
