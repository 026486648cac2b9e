//! Queues of every size, full and mixed.

use tentpeg_driver::queue::Extent;
use tentpeg_driver::spec::command::Sqe;
use tentpeg_driver::spec::status::StatusCode;
use tentpeg_engine::OpCode;

use super::bench::{fill, holds};
use super::{DeviceTest, Ending, Tier, Verdict, Wanted, ensure};

pub(super) fn tests() -> Vec<DeviceTest> {
    vec![
        DeviceTest::new("a queue of 2 entries", |tier| sizes(tier, Some(2))),
        DeviceTest::new("a queue of 3 entries", |tier| sizes(tier, Some(3))),
        DeviceTest::new("a queue of the most entries", |tier| sizes(tier, None)),
        DeviceTest::new("every slot with a list, reads and writes mixed", every_slot),
        DeviceTest::new("a command that is refused leaves the queue usable", refused),
    ]
}

/// Fills a queue of this size several times over, so that both rings go round.
fn sizes(tier: &dyn Tier, entries: Option<u32>) -> Verdict {
    let mut bench = tier.controller(Wanted::default())?;
    let entries = entries.unwrap_or(bench.controller.limits().max_queue_entries);
    let lba = bench.limits.lba_size();
    let mut pair = bench.pair(entries)?;
    let slots = pair.slots();
    ensure(slots as u32 == entries - 1, || format!("{entries} entries, {slots} slots"))?;
    let memory = bench.memory(slots as u64 * lba)?;
    let block = |slot: usize| {
        let iova = memory.iova_at(slot as u64 * lba).expect("the memory has a block for every slot");
        [Extent { iova, len: lba }]
    };
    let view = |slot: usize| memory.view().slice(slot * lba as usize, lba as usize);
    for round in 0..5 {
        let opcode = if round % 2 == 0 { OpCode::Write } else { OpCode::Read };
        for slot in 0..slots {
            match opcode {
                OpCode::Write => fill(view(slot), slot as u64 + round),
                OpCode::Read => view(slot).fill(0xEE),
            }
            bench.submit(&mut pair, opcode, slot as u64, &block(slot), slot as u32)?;
        }
        ensure(pair.free_slots() == 0, || format!("{} slots are free", pair.free_slots()))?;
        let mut ended = bench.complete(&mut pair, slots)?;
        ended.sort_by_key(|(token, _)| *token);
        let right = (0..).zip(&ended).all(|(slot, (token, status))| *token == slot && status.is_success());
        ensure(right, || format!("round {round}: {ended:?}"))?;
        if opcode == OpCode::Read {
            for slot in 0..slots {
                holds(view(slot), slot as u64 + round - 1)?;
            }
        }
    }
    bench.finish(pair)
}

/// All CIDs outstanding, each with a PRP list of its own; what was read is written in the next round.
fn every_slot(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.controller(Wanted { lba_size: Some(512), ..Wanted::default() })?;
    let (page, lba) = (bench.limits.page_size(), bench.limits.lba_size());
    // At an odd offset this spans pages enough for a list, whatever the page.
    let length = (8 * page).min(bench.limits.max_transfer());
    if length < 3 * page {
        return Err(Ending::Skipped(format!("a command of {length} bytes needs no list")));
    }
    let entries = bench.controller.limits().max_queue_entries.min(64);
    let mut pair = bench.pair(entries)?;
    let slots = pair.slots() as u64;
    let memory = bench.memory(slots * (length + page))?;
    let offset = |slot: u64| slot * (length + page) + slot * 4 % page;
    let view = |slot: u64| memory.view().slice(offset(slot) as usize, length as usize);
    let writes = |slot: u64, round: u64| (slot + round).is_multiple_of(2);
    for round in 0..4 {
        for slot in 0..slots {
            let opcode = if writes(slot, round) { OpCode::Write } else { OpCode::Read };
            match opcode {
                OpCode::Write => fill(view(slot), round * 1000 + slot),
                OpCode::Read => view(slot).fill(0xEE),
            }
            let iova = memory
                .iova_at(offset(slot))
                .ok_or_else(|| Ending::Failed("a slot's memory is outside the region".to_owned()))?;
            bench.submit(&mut pair, opcode, slot * (length / lba), &[Extent { iova, len: length }], slot as u32)?;
        }
        let ended = bench.complete(&mut pair, slots as usize)?;
        ensure(ended.iter().all(|(_, status)| status.is_success()), || format!("{ended:?}"))?;
        for slot in (0..slots).filter(|slot| round > 0 && !writes(*slot, round)) {
            holds(view(slot), (round - 1) * 1000 + slot)?;
        }
    }
    bench.finish(pair)
}

fn refused(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.controller(Wanted::default())?;
    let lba = bench.limits.lba_size();
    let mut pair = bench.pair(4)?;
    let memory = bench.memory(lba)?;
    let nothing = Sqe { opcode: 0x7f, ..Sqe::flush(bench.namespace.nsid) };
    bench.submit_plain(&mut pair, nothing, 1)?;
    let ended = bench.complete(&mut pair, 1)?;
    let expected = StatusCode::INVALID_COMMAND_OPCODE;
    ensure(ended[0].1.code() == expected, || format!("an opcode that no controller has ended with {}", ended[0].1))?;
    let view = memory.view().slice(0, lba as usize);
    fill(view, 3);
    let block = [Extent { iova: memory.iova(), len: lba }];
    bench.transfer(&mut pair, OpCode::Write, 9, &block)?;
    view.fill(0xEE);
    bench.transfer(&mut pair, OpCode::Read, 9, &block)?;
    holds(view, 3)?;
    bench.finish(pair)
}
