//! What a function offers besides registers: revoked doorbells, Function Level Reset, bus mastering, and being cut
//! off from its address space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{Drive, ModelConfig, ModelFunction, Violation};
use super::host::{Host, Pair, cc, count, small};
use crate::bus::{BusError, Function};
use crate::dma::{HostMemory, Region};
use crate::spec::command::Sqe;
use crate::spec::registers::{Csts, offset};
use crate::spec::status::StatusCode;

/// A queue pair with `commands` reads of one block in it, not yet rung.
fn loaded(host: &mut Host, commands: u16) -> (Pair, Region<HostMemory>) {
    let mut pair = host.io_pair(1, 64);
    let data = host.memory(4096);
    for cid in 0..commands {
        pair.push(Sqe::read(1, 0, count(8)).with_prp1(data.iova().get()).with_cid(cid));
    }
    (pair, data)
}

fn idle(host: &Host) {
    for _ in 0..20 {
        host.model.turn();
        std::thread::yield_now();
    }
}

/// AQA, ASQ and ACQ again, and then enabled: what a host does after a reset of the function.
fn set_up_again(host: &mut Host) {
    host.function.write_u32(offset::AQA, 0x000F_000F);
    host.function.write_u64(offset::ASQ, host.admin.sq.iova().get());
    host.function.write_u64(offset::ACQ, host.admin.cq.iova().get());
    host.enable();
}

#[test]
fn a_revoked_doorbell_leads_nowhere_and_a_later_one_works() {
    let mut host = Host::new(small());
    let (pair, _data) = loaded(&mut host, 3);
    let late = host.raw_pair(1, 64);
    host.function.revoke_doorbells();
    pair.ring();
    late.sq_bell.ring(9);
    idle(&host);
    assert_eq!(host.model.counters().reads, 0);
    assert_eq!(host.model.counters().revoked_doorbells, 2);

    // Before, while and after the controller is disabled, and once it is enabled anew.
    host.write_cc(cc(false));
    pair.ring();
    assert!(host.wait(|host| !host.csts().rdy()));
    pair.ring();
    host.enable();
    pair.ring();
    assert_eq!(host.model.counters().revoked_doorbells, 5);
    assert_eq!(host.model.violations(), [], "a lane may ring what was revoked");

    // The negative control: handles that were given out since are heard, and blamed.
    let (mut pair, _data) = loaded(&mut host, 3);
    pair.ring();
    assert!(host.wait(|host| host.model.counters().reads == 3));
    assert!(pair.take().is_some());
    host.disable();
    pair.ring();
    assert!(matches!(host.model.violations()[..], [Violation::DoorbellOfFormerEpoch { .. }]));
}

#[test]
fn doorbells_given_out_after_a_revocation_work_without_a_reset() {
    let mut host = Host::new(small());
    let (mut pair, _data) = loaded(&mut host, 1);
    host.function.revoke_doorbells();
    let again = host.raw_pair(1, 64);
    (pair.sq_bell, pair.cq_bell) = (again.sq_bell, again.cq_bell);
    pair.ring();
    assert!(host.wait(|host| host.model.counters().reads == 1));
    assert_eq!(pair.take().unwrap().status.status().code(), StatusCode::SUCCESS);
    assert_eq!(host.model.counters().revoked_doorbells, 0);
}

#[test]
fn a_function_level_reset_leaves_nothing() {
    for ring in [false, true] {
        let mut host = Host::new(small());
        let (mut pair, data) = loaded(&mut host, 5);
        host.function.write_u32(offset::INTMS, 7);
        if ring {
            pair.ring();
        }
        assert_eq!(host.function.reset(), Ok(()));
        for register in [offset::CC, offset::CSTS, offset::AQA, offset::INTMS] {
            assert_eq!(host.function.read_u32(register), 0, "{register:#x}");
        }
        assert_eq!((host.function.read_u64(offset::ASQ), host.function.read_u64(offset::ACQ)), (0, 0));
        drop(data);
        idle(&host);
        assert_eq!(host.model.counters().reads, 0);
        assert!(pair.peek().is_none());

        host.function.enable_bus_mastering().unwrap();
        set_up_again(&mut host);
        assert_eq!(host.code(Sqe::delete_io_submission_queue(1)), StatusCode::INVALID_QUEUE_IDENTIFIER);
        let mut pair = host.io_pair(1, 8);
        assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
        assert_eq!(host.model.violations(), []);
    }
}

#[test]
fn a_function_level_reset_ends_a_fatal_status_an_enable_and_a_shutdown() {
    let host = Host::disabled(small(), Drive::Stepped);
    host.write_cc(cc(true).with_mps(15));
    assert!(host.csts().cfs());
    host.function.reset().unwrap();
    assert_eq!(host.csts(), Csts::default());

    let mut host = Host::disabled(ModelConfig { ready_delay: 50, shutdown_delay: 50, ..small() }, Drive::Stepped);
    host.write_cc(cc(true));
    host.model.turn();
    host.function.reset().unwrap();
    idle(&host);
    assert_eq!(host.csts(), Csts::default());
    host.function.enable_bus_mastering().unwrap();
    set_up_again(&mut host);
    host.function.write_u32(offset::CC, cc(true).bits() | 1 << 14);
    host.model.turn();
    host.function.reset().unwrap();
    idle(&host);
    assert_eq!(host.csts(), Csts::default());
}

#[test]
fn a_function_without_a_reset_says_so() {
    let host = Host::new(ModelConfig { flr: false, ..small() });
    assert_eq!(host.function.reset(), Err(BusError::NoReset));
    assert!(host.csts().rdy(), "nothing happened");
}

#[test]
fn without_bus_mastering_registers_live_and_nothing_is_fetched_or_completed() {
    let mut host = Host::new(small());
    let (mut pair, _data) = loaded(&mut host, 3);
    host.function.disable_bus_mastering().unwrap();
    pair.ring();
    idle(&host);
    assert_eq!((host.model.counters().reads, pair.peek()), (0, None));
    assert!(host.csts().rdy());
    host.function.enable_bus_mastering().unwrap();
    assert!(host.wait(|host| host.model.counters().reads == 3), "as if nothing had been");
    host.function.disable_bus_mastering().unwrap();
    host.disable();
    host.write_cc(cc(true));
    assert!(host.wait(|host| host.csts().rdy()), "a reset needs no memory");
    assert_eq!(host.model.violations(), []);
}

#[test]
fn what_was_cut_off_stays_cut_off() {
    let mut host = Host::new(small());
    let (mut pair, data) = loaded(&mut host, 3);
    host.function.cut_off();
    pair.ring();
    drop(data);
    host.function.enable_bus_mastering().unwrap();
    idle(&host);
    assert_eq!((host.model.counters().reads, pair.peek()), (0, None));
    host.function.reset().unwrap();
    host.function.enable_bus_mastering().unwrap();
    set_up_again(&mut host);
    host.admin.push(Sqe::flush(1));
    host.admin.ring();
    idle(&host);
    assert_eq!(host.model.counters().admin_sqes, 2, "those of the pair");
    assert!(host.admin.peek().is_none());
}

/// Each of the three ends of DMA, in the midst of it: memory that is gone afterwards would be a fault of the process.
#[test]
fn no_dma_is_under_way_when_it_has_been_stopped() {
    for round in 0..60 {
        let mut host = Host::driven(small(), Drive::Threaded);
        let (pair, data) = loaded(&mut host, 63);
        pair.ring();
        for _ in 0..round * 50 {
            std::hint::spin_loop();
        }
        match round % 3 {
            0 => host.function.cut_off(),
            1 => host.function.disable_bus_mastering().unwrap(),
            _ => host.function.reset().unwrap(),
        }
        let before = host.model.counters();
        data.view().fill(0x5A);
        idle(&host);
        assert_eq!(host.model.counters(), before);
        let mut bytes = [0; 4096];
        data.view().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0x5A));
        assert_eq!(host.model.violations(), []);
    }
}

/// Each of the three waits for a turn that holds the table.
#[test]
fn whoever_stops_dma_waits_for_what_is_under_way() {
    let stops: [fn(&ModelFunction); 3] = [
        |function| function.cut_off(),
        |function| function.disable_bus_mastering().unwrap(),
        |function| function.reset().unwrap(),
    ];
    for stop in stops {
        let host = Host::new(small());
        let table = host.iommu.table();
        let turn = table.reach();
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stop(&host.function);
                stopped.store(true, Ordering::Release);
            });
            // Time enough for one that does not wait.
            std::thread::sleep(Duration::from_millis(10));
            assert!(!stopped.load(Ordering::Acquire));
            drop(turn);
        });
        assert!(stopped.load(Ordering::Acquire));
    }
}

/// A turn that has seen work, and gets the table only after EN = 0, does nothing with it.
#[test]
fn a_turn_asks_again_once_it_has_the_table() {
    let mut host = Host::driven(small(), Drive::Threaded);
    let (pair, _data) = loaded(&mut host, 5);
    let iommu = host.iommu.table();
    let table = iommu.close();
    pair.ring();
    // Time for the turn to come as far as the table.
    std::thread::sleep(Duration::from_millis(10));
    host.write_cc(cc(false));
    drop(table);
    assert!(host.wait(|host| !host.csts().rdy()));
    assert_eq!(host.model.counters().reads, 0);
}

/// A reset of the function, enabled again at once, while the thread is in the midst of the old queues.
#[test]
fn a_function_level_reset_under_load_ends_the_former_queues() {
    let mut host = Host::driven(small(), Drive::Threaded);
    for _ in 0..20 {
        let (pair, data) = loaded(&mut host, 63);
        pair.ring();
        host.function.reset().unwrap();
        drop((data, pair));
        host.function.enable_bus_mastering().unwrap();
        set_up_again(&mut host);
    }
    assert_eq!(host.model.violations(), []);
}

#[test]
fn a_function_that_is_gone_says_so() {
    let host = Host::new(small());
    let function = host.model.function();
    let bell = host.raw_pair(1, 4).sq_bell;
    drop(host.model);
    let gone = |answer: Result<(), BusError>| matches!(answer, Err(BusError::Gone { .. }));
    assert!(gone(function.reset()) && gone(function.disable_bus_mastering()) && gone(function.enable_bus_mastering()));
    function.revoke_doorbells();
    bell.ring(1);
    function.cut_off();
}
