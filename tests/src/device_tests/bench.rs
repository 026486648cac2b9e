//! A device under test: by its controller, or through an engine.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Controller, Namespace};
use tentpeg_driver::dma::{Access, DmaSpace, DmaView, HostMemory, Region};
use tentpeg_driver::queue::{Extent, Limits, QueuePair};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::spec::status::Status;
use tentpeg_engine::{
    Batch, Devices, Engine, EngineConfig, Lane, LaneMode, Memory, OpCode, Request, SegmentLayout, TransferState,
};

use super::vfio_user::ServerProcess;
use super::{Ending, Verdict, ensure};

/// Looks without an answer after which a test gives a device up. Each look gives the processor away.
const PATIENCE: usize = 100_000_000;

/// What a device has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// SQEs fetched from I/O queues.
    pub commands: u64,
    /// Bytes covered by the memory of Read and Write commands.
    pub bytes: u64,
    /// Things that no driver must ever do.
    pub violations: usize,
}

/// A device that can tell what it has seen.
pub trait Witness {
    /// What it has seen so far.
    fn seen(&self) -> Seen;
}

/// An enabled controller with its first namespace, and what a test has done to it.
pub struct Bench {
    /// The controller.
    pub controller: Controller,
    /// The namespace that may be overwritten.
    pub namespace: Namespace,
    /// What fits into a command there.
    pub limits: Limits,
    space: Arc<DmaSpace>,
    witness: Option<Box<dyn Witness>>,
    asked: Seen,
}

impl Bench {
    /// A bench over an enabled controller. `witness` keeps the device alive.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it has no namespace that can be served.
    pub fn new(mut controller: Controller, witness: Option<Box<dyn Witness>>) -> Result<Self, Ending> {
        let space = Arc::clone(controller.function().dma());
        let namespace = controller.namespaces()?.into_iter().next();
        let namespace = namespace.ok_or_else(|| Ending::Failed("there is no namespace".to_owned()))?;
        let limits = namespace.limits?;
        Ok(Self { controller, namespace, limits, space, witness, asked: Seen::default() })
    }

    /// Memory that the device reaches.
    ///
    /// # Errors
    /// [`Ending::Failed`] when there is none.
    pub fn memory(&self, bytes: u64) -> Result<Region<HostMemory>, Ending> {
        Ok(self.space.register(HostMemory::allocate(bytes as usize)?, Access::all())?)
    }

    /// A queue pair of this many entries.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it cannot be had.
    pub fn pair(&mut self, entries: u32) -> Result<QueuePair<u32>, Ending> {
        Ok(self.controller.create_queue_pair(entries)?)
    }

    /// Writes a command for whole blocks into the queue, and remembers what the device must see of it.
    ///
    /// # Errors
    /// [`Ending::Failed`] when the queue refuses it.
    pub fn submit(
        &mut self,
        pair: &mut QueuePair<u32>,
        opcode: OpCode,
        slba: u64,
        extents: &[Extent],
        token: u32,
    ) -> Verdict {
        let bytes: u64 = extents.iter().map(|extent| extent.len).sum();
        let nlb = ZeroesBased::<u16>::from_count((bytes >> self.limits.lba_shift()) as u32)
            .ok_or_else(|| Ending::Failed(format!("{bytes} bytes are not 1 to 65536 blocks")))?;
        let sqe = match opcode {
            OpCode::Read => Sqe::read(self.namespace.nsid, slba, nlb),
            OpCode::Write => Sqe::write(self.namespace.nsid, slba, nlb),
        };
        pair.submit(sqe, extents, token)?;
        self.asked.commands += 1;
        self.asked.bytes += bytes;
        Ok(())
    }

    /// Writes a command that moves no data.
    ///
    /// # Errors
    /// [`Ending::Failed`] when the queue refuses it.
    pub fn submit_plain(&mut self, pair: &mut QueuePair<u32>, sqe: Sqe, token: u32) -> Verdict {
        pair.submit(sqe, &[], token)?;
        self.asked.commands += 1;
        Ok(())
    }

    /// Rings, and waits for the ends of `count` commands: token and status of each, in the device's order.
    ///
    /// # Errors
    /// [`Ending::Failed`] when they do not come.
    pub fn complete(&self, pair: &mut QueuePair<u32>, count: usize) -> Result<Vec<(u32, Status)>, Ending> {
        let mut ended = Vec::new();
        pair.ring();
        for _ in 0..PATIENCE {
            pair.poll(count - ended.len(), |completion| ended.push((completion.token, completion.status)));
            if ended.len() == count {
                ensure(pair.anomalies().total() == 0, || format!("unsound completions: {:?}", pair.anomalies()))?;
                return Ok(ended);
            }
            self.controller.function().pause();
        }
        Err(Ending::Failed(format!("{} of {count} commands never end", count - ended.len())))
    }

    /// One command, to its end; anything but success is a failure.
    ///
    /// # Errors
    /// [`Ending::Failed`].
    pub fn transfer(&mut self, pair: &mut QueuePair<u32>, opcode: OpCode, slba: u64, extents: &[Extent]) -> Verdict {
        self.submit(pair, opcode, slba, extents, 0)?;
        let ended = self.complete(pair, 1)?;
        ensure(ended[0].1.is_success(), || format!("{opcode:?} at block {slba} ended with {}", ended[0].1))
    }

    /// Disables the controller and enables it again, in the same place.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it does not come back.
    pub fn enable_again(self) -> Result<Self, Ending> {
        let Self { controller, witness, asked, .. } = self;
        let function = Arc::clone(controller.function());
        controller.shutdown()?;
        let controller = Controller::enable(function, tentpeg_driver::controller::ControllerConfig::default())?;
        Ok(Self { asked, ..Self::new(controller, witness)? })
    }

    /// Deletes the pair, shuts the controller down, and compares both sides' counts.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it does not stop, or has seen something else than was asked for.
    pub fn finish(mut self, mut pair: QueuePair<u32>) -> Verdict {
        self.controller.delete_queue_pair(&mut pair)?;
        self.controller.shutdown()?;
        let seen = self.witness.map(|witness| witness.seen());
        ensure(seen.is_none_or(|seen| seen == self.asked), || {
            format!("the device has seen {seen:?}, but was asked for {:?}", self.asked)
        })
    }
}

/// An engine on a device, with its lane where the test drives that.
pub struct EngineBench {
    /// The engine.
    pub engine: Engine,
    /// The lane, unless it has a thread.
    pub lane: Option<Lane>,
    /// What the device is in, where that is a process of its own. After the engine, which shuts the device down.
    pub process: Option<ServerProcess>,
}

impl EngineBench {
    /// An engine on all of a function's namespace, with a lane in a thread of its own.
    ///
    /// # Errors
    /// [`Ending::Failed`] when it cannot be had.
    pub fn on_function(
        function: Arc<dyn Function>,
        config: EngineConfig,
        process: Option<ServerProcess>,
    ) -> Result<Self, Ending> {
        let mut devices = Devices::new(LaneMode::Thread, config);
        let device = devices.add(function, true)?;
        let limits = devices.as_slice()[device].info().limits;
        let blocks = limits.capacity() >> limits.lba_shift();
        let (engine, lane) = devices.start(vec![SegmentLayout::whole("whole", device, blocks)])?;
        Ok(Self { engine, lane, process })
    }

    /// A request on the engine's first segment.
    pub fn request(&self, opcode: OpCode, memory: &Memory, at: u64, target_offset: u64, length: u64) -> Request {
        let target_id = self.engine.segments()[0].id;
        Request { opcode, source: memory.address() + at, target_id, target_offset, length }
    }

    /// Submits requests and waits until all have ended.
    ///
    /// # Errors
    /// [`Ending::Failed`] when they do not end.
    pub fn run(&mut self, requests: &[Request]) -> Result<Batch, Ending> {
        let batch = self.engine.allocate_batch(requests.len() as u32)?;
        self.engine.submit(&batch, requests)?;
        self.wait(&batch)?;
        Ok(batch)
    }

    /// Waits until all tasks of a batch have ended.
    ///
    /// # Errors
    /// [`Ending::Failed`] when they do not.
    pub fn wait(&mut self, batch: &Batch) -> Verdict {
        match self.lane {
            None => {
                batch.wait(Duration::from_secs(600))?;
                Ok(())
            }
            Some(_) => self.turn_until(|| batch.overall().is_finished()),
        }
    }

    /// Unregisters memory.
    pub fn unregister(&mut self, memory: Memory) {
        match &mut self.lane {
            Some(lane) => self.engine.unregister_memory_with(memory, lane),
            None => self.engine.unregister_memory(memory),
        }
    }

    /// Turns the lane, or looks on as its thread does, until `done`.
    ///
    /// # Errors
    /// [`Ending::Failed`] when that never comes.
    pub fn turn_until(&mut self, mut done: impl FnMut() -> bool) -> Verdict {
        let ended = (0..PATIENCE).any(|_| {
            match &mut self.lane {
                Some(lane) => {
                    lane.turn();
                }
                None => std::thread::yield_now(),
            }
            done()
        });
        ensure(ended, || format!("nothing more happens after {PATIENCE} looks"))
    }

    /// As [`run`](Self::run); a task that is not COMPLETED in its full length is a failure.
    ///
    /// # Errors
    /// [`Ending::Failed`].
    pub fn transfer(&mut self, requests: &[Request]) -> Verdict {
        let batch = self.run(requests)?;
        for (task, request) in (0..).zip(requests) {
            let status = batch.status(task)?;
            let complete = status.state == TransferState::Completed && status.transferred_bytes == request.length;
            ensure(complete, || {
                format!("{request:?} is {status:?}: {:?}, {:?}", batch.refusal(task), batch.nvme_status(task))
            })?;
        }
        Ok(())
    }

    /// Closes the engine after a comparison of both sides' counts.
    ///
    /// # Errors
    /// [`Ending::Failed`] when they differ, or the device has something to complain of.
    pub fn finish(self) -> Verdict {
        let Self { engine, lane, process } = self;
        if let Some(model) = engine.model_counters() {
            // A lane with a thread publishes at the end of its turn, which may be after the batch's.
            let published = (0..PATIENCE).any(|_| {
                std::thread::yield_now();
                engine.counters().completions == model.io_cqes
            });
            let ours = engine.counters();
            let equal = published
                && (ours.commands, ours.bytes_read, ours.bytes_written)
                    == (model.io_sqes, model.read_bytes, model.write_bytes);
            ensure(equal, || format!("the engine counts {ours:?}, the model {model:?}"))?;
        }
        let violations = engine.violations();
        ensure(violations.is_empty(), || format!("violations: {violations:?}"))?;
        match lane {
            Some(lane) => engine.close_with(lane)?,
            None => engine.close()?,
        }
        let seen = process.map_or(0, |process| process.seen().violations);
        ensure(seen == 0, || format!("the device has seen {seen} violations"))
    }
}

/// Fills memory with words that tell `seed` and their place apart.
pub(crate) fn fill(view: DmaView<'_>, seed: u64) {
    for (at, offset) in (0..).zip((0..view.len()).step_by(4)) {
        view.write(offset, &word(seed, at).to_le_bytes());
    }
}

/// What [`fill`] puts into memory of `len` bytes.
pub(crate) fn bytes_of(seed: u64, len: usize) -> Vec<u8> {
    (0..len.div_ceil(4) as u32).flat_map(|at| word(seed, at).to_le_bytes()).take(len).collect()
}

/// Whether memory holds what [`fill`] puts there.
pub(crate) fn holds(view: DmaView<'_>, seed: u64) -> Verdict {
    let mut found = vec![0; view.len()];
    view.read(0, &mut found);
    bytes_hold(&found, seed)
}

/// Whether bytes are those that [`fill`] puts into memory.
pub(crate) fn bytes_hold(found: &[u8], seed: u64) -> Verdict {
    for (at, bytes) in (0..).zip(found.chunks_exact(4)) {
        let expected = word(seed, at).to_le_bytes();
        ensure(bytes == expected, || {
            format!("data {seed:#x}: bytes {bytes:x?} at {}, {expected:x?} would be right", u64::from(at) * 4)
        })?;
    }
    Ok(())
}

fn word(seed: u64, at: u32) -> u32 {
    ((seed << 24 ^ u64::from(at)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
