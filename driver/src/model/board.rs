//! What the two ends of a model share: the function that a driver holds, and the executor.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::config::{ModelConfig, StoreConfig};
use super::counters::Counters;
use super::doorbells::Doorbells;
use super::registers::Registers;
use super::violation::Violations;
use crate::spec::registers::{Cc, offset};

/// Registers, doorbells, and the records of what happened.
pub(super) struct Board {
    registers: Mutex<Registers>,
    /// Set where the executor has to look at the registers: the only trace of them on its way.
    attention: AtomicBool,
    /// The controller is no more; its function reads as all ones.
    gone: AtomicBool,
    pub(super) doorbells: Doorbells,
    pub(super) counters: Counters,
    pub(super) violations: Violations,
    /// The store's file, if it has one.
    store_path: Option<PathBuf>,
    /// What the host last said when the store failed.
    store_error: Mutex<Option<String>>,
}

impl Board {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            registers: Mutex::new(Registers::new(config)),
            attention: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            doorbells: Doorbells::new(config.queues, config.dstrd),
            counters: Counters::default(),
            violations: Violations::default(),
            store_path: match &config.store {
                StoreConfig::File { path, .. } => Some(path.clone()),
                StoreConfig::Memory | StoreConfig::Null => None,
            },
            store_error: Mutex::default(),
        }
    }

    /// The first offset after BAR 0, whole pages.
    pub(super) fn end(&self) -> u64 {
        self.doorbells.end().next_multiple_of(4096)
    }

    /// The dword at `offset` of BAR 0.
    pub(super) fn read(&self, offset: u64) -> u32 {
        if self.gone() || offset >= self.end() || !offset.is_multiple_of(4) {
            return u32::MAX;
        }
        if offset >= offset::DOORBELLS {
            // What a doorbell reads as is not defined (PCIe Transport 1.1, 3.1.2).
            return 0;
        }
        self.lock_registers().read(offset)
    }

    /// Writes the dword at `offset` of BAR 0.
    pub(super) fn write(&self, offset: u64, value: u32) {
        if self.gone() || offset >= self.end() || !offset.is_multiple_of(4) {
            return;
        }
        let outcome = if offset >= offset::DOORBELLS {
            match self.doorbells.at(offset) {
                Some(doorbell) => self.doorbells.ring(doorbell, value & 0xFFFF, self.doorbells.epoch()),
                None => Ok(()),
            }
        } else {
            let mut registers = self.lock_registers();
            // Before the reset, so that no doorbell rung after it is heard.
            if offset == offset::CC && registers.cc().en() && !Cc::from_bits(value).en() {
                self.doorbells.stop();
            }
            let outcome = registers.write(offset, value);
            if registers.unsettled() {
                self.attention.store(true, Ordering::Release);
            }
            outcome
        };
        if let Err(violation) = outcome {
            self.violations.record(violation);
        }
    }

    pub(super) fn lock_registers(&self) -> MutexGuard<'_, Registers> {
        // Every write leaves the registers whole.
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the executor has to look at the registers.
    #[inline]
    pub(super) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Acquire)
    }

    /// The registers are settled. Under their lock, so that no write is missed.
    pub(super) fn clear_attention(&self) {
        self.attention.store(false, Ordering::Release);
    }

    pub(super) fn gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Keeps why the host has failed the store: a status has no room for it.
    #[cold]
    pub(super) fn store_failed(&self, error: &io::Error) {
        let path = self.store_path.iter().map(|path| format!("the file {}: ", path.display())).collect::<String>();
        // A text is whole or was not set.
        *self.store_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{path}{error}"));
    }

    /// What the host last said when the store failed.
    pub(super) fn store_error(&self) -> Option<String> {
        self.store_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The controller goes: nothing is heard or answered from now on.
    pub(super) fn remove(&self) {
        self.gone.store(true, Ordering::Release);
        self.doorbells.stop();
    }
}
