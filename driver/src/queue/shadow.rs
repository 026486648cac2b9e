//! Doorbells in memory (NVM Express Base 2.1, 5.2.5 and Annex B.5): for an emulated controller, to which a write to a
//! register is a trap into its host.
//!
//! Beside each doorbell of an I/O queue there are two words: its *shadow*, to which this driver writes every new tail or
//! head, and its *EventIdx*, in which the controller says how far it has seen. The doorbell itself is rung only when the
//! new value passes EventIdx: as long as the controller looks by itself, EventIdx stays behind, and nothing is rung.
//!
//! **Memory order.** Before it sleeps the controller writes EventIdx, and then looks at the shadow once more; this side
//! writes the shadow and then looks at EventIdx. Each needs a full barrier between the two, which keeps the load from
//! passing the store: then at least one side sees what the other wrote. Without it both may read what was there before,
//! and the command waits until the next one comes. `loom_tests` shows that either barrier, left out, loses a wake-up; `protocol`
//! is this side of it.
//!
//! The admin queue's doorbells are always rung: the controller need not look at their shadows.

mod protocol;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

use protocol::{Shadow, ShadowMemory};

use crate::bus::{Doorbell, Function};
use crate::dma::{Access, HostMemory, HostMemoryError, Iova, Region, RegisterError, barrier};
use crate::spec::registers::offset::DOORBELLS;
use crate::spec::registers::{Cap, DoorbellKind, doorbell_offset};

/// Why there are no buffers for doorbells.
#[derive(Debug, Error)]
pub(crate) enum DoorbellBuffersError {
    /// The host has no memory for them.
    #[error("no memory for shadow doorbells: {0}")]
    Memory(#[from] HostMemoryError),
    /// Their memory could not be mapped.
    #[error("memory of shadow doorbells: {0}")]
    Register(#[from] RegisterError),
}

/// The Shadow Doorbell buffer and the EventIdx buffer of a controller, in that order, one memory page each (Base 2.1,
/// 5.2.5): queues whose doorbells lie beyond have none. They last as long as a ring uses them, whatever becomes of the
/// controller.
pub(crate) struct DoorbellBuffers {
    memory: Region<HostMemory>,
    /// Bytes of each.
    bytes: usize,
    dstrd: u8,
}

impl DoorbellBuffers {
    /// Buffers for a controller with memory pages of `page_size` bytes, all zeroes.
    pub(crate) fn new(function: &dyn Function, cap: Cap, page_size: u64) -> Result<Arc<Self>, DoorbellBuffersError> {
        let bytes = page_size as usize;
        let memory = function.dma().register(HostMemory::allocate(2 * bytes)?, Access::all())?;
        Ok(Arc::new(Self { memory, bytes, dstrd: cap.dstrd() }))
    }

    /// Where the Shadow Doorbell buffer lies.
    pub(crate) fn shadow_doorbells(&self) -> Iova {
        self.memory.iova()
    }

    /// Where the EventIdx buffer lies.
    pub(crate) fn event_idx(&self) -> Iova {
        // The second half of the region.
        self.memory.iova_at(self.bytes as u64).unwrap_or(self.memory.iova())
    }

    /// Makes all words zero, for a controller that does not know the buffers.
    pub(crate) fn clear(&self) {
        self.memory.view().fill(0);
    }

    /// The words of one doorbell of queue `qid`, both zero: the controller does not know the queue yet. `None` for one
    /// that the buffers have no room for.
    pub(super) fn words(self: &Arc<Self>, qid: u16, kind: DoorbellKind) -> Option<ShadowWords> {
        let place = (doorbell_offset(self.dstrd, qid, kind) - DOORBELLS) as usize;
        (place + 4 <= self.bytes).then(|| {
            let words = ShadowWords { buffers: Arc::clone(self), place };
            words.shadow().store(0, Ordering::Relaxed);
            words.event_idx().store(0, Ordering::Relaxed);
            words
        })
    }
}

/// The two words of one doorbell.
pub(super) struct ShadowWords {
    buffers: Arc<DoorbellBuffers>,
    /// Bytes from the start of each buffer.
    place: usize,
}

impl ShadowWords {
    fn shadow(&self) -> &AtomicU32 {
        self.buffers.memory.view().atomic_u32(self.place)
    }

    fn event_idx(&self) -> &AtomicU32 {
        self.buffers.memory.view().atomic_u32(self.buffers.bytes + self.place)
    }
}

impl ShadowMemory for ShadowWords {
    #[inline]
    fn write_shadow(&self, value: u32) {
        // Release: a controller that is a thread sees the entries before it.
        self.shadow().store(value, Ordering::Release);
    }

    #[inline]
    fn shadow_before_event_idx(&self) {
        barrier::store_before_load();
    }

    #[inline]
    fn read_event_idx(&self) -> u32 {
        self.event_idx().load(Ordering::Relaxed)
    }
}

/// One doorbell of a ring, with or without a shadow.
pub(super) struct RingDoorbell {
    register: Box<dyn Doorbell>,
    shadow: Option<Shadow<ShadowWords>>,
}

impl RingDoorbell {
    /// A doorbell without a shadow.
    pub(super) fn new(register: Box<dyn Doorbell>) -> Self {
        Self { register, shadow: None }
    }

    /// Gives the doorbell of a new queue a shadow.
    pub(super) fn cast_shadow(&mut self, words: Option<ShadowWords>) {
        self.shadow = words.map(Shadow::new);
    }

    /// Tells the device of a new value. Whether the register was written for that.
    #[inline]
    pub(super) fn ring(&mut self, value: u16) -> bool {
        if let Some(shadow) = &mut self.shadow
            && !shadow.publish(value)
        {
            return false;
        }
        self.register.ring(value);
        true
    }
}

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;
