//! A driver that writes the shadow and a device that falls asleep, under every interleaving that loom finds: no wake-up is
//! lost, and with either full barrier left out one is.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};

use super::*;

/// Values that the driver writes, one after the other.
const VALUES: u16 = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Nothing,
    DriversBarrier,
    DevicesBarrier,
}

struct Words {
    shadow: AtomicU32,
    event_idx: AtomicU32,
    left_out: Left,
}

impl ShadowMemory for Arc<Words> {
    fn write_shadow(&self, value: u32) {
        self.shadow.store(value, Ordering::Release);
    }

    fn shadow_before_event_idx(&self) {
        if self.left_out != Left::DriversBarrier {
            fence(Ordering::SeqCst);
        }
    }

    fn read_event_idx(&self) -> u32 {
        self.event_idx.load(Ordering::Relaxed)
    }
}

/// Looks as long as there is news, then says how far it has seen and looks once more. What it saw last.
fn device(words: &Words) -> u32 {
    let mut seen = 0;
    loop {
        let mut value = words.shadow.load(Ordering::Acquire);
        if value == seen {
            words.event_idx.store(seen, Ordering::Release);
            if words.left_out != Left::DevicesBarrier {
                fence(Ordering::SeqCst);
            }
            value = words.shadow.load(Ordering::Acquire);
            if value == seen {
                return seen;
            }
        }
        seen = value;
    }
}

fn run(left_out: Left) {
    loom::model(move || {
        let (shadow, event_idx) = (AtomicU32::new(0), AtomicU32::new(0));
        let words = Arc::new(Words { shadow, event_idx, left_out });
        let device = {
            let words = Arc::clone(&words);
            loom::thread::spawn(move || device(&words))
        };
        let mut shadow = Shadow::new(words);
        let rung = (1..=VALUES).filter(|value| shadow.publish(*value)).last().unwrap_or(0);
        let seen = device.join().unwrap();
        // The device sleeps: what it has not seen it must have been called for.
        assert!(seen == u32::from(VALUES) || u32::from(rung) > seen, "seen {seen}, rung {rung}");
    });
}

#[test]
fn no_wake_up_is_lost() {
    run(Left::Nothing);
}

/// The negative controls.
#[test]
fn either_barrier_is_needed() {
    for left_out in [Left::DriversBarrier, Left::DevicesBarrier] {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(left_out)));
        assert!(outcome.is_err(), "left out without harm: {left_out:?}");
    }
}
