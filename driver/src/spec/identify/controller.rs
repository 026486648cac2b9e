//! Identify Controller, CNS 01h (NVM Express Base 2.1, 5.1.13.2.1).

use core::mem::{offset_of, size_of};
use std::borrow::Cow;

use zerocopy::little_endian::U128;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{Cmic, Ctratt, Fna, Fuses, Lpa, Oacs, Oaes, Oncs, Sgls, Vwc};
use crate::spec::registers::{Cap, Vs};
use crate::spec::{ZeroesBased, text};

codes! {
    /// Controller Type, CNTRLTYPE (Base 2.1, 5.1.13.2.1).
    pub struct ControllerType(u8) {
        NOT_REPORTED = 0, "Not Reported";
        IO = 1, "I/O Controller";
        DISCOVERY = 2, "Discovery Controller";
        ADMINISTRATIVE = 3, "Administrative Controller";
    }
}

/// Power State Descriptor (Base 2.1, 5.1.13.2.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct PowerStateDescriptor {
    /// Maximum Power, in units of 0.01 W, or of 0.0001 W when bit 0 of `flags` is set.
    pub mp: u16,
    /// Reserved.
    pub reserved_2: u8,
    /// Bit 0: Max Power Scale. Bit 1: Non-Operational State.
    pub flags: u8,
    /// Entry Latency in microseconds; 0: not reported.
    pub enlat: u32,
    /// Exit Latency in microseconds; 0: not reported.
    pub exlat: u32,
    /// Relative Read Throughput.
    pub rrt: u8,
    /// Relative Read Latency.
    pub rrl: u8,
    /// Relative Write Throughput.
    pub rwt: u8,
    /// Relative Write Latency.
    pub rwl: u8,
    /// Idle Power, scaled by `ips`.
    pub idlp: u16,
    /// Idle Power Scale in bits 7:6.
    pub ips: u8,
    /// Reserved.
    pub reserved_19: u8,
    /// Active Power, scaled by `apws`.
    pub actp: u16,
    /// Active Power Workload in bits 2:0, its scale in bits 7:6.
    pub apws: u8,
    /// Emergency Power Fail Recovery Time.
    pub epfrt: u8,
    /// Forced Quiescence Vault Time.
    pub fqvt: u8,
    /// Emergency Power Fail Vault Time.
    pub epfvt: u8,
    /// Time scales of `epfrt` in bits 3:0, of `fqvt` in bits 7:4.
    pub epfr_fqv_ts: u8,
    /// Time scale of `epfvt` in bits 3:0.
    pub epfvts: u8,
    /// Reserved.
    pub reserved_28: [u8; 4],
}

const _: () = assert!(size_of::<PowerStateDescriptor>() == 32);

/// Identify Controller data structure, CNS 01h (Base 2.1, 5.1.13.2.1).
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IdentifyController {
    /// PCI Vendor ID.
    pub vid: u16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: u16,
    /// Serial Number. See [`serial_number`](Self::serial_number).
    pub sn: [u8; 20],
    /// Model Number. See [`model_number`](Self::model_number).
    pub mn: [u8; 40],
    /// Firmware Revision. See [`firmware_revision`](Self::firmware_revision).
    pub fr: [u8; 8],
    /// Recommended Arbitration Burst, as a power of two.
    pub rab: u8,
    /// IEEE OUI Identifier, least significant byte first.
    pub ieee: [u8; 3],
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities.
    pub cmic: Cmic,
    /// Maximum Data Transfer Size: a power of two in units of CAP.MPSMIN pages; 0: no limit. See
    /// [`max_data_transfer_size`](Self::max_data_transfer_size).
    pub mdts: u8,
    /// Controller ID.
    pub cntlid: u16,
    /// Version; 0 before NVM Express 1.2.
    pub ver: Vs,
    /// RTD3 Resume Latency in microseconds.
    pub rtd3r: u32,
    /// RTD3 Entry Latency in microseconds: how long a shutdown may take; 0: not reported.
    pub rtd3e: u32,
    /// Optional Asynchronous Events Supported.
    pub oaes: Oaes,
    /// Controller Attributes.
    pub ctratt: Ctratt,
    /// Read Recovery Levels Supported, a bit each.
    pub rrls: u16,
    /// Boot Partition Capabilities.
    pub bpcap: u8,
    /// Reserved.
    pub reserved_103: u8,
    /// NVM Subsystem Shutdown Latency in microseconds; 0: not reported.
    pub nssl: u32,
    /// Reserved.
    pub reserved_108: [u8; 2],
    /// Power Loss Signaling Information.
    pub plsi: u8,
    /// Controller Type.
    pub cntrltype: ControllerType,
    /// FRU Globally Unique Identifier.
    pub fguid: [u8; 16],
    /// Command Retry Delay Time 1, in units of 100 ms.
    pub crdt1: u16,
    /// Command Retry Delay Time 2, in units of 100 ms.
    pub crdt2: u16,
    /// Command Retry Delay Time 3, in units of 100 ms.
    pub crdt3: u16,
    /// Controller Reachability Capabilities.
    pub crcap: u8,
    /// Reserved.
    pub reserved_135: [u8; 118],
    /// NVM Subsystem Report.
    pub nvmsr: u8,
    /// VPD Write Cycle Information.
    pub vwci: u8,
    /// Management Endpoint Capabilities.
    pub mec: u8,
    /// Optional Admin Command Support.
    pub oacs: Oacs,
    /// Abort Command Limit: the most Abort commands outstanding.
    pub acl: ZeroesBased<u8>,
    /// Asynchronous Event Request Limit: the most outstanding.
    pub aerl: ZeroesBased<u8>,
    /// Firmware Updates.
    pub frmw: u8,
    /// Log Page Attributes.
    pub lpa: Lpa,
    /// Error Log Page Entries.
    pub elpe: ZeroesBased<u8>,
    /// Number of Power States Support; 32 at most.
    pub npss: ZeroesBased<u8>,
    /// Admin Vendor Specific Command Configuration.
    pub avscc: u8,
    /// Autonomous Power State Transition Attributes.
    pub apsta: u8,
    /// Warning Composite Temperature Threshold in kelvins; 0: not reported.
    pub wctemp: u16,
    /// Critical Composite Temperature Threshold in kelvins; 0: not reported.
    pub cctemp: u16,
    /// Maximum Time for Firmware Activation, in units of 100 ms; 0: not reported.
    pub mtfa: u16,
    /// Host Memory Buffer Preferred Size, in units of 4 KiB; 0: not supported.
    pub hmpre: u32,
    /// Host Memory Buffer Minimum Size, in units of 4 KiB.
    pub hmmin: u32,
    /// Total NVM Capacity in bytes; 0: not reported.
    pub tnvmcap: U128,
    /// Unallocated NVM Capacity in bytes.
    pub unvmcap: U128,
    /// Replay Protected Memory Block Support.
    pub rpmbs: u32,
    /// Extended Device Self-test Time in minutes.
    pub edstt: u16,
    /// Device Self-test Options.
    pub dsto: u8,
    /// Firmware Update Granularity, in units of 4 KiB; 0: not reported; FFh: none.
    pub fwug: u8,
    /// Keep Alive Support: the granularity in units of 100 ms; 0: not supported.
    pub kas: u16,
    /// Host Controlled Thermal Management Attributes.
    pub hctma: u16,
    /// Minimum Thermal Management Temperature in kelvins.
    pub mntmt: u16,
    /// Maximum Thermal Management Temperature in kelvins.
    pub mxtmt: u16,
    /// Sanitize Capabilities.
    pub sanicap: u32,
    /// Host Memory Buffer Minimum Descriptor Entry Size, in units of 4 KiB; 0: no limit.
    pub hmminds: u32,
    /// Host Memory Maximum Descriptors Entries; 0: no limit.
    pub hmmaxd: u16,
    /// NVM Set Identifier Maximum.
    pub nsetidmax: u16,
    /// Endurance Group Identifier Maximum.
    pub endgidmax: u16,
    /// ANA Transition Time in seconds.
    pub anatt: u8,
    /// Asymmetric Namespace Access Capabilities.
    pub anacap: u8,
    /// ANA Group Identifier Maximum.
    pub anagrpmax: u32,
    /// Number of ANA Group Identifiers.
    pub nanagrpid: u32,
    /// Persistent Event Log Size, in units of 64 KiB.
    pub pels: u32,
    /// Domain Identifier.
    pub domainid: u16,
    /// Key Per I/O Capabilities.
    pub kpioc: u8,
    /// Reserved.
    pub reserved_359: u8,
    /// Maximum Processing Time for Firmware Activation Without Reset, in units of 100 ms.
    pub mptfawr: u16,
    /// Reserved.
    pub reserved_362: [u8; 6],
    /// Max Endurance Group Capacity in bytes.
    pub megcap: U128,
    /// Temperature Threshold Hysteresis Attributes.
    pub tmpthha: u8,
    /// Reserved.
    pub reserved_385: u8,
    /// Command Quiesce Time in milliseconds.
    pub cqt: u16,
    /// Reserved.
    pub reserved_388: [u8; 124],
    /// Submission Queue Entry Size: powers of two, required in bits 3:0, maximum in bits 7:4.
    pub sqes: u8,
    /// Completion Queue Entry Size: powers of two, required in bits 3:0, maximum in bits 7:4.
    pub cqes: u8,
    /// Maximum Outstanding Commands; 0: not reported.
    pub maxcmd: u16,
    /// Number of Namespaces: the greatest valid namespace identifier.
    pub nn: u32,
    /// Optional NVM Command Support.
    pub oncs: Oncs,
    /// Fused Operation Support.
    pub fuses: Fuses,
    /// Format NVM Attributes.
    pub fna: Fna,
    /// Volatile Write Cache.
    pub vwc: Vwc,
    /// Atomic Write Unit Normal, in logical blocks.
    pub awun: ZeroesBased<u16>,
    /// Atomic Write Unit Power Fail, in logical blocks.
    pub awupf: ZeroesBased<u16>,
    /// I/O Command Set Vendor Specific Command Configuration (formerly NVSCC).
    pub icsvscc: u8,
    /// Namespace Write Protection Capabilities.
    pub nwpc: u8,
    /// Atomic Compare & Write Unit, in logical blocks; valid where FUSES has Compare and Write.
    pub acwu: ZeroesBased<u16>,
    /// Copy Descriptor Formats Supported, a bit each.
    pub cdfs: u16,
    /// SGL Support.
    pub sgls: Sgls,
    /// Maximum Number of Allowed Namespaces; 0: as many as NN.
    pub mnan: u32,
    /// Maximum Domain Namespace Attachments.
    pub maxdna: U128,
    /// Maximum I/O Controller Namespace Attachments.
    pub maxcna: u32,
    /// Optimal Aggregated Queue Depth.
    pub oaqd: u32,
    /// Recommended Host-Initiated Refresh Interval.
    pub rhiri: u8,
    /// Host-Initiated Refresh Time.
    pub hirt: u8,
    /// Controller Maximum Memory Range Tracking Descriptors.
    pub cmmrtd: u16,
    /// NVM Subsystem Maximum Memory Range Tracking Descriptors.
    pub nmmrtd: u16,
    /// Minimum Memory Range Tracking Granularity.
    pub minmrtg: u8,
    /// Maximum Memory Range Tracking Granularity.
    pub maxmrtg: u8,
    /// Tracking Attributes.
    pub trattr: u8,
    /// Reserved.
    pub reserved_577: u8,
    /// Maximum Controller User Data Migration Queues.
    pub mcudmq: u16,
    /// Maximum NVM Subsystem User Data Migration Queues.
    pub mnsudmq: u16,
    /// Maximum Controller Memory Ranges.
    pub mcmr: u16,
    /// NVM Subsystem Maximum Controller Memory Ranges.
    pub nmcmr: u16,
    /// Maximum Controller Data Queue PRP Count.
    pub mcdqpc: u16,
    /// Reserved.
    pub reserved_588: [u8; 180],
    /// NVM Subsystem NVMe Qualified Name. See [`nvm_subsystem_nqn`](Self::nvm_subsystem_nqn).
    pub subnqn: [u8; 256],
    /// Reserved.
    pub reserved_1024: [u8; 768],
    /// For NVMe over Fabrics.
    pub fabrics: [u8; 256],
    /// Power State Descriptors; [`npss`](Self::npss) says how many count.
    pub psd: [PowerStateDescriptor; 32],
    /// Vendor specific.
    pub vs: [u8; 1024],
}

macro_rules! offsets {
    ($($field:ident = $offset:literal),+ $(,)?) => {
        $( const _: () = assert!(offset_of!(IdentifyController, $field) == $offset); )+
    };
}

const _: () = assert!(size_of::<IdentifyController>() == super::IDENTIFY_LENGTH);
offsets! {
    vid = 0, ssvid = 2, sn = 4, mn = 24, fr = 64, rab = 72, ieee = 73, cmic = 76, mdts = 77,
    cntlid = 78, ver = 80, rtd3r = 84, rtd3e = 88, oaes = 92, ctratt = 96, rrls = 100, bpcap = 102,
    nssl = 104, plsi = 110, cntrltype = 111, fguid = 112, crdt1 = 128, crdt2 = 130, crdt3 = 132,
    crcap = 134, nvmsr = 253, vwci = 254, mec = 255, oacs = 256, acl = 258, aerl = 259, frmw = 260,
    lpa = 261, elpe = 262, npss = 263, avscc = 264, apsta = 265, wctemp = 266, cctemp = 268,
    mtfa = 270, hmpre = 272, hmmin = 276, tnvmcap = 280, unvmcap = 296, rpmbs = 312, edstt = 316,
    dsto = 318, fwug = 319, kas = 320, hctma = 322, mntmt = 324, mxtmt = 326, sanicap = 328,
    hmminds = 332, hmmaxd = 336, nsetidmax = 338, endgidmax = 340, anatt = 342, anacap = 343,
    anagrpmax = 344, nanagrpid = 348, pels = 352, domainid = 356, kpioc = 358, mptfawr = 360,
    megcap = 368, tmpthha = 384, cqt = 386, sqes = 512, cqes = 513, maxcmd = 514, nn = 516,
    oncs = 520, fuses = 522, fna = 524, vwc = 525, awun = 526, awupf = 528, icsvscc = 530,
    nwpc = 531, acwu = 532, cdfs = 534, sgls = 536, mnan = 540, maxdna = 544, maxcna = 560,
    oaqd = 564, rhiri = 568, hirt = 569, cmmrtd = 570, nmmrtd = 572, minmrtg = 574, maxmrtg = 575,
    trattr = 576, mcudmq = 578, mnsudmq = 580, mcmr = 582, nmcmr = 584, mcdqpc = 586, subnqn = 768,
    fabrics = 1792, psd = 2048, vs = 3072,
}

impl Default for IdentifyController {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl IdentifyController {
    /// Serial number, without padding; what is not printable is replaced.
    pub fn serial_number(&self) -> Cow<'_, str> {
        text::read(&self.sn)
    }

    /// Model number, without padding; what is not printable is replaced.
    pub fn model_number(&self) -> Cow<'_, str> {
        text::read(&self.mn)
    }

    /// Firmware revision, without padding; what is not printable is replaced.
    pub fn firmware_revision(&self) -> Cow<'_, str> {
        text::read(&self.fr)
    }

    /// NVMe Qualified Name of the NVM subsystem, up to its null; what is not printable is replaced.
    pub fn nvm_subsystem_nqn(&self) -> Cow<'_, str> {
        text::read(&self.subnqn)
    }

    /// Replaces the serial number. `false`, and no change, unless it is printable ASCII of at most
    /// 20 bytes.
    #[must_use]
    pub fn set_serial_number(&mut self, sn: &str) -> bool {
        text::padded(sn, b' ')
            .map(|field| self.sn = field)
            .is_some()
    }

    /// Replaces the model number. `false`, and no change, unless it is printable ASCII of at most 40
    /// bytes.
    #[must_use]
    pub fn set_model_number(&mut self, mn: &str) -> bool {
        text::padded(mn, b' ')
            .map(|field| self.mn = field)
            .is_some()
    }

    /// Replaces the firmware revision. `false`, and no change, unless it is printable ASCII of at
    /// most 8 bytes.
    #[must_use]
    pub fn set_firmware_revision(&mut self, fr: &str) -> bool {
        text::padded(fr, b' ')
            .map(|field| self.fr = field)
            .is_some()
    }

    /// Replaces the subsystem's NQN. `false`, and no change, unless it is printable ASCII of at most
    /// 223 bytes (Base 2.1, 4.7).
    #[must_use]
    pub fn set_nvm_subsystem_nqn(&mut self, nqn: &str) -> bool {
        nqn.len() <= 223
            && text::padded(nqn, 0)
                .map(|field| self.subnqn = field)
                .is_some()
    }

    /// The most bytes that one command may move, from MDTS and CAP.MPSMIN. `None` when there is no
    /// limit, or one beyond 64 bits.
    pub const fn max_data_transfer_size(&self, cap: Cap) -> Option<u64> {
        if self.mdts == 0 {
            return None;
        }
        1u64.checked_shl(12 + cap.mpsmin() as u32 + self.mdts as u32)
    }
}

impl core::fmt::Debug for IdentifyController {
    /// What tells controllers apart; the structure has more than a log line should.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IdentifyController")
            .field("vid", &self.vid)
            .field("sn", &self.serial_number())
            .field("mn", &self.model_number())
            .field("fr", &self.firmware_revision())
            .field("cntlid", &self.cntlid)
            .field("ver", &self.ver)
            .field("mdts", &self.mdts)
            .field("nn", &self.nn)
            .field("oacs", &self.oacs)
            .field("oncs", &self.oncs)
            .field("vwc", &self.vwc)
            .field("sgls", &self.sgls)
            .finish_non_exhaustive()
    }
}
