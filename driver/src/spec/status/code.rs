//! Status codes by name (NVM Express Base 2.1, 4.2.3.1 to 4.2.3.4; NVM Command Set 1.1, 3.2.1; Zoned
//! Namespace and Key Value Command Sets). Codes of NVMe over Fabrics commands are left out: they
//! share numbers with those of I/O commands, and a PCIe controller never sends them.

use super::Status;

codes! {
    /// Status Code Type, SCT (Base 2.1, 4.2.3).
    pub struct StatusCodeType(u8) {
        GENERIC = 0, "Generic Command Status";
        COMMAND_SPECIFIC = 1, "Command Specific Status";
        MEDIA_AND_DATA_INTEGRITY = 2, "Media and Data Integrity Errors";
        PATH_RELATED = 3, "Path Related Status";
        VENDOR_SPECIFIC = 7, "Vendor Specific";
    }
}

codes! {
    /// Status Code Type and Status Code as one number, SCT << 8 | SC (Base 2.1, 4.2.3).
    pub struct StatusCode(u16) {
        // Generic command status (Base 2.1, 4.2.3.1).
        SUCCESS = 0x000, "Successful Completion";
        INVALID_COMMAND_OPCODE = 0x001, "Invalid Command Opcode";
        INVALID_FIELD_IN_COMMAND = 0x002, "Invalid Field in Command";
        COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
        DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
        COMMANDS_ABORTED_DUE_TO_POWER_LOSS_NOTIFICATION = 0x005, "Commands Aborted due to Power Loss Notification";
        INTERNAL_ERROR = 0x006, "Internal Error";
        COMMAND_ABORT_REQUESTED = 0x007, "Command Abort Requested";
        COMMAND_ABORTED_DUE_TO_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
        COMMAND_ABORTED_DUE_TO_FAILED_FUSED_COMMAND = 0x009, "Command Aborted due to Failed Fused Command";
        COMMAND_ABORTED_DUE_TO_MISSING_FUSED_COMMAND = 0x00A, "Command Aborted due to Missing Fused Command";
        INVALID_NAMESPACE_OR_FORMAT = 0x00B, "Invalid Namespace or Format";
        COMMAND_SEQUENCE_ERROR = 0x00C, "Command Sequence Error";
        INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00D, "Invalid SGL Segment Descriptor";
        INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x00E, "Invalid Number of SGL Descriptors";
        DATA_SGL_LENGTH_INVALID = 0x00F, "Data SGL Length Invalid";
        METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
        SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
        INVALID_USE_OF_CONTROLLER_MEMORY_BUFFER = 0x012, "Invalid Use of Controller Memory Buffer";
        PRP_OFFSET_INVALID = 0x013, "PRP Offset Invalid";
        ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
        OPERATION_DENIED = 0x015, "Operation Denied";
        SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
        HOST_IDENTIFIER_INCONSISTENT_FORMAT = 0x018, "Host Identifier Inconsistent Format";
        KEEP_ALIVE_TIMER_EXPIRED = 0x019, "Keep Alive Timer Expired";
        KEEP_ALIVE_TIMEOUT_INVALID = 0x01A, "Keep Alive Timeout Invalid";
        COMMAND_ABORTED_DUE_TO_PREEMPT_AND_ABORT = 0x01B, "Command Aborted due to Preempt and Abort";
        SANITIZE_FAILED = 0x01C, "Sanitize Failed";
        SANITIZE_IN_PROGRESS = 0x01D, "Sanitize In Progress";
        SGL_DATA_BLOCK_GRANULARITY_INVALID = 0x01E, "SGL Data Block Granularity Invalid";
        COMMAND_NOT_SUPPORTED_FOR_QUEUE_IN_CMB = 0x01F, "Command Not Supported for Queue in CMB";
        NAMESPACE_IS_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
        COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
        TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
        COMMAND_PROHIBITED_BY_COMMAND_AND_FEATURE_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
        ADMIN_COMMAND_MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
        INVALID_KEY_TAG = 0x025, "Invalid Key Tag";
        HOST_DISPERSED_NAMESPACE_SUPPORT_NOT_ENABLED = 0x026, "Host Dispersed Namespace Support Not Enabled";
        HOST_IDENTIFIER_NOT_INITIALIZED = 0x027, "Host Identifier Not Initialized";
        INCORRECT_KEY = 0x028, "Incorrect Key";
        FDP_DISABLED = 0x029, "FDP Disabled";
        INVALID_PLACEMENT_HANDLE_LIST = 0x02A, "Invalid Placement Handle List";
        LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
        CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
        NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
        RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
        FORMAT_IN_PROGRESS = 0x084, "Format In Progress";
        INVALID_VALUE_SIZE = 0x085, "Invalid Value Size";
        INVALID_KEY_SIZE = 0x086, "Invalid Key Size";
        KV_KEY_DOES_NOT_EXIST = 0x087, "KV Key Does Not Exist";
        UNRECOVERED_ERROR = 0x088, "Unrecovered Error";
        KEY_EXISTS = 0x089, "Key Exists";
        // Command specific status (Base 2.1, 4.2.3.2).
        COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
        INVALID_QUEUE_IDENTIFIER = 0x101, "Invalid Queue Identifier";
        INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
        ABORT_COMMAND_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
        ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
        INVALID_FIRMWARE_SLOT = 0x106, "Invalid Firmware Slot";
        INVALID_FIRMWARE_IMAGE = 0x107, "Invalid Firmware Image";
        INVALID_INTERRUPT_VECTOR = 0x108, "Invalid Interrupt Vector";
        INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
        INVALID_FORMAT = 0x10A, "Invalid Format";
        FIRMWARE_ACTIVATION_REQUIRES_CONVENTIONAL_RESET = 0x10B, "Firmware Activation Requires Conventional Reset";
        INVALID_QUEUE_DELETION = 0x10C, "Invalid Queue Deletion";
        FEATURE_IDENTIFIER_NOT_SAVEABLE = 0x10D, "Feature Identifier Not Saveable";
        FEATURE_NOT_CHANGEABLE = 0x10E, "Feature Not Changeable";
        FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10F, "Feature Not Namespace Specific";
        FIRMWARE_ACTIVATION_REQUIRES_NVM_SUBSYSTEM_RESET = 0x110, "Firmware Activation Requires NVM Subsystem Reset";
        FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET = 0x111, "Firmware Activation Requires Controller Level Reset";
        FIRMWARE_ACTIVATION_REQUIRES_MAXIMUM_TIME_VIOLATION = 0x112, "Firmware Activation Requires Maximum Time Violation";
        FIRMWARE_ACTIVATION_PROHIBITED = 0x113, "Firmware Activation Prohibited";
        OVERLAPPING_RANGE = 0x114, "Overlapping Range";
        NAMESPACE_INSUFFICIENT_CAPACITY = 0x115, "Namespace Insufficient Capacity";
        NAMESPACE_IDENTIFIER_UNAVAILABLE = 0x116, "Namespace Identifier Unavailable";
        NAMESPACE_ALREADY_ATTACHED = 0x118, "Namespace Already Attached";
        NAMESPACE_IS_PRIVATE = 0x119, "Namespace Is Private";
        NAMESPACE_NOT_ATTACHED = 0x11A, "Namespace Not Attached";
        THIN_PROVISIONING_NOT_SUPPORTED = 0x11B, "Thin Provisioning Not Supported";
        CONTROLLER_LIST_INVALID = 0x11C, "Controller List Invalid";
        DEVICE_SELF_TEST_IN_PROGRESS = 0x11D, "Device Self-test In Progress";
        BOOT_PARTITION_WRITE_PROHIBITED = 0x11E, "Boot Partition Write Prohibited";
        INVALID_CONTROLLER_IDENTIFIER = 0x11F, "Invalid Controller Identifier";
        INVALID_SECONDARY_CONTROLLER_STATE = 0x120, "Invalid Secondary Controller State";
        INVALID_NUMBER_OF_CONTROLLER_RESOURCES = 0x121, "Invalid Number of Controller Resources";
        INVALID_RESOURCE_IDENTIFIER = 0x122, "Invalid Resource Identifier";
        SANITIZE_PROHIBITED_WHILE_PMR_ENABLED = 0x123, "Sanitize Prohibited While Persistent Memory Region is Enabled";
        ANA_GROUP_IDENTIFIER_INVALID = 0x124, "ANA Group Identifier Invalid";
        ANA_ATTACH_FAILED = 0x125, "ANA Attach Failed";
        INSUFFICIENT_CAPACITY = 0x126, "Insufficient Capacity";
        NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 0x127, "Namespace Attachment Limit Exceeded";
        PROHIBITION_OF_COMMAND_EXECUTION_NOT_SUPPORTED = 0x128, "Prohibition of Command Execution Not Supported";
        IO_COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O Command Set Not Supported";
        IO_COMMAND_SET_NOT_ENABLED = 0x12A, "I/O Command Set Not Enabled";
        IO_COMMAND_SET_COMBINATION_REJECTED = 0x12B, "I/O Command Set Combination Rejected";
        INVALID_IO_COMMAND_SET = 0x12C, "Invalid I/O Command Set";
        IDENTIFIER_UNAVAILABLE = 0x12D, "Identifier Unavailable";
        INVALID_DISCOVERY_INFORMATION = 0x12F, "Invalid Discovery Information";
        ZONING_DATA_STRUCTURE_LOCKED = 0x130, "Zoning Data Structure Locked";
        ZONING_DATA_STRUCTURE_NOT_FOUND = 0x131, "Zoning Data Structure Not Found";
        INSUFFICIENT_DISCOVERY_RESOURCES = 0x132, "Insufficient Discovery Resources";
        REQUESTED_FUNCTION_DISABLED = 0x133, "Requested Function Disabled";
        ZONEGROUP_ORIGINATOR_INVALID = 0x134, "ZoneGroup Originator Invalid";
        INVALID_HOST = 0x135, "Invalid Host";
        INVALID_NVM_SUBSYSTEM = 0x136, "Invalid NVM Subsystem";
        INVALID_CONTROLLER_DATA_QUEUE = 0x137, "Invalid Controller Data Queue";
        NOT_ENOUGH_RESOURCES = 0x138, "Not Enough Resources";
        CONTROLLER_SUSPENDED = 0x139, "Controller Suspended";
        CONTROLLER_NOT_SUSPENDED = 0x13A, "Controller Not Suspended";
        CONTROLLER_DATA_QUEUE_FULL = 0x13B, "Controller Data Queue Full";
        STREAM_RESOURCE_ALLOCATION_FAILED = 0x17F, "Stream Resource Allocation Failed";
        CONFLICTING_ATTRIBUTES = 0x180, "Conflicting Attributes";
        INVALID_PROTECTION_INFORMATION = 0x181, "Invalid Protection Information";
        ATTEMPTED_WRITE_TO_READ_ONLY_RANGE = 0x182, "Attempted Write to Read Only Range";
        COMMAND_SIZE_LIMIT_EXCEEDED = 0x183, "Command Size Limit Exceeded";
        INVALID_COMMAND_ID = 0x184, "Invalid Command ID";
        INCOMPATIBLE_NAMESPACE_OR_FORMAT = 0x185, "Incompatible Namespace or Format";
        FAST_COPY_NOT_POSSIBLE = 0x186, "Fast Copy Not Possible";
        OVERLAPPING_IO_RANGE = 0x187, "Overlapping I/O Range";
        NAMESPACE_NOT_REACHABLE = 0x188, "Namespace Not Reachable";
        INSUFFICIENT_RESOURCES = 0x189, "Insufficient Resources";
        ZONE_INVALID_OPERATION_REQUEST = 0x1B6, "Invalid Zone Operation Request";
        ZRWA_RESOURCES_UNAVAILABLE = 0x1B7, "ZRWA Resources Unavailable";
        ZONE_BOUNDARY_ERROR = 0x1B8, "Zone Boundary Error";
        ZONE_IS_FULL = 0x1B9, "Zone Is Full";
        ZONE_IS_READ_ONLY = 0x1BA, "Zone Is Read Only";
        ZONE_IS_OFFLINE = 0x1BB, "Zone Is Offline";
        ZONE_INVALID_WRITE = 0x1BC, "Zone Invalid Write";
        TOO_MANY_ACTIVE_ZONES = 0x1BD, "Too Many Active Zones";
        TOO_MANY_OPEN_ZONES = 0x1BE, "Too Many Open Zones";
        INVALID_ZONE_STATE_TRANSITION = 0x1BF, "Invalid Zone State Transition";
        // Media and data integrity errors (Base 2.1, 4.2.3.3).
        WRITE_FAULT = 0x280, "Write Fault";
        UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
        END_TO_END_GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
        END_TO_END_APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
        END_TO_END_REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
        COMPARE_FAILURE = 0x285, "Compare Failure";
        ACCESS_DENIED = 0x286, "Access Denied";
        DEALLOCATED_OR_UNWRITTEN_LOGICAL_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
        END_TO_END_STORAGE_TAG_CHECK_ERROR = 0x288, "End-to-end Storage Tag Check Error";
        // Path related status (Base 2.1, 4.2.3.4).
        INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
        ASYMMETRIC_ACCESS_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
        ASYMMETRIC_ACCESS_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
        ASYMMETRIC_ACCESS_TRANSITION = 0x303, "Asymmetric Access Transition";
        CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
        HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
        COMMAND_ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
    }
}

impl StatusCode {
    /// The code `sc` of type `sct`, of which three bits count.
    #[inline]
    pub const fn new(sct: StatusCodeType, sc: u8) -> Self {
        Self::from_raw((sct.raw() as u16 & 7) << 8 | sc as u16)
    }

    /// Status Code Type.
    #[inline]
    pub const fn sct(self) -> StatusCodeType {
        StatusCodeType::from_raw((self.raw() >> 8) as u8 & 7)
    }

    /// Status Code.
    #[inline]
    pub const fn sc(self) -> u8 {
        self.raw() as u8
    }

    /// The status with this code and neither M nor DNR.
    #[inline]
    pub const fn status(self) -> Status {
        Status::from_bits(self.raw() & 0x7FF)
    }
}
