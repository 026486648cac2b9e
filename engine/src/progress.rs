//! Waiting for lanes without asking all the time.
//!
//! A counter of the ends of batches' work, and a place to sleep until it moves. A lane pays one load when nobody
//! sleeps.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A wait that is as good as endless: 100 years.
const ENDLESS: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// `limit` from now on; a limit that no clock can hold is cut to one that nobody sees the end of.
pub(crate) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(ENDLESS)
}

/// What lanes announce and callers wait for.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    count: AtomicU64,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    moved: Condvar,
}

impl Progress {
    /// How far it is. Read before looking at what one waits for.
    pub(crate) fn now(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Moves on, after what is waited for has been published.
    pub(crate) fn announce(&self) {
        self.count.fetch_add(1, Ordering::Release);
        // Either this sees the sleeper, or the sleeper sees the new count before it sleeps.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.moved.notify_all();
        }
    }

    /// Sleeps until it has moved on from `seen`, or until `deadline`. Whether it has moved.
    pub(crate) fn wait(&self, seen: u64, deadline: Instant) -> bool {
        // A lane is usually about to finish something: look a few times before sleeping.
        for _ in 0..64 {
            if self.now() != seen {
                return true;
            }
            std::thread::yield_now();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.now() == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            guard = self.moved.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.now() != seen
    }
}

#[cfg(test)]
mod tests;
