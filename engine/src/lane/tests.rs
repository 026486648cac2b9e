//! Engines on a stepped model: everything in one thread, turn by turn.

mod asleep;
mod data;
mod departure;
mod failures;
mod flushes;
mod gpu;
mod gpu_direct;
mod in_place;
mod life;
mod order;
mod priorities;
mod recovery;
mod segments;
mod sleep;
mod special;
mod staging;
mod statistics;
mod turns;
mod unregister;

use std::path::Path;

use crate::{
    Batch, BatchStatus, BlockExtent, Devices, Durability, Engine, EngineConfig, Lane, LaneMode, MemberLayout, Memory,
    OpCode, Request, SegmentId, SegmentLayout, TransferState, TransferStatus,
};

/// Turns after which a test that has not ended never will.
const TURNS: usize = 10_000_000;

/// An engine with its lane and some memory.
struct Bench {
    engine: Engine,
    lane: Lane,
    memory: Memory,
}

impl Bench {
    fn open(uri: &str, queue_entries: u32, memory: usize) -> Self {
        let config = EngineConfig { queue_entries, ..EngineConfig::default() };
        let (engine, lane) = Engine::open_caller_driven(uri, config).unwrap();
        let memory = engine.allocate_memory(memory).unwrap();
        Self { engine, lane, memory }
    }

    fn read(&self, memory: u64, target_offset: u64, length: u64) -> Request {
        self.request(OpCode::Read, memory, target_offset, length)
    }

    fn write(&self, memory: u64, target_offset: u64, length: u64) -> Request {
        self.request(OpCode::Write, memory, target_offset, length)
    }

    fn request(&self, opcode: OpCode, memory: u64, target_offset: u64, length: u64) -> Request {
        request_of(&self.memory, opcode, memory, target_offset, length)
    }

    /// Reads of single blocks of 4,096 bytes that never join: each is of the block before.
    fn descending(&self, count: u64) -> Vec<Request> {
        (0..count).rev().map(|block| self.read(block % 16 * 4096, block * 4096, 4096)).collect()
    }

    fn submit(&self, requests: &[Request]) -> Batch {
        let batch = self.engine.allocate_batch(requests.len() as u32).unwrap();
        self.engine.submit(&batch, requests).unwrap();
        batch
    }

    /// A segment over two devices, block by block, and memory of `memory` bytes.
    fn striped(memory: usize) -> Self {
        let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
        let members = [0, 1].map(|device| {
            devices.open("model:size=1MiB").unwrap();
            MemberLayout { device, extents: vec![BlockExtent::new(0, 256).unwrap()] }
        });
        let layout = SegmentLayout {
            members: members.into(),
            chunk: 4096,
            durability: Durability::None,
            ..SegmentLayout::whole("striped", 0, 256)
        };
        let (engine, lane) = devices.start(vec![layout]).unwrap();
        let memory = engine.allocate_memory(memory).unwrap();
        Self { engine, lane: lane.unwrap(), memory }
    }

    /// Turns the lane until all has ended.
    fn run(&mut self) {
        run_until(&mut self.lane, Lane::is_idle);
    }

    fn fill(&self, memory: u64, length: u64, seed: u64) {
        let words: Vec<u64> = (0..length / 8).map(|at| word(seed, at)).collect();
        self.memory.view().write_words(memory as usize, &words);
    }

    #[track_caller]
    fn check(&self, memory: u64, length: u64, seed: u64) {
        let mut words = vec![0; (length / 8) as usize];
        self.memory.view().read_words(memory as usize, &mut words);
        let wrong = (0..).zip(&words).find(|(at, found)| **found != word(seed, *at));
        assert_eq!(wrong, None, "the first wrong word, by place, of data {seed:#x} at {memory:#x}");
    }

    /// Whether any byte differs from `byte`.
    fn is_touched(&self, memory: u64, length: u64, byte: u8) -> bool {
        let mut bytes = vec![0; length as usize];
        self.memory.view().read(memory as usize, &mut bytes);
        bytes.iter().any(|found| *found != byte)
    }

    /// Both sides count the same, and the model has nothing to complain of. Closes the engine.
    #[track_caller]
    fn close(self) {
        check_counters(&self.engine);
        self.engine.close_with(self.lane).unwrap();
    }
}

/// A request of the first segment, with the bytes from `at` on of some memory.
fn request_of(memory: &Memory, opcode: OpCode, at: u64, target_offset: u64, length: u64) -> Request {
    Request { opcode, source: memory.address() + at, target_id: SegmentId(1), target_offset, length }
}

/// A word of data: tells seed and place apart, and is never what memory is poisoned with.
fn word(seed: u64, at: u64) -> u64 {
    (seed << 32 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

fn run_until(lane: &mut Lane, mut done: impl FnMut(&Lane) -> bool) {
    for _ in 0..TURNS {
        if done(lane) {
            return;
        }
        lane.turn();
    }
    panic!("nothing more happens");
}

#[track_caller]
fn check_counters(engine: &Engine) {
    let (ours, theirs) = (engine.counters(), engine.model_counters().unwrap());
    assert_eq!((ours.commands, ours.completions), (theirs.io_sqes, theirs.io_cqes));
    assert_eq!((ours.reads, ours.writes, ours.flushes), (theirs.reads, theirs.writes, theirs.flushes));
    assert_eq!((ours.bytes_read, ours.bytes_written), (theirs.read_bytes, theirs.write_bytes));
    assert_eq!((ours.anomalies, theirs.faults), (0, 0));
    assert_eq!(engine.violations(), []);
}

fn states(batch: &Batch) -> Vec<TransferState> {
    (0..batch.tasks()).map(|task| batch.status(task).unwrap().state).collect()
}

/// A model over a file; the file is what a test can pull from under it.
fn file_uri(path: &Path, settings: &str) -> String {
    format!("model:path={},{settings}", path.display())
}
