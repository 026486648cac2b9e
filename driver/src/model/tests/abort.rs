//! Abort: what it finds, what it does not, and how many there may be.

use super::super::ModelConfig;
use super::super::faults::{Action, CommandQueue, Rule, When};
use super::host::{Host, count, small};
use crate::spec::command::{AdminOpcode, Sqe};
use crate::spec::completion::Cqe;
use crate::spec::status::StatusCode;

fn ends(cqes: Vec<Cqe>) -> Vec<(u16, u32, StatusCode)> {
    cqes.into_iter().map(|cqe| (cqe.cid, cqe.dw0, cqe.status.status().code())).collect()
}

/// A host whose I/O completion queue of four is full: three Flushes have completed, further ones wait.
fn stuck(config: ModelConfig) -> (Host, super::host::Pair) {
    let mut host = Host::new(config);
    let (cq, sq) = (host.raw_pair(1, 4), host.raw_pair(1, 16));
    let mut pair = sq;
    pair.cq = cq.cq;
    host.expect([
        (Sqe::create_io_completion_queue(1, count(4), pair.cq.iova().get(), None), StatusCode::SUCCESS),
        (
            Sqe::create_io_submission_queue(1, count(16), pair.sq.iova().get(), 1, Default::default()),
            StatusCode::SUCCESS,
        ),
    ]);
    for cid in 0..9 {
        pair.push(Sqe::flush(1).with_cid(cid));
    }
    pair.ring();
    host.turns(2);
    assert_eq!(host.model.counters().io_sqes, 3);
    (host, pair)
}

/// Takes completions from a ring of four.
fn take(pair: &mut super::host::Pair) -> Option<Cqe> {
    pair.size = 4;
    let cqe = pair.take();
    pair.size = 16;
    cqe
}

#[test]
fn a_command_that_waits_in_its_queue_is_aborted_before_its_abort_completes() {
    let (mut host, mut pair) = stuck(small());
    host.post(Sqe::abort(1, 5).with_cid(50));
    assert_eq!(ends(host.completions()), [], "the command has not completed");
    assert_eq!(host.code(Sqe::admin(AdminOpcode::KEEP_ALIVE, 0).with_cid(50)), StatusCode::COMMAND_ID_CONFLICT);
    let mut codes = Vec::new();
    while codes.len() < 9 {
        if let Some(cqe) = take(&mut pair) {
            codes.push((cqe.cid, cqe.status.status().code()));
            // There is room for command 5 once command 2 has been taken.
            if cqe.cid < 2 {
                assert_eq!(ends(host.completions()), [], "after command {}", cqe.cid);
            }
        }
        host.turns(1);
    }
    for (cid, code) in codes {
        let expected = if cid == 5 { StatusCode::COMMAND_ABORT_REQUESTED } else { StatusCode::SUCCESS };
        assert_eq!(code, expected, "command {cid}");
    }
    assert_eq!(ends(host.completions()), [(50, 0, StatusCode::SUCCESS)]);
    assert_eq!(host.model.counters().flushes, 8, "the aborted one was never executed");
    assert_eq!(host.admin(Sqe::abort(1, 5).with_cid(51)).dw0, 1, "it is gone now");
}

#[test]
fn more_aborts_than_the_limit() {
    let (mut host, mut pair) = stuck(ModelConfig { acl: 1, ..small() });
    host.post(Sqe::abort(1, 4).with_cid(50));
    host.post(Sqe::abort(1, 6).with_cid(51));
    assert_eq!(ends(host.completions()), []);
    assert_eq!(host.code(Sqe::abort(1, 7).with_cid(52)), StatusCode::ABORT_COMMAND_LIMIT_EXCEEDED);
    for _ in 0..20 {
        take(&mut pair);
        host.turns(1);
    }
    assert_eq!(ends(host.completions()), [(50, 0, StatusCode::SUCCESS), (51, 0, StatusCode::SUCCESS)]);
    assert_eq!(host.admin(Sqe::abort(1, 7).with_cid(53)).dw0, 1);
}

#[test]
fn what_an_abort_does_not_find() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1).with_cid(3)), StatusCode::SUCCESS);
    for (sqid, cid) in [(1, 3), (1, 4), (2, 3), (0xFFFF, 3), (0, 3)] {
        let cqe = host.admin(Sqe::abort(sqid, cid).with_cid(9));
        assert_eq!((cqe.dw0, cqe.status.status().code()), (1, StatusCode::SUCCESS), "{cid} of queue {sqid}");
    }
}

#[test]
fn an_admin_command_behind_its_abort_is_aborted() {
    let mut host = Host::new(small());
    host.admin.push(Sqe::abort(0, 31).with_cid(30));
    host.admin.push(Sqe::admin(AdminOpcode::KEEP_ALIVE, 0).with_cid(31));
    host.admin.ring();
    assert_eq!(ends(host.completions()), [(31, 0, StatusCode::COMMAND_ABORT_REQUESTED), (30, 0, StatusCode::SUCCESS)]);
}

#[test]
fn a_queue_that_is_deleted_takes_its_commands_with_it() {
    let (mut host, _pair) = stuck(small());
    host.post(Sqe::abort(1, 5).with_cid(50));
    host.post(Sqe::delete_io_submission_queue(1).with_cid(51));
    let mut ends = ends(host.completions());
    ends.sort();
    assert_eq!(ends, [(50, 1, StatusCode::SUCCESS), (51, 0, StatusCode::SUCCESS)], "nothing was aborted");
}

#[test]
fn a_command_that_is_held_back_is_aborted_before_its_abort_completes() {
    let mut host = Host::new(ModelConfig { acl: 0, ..small() });
    let mut pair = host.io_pair(1, 8);
    let delay = Action::Delay { turns: 10_000 };
    host.model.faults().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action: delay });
    pair.push(Sqe::flush(1).with_cid(3));
    pair.ring();
    host.turns(4);
    assert!(pair.take().is_none());
    host.admin.push(Sqe::abort(1, 3).with_cid(50));
    host.admin.push(Sqe::abort(1, 4).with_cid(51));
    host.admin.ring();
    assert_eq!(
        ends(host.completions()),
        [(51, 0, StatusCode::ABORT_COMMAND_LIMIT_EXCEEDED), (50, 0, StatusCode::SUCCESS)]
    );
    assert_eq!(pair.take().unwrap().status.status().code(), StatusCode::COMMAND_ABORT_REQUESTED);
    assert_eq!(host.model.counters().flushes, 0);
}

#[test]
fn an_abort_finds_its_command_while_faults_are_on_too() {
    let (mut host, mut pair) = stuck(small());
    let drop = Action::Drop { execute: false };
    host.model.faults().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1000), action: drop });
    host.post(Sqe::abort(1, 7).with_cid(50));
    let mut codes = Vec::new();
    for _ in 0..20 {
        codes.extend(take(&mut pair).map(|cqe| (cqe.cid, cqe.status.status().code())));
        host.turns(1);
    }
    assert_eq!(codes.len(), 9);
    assert!(codes.contains(&(7, StatusCode::COMMAND_ABORT_REQUESTED)), "{codes:?}");
    assert_eq!(ends(host.completions()), [(50, 0, StatusCode::SUCCESS)]);
}
