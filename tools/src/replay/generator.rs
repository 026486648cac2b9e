//! Makes a trace like the conversation trace published with Mooncake (FAST '25), so that a replay needs no file.
//!
//! Conversations begin, and some come back. Every prompt begins with the same block, the system prompt, with id 0. A new
//! conversation adds blocks to it. Of the conversations that have just been served, somewhat more than a third come back after some
//! number of other requests, with a longer prompt: their last block was not full and is replaced, and more follow. A conversation
//! whose prompt has reached [`MAX_BLOCKS`] does not come back.
//!
//! How long a new prompt is, how much a turn adds and how long it takes are drawn from the distributions of that trace, as tables of
//! their quantiles. There is no notion of time and none of content: as in the trace, equal ids are equal blocks, and that is all.
//!
//! | over 12,031 requests | conversation trace | generator, seed 0 | 24 seeds |
//! | --- | --- | --- | --- |
//! | blocks per request: mean | 24.0 | 24.7 | 23.7 to 24.7 |
//! | p50, p90, p99, max | 14, 54, 167, 247 | 14, 57, 165, 247 | 13 to 14, 53 to 58, 153 to 178, 246 to 247 |
//! | hits at 4,096 slots | 8.8% | 9.8% | 8.7% to 9.8% |
//! | hits at 16,384 slots | 26.6% | 27.6% | 25.5% to 27.9% |
//! | hits at 65,536 slots | 35.9% | 35.8% | 34.1% to 36.2% |
//! | hits of the first 1,000 requests at 4,096 slots | 8.0% | 9.3% | 8.1% to 11.5% |
//! | requests that extend an earlier prefix of more than the first block | 38.7% | 30.1% | 29.1% to 30.6% |
//! | blocks in such a prefix: mean | 21.1 | 27.2 | 25.0 to 27.3 |
//!
//! The last two lines are where it is least alike: fewer turns come back, with longer prefixes.
//!
//! The same seed gives the same trace on every machine: everything is counted in whole numbers, with a random generator
//! (xoshiro256++) whose sequence is fixed. A trace of `n` requests is the beginning of every longer one with the same seed. Memory is
//! that of the conversations that are to come back: at most one per request over the longest absence, each of at most [`MAX_BLOCKS`]
//! ids (20 MiB), and in fact less than 100 KiB.

use std::collections::BTreeMap;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::Request;

/// Requests in a trace unless a user says otherwise.
pub const DEFAULT_REQUESTS: u64 = 1_000;

/// Seed unless a user says otherwise.
pub const DEFAULT_SEED: u64 = 0;

/// The longest prompt, in blocks.
pub const MAX_BLOCKS: usize = 247;

/// Of 1,000 conversations served, how many come back.
const COMING_BACK_PER_MILLE: u64 = 370;

/// A distribution, by its quantiles at [`PER_MILLE`], between which values are equally likely.
type Quantiles = [u64; 16];

const PER_MILLE: Quantiles = [0, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 980, 990, 1000];

/// Blocks of a new conversation's prompt, the first included.
const NEW_PROMPT: Quantiles = [2, 2, 2, 2, 3, 5, 8, 11, 15, 22, 31, 48, 72, 120, 160, 248];

/// Blocks that a turn adds to what remains of the prompt before it.
const ADDED: Quantiles = [1, 1, 2, 2, 2, 3, 3, 3, 3, 5, 9, 18, 26, 36, 46, 100];

/// Requests from one turn of a conversation to the next.
const ABSENCE: Quantiles = [5, 62, 99, 141, 210, 280, 360, 460, 610, 830, 1200, 1800, 2400, 3700, 5110, 10515];

/// An iterator over the requests of a made trace.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Xoshiro256PlusPlus,
    /// Number of the next request.
    next: u64,
    /// Number of requests in the trace.
    requests: u64,
    next_block: u64,
    /// Prompts of the conversations that come back, under the request number from which they do so and that of their last turn.
    absent: BTreeMap<(u64, u64), Vec<u64>>,
}

impl Generator {
    /// A trace of so many requests.
    pub fn new(seed: u64, requests: u64) -> Self {
        Self { rng: Xoshiro256PlusPlus::seed_from_u64(seed), next: 0, requests, next_block: 1, absent: BTreeMap::new() }
    }

    /// The prompt of the conversation that is due longest, if one is.
    fn take_due(&mut self) -> Option<Vec<u64>> {
        let first = self.absent.first_entry()?;
        (first.key().0 <= self.next).then(|| first.remove())
    }

    /// A number below `bound`, all equally likely but for a bias of `bound` in 2^64.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from a distribution: from its first quantile up to, but not including, its last.
    fn draw(&mut self, quantiles: &Quantiles) -> u64 {
        // Finer than a thousandth, so that numbers between two quantiles are all met.
        const FINE: u64 = 1 << 20;
        let at = self.below(1000 * FINE);
        let upper = PER_MILLE.partition_point(|&mark| mark * FINE <= at);
        let (low, high) = (quantiles[upper - 1], quantiles[upper]);
        let (start, end) = (PER_MILLE[upper - 1] * FINE, PER_MILLE[upper] * FINE);
        low + (high - low) * (at - start) / (end - start)
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if self.next == self.requests {
            return None;
        }
        let (mut hash_ids, added) = match self.take_due() {
            Some(mut prompt) => {
                prompt.pop();
                (prompt, self.draw(&ADDED))
            }
            None => (vec![0], self.draw(&NEW_PROMPT) - 1),
        };
        let added = added.min((MAX_BLOCKS - hash_ids.len()) as u64);
        hash_ids.extend(self.next_block..self.next_block + added);
        self.next_block += added;
        // Drawn in any case, so that one conversation's length does not change the fate of the others.
        let comes_back = self.below(1000) < COMING_BACK_PER_MILLE;
        let absence = self.draw(&ABSENCE);
        if comes_back && hash_ids.len() < MAX_BLOCKS {
            self.absent.insert((self.next + absence, self.next), hash_ids.clone());
        }
        self.next += 1;
        Some(Request { hash_ids })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::try_from(self.requests - self.next);
        (left.unwrap_or(usize::MAX), left.ok())
    }
}

#[cfg(test)]
mod tests;
