//! The submission queue entry (NVM Express Base 2.1, 4.1) and, one file per command, what its
//! dwords mean.
//!
//! A host builds an entry with a constructor and `with_*` setters (`Sqe::read(nsid, slba, nlb)
//! .with_prp1(iova)`); a controller reads it with the getters of the same names. Getters do not
//! look at the opcode: which of them apply is the reader's to know. Where two commands have
//! different fields of one name, the getter's name begins with the command's.

mod abort;
mod arbitration;
mod features;
mod firmware;
mod format;
mod identify;
mod log_page;
mod nvm;
mod opcode;
mod queues;
mod reservations;
mod sanitize;
mod self_test;

use core::mem::{align_of, offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use arbitration::Arbitration;
pub use features::{
    FeatureCapabilities, FeatureIdentifier, NumberOfQueues, Select, TemperatureThreshold, ThresholdType,
};
pub use firmware::CommitAction;
pub use format::SecureEraseSettings;
pub use identify::{Cns, Csi};
pub use log_page::LogPageIdentifier;
pub use nvm::{DatasetManagementRange, DirectiveType, ProtectionInformation};
pub use opcode::{AdminOpcode, NvmOpcode};
pub use queues::QueuePriority;
pub use reservations::{AcquireAction, ChangePersistence, RegisterAction, ReleaseAction};
pub use sanitize::SanitizeAction;
pub use self_test::SelfTestCode;

/// The namespace identifier that means every namespace (Base 2.1, 3.2.1.1).
pub const NSID_ALL: u32 = 0xFFFF_FFFF;

codes! {
    /// Fused Operation, FUSE (Base 2.1, 4.1.1).
    pub struct Fuse(u8) {
        NORMAL = 0, "Normal Operation";
        FIRST = 1, "Fused Operation, First Command";
        SECOND = 2, "Fused Operation, Second Command";
    }
}

codes! {
    /// What the data pointer holds, PRP or SGL for Data Transfer, PSDT (Base 2.1, 4.1.1).
    pub struct Psdt(u8) {
        PRP = 0, "PRPs";
        SGL_MPTR_BUFFER = 1, "SGLs, Metadata Pointer Addresses a Buffer";
        SGL_MPTR_SGL = 2, "SGLs, Metadata Pointer Addresses an SGL Segment";
    }
}

/// Submission queue entry: the common command format (Base 2.1, 4.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct Sqe {
    /// Opcode: an [`AdminOpcode`] or an [`NvmOpcode`], by the queue that the entry is in.
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// Command Identifier, unique among the commands outstanding in its queue; FFFFh is best
    /// avoided, since the Error Information log uses it for "no command".
    pub cid: u16,
    /// Namespace Identifier.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Metadata Pointer.
    pub mptr: u64,
    /// Data pointer, first half: PRP Entry 1, or the first half of an SGL descriptor.
    pub prp1: u64,
    /// Data pointer, second half: PRP Entry 2, or the second half of an SGL descriptor.
    pub prp2: u64,
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
}

const _: () = assert!(size_of::<Sqe>() == 64 && align_of::<Sqe>() == 8);
const _: () = assert!(offset_of!(Sqe, flags) == 1);
const _: () = assert!(offset_of!(Sqe, cid) == 2);
const _: () = assert!(offset_of!(Sqe, nsid) == 4);
const _: () = assert!(offset_of!(Sqe, cdw2) == 8);
const _: () = assert!(offset_of!(Sqe, cdw3) == 12);
const _: () = assert!(offset_of!(Sqe, mptr) == 16);
const _: () = assert!(offset_of!(Sqe, prp1) == 24);
const _: () = assert!(offset_of!(Sqe, prp2) == 32);
const _: () = assert!(offset_of!(Sqe, cdw10) == 40);
const _: () = assert!(offset_of!(Sqe, cdw11) == 44);
const _: () = assert!(offset_of!(Sqe, cdw12) == 48);
const _: () = assert!(offset_of!(Sqe, cdw13) == 52);
const _: () = assert!(offset_of!(Sqe, cdw14) == 56);
const _: () = assert!(offset_of!(Sqe, cdw15) == 60);

fields! {
    impl Sqe, flags: u8 {
        /// Fused Operation.
        fuse / with_fuse [0, 2]: Fuse;
        /// PRP or SGL for Data Transfer.
        psdt / with_psdt [6, 2]: Psdt;
    }
}

impl Sqe {
    /// All zeroes: `Sqe::default()` for constants.
    pub const ZERO: Self = Self {
        opcode: 0,
        flags: 0,
        cid: 0,
        nsid: 0,
        cdw2: 0,
        cdw3: 0,
        mptr: 0,
        prp1: 0,
        prp2: 0,
        cdw10: 0,
        cdw11: 0,
        cdw12: 0,
        cdw13: 0,
        cdw14: 0,
        cdw15: 0,
    };

    /// The admin command `opcode` for namespace `nsid` (0 where the command has none); the rest is
    /// zero.
    #[inline]
    pub const fn admin(opcode: AdminOpcode, nsid: u32) -> Self {
        Self { opcode: opcode.raw(), nsid, ..Self::ZERO }
    }

    /// The NVM Command Set's command `opcode` for namespace `nsid`; the rest is zero.
    #[inline]
    pub const fn nvm(opcode: NvmOpcode, nsid: u32) -> Self {
        Self { opcode: opcode.raw(), nsid, ..Self::ZERO }
    }

    /// The opcode, for an entry of the Admin Submission Queue.
    #[inline]
    pub const fn admin_opcode(&self) -> AdminOpcode {
        AdminOpcode::from_raw(self.opcode)
    }

    /// The opcode, for an entry of an I/O Submission Queue of the NVM Command Set.
    #[inline]
    pub const fn nvm_opcode(&self) -> NvmOpcode {
        NvmOpcode::from_raw(self.opcode)
    }

    /// The same command with that Command Identifier.
    #[inline]
    #[must_use]
    pub const fn with_cid(mut self, cid: u16) -> Self {
        self.cid = cid;
        self
    }

    /// The same command with that PRP Entry 1 (Base 2.1, 4.3.1).
    #[inline]
    #[must_use]
    pub const fn with_prp1(mut self, prp1: u64) -> Self {
        self.prp1 = prp1;
        self
    }

    /// The same command with that PRP Entry 2 (Base 2.1, 4.3.1).
    #[inline]
    #[must_use]
    pub const fn with_prp2(mut self, prp2: u64) -> Self {
        self.prp2 = prp2;
        self
    }

    /// The same command with that Metadata Pointer.
    #[inline]
    #[must_use]
    pub const fn with_mptr(mut self, mptr: u64) -> Self {
        self.mptr = mptr;
        self
    }
}

#[cfg(test)]
mod tests;
