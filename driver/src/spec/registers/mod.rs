//! Controller properties, which a PCIe controller has as registers in BAR 0 (NVM Express Base 2.1,
//! 3.1.4; doorbells: NVMe over PCIe Transport 1.1, 3.1.2).
//!
//! A register is a word with getters for those who read it and `with_*` setters for those who write
//! or serve it. Which accesses are allowed, and when, is left to the controller's two sides.

mod memory_buffer;
pub mod offset;

use core::fmt;
use core::time::Duration;

pub use memory_buffer::{Cmbloc, Cmbmsc, Cmbsts, Cmbsz};
pub use offset::{DoorbellKind, doorbell_offset};

use super::ZeroesBased;

/// What a write to [`offset::NSSR`] must carry to reset the NVM subsystem: "NVMe" (Base 2.1,
/// 3.1.4.7).
pub const NSSR_RESET: u32 = 0x4E56_4D65;

/// What a write to [`offset::NSSD`] must carry to shut the NVM subsystem down: "Nrml" for a normal
/// shutdown (Base 2.1, 3.1.4.20).
pub const NSSD_NORMAL: u32 = 0x4E72_6D6C;

/// What a write to [`offset::NSSD`] must carry to shut the NVM subsystem down abruptly: "Abpt"
/// (Base 2.1, 3.1.4.20).
pub const NSSD_ABRUPT: u32 = 0x4162_7074;

wire_flags! {
    /// Command sets that a controller supports, CAP.CSS (Base 2.1, 3.1.4.1).
    pub struct CommandSets(u8) {
        /// The NVM Command Set, selected by [`CommandSetSelected::NVM`].
        NVM = 1 << 0;
        /// One or more I/O Command Sets, selected by [`CommandSetSelected::ALL_SUPPORTED`].
        IO_COMMAND_SETS = 1 << 6;
        /// No I/O Command Set: admin commands only.
        ADMIN_ONLY = 1 << 7;
    }
}

wire_flags! {
    /// Arbitration mechanisms besides round robin, CAP.AMS (Base 2.1, 3.1.4.1).
    pub struct ArbitrationMechanisms(u8) {
        /// Weighted round robin with urgent priority class.
        WEIGHTED_ROUND_ROBIN = 1 << 0;
        /// A vendor specific mechanism.
        VENDOR_SPECIFIC = 1 << 1;
    }
}

wire_flags! {
    /// Ways of becoming ready that a controller supports, CAP.CRMS (Base 2.1, 3.1.4.1).
    pub struct ReadyModes(u8) {
        /// Ready with media: the time is CRTO.CRWMT.
        WITH_MEDIA = 1 << 0;
        /// Ready independent of media, selected by CC.CRIME: the time is CRTO.CRIMT.
        INDEPENDENT_OF_MEDIA = 1 << 1;
    }
}

codes! {
    /// The scope of a power loss notification, CAP.CPS (Base 2.1, 3.1.4.1).
    pub struct PowerScope(u8) {
        NOT_REPORTED = 0, "Not Reported";
        CONTROLLER = 1, "Controller Scope";
        DOMAIN = 2, "Domain Scope";
        NVM_SUBSYSTEM = 3, "NVM Subsystem Scope";
    }
}

wire_word! {
    /// Controller Capabilities (Base 2.1, 3.1.4.1).
    pub struct Cap(u64) {
        /// Maximum Queue Entries Supported by one I/O queue; at least 2.
        mqes / with_mqes [0, 16]: ZeroesBased<u16>;
        /// Contiguous Queues Required: I/O queues must be physically contiguous.
        cqr / with_cqr [16, 1]: bool;
        /// Arbitration Mechanism Supported, besides round robin.
        ams / with_ams [17, 2]: ArbitrationMechanisms;
        /// Timeout, in units of 500 ms: the longest wait for CSTS.RDY to follow CC.EN. See
        /// [`timeout`](Self::timeout).
        to / with_to [24, 8]: u8;
        /// Doorbell Stride: doorbells lie 2 ^ (2 + DSTRD) bytes apart.
        dstrd / with_dstrd [32, 4]: u8;
        /// NVM Subsystem Reset Supported.
        nssrs / with_nssrs [36, 1]: bool;
        /// Command Sets Supported.
        css / with_css [37, 8]: CommandSets;
        /// Boot Partition Support.
        bps / with_bps [45, 1]: bool;
        /// Controller Power Scope.
        cps / with_cps [46, 2]: PowerScope;
        /// Memory Page Size Minimum: 2 ^ (12 + MPSMIN) bytes.
        mpsmin / with_mpsmin [48, 4]: u8;
        /// Memory Page Size Maximum: 2 ^ (12 + MPSMAX) bytes.
        mpsmax / with_mpsmax [52, 4]: u8;
        /// Persistent Memory Region Supported.
        pmrs / with_pmrs [56, 1]: bool;
        /// Controller Memory Buffer Supported.
        cmbs / with_cmbs [57, 1]: bool;
        /// NVM Subsystem Shutdown Supported.
        nsss / with_nsss [58, 1]: bool;
        /// Controller Ready Modes Supported.
        crms / with_crms [59, 2]: ReadyModes;
        /// NVM Subsystem Shutdown Enhancements Supported.
        nsses / with_nsses [61, 1]: bool;
    }
}

impl Cap {
    /// CAP.TO as a time.
    pub const fn timeout(self) -> Duration {
        Duration::from_millis(self.to() as u64 * 500)
    }

    /// The distance between two doorbells in bytes: 4 to 131,072.
    #[inline]
    pub const fn doorbell_stride(self) -> u64 {
        4 << self.dstrd()
    }

    /// The smallest memory page in bytes: 4 KiB to 128 MiB. The unit of MDTS.
    pub const fn min_page_size(self) -> u64 {
        1 << (12 + self.mpsmin())
    }

    /// The largest memory page in bytes: 4 KiB to 128 MiB.
    pub const fn max_page_size(self) -> u64 {
        1 << (12 + self.mpsmax())
    }
}

impl fmt::Debug for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cap")
            .field("mqes", &self.mqes())
            .field("cqr", &self.cqr())
            .field("ams", &self.ams())
            .field("timeout", &self.timeout())
            .field("doorbell_stride", &self.doorbell_stride())
            .field("nssrs", &self.nssrs())
            .field("css", &self.css())
            .field("bps", &self.bps())
            .field("cps", &self.cps())
            .field("min_page_size", &self.min_page_size())
            .field("max_page_size", &self.max_page_size())
            .field("pmrs", &self.pmrs())
            .field("cmbs", &self.cmbs())
            .field("nsss", &self.nsss())
            .field("crms", &self.crms())
            .field("nsses", &self.nsses())
            .finish()
    }
}

wire_word! {
    /// Version (Base 2.1, 3.1.4.2); also Identify Controller's VER.
    #[derive(PartialOrd, Ord)]
    pub struct Vs(u32) {
        /// Tertiary version number.
        tertiary / with_tertiary [0, 8]: u8;
        /// Minor version number.
        minor / with_minor [8, 8]: u8;
        /// Major version number.
        major / with_major [16, 16]: u16;
    }
}

impl Vs {
    /// The version `major.minor.tertiary`.
    pub const fn new(major: u16, minor: u8, tertiary: u8) -> Self {
        Self::from_bits(0)
            .with_major(major)
            .with_minor(minor)
            .with_tertiary(tertiary)
    }
}

impl fmt::Display for Vs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major(), self.minor(), self.tertiary())
    }
}

impl fmt::Debug for Vs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vs({self})")
    }
}

codes! {
    /// The I/O Command Set that a controller uses, CC.CSS (Base 2.1, 3.1.4.5).
    pub struct CommandSetSelected(u8) {
        NVM = 0, "NVM Command Set";
        ALL_SUPPORTED = 6, "All Supported I/O Command Sets";
        ADMIN_ONLY = 7, "Admin Command Set Only";
    }
}

codes! {
    /// The arbitration mechanism that a controller uses, CC.AMS (Base 2.1, 3.1.4.5).
    pub struct ArbitrationMechanism(u8) {
        ROUND_ROBIN = 0, "Round Robin";
        WEIGHTED_ROUND_ROBIN = 1, "Weighted Round Robin with Urgent Priority Class";
        VENDOR_SPECIFIC = 7, "Vendor Specific";
    }
}

codes! {
    /// Shutdown Notification, CC.SHN (Base 2.1, 3.1.4.5).
    pub struct ShutdownNotification(u8) {
        NONE = 0, "No Notification";
        NORMAL = 1, "Normal Shutdown";
        ABRUPT = 2, "Abrupt Shutdown";
    }
}

codes! {
    /// Shutdown Status, CSTS.SHST (Base 2.1, 3.1.4.6).
    pub struct ShutdownStatus(u8) {
        NORMAL_OPERATION = 0, "Normal Operation";
        IN_PROGRESS = 1, "Shutdown Processing Occurring";
        COMPLETE = 2, "Shutdown Processing Complete";
    }
}

wire_word! {
    /// Controller Configuration (Base 2.1, 3.1.4.5).
    pub struct Cc(u32) {
        /// Enable.
        en / with_en [0, 1]: bool;
        /// I/O Command Set Selected.
        css / with_css [4, 3]: CommandSetSelected;
        /// Memory Page Size: 2 ^ (12 + MPS) bytes. See [`page_size`](Self::page_size).
        mps / with_mps [7, 4]: u8;
        /// Arbitration Mechanism Selected.
        ams / with_ams [11, 3]: ArbitrationMechanism;
        /// Shutdown Notification.
        shn / with_shn [14, 2]: ShutdownNotification;
        /// I/O Submission Queue Entry Size, as a power of two; 6 for the NVM Command Set.
        iosqes / with_iosqes [16, 4]: u8;
        /// I/O Completion Queue Entry Size, as a power of two; 4 for the NVM Command Set.
        iocqes / with_iocqes [20, 4]: u8;
        /// Controller Ready Independent of Media Enable.
        crime / with_crime [24, 1]: bool;
    }
}

impl Cc {
    /// The memory page in bytes: 4 KiB to 128 MiB. The unit of PRP entries.
    pub const fn page_size(self) -> u64 {
        1 << (12 + self.mps())
    }
}

impl fmt::Debug for Cc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cc")
            .field("en", &self.en())
            .field("css", &self.css())
            .field("page_size", &self.page_size())
            .field("ams", &self.ams())
            .field("shn", &self.shn())
            .field("iosqes", &self.iosqes())
            .field("iocqes", &self.iocqes())
            .field("crime", &self.crime())
            .finish()
    }
}

wire_word! {
    /// Controller Status (Base 2.1, 3.1.4.6).
    pub struct Csts(u32) {
        /// Ready.
        rdy / with_rdy [0, 1]: bool;
        /// Controller Fatal Status.
        cfs / with_cfs [1, 1]: bool;
        /// Shutdown Status.
        shst / with_shst [2, 2]: ShutdownStatus;
        /// NVM Subsystem Reset Occurred.
        nssro / with_nssro [4, 1]: bool;
        /// Processing Paused.
        pp / with_pp [5, 1]: bool;
        /// Shutdown Type: SHST reports an NVM Subsystem Shutdown, not one of this controller.
        st / with_st [6, 1]: bool;
    }
}

impl fmt::Debug for Csts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Csts")
            .field("rdy", &self.rdy())
            .field("cfs", &self.cfs())
            .field("shst", &self.shst())
            .field("nssro", &self.nssro())
            .field("pp", &self.pp())
            .field("st", &self.st())
            .finish()
    }
}

wire_word! {
    /// Admin Queue Attributes (Base 2.1, 3.1.4.8).
    pub struct Aqa(u32) {
        /// Admin Submission Queue Size in entries, 2 to 4,096.
        asqs / with_asqs [0, 12]: ZeroesBased<u16>;
        /// Admin Completion Queue Size in entries, 2 to 4,096.
        acqs / with_acqs [16, 12]: ZeroesBased<u16>;
    }
}

impl fmt::Debug for Aqa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Aqa")
            .field("asqs", &self.asqs())
            .field("acqs", &self.acqs())
            .finish()
    }
}

wire_word! {
    /// Controller Ready Timeouts (Base 2.1, 3.1.4.21). Valid where CAP.CRMS is not zero.
    pub struct Crto(u32) {
        /// Controller Ready With Media Timeout, in units of 500 ms.
        crwmt / with_crwmt [0, 16]: u16;
        /// Controller Ready Independent of Media Timeout, in units of 500 ms.
        crimt / with_crimt [16, 16]: u16;
    }
}

impl Crto {
    /// CRTO.CRWMT as a time.
    pub const fn ready_with_media_timeout(self) -> Duration {
        Duration::from_millis(self.crwmt() as u64 * 500)
    }

    /// CRTO.CRIMT as a time.
    pub const fn ready_independent_of_media_timeout(self) -> Duration {
        Duration::from_millis(self.crimt() as u64 * 500)
    }
}

impl fmt::Debug for Crto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crto")
            .field("crwmt", &self.crwmt())
            .field("crimt", &self.crimt())
            .finish()
    }
}

#[cfg(test)]
mod tests;
