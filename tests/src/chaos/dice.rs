//! Chance, from one seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded generator: the same seed throws the same numbers, everywhere.
pub(crate) struct Dice(Xoshiro256PlusPlus);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // The bias of a remainder of 64 bits is of no matter here.
        self.word() % end
    }

    /// A number from `least` to `greatest`.
    pub(crate) fn between(&mut self, least: u64, greatest: u64) -> u64 {
        least + self.below(greatest - least + 1)
    }

    /// An index below `len`, which is not 0.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Whether one of `percent` in a hundred cases is there.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which has some.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// One of the places of `weights`, each as often as it weighs; they are not all 0.
    pub(crate) fn weighed(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(less) => left = less,
                None => return place,
            }
        }
        weights.len() - 1
    }
}
