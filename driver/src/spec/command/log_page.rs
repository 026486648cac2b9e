//! Get Log Page (NVM Express Base 2.1, 5.1.12). The pages are in [`log`](crate::spec::log).

use super::{AdminOpcode, Csi, Sqe};
use crate::spec::ZeroesBased;

codes! {
    /// Log Page Identifier, LID (Base 2.1, 5.1.12.1).
    pub struct LogPageIdentifier(u8) {
        SUPPORTED_LOG_PAGES = 0x00, "Supported Log Pages";
        ERROR_INFORMATION = 0x01, "Error Information";
        SMART_HEALTH_INFORMATION = 0x02, "SMART / Health Information";
        FIRMWARE_SLOT_INFORMATION = 0x03, "Firmware Slot Information";
        CHANGED_ATTACHED_NAMESPACE_LIST = 0x04, "Changed Attached Namespace List";
        COMMANDS_SUPPORTED_AND_EFFECTS = 0x05, "Commands Supported and Effects";
        DEVICE_SELF_TEST = 0x06, "Device Self-test";
        TELEMETRY_HOST_INITIATED = 0x07, "Telemetry Host-Initiated";
        TELEMETRY_CONTROLLER_INITIATED = 0x08, "Telemetry Controller-Initiated";
        ENDURANCE_GROUP_INFORMATION = 0x09, "Endurance Group Information";
        PREDICTABLE_LATENCY_PER_NVM_SET = 0x0A, "Predictable Latency Per NVM Set";
        PREDICTABLE_LATENCY_EVENT_AGGREGATE = 0x0B, "Predictable Latency Event Aggregate";
        ASYMMETRIC_NAMESPACE_ACCESS = 0x0C, "Asymmetric Namespace Access";
        PERSISTENT_EVENT_LOG = 0x0D, "Persistent Event Log";
        LBA_STATUS_INFORMATION = 0x0E, "LBA Status Information";
        ENDURANCE_GROUP_EVENT_AGGREGATE = 0x0F, "Endurance Group Event Aggregate";
        MEDIA_UNIT_STATUS = 0x10, "Media Unit Status";
        SUPPORTED_CAPACITY_CONFIGURATION_LIST = 0x11, "Supported Capacity Configuration List";
        FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS = 0x12, "Feature Identifiers Supported and Effects";
        NVME_MI_COMMANDS_SUPPORTED_AND_EFFECTS = 0x13, "NVMe-MI Commands Supported and Effects";
        COMMAND_AND_FEATURE_LOCKDOWN = 0x14, "Command and Feature Lockdown";
        BOOT_PARTITION = 0x15, "Boot Partition";
        ROTATIONAL_MEDIA_INFORMATION = 0x16, "Rotational Media Information";
        DISPERSED_NAMESPACE_PARTICIPATING_NVM_SUBSYSTEMS = 0x17, "Dispersed Namespace Participating NVM Subsystems";
        MANAGEMENT_ADDRESS_LIST = 0x18, "Management Address List";
        PHYSICAL_INTERFACE_RECEIVER_EYE_OPENING_MEASUREMENT = 0x19, "Physical Interface Receiver Eye Opening Measurement";
        REACHABILITY_GROUPS = 0x1A, "Reachability Groups";
        REACHABILITY_ASSOCIATIONS = 0x1B, "Reachability Associations";
        CHANGED_ALLOCATED_NAMESPACE_LIST = 0x1C, "Changed Allocated Namespace List";
        FDP_CONFIGURATIONS = 0x20, "FDP Configurations";
        RECLAIM_UNIT_HANDLE_USAGE = 0x21, "Reclaim Unit Handle Usage";
        FDP_STATISTICS = 0x22, "FDP Statistics";
        FDP_EVENTS = 0x23, "FDP Events";
        DISCOVERY = 0x70, "Discovery";
        HOST_DISCOVERY = 0x71, "Host Discovery";
        AVE_DISCOVERY = 0x72, "AVE Discovery";
        PULL_MODEL_DDC_REQUEST = 0x73, "Pull Model DDC Request";
        RESERVATION_NOTIFICATION = 0x80, "Reservation Notification";
        SANITIZE_STATUS = 0x81, "Sanitize Status";
        CHANGED_ZONE_LIST = 0xBF, "Changed Zone List";
    }
}

impl Sqe {
    /// Asks for the first `numd` dwords of page `lid`, of namespace `nsid` or, with
    /// [`NSID_ALL`](super::NSID_ALL), of the controller (Base 2.1, 5.1.12).
    pub const fn get_log_page(lid: LogPageIdentifier, nsid: u32, numd: ZeroesBased<u32>) -> Self {
        Self::admin(AdminOpcode::GET_LOG_PAGE, nsid)
            .with_lid(lid)
            .with_numd(numd)
    }

    /// Get Log Page: Number of Dwords, from NUMDU and NUMDL (Base 2.1, 5.1.12). A controller without
    /// extended data (LPA) reads the lower half only.
    pub const fn numd(&self) -> ZeroesBased<u32> {
        ZeroesBased::<u32>::from_raw((self.numdu() as u32) << 16 | self.numdl() as u32)
    }

    /// The same command with that Number of Dwords, in NUMDU and NUMDL.
    #[must_use]
    pub const fn with_numd(self, numd: ZeroesBased<u32>) -> Self {
        let raw = numd.raw();
        self.with_numdl(raw as u16).with_numdu((raw >> 16) as u16)
    }

    /// Get Log Page: Log Page Offset, from LPOU and LPOL: bytes, or with [`ot`](Self::ot) an index
    /// (Base 2.1, 5.1.12).
    pub const fn lpo(&self) -> u64 {
        (self.cdw13 as u64) << 32 | self.cdw12 as u64
    }

    /// The same command with that Log Page Offset, in LPOU and LPOL.
    #[must_use]
    pub const fn with_lpo(mut self, lpo: u64) -> Self {
        self.cdw12 = lpo as u32;
        self.cdw13 = (lpo >> 32) as u32;
        self
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Get Log Page: Log Page Identifier (Base 2.1, 5.1.12).
        lid / with_lid [0, 8]: LogPageIdentifier;
        /// Get Log Page: Log Specific Parameter (Base 2.1, 5.1.12).
        lsp / with_lsp [8, 7]: u8;
        /// Get Log Page: Retain Asynchronous Event (Base 2.1, 5.1.12).
        rae / with_rae [15, 1]: bool;
        /// Get Log Page: Number of Dwords Lower. See [`numd`](Self::numd).
        numdl / with_numdl [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Get Log Page: Number of Dwords Upper. See [`numd`](Self::numd).
        numdu / with_numdu [0, 16]: u16;
        /// Get Log Page: Log Specific Identifier (Base 2.1, 5.1.12).
        lsi / with_lsi [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw14: u32 {
        /// Get Log Page: Offset Type: the offset is an index (Base 2.1, 5.1.12).
        ot / with_ot [23, 1]: bool;
        /// Get Log Page: Command Set Identifier (Base 2.1, 5.1.12).
        log_csi / with_log_csi [24, 8]: Csi;
    }
}
