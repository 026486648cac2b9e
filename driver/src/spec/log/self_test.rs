//! Device Self-test, LID 06h (NVM Express Base 2.1, 5.1.12.1.7).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::spec::command::SelfTestCode;

codes! {
    /// How a self-test ended (Base 2.1, 5.1.12.1.7).
    pub struct SelfTestResultCode(u8) {
        COMPLETED = 0x0, "Completed Without Error";
        ABORTED_BY_COMMAND = 0x1, "Aborted by a Device Self-test Command";
        ABORTED_BY_RESET = 0x2, "Aborted by a Controller Level Reset";
        ABORTED_BY_NAMESPACE_REMOVAL = 0x3, "Aborted by the Removal of a Namespace";
        ABORTED_BY_FORMAT = 0x4, "Aborted by a Format NVM Command";
        FATAL_ERROR = 0x5, "Fatal Error, Not Completed";
        UNKNOWN_SEGMENT_FAILED = 0x6, "An Unknown Segment Failed";
        SEGMENT_FAILED = 0x7, "A Segment Failed";
        ABORTED = 0x8, "Aborted for an Unknown Reason";
        ABORTED_BY_SANITIZE = 0x9, "Aborted by a Sanitize Operation";
        NOT_USED = 0xF, "Entry Not Used";
    }
}

wire_word! {
    /// Device Self-test Status (Base 2.1, 5.1.12.1.7).
    #[derive(Debug)]
    pub struct SelfTestStatus(u8) {
        /// How it ended.
        result / with_result [0, 4]: SelfTestResultCode;
        /// Which test it was.
        code / with_code [4, 4]: SelfTestCode;
    }
}

wire_flags! {
    /// Valid Diagnostic Information: which fields of a result count (Base 2.1, 5.1.12.1.7).
    pub struct SelfTestDiagnostics(u8) {
        /// The namespace identifier.
        NSID = 1 << 0;
        /// The failing LBA.
        FAILING_LBA = 1 << 1;
        /// The Status Code Type.
        STATUS_CODE_TYPE = 1 << 2;
        /// The Status Code.
        STATUS_CODE = 1 << 3;
    }
}

/// One result of a self-test (Base 2.1, 5.1.12.1.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SelfTestResult {
    /// Which test it was and how it ended.
    pub status: SelfTestStatus,
    /// Segment Number: the first that failed, where the result says that one did.
    pub segment: u8,
    /// Valid Diagnostic Information.
    pub valid: SelfTestDiagnostics,
    /// Reserved.
    pub reserved_3: u8,
    /// Power On Hours at the end of the test.
    pub power_on_hours: U64,
    /// Namespace of the failing LBA.
    pub nsid: U32,
    /// Failing LBA.
    pub failing_lba: U64,
    /// Status Code Type.
    pub sct: u8,
    /// Status Code.
    pub sc: u8,
    /// Vendor specific.
    pub vs: [u8; 2],
}

/// Device Self-test log page, LID 06h (Base 2.1, 5.1.12.1.7).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceSelfTestLog {
    /// Current operation in bits 3:0, by [`SelfTestCode`]; 0: none.
    pub current: u8,
    /// Current completion in percent, in bits 6:0.
    pub completion: u8,
    /// Reserved.
    pub reserved_2: [u8; 2],
    /// The last results, the newest first.
    pub results: [SelfTestResult; 20],
}

const _: () = assert!(size_of::<SelfTestResult>() == 28);
const _: () = assert!(offset_of!(SelfTestResult, power_on_hours) == 4);
const _: () = assert!(offset_of!(SelfTestResult, nsid) == 12);
const _: () = assert!(offset_of!(SelfTestResult, failing_lba) == 16);
const _: () = assert!(offset_of!(SelfTestResult, sct) == 24);
const _: () = assert!(size_of::<DeviceSelfTestLog>() == 564);

impl Default for DeviceSelfTestLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl DeviceSelfTestLog {
    /// The test in progress, if there is one.
    pub const fn current(&self) -> Option<SelfTestCode> {
        match self.current & 0xF {
            0 => None,
            code => Some(SelfTestCode::from_raw(code)),
        }
    }
}
