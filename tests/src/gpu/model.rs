//! The model that moves bytes to and from GPU memory: queue pairs, PRPs over IOVAs of GPU memory, a mover.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::dma::{Access, Region};
use tentpeg_driver::gpu::{CudaMover, Gpu, GpuMemory};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};
use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::{NvmOpcode, Sqe};

use super::{Check, Outcome, Rig, check, ensure, median};
use crate::device_tests::Ending;

/// Pages of a paged pool in bytes.
const PAGE: usize = 16 << 10;

/// A model with a mover, a driver on it, and GPU memory that it reaches.
struct Stack {
    // The controller goes before the model, and both before the memory.
    pair: QueuePair<u32>,
    controller: Controller,
    model: Model,
    region: Region<GpuMemory>,
    nsid: u32,
    lba_shift: u32,
    block: usize,
}

/// Commands of one kind over all of a stack's memory.
#[derive(Clone, Copy)]
struct Job {
    opcode: NvmOpcode,
    block: usize,
    /// Commands.
    count: usize,
    /// Of them in flight at once.
    depth: usize,
}

impl Stack {
    /// With as much GPU memory as the store has bytes, and commands of `block` bytes.
    fn new(gpu: &Arc<Gpu>, bytes: usize, block: usize, sharers: u32, store: StoreConfig) -> Result<Self, Ending> {
        let iommu = SoftwareIommu::new();
        let config = ModelConfig { size: bytes as u64, store, mqes: 1023, ..ModelConfig::default() };
        let mover = Box::new(CudaMover::new(gpu, sharers)?);
        let model = Model::with_mover(config, Drive::Threaded, &iommu, mover)?;
        let region = iommu.space().register_accelerator(GpuMemory::allocate(gpu, bytes)?, Access::all())?;
        let mut controller = Controller::enable(model.function(), ControllerConfig::default())?;
        let namespace = controller.namespaces()?.remove(0);
        let pair = controller.create_queue_pair(1024)?;
        let lba_shift = namespace.limits?.lba_shift();
        Ok(Self { pair, controller, model, region, nsid: namespace.nsid, lba_shift, block })
    }

    /// Where block `number` lies in GPU memory: one range, or pages that are not side by side.
    fn parts(&self, number: usize) -> Vec<(usize, usize)> {
        if self.block <= PAGE {
            return vec![(number * self.block, self.block)];
        }
        let (pages, all) = (self.block / PAGE, self.region.range().len() as usize / PAGE);
        // Pages of a block lie apart: its page i is one of the i-th part of the memory.
        (0..pages).map(|page| (page * (all / pages) + number) * PAGE).map(|offset| (offset, PAGE)).collect()
    }

    /// Block `number` of the device is read into, or written from, block `place` of the memory.
    fn submit(
        &mut self,
        opcode: NvmOpcode,
        number: usize,
        place: usize,
        extents: &mut Vec<Extent>,
    ) -> Result<(), Ending> {
        extents.clear();
        for (offset, len) in self.parts(place) {
            let iova = self.region.iova_at(offset as u64).ok_or_else(|| Ending::Failed("no such byte".to_owned()))?;
            extents.push(Extent { iova, len: len as u64 });
        }
        let slba = (number * self.block) as u64 >> self.lba_shift;
        let nlb = ZeroesBased::<u16>::from_count((self.block >> self.lba_shift) as u32);
        let nlb = nlb.ok_or_else(|| Ending::Failed("no such number of blocks".to_owned()))?;
        let sqe =
            if opcode == NvmOpcode::READ { Sqe::read(self.nsid, slba, nlb) } else { Sqe::write(self.nsid, slba, nlb) };
        self.pair.submit(sqe, extents, number as u32)?;
        Ok(())
    }

    /// Runs a job to its end; commands and places go round, each at its own step.
    fn run(&mut self, job: Job) -> Result<(), Ending> {
        let blocks = self.region.range().len() as usize / job.block;
        let (mut begun, mut ended, mut failed) = (0, 0, None);
        let (mut extents, mut since) = (Vec::new(), Instant::now());
        while ended < job.count {
            let room = job.depth.min(self.pair.slots()) - (begun - ended);
            let group = room.min(job.count - begun).min(32);
            for _ in 0..group {
                self.submit(job.opcode, begun % blocks, begun % blocks, &mut extents)?;
                begun += 1;
            }
            if group > 0 {
                self.pair.ring();
            }
            let polled = self.pair.poll(64, |completion| {
                if !completion.status.is_success() {
                    failed = Some(completion.status);
                }
            });
            ended += polled;
            if polled > 0 {
                since = Instant::now();
            } else if since.elapsed() > Duration::from_secs(20) {
                return Err(Ending::Failed(format!("nothing has ended for 20 seconds: {:?}", self.model.violations())));
            }
        }
        let error =
            failed.map(|status| format!("{status:?}: {:?} {:?}", self.model.store_error(), self.model.violations()));
        error.map_or(Ok(()), |error| Err(Ending::Failed(error)))
    }

    /// What the controller saw: commands, and bytes that it walked; an error unless it is `commands` of `block` bytes.
    fn seen(&self, commands: usize) -> Result<String, Ending> {
        let counters = self.model.counters();
        let (walked, asked) = (counters.read_bytes + counters.write_bytes, (commands * self.block) as u64);
        ensure(counters.io_sqes == commands as u64 && walked == asked, || {
            format!("{commands} commands of {asked} bytes, but {} fetched and {walked} walked", counters.io_sqes)
        })?;
        ensure(self.model.violations().is_empty(), || format!("{:?}", self.model.violations()))?;
        Ok(format!("{} SQEs, {} PRP entries, {walked} bytes walked", counters.io_sqes, counters.prp_list_entries))
    }

    fn shut_down(self) -> Result<(), Ending> {
        drop(self.pair);
        Ok(self.controller.shutdown()?)
    }
}

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for block in [4 << 10, 64 << 10, 1 << 20] {
        let name = format!("model, {} KiB: written, poisoned, read, compared on the GPU", block >> 10);
        checks.push(check(name, move |rig| round_trip(rig, block)));
    }
    checks.push(check("model: a mover that idles retires, and comes again", |rig| {
        let mut stack = Stack::new(&rig.gpu, 8 << 20, 4 << 10, 1, StoreConfig::Memory)?;
        for _ in 0..4 {
            stack.run(Job { opcode: NvmOpcode::WRITE, block: 4 << 10, count: 64, depth: 16 })?;
            thread::sleep(Duration::from_millis(10));
            // cuMemFree waits for all kernels: with one that stays it would never return.
            drop(rig.memory(1 << 20)?);
        }
        let seen = stack.seen(256)?;
        stack.shut_down()?;
        Ok(seen)
    }));
    checks.push(check("model: a controller disabled in flight, and its memory freed", |rig| {
        let mut stack = Stack::new(&rig.gpu, 64 << 20, 64 << 10, 1, StoreConfig::Memory)?;
        let mut extents = Vec::new();
        for number in 0..512 {
            stack.submit(NvmOpcode::READ, number, number, &mut extents)?;
        }
        stack.pair.ring();
        // Dropped as they are: the region's mapping goes while the turn may be in progress, and waits for it.
        drop(stack.region);
        let violations = stack.model.violations().len();
        drop(stack.pair);
        stack.controller.shutdown()?;
        Ok(format!("{violations} commands met an address that was gone"))
    }));
    checks
}

fn round_trip(rig: &mut Rig, block: usize) -> Outcome {
    let bytes = 256 << 20;
    let mut stack = Stack::new(&rig.gpu, bytes, block, 1, StoreConfig::Memory)?;
    let blocks = bytes / block;
    let of = |stack: &Stack, number: usize| -> Vec<_> {
        let parts = stack.parts(number).into_iter().enumerate();
        parts.map(|(index, part)| (part, (number * 1000 + index) as u64 + 1)).collect()
    };
    let all: Vec<_> = (0..blocks).flat_map(|number| of(&stack, number)).collect();
    rig.fill(stack.region.backing(), &all)?;
    stack.run(Job { opcode: NvmOpcode::WRITE, block, count: blocks, depth: 512 })?;
    // A negative control: what is poisoned is not taken for what was read.
    let poison: Vec<_> = all.iter().map(|(part, number)| (*part, number ^ 0xFFFF_0000)).collect();
    rig.fill(stack.region.backing(), &poison)?;
    let poisoned = rig.verify(stack.region.backing(), &all)?;
    ensure(poisoned.is_some_and(|(wrong, _)| wrong * 8 > bytes as u64 / 2), || {
        format!("poison went unseen: {poisoned:?}")
    })?;
    // Into other places than it came from.
    let mut extents = Vec::new();
    let place = |number: usize| (number + blocks / 2 + 1) % blocks;
    let (mut begun, mut ended) = (0, 0);
    while ended < blocks {
        while begun < blocks && begun - ended < 512 {
            stack.submit(NvmOpcode::READ, begun, place(begun), &mut extents)?;
            begun += 1;
        }
        stack.pair.ring();
        let mut failed = None;
        ended += stack.pair.poll(64, |completion| {
            if !completion.status.is_success() {
                failed = Some(completion.status);
            }
        });
        if let Some(status) = failed {
            return Err(Ending::Failed(format!("{status:?} {:?}", stack.model.violations())));
        }
    }
    let moved: Vec<_> = (0..blocks)
        .flat_map(|number| {
            let numbers = of(&stack, number).into_iter().map(|(_, number)| number);
            stack.parts(place(number)).into_iter().zip(numbers).collect::<Vec<_>>()
        })
        .collect();
    let wrong = rig.verify(stack.region.backing(), &moved)?;
    ensure(wrong.is_none(), || format!("words that differ, and the first part that has one: {wrong:?}"))?;
    let seen = stack.seen(2 * blocks)?;
    stack.shut_down()?;
    Ok(seen)
}

pub(super) fn measurements() -> Vec<Check> {
    let mut checks = Vec::new();
    for (block, lanes, depth) in [
        (4 << 10, 1, 256),
        (4 << 10, 1, 1000),
        (4 << 10, 4, 1000),
        (16 << 10, 1, 1000),
        (64 << 10, 1, 256),
        (64 << 10, 4, 256),
        (1 << 20, 1, 64),
    ] {
        for opcode in [NvmOpcode::READ, NvmOpcode::WRITE] {
            let what = if opcode == NvmOpcode::READ { "reads" } else { "writes" };
            let name = format!("model, {what}, {} KiB, {lanes} lanes, depth {depth}", block >> 10);
            checks.push(check(name, move |rig| measure(rig, (opcode, block), lanes, depth)));
        }
    }
    checks
}

fn measure(rig: &mut Rig, (opcode, block): (NvmOpcode, usize), lanes: usize, depth: usize) -> Outcome {
    let make = |_| Stack::new(&rig.gpu, 512 << 20, block, lanes as u32, StoreConfig::Memory);
    let mut stacks = (0..lanes).map(make).collect::<Result<Vec<_>, _>>()?;
    let count = ((8 << 30) / block).min(1_000_000);
    let job = Job { opcode, block, count, depth };
    let mut runs = 0;
    let speed = median(|| {
        runs += 1;
        let start = Instant::now();
        thread::scope(|scope| {
            let lanes: Vec<_> = stacks.iter_mut().map(|stack| scope.spawn(move || stack.run(job))).collect();
            lanes.into_iter().try_for_each(|lane| lane.join().expect("a lane does not panic"))
        })?;
        Ok((count * block * lanes) as f64 / start.elapsed().as_secs_f64())
    })?;
    let seen = stacks.iter().map(|stack| stack.seen(count * runs)).collect::<Result<Vec<_>, _>>()?;
    stacks.into_iter().try_for_each(Stack::shut_down)?;
    Ok(format!("{:6.2} GB/s {:7.3} M/s; each lane {}", speed / 1e9, speed / block as f64 / 1e6, seen[0]))
}
