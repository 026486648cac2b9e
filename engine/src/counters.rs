//! What lanes have done, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use tentpeg_driver::queue::PairCounters;
use tentpeg_driver::spec::command::NvmOpcode;

/// A port's own counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LaneCounters {
    reads: u64,
    writes: u64,
    flushes: u64,
    write_zeroes: u64,
    deallocations: u64,
    bytes_read: u64,
    bytes_written: u64,
    staged_reads: u64,
    staged_writes: u64,
    bytes_staged: u64,
}

impl LaneCounters {
    /// Counts a command that was submitted, with the bytes that it moves.
    #[inline]
    pub(crate) fn count(&mut self, opcode: NvmOpcode, bytes: u64) {
        match opcode {
            NvmOpcode::READ => {
                self.reads += 1;
                self.bytes_read += bytes;
            }
            NvmOpcode::WRITE => {
                self.writes += 1;
                self.bytes_written += bytes;
            }
            NvmOpcode::WRITE_ZEROES => self.write_zeroes += 1,
            NvmOpcode::DATASET_MANAGEMENT => self.deallocations += 1,
            _ => self.flushes += 1,
        }
    }

    /// Counts a read through staging memory, of which so many bytes were copied.
    pub(crate) fn count_staged_read(&mut self, bytes: u64) {
        self.staged_reads += 1;
        self.bytes_staged += bytes;
    }

    /// Counts a write through staging memory, for which so many bytes were copied.
    pub(crate) fn count_staged_write(&mut self, bytes: u64) {
        self.staged_writes += 1;
        self.bytes_staged += bytes;
    }
}

macro_rules! counters {
    ( $( $(#[$doc:meta])* $name:ident; )+ ) => {
        /// What an engine's lanes have done so far, all together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct EngineCounters {
            $( $(#[$doc])* pub $name: u64, )+
        }

        impl EngineCounters {
            /// What was counted since `earlier`.
            pub(crate) fn since(self, earlier: Self) -> Self {
                Self { $( $name: self.$name.wrapping_sub(earlier.$name), )+ }
            }

            /// The counts of both.
            pub(crate) fn plus(self, other: Self) -> Self {
                Self { $( $name: self.$name.wrapping_add(other.$name), )+ }
            }
        }

        /// The counts of a port as it last published them: once a turn.
        #[derive(Debug, Default)]
        pub(crate) struct SharedCounters {
            $( $name: AtomicU64, )+
        }

        impl SharedCounters {
            /// By the port. The words are published one by one: a reader may see some of a turn before the others.
            fn store(&self, counters: EngineCounters) {
                $( self.$name.store(counters.$name, Ordering::Relaxed); )+
            }

            pub(crate) fn read(&self) -> EngineCounters {
                EngineCounters { $( $name: self.$name.load(Ordering::Relaxed), )+ }
            }
        }
    };
}

counters! {
    /// Commands submitted to I/O queues.
    commands;
    /// Read commands of them.
    reads;
    /// Write commands of them.
    writes;
    /// Flush commands of them, those that durability asks for included.
    flushes;
    /// Write Zeroes commands of them.
    write_zeroes;
    /// Dataset Management commands of them.
    deallocations;
    /// Bytes that read commands asked for.
    bytes_read;
    /// Bytes that write commands asked for.
    bytes_written;
    /// Read commands that went through staging memory: their requests were no whole blocks, or no device reaches their
    /// memory as they name it.
    staged_reads;
    /// Write commands that went through staging memory, for the latter reason; those that were issued again each time.
    staged_writes;
    /// Bytes that were copied between staging memory and where requests have them.
    bytes_staged;
    /// Commands that have ended.
    completions;
    /// Doorbell writes.
    doorbells;
    /// Completions that belonged to no command, or were otherwise unsound; each was dropped.
    anomalies;
}

impl SharedCounters {
    /// Publishes what a port has counted, and its queue pair.
    pub(crate) fn publish(&self, lane: &LaneCounters, pair: PairCounters, anomalies: u64) {
        let LaneCounters {
            reads,
            writes,
            flushes,
            write_zeroes,
            deallocations,
            bytes_read,
            bytes_written,
            staged_reads,
            staged_writes,
            bytes_staged,
        } = *lane;
        self.store(EngineCounters {
            commands: pair.commands,
            reads,
            writes,
            flushes,
            write_zeroes,
            deallocations,
            bytes_read,
            bytes_written,
            staged_reads,
            staged_writes,
            bytes_staged,
            completions: pair.completions,
            doorbells: pair.doorbells,
            anomalies,
        });
    }
}
