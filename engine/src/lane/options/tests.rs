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

/// More than the kernel's calls can name.
const NO_CPU: usize = 1 << 20;

fn pinned(threads: Option<usize>, cpus: &[usize]) -> LaneOptions {
    LaneOptions { threads, pin: LanePin::Cpus(CpuList(cpus.to_vec())), ..LaneOptions::default() }
}

/// One on which this test may run.
fn some_cpu() -> usize {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| set.is_set(*cpu)).unwrap()
}

#[test]
fn each_lane_needs_a_processor_that_there_is() {
    let threads = |cpus: &[usize], devices| pinned(None, cpus).threads(LaneMode::Thread, devices);
    for (cpus, devices) in [(2, 1), (1, 2), (0, 1)] {
        let error = threads(&vec![some_cpu(); cpus], devices).unwrap_err();
        assert!(
            matches!(error, LaneError::CpuCount { cpus: named, lanes } if (named, lanes) == (cpus, devices)),
            "{error}"
        );
    }
    assert!(matches!(threads(&[some_cpu(), NO_CPU], 2), Err(LaneError::NoCpu { cpu: NO_CPU, .. })));
    assert_eq!(threads(&[some_cpu(); 2], 2).unwrap(), 2);
}

#[test]
fn a_lane_has_the_processor_in_its_place() {
    let nowhere = [("model".to_owned(), None)];
    let options = pinned(None, &[7, 5]);
    let cpus: Vec<_> = (0..3).map(|lane| options.cpus(lane, &nowhere).unwrap()).collect();
    assert_eq!(cpus, [Some(CpuList(vec![7])), Some(CpuList(vec![5])), None]);
    assert_eq!(LaneOptions::default().cpus(0, &nowhere).unwrap(), None);
    let near = LaneOptions { pin: LanePin::Near, ..LaneOptions::default() };
    assert_eq!(near.cpus(0, &nowhere).unwrap(), None);
}

/// Devices are dealt out to lanes in turn, and so is the memory of their queues: the second lane's processor is none.
#[test]
fn memory_is_taken_where_the_lane_of_its_device_will_be() {
    for (threads, homeless) in [(Some(2), [false, true, false, true]), (Some(1), [false; 4])] {
        let options = pinned(threads, &[some_cpu(), NO_CPU]);
        let taken = |number| options.near(number, ("model".to_owned(), None), some_cpu);
        assert_eq!([0, 1, 2, 3].map(|number| taken(number).is_err()), homeless);
        assert_eq!(taken(0).unwrap(), some_cpu());
    }
    let own = pinned(None, &[some_cpu(), NO_CPU]);
    assert!(own.near(1, ("model".to_owned(), None), || ()).is_err(), "a lane for each device");
}

#[test]
fn a_lane_says_where_it_runs() {
    let engine = open(2, pinned(None, &[some_cpu(); 2]), LaneMode::Thread).unwrap();
    let cpus: Vec<_> = engine.statistics().lanes.into_iter().map(|lane| lane.cpus).collect();
    assert_eq!(cpus, vec![Some(CpuList(vec![some_cpu()])); 2]);
    engine.close().unwrap();
    let free = open(1, LaneOptions::default(), LaneMode::Thread).unwrap();
    assert_eq!(free.statistics().lanes[0].cpus, None);
    free.close().unwrap();
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
