//! What lanes have done, for whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};

use tentpeg_driver::queue::PairCounters;
use tentpeg_driver::spec::command::NvmOpcode;

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

        /// The counts of a port, which alone writes them. Those of its queue pair are as of its last turn.
        #[derive(Debug, Default)]
        pub(crate) struct SharedCounters {
            $( $name: AtomicU64, )+
        }

        impl SharedCounters {
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
    /// Flushes of a GPU, so that it sees what devices have written straight into its memory: one in a turn at the most.
    gpu_flushes;
    /// Commands that have ended.
    completions;
    /// Doorbell writes.
    doorbells;
    /// Completions that belonged to no command, or were otherwise unsound; each was dropped.
    anomalies;
}

/// Adds to a word that this thread alone writes. The words are published one by one: a reader may see some of a turn
/// before the others.
#[inline]
fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl SharedCounters {
    /// Counts commands that were submitted, with the bytes that they move. By the port.
    #[inline]
    pub(crate) fn count(&self, opcode: NvmOpcode, commands: u64, bytes: u64) {
        match opcode {
            NvmOpcode::READ => {
                add(&self.reads, commands);
                add(&self.bytes_read, bytes);
            }
            NvmOpcode::WRITE => {
                add(&self.writes, commands);
                add(&self.bytes_written, bytes);
            }
            NvmOpcode::WRITE_ZEROES => add(&self.write_zeroes, commands),
            NvmOpcode::DATASET_MANAGEMENT => add(&self.deallocations, commands),
            _ => add(&self.flushes, commands),
        }
    }

    /// Counts a read through staging memory, of which so many bytes were copied. By the port.
    pub(crate) fn count_staged_read(&self, bytes: u64) {
        add(&self.staged_reads, 1);
        add(&self.bytes_staged, bytes);
    }

    /// Counts a write through staging memory, for which so many bytes were copied. By the port.
    pub(crate) fn count_staged_write(&self, bytes: u64) {
        add(&self.staged_writes, 1);
        add(&self.bytes_staged, bytes);
    }

    /// Counts a flush of a GPU. By the port.
    pub(crate) fn count_gpu_flush(&self) {
        add(&self.gpu_flushes, 1);
    }

    /// Publishes what a port's queue pair has counted.
    #[inline]
    pub(crate) fn publish(&self, pair: PairCounters, anomalies: u64) {
        self.commands.store(pair.commands, Ordering::Relaxed);
        self.completions.store(pair.completions, Ordering::Relaxed);
        self.doorbells.store(pair.doorbells, Ordering::Relaxed);
        self.anomalies.store(anomalies, Ordering::Relaxed);
    }
}
