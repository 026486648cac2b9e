//! Chunks in flight: one after the other of a range, each in memory of its own, ended in the order of their submits.

use std::collections::VecDeque;

use tentpeg_driver::dma::DmaView;
use tentpeg_engine::{Batch, Engine, Memory, MemoryError, OpCode, Request, Segment, SegmentId};

use super::Range;
use crate::failure::{IoError, STALLED, TaskFailure};

/// Bytes of a chunk, where the device's block is not larger.
const CHUNK: u64 = 1 << 20;
/// Chunks in flight.
const CHUNKS: u64 = 8;
/// The most memory that a window takes, where the device's block is no larger than a chunk.
pub(super) const WINDOW_BYTES: u64 = CHUNK * CHUNKS;

/// A chunk of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Where in the range, in bytes.
    pub(super) at: u64,
    /// How many bytes: whole blocks.
    pub(super) length: usize,
}

/// A range that is worked through by chunks.
pub(super) struct Window<'a> {
    engine: &'a Engine,
    memory: Memory,
    target_id: SegmentId,
    range: Range,
    chunk: u64,
    in_flight: VecDeque<(Batch, Request)>,
    /// Bytes of the range that were submitted.
    submitted: u64,
    /// Bytes of the range that have ended.
    ended: u64,
}

impl<'a> Window<'a> {
    pub(super) fn new(engine: &'a Engine, segment: &Segment, range: Range) -> Result<Self, MemoryError> {
        let chunk = CHUNK.max(segment.lba_size).min(range.length);
        let chunks = range.length.div_ceil(chunk).min(CHUNKS);
        let memory = engine.allocate_memory((chunk * chunks) as usize)?;
        let target_id = segment.id;
        let in_flight = VecDeque::with_capacity(CHUNKS as usize);
        Ok(Self { engine, memory, target_id, range, chunk, in_flight, submitted: 0, ended: 0 })
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes of the largest chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.chunk as usize
    }

    /// Bytes of the range that were submitted.
    pub(super) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Bytes of the range that have completed.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// The next chunk to submit; `None` when all of the range was, or all memory is in use.
    pub(super) fn next(&self) -> Option<Chunk> {
        let left = self.range.length - self.submitted;
        let free = (self.in_flight.len() as u64) < CHUNKS;
        (left > 0 && free).then(|| Chunk { at: self.submitted, length: left.min(self.chunk) as usize })
    }

    /// The memory of a chunk that is the next one, or was the oldest one.
    pub(super) fn view(&self, chunk: Chunk) -> DmaView<'_> {
        self.memory.view().slice(self.place(chunk.at), chunk.length)
    }

    /// Chunks take places in turn, so that one is free again when its last user has ended.
    fn place(&self, at: u64) -> usize {
        ((at / self.chunk % CHUNKS) * self.chunk) as usize
    }

    /// Submits the next chunk.
    pub(super) fn submit(&mut self, opcode: OpCode, chunk: Chunk) -> Result<(), IoError> {
        debug_assert_eq!(self.next(), Some(chunk), "chunks go in order");
        let request = Request {
            opcode,
            source: self.memory.address() + self.place(chunk.at) as u64,
            target_id: self.target_id,
            target_offset: self.range.offset + chunk.at,
            length: chunk.length as u64,
        };
        let batch = self.engine.allocate_batch(1)?;
        self.engine.submit(&batch, &[request])?;
        self.in_flight.push_back((batch, request));
        self.submitted += request.length;
        Ok(())
    }

    /// Waits for the oldest chunk in flight. `None`: there is none.
    pub(super) fn oldest(&mut self) -> Result<Option<Chunk>, IoError> {
        let Some((batch, request)) = self.in_flight.front() else { return Ok(None) };
        batch.wait(STALLED)?;
        if let Some(failure) = TaskFailure::of(batch, &[*request]).into_iter().next() {
            return Err(failure.into());
        }
        let chunk = Chunk { at: request.target_offset - self.range.offset, length: request.length as usize };
        self.in_flight.pop_front();
        self.ended += chunk.length as u64;
        Ok(Some(chunk))
    }

    /// Makes what has been written durable.
    pub(super) fn flush(&self) -> Result<(), IoError> {
        let batch = self.engine.allocate_batch(1)?;
        self.engine.submit_flush(&batch, self.target_id)?;
        batch.wait(STALLED)?;
        match TaskFailure::of(&batch, &[]).into_iter().next() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}
