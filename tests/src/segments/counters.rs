//! What a run did and met.

use std::fmt;

macro_rules! counters {
    ( $( $name:ident: $text:literal; )+ ) => {
        /// Counts of a run, and a digest of all that it saw.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each has its text in the table")]
        pub struct Counters {
            $( pub $name: u64, )+
            /// Of every task's end and what reads returned: equal for equal seeds.
            pub digest: u64,
        }

        impl Counters {
            /// Adds those of a rig.
            pub fn add(&mut self, other: &Self) {
                $( self.$name += other.$name; )+
                self.see(other.digest);
            }
        }

        impl fmt::Display for Counters {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $( writeln!(f, "{:<44} {:>12}", $text, self.$name)?; )+
                write!(f, "{:<44} {:>#18x}", "digest", self.digest)
            }
        }
    };
}

counters! {
    operations: "operations";
    rigs: "rigs";
    reads: "reads of whole blocks";
    unaligned_reads: "reads of any bytes";
    writes: "writes";
    zeroes: "zeroes";
    deallocations: "deallocations";
    flushes: "flushes";
    commands: "commands";
    staged_reads: "read commands through staging memory";
    staged_writes: "write commands through staging memory";
    blocks_checked: "blocks compared";
    bytes_checked: "bytes of blocks in part compared";
    settled: "reads that said which of several it was";
    mixed: "blocks found half written, as a failure allows";
    faults: "faults armed";
    restarts: "controllers enabled anew";
    interrupted: "commands interrupted";
    power_cuts: "losses of power";
    blocks_lost: "blocks that a loss of power took";
    cancels: "batches canceled with work in flight";
    frees: "batches freed with work in flight";
    unregistrations: "memory unregistered with work in flight";
    canceled: "tasks canceled";
    failed: "tasks failed";
    flushes_failed: "flushes failed, as writes were lost";
}

impl Counters {
    /// Has the digest see a number (FNV-1a, by words).
    pub(super) fn see(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x0100_0000_01B3).rotate_left(23);
    }
}
