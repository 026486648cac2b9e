//! What a batch says of its tasks, also while others append to it.

use std::sync::atomic::AtomicU64;
use std::thread;

use tentpeg_driver::dma::Iova;

use super::*;
use crate::segment::Durability;
use crate::task::{Head, Outcome, Transfer};
use crate::{OpCode, SegmentId};

const VALID: Result<Work, RequestError> =
    Ok(Work::Transfer(Transfer { head: HEAD, slba: 0, iova: Iova::new(4096).unwrap(), length: 4096 }));
const HEAD: Head = Head::transfer(OpCode::Read, Durability::None, 0, 0);
const INVALID: Result<Work, RequestError> = Err(RequestError::NoSegment { target_id: SegmentId(9) });

fn batch() -> Batch {
    let live = Arc::new(AtomicUsize::new(1));
    Batch::new(4, 1, Arc::default(), live)
}

/// Ends a task as a lane does.
fn end(batch: &Batch, task: u32) {
    let state = batch.shared.task(task).unwrap().part_ended(Outcome::SUCCESS).unwrap();
    batch.shared.count_ended(0, state == TransferState::Completed);
}

#[test]
fn valid_and_refused_tasks_are_told_apart_and_counted() {
    let batch = batch();
    assert_eq!(batch.append([VALID, INVALID, VALID].into_iter()), Ok((0, LaneSet::one(0))));
    assert_eq!(batch.append([INVALID].into_iter()), Ok((3, LaneSet::one(0))));
    assert!(batch.shared.link(0) && !batch.shared.link(0), "once, until the lane has looked");
    batch.shared.unlink(0);
    assert!(batch.shared.link(0));
    assert_eq!(batch.overall(), BatchStatus { tasks: 4, ended: 2, unsuccessful: 2 });
    let states: Vec<_> = (0..4).map(|task| batch.status(task).unwrap().state).collect();
    use TransferState::{Invalid, Pending};
    assert_eq!(states, [Pending, Invalid, Pending, Invalid]);
    assert_eq!(batch.refusal(3), Ok(INVALID.err()));
    assert_eq!(batch.refusal(2), Ok(None));
    end(&batch, 2);
    assert!(!batch.overall().is_finished());
    end(&batch, 0);
    assert_eq!(batch.overall(), BatchStatus { tasks: 4, ended: 4, unsuccessful: 2 });
    assert_eq!(batch.status(0).unwrap(), TransferStatus { state: TransferState::Completed, transferred_bytes: 4096 });
    assert_eq!(batch.status(1).unwrap().transferred_bytes, 0);
}

#[test]
fn a_task_that_does_not_exist_is_said_to_be_so() {
    let batch = batch();
    let none = batch.status(0).unwrap_err();
    assert_eq!(none.to_string(), "the batch has no task 0: it has 0");
    batch.append([VALID].into_iter()).unwrap();
    assert_eq!(batch.nvme_status(1), Err(NoSuchTask { task: 1, tasks: 1 }));
    assert_eq!(batch.refusal(u32::MAX), Err(NoSuchTask { task: u32::MAX, tasks: 1 }));
}

#[test]
fn an_empty_batch_is_finished() {
    assert!(batch().overall().is_finished());
    assert_eq!(batch().append(std::iter::empty()), Ok((0, LaneSet::default())));
    assert!(batch().wait(Duration::ZERO).is_ok());
}

/// A lane that counted an end without seeing what a submitter counted at the same moment looks once more.
#[test]
fn the_lane_announces_an_end_that_is_refused_tasks_too() {
    let batch = batch();
    assert_eq!(batch.append([INVALID].into_iter()), Ok((0, LaneSet::one(0))), "the lane is told");
    let seen = batch.shared.progress.now();
    batch.shared.settle();
    assert_ne!(batch.shared.progress.now(), seen);
    batch.append([VALID].into_iter()).unwrap();
    let seen = batch.shared.progress.now();
    batch.shared.settle();
    assert_eq!(batch.shared.progress.now(), seen, "one is pending");
}

fn of_lane(lane: u8) -> Result<Work, RequestError> {
    let head = Head::transfer(OpCode::Read, Durability::None, lane, 0);
    Ok(Work::Transfer(Transfer { head, slba: 0, iova: Iova::new(4096).unwrap(), length: 4096 }))
}

#[test]
fn each_lane_is_told_of_its_tasks_and_all_of_refused_ones() {
    let batch = Batch::new(4, 3, Arc::default(), Arc::new(AtomicUsize::new(1)));
    let lanes = |works: &[Result<Work, RequestError>]| {
        let (_, lanes) = batch.append(works.iter().copied()).unwrap();
        lanes.iter().collect::<Vec<_>>()
    };
    assert_eq!(lanes(&[of_lane(2), of_lane(0), of_lane(2)]), [0, 2]);
    assert_eq!(lanes(&[of_lane(1)]), [1]);
    assert_eq!(lanes(&[of_lane(1), INVALID]), [0, 1, 2]);
    assert!(batch.shared.link(1) && batch.shared.link(2), "each has a link of its own");
    assert_eq!(batch.overall(), BatchStatus { tasks: 6, ended: 1, unsuccessful: 1 });
}

/// Each of two lanes ends its last task at the same moment as the other: one of them sees both ends, and tells.
#[test]
fn of_lanes_that_end_at_the_same_time_one_tells() {
    for _ in 0..2_000 {
        let batch = Batch::new(2, 2, Arc::default(), Arc::new(AtomicUsize::new(1)));
        batch.append([of_lane(0), of_lane(1)].into_iter()).unwrap();
        thread::scope(|scope| {
            for lane in [0, 1] {
                let shared = &batch.shared;
                scope.spawn(move || {
                    shared.count_ended(lane, true);
                    shared.settle();
                });
            }
            // Nobody tells: a wait of an hour.
            assert!(batch.wait(Duration::from_secs(3600)).is_ok());
        });
    }
}

/// An iterator that says that it is longer than any batch, and is never asked for an item.
struct TooLong;

impl Iterator for TooLong {
    type Item = Result<Work, RequestError>;

    fn next(&mut self) -> Option<Self::Item> {
        unreachable!("nothing is appended")
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = TaskList::MAX as usize;
        (len, Some(len))
    }
}

impl ExactSizeIterator for TooLong {}

#[test]
fn what_does_not_fit_changes_nothing() {
    let batch = batch();
    batch.append([VALID].into_iter()).unwrap();
    let full = batch.append(TooLong).unwrap_err();
    assert_eq!(full.to_string(), "4294967264 requests do not fit: the batch has 1 tasks and holds at most 4294967264");
    assert_eq!(batch.tasks(), 1);
}

#[test]
fn a_wait_says_how_many_are_left() {
    let batch = batch();
    batch.append([VALID, VALID, INVALID].into_iter()).unwrap();
    let error = batch.wait(Duration::from_millis(3)).unwrap_err();
    assert_eq!(error.to_string(), "2 of 3 tasks have not ended within 3 ms");
    assert_eq!(batch.status(0).unwrap().state, TransferState::Pending, "they go on");
}

#[test]
fn a_wait_may_be_as_long_as_one_likes() {
    let batch = batch();
    batch.append([VALID].into_iter()).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| batch.wait(Duration::MAX));
        end(&batch, 0);
        assert!(waiter.join().expect("no panic").is_ok());
    });
}

/// One task never ends, so the batch is never finished, whatever is appended and ends meanwhile.
#[test]
fn a_batch_is_not_finished_while_a_task_of_it_is_pending() {
    let batch = batch();
    batch.append([VALID].into_iter()).unwrap();
    let wrong = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let status = batch.overall();
                if status.is_finished() || status.ended > status.tasks || status.unsuccessful > status.ended {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        for _ in 0..200_000 {
            let (task, _) = batch.append([INVALID, VALID, INVALID].into_iter()).unwrap();
            end(&batch, task + 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong.into_inner(), 0, "looks that found a wrong sum");
}
