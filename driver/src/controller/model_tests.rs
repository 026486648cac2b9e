//! Admin commands and events against the model, which checks them as a device does.

use std::sync::Arc;
use std::time::Duration;

use super::quirks::{Quirk, QuirkFlags};
use super::*;
use crate::dma::DmaSpace;
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu, firmware_image};
use crate::queue::MetadataPlacement;
use crate::spec::command::{
    Arbitration, CommitAction, NSID_ALL, SanitizeAction, SecureEraseSettings, SelfTestCode, TemperatureThreshold,
};
use crate::spec::events::AsynchronousEvent;
use crate::spec::log::{CriticalWarning, SanitizeState, SelfTestResultCode};

struct Rig {
    controller: Controller,
    // After the controller: it is told to stop before the model that it is goes away.
    model: Model,
    _space: Arc<DmaSpace>,
}

fn rig_with(config: ModelConfig, driver: ControllerConfig) -> Rig {
    let iommu = SoftwareIommu::new();
    let model = Model::new(config, Drive::Stepped, &iommu).unwrap();
    let controller = Controller::enable(model.function(), driver).unwrap();
    Rig { controller, model, _space: iommu.space() }
}

fn rig(config: ModelConfig) -> Rig {
    rig_with(config, ControllerConfig::default())
}

impl Rig {
    /// What was reported after some turns.
    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..64 {
            self.model.turn();
            self.controller.poll_events(|event| events.push(event)).unwrap();
        }
        events
    }

    #[track_caller]
    fn end(self) {
        self.controller.shutdown().unwrap();
        assert_eq!(self.model.violations(), []);
    }
}

#[test]
fn namespaces_come_change_and_go() {
    let mut rig = rig(ModelConfig { nn: 2000, ..ModelConfig::default() });
    assert_eq!(rig.events(), []);
    for round in 0..3 {
        rig.model.namespaces().add(1500, 1 << 20, 512).unwrap();
        let [Event::NamespacesChanged(ChangedNamespaces::These(changed))] = &rig.events()[..] else {
            panic!("{round}")
        };
        assert_eq!(changed[..], [1500]);
        assert_eq!(rig.controller.active_namespaces().unwrap(), [1, 1500]);
        let namespace = rig.controller.rescan(1500).unwrap().unwrap();
        assert_eq!(namespace.limits.unwrap().nsze(), 2048);
        let identity = rig.controller.namespace_identity(&namespace).unwrap();
        assert!(identity.uuid.is_some() && identity.csi.is_some());

        rig.model.namespaces().resize(1500, 2 << 20).unwrap();
        assert_eq!(rig.events().len(), 1);
        assert_eq!(rig.controller.rescan(1500).unwrap().unwrap().limits.unwrap().nsze(), 4096);
        rig.model.namespaces().remove(1500).unwrap();
        assert_eq!(rig.events().len(), 1);
        assert!(rig.controller.rescan(1500).unwrap().is_none());
    }
    rig.end();
}

#[test]
fn health_errors_and_what_nobody_knows() {
    let mut rig = rig(ModelConfig::default());
    rig.events();
    rig.model.health().set_critical_warning(CriticalWarning::READ_ONLY);
    let events = rig.events();
    let [Event::Health { log, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(log.critical_warning.contains(CriticalWarning::READ_ONLY));

    let threshold = TemperatureThreshold::from_bits(0).with_tmpth(320);
    rig.controller.set_temperature_threshold(threshold).unwrap();
    assert_eq!(rig.controller.temperature_threshold(threshold).unwrap(), 320);
    rig.model.health().set_temperature(330);
    let events = rig.events();
    let [Event::Health { event, log }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.information(), log.celsius()), (1, Some(57)));

    rig.model.health().report(AsynchronousEvent::TRANSIENT_INTERNAL_ERROR);
    assert!(matches!(rig.events()[..], [Event::Error { .. }]));
    assert_eq!(rig.controller.event_counters().delivered, 3);
    rig.end();
}

#[test]
fn features_are_what_they_were_set_to() {
    let mut rig = rig(ModelConfig::default());
    let controller = &mut rig.controller;
    assert!(controller.volatile_write_cache().unwrap());
    controller.set_volatile_write_cache(false).unwrap();
    assert!(!controller.volatile_write_cache().unwrap());
    let arbitration = Arbitration::from_bits(0).with_ab(3);
    controller.set_arbitration(arbitration).unwrap();
    assert_eq!(controller.arbitration().unwrap().ab(), 3);
    assert!(controller.event_configuration().unwrap().attached_namespace_attribute());
    assert!(controller.number_of_queues().unwrap().nsq().count() >= 8);
    let host = HostIdentifier::Extended(*b"tentpeg-tentpeg1");
    controller.set_host_identifier(host).unwrap();
    assert_eq!(controller.host_identifier().unwrap(), host);
    rig.end();
}

#[test]
fn format_sanitize_and_self_test() {
    let mut rig = rig(ModelConfig { size: 1 << 20, ..ModelConfig::default() });
    let before = rig.controller.rescan(1).unwrap().unwrap();
    let of_512 = before.identify.lbaf.iter().position(|format| (format.lbads, format.ms) == (9, 0)).unwrap();
    let settings = FormatSettings {
        format: of_512 as u8,
        metadata: MetadataPlacement::Separate,
        protection: None,
        secure_erase: SecureEraseSettings::USER_DATA,
    };
    let after = rig.controller.format_nvm(&before, settings, Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!((before.limits.unwrap().lba_size(), after.limits.unwrap().lba_size()), (4096, 512));

    rig.events();
    rig.controller.sanitize(SanitizeSettings::new(SanitizeAction::BLOCK_ERASE)).unwrap();
    let events = rig.events();
    let done =
        |event: &Event| matches!(event, Event::Sanitized { log, .. } if log.sstat.state() == SanitizeState::SUCCEEDED);
    assert!(events.iter().any(done), "{events:?}");
    assert_eq!(rig.controller.sanitize_status().unwrap().sstat.state(), SanitizeState::SUCCEEDED);

    rig.controller.device_self_test(NSID_ALL, SelfTestCode::SHORT).unwrap();
    rig.events();
    let log = rig.controller.device_self_test_log().unwrap();
    assert_eq!((log.current(), log.results[0].status.result()), (None, SelfTestResultCode::COMPLETED));
    rig.end();
}

#[test]
fn firmware_and_logs() {
    let mut rig = rig(ModelConfig::default());
    rig.controller.download_firmware(&firmware_image("2.5", 3 * 4096)).unwrap();
    let slots = rig.controller.identify().frmw >> 1 & 7;
    let activation = rig.controller.commit_firmware(slots, CommitAction::REPLACE).unwrap();
    assert_eq!(activation, FirmwareActivation::AsAsked);
    assert_eq!(rig.controller.firmware_slot_log().unwrap().revision(slots).as_deref(), Some("2.5"));
    let error = rig.controller.rescan(77).unwrap();
    assert!(error.is_none(), "beyond NN: {error:?}");
    let errors = rig.controller.error_log(usize::MAX).unwrap();
    assert!(!errors.is_empty());
    let effects = rig.controller.commands_supported_and_effects().unwrap();
    assert!(effects.admin[0x80].contains(crate::spec::log::CommandEffects::SUPPORTED));
    assert_eq!(rig.controller.changed_namespaces().unwrap(), ChangedNamespaces::These(vec![]));
    rig.end();
}

#[test]
fn a_model_by_its_name_is_known_to_be_different() {
    let table: &'static [Quirk] = &[
        Quirk {
            vendor: 0,
            device: None,
            model: "Tentpeg",
            firmware: "",
            flags: QuirkFlags::ONE_COMMAND,
            reason: "a test",
        },
        Quirk { vendor: 0, device: None, model: "Other", firmware: "", flags: QuirkFlags::NO_SGL, reason: "a test" },
    ];
    let driver = ControllerConfig { quirks: table, ..ControllerConfig::default() };
    let rig = rig_with(ModelConfig::default(), driver);
    assert_eq!(rig.controller.quirks().flags(), QuirkFlags::ONE_COMMAND);
    assert_eq!(rig.controller.limits().max_queue_entries, 2);
    rig.end();
}

/// Requests for events do not survive a reset; they are made again, and what was counted stays counted.
#[test]
fn events_after_a_recovery() {
    let mut rig = rig(ModelConfig { nn: 9, ..ModelConfig::default() });
    rig.events();
    rig.model.namespaces().add(2, 1 << 20, 4096).unwrap();
    assert_eq!(rig.events().len(), 1);
    let recovered = rig.controller.recover::<()>(&mut [], &mut |()| (), "a test".to_owned());
    assert!(matches!(recovered, Attended::Recovered { .. }), "{recovered:?}");
    rig.model.namespaces().remove(2).unwrap();
    assert_eq!(rig.events().len(), 1);
    assert_eq!(rig.controller.event_counters().delivered, 2);
    rig.end();
}
