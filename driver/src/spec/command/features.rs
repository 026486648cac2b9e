//! Get Features and Set Features (NVM Express Base 2.1, 5.1.11 and 5.1.25).

use core::fmt;

use super::{AdminOpcode, Sqe};
use crate::spec::ZeroesBased;

codes! {
    /// Feature Identifier, FID (Base 2.1, 5.1.25.1 and 5.1.25.2; NVM Command Set 1.1, 4.1.3).
    pub struct FeatureIdentifier(u8) {
        ARBITRATION = 0x01, "Arbitration";
        POWER_MANAGEMENT = 0x02, "Power Management";
        LBA_RANGE_TYPE = 0x03, "LBA Range Type";
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        ERROR_RECOVERY = 0x05, "Error Recovery";
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        INTERRUPT_VECTOR_CONFIGURATION = 0x09, "Interrupt Vector Configuration";
        WRITE_ATOMICITY_NORMAL = 0x0A, "Write Atomicity Normal";
        ASYNCHRONOUS_EVENT_CONFIGURATION = 0x0B, "Asynchronous Event Configuration";
        AUTONOMOUS_POWER_STATE_TRANSITION = 0x0C, "Autonomous Power State Transition";
        HOST_MEMORY_BUFFER = 0x0D, "Host Memory Buffer";
        TIMESTAMP = 0x0E, "Timestamp";
        KEEP_ALIVE_TIMER = 0x0F, "Keep Alive Timer";
        HOST_CONTROLLED_THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management";
        NON_OPERATIONAL_POWER_STATE_CONFIG = 0x11, "Non-Operational Power State Config";
        READ_RECOVERY_LEVEL_CONFIG = 0x12, "Read Recovery Level Config";
        PREDICTABLE_LATENCY_MODE_CONFIG = 0x13, "Predictable Latency Mode Config";
        PREDICTABLE_LATENCY_MODE_WINDOW = 0x14, "Predictable Latency Mode Window";
        LBA_STATUS_INFORMATION_ATTRIBUTES = 0x15, "LBA Status Information Attributes";
        HOST_BEHAVIOR_SUPPORT = 0x16, "Host Behavior Support";
        SANITIZE_CONFIG = 0x17, "Sanitize Config";
        ENDURANCE_GROUP_EVENT_CONFIGURATION = 0x18, "Endurance Group Event Configuration";
        IO_COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
        SPINUP_CONTROL = 0x1A, "Spinup Control";
        POWER_LOSS_SIGNALING_CONFIG = 0x1B, "Power Loss Signaling Config";
        PERFORMANCE_CHARACTERISTICS = 0x1C, "Performance Characteristics";
        FLEXIBLE_DATA_PLACEMENT = 0x1D, "Flexible Data Placement";
        FLEXIBLE_DATA_PLACEMENT_EVENTS = 0x1E, "Flexible Data Placement Events";
        NAMESPACE_ADMIN_LABEL = 0x1F, "Namespace Admin Label";
        KEY_VALUE_CONFIGURATION = 0x20, "Key Value Configuration";
        CONTROLLER_DATA_QUEUE = 0x21, "Controller Data Queue";
        EMBEDDED_MANAGEMENT_CONTROLLER_ADDRESS = 0x78, "Embedded Management Controller Address";
        HOST_MANAGEMENT_AGENT_ADDRESS = 0x79, "Host Management Agent Address";
        ENHANCED_CONTROLLER_METADATA = 0x7D, "Enhanced Controller Metadata";
        CONTROLLER_METADATA = 0x7E, "Controller Metadata";
        NAMESPACE_METADATA = 0x7F, "Namespace Metadata";
        SOFTWARE_PROGRESS_MARKER = 0x80, "Software Progress Marker";
        HOST_IDENTIFIER = 0x81, "Host Identifier";
        RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
        RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
        NAMESPACE_WRITE_PROTECTION_CONFIG = 0x84, "Namespace Write Protection Config";
        BOOT_PARTITION_WRITE_PROTECTION_CONFIG = 0x85, "Boot Partition Write Protection Config";
    }
}

codes! {
    /// Which value Get Features returns, SEL (Base 2.1, 5.1.11).
    pub struct Select(u8) {
        CURRENT = 0, "Current";
        DEFAULT = 1, "Default";
        SAVED = 2, "Saved";
        SUPPORTED_CAPABILITIES = 3, "Supported Capabilities";
    }
}

wire_word! {
    /// Number of Queues: dword 11 of Set Features, where it asks, and dword 0 of the completion of
    /// Set and Get Features, where it answers (Base 2.1, 5.1.25.2.1). I/O queues only; FFFFh, that
    /// is 65,536 queues, is not allowed.
    pub struct NumberOfQueues(u32) {
        /// Submission queues: requested (NSQR) or allocated (NSQA).
        nsq / with_nsq [0, 16]: ZeroesBased<u16>;
        /// Completion queues: requested (NCQR) or allocated (NCQA).
        ncq / with_ncq [16, 16]: ZeroesBased<u16>;
    }
}

impl NumberOfQueues {
    /// `nsq` submission queues and `ncq` completion queues.
    pub const fn new(nsq: ZeroesBased<u16>, ncq: ZeroesBased<u16>) -> Self {
        Self::from_bits(0).with_nsq(nsq).with_ncq(ncq)
    }
}

impl fmt::Debug for NumberOfQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NumberOfQueues").field("nsq", &self.nsq()).field("ncq", &self.ncq()).finish()
    }
}

wire_flags! {
    /// Supported Capabilities: dword 0 of the completion of Get Features with
    /// [`Select::SUPPORTED_CAPABILITIES`] (Base 2.1, 5.1.11).
    pub struct FeatureCapabilities(u32) {
        /// The feature can be saved.
        SAVEABLE = 1 << 0;
        /// The feature has a value for each namespace.
        NAMESPACE_SPECIFIC = 1 << 1;
        /// The feature can be changed.
        CHANGEABLE = 1 << 2;
    }
}

codes! {
    /// Threshold Type Select, THSEL (Base 2.1, 5.1.25.1.3).
    pub struct ThresholdType(u8) {
        OVER = 0, "Over Temperature Threshold";
        UNDER = 1, "Under Temperature Threshold";
    }
}

wire_word! {
    /// Temperature Threshold: dword 11 of Set and Get Features, and dword 0 of the latter's completion (Base 2.1,
    /// 5.1.25.1.3).
    #[derive(Debug)]
    pub struct TemperatureThreshold(u32) {
        /// Temperature Threshold in kelvins.
        tmpth / with_tmpth [0, 16]: u16;
        /// Threshold Temperature Select: 0 the composite temperature, 1 to 8 a sensor, Fh all of them.
        tmpsel / with_tmpsel [16, 4]: u8;
        /// Threshold Type Select.
        thsel / with_thsel [20, 2]: ThresholdType;
    }
}

impl Sqe {
    /// Asks for feature `fid` (Base 2.1, 5.1.11). The value comes in dword 0 of the completion, and
    /// for some features in the data buffer.
    pub const fn get_features(fid: FeatureIdentifier, sel: Select, nsid: u32) -> Self {
        Self::admin(AdminOpcode::GET_FEATURES, nsid).with_fid(fid).with_sel(sel)
    }

    /// Sets feature `fid` to `value`, its dword 11 (Base 2.1, 5.1.25).
    pub const fn set_features(fid: FeatureIdentifier, nsid: u32, value: u32) -> Self {
        let mut sqe = Self::admin(AdminOpcode::SET_FEATURES, nsid).with_fid(fid);
        sqe.cdw11 = value;
        sqe
    }

    /// Asks for that many I/O queues (Base 2.1, 5.1.25.2.1).
    pub const fn set_number_of_queues(requested: NumberOfQueues) -> Self {
        Self::set_features(FeatureIdentifier::NUMBER_OF_QUEUES, 0, requested.bits())
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Get and Set Features: Feature Identifier (Base 2.1, 5.1.11 and 5.1.25).
        fid / with_fid [0, 8]: FeatureIdentifier;
        /// Get Features: Select (Base 2.1, 5.1.11).
        sel / with_sel [8, 3]: Select;
        /// Set Features: Save (Base 2.1, 5.1.25).
        sv / with_sv [31, 1]: bool;
    }
}

impl Sqe {
    /// Set Features, Number of Queues: what is asked for (Base 2.1, 5.1.25.2.1).
    pub const fn number_of_queues(&self) -> NumberOfQueues {
        NumberOfQueues::from_bits(self.cdw11)
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Host Identifier: Enable Extended Host Identifier, 128 bits instead of 64 (Base 2.1, 5.1.25.1.28).
        exhid / with_exhid [0, 1]: bool;
    }
}
