//! The workloads of the instruction counts.
//!
//! Each keeps a stepped controller with a null store busy at a fixed depth and does the measured part in functions of
//! its own, which are never inlined and whose names start with `measured_`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde::{Deserialize, Serialize};
use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::dma::{Access, HostMemory};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};
use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_engine::{Batch, Engine, EngineConfig, Lane, Memory, OpCode, Request};

/// The figures, in the order in which they are measured.
pub const FIGURES: &[&str] = &[
    "driver, submit 4 KiB read",
    "driver, complete 4 KiB read",
    "driver, submit 128 KiB read",
    "engine, submit to status, 4 KiB, batch 32",
    SUBMITTER,
    LANE,
    "engine, status of a task and its batch, of 32",
    "engine, status of a task and its batch, of 64,000",
];

/// The two sides of a lane that a thread turns.
const SUBMITTER: &str = "engine and a lane's thread, submitter, 4 KiB, batch 32";
const LANE: &str = "engine and a lane's thread, lane, 4 KiB, batch 32";

/// The thread whose instructions a figure is of, counted from 1 in the order in which they were started; `None`: there is
/// one.
pub fn thread_of(figure: &str) -> Option<u32> {
    match figure {
        SUBMITTER => Some(1),
        LANE => Some(2),
        _ => None,
    }
}

/// Commands in flight.
const DEPTH: usize = 128;
/// Commands of one doorbell.
const GROUP: usize = 32;
/// Groups that are measured, after [`WARM_UP`] that are not.
const GROUPS: usize = 2_000;
/// Groups that are run first, so that every slot, page and branch has been seen.
const WARM_UP: usize = 64;

/// Instructions by figure, with the compiler that they hold for.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// What `rustc --version` prints.
    pub rustc: String,
    /// Instructions an operation.
    pub instructions: BTreeMap<String, f64>,
}

impl Figures {
    fn path() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json")
    }

    /// The committed figures.
    ///
    /// # Errors
    /// When there are none.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        Ok(serde_json::from_str(&std::fs::read_to_string(Self::path())?)?)
    }

    /// Makes these the committed figures.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> Result<(), Box<dyn Error>> {
        Ok(std::fs::write(Self::path(), serde_json::to_string_pretty(self)? + "\n")?)
    }
}

/// Runs the workload of a figure and prints how many operations its measured part did.
///
/// # Errors
/// When there is no such figure, or the workload failed.
pub fn run_workload(figure: &str) -> Result<u64, Box<dyn Error>> {
    let operations = match figure {
        "driver, submit 4 KiB read" => driver(4096, Measure::Submit),
        "driver, complete 4 KiB read" => driver(4096, Measure::Complete),
        "driver, submit 128 KiB read" => driver(128 << 10, Measure::Submit),
        "engine, submit to status, 4 KiB, batch 32" => engine(),
        SUBMITTER | LANE => engine_and_thread(),
        "engine, status of a task and its batch, of 32" => status(32),
        "engine, status of a task and its batch, of 64,000" => status(64_000),
        _ => return Err(format!("no such figure; there are: {}", FIGURES.join("; ")).into()),
    }?;
    println!("{operations}");
    Ok(operations)
}

/// Which half of a command is counted.
#[derive(Clone, Copy, PartialEq)]
enum Measure {
    Submit,
    Complete,
}

/// The driver alone: a queue pair at [`DEPTH`], doorbells for [`GROUP`] commands.
fn driver(bytes: u64, measure: Measure) -> Result<u64, Box<dyn Error>> {
    let iommu = SoftwareIommu::new();
    let config = ModelConfig { size: 1 << 30, store: StoreConfig::Null, ..ModelConfig::default() };
    let model = Model::new(config, Drive::Stepped, &iommu)?;
    let mut controller = Controller::enable(model.function(), ControllerConfig::default())?;
    let namespace = controller.namespaces()?.remove(0);
    let limits = namespace.limits?;
    let mut pair: QueuePair<u64> = controller.create_queue_pair(DEPTH as u32 + 1)?;
    let memory = iommu.space().register(HostMemory::allocate(DEPTH * bytes as usize)?, Access::DEVICE_WRITES)?;
    let mut plans = Vec::new();
    for index in 0..DEPTH as u64 {
        let iova = memory.iova_at(index * bytes).ok_or("the memory has room for every command")?;
        // Any order will do, as long as it is not the memory's.
        let slba = (index * 37 % DEPTH as u64) * (bytes >> limits.lba_shift());
        plans.push((slba, [Extent { iova, len: bytes }]));
    }
    let nlb = ZeroesBased::<u16>::from_count((bytes >> limits.lba_shift()) as u32).ok_or("NLB holds it")?;

    let mut next = 0;
    let mut in_flight = 0;
    let mut measured = 0;
    for group in 0..WARM_UP + GROUPS {
        let count = group >= WARM_UP;
        while in_flight < DEPTH {
            let plans = &plans[next..next + GROUP];
            if count && measure == Measure::Submit {
                measured_submit(&mut pair, namespace.nsid, nlb, plans)?;
                measured += GROUP as u64;
            } else {
                submit(&mut pair, namespace.nsid, nlb, plans)?;
            }
            in_flight += GROUP;
            next = (next + GROUP) % DEPTH;
        }
        model.turn();
        let ended =
            if count && measure == Measure::Complete { measured_complete(&mut pair) } else { complete(&mut pair) };
        if ended != GROUP {
            return Err(format!("{ended} of {GROUP} commands ended").into());
        }
        in_flight -= ended;
        if count && measure == Measure::Complete {
            measured += ended as u64;
        }
    }
    Ok(measured)
}

type Plan = (u64, [Extent; 1]);

#[inline(never)]
fn measured_submit(
    pair: &mut QueuePair<u64>,
    nsid: u32,
    nlb: ZeroesBased<u16>,
    plans: &[Plan],
) -> Result<(), Box<dyn Error>> {
    submit(pair, nsid, nlb, plans)
}

#[inline(always)]
fn submit(pair: &mut QueuePair<u64>, nsid: u32, nlb: ZeroesBased<u16>, plans: &[Plan]) -> Result<(), Box<dyn Error>> {
    for (slba, extents) in plans {
        pair.submit(Sqe::read(nsid, *slba, nlb), extents, *slba)?;
    }
    pair.ring();
    Ok(())
}

#[inline(never)]
fn measured_complete(pair: &mut QueuePair<u64>) -> usize {
    complete(pair)
}

#[inline(always)]
fn complete(pair: &mut QueuePair<u64>) -> usize {
    let mut sum = 0u64;
    let ended = pair.poll(GROUP, |completion| {
        sum = sum.wrapping_add(completion.token + u64::from(completion.status.is_success()));
    });
    std::hint::black_box(sum);
    ended
}

/// A batch of [`GROUP`] reads of 4 KiB.
fn group(engine: &Engine, memory: &Memory) -> Vec<Request> {
    let target_id = engine.segments()[0].id;
    (0..GROUP as u64)
        .map(|index| Request {
            opcode: OpCode::Read,
            source: memory.address() + index * 4096,
            target_id,
            // Apart on the device, so that each is a command.
            target_offset: (index * 37 % GROUP as u64) * 8192,
            length: 4096,
        })
        .collect()
}

/// The whole stack: a batch of [`GROUP`] requests from submit to its terminal states, driven by the caller.
fn engine() -> Result<u64, Box<dyn Error>> {
    let (engine, mut lane) = Engine::open_caller_driven("model:size=1GiB,store=null", EngineConfig::default())?;
    let memory = engine.allocate_memory(GROUP * 4096)?;
    let requests = group(&engine, &memory);
    let mut batch = engine.allocate_batch((GROUP * GROUPS) as u32)?;
    for group in 0..WARM_UP + GROUPS {
        if group == WARM_UP {
            batch = engine.allocate_batch((GROUP * GROUPS) as u32)?;
        }
        if group >= WARM_UP {
            measured_engine_submit(&engine, &mut lane, &batch, &requests)?;
        } else {
            engine_submit(&engine, &mut lane, &batch, &requests)?;
        }
        // The controller's turn is taken here, so that the lane's turns find something to do.
        lane_pause(&mut lane);
        let finished = if group >= WARM_UP {
            measured_engine_complete(&mut lane, &batch)
        } else {
            engine_complete(&mut lane, &batch)
        };
        if !finished {
            return Err("a batch did not end".into());
        }
    }
    engine.close_with(lane)?;
    Ok((GROUP * GROUPS) as u64)
}

#[inline(never)]
fn measured_engine_submit(
    engine: &Engine,
    lane: &mut Lane,
    batch: &Batch,
    requests: &[Request],
) -> Result<(), Box<dyn Error>> {
    engine_submit(engine, lane, batch, requests)
}

#[inline(always)]
fn engine_submit(engine: &Engine, lane: &mut Lane, batch: &Batch, requests: &[Request]) -> Result<(), Box<dyn Error>> {
    engine.submit(batch, requests)?;
    lane.turn();
    Ok(())
}

/// The same where a thread turns the lane: one thread submits and looks at the end, another has the lane's turns. They take
/// turns, so that the lane looks only when there is something: how often it looks in vain is the machine's matter.
fn engine_and_thread() -> Result<u64, Box<dyn Error>> {
    let (engine, lane) = Engine::open_caller_driven("model:size=1GiB,store=null", EngineConfig::default())?;
    let memory = engine.allocate_memory(GROUP * 4096)?;
    let requests = group(&engine, &memory);
    // Odd: it is the lane's turn.
    let turn = &AtomicUsize::new(0);
    let wait_for = |number| {
        while turn.load(Ordering::Acquire) != number {
            thread::yield_now();
        }
    };
    let lane = thread::scope(|scope| -> Result<Lane, Box<dyn Error>> {
        let mut lane = lane;
        let turned = scope.spawn(move || {
            for group in 0..WARM_UP + GROUPS {
                wait_for(2 * group + 1);
                for _ in 0..2 {
                    if group >= WARM_UP {
                        measured_lane_turn(&mut lane);
                    } else {
                        lane.turn();
                    }
                    lane_pause(&mut lane);
                }
                turn.store(2 * group + 2, Ordering::Release);
            }
            lane
        });
        let mut batch = engine.allocate_batch((GROUP * GROUPS) as u32)?;
        let mut finished = true;
        for group in 0..WARM_UP + GROUPS {
            if group == WARM_UP {
                batch = engine.allocate_batch((GROUP * GROUPS) as u32)?;
            }
            if group >= WARM_UP {
                measured_submitter_submit(&engine, &batch, &requests)?;
            } else {
                engine.submit(&batch, &requests)?;
            }
            turn.store(2 * group + 1, Ordering::Release);
            wait_for(2 * group + 2);
            finished &= if group >= WARM_UP { measured_submitter_look(&batch) } else { batch.overall().is_finished() };
        }
        if !finished {
            return Err("a batch did not end".into());
        }
        turned.join().map_err(|_| "the lane's thread panicked".into())
    })?;
    engine.close_with(lane)?;
    Ok((GROUP * GROUPS) as u64)
}

#[inline(never)]
fn measured_submitter_submit(engine: &Engine, batch: &Batch, requests: &[Request]) -> Result<(), Box<dyn Error>> {
    engine.submit(batch, requests)?;
    Ok(())
}

#[inline(never)]
fn measured_submitter_look(batch: &Batch) -> bool {
    batch.overall().is_finished()
}

#[inline(never)]
fn measured_lane_turn(lane: &mut Lane) {
    lane.turn();
}

/// What a poll of a task and of its batch takes, in a batch of so many tasks, all pending.
fn status(tasks: u32) -> Result<u64, Box<dyn Error>> {
    let (engine, lane) = Engine::open_caller_driven("model:size=1GiB,store=null", EngineConfig::default())?;
    let memory = engine.allocate_memory(4096)?;
    let target_id = engine.segments()[0].id;
    let request = Request { opcode: OpCode::Read, source: memory.address(), target_id, target_offset: 0, length: 4096 };
    let batch = engine.allocate_batch(tasks)?;
    engine.submit(&batch, &vec![request; tasks as usize])?;
    for look in 0..GROUPS as u32 {
        measured_status(&batch, look * 37 % tasks)?;
    }
    engine.close_with(lane)?;
    Ok(GROUPS as u64)
}

#[inline(never)]
fn measured_status(batch: &Batch, task: u32) -> Result<(), Box<dyn Error>> {
    std::hint::black_box((batch.status(task)?, batch.overall()));
    Ok(())
}

/// A turn in which the lane has nothing to do: the model takes its own.
#[inline(never)]
fn lane_pause(lane: &mut Lane) {
    lane.pause();
}

#[inline(never)]
fn measured_engine_complete(lane: &mut Lane, batch: &Batch) -> bool {
    engine_complete(lane, batch)
}

#[inline(always)]
fn engine_complete(lane: &mut Lane, batch: &Batch) -> bool {
    lane.turn();
    batch.overall().is_finished()
}
