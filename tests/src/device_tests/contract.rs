//! What TENT asks of a transport: one test for each rule, by name. Each is run through an engine whose lane has a thread,
//! or is driven by the test, as the tier has it.

mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::spec::status::StatusCode;
use tentpeg_engine::{
    Batch, BatchOptions, BatchStatus, EngineConfig, Memory, OpCode, Request, SegmentId, SubmitError, TransferState,
};

use super::bench::{fill, holds};
use super::{DeviceTest, Ending, EngineBench, Tier, Verdict, Wanted, ensure};
use TransferState::{Canceled, Completed, Failed, Invalid, Pending};

pub(super) fn tests() -> Vec<DeviceTest> {
    let rule = |name: &str, run: fn(&dyn Tier) -> Verdict| DeviceTest::new(format!("contract: {name}"), run);
    let mut rules = vec![
        rule("a submit appends one task for each request, in order, or none", one_task_a_request),
        rule("a bad request is an INVALID task and not a failed submit", a_bad_request),
        rule("memory that is not registered is INVALID", unregistered_memory),
        rule("a batch takes any number of requests over its life", any_number_over_a_life),
        rule("a full queue is no request's error", full_queues),
        rule("a task that exists has a status, and COMPLETED its full length", status_of_a_task),
        rule("a cancel gives up what was not issued, and that alone", cancel),
        rule("the notifier tells of every end", notifier),
        rule("a free returns when nothing is in flight, and nothing comes after", free_in_flight),
        rule("a free of what has ended returns at once", free_of_what_has_ended),
        rule("a batch that was freed takes no more", freed),
        rule("unregistering gives up what is queued, waits for the rest, and never refuses", unregister_in_flight),
        rule("unregistering unknown memory is harmless", unregister_unknown),
        rule("unregistering by its try form refuses as long as the memory is in use", try_unregister),
        rule("a close with work in flight ends every task", close_in_flight),
        rule("two engines of a process are independent", two_engines),
        rule("the NVMe status of a FAILED task is kept", nvme_status),
        rule("each task ends once through time-outs", |tier| {
            each_ends_once(tier, |bench| befall(bench, Action::Drop { execute: false }))
        }),
        rule("each task ends once through resets", |tier| each_ends_once(tier, |bench| strike(bench, Life::Fatal))),
        rule("each task ends once through a removal", |tier| {
            each_ends_once(tier, |bench| strike(bench, Life::AllOnes { dma_turns: 3 }))
        }),
    ];
    rules.extend(memory::tests());
    rules
}

/// An engine with memory for `blocks` blocks of its segment.
struct Scene {
    bench: EngineBench,
    memory: Memory,
    lba: u64,
}

fn scene(tier: &dyn Tier, blocks: u64, config: EngineConfig) -> Result<Scene, Ending> {
    let bench = tier.engine(Wanted::default(), config)?;
    let lba = bench.engine.segments()[0].lba_size;
    let memory = bench.engine.allocate_memory((blocks * lba) as usize)?;
    Ok(Scene { bench, memory, lba })
}

/// A queue that holds few commands, so that most of a submit has to wait.
fn shallow() -> EngineConfig {
    EngineConfig { queue_entries: 4, ..EngineConfig::default() }
}

impl Scene {
    /// A request for block `block` of the segment, from or to block `at` of the memory.
    fn block(&self, opcode: OpCode, at: u64, block: u64) -> Request {
        self.bench.request(opcode, &self.memory, at * self.lba, block * self.lba, self.lba)
    }

    /// Reads of blocks 0 to `count`, each to its place in the memory; in an order in which none follows the one before.
    fn reads(&self, count: u64) -> Vec<Request> {
        (0..count).rev().map(|block| self.block(OpCode::Read, block, block)).collect()
    }

    /// Writes to block `n` what tells it apart, for each below `count`, and makes the memory something else.
    fn fill_blocks(&mut self, count: u64) -> Verdict {
        for block in 0..count {
            fill(self.view(block), block);
        }
        let writes: Vec<_> = (0..count).map(|block| self.block(OpCode::Write, block, block)).collect();
        self.bench.transfer(&writes)?;
        self.memory.view().fill(0xEE);
        Ok(())
    }

    fn view(&self, block: u64) -> tentpeg_driver::dma::DmaView<'_> {
        self.memory.view().slice((block * self.lba) as usize, self.lba as usize)
    }

    fn submit(&self, requests: &[Request]) -> Result<Batch, Ending> {
        let batch = self.bench.engine.allocate_batch(requests.len() as u32)?;
        self.bench.engine.submit(&batch, requests)?;
        Ok(batch)
    }

    fn wait(&mut self, batch: &Batch) -> Verdict {
        self.bench.wait(batch)
    }

    fn free(&mut self, batch: Batch) {
        match &mut self.bench.lane {
            Some(lane) => batch.free_with(lane),
            None => batch.free(),
        }
    }
}

fn states(batch: &Batch) -> Result<Vec<TransferState>, Ending> {
    (0..batch.tasks()).map(|task| Ok(batch.status(task)?.state)).collect()
}

fn ensure_states(batch: &Batch, expected: &[TransferState]) -> Verdict {
    let found = states(batch)?;
    ensure(found == expected, || format!("{found:?}; {expected:?} would be right"))
}

fn one_task_a_request(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 8, EngineConfig::default())?;
    scene.fill_blocks(8)?;
    let batch = scene.bench.engine.allocate_batch(0)?;
    let requests = scene.reads(8);
    for (call, expected) in requests.chunks(3).zip([0, 3, 6]) {
        let first = scene.bench.engine.submit(&batch, call)?;
        ensure(first == expected, || format!("the first task of a call is {first}; {expected} would be right"))?;
    }
    ensure(batch.tasks() == 8, || format!("{} tasks for 8 requests", batch.tasks()))?;
    scene.wait(&batch)?;
    for (task, block) in (0..8).zip((0..8).rev()) {
        let status = batch.status(task)?;
        ensure(status.transferred_bytes == scene.lba, || format!("task {task} is {status:?}"))?;
        holds(scene.view(block), block)?;
    }
    // None: a call that cannot be appended leaves the batch as it was.
    let other = tier.engine(Wanted::default(), EngineConfig::default())?;
    let refused = other.engine.submit(&batch, &requests);
    ensure(refused == Err(SubmitError::OtherEngine), || format!("another engine says {refused:?}"))?;
    ensure(batch.tasks() == 8 && batch.overall().is_finished(), || format!("{:?}", batch.overall()))?;
    other.finish()?;
    scene.bench.finish()
}

fn a_bad_request(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 4, EngineConfig::default())?;
    let good = scene.block(OpCode::Read, 0, 1);
    let capacity = scene.bench.engine.segments()[0].capacity;
    let bad = [
        Request { target_id: SegmentId(0), ..good },
        Request { target_id: SegmentId(u64::MAX), ..good },
        Request { length: 0, ..good },
        Request { length: 1, ..good },
        Request { target_offset: 1, ..good },
        Request { target_offset: capacity, ..good },
        Request { target_offset: u64::MAX - scene.lba + 1, ..good },
        Request { source: good.source + 2, ..good },
    ];
    let mut requests = Vec::new();
    for bad in bad {
        requests.extend([bad, good]);
    }
    let batch = scene.submit(&requests)?;
    scene.wait(&batch)?;
    ensure_states(&batch, &[Invalid, Completed].repeat(bad.len()))?;
    for task in 0..batch.tasks() {
        let (status, reason) = (batch.status(task)?, batch.refusal(task)?);
        ensure((status.state == Invalid) == reason.is_some(), || format!("{status:?} for the reason {reason:?}"))?;
        ensure(status.state == Completed || status.transferred_bytes == 0, || format!("{status:?}"))?;
    }
    scene.bench.finish()
}

fn unregistered_memory(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 4, EngineConfig::default())?;
    let good = scene.block(OpCode::Read, 0, 1);
    let len = scene.memory.len() as u64;
    let own = Box::new([0u64; 1024]);
    let batch = scene.submit(&[
        Request { source: own.as_ptr().addr() as u64, ..good },
        Request { source: scene.memory.address() - scene.lba, ..good },
        Request { source: scene.memory.address() + len, ..good },
        Request { source: scene.memory.address() + len - scene.lba, length: 2 * scene.lba, ..good },
        Request { source: 0, ..good },
        good,
    ])?;
    scene.wait(&batch)?;
    ensure_states(&batch, &[Invalid, Invalid, Invalid, Invalid, Invalid, Completed])?;
    scene.bench.finish()
}

fn any_number_over_a_life(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 16, EngineConfig::default())?;
    scene.fill_blocks(16)?;
    let batch = scene.bench.engine.allocate_batch(1)?;
    let requests = scene.reads(16);
    for round in 1..=100u32 {
        scene.bench.engine.submit(&batch, &requests)?;
        if round.is_multiple_of(3) {
            scene.wait(&batch)?;
        }
    }
    scene.wait(&batch)?;
    let expected = BatchStatus { tasks: 1600, ended: 1600, unsuccessful: 0 };
    ensure(batch.overall() == expected, || format!("{:?}", batch.overall()))?;
    for block in 0..16 {
        holds(scene.view(block), block)?;
    }
    scene.bench.finish()
}

fn full_queues(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 16, EngineConfig { queue_entries: 2, ..EngineConfig::default() })?;
    let requests: Vec<_> = (0..1000).map(|at| scene.block(OpCode::Read, at % 16, at * 7 % 16)).collect();
    let batch = scene.submit(&requests)?;
    scene.wait(&batch)?;
    let expected = BatchStatus { tasks: 1000, ended: 1000, unsuccessful: 0 };
    ensure(batch.overall() == expected, || format!("{:?}", batch.overall()))?;
    scene.bench.finish()
}

fn status_of_a_task(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    let batch = scene.submit(&scene.reads(64))?;
    for task in 0..64 {
        let status = batch.status(task)?;
        let right = match status.state {
            Pending => status.transferred_bytes == 0,
            Completed => status.transferred_bytes == scene.lba,
            _ => false,
        };
        ensure(right, || format!("task {task} is {status:?}"))?;
    }
    ensure(batch.status(64).is_err(), || "a task that does not exist has a status".to_owned())?;
    scene.wait(&batch)?;
    ensure_states(&batch, &[Completed; 64])?;
    scene.bench.finish()
}

fn cancel(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    scene.fill_blocks(64)?;
    let batch = scene.submit(&scene.reads(64))?;
    if let Some(lane) = &mut scene.bench.lane {
        lane.turn();
    }
    batch.cancel();
    scene.wait(&batch)?;
    let found = states(&batch)?;
    for (state, block) in found.iter().zip((0..64).rev()) {
        match state {
            Completed => holds(scene.view(block), block)?,
            Canceled => {
                let mut bytes = vec![0; scene.lba as usize];
                scene.view(block).read(0, &mut bytes);
                ensure(bytes.iter().all(|byte| *byte == 0xEE), || format!("block {block} was read after its cancel"))?;
            }
            _ => ensure(false, || format!("block {block} is {state}"))?,
        }
    }
    if scene.bench.lane.is_some() {
        // Three commands were in flight, and nothing else had a chance.
        let completed = found.iter().filter(|state| **state == Completed).count();
        ensure(completed == 3, || format!("{completed} tasks are COMPLETED of 3 that were issued"))?;
    }
    scene.bench.finish()
}

/// What a notifier was told.
#[derive(Default)]
struct Told {
    calls: AtomicU32,
    ended: AtomicU32,
    finished: AtomicBool,
    wrong: AtomicBool,
    /// Whether a call is one too many.
    over: AtomicBool,
}

impl Told {
    /// A batch that tells it.
    fn batch(self: &Arc<Self>, bench: &EngineBench, capacity: u32) -> Result<Batch, Ending> {
        let told = Arc::clone(self);
        let notifier = move |status: BatchStatus| {
            told.calls.fetch_add(1, Ordering::Relaxed);
            told.ended.fetch_max(status.ended, Ordering::Relaxed);
            let wrong = status.ended > status.tasks || status.unsuccessful > status.ended;
            told.wrong.fetch_or(wrong | told.over.load(Ordering::Acquire), Ordering::Relaxed);
            told.finished.store(status.is_finished(), Ordering::Release);
        };
        let options = BatchOptions { capacity, notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
        Ok(bench.engine.allocate_batch_with(options)?)
    }

    fn is_right(&self) -> Verdict {
        ensure(!self.wrong.load(Ordering::Relaxed), || {
            "a call came too late, or with numbers that cannot be".to_owned()
        })
    }
}

fn notifier(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 16, EngineConfig::default())?;
    let told = Arc::new(Told::default());
    let batch = told.batch(&scene.bench, 0)?;
    let bad = Request { length: 0, ..scene.block(OpCode::Read, 0, 0) };
    for (requests, ended) in [(scene.reads(16), 16), (vec![bad], 17), (vec![bad, scene.reads(1)[0]], 19)] {
        told.finished.store(false, Ordering::Release);
        scene.bench.engine.submit(&batch, &requests)?;
        scene
            .bench
            .turn_until(|| told.finished.load(Ordering::Acquire) && told.ended.load(Ordering::Relaxed) == ended)?;
        ensure(batch.overall().is_finished(), || format!("told too early: {:?}", batch.overall()))?;
    }
    ensure(told.calls.load(Ordering::Relaxed) >= 3, || "three ends without three calls".to_owned())?;
    told.is_right()?;
    scene.free(batch);
    scene.bench.finish()
}

fn free_in_flight(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    scene.fill_blocks(64)?;
    for turns in 0..6 {
        let told = Arc::new(Told::default());
        let batch = told.batch(&scene.bench, 64)?;
        scene.bench.engine.submit(&batch, &scene.reads(64))?;
        if let Some(lane) = &mut scene.bench.lane {
            for _ in 0..turns {
                lane.turn();
            }
        }
        let watched = batch.clone();
        scene.free(batch);
        told.over.store(true, Ordering::Release);
        let found = states(&watched)?;
        let ended = found.iter().all(|state| matches!(state, Completed | Canceled));
        ensure(ended && watched.overall().is_finished(), || format!("after its free: {found:?}"))?;
        // Whatever is still written comes now.
        scene.memory.view().fill(0xAB);
        let rest = scene.bench.run(&[scene.block(OpCode::Write, 0, 63)])?;
        ensure_states(&rest, &[Completed])?;
        for block in 0..64 {
            let mut bytes = vec![0; scene.lba as usize];
            scene.view(block).read(0, &mut bytes);
            ensure(bytes.iter().all(|byte| *byte == 0xAB), || format!("block {block} was read after the free"))?;
        }
        told.is_right()?;
    }
    scene.bench.finish()
}

fn free_of_what_has_ended(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 4, EngineConfig::default())?;
    let empty = scene.bench.engine.allocate_batch(7)?;
    scene.free(empty);
    let batch = scene.submit(&scene.reads(4))?;
    scene.wait(&batch)?;
    let watched = batch.clone();
    scene.free(batch);
    ensure_states(&watched, &[Completed; 4])?;
    scene.bench.finish()
}

fn freed(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 4, EngineConfig::default())?;
    let batch = scene.submit(&scene.reads(2))?;
    let kept = batch.clone();
    scene.free(batch);
    let refused = scene.bench.engine.submit(&kept, &scene.reads(2));
    ensure(refused == Err(SubmitError::Freed), || format!("a submit after the free says {refused:?}"))?;
    ensure(kept.tasks() == 2, || format!("{} tasks", kept.tasks()))?;
    scene.bench.finish()
}

fn unregister_in_flight(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    scene.fill_blocks(64)?;
    for turns in 0..6 {
        let other = scene.bench.engine.allocate_memory((64 * scene.lba) as usize)?;
        other.view().fill(0xEE);
        // Every second task is none of the memory's.
        let mut requests = scene.reads(64);
        for request in requests.iter_mut().step_by(2) {
            request.source = request.source - scene.memory.address() + other.address();
        }
        let batch = scene.submit(&requests)?;
        if let Some(lane) = &mut scene.bench.lane {
            for _ in 0..turns {
                lane.turn();
            }
        }
        let kept = other.clone();
        scene.bench.unregister(other);
        let found = states(&batch)?;
        let ended = found.iter().step_by(2).all(|state| matches!(state, Completed | Canceled));
        ensure(ended, || format!("after it was unregistered: {found:?}"))?;
        kept.view().fill(0xAB);
        scene.wait(&batch)?;
        let others = states(&batch)?.iter().skip(1).step_by(2).all(|state| *state == Completed);
        ensure(others, || format!("{:?}", states(&batch)))?;
        let later = scene.bench.run(&requests[..1])?;
        ensure_states(&later, &[Invalid])?;
        let mut bytes = vec![0; (64 * scene.lba) as usize];
        kept.view().read(0, &mut bytes);
        ensure(bytes.iter().all(|byte| *byte == 0xAB), || "it was written after it was unregistered".to_owned())?;
    }
    scene.bench.finish()
}

fn unregister_unknown(tier: &dyn Tier) -> Verdict {
    let mut one = scene(tier, 4, EngineConfig::default())?;
    let mut two = scene(tier, 4, EngineConfig::default())?;
    let batch = two.submit(&two.reads(4))?;
    one.bench.unregister(two.memory.clone());
    two.wait(&batch)?;
    ensure_states(&batch, &[Completed; 4])?;
    // Twice, with what is left of it.
    for _ in 0..2 {
        one.bench.unregister(one.memory.clone());
    }
    let refused = one.submit(&one.reads(4))?;
    one.wait(&refused)?;
    ensure_states(&refused, &[Invalid; 4])?;
    one.bench.finish()?;
    two.bench.finish()
}

fn try_unregister(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    let memory = scene.memory.clone();
    let batch = scene.submit(&scene.reads(64))?;
    let refused = match &mut scene.bench.lane {
        Some(lane) => scene.bench.engine.try_unregister_memory_with(memory, lane),
        None => scene.bench.engine.try_unregister_memory(memory),
    };
    // A lane with a thread may have been quicker than the question.
    match refused {
        Err(in_use) => ensure((1..=64).contains(&in_use.tasks), || in_use.to_string())?,
        Ok(()) => ensure(scene.bench.lane.is_none() && batch.overall().is_finished(), || {
            "memory in use was unregistered".to_owned()
        })?,
    }
    scene.wait(&batch)?;
    ensure_states(&batch, &[Completed; 64])?;
    let memory = scene.memory.clone();
    match &mut scene.bench.lane {
        Some(lane) => scene.bench.engine.try_unregister_memory_with(memory, lane)?,
        None => scene.bench.engine.try_unregister_memory(memory)?,
    }
    let later = scene.submit(&scene.reads(1))?;
    scene.wait(&later)?;
    ensure_states(&later, &[Invalid])?;
    scene.bench.finish()
}

fn close_in_flight(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 64, shallow())?;
    let told = Arc::new(Told::default());
    let batch = told.batch(&scene.bench, 64)?;
    scene.bench.engine.submit(&batch, &scene.reads(64))?;
    if let Some(lane) = &mut scene.bench.lane {
        lane.turn();
    }
    let Scene { bench: EngineBench { engine, lane, process: _process }, memory, .. } = scene;
    match lane {
        Some(lane) => engine.close_with(lane)?,
        None => engine.close()?,
    }
    told.over.store(true, Ordering::Release);
    let found = states(&batch)?;
    ensure(found.iter().all(|state| matches!(state, Completed | Canceled)), || format!("{found:?}"))?;
    ensure(told.finished.load(Ordering::Acquire), || "nobody was told of the end".to_owned())?;
    memory.view().fill(1);
    batch.free();
    told.is_right()
}

fn two_engines(tier: &dyn Tier) -> Verdict {
    let mut one = scene(tier, 8, EngineConfig::default())?;
    let mut two = scene(tier, 8, EngineConfig::default())?;
    for (scene, seed) in [(&mut one, 100), (&mut two, 200)] {
        fill(scene.view(0), seed);
        let write = scene.block(OpCode::Write, 0, 3);
        scene.bench.transfer(&[write])?;
    }
    // The first one's work neither waits for the second one's, nor ends with it.
    let foreign = Request { source: two.memory.address(), ..one.block(OpCode::Read, 0, 3) };
    let batch = one.submit(&[foreign, one.block(OpCode::Read, 1, 3)])?;
    two.bench.transfer(&[two.block(OpCode::Read, 1, 3)])?;
    holds(two.view(1), 200)?;
    two.bench.finish()?;
    one.wait(&batch)?;
    ensure_states(&batch, &[Invalid, Completed])?;
    holds(one.view(1), 100)?;
    one.bench.finish()
}

/// Deadlines that pass soon.
fn impatient() -> RecoveryConfig {
    RecoveryConfig {
        command_timeout: Duration::from_millis(100),
        abort_timeout: Duration::from_millis(100),
        health_interval: Duration::from_millis(5),
        ..RecoveryConfig::default()
    }
}

/// An engine on a device that can be made to do wrong.
fn fragile(tier: &dyn Tier, recovery: RecoveryConfig) -> Result<Scene, Ending> {
    let controller = ControllerConfig { recovery, ..ControllerConfig::default() };
    let scene = scene(tier, 64, EngineConfig { queue_entries: 16, controller, ..EngineConfig::default() })?;
    match scene.bench.engine.faults() {
        Some(_) => Ok(scene),
        None => Err(Ending::Skipped("the device does nothing wrong on demand".to_owned())),
    }
}

fn befall(scene: &Scene, action: Action) {
    if let Some(faults) = scene.bench.engine.faults() {
        faults.add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(7), action });
    }
}

fn strike(scene: &Scene, life: Life) {
    if let Some(faults) = scene.bench.engine.faults() {
        // Commands of the filling are counted too, so that it is the next one or a later one.
        faults.arm(At::Now, life);
    }
}

fn nvme_status(tier: &dyn Tier) -> Verdict {
    // Nothing may be aborted: of what is, the two sides count different bytes.
    let mut scene = fragile(tier, RecoveryConfig::default())?;
    let status = StatusCode::UNRECOVERED_READ_ERROR.status().with_dnr(true);
    // Executed all the same, so that both sides count the same bytes.
    befall(&scene, Action::Status { status, execute: true });
    let batch = scene.submit(&scene.reads(16))?;
    scene.wait(&batch)?;
    let found = states(&batch)?;
    let failed: Vec<_> = (0..16).filter(|task| found[*task as usize] == Failed).collect();
    ensure(failed.len() == 1, || format!("{found:?}"))?;
    for task in 0..16 {
        let kept = batch.nvme_status(task)?;
        let expected = failed.contains(&task).then_some(status);
        ensure(kept == expected, || format!("task {task} keeps {kept:?}; {expected:?} would be right"))?;
    }
    scene.bench.finish()
}

/// Something happens in the middle of many tasks: each has one end, of which the notifier is told, and what is COMPLETED
/// has its bytes.
fn each_ends_once(tier: &dyn Tier, happens: impl Fn(&Scene)) -> Verdict {
    let mut scene = fragile(tier, impatient())?;
    scene.fill_blocks(64)?;
    let told = Arc::new(Told::default());
    let batch = told.batch(&scene.bench, 64)?;
    scene.bench.engine.submit(&batch, &scene.reads(64))?;
    if let Some(lane) = &mut scene.bench.lane {
        lane.turn();
    }
    happens(&scene);
    // The last end is told of behind it, so that the count is the last one.
    scene.bench.turn_until(|| told.finished.load(Ordering::Acquire))?;
    let overall = batch.overall();
    let found = states(&batch)?;
    ensure(overall.tasks == 64 && overall.ended == 64, || format!("{overall:?}"))?;
    let unsuccessful = found.iter().filter(|state| **state != Completed).count();
    ensure(overall.unsuccessful as usize == unsuccessful, || format!("{overall:?} of {found:?}"))?;
    for (state, block) in found.iter().zip((0..64).rev()) {
        match state {
            Completed => holds(scene.view(block), block)?,
            Failed => {}
            _ => ensure(false, || format!("block {block} is {state}"))?,
        }
    }
    let watched = batch.clone();
    scene.free(batch);
    ensure(watched.overall() == overall, || format!("{overall:?} became {:?}", watched.overall()))?;
    told.is_right()?;
    let violations = scene.bench.engine.violations();
    ensure(violations.is_empty(), || format!("violations: {violations:?}"))
}
