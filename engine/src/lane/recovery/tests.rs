//! What a lane does about its controller, where only the lane's own clock and lock show it.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::{Engine, EngineConfig, Lane, OpCode, Request, SegmentId, TransferState};

const BLOCK: u64 = 4096;

fn open() -> (Engine, Lane) {
    let recovery = RecoveryConfig { health_interval: Duration::from_millis(1), ..RecoveryConfig::default() };
    let controller = ControllerConfig { recovery, ..ControllerConfig::default() };
    let config = EngineConfig { controller, ..EngineConfig::default() };
    Engine::open_caller_driven("model:size=1MiB", config).unwrap()
}

/// Turns until the controller has been stopped so often.
#[track_caller]
fn until_stopped(engine: &Engine, lane: &mut Lane, stops: u64) {
    for _ in 0..10_000_000 {
        lane.turn();
        if engine.recovery_counters().unwrap().resets == stops {
            return;
        }
    }
    panic!("the controller is not looked after");
}

/// The state of a read of block 1.
fn read(engine: &Engine, lane: &mut Lane) -> TransferState {
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let batch = engine.allocate_batch(1).unwrap();
    let source = memory.address();
    let (opcode, target_id) = (OpCode::Read, SegmentId(1));
    engine.submit(&batch, &[Request { opcode, source, target_id, target_offset: BLOCK, length: BLOCK }]).unwrap();
    while !batch.overall().is_finished() {
        lane.turn();
    }
    batch.status(0).unwrap().state
}

#[test]
fn a_lane_that_was_not_turned_for_a_month_looks_after_its_controller() {
    let (engine, mut lane) = open();
    lane.ports[0].watch.clock.rewind(Duration::from_secs(30 * 24 * 3600));
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 1);
    assert_eq!(read(&engine, &mut lane), TransferState::Completed);
}

/// An admin command that another thread waits for takes as long as its deadline: I/O goes on meanwhile.
#[test]
fn a_lane_does_not_wait_for_who_talks_to_the_controller() {
    let (engine, mut lane) = open();
    let device = Arc::clone(&lane.ports[0].watch.device);
    let held = lock(&device);
    let (tell, told) = mpsc::channel();
    let turning = thread::spawn(move || {
        for _ in 0..1000 {
            lane.turn();
        }
        tell.send(()).unwrap();
        lane
    });
    assert!(told.recv_timeout(Duration::from_secs(20)).is_ok(), "the lane waits");
    drop(held);
    let mut lane = turning.join().unwrap();
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 1);
    engine.close_with(lane).unwrap();
}

/// Blocks of another size would have a task COMPLETED with an eighth of its bytes, or DMA beyond its memory.
#[test]
fn a_namespace_that_a_reset_has_changed_is_not_used_any_more() {
    let (engine, mut lane) = open();
    assert_eq!(read(&engine, &mut lane), TransferState::Completed);
    {
        let device = lock(&lane.ports[0].watch.device);
        let namespaces = device.as_ref().unwrap().model.as_ref().unwrap().namespaces();
        namespaces.remove(1).unwrap();
        namespaces.add(1, 1 << 20, 512).unwrap();
    }
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 2);
    assert_eq!(read(&engine, &mut lane), TransferState::Failed);
    assert_eq!(engine.violations(), []);
    assert!(engine.close_with(lane).is_err());
}

/// The model's namespace has so many bytes from now on.
fn resize(lane: &Lane, bytes: u64) {
    lock(&lane.ports[0].watch.device).as_ref().unwrap().model.as_ref().unwrap().namespaces().resize(1, bytes).unwrap();
}

/// One that has grown has all the blocks that it had.
#[test]
fn a_namespace_that_has_grown_is_used_on() {
    let (engine, mut lane) = open();
    resize(&lane, 2 << 20);
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 1);
    assert_eq!(read(&engine, &mut lane), TransferState::Completed);
    engine.close_with(lane).unwrap();
}

#[test]
fn a_namespace_that_has_shrunk_is_not_used_any_more() {
    let (engine, mut lane) = open();
    resize(&lane, (1 << 20) - BLOCK);
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 2);
    assert_eq!(read(&engine, &mut lane), TransferState::Failed);
    assert!(engine.close_with(lane).is_err());
}

#[test]
fn the_clock_is_looked_at_in_each_idle_turn_and_now_and_then_in_busy_ones() {
    let (_engine, mut lane) = open();
    let watch = &mut lane.ports[0].watch;
    assert!((0..1000).all(|_| watch.is_due(false)));
    for _ in 0..3 {
        assert_eq!((0..TURNS).filter(|_| watch.is_due(true)).count(), 1);
    }
}

#[test]
fn commands_are_issued_in_one_state_alone() {
    let (_engine, mut lane) = open();
    let watch = &mut lane.ports[0].watch;
    for (state, is_on, has_ended) in [
        (State::On, true, false),
        (State::Conflict, false, false),
        (State::TakenOver, false, true),
        (State::Removed, false, true),
    ] {
        watch.state = state;
        assert_eq!((watch.is_on(), watch.has_ended()), (is_on, has_ended), "{state:?}");
        let conflict = StatusCode::RESERVATION_CONFLICT.status();
        assert!(watch.sees_conflict(conflict) && !watch.sees_conflict(StatusCode::WRITE_FAULT.status()));
        let after = if state == State::On { State::Conflict } else { state };
        assert_eq!(watch.state, after, "a conflict is news only where commands are issued");
    }
    watch.state = State::On;
    assert!(!watch.sees_conflict(StatusCode::WRITE_FAULT.status()) && watch.is_on());
}

/// Who has the device is asked for when nothing is in flight any more, and until then each command ends by itself.
#[test]
fn after_a_conflict_what_is_in_flight_runs_to_its_end() {
    let (engine, mut lane) = open();
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let submit = |count: u64| {
        let request = |block: u64| Request {
            opcode: OpCode::Read,
            source: memory.address(),
            target_id: SegmentId(1),
            target_offset: block * BLOCK,
            length: BLOCK,
        };
        let batch = engine.allocate_batch(count as u32).unwrap();
        engine.submit(&batch, &(0..count).rev().map(request).collect::<Vec<_>>()).unwrap();
        batch
    };
    let status = StatusCode::RESERVATION_CONFLICT.status();
    let actions = [
        Action::Status { status, execute: false },
        Action::Delay { turns: 1000 },
        Action::Delay { turns: 3000 },
        Action::Delay { turns: 9000 },
    ];
    // One command each, in this order.
    for action in actions {
        let rule = Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action };
        engine.faults().unwrap().add(rule);
    }
    // Has the device work until it has ended so many commands.
    let until_ended = |lane: &Lane, commands: u64| {
        for _ in 0..1_000_000 {
            if engine.model_counters().unwrap().io_cqes >= commands {
                return;
            }
            lane.pause();
        }
        panic!("the device ends no more");
    };
    let batch = submit(4);
    assert!(lane.turn());
    until_ended(&lane, 1);
    assert!(lane.turn() && !lane.ports[0].may_issue());
    assert!(!lane.turn(), "it waits");
    let mut later = vec![submit(1)];
    assert!(lane.turn(), "a batch");
    until_ended(&lane, 2);
    assert!(lane.turn(), "a completion");
    until_ended(&lane, 3);
    later.push(submit(1));
    assert!(lane.turn(), "both");
    assert_eq!((engine.taken_over(), batch.overall().ended, later[0].overall().ended), (None, 3, 0));
    while !batch.overall().is_finished() {
        lane.turn();
    }
    assert_eq!(batch.overall().unsuccessful, 1, "the one that ended in the conflict");
    while later.iter().any(|batch| !batch.overall().is_finished()) {
        lane.turn();
    }
    assert!(later.iter().all(|batch| batch.nvme_status(0).unwrap() == Some(status)));
    assert!(engine.taken_over().is_some() && engine.violations().is_empty());
    assert_eq!(engine.counters().commands, 4, "nothing was issued since");
}
