//! Ctrl-C: a run ends early, with what it has so far.
//!
//! The first SIGINT or SIGTERM sets a flag that a run's loop looks at between requests; the second ends the process at once, with
//! [`EXIT_STATUS`], for a run that is stuck.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};

/// The exit status of a run that was interrupted: 128 and the number of SIGINT, as shells report it.
pub const EXIT_STATUS: u8 = 130;

/// Whether the user wants a run to end. Clones share one flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// One that signals set. For a process, once.
    ///
    /// # Errors
    /// What the operating system says when it does not let a handler be set.
    pub fn on_signals() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: a first signal finds the flag clear here, and sets it after.
            let status = i32::from(EXIT_STATUS);
            signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&interrupt.flag))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.flag))?;
        }
        // A file that may not grow any more is an error like others then (EFBIG), where the signal would end the process.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(interrupt)
    }

    /// Whether to end.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// What a signal does.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_by_every_clone() {
        let interrupt = Interrupt::on_signals().unwrap();
        let clone = interrupt.clone();
        assert!(!clone.is_set());
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert!(interrupt.is_set() && clone.is_set());
        assert!(!Interrupt::default().is_set(), "each has its own flag");
    }
}
