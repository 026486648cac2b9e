//! Log pages, checked (NVM Express Base 2.1, 5.1.12.1).
//!
//! Reading a page clears the event that it belongs to, so that the next one is reported. What a page says of lists and
//! indices is checked here; counters and temperatures are the device's word, whatever it is.

use zerocopy::IntoBytes;

use super::admin::{AdminQueue, DATA};
use super::events::ChangedNamespaces;
use super::{Controller, ControllerError};
use crate::spec::ZeroesBased;
use crate::spec::command::{LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::identify::{Lpa, Oacs};
use crate::spec::log::{
    ChangedNamespaceList, CommandsSupportedAndEffectsLog, DeviceSelfTestLog, ErrorInformationLogEntry, FirmwareSlotLog,
    SanitizeStatusLog, SmartLog,
};

impl Controller {
    /// The controller's SMART / Health Information (NVM Express Base 2.1, 5.1.12.1.3).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn smart_log(&mut self) -> Result<SmartLog, ControllerError> {
        self.admin.log_page(LogPageIdentifier::SMART_HEALTH_INFORMATION, NSID_ALL)
    }

    /// Entries of the Error Information log, the newest first: up to `most`, as many as the controller keeps (ELPE) and
    /// has (5.1.12.1.2).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn error_log(&mut self, most: usize) -> Result<Vec<ErrorInformationLogEntry>, ControllerError> {
        let kept = self.identify.elpe.count() as usize;
        let mut entries = vec![ErrorInformationLogEntry::default(); most.min(kept)];
        let extended = self.identify.lpa.contains(Lpa::EXTENDED_DATA);
        let read = read(&mut self.admin, LogPageIdentifier::ERROR_INFORMATION, extended, entries.as_mut_bytes())?;
        entries.truncate(read / size_of::<ErrorInformationLogEntry>());
        // An error count of 0 is no entry, and none follows it.
        let valid = entries.iter().position(|entry| entry.error_count == 0).unwrap_or(entries.len());
        entries.truncate(valid);
        Ok(entries)
    }

    /// Firmware Slot Information (5.1.12.1.4).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, refuses, or names an active slot that cannot be.
    pub fn firmware_slot_log(&mut self) -> Result<FirmwareSlotLog, ControllerError> {
        let log: FirmwareSlotLog = self.admin.log_page(LogPageIdentifier::FIRMWARE_SLOT_INFORMATION, NSID_ALL)?;
        if log.active_slot() == 0 {
            return Err(ControllerError::Page {
                page: "Firmware Slot Information",
                field: "the active slot",
                value: 0,
                right: "a slot is 1 to 7",
            });
        }
        Ok(log)
    }

    /// Which namespaces have changed since this was last asked (5.1.12.1.5).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, refuses, or returns a list that is out of order.
    pub fn changed_namespaces(&mut self) -> Result<ChangedNamespaces, ControllerError> {
        changed_namespaces(&mut self.admin, self.identify.nn)
    }

    /// Commands Supported and Effects (5.1.12.1.6).
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where the controller does not have the page, or another when it does not
    /// answer, or refuses.
    pub fn commands_supported_and_effects(&mut self) -> Result<Box<CommandsSupportedAndEffectsLog>, ControllerError> {
        let what = LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS;
        self.needs(self.identify.lpa.contains(Lpa::COMMANDS_SUPPORTED_AND_EFFECTS), what.name(), "LPA")?;
        self.admin.log_page(what, NSID_ALL).map(Box::new)
    }

    /// Device Self-test (5.1.12.1.7).
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where the controller has no self-test, or another when it does not answer,
    /// refuses, or says that more than all of a test is done.
    pub fn device_self_test_log(&mut self) -> Result<DeviceSelfTestLog, ControllerError> {
        self.needs(self.identify.oacs.contains(Oacs::DEVICE_SELF_TEST), Some("Device Self-test"), "OACS")?;
        let log: DeviceSelfTestLog = self.admin.log_page(LogPageIdentifier::DEVICE_SELF_TEST, NSID_ALL)?;
        let done = log.completion & 0x7F;
        if done > 100 {
            return Err(ControllerError::Page {
                page: "Device Self-test",
                field: "the current completion",
                value: done.into(),
                right: "it is in percent, 0 to 100",
            });
        }
        Ok(log)
    }

    /// Sanitize Status (5.1.12.1.33).
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where the controller cannot sanitize, or another when it does not answer, or
    /// refuses.
    pub fn sanitize_status(&mut self) -> Result<SanitizeStatusLog, ControllerError> {
        self.needs(self.identify.sanicap & 7 != 0, Some("Sanitize"), "SANICAP")?;
        self.admin.log_page(LogPageIdentifier::SANITIZE_STATUS, NSID_ALL)
    }

    /// An error unless `has`.
    pub(super) fn needs(
        &self,
        has: bool,
        what: Option<&'static str>,
        field: &'static str,
    ) -> Result<(), ControllerError> {
        if has { Ok(()) } else { Err(ControllerError::NotSupported { what: what.unwrap_or("that"), field }) }
    }
}

/// Reads the Changed Attached Namespace List, whose identifiers must ascend and be ones that there can be.
pub(super) fn changed_namespaces(admin: &mut AdminQueue, nn: u32) -> Result<ChangedNamespaces, ControllerError> {
    let list: ChangedNamespaceList = admin.log_page(LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST, NSID_ALL)?;
    if list.overflowed() {
        return Ok(ChangedNamespaces::Any);
    }
    let mut nsids = Vec::new();
    let mut after = 0;
    for nsid in list.iter() {
        if nsid <= after || nsid > nn {
            return Err(ControllerError::NamespaceList { nsid, after });
        }
        after = nsid;
        nsids.push(nsid);
    }
    Ok(ChangedNamespaces::These(nsids))
}

/// The command that asks for the first `len` bytes of a page.
fn sqe(lid: LogPageIdentifier, len: usize) -> Sqe {
    Sqe::get_log_page(lid, NSID_ALL, ZeroesBased::<u32>::from_raw((len / 4).max(1) as u32 - 1))
}

/// Reads a log page into `to`, a multiple of 4 bytes, piece by piece; how much of it was read: without extended data
/// (LPA) a page can be read from its start only.
fn read(
    admin: &mut AdminQueue,
    lid: LogPageIdentifier,
    extended: bool,
    to: &mut [u8],
) -> Result<usize, ControllerError> {
    let mut done = 0;
    for piece in to.chunks_mut(DATA) {
        if done > 0 && !extended {
            break;
        }
        admin.fetch_into(sqe(lid, piece.len()).with_lpo(done as u64), piece)?;
        done += piece.len();
    }
    Ok(done)
}

#[cfg(test)]
mod tests;
