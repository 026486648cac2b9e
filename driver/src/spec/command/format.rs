//! Format NVM (NVM Express Base 2.1, 5.1.10; NVM Command Set 1.1, 4.1.2).

use super::{AdminOpcode, Sqe};

codes! {
    /// Secure Erase Settings, SES (Base 2.1, 5.1.10).
    pub struct SecureEraseSettings(u8) {
        NONE = 0, "No Secure Erase";
        USER_DATA = 1, "User Data Erase";
        CRYPTOGRAPHIC = 2, "Cryptographic Erase";
    }
}

impl Sqe {
    /// Formats namespace `nsid`, or with [`NSID_ALL`](super::NSID_ALL) every one, with LBA format `index`, 0 to 63 (Base
    /// 2.1, 5.1.10). All data is lost. The command completes when the format is done.
    pub const fn format_nvm(nsid: u32, index: u8) -> Self {
        Self::admin(AdminOpcode::FORMAT_NVM, nsid).with_lbafl(index & 0xF).with_lbafu(index >> 4 & 0x3)
    }

    /// Format NVM: the index of the LBA format, from LBAFL and LBAFU: 0 to 63.
    pub const fn format_index(&self) -> u8 {
        self.lbafu() << 4 | self.lbafl()
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Format NVM: LBA Format Lower. See [`format_index`](Self::format_index).
        lbafl / with_lbafl [0, 4]: u8;
        /// Format NVM: Metadata Settings: metadata is transferred as part of an extended block (NVM Command Set 1.1,
        /// 4.1.2).
        mset / with_mset [4, 1]: bool;
        /// Format NVM: Protection Information type, 0 none to 3 (NVM Command Set 1.1, 4.1.2).
        format_pi / with_format_pi [5, 3]: u8;
        /// Format NVM: Protection Information Location: at the start of the metadata (NVM Command Set 1.1, 4.1.2).
        format_pil / with_format_pil [8, 1]: bool;
        /// Format NVM: Secure Erase Settings (Base 2.1, 5.1.10).
        ses / with_ses [9, 3]: SecureEraseSettings;
        /// Format NVM: LBA Format Upper. See [`format_index`](Self::format_index).
        lbafu / with_lbafu [12, 2]: u8;
    }
}
