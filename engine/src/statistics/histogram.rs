//! Latencies as a port counts them: buckets of one writer that anybody may read.
//!
//! Buckets are equally wide within a power of two, 32 of them, so that a value is right to 3%; 10 KiB in all.

use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a power of two.
const STEPS: u32 = 32;
/// Nanoseconds that are told apart: up to 2^42, 73 minutes. What took longer is in the last bucket.
const BITS: u32 = 42;
/// The powers of two below [`STEPS`] have a bucket for each value.
const BUCKETS: usize = (STEPS * (BITS - STEPS.ilog2() + 1)) as usize;

/// A word that one thread adds to, and anybody reads.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(super) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn raise(&self, to: u64) {
        if to > self.0.load(Ordering::Relaxed) {
            self.0.store(to, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many took how long.
#[derive(Debug)]
pub(super) struct Buckets(Box<[Count]>);

impl Default for Buckets {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Count::default()).collect())
    }
}

impl Buckets {
    /// Adds `count` that took so many nanoseconds.
    pub(super) fn add(&self, nanoseconds: u64, count: u64) {
        if let Some(bucket) = self.0.get(bucket_of(nanoseconds)) {
            bucket.add(count);
        }
    }

    /// Each bucket that holds some: the longest that is counted there, in nanoseconds, and how many there are.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let counts = self.0.iter().map(Count::get).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(bucket, count)| (longest_of(bucket), count))
    }
}

/// The bucket of a value.
fn bucket_of(nanoseconds: u64) -> usize {
    let value = nanoseconds.min((1 << BITS) - 1);
    let steps = u64::from(STEPS);
    if value < steps {
        return value as usize;
    }
    let power = value.ilog2() - STEPS.ilog2();
    // The leading bits of the value, which are from `STEPS` on, behind those of all smaller powers.
    (u64::from(power) * steps + (value >> power)) as usize
}

/// The largest value of a bucket.
fn longest_of(bucket: usize) -> u64 {
    let (bucket, steps) = (bucket as u64, u64::from(STEPS));
    if bucket < steps {
        return bucket;
    }
    let power = bucket / steps - 1;
    ((bucket % steps + steps + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_lie_side_by_side_from_the_first_to_the_last() {
        let mut last = None;
        for bucket in 0..BUCKETS {
            let longest = longest_of(bucket);
            assert_eq!(bucket_of(longest), bucket);
            if let Some(last) = last {
                assert_eq!(bucket_of(last + 1), bucket, "the value behind the last bucket's");
            }
            last = Some(longest);
        }
        assert_eq!(last, Some((1 << BITS) - 1));
        assert_eq!((bucket_of(u64::MAX), bucket_of(1 << BITS)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn what_was_added_is_found() {
        let buckets = Buckets::default();
        buckets.add(0, 2);
        buckets.add(31, 1);
        buckets.add(1_000_000, 5);
        buckets.add(1_000_001, 1);
        let found: Vec<_> = buckets.iter().collect();
        assert_eq!((found.len(), found[0], found[1], found[2].1), (3, (0, 2), (31, 1), 6));
        assert!((1_000_001..1_032_000).contains(&found[2].0));
    }

    proptest! {
        #[test]
        fn a_value_is_right_to_three_percent(value in 0u64..1 << BITS) {
            let longest = longest_of(bucket_of(value));
            prop_assert!(longest >= value && (longest - value) * 32 <= value);
        }
    }
}
