//! What the kernel signals: interrupts of the device, its wish to have the device back, errors of the bus.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use super::ioctl;

/// An eventfd(2) that the kernel signals. Its descriptor becomes readable then, for poll(2) and the like.
#[derive(Debug)]
pub struct Event(File);

impl Event {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(ioctl::event()?.into()))
    }

    /// Whether it has been signalled since the last time, and forgets that it has. Never blocks.
    pub fn take(&self) -> bool {
        let mut count = [0; 8];
        // Nothing to read is an error, as the descriptor does not block.
        (&self.0).read_exact(&mut count).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn an_event_is_taken_once() {
        let event = Event::new().unwrap();
        assert!(!event.take());
        for _ in 0..2 {
            (&event.0).write_all(&1u64.to_ne_bytes()).unwrap();
        }
        assert!(event.take());
        assert!(!event.take(), "both signals are one event");
    }
}
