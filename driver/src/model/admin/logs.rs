//! Get Log Page (NVM Express Base 2.1, 5.1.12).

use std::time::Instant;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::super::counters::Counters;
use super::super::namespace::{NSID, Namespace};
use super::super::transfer::permanent;
use super::identify::FIRMWARE_REVISION;
use crate::spec::command::{LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::completion::StatusField;
use crate::spec::log::{CriticalWarning, ErrorInformationLogEntry, FirmwareSlotLog, SmartLog};
use crate::spec::status::{Status, StatusCode, StatusCodeType};

/// Entries of the Error Information log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// 35 degrees Celsius in kelvins: the model does not get warm.
const TEMPERATURE: u16 = 308;

/// The Error Information log: the last failed commands.
#[derive(Default)]
pub(super) struct ErrorLog {
    entries: std::collections::VecDeque<ErrorInformationLogEntry>,
    count: u64,
    media_errors: u64,
}

impl ErrorLog {
    pub(super) fn note(&mut self, sqid: u16, sqe: &Sqe, status: Status) {
        self.count += 1;
        self.media_errors += u64::from(status.sct() == StatusCodeType::MEDIA_AND_DATA_INTEGRITY);
        self.entries.truncate(ERROR_ENTRIES - 1);
        self.entries.push_front(ErrorInformationLogEntry {
            error_count: self.count,
            sqid,
            cid: sqe.cid,
            status_info: StatusField::new(false, status),
            parameter_error_location: 0xFFFF,
            lba: if sqid == 0 { 0 } else { sqe.slba() },
            nsid: sqe.nsid,
            opc: sqe.opcode,
            log_page_version: 1,
            ..ErrorInformationLogEntry::default()
        });
    }
}

/// The part of a log page that `sqe` asks for, without what is zero at its end, and the length of the answer.
pub(super) fn page(
    sqe: &Sqe,
    errors: &ErrorLog,
    counters: &Counters,
    namespace: &Namespace,
    powered_on: Instant,
) -> Result<(Vec<u8>, u64), Status> {
    let invalid = permanent(StatusCode::INVALID_FIELD_IN_COMMAND);
    // LPA has no pages for single namespaces.
    if !matches!(sqe.nsid, 0 | NSID_ALL) {
        let code = if sqe.nsid == NSID { invalid } else { permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT) };
        return Err(code);
    }
    if sqe.ot() || !sqe.lpo().is_multiple_of(4) {
        return Err(invalid);
    }
    let mut bytes = match sqe.lid() {
        LogPageIdentifier::ERROR_INFORMATION => {
            let mut bytes: Vec<u8> = errors.entries.iter().flat_map(|entry| entry.as_bytes().to_vec()).collect();
            bytes.resize(ERROR_ENTRIES * size_of::<ErrorInformationLogEntry>(), 0);
            bytes
        }
        LogPageIdentifier::SMART_HEALTH_INFORMATION => {
            smart(errors, counters, namespace, powered_on).as_bytes().to_vec()
        }
        LogPageIdentifier::FIRMWARE_SLOT_INFORMATION => {
            let mut log = FirmwareSlotLog { afi: 1, ..FirmwareSlotLog::default() };
            log.frs[0] = FIRMWARE_REVISION;
            log.as_bytes().to_vec()
        }
        _ => return Err(permanent(StatusCode::INVALID_LOG_PAGE)),
    };
    if sqe.lpo() > bytes.len() as u64 {
        return Err(invalid);
    }
    bytes.drain(..sqe.lpo() as usize);
    let len = sqe.numd().count() * 4;
    bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
    Ok((bytes, len))
}

fn smart(errors: &ErrorLog, counters: &Counters, namespace: &Namespace, powered_on: Instant) -> SmartLog {
    let counters = counters.snapshot();
    let data_units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).into();
    let warning = if namespace.store.writable() { CriticalWarning::empty() } else { CriticalWarning::READ_ONLY };
    SmartLog {
        critical_warning: warning,
        composite_temperature: U16::new(TEMPERATURE),
        available_spare: 100,
        available_spare_threshold: 10,
        percentage_used: 0,
        data_units_read: data_units(counters.read_bytes),
        data_units_written: data_units(counters.write_bytes),
        host_read_commands: u128::from(counters.reads).into(),
        host_write_commands: u128::from(counters.writes).into(),
        power_cycles: 1.into(),
        power_on_hours: u128::from(powered_on.elapsed().as_secs() / 3600).into(),
        media_and_data_integrity_errors: u128::from(errors.media_errors).into(),
        number_of_error_information_log_entries: u128::from(errors.count).into(),
        ..SmartLog::default()
    }
}
