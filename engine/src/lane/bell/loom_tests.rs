//! A submitter and a lane that falls asleep or goes, under every interleaving that loom finds: nothing that was given to it
//! lies there unseen, and with either full barrier left out something does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU32, fence};

use super::*;

/// Things that are given to the lane, one after the other.
const GIVEN: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Nothing,
    /// Between what the lane says and its last look.
    LanesBarrier,
    /// Between what is given and the look at what the lane has said.
    GiversBarrier,
}

/// The word as one of the two sides uses it.
struct LoomWord {
    word: Arc<AtomicU8>,
    has_barrier: bool,
}

impl Word for LoomWord {
    fn load(&self) -> u8 {
        self.word.load(Ordering::Relaxed)
    }

    fn store(&self, value: u8) {
        self.word.store(value, Ordering::Relaxed);
    }

    fn full_barrier(&self) {
        if self.has_barrier {
            fence(Ordering::SeqCst);
        }
    }
}

fn run(last: u8, left_out: Left) {
    loom::model(move || {
        // The inbox orders what is put into it; here it must not, so that the protocol is alone.
        let (given, word) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU8::new(AWAKE)));
        let lane = {
            let given = Arc::clone(&given);
            let has_barrier = left_out != Left::LanesBarrier;
            let attendance = Attendance(LoomWord { word: Arc::clone(&word), has_barrier });
            loom::thread::spawn(move || {
                attendance.say(last);
                // Its last look: what it does not see now it sees when it is called.
                given.load(Ordering::Relaxed)
            })
        };
        let attendance = Attendance(LoomWord { word, has_barrier: left_out != Left::GiversBarrier });
        let mut called_for = 0;
        for number in 1..=GIVEN {
            given.store(number, Ordering::Relaxed);
            if attendance.ask() == last {
                called_for = number;
            }
        }
        let seen = lane.join().unwrap();
        assert!(seen == GIVEN || called_for == GIVEN, "seen {seen}, called for {called_for}");
    });
}

#[test]
fn nothing_lies_there_unseen() {
    for last in [ASLEEP, GONE] {
        run(last, Left::Nothing);
    }
}

/// The negative controls.
#[test]
fn either_barrier_is_needed() {
    for last in [ASLEEP, GONE] {
        for left_out in [Left::LanesBarrier, Left::GiversBarrier] {
            let outcome = catch_unwind(AssertUnwindSafe(|| run(last, left_out)));
            assert!(outcome.is_err(), "left out without harm: {left_out:?}");
        }
    }
}
