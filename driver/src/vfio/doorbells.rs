//! Doorbells: mapped where the kernel lets them be, written by a call where it does not.
//!
//! Handles are given out for one life of the controller. When that ends every mapping of it is made to lead nowhere,
//! whoever is ringing; handles of the next life stand on a mapping of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::VfioDevice;
use super::capability::Area;
use super::device::BAR0;
use super::mapping::Mapping;
use crate::bus::{BusError, Doorbell};
use crate::dma::barrier;

/// The doorbells of a function.
pub(super) struct Doorbells {
    device: Arc<VfioDevice>,
    life: Mutex<Life>,
}

/// What handles that were given out since the last revocation stand on.
#[derive(Default)]
struct Life {
    mapped: Vec<(Area, Arc<Mapping>)>,
    state: Arc<LifeState>,
}

/// Whether a life has ended, for handles.
#[derive(Default)]
struct LifeState {
    /// Looked at before each ring. It alone would not do: a lane may have looked just before.
    over: AtomicBool,
    /// Held while a doorbell is written by a call, so that the end of a life waits for that.
    calling: RwLock<()>,
}

impl Doorbells {
    pub(super) fn new(device: Arc<VfioDevice>) -> Self {
        Self { device, life: Mutex::new(Life::default()) }
    }

    /// A handle to the doorbell at `offset` of BAR 0, a multiple of 4 that has a register.
    pub(super) fn at(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let area = self.device.registers().areas.iter().find(|area| area.contains(offset, 4)).copied();
        let Some(area) = area else {
            let (device, state) = (Arc::clone(&self.device), Arc::clone(&life.state));
            return Ok(Box::new(CalledDoorbell { device, offset, state }));
        };
        let gone = BusError::Gone { what: "the mapping of its doorbells" };
        let mapping = match life.mapped.iter().find(|(mapped, _)| *mapped == area) {
            Some((_, mapping)) => Arc::clone(mapping),
            None => {
                let mapping = self.device.map(BAR0, area).map_err(|_| gone)?;
                life.mapped.push((area, Arc::clone(&mapping)));
                mapping
            }
        };
        let word = usize::try_from(offset - area.offset).map_err(|_| gone)?;
        if !self.device.memory_enabled() {
            return Err(gone);
        }
        mapping.fault_in(word);
        Ok(Box::new(MappedDoorbell { mapping, word, state: Arc::clone(&life.state) }))
    }

    /// Makes every handle that was given out lead nowhere. When this returns no ring of one reaches the device.
    pub(super) fn revoke(&self) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        let Life { mapped, state } = std::mem::take(&mut *life);
        state.over.store(true, Ordering::Release);
        for (_, mapping) in &mapped {
            // The kernel replaces the whole of a mapping by another of the same size, for which it needs no more than
            // it has. If it refuses all the same, rings from now on end at the look before them.
            let revoked = mapping.revoke();
            debug_assert!(revoked, "{}: a mapping was not replaced", std::io::Error::last_os_error());
        }
        drop(state.calling.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A doorbell in memory.
struct MappedDoorbell {
    mapping: Arc<Mapping>,
    word: usize,
    state: Arc<LifeState>,
}

impl Doorbell for MappedDoorbell {
    #[inline]
    fn ring(&self, value: u16) {
        barrier::stores_before_doorbell();
        if self.state.over.load(Ordering::Relaxed) {
            return;
        }
        if let Some(word) = self.mapping.word(self.word) {
            word.store(u32::from(value).to_le(), Ordering::Relaxed);
        }
    }
}

/// A doorbell in a part of the BAR that the kernel does not let be mapped: beside the table of MSI-X, in older kernels.
struct CalledDoorbell {
    device: Arc<VfioDevice>,
    offset: u64,
    state: Arc<LifeState>,
}

impl Doorbell for CalledDoorbell {
    fn ring(&self, value: u16) {
        barrier::stores_before_doorbell();
        let _calling = self.state.calling.read().unwrap_or_else(PoisonError::into_inner);
        if !self.state.over.load(Ordering::Acquire) {
            self.device.write_register(self.offset, u32::from(value).to_le_bytes());
        }
    }
}
