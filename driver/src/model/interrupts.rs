//! Interrupts, as MSI-X has them (NVM Express over PCIe Transport 1.1, 3.5): one vector for the admin queues and one for
//! each I/O completion queue.
//!
//! A vector that is not armed tells nobody, and keeps nothing for later, as one whose entry the kernel has masked and whose
//! pending bit nobody reads. The executor posts an entry and then looks whether its vector is armed; the host arms it and
//! then looks at the queue. Each has a full barrier between the two, so that one of them sees what the other did.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, write};

use super::board::Board;
use crate::bus::{BusError, Interrupt};

/// The vectors of a controller.
pub(super) struct Vectors(Box<[Vector]>);

#[derive(Default)]
struct Vector {
    armed: AtomicBool,
    /// Made when somebody first wants it.
    event: OnceLock<Arc<OwnedFd>>,
}

impl Vectors {
    /// Vectors for the admin queues and `queues` I/O queue pairs.
    pub(super) fn new(queues: u16) -> Self {
        Self((0..=queues).map(|_| Vector::default()).collect())
    }

    /// Entries have been posted to a completion queue with this vector.
    pub(super) fn raise(&self, vector: u16) {
        let Some(vector) = self.0.get(usize::from(vector)) else { return };
        // Between the entries and the look; see the module's head.
        fence(Ordering::SeqCst);
        if vector.armed.load(Ordering::Relaxed)
            && let Some(event) = vector.event.get()
        {
            // It is full after 2^64 of them, and readable then as well.
            let _ = write(event, &1u64.to_ne_bytes());
        }
    }
}

/// A vector in the hands of a driver.
pub(super) struct ModelInterrupt {
    board: Arc<Board>,
    vector: usize,
    event: Arc<OwnedFd>,
}

impl ModelInterrupt {
    pub(super) fn new(board: &Arc<Board>, vector: u16) -> Result<Self, BusError> {
        let Vectors(vectors) = &board.vectors;
        let none = BusError::NoInterrupt { vector, vectors: vectors.len() as u32 };
        let found = vectors.get(usize::from(vector)).ok_or(none)?;
        let event = match found.event.get() {
            Some(event) => event,
            None => {
                let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|_| none)?;
                found.event.get_or_init(|| Arc::new(event))
            }
        };
        Ok(Self { board: Arc::clone(board), vector: usize::from(vector), event: Arc::clone(event) })
    }

    fn forget(&self) {
        // Nothing to read is an error, as the descriptor does not block.
        let _ = read(&self.event, &mut [0; 8]);
    }

    fn armed(&self) -> &AtomicBool {
        let Vectors(vectors) = &self.board.vectors;
        &vectors[self.vector].armed
    }
}

impl AsFd for ModelInterrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Interrupt for ModelInterrupt {
    fn arm(&mut self) -> io::Result<()> {
        self.armed().store(true, Ordering::Relaxed);
        self.forget();
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn disarm(&mut self) {
        self.armed().store(false, Ordering::Relaxed);
        // What is raised at this very moment is read the next time, and tells of nothing then.
        self.forget();
    }
}
