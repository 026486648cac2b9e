//! Lanes with threads that sleep: nothing that is given to one waits for the time at which it looks by itself.
//!
//! Each lane here sleeps at once where it finds nothing to do. A wake-up that is lost costs 10 or 100 ms and shows in what
//! woke the lane: the time, and not somebody.

use std::thread;
use std::time::Duration;

use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};

use super::*;
use crate::{LaneIdle, LaneOptions};
use TransferState::Completed;

const BLOCK: u64 = 4096;
const FAR: Duration = Duration::from_secs(600);

fn asleep_at_once() -> EngineConfig {
    let idle = LaneIdle::Sleep { after: Duration::ZERO };
    EngineConfig { lanes: LaneOptions { idle, ..LaneOptions::default() }, ..EngineConfig::default() }
}

/// An engine, and a request of one block.
fn engine(config: EngineConfig) -> (Engine, Memory, Request) {
    let engine = Engine::open("model:size=1MiB", config).unwrap();
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let (source, target_id) = (memory.address(), engine.segments()[0].id);
    let request = Request { opcode: OpCode::Read, source, target_id, target_offset: 0, length: BLOCK };
    (engine, memory, request)
}

/// How often a lane has slept, by what woke it: somebody, a device, the time.
fn sleeps(engine: &Engine, lane: usize) -> [u64; 3] {
    let lane = &engine.statistics().lanes[lane];
    [lane.called, lane.interrupted, lane.timed_out]
}

/// Returns when a lane sleeps, or has at least said that it does and looked once more.
fn until_asleep(engine: &Engine, lane: usize) {
    loop {
        let lane = &engine.statistics().lanes[lane];
        if lane.sleeps > lane.called + lane.interrupted + lane.timed_out {
            return;
        }
        thread::yield_now();
    }
}

/// Requests to a lane, each when the lane sleeps, where it is one that does.
fn one_by_one(engine: &Engine, request: Request, rounds: u32, lane: Option<usize>) {
    let batch = engine.allocate_batch(rounds).unwrap();
    for task in 0..rounds {
        lane.into_iter().for_each(|lane| until_asleep(engine, lane));
        engine.submit(&batch, &[request]).unwrap();
        batch.wait(FAR).unwrap();
        assert_eq!(batch.status(task).unwrap().state, Completed);
    }
    batch.free();
}

#[test]
fn a_submit_wakes_a_lane() {
    const ROUNDS: u32 = 400;
    let (engine, _memory, request) = engine(asleep_at_once());
    one_by_one(&engine, request, ROUNDS, Some(0));
    let [called, _, time] = sleeps(&engine, 0);
    assert!(called > u64::from(ROUNDS) / 2, "called {called} times, and {time} times it was time");
    engine.close().unwrap();
}

/// The device takes its time, so that the lane sleeps with a command in flight.
#[test]
fn a_completion_wakes_a_lane() {
    let (engine, _memory, request) = engine(asleep_at_once());
    let late = Rule {
        queue: CommandQueue::Io,
        opcode: None,
        when: When::Next(u64::MAX),
        action: Action::Delay { turns: 2_000 },
    };
    engine.faults().unwrap().add(late);
    // How often it gets as far as sleeping before the device is done is a matter of what else the machine does.
    for _ in 0..200 {
        one_by_one(&engine, request, 50, Some(0));
        if sleeps(&engine, 0)[1] > 0 {
            break;
        }
    }
    let [called, interrupted, time] = sleeps(&engine, 0);
    assert!(interrupted > 0, "interrupted {interrupted} times; called {called} times, and {time} times it was time");
    engine.close().unwrap();
}

/// Whoever takes memory away asks a lane that may sleep, and has his answer.
#[test]
fn an_inquiry_wakes_a_lane() {
    const ROUNDS: u32 = 200;
    let (engine, _memory, _) = engine(asleep_at_once());
    for _ in 0..ROUNDS {
        let memory = engine.allocate_memory(BLOCK as usize).unwrap();
        until_asleep(&engine, 0);
        engine.unregister_memory(memory);
    }
    let [called, _, time] = sleeps(&engine, 0);
    assert!(called > u64::from(ROUNDS) / 2, "called {called} times, and {time} times it was time");
    engine.close().unwrap();
}

#[test]
fn a_lane_that_polls_never_sleeps() {
    let lanes = LaneOptions { idle: LaneIdle::Poll, ..LaneOptions::default() };
    let (engine, _memory, request) = engine(EngineConfig { lanes, ..EngineConfig::default() });
    one_by_one(&engine, request, 100, None);
    assert_eq!(sleeps(&engine, 0), [0; 3]);
    engine.close().unwrap();
}

/// A controller that stops answering while its lane sleeps with a command in flight is looked after all the same.
#[test]
fn deadlines_pass_while_a_lane_sleeps() {
    use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};

    let limit = Duration::from_millis(200);
    let recovery = RecoveryConfig { command_timeout: limit, abort_timeout: limit, ..RecoveryConfig::default() };
    let controller = ControllerConfig { recovery, ..ControllerConfig::default() };
    let (engine, _memory, request) = engine(EngineConfig { controller, ..asleep_at_once() });
    let lost =
        Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action: Action::Drop { execute: false } };
    engine.faults().unwrap().add(lost);
    one_by_one(&engine, request, 3, Some(0));
    assert!(engine.recovery_counters().unwrap().restarts >= 1, "the command was lost, and is asked for again");
    engine.close().unwrap();
}

/// Many lanes, each pinned where it may be, and each woken for its own device alone.
#[test]
fn each_lane_sleeps_for_itself() {
    let config = asleep_at_once();
    let options = crate::OpenOptions { config, ..crate::OpenOptions::default() };
    let (engine, _) = Engine::open_devices(["model:size=1MiB", "model:size=1MiB"], options).unwrap();
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let target_id = engine.segments()[1].id;
    let request =
        Request { opcode: OpCode::Read, source: memory.address(), target_id, target_offset: 0, length: BLOCK };
    one_by_one(&engine, request, 100, Some(1));
    let [called, interrupted, _] = sleeps(&engine, 0);
    assert_eq!((called, interrupted), (0, 0), "nobody has given it anything");
    assert!(sleeps(&engine, 1)[0] > 0);
    engine.close().unwrap();
}
