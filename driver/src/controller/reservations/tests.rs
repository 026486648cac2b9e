//! Two drivers on the two controllers of a subsystem.

use super::*;
use crate::controller::{Attended, ControllerConfig, Event};
use crate::model::faults::{Action, CommandQueue, Rule, When};
use crate::model::{Drive, IoCommandsConfig, Model, ModelConfig, SoftwareIommu, Subsystem};
use crate::spec::log::ReservationNotificationType;

const EXCLUSIVE: ReservationType = ReservationType::EXCLUSIVE_ACCESS;

struct Rig {
    controller: Controller,
    pair: QueuePair<u32>,
    namespace: Namespace,
    // After the controller: it is told to stop before the model that it is goes away.
    model: Model,
}

fn rig(subsystem: &mut Subsystem, host: HostIdentifier) -> Rig {
    rig_with(subsystem, host, ControllerConfig::default())
}

fn rig_with(subsystem: &mut Subsystem, host: HostIdentifier, config: ControllerConfig) -> Rig {
    let iommu = SoftwareIommu::new();
    let model = subsystem.add_controller(Drive::Stepped, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), config).unwrap();
    controller.set_host_identifier(host).unwrap();
    let namespace = controller.namespaces().unwrap().remove(0);
    let pair = controller.create_queue_pair(8).unwrap();
    Rig { controller, pair, namespace, model }
}

fn rigs(hosts: [HostIdentifier; 2]) -> [Rig; 2] {
    let io_commands = IoCommandsConfig { reservations: true, ..IoCommandsConfig::default() };
    let mut subsystem = Subsystem::new(ModelConfig { io_commands, ..ModelConfig::default() }).unwrap();
    hosts.map(|host| rig(&mut subsystem, host))
}

impl Rig {
    fn register(&mut self, change: KeyChange) -> Result<(), ControllerError> {
        let Self { controller, pair, namespace, .. } = self;
        controller.register_reservation_key(pair, namespace, change, ChangePersistence::NO_CHANGE)
    }

    fn acquire(&mut self, rtype: ReservationType, key: u64) -> Result<(), ControllerError> {
        self.controller.acquire_reservation(&mut self.pair, &self.namespace, rtype, key)
    }

    fn preempt(&mut self, key: u64, preempted: u64) -> Result<(), ControllerError> {
        let Self { controller, pair, namespace, .. } = self;
        controller.preempt_reservation(pair, namespace, EXCLUSIVE, (key, preempted), true)
    }

    fn report(&mut self) -> ReservationReport {
        self.controller.reservation_report(&mut self.pair, &self.namespace).unwrap()
    }

    /// The status of a Flush.
    fn flush(&mut self) -> StatusCode {
        self.pair.submit(Sqe::flush(1), &[], 0).unwrap();
        self.pair.ring();
        let mut status = None;
        while status.is_none() {
            self.model.turn();
            self.pair.poll(1, |completion| status = Some(completion.status));
        }
        status.unwrap().code()
    }
}

#[track_caller]
fn conflict(outcome: Result<(), ControllerError>) {
    let Err(ControllerError::Command { status, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(status.code(), StatusCode::RESERVATION_CONFLICT);
}

#[test]
fn a_second_host_is_fenced_reported_and_takes_over() {
    let hosts = [[0xA1; 16], [0xB2; 16]].map(HostIdentifier::Extended);
    let [mut first, mut second] = rigs(hosts);
    first.register(KeyChange::Register { new: 11 }).unwrap();
    first.acquire(EXCLUSIVE, 11).unwrap();
    assert_eq!((first.flush(), second.flush()), (StatusCode::SUCCESS, StatusCode::RESERVATION_CONFLICT));
    conflict(second.acquire(EXCLUSIVE, 22));
    // Who is in the way is told by the report.
    let registered = Registered { cntlid: Some(1), host: hosts[0], key: 11, holder: true };
    let report =
        ReservationReport { generation: 1, rtype: Some(EXCLUSIVE), persistent: false, registered: vec![registered] };
    assert_eq!(second.report(), report);

    second.register(KeyChange::Register { new: 22 }).unwrap();
    conflict(second.acquire(EXCLUSIVE, 22));
    conflict(second.preempt(22, 33));
    second.preempt(22, 11).unwrap();
    assert_eq!((first.flush(), second.flush()), (StatusCode::RESERVATION_CONFLICT, StatusCode::SUCCESS));
    // The former holder is told.
    let mut events = Vec::new();
    for _ in 0..4 {
        first.model.turn();
        first.controller.poll_events(|event| events.push(event)).unwrap();
    }
    let [Event::Reservations(logs)] = &events[..] else { panic!("{events:?}") };
    let told: Vec<_> = logs.iter().map(|log| (log.kind, log.nsid)).collect();
    assert_eq!(told, [(ReservationNotificationType::REGISTRATION_PREEMPTED, 1)]);

    let Rig { controller, pair, namespace, .. } = &mut second;
    controller.release_reservation(pair, namespace, EXCLUSIVE, 22).unwrap();
    assert_eq!(first.flush(), StatusCode::SUCCESS);
    let Rig { controller, pair, namespace, .. } = &mut second;
    controller.clear_reservations(pair, namespace, 22).unwrap();
    assert_eq!((second.report().rtype, second.report().registered), (None, vec![]));
    for rig in [first, second] {
        rig.controller.shutdown().unwrap();
        assert_eq!(rig.model.violations(), []);
    }
}

#[test]
fn one_host_is_itself_on_both_controllers() {
    let host = HostIdentifier::Short([7; 8]);
    let [mut first, mut second] = rigs([host; 2]);
    first.register(KeyChange::Register { new: 5 }).unwrap();
    second.register(KeyChange::Replace { current: None, new: 6 }).unwrap();
    second.acquire(EXCLUSIVE, 6).unwrap();
    assert_eq!((first.flush(), second.flush()), (StatusCode::SUCCESS, StatusCode::SUCCESS));
    // Identifiers of 64 bits are in the short structure.
    let entry = |cntlid| Registered { cntlid: Some(cntlid), host, key: 6, holder: true };
    assert_eq!(first.report().registered, [entry(1), entry(2)]);
    conflict(first.register(KeyChange::Unregister { current: Some(5) }));
    first.register(KeyChange::Unregister { current: Some(6) }).unwrap();
    assert_eq!(second.report().rtype, None);
}

#[test]
fn mistakes_are_told_before_a_device_sees_them() {
    let [mut rig, _other] = rigs([[1; 16], [2; 16]].map(HostIdentifier::Extended));
    let is_argument = |outcome: Result<(), ControllerError>| matches!(outcome, Err(ControllerError::Argument { .. }));
    assert!(is_argument(rig.register(KeyChange::Register { new: 0 })));
    assert!(is_argument(rig.acquire(ReservationType::NONE, 1)));
    assert!(is_argument(rig.acquire(ReservationType::from_raw(7), 1)));
    rig.pair.submit(Sqe::flush(1), &[], 0).unwrap();
    assert!(is_argument(rig.register(KeyChange::Register { new: 1 })));

    let mut subsystem = Subsystem::new(ModelConfig::default()).unwrap();
    let mut without = self::rig(&mut subsystem, HostIdentifier::Extended([1; 16]));
    let outcome = without.register(KeyChange::Register { new: 1 });
    assert!(matches!(outcome, Err(ControllerError::NotSupported { .. })), "{outcome:?}");
}

/// The pair is lent: a command on it that its owner never submitted ends for nobody, late or by a reset.
#[test]
fn a_command_without_an_answer_is_none_of_the_pair_s_owner() {
    for action in [Action::Delay { turns: 20_000 }, Action::Drop { execute: true }] {
        let io_commands = IoCommandsConfig { reservations: true, ..IoCommandsConfig::default() };
        let mut subsystem = Subsystem::new(ModelConfig { io_commands, ..ModelConfig::default() }).unwrap();
        let config =
            ControllerConfig { admin_timeout: std::time::Duration::from_millis(5), ..ControllerConfig::default() };
        let mut rig = rig_with(&mut subsystem, HostIdentifier::Short([7; 8]), config);
        rig.model.faults().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action });
        let outcome = rig.register(KeyChange::Register { new: 1 });
        assert!(matches!(outcome, Err(ControllerError::Timeout { .. })), "{outcome:?}");
        assert_eq!(rig.pair.free_slots(), rig.pair.slots() - 1, "its slot is in quarantine");
        if matches!(action, Action::Delay { .. }) {
            for _ in 0..40_000 {
                rig.model.turn();
            }
        }
        let ended = rig.pair.poll(16, |completion| panic!("nobody submitted that: {completion:?}"));
        assert_eq!((ended, rig.pair.anomalies().total()), (0, 0));
        let mut interrupted = Vec::new();
        let mut end = |token| interrupted.push(token);
        let attended = rig.controller.recover(&mut [&mut rig.pair], &mut end, "a test".to_owned());
        assert!(matches!(attended, Attended::Recovered { .. }), "{attended:?}");
        assert_eq!(interrupted, [], "nobody submitted that");
        assert_eq!(rig.pair.free_slots(), rig.pair.slots());
        assert_eq!(rig.flush(), StatusCode::SUCCESS);
    }
}

#[test]
fn what_a_report_says_is_checked() {
    let field = |bytes: &[u8], extended| match decode(bytes, extended) {
        Err(ControllerError::Page { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    let mut bytes = vec![0; 88];
    assert!(decode(&bytes, false).unwrap().registered.is_empty());
    bytes[5] = 2;
    assert_eq!(decode(&bytes, false).unwrap().registered.len(), 2);
    assert_eq!(field(&bytes, true), "REGCTL");
    (bytes[5], bytes[6]) = (0xFF, 0xFF);
    assert_eq!((field(&bytes, false), field(&bytes, true)), ("REGCTL", "REGCTL"));
    bytes[4] = 7;
    assert_eq!(field(&bytes, false), "RTYPE");
    assert_eq!(field(&bytes[..23], false), "its length");
}
