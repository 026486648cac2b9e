//! Sanitize (NVM Express Base 2.1, 5.1.22 and 8.1.24).
//!
//! An operation takes turns and outlives resets. Meanwhile all namespaces are closed, and few admin commands are
//! executed; so it stays after a failure, until the host has left the failure mode or another operation has succeeded.

use super::super::board::Board;
use super::super::namespaces::Namespaces;
use super::super::transfer::permanent;
use super::Answer;
use crate::spec::command::{AdminOpcode, LogPageIdentifier, SanitizeAction, Sqe};
use crate::spec::log::{SanitizeState, SanitizeStatus, SanitizeStatusLog};
use crate::spec::status::{Status, StatusCode};

/// SANICAP: crypto erase, block erase, overwrite, no-deallocate inhibited; media is not modified afterwards.
pub(super) const SANICAP: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 29 | 1 << 30;
/// An estimate that is not reported.
const NO_ESTIMATE: u32 = u32::MAX;

/// What the last operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Never,
    InProgress {
        left: u32,
    },
    Succeeded {
        writes: u64,
    },
    Failed {
        unrestricted: bool,
    },
    /// A failure that the host has acknowledged.
    FailureLeft,
}

/// The sanitize operation of the NVM subsystem.
pub(super) struct Sanitize {
    stage: Stage,
    /// The command that began the last operation.
    begun: Sqe,
    delay: u32,
}

impl Sanitize {
    pub(super) fn new(delay: u32) -> Self {
        Self { stage: Stage::Never, begun: Sqe::ZERO, delay }
    }

    pub(super) fn busy(&self) -> bool {
        matches!(self.stage, Stage::InProgress { .. })
    }

    /// Whether an admin command is executed as things are (Base 2.1, 8.1.24.3).
    pub(super) fn allows(&self, sqe: &Sqe) -> Result<(), Status> {
        let code = match self.stage {
            Stage::InProgress { .. } => StatusCode::SANITIZE_IN_PROGRESS,
            Stage::Failed { .. } => StatusCode::SANITIZE_FAILED,
            _ => return Ok(()),
        };
        let allowed = match sqe.admin_opcode() {
            AdminOpcode::ABORT
            | AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST
            | AdminOpcode::CREATE_IO_COMPLETION_QUEUE
            | AdminOpcode::CREATE_IO_SUBMISSION_QUEUE
            | AdminOpcode::DELETE_IO_COMPLETION_QUEUE
            | AdminOpcode::DELETE_IO_SUBMISSION_QUEUE
            | AdminOpcode::GET_FEATURES
            | AdminOpcode::SET_FEATURES
            | AdminOpcode::IDENTIFY => true,
            AdminOpcode::GET_LOG_PAGE => matches!(
                sqe.lid(),
                LogPageIdentifier::SUPPORTED_LOG_PAGES
                    | LogPageIdentifier::ERROR_INFORMATION
                    | LogPageIdentifier::SMART_HEALTH_INFORMATION
                    | LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST
                    | LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS
                    | LogPageIdentifier::SANITIZE_STATUS
            ),
            AdminOpcode::SANITIZE => !self.busy(),
            AdminOpcode::FORMAT_NVM
            | AdminOpcode::FIRMWARE_COMMIT
            | AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD
            | AdminOpcode::DEVICE_SELF_TEST => false,
            // What is not supported is told as such.
            _ => true,
        };
        if allowed { Ok(()) } else { Err(code.status()) }
    }

    /// A Sanitize command. `ignore_no_deallocate` is No-Deallocate Response Mode.
    pub(super) fn command(
        &mut self,
        sqe: &Sqe,
        ignore_no_deallocate: bool,
        namespaces: &mut Namespaces,
    ) -> Result<Answer, Status> {
        let restricted = self.stage == Stage::Failed { unrestricted: false };
        match sqe.sanact() {
            SanitizeAction::EXIT_FAILURE_MODE => {
                if restricted {
                    return Err(permanent(StatusCode::SANITIZE_FAILED));
                }
                if self.stage == (Stage::Failed { unrestricted: true }) {
                    self.stage = Stage::FailureLeft;
                    namespaces.close(None);
                }
                return Ok(Answer::Done(0));
            }
            SanitizeAction::BLOCK_ERASE | SanitizeAction::OVERWRITE | SanitizeAction::CRYPTO_ERASE => {}
            // Among them Exit Media Verification State: SANICAP has no such state.
            _ => return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
        if sqe.emvs() || sqe.ndas() && !ignore_no_deallocate {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        // Restricted completion mode is left only by an operation in that mode.
        if restricted && sqe.ause() {
            return Err(permanent(StatusCode::SANITIZE_FAILED));
        }
        if namespaces.iter().any(|entry| !entry.namespace.store.writable()) {
            return Err(permanent(StatusCode::NAMESPACE_IS_WRITE_PROTECTED));
        }
        self.begun = *sqe;
        self.stage = Stage::InProgress { left: self.delay };
        namespaces.close(Some(StatusCode::SANITIZE_IN_PROGRESS));
        Ok(Answer::Done(0))
    }

    /// One turn passes. Whether an operation has ended in it.
    pub(super) fn tick(&mut self, board: &Board, namespaces: &mut Namespaces) -> bool {
        let Stage::InProgress { left } = &mut self.stage else { return false };
        if *left > 0 {
            *left -= 1;
            return false;
        }
        let erased = namespaces.iter_mut().try_for_each(|entry| entry.namespace.store.erase(entry.size));
        if erased.is_err() || board.health().failing_sanitize {
            self.stage = Stage::Failed { unrestricted: self.begun.ause() };
            namespaces.close(Some(StatusCode::SANITIZE_FAILED));
        } else {
            self.stage = Stage::Succeeded { writes: board.counters.writes.get() };
            namespaces.close(None);
        }
        true
    }

    pub(super) fn log(&self, board: &Board) -> SanitizeStatusLog {
        let writes = board.counters.writes.get();
        let (state, erased) = match self.stage {
            Stage::Never => (SanitizeState::NEVER, writes == 0),
            Stage::InProgress { .. } => (SanitizeState::IN_PROGRESS, false),
            Stage::Succeeded { writes: at_the_end } => (SanitizeState::SUCCEEDED, writes == at_the_end),
            Stage::Failed { .. } | Stage::FailureLeft => (SanitizeState::FAILED, false),
        };
        let passes = match (self.begun.sanact(), self.begun.owpass(), self.stage) {
            (SanitizeAction::OVERWRITE, 0, Stage::Succeeded { .. }) => 16,
            (SanitizeAction::OVERWRITE, passes, Stage::Succeeded { .. }) => passes,
            _ => 0,
        };
        let sprog = match self.stage {
            Stage::InProgress { left } => {
                let total = u64::from(self.delay) + 1;
                ((total - 1 - u64::from(left)) * 65_536 / total) as u16
            }
            _ => u16::MAX,
        };
        // The states of the Sanitize Operation State Machine: idle, and by mode processing or failed.
        let ssi = match self.stage {
            Stage::InProgress { .. } => 1 + 2 * u8::from(self.begun.ause()),
            Stage::Failed { unrestricted } => 2 + 2 * u8::from(unrestricted),
            _ => 0,
        };
        SanitizeStatusLog {
            sprog,
            sstat: SanitizeStatus::default().with_state(state).with_passes(passes).with_global_data_erased(erased),
            scdw10: self.begun.cdw10,
            eto: NO_ESTIMATE,
            etbe: NO_ESTIMATE,
            etce: NO_ESTIMATE,
            etond: NO_ESTIMATE,
            etbend: NO_ESTIMATE,
            etcend: NO_ESTIMATE,
            etpvds: 0,
            ssi,
            ..SanitizeStatusLog::default()
        }
    }
}
