//! Asynchronous events: what the controller reports of itself (NVM Express Base 2.1, 5.1.2).
//!
//! Requests are kept in the controller by the [admin queue](super::admin). Each type of event is reported once and then
//! not again until its log page has been read: [`Controller::poll_events`] reads it, which says what happened and lets
//! the next one come.

use super::admin::AdminQueue;
use super::{Controller, ControllerError, logs};
use crate::spec::ZeroesBased;
use crate::spec::command::{FeatureIdentifier, LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration, AsynchronousEventType};
use crate::spec::identify::{IdentifyController, Oaes};
use crate::spec::log::{CriticalWarning, ErrorInformationLogEntry, FirmwareSlotLog, SanitizeStatusLog, SmartLog};
use crate::spec::log::{ReservationNotificationLog, ReservationNotificationType};
use crate::spec::status::Status;

/// Dwords that are read of a log page that this driver knows nothing of: enough to clear its event.
const UNKNOWN_PAGE: ZeroesBased<u32> = ZeroesBased::<u32>::from_raw(127);

/// The most notifications of reservations that are read for one event.
const MAX_NOTIFICATIONS: usize = 256;

/// Which namespaces have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangedNamespaces {
    /// These: attached, detached, or of other attributes.
    These(Vec<u32>),
    /// More than a log page names, or the page makes no sense: look at all of them.
    Any,
}

/// Something that the controller has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Namespaces came, went or changed: [`Controller::rescan`] says what each is like now.
    NamespacesChanged(ChangedNamespaces),
    /// Its health gives reason to worry.
    Health {
        /// What was reported.
        event: AsynchronousEvent,
        /// How it is.
        log: Box<SmartLog>,
    },
    /// An error that belongs to no command.
    Error {
        /// What was reported.
        event: AsynchronousEvent,
        /// The newest entry of the Error Information log, where there is one.
        newest: Option<Box<ErrorInformationLogEntry>>,
    },
    /// It begins to activate a firmware image, and may stop to process commands for a while (CSTS.PP).
    FirmwareActivationStarting(Box<FirmwareSlotLog>),
    /// A sanitize operation has ended.
    Sanitized {
        /// What was reported.
        event: AsynchronousEvent,
        /// How it ended.
        log: Box<SanitizeStatusLog>,
    },
    /// Other hosts' commands have changed reservations: each notification, the oldest first.
    Reservations(Vec<ReservationNotificationLog>),
    /// Something that this driver knows nothing of.
    Unknown(AsynchronousEvent),
    /// Something whose log page the controller refuses: it will not be reported again.
    Unread {
        /// What was reported.
        event: AsynchronousEvent,
        /// What the controller says to the reading of the log page.
        status: Status,
    },
}

/// What came of the requests for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounters {
    /// Events that were delivered.
    pub delivered: u64,
    /// Of them: those that this driver knows nothing of.
    pub unknown: u64,
    /// Of them: those whose log page could not be read.
    pub unread: u64,
    /// Changed namespace lists that made no sense.
    pub bad_lists: u64,
    /// Requests that the controller ended with an error, and that are not made again.
    pub refused: u64,
    /// Events that were dropped since too many waited: more than any sound controller reports.
    pub overrun: u64,
}

impl Controller {
    /// Delivers what the controller has reported since the last time, with the log page behind it. Does not wait for an
    /// event; reading a log page takes as long as an admin command does.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer. What was delivered before stays delivered; the event
    /// that was about to be is lost, as all others are with a controller that must be enabled anew.
    pub fn poll_events(&mut self, mut deliver: impl FnMut(Event)) -> Result<usize, ControllerError> {
        let reported = self.admin.take_events();
        let count = reported.len();
        for event in reported {
            let event = self.read_event(event)?;
            let counters = &mut self.event_counters;
            counters.delivered += 1;
            counters.unknown += u64::from(matches!(event, Event::Unknown(_)));
            counters.unread += u64::from(matches!(event, Event::Unread { .. }));
            deliver(event);
        }
        Ok(count)
    }

    /// What came of the requests for events.
    pub fn event_counters(&self) -> EventCounters {
        let requests = self.admin.event_requests();
        EventCounters {
            refused: self.event_counters.refused + requests.refused,
            overrun: self.event_counters.overrun + requests.overrun,
            ..self.event_counters
        }
    }

    /// Says which events are wanted, and leaves requests for them in the controller.
    pub(super) fn listen(&mut self) -> Result<(), ControllerError> {
        let most = self.identify.aerl.count().min(self.config.event_requests.into());
        if most == 0 {
            return Ok(());
        }
        let value = wanted(&self.identify).bits();
        let set = Sqe::set_features(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, value);
        match self.admin.execute(set) {
            // One that cannot be configured may still report.
            Ok(_) | Err(ControllerError::Command { .. }) => {}
            Err(error) => return Err(error),
        }
        self.admin.request_events(most as usize);
        Ok(())
    }

    /// Takes over what a former admin queue has counted.
    pub(super) fn keep_event_counters(&mut self) {
        self.event_counters = self.event_counters();
    }

    fn read_event(&mut self, event: AsynchronousEvent) -> Result<Event, ControllerError> {
        match read(&mut self.admin, self.identify.nn, event) {
            Ok(event) => Ok(event),
            Err(ControllerError::Command { status, .. }) => Ok(Event::Unread { event, status }),
            Err(ControllerError::NamespaceList { .. }) => {
                self.event_counters.bad_lists += 1;
                Ok(Event::NamespacesChanged(ChangedNamespaces::Any))
            }
            Err(error) => Err(error),
        }
    }
}

/// Each event that is reported only where it is asked for, as far as this controller has it.
fn wanted(controller: &IdentifyController) -> AsynchronousEventConfiguration {
    let warnings = CriticalWarning::AVAILABLE_SPARE
        | CriticalWarning::TEMPERATURE
        | CriticalWarning::NVM_SUBSYSTEM_RELIABILITY
        | CriticalWarning::READ_ONLY
        | CriticalWarning::VOLATILE_MEMORY_BACKUP;
    AsynchronousEventConfiguration::from_bits(0)
        .with_critical_warnings(warnings)
        .with_attached_namespace_attribute(controller.oaes.contains(Oaes::ATTACHED_NAMESPACE_ATTRIBUTE))
        .with_firmware_activation(controller.oaes.contains(Oaes::FIRMWARE_ACTIVATION))
}

/// Reads the log page behind `event`, which clears it. The page is the one that belongs to the event, whatever page the
/// controller names.
fn read(admin: &mut AdminQueue, nn: u32, event: AsynchronousEvent) -> Result<Event, ControllerError> {
    let is = |known: AsynchronousEvent| {
        (event.event_type(), event.information()) == (known.event_type(), known.information())
    };
    Ok(match event.event_type() {
        AsynchronousEventType::ERROR_STATUS => {
            let entry: ErrorInformationLogEntry = admin.log_page(LogPageIdentifier::ERROR_INFORMATION, NSID_ALL)?;
            Event::Error { event, newest: (entry.error_count != 0).then(|| Box::new(entry)) }
        }
        AsynchronousEventType::SMART_HEALTH_STATUS => {
            let log = admin.log_page(LogPageIdentifier::SMART_HEALTH_INFORMATION, NSID_ALL)?;
            Event::Health { event, log: Box::new(log) }
        }
        _ if is(AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED) => {
            Event::NamespacesChanged(logs::changed_namespaces(admin, nn)?)
        }
        _ if is(AsynchronousEvent::FIRMWARE_ACTIVATION_STARTING) => {
            let log = admin.log_page(LogPageIdentifier::FIRMWARE_SLOT_INFORMATION, NSID_ALL)?;
            Event::FirmwareActivationStarting(Box::new(log))
        }
        _ if is(AsynchronousEvent::SANITIZE_OPERATION_COMPLETED)
            || is(AsynchronousEvent::SANITIZE_OPERATION_COMPLETED_WITH_UNEXPECTED_DEALLOCATION) =>
        {
            let log = admin.log_page(LogPageIdentifier::SANITIZE_STATUS, NSID_ALL)?;
            Event::Sanitized { event, log: Box::new(log) }
        }
        _ if is(AsynchronousEvent::RESERVATION_LOG_PAGE_AVAILABLE) => Event::Reservations(notifications(admin)?),
        _ => {
            if event.log_page() != LogPageIdentifier::SUPPORTED_LOG_PAGES {
                // Read only so that it is cleared; what it holds is thrown away.
                admin.fetch_into(Sqe::get_log_page(event.log_page(), NSID_ALL, UNKNOWN_PAGE), &mut [])?;
            }
            Event::Unknown(event)
        }
    })
}

/// Reads notifications of reservations until the controller says that there is none left. Bounded: what it counts is its
/// word.
fn notifications(admin: &mut AdminQueue) -> Result<Vec<ReservationNotificationLog>, ControllerError> {
    let mut logs = Vec::new();
    while logs.len() < MAX_NOTIFICATIONS {
        let log: ReservationNotificationLog = admin.log_page(LogPageIdentifier::RESERVATION_NOTIFICATION, NSID_ALL)?;
        if log.kind == ReservationNotificationType::EMPTY {
            break;
        }
        let last = log.available == 0;
        logs.push(log);
        if last {
            break;
        }
    }
    Ok(logs)
}

#[cfg(test)]
mod tests;
