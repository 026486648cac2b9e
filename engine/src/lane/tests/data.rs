//! Random work against a reference of what each block must hold.

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;

/// Blocks that operations touch.
const BLOCKS: u64 = 512;
/// Places for operations in memory, one after the other.
const PLACES: u64 = 16;
/// Blocks that an operation has at the most.
const MOST: u64 = 40;

/// One operation: which way, which blocks, and where in its place of memory, in dwords.
#[derive(Debug, Clone, Copy)]
struct Operation {
    write: bool,
    first: u64,
    blocks: u64,
    shift: u64,
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let operation =
        (any::<bool>(), 0..BLOCKS - MOST, prop_oneof![1..=3u64, 1..=MOST], prop_oneof![Just(0u64), 0..1024u64])
            .prop_map(|(write, first, blocks, shift)| Operation { write, first, blocks, shift });
    prop::collection::vec(operation, 50..200)
}

/// What is different from one engine to the next.
#[derive(Debug, Clone, Copy)]
struct Setting {
    mode: LaneMode,
    lba: u64,
    mdts: u8,
    entries: u32,
}

/// An engine whose lane is turned by a thread, or here.
struct Driven {
    engine: Engine,
    lane: Option<Lane>,
}

impl Driven {
    fn finish(&mut self, batch: &Batch) {
        match &mut self.lane {
            Some(lane) => run_until(lane, |_| batch.overall().is_finished()),
            None => drop(batch.wait(Duration::MAX).unwrap()),
        }
    }
}

/// Appends the content of a block: its number and the number of its write, in every word.
fn content(bytes: &mut Vec<u8>, block: u64, write: u64, lba: u64) {
    for at in 0..lba / 8 {
        let word = if write == 0 { 0 } else { word(write << 16 | block, at) };
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// Runs the operations a few at a time; those of one group touch no block twice.
fn replay(setting: Setting, operations: &[Operation]) {
    let Setting { mode, lba, mdts, entries } = setting;
    let uri = format!("model:size=4MiB,lba={lba},mdts={mdts}");
    let config = EngineConfig { queue_entries: entries, ..EngineConfig::default() };
    let (engine, lane) = match mode {
        LaneMode::Thread => (Engine::open(&uri, config).unwrap(), None),
        LaneMode::CallerDriven => {
            let (engine, lane) = Engine::open_caller_driven(&uri, config).unwrap();
            (engine, Some(lane))
        }
    };
    let place = MOST * lba + 4096;
    let memory = engine.allocate_memory((PLACES * place) as usize).unwrap();
    let view = memory.view();
    let mut driven = Driven { engine, lane };
    let poison = vec![0xEE; place as usize];
    let mut writes = vec![0u64; BLOCKS as usize];
    let mut count = 0;

    let mut rest = operations;
    while !rest.is_empty() {
        let mut busy = [false; BLOCKS as usize];
        let group = rest.iter().take(PLACES as usize).take_while(|operation| {
            let range = operation.first as usize..(operation.first + operation.blocks) as usize;
            let free = !busy[range.clone()].contains(&true);
            busy[range].fill(true);
            free
        });
        let group: Vec<_> = group.copied().collect();
        rest = &rest[group.len()..];
        view.fill(0xEE);

        let mut requests = Vec::new();
        for (at, operation) in (0..).zip(&group) {
            let Operation { write, first, blocks, shift } = *operation;
            let start = at * place + shift * 4;
            for block in first..first + blocks {
                if write {
                    count += 1;
                    writes[block as usize] = count;
                    let mut bytes = Vec::new();
                    content(&mut bytes, block, count, lba);
                    view.write((start + (block - first) * lba) as usize, &bytes);
                }
            }
            // Some as one request, some block by block: then they may be joined again.
            let step = if shift % 3 == 1 { 1 } else { blocks };
            requests.extend((0..blocks).step_by(step as usize).map(|block| Request {
                opcode: if write { OpCode::Write } else { OpCode::Read },
                source: memory.address() + start + block * lba,
                target_id: SegmentId(1),
                target_offset: (first + block) * lba,
                length: step * lba,
            }));
        }
        let batch = driven.engine.allocate_batch(0).unwrap();
        driven.engine.submit(&batch, &requests).unwrap();
        driven.finish(&batch);
        assert_eq!(batch.overall().unsuccessful, 0, "{:?}", batch.refusal(0));

        for (at, operation) in (0..).zip(group.iter()) {
            let Operation { write, first, blocks, shift } = *operation;
            let start = at * place + shift * 4;
            let mut found = vec![0; place as usize];
            view.read((at * place) as usize, &mut found);
            let (before, rest) = found.split_at((start - at * place) as usize);
            let (bytes, after) = rest.split_at((blocks * lba) as usize);
            let clean = before == &poison[..before.len()] && after == &poison[..after.len()];
            assert!(clean, "bytes around {operation:?} were touched");
            if !write {
                let mut expected = Vec::new();
                for block in first..first + blocks {
                    content(&mut expected, block, writes[block as usize], lba);
                }
                assert!(bytes == expected, "{operation:?} under {setting:?} read something else");
            }
        }
    }
    match driven.lane {
        Some(mut lane) => {
            run_until(&mut lane, Lane::is_idle);
            check_counters(&driven.engine);
            driven.engine.close_with(lane).unwrap();
        }
        None => {
            // The lane publishes its counts at the end of a turn, which may be after the batch's end.
            while driven.engine.counters().completions < driven.engine.model_counters().unwrap().io_cqes {
                std::thread::yield_now();
            }
            check_counters(&driven.engine);
            driven.engine.close().unwrap();
        }
    }
}

#[test]
fn what_was_written_last_is_read() {
    for mode in [LaneMode::CallerDriven, LaneMode::Thread] {
        for lba in [512, 4096] {
            for (mdts, entries) in [(1, 2), (2, 5), (3, 256), (4, 9), (5, 64), (9, 256), (0, 3)] {
                let setting = Setting { mode, lba, mdts, entries };
                let mut runner = TestRunner::new(ProptestConfig::with_cases(1));
                let run = runner.run(&operations(), |operations| {
                    replay(setting, &operations);
                    Ok(())
                });
                run.unwrap_or_else(|error| panic!("{setting:?}: {error}"));
            }
        }
    }
}

/// Offsets beyond 32 bits: the first block, the last, and one that lies across 4 GiB.
#[test]
fn a_device_of_5_tib() {
    const SIZE: u64 = 5 << 40;
    for lba in [512, 4096] {
        let mut bench = Bench::open(&format!("model:size=5TiB,lba={lba}"), 64, 1 << 20);
        assert_eq!(bench.engine.segments()[0].capacity, SIZE);
        let offsets = [0, (4 << 30) - 4096, (4 << 30) + 4096, (1 << 41) - 4096, (4 << 40) - 4096, SIZE - 8192];
        for (at, offset) in (0..).zip(offsets) {
            bench.fill(at * 8192, 8192, offset);
            bench.submit(&[bench.write(at * 8192, offset, 8192)]);
        }
        bench.run();
        bench.memory.view().fill(0xEE);
        for (at, offset) in (0..).zip(offsets) {
            bench.submit(&[bench.read(at * 8192, offset, 8192)]);
        }
        bench.run();
        for (at, offset) in (0..).zip(offsets) {
            bench.check(at * 8192, 8192, offset);
        }
        let past = bench.submit(&[bench.read(0, SIZE - 4096, 8192), bench.read(0, SIZE, 4096)]);
        assert_eq!(states(&past), [TransferState::Invalid; 2]);
        bench.run();
        bench.close();
    }
}
