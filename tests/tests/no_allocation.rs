//! On the way of a request nothing is allocated (invariant 9): counted by an allocator, in the one thread that submits,
//! plans, executes and completes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tentpeg_engine::{Batch, BatchOptions, Engine, EngineConfig, Lane, Memory, OpCode, Priority, Request};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, and a count of what this thread asks of it.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is; the count is a thread's own and is neither
// allocated nor dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `work` makes in this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

const BLOCK: u64 = 4096;
/// Requests of one submit.
const GROUP: u32 = 32;

struct Bench {
    engine: Engine,
    lane: Lane,
    memory: Memory,
}

impl Bench {
    fn open(mdts: u8) -> Self {
        let uri = format!("model:size=64MiB,mdts={mdts}");
        let (engine, lane) = Engine::open_caller_driven(&uri, EngineConfig::default()).unwrap();
        let memory = engine.allocate_memory(8 << 20).unwrap();
        Self { engine, lane, memory }
    }

    /// Requests of some blocks each, `stride` blocks apart on the device and shuffled in memory.
    fn requests(&self, opcode: OpCode, blocks: u64, stride: u64) -> Vec<Request> {
        let segment = self.engine.segments()[0].id;
        let request = |at: u64| Request {
            opcode,
            source: self.memory.address() + at * 13 % 32 * blocks * BLOCK,
            target_id: segment,
            target_offset: at * stride * BLOCK,
            length: blocks * BLOCK,
        };
        (0..GROUP.into()).map(request).collect()
    }

    fn run(&mut self, batch: &Batch, requests: &[Request]) {
        let first = self.engine.submit(batch, requests).unwrap();
        while !batch.overall().is_finished() {
            self.lane.turn();
        }
        for task in first..first + GROUP {
            assert_eq!(batch.status(task).unwrap().transferred_bytes, requests[0].length);
        }
    }
}

#[test]
fn a_request_allocates_nothing() {
    for (what, mdts, blocks, stride, priority) in [
        ("single blocks", 9, 1, 7, Priority::High),
        ("single blocks that can wait", 9, 1, 7, Priority::Low),
        ("blocks joined into one command", 9, 1, 1, Priority::Medium),
        ("commands with PRP lists", 9, 16, 32, Priority::High),
        ("tasks of several commands", 2, 16, 32, Priority::High),
    ] {
        let mut bench = Bench::open(mdts);
        let groups = 200;
        // Of every priority, with somebody to be told.
        let options = BatchOptions {
            capacity: GROUP * 2 * groups,
            priority,
            notifier: Some(Box::new(|status| assert!(status.ended <= status.tasks))),
        };
        let batch = bench.engine.allocate_batch_with(options).unwrap();
        let (reads, writes) =
            (bench.requests(OpCode::Read, blocks, stride), bench.requests(OpCode::Write, blocks, stride));
        let warm_up = allocations(|| {
            for _ in 0..groups / 2 {
                bench.run(&batch, &writes);
                bench.run(&batch, &reads);
            }
        });
        assert_ne!(warm_up, 0, "{what}: nothing was counted at all");
        let measured = allocations(|| {
            for _ in 0..groups / 2 {
                bench.run(&batch, &writes);
                bench.run(&batch, &reads);
            }
        });
        assert_eq!(measured, 0, "{what}: allocations over {} requests", GROUP * groups);
        bench.engine.close_with(bench.lane).unwrap();
    }
}

/// A batch is two allocations: itself and the memory of its tasks, whatever becomes of them.
#[test]
fn a_batch_allocates_itself_and_its_tasks() {
    let mut bench = Bench::open(9);
    let reads = bench.requests(OpCode::Read, 1, 3);
    let mut round = || {
        let batch = bench.engine.allocate_batch(GROUP).unwrap();
        bench.run(&batch, &reads);
    };
    round();
    let measured = allocations(|| {
        for _ in 0..100 {
            round();
        }
    });
    assert_eq!(measured, 200, "over 100 batches");
    bench.engine.close_with(bench.lane).unwrap();
}
