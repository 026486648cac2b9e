//! Flags of Identify Controller (NVM Express Base 2.1, 5.1.13.2.1).

wire_flags! {
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities, CMIC (Base 2.1, 5.1.13.2.1).
    pub struct Cmic(u8) {
        /// The NVM subsystem may have more than one port.
        MULTIPLE_PORTS = 1 << 0;
        /// The NVM subsystem may have more than one controller.
        MULTIPLE_CONTROLLERS = 1 << 1;
        /// The controller is an SR-IOV virtual function.
        SR_IOV_VIRTUAL_FUNCTION = 1 << 2;
        /// Asymmetric Namespace Access reporting.
        ANA_REPORTING = 1 << 3;
    }
}

wire_flags! {
    /// Optional Asynchronous Events Supported, OAES (Base 2.1, 5.1.13.2.1).
    pub struct Oaes(u32) {
        /// Attached Namespace Attribute Changed.
        ATTACHED_NAMESPACE_ATTRIBUTE = 1 << 8;
        /// Firmware Activation Starting.
        FIRMWARE_ACTIVATION = 1 << 9;
        /// Asymmetric Namespace Access Change.
        ASYMMETRIC_NAMESPACE_ACCESS = 1 << 11;
        /// Predictable Latency Event Aggregate Log Change.
        PREDICTABLE_LATENCY_EVENT_AGGREGATE = 1 << 12;
        /// LBA Status Information Alert.
        LBA_STATUS_INFORMATION = 1 << 13;
        /// Endurance Group Event Aggregate Log Page Change.
        ENDURANCE_GROUP_EVENT_AGGREGATE = 1 << 14;
        /// Normal NVM Subsystem Shutdown.
        NORMAL_NVM_SUBSYSTEM_SHUTDOWN = 1 << 15;
        /// Temperature Threshold Hysteresis Recovery.
        TEMPERATURE_THRESHOLD_HYSTERESIS = 1 << 16;
        /// Reachability Group Change.
        REACHABILITY_GROUP = 1 << 17;
        /// Allocated Namespace Attribute Changed.
        ALLOCATED_NAMESPACE_ATTRIBUTE = 1 << 19;
        /// Zone Descriptor Changed.
        ZONE_DESCRIPTOR_CHANGED = 1 << 27;
        /// Discovery Log Page Change.
        DISCOVERY_LOG_PAGE_CHANGE = 1 << 31;
    }
}

wire_flags! {
    /// Controller Attributes, CTRATT (Base 2.1, 5.1.13.2.1).
    pub struct Ctratt(u32) {
        /// Host Identifiers of 128 bits.
        HOST_IDENTIFIER_128_BIT = 1 << 0;
        /// Non-Operational Power State Permissive Mode.
        NON_OPERATIONAL_POWER_STATE_PERMISSIVE = 1 << 1;
        /// NVM Sets.
        NVM_SETS = 1 << 2;
        /// Read Recovery Levels.
        READ_RECOVERY_LEVELS = 1 << 3;
        /// Endurance Groups.
        ENDURANCE_GROUPS = 1 << 4;
        /// Predictable Latency Mode.
        PREDICTABLE_LATENCY_MODE = 1 << 5;
        /// Traffic Based Keep Alive Support.
        TRAFFIC_BASED_KEEP_ALIVE = 1 << 6;
        /// Namespace Granularity.
        NAMESPACE_GRANULARITY = 1 << 7;
        /// SQ Associations.
        SQ_ASSOCIATIONS = 1 << 8;
        /// UUID List.
        UUID_LIST = 1 << 9;
        /// Multi-Domain Subsystem.
        MULTI_DOMAIN_SUBSYSTEM = 1 << 10;
        /// Fixed Capacity Management.
        FIXED_CAPACITY_MANAGEMENT = 1 << 11;
        /// Variable Capacity Management.
        VARIABLE_CAPACITY_MANAGEMENT = 1 << 12;
        /// Delete Endurance Group.
        DELETE_ENDURANCE_GROUP = 1 << 13;
        /// Delete NVM Set.
        DELETE_NVM_SET = 1 << 14;
        /// Extended LBA Formats.
        EXTENDED_LBA_FORMATS = 1 << 15;
        /// MDTS and Size Limits Exclude Metadata.
        MDTS_EXCLUDES_METADATA = 1 << 16;
        /// Host Memory Buffer Non-Operational Access Restriction.
        HMB_RESTRICT_NON_OPERATIONAL_ACCESS = 1 << 17;
        /// Reservations and Host Identifier Interaction.
        RESERVATIONS_HOST_IDENTIFIER_INTERACTION = 1 << 18;
        /// Flexible Data Placement.
        FLEXIBLE_DATA_PLACEMENT = 1 << 19;
    }
}

wire_flags! {
    /// Optional Admin Command Support, OACS (Base 2.1, 5.1.13.2.1).
    pub struct Oacs(u16) {
        /// Security Send and Security Receive.
        SECURITY = 1 << 0;
        /// Format NVM.
        FORMAT_NVM = 1 << 1;
        /// Firmware Commit and Firmware Image Download.
        FIRMWARE = 1 << 2;
        /// Namespace Management and Namespace Attachment.
        NAMESPACE_MANAGEMENT = 1 << 3;
        /// Device Self-test.
        DEVICE_SELF_TEST = 1 << 4;
        /// Directive Send and Directive Receive.
        DIRECTIVES = 1 << 5;
        /// NVMe-MI Send and NVMe-MI Receive.
        NVME_MI = 1 << 6;
        /// Virtualization Management.
        VIRTUALIZATION_MANAGEMENT = 1 << 7;
        /// Doorbell Buffer Config.
        DOORBELL_BUFFER_CONFIG = 1 << 8;
        /// Get LBA Status.
        GET_LBA_STATUS = 1 << 9;
        /// Command and Feature Lockdown.
        COMMAND_AND_FEATURE_LOCKDOWN = 1 << 10;
        /// Host Managed Live Migration.
        HOST_MANAGED_LIVE_MIGRATION = 1 << 11;
    }
}

wire_flags! {
    /// Log Page Attributes, LPA (Base 2.1, 5.1.13.2.1).
    pub struct Lpa(u8) {
        /// SMART / Health Information per namespace.
        SMART_PER_NAMESPACE = 1 << 0;
        /// Commands Supported and Effects.
        COMMANDS_SUPPORTED_AND_EFFECTS = 1 << 1;
        /// Extended data for Get Log Page: NUMDU and offsets.
        EXTENDED_DATA = 1 << 2;
        /// Telemetry.
        TELEMETRY = 1 << 3;
        /// Persistent Event log.
        PERSISTENT_EVENT = 1 << 4;
        /// Log pages 00h, 05h, 12h and 13h of all command sets.
        SUPPORTED_AND_EFFECTS_PAGES = 1 << 5;
        /// Telemetry Data Area 4.
        TELEMETRY_DATA_AREA_4 = 1 << 6;
    }
}

wire_flags! {
    /// Optional NVM Command Support, ONCS (Base 2.1, 5.1.13.2.1).
    pub struct Oncs(u16) {
        /// Compare.
        COMPARE = 1 << 0;
        /// Write Uncorrectable.
        WRITE_UNCORRECTABLE = 1 << 1;
        /// Dataset Management.
        DATASET_MANAGEMENT = 1 << 2;
        /// Write Zeroes.
        WRITE_ZEROES = 1 << 3;
        /// The Save field of Set Features and the Select field of Get Features.
        SAVE_AND_SELECT = 1 << 4;
        /// Reservations.
        RESERVATIONS = 1 << 5;
        /// Timestamp feature.
        TIMESTAMP = 1 << 6;
        /// Verify.
        VERIFY = 1 << 7;
        /// Copy.
        COPY = 1 << 8;
        /// A Copy command is one atomic write.
        COPY_SINGLE_ATOMICITY = 1 << 9;
        /// Every Copy command is a fast one.
        ALL_FAST_COPY = 1 << 10;
        /// Write Zeroes with Deallocate may have its own, greater limit (WZDSL).
        MAXIMUM_WRITE_ZEROES_WITH_DEALLOCATE = 1 << 11;
        /// Namespace Zeroes.
        NAMESPACE_ZEROES = 1 << 12;
    }
}

wire_flags! {
    /// Fused Operation Support, FUSES (Base 2.1, 5.1.13.2.1).
    pub struct Fuses(u16) {
        /// Compare and Write.
        COMPARE_AND_WRITE = 1 << 0;
    }
}

wire_flags! {
    /// Format NVM Attributes, FNA (Base 2.1, 5.1.13.2.1).
    pub struct Fna(u8) {
        /// A format concerns every namespace.
        FORMAT_ALL_NAMESPACES = 1 << 0;
        /// A secure erase concerns every namespace.
        SECURE_ERASE_ALL_NAMESPACES = 1 << 1;
        /// Cryptographic erase.
        CRYPTOGRAPHIC_ERASE = 1 << 2;
        /// Formatting namespace FFFFFFFFh is *not* possible.
        BROADCAST_NSID_NOT_SUPPORTED = 1 << 3;
    }
}

codes! {
    /// What Flush does with namespace FFFFFFFFh, VWC.FB (Base 2.1, 5.1.13.2.1).
    pub struct FlushBehavior(u8) {
        NOT_REPORTED = 0, "Not Reported";
        BROADCAST_NSID_NOT_SUPPORTED = 2, "Namespace FFFFFFFFh Not Supported";
        BROADCAST_NSID_SUPPORTED = 3, "Namespace FFFFFFFFh Flushes All Namespaces";
    }
}

wire_word! {
    /// Volatile Write Cache, VWC (Base 2.1, 5.1.13.2.1).
    #[derive(Debug)]
    pub struct Vwc(u8) {
        /// A volatile write cache is present: what completed is durable only after a Flush or FUA.
        present / with_present [0, 1]: bool;
        /// Flush Behavior.
        fb / with_fb [1, 2]: FlushBehavior;
    }
}

codes! {
    /// Support for SGLs, SGLS bits 1:0, and the alignment that data blocks need (Base 2.1,
    /// 5.1.13.2.1).
    pub struct SglDataBlock(u8) {
        NOT_SUPPORTED = 0, "Not Supported";
        BYTE = 1, "Supported, No Alignment";
        DWORD = 2, "Supported, Dword Alignment and Granularity";
    }
}

wire_word! {
    /// SGL Support, SGLS (Base 2.1, 5.1.13.2.1).
    #[derive(Debug)]
    pub struct Sgls(u32) {
        /// Whether SGLs are supported, and the alignment of data blocks.
        supported / with_supported [0, 2]: SglDataBlock;
        /// Keyed SGL Data Block descriptor.
        keyed / with_keyed [2, 1]: bool;
        /// SGL Descriptor Threshold: the recommended most descriptors of a command; 0: not reported.
        sdt / with_sdt [8, 8]: u8;
        /// SGL Bit Bucket descriptor.
        bit_bucket / with_bit_bucket [16, 1]: bool;
        /// MPTR may address a contiguous buffer at any byte.
        metadata_byte_aligned / with_metadata_byte_aligned [17, 1]: bool;
        /// An SGL may be longer than the data.
        oversize / with_oversize [18, 1]: bool;
        /// MPTR may address an SGL segment.
        metadata_sgl / with_metadata_sgl [19, 1]: bool;
        /// Descriptor addresses may be offsets.
        offset / with_offset [20, 1]: bool;
        /// Transport SGL Data Block descriptor.
        transport / with_transport [21, 1]: bool;
    }
}
