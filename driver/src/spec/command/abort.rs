//! Abort (NVM Express Base 2.1, 5.1.1) and Asynchronous Event Request (5.1.2).

use super::{AdminOpcode, Sqe};

impl Sqe {
    /// Asks the controller to abort command `cid` of Submission Queue `sqid` (Base 2.1, 5.1.1). Bit
    /// 0 of the completion's dword 0 is clear when it was aborted.
    pub const fn abort(sqid: u16, cid: u16) -> Self {
        Self::admin(AdminOpcode::ABORT, 0)
            .with_abort_sqid(sqid)
            .with_abort_cid(cid)
    }

    /// Completes when the controller has an event to report (Base 2.1, 5.1.2). Dword 0 of the
    /// completion says which.
    pub const fn asynchronous_event_request() -> Self {
        Self::admin(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Abort: Submission Queue Identifier of the command to abort (Base 2.1, 5.1.1).
        abort_sqid / with_abort_sqid [0, 16]: u16;
        /// Abort: Command Identifier of the command to abort (Base 2.1, 5.1.1).
        abort_cid / with_abort_cid [16, 16]: u16;
    }
}
