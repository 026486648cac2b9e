//! Requests for events beside commands, and what is delivered of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use zerocopy::FromZeros;

use super::*;
use crate::controller::ControllerConfig;
use crate::controller::puppet::{Answer, Puppet};
use crate::spec::ZeroesBased;
use crate::spec::command::AdminOpcode;
use crate::spec::log::ChangedNamespaceList;
use crate::spec::status::StatusCode;

fn identify() -> IdentifyController {
    IdentifyController {
        nn: 8,
        aerl: ZeroesBased::<u8>::from_raw(3),
        oaes: Oaes::ATTACHED_NAMESPACE_ATTRIBUTE,
        ..IdentifyController::default()
    }
}

/// Log pages as a controller would return them.
fn log_pages(sqe: &Sqe, _: &[u8]) -> Option<Answer> {
    if sqe.admin_opcode() != AdminOpcode::GET_LOG_PAGE {
        return None;
    }
    assert!(!sqe.rae(), "reading clears the event");
    match sqe.lid() {
        LogPageIdentifier::ERROR_INFORMATION => {
            Answer::page(&ErrorInformationLogEntry { error_count: 5, ..ErrorInformationLogEntry::default() })
        }
        LogPageIdentifier::SMART_HEALTH_INFORMATION => {
            Answer::page(&SmartLog { percentage_used: 99, ..SmartLog::default() })
        }
        LogPageIdentifier::FIRMWARE_SLOT_INFORMATION => {
            Answer::page(&FirmwareSlotLog { afi: 2, ..FirmwareSlotLog::default() })
        }
        LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST => Answer::page(&ChangedNamespaceList::from_nsids([2, 7])),
        LogPageIdentifier::SANITIZE_STATUS => {
            Answer::page(&SanitizeStatusLog { sprog: 0xFFFF, ..SanitizeStatusLog::default() })
        }
        // One that counts for ever: what is read of it is bounded.
        LogPageIdentifier::RESERVATION_NOTIFICATION => Answer::page(&ReservationNotificationLog {
            log_page_count: 1,
            kind: ReservationNotificationType::RESERVATION_RELEASED,
            available: 255,
            nsid: 1,
            ..ReservationNotificationLog::default()
        }),
        LogPageIdentifier::TELEMETRY_CONTROLLER_INITIATED => Some(Answer::Data(vec![0; 64])),
        _ => Some(Answer::Status(StatusCode::INVALID_LOG_PAGE)),
    }
}

fn poll(controller: &mut Controller) -> Vec<Event> {
    let mut events = Vec::new();
    controller.poll_events(|event| events.push(event)).unwrap();
    events
}

#[test]
fn each_event_comes_with_its_page_and_is_asked_for_again() {
    let puppet = Puppet::new(identify(), log_pages);
    let mut controller = puppet.controller();
    assert_eq!(poll(&mut controller), []);
    assert!(controller.smart_log().is_ok());
    assert_eq!(puppet.held(), 4);
    let configuration = puppet.fetched(AdminOpcode::SET_FEATURES)[1];
    assert_eq!(
        (configuration.fid().raw(), configuration.cdw11),
        (0x0B, 0x11F),
        "all warnings, namespaces, no firmware"
    );

    use AsynchronousEvent as Is;
    for event in [
        Is::TEMPERATURE_THRESHOLD,
        Is::PERSISTENT_INTERNAL_ERROR,
        Is::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED,
        Is::FIRMWARE_ACTIVATION_STARTING,
        Is::SANITIZE_OPERATION_COMPLETED,
        Is::RESERVATION_LOG_PAGE_AVAILABLE,
        Is::TELEMETRY_LOG_CHANGED,
    ] {
        puppet.report(event.bits());
        let events = poll(&mut controller);
        let [only] = &events[..] else { panic!("{event}: {events:?}") };
        let right = match only {
            Event::Health { event: is, log } => *is == event && log.percentage_used == 99,
            Event::Error { event: is, newest } => *is == event && newest.as_ref().unwrap().error_count == 5,
            Event::NamespacesChanged(changed) => *changed == ChangedNamespaces::These(vec![2, 7]),
            Event::FirmwareActivationStarting(log) => log.active_slot() == 2,
            Event::Sanitized { event: is, log } => *is == event && log.sprog == 0xFFFF,
            Event::Reservations(logs) => logs.len() == MAX_NOTIFICATIONS,
            Event::Unknown(is) => *is == event && event == Is::TELEMETRY_LOG_CHANGED,
            Event::Unread { .. } => false,
        };
        assert!(right, "{event}: {only:?}");
        assert!(controller.smart_log().is_ok());
        assert_eq!(puppet.held(), 4, "asked for again");
    }
    let counters = EventCounters { delivered: 7, unknown: 1, ..EventCounters::default() };
    assert_eq!(controller.event_counters(), counters);
    // Requests that are still out are in nobody's way.
    controller.shutdown().unwrap();
}

#[test]
fn an_event_in_the_middle_of_a_command_is_kept() {
    let puppet = Puppet::new(identify(), log_pages);
    let mut controller = puppet.controller();
    controller.smart_log().unwrap();
    // Both are in the queue when the next command looks.
    puppet.report(AsynchronousEvent::SPARE_BELOW_THRESHOLD.bits());
    puppet.report(AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED.bits());
    assert_eq!(controller.smart_log().unwrap().percentage_used, 99, "the command's own completion was found");
    assert_eq!(puppet.held(), 4, "both are asked for again while the command is waited for");
    assert_eq!(poll(&mut controller).len(), 2);
}

#[test]
fn a_page_that_is_refused_or_makes_no_sense() {
    let bad = Arc::new(AtomicU32::new(0));
    let which = Arc::clone(&bad);
    let puppet = Puppet::new(identify(), move |sqe, _| {
        if sqe.admin_opcode() != AdminOpcode::GET_LOG_PAGE {
            return None;
        }
        let mut list = ChangedNamespaceList::new_zeroed();
        match which.load(Ordering::Relaxed) {
            0 => return Some(Answer::Status(StatusCode::INVALID_LOG_PAGE)),
            1 => list.nsid[..2].copy_from_slice(&[3, 3]),
            2 => list.nsid[0] = 9,
            3 => list.nsid[0] = NSID_ALL,
            _ => list.nsid.fill(1),
        }
        Answer::page(&list)
    });
    let mut controller = puppet.controller();
    controller.smart_log().unwrap_err();
    let changed = AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED;
    for (kind, bad_lists) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3)] {
        bad.store(kind, Ordering::Relaxed);
        puppet.report(changed.bits());
        let expected = if kind == 0 {
            Event::Unread { event: changed, status: StatusCode::INVALID_LOG_PAGE.into() }
        } else {
            Event::NamespacesChanged(ChangedNamespaces::Any)
        };
        assert_eq!(poll(&mut controller), [expected], "kind {kind}");
        assert_eq!(controller.event_counters().bad_lists, bad_lists, "kind {kind}");
    }
    assert_eq!((controller.event_counters().unread, controller.event_counters().delivered), (1, 5));
}

#[test]
fn requests_that_are_refused_are_not_made_again() {
    let puppet = Puppet::new(identify(), |sqe, data| match sqe.admin_opcode() {
        AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => Some(Answer::Status(StatusCode::INVALID_COMMAND_OPCODE)),
        _ => log_pages(sqe, data),
    });
    let mut controller = puppet.controller();
    for _ in 0..5 {
        controller.smart_log().unwrap();
        assert_eq!(poll(&mut controller), []);
    }
    assert_eq!(controller.event_counters().refused, 4);
    assert_eq!(puppet.fetched(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST).len(), 4);
}

/// A device that always has one more event neither stops a command nor fills memory.
#[test]
fn events_without_end() {
    let puppet = Puppet::new(identify(), |sqe, data| match sqe.admin_opcode() {
        AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => {
            Some(Answer::Result(AsynchronousEvent::TEMPERATURE_THRESHOLD.bits()))
        }
        _ => log_pages(sqe, data),
    });
    let mut controller = puppet.controller();
    for _ in 0..50 {
        controller.smart_log().unwrap();
    }
    assert!(controller.event_counters().overrun > 0);
    let delivered = poll(&mut controller).len();
    assert!((1..=64).contains(&delivered), "{delivered}");
}

#[test]
fn an_admin_queue_too_small_for_events_has_none() {
    let puppet = Puppet::new(identify(), log_pages);
    let config = |admin_entries, event_requests| ControllerConfig {
        admin_entries,
        event_requests,
        ..ControllerConfig::default()
    };
    for (config, held) in
        [(config(2, 4), 0), (config(3, 4), 0), (config(4, 4), 1), (config(32, 2), 2), (config(32, 0), 0)]
    {
        let mut controller = puppet.enable(config).unwrap();
        for _ in 0..10 {
            controller.smart_log().unwrap();
        }
        assert_eq!(puppet.held(), held);
    }
}
