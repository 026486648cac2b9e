//! What Get Log Page returns (NVM Express Base 2.1, 5.1.12.1), laid out as on the wire.

mod error_information;
mod firmware_slot;
mod smart;

pub use error_information::ErrorInformationLogEntry;
pub use firmware_slot::FirmwareSlotLog;
pub use smart::{CriticalWarning, EnduranceGroupWarning, SmartLog};

#[cfg(test)]
mod tests;
