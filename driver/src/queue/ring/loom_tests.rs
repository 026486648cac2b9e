//! Both rings against a device in another thread, under every interleaving that loom finds, with each ordering present
//! and with each one left out.
//!
//! The entries are cells whose concurrent use loom reports; the doorbells are Relaxed, so that nothing but the orderings
//! that the ring asks of its memory stands between the two threads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};

use super::*;
use crate::spec::ZeroesBased;

/// Commands of a run: the completion ring, of two entries, goes round once.
const COMMANDS: u16 = 3;
const SUBMISSION_ENTRIES: u16 = 4;
const COMPLETION_ENTRIES: u16 = 2;

/// An ordering of the ring.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Nothing,
    StoresBeforeDoorbell,
    AcquirePhase,
    LoadsBeforeDoorbell,
}

struct Shared {
    submission: [UnsafeCell<[u64; 8]>; SUBMISSION_ENTRIES as usize],
    completion: [(UnsafeCell<[u64; 2]>, AtomicU32); COMPLETION_ENTRIES as usize],
    tail: AtomicU32,
    head: AtomicU32,
    left_out: Left,
}

impl Shared {
    fn new(left_out: Left) -> Self {
        Self {
            submission: std::array::from_fn(|_| UnsafeCell::new([0; 8])),
            completion: std::array::from_fn(|_| (UnsafeCell::new([0; 2]), AtomicU32::new(0))),
            tail: AtomicU32::new(0),
            head: AtomicU32::new(0),
            left_out,
        }
    }
}

// SAFETY: loom reports every use of a cell that nothing orders behind another thread's.
unsafe impl Sync for Shared {}

impl RingMemory for &Shared {
    fn write_entry(self, offset: usize, words: &[u64; 8]) {
        self.submission[offset / SQE].with_mut(|entry| {
            // SAFETY: loom lends the cell and reports any other use of it meanwhile.
            unsafe { *entry = *words }
        });
    }

    fn stores_before_doorbell(self) {
        if self.left_out != Left::StoresBeforeDoorbell {
            fence(Ordering::Release);
        }
    }

    fn acquire_phase(self, offset: usize) -> u32 {
        let weak = self.left_out == Left::AcquirePhase;
        self.completion[offset / CQE].1.load(if weak { Ordering::Relaxed } else { Ordering::Acquire })
    }

    fn read_entry(self, offset: usize) -> [u64; 2] {
        self.completion[offset / CQE].0.with(|entry| {
            // SAFETY: as above.
            unsafe { *entry }
        })
    }

    fn loads_before_doorbell(self) {
        if self.left_out != Left::LoadsBeforeDoorbell {
            fence(Ordering::Release);
        }
    }
}

struct Bell(Arc<Shared>, fn(&Shared) -> &AtomicU32);

impl Doorbell for Bell {
    fn ring(&self, value: u16) {
        (self.1)(&self.0).store(value.into(), Ordering::Relaxed);
    }
}

/// Waits until a doorbell has another value than `known`.
fn rung(bell: &AtomicU32, known: u16) -> u16 {
    loop {
        let value = bell.load(Ordering::Acquire) as u16;
        if value != known {
            return value;
        }
        loom::thread::yield_now();
    }
}

/// Fetches each command and completes it with what it read, where there is room.
fn device(shared: &Shared) {
    let (mut tail, mut head, mut phase) = (0, 0, 1);
    let mut place = 0u16;
    for number in 0..COMMANDS {
        while number >= tail {
            tail = rung(&shared.tail, tail);
        }
        let slba = shared.submission[usize::from(number)].with(|entry| {
            // SAFETY: as above.
            unsafe { (*entry)[5] }
        });
        let next = (place + 1) % COMPLETION_ENTRIES;
        while next == head {
            head = rung(&shared.head, head);
        }
        let (entry, last) = &shared.completion[usize::from(place)];
        entry.with_mut(|entry| {
            // SAFETY: as above.
            unsafe { *entry = [slba, 0] }
        });
        last.store(phase << 16 | u32::from(number), Ordering::Release);
        place = next;
        if place == 0 {
            phase ^= 1;
        }
    }
}

/// Submits all commands behind one doorbell and takes their completions, in a thread beside the device.
fn run(left_out: Left) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let shared = Arc::new(Shared::new(left_out));
        let device = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || device(&shared))
        };
        let bell = |which| Box::new(Bell(Arc::clone(&shared), which));
        let mut submission = SubmissionRing::new(0, SUBMISSION_ENTRIES, bell(|shared| &shared.tail));
        let mut completion = CompletionRing::new(0, COMPLETION_ENTRIES, bell(|shared| &shared.head));
        for number in 0..COMMANDS {
            let sqe = Sqe::read(1, u64::from(number) + 100, ZeroesBased::<u16>::from_raw(0));
            submission.push(&*shared, sqe);
        }
        assert!(submission.ring(&*shared));
        for number in 0..COMMANDS {
            let cqe = loop {
                match completion.pop(&*shared) {
                    Some(cqe) => break cqe,
                    None => loom::thread::yield_now(),
                }
            };
            assert_eq!((cqe.cid, cqe.dw0), (number, u32::from(number) + 100));
            assert!(completion.ring(&*shared));
        }
        device.join().unwrap();
    });
}

#[test]
fn every_command_reaches_the_device_and_every_completion_the_host() {
    run(Left::Nothing);
}

/// The negative controls: each ordering is needed, and loom sees it when it is left out.
#[test]
fn each_ordering_is_needed() {
    for left_out in [Left::StoresBeforeDoorbell, Left::AcquirePhase, Left::LoadsBeforeDoorbell] {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(left_out)));
        assert!(outcome.is_err(), "left out without harm: ordering {}", left_out as u8);
    }
}
