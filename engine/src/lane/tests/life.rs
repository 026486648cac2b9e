//! Beginnings and ends: what becomes of work when its batch, its lane or its engine goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use super::*;
use crate::BatchOptions;
use crate::batch::Shared;
use TransferState::{Canceled, Completed, Failed, Pending};

const BLOCK: u64 = 4096;

#[test]
fn a_batch_that_is_dropped_in_flight_runs_to_its_end() {
    let mut bench = Bench::open("model:size=64MiB", 4, 16 * BLOCK as usize);
    bench.fill(0, 8 * BLOCK, 3);
    let requests: Vec<_> = (0..8).rev().map(|block| bench.write(block * BLOCK, block * BLOCK, BLOCK)).collect();
    drop(bench.submit(&requests));
    bench.lane.turn();
    let all = bench.engine.allocate_batch(0).unwrap();
    drop(all);
    bench.run();
    bench.memory.view().fill(0xEE);
    bench.submit(&[bench.read(0, 0, 8 * BLOCK)]);
    bench.run();
    bench.check(0, 8 * BLOCK, 3);
    bench.close();
}

#[test]
fn batches_are_counted_until_their_work_has_ended() {
    let config = EngineConfig { max_batches: 3, queue_entries: 2, ..EngineConfig::default() };
    let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
    let memory = engine.allocate_memory(4096).unwrap();
    let mut bench = Bench { engine, lane, memory };
    let read = bench.read(0, 0, BLOCK);
    for _ in 0..3 {
        drop(bench.submit(&[read]));
    }
    let error = bench.engine.allocate_batch(1).unwrap_err().to_string();
    assert_eq!(error, "3 batches live already, as many as the engine was configured for (max_batches): drop some");
    bench.run();
    let held: Vec<_> = (0..3).map(|_| bench.engine.allocate_batch(1).unwrap()).collect();
    assert!(bench.engine.allocate_batch(1).is_err());
    drop(held);
    assert!(bench.engine.allocate_batch(1).is_ok());
    bench.close();
}

#[test]
fn closing_gives_up_what_is_not_issued_and_ends_what_is() {
    // As long as one likes: the drain must not choke on it.
    let config = EngineConfig { queue_entries: 3, drain_timeout: Duration::MAX, ..EngineConfig::default() };
    let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
    let memory = engine.allocate_memory(16 * 4096).unwrap();
    let mut bench = Bench { engine, lane, memory };
    let requests: Vec<_> = (0..9).rev().map(|block| bench.read(block * BLOCK, block * BLOCK, BLOCK)).collect();
    let (first, second) = (bench.submit(&requests), bench.submit(&requests));
    bench.lane.turn();
    let Bench { engine, lane, memory: _memory } = bench;
    engine.close_with(lane).unwrap();
    for batch in [&first, &second] {
        assert!(batch.overall().is_finished());
        assert!(states(batch).iter().all(|state| matches!(state, Completed | Canceled)), "{:?}", states(batch));
    }
    assert_eq!(states(&first)[..2], [Completed; 2], "they were in flight");
    assert_eq!(states(&second)[8], Canceled);
}

#[test]
fn a_lane_that_outlives_its_engine_ends_every_task() {
    let mut bench = Bench::open("model:size=1MiB", 3, 16 * BLOCK as usize);
    let requests: Vec<_> = (0..5).rev().map(|block| bench.read(block * BLOCK, block * BLOCK, BLOCK)).collect();
    let issued = bench.submit(&requests);
    bench.lane.turn();
    let unseen = bench.submit(&requests);
    let Bench { engine, mut lane, memory } = bench;
    drop(engine);
    assert_eq!(states(&unseen), [Pending; 5], "nobody has told them");
    run_until(&mut lane, Lane::is_idle);
    for batch in [&issued, &unseen] {
        assert_eq!(states(batch), [Failed; 5]);
        assert_eq!(batch.overall(), BatchStatus { tasks: 5, ended: 5, unsuccessful: 5 });
        assert_eq!(batch.nvme_status(0).unwrap(), None, "no device said so");
        assert_eq!(batch.failure(0).unwrap(), Some(crate::FailureReason::Lost), "there is a lane");
    }
    assert!(!lane.turn(), "and it has no more to do");
    memory.view().fill(1);
}

/// Invariant 7: a terminal status is a promise, also while the engine goes and another thread turns the lane.
#[test]
fn no_byte_arrives_after_a_task_was_called_failed() {
    for _ in 0..500 {
        let mut bench = Bench::open("model:size=1MiB", 3, BLOCK as usize);
        let batch = bench.submit(&[bench.read(0, 0, BLOCK)]);
        bench.lane.turn();
        let Bench { engine, mut lane, memory } = bench;
        let ready = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                ready.store(true, Ordering::Release);
                // A turn before would have the model execute the read.
                while lane.ports[0].closing.is_open() {
                    std::hint::spin_loop();
                }
                run_until(&mut lane, |_| batch.overall().is_finished());
                memory.view().write_words(0, &[u64::MAX]);
            });
            while !ready.load(Ordering::Acquire) {
                thread::yield_now();
            }
            drop(engine);
        });
        assert_eq!(states(&batch), [Failed]);
        let mut word = [0];
        memory.view().read_words(0, &mut word);
        assert_eq!(word, [u64::MAX], "the device wrote after the task was FAILED");
    }
}

#[test]
fn an_engine_with_a_thread_is_dropped_in_the_middle() {
    for _ in 0..20 {
        let engine = Engine::open("model:size=64MiB", EngineConfig::default()).unwrap();
        let memory = engine.allocate_memory(1 << 20).unwrap();
        let batch = engine.allocate_batch(0).unwrap();
        let request = |block| Request {
            opcode: OpCode::Write,
            source: memory.address() + block % 256 * BLOCK,
            target_id: SegmentId(1),
            target_offset: block * BLOCK,
            length: BLOCK,
        };
        let requests: Vec<_> = (0..10_000).rev().map(request).collect();
        engine.submit(&batch, &requests).unwrap();
        drop(engine);
        assert!(batch.overall().is_finished(), "{:?}", batch.overall());
        let states = states(&batch);
        assert!(states.iter().all(|state| matches!(state, Completed | Canceled)));
        memory.view().fill(1);
    }
}

/// The device takes its time, so that there is something to wait for.
#[test]
fn a_batch_that_was_freed_in_flight_has_ended() {
    use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};

    let engine = Engine::open("model:size=1MiB", EngineConfig::default()).unwrap();
    let action = Action::Delay { turns: 2_000 };
    engine.faults().unwrap().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Next(u64::MAX), action });
    let memory = engine.allocate_memory(1 << 20).unwrap();
    let request = |block| Request {
        opcode: OpCode::Read,
        source: memory.address() + block * BLOCK,
        target_id: SegmentId(1),
        target_offset: block * BLOCK,
        length: BLOCK,
    };
    let requests: Vec<_> = (0..16).rev().map(request).collect();
    for _ in 0..20 {
        let batch = engine.allocate_batch(16).unwrap();
        engine.submit(&batch, &requests).unwrap();
        let other = batch.clone();
        batch.free();
        assert_eq!((other.overall().ended, other.overall().tasks), (16, 16));
    }
    engine.close().unwrap();
}

/// Two engines have the same segment numbers and different devices, and neither takes the other's batch.
#[test]
fn two_engines_in_one_process_are_two() {
    let mut one = Bench::open("model:size=1MiB", 8, 4 * BLOCK as usize);
    let mut two = Bench::open("model:size=1MiB,lba=512", 8, 4 * BLOCK as usize);
    for (bench, seed) in [(&mut one, 1), (&mut two, 2)] {
        bench.fill(0, BLOCK, seed);
        bench.submit(&[bench.write(0, 0, BLOCK)]);
        bench.run();
    }
    for (bench, seed) in [(&mut one, 1), (&mut two, 2)] {
        bench.submit(&[bench.read(BLOCK, 0, BLOCK)]);
        bench.run();
        bench.check(BLOCK, BLOCK, seed);
    }
    let foreign = one.submit(&[Request { source: two.memory.address(), ..one.read(0, 0, BLOCK) }]);
    let refusal = foreign.refusal(0).unwrap().unwrap().to_string();
    assert!(refusal.contains("lies in no registered region"), "{refusal}");
    let batch = one.engine.allocate_batch(1).unwrap();
    let refused = two.engine.submit(&batch, &[two.read(0, 0, BLOCK)]).unwrap_err();
    assert_eq!(refused.to_string(), "the batch belongs to another engine: submit it to the one that allocated it");
    assert_eq!(batch.tasks(), 0);
    one.run();
    one.close();
    two.close();
}

/// What is polled in one thread while another submits is never finished too early, and counts right in the end.
#[test]
fn submitting_and_polling_at_the_same_time() {
    let engine = Engine::open("model:size=64MiB", EngineConfig::default()).unwrap();
    let memory = engine.allocate_memory(64 << 10).unwrap();
    let batch = engine.allocate_batch(0).unwrap();
    let good = Request {
        opcode: OpCode::Read,
        source: memory.address(),
        target_id: SegmentId(1),
        target_offset: 0,
        length: BLOCK,
    };
    let bad = Request { target_offset: 7, ..good };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let status = batch.overall();
                if status.is_finished() {
                    for task in 0..status.tasks {
                        let state = batch.status(task).unwrap().state;
                        assert!(state.is_terminal(), "task {task} of {status:?} is {state}");
                    }
                }
                thread::yield_now();
            }
        });
        for submitter in 0..2 {
            let (engine, batch) = (&engine, &batch);
            scope.spawn(move || {
                for round in 0..2_000u64 {
                    let offset = (round * 2 + submitter) * BLOCK;
                    engine.submit(batch, &[bad, Request { target_offset: offset, ..good }, bad]).unwrap();
                    if round % 16 == 0 {
                        batch.wait(Duration::MAX).unwrap();
                    }
                }
            });
        }
        while batch.tasks() < 12_000 || !batch.overall().is_finished() {
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(batch.overall(), BatchStatus { tasks: 12_000, ended: 12_000, unsuccessful: 8_000 });
    engine.close().unwrap();
}

#[test]
fn an_engine_that_did_not_open_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let config = EngineConfig { queue_entries: 1, ..EngineConfig::default() };
    let error = Engine::open(&file_uri(&path, "size=1MiB"), config).map(drop).unwrap_err().to_string();
    assert!(error.contains("a queue of 1 entries cannot be had: 2 to 1024 are possible"), "{error}");
    assert!(!path.exists());
}

/// A notifier may submit, and is told of what was refused once: a turn ends, whatever it puts into the inbox meanwhile.
#[test]
fn a_turn_ends_whatever_a_notifier_submits() {
    let (engine, mut lane) = Engine::open_caller_driven("model:size=1MiB", EngineConfig::default()).unwrap();
    let engine = Arc::new(engine);
    let memory = engine.allocate_memory(4096).unwrap();
    let request = Request {
        opcode: OpCode::Read,
        source: memory.address(),
        target_id: SegmentId(1),
        target_offset: 0,
        length: 4096,
    };
    let (weak, own) = (Arc::downgrade(&engine), Arc::<OnceLock<Weak<Shared>>>::default());
    let again = Arc::clone(&own);
    let notifier = move |_| {
        let batch = again.get().and_then(Weak::upgrade).map(|shared| Batch { shared });
        if let (Some(engine), Some(batch)) = (weak.upgrade(), batch)
            && batch.tasks() < 1000
        {
            // Freed meanwhile, it is refused.
            let _ = engine.submit(&batch, &[request]);
        }
    };
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::with_capacity(4) };
    let batch = engine.allocate_batch_with(options).unwrap();
    own.set(Arc::downgrade(&batch.shared)).unwrap();
    engine.submit(&batch, &[Request { target_id: SegmentId(9), ..request }]).unwrap();
    lane.turn();
    assert!(batch.tasks() <= 3, "{} tasks after one turn", batch.tasks());
    batch.free_with(&mut lane);
    drop((own, memory));
    Arc::into_inner(engine).unwrap().close_with(lane).unwrap();
}

/// Whatever a notifier does, tasks end, memory is unregistered, and nobody waits for a lane that has gone by it.
#[test]
fn a_notifier_that_panics_keeps_nobody_waiting() {
    let mut bench = Bench::open("model:size=1MiB", 2, 8192);
    let options = BatchOptions { notifier: Some(Box::new(|_| panic!("the test's"))), ..BatchOptions::default() };
    let batch = bench.engine.allocate_batch_with(options).unwrap();
    let requests = [bench.read(0, 0, 4096), bench.read(0, 7, 4096), bench.read(4096, 8192, 4096)];
    bench.engine.submit(&batch, &requests).unwrap();
    bench.lane.turn();
    let memory = bench.memory.clone();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert_eq!(states(&batch), [TransferState::Completed, TransferState::Invalid, TransferState::Canceled]);
    batch.free_with(&mut bench.lane);
    bench.close();
}
