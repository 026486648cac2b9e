//! A lane that is dropped while its engine lives: what is submitted then ends, with the reason, and whoever waits returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::{BatchOptions, FailureReason};
use TransferState::{Completed, Failed};

const BLOCK: u64 = 4096;

#[test]
fn what_is_in_flight_and_what_comes_later_fails_with_the_reason_and_is_freed() {
    let bench = Bench::open("model:size=1MiB", 3, 16 * BLOCK as usize);
    let requests: Vec<_> = (0..5).rev().map(|block| bench.read(block * BLOCK, block * BLOCK, BLOCK)).collect();
    let mut bench = bench;
    let issued = bench.submit(&requests);
    bench.lane.turn();
    let unseen = bench.submit(&requests);
    let Bench { engine, lane, memory } = bench;
    drop(lane);
    let later = engine.allocate_batch(5).unwrap();
    engine.submit(&later, &requests).unwrap();
    for batch in [&issued, &unseen, &later] {
        assert_eq!(states(batch), [Failed; 5]);
        assert_eq!(batch.overall(), BatchStatus { tasks: 5, ended: 5, unsuccessful: 5 });
        assert_eq!(batch.failure(4).unwrap(), Some(FailureReason::NoLane));
        assert_eq!(batch.nvme_status(4).unwrap(), None, "no device said so");
        batch.wait(Duration::ZERO).unwrap();
    }
    let reason = later.failure(0).unwrap().unwrap().to_string();
    assert!(reason.starts_with("the lane of the device was dropped while its engine lived"), "{reason}");
    // It waited for ever before.
    [issued, unseen, later].into_iter().for_each(Batch::free);
    engine.unregister_memory(memory);
    let error = engine.close().unwrap_err().to_string();
    assert!(
        error.contains("not shut down in the orderly way"),
        "commands were in flight, so that the controller had to be stopped: {error}"
    );
}

#[test]
fn a_lane_that_had_nothing_to_do_leaves_a_sound_device() {
    let mut bench = Bench::open("model:size=1MiB", 3, BLOCK as usize);
    let done = bench.submit(&[bench.read(0, 0, BLOCK)]);
    bench.run();
    let Bench { engine, lane, memory } = bench;
    drop(lane);
    assert_eq!((states(&done), done.failure(0).unwrap()), (vec![Completed], None));
    assert!(engine.smart_log().is_ok(), "there was no reason to stop it");
    // One batch again and again, and one with a request that is refused.
    let request = Request {
        opcode: OpCode::Read,
        source: memory.address(),
        target_id: SegmentId(1),
        target_offset: 0,
        length: BLOCK,
    };
    for round in 1..4 {
        engine.submit(&done, &[request, Request { target_offset: 7, ..request }]).unwrap();
        assert_eq!(done.overall(), BatchStatus { tasks: 1 + 2 * round, ended: 1 + 2 * round, unsuccessful: 2 * round });
    }
    done.free();
    assert_eq!(engine.violations(), []);
    engine.close().unwrap();
}

/// A notifier may submit: here it does so in the middle of the giving up.
#[test]
fn a_notifier_that_submits_is_served_to_the_end() {
    let bench = Bench::open("model:size=1MiB", 3, BLOCK as usize);
    let request = bench.read(0, 0, BLOCK);
    let Bench { engine, lane, memory: _memory } = bench;
    drop(lane);
    let engine = Arc::new(engine);
    let (other, told) = (engine.allocate_batch(64).unwrap(), Arc::new(AtomicU32::new(0)));
    let notifier = {
        let (engine, other, told) = (Arc::downgrade(&engine), other.clone(), Arc::clone(&told));
        move |_: BatchStatus| {
            told.fetch_add(1, Ordering::Relaxed);
            engine.upgrade().unwrap().submit(&other, &[request]).unwrap();
        }
    };
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::with_capacity(2) };
    let batch = engine.allocate_batch_with(options).unwrap();
    engine.submit(&batch, &[request, request]).unwrap();
    assert!(batch.overall().is_finished() && other.overall().is_finished());
    assert_eq!((told.load(Ordering::Relaxed), other.tasks()), (2, 2));
    batch.free();
    other.free();
}

/// Threads submit while the lane goes: each task ends once, whoever gives it up.
#[test]
fn submits_that_race_with_the_lane_end_once() {
    for _ in 0..50 {
        let bench = Bench::open("model:size=1MiB", 8, BLOCK as usize);
        let request = bench.read(0, 0, BLOCK);
        let Bench { engine, mut lane, memory: _memory } = bench;
        let batch = engine.allocate_batch(400).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        engine.submit(&batch, &[request, request]).unwrap();
                    }
                });
            }
            scope.spawn(move || {
                for _ in 0..20 {
                    lane.turn();
                }
                drop(lane);
            });
        });
        let status = batch.overall();
        assert_eq!((status.tasks, status.ended), (400, 400));
        assert!(states(&batch).iter().all(|state| matches!(state, Completed | Failed)));
        assert_eq!(states(&batch).iter().filter(|state| **state == Failed).count() as u32, status.unsuccessful);
        batch.free();
        // Not in order, where commands were in flight.
        drop(engine);
    }
}

/// Of a task that spans devices each share ends once, also where the lane of all of them is gone.
#[test]
fn a_stripe_without_its_lane_fails_whole() {
    let Bench { engine, mut lane, memory } = Bench::striped(8 * BLOCK as usize);
    let request = Request {
        opcode: OpCode::Read,
        source: memory.address(),
        target_id: engine.segments()[0].id,
        target_offset: 0,
        length: 8 * BLOCK,
    };
    let batch = engine.allocate_batch(2).unwrap();
    engine.submit(&batch, &[request]).unwrap();
    lane.turn();
    drop(lane);
    engine.submit(&batch, &[request]).unwrap();
    assert_eq!(states(&batch), [Failed; 2]);
    assert_eq!(batch.failure(1).unwrap(), Some(FailureReason::NoLane));
    batch.free();
}
