//! Faults of the register file: armed through `Faults`, they show at the next enable or disable.

use std::mem;

use super::super::faults::{Kind, Life};

/// What is armed, and what has happened.
#[derive(Debug, Default)]
pub(in crate::model) struct RegisterFaults {
    /// Each happens once, the first of a kind first.
    armed: Vec<Life>,
    /// Those that took hold and have not been counted.
    happened: Vec<Kind>,
}

impl RegisterFaults {
    pub(in crate::model) fn arm(&mut self, life: Life) {
        self.armed.push(life);
    }

    pub(in crate::model) fn disarm(&mut self) {
        self.armed.clear();
    }

    pub(in crate::model) fn take_happened(&mut self) -> Vec<Kind> {
        mem::take(&mut self.happened)
    }

    /// The first of a kind that is armed: it happens now.
    pub(super) fn take(&mut self, kind: Kind) -> Option<Life> {
        let at = self.armed.iter().position(|life| life.kind() == kind)?;
        self.happened.push(kind);
        Some(self.armed.remove(at))
    }
}
