//! The model in its own thread, beside a host that does not wait for it.

use super::super::{Drive, Violation};
use super::host::{Host, count, small};
use crate::bus::Function;
use crate::spec::command::Sqe;
use crate::spec::registers::Csts;
use crate::spec::status::StatusCode;

#[test]
fn commands_complete_without_being_stepped() {
    let mut host = Host::driven(small(), Drive::Threaded);
    let mut pair = host.io_pair(1, 16);
    let data = host.memory(4096);
    for round in 0..200u64 {
        data.view().write_words(0, &[round]);
        let block = Sqe::write(1, round, count(1)).with_prp1(data.iova().get());
        assert_eq!(host.io_code(&mut pair, block), StatusCode::SUCCESS);
    }
    for round in 0..200u64 {
        let block = Sqe::read(1, round, count(1)).with_prp1(data.iova().get());
        assert_eq!(host.io_code(&mut pair, block), StatusCode::SUCCESS);
        let mut word = [0];
        data.view().read_words(0, &mut word);
        assert_eq!(word, [round]);
    }
    assert!(!host.model.turn(), "it is not the caller's to step");
    assert_eq!(host.model.violations(), []);
    let counters = host.model.counters();
    assert_eq!((counters.reads, counters.writes, counters.io_sqes, counters.io_cqes), (200, 200, 400, 400));
}

#[test]
fn an_idle_model_wakes_up() {
    let mut host = Host::driven(small(), Drive::Threaded);
    let mut pair = host.io_pair(1, 4);
    // Long enough for it to fall asleep.
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
}

#[test]
fn nothing_reaches_memory_after_it_was_unmapped() {
    let mut host = Host::driven(small(), Drive::Threaded);
    let mut pair = host.io_pair(1, 64);
    let ring = 63;
    let mut refused = 0;
    for _ in 0..50 {
        let data = host.memory(4096);
        let address = data.iova().get();
        for cid in 0..ring {
            pair.push(Sqe::read(1, 0, count(8)).with_prp1(address).with_cid(cid));
        }
        pair.ring();
        // In the midst of it, and the memory itself goes with it: what came later would be a fault of the process.
        drop(data);
        let mut gone = false;
        for _ in 0..ring {
            let cqe = loop {
                match pair.take() {
                    Some(cqe) => break cqe,
                    None => std::thread::yield_now(),
                }
            };
            match cqe.status.status().code() {
                StatusCode::SUCCESS => assert!(!gone, "unmapped, and reached again"),
                StatusCode::DATA_TRANSFER_ERROR => (gone, refused) = (true, refused + 1),
                code => panic!("{code}"),
            }
        }
    }
    let violations = host.model.violations();
    assert_eq!(violations.len(), refused.min(1024));
    assert!(violations.iter().all(|violation| matches!(violation, Violation::Dma { .. })));
    assert_eq!(host.csts(), Csts::default().with_rdy(true), "and the controller lives");
}

#[test]
fn a_reset_under_load_is_quiet_afterwards() {
    let mut host = Host::driven(small(), Drive::Threaded);
    for _ in 0..20 {
        let mut pair = host.io_pair(1, 64);
        let data = host.memory(4096);
        for cid in 0..63 {
            pair.push(Sqe::read(1, 0, count(8)).with_prp1(data.iova().get()).with_cid(cid));
        }
        pair.ring();
        host.disable();
        let before = host.model.counters();
        std::thread::yield_now();
        data.release();
        drop(pair);
        assert_eq!(host.model.counters(), before, "no DMA after RDY = 0");
        host.enable();
    }
    assert_eq!(host.model.violations(), []);
}

#[test]
fn dropping_a_model_ends_its_thread() {
    let host = Host::driven(small(), Drive::Threaded);
    let function = host.model.function();
    drop(host);
    assert_eq!(function.read_u32(0), u32::MAX);
}
