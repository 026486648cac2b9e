//! Faults of the whole controller.

use super::super::super::faults::{Action, At, Kind, Life};
use super::super::super::{Drive, ModelConfig};
use super::super::host::{Host, Pair, cc, count, small};
use super::{all, cids};
use crate::bus::{BusError, Function};
use crate::spec::command::Sqe;
use crate::spec::registers::{Csts, NSSR_RESET, ShutdownNotification, offset};
use crate::spec::status::StatusCode;

fn with_pair() -> (Host, Pair) {
    let mut host = Host::new(small());
    let pair = host.io_pair(1, 16);
    (host, pair)
}

/// A reset of the function, and all that a host does after it. The model works as ever.
fn heal(host: &mut Host) {
    host.function.reset().unwrap();
    host.function.enable_bus_mastering().unwrap();
    works(host);
}

fn works(host: &mut Host) {
    host.disable();
    host.function.write_u32(offset::AQA, 0x000F_000F);
    host.function.write_u64(offset::ASQ, host.admin.sq.iova().get());
    host.function.write_u64(offset::ACQ, host.admin.cq.iova().get());
    host.enable();
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn fatal_status_now_at_a_turn_at_an_access_or_in_the_middle_of_io() {
    for (at, served) in [(At::Now, 0), (At::Turn(1), 0), (At::Access(1), 0), (At::Command(3), 2)] {
        let (mut host, mut pair) = with_pair();
        host.arm(at, Life::Fatal);
        if at == At::Access(1) {
            assert!(host.csts().cfs(), "before it is read");
        }
        assert_eq!(host.flushes(&mut pair, &[1, 2, 3, 4]).len(), served, "{at:?}");
        assert_eq!(host.csts(), Csts::default().with_rdy(true).with_cfs(true));
        assert_eq!(host.happened(Kind::Fatal), 1);
        works(&mut host);
    }
}

#[test]
fn a_controller_that_resets_itself_tells_nobody() {
    for (at, served) in [(At::Now, 0), (At::Turn(1), 0), (At::Access(1), 0), (At::Command(3), 2)] {
        let (mut host, mut pair) = with_pair();
        host.arm(at, Life::SelfReset);
        if at == At::Access(1) {
            assert!(!host.csts().rdy(), "before it is read");
        }
        assert_eq!(host.flushes(&mut pair, &[1, 2, 3, 4]).len(), served, "{at:?}");
        assert_eq!((host.csts(), host.function.read_u32(offset::CC)), (Csts::default(), 0));
        assert_eq!(host.happened(Kind::SelfReset), 1);
        works(&mut host);
    }
}

#[test]
fn fatal_status_at_enable_and_at_disable() {
    let mut host = Host::disabled(small(), Drive::Stepped);
    host.arm(At::Now, Life::FatalAtEnable);
    host.write_cc(cc(true));
    host.turns(100);
    assert_eq!(host.csts(), Csts::default().with_cfs(true));
    works(&mut host);
    host.arm(At::Now, Life::FatalAtDisable);
    host.write_cc(cc(false));
    host.turns(100);
    assert_eq!(host.csts(), Csts::default().with_rdy(true).with_cfs(true));
    heal(&mut host);
    assert_eq!((host.happened(Kind::FatalAtEnable), host.happened(Kind::FatalAtDisable)), (1, 1));
}

#[test]
fn fatal_status_during_an_enable_and_during_a_shutdown() {
    let mut host = Host::disabled(ModelConfig { ready_delay: 10, shutdown_delay: 10, ..small() }, Drive::Stepped);
    host.write_cc(cc(true));
    host.arm(At::Turn(5), Life::Fatal);
    host.turns(100);
    assert_eq!(host.csts(), Csts::default().with_cfs(true));
    works(&mut host);
    host.write_cc(cc(true).with_shn(ShutdownNotification::NORMAL));
    host.arm(At::Turn(5), Life::Fatal);
    host.turns(100);
    assert!(host.csts().cfs());
    works(&mut host);
}

#[test]
fn ready_that_never_comes_or_never_goes() {
    let mut host = Host::disabled(small(), Drive::Stepped);
    host.arm(At::Now, Life::NeverReady);
    host.write_cc(cc(true));
    host.turns(1000);
    assert_eq!(host.csts(), Csts::default());
    works(&mut host);
    host.arm(At::Now, Life::NeverUnready);
    host.write_cc(cc(false));
    host.turns(1000);
    assert_eq!(host.csts(), Csts::default().with_rdy(true));
    heal(&mut host);
    assert_eq!((host.happened(Kind::NeverReady), host.happened(Kind::NeverUnready)), (1, 1));
    works(&mut host);
}

#[test]
fn a_pulled_drive_reads_as_ones_or_as_zeroes_and_can_be_put_back() {
    for (life, value, kind) in [
        (Life::AllOnes { dma_turns: 0 }, u32::MAX, Kind::AllOnes),
        (Life::AllZeroes { dma_turns: 0 }, 0, Kind::AllZeroes),
    ] {
        for at in [At::Now, At::Turn(2), At::Access(3), At::Command(2)] {
            let (mut host, mut pair) = with_pair();
            host.arm(at, life);
            host.csts();
            let before = host.flushes(&mut pair, &[1, 2, 3]).len();
            for _ in 0..3 {
                host.csts();
            }
            assert!(!host.model.faults().is_present(), "{at:?}");
            for register in [offset::CAP, offset::VS, offset::CSTS, offset::CC, 0x1FFC] {
                assert_eq!(host.function.read_u32(register), value, "{at:?}");
            }
            pair.push(Sqe::flush(1));
            pair.ring();
            host.write_cc(cc(false));
            host.turns(100);
            assert!(before + all(&mut pair).len() <= 3 && host.model.counters().flushes <= 3);
            assert_eq!(host.function.reset(), Err(BusError::Gone { what: "Function Level Reset" }));
            assert_eq!(host.model.violations(), [], "a lane cannot know: {at:?}");
            assert_eq!(host.happened(kind), 1);

            host.model.faults().put_back();
            assert_eq!((host.csts(), host.function.read_u32(offset::AQA)), (Csts::default(), 0));
            works(&mut host);
        }
    }
}

#[test]
fn a_model_that_ended_cannot_be_put_back() {
    let host = Host::new(small());
    let (faults, function) = (host.model.faults(), host.model.function());
    drop(host.model);
    faults.put_back();
    assert!(!faults.is_present());
    assert_eq!(function.read_u32(offset::CAP), u32::MAX);
}

#[test]
fn a_reset_that_fails_and_one_that_does_not_come_back() {
    let (mut host, mut pair) = with_pair();
    host.arm(At::Now, Life::ResetFails);
    assert!(matches!(host.function.reset(), Err(BusError::Gone { .. })));
    assert_eq!(cids(&host.flushes(&mut pair, &[1])), [1], "nothing happened");
    heal(&mut host);
    host.arm(At::Now, Life::ResetLost);
    assert!(matches!(host.function.reset(), Err(BusError::Gone { .. })));
    assert_eq!(host.function.read_u32(offset::CSTS), u32::MAX);
    assert!(matches!(host.function.reset(), Err(BusError::Gone { .. })));
    assert_eq!((host.happened(Kind::ResetFails), host.happened(Kind::ResetLost)), (1, 1));
}

#[test]
fn a_read_after_bus_mastering_that_does_not_return() {
    let (mut host, mut pair) = with_pair();
    host.arm(At::Now, Life::LostRead);
    assert!(matches!(host.function.disable_bus_mastering(), Err(BusError::Gone { .. })));
    assert_eq!(cids(&host.flushes(&mut pair, &[1])), [1], "the write was lost, too");
    assert_eq!(host.function.disable_bus_mastering(), Ok(()));
    assert_eq!(host.flushes(&mut pair, &[2]), []);
    assert_eq!(host.happened(Kind::LostRead), 1);
    host.function.enable_bus_mastering().unwrap();
    works(&mut host);
}

#[test]
fn a_dead_admin_queue_and_io_that_goes_on() {
    let (mut host, mut pair) = with_pair();
    host.arm(At::Turn(1), Life::DeadAdmin);
    assert_eq!(cids(&host.flushes(&mut pair, &[1, 2])), [1, 2]);
    host.admin.push(Sqe::abort(1, 1));
    host.admin.ring();
    host.turns(100);
    assert!(host.admin.peek().is_none());
    assert_eq!(cids(&host.flushes(&mut pair, &[3])), [3]);
    host.model.faults().clear();
    host.turns(100);
    assert!(host.admin.peek().is_none(), "what has happened is not undone");
    assert_eq!(host.happened(Kind::DeadAdmin), 1);
    works(&mut host);
}

#[test]
fn what_is_cleared_does_not_happen() {
    let mut host = Host::new(small());
    for life in [
        Life::FatalAtEnable,
        Life::FatalAtDisable,
        Life::NeverReady,
        Life::NeverUnready,
        Life::EarlyUnready { dma_turns: 5 },
        Life::ResetFails,
        Life::ResetLost,
        Life::LostRead,
    ] {
        host.arm(At::Now, life);
    }
    host.arm(At::Turn(50), Life::AllOnes { dma_turns: 0 });
    host.arm(At::Access(500), Life::Fatal);
    host.model.faults().clear();
    host.function.disable_bus_mastering().unwrap();
    heal(&mut host);
    host.turns(100);
    for _ in 0..600 {
        host.csts();
    }
    assert_eq!(host.model.faults().counters().total(), 0);
    works(&mut host);
}

#[test]
fn an_nvm_subsystem_reset() {
    for nssrs in [false, true] {
        let mut host = Host::new(ModelConfig { nssrs, ..small() });
        let mut pair = host.io_pair(1, 8);
        let data = host.memory(4096);
        pair.push(Sqe::read(1, 0, count(8)).with_prp1(data.iova().get()));
        host.function.write_u32(offset::NSSR, NSSR_RESET ^ 1);
        assert!(host.csts().rdy(), "another value does nothing");
        pair.ring();
        host.function.write_u32(offset::NSSR, NSSR_RESET);
        host.turns(10);
        if !nssrs {
            assert_eq!((host.csts().rdy(), host.model.counters().reads), (true, 1));
            continue;
        }
        assert_eq!(host.model.counters().reads, 0);
        assert_eq!(host.csts(), Csts::default().with_nssro(true));
        assert_eq!((host.function.read_u32(offset::AQA), host.function.read_u32(offset::NSSR)), (0, 0));
        host.function.enable_bus_mastering().unwrap();
        works(&mut host);
        assert!(host.csts().nssro(), "until it is cleared");
        host.function.write_u32(offset::CSTS, 1);
        assert!(host.csts().nssro());
        host.function.write_u32(offset::CSTS, 1 << 4);
        assert_eq!(host.csts(), Csts::default().with_rdy(true));
    }
}

#[test]
fn no_io_queue_fits_where_mqes_is_0() {
    let mut host = Host::new(ModelConfig { mqes: 0, ..small() });
    let pair = host.raw_pair(1, 2);
    let create = |entries| Sqe::create_io_completion_queue(1, count(entries), pair.cq.iova().get(), None);
    assert_eq!(host.code(create(1)), StatusCode::INVALID_QUEUE_SIZE);
    assert_eq!(host.code(create(2)), StatusCode::INVALID_QUEUE_SIZE);
}

#[test]
fn a_threaded_model_is_struck_from_outside() {
    let mut host = Host::driven(small(), Drive::Threaded);
    for round in 0..20 {
        let mut pair = host.io_pair(1, 64);
        host.befall_next(Action::Drop { execute: false });
        for cid in 0..63 {
            pair.push(Sqe::flush(1).with_cid(cid));
        }
        pair.ring();
        host.arm(At::Now, if round % 2 == 0 { Life::Fatal } else { Life::AllZeroes { dma_turns: 3 } });
        host.model.faults().clear();
        host.model.faults().put_back();
        host.function.write_u32(offset::AQA, 0x000F_000F);
        host.function.write_u64(offset::ASQ, host.admin.sq.iova().get());
        host.function.write_u64(offset::ACQ, host.admin.cq.iova().get());
        drop(pair);
        host.enable();
    }
    assert_eq!(host.model.violations(), []);
}
