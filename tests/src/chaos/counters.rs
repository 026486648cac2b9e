//! What a run did and met, in numbers.

use std::fmt;

use tentpeg_driver::controller::RecoveryCounters;
use tentpeg_driver::model::faults::{FaultCounters, Kind, LateDma};
use tentpeg_driver::queue::Anomalies;

use super::commands::{End, Operation};

/// Kinds of faults.
pub(super) const KINDS: usize = Kind::ALL.len();

/// Each kind of fault that a long run must have met, and each step of recovery that it must have taken.
const LEAST_FAULTS: u64 = 100;
const LEAST_STEPS: u64 = 50;

macro_rules! counts {
    ( $( $(#[$doc:meta])* $name:ident, $text:literal; )+ ) => {
        /// Counts of a run.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Counters {
            $( $(#[$doc])* pub $name: u64, )+
            /// How often each kind of fault took hold, in the order of [`Kind::ALL`].
            pub faults: [u64; KINDS],
            /// A digest of all that happened, in order: the same seed gives the same.
            pub digest: u64,
        }

        impl Counters {
            fn named(&self) -> Vec<(&'static str, u64)> {
                vec![ $( ($text, self.$name), )+ ]
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $( self.$name += other.$name; )+
                for (sum, more) in self.faults.iter_mut().zip(other.faults) {
                    *sum += more;
                }
                self.digest = (self.digest ^ other.digest).wrapping_mul(0x100_0000_01B3);
            }
        }
    };
}

counts! {
    /// Commands on the namespace that ended, each once.
    operations, "operations: commands that ended, each once";
    /// Read commands among them.
    reads, "  read";
    /// Write commands among them.
    writes, "  write";
    /// Flush commands among them.
    flushes, "  flush";
    /// Write Zeroes commands among them.
    write_zeroes, "  write zeroes";
    /// Dataset Management commands among them.
    deallocates, "  deallocate";
    /// Compare commands among them.
    compares, "  compare";
    /// Verify commands among them.
    verifies, "  verify";
    /// Commands with memory that the controller cannot take, refused before they were submitted.
    refused, "refused before they were submitted";
    /// Commands that succeeded.
    succeeded, "ended: success";
    /// Commands that ended with an error status.
    failed, "ended: error status";
    /// Commands that ended without a completion, because the controller's reach had ended.
    interrupted, "ended: interrupted by the end of the reach";
    /// Commands that ended without a completion, because their queues had been deleted.
    given_up, "ended: given up with their queues, or at a shutdown";
    /// Commands that were issued again.
    retries, "retries";
    /// Blocks of reads that were compared with the reference.
    blocks_checked, "blocks compared with the reference";
    /// Of these, those that said which of several a block holds.
    blocks_settled, "  that settled old or new after a failure";
    /// Of these, those that held a write half done, after its failure.
    blocks_mixed, "  that held a failed write half done";
    /// Memory pages whose poison was checked.
    pages_checked, "pages of memory checked for late writes";
    /// Drives of different shapes.
    drives, "drives of different shapes";
    /// Controllers that were enabled as new ones.
    enables, "controllers enabled (new)";
    /// Attempts to enable a new controller that failed.
    enables_failed, "controllers not enabled at the first try";
    /// Queue pairs that were created.
    pairs_created, "queue pairs created";
    /// Queue pairs that were deleted.
    pairs_deleted, "queue pairs deleted";
    /// Queue pairs that could not be created or deleted.
    pairs_failed, "queue pairs not created or not deleted";
    /// Regions that were registered.
    regions_registered, "regions registered";
    /// Regions that were given up.
    regions_parted, "regions given up";
    /// Calls of typed admin commands.
    admin_calls, "admin calls";
    /// Calls of typed admin commands that failed.
    admin_failed, "admin calls that failed";
    /// Shutdowns, and controllers that were dropped.
    shutdowns, "shutdowns and drops";
    /// Resets without cause.
    causeless, "resets without cause";
    /// Lies told to single reads and writes.
    lies, "lies: torn, misplaced or unexecuted, success reported";
    /// Lies that the check of the payload saw.
    lies_seen, "  seen by the payload";
    /// Lies that were refused by the device itself.
    lies_refused, "  refused by the device";
    /// Aborts that the driver asked for.
    aborts, "step: Abort";
    /// Aborts that the controller carried out.
    aborted, "  command aborted";
    /// Stops by a controller reset.
    resets, "step: controller reset";
    /// Stops by a Function Level Reset.
    function_resets, "step: Function Level Reset";
    /// Stops by bus mastering off.
    bus_mastering_off, "step: bus mastering off";
    /// Stops by taking the function out of its address space.
    cut_off, "step: cut off (removal)";
    /// Controllers that were enabled anew by recovery.
    restarts, "recovered: enabled anew";
    /// Controllers that were given up.
    removed, "removed: given up";
    /// Drives that were put back after a removal.
    put_back, "drives put back";
    /// Completions with an index that no slot has.
    out_of_range_cid, "anomaly: out-of-range CID";
    /// Completions of no command in flight.
    unknown_cid, "anomaly: unknown or duplicate CID";
    /// Completions of a former command of a slot.
    stale_cid, "anomaly: stale CID";
    /// Completions of another queue's commands.
    wrong_sqid, "anomaly: another queue's SQID";
    /// Completions with a head pointer outside the queue.
    bad_sqhd, "anomaly: SQHD out of range";
    /// Late commands whose memory was still kept for them.
    late_held, "late DMA: memory was still kept for it";
    /// Late accesses to nothing.
    late_unmapped, "late DMA: met nothing";
}

impl Counters {
    /// Notes an event in the digest.
    pub(super) fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x100_0000_01B3).rotate_left(17);
    }

    /// A command has ended.
    pub(super) fn count(&mut self, operation: Operation, end: End) {
        self.operations += 1;
        *match operation {
            Operation::Read => &mut self.reads,
            Operation::Write => &mut self.writes,
            Operation::Flush => &mut self.flushes,
            Operation::WriteZeroes { .. } => &mut self.write_zeroes,
            Operation::Deallocate => &mut self.deallocates,
            Operation::Compare => &mut self.compares,
            Operation::Verify => &mut self.verifies,
        } += 1;
        *match end {
            End::Completed(status) if status.is_success() => &mut self.succeeded,
            End::Completed(_) => &mut self.failed,
            End::Interrupted => &mut self.interrupted,
            End::GivenUp => &mut self.given_up,
        } += 1;
    }

    pub(super) fn add_faults(&mut self, counters: &FaultCounters, late: LateDma) {
        for (kind, count) in counters.iter() {
            self.faults[kind as usize] += count;
        }
        self.late_held += late.held;
        self.late_unmapped += late.unmapped;
    }

    pub(super) fn add_recovery(&mut self, counters: RecoveryCounters) {
        self.aborts += counters.aborts;
        self.aborted += counters.aborted;
        self.resets += counters.resets;
        self.function_resets += counters.function_resets;
        self.bus_mastering_off += counters.bus_mastering_off;
        self.cut_off += counters.cut_off;
        self.restarts += counters.restarts;
    }

    pub(super) fn add_anomalies(&mut self, anomalies: Anomalies) {
        self.out_of_range_cid += anomalies.out_of_range_cid;
        self.unknown_cid += anomalies.unknown_cid;
        self.stale_cid += anomalies.stale_cid;
        self.wrong_sqid += anomalies.wrong_sqid;
        self.bad_sqhd += anomalies.bad_sqhd;
    }

    /// What a run of 100,000 operations or more must have met and has not: what, how often, and the least.
    pub fn lacking(&self) -> Vec<(&'static str, u64, u64)> {
        let faults = Kind::ALL.iter().map(|kind| (kind.name(), self.faults[*kind as usize], LEAST_FAULTS));
        let steps = [
            ("Abort", self.aborts, LEAST_STEPS),
            ("controller reset", self.resets, LEAST_STEPS),
            ("Function Level Reset", self.function_resets, LEAST_STEPS),
            ("removal", self.cut_off, LEAST_STEPS),
        ];
        faults.chain(steps).filter(|(_, count, least)| count < least).collect()
    }
}

impl fmt::Display for Counters {
    /// A line for each count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (text, count) in self.named() {
            writeln!(f, "{count:>12}  {text}")?;
        }
        writeln!(f, "faults that took hold:")?;
        for kind in Kind::ALL {
            writeln!(f, "{:>12}  {}", self.faults[kind as usize], kind.name())?;
        }
        write!(f, "{:>12x}  digest", self.digest)
    }
}
