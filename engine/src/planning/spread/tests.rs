//! That the parts of a spread task's shares are the task, no more and no less.

use proptest::prelude::*;
use tentpeg_driver::queue::{ControllerLimits, Limits};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::identify::{IdentifyController, IdentifyNamespace, LbaFormat, Oncs};
use tentpeg_driver::spec::registers::Cap;

use super::*;
use crate::lanes::LaneSet;
use crate::segment::{BlockExtent, MemberLayout, SegmentLayout};
use crate::task::Head;

const BLOCK: u64 = 512;
/// Where the memory of tasks begins, on a page.
const MEMORY: u64 = 1 << 32;

fn limits(mdts: u8) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze: 1 << 20, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads: 9, rp: 0 };
    let controller = IdentifyController { mdts, oncs: Oncs::WRITE_ZEROES, ..IdentifyController::default() };
    ControllerLimits::identified(cap, 4096, &controller, None).unwrap().namespace(&namespace).unwrap()
}

/// Devices 0 to `members` - 1, the extents of each 24 blocks with a gap behind them; two that touch are one range.
fn map(members: usize, extents: u64, chunk: u64, touching: bool) -> SegmentMap {
    let stride = if touching { 24 } else { 30 };
    let layout = SegmentLayout {
        members: (0..members)
            .map(|device| MemberLayout {
                device,
                extents: (0..extents).map(|place| BlockExtent::new(100 + place * stride, 24).unwrap()).collect(),
            })
            .collect(),
        chunk: chunk * BLOCK,
        ..SegmentLayout::whole("test", 0, 0)
    };
    SegmentMap::new(&layout, &vec![limits(5); members]).unwrap()
}

fn task(operation: Operation, offset: u64, length: u64, memory: u64) -> Spread {
    let head = Head::spread(operation, Durability::None, 0);
    Spread { head, lanes: LaneSet::first(64), offset, memory, length }
}

fn means(zeroes: Zeroes) -> Means {
    Means { zeroes, deallocation: 10, staging: 4 * BLOCK }
}

#[test]
fn a_stripe_read_whole_is_one_command_a_device() {
    // Chunks of a page each: scattered in memory, contiguous on each device.
    let map = map(3, 1, 8, false);
    let limits = limits(5);
    let task = task(Operation::Read, 0, map.blocks() * BLOCK, MEMORY);
    for lane in 0..3 {
        let ground = Ground { lane, nsid: 1, limits, volatile: true };
        let means = means(Zeroes::Command { most: 7, deallocate: true });
        let mut extents = Vec::new();
        let part = next_part(&task, 0, &map, &ground, &means, &mut extents).unwrap();
        assert_eq!((part.slba, part.blocks, extents.len()), (100, 24, 3));
        assert_eq!(next_part(&task, part.next, &map, &ground, &means, &mut extents), None);
    }
}

/// A command that is full at the end of a chunk has no memory of the next one, not even none of it.
#[test]
fn a_part_that_is_full_ends_there() {
    let map = map(2, 1, 8, false);
    let ground = Ground { lane: 0, nsid: 1, limits: limits(1), volatile: true };
    let task = task(Operation::Read, 0, map.blocks() * BLOCK, MEMORY);
    let mut extents = Vec::new();
    let means = means(Zeroes::Command { most: 7, deallocate: true });
    let part = next_part(&task, 0, &map, &ground, &means, &mut extents).unwrap();
    assert_eq!((part.slba, part.blocks, part.next), (100, 16, 24 * BLOCK));
    let extents: Vec<_> = extents.iter().map(|extent| (extent.iova.get() - MEMORY, extent.len)).collect();
    assert_eq!(extents, [(0, 8 * BLOCK), (16 * BLOCK, 8 * BLOCK)]);
}

#[test]
fn a_part_has_no_more_extents_than_a_command_can_have() {
    // Pages of one device: one behind the other there, and apart in memory.
    let map = map(2, 200, 8, true);
    let ground = Ground { lane: 0, nsid: 1, limits: limits(11), volatile: true };
    let task = task(Operation::Read, 0, map.blocks() * BLOCK, MEMORY);
    let mut extents = Vec::new();
    let means = means(Zeroes::Command { most: 7, deallocate: true });
    let part = next_part(&task, 0, &map, &ground, &means, &mut extents).unwrap();
    assert_eq!((extents.len(), part.blocks), (MAX_EXTENTS, 8 * MAX_EXTENTS as u64));
    let rest = next_part(&task, part.next, &map, &ground, &means, &mut extents).unwrap();
    assert_eq!((rest.slba, extents.len()), (100 + part.blocks, 600 - MAX_EXTENTS));
}

#[test]
fn behind_the_last_byte_there_is_no_part() {
    let map = map(1, 1, 8, false);
    let ground = Ground { lane: 0, nsid: 1, limits: limits(5), volatile: true };
    let means = means(Zeroes::Command { most: 7, deallocate: true });
    let next = |offset, length, planned| {
        let task = task(Operation::StagedRead, offset, length, MEMORY);
        next_part(&task, planned, &map, &ground, &means, &mut Vec::new())
    };
    // In the middle of a block, at its end, and where there never was one.
    for (offset, length) in [(7, 100), (7, BLOCK - 7), (0, 0), (9, 0)] {
        assert_eq!(next(offset, length, length), None, "{length} bytes at {offset}");
    }
    assert_eq!(next(7, 100, 99).unwrap().staged, (106, 1));
    assert_eq!(next(1, u64::MAX, 0), None);
    assert_eq!(next(7, 100, u64::MAX), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn parts_cover_their_task_once(
        members in 1usize..4, extents in 1u64..4, chunk in prop::sample::select(vec![1u64, 3, 8, 16]), touching: bool,
        operation in prop::sample::select(vec![
            Operation::Read, Operation::Write, Operation::StagedRead, Operation::Zeroes, Operation::Deallocate,
        ]),
        from in 0.0..1.0f64, share in 0.0..1.0f64, odd in 0u64..512, odd_length in 0u64..512, dword in 0u64..1024,
        mdts in 1u8..4, by_writes: bool, volatile: bool
    ) {
        let map = map(members, extents, chunk, touching);
        let limits = limits(mdts);
        let capacity = map.blocks() * BLOCK;
        let staged = operation == Operation::StagedRead;
        let whole = |bytes: u64| bytes / BLOCK * BLOCK;
        let offset = (whole((capacity as f64 * from) as u64) + if staged { odd } else { 0 }).min(capacity - BLOCK);
        let left = capacity - offset;
        let length = (whole((left as f64 * share) as u64) + if staged { odd_length } else { 0 }).clamp(BLOCK, left);
        let (offset, length) = if staged { (offset, length) } else { (whole(offset), whole(length).max(BLOCK)) };
        let task = task(operation, offset, length, MEMORY + dword * 4);
        let iova = Iova::new(1 << 40).unwrap();
        let zeroes = if by_writes {
            Zeroes::Writes { iova, len: 4096 }
        } else {
            Zeroes::Command { most: 7, deallocate: false }
        };
        let means = means(zeroes);

        // Bytes of the segment that were found, as ranges.
        let mut found = Vec::new();
        for lane in 0..members as u8 {
            let ground = Ground { lane, nsid: 3, limits, volatile };
            let mut planned = 0;
            let mut memory = Vec::new();
            while let Some(part) = next_part(&task, planned, &map, &ground, &means, &mut memory) {
                prop_assert!(part.blocks >= 1 && part.next > planned && part.next <= length);
                let bytes = part.blocks * BLOCK;
                // The same part, wherever its planning is done again.
                let mut again = Vec::new();
                prop_assert_eq!(next_part(&task, planned, &map, &ground, &means, &mut again), Some(part));
                prop_assert_eq!(&again, &memory);
                // Blocks of the segment that lie there.
                let mut blocks = Vec::new();
                let mut block = (offset + planned) / BLOCK;
                while blocks.len() < part.blocks as usize {
                    let piece = map.locate(block).unwrap();
                    if piece.device == lane {
                        prop_assert_eq!(piece.slba, part.slba + blocks.len() as u64);
                        blocks.push(block);
                    }
                    block += 1;
                }
                let most = match operation {
                    Operation::Deallocate => 10,
                    Operation::StagedRead => 4,
                    Operation::Zeroes if !by_writes => 7,
                    _ => u64::from(limits.max_blocks()),
                };
                prop_assert!(part.blocks <= most);
                if matches!(operation, Operation::Read | Operation::Write) {
                    prop_assert_eq!(memory.iter().map(|extent| extent.len).sum::<u64>(), bytes);
                    for pair in memory.windows(2) {
                        prop_assert_eq!((pair[0].iova.get() + pair[0].len) % 4096, 0);
                        prop_assert_eq!(pair[1].iova.get() % 4096, 0);
                    }
                    let mut at = blocks.iter();
                    for extent in &memory {
                        for within in 0..extent.len / BLOCK {
                            let byte = extent.iova.get() + within * BLOCK - task.memory + offset;
                            prop_assert_eq!(byte, at.next().unwrap() * BLOCK);
                        }
                    }
                } else {
                    prop_assert!(memory.is_empty());
                }
                if staged {
                    let (skip, len) = part.staged;
                    prop_assert!(skip < BLOCK && skip + len <= bytes && len >= 1);
                    let first = blocks[0] * BLOCK + skip;
                    found.push(first..first + len);
                } else {
                    found.extend(blocks.iter().map(|block| block * BLOCK..(block + 1) * BLOCK));
                }
                if operation != Operation::Deallocate {
                    let sqe = command(&task, &part, &ground, &means, &mut memory).unwrap();
                    prop_assert_eq!((sqe.slba(), u64::from(sqe.nlb().count()), sqe.nsid), (part.slba, part.blocks, 3));
                    if operation == Operation::Zeroes && by_writes {
                        prop_assert_eq!(sqe.nvm_opcode(), NvmOpcode::WRITE);
                        prop_assert_eq!(memory.iter().map(|extent| extent.len).sum::<u64>(), bytes);
                        prop_assert!(memory.iter().all(|extent| extent.iova == iova && extent.len <= 4096));
                    }
                }
                planned = part.next;
                if planned == length {
                    break;
                }
            }
        }
        // Each byte once: sorted, every range begins where the one before it ends.
        found.sort_by_key(|range| range.start);
        let mut at = offset;
        for range in found {
            prop_assert_eq!(range.start, at);
            at = range.end;
        }
        prop_assert_eq!(at, offset + length);
    }
}
