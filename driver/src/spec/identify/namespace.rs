//! Identify Namespace of the NVM Command Set, CNS 00h (NVM Command Set 1.1, 4.1.5.1).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::spec::ZeroesBased;

wire_flags! {
    /// Namespace Features, NSFEAT (NVM Command Set 1.1, 4.1.5.1).
    pub struct Nsfeat(u8) {
        /// Thin provisioning.
        THIN_PROVISIONING = 1 << 0;
        /// NAWUN, NAWUPF and NACWU are this namespace's own.
        NAMESPACE_ATOMICITY = 1 << 1;
        /// Reads of deallocated or unwritten blocks can be made errors.
        DEALLOCATED_OR_UNWRITTEN_ERROR = 1 << 2;
        /// NGUID and EUI64 are never used again for another namespace.
        UID_NOT_REUSED = 1 << 3;
        /// OPTPERF, lower bit: NPWG, NPWA, NOWS, NPDG and NPDA are defined.
        OPTIMAL_PERFORMANCE = 1 << 4;
        /// OPTPERF, upper bit: NPWG, NPWA, NOWS, and of CNS 05h NPDGL and NPDAL are defined.
        OPTIMAL_PERFORMANCE_LARGE = 1 << 5;
        /// Multiple Atomicity Mode.
        MULTIPLE_ATOMICITY = 1 << 6;
        /// OPTRPERF: NPRG, NPRA and NORS of CNS 05h are defined.
        OPTIMAL_READ_PERFORMANCE = 1 << 7;
    }
}

wire_flags! {
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities, NMIC (Base 2.1, 5.1.13.2.8).
    pub struct Nmic(u8) {
        /// The namespace may be attached to several controllers.
        SHARED = 1 << 0;
        /// The namespace is dispersed over NVM subsystems.
        DISPERSED = 1 << 1;
    }
}

wire_flags! {
    /// Reservation Capabilities, RESCAP (Base 2.1, 5.1.13.2.8).
    pub struct Rescap(u8) {
        /// Persist Through Power Loss.
        PERSIST_THROUGH_POWER_LOSS = 1 << 0;
        /// Write Exclusive.
        WRITE_EXCLUSIVE = 1 << 1;
        /// Exclusive Access.
        EXCLUSIVE_ACCESS = 1 << 2;
        /// Write Exclusive - Registrants Only.
        WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 1 << 3;
        /// Exclusive Access - Registrants Only.
        EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 1 << 4;
        /// Write Exclusive - All Registrants.
        WRITE_EXCLUSIVE_ALL_REGISTRANTS = 1 << 5;
        /// Exclusive Access - All Registrants.
        EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 1 << 6;
        /// Ignore Existing Key as NVM Express 1.3 and later define it.
        IGNORE_EXISTING_KEY = 1 << 7;
    }
}

wire_flags! {
    /// Namespace Attributes, NSATTR (Base 2.1, 5.1.13.2.8).
    pub struct Nsattr(u8) {
        /// Currently write protected.
        WRITE_PROTECTED = 1 << 0;
    }
}

wire_word! {
    /// Formatted LBA Size, FLBAS (NVM Command Set 1.1, 4.1.5.1).
    #[derive(Debug)]
    pub struct Flbas(u8) {
        /// Format Index, bits 3:0.
        fidxl / with_fidxl [0, 4]: u8;
        /// Metadata is transferred at the end of each block, as one extended block.
        metadata_extended / with_metadata_extended [4, 1]: bool;
        /// Format Index, bits 5:4.
        fidxu / with_fidxu [5, 2]: u8;
    }
}

wire_word! {
    /// End-to-end Data Protection Type Settings, DPS (NVM Command Set 1.1, 4.1.5.1).
    #[derive(Debug)]
    pub struct Dps(u8) {
        /// Protection Information Type: 0, none, to 3.
        pit / with_pit [0, 3]: u8;
        /// Protection information is at the start of the metadata.
        pip / with_pip [3, 1]: bool;
    }
}

wire_word! {
    /// Deallocate Logical Block Features, DLFEAT (NVM Command Set 1.1, 4.1.5.1).
    #[derive(Debug)]
    pub struct Dlfeat(u8) {
        /// What deallocated blocks read as: 0 not reported, 1 zeroes, 2 all bits set.
        drb / with_drb [0, 3]: u8;
        /// Write Zeroes has the Deallocate bit.
        wzds / with_wzds [3, 1]: bool;
        /// The guard of deallocated blocks is a valid CRC, not FFFFh.
        gds / with_gds [4, 1]: bool;
    }
}

/// LBA Format (NVM Command Set 1.1, 4.1.5.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata Size in bytes per logical block.
    pub ms: u16,
    /// LBA Data Size, as a power of two, at least 9; 0: the format is not available. See
    /// [`data_size`](Self::data_size).
    pub lbads: u8,
    /// Relative Performance in bits 1:0: 0 best to 3 degraded.
    pub rp: u8,
}

const _: () = assert!(size_of::<LbaFormat>() == 4);

impl LbaFormat {
    /// The size of a logical block in bytes, without metadata. `None` when LBADS is less than 9 (the
    /// format is not available) or too great for 64 bits.
    pub const fn data_size(self) -> Option<u64> {
        if self.lbads < 9 {
            None
        } else {
            1u64.checked_shl(self.lbads as u32)
        }
    }
}

/// Identify Namespace data structure, CNS 00h (NVM Command Set 1.1, 4.1.5.1).
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size in logical blocks: LBAs 0 to NSZE - 1; 0 when the namespace is not active.
    pub nsze: u64,
    /// Namespace Capacity in logical blocks: how many may be allocated at a time.
    pub ncap: u64,
    /// Namespace Utilization in logical blocks.
    pub nuse: u64,
    /// Namespace Features.
    pub nsfeat: Nsfeat,
    /// Number of LBA Formats, those with attributes of their own (NULBAF) not counted.
    pub nlbaf: ZeroesBased<u8>,
    /// Formatted LBA Size. See [`format_index`](Self::format_index).
    pub flbas: Flbas,
    /// Metadata Capabilities: bit 0 extended block, bit 1 separate buffer.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: Dps,
    /// Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: Nmic,
    /// Reservation Capabilities.
    pub rescap: Rescap,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features.
    pub dlfeat: Dlfeat,
    /// Namespace Atomic Write Unit Normal, in logical blocks.
    pub nawun: ZeroesBased<u16>,
    /// Namespace Atomic Write Unit Power Fail, in logical blocks.
    pub nawupf: ZeroesBased<u16>,
    /// Namespace Atomic Compare & Write Unit, in logical blocks.
    pub nacwu: ZeroesBased<u16>,
    /// Namespace Atomic Boundary Size Normal, 0's based, in logical blocks; 0: no boundary.
    pub nabsn: u16,
    /// Namespace Atomic Boundary Offset: the LBA of the first boundary.
    pub nabo: u16,
    /// Namespace Atomic Boundary Size Power Fail, 0's based, in logical blocks; 0: no boundary.
    pub nabspf: u16,
    /// Namespace Optimal I/O Boundary in logical blocks; 0: none.
    pub noiob: u16,
    /// NVM Capacity in bytes; 0: not reported.
    pub nvmcap: U128,
    /// Namespace Preferred Write Granularity, in logical blocks.
    pub npwg: ZeroesBased<u16>,
    /// Namespace Preferred Write Alignment, in logical blocks.
    pub npwa: ZeroesBased<u16>,
    /// Namespace Preferred Deallocate Granularity, in logical blocks.
    pub npdg: ZeroesBased<u16>,
    /// Namespace Preferred Deallocate Alignment, in logical blocks.
    pub npda: ZeroesBased<u16>,
    /// Namespace Optimal Write Size, in logical blocks.
    pub nows: ZeroesBased<u16>,
    /// Maximum Single Source Range Length of a Copy, in logical blocks.
    pub mssrl: u16,
    /// Maximum Copy Length, in logical blocks.
    pub mcl: u32,
    /// Maximum Source Range Count of a Copy.
    pub msrc: ZeroesBased<u8>,
    /// Key Per I/O Status.
    pub kpios: u8,
    /// Number of Unique Attribute LBA Formats.
    pub nulbaf: u8,
    /// Reserved.
    pub reserved_83: u8,
    /// Key Per I/O Data Access Alignment and Granularity.
    pub kpiodaag: u32,
    /// Reserved.
    pub reserved_88: [u8; 4],
    /// ANA Group Identifier.
    pub anagrpid: u32,
    /// Reserved.
    pub reserved_96: [u8; 3],
    /// Namespace Attributes.
    pub nsattr: Nsattr,
    /// NVM Set Identifier.
    pub nvmsetid: u16,
    /// Endurance Group Identifier.
    pub endgid: u16,
    /// Namespace Globally Unique Identifier, most significant byte first; all zeroes: none.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier, most significant byte first; all zeroes: none.
    pub eui64: [u8; 8],
    /// LBA Formats 0 to 63.
    pub lbaf: [LbaFormat; 64],
    /// Vendor specific.
    pub vs: [u8; 3712],
}

macro_rules! offsets {
    ($($field:ident = $offset:literal),+ $(,)?) => {
        $( const _: () = assert!(offset_of!(IdentifyNamespace, $field) == $offset); )+
    };
}

const _: () = assert!(size_of::<IdentifyNamespace>() == super::IDENTIFY_LENGTH);
offsets! {
    nsze = 0, ncap = 8, nuse = 16, nsfeat = 24, nlbaf = 25, flbas = 26, mc = 27, dpc = 28, dps = 29,
    nmic = 30, rescap = 31, fpi = 32, dlfeat = 33, nawun = 34, nawupf = 36, nacwu = 38, nabsn = 40,
    nabo = 42, nabspf = 44, noiob = 46, nvmcap = 48, npwg = 64, npwa = 66, npdg = 68, npda = 70,
    nows = 72, mssrl = 74, mcl = 76, msrc = 80, kpios = 81, nulbaf = 82, kpiodaag = 84,
    anagrpid = 92, nsattr = 99, nvmsetid = 100, endgid = 102, nguid = 104, eui64 = 120, lbaf = 128,
    vs = 384,
}

impl Default for IdentifyNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl IdentifyNamespace {
    /// How many entries of [`lbaf`](Self::lbaf) count: 1 to 64. A device that claims more is taken
    /// at 64.
    pub fn format_count(&self) -> usize {
        (self.nlbaf.count() as usize + usize::from(self.nulbaf)).min(self.lbaf.len())
    }

    /// The index of the format that the namespace has, from FLBAS: 0 to 63. Its upper bits count
    /// only where there are more than 16 formats.
    pub fn format_index(&self) -> usize {
        let lower = usize::from(self.flbas.fidxl());
        if self.format_count() > 16 {
            usize::from(self.flbas.fidxu()) << 4 | lower
        } else {
            lower
        }
    }

    /// The format that the namespace has. `None` when FLBAS names one that the device does not
    /// have, or one that is not available.
    pub fn current_lba_format(&self) -> Option<LbaFormat> {
        let format = *self.lbaf[..self.format_count()].get(self.format_index())?;
        format.data_size().map(|_| format)
    }
}

impl core::fmt::Debug for IdentifyNamespace {
    /// What a transfer needs to know; the structure has more than a log line should.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IdentifyNamespace")
            .field("nsze", &self.nsze)
            .field("ncap", &self.ncap)
            .field("nuse", &self.nuse)
            .field("nsfeat", &self.nsfeat)
            .field("format_index", &self.format_index())
            .field("lba_format", &self.current_lba_format())
            .field("noiob", &self.noiob)
            .field("nguid", &self.nguid)
            .field("eui64", &self.eui64)
            .finish_non_exhaustive()
    }
}
