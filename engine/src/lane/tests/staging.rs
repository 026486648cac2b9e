//! Bytes that go through staging buffers.

use std::sync::Arc;

use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};
use tentpeg_driver::model::{CacheConfig, ModelConfig, Survivors};
use tentpeg_driver::spec::status::StatusCode;

use super::in_place::Rig;
use super::*;
use crate::memory::own::Own;
use crate::staging::BUFFERS;
use crate::{BatchOptions, Priority, RegisterOptions};
use TransferState::{Canceled, Completed};

const BLOCK: u64 = 4096;
/// Bytes of a staging buffer.
const BUFFER: u64 = 64 << 10;

const STAGED: RegisterOptions = RegisterOptions { access: tentpeg_driver::dma::Access::all(), staging: true };

fn model() -> ModelConfig {
    ModelConfig { size: 16 << 20, ..ModelConfig::default() }
}

impl Rig {
    /// Registers memory that the IOMMU has no room for.
    fn unreached(&self, own: &Own, at: usize, len: usize) -> Memory {
        self.bench.engine.prepare_staging().unwrap();
        self.iommu.limit_mappings(self.iommu.mappings());
        let memory = self.bench.engine.register_memory(own.part(at, len), STAGED).unwrap();
        self.iommu.limit_mappings(usize::MAX);
        memory
    }
}

fn request(opcode: OpCode, source: u64, offset: u64, length: u64) -> Request {
    Request { opcode, source, target_id: SegmentId(1), target_offset: offset, length }
}

fn fill(own: &Own, at: u64, length: u64, seed: u64) {
    let bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|at| word(seed, at).to_le_bytes()).collect();
    own.view().write(at as usize, &bytes[..length as usize]);
}

#[track_caller]
fn check(own: &Own, at: u64, length: u64, seed: u64) {
    let expected: Vec<u8> = (0..length.div_ceil(8)).flat_map(|at| word(seed, at).to_le_bytes()).collect();
    let mut found = vec![0; length as usize];
    own.view().read(at as usize, &mut found);
    assert_eq!(found.iter().zip(&expected).position(|(found, expected)| found != expected), None, "data {seed}");
}

/// Memory that no device reaches is written from and read into, from any byte on, and every byte is counted.
#[test]
fn memory_that_devices_cannot_reach_is_served_where_that_was_allowed() {
    let own = Own::new(2 << 20);
    let mut rig = Rig::new(64, model());
    let memory = rig.unreached(&own, 3, (2 << 20) - 10);
    let reason = memory.staged().unwrap();
    assert!(reason.contains("at its limit of") && memory.exposed_beside() == (0, 0), "{reason}");
    own.view().fill(0xEE);
    let (half, length) = (1 << 20, 200 * BLOCK);
    fill(&own, 5, length, 1);
    assert_eq!(rig.run(&[request(OpCode::Write, own.address() + 5, BLOCK, length)]), [Completed]);
    assert_eq!(rig.run(&[request(OpCode::Read, own.address() + half + 7, BLOCK, length)]), [Completed]);
    check(&own, half + 7, length, 1);
    let mut beside = [0; 2];
    own.view().read((half + 6) as usize, &mut beside[..1]);
    own.view().read((half + 7 + length) as usize, &mut beside[1..]);
    assert_eq!(beside, [0xEE; 2]);
    let (parts, counters) = (length.div_ceil(BUFFER), rig.bench.engine.counters());
    assert_eq!((counters.staged_reads, counters.staged_writes, counters.bytes_staged), (parts, parts, 2 * length));
    // What the device holds is what a direct read finds.
    let direct = rig.bench.read(0, BLOCK, 8 * BLOCK);
    assert_eq!(rig.run(&[direct]), [Completed]);
    rig.bench.check(0, 8 * BLOCK, 1);
    // Its bounds are kept, and writes are whole blocks.
    let states = rig.run(&[
        request(OpCode::Read, own.address() + 2, 0, BLOCK),
        request(OpCode::Read, memory.address() + memory.len() as u64 - BLOCK + 1, 0, BLOCK),
        request(OpCode::Write, own.address() + 5, 0, 100),
        request(OpCode::Read, own.address() + 5, 100, BLOCK),
        request(OpCode::Read, memory.address() + memory.len() as u64 - BLOCK, 0, BLOCK),
    ]);
    use TransferState::Invalid;
    assert_eq!(states, [Invalid, Invalid, Invalid, Invalid, Completed]);
    rig.bench.engine.unregister_memory_with(memory, &mut rig.bench.lane);
    rig.close();
}

/// Where devices reach the memory, only what is on no dword is copied, and only where that was allowed.
#[test]
fn what_is_on_no_dword_is_staged_where_that_was_allowed() {
    let own = Own::new(64 * BLOCK as usize);
    let mut rig = Rig::new(16, model());
    let half = 32 * BLOCK;
    let staged = rig.bench.engine.register_memory(own.part(0, half as usize), STAGED).unwrap();
    rig.bench.engine.register_memory(own.part(half as usize, half as usize), RegisterOptions::default()).unwrap();
    assert_eq!(staged.staged(), None, "devices reach it");
    fill(&own, 1, BLOCK, 5);
    let at = |offset| own.address() + offset;
    assert_eq!(rig.run(&[request(OpCode::Write, at(1), 0, BLOCK)]), [Completed]);
    assert_eq!(rig.bench.engine.counters().staged_writes, 1);
    let states = rig.run(&[
        request(OpCode::Read, at(4 * BLOCK), 0, BLOCK),
        request(OpCode::Read, at(half + 4), 0, BLOCK),
        request(OpCode::Read, at(half + 1), 0, BLOCK),
        request(OpCode::Read, at(8 * BLOCK + 2), 0, BLOCK),
        // From one into the other.
        request(OpCode::Read, at(half - 1), 0, BLOCK),
    ]);
    use TransferState::Invalid;
    assert_eq!(states, [Completed, Completed, Invalid, Completed, Invalid]);
    [4 * BLOCK, half + 4, 8 * BLOCK + 2].into_iter().for_each(|place| check(&own, place, BLOCK, 5));
    let counters = rig.bench.engine.counters();
    assert_eq!((counters.staged_reads, counters.reads, counters.bytes_staged), (1, 3, 2 * BLOCK));
    rig.close();
}

/// More than there are buffers, of each priority and in several batches, with direct requests among them: all of it ends,
/// and nobody waits for somebody else's end.
#[test]
fn an_exhausted_pool_starves_nobody() {
    let (count, length) = (12u64, 1 << 20);
    let own = Own::new(count as usize * length as usize);
    let mut rig = Rig::new(256, model());
    rig.unreached(&own, 0, (count * length) as usize);
    let engine = &rig.bench.engine;
    let mut batches = Vec::new();
    for number in 0..count {
        let priority = Priority::ALL[number as usize % 3];
        let batch = engine.allocate_batch_with(BatchOptions { priority, ..BatchOptions::default() }).unwrap();
        let opcode = if number % 2 == 0 { OpCode::Write } else { OpCode::Read };
        let source = own.address() + number * length;
        engine.submit(&batch, &[request(opcode, source, number * length, length); 8]).unwrap();
        batches.push(batch);
    }
    let direct = rig.bench.submit(&rig.bench.descending(10));
    let (mut most, mut first_ends) = (0, vec![0; batches.len()]);
    let mut last_end = 0;
    for turn in 1..TURNS {
        rig.bench.lane.turn();
        rig.bench.lane.pause();
        let counters = rig.bench.engine.counters();
        most = most.max(counters.commands - counters.completions);
        for (batch, first_end) in batches.iter().zip(&mut first_ends) {
            if *first_end == 0 && batch.overall().ended > 0 {
                *first_end = turn;
            }
        }
        if batches.iter().all(|batch| batch.overall().is_finished()) {
            last_end = turn;
            break;
        }
    }
    assert!(last_end > 0, "something waits for ever");
    assert!(batches.iter().chain([&direct]).all(|batch| batch.overall().is_finished()));
    assert!(batches.iter().chain([&direct]).all(|batch| batch.overall().unsuccessful == 0));
    // Those of a priority go side by side, and none waits for the end of a higher one.
    assert!(first_ends.iter().all(|first| *first < last_end * 9 / 10), "{first_ends:?} of {last_end} turns");
    assert!((u64::from(BUFFERS) / 2..=u64::from(BUFFERS) + 10).contains(&most), "{most} commands in flight");
    rig.close();
}

/// A write whose bytes cannot be had writes nothing, and gives its buffer back.
#[test]
fn what_cannot_be_copied_is_not_written() {
    let own = Own::new(1 << 20);
    let mut rig = Rig::new(16, model());
    rig.unreached(&own, 0, 1 << 20);
    let batch = rig.bench.submit(&[request(OpCode::Write, own.address(), 0, BLOCK)]);
    let registered = &rig.bench.lane.ports[0].registered;
    let kept = registered.load_full();
    registered.store(Arc::default());
    rig.bench.run();
    assert_eq!(states(&batch), [TransferState::Failed]);
    let counters = rig.bench.engine.counters();
    assert_eq!((counters.commands, counters.staged_writes), (0, 0));
    rig.bench.lane.ports[0].registered.store(kept);
    assert_eq!(rig.run(&[request(OpCode::Write, own.address(), 0, BLOCK)]), [Completed]);
    rig.close();
}

/// Two batches that want buffers without end share them.
#[test]
fn batches_take_turns_at_the_buffers() {
    let own = Own::new(4 << 20);
    let mut rig = Rig::new(256, model());
    rig.unreached(&own, 0, 4 << 20);
    let reads = |at: u64| vec![request(OpCode::Read, own.address() + at, 0, 1 << 20); 20];
    let (greedy, other) = (rig.bench.submit(&reads(0)), rig.bench.engine.allocate_batch(20).unwrap());
    for _ in 0..3 {
        rig.bench.lane.turn();
    }
    rig.bench.engine.submit(&other, &reads(2 << 20)).unwrap();
    let mut least_ahead = 0;
    run_until(&mut rig.bench.lane, |_| {
        least_ahead = least_ahead.max(greedy.overall().ended.saturating_sub(other.overall().ended));
        other.overall().ended >= 10
    });
    assert!(least_ahead <= 6, "{least_ahead} tasks more have ended of one of two equals");
    assert!(!greedy.overall().is_finished(), "it was served before the other");
    rig.bench.run();
    rig.close();
}

/// Whoever waits for a buffer and is canceled, or freed, leaves the line; and who has one gives it back.
#[test]
fn cancels_and_frees_leave_the_line() {
    let own = Own::new(4 << 20);
    let mut rig = Rig::new(256, model());
    let memory = rig.unreached(&own, 0, 4 << 20);
    let reads = |at: u64, count| vec![request(OpCode::Read, own.address() + at, 0, 1 << 20); count];
    for round in 0..6 {
        let first = rig.bench.submit(&reads(0, 4));
        let waiting: Vec<_> = (0..40).map(|_| rig.bench.submit(&reads(1 << 20, 1))).collect();
        for _ in 0..round {
            rig.bench.lane.turn();
        }
        for (number, batch) in waiting.into_iter().enumerate() {
            if number % 2 == 0 {
                batch.cancel();
            } else {
                let kept = batch.clone();
                batch.free_with(&mut rig.bench.lane);
                assert!(states(&kept).iter().all(|state| matches!(state, Completed | Canceled)));
            }
        }
        let last = rig.bench.submit(&reads(2 << 20, 1));
        rig.bench.run();
        assert_eq!((states(&first), states(&last)), (vec![Completed; 4], vec![Completed]));
    }
    let batch = rig.bench.submit(&reads(0, 4));
    rig.bench.lane.turn();
    rig.bench.engine.unregister_memory_with(memory, &mut rig.bench.lane);
    assert!(batch.overall().is_finished());
    rig.close();
}

/// What waits for a buffer, and whatever stands behind it, is given up with its memory; who has waited longer keeps its place.
#[test]
fn memory_that_is_unregistered_gives_up_what_waits_for_a_buffer() {
    let own = Own::new(4 << 20);
    let mut rig = Rig::new(256, model());
    let going = rig.unreached(&own, 0, 2 << 20);
    rig.unreached(&own, 2 << 20, 2 << 20);
    let reads = |at: u64, count| vec![request(OpCode::Read, own.address() + at, 0, 1 << 20); count];
    let batches = [(0, 8), (0, 2), (2 << 20, 1)].map(|(at, count)| rig.bench.submit(&reads(at, count)));
    rig.bench.lane.turn();
    rig.bench.engine.unregister_memory_with(going, &mut rig.bench.lane);
    let [first, second, other] = batches.each_ref().map(states);
    let completed = first.iter().filter(|state| **state == Completed).count();
    assert!((1..=3).contains(&completed), "{first:?}");
    assert!(first[completed..].iter().chain(&second[1..]).all(|state| *state == Canceled), "{first:?} {second:?}");
    assert!(other.len() == 1 && other[0] != Canceled);
    rig.bench.run();
    assert_eq!(states(&batches[2]), [Completed]);
    let given_up = batches.iter().map(|batch| batch.overall().unsuccessful).sum::<u32>();
    let reads = rig.bench.engine.counters().staged_reads;
    assert_eq!(reads, u64::from(11 - given_up) * 16, "nothing of those that were given up was read");
    rig.close();
}

/// A write through staging is as durable as any, and one whose command fails, or is lost with a reset or with the power, is
/// copied and issued again.
#[test]
fn a_staged_write_survives_what_befalls_it() {
    let (own, length) = (Own::new(4 << 20), 40 * BLOCK);
    let cache = CacheConfig { blocks: 10_000, write_back: None };
    for step in 0..8u64 {
        let mut rig = Rig::new(8, ModelConfig { cache_simulation: Some(cache), ..model() });
        rig.unreached(&own, 0, 4 << 20);
        let faults = rig.model.faults();
        let status = StatusCode::COMMAND_INTERRUPTED.status();
        let action =
            if step % 2 == 0 { Action::Status { status, execute: false } } else { Action::Delay { turns: 20 } };
        faults.add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(2 + step / 2), action });
        fill(&own, 9, length, step);
        let batch = rig.bench.submit(&[request(OpCode::Write, own.address() + 9, 0, length)]);
        let flush = rig.bench.engine.allocate_batch(1).unwrap();
        rig.bench.run();
        rig.bench.engine.submit_flush(&flush, SegmentId(1)).unwrap();
        rig.bench.run();
        assert_eq!((states(&batch), states(&flush)), (vec![Completed], vec![Completed]), "step {step}");
        rig.model.power_cut(Survivors::Nothing).unwrap();
        let back = request(OpCode::Read, own.address() + (1 << 20) + 1, 0, length);
        let read = rig.bench.submit(&[back]);
        run_until(&mut rig.bench.lane, |_| read.overall().is_finished());
        assert_eq!(states(&read), [Completed], "step {step}");
        check(&own, (1 << 20) + 1, length, step);
    }
}
