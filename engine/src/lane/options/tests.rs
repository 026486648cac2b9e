//! Which lanes an engine can have, and which devices each of them serves.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::{Engine, EngineConfig, OpCode, OpenError, OpenOptions, Request, TransferState};

fn options(threads: usize) -> LaneOptions {
    LaneOptions { threads: Some(threads), ..LaneOptions::default() }
}

fn open(devices: usize, lanes: LaneOptions, mode: LaneMode) -> Result<Engine, OpenError> {
    let config = EngineConfig { lanes, ..EngineConfig::default() };
    let options = OpenOptions { config, lanes: mode, ..OpenOptions::default() };
    Engine::open_devices(vec!["model:size=1MiB"; devices], options).map(|(engine, _)| engine)
}

#[test]
fn devices_are_dealt_out_in_turn() {
    assert_eq!(deal(0..5, 2), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(deal(0..2, 2), [vec![0], vec![1]]);
    assert_eq!(deal(0..0, 1), [Vec::<u8>::new()]);
}

#[test]
fn what_cannot_be_is_told_with_what_can() {
    for threads in [0, 3] {
        let error = open(2, options(threads), LaneMode::Thread).map(drop).unwrap_err().to_string();
        assert_eq!(error, format!("{threads} lanes for 2 devices: a device has one lane, so ask for 1 to 2"));
    }
    let error = open(1, options(1), LaneMode::CallerDriven).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::Lane(LaneError::NoThread)), "{error}");
}

#[test]
fn wrong_lanes_create_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let uri = format!("model:path={},size=1MiB", path.display());
    let config = EngineConfig { lanes: options(2), ..EngineConfig::default() };
    assert!(Engine::open(&uri, config).is_err());
    assert!(!path.exists());
}

/// One thread serves three devices, and each device by its own queue pair.
#[test]
fn a_lane_serves_several_devices() {
    let engine = open(3, options(1), LaneMode::Thread).unwrap();
    assert_eq!(engine.lanes(), 1);
    let memory = engine.allocate_memory(4096).unwrap();
    let targets: BTreeSet<_> = engine.segments().iter().map(|segment| segment.id).collect();
    assert_eq!(targets.len(), 3);
    let batch = engine.allocate_batch(3).unwrap();
    let request = |target_id| Request {
        opcode: OpCode::Read,
        source: memory.address(),
        target_id,
        target_offset: 0,
        length: 4096,
    };
    engine.submit(&batch, &targets.into_iter().map(request).collect::<Vec<_>>()).unwrap();
    batch.wait(Duration::from_secs(60)).unwrap();
    assert!((0..3).all(|task| batch.status(task).unwrap().state == TransferState::Completed));
    assert!(engine.devices().all(|device| device.model_counters().unwrap().reads == 1));
    batch.free();
    engine.close().unwrap();
}
