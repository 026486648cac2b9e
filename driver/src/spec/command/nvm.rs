//! Commands of the NVM Command Set (NVM Command Set 1.1, 3.3) and Flush (NVM Express Base 2.1, 7.2).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{NvmOpcode, Sqe};
use crate::spec::ZeroesBased;

wire_flags! {
    /// Protection Information Field, PRINFO (NVM Command Set 1.1, 3.3).
    pub struct ProtectionInformation(u8) {
        /// Check the logical block reference tag.
        PRCHK_REFERENCE_TAG = 1 << 0;
        /// Check the logical block application tag.
        PRCHK_APPLICATION_TAG = 1 << 1;
        /// Check the guard.
        PRCHK_GUARD = 1 << 2;
        /// Protection Information Action: the controller inserts or strips the information.
        PRACT = 1 << 3;
    }
}

codes! {
    /// Directive Type, DTYPE (Base 2.1, 8.1.8).
    pub struct DirectiveType(u8) {
        IDENTIFY = 0, "Identify, or none in an I/O command";
        STREAMS = 1, "Streams";
        DATA_PLACEMENT = 2, "Data Placement";
    }
}

impl Sqe {
    /// Reads `nlb` logical blocks from `slba` (NVM Command Set 1.1, 3.3.4).
    #[inline]
    pub const fn read(nsid: u32, slba: u64, nlb: ZeroesBased<u16>) -> Self {
        Self::blocks(NvmOpcode::READ, nsid, slba, nlb)
    }

    /// Writes `nlb` logical blocks from `slba` (NVM Command Set 1.1, 3.3.6).
    #[inline]
    pub const fn write(nsid: u32, slba: u64, nlb: ZeroesBased<u16>) -> Self {
        Self::blocks(NvmOpcode::WRITE, nsid, slba, nlb)
    }

    /// Compares `nlb` logical blocks from `slba` with the buffer (NVM Command Set 1.1, 3.3.1).
    #[inline]
    pub const fn compare(nsid: u32, slba: u64, nlb: ZeroesBased<u16>) -> Self {
        Self::blocks(NvmOpcode::COMPARE, nsid, slba, nlb)
    }

    /// Makes `nlb` logical blocks from `slba` read as zeroes (NVM Command Set 1.1, 3.3.8).
    #[inline]
    pub const fn write_zeroes(nsid: u32, slba: u64, nlb: ZeroesBased<u16>) -> Self {
        Self::blocks(NvmOpcode::WRITE_ZEROES, nsid, slba, nlb)
    }

    /// Makes what namespace `nsid` has completed non-volatile (Base 2.1, 7.2).
    #[inline]
    pub const fn flush(nsid: u32) -> Self {
        Self::nvm(NvmOpcode::FLUSH, nsid)
    }

    /// Advises on `nr` ranges, which the buffer holds as [`DatasetManagementRange`]s (NVM Command
    /// Set 1.1, 3.3.3). To deallocate them set [`ad`](Self::ad).
    #[inline]
    pub const fn dataset_management(nsid: u32, nr: ZeroesBased<u8>) -> Self {
        Self::nvm(NvmOpcode::DATASET_MANAGEMENT, nsid).with_nr(nr)
    }

    /// A command for the `nlb` logical blocks from `slba`: Read, Write, Compare, Verify, Write Zeroes
    /// or Write Uncorrectable.
    #[inline]
    const fn blocks(opcode: NvmOpcode, nsid: u32, slba: u64, nlb: ZeroesBased<u16>) -> Self {
        Self {
            opcode: opcode.raw(),
            nsid,
            cdw10: slba as u32,
            cdw11: (slba >> 32) as u32,
            cdw12: nlb.raw() as u32,
            ..Self::ZERO
        }
    }

    /// Starting LBA, dwords 10 and 11 (NVM Command Set 1.1, 3.3).
    #[inline]
    pub const fn slba(&self) -> u64 {
        (self.cdw11 as u64) << 32 | self.cdw10 as u64
    }

    /// The same command with that Starting LBA.
    #[inline]
    #[must_use]
    pub const fn with_slba(mut self, slba: u64) -> Self {
        self.cdw10 = slba as u32;
        self.cdw11 = (slba >> 32) as u32;
        self
    }
}

fields! {
    impl Sqe, cdw12: u32 {
        /// Number of Logical Blocks (NVM Command Set 1.1, 3.3).
        nlb / with_nlb [0, 16]: ZeroesBased<u16>;
        /// Write: Directive Type (NVM Command Set 1.1, 3.3.6).
        dtype / with_dtype [20, 4]: DirectiveType;
        /// Write Zeroes: Namespace Zeroes: every block of the namespace (NVM Command Set 1.1, 3.3.8).
        nsz / with_nsz [23, 1]: bool;
        /// Storage Tag Check (NVM Command Set 1.1, 3.3).
        stc / with_stc [24, 1]: bool;
        /// Write Zeroes: Deallocate the blocks (NVM Command Set 1.1, 3.3.8).
        deac / with_deac [25, 1]: bool;
        /// Protection Information Field (NVM Command Set 1.1, 3.3).
        prinfo / with_prinfo [26, 4]: ProtectionInformation;
        /// Force Unit Access (NVM Command Set 1.1, 3.3).
        fua / with_fua [30, 1]: bool;
        /// Limited Retry (NVM Command Set 1.1, 3.3).
        lr / with_lr [31, 1]: bool;
    }
}

fields! {
    impl Sqe, cdw13: u32 {
        /// Read and Write: Dataset Management attributes: access frequency in bits 3:0, latency in
        /// 5:4, sequential request 6, incompressible 7 (NVM Command Set 1.1, 3.3.4).
        dsm / with_dsm [0, 8]: u8;
        /// Write: Directive Specific (NVM Command Set 1.1, 3.3.6).
        dspec / with_dspec [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw14: u32 {
        /// The lower 32 bits of the Logical Block Storage Tag and Initial (on a read: Expected Initial)
        /// Logical Block Reference Tag, which is all of it under a 16-bit guard without storage tag
        /// (NVM Command Set 1.1, 3.3).
        ilbrt / with_ilbrt [0, 32]: u32;
    }
}

fields! {
    impl Sqe, cdw15: u32 {
        /// Logical Block Application Tag (on a read: Expected) (NVM Command Set 1.1, 3.3).
        lbat / with_lbat [0, 16]: u16;
        /// Logical Block Application Tag Mask (NVM Command Set 1.1, 3.3).
        lbatm / with_lbatm [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Dataset Management: Number of Ranges (NVM Command Set 1.1, 3.3.3).
        nr / with_nr [0, 8]: ZeroesBased<u8>;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Dataset Management: Integral Dataset for Read (NVM Command Set 1.1, 3.3.3).
        idr / with_idr [0, 1]: bool;
        /// Dataset Management: Integral Dataset for Write (NVM Command Set 1.1, 3.3.3).
        idw / with_idw [1, 1]: bool;
        /// Dataset Management: Deallocate the ranges (NVM Command Set 1.1, 3.3.3).
        ad / with_ad [2, 1]: bool;
    }
}

/// One range of a Dataset Management command (NVM Command Set 1.1, 3.3.3). Its length is a count as
/// it stands, not 0's based.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct DatasetManagementRange {
    /// Context Attributes.
    pub cattr: u32,
    /// Length in logical blocks.
    pub lengthlb: u32,
    /// Starting LBA.
    pub slba: u64,
}

const _: () = assert!(size_of::<DatasetManagementRange>() == 16);
const _: () = assert!(offset_of!(DatasetManagementRange, lengthlb) == 4);
const _: () = assert!(offset_of!(DatasetManagementRange, slba) == 8);
