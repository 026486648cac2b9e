use std::sync::{Arc, Mutex};

use super::*;
use crate::controller::ControllerConfig;
use crate::controller::puppet::{Answer, Puppet};
use crate::controller::quirks::Quirk;
use crate::spec::command::{AdminOpcode, ThresholdType};
use crate::spec::identify::{IdentifyController, Vwc};

#[test]
fn values_go_out_and_come_back() {
    let puppet =
        Puppet::new(IdentifyController { vwc: Vwc::from_bits(1), ..IdentifyController::default() }, |sqe, _| {
            match (sqe.admin_opcode(), sqe.fid()) {
                (AdminOpcode::GET_FEATURES, FeatureIdentifier::VOLATILE_WRITE_CACHE) => Some(Answer::Result(1)),
                (AdminOpcode::GET_FEATURES, FeatureIdentifier::ARBITRATION) => Some(Answer::Result(0x0403_0205)),
                (AdminOpcode::GET_FEATURES, FeatureIdentifier::NUMBER_OF_QUEUES) => Some(Answer::Result(0x0003_0001)),
                (AdminOpcode::GET_FEATURES, FeatureIdentifier::TEMPERATURE_THRESHOLD) => {
                    Some(Answer::Result(sqe.cdw11 | 333))
                }
                (AdminOpcode::GET_FEATURES, FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION) => {
                    Some(Answer::Result(0x103))
                }
                _ => None,
            }
        });
    let mut controller = puppet.controller();
    let before = puppet.fetched(AdminOpcode::SET_FEATURES).len();
    assert!(controller.volatile_write_cache().unwrap());
    controller.set_volatile_write_cache(false).unwrap();
    let arbitration = controller.arbitration().unwrap();
    assert_eq!((arbitration.ab(), arbitration.lpw(), arbitration.mpw(), arbitration.hpw()), (5, 2, 3, 4));
    controller.set_arbitration(arbitration.with_ab(7)).unwrap();
    let queues = controller.number_of_queues().unwrap();
    assert_eq!((queues.nsq().count(), queues.ncq().count()), (2, 4));
    let under = TemperatureThreshold::from_bits(0).with_tmpsel(2).with_thsel(ThresholdType::UNDER).with_tmpth(999);
    assert_eq!(controller.temperature_threshold(under).unwrap(), 333);
    controller.set_temperature_threshold(under).unwrap();
    let events = controller.event_configuration().unwrap();
    assert!(events.attached_namespace_attribute());
    controller.set_event_configuration(events).unwrap();
    let set: Vec<_> = puppet.fetched(AdminOpcode::SET_FEATURES)[before..]
        .iter()
        .map(|sqe| (sqe.fid().raw(), sqe.cdw11, sqe.sv()))
        .collect();
    assert_eq!(set, [(6, 0, false), (1, 0x0403_0207, false), (4, 0x0012_0000 | 999, false), (0x0B, 0x103, false)]);
}

#[test]
fn what_is_not_there_is_not_asked_for() {
    let table: &'static [Quirk] = &[Quirk {
        vendor: 9,
        device: None,
        model: "",
        firmware: "",
        flags: QuirkFlags::NO_TEMPERATURE_THRESHOLD,
        reason: "so the test has it",
    }];
    let puppet = Puppet::new(IdentifyController { vid: 9, ..IdentifyController::default() }, |_, _| None);
    let mut controller = puppet.enable(ControllerConfig { quirks: table, ..ControllerConfig::default() }).unwrap();
    let before = puppet.fetched(AdminOpcode::SET_FEATURES).len();
    assert!(!controller.volatile_write_cache().unwrap());
    controller.set_volatile_write_cache(false).unwrap();
    let not = |error| matches!(error, Err(ControllerError::NotSupported { .. }));
    assert!(not(controller.set_volatile_write_cache(true)));
    assert!(not(controller.set_temperature_threshold(TemperatureThreshold::from_bits(300))));
    assert!(not(controller.set_host_identifier(HostIdentifier::Extended([1; 16]))));
    let nobody = controller.set_host_identifier(HostIdentifier::Short([0; 8]));
    assert!(matches!(nobody, Err(ControllerError::Argument { argument: "host", .. })));
    assert_eq!(puppet.fetched(AdminOpcode::SET_FEATURES).len(), before);
    assert_eq!(puppet.fetched(AdminOpcode::GET_FEATURES).len(), 0);
}

#[test]
fn host_identifiers_of_both_lengths() {
    for (ctratt, host) in [
        (Ctratt::empty(), HostIdentifier::Short(*b"tentpeg1")),
        (Ctratt::HOST_IDENTIFIER_128_BIT, HostIdentifier::Extended(*b"tentpeg-tentpeg1")),
    ] {
        let stored = Arc::new(Mutex::new(Vec::new()));
        let store = Arc::clone(&stored);
        let puppet = Puppet::new(IdentifyController { ctratt, ..IdentifyController::default() }, move |sqe, data| {
            if sqe.fid() != FeatureIdentifier::HOST_IDENTIFIER {
                return None;
            }
            match sqe.admin_opcode() {
                AdminOpcode::SET_FEATURES => *store.lock().unwrap() = data.to_vec(),
                AdminOpcode::GET_FEATURES => return Some(Answer::Data(store.lock().unwrap().clone())),
                _ => {}
            }
            None
        });
        let mut controller = puppet.controller();
        controller.set_host_identifier(host).unwrap();
        assert_eq!(controller.host_identifier().unwrap(), host);
        assert!(stored.lock().unwrap().starts_with(b"tentpeg"));
    }
}
