//! Firmware Commit and Firmware Image Download (NVM Express Base 2.1, 5.1.8 and 5.1.9).

use super::{AdminOpcode, Sqe};
use crate::spec::ZeroesBased;

codes! {
    /// Commit Action, CA (Base 2.1, 5.1.8).
    pub struct CommitAction(u8) {
        REPLACE = 0, "Replace, Do Not Activate";
        REPLACE_AND_ACTIVATE_AT_RESET = 1, "Replace, Activate at the Next Controller Level Reset";
        ACTIVATE_AT_RESET = 2, "Activate at the Next Controller Level Reset";
        ACTIVATE_IMMEDIATELY = 3, "Replace if Downloaded, Activate Immediately";
        REPLACE_BOOT_PARTITION = 6, "Replace the Boot Partition";
        ACTIVATE_BOOT_PARTITION = 7, "Mark the Boot Partition as Active";
    }
}

impl Sqe {
    /// Hands over `numd` dwords of a firmware image that belong `ofst` dwords from its start (Base 2.1, 5.1.9).
    pub const fn firmware_image_download(numd: ZeroesBased<u32>, ofst: u32) -> Self {
        Self::admin(AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD, 0).with_firmware_numd(numd).with_firmware_ofst(ofst)
    }

    /// Verifies the image that was downloaded and commits it to slot `fs`, 1 to 7, or to one of the controller's choice
    /// with 0 (Base 2.1, 5.1.8).
    pub const fn firmware_commit(fs: u8, ca: CommitAction) -> Self {
        Self::admin(AdminOpcode::FIRMWARE_COMMIT, 0).with_fs(fs).with_ca(ca)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Firmware Commit: Firmware Slot (Base 2.1, 5.1.8).
        fs / with_fs [0, 3]: u8;
        /// Firmware Commit: Commit Action (Base 2.1, 5.1.8).
        ca / with_ca [3, 3]: CommitAction;
        /// Firmware Commit: Boot Partition ID (Base 2.1, 5.1.8).
        bpid / with_bpid [31, 1]: bool;
        /// Firmware Image Download: Number of Dwords (Base 2.1, 5.1.9).
        firmware_numd / with_firmware_numd [0, 32]: ZeroesBased<u32>;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Firmware Image Download: Offset in dwords (Base 2.1, 5.1.9).
        firmware_ofst / with_firmware_ofst [0, 32]: u32;
    }
}
