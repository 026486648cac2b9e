//! Get Log Page (NVM Express Base 2.1, 5.1.12).

use std::collections::{BTreeSet, VecDeque};

use zerocopy::IntoBytes;
use zerocopy::little_endian::U16;

use super::super::transfer::permanent;
use super::{Admin, Answer, Surroundings, effects};
use crate::spec::command::{Csi, LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::completion::StatusField;
use crate::spec::events::{AsynchronousEvent, AsynchronousEventType};
use crate::spec::log::{
    ChangedNamespaceList, ErrorInformationLogEntry, ReservationNotificationLog, ReservationNotificationType, SmartLog,
};
use crate::spec::status::{Status, StatusCode, StatusCodeType};

/// Entries of the Error Information log.
pub(super) const ERROR_ENTRIES: usize = 64;
/// SQID and CID of an error that is no command's.
const NO_COMMAND: u16 = 0xFFFF;

/// What log pages are made of that is kept nowhere else.
#[derive(Default)]
pub(super) struct Logs {
    /// The last errors, the newest first.
    errors: VecDeque<ErrorInformationLogEntry>,
    error_count: u64,
    media_errors: u64,
    /// Namespaces that have changed since the host last read of it.
    pub(super) changed_namespaces: BTreeSet<u32>,
    /// Reservation notifications that have not been read.
    notifications: VecDeque<(ReservationNotificationType, u32)>,
    /// How many there have been.
    notification_count: u64,
}

impl Logs {
    pub(super) fn note_error(&mut self, sqid: u16, sqe: &Sqe, status: Status) {
        self.media_errors += u64::from(status.sct() == StatusCodeType::MEDIA_AND_DATA_INTEGRITY);
        self.push(ErrorInformationLogEntry {
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

    /// Adds a notification of what another host did to a reservation.
    pub(super) fn notify_reservation(&mut self, nsid: u32, kind: ReservationNotificationType) {
        self.notification_count += 1;
        self.notifications.push_back((kind, nsid));
    }

    /// The oldest notification that has not been read.
    fn notification(&self) -> ReservationNotificationLog {
        let left = self.notifications.len() as u64;
        self.notifications.front().map_or_else(Default::default, |(kind, nsid)| ReservationNotificationLog {
            log_page_count: self.notification_count + 1 - left,
            kind: *kind,
            available: (left - 1).min(255) as u8,
            nsid: *nsid,
            ..ReservationNotificationLog::default()
        })
    }

    /// Adds what an error event is about.
    pub(super) fn note_event(&mut self, event: AsynchronousEvent) {
        if event.event_type() != AsynchronousEventType::ERROR_STATUS {
            return;
        }
        let code = match event {
            AsynchronousEvent::WRITE_TO_INVALID_DOORBELL_REGISTER => StatusCode::INVALID_QUEUE_IDENTIFIER,
            AsynchronousEvent::INVALID_DOORBELL_WRITE_VALUE => StatusCode::INVALID_FIELD_IN_COMMAND,
            AsynchronousEvent::FIRMWARE_IMAGE_LOAD_ERROR => StatusCode::INVALID_FIRMWARE_IMAGE,
            _ => StatusCode::INTERNAL_ERROR,
        };
        self.push(ErrorInformationLogEntry {
            sqid: NO_COMMAND,
            cid: NO_COMMAND,
            status_info: StatusField::new(false, code.status()),
            parameter_error_location: 0xFFFF,
            ..ErrorInformationLogEntry::default()
        });
    }

    fn push(&mut self, entry: ErrorInformationLogEntry) {
        self.error_count += 1;
        self.errors.truncate(ERROR_ENTRIES - 1);
        self.errors.push_front(ErrorInformationLogEntry { error_count: self.error_count, ..entry });
    }

    /// The host has read page `lid` and does not want its events retained.
    pub(super) fn was_read(&mut self, lid: LogPageIdentifier) {
        if lid == LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST {
            self.changed_namespaces.clear();
        }
        if lid == LogPageIdentifier::RESERVATION_NOTIFICATION {
            self.notifications.pop_front();
        }
    }
}

impl Admin {
    /// The part of a log page that `sqe` asks for.
    pub(super) fn log_page(&self, around: &Surroundings<'_, '_>, sqe: &Sqe) -> Result<Answer, Status> {
        let invalid = permanent(StatusCode::INVALID_FIELD_IN_COMMAND);
        // LPA has no pages for single namespaces.
        if !matches!(sqe.nsid, 0 | NSID_ALL) {
            around.namespaces.find(sqe.nsid)?;
            return Err(invalid);
        }
        let page = effects::log_pages(self.identity.oncs()).find(|(lid, _)| *lid == sqe.lid());
        let (lid, element) = *page.ok_or(permanent(StatusCode::INVALID_LOG_PAGE))?;
        let offset = match (sqe.ot(), element) {
            (false, _) if sqe.lpo().is_multiple_of(4) => Some(sqe.lpo()),
            (true, Some(element)) => sqe.lpo().checked_mul(element),
            _ => None,
        };
        let mut bytes = match lid {
            LogPageIdentifier::SUPPORTED_LOG_PAGES => effects::supported_log_pages(self.identity.oncs()),
            LogPageIdentifier::ERROR_INFORMATION => {
                let entries = self.logs.errors.iter();
                let mut bytes: Vec<u8> = entries.flat_map(|entry| entry.as_bytes().to_vec()).collect();
                bytes.resize(ERROR_ENTRIES * size_of::<ErrorInformationLogEntry>(), 0);
                bytes
            }
            LogPageIdentifier::SMART_HEALTH_INFORMATION => self.smart(around).as_bytes().to_vec(),
            LogPageIdentifier::FIRMWARE_SLOT_INFORMATION => self.firmware.log().as_bytes().to_vec(),
            LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST => {
                let nsids = self.logs.changed_namespaces.iter().copied();
                ChangedNamespaceList::from_nsids(nsids).as_bytes().to_vec()
            }
            LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS => {
                if sqe.log_csi() != Csi::NVM {
                    return Err(invalid);
                }
                effects::commands(self.identity.oacs(), around.namespaces.commands())
            }
            LogPageIdentifier::DEVICE_SELF_TEST => self.self_tests.log().as_bytes().to_vec(),
            LogPageIdentifier::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS => effects::features(&self.features),
            LogPageIdentifier::RESERVATION_NOTIFICATION => self.logs.notification().as_bytes().to_vec(),
            LogPageIdentifier::SANITIZE_STATUS => self.sanitize.log(around.board).as_bytes().to_vec(),
            _ => return Err(permanent(StatusCode::INVALID_LOG_PAGE)),
        };
        let offset = offset.filter(|offset| *offset <= bytes.len() as u64).ok_or(invalid)?;
        bytes.drain(..offset as usize);
        let len = sqe.numd().count() * 4;
        bytes.truncate(usize::try_from(len).unwrap_or(usize::MAX));
        Ok(Answer::Data(bytes, len))
    }

    fn smart(&self, around: &Surroundings<'_, '_>) -> SmartLog {
        let counters = around.board.counters.snapshot();
        let health = around.board.health();
        let data_units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).into();
        SmartLog {
            critical_warning: self.critical_warning(around.board, around.namespaces),
            composite_temperature: U16::new(health.temperature),
            available_spare: health.available_spare,
            available_spare_threshold: health.available_spare_threshold,
            percentage_used: health.percentage_used,
            data_units_read: data_units(counters.read_bytes),
            data_units_written: data_units(counters.write_bytes),
            host_read_commands: u128::from(counters.reads).into(),
            host_write_commands: u128::from(counters.writes).into(),
            power_cycles: 1.into(),
            power_on_hours: u128::from(self.power_on_hours()).into(),
            media_and_data_integrity_errors: u128::from(self.logs.media_errors).into(),
            number_of_error_information_log_entries: u128::from(self.logs.error_count).into(),
            ..SmartLog::default()
        }
    }
}
