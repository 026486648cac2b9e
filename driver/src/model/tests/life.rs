//! Enable, reset, shutdown and removal, and doorbells that are rung when they must not be.

use super::super::{DoorbellId, Drive, Model, ModelConfig, SoftwareIommu, Violation};
use super::host::{Host, Pair, cc, count, small};
use crate::bus::{BusError, Function};
use crate::spec::command::Sqe;
use crate::spec::registers::{Csts, DoorbellKind, ShutdownNotification, ShutdownStatus, doorbell_offset, offset};
use crate::spec::status::StatusCode;

fn sq(qid: u16) -> DoorbellId {
    DoorbellId { qid, kind: DoorbellKind::SubmissionTail }
}

fn cq(qid: u16) -> DoorbellId {
    DoorbellId { qid, kind: DoorbellKind::CompletionHead }
}

#[test]
fn a_reset_takes_all_queues_and_none_of_its_commands_runs_afterwards() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    let data = host.memory(4096);
    for cid in 0..5 {
        pair.push(Sqe::read(1, 0, count(1)).with_prp1(data.iova().get()).with_cid(cid));
    }
    pair.ring();
    host.write_cc(cc(false));
    assert!(host.csts().rdy(), "RDY follows later");
    assert!(host.wait(|host| !host.csts().rdy()));
    let before = host.model.counters();
    for _ in 0..10 {
        host.model.turn();
    }
    assert_eq!(host.model.counters(), before, "no DMA after RDY = 0");
    assert_eq!(before.reads, 0);
    assert!(pair.peek().is_none());

    host.enable();
    for _ in 0..10 {
        host.model.turn();
    }
    assert_eq!(host.model.counters(), before, "the rings of the former life are forgotten");
    assert_eq!(host.code(Sqe::delete_io_submission_queue(1)), StatusCode::INVALID_QUEUE_IDENTIFIER);
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn doorbells_that_must_not_be_rung_are_recorded_and_not_heard() {
    let mut host = Host::disabled(small(), Drive::Stepped);
    host.admin.push(Sqe::flush(1));
    host.admin.ring();
    assert_eq!(
        host.model.violations(),
        [Violation::DoorbellWhileNotReady { doorbell: sq(0), value: 1 }],
        "EN and RDY are 0"
    );
    host.write_cc(cc(true));
    host.admin.ring();
    assert_eq!(host.model.violations().len(), 2, "EN is 1 and RDY is 0");
    assert!(host.wait(|host| host.csts().rdy()));
    for _ in 0..10 {
        host.model.turn();
    }
    assert_eq!(host.model.counters().admin_sqes, 0);

    host.enable_again();
    let pair = host.io_pair(1, 8);
    let violations = host.model.violations().len();
    pair.sq_bell.ring(8);
    pair.cq_bell.ring(8);
    let other = host.raw_pair(2, 8);
    other.sq_bell.ring(0);
    assert_eq!(
        host.model.violations()[violations..],
        [
            Violation::DoorbellOutOfRange { doorbell: sq(1), value: 8, size: 8 },
            Violation::DoorbellOutOfRange { doorbell: cq(1), value: 8, size: 8 },
            Violation::DoorbellWithoutQueue { doorbell: sq(2), value: 0 },
        ]
    );
    host.disable();
    let violations = host.model.violations().len();
    pair.sq_bell.ring(1);
    host.enable();
    pair.sq_bell.ring(1);
    assert_eq!(
        host.model.violations()[violations..],
        [
            Violation::DoorbellOfFormerEpoch { doorbell: sq(1), value: 1 },
            Violation::DoorbellOfFormerEpoch { doorbell: sq(1), value: 1 },
        ]
    );
    for _ in 0..10 {
        host.model.turn();
    }
    assert_eq!(host.model.counters().io_sqes, 0);
}

impl Host {
    fn enable_again(&mut self) {
        self.disable();
        self.enable();
    }
}

#[test]
fn a_tail_that_passes_the_head_and_a_head_that_passes_the_tail_are_recorded() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 4);
    for _ in 0..3 {
        pair.push(Sqe::flush(1));
    }
    pair.ring();
    // Looked at, and not fetched: the completion queue of four has room for three.
    host.model.turn();
    assert_eq!(host.model.counters().io_sqes, 3);
    for _ in 0..2 {
        pair.push(Sqe::flush(1));
    }
    pair.ring();
    host.model.turn();
    assert_eq!(host.model.violations(), [], "two more that wait");
    for _ in 0..2 {
        pair.push(Sqe::flush(1));
    }
    pair.ring();
    host.model.turn();
    assert_eq!(host.model.violations(), [Violation::SubmissionQueueOverrun { qid: 1, head: 3, tail: 3 }]);

    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    pair.cq_bell.ring(3);
    pair.push(Sqe::flush(1));
    pair.ring();
    host.model.turn();
    assert_eq!(host.model.violations(), [Violation::CompletionQueueOverrun { qid: 1, head: 3, tail: 1 }]);
}

#[test]
fn doorbells_lie_as_far_apart_as_the_stride_says() {
    let host = Host::new(ModelConfig { dstrd: 3, queues: 2, ..small() });
    let last = doorbell_offset(3, 2, DoorbellKind::CompletionHead);
    assert!(host.function.doorbell(last).is_ok());
    let end = last + 32;
    let refused = |offset| host.function.doorbell(offset).err();
    assert_eq!(refused(last + 32), Some(BusError::NoRegister { offset: last + 32, end }));
    assert!(refused(last + 4).is_some() && refused(offset::CC).is_some());
    let mut host = host;
    let mut pair = host.io_pair(2, 4);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
}

#[test]
fn a_doorbell_can_be_written_as_a_register_too() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 4);
    pair.push(Sqe::flush(1).with_cid(5));
    host.function.write_u32(doorbell_offset(0, 1, DoorbellKind::SubmissionTail), 1);
    assert!(host.wait(|host| host.model.counters().flushes == 1));
    assert_eq!(pair.take().unwrap().cid, 5);
    host.function.write_u32(doorbell_offset(0, 1, DoorbellKind::SubmissionTail), 9);
    assert_eq!(host.model.violations(), [Violation::DoorbellOutOfRange { doorbell: sq(1), value: 9, size: 4 }]);
}

#[test]
fn a_shutdown_ends_and_nothing_is_executed_after_it() {
    let mut host = Host::new(ModelConfig { shutdown_delay: 5, ..small() });
    let mut pair = host.io_pair(1, 8);
    host.write_cc(cc(true).with_shn(ShutdownNotification::NORMAL));
    assert_eq!(host.csts().shst(), ShutdownStatus::IN_PROGRESS);
    assert!(host.wait(|host| host.csts().shst() == ShutdownStatus::COMPLETE));
    pair.push(Sqe::flush(1));
    pair.ring();
    for _ in 0..10 {
        host.model.turn();
    }
    assert!(pair.peek().is_none());
    host.enable_again();
    assert_eq!(host.csts(), Csts::default().with_rdy(true));
}

#[test]
fn a_ring_that_is_not_mapped_is_fatal_and_a_reset_heals_it() {
    let mut host = Host::new(small());
    let pair = host.io_pair(1, 8);
    let address = pair.sq.iova().get();
    let Pair { sq: ring, sq_bell, .. } = pair;
    drop(ring);
    sq_bell.ring(1);
    assert!(host.wait(|host| host.csts().cfs()));
    let [violation] = host.model.violations()[..] else { panic!() };
    assert!(violation.to_string().contains(&format!("SQ 1: {address:#x} was to be read, but is not mapped")));
    host.disable();
    assert_eq!(host.csts(), Csts::default());
    host.enable();
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
}

#[test]
fn registers_end_somewhere_and_a_model_that_is_gone_reads_as_ones() {
    let host = Host::new(small());
    let function = host.model.function();
    // Five pairs of doorbells of four bytes fit in a page after the registers.
    assert_eq!(function.read_u32(0x1FFC), 0);
    assert_eq!(function.read_u32(0x2000), u32::MAX);
    assert_eq!(function.read_u32(2), u32::MAX, "no dword begins there");
    assert_eq!(function.read_u64(offset::CAP) as u16, 63);
    assert_eq!(function.name(), "model");
    drop(host.model);
    assert_eq!(function.read_u64(offset::CAP), u64::MAX);
    assert_eq!(function.read_u32(offset::CSTS), u32::MAX);
    function.write_u32(offset::CC, 0);
    function.pause();
    host.admin.sq_bell.ring(0);
}

#[test]
fn models_of_one_iommu_share_its_space() {
    let iommu = SoftwareIommu::new();
    let make = |drive| Model::new(small(), drive, &iommu).unwrap().function();
    let (one, other) = (make(Drive::Stepped), make(Drive::Threaded));
    assert!(std::sync::Arc::ptr_eq(one.dma(), other.dma()));
}
