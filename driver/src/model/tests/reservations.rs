//! Reservations by raw commands of two hosts.

use zerocopy::FromBytes;

use super::super::faults::{Action, CommandQueue, Rule, When};
use super::super::{IoCommandsConfig, ModelConfig, Survivors};
use super::host::{Host, Pair, small};
use super::subsystem::two;
use crate::bus::Function;
use crate::spec::ZeroesBased;
use crate::spec::command::{
    AcquireAction, ChangePersistence, Cns, FeatureIdentifier, LogPageIdentifier, NvmOpcode, RegisterAction,
    ReleaseAction, Select, Sqe,
};
use crate::spec::events::AsynchronousEvent;
use crate::spec::identify::{IdentifyController, IdentifyNamespace, Oncs, Rescap};
use crate::spec::log::{ReservationNotificationLog, ReservationNotificationType};
use crate::spec::reservation::{
    RegisteredController, RegisteredControllerExtended, ReservationStatus, ReservationType,
};
use crate::spec::status::StatusCode;

const CONFLICT: StatusCode = StatusCode::RESERVATION_CONFLICT;
const INVALID: StatusCode = StatusCode::INVALID_FIELD_IN_COMMAND;
const OK: StatusCode = StatusCode::SUCCESS;
const EXCLUSIVE: ReservationType = ReservationType::EXCLUSIVE_ACCESS;

fn config() -> ModelConfig {
    ModelConfig { io_commands: IoCommandsConfig { reservations: true, ..IoCommandsConfig::default() }, ..small() }
}

/// A host with a queue pair, known by `id`.
struct User {
    host: Host,
    pair: Pair,
}

impl User {
    fn new(mut host: Host, id: &[u8]) -> Self {
        let set = Sqe::set_features(FeatureIdentifier::HOST_IDENTIFIER, 0, 0).with_exhid(id.len() == 16);
        assert_eq!(host.send(set, id), OK);
        let pair = host.io_pair(1, 8);
        Self { host, pair }
    }

    /// A command that takes two keys.
    fn keys(&mut self, sqe: Sqe, keys: (u64, u64)) -> StatusCode {
        let data = self.host.memory(4096);
        data.view().write_words(0, &[keys.0, keys.1]);
        self.host.io_code(&mut self.pair, sqe.with_prp1(data.iova().get()))
    }

    fn register(&mut self, key: u64) -> StatusCode {
        self.keys(Sqe::reservation_register(1, RegisterAction::REGISTER, ChangePersistence::NO_CHANGE), (0, key))
    }

    fn acquire(&mut self, key: u64, rtype: ReservationType) -> StatusCode {
        self.keys(Sqe::reservation_acquire(1, AcquireAction::ACQUIRE, rtype), (key, 0))
    }

    fn release(&mut self, key: u64, action: ReleaseAction, rtype: ReservationType) -> StatusCode {
        self.keys(Sqe::reservation_release(1, action, rtype), (key, 0))
    }

    /// Whether it may read, and write.
    fn may(&mut self) -> (bool, bool) {
        let Self { host, pair } = self;
        let read = host.blocks(pair, 1).map_or_else(|code| code, |_| OK);
        let write = host.fill_blocks(pair, 1, 1);
        assert!([read, write].iter().all(|code| [OK, CONFLICT].contains(code)));
        assert_eq!(host.io_code(pair, Sqe::nvm(NvmOpcode::FLUSH, 1)), write);
        (read == OK, write == OK)
    }

    fn report(&mut self, extended: bool) -> Result<(ReservationStatus, Vec<u8>), StatusCode> {
        let data = self.host.memory(4096);
        data.view().fill(0xAA);
        let sqe = Sqe::reservation_report(1, ZeroesBased::<u32>::from_count(1024).unwrap(), extended);
        match self.host.io_code(&mut self.pair, sqe.with_prp1(data.iova().get())) {
            OK => {
                let mut bytes = vec![0; 4096];
                data.view().read(0, &mut bytes);
                let rest = bytes.split_off(if extended { 64 } else { 24 });
                Ok((ReservationStatus::read_from_prefix(&bytes).unwrap().0, rest))
            }
            code => Err(code),
        }
    }

    fn notification(&mut self) -> (ReservationNotificationType, u64, u8, u32) {
        let log: ReservationNotificationLog = self.host.log(LogPageIdentifier::RESERVATION_NOTIFICATION);
        (log.kind, log.log_page_count, log.available, log.nsid)
    }
}

fn users(ids: [&[u8]; 2]) -> [User; 2] {
    let [first, second] = two(config());
    [User::new(first, ids[0]), User::new(second, ids[1])]
}

const FIRST: &[u8] = &[1; 16];
const SECOND: &[u8] = &[2; 16];

#[test]
fn a_controller_without_them_says_so_and_has_no_commands() {
    let mut host = Host::new(small());
    let controller: IdentifyController = host.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    assert!(!controller.oncs.contains(Oncs::RESERVATIONS));
    let mut user = User::new(host, FIRST);
    assert_eq!(user.register(1), StatusCode::INVALID_COMMAND_OPCODE);
    assert_eq!(user.report(true).unwrap_err(), StatusCode::INVALID_COMMAND_OPCODE);
    let log = super::answers::log(LogPageIdentifier::RESERVATION_NOTIFICATION, 64);
    assert_eq!(user.host.code(log), StatusCode::INVALID_LOG_PAGE);

    let mut host = Host::new(config());
    let controller: IdentifyController = host.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    assert!(controller.oncs.contains(Oncs::RESERVATIONS));
    let namespace: IdentifyNamespace = host.fetch(Sqe::identify(Cns::NAMESPACE, 1)).unwrap();
    assert_eq!(namespace.rescap, Rescap::from_raw(0xFF));
}

#[test]
fn a_second_host_is_kept_out_as_the_type_says() {
    for raw in 1..=6 {
        let rtype = ReservationType::from_raw(raw);
        let [mut first, mut second] = users([FIRST, SECOND]);
        assert_eq!(first.acquire(1, rtype), CONFLICT, "not registered yet");
        assert_eq!((first.register(1), first.acquire(1, rtype)), (OK, OK));
        assert_eq!(first.may(), (true, true));
        assert_eq!(second.may(), (!rtype.excludes_reads(), false), "{rtype}");
        assert_eq!(second.register(2), OK);
        let admitted = rtype.admits_registrants();
        assert_eq!(second.may(), (admitted || !rtype.excludes_reads(), admitted), "{rtype}");
        let format = Sqe::format_nvm(1, 0);
        if !admitted {
            assert_eq!(second.host.code(format), CONFLICT);
        }
        // Only a holder releases, with its own type; for others it is nothing.
        let other = ReservationType::from_raw(raw % 6 + 1);
        assert_eq!(first.release(1, ReleaseAction::RELEASE, other), INVALID);
        if !rtype.is_held_by_all() {
            assert_eq!(second.release(2, ReleaseAction::RELEASE, rtype), OK);
            assert_eq!(second.may().1, admitted, "{rtype} is still held");
        }
        assert_eq!(first.release(1, ReleaseAction::RELEASE, rtype), OK);
        assert_eq!((first.may(), second.may()), ((true, true), (true, true)));
        assert_eq!((first.host.model.violations(), second.host.model.violations()), (vec![], vec![]));
    }
}

#[test]
fn one_host_with_two_controllers_is_one_registrant() {
    let [mut first, mut second] = users([FIRST, FIRST]);
    assert_eq!((first.register(7), first.acquire(7, EXCLUSIVE)), (OK, OK));
    assert_eq!(second.may(), (true, true));
    let (status, rest) = second.report(true).unwrap();
    assert_eq!((status.generation.get(), status.rtype, status.regctl.get(), status.ptpls), (1, EXCLUSIVE, 2, 0));
    for (place, cntlid) in [(0, 1), (64, 2)] {
        let (entry, _) = RegisteredControllerExtended::read_from_prefix(&rest[place..]).unwrap();
        assert_eq!((entry.cntlid.get(), entry.rcsts, entry.rkey.get(), entry.hostid), (cntlid, 1, 7, [1; 16]));
    }
    assert!(rest[128..].iter().all(|byte| *byte == 0));
    // The format of the report is that of the identifiers.
    assert_eq!(first.report(false).unwrap_err(), StatusCode::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
    assert_eq!(second.release(7, ReleaseAction::RELEASE, EXCLUSIVE), OK);
}

#[test]
fn identifiers_of_64_bits_are_reported_in_the_short_structure() {
    let [mut first, mut second] = users([&[3; 8], &[4; 8]]);
    assert_eq!((first.register(5), second.register(6), second.acquire(6, EXCLUSIVE)), (OK, OK, OK));
    assert_eq!(first.report(true).unwrap_err(), StatusCode::HOST_IDENTIFIER_INCONSISTENT_FORMAT);
    let (status, rest) = first.report(false).unwrap();
    assert_eq!((status.generation.get(), status.regctl.get()), (2, 2));
    let entries = [0, 24].map(|place| RegisteredController::read_from_prefix(&rest[place..]).unwrap().0);
    let told = entries.map(|entry| (entry.cntlid.get(), entry.rcsts, entry.hostid, entry.rkey.get()));
    assert_eq!(told, [(1, 0, [3; 8], 5), (2, 1, [4; 8], 6)]);
}

#[test]
fn keys_are_registered_replaced_and_given_up() {
    let [mut first, _second] = users([FIRST, SECOND]);
    let with = |action, iekey| Sqe::reservation_register(1, action, ChangePersistence::NO_CHANGE).with_iekey(iekey);
    let (replace, unregister) = (RegisterAction::REPLACE, RegisterAction::UNREGISTER);
    for (step, (sqe, keys, code)) in [
        (with(RegisterAction::REGISTER, false), (0, 0), INVALID),
        (with(unregister, false), (0, 0), CONFLICT),
        (with(replace, true), (0, 5), CONFLICT),
        (with(RegisterAction::REGISTER, false), (99, 5), OK),
        (with(RegisterAction::REGISTER, false), (0, 5), OK),
        (with(RegisterAction::REGISTER, false), (0, 6), CONFLICT),
        (with(replace, false), (4, 6), CONFLICT),
        (with(replace, false), (5, 6), OK),
        (with(replace, true), (5, 7), OK),
        (with(unregister, false), (6, 0), CONFLICT),
        (with(unregister, true), (6, 0), OK),
        (with(RegisterAction::from_raw(3), false), (0, 5), INVALID),
        (Sqe::reservation_acquire(1, AcquireAction::ACQUIRE, EXCLUSIVE).with_iekey(true), (7, 0), INVALID),
        (
            Sqe::reservation_register(9, RegisterAction::REGISTER, ChangePersistence::NO_CHANGE),
            (0, 5),
            StatusCode::INVALID_NAMESPACE_OR_FORMAT,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(first.keys(sqe, keys), code, "step {step}");
    }
}

#[test]
fn preempting_fences_the_former_holder_and_tells_it() {
    let [mut first, mut second] = users([FIRST, SECOND]);
    assert_eq!((first.register(1), first.acquire(1, EXCLUSIVE), second.register(2)), (OK, OK, OK));
    assert_eq!(second.acquire(2, EXCLUSIVE), CONFLICT);
    first.host.request_events(1);
    let preempt = Sqe::reservation_acquire(1, AcquireAction::PREEMPT_AND_ABORT, EXCLUSIVE);
    assert_eq!(second.keys(preempt, (2, 1)), OK);
    assert_eq!((first.may(), second.may()), ((false, false), (true, true)));
    assert_eq!(first.host.events(), [AsynchronousEvent::RESERVATION_LOG_PAGE_AVAILABLE]);
    let kind = ReservationNotificationType::REGISTRATION_PREEMPTED;
    assert_eq!(first.notification(), (kind, 1, 0, 1));
    assert_eq!(first.notification(), (ReservationNotificationType::EMPTY, 0, 0, 0));
    assert_eq!(second.notification(), (ReservationNotificationType::EMPTY, 0, 0, 0));
}

#[test]
fn notifications_queue_up_and_can_be_masked() {
    let [mut first, mut second] = users([FIRST, SECOND]);
    let rtype = ReservationType::WRITE_EXCLUSIVE_REGISTRANTS_ONLY;
    let fid = FeatureIdentifier::RESERVATION_NOTIFICATION_MASK;
    let both = |first: &mut User, second: &mut User| {
        assert_eq!((first.register(1), first.acquire(1, rtype), second.register(2)), (OK, OK, OK));
        assert_eq!(first.release(1, ReleaseAction::RELEASE, rtype), OK);
        assert_eq!(first.release(1, ReleaseAction::CLEAR, rtype), OK);
        second.host.turns(2);
    };
    both(&mut first, &mut second);
    assert_eq!(second.notification(), (ReservationNotificationType::RESERVATION_RELEASED, 1, 1, 1));
    assert_eq!(second.notification(), (ReservationNotificationType::RESERVATION_PREEMPTED, 2, 0, 1));
    assert_eq!(second.host.code(Sqe::set_features(fid, 1, 1 << 2)), OK);
    assert_eq!(second.host.admin(Sqe { nsid: 1, ..Sqe::get_features(fid, Select::CURRENT, 1) }).dw0, 1 << 2);
    both(&mut first, &mut second);
    assert_eq!(second.notification(), (ReservationNotificationType::RESERVATION_PREEMPTED, 3, 0, 1));
    assert_eq!(first.notification().0, ReservationNotificationType::EMPTY);
}

#[test]
fn a_host_without_an_identifier_ends_with_its_controller() {
    let [mut first, mut second] = two(config()).map(|mut host| {
        let pair = host.io_pair(1, 8);
        User { host, pair }
    });
    assert_eq!((first.register(1), first.acquire(1, EXCLUSIVE)), (OK, OK));
    assert_eq!(second.may(), (false, false), "two hosts without identifiers are two");
    first.host.disable();
    assert_eq!(second.may(), (true, true));
    assert_eq!(second.report(true).unwrap().0.regctl.get(), 0);
}

#[test]
fn a_reset_keeps_and_a_loss_of_power_clears_unless_it_was_to_persist() {
    for persist in [false, true] {
        let [mut first, mut second] = users([FIRST, SECOND]);
        let fid = FeatureIdentifier::RESERVATION_PERSISTENCE;
        let cptpl = if persist { ChangePersistence::PERSIST } else { ChangePersistence::CLEAR };
        let register = Sqe::reservation_register(1, RegisterAction::REGISTER, cptpl);
        assert_eq!((first.keys(register, (0, 1)), first.acquire(1, EXCLUSIVE)), (OK, OK));
        let get = Sqe { nsid: 1, ..Sqe::get_features(fid, Select::CURRENT, 1) };
        assert_eq!(second.host.admin(get).dw0, persist.into());
        first.host.disable();
        assert_eq!(second.may(), (false, false), "a reset is nothing to a reservation");
        first.host.model.power_cut(Survivors::Nothing).unwrap();

        let host = &mut second.host;
        host.function.enable_bus_mastering().unwrap();
        host.set_up();
        host.enable();
        let host = second.host;
        let mut second = User::new(host, SECOND);
        assert_eq!(second.may(), (!persist, !persist));
        let (status, rest) = second.report(true).unwrap();
        assert_eq!((status.regctl.get(), status.ptpls), (persist.into(), persist.into()));
        // The host is registered, and no controller is known to be its.
        let (entry, _) = RegisteredControllerExtended::read_from_prefix(&rest).unwrap();
        assert_eq!((entry.cntlid.get(), entry.rkey.get()), if persist { (0xFFFF, 1) } else { (0, 0) });
        // The feature changes it, too.
        assert_eq!(second.host.code(Sqe::set_features(fid, 1, u32::from(!persist))), OK);
        assert_eq!(second.report(true).unwrap().0.ptpls, u8::from(!persist));
    }
}

#[test]
fn what_a_preempted_host_has_under_way_is_aborted_where_that_is_asked_for() {
    for (action, code) in [
        (AcquireAction::PREEMPT_AND_ABORT, StatusCode::COMMAND_ABORTED_DUE_TO_PREEMPT_AND_ABORT),
        (AcquireAction::PREEMPT, CONFLICT),
    ] {
        let [mut first, mut second] = users([FIRST, SECOND]);
        assert_eq!([first.register(1), first.acquire(1, EXCLUSIVE), second.register(2)], [OK; 3]);
        let delay = Action::Delay { turns: 20 };
        first.host.model.faults().add(Rule {
            queue: CommandQueue::Io,
            opcode: None,
            when: When::Nth(1),
            action: delay,
        });
        first.pair.push(Sqe::flush(1).with_cid(7));
        first.pair.ring();
        first.host.turns(2);
        assert!(first.pair.take().is_none());
        assert_eq!(second.keys(Sqe::reservation_acquire(1, action, EXCLUSIVE), (2, 1)), OK);
        first.host.turns(2);
        let early = first.pair.take();
        assert_eq!(early.is_some(), action == AcquireAction::PREEMPT_AND_ABORT);
        first.host.turns(30);
        let ended = early.or_else(|| first.pair.take()).unwrap();
        assert_eq!((ended.cid, ended.status.status().code()), (7, code));
        assert_eq!(first.host.model.counters().flushes, 0, "whether it was aborted or met the reservation");
    }
}
