//! What is supported, and what it does: Supported Log Pages, LID 00h; Commands Supported and Effects, LID 05h; Feature
//! Identifiers Supported and Effects, LID 12h (NVM Express Base 2.1, 5.1.12.1.1, 5.1.12.1.6 and 5.1.12.1.18).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

wire_flags! {
    /// One entry of the Supported Log Pages log page, LID 00h, which has 256 of them, by log page identifier (Base 2.1,
    /// 5.1.12.1.1). Bits 31:16 belong to the page.
    pub struct LogPageSupport(u32) {
        /// The log page is supported.
        SUPPORTED = 1 << 0;
        /// The log page can be read from an index on.
        INDEX_OFFSET = 1 << 1;
    }
}

wire_flags! {
    /// One entry of the Commands Supported and Effects log page (Base 2.1, 5.1.12.1.6).
    pub struct CommandEffects(u32) {
        /// The command is supported.
        SUPPORTED = 1 << 0;
        /// Logical Block Content Change: it may change user data.
        LOGICAL_BLOCK_CONTENT_CHANGE = 1 << 1;
        /// Namespace Capability Change.
        NAMESPACE_CAPABILITY_CHANGE = 1 << 2;
        /// Namespace Inventory Change.
        NAMESPACE_INVENTORY_CHANGE = 1 << 3;
        /// Controller Capability Change.
        CONTROLLER_CAPABILITY_CHANGE = 1 << 4;
        /// Command Submission and Execution: no other command for its namespace may be outstanding.
        ALONE_ON_ITS_NAMESPACE = 1 << 16;
        /// Command Submission and Execution: no other command may be outstanding.
        ALONE = 1 << 17;
        /// Command Scope: namespaces.
        NAMESPACE_SCOPE = 1 << 20;
        /// Command Scope: the controller.
        CONTROLLER_SCOPE = 1 << 21;
        /// Command Scope: the NVM subsystem.
        SUBSYSTEM_SCOPE = 1 << 25;
    }
}

wire_flags! {
    /// One entry of the Feature Identifiers Supported and Effects log page, LID 12h, which has 256 of them, by feature
    /// identifier (Base 2.1, 5.1.12.1.18).
    pub struct FeatureEffects(u32) {
        /// The feature is supported.
        SUPPORTED = 1 << 0;
        /// User Data Content Change.
        USER_DATA_CONTENT_CHANGE = 1 << 1;
        /// Namespace Capability Change.
        NAMESPACE_CAPABILITY_CHANGE = 1 << 2;
        /// Namespace Inventory Change.
        NAMESPACE_INVENTORY_CHANGE = 1 << 3;
        /// Controller Capability Change.
        CONTROLLER_CAPABILITY_CHANGE = 1 << 4;
        /// Feature Scope: namespaces.
        NAMESPACE_SCOPE = 1 << 20;
        /// Feature Scope: the controller.
        CONTROLLER_SCOPE = 1 << 21;
        /// Feature Scope: the NVM subsystem.
        SUBSYSTEM_SCOPE = 1 << 25;
    }
}

/// Commands Supported and Effects log page, LID 05h (Base 2.1, 5.1.12.1.6).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CommandsSupportedAndEffectsLog {
    /// Admin commands, by opcode.
    pub admin: [CommandEffects; 256],
    /// I/O commands of the command set that was asked for, by opcode.
    pub io: [CommandEffects; 256],
    /// Reserved.
    pub reserved_2048: [u8; 2048],
}

const _: () = assert!(size_of::<CommandsSupportedAndEffectsLog>() == 4096);
const _: () = assert!(offset_of!(CommandsSupportedAndEffectsLog, io) == 1024);

impl Default for CommandsSupportedAndEffectsLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
