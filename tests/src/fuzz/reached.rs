//! How far an input got.

use std::collections::BTreeMap;

/// What has happened, and how often.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    /// It has happened `times` more.
    pub fn note(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    /// Adds what another input has reached.
    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| self.note(what, *times));
    }

    /// How often.
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}
