//! Asynchronous events: which are reported, once of each type, until their log page is read.

use super::super::ModelConfig;
use super::answers::log;
use super::host::{Host, small};
use crate::spec::command::{FeatureIdentifier, LogPageIdentifier, Select, Sqe, TemperatureThreshold, ThresholdType};
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration};
use crate::spec::log::{ChangedNamespaceList, CriticalWarning, ErrorInformationLogEntry, SmartLog};
use crate::spec::status::StatusCode;

const SMART: LogPageIdentifier = LogPageIdentifier::SMART_HEALTH_INFORMATION;

fn configure(host: &mut Host, wanted: AsynchronousEventConfiguration) {
    let fid = FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION;
    assert_eq!(host.code(Sqe::set_features(fid, 0, wanted.bits())), StatusCode::SUCCESS);
    assert_eq!(host.admin(Sqe::get_features(fid, Select::CURRENT, 0)).dw0, wanted.bits() & 0x33F);
}

fn warnings(warnings: CriticalWarning) -> AsynchronousEventConfiguration {
    AsynchronousEventConfiguration::default().with_critical_warnings(warnings)
}

fn threshold(thsel: ThresholdType, kelvins: u16) -> Sqe {
    let word = TemperatureThreshold::default().with_thsel(thsel).with_tmpth(kelvins);
    Sqe::set_features(FeatureIdentifier::TEMPERATURE_THRESHOLD, 0, word.bits())
}

#[test]
fn each_warning_is_an_event_of_its_kind() {
    type Change = fn(&Host);
    let table: [(CriticalWarning, AsynchronousEvent, Change); 6] = [
        (CriticalWarning::AVAILABLE_SPARE, AsynchronousEvent::SPARE_BELOW_THRESHOLD, |host| {
            host.model.health().set_available_spare(9);
        }),
        (CriticalWarning::AVAILABLE_SPARE, AsynchronousEvent::SPARE_BELOW_THRESHOLD, |host| {
            host.model.health().set_available_spare_threshold(101);
        }),
        (CriticalWarning::TEMPERATURE, AsynchronousEvent::TEMPERATURE_THRESHOLD, |host| {
            host.model.health().set_temperature(343);
        }),
        (CriticalWarning::NVM_SUBSYSTEM_RELIABILITY, AsynchronousEvent::NVM_SUBSYSTEM_RELIABILITY, |host| {
            host.model.health().set_critical_warning(CriticalWarning::NVM_SUBSYSTEM_RELIABILITY);
        }),
        (CriticalWarning::READ_ONLY, AsynchronousEvent::NVM_SUBSYSTEM_RELIABILITY, |host| {
            host.model.health().set_critical_warning(CriticalWarning::READ_ONLY);
        }),
        (CriticalWarning::VOLATILE_MEMORY_BACKUP, AsynchronousEvent::NVM_SUBSYSTEM_RELIABILITY, |host| {
            host.model.health().set_critical_warning(CriticalWarning::VOLATILE_MEMORY_BACKUP);
        }),
    ];
    for (warning, event, change) in table {
        let mut host = Host::new(small());
        configure(&mut host, warnings(warning));
        host.request_events(1);
        assert_eq!(host.events(), []);
        change(&host);
        assert_eq!(host.events(), [event], "{warning:?}");
        assert_eq!(host.log::<SmartLog>(SMART).critical_warning, warning);

        let mut host = Host::new(small());
        configure(&mut host, warnings(CriticalWarning::all().difference(warning)));
        host.request_events(1);
        change(&host);
        assert_eq!(host.events(), [], "{warning:?} was not asked for");
        assert_eq!(host.log::<SmartLog>(SMART).critical_warning, warning);
    }
}

#[test]
fn health_shows_in_the_smart_log() {
    let mut host = Host::new(small());
    let health = host.model.health();
    health.set_temperature(320);
    health.set_available_spare(55);
    health.set_available_spare_threshold(50);
    health.set_percentage_used(101);
    let smart = host.log::<SmartLog>(SMART);
    assert_eq!((smart.celsius(), smart.available_spare, smart.available_spare_threshold), (Some(47), 55, 50));
    assert_eq!((smart.percentage_used, smart.critical_warning), (101, CriticalWarning::empty()));
}

#[test]
fn temperature_thresholds_decide_over_and_under() {
    let mut host = Host::new(small());
    configure(&mut host, warnings(CriticalWarning::TEMPERATURE));
    host.request_events(4);
    assert_eq!(host.code(threshold(ThresholdType::OVER, 309)), StatusCode::SUCCESS);
    assert_eq!(host.events(), []);
    assert_eq!(host.code(threshold(ThresholdType::OVER, 308)), StatusCode::SUCCESS);
    assert_eq!(host.events(), [AsynchronousEvent::TEMPERATURE_THRESHOLD], "at the threshold is beyond it");
    // Read, and still warm: no news until it has been cool in between.
    host.log::<SmartLog>(SMART);
    assert_eq!(host.events(), []);
    host.model.health().set_temperature(300);
    host.turns(1);
    host.model.health().set_temperature(310);
    assert_eq!(host.events(), [AsynchronousEvent::TEMPERATURE_THRESHOLD]);
    host.log::<SmartLog>(SMART);
    host.model.health().set_temperature(300);
    assert_eq!(host.code(threshold(ThresholdType::UNDER, 300)), StatusCode::SUCCESS);
    assert_eq!(host.events(), [AsynchronousEvent::TEMPERATURE_THRESHOLD]);
    let get = |thsel, sel| {
        let word = TemperatureThreshold::default().with_thsel(thsel);
        let mut sqe = Sqe::get_features(FeatureIdentifier::TEMPERATURE_THRESHOLD, sel, 0);
        sqe.cdw11 = word.bits();
        sqe
    };
    assert_eq!(host.admin(get(ThresholdType::OVER, Select::CURRENT)).dw0, 308);
    assert_eq!(host.admin(get(ThresholdType::OVER, Select::DEFAULT)).dw0, 343);
    assert_eq!(host.admin(get(ThresholdType::UNDER, Select::CURRENT)).dw0, 300);
    assert_eq!(host.admin(get(ThresholdType::UNDER, Select::DEFAULT)).dw0, 0);
    let sensor = TemperatureThreshold::default().with_tmpsel(1).bits();
    let all = TemperatureThreshold::default().with_tmpsel(0xF).with_tmpth(400).bits();
    let fid = FeatureIdentifier::TEMPERATURE_THRESHOLD;
    host.expect([
        (Sqe::set_features(fid, 0, sensor), StatusCode::INVALID_FIELD_IN_COMMAND),
        (threshold(ThresholdType::from_raw(2), 300), StatusCode::INVALID_FIELD_IN_COMMAND),
        (get(ThresholdType::from_raw(3), Select::CURRENT), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::set_features(fid, 0, all), StatusCode::SUCCESS),
    ]);
    assert_eq!(host.admin(get(ThresholdType::OVER, Select::CURRENT)).dw0, 400);
}

#[test]
fn a_type_is_reported_once_until_its_page_is_read_without_retaining() {
    let mut host = Host::new(small());
    configure(&mut host, warnings(CriticalWarning::all()).with_attached_namespace_attribute(true));
    host.request_events(4);
    host.model.health().set_temperature(400);
    host.model.health().set_available_spare(0);
    host.model.health().report(AsynchronousEvent::PERSISTENT_INTERNAL_ERROR);
    let events = host.events();
    assert_eq!(events.len(), 2, "one of each type: {events:?}");
    assert!(events.contains(&AsynchronousEvent::PERSISTENT_INTERNAL_ERROR));
    // The other warning waits. A reader of another page, or one that retains, does not let it through.
    host.log::<ChangedNamespaceList>(LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST);
    assert!(host.fetch::<SmartLog>(log(SMART, 512).with_rae(true)).is_ok());
    assert_eq!(host.events(), []);
    host.model.health().set_critical_warning(CriticalWarning::NVM_SUBSYSTEM_RELIABILITY);
    assert_eq!(host.events(), []);
    // Who reads the page knows all of it; what comes afterwards is news.
    host.log::<SmartLog>(SMART);
    assert_eq!(host.events(), []);
    host.model.health().set_available_spare(100);
    host.turns(1);
    host.model.health().set_available_spare(1);
    assert_eq!(host.events(), [AsynchronousEvent::SPARE_BELOW_THRESHOLD]);
}

#[test]
fn an_event_waits_for_a_request_and_is_kept_once() {
    let mut host = Host::new(small());
    configure(&mut host, AsynchronousEventConfiguration::default().with_attached_namespace_attribute(true));
    for _ in 0..3 {
        host.model.namespaces().resize(1, 8 << 20).unwrap();
        host.turns(1);
    }
    host.request_events(2);
    assert_eq!(host.events(), [AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED]);
}

#[test]
fn a_reset_forgets_requests_events_and_what_was_asked_for() {
    let mut host = Host::new(small());
    configure(&mut host, warnings(CriticalWarning::all()));
    host.model.health().set_temperature(400);
    host.turns(2);
    host.disable();
    host.enable();
    host.request_events(1);
    assert_eq!(host.events(), []);
    // It is still hot, and now somebody wants to know.
    let wanted = warnings(CriticalWarning::TEMPERATURE).bits();
    let fid = FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION;
    assert_eq!(host.code(Sqe::set_features(fid, 0, wanted)), StatusCode::SUCCESS);
    assert_eq!(host.events(), [AsynchronousEvent::TEMPERATURE_THRESHOLD]);
}

#[test]
fn errors_that_are_no_commands_are_events_with_an_entry_in_the_log() {
    let mut host = Host::new(small());
    let pair = host.io_pair(1, 4);
    let nobody = host.raw_pair(2, 4);
    host.request_events(1);
    pair.sq_bell.ring(4);
    assert_eq!(host.events(), [AsynchronousEvent::INVALID_DOORBELL_WRITE_VALUE]);
    nobody.sq_bell.ring(0);
    host.request_events(1);
    assert_eq!(host.events(), [], "an event of that type has been reported");
    let page = LogPageIdentifier::ERROR_INFORMATION;
    let entries = host.log::<[ErrorInformationLogEntry; 3]>(page);
    assert_eq!(
        entries.map(|entry| (entry.error_count, entry.sqid, entry.cid)),
        [(2, 0xFFFF, 0xFFFF), (1, 0xFFFF, 0xFFFF), (0, 0, 0)]
    );
    assert_eq!(entries[0].status_info.status().code(), StatusCode::INVALID_QUEUE_IDENTIFIER);
    assert_eq!(host.events(), [], "who has read the page knows");
    nobody.cq_bell.ring(0);
    assert_eq!(host.events(), [AsynchronousEvent::WRITE_TO_INVALID_DOORBELL_REGISTER]);
    host.log::<[ErrorInformationLogEntry; 1]>(page);

    // A head that passes the tail can only be told by the controller.
    host.request_events(1);
    pair.cq_bell.ring(3);
    pair.sq_bell.ring(1);
    assert_eq!(host.events(), [AsynchronousEvent::INVALID_DOORBELL_WRITE_VALUE]);
}

#[test]
fn health_may_change_from_any_thread() {
    let mut host = Host::driven(ModelConfig { nn: 9, ..small() }, super::super::Drive::Threaded);
    configure(&mut host, warnings(CriticalWarning::all()).with_attached_namespace_attribute(true));
    for cid in 100..102 {
        host.admin.push(Sqe::asynchronous_event_request().with_cid(cid));
    }
    host.admin.ring();
    std::thread::scope(|scope| {
        scope.spawn(|| host.model.health().set_temperature(400));
        scope.spawn(|| host.model.namespaces().add(2, 1 << 20, 512).unwrap());
    });
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(host.admin.take().map(|cqe| AsynchronousEvent::from_bits(cqe.dw0)));
        std::thread::yield_now();
    }
    assert!(events.contains(&AsynchronousEvent::TEMPERATURE_THRESHOLD), "{events:?}");
    assert!(events.contains(&AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED), "{events:?}");
}
