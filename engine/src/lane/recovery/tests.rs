//! What a lane does about its controller, where only the lane's own clock and lock show it.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{At, Life};

use super::*;
use crate::{Engine, EngineConfig, OpCode, Request, SegmentId, TransferState};

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
    lane.watch.started -= Duration::from_secs(30 * 24 * 3600);
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 1);
    assert_eq!(read(&engine, &mut lane), TransferState::Completed);
}

/// An admin command that another thread waits for takes as long as its deadline: I/O goes on meanwhile.
#[test]
fn a_lane_does_not_wait_for_who_talks_to_the_controller() {
    let (engine, mut lane) = open();
    let device = Arc::clone(&lane.watch.device);
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
        let device = lock(&lane.watch.device);
        let namespaces = device.as_ref().unwrap().model.namespaces();
        namespaces.remove(1).unwrap();
        namespaces.add(1, 1 << 20, 512).unwrap();
    }
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 2);
    assert_eq!(read(&engine, &mut lane), TransferState::Failed);
    assert_eq!(engine.violations(), []);
    assert!(engine.close_with(lane).is_err());
}

/// One that has grown has all the blocks that it had.
#[test]
fn a_namespace_that_has_grown_is_used_on() {
    let (engine, mut lane) = open();
    lock(&lane.watch.device).as_ref().unwrap().model.namespaces().resize(1, 2 << 20).unwrap();
    engine.faults().unwrap().arm(At::Now, Life::Fatal);
    until_stopped(&engine, &mut lane, 1);
    assert_eq!(read(&engine, &mut lane), TransferState::Completed);
    engine.close_with(lane).unwrap();
}
