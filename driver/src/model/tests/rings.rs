//! Rings: wrap-around and phase, a full completion queue, many submission queues on one.

use super::super::{ModelConfig, StoreConfig};
use super::host::{Host, count, small};
use crate::spec::command::{QueuePriority, Sqe};
use crate::spec::status::StatusCode;

#[test]
fn entries_go_round_and_the_phase_turns() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 5);
    for cid in 0..100 {
        // `io` checks SQHD, SQID and CID, and the phase by which it is found.
        assert_eq!(host.io_code(&mut pair, Sqe::flush(1).with_cid(cid)), StatusCode::SUCCESS);
        assert!(pair.peek().is_none(), "one completion a command");
    }
    assert_eq!(host.model.counters().io_cqes, 100);
}

#[test]
fn a_full_completion_queue_holds_what_is_left_until_there_is_room() {
    let mut host = Host::new(small());
    // Sixteen commands and a completion queue for three.
    let mut pair = host.raw_pair(1, 17);
    let small_cq = host.raw_pair(2, 4);
    let create = Sqe::create_io_completion_queue(2, count(4), small_cq.cq.iova().get(), None);
    assert_eq!(host.code(create), StatusCode::SUCCESS);
    let create = Sqe::create_io_submission_queue(1, count(17), pair.sq.iova().get(), 2, QueuePriority::URGENT);
    assert_eq!(host.code(create), StatusCode::SUCCESS);
    (pair.cq, pair.cq_bell) = (small_cq.cq, small_cq.cq_bell);
    for cid in 0..16 {
        pair.push(Sqe::flush(1).with_cid(cid));
    }
    pair.ring();
    pair.size = 4;
    let mut next = 0;
    for room in [3, 1, 2, 3, 1, 3, 3] {
        for _ in 0..20 {
            host.model.turn();
        }
        assert!(!host.model.turn(), "nothing more can be done");
        let free = room.min(16 - next);
        for _ in 0..free {
            let cqe = pair.peek().expect("posted as soon as there was room");
            assert_eq!((cqe.cid, cqe.sqhd, cqe.sqid), (next, next + 1, 1));
            next += 1;
        }
        pair.cq_bell.ring(pair.head as u16);
    }
    assert_eq!(next, 16);
    assert!(pair.peek().is_none());
    assert_eq!(host.model.violations(), []);
}

#[test]
fn many_submission_queues_complete_in_one() {
    let mut host = Host::new(small());
    let mut shared = host.io_pair(1, 16);
    let mut others: Vec<_> = (2..=4).map(|qid| host.raw_pair(qid, 4)).collect();
    for other in &mut others {
        let base = other.sq.iova().get();
        let create = Sqe::create_io_submission_queue(other.sqid, count(4), base, 1, QueuePriority::LOW);
        assert_eq!(host.code(create), StatusCode::SUCCESS);
        for cid in 0..3 {
            other.push(Sqe::flush(1).with_cid(cid));
        }
        other.ring();
    }
    host.model.turn();
    let mut seen = [0u16; 5];
    while let Some(cqe) = shared.take() {
        let sqid = usize::from(cqe.sqid);
        assert_eq!((cqe.cid, cqe.sqhd), (seen[sqid], seen[sqid] + 1), "in the order of its own queue");
        seen[sqid] += 1;
    }
    assert_eq!(seen, [0, 0, 3, 3, 3]);
    assert_eq!(host.code(Sqe::delete_io_completion_queue(1)), StatusCode::INVALID_QUEUE_DELETION);
}

#[test]
fn no_queue_starves_beside_a_busy_one() {
    let config = ModelConfig { mqes: 1023, queues: 8, store: StoreConfig::Null, ..small() };
    let mut host = Host::new(config);
    let mut pairs: Vec<_> = (1..=8).map(|qid| host.io_pair(qid, 1024)).collect();
    for pair in &mut pairs {
        for _ in 0..1000 {
            pair.push(Sqe::flush(1));
        }
        pair.ring();
    }
    // More than a turn's budget is waiting: within eight turns each queue has had its share.
    for _ in 0..8 {
        host.model.turn();
    }
    for pair in &mut pairs {
        let mut done = 0;
        while pair.peek().is_some() {
            done += 1;
        }
        assert!(done >= 64, "SQ {}: {done}", pair.sqid);
    }
}

#[test]
fn a_deleted_queue_is_not_fetched_from() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    pair.push(Sqe::flush(1));
    // The admin command is served before the I/O queues of the same turn.
    host.admin.push(Sqe::delete_io_submission_queue(1));
    pair.ring();
    host.admin.ring();
    for _ in 0..5 {
        host.model.turn();
    }
    assert_eq!(host.admin.take().unwrap().status.status().code(), StatusCode::SUCCESS);
    assert!(pair.peek().is_none());
    assert_eq!(host.model.counters().flushes, 0);
}
