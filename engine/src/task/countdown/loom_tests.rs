//! Lanes that end their shares of a task at the same time, under every interleaving that loom finds: one of them ends the
//! task, with all bytes and the failure before it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic;

use super::*;

/// Lanes, each with one share.
const LANES: u32 = 3;
/// What stands back behind any other failure.
const WEAK: u32 = 9;

struct LoomWord {
    word: atomic::AtomicU32,
    /// Whether the countdown orders nothing.
    relaxed: bool,
}

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u32 {
        self.word.load(order)
    }

    fn fetch_sub(&self, value: u32, order: Ordering) -> u32 {
        self.word.fetch_sub(value, if self.relaxed { Ordering::Relaxed } else { order })
    }

    fn compare_exchange(&self, current: u32, new: u32, success: Ordering, failure: Ordering) -> Result<u32, u32> {
        self.word.compare_exchange(current, new, success, failure)
    }
}

struct Task {
    open: LoomWord,
    first_failure: LoomWord,
    /// What each lane has brought: nothing but the countdown orders it.
    bytes: Vec<atomic::AtomicU32>,
    ends: atomic::AtomicU32,
}

impl Task {
    /// Lane `lane` ends its share; the last lane's has failed, and the first one gives its own up.
    fn lane(&self, lane: u32) {
        self.bytes[lane as usize].store(1, Ordering::Relaxed);
        let outcome = match lane {
            0 => WEAK,
            _ if lane + 1 == LANES => 7,
            _ => 0,
        };
        if let Some(ended) = share_ended(&self.open, &self.first_failure, outcome, WEAK) {
            assert_eq!(ended, 7, "the failure is not seen");
            let arrived = self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u32>();
            assert_eq!(arrived, LANES, "bytes are not seen");
            self.ends.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn run(relaxed: bool) {
    loom::model(move || {
        let word = |value| LoomWord { word: atomic::AtomicU32::new(value), relaxed };
        let task = Arc::new(Task {
            open: word(LANES),
            first_failure: word(0),
            bytes: (0..LANES).map(|_| atomic::AtomicU32::new(0)).collect(),
            ends: atomic::AtomicU32::new(0),
        });
        let others: Vec<_> = (1..LANES)
            .map(|lane| {
                let task = Arc::clone(&task);
                loom::thread::spawn(move || task.lane(lane))
            })
            .collect();
        task.lane(0);
        others.into_iter().for_each(|lane| lane.join().unwrap());
        assert_eq!(task.ends.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_last_share_ends_the_task_with_all_that_the_others_did() {
    run(false);
}

/// The negative control.
#[test]
fn the_countdown_must_order_what_was_done() {
    assert!(catch_unwind(AssertUnwindSafe(|| run(true))).is_err());
}
