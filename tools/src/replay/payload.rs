//! What the bytes of a block must be, so that any other bytes are noticed and, where possible, named.
//!
//! A payload is a sequence of 64-bit words in the machine's own byte order. With `block` and `write`, the number of the block's
//! write (see [`Decision`](super::cache::Decision)), word `i` is
//!
//! ```text
//! step = 2 · mix63(write) + 1
//! base = mix64(block ^ mix64(step))
//! word = base + i · step          (mod 2^64)
//! ```
//!
//! where both mixes are one-to-one. All that costs much is done once per block; a word is an addition, which vectorises, and which a
//! GPU's kernels make as well: a payload is a series of theirs, and so is its poison, the complement. What follows from it:
//!
//! - **Shifted, repeated or swapped words** of a payload: `step` is odd, so no two words of a payload are equal.
//! - **Another block's bytes under the same write number**: `step` is equal and `base` is not, so every word differs.
//! - **A stale slot or another block's**: the steps differ. The two payloads agree where `i · (step − step')` is one certain value:
//!   in most cases nowhere, for blocks of 2^20 words in all but one of 2^44 cases at one word at most, and never in two neighbours.
//! - **Words that never arrived**: the pool is filled with poison first, which at each place is the complement of the word that
//!   belongs there, and so differs in every bit.
//!
//! Since the mixes can be undone, three words in a row tell which payload they are from; [`Mismatch`] uses this to say what was
//! found. That part is a guess for the reader's sake. That there is a mismatch is exact: every word is compared.
//!
//! Memory that a device may write to is not a `&[u64]`. Its owner copies words out of it and verifies the copy, a page at a time in
//! cache, or compares against [`Payload::word`].

use std::fmt;

use thiserror::Error;

/// Bytes of a word of a payload.
pub const WORD_BYTES: u64 = 8;

/// The payload of one write of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    block: u64,
    write: u64,
    base: u64,
    step: u64,
}

impl Payload {
    /// The payload of `block` after its write with number `write`.
    ///
    /// # Panics
    /// If `write` is 2^63 or more: writes are counted, so that many there cannot be.
    pub fn new(block: u64, write: u64) -> Self {
        assert!(write < 1 << 63, "write {write} must be below 2^63");
        let step = 2 * mix63(write) + 1;
        let base = mix64(block ^ mix64(step));
        Self { block, write, base, step }
    }

    /// Word number `index` of the payload.
    #[inline]
    pub fn word(&self, index: u64) -> u64 {
        self.base.wrapping_add(self.step.wrapping_mul(index))
    }

    /// Words from number `first` on as a series: the first, and how much each is more than the one before.
    pub fn series(&self, first: u64) -> (u64, u64) {
        (self.word(first), self.step)
    }

    /// The same of what [`poison`](Self::poison) sets: the complement of a series goes the other way.
    pub fn poison_series(&self, first: u64) -> (u64, u64) {
        (!self.word(first), self.step.wrapping_neg())
    }

    /// Sets `words` to those of the payload from number `first` on.
    pub fn fill(&self, first: u64, words: &mut [u64]) {
        let mut x = self.word(first);
        for word in words {
            *word = x;
            x = x.wrapping_add(self.step);
        }
    }

    /// Sets `words`, which are to receive the payload from word `first` on, to what the payload does not have at any of these
    /// places: the complement of each word.
    pub fn poison(&self, first: u64, words: &mut [u64]) {
        let mut x = self.word(first);
        for word in words {
            *word = !x;
            x = x.wrapping_add(self.step);
        }
    }

    /// Compares every one of `words` with the payload from word `first` on.
    ///
    /// # Errors
    /// The first word that differs.
    pub fn verify(&self, first: u64, words: &[u64]) -> Result<(), Mismatch> {
        // Whole runs without a branch per word, so that the comparison vectorises.
        const RUN: usize = 256;
        let mut x = self.word(first);
        for (number, run) in words.chunks(RUN).enumerate() {
            let mut difference = 0;
            for word in run {
                difference |= word ^ x;
                x = x.wrapping_add(self.step);
            }
            if difference != 0 {
                return self.locate(first, words, number * RUN);
            }
        }
        Ok(())
    }

    /// The mismatch of words from number `first` on that are right when they are looked at again.
    pub(super) fn unsteady(&self, first: u64) -> Mismatch {
        let (expected, byte_offset) = (self.word(first), first * WORD_BYTES);
        Mismatch {
            block: self.block,
            write: self.write,
            byte_offset,
            expected,
            found: expected,
            holds: Holds::Unsteady,
        }
    }

    /// The first mismatch in `words` from `start` on.
    #[cold]
    fn locate(&self, first: u64, words: &[u64], start: usize) -> Result<(), Mismatch> {
        let differs = |&at: &usize| words[at] != self.word(first + at as u64);
        match (start..words.len()).find(differs) {
            None => Ok(()),
            Some(at) => Err(Mismatch {
                block: self.block,
                write: self.write,
                byte_offset: (first + at as u64) * WORD_BYTES,
                expected: self.word(first + at as u64),
                found: words[at],
                holds: self.recognise(first, words, at),
            }),
        }
    }

    /// What the differing word at `words[at]` seems to be.
    fn recognise(&self, first: u64, words: &[u64], at: usize) -> Holds {
        let index = first + at as u64;
        let found = words[at];
        if found == !self.word(index) {
            return Holds::Poison;
        }
        if found == 0 {
            return Holds::Zero;
        }
        // Longer than any block: a word at random is taken for one of this payload once in 2^32.
        const MOST_WORDS: u64 = 1 << 32;
        let elsewhere = found.wrapping_sub(self.base).wrapping_mul(inverse(self.step));
        if elsewhere < MOST_WORDS {
            return Holds::SamePayload { byte_offset: elsewhere * WORD_BYTES };
        }
        // Any three words in a row that include this one.
        (at.saturating_sub(2)..=at)
            .filter_map(|start| Some((first + start as u64, words.get(start..start + 3)?)))
            .find_map(|(index, three)| Self::of_words(index, three))
            .map_or(Holds::Unknown, |other| Holds::OtherPayload { block: other.block, write: other.write })
    }

    /// The payload that has these words, of which there are at least three, from word `first` on.
    fn of_words(first: u64, words: &[u64]) -> Option<Self> {
        let (x, next) = (words[0], words[1]);
        let step = next.wrapping_sub(x);
        if step.is_multiple_of(2) {
            return None;
        }
        let base = x.wrapping_sub(step.wrapping_mul(first));
        let payload = Self::new(unmix64(base) ^ mix64(step), unmix63(step >> 1));
        // The first two words determine a payload whatever they are. The third is the proof.
        (words[2] == payload.word(first + 2)).then_some(payload)
    }
}

/// A word that is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "block {block}, write {write}: byte {byte_offset} of the block begins a word {found:#018x} that must be {expected:#018x}: {holds}"
)]
pub struct Mismatch {
    /// The block's id.
    pub block: u64,
    /// The number of the write that must be found.
    pub write: u64,
    /// Where the word begins in the block, in bytes.
    pub byte_offset: u64,
    /// The word that was written.
    pub expected: u64,
    /// The word that was found.
    pub found: u64,
    /// What that seems to be.
    pub holds: Holds,
}

/// What a wrong word seems to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The poison from before the read.
    Poison,
    /// Zero.
    Zero,
    /// The word that belongs elsewhere in the same payload.
    SamePayload {
        /// Where it belongs, in bytes.
        byte_offset: u64,
    },
    /// A word, in its own place, of another payload.
    OtherPayload {
        /// Id of that payload's block.
        block: u64,
        /// Number of that payload's write.
        write: u64,
    },
    /// What it must be, when it was looked at again.
    Unsteady,
    /// None of these.
    Unknown,
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holds::Poison => f.write_str("still poison, so nothing was read into it"),
            Holds::Zero => f.write_str("zero, so it was never written or has been deallocated"),
            Holds::SamePayload { byte_offset } => {
                write!(f, "it belongs at byte {byte_offset} of the block")
            }
            Holds::OtherPayload { block, write } => {
                write!(f, "it is from write {write} of block {block}")
            }
            Holds::Unsteady => {
                f.write_str("a word from here on was another before and is right now, so it came too late")
            }
            Holds::Unknown => f.write_str("no payload has it there"),
        }
    }
}

// The multipliers are those of splitmix64's finaliser (Steele, Lea and Flood, 2014; variant 13 of Stafford's).
const MULTIPLIER_1: u64 = 0xbf58_476d_1ce4_e5b9;
const MULTIPLIER_2: u64 = 0x94d0_49bb_1331_11eb;

/// One-to-one on 64 bits, every bit of the result depending on every bit of `x`.
fn mix64(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(MULTIPLIER_1);
    let x = (x ^ (x >> 27)).wrapping_mul(MULTIPLIER_2);
    x ^ (x >> 31)
}

fn unmix64(x: u64) -> u64 {
    let x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(inverse(MULTIPLIER_2));
    let x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(inverse(MULTIPLIER_1));
    x ^ (x >> 30) ^ (x >> 60)
}

const LOW_63: u64 = u64::MAX >> 1;

/// One-to-one on numbers below 2^63.
fn mix63(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(MULTIPLIER_1) & LOW_63;
    let x = (x ^ (x >> 32)).wrapping_mul(MULTIPLIER_2) & LOW_63;
    x ^ (x >> 32)
}

fn unmix63(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(inverse(MULTIPLIER_2)) & LOW_63;
    let x = (x ^ (x >> 32)).wrapping_mul(inverse(MULTIPLIER_1)) & LOW_63;
    x ^ (x >> 32)
}

/// The number by which `odd` must be multiplied to give 1, mod 2^64.
const fn inverse(odd: u64) -> u64 {
    // Newton's method: right to 3 bits at first, and to twice as many after each round.
    let mut inverse = odd;
    let mut round = 0;
    while round < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

#[cfg(test)]
mod tests;
