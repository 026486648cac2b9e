//! What a replay has done, and what went wrong in it.

use std::fmt;
use std::time::Duration;

use tentpeg_engine::{GpuWordsError, SubmitError, TooManyBatches};
use thiserror::Error;

use super::cache::{Decision, Kind};
use super::payload::Mismatch;
use super::schedule::RequestNumber;
use super::source::SourceError;
use crate::failure::TaskFailure;
use crate::report::{Latency, Moved, Timeline};

/// Counts of I/O that has ended, and of requests all of whose I/O has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests that have ended, those without blocks included.
    pub requests: u64,
    /// Blocks that were read, each a hit.
    pub reads: u64,
    /// Blocks that were written, each a miss.
    pub writes: u64,
    /// Bytes of the blocks read, those that failed left out.
    pub bytes_read: u64,
    /// Bytes of the blocks written, those that failed left out.
    pub bytes_written: u64,
}

impl Totals {
    /// Blocks visited.
    pub fn blocks(&self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes moved, both ways.
    pub fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }

    /// As a timeline takes them.
    pub fn moved(&self) -> Moved {
        let Self { requests: _, reads, writes, bytes_read, bytes_written } = *self;
        Moved { reads, writes, bytes_read, bytes_written }
    }

    /// Hits among the blocks visited, from 0 to 1. `None` when there are none.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.blocks() > 0).then(|| self.reads as f64 / self.blocks() as f64)
    }
}

/// An I/O that did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The request that it was part of.
    pub request: RequestNumber,
    /// The block and its slot.
    pub decision: Decision,
    /// What was wrong.
    pub wrong: Wrong,
}

/// What was wrong with an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It was read, and other bytes came than were written.
    Bytes(Mismatch),
    /// A part of it ended other than COMPLETED: the first one that did.
    Task(TaskFailure),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request: RequestNumber(request), decision: Decision { block, slot, kind, write }, wrong } = self;
        write!(f, "request {request}, slot {slot}: ")?;
        match (wrong, kind) {
            (Wrong::Bytes(mismatch), _) => write!(f, "{mismatch}"),
            (Wrong::Task(failure), Kind::Read) => write!(f, "reading block {block}, write {write}: {failure}"),
            (Wrong::Task(failure), Kind::Write) => write!(f, "writing block {block}, write {write}: {failure}"),
        }
    }
}

/// Faults, all counted and the first ones kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    count: u64,
    first: Vec<Fault>,
}

impl Faults {
    /// How many are kept.
    pub const KEPT: usize = 10;

    /// Counts one.
    pub(super) fn add(&mut self, fault: Fault) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(fault);
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first ones, up to [`KEPT`](Self::KEPT), in the order in which they were seen.
    pub fn first(&self) -> &[Fault] {
        &self.first
    }
}

/// Why a replay ended before the last request.
#[derive(Debug, Error)]
pub enum Stop {
    /// Whoever watches asked for it.
    #[error("interrupted")]
    Asked,
    /// The caller's trace has changed since it was checked.
    #[error("the trace has changed while it was replayed: {0}")]
    Source(#[from] SourceError),
    /// Device: nothing that is in flight has ended for a long time.
    #[error("the device has ended none of {in_flight} blocks in flight for {} s", limit.as_secs())]
    Stalled {
        /// Blocks in flight.
        in_flight: usize,
        /// How long was waited.
        limit: Duration,
    },
    /// Host: the GPU does not fill or compare blocks any more.
    #[error("the GPU: {0}")]
    Gpu(#[from] GpuWordsError),
    /// The engine has no batch for the next block.
    #[error(transparent)]
    Batch(#[from] TooManyBatches),
    /// A block is more requests than a batch holds.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// What a replay has done.
#[derive(Debug)]
pub struct Outcome {
    /// Counts.
    pub totals: Totals,
    /// From before the first request until the last I/O had ended and its bytes were compared.
    pub elapsed: Duration,
    /// How long loads took: of each request with hits, from its begin until the last of its reads was seen to have ended. To begin
    /// includes the wait for slots and pool blocks.
    pub load_latency: Latency,
    /// What had ended when.
    pub timeline: Timeline,
    /// What went wrong with single blocks.
    pub faults: Faults,
    /// Blocks whose bytes were not compared after they were read, as the replay was asked to stop before.
    pub not_compared: u64,
    /// Why it ended early, if it did.
    pub stop: Option<Stop>,
}
