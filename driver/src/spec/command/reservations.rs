//! Reservation commands (NVM Express Base 2.1, 7.5 to 7.8; reservations: 8.1.22). Keys are in the commands' data.

use super::{NvmOpcode, Sqe};
use crate::spec::ZeroesBased;
use crate::spec::reservation::ReservationType;

codes! {
    /// Reservation Register Action, RREGA (Base 2.1, 7.6).
    pub struct RegisterAction(u8) {
        REGISTER = 0, "Register Reservation Key";
        UNREGISTER = 1, "Unregister Reservation Key";
        REPLACE = 2, "Replace Reservation Key";
    }
}

codes! {
    /// Change Persist Through Power Loss State, CPTPL (Base 2.1, 7.6).
    pub struct ChangePersistence(u8) {
        NO_CHANGE = 0, "No Change";
        CLEAR = 2, "Reservations and Registrations do not Persist";
        PERSIST = 3, "Reservations and Registrations Persist";
    }
}

codes! {
    /// Reservation Acquire Action, RACQA (Base 2.1, 7.5).
    pub struct AcquireAction(u8) {
        ACQUIRE = 0, "Acquire";
        PREEMPT = 1, "Preempt";
        PREEMPT_AND_ABORT = 2, "Preempt and Abort";
    }
}

codes! {
    /// Reservation Release Action, RRELA (Base 2.1, 7.7).
    pub struct ReleaseAction(u8) {
        RELEASE = 0, "Release";
        CLEAR = 1, "Clear";
    }
}

impl Sqe {
    /// Registers, unregisters or replaces this host's key (Base 2.1, 7.6). Data: two keys of 64 bits, the current one
    /// (CRKEY) and the new one (NRKEY).
    pub const fn reservation_register(nsid: u32, rrega: RegisterAction, cptpl: ChangePersistence) -> Self {
        Self::nvm(NvmOpcode::RESERVATION_REGISTER, nsid).with_rrega(rrega).with_cptpl(cptpl)
    }

    /// Acquires a reservation, or takes it from others (Base 2.1, 7.5). Data: two keys of 64 bits, this host's (CRKEY)
    /// and the one to be preempted (PRKEY).
    pub const fn reservation_acquire(nsid: u32, racqa: AcquireAction, rtype: ReservationType) -> Self {
        Self::nvm(NvmOpcode::RESERVATION_ACQUIRE, nsid).with_racqa(racqa).with_rtype(rtype)
    }

    /// Releases a reservation, or clears all that there is (Base 2.1, 7.7). Data: this host's key of 64 bits (CRKEY).
    pub const fn reservation_release(nsid: u32, rrela: ReleaseAction, rtype: ReservationType) -> Self {
        Self::nvm(NvmOpcode::RESERVATION_RELEASE, nsid).with_rrela(rrela).with_rtype(rtype)
    }

    /// Asks for the Reservation Status data structure, `numd` dwords of it, extended or not (Base 2.1, 7.8).
    pub const fn reservation_report(nsid: u32, numd: ZeroesBased<u32>, eds: bool) -> Self {
        let mut sqe = Self::nvm(NvmOpcode::RESERVATION_REPORT, nsid);
        sqe.cdw10 = numd.raw();
        sqe.with_eds(eds)
    }

    /// Reservation Report: Number of Dwords (Base 2.1, 7.8).
    pub const fn reservation_numd(&self) -> ZeroesBased<u32> {
        ZeroesBased::<u32>::from_raw(self.cdw10)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Reservation Register: Reservation Register Action (Base 2.1, 7.6).
        rrega / with_rrega [0, 3]: RegisterAction;
        /// Reservation Acquire: Reservation Acquire Action (Base 2.1, 7.5).
        racqa / with_racqa [0, 3]: AcquireAction;
        /// Reservation Release: Reservation Release Action (Base 2.1, 7.7).
        rrela / with_rrela [0, 3]: ReleaseAction;
        /// Ignore Existing Key (Base 2.1, 7.6). Only Reservation Register may set it.
        iekey / with_iekey [3, 1]: bool;
        /// Reservation Acquire and Release: Reservation Type (Base 2.1, 7.5 and 7.7).
        rtype / with_rtype [8, 8]: ReservationType;
        /// Reservation Register: Change Persist Through Power Loss State (Base 2.1, 7.6).
        cptpl / with_cptpl [30, 2]: ChangePersistence;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Reservation Report: Extended Data Structure (Base 2.1, 7.8).
        eds / with_eds [0, 1]: bool;
    }
}
