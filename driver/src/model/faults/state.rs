//! What is armed, and what is due.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::counters::{FaultCounters, Kind, LateDma};
use super::life::{At, Life};
use super::random::Random;
use super::rule::{Action, CommandQueue, Rule, When};
use crate::model::iommu::Table;
use crate::spec::command::Sqe;

/// Bits of [`FaultState::armed`].
mod armed {
    /// There are rules.
    pub(super) const RULES: u32 = 1;
    /// There are faults of the controller that wait for their step.
    pub(super) const LIVES: u32 = 1 << 1;
    /// Admin commands are not fetched.
    pub(super) const DEAD_ADMIN: u32 = 1 << 2;
    /// The executor keeps delayed commands, or goes on with late DMA.
    pub(super) const KEPT: u32 = 1 << 3;
    /// The next reset fails.
    pub(super) const RESET_FAILS: u32 = 1 << 4;
    /// The function does not come back from the next reset.
    pub(super) const RESET_LOST: u32 = 1 << 5;
    /// The next read after bus mastering was disabled does not return.
    pub(super) const LOST_READ: u32 = 1 << 6;

    /// What the executor has to look after.
    pub(super) const EXECUTOR: u32 = RULES | LIVES | DEAD_ADMIN | KEPT;
}

struct ArmedRule {
    rule: Rule,
    matched: u64,
    happened: u64,
}

impl ArmedRule {
    /// Counts a command that matches. Whether it is befallen.
    fn is_due(&mut self, random: &mut Random) -> bool {
        self.matched += 1;
        let due = match self.rule.when {
            When::Nth(nth) => self.matched == nth,
            When::Next(times) => self.happened < times,
            When::Chance { per_million, times } => self.happened < times && random.chance(per_million),
        };
        self.happened += u64::from(due);
        due
    }

    fn is_over(&self) -> bool {
        match self.rule.when {
            When::Nth(nth) => self.matched >= nth,
            When::Next(times) | When::Chance { times, .. } => self.happened >= times,
        }
    }
}

struct Inner {
    random: Random,
    rules: Vec<ArmedRule>,
    /// Steps left, and what happens then.
    lives: Vec<(At, Life)>,
}

/// What is armed, shared by whoever arms it, the function and the executor.
pub(in crate::model) struct FaultState {
    armed: AtomicU32,
    inner: Mutex<Inner>,
    happened: [AtomicU64; Kind::ALL.len()],
    late: [AtomicU64; 3],
    table: Arc<Table>,
    /// Mappings that had been made when DMA was last told to end.
    watermark: AtomicU32,
    /// Resets of the function, each of which ends late DMA.
    resets: AtomicU32,
}

impl FaultState {
    pub(in crate::model) fn new(table: Arc<Table>) -> Self {
        Self {
            armed: AtomicU32::new(0),
            inner: Mutex::new(Inner { random: Random::new(0), rules: Vec::new(), lives: Vec::new() }),
            happened: [const { AtomicU64::new(0) }; Kind::ALL.len()],
            late: [const { AtomicU64::new(0) }; 3],
            table,
            watermark: AtomicU32::new(0),
            resets: AtomicU32::new(0),
        }
    }

    /// Whether the executor has anything to do here: all that a turn without faults pays.
    #[inline]
    pub(in crate::model) fn concern_executor(&self) -> bool {
        // Relaxed: what is armed is found under the lock.
        self.armed.load(Ordering::Relaxed) & armed::EXECUTOR != 0
    }

    pub(super) fn seed(&self, seed: u64) {
        self.lock().random = Random::new(seed);
    }

    pub(super) fn add(&self, rule: Rule) {
        let mut inner = self.lock();
        let rule = ArmedRule { rule, matched: 0, happened: 0 };
        if !rule.is_over() {
            inner.rules.push(rule);
            self.set(armed::RULES, true);
        }
    }

    pub(super) fn arm(&self, at: At, life: Life) {
        self.lock().lives.push((at, life));
        self.set(armed::LIVES, true);
    }

    pub(super) fn clear(&self) {
        let mut inner = self.lock();
        inner.rules.clear();
        inner.lives.clear();
        self.set(!(armed::KEPT | armed::DEAD_ADMIN), false);
    }

    /// What befalls a command that has just been fetched.
    pub(in crate::model) fn befalls(&self, queue: CommandQueue, sqe: &Sqe) -> Option<Action> {
        if !self.is_set(armed::RULES) {
            return None;
        }
        let mut inner = self.lock();
        let Inner { random, rules, .. } = &mut *inner;
        let due = rules
            .iter_mut()
            .find_map(|armed| (armed.rule.matches(queue, sqe) && armed.is_due(random)).then_some(armed.rule.action));
        rules.retain(|armed| !armed.is_over());
        if rules.is_empty() {
            self.set(armed::RULES, false);
        }
        due
    }

    /// One step of a kind passes (`At` with any number says which). What is due now.
    pub(in crate::model) fn step(&self, kind: At) -> Vec<Life> {
        if !self.is_set(armed::LIVES) {
            return Vec::new();
        }
        let mut inner = self.lock();
        let mut due = Vec::new();
        inner.lives.retain_mut(|(at, life)| {
            let left = match (at, kind) {
                (At::Turn(left), At::Turn(_))
                | (At::Access(left), At::Access(_))
                | (At::Command(left), At::Command(_)) => left,
                _ => return true,
            };
            *left = left.saturating_sub(1);
            if *left == 0 {
                due.push(*life);
            }
            *left > 0
        });
        if inner.lives.is_empty() {
            self.set(armed::LIVES, false);
        }
        due
    }

    /// Counts a fault that took hold.
    pub(in crate::model) fn count(&self, kind: Kind) {
        self.happened[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Random bytes.
    pub(in crate::model) fn garbage(&self, len: usize) -> Vec<u8> {
        self.lock().random.bytes(len)
    }

    /// A random number.
    pub(in crate::model) fn random(&self) -> u64 {
        self.lock().random.next()
    }

    pub(in crate::model) fn arm_reset_fails(&self) {
        self.set(armed::RESET_FAILS, true);
    }

    pub(in crate::model) fn arm_reset_lost(&self) {
        self.set(armed::RESET_LOST, true);
    }

    pub(in crate::model) fn arm_lost_read(&self) {
        self.set(armed::LOST_READ, true);
    }

    pub(in crate::model) fn takes_reset_fails(&self) -> bool {
        self.take(armed::RESET_FAILS, Kind::ResetFails)
    }

    pub(in crate::model) fn takes_reset_lost(&self) -> bool {
        self.take(armed::RESET_LOST, Kind::ResetLost)
    }

    pub(in crate::model) fn takes_lost_read(&self) -> bool {
        self.take(armed::LOST_READ, Kind::LostRead)
    }

    pub(in crate::model) fn set_admin_dead(&self, dead: bool) {
        self.set(armed::DEAD_ADMIN, dead);
    }

    pub(in crate::model) fn admin_is_dead(&self) -> bool {
        self.is_set(armed::DEAD_ADMIN)
    }

    /// The executor keeps something, or no longer does.
    pub(in crate::model) fn set_kept(&self, kept: bool) {
        self.set(armed::KEPT, kept);
    }

    /// DMA is told to end: what is mapped from now on is not for it.
    pub(in crate::model) fn mark_mappings(&self) {
        self.watermark.store(self.table.made(), Ordering::Release);
    }

    pub(in crate::model) fn watermark(&self) -> u32 {
        self.watermark.load(Ordering::Acquire)
    }

    /// The function is reset: late DMA ends.
    pub(in crate::model) fn note_reset(&self) {
        self.resets.fetch_add(1, Ordering::AcqRel);
    }

    pub(in crate::model) fn resets(&self) -> u32 {
        self.resets.load(Ordering::Acquire)
    }

    pub(in crate::model) fn count_late(&self, met: LateDma) {
        for (count, more) in self.late.iter().zip([met.held, met.unmapped, met.foreign]) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(super) fn late_dma(&self) -> LateDma {
        let [held, unmapped, foreign] = self.late.each_ref().map(|count| count.load(Ordering::Relaxed));
        LateDma { held, unmapped, foreign }
    }

    pub(super) fn counters(&self) -> FaultCounters {
        FaultCounters(self.happened.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }

    fn set(&self, bits: u32, on: bool) {
        if on {
            self.armed.fetch_or(bits, Ordering::AcqRel);
        } else {
            self.armed.fetch_and(!bits, Ordering::AcqRel);
        }
    }

    fn is_set(&self, bit: u32) -> bool {
        self.armed.load(Ordering::Relaxed) & bit != 0
    }

    fn take(&self, bit: u32, kind: Kind) -> bool {
        let taken = self.is_set(bit) && self.armed.fetch_and(!bit, Ordering::AcqRel) & bit != 0;
        if taken {
            self.count(kind);
        }
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change leaves the lists whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
