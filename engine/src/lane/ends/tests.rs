//! What a lane ends of a batch that several lanes have: its own, and nothing of another one's.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tentpeg_driver::dma::Iova;

use super::*;
use crate::admission::RequestError;
use crate::batch::{Batch, BatchOptions};
use crate::lanes::LaneSet;
use crate::segment::Durability;
use crate::task::{Head, Operation, Spread, Transfer};
use crate::{OpCode, TransferState};
use TransferState::{Canceled, Failed, Pending};

fn transfer(lane: u8) -> Work {
    let head = Head::transfer(OpCode::Read, Durability::None, lane, 0);
    Work::Transfer(Transfer { head, slba: 0, iova: Iova::new(4096).unwrap(), length: 4096 })
}

fn spread(lanes: &[u8]) -> Work {
    let head = Head::spread(Operation::Read, Durability::None, 0);
    let lanes = lanes.iter().copied().collect::<LaneSet>();
    Work::Spread(Spread { head, lanes, offset: 0, memory: 4096, length: 4096 })
}

/// A batch of an engine with three lanes.
fn batch(works: &[Work]) -> Batch {
    let options = BatchOptions::with_capacity(works.len() as u32);
    let batch = Batch::new(options, 3, Arc::default(), Arc::new(AtomicUsize::new(1)));
    batch.append(works, |_| None, |work| Ok::<_, RequestError>(*work), |_| ()).unwrap();
    batch
}

fn states(batch: &Batch) -> Vec<TransferState> {
    (0..batch.tasks()).map(|task| batch.status(task).unwrap().state).collect()
}

fn cancel_all(batch: &Batch, lane: u8) -> u32 {
    let before = batch.overall().ended;
    let mut ends = Ends::default();
    for index in 0..batch.tasks() {
        assert!(cancel(&batch.shared, lane, index, &mut ends), "no command was issued");
    }
    batch.shared.count_ended(lane, ends);
    batch.overall().ended - before
}

#[test]
fn a_lane_cancels_its_own_tasks_and_shares() {
    let batch = batch(&[transfer(0), transfer(1), spread(&[1]), spread(&[0, 2])]);
    assert_eq!(cancel_all(&batch, 0), 1);
    assert_eq!(states(&batch), [Canceled, Pending, Pending, Pending], "the last one has a share left");
    assert_eq!(cancel_all(&batch, 2), 1);
    assert_eq!(states(&batch), [Canceled, Pending, Pending, Canceled]);
    assert_eq!(cancel_all(&batch, 1), 2);
    assert_eq!(states(&batch), [Canceled; 4]);
}

#[test]
fn what_another_lane_has_begun_is_not_canceled() {
    let batch = batch(&[spread(&[0, 1])]);
    batch.shared.task(0).unwrap().begin();
    let mut ends = Ends::default();
    assert!(!cancel(&batch.shared, 0, 0, &mut ends));
    assert_eq!((states(&batch), ends), (vec![Pending], Ends::default()));
}

#[test]
fn a_lane_that_goes_ends_its_own_tasks_and_the_shares_that_are_left() {
    let works = [transfer(0), transfer(1), spread(&[0, 1]), spread(&[1]), spread(&[0]), spread(&[0, 1])];
    let batch = batch(&works);
    // Up to the third task all is planned: the share of that has ended, or ends by itself.
    give_up(&batch.shared, 0, 3, Outcome::LOST);
    assert_eq!(states(&batch), [Failed, Pending, Pending, Pending, Failed, Pending]);
    assert_eq!(batch.overall().ended, 2);
    give_up(&batch.shared, 1, 0, Outcome::LOST);
    assert_eq!(states(&batch), [Failed, Failed, Pending, Failed, Failed, Failed]);
    end_share(&batch.shared, 0, 2, Outcome::SUCCESS);
    assert_eq!(states(&batch), [Failed; 6]);
    assert_eq!(batch.overall().ended, 6);
}
