//! What a controller says of itself.

use tentpeg_driver::queue::Extent;
use tentpeg_engine::OpCode;

use super::{DeviceTest, Tier, Verdict, Wanted, ensure};

pub(super) fn tests() -> Vec<DeviceTest> {
    vec![
        DeviceTest::new("Identify is sane", identify_is_sane),
        DeviceTest::new("SMART counts what is done", smart_counts),
        DeviceTest::new("a controller that is enabled again keeps its data", enabled_again),
    ]
}

fn identify_is_sane(tier: &dyn Tier) -> Verdict {
    let bench = tier.controller(Wanted::default())?;
    let controller = &bench.controller;
    let identify = controller.identify();
    for (name, text) in [("SN", identify.serial_number()), ("MN", identify.model_number())] {
        ensure(!text.is_empty() && text.chars().all(|c| matches!(c, ' '..='~')), || format!("{name} is {text:?}"))?;
    }
    // Required and maximum sizes: 2^6 bytes of an SQE, 2^4 of a CQE.
    ensure(identify.sqes & 0xf == 6, || format!("SQES is {:#x}", identify.sqes))?;
    ensure(identify.cqes & 0xf == 4, || format!("CQES is {:#x}", identify.cqes))?;
    ensure(identify.nn >= 1, || "NN is 0".to_owned())?;
    ensure(controller.queue_pairs() >= 1, || "no I/O queue pair was granted".to_owned())?;
    let cap = controller.cap();
    ensure(cap.min_page_size() <= cap.max_page_size(), || format!("{cap:?}"))?;
    let (namespace, limits) = (&bench.namespace, bench.limits);
    ensure(namespace.nsid >= 1 && namespace.nsid <= identify.nn, || format!("NSID is {}", namespace.nsid))?;
    let identify = &namespace.identify;
    ensure(identify.nsze >= 1, || "NSZE is 0".to_owned())?;
    let (nsze, ncap, nuse) = (identify.nsze, identify.ncap, identify.nuse);
    ensure(nuse <= ncap && ncap <= nsze, || format!("NSZE {nsze}, NCAP {ncap}, NUSE {nuse}"))?;
    ensure(limits.max_transfer() >= limits.lba_size(), || format!("{limits:?}"))?;
    Ok(bench.controller.shutdown()?)
}

fn smart_counts(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.controller(Wanted::default())?;
    let mut pair = bench.pair(2)?;
    let memory = bench.memory(bench.limits.lba_size())?;
    let before = bench.controller.smart_log()?;
    ensure(before.available_spare <= 100, || format!("{}% of spare", before.available_spare))?;
    let sane = before.celsius().is_none_or(|celsius| (-40..=125).contains(&celsius));
    ensure(sane, || format!("{:?} degrees Celsius", before.celsius()))?;
    let block = [Extent { iova: memory.iova(), len: bench.limits.lba_size() }];
    for _ in 0..10 {
        bench.transfer(&mut pair, OpCode::Read, 0, &block)?;
    }
    let after = bench.controller.smart_log()?;
    // A drive may count late, but never backwards.
    let reads = [&before, &after].map(|log| u128::from(log.host_read_commands));
    ensure(reads[0] <= reads[1], || format!("Host Read Commands went from {} to {}", reads[0], reads[1]))?;
    bench.finish(pair)
}

fn enabled_again(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.controller(Wanted::default())?;
    let lba = bench.limits.lba_size();
    let mut pair = bench.pair(8)?;
    let memory = bench.memory(lba)?;
    let block = [Extent { iova: memory.iova(), len: lba }];
    let view = memory.view().slice(0, lba as usize);
    super::bench::fill(view, 77);
    bench.transfer(&mut pair, OpCode::Write, 5, &block)?;
    bench.controller.delete_queue_pair(&mut pair)?;
    let mut bench = bench.enable_again()?;
    let mut pair = bench.pair(8)?;
    view.fill(0xEE);
    bench.transfer(&mut pair, OpCode::Read, 5, &block)?;
    super::bench::holds(view, 77)?;
    bench.finish(pair)
}
