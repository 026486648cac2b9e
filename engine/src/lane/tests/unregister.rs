//! Memory that is unregistered: while requests name it, while they are submitted, and while controllers fail.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{At, Life};

use super::*;
use crate::SegmentLayout;
use TransferState::{Canceled, Completed, Failed, Invalid};

const BLOCK: u64 = 4096;

#[test]
fn what_was_issued_runs_to_its_end_and_what_was_not_is_given_up() {
    let mut bench = Bench::open("model:size=1MiB", 4, 16 * BLOCK as usize);
    let batch = bench.submit(&bench.descending(10));
    bench.lane.turn();
    let Bench { engine, mut lane, memory } = bench;
    engine.unregister_memory_with(memory, &mut lane);
    // Three slots.
    assert_eq!(states(&batch)[..3], [Completed; 3]);
    assert_eq!(states(&batch)[3..], [Canceled; 7]);
    assert_eq!(batch.overall(), BatchStatus { tasks: 10, ended: 10, unsuccessful: 7 });
    assert_eq!(engine.counters().commands, 3);
    check_counters(&engine);
    engine.close_with(lane).unwrap();
}

/// A task of which one command was issued is not given up: its memory would be half written and called untouched.
#[test]
fn a_task_that_was_begun_is_not_given_up() {
    let mut bench = Bench::open("model:size=1MiB,mdts=1", 3, 64 * BLOCK as usize);
    let other = bench.engine.allocate_memory(4096).unwrap();
    let small = Request { source: other.address(), ..bench.read(0, 0, BLOCK) };
    let batch = bench.submit(&[bench.read(0, 0, 12 * BLOCK), small, bench.read(0, 20 * BLOCK, BLOCK)]);
    bench.lane.turn();
    let memory = bench.memory.clone();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert_eq!((states(&batch)[0], states(&batch)[2]), (Completed, Canceled));
    bench.run();
    assert_eq!(states(&batch), [Completed, Completed, Canceled], "another memory's task is served");
    bench.close();
}

/// Two extents, so that each task is two commands; of the first task one was issued, for which there was a slot.
#[test]
fn a_task_over_extents_is_given_up_where_it_was_not_begun() {
    let config = EngineConfig { queue_entries: 2, ..EngineConfig::default() };
    let mut devices = Devices::new(LaneMode::CallerDriven, config);
    devices.open("model:size=1MiB").unwrap();
    let extents = [0, 100].map(|slba| BlockExtent::new(slba, 2).unwrap()).into();
    let members = vec![MemberLayout { device: 0, extents }];
    let layout = SegmentLayout { members, ..SegmentLayout::whole("parts", 0, 4) };
    let (engine, lane) = devices.start(vec![layout]).unwrap();
    let memory = engine.allocate_memory(64 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    let other = bench.engine.allocate_memory(4 * BLOCK as usize).unwrap();
    let mut requests: Vec<_> = (0..5).map(|number| bench.read(4 * number * BLOCK, 0, 4 * BLOCK)).collect();
    requests.push(Request { source: other.address(), ..requests[0] });
    let batch = bench.submit(&requests);
    bench.lane.turn();
    let memory = bench.memory.clone();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert_eq!(states(&batch)[..5], [Completed, Canceled, Canceled, Canceled, Canceled]);
    bench.run();
    assert_eq!(states(&batch)[5], Completed, "another memory's task is served");
    assert_eq!(batch.overall(), BatchStatus { tasks: 6, ended: 6, unsuccessful: 4 });
    assert_eq!(bench.engine.counters().commands, 4);
    bench.close();
}

#[test]
fn the_try_form_refuses_and_changes_nothing() {
    let mut bench = Bench::open("model:size=1MiB", 4, 16 * BLOCK as usize);
    let batch = bench.submit(&bench.descending(10));
    bench.lane.turn();
    let memory = bench.memory.clone();
    let error = bench.engine.try_unregister_memory_with(memory, &mut bench.lane).unwrap_err();
    assert!((7..=10).contains(&error.tasks), "{error}");
    assert!(error.to_string().contains("wait for them, or cancel them"), "{error}");
    bench.run();
    assert_eq!(states(&batch), [Completed; 10]);
    assert_eq!(
        bench.engine.try_unregister_memory_with(error.memory, &mut bench.lane).map_err(|error| error.tasks),
        Ok(())
    );
    let refused = bench.submit(&bench.descending(1));
    assert_eq!(states(&refused), [Invalid]);
    bench.run();
    bench.close();
}

/// Its IOVAs are used again at once, and what it was registered for can be registered again.
#[test]
fn memory_comes_and_goes() {
    let mut bench = Bench::open("model:size=1MiB", 4, 4 * BLOCK as usize);
    let mut iovas = std::collections::HashSet::new();
    for seed in 0..100 {
        let memory = bench.engine.allocate_memory(2 << 20).unwrap();
        iovas.insert(memory.iovas().unwrap().start());
        let [write, read] = [(OpCode::Write, 0), (OpCode::Read, BLOCK)]
            .map(|(opcode, at)| Request { source: memory.address() + at, ..bench.request(opcode, 0, 0, BLOCK) });
        memory.view().fill(seed);
        let batch = bench.submit(&[write]);
        run_until(&mut bench.lane, Lane::is_idle);
        let read = bench.submit(&[read]);
        run_until(&mut bench.lane, Lane::is_idle);
        assert_eq!((states(&batch), states(&read)), (vec![Completed], vec![Completed]));
        let mut byte = [0];
        memory.view().read(BLOCK as usize + 17, &mut byte);
        assert_eq!(byte, [seed]);
        bench.engine.unregister_memory_with(memory, &mut bench.lane);
    }
    assert_eq!(iovas.len(), 1, "they are not retired");
    bench.close();
}

/// Submits in progress are waited for: what they append is given up or served, and nothing is written afterwards.
#[test]
fn nothing_is_written_behind_it_while_others_submit() {
    let engine =
        Engine::open("model:size=64MiB", EngineConfig { queue_entries: 8, ..EngineConfig::default() }).unwrap();
    for _ in 0..50 {
        let memory = engine.allocate_memory(64 << 10).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for submitter in 0..2u64 {
                let (engine, memory, stop) = (&engine, &memory, &stop);
                scope.spawn(move || {
                    let request = |at: u64| Request {
                        opcode: OpCode::Read,
                        source: memory.address() + at % 16 * BLOCK,
                        target_id: SegmentId(1),
                        target_offset: (submitter * 64 + 64 - at) * BLOCK,
                        length: BLOCK,
                    };
                    let requests: Vec<_> = (0..8).map(request).collect();
                    let batch = engine.allocate_batch(0).unwrap();
                    while !stop.load(Ordering::Acquire) {
                        engine.submit(&batch, &requests).unwrap();
                        thread::yield_now();
                    }
                    batch.wait(Duration::MAX).unwrap();
                    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled | Invalid)));
                });
            }
            thread::yield_now();
            engine.unregister_memory(memory.clone());
            memory.view().fill(0xAB);
            thread::sleep(Duration::from_millis(1));
            stop.store(true, Ordering::Release);
        });
        let mut bytes = vec![0; 64 << 10];
        memory.view().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0xAB), "a device wrote behind it");
    }
    assert_eq!(engine.violations(), []);
    engine.close().unwrap();
}

/// A read through staging memory that is under way is served to its end.
#[test]
fn a_staged_read_is_waited_for() {
    let config = EngineConfig { queue_entries: 2, ..EngineConfig::default() };
    let mut devices = crate::Devices::new(LaneMode::CallerDriven, config);
    devices.open("model:size=1MiB").unwrap();
    let layout = SegmentLayout { unaligned_reads: true, ..SegmentLayout::whole("odd", 0, 256) };
    let (engine, lane) = devices.start(vec![layout]).unwrap();
    let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    bench.fill(0, 16 * BLOCK, 9);
    bench.submit(&[bench.write(0, 0, 16 * BLOCK)]);
    bench.run();
    bench.memory.view().fill(0xEE);
    let batch = bench.submit(&[bench.read(0, 3 * BLOCK + 8, 2 * BLOCK)]);
    bench.lane.turn();
    let memory = bench.memory.clone();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert_eq!(states(&batch), [Completed]);
    let mut found = vec![0; 2 * BLOCK as usize / 8];
    bench.memory.view().read_words(0, &mut found);
    let first = 3 * BLOCK / 8 + 1;
    assert!((first..).zip(&found).all(|(at, found)| *found == word(9, at)));
    bench.close();
}

/// A controller that is gone, or a lane that is, holds nobody up.
#[test]
fn a_controller_or_a_lane_that_is_gone_is_not_waited_for() {
    let controller = ControllerConfig {
        recovery: RecoveryConfig { health_interval: Duration::from_millis(5), ..RecoveryConfig::default() },
        ..ControllerConfig::default()
    };
    let config = EngineConfig { queue_entries: 4, controller, ..EngineConfig::default() };
    let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
    let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane, memory };
    let batch = bench.submit(&bench.descending(10));
    bench.lane.turn();
    bench.engine.faults().unwrap().arm(At::Now, Life::AllOnes { dma_turns: 0 });
    let memory = bench.memory.clone();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled | Failed)), "{:?}", states(&batch));
    let Bench { engine, lane, .. } = bench;
    let memory = engine.allocate_memory(4096).unwrap();
    drop(lane);
    engine.unregister_memory(memory);
}
