//! Hosts on the controllers of one subsystem.

use proptest::prelude::*;
use tentpeg_driver::controller::{Attended, ControllerConfig, HostIdentifier, KeyChange};
use tentpeg_driver::model::{
    CacheConfig, Drive, IoCommandsConfig, Model, ModelConfig, SoftwareIommu, Subsystem, Survivors,
};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;

use super::*;
use crate::ownership::lock::{Lock, LockError, LockFolder, LockMode, LockName};

const ALPHA: Uuid = Uuid::from_u128(0xA1FA);
const BETA: Uuid = Uuid::from_u128(0xBE7A);

/// A host with a controller of its own.
struct Host {
    claim: Claim,
    controller: Controller,
    pair: QueuePair<u32>,
    namespace: Namespace,
    // After the controller: it is told to stop before the model that it is goes away.
    model: Model,
}

fn subsystem(reservations: bool) -> Subsystem {
    let io_commands = IoCommandsConfig { reservations, ..IoCommandsConfig::default() };
    Subsystem::new(ModelConfig { io_commands, ..ModelConfig::default() }).unwrap()
}

impl Host {
    fn new(subsystem: &mut Subsystem, node: Uuid, epoch: u64) -> Self {
        let model = subsystem.add_controller(Drive::Stepped, &SoftwareIommu::new()).unwrap();
        let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
        let namespace = controller.namespaces().unwrap().remove(0);
        let pair = controller.create_queue_pair(8).unwrap();
        Self { claim: Claim { node, epoch }, controller, pair, namespace, model }
    }

    fn two(nodes: [Uuid; 2]) -> [Self; 2] {
        let mut subsystem = subsystem(true);
        let mut epoch = 10;
        nodes.map(|node| {
            epoch += 1;
            Self::new(&mut subsystem, node, epoch)
        })
    }

    fn reservation(&mut self) -> Reservation<'_, u32> {
        Reservation { controller: &mut self.controller, pair: &mut self.pair, namespace: &self.namespace }
    }

    fn claim(&mut self) -> Result<Fencing, ReservationError> {
        let claim = self.claim;
        self.reservation().claim(claim)
    }

    fn reclaim(&mut self) -> Result<Fencing, ReservationError> {
        let claim = self.claim;
        self.reservation().reclaim(claim)
    }

    fn take_over(&mut self) -> Result<Fencing, ReservationError> {
        let claim = self.claim;
        self.reservation().take_over(claim)
    }

    fn release(&mut self) {
        let claim = self.claim;
        self.reservation().release(claim).unwrap();
    }

    fn conflict(&mut self) -> ReservationError {
        let claim = self.claim;
        self.reservation().conflict(claim).unwrap()
    }

    /// Keys that are registered, by whomever.
    fn keys(&mut self) -> Vec<u64> {
        let report = self.controller.reservation_report(&mut self.pair, &self.namespace).unwrap();
        report.registered.iter().map(|registered| registered.key).collect()
    }

    /// The status of a write.
    fn write(&mut self) -> StatusCode {
        self.pair.submit(Sqe::write_zeroes(1, 0, ZeroesBased::<u16>::from_raw(0)), &[], 0).unwrap();
        self.pair.ring();
        let mut status = None;
        for _ in 0..100 {
            self.model.turn();
            self.pair.poll(1, |completion| status = Some(completion.status));
        }
        status.expect("the controller answers").code()
    }

    fn may_write(&mut self) -> bool {
        match self.write() {
            StatusCode::SUCCESS => true,
            StatusCode::RESERVATION_CONFLICT => false,
            other => panic!("{other:?}"),
        }
    }

    /// The controller is reset and enabled anew.
    fn reset(&mut self) {
        let outcome = self.controller.recover(&mut [&mut self.pair], &mut |_| {}, "a test".to_owned());
        assert!(matches!(outcome, Attended::Recovered { .. }), "{outcome:?}");
    }

    fn end(self) {
        self.controller.shutdown().unwrap();
        assert_eq!(self.model.violations(), []);
    }
}

fn fenced(kept: bool, from: Option<Other>) -> Fencing {
    Fencing::Fenced { persistent: true, kept, from }
}

fn other(node: Uuid, key: u64) -> Other {
    Other { host: HostIdentifier::Extended(node.into_bytes()), key }
}

#[test]
fn of_two_hosts_one_wins_and_the_loser_names_it() {
    let [mut alpha, mut beta] = Host::two([ALPHA, BETA]);
    assert!(beta.may_write(), "nobody has it");
    assert_eq!(alpha.claim().unwrap(), fenced(false, None));
    let error = beta.claim().unwrap_err();
    assert!(matches!(error, ReservationError::Held { nsid: 1, by } if by == other(ALPHA, 11)), "{error}");
    let message = error.to_string();
    assert!(message.starts_with(&format!("namespace 1 is reserved by host {ALPHA} (epoch 11): ")), "{message}");
    assert_eq!((alpha.may_write(), beta.may_write()), (true, false));
    assert_eq!(beta.keys(), [11], "who lost has left nothing");

    alpha.release();
    assert_eq!(beta.keys(), [0; 0]);
    assert_eq!(beta.claim().unwrap(), fenced(false, None));
    assert_eq!((alpha.may_write(), beta.may_write()), (false, true));
    alpha.release();
    assert!(beta.may_write(), "who has nothing releases nothing");
    alpha.end();
    beta.end();
}

#[test]
fn a_take_over_fences_the_former_owner_who_names_the_new_one() {
    let [mut alpha, mut beta] = Host::two([ALPHA, BETA]);
    alpha.claim().unwrap();
    assert_eq!(beta.take_over().unwrap(), fenced(false, Some(other(ALPHA, 11))));
    assert_eq!((alpha.write(), beta.write()), (StatusCode::RESERVATION_CONFLICT, StatusCode::SUCCESS));
    let taken = format!("namespace 1 was taken over by host {BETA} (epoch 12): ");
    assert!(alpha.conflict().to_string().starts_with(&taken), "{}", alpha.conflict());
    // A reset does not bring it back.
    alpha.reset();
    assert!(alpha.reclaim().unwrap_err().to_string().starts_with(&taken));
    assert!(!alpha.may_write());
    assert_eq!(beta.keys(), [12]);
    // Nor does opening again, but by another take-over.
    assert!(matches!(alpha.claim(), Err(ReservationError::Held { .. })));
    alpha.claim.epoch = 13;
    assert_eq!(alpha.take_over().unwrap(), fenced(false, Some(other(BETA, 12))));
    assert_eq!((alpha.may_write(), beta.may_write()), (true, false));
    alpha.end();
    beta.end();
}

#[test]
fn one_host_on_two_controllers_is_held_apart_by_the_lock() {
    let [mut first, mut second] = Host::two([ALPHA, ALPHA]);
    first.claim().unwrap();
    // To the subsystem it is the same host, which may change its key.
    assert_eq!(second.claim().unwrap(), fenced(true, None));
    assert_eq!((first.may_write(), second.may_write()), (true, true));
    let folder = tempfile::tempdir().unwrap();
    let locks = LockFolder::at(folder.path().join("locks"));
    let lock = |host: &mut Host| {
        let identity = host.controller.namespace_identity(&host.namespace).unwrap();
        let serial_number = host.controller.identify().serial_number();
        let name = LockName::of_namespace(&identity, &serial_number, host.namespace.nsid, host.controller.name());
        Lock::of_namespace(&locks, &name, LockMode::Exclusive)
    };
    let held = lock(&mut first).unwrap();
    assert!(matches!(lock(&mut second), Err(LockError::Held { .. })), "whichever controller leads to it");
    drop(held);
    lock(&mut second).unwrap();
}

#[test]
fn a_restart_is_no_take_over() {
    let mut subsystem = subsystem(true);
    let mut alpha = Host::new(&mut subsystem, ALPHA, 11);
    alpha.claim().unwrap();
    // It dies, and comes again; with the same epoch, and with the next one.
    drop(alpha);
    let mut again = Host::new(&mut subsystem, ALPHA, 11);
    assert!(!again.may_write(), "a host that has not said who it is");
    assert_eq!(again.claim().unwrap(), fenced(true, None));
    assert!(again.may_write());
    drop(again);
    let mut again = Host::new(&mut subsystem, ALPHA, 12);
    assert_eq!(again.claim().unwrap(), fenced(true, None));
    assert_eq!(again.keys(), [12]);
    assert!(again.may_write());
    assert_eq!(again.take_over().unwrap(), fenced(true, None), "nobody has it but itself");
}

#[test]
fn after_a_reset_it_is_claimed_again_before_any_io() {
    let [mut alpha, mut beta] = Host::two([ALPHA, BETA]);
    alpha.claim().unwrap();
    alpha.reset();
    assert!(!alpha.may_write(), "the Host Identifier went with the reset");
    assert_eq!(alpha.reclaim().unwrap(), fenced(true, None));
    assert_eq!((alpha.may_write(), beta.may_write()), (true, false));
    // Somebody cleared everything meanwhile.
    alpha.controller.clear_reservations(&mut alpha.pair, &alpha.namespace, 11).unwrap();
    alpha.reset();
    assert_eq!(alpha.reclaim().unwrap(), fenced(false, None), "it has it again, and is told that it had not");
    assert_eq!((alpha.may_write(), beta.may_write()), (true, false));
}

#[test]
fn a_host_that_is_fenced_stays_so_when_the_power_goes() {
    let io_commands = IoCommandsConfig { reservations: true, ..IoCommandsConfig::default() };
    let cache_simulation = Some(CacheConfig { blocks: 16, write_back: None });
    let mut subsystem =
        Subsystem::new(ModelConfig { io_commands, cache_simulation, ..ModelConfig::default() }).unwrap();
    let mut alpha = Host::new(&mut subsystem, ALPHA, 11);
    let mut beta = Host::new(&mut subsystem, BETA, 12);
    alpha.claim().unwrap();
    alpha.model.power_cut(Survivors::Nothing).unwrap();
    alpha.reset();
    beta.reset();
    assert!(!beta.may_write());
    assert!(matches!(beta.claim(), Err(ReservationError::Held { .. })));
    assert_eq!(alpha.reclaim().unwrap(), fenced(true, None));
}

#[test]
fn without_reservations_another_host_is_not_fenced_and_that_is_said() {
    let mut plain = subsystem(false);
    let [mut alpha, mut beta] = [ALPHA, BETA].map(|node| Host::new(&mut plain, node, 1));
    for outcome in [alpha.claim(), alpha.reclaim(), alpha.take_over()] {
        let Ok(Fencing::NotFenced(why @ NotFenced::Controller { .. })) = outcome else { panic!("{outcome:?}") };
        assert!(why.to_string().starts_with("another host is not fenced: the controller has no reservations"), "{why}");
    }
    alpha.release();
    assert!(beta.may_write());

    let [mut alpha, _beta] = Host::two([ALPHA, BETA]);
    alpha.namespace.identify.rescap = Rescap::WRITE_EXCLUSIVE;
    let outcome = alpha.claim().unwrap();
    assert_eq!(outcome, Fencing::NotFenced(NotFenced::Namespace { rescap: 2 }));
    let Fencing::NotFenced(why) = outcome else { panic!() };
    assert!(why.to_string().ends_with("no Exclusive Access reservations (RESCAP 02h)"), "{why}");
}

#[test]
fn what_cannot_be_claimed_so() {
    let [mut alpha, mut beta] = Host::two([ALPHA, BETA]);
    alpha.claim.epoch = 0;
    assert!(matches!(alpha.claim(), Err(ReservationError::NoEpoch)));
    alpha.claim.epoch = 12;
    alpha.claim().unwrap();
    let error = beta.take_over().unwrap_err();
    assert!(matches!(error, ReservationError::EpochInUse { epoch: 12, by, .. } if by == other(ALPHA, 12)), "{error}");
    assert!(alpha.may_write() && !beta.may_write());
    // A controller takes one name for this host until it is reset.
    alpha.claim.node = BETA;
    let error = alpha.claim().unwrap_err();
    assert!(
        error.to_string().starts_with(&format!("the controller knows this host as {ALPHA} and not as {BETA}")),
        "{error}"
    );
    alpha.claim.node = ALPHA;
    // Other software of this host.
    alpha.release();
    let Host { controller, pair, namespace, .. } = &mut alpha;
    controller
        .register_reservation_key(pair, namespace, KeyChange::Register { new: 5 }, ChangePersistence::NO_CHANGE)
        .unwrap();
    controller.acquire_reservation(pair, namespace, ReservationType::WRITE_EXCLUSIVE, 5).unwrap();
    let error = alpha.claim().unwrap_err();
    let write_exclusive = ReservationType::WRITE_EXCLUSIVE;
    assert!(matches!(error, ReservationError::OtherType { rtype, .. } if rtype == write_exclusive), "{error}");
    assert!(error.to_string().contains("by this host itself, as Write Exclusive Reservation: release"), "{error}");
}

#[test]
fn what_others_hold_in_another_way_is_taken_over_too() {
    let types = [
        ReservationType::WRITE_EXCLUSIVE,
        ReservationType::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
        ReservationType::WRITE_EXCLUSIVE_ALL_REGISTRANTS,
        ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS,
    ];
    for rtype in types {
        let mut subsystem = subsystem(true);
        let third = Uuid::from_u128(3);
        let [mut alpha, mut gamma, mut beta] = [ALPHA, third, BETA].map(|node| Host::new(&mut subsystem, node, 9));
        for (host, key) in [(&mut alpha, 4), (&mut gamma, 5)] {
            host.controller.set_host_identifier(HostIdentifier::Extended(host.claim.node.into_bytes())).unwrap();
            let register = KeyChange::Register { new: key };
            let persistence = ChangePersistence::NO_CHANGE;
            host.controller.register_reservation_key(&mut host.pair, &host.namespace, register, persistence).unwrap();
        }
        alpha.controller.acquire_reservation(&mut alpha.pair, &alpha.namespace, rtype, 4).unwrap();
        assert!(matches!(beta.claim(), Err(ReservationError::Held { by, .. }) if by == other(ALPHA, 4)));
        assert_eq!(beta.take_over().unwrap(), fenced(false, Some(other(ALPHA, 4))), "{rtype:?}");
        assert_eq!([&mut alpha, &mut gamma, &mut beta].map(Host::may_write), [false, false, true], "{rtype:?}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Claim,
    TakeOver,
    Release,
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![Just(Act::Claim), Just(Act::TakeOver), Just(Act::Release), Just(Act::Reset)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever three hosts do, at most one of them can write, and it is the one that was told so last.
    #[test]
    fn one_host_at_most_can_write(acts in proptest::collection::vec((0usize..3, act()), 1..20)) {
        let mut subsystem = subsystem(true);
        let nodes = [ALPHA, BETA, Uuid::from_u128(3)];
        let mut hosts = nodes.map(|node| Host::new(&mut subsystem, node, 1));
        let (mut owner, mut epoch) = (None, 1);
        for (index, act) in acts {
            epoch += 1;
            let host = &mut hosts[index];
            let before = host.claim.epoch;
            match act {
                Act::Claim => {
                    host.claim.epoch = epoch;
                    match host.claim() {
                        Ok(_) => {
                            prop_assert!(owner.is_none_or(|owner| owner == index));
                            owner = Some(index);
                        }
                        Err(ReservationError::Held { by, .. }) => {
                            host.claim.epoch = before;
                            let winner = owner.expect("somebody has it");
                            prop_assert_eq!(by, other(nodes[winner], hosts[winner].claim.epoch));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                Act::TakeOver => {
                    host.claim.epoch = epoch;
                    let outcome = host.take_over().unwrap();
                    let former = owner.filter(|owner| *owner != index);
                    let from = former.map(|former| other(nodes[former], hosts[former].claim.epoch));
                    prop_assert_eq!(outcome, fenced(owner == Some(index), from));
                    owner = Some(index);
                }
                Act::Release => {
                    host.release();
                    owner = owner.filter(|owner| *owner != index);
                }
                Act::Reset => {
                    host.reset();
                    match host.reclaim() {
                        Ok(_) => owner = Some(index),
                        Err(ReservationError::TakenOver { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            for (index, host) in hosts.iter_mut().enumerate() {
                prop_assert_eq!(host.may_write(), owner.is_none_or(|owner| owner == index), "{} {:?}", index, owner);
            }
        }
    }
}
