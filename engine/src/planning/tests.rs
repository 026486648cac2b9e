//! That the commands of a batch are right, and no more than the rule needs.

use std::sync::Arc;

use proptest::prelude::*;
use tentpeg_driver::dma::Iova;
use tentpeg_driver::queue::ControllerLimits;
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::identify::{IdentifyNamespace, LbaFormat};
use tentpeg_driver::spec::registers::Cap;

use super::*;
use crate::admission::RequestError;
use crate::batch::{Batch, BatchOptions};
use crate::task::Work;
use crate::{OpCode, SegmentId};

const NSID: u32 = 7;
const NSZE: u64 = 1 << 30;

fn limits(page_shift: u32, mdts: u8, lbads: u8) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze: NSZE, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads, rp: 0 };
    ControllerLimits::new(cap, 1 << page_shift, mdts).unwrap().namespace(&namespace).unwrap()
}

fn batch(works: &[Work]) -> Batch {
    let batch = Batch::new(BatchOptions::with_capacity(works.len() as u32), 1, Arc::default(), Arc::default());
    let refused = RequestError::NoSegment { target_id: SegmentId(9) };
    let work = |work: &Work| if *work == Work::Nothing { Err(refused) } else { Ok(*work) };
    batch.append(works, |_| None, work, |_| ()).unwrap();
    batch
}

fn transfer(opcode: OpCode, slba: u64, iova: u64, length: u64) -> Work {
    of_lane(0, Durability::None, opcode, slba, iova, length)
}

fn of_lane(lane: u8, durability: Durability, opcode: OpCode, slba: u64, iova: u64, length: u64) -> Work {
    let head = Head::transfer(opcode, durability, lane, 0);
    Work::Transfer(Transfer { head, slba, iova: Iova::new(iova).unwrap(), length })
}

fn ground(limits: &Limits) -> Ground {
    Ground { lane: 0, nsid: NSID, limits: *limits, volatile: true }
}

/// All commands of a batch with their memory; tasks without a command are passed as a lane passes them.
fn plan(works: &[Work], limits: &Limits) -> Vec<(Step, Vec<Extent>)> {
    let batch = batch(works);
    let (tail, mut cursor, mut commands) = (works.len() as u32, Cursor::default(), Vec::new());
    let mut extents = Vec::new();
    while cursor.task < tail {
        match next_command(&mut batch.shared.walk(), cursor, tail, false, &ground(limits), &mut extents) {
            Some(step) => {
                commands.push((step, extents.clone()));
                cursor = step.next;
            }
            None => {
                assert_eq!((works[cursor.task as usize], cursor.planned), (Work::Nothing, 0));
                cursor.task += 1;
            }
        }
    }
    commands
}

/// What is entered is not submitted before the tail has moved behind it.
#[test]
fn nothing_behind_the_tail_is_planned() {
    let limits = limits(12, 9, 12);
    let works: Vec<_> = (0..4u64).map(|block| transfer(OpCode::Read, block, 0x10_0000 + (block << 12), 4096)).collect();
    let batch = batch(&works);
    for tail in 1..=4 {
        let step =
            next_command(&mut batch.shared.walk(), Cursor::default(), tail, false, &ground(&limits), &mut Vec::new());
        let step = step.unwrap();
        assert_eq!(
            (step.tasks, step.bytes, step.next),
            (tail, u64::from(tail) << 12, Cursor { task: tail, planned: 0 })
        );
    }
}

#[test]
fn an_object_over_64_shuffled_pages_is_one_command() {
    let limits = limits(12, 9, 12);
    let page = 32 << 10;
    let works: Vec<_> = (0..64u64)
        .map(|part| transfer(OpCode::Read, 1000 + part * 8, 0x100_0000 + (part * 37 % 64) * page, page))
        .collect();
    let commands = plan(&works, &limits);
    assert_eq!(commands.len(), 1);
    let (step, extents) = &commands[0];
    assert_eq!((step.tasks, step.bytes, step.sqe.slba(), step.sqe.nlb().count()), (64, 2 << 20, 1000, 512));
    assert_eq!(extents.len(), 64, "no two of them are neighbours");
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), 2 << 20);
}

#[test]
fn each_reason_not_to_join() {
    let limits = limits(12, 2, 9);
    let first = transfer(OpCode::Read, 8, 0x10_0000, 4096);
    for (second, commands, why) in [
        (transfer(OpCode::Read, 16, 0x20_0000, 4096), 1, "nothing speaks against it"),
        (transfer(OpCode::Read, 16, 0x20_0000, 512), 1, "the end may lie anywhere"),
        (transfer(OpCode::Read, 16, 0x20_0000, 12288), 1, "up to the limit"),
        (transfer(OpCode::Read, 16, 0x20_0000, 12800), 2, "a block beyond it"),
        (transfer(OpCode::Write, 16, 0x20_0000, 4096), 2, "the other way"),
        (transfer(OpCode::Read, 17, 0x20_0000, 4096), 2, "a gap on the device"),
        (transfer(OpCode::Read, 15, 0x20_0000, 4096), 2, "an overlap on the device"),
        (transfer(OpCode::Read, 8, 0x20_0000, 4096), 2, "the same blocks"),
        (transfer(OpCode::Read, 16, 0x20_0200, 4096), 2, "a seam inside a page"),
        (transfer(OpCode::Read, 16, 0x10_1000, 4096), 1, "memory goes on"),
        (of_lane(0, Durability::Fua, OpCode::Read, 16, 0x20_0000, 4096), 2, "another segment's durability"),
        (Work::Nothing, 1, "a refused task has none"),
    ] {
        assert_eq!(plan(&[first, second], &limits).len(), commands, "{why}");
    }
    let odd = transfer(OpCode::Read, 8, 0x10_0200, 512);
    let goes_on = transfer(OpCode::Read, 9, 0x10_0400, 512);
    assert_eq!(plan(&[odd, goes_on], &limits).len(), 1, "contiguous memory has no seam, wherever it meets");
    let jumps = transfer(OpCode::Read, 9, 0x20_0000, 512);
    assert_eq!(plan(&[odd, jumps], &limits).len(), 2, "the first ends inside a page");
    let between = [first, Work::Nothing, transfer(OpCode::Read, 16, 0x20_0000, 4096)];
    assert_eq!(plan(&between, &limits).len(), 2, "tasks of a command are consecutive");
}

#[test]
fn tasks_of_other_lanes_are_no_business_of_this_one() {
    let limits = limits(12, 9, 12);
    let own = transfer(OpCode::Read, 0, 0x10_0000, 4096);
    let other = of_lane(1, Durability::None, OpCode::Read, 1, 0x10_1000, 4096);
    let batch = batch(&[other, own, other]);
    let mut extents = Vec::new();
    let mut next = |task| {
        next_command(&mut batch.shared.walk(), Cursor { task, planned: 0 }, 3, false, &ground(&limits), &mut extents)
    };
    assert_eq!(next(0), None);
    assert_eq!(next(1).map(|step| (step.tasks, step.bytes)), Some((1, 4096)), "and are not joined");
}

/// FUA is asked for by the segment, and only where there is a cache.
#[test]
fn a_write_has_fua_where_that_means_something() {
    let limits = limits(12, 9, 12);
    for (durability, volatile, fua) in [
        (Durability::None, true, false),
        (Durability::Fua, true, true),
        (Durability::Fua, false, false),
        (Durability::Flush, true, false),
    ] {
        for opcode in [OpCode::Write, OpCode::Read] {
            let batch = batch(&[of_lane(0, durability, opcode, 0, 0x10_0000, 4096)]);
            let ground = Ground { volatile, ..ground(&limits) };
            let step =
                next_command(&mut batch.shared.walk(), Cursor::default(), 1, false, &ground, &mut Vec::new()).unwrap();
            assert_eq!(step.sqe.fua(), fua && opcode == OpCode::Write, "{durability:?}");
        }
    }
}

#[test]
fn a_task_alone_is_never_joined() {
    let limits = limits(12, 5, 12);
    let batch = batch(&[transfer(OpCode::Read, 0, 0x10_0000, 4096), transfer(OpCode::Read, 1, 0x20_0000, 4096)]);
    let mut extents = Vec::new();
    let step =
        next_command(&mut batch.shared.walk(), Cursor::default(), 2, true, &ground(&limits), &mut extents).unwrap();
    assert_eq!((step.tasks, step.bytes, extents.len()), (1, 4096, 1));
}

#[test]
fn there_is_a_limit_of_extents() {
    let limits = limits(12, 0, 12);
    let works: Vec<_> = (0..600u64).map(|part| transfer(OpCode::Write, part, 0x100_0000 + part * 8192, 4096)).collect();
    let sizes: Vec<_> = plan(&works, &limits).iter().map(|(step, extents)| (step.tasks, extents.len())).collect();
    assert_eq!(sizes, [(512, 512), (88, 88)]);
}

/// A task as proptest makes it: how it stands to the one before.
#[derive(Debug, Clone, Copy)]
struct Part {
    kind: u8,
    blocks: u64,
    follows: bool,
    memory: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    GoesOn,
    OnPage(u64),
    Anywhere(u64),
}

fn part() -> impl Strategy<Value = Part> {
    let place = prop_oneof![
        2 => Just(Place::GoesOn),
        4 => (0u64..1 << 20).prop_map(Place::OnPage),
        1 => (0u64..1 << 30).prop_map(|dword| Place::Anywhere(dword * 4)),
    ];
    // Whole pages are as likely as odd lengths.
    let blocks = prop_oneof![1u64..=3, (1u64..=4).prop_map(|pages| pages * 8), 1u64..=700];
    (0u8..20, blocks, prop::bool::weighted(0.85), place).prop_map(|(kind, blocks, follows, memory)| Part {
        kind,
        blocks,
        follows,
        memory,
    })
}

fn works(parts: &[Part], limits: &Limits) -> Vec<Work> {
    let base = 1 << 32;
    let (mut slba, mut memory) = (1000, base);
    let mut works = Vec::new();
    for part in parts {
        let opcode = match part.kind {
            0 | 1 => {
                works.push(Work::Nothing);
                continue;
            }
            2..=4 => OpCode::Write,
            _ => OpCode::Read,
        };
        if !part.follows {
            slba += 5;
        }
        memory = match part.memory {
            Place::GoesOn => memory,
            Place::OnPage(page) => base + page * limits.page_size(),
            Place::Anywhere(offset) => base + offset,
        };
        let length = part.blocks << limits.lba_shift();
        works.push(transfer(opcode, slba, memory, length));
        slba += part.blocks;
        memory += length;
    }
    works
}

/// The bytes of some commands or tasks, in order: opcode, byte on the device, address, length; neighbours merged.
fn merged(pieces: impl Iterator<Item = (NvmOpcode, u64, u64, u64)>) -> Vec<(NvmOpcode, u64, u64, u64)> {
    let mut merged: Vec<(NvmOpcode, u64, u64, u64)> = Vec::new();
    for (opcode, byte, address, len) in pieces {
        match merged.last_mut() {
            Some((last, at, from, sum)) if *last == opcode && *at + *sum == byte && *from + *sum == address => {
                *sum += len
            }
            _ => merged.push((opcode, byte, address, len)),
        }
    }
    merged
}

fn nvm(opcode: OpCode) -> NvmOpcode {
    if opcode == OpCode::Read { NvmOpcode::READ } else { NvmOpcode::WRITE }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn commands_cover_their_tasks_and_are_as_few_as_the_rule_allows(
        parts in prop::collection::vec(part(), 1..40),
        page_shift in 12u32..=16, mdts in prop_oneof![1u8..=5, Just(9u8), Just(0u8)], lbads in prop_oneof![Just(9u8), Just(12u8)]
    ) {
        let limits = limits(page_shift, mdts, lbads);
        let works = works(&parts, &limits);
        let commands = plan(&works, &limits);
        let page = limits.page_size();

        // Every byte once, in order, at its place on both sides.
        let asked = works.iter().filter_map(|work| match work {
            Work::Transfer(task) => Some((nvm(task.head.opcode()), task.slba << lbads, task.iova.get(), task.length)),
            Work::Spread(_) | Work::Nothing => None,
        });
        let given = commands.iter().flat_map(|(step, extents)| {
            let mut byte = step.sqe.slba() << lbads;
            extents.iter().map(move |extent| {
                byte += extent.len;
                (step.sqe.nvm_opcode(), byte - extent.len, extent.iova.get(), extent.len)
            })
        });
        prop_assert_eq!(merged(asked), merged(given));

        // Each command by itself.
        for (step, extents) in &commands {
            prop_assert_eq!(step.sqe.nsid, NSID);
            prop_assert!((1..=works.len() as u32 - step.first).contains(&step.tasks));
            prop_assert_eq!(extents.iter().map(|extent| extent.len).sum::<u64>(), step.bytes);
            prop_assert_eq!(u64::from(step.sqe.nlb().count()) << lbads, step.bytes);
            prop_assert!((1..=limits.max_transfer()).contains(&step.bytes));
            prop_assert!(extents.len() <= MAX_EXTENTS);
            for pair in extents.windows(2) {
                prop_assert_eq!((pair[0].iova.get() + pair[0].len) % page, 0, "an end inside a page");
                prop_assert_eq!(pair[1].iova.get() % page, 0, "a start inside a page");
            }
        }

        // As few as allowed: where a command ends, something forbids that the next task belongs to it.
        for pair in commands.windows(2) {
            let ((step, extents), (following, _)) = (&pair[0], &pair[1]);
            if step.next.planned != 0 {
                prop_assert_eq!(step.bytes, limits.max_transfer(), "a task is cut only where it must be");
                continue;
            }
            let (Work::Transfer(next), Some(last)) = (works[following.first as usize], extents.last()) else { continue };
            let (end, start) = (last.iova.get() + last.len, next.iova.get());
            let seamless = end == start;
            let allowed = following.first == step.next.task
                && nvm(next.head.opcode()) == step.sqe.nvm_opcode()
                && next.slba == step.sqe.slba() + u64::from(step.sqe.nlb().count())
                && next.length + step.bytes <= limits.max_transfer()
                && (seamless || end % page == 0 && start % page == 0)
                && extents.len() < MAX_EXTENTS;
            prop_assert!(!allowed, "task {} could have been joined to the command before it", following.first);
        }
    }
}
