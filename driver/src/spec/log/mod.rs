//! What Get Log Page returns (NVM Express Base 2.1, 5.1.12.1), laid out as on the wire.

mod changed_namespaces;
mod effects;
mod error_information;
mod firmware_slot;
mod reservation_notification;
mod sanitize_status;
mod self_test;
mod smart;

pub use changed_namespaces::ChangedNamespaceList;
pub use effects::{CommandEffects, CommandsSupportedAndEffectsLog, FeatureEffects, LogPageSupport};
pub use error_information::ErrorInformationLogEntry;
pub use firmware_slot::FirmwareSlotLog;
pub use reservation_notification::{ReservationNotificationLog, ReservationNotificationType};
pub use sanitize_status::{SanitizeState, SanitizeStatus, SanitizeStatusLog};
pub use self_test::{DeviceSelfTestLog, SelfTestDiagnostics, SelfTestResult, SelfTestResultCode, SelfTestStatus};
pub use smart::{CriticalWarning, EnduranceGroupWarning, SmartLog};

#[cfg(test)]
mod tests;
