//! What lanes have done, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use tentpeg_driver::queue::PairCounters;
use tentpeg_driver::spec::command::NvmOpcode;

use crate::planning::Step;

/// A lane's own counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaneCounters {
    reads: u64,
    writes: u64,
    flushes: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl LaneCounters {
    /// Counts a command that was submitted.
    #[inline]
    pub(crate) fn count(&mut self, step: &Step) {
        match step.sqe.nvm_opcode() {
            NvmOpcode::READ => {
                self.reads += 1;
                self.bytes_read += step.bytes;
            }
            NvmOpcode::WRITE => {
                self.writes += 1;
                self.bytes_written += step.bytes;
            }
            _ => self.flushes += 1,
        }
    }
}

/// What an engine's lane has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineCounters {
    /// Commands submitted to I/O queues.
    pub commands: u64,
    /// Read commands of them.
    pub reads: u64,
    /// Write commands of them.
    pub writes: u64,
    /// Flush commands of them.
    pub flushes: u64,
    /// Bytes that read commands asked for.
    pub bytes_read: u64,
    /// Bytes that write commands asked for.
    pub bytes_written: u64,
    /// Commands that have ended.
    pub completions: u64,
    /// Doorbell writes.
    pub doorbells: u64,
    /// Completions that belonged to no command, or were otherwise unsound; each was dropped.
    pub anomalies: u64,
}

/// The counts as the lane last published them: once a turn.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    words: [AtomicU64; 9],
}

impl SharedCounters {
    /// By the lane. The words are published one by one: a reader may see some of a turn before the others.
    pub(crate) fn publish(&self, lane: &LaneCounters, pair: PairCounters, anomalies: u64) {
        let values = [
            pair.commands,
            lane.reads,
            lane.writes,
            lane.flushes,
            lane.bytes_read,
            lane.bytes_written,
            pair.completions,
            pair.doorbells,
            anomalies,
        ];
        for (word, value) in self.words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> EngineCounters {
        let [commands, reads, writes, flushes, bytes_read, bytes_written, completions, doorbells, anomalies] =
            std::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
        EngineCounters {
            commands,
            reads,
            writes,
            flushes,
            bytes_read,
            bytes_written,
            completions,
            doorbells,
            anomalies,
        }
    }
}
