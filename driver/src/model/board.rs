//! What the two ends of a model share: the function that a driver holds, and the executor.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{ModelConfig, StoreConfig};
use super::counters::Counters;
use super::doorbells::{Doorbells, Refusal};
use super::faults::{At, FaultState, Kind, Life};
use super::interrupts::Vectors;
use super::iommu::Table;
use super::orders::{Health, Order};
use super::power::PowerCut;
use super::registers::Registers;
use super::subsystem::Shared;
use super::violation::{Violation, Violations};
use crate::spec::events::AsynchronousEvent;
use crate::spec::registers::{Cc, NSSR_RESET, offset};

/// Bus Master Enable of the function's Command register.
const BUS_MASTER: u8 = 1;
/// The function is in its address space.
const ATTACHED: u8 = 2;

/// Whether the function answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Presence {
    /// It does.
    Here,
    /// It was pulled, and reads as all ones.
    AllOnes,
    /// It was pulled, and reads as all zeroes.
    AllZeroes,
    /// Its model is no more; it reads as all ones.
    Ended,
}

/// Registers, doorbells, and the records of what happened.
pub(super) struct Board {
    registers: Mutex<Registers>,
    /// Set where the executor has to look at registers, orders or its own operations in progress: the only trace of
    /// them on its way.
    attention: AtomicBool,
    /// What the executor is to do, in order.
    orders: Mutex<Vec<Order>>,
    health: Mutex<Health>,
    /// Identifiers of the namespaces that there are once all orders are carried out.
    inventory: Mutex<BTreeSet<u32>>,
    /// A [`Presence`].
    presence: AtomicU8,
    /// [`BUS_MASTER`] and [`ATTACHED`].
    path: AtomicU8,
    power_cuts: Mutex<Vec<PowerCut>>,
    pub(super) doorbells: Doorbells,
    pub(super) vectors: Vectors,
    pub(super) counters: Counters,
    pub(super) violations: Violations,
    pub(super) faults: FaultState,
    /// What it shares with other controllers, if there may be such.
    pub(super) subsystem: Option<Arc<Shared>>,
    /// The store's file, if it has one.
    store_path: Option<PathBuf>,
    /// What the host last said when the store failed.
    store_error: Mutex<Option<String>>,
}

impl Board {
    pub(super) fn new(config: &ModelConfig, table: Arc<Table>, subsystem: Option<Arc<Shared>>) -> Self {
        Self {
            registers: Mutex::new(Registers::new(config)),
            attention: AtomicBool::new(false),
            orders: Mutex::default(),
            health: Mutex::default(),
            inventory: Mutex::new(BTreeSet::from([1])),
            presence: AtomicU8::new(Presence::Here as u8),
            path: AtomicU8::new(BUS_MASTER | ATTACHED),
            power_cuts: Mutex::default(),
            doorbells: Doorbells::new(config.queues, config.dstrd),
            vectors: Vectors::new(config.queues),
            counters: Counters::default(),
            violations: Violations::default(),
            faults: FaultState::new(table),
            subsystem,
            store_path: match &config.store {
                StoreConfig::File { path, .. } => Some(path.clone()),
                StoreConfig::Memory | StoreConfig::Null => None,
            },
            store_error: Mutex::default(),
        }
    }

    /// The first offset after BAR 0, whole pages.
    fn bar_end(&self) -> u64 {
        self.doorbells.end().next_multiple_of(4096)
    }

    /// The dword at `offset` of BAR 0.
    pub(super) fn read(&self, offset: u64) -> u32 {
        self.step_faults(At::Access(1));
        match self.presence() {
            Presence::Here => {}
            Presence::AllZeroes => return 0,
            Presence::AllOnes | Presence::Ended => return u32::MAX,
        }
        if offset >= self.bar_end() || !offset.is_multiple_of(4) {
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
        self.step_faults(At::Access(1));
        if self.gone() || offset >= self.bar_end() || !offset.is_multiple_of(4) {
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
        if offset == offset::NSSR {
            return self.write_nssr(value);
        }
        let mut registers = self.lock_registers();
        // Before the reset, so that no doorbell rung after it is heard.
        if offset == offset::CC && registers.cc().en() && !Cc::from_bits(value).en() {
            self.doorbells.stop();
            self.faults.mark_mappings();
        }
        if let Err(violation) = registers.write(offset, value) {
            self.violations.record(violation);
        }
        self.settle_faults(&mut registers);
        self.call_executor(&registers);
    }

    /// An NVM Subsystem Reset, where there is such: of every controller, one after the other.
    #[cold]
    fn write_nssr(&self, value: u32) {
        if value == NSSR_RESET && self.lock_registers().cap().nssrs() {
            self.reset_all(&mut self.lock_registers(), Registers::reset_subsystem);
            for other in self.others() {
                other.reset_all(&mut other.lock_registers(), Registers::reset_subsystem);
            }
        }
    }

    /// The other controllers of its subsystem.
    pub(super) fn others(&self) -> Vec<Arc<Board>> {
        self.subsystem.as_ref().map(|subsystem| subsystem.others(self)).unwrap_or_default()
    }

    /// Keeps or counts a ring that was not heard.
    #[cold]
    pub(super) fn refuse(&self, refusal: Refusal) {
        match refusal {
            Refusal::Revoked => self.counters.revoked_doorbells.add_shared(1),
            // A lane cannot know yet, and nobody hears it.
            Refusal::Violation(_) if self.gone() => {}
            Refusal::Violation(violation) => self.blame(violation),
        }
    }

    /// Keeps a value that a doorbell, or its shadow, must not have, and has the host told.
    #[cold]
    pub(super) fn blame(&self, violation: Violation) {
        if let Some(event) = doorbell_event(&violation) {
            self.order(Order::Report(event));
        }
        self.violations.record(violation);
    }

    /// Has the executor do something at its next turn.
    pub(super) fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        // After the order is there: the executor clears the flag before it looks.
        self.want_attention();
    }

    /// All orders that have not been taken yet.
    pub(super) fn take_orders(&self) -> Vec<Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes how the controller is, and has the executor see what follows from it.
    pub(super) fn change_health(&self, change: impl FnOnce(&mut Health)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
        self.want_attention();
    }

    pub(super) fn lock_inventory(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        match &self.subsystem {
            Some(subsystem) => subsystem.lock_inventory(),
            None => self.inventory.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Function Level Reset, as far as it is done at once: registers, doorbells and the Command register are as
    /// after power on, which leaves bus mastering off. The executor drops the queues before it looks at anything
    /// else; DMA under way is waited for by the caller.
    pub(super) fn reset_function(&self) {
        self.reset_all(&mut self.lock_registers(), Registers::power_on);
    }

    /// The power goes and comes back: as a Function Level Reset, and the executor carries out `cut` before it looks
    /// at anything else.
    pub(super) fn cut_power(&self, cut: PowerCut) {
        for other in self.others() {
            other.reset_function();
        }
        let mut registers = self.lock_registers();
        self.power_cuts.lock().unwrap_or_else(PoisonError::into_inner).push(cut);
        self.reset_all(&mut registers, Registers::power_on);
    }

    /// What [`cut_power`](Self::cut_power) has left to be done. Under the registers' lock, so that nothing is executed
    /// between the two.
    pub(super) fn take_power_cuts(&self) -> Vec<PowerCut> {
        std::mem::take(&mut *self.power_cuts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn reset_all(&self, registers: &mut Registers, reset: impl FnOnce(&mut Registers)) {
        self.doorbells.stop();
        self.set_bus_mastering(false);
        self.faults.note_reset();
        reset(registers);
        self.call_executor(registers);
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
            self.want_attention();
        }
    }

    /// Has the executor look here at its next turn.
    pub(super) fn want_attention(&self) {
        self.attention.store(true, Ordering::Release);
    }

    pub(super) fn lock_registers(&self) -> MutexGuard<'_, Registers> {
        // Every write leaves the registers whole.
        self.registers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the executor has to look here.
    #[inline]
    pub(super) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::Acquire)
    }

    /// The executor is about to look. Under the registers' lock, and before it looks, so that nothing is missed.
    pub(super) fn clear_attention(&self) {
        self.attention.store(false, Ordering::Release);
    }

    pub(super) fn presence(&self) -> Presence {
        match self.presence.load(Ordering::Acquire) {
            0 => Presence::Here,
            1 => Presence::AllOnes,
            2 => Presence::AllZeroes,
            _ => Presence::Ended,
        }
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

    pub(super) fn gone(&self) -> bool {
        self.presence() != Presence::Here
    }

    /// The model goes: nothing is heard or answered from now on.
    pub(super) fn end(&self) {
        self.presence.store(Presence::Ended as u8, Ordering::Release);
        self.detach();
        self.doorbells.stop();
    }

    /// The drive is pulled: what it had fetched goes on for `dma_turns`.
    pub(super) fn pull(&self, presence: Presence, dma_turns: u32) {
        self.pull_with(&mut self.lock_registers(), presence, dma_turns);
    }

    fn pull_with(&self, registers: &mut Registers, presence: Presence, dma_turns: u32) {
        self.presence.store(presence as u8, Ordering::Release);
        self.doorbells.stop();
        self.faults.mark_mappings();
        registers.pull(dma_turns);
        self.call_executor(registers);
    }

    /// A pulled drive comes back, as after power on.
    pub(super) fn put_back(&self) {
        let mut registers = self.lock_registers();
        if self.presence() == Presence::Ended {
            return;
        }
        self.reset_all(&mut registers, Registers::power_on);
        self.path.store(BUS_MASTER | ATTACHED, Ordering::Release);
        self.presence.store(Presence::Here as u8, Ordering::Release);
    }

    /// Whether the function is in its address space with bus mastering on. Asked as [`may_access`](Self::may_access)
    /// is.
    pub(super) fn path_is_open(&self) -> bool {
        self.path.load(Ordering::Acquire) == BUS_MASTER | ATTACHED
    }

    /// A fault of the controller happens, or from now on waits for what it shows at.
    pub(super) fn strike(&self, life: Life) {
        let mut registers = self.lock_registers();
        if self.gone() {
            return;
        }
        let registers = &mut *registers;
        match life {
            Life::Fatal => registers.strike_fatal(),
            Life::SelfReset => {
                self.doorbells.revoke();
                self.doorbells.stop();
                registers.reset_itself();
            }
            Life::AllOnes { dma_turns } => self.pull_with(registers, Presence::AllOnes, dma_turns),
            Life::AllZeroes { dma_turns } => self.pull_with(registers, Presence::AllZeroes, dma_turns),
            Life::DeadAdmin => self.faults.set_admin_dead(true),
            // Those from here on are counted when they show.
            Life::FatalAtEnable
            | Life::FatalAtDisable
            | Life::NeverReady
            | Life::NeverUnready
            | Life::EarlyUnready { .. } => return registers.faults.arm(life),
            Life::ResetFails => return self.faults.arm_reset_fails(),
            Life::ResetLost => return self.faults.arm_reset_lost(),
            Life::LostRead => return self.faults.arm_lost_read(),
        }
        self.faults.count(life.kind());
        self.call_executor(registers);
    }

    /// A step of that kind passes. The faults that were due, and have struck.
    pub(super) fn step_faults(&self, kind: At) -> Vec<Life> {
        let due = self.faults.step(kind);
        due.iter().for_each(|life| self.strike(*life));
        due
    }

    /// Counts faults that have shown at the registers.
    pub(super) fn settle_faults(&self, registers: &mut Registers) {
        registers.faults.take_happened().into_iter().for_each(|kind: Kind| self.faults.count(kind));
    }
}

/// The event that a driver's mistake with a doorbell is (Base 2.1, 5.1.2).
#[cold]
pub(super) fn doorbell_event(violation: &Violation) -> Option<AsynchronousEvent> {
    match violation {
        Violation::DoorbellWithoutQueue { .. } => Some(AsynchronousEvent::WRITE_TO_INVALID_DOORBELL_REGISTER),
        Violation::DoorbellOutOfRange { .. }
        | Violation::SubmissionQueueOverrun { .. }
        | Violation::CompletionQueueOverrun { .. } => Some(AsynchronousEvent::INVALID_DOORBELL_WRITE_VALUE),
        _ => None,
    }
}
