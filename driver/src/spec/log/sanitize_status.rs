//! Sanitize Status, LID 81h (NVM Express Base 2.1, 5.1.12.1.33).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Sanitize Operation Status, SOS (Base 2.1, 5.1.12.1.33).
    pub struct SanitizeState(u8) {
        NEVER = 0, "Never Sanitized";
        SUCCEEDED = 1, "Sanitized";
        IN_PROGRESS = 2, "Sanitizing";
        FAILED = 3, "Sanitize Failed";
        UNEXPECTED_DEALLOCATION = 4, "Sanitized, With Unexpected Deallocation";
    }
}

wire_word! {
    /// Sanitize Status, SSTAT (Base 2.1, 5.1.12.1.33).
    #[derive(Debug)]
    pub struct SanitizeStatus(u16) {
        /// Sanitize Operation Status: how the most recent operation is or ended.
        state / with_state [0, 3]: SanitizeState;
        /// Overwrite Passes Completed.
        passes / with_passes [3, 5]: u8;
        /// Global Data Erased: nothing has been written since the last success, or ever.
        global_data_erased / with_global_data_erased [8, 1]: bool;
        /// Media Verification Canceled.
        media_verification_canceled / with_media_verification_canceled [9, 1]: bool;
    }
}

/// Sanitize Status log page, LID 81h (Base 2.1, 5.1.12.1.33). Estimates are in seconds; FFFFFFFFh: not reported.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SanitizeStatusLog {
    /// Sanitize Progress in 65,536ths; FFFFh when none is in progress.
    pub sprog: u16,
    /// Sanitize Status.
    pub sstat: SanitizeStatus,
    /// Dword 10 of the Sanitize command that began the most recent operation.
    pub scdw10: u32,
    /// Estimated Time For Overwrite, of 16 passes.
    pub eto: u32,
    /// Estimated Time For Block Erase.
    pub etbe: u32,
    /// Estimated Time For Crypto Erase.
    pub etce: u32,
    /// Estimated Time For Overwrite With No-Deallocate Media Modification.
    pub etond: u32,
    /// Estimated Time For Block Erase With No-Deallocate Media Modification.
    pub etbend: u32,
    /// Estimated Time For Crypto Erase With No-Deallocate Media Modification.
    pub etcend: u32,
    /// Estimated Time For Post-Verification Deallocation State.
    pub etpvds: u32,
    /// Sanitize State Information: the state in bits 3:0, the one that failed in bits 7:4.
    pub ssi: u8,
    /// Reserved.
    pub reserved_37: [u8; 475],
}

const _: () = assert!(size_of::<SanitizeStatusLog>() == 512);
const _: () = assert!(offset_of!(SanitizeStatusLog, scdw10) == 4);
const _: () = assert!(offset_of!(SanitizeStatusLog, eto) == 8);
const _: () = assert!(offset_of!(SanitizeStatusLog, etpvds) == 32);
const _: () = assert!(offset_of!(SanitizeStatusLog, ssi) == 36);
const _: () = assert!(offset_of!(SanitizeStatusLog, reserved_37) == 37);

impl Default for SanitizeStatusLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
