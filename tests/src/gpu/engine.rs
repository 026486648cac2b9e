//! The whole stack on GPU memory: an engine's requests, lanes, queue pairs, the model and its mover.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tentpeg_driver::gpu::{GpuMemory, PlaceError};
use tentpeg_engine::{
    Access, Batch, Engine, EngineConfig, GpuOptions, GpuSeries, MemoryError, MemoryPath, OpCode, Request, SegmentId,
    TransferState,
};

use super::rig::Way;
use super::{Check, Outcome, Rig, check, ensure, foreign};
use crate::device_tests::Ending;

const BLOCK: usize = 64 << 10;
const PAGE: usize = 16 << 10;
/// How long a check waits for its requests.
const PATIENCE: Duration = Duration::from_secs(20);

fn open(rig: &Rig, uri: &str) -> Result<Engine, Ending> {
    let gpu = Some(GpuOptions::new(Arc::clone(&rig.gpu) as _));
    Ok(Engine::open(uri, EngineConfig { gpu, ..EngineConfig::default() })?)
}

/// The requests of block `number`, whose pages lie at these places from `address` on.
fn requests(opcode: OpCode, address: u64, number: usize, places: impl Fn(usize) -> usize) -> Vec<Request> {
    let page = |page: usize| Request {
        opcode,
        source: address + places(page) as u64,
        target_id: SegmentId(1),
        target_offset: (number * BLOCK + page * PAGE) as u64,
        length: PAGE as u64,
    };
    (0..BLOCK / PAGE).map(page).collect()
}

fn submit(engine: &Engine, requests: &[Request]) -> Result<Batch, Ending> {
    let batch = engine.allocate_batch(requests.len() as u32)?;
    engine.submit(&batch, requests)?;
    Ok(batch)
}

/// Submits, and waits until all has completed.
fn run(engine: &Engine, requests: &[Request]) -> Result<(), Ending> {
    let ended = submit(engine, requests)?.wait(PATIENCE)?;
    ensure(ended.unsuccessful == 0, || format!("{ended:?}: {:?} {:?}", engine.store_error(), engine.violations()))
}

/// What both sides counted, which must agree.
fn seen(engine: Engine) -> Outcome {
    let (ours, theirs) = (engine.counters(), engine.model_counters().unwrap_or_default());
    let (asked, walked) = (ours.bytes_read + ours.bytes_written, theirs.read_bytes + theirs.write_bytes);
    ensure(engine.violations().is_empty() && asked == walked, || {
        format!("{asked} bytes asked for, {walked} walked: {:?}", engine.violations())
    })?;
    engine.close()?;
    Ok(format!("{} SQEs, {} PRP entries, {walked} bytes walked", theirs.io_sqes, theirs.prp_list_entries))
}

pub(super) fn checks() -> Vec<Check> {
    vec![
        check("engine: pages scattered, written, poisoned, read, compared", round_trip),
        check("engine: memory of the caller, from any byte on", of_caller),
        check("engine: unregistered in flight, and freed", in_flight),
        check("engine: what is no memory of this GPU", refused),
    ]
}

fn round_trip(rig: &mut Rig) -> Outcome {
    let engine = open(rig, "model:size=64MiB")?;
    let blocks = (64 << 20) / BLOCK;
    let memory = engine.allocate_gpu_memory(blocks * BLOCK)?;
    ensure(matches!(memory.path(), MemoryPath::GpuByMover { .. }), || memory.path().to_string())?;
    let mut words = engine.gpu_words(&memory)?;
    // Pages of a block are one quarter of the memory apart.
    let place = |number: usize, page: usize| page * (blocks * PAGE) + number * PAGE;
    let series = |number: usize, at: usize, seed: u64| {
        (0..BLOCK / PAGE).map(move |page| GpuSeries {
            offset: place(at, page) as u64,
            words: PAGE as u64 / 8,
            first: seed << 40 | (number as u64) << 16 | page as u64,
            step: seed << 1 | 1,
        })
    };
    words.fill((0..blocks).flat_map(|number| series(number, number, 1)))?;
    for number in 0..blocks {
        run(&engine, &requests(OpCode::Write, memory.address(), number, |page| place(number, page)))?;
    }
    words.fill((0..blocks).flat_map(|number| series(number, number, 2)))?;
    let moved = |number: usize| (number + 7) % blocks;
    let all = || (0..blocks).flat_map(|number| series(number, moved(number), 1));
    let poisoned = words.check(all())?;
    ensure(poisoned.is_some_and(|wrong| wrong.words == (blocks * BLOCK / 8) as u64), || format!("{poisoned:?}"))?;
    let all_requests: Vec<_> = (0..blocks)
        .flat_map(|number| requests(OpCode::Read, memory.address(), number, move |page| place(moved(number), page)))
        .collect();
    run(&engine, &all_requests)?;
    let wrong = words.check(all())?;
    ensure(wrong.is_none(), || format!("{wrong:?}"))?;
    drop((words, memory));
    seen(engine)
}

fn of_caller(rig: &mut Rig) -> Outcome {
    let engine = open(rig, "model:size=1MiB")?;
    let far = rig.memory(1 << 20)?;
    let part = (4096 + 64, 2 * BLOCK);
    rig.fill(&far, &[((0, 1 << 20), 9)])?;
    rig.fill(&far, &[((part.0, BLOCK), 1)])?;
    let memory = engine.register_gpu_memory(Rig::caller_memory(&far, part), Access::all())?;
    let at = |at: usize| move |page: usize| at + page * PAGE;
    run(&engine, &requests(OpCode::Write, memory.address(), 3, at(0)))?;
    run(&engine, &requests(OpCode::Read, memory.address(), 3, at(BLOCK)))?;
    let wrong = rig.verify(&far, &[((part.0, BLOCK), 1), ((part.0 + BLOCK, BLOCK), 1)])?;
    ensure(wrong.is_none(), || format!("{wrong:?}"))?;
    engine.unregister_memory(memory);
    seen(engine)
}

fn in_flight(rig: &mut Rig) -> Outcome {
    let engine = open(rig, "model:size=64MiB")?;
    let mut outcomes = (0, 0);
    for round in 0..8 {
        let far = rig.memory(32 << 20)?;
        let memory = engine.register_gpu_memory(Rig::caller_memory(&far, (0, 32 << 20)), Access::all())?;
        let all: Vec<_> = (0..512)
            .flat_map(|number| {
                requests(OpCode::Read, memory.address(), number, move |page| number * BLOCK + page * PAGE)
            })
            .collect();
        let batch = submit(&engine, &all)?;
        thread::sleep(Duration::from_micros(100 * round));
        engine.unregister_memory(memory);
        // Nothing copies there any more: what another may get these addresses for is not written to.
        drop(far);
        let ended = batch.wait(PATIENCE)?;
        for task in 0..batch.tasks() {
            match batch.status(task)?.state {
                TransferState::Completed => outcomes.0 += 1,
                TransferState::Canceled => outcomes.1 += 1,
                state => return Err(Ending::Failed(format!("task {task} is {state}: {ended:?}"))),
            }
        }
    }
    Ok(format!("{} completed, {} canceled; {}", outcomes.0, outcomes.1, seen(engine)?))
}

fn refused(rig: &mut Rig) -> Outcome {
    let engine = open(rig, "model:size=1MiB")?;
    foreign::enter()?;
    // Small allocations begin on no page.
    let far = rig.memory(2 << 20)?;
    let told =
        |memory: &GpuMemory, part| match engine.register_gpu_memory(Rig::caller_memory(memory, part), Access::all()) {
            Err(MemoryError::Place(error)) => Ok(error),
            other => Err(Ending::Failed(format!("{other:?}"))),
        };
    let past = told(&far, (4096, 2 << 20))?;
    ensure(matches!(past, PlaceError::PastAllocation { .. } | PlaceError::NotCuda { .. }), || past.to_string())?;
    let memory = engine.register_gpu_memory(Rig::caller_memory(&far, (0, 2 << 20)), Access::all())?;
    let overlaps = engine.register_gpu_memory(Rig::caller_memory(&far, (4096, 4096)), Access::all());
    ensure(matches!(overlaps, Err(MemoryError::Overlaps { .. })), || format!("{overlaps:?}"))?;
    engine.unregister_memory(memory);
    let (address, len) = (far.address(), far.len());
    drop(far);
    let pooled = foreign::pooled(1 << 20)?;
    let no_room = engine.allocate_gpu_memory(1 << 50).map(|memory| memory.len());
    ensure(matches!(no_room, Err(MemoryError::Gpu(_))), || format!("{no_room:?}"))?;
    engine.close()?;
    Ok(format!("freed at {address:#x} ({len} bytes), a pool's at {:#x}; {past}", pooled.address))
}

pub(super) fn measurements() -> Vec<Check> {
    vec![
        check("lists: from begin to done, none, 1 and 64 copies of 16 KiB", |rig| {
            let (far, near) = (rig.memory(64 << 20)?, rig.pinned(64 << 20)?);
            let mut texts = Vec::new();
            for count in [0, 1, 64] {
                let parts: Vec<_> = (0..count).map(|number| (number << 16, number << 16, PAGE)).collect();
                let mut times = Vec::new();
                for _ in 0..500 {
                    let start = Instant::now();
                    rig.copy(&far, &near, &parts, Way::In, false)?;
                    times.push(start.elapsed());
                }
                times.sort_unstable();
                texts.push(format!("{count}: {:?}", times[times.len() / 2]));
            }
            Ok(texts.join(", "))
        }),
        check("words: a block of 16 pages filled, compared; GPU idle", |rig| words_timed(rig, false)),
        check("words: the same beside a model that reads", |rig| words_timed(rig, true)),
    ]
}

/// How long it takes to fill and to compare 16 pages, one block at a time: medians and the longest.
fn words_timed(rig: &mut Rig, busy: bool) -> Outcome {
    let engine = open(rig, "model:size=64MiB")?;
    let memory = engine.allocate_gpu_memory(32 << 20)?;
    let mut words = engine.gpu_words(&memory)?;
    let pages = || (0..16).map(|page| GpuSeries { offset: page << 20, words: 2048, first: page, step: 3 });
    let other = engine.allocate_gpu_memory(32 << 20)?;
    let stop = AtomicBool::new(false);
    let mut times = (Vec::new(), Vec::new());
    thread::scope(|scope| {
        let work = || -> Result<u64, Ending> {
            let mut rounds = 0;
            let all: Vec<_> = (0..128)
                .flat_map(|number| {
                    requests(OpCode::Read, other.address(), number, move |page| number * BLOCK + page * PAGE)
                })
                .collect();
            while busy && !stop.load(Ordering::Relaxed) {
                run(&engine, &all)?;
                rounds += 1;
            }
            Ok(rounds)
        };
        let worker = scope.spawn(work);
        let mut measure = || -> Result<(), Ending> {
            for _ in 0..500 {
                let start = Instant::now();
                words.fill(pages())?;
                times.0.push(start.elapsed());
                let start = Instant::now();
                let wrong = words.check(pages())?;
                times.1.push(start.elapsed());
                ensure(wrong.is_none(), || format!("{wrong:?}"))?;
            }
            Ok(())
        };
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        let rounds = worker.join().expect("the worker does not panic");
        measured.and(rounds.map(|_| ()))
    })?;
    let of = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() - 1])
    };
    let (fill, compare) = (of(&mut times.0), of(&mut times.1));
    drop((words, memory, other));
    let seen = seen(engine)?;
    Ok(format!("fill {:?}, at most {:?}; compare {:?}, at most {:?}; {seen}", fill.0, fill.1, compare.0, compare.1))
}
