//! How many hits a trace would have with fewer or more slots, exactly and in one pass.
//!
//! Each use of a block, read or written, makes it the most recently used, and what is evicted is the least recently used; so the
//! blocks that a cache of `n` slots holds are the `n` last used ones, whatever `n` is. A block is therefore held exactly if its *stack
//! distance* is at most `n`: the number of different blocks used since its own last use, itself included (Mattson and others,
//! "Evaluation techniques for storage hierarchies", IBM Systems Journal 9, 1970). A hit needs every earlier block of its request to be
//! held as well ([`cache`](super::cache)): so it is one exactly if the largest stack distance from the request's first block up to it
//! is at most `n`.
//!
//! Distances are counted by a Fenwick tree over the order of uses, in O(log n). Only as many blocks are remembered as the largest
//! number of slots that is asked about, so memory does not grow with the trace.

use std::collections::HashMap;
use std::num::NonZeroU32;

use super::Request;

/// Bytes that a count may take for each slot of the run: for each of four blocks its place in a hash table, and up to four places of
/// its uses and their sums.
pub const BYTES_PER_SLOT: u64 = 640;
/// The largest number of slots asked about, as a multiple of the run's.
const MOST_TIMES: u64 = 4;
/// The smallest, as a part of the run's.
const LEAST_PART: u64 = 8;
/// Numbers of slots between one power of two of the run's slots and the next.
const STEPS: u32 = 12;
/// Uses that there is room for at first.
const FIRST_ROOM: usize = 1 << 10;

/// Hits of a trace by the number of slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitCurve {
    /// Slots of the run itself.
    pub slots: u64,
    /// Requests that were counted.
    pub requests: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Hits at ascending numbers of slots, the run's own among them.
    pub points: Vec<HitPoint>,
}

/// Hits at one number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitPoint {
    /// Slots.
    pub slots: u64,
    /// Blocks that would be hits with that many.
    pub hits: u64,
    /// Whether it is an eighth, a quarter, a half of the run's slots, rounded down, or these, or two or four times as many.
    pub named: bool,
}

impl HitCurve {
    /// Counts the hits of `requests` around `slots` slots: from an eighth to four times as many.
    ///
    /// # Errors
    /// That of the first request that is one.
    pub fn of<E>(slots: NonZeroU32, requests: impl IntoIterator<Item = Result<Request, E>>) -> Result<Self, E> {
        let slots = u64::from(slots.get());
        let mut curve = Self { slots, points: points(slots), ..Self::default() };
        let mut stack = Stack::new(slots * MOST_TIMES);
        for request in requests {
            curve.requests += 1;
            let mut furthest = Some(0);
            for block in request?.hash_ids {
                let distance = stack.use_of(block);
                furthest = furthest.zip(distance).map(|(furthest, distance)| distance.max(furthest));
                curve.blocks += 1;
                if let Some(furthest) = furthest {
                    let first = curve.points.partition_point(|point| point.slots < furthest);
                    // No block is remembered beyond the last point.
                    curve.points[first].hits += 1;
                }
            }
        }
        // So far each hit is counted at the least number of slots that has it.
        let mut hits = 0;
        for point in &mut curve.points {
            hits += point.hits;
            point.hits = hits;
        }
        Ok(curve)
    }

    /// Hits at the run's own number of slots.
    pub fn hits(&self) -> u64 {
        self.points.iter().find(|point| point.slots == self.slots).map_or(0, |point| point.hits)
    }
}

/// The numbers of slots to ask about, ascending, each once.
fn points(slots: u64) -> Vec<HitPoint> {
    let named = [slots / 8, slots / 4, slots / 2, slots, slots * 2, slots * 4];
    let least = (slots / LEAST_PART).max(1);
    let octaves = (LEAST_PART * MOST_TIMES).ilog2();
    let between = (0..=octaves * STEPS)
        .map(|step| (slots as f64 / LEAST_PART as f64 * 2f64.powf(f64::from(step) / f64::from(STEPS))) as u64);
    let mut all: Vec<u64> =
        named.into_iter().chain(between).filter(|n| (least..=slots * MOST_TIMES).contains(n)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|slots| HitPoint { slots, hits: 0, named: named.contains(&slots) }).collect()
}

/// The blocks last used, in the order of their uses.
struct Stack {
    /// The most blocks that are remembered.
    most: u64,
    /// The place of each block's last use.
    places: HashMap<u64, usize>,
    /// The block used at each place; it may have been used again since.
    used: Vec<u64>,
    /// Over the places: 1 for the last use of a block that is remembered.
    last_uses: Fenwick,
    /// No place below is of a block that is remembered.
    oldest: usize,
}

impl Stack {
    fn new(most: u64) -> Self {
        Self { most, places: HashMap::new(), used: Vec::new(), last_uses: Fenwick::new(FIRST_ROOM), oldest: 0 }
    }

    /// Uses a block. Its stack distance, 1 for the block used last; `None`: it is not remembered.
    fn use_of(&mut self, block: u64) -> Option<u64> {
        if self.used.len() == self.last_uses.len() {
            self.close_up();
        }
        let place = self.used.len();
        let distance = match self.places.insert(block, place) {
            Some(before) => {
                let older = self.last_uses.sum_below(before);
                self.last_uses.clear(before);
                // It has been replaced, so the length is still that of before the use.
                Some(self.places.len() as u64 - older)
            }
            None => None,
        };
        self.used.push(block);
        self.last_uses.set(place);
        if self.places.len() as u64 > self.most {
            self.forget_oldest();
        }
        distance
    }

    fn forget_oldest(&mut self) {
        while let Some(block) = self.used.get(self.oldest) {
            let place = self.oldest;
            self.oldest += 1;
            if self.places.get(block) == Some(&place) {
                self.places.remove(block);
                self.last_uses.clear(place);
                return;
            }
        }
    }

    /// Numbers the last uses anew, from 0 and without gaps, and makes room for as many more.
    fn close_up(&mut self) {
        let places = &mut self.places;
        let mut next = 0;
        let mut place = 0;
        self.used.retain(|block| {
            let last = places.get_mut(block).filter(|known| **known == place);
            place += 1;
            match last {
                Some(known) => {
                    *known = next;
                    next += 1;
                    true
                }
                None => false,
            }
        });
        self.oldest = 0;
        self.last_uses = Fenwick::new((2 * next).max(FIRST_ROOM));
        (0..next).for_each(|place| self.last_uses.set(place));
    }
}

/// Sums of prefixes over a list of noughts and ones (Fenwick, "A new data structure for cumulative frequency tables", Software:
/// Practice and Experience 24, 1994).
struct Fenwick {
    /// At `i`, from 1 on, the sum over the `i & -i` places that end with place `i - 1`.
    sums: Vec<u64>,
}

impl Fenwick {
    fn new(length: usize) -> Self {
        Self { sums: vec![0; length + 1] }
    }

    fn len(&self) -> usize {
        self.sums.len() - 1
    }

    /// Sets a nought to one.
    fn set(&mut self, place: usize) {
        self.change(place, |sum| *sum += 1);
    }

    /// Sets a one to nought.
    fn clear(&mut self, place: usize) {
        self.change(place, |sum| *sum -= 1);
    }

    fn change(&mut self, place: usize, change: impl Fn(&mut u64)) {
        let mut at = place + 1;
        while let Some(sum) = self.sums.get_mut(at) {
            change(sum);
            at += at & at.wrapping_neg();
        }
    }

    /// Ones at the places below `place`.
    fn sum_below(&self, place: usize) -> u64 {
        let (mut at, mut sum) = (place, 0);
        while at > 0 {
            sum += self.sums[at];
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests;
