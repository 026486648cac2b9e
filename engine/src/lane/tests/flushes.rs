//! Flushes that a port issues for those that wait for one.

use tentpeg_driver::model::faults::{Action, When};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::status::StatusCode;

use super::segments::{Rig, cached, layout, member, small, three};
use super::*;
use TransferState::{Completed, Failed};

const BLOCK: u64 = 4096;

/// As often as any other command, and no more: the writes that wait for it have an end.
#[test]
fn a_flush_that_never_succeeds_is_asked_for_again_a_few_times() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::Flush));
    let status = StatusCode::NAMESPACE_NOT_READY.status();
    rig.fault(0, NvmOpcode::FLUSH, When::Next(1000), Action::Status { status, execute: false });
    let batch = rig.bench.submit(&[rig.bench.write(0, 0, BLOCK)]);
    rig.finish(&batch);
    assert_eq!((states(&batch), batch.nvme_status(0).unwrap()), (vec![Failed], Some(status)));
    assert_eq!(rig.bench.engine.counters().flushes, 1 + u64::from(crate::lane::ATTEMPTS));
}

/// Another host's device: nothing more is issued to it.
#[test]
fn a_flush_that_ends_in_a_conflict_is_the_last_command() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::Flush));
    let status = StatusCode::RESERVATION_CONFLICT.status();
    rig.fault(0, NvmOpcode::FLUSH, When::Nth(1), Action::Status { status, execute: false });
    for _ in 0..2 {
        let batch = rig.bench.submit(&[rig.bench.write(0, 0, BLOCK)]);
        rig.finish(&batch);
        assert_eq!((states(&batch), batch.nvme_status(0).unwrap()), (vec![Failed], Some(status)));
    }
    let counters = rig.bench.engine.counters();
    assert_eq!((counters.writes, counters.flushes), (1, 1));
    assert!(rig.bench.engine.taken_over().is_some());
}

/// The Flush that some writes wait for makes durable what was written before it, whoever wrote that.
#[test]
fn what_a_flush_for_others_has_covered_is_not_lost() {
    let layouts = vec![
        layout("first", Durability::None, vec![member(0, &[(0, 16)])]),
        layout("second", Durability::Flush, vec![member(0, &[(16, 16)])]),
    ];
    let mut rig = Rig::new(&[cached()], layouts);
    rig.bench.fill(0, BLOCK, 5);
    for segment in [SegmentId(1), SegmentId(2)] {
        assert_eq!(rig.transfer(segment, OpCode::Write, 0, 0, BLOCK), [Completed]);
    }
    rig.lose_power();
    assert_eq!(rig.transfer(SegmentId(1), OpCode::Read, 64 * BLOCK, 0, BLOCK), [Completed]);
    rig.bench.check(64 * BLOCK, BLOCK, 5);
    assert_eq!(rig.flush(SegmentId(1)), Completed);
}
