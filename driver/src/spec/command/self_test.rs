//! Device Self-test (NVM Express Base 2.1, 5.1.5 and 8.1.7).

use super::{AdminOpcode, Sqe};

codes! {
    /// Self-test Code, STC (Base 2.1, 5.1.5).
    pub struct SelfTestCode(u8) {
        SHORT = 0x1, "Short device self-test operation";
        EXTENDED = 0x2, "Extended device self-test operation";
        HOST_INITIATED_REFRESH = 0x3, "Host-Initiated Refresh operation";
        VENDOR_SPECIFIC = 0xE, "Vendor specific";
        ABORT = 0xF, "Abort device self-test operation";
    }
}

impl Sqe {
    /// Begins a self-test of the controller and of namespace `nsid` (0: of none; [`NSID_ALL`](super::NSID_ALL): of
    /// all), or aborts the one in progress (Base 2.1, 5.1.5). The command completes when it has begun.
    pub const fn device_self_test(nsid: u32, code: SelfTestCode) -> Self {
        Self::admin(AdminOpcode::DEVICE_SELF_TEST, nsid).with_self_test_code(code)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Device Self-test: Self-test Code, STC (Base 2.1, 5.1.5).
        self_test_code / with_self_test_code [0, 4]: SelfTestCode;
    }
}
