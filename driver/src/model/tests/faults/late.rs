//! DMA that goes on after its end, and what it meets.

use super::super::super::faults::{Action, At, CommandQueue, Kind, LateDma, Life, When};
use super::super::host::{Host, Pair, cc, small};
use super::read;
use crate::bus::Function;
use crate::dma::{HostMemory, Region};
use crate::spec::command::Sqe;

const COMMANDS: u16 = 10;

/// A queue with commands that were rung and not looked at, each with a page of its own.
fn loaded(host: &mut Host) -> (Pair, Vec<Region<HostMemory>>) {
    let mut pair = host.io_pair(1, 16);
    let pages: Vec<_> = (0..COMMANDS).map(|_| host.memory(4096)).collect();
    for (cid, page) in pages.iter().enumerate() {
        page.view().fill(0xEE);
        pair.push(read(0, 8, page.iova().get()).with_cid(cid as u16));
    }
    pair.ring();
    (pair, pages)
}

fn reached(page: &Region<HostMemory>) -> bool {
    let mut bytes = [0; 4096];
    page.view().read(0, &mut bytes);
    bytes == [0; 4096]
}

fn late(host: &Host) -> LateDma {
    host.model.faults().late_dma()
}

#[test]
fn without_the_fault_nothing_is_late() {
    let mut host = Host::new(small());
    let (_pair, pages) = loaded(&mut host);
    host.disable();
    host.turns(20);
    assert!(!pages.iter().any(reached));
    assert_eq!(late(&host), LateDma::default());
}

#[test]
fn ready_is_0_and_dma_goes_on_for_so_many_turns() {
    let mut host = Host::new(small());
    let (mut pair, pages) = loaded(&mut host);
    host.arm(At::Now, Life::EarlyUnready { dma_turns: 4 });
    host.write_cc(cc(false));
    assert!(!host.csts().rdy(), "at once");
    host.turns(20);
    let done: Vec<bool> = pages.iter().map(reached).collect();
    assert_eq!(done.iter().filter(|done| **done).count(), 4, "{done:?}");
    assert!((0..4).all(|_| pair.peek().is_some()) && pair.peek().is_none());
    assert_eq!(late(&host), LateDma { held: 4, unmapped: 0, foreign: 0 });
    assert_eq!((host.model.violations(), host.happened(Kind::EarlyUnready)), (vec![], 1));
    host.enable();
    let mut pair = host.io_pair(1, 4);
    host.io(&mut pair, Sqe::flush(1));
}

#[test]
fn a_drive_that_was_pulled_may_still_write() {
    for life in [Life::AllOnes { dma_turns: 3 }, Life::AllZeroes { dma_turns: 3 }] {
        let mut host = Host::new(small());
        let (_pair, pages) = loaded(&mut host);
        host.arm(At::Access(1), life);
        host.csts();
        host.turns(20);
        assert_eq!(pages.iter().filter(|page| reached(page)).count(), 3);
        assert_eq!(late(&host).held, 3);
    }
}

#[test]
fn late_dma_is_told_by_what_it_meets() {
    let mut host = Host::new(small());
    let (_pair, mut pages) = loaded(&mut host);
    host.arm(At::Now, Life::EarlyUnready { dma_turns: 100 });
    host.write_cc(cc(false));
    // The first is unmapped, and the second's address given to somebody else, both after RDY = 0.
    let first = pages.remove(0);
    let gone = first.iova();
    drop(first);
    let second = pages.remove(0);
    let address = second.iova();
    second.release();
    let other = loop {
        let region = host.memory(4096);
        if region.iova() == address {
            break region;
        }
        assert_ne!(region.iova(), gone, "dropped unproven, so its address is not used again");
        std::mem::forget(region);
    };
    other.view().fill(0x77);
    host.turns(20);
    assert_eq!(late(&host), LateDma { held: u64::from(COMMANDS) - 2, unmapped: 1, foreign: 1 });
    let mut bytes = [0; 4096];
    other.view().read(0, &mut bytes);
    assert_eq!(bytes, [0x77; 4096], "it is kept from what is not its own");
    assert!(pages.iter().all(reached));
    assert_eq!(host.model.violations(), [], "the driver is not to blame");
}

#[test]
fn late_dma_ends_with_a_reset_with_bus_mastering_and_when_cut_off() {
    for stop in [0, 1, 2] {
        let mut host = Host::new(small());
        let (_pair, pages) = loaded(&mut host);
        host.arm(At::Now, Life::EarlyUnready { dma_turns: 100 });
        host.write_cc(cc(false));
        host.turns(4);
        match stop {
            0 => host.function.reset().unwrap(),
            1 => host.function.disable_bus_mastering().unwrap(),
            _ => host.function.cut_off(),
        }
        let before = late(&host);
        assert!((1..10).contains(&before.held));
        if stop == 0 {
            host.function.enable_bus_mastering().unwrap();
        }
        drop(pages);
        host.turns(100);
        assert_eq!(late(&host), before);
    }
}

#[test]
fn late_dma_writes_no_blocks_and_goes_on_with_what_was_delayed() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 16);
    let page = host.memory(4096);
    host.befall(CommandQueue::Io, None, When::Next(1), Action::Delay { turns: 1000 });
    pair.push(read(0, 8, page.iova().get()).with_cid(1));
    pair.ring();
    host.turns(2);
    page.view().fill(0xEE);
    pair.push(super::write(0, 8, page.iova().get()).with_cid(2));
    pair.ring();
    host.arm(At::Now, Life::EarlyUnready { dma_turns: 100 });
    host.write_cc(cc(false));
    host.turns(10);
    assert!(reached(&page), "the delayed read, of a block that was not written");
    assert_eq!((late(&host).held, host.model.counters().writes), (2, 0));
    let told: Vec<u16> = std::iter::from_fn(|| pair.peek().map(|cqe| cqe.cid)).collect();
    assert_eq!(told, [1], "no success of a write that was not done");
}

#[test]
fn late_dma_goes_on_beside_the_next_enable() {
    let mut host = Host::new(small());
    let (_pair, pages) = loaded(&mut host);
    host.arm(At::Now, Life::EarlyUnready { dma_turns: 100 });
    host.write_cc(cc(false));
    host.enable();
    let mut pair = host.io_pair(2, 8);
    for cid in 0..20 {
        host.io(&mut pair, Sqe::flush(1).with_cid(cid));
    }
    host.turns(20);
    assert!(pages.iter().all(reached));
    assert_eq!(host.model.violations(), []);
}
