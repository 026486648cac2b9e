//! Faults that a model has on demand: what drives have been seen to do, and what an untrusted one could.
//!
//! A test arms them through [`Faults`]. A [`Rule`] befalls commands: a trigger and an [`Action`]. A [`Life`] fault
//! befalls the whole controller, now or at a step [`At`]. Chances are drawn from one seeded generator, so that a
//! stepped model does the same each time. Each kind is counted ([`Kind`]), so that a test can demand that it met it.
//!
//! Here is what is armed and what is due. The executor does what a command's fault asks for (`executor/faulty`), keeps
//! delayed commands (`delayed`) and goes on with DMA that should have ended (`executor/late`); the
//! register file keeps those faults that show at the next enable or reset. With nothing armed a turn pays one relaxed
//! load.

mod counters;
pub(super) mod delayed;
mod life;
mod random;
mod rule;
mod state;

use std::fmt;
use std::sync::Arc;

use super::board::{Board, Presence};

pub use counters::{FaultCounters, Kind, LateDma};
pub use life::{At, Life};
pub use rule::{Action, CommandQueue, EndlessList, Rule, StrangeCid, When};
pub(super) use state::FaultState;

/// The faults of one model. Any thread may arm them at any time.
#[derive(Clone)]
pub struct Faults {
    board: Arc<Board>,
}

impl Faults {
    pub(super) fn new(board: Arc<Board>) -> Self {
        Self { board }
    }

    /// Begins the generator of chances and of garbage anew. A model begins with seed 0.
    pub fn seed(&self, seed: u64) {
        self.board.faults.seed(seed);
    }

    /// Adds a rule. Of the rules that match a command, the first that is due befalls it.
    pub fn add(&self, rule: Rule) {
        self.board.faults.add(rule);
    }

    /// Arms a fault of the controller; it happens once.
    pub fn arm(&self, at: At, life: Life) {
        match at {
            At::Now => self.board.strike(life),
            _ => self.board.faults.arm(at, life),
        }
    }

    /// Disarms every rule and every fault that has not happened yet. What has happened is not undone, and delayed
    /// commands stay delayed.
    pub fn clear(&self) {
        self.board.faults.clear();
        self.board.lock_registers().faults.disarm();
    }

    /// Puts a removed drive back into its slot: the function answers again, as after power on, in its address space
    /// and with bus mastering on. Blocks are as they were. Doorbell handles from before lead nowhere.
    pub fn put_back(&self) {
        self.board.put_back();
    }

    /// Whether the function answers: it has not been removed.
    pub fn is_present(&self) -> bool {
        self.board.presence() == Presence::Here
    }

    /// How often each kind has happened so far.
    pub fn counters(&self) -> FaultCounters {
        self.board.faults.counters()
    }

    /// What DMA after its end has met so far.
    pub fn late_dma(&self) -> LateDma {
        self.board.faults.late_dma()
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faults").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
