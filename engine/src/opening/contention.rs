//! Hosts and engines that contend for one namespace, through the controllers of one subsystem.

use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{At, Life};
use tentpeg_driver::model::{Drive, IoCommandsConfig, Model, ModelConfig, SoftwareIommu, Subsystem};
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::label::{NewLabel, NewSegment, Owner};
use crate::ownership::reservation::Fencing;
use crate::{Batch, OpCode, Request, TransferState};

const ALPHA: Uuid = Uuid::from_u128(0xA1FA);
const BETA: Uuid = Uuid::from_u128(0xBE7A);
const BLOCK: u64 = 4096;

/// A host with a controller of its own, and a folder of locks that only its engines look into.
struct Host {
    node: Uuid,
    model: Model,
    locks: LockFolder,
}

/// An engine of a host.
struct Open {
    engine: Engine,
    lane: Lane,
}

fn subsystem(reservations: bool) -> Subsystem {
    let io_commands = IoCommandsConfig { reservations, ..IoCommandsConfig::default() };
    Subsystem::new(ModelConfig { size: 8 << 20, io_commands, ..ModelConfig::default() }).unwrap()
}

/// Two hosts, and a label of the first with a segment.
fn two(reservations: bool, folder: &tempfile::TempDir) -> [Host; 2] {
    let mut subsystem = subsystem(reservations);
    let hosts = [ALPHA, BETA].map(|node| Host::new(&mut subsystem, node, folder));
    hosts[0].label();
    hosts
}

impl Host {
    fn new(subsystem: &mut Subsystem, node: Uuid, folder: &tempfile::TempDir) -> Self {
        let model = subsystem.add_controller(Drive::Stepped, &SoftwareIommu::new()).unwrap();
        Self { node, model, locks: LockFolder::at(folder.path().join(node.to_string())) }
    }

    fn source(&self) -> DeviceSource {
        DeviceSource::Function { function: self.model.function(), writable: true }
    }

    fn options(&self, take_over: bool) -> OpenOptions {
        let recovery = RecoveryConfig { health_interval: Duration::from_millis(1), ..RecoveryConfig::default() };
        let controller = ControllerConfig { recovery, ..ControllerConfig::default() };
        OpenOptions {
            config: EngineConfig { controller, ..EngineConfig::default() },
            lanes: LaneMode::CallerDriven,
            take_over,
            node: Some(self.node),
            locks: Some(self.locks.clone()),
            ..OpenOptions::default()
        }
    }

    fn label(&self) {
        let mut device = Administration::open_with(self.source(), &self.options(false)).unwrap();
        device.create_label(&NewLabel::default()).unwrap();
        let (mut label, mut blocks) = device.change().unwrap();
        let new = NewSegment { name: "kv".into(), capacity: 1 << 20, ..NewSegment::default() };
        label.create_segment(&mut *blocks, &new).unwrap();
        drop(blocks);
        device.close().unwrap();
    }

    /// What the label says, which nobody holds.
    fn owner(&self) -> Owner {
        let options = OpenOptions { read_only: true, ..self.options(false) };
        Administration::open_with(self.source(), &options).unwrap().label().unwrap().owner().clone()
    }

    fn open(&self, take_over: bool) -> Result<Open, OpenError> {
        let (engine, lane) = Engine::open_devices([self.source()], self.options(take_over))?;
        Ok(Open { engine, lane: lane.unwrap() })
    }

    #[track_caller]
    fn refused(&self) -> String {
        match self.open(false) {
            Ok(_) => panic!("two have won"),
            Err(error) => error.to_string(),
        }
    }

    /// The controller goes wrong, so that its lane resets it.
    fn reset(&self, open: &mut Open) {
        let before = open.engine.recovery_counters().unwrap().resets;
        self.model.faults().arm(At::Now, Life::Fatal);
        for _ in 0..10_000_000 {
            open.lane.turn();
            if open.engine.recovery_counters().unwrap().resets > before {
                return;
            }
        }
        panic!("the controller is not looked after");
    }

    fn end(&self, open: Open) {
        open.engine.close_with(open.lane).unwrap();
        assert_eq!(self.model.violations(), []);
    }
}

impl Open {
    /// Writes `blocks` blocks, each a task, to their end.
    fn write(&mut self, blocks: u64) -> Batch {
        let memory = self.engine.allocate_memory((blocks * BLOCK) as usize).unwrap();
        let target_id = self.engine.segments()[0].id;
        // Every other block, so that none is joined with the next.
        let write = |block: u64| Request {
            opcode: OpCode::Write,
            source: memory.address() + block * BLOCK,
            target_id,
            target_offset: 2 * block * BLOCK,
            length: BLOCK,
        };
        let batch = self.engine.allocate_batch(1).unwrap();
        self.engine.submit(&batch, &(0..blocks).map(write).collect::<Vec<_>>()).unwrap();
        while !batch.overall().is_finished() {
            self.lane.turn();
        }
        batch
    }

    #[track_caller]
    fn writes(&mut self) {
        assert_eq!(self.write(3).overall().unsuccessful, 0);
    }

    /// Nothing more is written, and that is said with its status.
    #[track_caller]
    fn is_fenced(&mut self) {
        let issued = self.engine.counters().commands;
        let batch = self.write(64);
        for task in 0..64 {
            assert_eq!(batch.status(task).unwrap().state, TransferState::Failed);
            let status = batch.nvme_status(task).unwrap().unwrap();
            assert_eq!(status.code(), StatusCode::RESERVATION_CONFLICT);
        }
        assert_eq!(self.engine.counters().commands, issued, "nothing was issued");
    }
}

#[test]
fn of_two_hosts_one_wins_and_a_take_over_fences_it() {
    let folder = tempfile::tempdir().unwrap();
    let [alpha, beta] = two(true, &folder);
    let mut first = alpha.open(false).unwrap();
    let ownership = first.engine.info().ownership.unwrap();
    assert_eq!((ownership.node, ownership.epoch), (ALPHA, 1));
    assert!(matches!(ownership.fencing, Fencing::Fenced { from: None, .. }), "{ownership:?}");
    first.writes();
    let message = beta.refused();
    assert!(message.contains(&format!("is reserved by host {ALPHA} (epoch 1)")), "{message}");
    // Reading is not let, either, and who does not let it is named.
    let read_only = OpenOptions { read_only: true, ..beta.options(false) };
    let message = Engine::open_devices([beta.source()], read_only).err().unwrap().to_string();
    assert!(message.contains(&format!("is reserved by host {ALPHA}")), "{message}");
    first.writes();

    let mut second = beta.open(true).unwrap();
    let ownership = second.engine.info().ownership.unwrap();
    assert_eq!((ownership.node, ownership.epoch), (BETA, 2));
    let Fencing::Fenced { from: Some(from), .. } = ownership.fencing else { panic!("{ownership:?}") };
    assert_eq!(from.key, 1);
    second.writes();
    // Its next command is the last one that is issued.
    let batch = first.write(1);
    assert_eq!(batch.nvme_status(0).unwrap().unwrap().code(), StatusCode::RESERVATION_CONFLICT);
    first.is_fenced();
    let message = first.engine.taken_over().unwrap().to_string();
    assert!(message.contains(&format!("was taken over by host {BETA} (epoch 2)")), "{message}");
    assert_eq!(first.engine.devices().next().unwrap().taken_over(), first.engine.taken_over());
    second.writes();
    first.engine.close_with(first.lane).unwrap();
    assert!(alpha.refused().contains(&format!("is reserved by host {BETA}")));

    // Who leaves gives it back; the label says whose it is.
    second.engine.close_with(second.lane).unwrap();
    assert_eq!((alpha.owner().node, alpha.owner().epoch), (BETA, 2));
    let message = alpha.refused();
    assert!(message.contains(&format!("belongs to node {BETA}")), "{message}");
    // Who was refused has left nothing behind.
    let mut third = beta.open(false).unwrap();
    assert!(matches!(third.engine.info().ownership.unwrap().fencing, Fencing::Fenced { kept: false, .. }));
    third.writes();
    beta.end(third);
}

#[test]
fn after_a_reset_it_is_claimed_again_before_any_command() {
    let folder = tempfile::tempdir().unwrap();
    let [alpha, beta] = two(true, &folder);
    let mut first = alpha.open(false).unwrap();
    for _ in 0..3 {
        alpha.reset(&mut first);
        first.writes();
        assert!(beta.refused().contains(&format!("is reserved by host {ALPHA}")));
    }
    assert_eq!(first.engine.taken_over(), None);
    let mut second = beta.open(true).unwrap();
    beta.reset(&mut second);
    second.writes();
    // The former owner finds out without a command that ends in a conflict.
    let issued = first.engine.counters().commands;
    alpha.reset(&mut first);
    let message = first.engine.taken_over().unwrap().to_string();
    assert!(message.contains(&format!("by host {BETA} (epoch 2)")), "{message}");
    first.is_fenced();
    assert_eq!(first.engine.counters().commands, issued);
    second.writes();
    alpha.end(first);
    beta.end(second);
}

#[test]
fn of_two_controllers_of_one_host_the_lock_lets_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut subsystem = subsystem(true);
    let [one, other] = [ALPHA, ALPHA].map(|node| Host::new(&mut subsystem, node, &folder));
    one.label();
    let mut first = one.open(false).unwrap();
    for take_over in [false, true] {
        let error = other.open(take_over).err().unwrap();
        assert!(matches!(error, OpenError::Lock(_)), "{error}");
        assert!(error.to_string().contains("in use by this process itself"), "{error}");
    }
    first.writes();
    one.end(first);
    let mut second = other.open(false).unwrap();
    second.writes();
    assert_eq!(second.engine.info().ownership.unwrap().epoch, 1, "a restart is no take-over");
    other.end(second);
}

#[test]
fn without_reservations_another_host_is_not_fenced_and_that_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let [alpha, beta] = two(false, &folder);
    let mut first = alpha.open(false).unwrap();
    let Fencing::NotFenced(reason) = first.engine.info().ownership.unwrap().fencing else { panic!() };
    assert!(reason.to_string().contains("another host is not fenced"), "{reason}");
    assert!(beta.refused().contains(&format!("belongs to node {ALPHA}")));
    // Nothing but the label tells of it.
    let mut second = beta.open(true).unwrap();
    assert_eq!(second.engine.info().ownership.unwrap().epoch, 2);
    second.writes();
    first.writes();
    assert_eq!(first.engine.taken_over(), None);
    alpha.end(first);
    assert!(alpha.refused().contains(&format!("belongs to node {BETA}")));
    beta.end(second);
}

#[test]
fn a_device_without_a_label_is_held_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut subsystem = subsystem(true);
    let [alpha, beta] = [ALPHA, BETA].map(|node| Host::new(&mut subsystem, node, &folder));
    let mut first = alpha.open(false).unwrap();
    assert_eq!(first.engine.segments()[0].layout.name, "whole");
    assert!(beta.refused().contains(&format!("is reserved by host {ALPHA} (epoch 1)")));
    let mut second = beta.open(true).unwrap();
    assert_eq!(second.engine.info().ownership.unwrap().epoch, 2);
    second.writes();
    first.write(1);
    first.is_fenced();
    alpha.end(first);
    beta.end(second);
}
