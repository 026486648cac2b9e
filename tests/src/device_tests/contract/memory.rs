//! The rules of memory that is the caller's, and of a batch that several threads use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tentpeg_engine::{Access, CallerMemory, EngineConfig, Memory, MemoryError, OpCode, RegisterOptions, Request};

use super::{Scene, ensure_states, scene, shallow, states};
use crate::device_tests::bench::{bytes_hold, bytes_of, fill, holds};
use crate::device_tests::{DeviceTest, Ending, Tier, Verdict, ensure};
use crate::own_memory::OwnMemory;
use tentpeg_engine::TransferState::{Canceled, Completed, Invalid, Pending};

pub(super) fn tests() -> Vec<DeviceTest> {
    let rule = |name: &str, run: fn(&dyn Tier) -> Verdict| DeviceTest::new(format!("contract: {name}"), run);
    vec![
        rule("memory of the caller is registered where it lies, and requests name any part of it", any_part),
        rule("memory that overlaps is refused, and the same memory is counted", overlaps),
        rule("memory is used as it was registered", as_registered),
        rule("by its address alone memory is reached, or staged where that was allowed, or refused", by_its_address),
        rule("unregistering memory of the caller in flight leaves nothing behind", unregister_in_flight),
        rule("a teardown takes memory back first, then frees batches", teardown),
        rule("submits, polls and a free come from several threads", threads),
    ]
}

/// A scene with memory of the caller. The memory is to be dropped after the scene.
struct Callers {
    scene: Scene,
    own: OwnMemory,
}

impl Callers {
    fn new(tier: &dyn Tier, blocks: u64, config: EngineConfig) -> Result<Self, Ending> {
        let mut scene = scene(tier, blocks, config)?;
        scene.fill_blocks(blocks)?;
        let own = OwnMemory::new((blocks * scene.lba) as usize)?;
        own.view().fill(0xEE);
        Ok(Self { scene, own })
    }

    fn register(&self, memory: CallerMemory, options: RegisterOptions) -> Result<Memory, MemoryError> {
        self.scene.bench.engine.register_memory(memory, options)
    }

    /// A request for one block with memory `at` bytes from the begin of the caller's on.
    fn block(&self, opcode: OpCode, at: u64, block: u64) -> Request {
        Request { source: self.own.address() + at, ..self.scene.block(opcode, 0, block) }
    }

    /// Whether memory from byte `at` on holds what block `block` was filled with.
    fn holds(&self, at: u64, block: u64) -> Verdict {
        holds(self.own.view().slice(at as usize, self.scene.lba as usize), block)
    }

    /// Whether so many bytes at `at` are as they were.
    fn untouched(&self, at: usize, len: usize, byte: u8) -> Verdict {
        let mut bytes = vec![0; len];
        self.own.view().read(at, &mut bytes);
        let wrong = bytes.iter().position(|found| *found != byte);
        ensure(wrong.is_none(), || format!("byte {} was written", at + wrong.unwrap_or(0)))
    }
}

fn any_part(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 16, EngineConfig::default())?;
    let lba = callers.scene.lba;
    let (begin, len) = (40, 9 * lba + 100);
    let memory = callers.own.part(begin, len as usize)?;
    let memory = callers.register(memory, RegisterOptions::default())?;
    ensure((memory.len() as u64, memory.staged()) == (len, None), || format!("{memory:?}: {:?}", memory.staged()))?;
    let begin = begin as u64;
    let (first, odd, last) = (begin, begin + 3 * lba + 4, begin + len - lba);
    let batch = callers.scene.bench.run(&[
        callers.block(OpCode::Read, first, 3),
        callers.block(OpCode::Read, odd, 9),
        callers.block(OpCode::Read, last, 5),
        callers.block(OpCode::Read, first - 4, 1),
        callers.block(OpCode::Read, last + 4, 1),
    ])?;
    ensure_states(&batch, &[Completed, Completed, Completed, Invalid, Invalid])?;
    [(first, 3), (odd, 9), (last, 5)].into_iter().try_for_each(|(at, block)| callers.holds(at, block))?;
    callers.untouched(0, begin as usize, 0xEE)?;
    callers.untouched((begin + len) as usize, 100, 0xEE)?;
    // And from there to the device.
    fill(callers.own.view().slice(odd as usize, lba as usize), 77);
    let (write, read) = (callers.block(OpCode::Write, odd, 2), callers.block(OpCode::Read, first, 2));
    callers.scene.bench.transfer(&[write])?;
    callers.scene.bench.transfer(&[read])?;
    callers.holds(first, 77)?;
    callers.scene.bench.finish()
}

fn overlaps(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 16, EngineConfig::default())?;
    let lba = callers.scene.lba as usize;
    let plain = RegisterOptions::default();
    let register =
        |callers: &Callers, at, len| callers.register(callers.own.part(at, len)?, plain).map_err(Ending::from);
    let memory = register(&callers, 4 * lba, 4 * lba)?;
    for (at, len) in [(0, 5 * lba), (7 * lba, 2 * lba), (5 * lba, lba), (0, 16 * lba)] {
        let refused = callers.register(callers.own.part(at, len)?, plain);
        ensure(matches!(refused, Err(MemoryError::Overlaps { .. })), || format!("{len} bytes at {at}: {refused:?}"))?;
    }
    let again = register(&callers, 4 * lba, 4 * lba)?;
    let read = callers.block(OpCode::Read, 4 * lba as u64, 3);
    callers.scene.bench.unregister(memory);
    let batch = callers.scene.bench.run(&[read])?;
    ensure_states(&batch, &[Completed])?;
    callers.scene.bench.unregister(again);
    let batch = callers.scene.bench.run(&[read])?;
    ensure_states(&batch, &[Invalid])?;
    register(&callers, 0, 16 * lba)?;
    let batch = callers.scene.bench.run(&[read])?;
    ensure_states(&batch, &[Completed])?;
    callers.scene.bench.finish()
}

fn as_registered(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 16, EngineConfig::default())?;
    let half = 8 * callers.scene.lba;
    for (at, access) in [(0, Access::DEVICE_READS), (half, Access::DEVICE_WRITES)] {
        let memory = callers.own.part(at as usize, half as usize)?;
        callers.register(memory, RegisterOptions { access, ..RegisterOptions::default() })?;
    }
    let batch = callers.scene.bench.run(&[
        callers.block(OpCode::Write, 0, 3),
        callers.block(OpCode::Read, 0, 4),
        callers.block(OpCode::Write, half, 5),
        callers.block(OpCode::Read, half, 6),
    ])?;
    ensure_states(&batch, &[Completed, Invalid, Invalid, Completed])?;
    callers.untouched(0, half as usize, 0xEE)?;
    callers.holds(half, 6)?;
    callers.scene.bench.finish()
}

fn by_its_address(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 64, EngineConfig::default())?;
    let lba = callers.scene.lba;
    let part = || callers.own.part_without_file(0, (64 * lba) as usize);
    let staging = RegisterOptions { staging: true, ..RegisterOptions::default() };
    let plain = callers.register(part()?, RegisterOptions::default());
    let is_reached = plain.is_ok();
    if let Ok(memory) = plain {
        let batch = callers.scene.bench.run(&[callers.block(OpCode::Read, 1, 3), callers.block(OpCode::Read, 0, 3)])?;
        ensure_states(&batch, &[Invalid, Completed])?;
        callers.scene.bench.unregister(memory);
    }
    let memory = callers.register(callers.own.part_without_file(0, (64 * lba) as usize)?, staging)?;
    ensure(memory.staged().is_none() == is_reached, || format!("it says of staging: {:?}", memory.staged()))?;
    // From and to any byte, with more of it than there are buffers.
    let long = |callers: &Callers, opcode, at: u64, block, blocks| Request {
        length: blocks * lba,
        ..callers.block(opcode, at, block)
    };
    let (at, blocks) = (3, 20);
    callers.own.view().write(at as usize, &bytes_of(5, (blocks * lba) as usize));
    let write = long(&callers, OpCode::Write, at, 1, blocks);
    callers.scene.bench.transfer(&[write])?;
    let reads: Vec<_> = (0..8).map(|read| long(&callers, OpCode::Read, 30 * lba + read, 1, blocks)).collect();
    for read in reads {
        callers.scene.bench.transfer(&[read])?;
        let mut found = vec![0; (blocks * lba) as usize];
        callers.own.view().read((read.source - callers.own.address()) as usize, &mut found);
        bytes_hold(&found, 5)?;
    }
    let odd = callers.scene.bench.run(&[Request { length: lba - 1, ..callers.block(OpCode::Write, 1, 0) }])?;
    ensure_states(&odd, &[Invalid])?;
    let staged = callers.scene.bench.engine.counters().bytes_staged;
    // Two of the reads are on dwords.
    let least = (1 + 6) * blocks * lba;
    // A lane with a thread publishes at the end of its turn.
    ensure(callers.scene.bench.lane.is_none() || staged >= least, || {
        format!("{staged} bytes were counted, not {least}")
    })?;
    callers.scene.bench.finish()
}

fn unregister_in_flight(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 64, shallow())?;
    let lba = callers.scene.lba;
    for turns in 0..6u64 {
        // In place, and through staging.
        let odd = turns % 2;
        let options = RegisterOptions { staging: true, ..RegisterOptions::default() };
        let memory = callers.register(callers.own.part(0, (64 * lba) as usize)?, options)?;
        callers.own.view().fill(0xEE);
        let requests: Vec<_> =
            (0..60).rev().map(|block| callers.block(OpCode::Read, block * lba + odd, block)).collect();
        let batch = callers.scene.submit(&requests)?;
        if let Some(lane) = &mut callers.scene.bench.lane {
            for _ in 0..turns {
                lane.turn();
            }
        }
        callers.scene.bench.unregister(memory);
        let found = states(&batch)?;
        let ended = found.iter().all(|state| matches!(state, Completed | Canceled));
        ensure(ended && batch.overall().is_finished(), || format!("after it was unregistered: {found:?}"))?;
        for (state, block) in found.iter().zip((0..60u64).rev()) {
            let at = block * lba + odd;
            match state {
                Completed => callers.holds(at, block)?,
                _ => callers.untouched(at as usize, lba as usize, 0xEE)?,
            }
        }
        callers.own.view().fill(0xAB);
        let later = callers.scene.bench.run(&requests[..1])?;
        ensure_states(&later, &[Invalid])?;
        let other = callers.scene.block(OpCode::Read, 0, 1);
        callers.scene.bench.transfer(&[other])?;
        callers.untouched(0, (64 * lba) as usize, 0xAB)?;
    }
    callers.scene.bench.finish()
}

/// As TENT ends an engine: it removes every buffer, ignores what it is told, and frees the batches then.
fn teardown(tier: &dyn Tier) -> Verdict {
    let mut callers = Callers::new(tier, 64, shallow())?;
    let lba = callers.scene.lba;
    let memory = callers.register(callers.own.part(0, (64 * lba) as usize)?, RegisterOptions::default())?;
    let reads: Vec<_> = (0..64).rev().map(|block| callers.block(OpCode::Read, block * lba, block)).collect();
    let batches = [callers.scene.submit(&reads)?, callers.scene.submit(&callers.scene.reads(64))?];
    if let Some(lane) = &mut callers.scene.bench.lane {
        lane.turn();
    }
    let own = callers.scene.memory.clone();
    for memory in [memory.clone(), own, memory] {
        callers.scene.bench.unregister(memory);
    }
    let refused = callers.scene.submit(&reads)?;
    for batch in batches {
        let watched = batch.clone();
        callers.scene.free(batch);
        let found = states(&watched)?;
        ensure(found.iter().all(|state| matches!(state, Completed | Canceled)), || format!("{found:?}"))?;
    }
    ensure_states(&refused, &[Invalid; 64])?;
    callers.scene.free(refused);
    callers.own.view().fill(0xAB);
    callers.scene.memory.view().fill(0xAB);
    let Callers { scene, own } = callers;
    scene.bench.finish()?;
    let mut bytes = vec![0; own.view().len()];
    own.view().read(0, &mut bytes);
    ensure(bytes.iter().all(|byte| *byte == 0xAB), || "memory was written after it had been taken back".to_owned())
}

fn threads(tier: &dyn Tier) -> Verdict {
    let mut scene = scene(tier, 16, EngineConfig::default())?;
    scene.fill_blocks(16)?;
    let batch = scene.bench.engine.allocate_batch(1)?;
    let requests = scene.reads(16);
    let (submitted, wrong) = (AtomicBool::new(false), AtomicBool::new(false));
    let engine = &scene.bench.engine;
    let outcome = thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let outcome = (0..50).try_for_each(|_| engine.submit(&batch, &requests).map(|_| thread::yield_now()));
            submitted.store(true, Ordering::Release);
            outcome
        });
        scope.spawn(|| {
            // Whatever it sees belongs together, however much is appended meanwhile.
            while !(submitted.load(Ordering::Acquire) && batch.overall().is_finished()) {
                let overall = batch.overall();
                let mut is_wrong = overall.ended > overall.tasks || overall.unsuccessful != 0;
                for task in 0..overall.tasks {
                    is_wrong |= !batch.status(task).is_ok_and(|status| matches!(status.state, Pending | Completed));
                }
                wrong.fetch_or(is_wrong, Ordering::Relaxed);
                thread::yield_now();
            }
        });
        let lane = &mut scene.bench.lane;
        while !(submitted.load(Ordering::Acquire) && batch.overall().is_finished()) {
            match lane {
                Some(lane) => {
                    lane.turn();
                }
                None => thread::yield_now(),
            }
        }
        submitter.join()
    });
    ensure(matches!(outcome, Ok(Ok(()))), || format!("a submit says {outcome:?}"))?;
    ensure(!wrong.load(Ordering::Relaxed), || "a poll saw what cannot be".to_owned())?;
    ensure_states(&batch, &[Completed; 800])?;
    (0..16).try_for_each(|block| holds(scene.view(block), block))?;
    scene.bench.engine.submit(&batch, &requests)?;
    let watched = batch.clone();
    match &mut scene.bench.lane {
        Some(lane) => batch.free_with(lane),
        None => thread::scope(|scope| {
            scope.spawn(|| batch.free());
        }),
    }
    ensure(watched.overall().is_finished(), || format!("after its free: {:?}", watched.overall()))?;
    scene.bench.finish()
}
