//! Opcodes (NVM Express Base 2.1, 5 and 7; NVM Command Set 1.1, 3.3 and 4.1).

codes! {
    /// Opcodes of the Admin Submission Queue (Base 2.1, 3.1.3.4 and 5).
    pub struct AdminOpcode(u8) {
        DELETE_IO_SUBMISSION_QUEUE = 0x00, "Delete I/O Submission Queue";
        CREATE_IO_SUBMISSION_QUEUE = 0x01, "Create I/O Submission Queue";
        GET_LOG_PAGE = 0x02, "Get Log Page";
        DELETE_IO_COMPLETION_QUEUE = 0x04, "Delete I/O Completion Queue";
        CREATE_IO_COMPLETION_QUEUE = 0x05, "Create I/O Completion Queue";
        IDENTIFY = 0x06, "Identify";
        ABORT = 0x08, "Abort";
        SET_FEATURES = 0x09, "Set Features";
        GET_FEATURES = 0x0A, "Get Features";
        ASYNCHRONOUS_EVENT_REQUEST = 0x0C, "Asynchronous Event Request";
        NAMESPACE_MANAGEMENT = 0x0D, "Namespace Management";
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        FIRMWARE_IMAGE_DOWNLOAD = 0x11, "Firmware Image Download";
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        KEEP_ALIVE = 0x18, "Keep Alive";
        DIRECTIVE_SEND = 0x19, "Directive Send";
        DIRECTIVE_RECEIVE = 0x1A, "Directive Receive";
        VIRTUALIZATION_MANAGEMENT = 0x1C, "Virtualization Management";
        NVME_MI_SEND = 0x1D, "NVMe-MI Send";
        NVME_MI_RECEIVE = 0x1E, "NVMe-MI Receive";
        CAPACITY_MANAGEMENT = 0x20, "Capacity Management";
        DISCOVERY_INFORMATION_MANAGEMENT = 0x21, "Discovery Information Management";
        FABRIC_ZONING_RECEIVE = 0x22, "Fabric Zoning Receive";
        LOCKDOWN = 0x24, "Lockdown";
        FABRIC_ZONING_LOOKUP = 0x25, "Fabric Zoning Lookup";
        CLEAR_EXPORTED_NVM_RESOURCE_CONFIGURATION = 0x28, "Clear Exported NVM Resource Configuration";
        FABRIC_ZONING_SEND = 0x29, "Fabric Zoning Send";
        CREATE_EXPORTED_NVM_SUBSYSTEM = 0x2A, "Create Exported NVM Subsystem";
        MANAGE_EXPORTED_NVM_SUBSYSTEM = 0x2D, "Manage Exported NVM Subsystem";
        MANAGE_EXPORTED_NAMESPACE = 0x31, "Manage Exported Namespace";
        MANAGE_EXPORTED_PORT = 0x35, "Manage Exported Port";
        SEND_DISCOVERY_LOG_PAGE = 0x39, "Send Discovery Log Page";
        TRACK_SEND = 0x3D, "Track Send";
        TRACK_RECEIVE = 0x3E, "Track Receive";
        MIGRATION_SEND = 0x41, "Migration Send";
        MIGRATION_RECEIVE = 0x42, "Migration Receive";
        CONTROLLER_DATA_QUEUE = 0x45, "Controller Data Queue";
        DOORBELL_BUFFER_CONFIG = 0x7C, "Doorbell Buffer Config";
        FABRICS_COMMANDS = 0x7F, "Fabrics Commands";
        FORMAT_NVM = 0x80, "Format NVM";
        SECURITY_SEND = 0x81, "Security Send";
        SECURITY_RECEIVE = 0x82, "Security Receive";
        SANITIZE = 0x84, "Sanitize";
        LOAD_PROGRAM = 0x85, "Load Program";
        GET_LBA_STATUS = 0x86, "Get LBA Status";
        PROGRAM_ACTIVATION_MANAGEMENT = 0x88, "Program Activation Management";
        MEMORY_RANGE_SET_MANAGEMENT = 0x89, "Memory Range Set Management";
    }
}

codes! {
    /// Opcodes of I/O Submission Queues for namespaces of the NVM Command Set (Base 2.1, 7; NVM
    /// Command Set 1.1, 3.3).
    pub struct NvmOpcode(u8) {
        FLUSH = 0x00, "Flush";
        WRITE = 0x01, "Write";
        READ = 0x02, "Read";
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        COMPARE = 0x05, "Compare";
        WRITE_ZEROES = 0x08, "Write Zeroes";
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        VERIFY = 0x0C, "Verify";
        RESERVATION_REGISTER = 0x0D, "Reservation Register";
        RESERVATION_REPORT = 0x0E, "Reservation Report";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        IO_MANAGEMENT_RECEIVE = 0x12, "I/O Management Receive";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        CANCEL = 0x18, "Cancel";
        COPY = 0x19, "Copy";
        IO_MANAGEMENT_SEND = 0x1D, "I/O Management Send";
        FABRICS_COMMANDS = 0x7F, "Fabrics Commands";
    }
}
