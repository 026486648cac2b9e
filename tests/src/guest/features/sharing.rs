//! Queue pairs, doorbells in memory, and controllers that share a namespace or have each other's memory as a target.

use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Attended, Controller, ControllerConfig};
use tentpeg_driver::dma::{Access, Backing, DmaView, HostMemory, Region};
use tentpeg_driver::queue::Extent;
use tentpeg_driver::vfio::VfioFunction;
use tentpeg_engine::OpCode;

use super::super::tier::{bench_of, bench_on, open_function, open_two};
use super::Special;
use crate::device_tests::bench::{fill, holds};
use crate::device_tests::{Bench, Ending, Verdict, ensure};

/// Memory for one block.
struct Block {
    memory: Region<HostMemory>,
    extent: [Extent; 1],
}

impl Block {
    fn new(bench: &Bench) -> Result<Self, Ending> {
        let memory = bench.memory(bench.limits.lba_size())?;
        let extent = [Extent { iova: memory.iova(), len: bench.limits.lba_size() }];
        Ok(Self { memory, extent })
    }

    fn view(&self) -> DmaView<'_> {
        self.memory.view().slice(0, self.extent[0].len as usize)
    }
}

pub(super) fn single_pair(special: &Special) -> Verdict {
    let mut bench = special.open(special.buffer)?;
    ensure(bench.controller.queue_pairs() == 1, || format!("{} queue pairs", bench.controller.queue_pairs()))?;
    let mut pair = bench.pair(8)?;
    let another = bench.pair(8).err();
    ensure(another.is_some(), || "a second queue pair was made".to_owned())?;
    let block = Block::new(&bench)?;
    fill(block.view(), 1);
    bench.transfer(&mut pair, OpCode::Write, 0, &block.extent)?;
    bench.finish(pair)
}

pub(super) fn all_pairs(special: &Special) -> Verdict {
    const PAIRS: u16 = 64;
    let config = ControllerConfig { queue_pairs: PAIRS, ..ControllerConfig::default() };
    let mut bench = Bench::new(special.enable(special.twins[0], config)?, None)?;
    ensure(bench.controller.queue_pairs() == PAIRS, || format!("{} queue pairs", bench.controller.queue_pairs()))?;
    let block = Block::new(&bench)?;
    let mut pairs = (0..PAIRS).map(|_| bench.pair(4)).collect::<Result<Vec<_>, _>>()?;
    // What one of them has written another reads.
    for (index, pair) in (0..).zip(&mut pairs) {
        fill(block.view(), index);
        bench.transfer(pair, OpCode::Write, index, &block.extent)?;
    }
    for index in 0..pairs.len() {
        block.view().fill(0xEE);
        let other = (index + 1) % pairs.len();
        bench.transfer(&mut pairs[other], OpCode::Read, index as u64, &block.extent)?;
        holds(block.view(), index as u64)?;
    }
    for mut pair in pairs.drain(1..) {
        bench.controller.delete_queue_pair(&mut pair)?;
    }
    bench.finish(pairs.remove(0))
}

pub(super) fn shadow_doorbells(special: &Special) -> Verdict {
    let config = ControllerConfig { shadow_doorbells: true, ..ControllerConfig::default() };
    let mut bench = Bench::new(special.enable(special.twins[0], config)?, None)?;
    ensure(bench.controller.has_shadow_doorbells(), || "it has none".to_owned())?;
    let mut pairs = [bench.pair(4)?, bench.pair(64)?];
    let block = Block::new(&bench)?;
    for round in 0..500u64 {
        let pair = &mut pairs[(round % 2) as usize];
        fill(block.view(), round);
        bench.transfer(pair, OpCode::Write, round, &block.extent)?;
        block.view().fill(0xEE);
        bench.transfer(pair, OpCode::Read, round, &block.extent)?;
        holds(block.view(), round)?;
    }
    let [mut first, second] = pairs;
    bench.controller.delete_queue_pair(&mut first)?;
    bench.finish(second)
}

/// What one controller has written the other reads, and both know that it is the same namespace.
pub(super) fn twins(special: &Special) -> Verdict {
    let [first, second] = special.twins;
    let (mut first, mut second) = (special.open(first)?, special.open(second)?);
    let ids = [&first, &second].map(|bench| bench.controller.identify().cntlid);
    ensure(ids[0] != ids[1], || format!("controllers {ids:?} of a subsystem"))?;
    let identities = [&mut first, &mut second].map(|bench| bench.controller.namespace_identity(&bench.namespace));
    let [identity, other] = identities;
    let (identity, other) = (identity?, other?);
    ensure(identity == other && identity.uuid.is_some(), || format!("{identity:?} and {other:?}"))?;
    let (mut writes, mut reads) = (first.pair(8)?, second.pair(8)?);
    let (from, to) = (Block::new(&first)?, Block::new(&second)?);
    fill(from.view(), 7);
    first.transfer(&mut writes, OpCode::Write, 9, &from.extent)?;
    second.transfer(&mut reads, OpCode::Read, 9, &to.extent)?;
    holds(to.view(), 7)?;
    first.finish(writes)?;
    second.finish(reads)
}

/// A controller moves blocks from and into the Controller Memory Buffer of another.
pub(super) fn buffer_of_another(special: &Special) -> Verdict {
    let [controller, owner] = open_two(&special.sysfs, [special.twins[0], special.buffer], special.way)?;
    let owner = Arc::new(VfioFunction::new(Arc::new(owner))?);
    let mut other = Controller::enable(Arc::clone(&owner) as Arc<dyn Function>, ControllerConfig::default())?;
    let buffer = other.memory_buffer()?.ok_or_else(|| Ending::Failed("it has no buffer".to_owned()))?;
    ensure(buffer.size == 16 << 20 && buffer.read_data && buffer.write_data, || format!("{buffer:?}"))?;
    let memory = owner.device().bar(buffer.bar.into())?;
    ensure(memory.len() as u64 >= buffer.offset + buffer.size, || format!("{buffer:?} in {} bytes", memory.len()))?;
    let memory = owner.device().dma().register(memory, Access::all())?;
    let mut bench = bench_on(controller)?;
    let mut pair = bench.pair(8)?;
    let len = bench.limits.max_transfer();
    let iova = memory.iova_at(buffer.offset).ok_or_else(|| Ending::Failed("no such byte".to_owned()))?;
    let extent = [Extent { iova, len }];
    let view = memory.view().slice(buffer.offset as usize, len as usize);
    fill(view, 1);
    bench.transfer(&mut pair, OpCode::Write, 0, &extent)?;
    view.fill(0xEE);
    bench.transfer(&mut pair, OpCode::Read, 0, &extent)?;
    holds(view, 1)?;
    bench.finish(pair)?;
    memory.release();
    Ok(other.shutdown()?)
}

/// A controller moves blocks from and into its own Controller Memory Buffer, before and after it was recovered.
pub(super) fn own_buffer(special: &Special) -> Verdict {
    let function = open_function(&special.sysfs, special.buffer, special.way)?;
    let device = Arc::clone(function.device());
    let mut bench = bench_of(function)?;
    let buffer = bench.controller.memory_buffer()?.ok_or_else(|| Ending::Failed("it has no buffer".to_owned()))?;
    let iovas = bench.controller.open_memory_buffer()?;
    let memory = device.bar(buffer.bar.into())?;
    let len = bench.limits.max_transfer();
    let iova = iovas.start();
    let extent = [Extent { iova, len }];
    let view = memory.view().slice(buffer.offset as usize, len as usize);
    let mut pair = bench.pair(8)?;
    for round in 1..3 {
        fill(view, round);
        bench.transfer(&mut pair, OpCode::Write, 0, &extent)?;
        view.fill(0xEE);
        bench.transfer(&mut pair, OpCode::Read, 0, &extent)?;
        holds(view, round)?;
        let attended = bench.controller.recover(&mut [&mut pair], &mut |_| {}, "to see what is left of it".to_owned());
        ensure(matches!(attended, Attended::Recovered { .. }), || format!("{attended:?}"))?;
    }
    bench.finish(pair)
}
