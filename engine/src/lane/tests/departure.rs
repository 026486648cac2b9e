//! A lane that is dropped while its engine lives: what is submitted then ends, with the reason, and whoever waits returns.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::*;
use crate::{BatchOptions, FailureReason, OpenOptions};
use TransferState::{Canceled, Completed, Failed};

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
    let request = request_of(&memory, OpCode::Read, 0, 0, BLOCK);
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

/// Whoever unregisters memory waits for him who gives up what names it, and is in the middle of telling somebody else.
#[test]
fn memory_is_named_by_no_task_when_it_was_unregistered_though_the_lane_is_gone() {
    let bench = Bench::open("model:size=1MiB", 3, BLOCK as usize);
    let request = bench.read(0, 0, BLOCK);
    let Bench { engine, lane, memory } = bench;
    drop(lane);
    let (inside, entered) = mpsc::channel();
    let goes_on = Arc::new(AtomicBool::new(false));
    let waited = Arc::clone(&goes_on);
    let notifier = move |_: BatchStatus| {
        inside.send(()).unwrap();
        while !waited.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
    let (slow, batch) = (engine.allocate_batch_with(options).unwrap(), engine.allocate_batch(1).unwrap());
    let state = thread::scope(|scope| {
        scope.spawn(|| engine.submit_flush(&slow, SegmentId(1)).unwrap());
        entered.recv().unwrap();
        engine.submit(&batch, &[request]).unwrap();
        let unregistered = scope.spawn(|| {
            engine.unregister_memory(memory);
            batch.status(0).unwrap().state
        });
        // So that it has a chance to come too early.
        thread::sleep(Duration::from_millis(20));
        goes_on.store(true, Ordering::Release);
        unregistered.join().unwrap()
    });
    assert_eq!(state, Failed);
}

/// Nothing of it was issued, so nobody needs to fail over.
#[test]
fn what_was_canceled_is_canceled_though_its_lane_goes_before_it_sees_that() {
    let mut bench = Bench::open("model:size=1MiB", 3, 16 * BLOCK as usize);
    let batch = bench.submit(&bench.descending(5));
    bench.lane.turn();
    batch.cancel();
    let unseen = bench.submit(&bench.descending(2));
    unseen.cancel();
    let Bench { engine, lane, memory: _memory } = bench;
    drop(lane);
    // Two slots.
    assert_eq!(states(&batch), [Failed, Failed, Canceled, Canceled, Canceled]);
    assert_eq!(states(&unseen), [Canceled; 2]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 5, ended: 5, unsuccessful: 5 });
    drop(engine);
}

/// Another engine's lane is no way to close this one: it counts as dropped, and this one's as not given back.
#[test]
fn the_lane_of_another_engine_closes_none() {
    let (mut one, other) =
        (Bench::open("model:size=1MiB", 3, BLOCK as usize), Bench::open("model:size=1MiB", 3, BLOCK as usize));
    let batch = one.submit(&[one.read(0, 0, BLOCK)]);
    let left = other.submit(&[other.read(0, 0, BLOCK)]);
    one.engine.close_with(other.lane).unwrap();
    assert_eq!((states(&left), left.failure(0).unwrap()), (vec![Failed], Some(FailureReason::NoLane)));
    one.lane.turn();
    assert_eq!(states(&batch), [Failed]);
    drop(one.lane);
    let _ = other.engine.close();
}

/// Its thread cannot wait for itself: the device is closed all the same, and so are the others.
#[test]
fn the_last_handle_of_an_engine_may_go_in_a_notifier() {
    let folder = tempfile::tempdir().unwrap();
    let uris = ["a", "b"].map(|name| file_uri(&folder.path().join(name), "size=1MiB,overwrite"));
    let open = || Engine::open_devices([&*uris[0], &*uris[1]], OpenOptions::default()).map(|(engine, _)| engine);
    let engine = Arc::new(open().unwrap());
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let (inside, entered) = mpsc::channel();
    let (weak, alone) = (Arc::downgrade(&engine), Arc::new(AtomicBool::new(false)));
    let is_alone = Arc::clone(&alone);
    let (done, ended) = mpsc::channel();
    let notifier = move |_: BatchStatus| {
        let engine = weak.upgrade();
        inside.send(()).unwrap();
        while !is_alone.load(Ordering::Acquire) {
            thread::yield_now();
        }
        drop(engine);
        done.send(()).unwrap();
    };
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
    let batch = engine.allocate_batch_with(options).unwrap();
    let request = request_of(&memory, OpCode::Read, 0, 0, BLOCK);
    engine.submit(&batch, &[request]).unwrap();
    entered.recv().unwrap();
    drop((engine, memory));
    alone.store(true, Ordering::Release);
    ended.recv().unwrap();
    assert_eq!(states(&batch), [Completed]);
    open().unwrap().close().unwrap();
}
