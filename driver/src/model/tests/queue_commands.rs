//! Creating and deleting I/O queues, and how many of them there are: every error that the specification names.

use super::super::{Drive, ModelConfig};
use super::host::{Host, cc, count, small};
use crate::spec::ZeroesBased;
use crate::spec::command::{FeatureIdentifier, NumberOfQueues, QueuePriority, Select, Sqe};
use crate::spec::status::StatusCode;

const BASE: u64 = 0x10_0000;

fn create_cq(qid: u16, entries: u32) -> Sqe {
    Sqe::create_io_completion_queue(qid, count(entries), BASE, None)
}

fn create_sq(qid: u16, cqid: u16, entries: u32) -> Sqe {
    Sqe::create_io_submission_queue(qid, count(entries), BASE, cqid, QueuePriority::URGENT)
}

fn expect(host: &mut Host, steps: impl IntoIterator<Item = (Sqe, StatusCode)>) {
    for (step, (sqe, code)) in steps.into_iter().enumerate() {
        assert_eq!(host.code(sqe), code, "step {step}: {sqe:?}");
    }
}

#[test]
fn completion_queues() {
    // Four queues of at most 64 entries.
    let mut host = Host::new(small());
    expect(
        &mut host,
        [
            (create_cq(0, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_cq(5, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_cq(1, 1), StatusCode::INVALID_QUEUE_SIZE),
            (create_cq(1, 65), StatusCode::INVALID_QUEUE_SIZE),
            (create_cq(1, 65_536), StatusCode::INVALID_QUEUE_SIZE),
            (create_cq(1, 8).with_pc(false), StatusCode::INVALID_FIELD_IN_COMMAND),
            (create_cq(1, 8).with_prp1(BASE + 64), StatusCode::PRP_OFFSET_INVALID),
            (Sqe::create_io_completion_queue(1, count(8), BASE, Some(5)), StatusCode::INVALID_INTERRUPT_VECTOR),
            (create_cq(1, 64), StatusCode::SUCCESS),
            (create_cq(1, 64), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::create_io_completion_queue(2, count(2), BASE, Some(4)), StatusCode::SUCCESS),
            (create_cq(3, 2), StatusCode::SUCCESS),
            (create_cq(4, 2), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(0), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_completion_queue(5), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_completion_queue(u16::MAX), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_completion_queue(4), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(4), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_cq(4, 2), StatusCode::SUCCESS),
        ],
    );
}

#[test]
fn submission_queues() {
    let mut host = Host::new(small());
    expect(
        &mut host,
        [
            (create_sq(1, 1, 8), StatusCode::COMPLETION_QUEUE_INVALID),
            (create_cq(1, 8), StatusCode::SUCCESS),
            (create_sq(0, 1, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(5, 1, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(1, 0, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(1, 5, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(1, 2, 8), StatusCode::COMPLETION_QUEUE_INVALID),
            (create_sq(1, 1, 1), StatusCode::INVALID_QUEUE_SIZE),
            (create_sq(1, 1, 65), StatusCode::INVALID_QUEUE_SIZE),
            (create_sq(1, 1, 8).with_pc(false), StatusCode::INVALID_FIELD_IN_COMMAND),
            (create_sq(1, 1, 8).with_prp1(BASE + 2048), StatusCode::PRP_OFFSET_INVALID),
            (create_sq(1, 1, 8), StatusCode::SUCCESS),
            (create_sq(1, 1, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(2, 1, 8), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(1), StatusCode::INVALID_QUEUE_DELETION),
            (Sqe::delete_io_submission_queue(0), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_submission_queue(3), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_submission_queue(u16::MAX), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (Sqe::delete_io_submission_queue(1), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(1), StatusCode::INVALID_QUEUE_DELETION),
            (Sqe::delete_io_submission_queue(2), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(1), StatusCode::SUCCESS),
        ],
    );
}

#[test]
fn entry_sizes_must_be_set_before_the_first_queue() {
    let mut host = Host::new(small());
    host.write_cc(cc(true).with_iocqes(0));
    expect(&mut host, [(create_cq(1, 8), StatusCode::INVALID_QUEUE_SIZE)]);
    host.write_cc(cc(true).with_iosqes(7));
    expect(&mut host, [(create_cq(1, 8), StatusCode::SUCCESS), (create_sq(1, 1, 8), StatusCode::INVALID_QUEUE_SIZE)]);
    host.write_cc(cc(true));
    expect(&mut host, [(create_sq(1, 1, 8), StatusCode::SUCCESS)]);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn queues_lie_on_pages_of_the_size_that_is_set() {
    let mut host = Host::disabled(small(), Drive::Stepped);
    host.enable_as(cc(true).with_mps(2));
    let at = |qid, base| create_cq(qid, 8).with_prp1(base);
    expect(
        &mut host,
        [
            (at(1, BASE + 0x1000), StatusCode::PRP_OFFSET_INVALID),
            (at(1, BASE + 0x2000), StatusCode::PRP_OFFSET_INVALID),
            (at(1, BASE + 0x4000), StatusCode::SUCCESS),
        ],
    );
    let data = host.memory(32 << 10);
    let mut pair = host.io_pair(2, 8);
    // One page of 16 KiB from PRP1, the rest from PRP2.
    let read = Sqe::read(1, 0, count(64)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, read.with_prp2(data.iova().get() + 0x4000)), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn as_many_queues_as_were_asked_for_and_are_there() {
    let mut host = Host::new(ModelConfig { queues: 4, ..small() });
    let ask = |nsq, ncq| Sqe::set_number_of_queues(NumberOfQueues::new(count(nsq), count(ncq)));
    let get = Sqe::get_features(FeatureIdentifier::NUMBER_OF_QUEUES, Select::CURRENT, 0);
    assert_eq!(host.admin(get).dw0, 0x0003_0003, "all, until asked");
    assert_eq!(host.admin(ask(64, 3)).dw0, 0x0002_0003);
    assert_eq!(host.admin(get).dw0, 0x0002_0003);
    assert_eq!(host.code(ask(65_536, 1)), StatusCode::INVALID_FIELD_IN_COMMAND);
    assert_eq!(host.code(ask(1, 65_536)), StatusCode::INVALID_FIELD_IN_COMMAND);
    assert_eq!(host.admin(ask(1, 2)).dw0, 0x0001_0000, "it may be asked again");
    expect(
        &mut host,
        [
            (create_cq(3, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_cq(2, 8), StatusCode::SUCCESS),
            (ask(2, 2), StatusCode::COMMAND_SEQUENCE_ERROR),
            (create_sq(2, 2, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(1, 3, 8), StatusCode::INVALID_QUEUE_IDENTIFIER),
            (create_sq(1, 2, 8), StatusCode::SUCCESS),
            (Sqe::delete_io_submission_queue(1), StatusCode::SUCCESS),
            (Sqe::delete_io_completion_queue(2), StatusCode::SUCCESS),
            (ask(2, 2), StatusCode::COMMAND_SEQUENCE_ERROR),
        ],
    );
    host.disable();
    host.enable();
    assert_eq!(host.admin(get).dw0, 0x0003_0003, "a reset takes it back");
    assert_eq!(host.code(ask(2, 2)), StatusCode::SUCCESS);
    assert_eq!(ZeroesBased::<u16>::from_raw(3), count(4));
}
