//! That no announcement is missed.

use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use super::*;

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[test]
fn what_has_moved_is_not_waited_for() {
    let progress = Progress::default();
    let seen = progress.now();
    progress.announce();
    assert!(progress.wait(seen, far()));
    assert!(!progress.wait(progress.now(), Instant::now()), "nothing moves it: the deadline ends the wait");
}

/// A missed announcement is a wait of an hour.
#[test]
fn each_of_many_sleepers_is_woken_each_time() {
    const ROUNDS: u64 = 2_000;
    const SLEEPERS: u64 = 3;
    let progress = Progress::default();
    let arrived = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    assert!(progress.wait(round, far()));
                    arrived.fetch_add(1, Ordering::Release);
                }
            });
        }
        for round in 0..ROUNDS {
            progress.announce();
            while arrived.load(Ordering::Acquire) < (round + 1) * SLEEPERS {
                thread::yield_now();
            }
        }
    });
    assert_eq!(progress.now(), ROUNDS);
}
