//! Commands beside plain reads and writes.

use tentpeg_driver::controller::Event;
use tentpeg_driver::queue::{Extent, IoCommand, PointerKind, QueuePair, RangeList};
use tentpeg_driver::spec::command::{DatasetManagementRange, TemperatureThreshold, ThresholdType};
use tentpeg_driver::spec::events::AsynchronousEventConfiguration;
use tentpeg_driver::spec::log::CriticalWarning;
use tentpeg_driver::spec::status::{Status, StatusCode};
use tentpeg_engine::OpCode;

use super::Special;
use crate::device_tests::bench::{bytes_of, fill, holds};
use crate::device_tests::{Bench, Ending, Verdict, ensure};

/// Looks for an event after which none is expected any more.
const PATIENCE: usize = 100_000;

/// Pieces that begin and end inside pages go by SGLs, in both directions.
pub(super) fn without_prps(special: &Special) -> Verdict {
    let mut bench = special.open(special.buffer)?;
    let mut pair = bench.pair(8)?;
    let lba = bench.limits.lba_size() as usize;
    let memory = bench.memory(8 * lba as u64)?;
    let piece = lba / 2;
    let at = |index: usize| index * (lba + 100);
    let mut extents = Vec::new();
    for index in 0..6 {
        let iova = memory.iova_at(at(index) as u64).ok_or_else(|| Ending::Failed("no such byte".to_owned()))?;
        extents.push(Extent { iova, len: piece as u64 });
    }
    let kind = bench.controller.limits().pointer(&extents)?;
    ensure(kind == PointerKind::Sgl, || format!("such memory goes by {kind:?}"))?;
    let view = memory.view();
    (0..6).for_each(|index| fill(view.slice(at(index), piece), index as u64));
    bench.transfer(&mut pair, OpCode::Write, 4, &extents)?;
    view.fill(0xEE);
    bench.transfer(&mut pair, OpCode::Read, 4, &extents)?;
    for index in 0..6 {
        holds(view.slice(at(index), piece), index as u64)?;
        let mut between = vec![0; at(index + 1) - at(index) - piece];
        view.read(at(index) + piece, &mut between);
        ensure(between.iter().all(|byte| *byte == 0xEE), || format!("bytes behind piece {index} were written"))?;
    }
    bench.finish(pair)
}

/// One command, to its end.
fn status_of(bench: &Bench, pair: &mut QueuePair<u32>, command: &IoCommand<'_>) -> Result<Status, Ending> {
    pair.submit_io(bench.namespace.nsid, &bench.limits, command, 0)?;
    Ok(bench.complete(pair, 1)?[0].1)
}

fn succeeds(bench: &Bench, pair: &mut QueuePair<u32>, command: &IoCommand<'_>) -> Verdict {
    let status = status_of(bench, pair, command)?;
    ensure(status.is_success(), || format!("{command:?} ended with {status}"))
}

pub(super) fn of_blocks(special: &Special) -> Verdict {
    const BLOCKS: u32 = 4;
    let mut bench = special.open(special.buffer)?;
    let mut pair = bench.pair(8)?;
    let len = u64::from(BLOCKS) * bench.limits.lba_size();
    let memory = bench.memory(len)?;
    let view = memory.view().slice(0, len as usize);
    let data = [Extent { iova: memory.iova(), len }];
    fill(view, 1);
    succeeds(&bench, &mut pair, &IoCommand::write(10, BLOCKS, &data).with_fua())?;
    succeeds(&bench, &mut pair, &IoCommand::compare(10, BLOCKS, &data))?;
    view.write(len as usize - 1, &[0]);
    let status = status_of(&bench, &mut pair, &IoCommand::compare(10, BLOCKS, &data))?;
    ensure(status.code() == StatusCode::COMPARE_FAILURE, || format!("other data compares with {status}"))?;
    let list = bench.memory(4096)?;
    let range = DatasetManagementRange { cattr: 0, lengthlb: BLOCKS, slba: 10 };
    let ranges = RangeList::write(&bench.limits, &[range], &list, 0)?;
    succeeds(&bench, &mut pair, &IoCommand::deallocate(&ranges))?;
    succeeds(&bench, &mut pair, &IoCommand::read(10, BLOCKS, &data))?;
    // A hint: the blocks may be as they were.
    let mut found = vec![0; len as usize];
    view.read(0, &mut found);
    let (old, zero) = (bytes_of(1, len as usize), found.iter().all(|byte| *byte == 0));
    ensure(found == old || zero, || "deallocated blocks read as neither zeroes nor what was there".to_owned())?;
    fill(view, 2);
    succeeds(&bench, &mut pair, &IoCommand::write(10, BLOCKS, &data))?;
    succeeds(&bench, &mut pair, &IoCommand::write_zeroes(11, BLOCKS - 1, false))?;
    succeeds(&bench, &mut pair, &IoCommand::flush())?;
    succeeds(&bench, &mut pair, &IoCommand::read(10, BLOCKS, &data))?;
    view.read(0, &mut found);
    let (first, rest) = found.split_at(bench.limits.lba_size() as usize);
    ensure(first == &bytes_of(2, len as usize)[..first.len()], || "the block before was changed".to_owned())?;
    ensure(rest.iter().all(|byte| *byte == 0), || "blocks written with zeroes do not read so".to_owned())?;
    bench.finish(pair)
}

/// A threshold below the temperature is an event.
pub(super) fn events(special: &Special) -> Verdict {
    let mut bench = special.open(special.formats)?;
    let controller = &mut bench.controller;
    ensure(controller.poll_events(|_| ())? == 0, || "an event without a reason".to_owned())?;
    let wanted = AsynchronousEventConfiguration::from_bits(0).with_critical_warnings(CriticalWarning::TEMPERATURE);
    controller.set_event_configuration(wanted)?;
    let over = TemperatureThreshold::from_bits(0).with_thsel(ThresholdType::OVER);
    let before = controller.temperature_threshold(over)?;
    let kelvin = controller.smart_log()?.composite_temperature.get();
    controller.set_temperature_threshold(over.with_tmpth(kelvin - 1))?;
    let mut health = 0;
    for _ in 0..PATIENCE {
        controller.poll_events(|event| health += usize::from(matches!(event, Event::Health { .. })))?;
        if health > 0 {
            break;
        }
        controller.function().pause();
    }
    controller.set_temperature_threshold(over.with_tmpth(before))?;
    ensure(health == 1, || format!("{health} events of the temperature"))?;
    Ok(bench.controller.shutdown()?)
}

pub(super) fn administration(special: &Special) -> Verdict {
    let mut bench = special.open(special.formats)?;
    let controller = &mut bench.controller;
    for enabled in [false, true] {
        controller.set_volatile_write_cache(enabled)?;
        let is = controller.volatile_write_cache()?;
        ensure(is == enabled, || format!("the write cache was set to {enabled} and is {is}"))?;
    }
    let queues = controller.number_of_queues()?;
    ensure(queues.nsq().count() >= controller.queue_pairs().into(), || format!("{queues:?}"))?;
    controller.error_log(1)?;
    controller.firmware_slot_log()?;
    controller.commands_supported_and_effects()?;
    // There is no such command.
    let aborted = controller.abort(0, 0xffff)?;
    ensure(!aborted, || "a command that never was is said to be aborted".to_owned())?;
    Ok(bench.controller.shutdown()?)
}
