//! Bytes of a device at any offset: whole blocks are read, and kept.

use super::signature::Place;
use crate::blocks::{Blocks, BlocksError};

/// What is read at once of either end.
const END: u64 = 1 << 20;

/// A piece that has been read, from the byte `start` on.
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

pub(super) struct Window<'a> {
    device: &'a mut dyn Blocks,
    block_size: u64,
    capacity: u64,
    pieces: Vec<Piece>,
}

impl<'a> Window<'a> {
    pub(super) fn new(device: &'a mut dyn Blocks) -> Self {
        let block_size = u64::from(device.block_size());
        // No device has 2^64 bytes; one that says so is looked at as far as bytes can be counted.
        let capacity = device.blocks().saturating_mul(block_size);
        Self { device, block_size, capacity, pieces: Vec::new() }
    }

    /// Where `place` is on this device, if it has it.
    pub(super) fn resolve(&self, place: Place) -> Option<u64> {
        let at = match place {
            Place::Start(at) => at,
            Place::Block(slba) => slba.checked_mul(self.block_size)?,
            Place::End { back, of } => (self.capacity / of * of).checked_sub(back)?,
            Place::EndBlock(back) => {
                (self.capacity / self.block_size).checked_sub(back)?.checked_mul(self.block_size)?
            }
        };
        (at < self.capacity).then_some(at)
    }

    /// The `len` bytes from `at` on, or as many as the device has.
    pub(super) fn up_to(&mut self, at: u64, len: u64) -> Result<&[u8], BlocksError> {
        let end = at.saturating_add(len).min(self.capacity);
        let at = at.min(end);
        let holds = |piece: &Piece| piece.start <= at && end - piece.start <= piece.bytes.len() as u64;
        let index = match self.pieces.iter().position(holds) {
            Some(index) => index,
            None => self.read(at, end)?,
        };
        let piece = &self.pieces[index];
        let (from, to) = ((at - piece.start) as usize, (end - piece.start) as usize);
        Ok(&piece.bytes[from..to])
    }

    /// Reads a piece with the bytes from `at` to `end`, which is at most the capacity, in it.
    fn read(&mut self, at: u64, end: u64) -> Result<usize, BlocksError> {
        let last = self.capacity.saturating_sub(END);
        let (at, end) = if end <= END {
            (0, END.min(self.capacity))
        } else if at >= last {
            (last, self.capacity)
        } else {
            (at, end)
        };
        let slba = at / self.block_size;
        // A capacity that has been cut short may end within a block.
        let blocks = end.div_ceil(self.block_size).min(self.device.blocks()) - slba;
        let mut bytes = vec![0; (blocks * self.block_size) as usize];
        if !bytes.is_empty() {
            self.device.read(slba, &mut bytes)?;
        }
        self.pieces.push(Piece { start: slba * self.block_size, bytes });
        Ok(self.pieces.len() - 1)
    }
}
