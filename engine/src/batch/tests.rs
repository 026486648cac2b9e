//! What a batch says of its tasks, also while others append to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use tentpeg_driver::dma::Iova;
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::segment::Durability;
use crate::task::{Head, Outcome, TaskList, Transfer};
use crate::{OpCode, SegmentId};

const VALID: Result<Work, RequestError> =
    Ok(Work::Transfer(Transfer { head: HEAD, slba: 0, iova: Iova::new(4096).unwrap(), length: 4096 }));
const HEAD: Head = Head::transfer(OpCode::Read, Durability::None, 0, 0);
const INVALID: Result<Work, RequestError> = Err(RequestError::NoSegment { target_id: SegmentId(9) });

fn batch() -> Batch {
    let live = Arc::new(AtomicUsize::new(1));
    Batch::new(BatchOptions::with_capacity(4), 1, Arc::default(), live)
}

/// Appends tasks as a submitter does.
fn append(batch: &Batch, works: &[Result<Work, RequestError>]) -> Result<(u32, LaneSet), SubmitError> {
    let transfer = |work: &Result<Work, RequestError>| match work {
        Ok(Work::Transfer(transfer)) => Some(*transfer),
        _ => None,
    };
    batch.append(works, transfer, |work| *work, |_| ())
}

/// Ends a task as a lane does.
fn end(batch: &Batch, task: u32) {
    let state = batch.shared.task(task).unwrap().part_ended(Outcome::SUCCESS).unwrap();
    batch.shared.count_ended(0, Ends::one(state));
}

#[test]
fn valid_and_refused_tasks_are_told_apart_and_counted() {
    let batch = batch();
    assert_eq!(append(&batch, &[VALID, INVALID, VALID]), Ok((0, LaneSet::one(0))));
    assert_eq!(append(&batch, &[INVALID]), Ok((3, LaneSet::default())), "once, until the lane has looked");
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
    append(&batch, &[VALID]).unwrap();
    assert_eq!(batch.nvme_status(1), Err(NoSuchTask { task: 1, tasks: 1 }));
    assert_eq!(batch.refusal(u32::MAX), Err(NoSuchTask { task: u32::MAX, tasks: 1 }));
}

#[test]
fn each_live_batch_has_a_name_of_its_own() {
    let (one, two) = (batch(), batch());
    assert_ne!(one.name(), two.name());
    assert_eq!(one.name(), one.clone().name());
}

#[test]
fn a_failure_has_its_reason() {
    let batch = batch();
    append(&batch, &[VALID, VALID, VALID, VALID, VALID]).unwrap();
    let status = StatusCode::WRITE_FAULT.status();
    let outcomes = [status.into(), Outcome::LOST, Outcome::NO_LANE, Outcome::CANCELED];
    for (task, outcome) in (0..).zip(outcomes) {
        batch.shared.task(task).unwrap().give_up(outcome);
    }
    let failures: Vec<_> = (0..5).map(|task| batch.failure(task).unwrap()).collect();
    use FailureReason::{Lost, NoLane, Status};
    assert_eq!(failures, [Some(Status(status)), Some(Lost), Some(NoLane), None, None]);
}

/// Whoever waits for all of it is not woken for each.
#[test]
fn an_end_that_is_not_the_last_is_not_announced() {
    let batch = batch();
    append(&batch, &[VALID, VALID]).unwrap();
    let seen = batch.shared.progress.now();
    end(&batch, 1);
    assert_eq!(batch.shared.progress.now(), seen);
    end(&batch, 0);
    assert_ne!(batch.shared.progress.now(), seen);
}

#[test]
fn an_empty_batch_is_finished() {
    assert!(batch().overall().is_finished());
    assert_eq!(append(&batch(), &[]), Ok((0, LaneSet::default())));
    assert!(batch().wait(Duration::ZERO).is_ok());
}

/// A lane that counted an end without seeing what a submitter counted at the same moment looks once more.
#[test]
fn the_lane_announces_an_end_that_is_refused_tasks_too() {
    let batch = batch();
    assert_eq!(append(&batch, &[INVALID]), Ok((0, LaneSet::one(0))), "the lane is told");
    let seen = batch.shared.progress.now();
    batch.shared.settle();
    assert_ne!(batch.shared.progress.now(), seen);
    append(&batch, &[VALID]).unwrap();
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
    let batch = Batch::new(BatchOptions::with_capacity(4), 3, Arc::default(), Arc::new(AtomicUsize::new(1)));
    let lanes = |works: &[Result<Work, RequestError>]| {
        let (_, lanes) = append(&batch, works).unwrap();
        lanes.iter().collect::<Vec<_>>()
    };
    assert_eq!(lanes(&[of_lane(2), of_lane(0), of_lane(2)]), [0, 2]);
    assert_eq!(lanes(&[of_lane(1)]), [1]);
    (0..3).for_each(|lane| batch.shared.take(lane));
    assert_eq!(lanes(&[of_lane(1), INVALID]), [0, 1, 2]);
    batch.shared.take(2);
    assert_eq!(lanes(&[of_lane(0), of_lane(1), of_lane(2)]), [2], "each has a link of its own");
    assert_eq!(batch.overall(), BatchStatus { tasks: 9, ended: 1, unsuccessful: 1 });
}

/// Each of two lanes ends its last task at the same moment as the other: one of them sees both ends, and tells.
#[test]
fn of_lanes_that_end_at_the_same_time_one_tells() {
    for _ in 0..2_000 {
        let batch = Batch::new(BatchOptions::with_capacity(2), 2, Arc::default(), Arc::new(AtomicUsize::new(1)));
        append(&batch, &[of_lane(0), of_lane(1)]).unwrap();
        thread::scope(|scope| {
            let lanes = [0, 1].map(|lane| {
                let shared = &batch.shared;
                scope.spawn(move || {
                    shared.count_ended(lane, Ends::one(TransferState::Completed));
                    shared.settle();
                })
            });
            // Nobody tells: a wait of an hour.
            assert!(batch.wait(Duration::from_secs(3600)).is_ok());
            // ThreadSanitizer sees these, and not the end of a scope.
            for lane in lanes {
                lane.join().unwrap();
            }
        });
    }
}

#[test]
fn what_does_not_fit_changes_nothing() {
    let batch = batch();
    append(&batch, &[VALID]).unwrap();
    // As many as a batch can hold, which take no memory themselves.
    let many = [(); TaskList::MAX as usize];
    let full = batch.append(&many, |_| None, |_| unreachable!("nothing is appended"), |_| ()).unwrap_err();
    assert_eq!(full.to_string(), "4294967264 requests do not fit: the batch has 1 tasks and holds at most 4294967264");
    assert_eq!(batch.tasks(), 1);
}

#[test]
fn a_wait_says_how_many_are_left() {
    let batch = batch();
    append(&batch, &[VALID, VALID, INVALID]).unwrap();
    let error = batch.wait(Duration::from_millis(3)).unwrap_err();
    assert_eq!(error.to_string(), "2 of 3 tasks have not ended within 3 ms");
    assert_eq!(batch.status(0).unwrap().state, TransferState::Pending, "they go on");
}

/// What ends of other batches keeps nobody beyond his limit.
#[test]
fn a_wait_ends_while_others_go_on() {
    let batch = batch();
    append(&batch, &[VALID]).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                batch.shared.progress.announce();
            }
        });
        assert_eq!(batch.wait(Duration::from_millis(20)).unwrap_err().left, 1);
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_wait_may_be_as_long_as_one_likes() {
    let batch = batch();
    append(&batch, &[VALID]).unwrap();
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
    append(&batch, &[VALID]).unwrap();
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
            let (task, _) = append(&batch, &[INVALID, VALID, INVALID]).unwrap();
            end(&batch, task + 1);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong.into_inner(), 0, "looks that found a wrong sum");
}

#[test]
fn what_is_asked_for_is_kept() {
    let BatchOptions { capacity, priority, notifier } = BatchOptions::with_capacity(9);
    assert_eq!((capacity, priority, notifier.is_none()), (9, Priority::High, true));
}

#[test]
fn what_was_freed_takes_no_more_and_waits_for_lanes_that_have_it() {
    let batch = batch();
    append(&batch, &[VALID]).unwrap();
    batch.shared.free();
    assert_eq!(append(&batch, &[VALID]), Err(SubmitError::Freed));
    assert!(batch.shared.is_canceled() && !batch.shared.is_let_go(), "the lane is to get it");
    batch.shared.take(0);
    end(&batch, 0);
    assert!(batch.overall().is_finished() && !batch.shared.is_let_go(), "the lane has it still");
    let seen = batch.shared.progress.now();
    batch.shared.let_go(0);
    assert!(batch.shared.is_let_go());
    assert_ne!(batch.shared.progress.now(), seen, "whoever waits is told");
    batch.free();
}

/// Whatever a lane that is about to drop its own handle keeps of it.
#[test]
fn what_was_freed_lives_no_more_and_has_dropped_its_notifier() {
    let (held, live) = (Arc::new(()), Arc::new(AtomicUsize::new(2)));
    let kept = Arc::clone(&held);
    let notifier = move |_: BatchStatus| _ = &kept;
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
    let batch = Batch::new(options, 1, Arc::default(), Arc::clone(&live));
    let of_lane = Arc::clone(&batch.shared);
    batch.clone().free();
    assert_eq!((live.load(Ordering::Relaxed), Arc::strong_count(&held)), (1, 1));
    batch.free();
    drop(of_lane);
    assert_eq!(live.load(Ordering::Relaxed), 1, "it was counted once");
}

/// Of two who free it the one that is later waits for the other, who drops what the notifier holds.
#[test]
fn neither_of_two_who_free_it_returns_before_its_notifier_is_gone() {
    struct Slow(mpsc::Sender<()>, Arc<AtomicBool>);
    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            // So that the other one has a chance to return too early.
            thread::sleep(Duration::from_millis(20));
            self.1.store(true, Ordering::Release);
        }
    }
    let ((begun, begins), dropped) = (mpsc::channel(), Arc::new(AtomicBool::new(false)));
    let slow = Slow(begun, Arc::clone(&dropped));
    let notifier = move |_: BatchStatus| _ = &slow;
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
    let batch = Batch::new(options, 1, Arc::default(), Arc::new(AtomicUsize::new(1)));
    let other = batch.clone();
    thread::scope(|scope| {
        scope.spawn(|| other.free());
        begins.recv().unwrap();
        batch.free();
        assert!(dropped.load(Ordering::Acquire));
    });
}

/// Two lanes count their last tasks at the same moment: one of their calls knows of both.
#[test]
fn of_two_calls_at_the_same_time_one_knows_of_both_ends() {
    for _ in 0..2_000 {
        let most = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&most);
        let notifier = move |status: BatchStatus| {
            told.fetch_max(status.ended.into(), Ordering::Relaxed);
        };
        let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::default() };
        let batch = Batch::new(options, 2, Arc::default(), Arc::new(AtomicUsize::new(1)));
        append(&batch, &[of_lane(0), of_lane(1)]).unwrap();
        // Joined one by one, as above.
        let lanes = [0, 1].map(|lane| {
            let shared = Arc::clone(&batch.shared);
            thread::spawn(move || shared.count_ended(lane, Ends::one(TransferState::Completed)))
        });
        for lane in lanes {
            lane.join().unwrap();
        }
        assert_eq!(most.load(Ordering::Relaxed), 2);
    }
}
