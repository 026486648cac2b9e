//! Loss of power: what is left of a volatile write cache.

use std::io;
use std::sync::mpsc::Sender;

/// Which of the blocks that only the volatile write cache holds are durable after all when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// None.
    Nothing,
    /// Some, as in a drive that was about to write them: a write of at most AWUPF + 1 blocks as a whole or not at all,
    /// of a longer one each block by itself. The same number makes the same choice.
    Some {
        /// The number.
        seed: u64,
    },
}

/// What a loss of power did, in logical blocks. A block that was written several times since the last Flush counts
/// each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PowerLoss {
    /// Blocks that were lost.
    pub lost: u64,
    /// Blocks that became durable.
    pub survived: u64,
}

impl Survivors {
    /// What they are chosen by.
    pub(super) fn seed(self) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::Some { seed } => Some(seed),
        }
    }
}

/// A loss of power that is to happen, and who waits for it.
pub(super) struct PowerCut {
    pub(super) survivors: Survivors,
    done: Sender<io::Result<PowerLoss>>,
}

impl PowerCut {
    pub(super) fn new(survivors: Survivors, done: Sender<io::Result<PowerLoss>>) -> Self {
        Self { survivors, done }
    }

    /// Tells how it went. Whether anybody still waits does not matter.
    pub(super) fn answer(&self, outcome: io::Result<PowerLoss>) {
        let _ = self.done.send(outcome);
    }
}

/// What chance says, one question after the other; without a seed always no.
pub(super) struct Chance(Option<u64>);

impl Chance {
    pub(super) fn new(seed: Option<u64>) -> Self {
        Self(seed)
    }

    /// The next number, by SplitMix64.
    pub(super) fn number(&mut self) -> Option<u64> {
        let state = self.0.as_mut()?;
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        Some(mixed ^ mixed >> 31)
    }

    /// Yes in one of two cases.
    pub(super) fn says_yes(&mut self) -> bool {
        self.number().is_some_and(|number| number & 1 == 1)
    }
}
