//! Identify for the NVM Command Set in particular: CNS 05h and 06h with CSI 00h (NVM Command Set
//! 1.1, 4.1.5.2 to 4.1.5.4).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::spec::registers::Vs;

/// I/O Command Set specific Identify Controller data structure, CNS 06h, CSI 00h (NVM Command Set
/// 1.1, 4.1.5.4). Size limits are powers of two in units of CAP.MPSMIN pages; 0: no limit.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyControllerNvm {
    /// Verify Size Limit.
    pub vsl: u8,
    /// Write Zeroes Size Limit.
    pub wzsl: u8,
    /// Write Uncorrectable Size Limit.
    pub wusl: u8,
    /// Dataset Management Ranges Limit; 0: no limit.
    pub dmrl: u8,
    /// Dataset Management Range Size Limit in logical blocks; 0: no limit.
    pub dmrsl: u32,
    /// Dataset Management Size Limit in logical blocks; 0: no limit.
    pub dmsl: u64,
    /// Key Per I/O Capabilities.
    pub kpiocap: u8,
    /// Write Zeroes With Deallocate Size Limit.
    pub wzdsl: u8,
    /// Admin Optional Command Support.
    pub aocs: u16,
    /// Version of the NVM Command Set Specification.
    pub ver: Vs,
    /// LBA Migration Queue Format.
    pub lbamqf: u8,
    /// Reserved.
    pub reserved_25: [u8; 4071],
}

const _: () = assert!(size_of::<IdentifyControllerNvm>() == super::IDENTIFY_LENGTH);
const _: () = assert!(offset_of!(IdentifyControllerNvm, dmrsl) == 4);
const _: () = assert!(offset_of!(IdentifyControllerNvm, dmsl) == 8);
const _: () = assert!(offset_of!(IdentifyControllerNvm, wzdsl) == 17);
const _: () = assert!(offset_of!(IdentifyControllerNvm, ver) == 20);

impl Default for IdentifyControllerNvm {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// I/O Command Set specific Identify Namespace data structure, CNS 05h, CSI 00h (NVM Command Set
/// 1.1, 4.1.5.3).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyNamespaceNvm {
    /// Logical Block Storage Tag Mask.
    pub lbstm: u64,
    /// Protection Information Capabilities.
    pub pic: u8,
    /// Protection Information Format Attributes.
    pub pifa: u8,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// Extended LBA Formats 0 to 63: storage tag size in bits 6:0, protection information format in
    /// bits 8:7.
    pub elbaf: [u32; 64],
    /// Namespace Preferred Deallocate Granularity Large, in logical blocks.
    pub npdgl: u32,
    /// Namespace Preferred Read Granularity, in logical blocks.
    pub nprg: u32,
    /// Namespace Preferred Read Alignment, in logical blocks.
    pub npra: u32,
    /// Namespace Optimal Read Size, in logical blocks.
    pub nors: u32,
    /// Namespace Preferred Deallocate Alignment Large, in logical blocks.
    pub npdal: u32,
    /// LBA Format Placement Shard Size.
    pub lbapss: u32,
    /// Tracked LBA Allocation Granularity.
    pub tlbaag: u32,
    /// Reserved.
    pub reserved_296: [u8; 3800],
}

const _: () = assert!(size_of::<IdentifyNamespaceNvm>() == super::IDENTIFY_LENGTH);
const _: () = assert!(offset_of!(IdentifyNamespaceNvm, elbaf) == 12);
const _: () = assert!(offset_of!(IdentifyNamespaceNvm, npdgl) == 268);
const _: () = assert!(offset_of!(IdentifyNamespaceNvm, tlbaag) == 292);

impl Default for IdentifyNamespaceNvm {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_reserved() {
        assert_eq!(offset_of!(IdentifyControllerNvm, reserved_25), 25);
        assert_eq!(offset_of!(IdentifyNamespaceNvm, reserved_296), 296);
    }
}
