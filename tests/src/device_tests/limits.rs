//! Limits at their edges: CAP.MQES, MDTS, CAP.MPSMIN and CAP.DSTRD.

use tentpeg_driver::queue::Extent;
use tentpeg_engine::OpCode;

use super::bench::{Bench, fill, holds};
use super::{DeviceTest, Ending, Tier, Verdict, Wanted, ensure};

/// What a command carries at the most where the device would take more.
const OWN_LIMIT: u64 = 8 << 20;

pub(super) fn tests() -> Vec<DeviceTest> {
    let mut tests = Vec::new();
    for mqes in [1, 2, 127, 0xffff] {
        tests.push(DeviceTest::new(format!("MQES {mqes}"), move |tier| queue_size(tier, mqes)));
    }
    for mdts in [0, 1, 20, 63, 255] {
        tests.push(DeviceTest::new(format!("MDTS {mdts}"), move |tier| transfer_size(tier, mdts)));
    }
    for mpsmin in [0, 1, 4] {
        for dstrd in [0, 1, 10] {
            tests.push(DeviceTest::new(format!("MPSMIN {mpsmin} with DSTRD {dstrd}"), move |tier| {
                pages_and_strides(tier, mpsmin, dstrd)
            }));
        }
    }
    tests
}

/// Writes and reads back `length` bytes at `offset` into a page, by one command each way.
fn there_and_back(mut bench: Bench, entries: u32, length: u64, offset: u64) -> Verdict {
    let mut pair = bench.pair(entries)?;
    let memory = bench.memory(length + offset)?;
    let iova = memory.iova_at(offset).ok_or_else(|| Ending::Failed("no byte of memory".to_owned()))?;
    let view = memory.view().slice(offset as usize, length as usize);
    let extent = [Extent { iova, len: length }];
    fill(view, length);
    bench.transfer(&mut pair, OpCode::Write, 3, &extent)?;
    memory.view().fill(0xEE);
    bench.transfer(&mut pair, OpCode::Read, 3, &extent)?;
    holds(view, length)?;
    bench.finish(pair)
}

fn queue_size(tier: &dyn Tier, mqes: u16) -> Verdict {
    let mut bench = tier.controller(Wanted { mqes: Some(mqes), ..Wanted::default() })?;
    let most = bench.controller.limits().max_queue_entries;
    // One slot fewer than entries, and at most as many slots as a CID can name beside its generation.
    let expected = (u32::from(mqes) + 1).min(4097);
    ensure(most == expected, || format!("{most} entries at the most, {expected} would be right"))?;
    let refused = bench.pair(most + 1).err().map(|ending| ending.to_string()).unwrap_or_default();
    let text = format!("2 to {most} are possible");
    ensure(refused.contains(&text), || format!("one entry too many: {refused:?}"))?;
    let lba = bench.limits.lba_size();
    there_and_back(bench, most, lba, 0)
}

fn transfer_size(tier: &dyn Tier, mdts: u8) -> Verdict {
    let bench = tier.controller(Wanted { mdts: Some(mdts), ..Wanted::default() })?;
    let page = u128::from(bench.controller.cap().min_page_size());
    // In 128 bits only MDTS 255 has no room.
    let device = if mdts == 0 { u128::MAX } else { page.checked_shl(mdts.into()).unwrap_or(u128::MAX) };
    let device = if mdts >= 100 { u128::MAX } else { device };
    let expected = device.min(OWN_LIMIT.into()) as u64;
    let max = bench.limits.max_transfer();
    ensure(max == expected, || format!("a command carries {max} bytes, {expected} would be right"))?;
    // From inside a page, so that the list is as long as it can be.
    there_and_back(bench, 2, max, 4092)
}

fn pages_and_strides(tier: &dyn Tier, mpsmin: u8, dstrd: u8) -> Verdict {
    let wanted = Wanted { mpsmin: Some(mpsmin), dstrd: Some(dstrd), mdts: Some(5), ..Wanted::default() };
    let bench = tier.controller(wanted)?;
    let page = bench.controller.limits().page_size;
    ensure(page == 4096 << mpsmin, || format!("pages of {page} bytes"))?;
    ensure(bench.controller.cap().doorbell_stride() == 4 << dstrd, || format!("{:?}", bench.controller.cap()))?;
    let max = bench.limits.max_transfer();
    ensure(max == page << 5, || format!("MDTS 5 are {max} bytes, though it counts pages of MPSMIN"))?;
    there_and_back(bench, 8, max, page - 4)
}
