//! Controllers that stall, fail and vanish under a lane: every task ends once, and COMPLETED means its bytes.

use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use TransferState::{Completed, Failed};

const BLOCK: u64 = 4096;

/// Deadlines for a controller that is stepped in this thread: they pass only where something is wrong.
fn impatient() -> EngineConfig {
    patient_for(Duration::from_millis(100))
}

/// Commands are overdue after `limit`, whatever is wrong with them: on a busy machine a thread may sleep for long.
fn patient_for(limit: Duration) -> EngineConfig {
    EngineConfig {
        queue_entries: 32,
        controller: ControllerConfig {
            admin_timeout: Duration::from_secs(20),
            least_ready_timeout: Duration::from_secs(20),
            recovery: RecoveryConfig {
                command_timeout: limit,
                abort_timeout: limit,
                health_interval: Duration::from_millis(5),
                ..RecoveryConfig::default()
            },
            ..ControllerConfig::default()
        },
        ..EngineConfig::default()
    }
}

/// 64 blocks with data and memory for as many: block `n` has seed `n`.
fn filled(settings: &str) -> Bench {
    let (engine, lane) = Engine::open_caller_driven(&format!("model:size=1MiB{settings}"), impatient()).unwrap();
    let memory = engine.allocate_memory(64 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane, memory };
    for block in 0..64 {
        bench.fill(block * BLOCK, BLOCK, block);
    }
    let batch = bench.submit(&[bench.write(0, 0, 64 * BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Completed]);
    bench.memory.view().fill(0xEE);
    bench
}

/// Reads of each block alone, apart on the device so that none is joined with the next.
fn reads(bench: &Bench) -> Vec<Request> {
    (0..64).map(|at| at * 37 % 64).map(|block| bench.read(block * BLOCK, block * BLOCK, BLOCK)).collect()
}

fn on_io(when: When, action: Action) -> Rule {
    Rule { queue: CommandQueue::Io, opcode: None, when, action }
}

#[track_caller]
fn all_read(bench: &Bench, batch: &Batch) {
    assert_eq!(batch.overall(), BatchStatus { tasks: batch.tasks(), ended: batch.tasks(), unsuccessful: 0 });
    for block in 0..64 {
        bench.check(block * BLOCK, BLOCK, block);
    }
    assert_eq!(bench.engine.violations(), []);
}

#[test]
fn a_command_that_is_lost_is_asked_for_again_after_a_reset() {
    let mut bench = filled("");
    bench.engine.faults().unwrap().add(on_io(When::Nth(20), Action::Drop { execute: false }));
    let batch = bench.submit(&reads(&bench));
    bench.run();
    all_read(&bench, &batch);
    let recovery = bench.engine.recovery_counters().unwrap();
    // More than one where this thread slept for longer than a command may take.
    let counts = [recovery.aborts, recovery.resets, recovery.restarts, recovery.interrupted];
    assert!(counts.iter().all(|count| *count >= 1), "{recovery:?}");
}

#[test]
fn a_command_that_is_only_slow_is_aborted_and_asked_for_again() {
    let mut bench = filled("");
    let slow = Action::Delay { turns: u32::MAX };
    bench.engine.faults().unwrap().add(on_io(When::Nth(3), slow));
    let batch = bench.submit(&reads(&bench));
    bench.run();
    all_read(&bench, &batch);
    let recovery = bench.engine.recovery_counters().unwrap();
    assert!(recovery.aborts >= 1 && recovery.aborted >= 1, "{recovery:?}");
}

#[test]
fn a_status_without_do_not_retry_is_retried_and_one_with_it_is_not() {
    for (dnr, expected) in [(false, Completed), (true, Failed)] {
        let mut bench = filled("");
        let status = StatusCode::NAMESPACE_NOT_READY.status().with_dnr(dnr);
        bench.engine.faults().unwrap().add(on_io(When::Nth(1), Action::Status { status, execute: false }));
        let batch = bench.submit(&[bench.read(0, 0, BLOCK)]);
        bench.run();
        assert_eq!(states(&batch), [expected]);
        assert_eq!(batch.nvme_status(0).unwrap(), dnr.then_some(status));
    }
}

/// What comes in behind a Reservation Conflict is counted as anything else is.
#[test]
fn what_ends_after_a_conflict_is_counted() {
    let mut bench = Bench::open("model:size=1MiB", 16, 16 * 4096);
    let status = StatusCode::RESERVATION_CONFLICT.status();
    let faults = bench.engine.faults().unwrap();
    faults.add(on_io(When::Nth(1), Action::Status { status, execute: false }));
    faults.add(on_io(When::Next(7), Action::Delay { turns: 20 }));
    let batch = bench.submit(&bench.descending(8));
    run_until(&mut bench.lane, |_| batch.overall().is_finished());
    assert_eq!(batch.overall().unsuccessful, 1);
    let (ours, theirs) = (bench.engine.counters(), bench.engine.model_counters().unwrap());
    assert_eq!((ours.commands, ours.completions), (theirs.io_sqes, theirs.io_cqes));
    assert_eq!(bench.engine.statistics().flows().total().latency.count(), 8);
}

#[test]
fn a_status_that_never_changes_fails_in_the_end() {
    let mut bench = filled("");
    let status = StatusCode::NAMESPACE_NOT_READY.status();
    bench.engine.faults().unwrap().add(on_io(When::Next(1000), Action::Status { status, execute: false }));
    let before = bench.engine.counters().commands;
    let batch = bench.submit(&[bench.read(0, 0, BLOCK)]);
    bench.run();
    assert_eq!((states(&batch), batch.nvme_status(0).unwrap()), (vec![Failed], Some(status)));
    assert_eq!(bench.engine.counters().commands - before, 1 + u64::from(crate::lane::ATTEMPTS));
}

/// Field failure 2, in the middle of I/O, at each step of it.
#[test]
fn a_fatal_status_at_any_command_loses_nothing() {
    for step in [1, 2, 17, 31, 32, 63, 64] {
        let mut bench = filled("");
        bench.engine.faults().unwrap().arm(At::Command(step), Life::Fatal);
        let batch = bench.submit(&reads(&bench));
        bench.run();
        all_read(&bench, &batch);
        assert!(bench.engine.recovery_counters().unwrap().restarts >= 1, "step {step}");
    }
}

#[test]
fn a_long_request_is_whole_after_a_reset_in_its_middle() {
    let mut bench = filled(",mdts=1");
    bench.engine.faults().unwrap().arm(At::Command(13), Life::Fatal);
    // 32 commands, and the next request joined to the last of them.
    let batch = bench.submit(&[bench.read(0, 0, 63 * BLOCK), bench.read(63 * BLOCK, 63 * BLOCK, BLOCK)]);
    bench.run();
    all_read(&bench, &batch);
}

/// Field failure 4: pulled under load, at each step.
#[test]
fn a_drive_that_is_pulled_ends_every_task_and_every_later_one() {
    for (step, life) in [
        (1, Life::AllOnes { dma_turns: 0 }),
        (20, Life::AllOnes { dma_turns: 100 }),
        (40, Life::AllZeroes { dma_turns: 10 }),
    ] {
        let mut bench = filled("");
        bench.engine.faults().unwrap().arm(At::Command(step), life);
        let batch = bench.submit(&reads(&bench));
        bench.run();
        let status = batch.overall();
        assert!(status.is_finished() && status.unsuccessful > 0, "{status:?}");
        for (request, state) in reads(&bench).iter().zip(states(&batch)) {
            if state == Completed {
                bench.check(request.target_offset, BLOCK, request.target_offset / BLOCK);
            } else {
                assert_eq!(state, Failed);
            }
        }
        // Whatever a device without power does to memory that it has lost, it does it to nobody.
        bench.memory.view().fill(0xEE);
        for _ in 0..1000 {
            bench.lane.turn();
        }
        assert!(!bench.is_touched(0, 64 * BLOCK, 0xEE));
        let later = bench.submit(&reads(&bench));
        bench.run();
        assert_eq!(later.overall(), BatchStatus { tasks: 64, ended: 64, unsuccessful: 64 });
        assert_eq!(bench.engine.violations(), []);
    }
}

#[test]
fn a_lane_that_is_dropped_with_work_in_flight_ends_it() {
    let bench = filled("");
    let batch = bench.submit(&reads(&bench));
    let Bench { engine, mut lane, memory } = bench;
    lane.turn();
    drop(lane);
    assert_eq!(batch.overall(), BatchStatus { tasks: 64, ended: 64, unsuccessful: 64 });
    memory.view().fill(0xEE);
    drop(engine);
    let mut bytes = [0; 64];
    memory.view().read(0, &mut bytes);
    assert_eq!(bytes, [0xEE; 64]);
}

#[test]
fn an_engine_with_a_thread_recovers_too() {
    let engine = Engine::open("model:size=64MiB", patient_for(Duration::from_millis(500))).unwrap();
    let memory = engine.allocate_memory(1 << 20).unwrap();
    let request = |opcode, at: u64| Request {
        opcode,
        source: memory.address() + at,
        target_id: SegmentId(1),
        target_offset: at * 2,
        length: BLOCK,
    };
    let faults = engine.faults().unwrap();
    for round in 0..8 {
        faults.arm(At::Command(50 + round), Life::Fatal);
        faults.add(on_io(When::Nth(100), Action::Drop { execute: true }));
        for opcode in [OpCode::Write, OpCode::Read] {
            if opcode == OpCode::Read {
                memory.view().fill(0);
            } else {
                memory.view().fill(round as u8 + 1);
            }
            let requests: Vec<_> = (0..256).map(|at| request(opcode, at * BLOCK)).collect();
            let batch = engine.allocate_batch(256).unwrap();
            engine.submit(&batch, &requests).unwrap();
            let status = batch.wait(Duration::from_secs(60)).unwrap();
            assert_eq!(status.unsuccessful, 0);
        }
        let mut bytes = vec![0; 1 << 20];
        memory.view().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == round as u8 + 1), "round {round}");
    }
    assert!(engine.recovery_counters().unwrap().restarts >= 8);
    assert_eq!(engine.violations(), []);
    engine.close().unwrap();
}
