//! Sanitize (NVM Express Base 2.1, 5.1.22 and 8.1.24).

use super::{AdminOpcode, Sqe};

codes! {
    /// Sanitize Action, SANACT (Base 2.1, 5.1.22).
    pub struct SanitizeAction(u8) {
        EXIT_FAILURE_MODE = 1, "Exit Failure Mode";
        BLOCK_ERASE = 2, "Start a Block Erase sanitize operation";
        OVERWRITE = 3, "Start an Overwrite sanitize operation";
        CRYPTO_ERASE = 4, "Start a Crypto Erase sanitize operation";
        EXIT_MEDIA_VERIFICATION_STATE = 5, "Exit Media Verification State";
    }
}

impl Sqe {
    /// Begins to sanitize the NVM subsystem, or ends what a failed sanitize operation left (Base 2.1, 5.1.22). The
    /// command completes when the operation has begun; the Sanitize Status log page says how far it is.
    pub const fn sanitize(action: SanitizeAction) -> Self {
        Self::admin(AdminOpcode::SANITIZE, 0).with_sanact(action)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Sanitize: Sanitize Action (Base 2.1, 5.1.22).
        sanact / with_sanact [0, 3]: SanitizeAction;
        /// Sanitize: Allow Unrestricted Sanitize Exit (Base 2.1, 5.1.22).
        ause / with_ause [3, 1]: bool;
        /// Sanitize: Overwrite Pass Count, 0 for 16 (Base 2.1, 5.1.22).
        owpass / with_owpass [4, 4]: u8;
        /// Sanitize: Overwrite Invert Pattern Between Passes (Base 2.1, 5.1.22).
        oipbp / with_oipbp [8, 1]: bool;
        /// Sanitize: No-Deallocate After Sanitize (Base 2.1, 5.1.22).
        ndas / with_ndas [9, 1]: bool;
        /// Sanitize: Enter Media Verification State (Base 2.1, 5.1.22).
        emvs / with_emvs [10, 1]: bool;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Sanitize: Overwrite Pattern (Base 2.1, 5.1.22).
        ovrpat / with_ovrpat [0, 32]: u32;
    }
}
