//! What fits into a command: computed once, used by planner, PRP builder and messages alike (invariant 6).
//!
//! [`ControllerLimits`] holds for a controller and one enable; [`Limits`] for one of its namespaces. Memory that
//! needs more than dword alignment has no place here yet: host memory has none of its own.

use thiserror::Error;

use super::prp;
use super::slots::Slots;
use crate::spec::identify::{IdentifyController, IdentifyNamespace};
use crate::spec::registers::Cap;

/// The most bytes that one command carries where the controller knows no limit, or a higher one: what a slot's PRP
/// list pages are sized for.
const MAX_TRANSFER: u64 = 8 << 20;

/// Why a controller or a namespace cannot be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// CAP.MQES of 0: a queue of one entry holds no command.
    #[error("CAP.MQES is 0: a queue of one entry holds no command; the specification's least is 1")]
    QueueTooSmall,
    /// A transfer limit below one logical block.
    #[error("MDTS allows {max_transfer} bytes a command, less than one logical block of {lba_size} bytes")]
    BlockTooLarge {
        /// Bytes that one command may carry.
        max_transfer: u64,
        /// Bytes of one logical block.
        lba_size: u64,
    },
    /// FLBAS names a format that does not exist, or one whose data size makes no sense.
    #[error("namespace is formatted as LBA format {index}, whose LBADS is {lbads}: 9 to 31 would be right")]
    BadLbaFormat {
        /// The index of the format.
        index: usize,
        /// log2 of its data size in bytes, 0 when there is no such format.
        lbads: u8,
    },
    /// The namespace has metadata, which this driver does not carry.
    #[error("namespace has {ms} bytes of metadata a block: format it without")]
    Metadata {
        /// Bytes of metadata a block.
        ms: u16,
    },
}

/// Limits of a controller, from one enable to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerLimits {
    /// The memory page size in bytes (CC.MPS).
    pub page_size: u64,
    /// Entries of the largest queue.
    pub max_queue_entries: u32,
    /// The most data bytes of a command.
    pub max_transfer: u64,
    /// PRP list pages of a slot.
    pub list_pages: u64,
}

impl ControllerLimits {
    /// The limits of a controller that was enabled with pages of `page_size` bytes. Before the controller has been
    /// identified `mdts` is 0, no limit.
    ///
    /// # Errors
    /// [`LimitsError::QueueTooSmall`].
    pub fn new(cap: Cap, page_size: u64, mdts: u8) -> Result<Self, LimitsError> {
        if cap.mqes().count() < 2 {
            return Err(LimitsError::QueueTooSmall);
        }
        // MDTS is a power of two of CAP.MPSMIN pages (Identify Controller, byte 77), not of CC.MPS. Beyond 2^63 it
        // limits nothing that an address can name.
        let by_device = match mdts {
            0 => u64::MAX,
            _ => 1u64
                .checked_shl(mdts.into())
                .and_then(|pages| pages.checked_mul(cap.min_page_size()))
                .unwrap_or(u64::MAX),
        };
        let max_transfer = by_device.min(MAX_TRANSFER);
        Ok(Self {
            page_size,
            // One slot fewer than entries, and no more slots than a CID can name with its generation.
            max_queue_entries: cap.mqes().count().min(Slots::<()>::MAX as u32 + 1),
            max_transfer,
            list_pages: prp::list_pages(max_transfer, page_size),
        })
    }

    /// The limits with what Identify Controller says.
    ///
    /// # Errors
    /// [`LimitsError::QueueTooSmall`].
    pub fn identified(cap: Cap, page_size: u64, controller: &IdentifyController) -> Result<Self, LimitsError> {
        Self::new(cap, page_size, controller.mdts)
    }

    /// The limits of one of the controller's namespaces.
    ///
    /// # Errors
    /// [`LimitsError`] when its format cannot be served.
    pub fn namespace(&self, namespace: &IdentifyNamespace) -> Result<Limits, LimitsError> {
        let index = namespace.format_index();
        let format = namespace.current_lba_format();
        let lbads = format.map_or(0, |format| format.lbads);
        // 512 bytes is the least the specification knows; more than 2 GiB is nonsense, and would overflow below.
        let Some(format) = format.filter(|_| (9..=31).contains(&lbads)) else {
            return Err(LimitsError::BadLbaFormat { index, lbads });
        };
        if format.ms != 0 {
            return Err(LimitsError::Metadata { ms: format.ms });
        }
        let lba_size = 1u64 << lbads;
        // NLB is 16 bits, 0's based.
        let max_blocks = (self.max_transfer >> lbads).min(1 << 16);
        if max_blocks == 0 {
            return Err(LimitsError::BlockTooLarge { max_transfer: self.max_transfer, lba_size });
        }
        Ok(Limits {
            page_size: self.page_size,
            lba_shift: lbads.into(),
            nsze: namespace.nsze,
            max_blocks: max_blocks as u32,
        })
    }
}

/// Limits of a command on one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    page_size: u64,
    lba_shift: u32,
    nsze: u64,
    max_blocks: u32,
}

impl Limits {
    /// The memory page size in bytes (CC.MPS): inner seams of a command's memory lie on multiples of it.
    #[inline]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Bytes of one logical block, a power of two.
    #[inline]
    pub fn lba_size(&self) -> u64 {
        1 << self.lba_shift
    }

    /// log2 of [`lba_size`](Self::lba_size).
    #[inline]
    pub fn lba_shift(&self) -> u32 {
        self.lba_shift
    }

    /// The namespace's size in logical blocks (NSZE).
    #[inline]
    pub fn nsze(&self) -> u64 {
        self.nsze
    }

    /// The namespace's size in bytes; saturates where no 64-bit number holds it.
    pub fn capacity(&self) -> u64 {
        self.nsze.saturating_mul(self.lba_size())
    }

    /// The most blocks of one command.
    #[inline]
    pub fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    /// The most bytes of one command, a multiple of the block.
    #[inline]
    pub fn max_transfer(&self) -> u64 {
        u64::from(self.max_blocks) << self.lba_shift
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::spec::ZeroesBased;
    use crate::spec::identify::LbaFormat;

    fn cap(mqes: u16, mpsmin: u8) -> Cap {
        Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(mqes)).with_mpsmin(mpsmin)
    }

    fn namespace(lbads: u8, ms: u16, nsze: u64) -> IdentifyNamespace {
        let mut namespace = IdentifyNamespace::default();
        namespace.lbaf[0] = LbaFormat { ms, lbads, rp: 0 };
        namespace.nsze = nsze;
        namespace
    }

    #[test]
    fn mdts_counts_pages_of_mpsmin() {
        let limit = |mdts, mpsmin| ControllerLimits::new(cap(127, mpsmin), 4096 << mpsmin, mdts).unwrap().max_transfer;
        assert_eq!(limit(0, 0), MAX_TRANSFER, "no limit is not one page");
        assert_eq!(limit(1, 0), 8192);
        assert_eq!(limit(5, 0), 128 << 10);
        assert_eq!(limit(5, 4), 2 << 20);
        for mdts in [20, 52, 63, 64, 255] {
            assert_eq!(limit(mdts, 0), MAX_TRANSFER, "MDTS {mdts}");
        }
    }

    #[test]
    fn queue_entries_at_the_edges_of_mqes() {
        assert_eq!(ControllerLimits::new(cap(0, 0), 4096, 0), Err(LimitsError::QueueTooSmall));
        let entries = |mqes| ControllerLimits::new(cap(mqes, 0), 4096, 0).unwrap().max_queue_entries;
        assert_eq!([entries(1), entries(2), entries(127), entries(0xffff)], [2, 3, 128, 4097]);
    }

    #[test]
    fn formats_that_cannot_be_served() {
        let limits = ControllerLimits::new(cap(127, 0), 4096, 1).unwrap();
        assert_eq!(limits.namespace(&namespace(0, 0, 1)), Err(LimitsError::BadLbaFormat { index: 0, lbads: 0 }));
        assert_eq!(limits.namespace(&namespace(32, 0, 1)), Err(LimitsError::BadLbaFormat { index: 0, lbads: 32 }));
        assert_eq!(limits.namespace(&namespace(12, 8, 1)), Err(LimitsError::Metadata { ms: 8 }));
        assert_eq!(
            limits.namespace(&namespace(14, 0, 1)),
            Err(LimitsError::BlockTooLarge { max_transfer: 8192, lba_size: 16384 })
        );
    }

    proptest! {
        #[test]
        fn a_command_of_the_limit_fits_the_device_and_the_slot(
            mdts in 0u8..=255, mpsmin in 0u8..=4, more in 0u8..=4, lbads in 9u8..=31, nsze in any::<u64>()
        ) {
            let page_size = 4096u64 << (mpsmin + more);
            let limits = ControllerLimits::new(cap(127, mpsmin), page_size, mdts).unwrap();
            let device = if mdts == 0 { u128::MAX } else { (4096u128 << mpsmin).checked_shl(mdts.into()).unwrap_or(u128::MAX) };
            prop_assert!(u128::from(limits.max_transfer) <= device || mdts >= 100);
            if let Ok(namespace) = limits.namespace(&namespace(lbads, 0, nsze)) {
                prop_assert!(namespace.max_transfer() <= limits.max_transfer);
                prop_assert!((1..=65536).contains(&namespace.max_blocks()));
                prop_assert!(prp::list_pages(namespace.max_transfer(), page_size) <= limits.list_pages);
            }
        }
    }
}
