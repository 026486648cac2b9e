//! Identify (NVM Express Base 2.1, 5.1.13). The structures that it returns are in
//! [`identify`](crate::spec::identify).

use super::{AdminOpcode, Sqe};

codes! {
    /// Controller or Namespace Structure, CNS (Base 2.1, 5.1.13.1).
    pub struct Cns(u8) {
        NAMESPACE = 0x00, "Identify Namespace";
        CONTROLLER = 0x01, "Identify Controller";
        ACTIVE_NAMESPACE_LIST = 0x02, "Active Namespace ID List";
        NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST = 0x03, "Namespace Identification Descriptor List";
        NVM_SET_LIST = 0x04, "NVM Set List";
        IO_COMMAND_SET_NAMESPACE = 0x05, "I/O Command Set Specific Identify Namespace";
        IO_COMMAND_SET_CONTROLLER = 0x06, "I/O Command Set Specific Identify Controller";
        IO_COMMAND_SET_ACTIVE_NAMESPACE_LIST = 0x07, "I/O Command Set Specific Active Namespace ID List";
        INDEPENDENT_NAMESPACE = 0x08, "I/O Command Set Independent Identify Namespace";
        NAMESPACE_USER_DATA_FORMAT = 0x09, "Identify Namespace User Data Format";
        IO_COMMAND_SET_NAMESPACE_USER_DATA_FORMAT = 0x0A, "I/O Command Set Specific Identify Namespace User Data Format";
        ALLOCATED_NAMESPACE_LIST = 0x10, "Allocated Namespace ID List";
        ALLOCATED_NAMESPACE = 0x11, "Identify Namespace for an Allocated Namespace ID";
        NAMESPACE_ATTACHED_CONTROLLER_LIST = 0x12, "Namespace Attached Controller List";
        CONTROLLER_LIST = 0x13, "Controller List";
        PRIMARY_CONTROLLER_CAPABILITIES = 0x14, "Primary Controller Capabilities";
        SECONDARY_CONTROLLER_LIST = 0x15, "Secondary Controller List";
        NAMESPACE_GRANULARITY_LIST = 0x16, "Namespace Granularity List";
        UUID_LIST = 0x17, "UUID List";
        DOMAIN_LIST = 0x18, "Domain List";
        ENDURANCE_GROUP_LIST = 0x19, "Endurance Group List";
        IO_COMMAND_SET_ALLOCATED_NAMESPACE_LIST = 0x1A, "I/O Command Set Specific Allocated Namespace ID List";
        IO_COMMAND_SET_ALLOCATED_NAMESPACE = 0x1B, "I/O Command Set Specific Identify Namespace for an Allocated Namespace ID";
        IO_COMMAND_SET = 0x1C, "Identify I/O Command Set";
        UNDERLYING_NAMESPACE_LIST = 0x1D, "Underlying Namespace List";
        PORTS_LIST = 0x1E, "Ports List";
        INDEPENDENT_ALLOCATED_NAMESPACE = 0x1F, "I/O Command Set Independent Identify Namespace for an Allocated Namespace ID";
        SUPPORTED_CONTROLLER_STATE_FORMATS = 0x20, "Supported Controller State Formats";
    }
}

codes! {
    /// Command Set Identifier, CSI (Base 2.1, 5.1.13.1).
    pub struct Csi(u8) {
        NVM = 0x00, "NVM Command Set";
        KEY_VALUE = 0x01, "Key Value Command Set";
        ZONED_NAMESPACE = 0x02, "Zoned Namespace Command Set";
        SUBSYSTEM_LOCAL_MEMORY = 0x03, "Subsystem Local Memory Command Set";
        COMPUTATIONAL_PROGRAMS = 0x04, "Computational Programs Command Set";
    }
}

impl Sqe {
    /// Asks for the 4,096-byte structure `cns`, of namespace `nsid` where it has one (Base 2.1,
    /// 5.1.13). For [`Cns::ACTIVE_NAMESPACE_LIST`] `nsid` is what the listed ones are greater than.
    pub const fn identify(cns: Cns, nsid: u32) -> Self {
        Self::admin(AdminOpcode::IDENTIFY, nsid).with_cns(cns)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Identify: Controller or Namespace Structure (Base 2.1, 5.1.13).
        cns / with_cns [0, 8]: Cns;
        /// Identify: Controller Identifier (Base 2.1, 5.1.13).
        cntid / with_cntid [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Identify: CNS Specific Identifier (Base 2.1, 5.1.13).
        cnssid / with_cnssid [0, 16]: u16;
        /// Identify: Command Set Identifier (Base 2.1, 5.1.13).
        identify_csi / with_identify_csi [24, 8]: Csi;
    }
}

fields! {
    impl Sqe, cdw14: u32 {
        /// Identify, Get Log Page, Get and Set Features: UUID Index (Base 2.1, 8.1.28).
        uuid_index / with_uuid_index [0, 7]: u8;
    }
}
