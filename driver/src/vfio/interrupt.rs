//! One interrupt of a device, for whoever sleeps by it.
//!
//! The kernel has MSI-X on from the moment on that an interrupt is made; a vector that is not armed has no handler, and is
//! masked in the device's table (PCI Express Base 6.0, 7.7.2). Arming and disarming make and unmake the handler, by a call
//! that may wait for other processors, and spare whoever polls an interrupt for each completion. What comes while it is masked stands in the pending bits, and is delivered when it is
//! armed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Event, VfioDevice};
use crate::bus::{BusError, Interrupt};

/// A vector in the hands of a lane.
pub(super) struct VfioInterrupt {
    device: Arc<VfioDevice>,
    vector: u16,
    event: Event,
    is_armed: bool,
}

impl VfioInterrupt {
    pub(super) fn new(device: Arc<VfioDevice>, vector: u16) -> Result<Self, BusError> {
        let none = |vectors| BusError::NoInterrupt { vector, vectors };
        let vectors = device.interrupt_vectors();
        if u32::from(vector) >= vectors {
            return Err(none(vectors));
        }
        let event = Event::new().map_err(|_| none(vectors))?;
        let mut interrupt = Self { device, vector, event, is_armed: false };
        // MSI-X is on from now on: a completion queue that interrupts must not do it by a pin. Some controllers look when
        // the queue is made.
        interrupt.arm().map_err(|_| none(vectors))?;
        interrupt.disarm();
        Ok(interrupt)
    }
}

impl AsFd for VfioInterrupt {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Interrupt for VfioInterrupt {
    fn arm(&mut self) -> io::Result<()> {
        if !self.is_armed {
            self.device.signal(self.vector, Some(&self.event))?;
            self.is_armed = true;
        }
        self.event.take();
        // The calls are one already, but nobody has promised that.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn disarm(&mut self) {
        if !std::mem::take(&mut self.is_armed) {
            return;
        }
        // A device that was cut off signals nothing.
        let _ = self.device.signal(self.vector, None);
        self.event.take();
    }
}
