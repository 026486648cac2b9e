//! What the two ends of a model share: the function that a driver holds, and the executor.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::config::ModelConfig;
use super::counters::Counters;
use super::doorbells::{Doorbells, Refusal};
use super::registers::Registers;
use super::violation::Violations;
use crate::spec::registers::{Cc, offset};

/// Bus Master Enable of the function's Command register.
const BUS_MASTER: u8 = 1;
/// The function is in its address space.
const ATTACHED: u8 = 2;

/// Registers, doorbells, and the records of what happened.
pub(super) struct Board {
    registers: Mutex<Registers>,
    /// Set where the executor has to look at the registers: the only trace of them on its way.
    attention: AtomicBool,
    /// The controller is no more; its function reads as all ones.
    gone: AtomicBool,
    /// [`BUS_MASTER`] and [`ATTACHED`].
    path: AtomicU8,
    pub(super) doorbells: Doorbells,
    pub(super) counters: Counters,
    pub(super) violations: Violations,
}

impl Board {
    pub(super) fn new(config: &ModelConfig) -> Self {
        Self {
            registers: Mutex::new(Registers::new(config)),
            attention: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            path: AtomicU8::new(BUS_MASTER | ATTACHED),
            doorbells: Doorbells::new(config.queues, config.dstrd),
            counters: Counters::default(),
            violations: Violations::default(),
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
        if offset >= offset::DOORBELLS {
            if let Some(doorbell) = self.doorbells.at(offset)
                && let Err(refusal) = self.doorbells.ring(doorbell, value & 0xFFFF, self.doorbells.mark())
            {
                self.refuse(refusal);
            }
            return;
        }
        let mut registers = self.lock_registers();
        // Before the reset, so that no doorbell rung after it is heard.
        if offset == offset::CC && registers.cc().en() && !Cc::from_bits(value).en() {
            self.doorbells.stop();
        }
        if let Err(violation) = registers.write(offset, value) {
            self.violations.record(violation);
        }
        self.call_executor(&registers);
    }

    /// Keeps or counts a ring that was not heard.
    #[cold]
    pub(super) fn refuse(&self, refusal: Refusal) {
        match refusal {
            Refusal::Revoked => self.counters.revoked_doorbells.add_shared(1),
            Refusal::Violation(violation) => self.violations.record(violation),
        }
    }

    /// Function Level Reset, as far as it is done at once: registers, doorbells and the Command register are as
    /// after power on, which leaves bus mastering off. The executor drops the queues before it looks at anything
    /// else; DMA under way is waited for by the caller.
    pub(super) fn reset_function(&self) {
        let mut registers = self.lock_registers();
        self.doorbells.stop();
        self.set_bus_mastering(false);
        registers.power_on();
        self.call_executor(&registers);
    }

    pub(super) fn set_bus_mastering(&self, on: bool) {
        if on {
            self.path.fetch_or(BUS_MASTER, Ordering::AcqRel);
        } else {
            self.path.fetch_and(!BUS_MASTER, Ordering::AcqRel);
        }
    }

    /// The function leaves its address space for ever. DMA under way is waited for by the caller.
    pub(super) fn detach(&self) {
        self.path.fetch_and(!ATTACHED, Ordering::AcqRel);
    }

    /// Whether queues of `epoch` may be served. Asked with the IOMMU's table in hand: who changes the answer then
    /// waits for the table, and so for all that went by the former one.
    #[inline]
    pub(super) fn may_access(&self, epoch: u32) -> bool {
        self.path.load(Ordering::Acquire) == BUS_MASTER | ATTACHED && self.doorbells.is_live(epoch)
    }

    /// Has the executor look at the registers, where there is something for it.
    fn call_executor(&self, registers: &Registers) {
        if registers.unsettled() {
            self.attention.store(true, Ordering::Release);
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

    /// The controller goes: nothing is heard or answered from now on.
    pub(super) fn remove(&self) {
        self.gone.store(true, Ordering::Release);
        self.detach();
        self.doorbells.stop();
    }
}
