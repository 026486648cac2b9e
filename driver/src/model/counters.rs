//! What a model has done so far, for comparison with what a driver thinks it asked for.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ( $( $(#[$doc:meta])* $name:ident; )+ ) => {
        /// Counts since the model was made. What a command adds is there before its CQE is.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct ModelCounters {
            $( $(#[$doc])* pub $name: u64, )+
        }

        impl ModelCounters {
            /// What was counted since `earlier`.
            pub fn since(self, earlier: Self) -> Self {
                Self { $( $name: self.$name.wrapping_sub(earlier.$name), )+ }
            }

            /// Both together, of two models.
            pub fn plus(self, other: Self) -> Self {
                Self { $( $name: self.$name.wrapping_add(other.$name), )+ }
            }
        }

        /// The counts as they grow. One thread adds, others may look.
        #[derive(Default)]
        pub(super) struct Counters {
            $( pub(super) $name: Counter, )+
        }

        impl Counters {
            pub(super) fn snapshot(&self) -> ModelCounters {
                ModelCounters { $( $name: self.$name.get(), )+ }
            }
        }
    };
}

counters! {
    /// SQEs fetched from the Admin Submission Queue.
    admin_sqes;
    /// SQEs fetched from I/O submission queues.
    io_sqes;
    /// CQEs posted to the Admin Completion Queue.
    admin_cqes;
    /// CQEs posted to I/O completion queues.
    io_cqes;
    /// Read commands fetched.
    reads;
    /// Write commands fetched.
    writes;
    /// Flush commands fetched.
    flushes;
    /// Compare commands fetched.
    compares;
    /// Verify commands fetched.
    verifies;
    /// Write Zeroes commands fetched.
    write_zeroes;
    /// Dataset Management commands fetched.
    dataset_managements;
    /// Bytes that the data pointers of Read commands covered, as walked and found mapped.
    read_bytes;
    /// Bytes that the data pointers of Write commands covered, as walked and found mapped.
    write_bytes;
    /// Bytes that the PRPs of admin commands covered, as walked and found mapped.
    admin_bytes;
    /// Entries read from PRP lists, pointers to further lists included; PRP1 and PRP2 are not.
    prp_list_entries;
    /// Pages of PRP lists read from.
    prp_list_pages;
    /// Times that writes were made durable: by Flush, by FUA, or after each write where there is no cache.
    persists;
    /// SGL descriptors looked at, those in commands included.
    sgl_descriptors;
    /// SGL segments read.
    sgl_segments;
    /// Accesses that the IOMMU refused.
    faults;
    /// I/O commands completed with a status other than success.
    io_errors;
    /// Admin commands completed with a status other than success.
    admin_errors;
    /// Doorbells rung through a handle that had been revoked: written nowhere.
    revoked_doorbells;
}

/// A count with one writer, who needs a load and a store and no atomic read-modify-write.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        // Relaxed: the CQE's Release store publishes it to whoever has seen the completion.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Adds to a count that has several writers, all of whom use this.
    pub(super) fn add_shared(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
