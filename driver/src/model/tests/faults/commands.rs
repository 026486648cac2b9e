//! What can become of a command and of its completion.

use super::super::super::faults::{Action, CommandQueue, EndlessList, Kind, Rule, StrangeCid, When};
use super::super::host::{Host, count, small};
use super::{READ, all, cids, read};
use crate::spec::ZeroesBased;
use crate::spec::command::{AdminOpcode, Cns, LogPageIdentifier, NvmOpcode, Sqe};
use crate::spec::status::{Status, StatusCode};

fn codes(cqes: &[crate::spec::completion::Cqe]) -> Vec<StatusCode> {
    cqes.iter().map(|cqe| cqe.status.status().code()).collect()
}

#[test]
fn without_a_rule_nothing_is_odd() {
    let mut host = Host::new(small());
    host.model.faults().seed(9);
    let mut pair = host.io_pair(1, 8);
    assert_eq!(cids(&host.flushes(&mut pair, &[1, 2, 3])), [1, 2, 3]);
    assert_eq!(host.model.faults().counters().total(), 0);
}

#[test]
fn a_status_comes_in_place_of_execution_or_after_it() {
    for execute in [false, true] {
        let mut host = Host::new(small());
        let mut pair = host.io_pair(1, 8);
        let status = StatusCode::WRITE_FAULT.status().with_dnr(true);
        host.befall(CommandQueue::Io, None, When::Nth(2), Action::Status { status, execute });
        let cqes = host.flushes(&mut pair, &[1, 2, 3]);
        let statuses: Vec<Status> = cqes.iter().map(|cqe| cqe.status.status()).collect();
        assert_eq!(statuses, [Status::SUCCESS, status, Status::SUCCESS]);
        assert_eq!(host.model.counters().flushes, if execute { 3 } else { 2 });
        assert_eq!((host.model.counters().io_errors, host.happened(Kind::Status)), (1, 1));
    }
}

#[test]
fn rules_choose_by_queue_opcode_and_number() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 16);
    let fail = Action::Status { status: StatusCode::INTERNAL_ERROR.status(), execute: false };
    host.befall(CommandQueue::Io, READ, When::Next(2), fail);
    host.befall(CommandQueue::Admin, Some(AdminOpcode::GET_FEATURES.raw()), When::Nth(1), fail);
    let data = host.memory(4096);
    for cid in 0..4 {
        pair.push(Sqe::flush(1).with_cid(cid));
        pair.push(read(0, 1, data.iova().get()).with_cid(100 + cid));
    }
    pair.ring();
    host.turns(3);
    let failed: Vec<u16> =
        all(&mut pair).iter().filter(|cqe| !cqe.status.status().is_success()).map(|cqe| cqe.cid).collect();
    assert_eq!(failed, [100, 101]);
    let keep_alive = Sqe::admin(AdminOpcode::KEEP_ALIVE, 0);
    assert_eq!(host.code(keep_alive), StatusCode::INVALID_COMMAND_OPCODE, "as ever");
    assert_eq!(host.code(Sqe::admin(AdminOpcode::GET_FEATURES, 0)), StatusCode::INTERNAL_ERROR);
    assert_eq!(host.happened(Kind::Status), 3);
    assert!(!host.model.faults().counters().iter().any(|(kind, times)| kind != Kind::Status && times > 0));
}

#[test]
fn an_event_request_is_only_meant_by_name() {
    let mut host = Host::new(small());
    let drop = Action::Drop { execute: false };
    host.befall(CommandQueue::Admin, None, When::Next(1), drop);
    host.admin.push(Sqe::admin(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0));
    host.admin.ring();
    host.turns(3);
    assert_eq!(host.happened(Kind::Drop), 0);
    host.model.faults().clear();
    host.befall(CommandQueue::Admin, Some(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.raw()), When::Next(1), drop);
    host.admin.push(Sqe::admin(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0).with_cid(1));
    host.admin.ring();
    host.turns(3);
    assert_eq!(host.happened(Kind::Drop), 1);
}

#[test]
fn a_delayed_command_is_overtaken_and_executed_late() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    host.befall_next(Action::Delay { turns: 20 });
    assert_eq!(cids(&host.flushes(&mut pair, &[1, 2, 3])), [2, 3]);
    assert_eq!(host.model.counters().flushes, 2);
    host.turns(20);
    let cqes = all(&mut pair);
    assert_eq!((cids(&cqes), cqes[0].sqhd), (vec![1], 3));
    assert_eq!((host.model.counters().flushes, host.happened(Kind::Delay)), (3, 1));
    assert!(!host.model.turn(), "and nothing is left");
}

#[test]
fn a_delayed_command_can_be_aborted_and_a_dropped_one_cannot() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    host.befall(CommandQueue::Io, None, When::Nth(1), Action::Delay { turns: 1000 });
    host.befall(CommandQueue::Io, None, When::Nth(1), Action::Drop { execute: false });
    assert_eq!(host.flushes(&mut pair, &[1, 2]), []);
    let abort = |cid| Sqe::abort(1, cid);
    assert_eq!(host.admin(abort(1)).dw0 & 1, 0);
    host.turns(2);
    assert_eq!(codes(&all(&mut pair)), [StatusCode::COMMAND_ABORT_REQUESTED]);
    assert_eq!(host.admin(abort(1)).dw0 & 1, 1, "it has completed");
    assert_eq!(host.admin(abort(2)).dw0 & 1, 1, "dropped");
    assert_eq!(host.model.counters().flushes, 0);
    host.befall(CommandQueue::Admin, Some(AdminOpcode::ABORT.raw()), When::Nth(1), Action::Answer { dw0: 1 });
    host.befall_next(Action::Delay { turns: 5 });
    pair.push(Sqe::flush(1).with_cid(9));
    pair.ring();
    host.turns(1);
    assert_eq!(host.admin(abort(9)).dw0, 1, "not aborted, it says");
    host.turns(10);
    assert_eq!(codes(&all(&mut pair)), [StatusCode::SUCCESS]);
    assert_eq!(host.happened(Kind::Answer), 1);
}

#[test]
fn what_is_delayed_goes_with_its_queue_and_with_a_reset() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    host.befall(CommandQueue::Io, None, When::Next(2), Action::Delay { turns: 5 });
    host.flushes(&mut pair, &[1]);
    // It ended in the eight turns of `flushes`; the next does not.
    pair.push(Sqe::flush(1).with_cid(2));
    pair.ring();
    host.turns(1);
    assert_eq!(host.code(Sqe::delete_io_submission_queue(1)), StatusCode::SUCCESS);
    host.turns(20);
    assert_eq!((host.model.counters().flushes, all(&mut pair)), (1, vec![]));

    let mut pair = host.io_pair(2, 8);
    host.befall_next(Action::Delay { turns: 5 });
    pair.push(Sqe::flush(1).with_cid(2));
    pair.ring();
    host.turns(2);
    host.disable();
    host.enable();
    host.turns(20);
    assert_eq!((host.model.counters().flushes, pair.peek()), (1, None));
}

#[test]
fn a_dropped_command_never_completes_executed_or_not() {
    for execute in [false, true] {
        let mut host = Host::new(small());
        let mut pair = host.io_pair(1, 8);
        host.befall_next(Action::Drop { execute });
        assert_eq!(cids(&host.flushes(&mut pair, &[1, 2])), [2]);
        host.turns(1000);
        assert!(pair.peek().is_none());
        assert_eq!(host.model.counters().flushes, if execute { 2 } else { 1 });
    }
}

#[test]
fn a_duplicate_completes_twice_at_once_or_later() {
    for (turns, early) in [(0, vec![7, 8, 7]), (50, vec![7, 8])] {
        let mut host = Host::new(small());
        let mut pair = host.io_pair(1, 8);
        host.befall_next(Action::Duplicate { turns });
        assert_eq!(cids(&host.flushes(&mut pair, &[7, 8])), early);
        host.turns(60);
        assert_eq!(early.len() + all(&mut pair).len(), 3);
        assert_eq!((host.model.counters().flushes, host.happened(Kind::Duplicate)), (2, 1), "executed once");
    }
}

#[test]
fn a_duplicate_waits_for_room() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 3);
    host.befall_next(Action::Duplicate { turns: 0 });
    pair.push(Sqe::flush(1).with_cid(1));
    pair.push(Sqe::flush(1).with_cid(2));
    pair.ring();
    host.turns(10);
    assert_eq!((pair.peek().unwrap().cid, pair.peek().unwrap().cid, pair.peek()), (1, 2, None));
    pair.cq_bell.ring(pair.head as u16);
    host.turns(2);
    assert_eq!(pair.take().unwrap().cid, 1);
}

#[test]
fn strange_cids_come_besides_or_instead() {
    for (cid, seen, kind) in
        [(StrangeCid::Unknown, 5 | 1 << 14, Kind::UnknownCid), (StrangeCid::OutOfRange, 0xFFFF, Kind::OutOfRangeCid)]
    {
        for instead in [false, true] {
            let mut host = Host::new(small());
            let mut pair = host.io_pair(1, 8);
            host.befall_next(Action::StrangeCid { cid, instead });
            let expected = if instead { vec![seen] } else { vec![seen, 5] };
            assert_eq!(cids(&host.flushes(&mut pair, &[5])), expected);
            assert_eq!(host.happened(kind), 1);
        }
    }
}

#[test]
fn a_bad_sqhd_lies_outside_the_queue() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    host.befall(CommandQueue::Io, None, When::Nth(2), Action::BadSqhd);
    let heads: Vec<u16> = host.flushes(&mut pair, &[1, 2, 3]).iter().map(|cqe| cqe.sqhd).collect();
    assert_eq!((heads[0], heads[2]), (1, 3));
    assert!(heads[1] >= 8, "{heads:?}");
}

#[test]
fn a_stale_phase_hides_what_follows_until_it_is_right_or_for_ever() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    // In both rounds of the ring.
    for round in 0..2 {
        host.befall(CommandQueue::Io, None, When::Nth(2), Action::StalePhase { turns: Some(20) });
        assert_eq!(cids(&host.flushes(&mut pair, &[1, 2, 3, 4])), [1], "round {round}");
        host.turns(20);
        assert_eq!(cids(&all(&mut pair)), [2, 3, 4], "in order, once it is shown");
        assert_eq!(cids(&host.flushes(&mut pair, &[5, 6, 7])), [5, 6, 7]);
    }
    host.befall_next(Action::StalePhase { turns: None });
    assert_eq!(host.flushes(&mut pair, &[1, 2]), []);
    host.turns(100);
    assert_eq!((pair.peek(), host.happened(Kind::StalePhase)), (None, 3));
    assert_eq!(host.model.counters().io_cqes, 16, "but posted they are");
}

#[test]
fn namespace_lists_that_never_end() {
    let mut host = Host::new(small());
    let page = host.memory(4096);
    let list = |host: &mut Host, after: u32| {
        let identify = Sqe::identify(Cns::ACTIVE_NAMESPACE_LIST, after).with_prp1(page.iova().get());
        assert_eq!(host.code(identify), StatusCode::SUCCESS);
        let mut words = [0; 512];
        page.view().read_words(0, &mut words);
        (words[0] as u32, (words[511] >> 32) as u32)
    };
    assert_eq!(list(&mut host, 0), (1, 0), "the truth");
    for (kind, second) in [(EndlessList::Cycle, (1, 1024)), (EndlessList::Ascending, (1025, 2048))] {
        host.befall(CommandQueue::Admin, None, When::Next(2), Action::EndlessList(kind));
        let identify = Sqe::identify(Cns::CONTROLLER, 0).with_prp1(page.iova().get());
        assert_eq!(host.code(identify), StatusCode::SUCCESS, "which is no list");
        assert_eq!(list(&mut host, 0), (1, 1024));
        assert_eq!(list(&mut host, 1024), second);
    }
    assert_eq!(list(&mut host, 0), (1, 0));
    assert_eq!(host.happened(Kind::EndlessList), 4);
}

#[test]
fn garbage_is_random_and_the_same_for_the_same_seed() {
    let pages = |seed, armed| {
        let mut host = Host::new(small());
        host.model.faults().seed(seed);
        if armed {
            host.befall(CommandQueue::Admin, None, When::Next(2), Action::Garbage);
        }
        let page = host.memory(4096);
        let identify = Sqe::identify(Cns::CONTROLLER, 0).with_prp1(page.iova().get());
        assert_eq!(host.code(identify), StatusCode::SUCCESS);
        let (mut first, mut second) = ([0; 4096], [0; 4096]);
        page.view().read(0, &mut first);
        page.view().fill(0);
        let log = Sqe::get_log_page(
            LogPageIdentifier::SMART_HEALTH_INFORMATION,
            0xFFFF_FFFF,
            ZeroesBased::<u32>::from_raw(127),
        );
        assert_eq!(host.code(log.with_prp1(page.iova().get())), StatusCode::SUCCESS);
        page.view().read(0, &mut second);
        assert!(second[512..].iter().all(|byte| *byte == 0), "as much as was asked for");
        (first, second)
    };
    assert_eq!(pages(1, true), pages(1, true));
    assert_ne!(pages(1, true), pages(2, true));
    let (identify, _) = pages(1, false);
    assert_ne!(pages(1, true).0, identify);
    assert!(identify[4..24].starts_with(b"TENTPEG0001"));
}

#[test]
fn chances_are_the_same_for_the_same_seed() {
    let outcome = |seed| {
        let mut host = Host::new(small());
        host.model.faults().seed(seed);
        let fail = Action::Status { status: StatusCode::INTERNAL_ERROR.status(), execute: false };
        host.befall(CommandQueue::Io, None, When::Chance { per_million: 300_000, times: 20 }, fail);
        let mut pair = host.io_pair(1, 64);
        let failed: Vec<u16> = (0..100)
            .filter(|cid| !host.io(&mut pair, Sqe::flush(1).with_cid(*cid)).status.status().is_success())
            .collect();
        assert_eq!(host.happened(Kind::Status), failed.len() as u64);
        failed
    };
    let failed = outcome(5);
    assert_eq!(failed.len(), 20, "at most so many");
    assert!(failed[19] > 40, "about every third: {failed:?}");
    assert_eq!(outcome(5), failed);
    assert_ne!(outcome(6), failed);
}

#[test]
fn a_rule_that_is_cleared_or_for_nothing_does_nothing() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    let drop = Action::Drop { execute: false };
    host.befall(CommandQueue::Io, None, When::Next(0), drop);
    host.befall(CommandQueue::Io, None, When::Nth(0), drop);
    host.befall(CommandQueue::Io, Some(NvmOpcode::WRITE.raw()), When::Nth(1), drop);
    host.model.faults().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(3), action: drop });
    assert_eq!(cids(&host.flushes(&mut pair, &[1, 2])), [1, 2]);
    host.model.faults().clear();
    assert_eq!(cids(&host.flushes(&mut pair, &[3, 4])), [3, 4]);
    assert_eq!(host.model.faults().counters().total(), 0);
    let data = host.memory(4096);
    assert_eq!(host.io_code(&mut pair, Sqe::write(1, 0, count(1)).with_prp1(data.iova().get())), StatusCode::SUCCESS);
}
