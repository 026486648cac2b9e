//! Latencies as they are read: a histogram of the crate `hdrhistogram`.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::histogram::Buckets;

/// The longest that is told apart, in nanoseconds; see [`Buckets`].
const LONGEST: u64 = (1 << 42) - 1;
/// Digits of a value that the histogram keeps; the buckets have fewer.
const DIGITS: u8 = 2;

/// How long commands took, each right to 3%; the longest of them is exact, to 16 ns.
#[derive(Clone, PartialEq, Default)]
pub struct Latencies {
    /// None: there were none.
    histogram: Option<Histogram<u64>>,
    longest: u64,
}

impl Latencies {
    /// What is in `buckets`, of which the longest took so many nanoseconds.
    pub(super) fn read(buckets: &Buckets, longest: u64) -> Self {
        let mut latencies = Self::default();
        buckets.iter().for_each(|(nanoseconds, count)| latencies.add(nanoseconds.min(longest.max(1)), count));
        latencies.longest = longest;
        latencies
    }

    fn add(&mut self, nanoseconds: u64, count: u64) {
        let histogram = self.histogram.get_or_insert_with(|| {
            Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("1 is below the longest, 2 digits are below 6")
        });
        histogram.saturating_record_n(nanoseconds, count);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    /// The latency that this part of them, from 0 to 1, did not exceed; `None` where there are none.
    pub fn at(&self, quantile: f64) -> Option<Duration> {
        let histogram = self.histogram.as_ref()?;
        Some(Duration::from_nanos(histogram.value_at_quantile(quantile).min(self.longest)))
    }

    /// Their mean; `None` where there are none.
    pub fn mean(&self) -> Option<Duration> {
        self.histogram.as_ref().map(|histogram| Duration::from_nanos(histogram.mean() as u64))
    }

    /// The longest; `None` where there are none.
    pub fn longest(&self) -> Option<Duration> {
        self.histogram.as_ref().map(|_| Duration::from_nanos(self.longest))
    }

    /// All of them, in nanoseconds; `None` where there are none.
    pub fn histogram(&self) -> Option<&Histogram<u64>> {
        self.histogram.as_ref()
    }
}

impl AddAssign<&Self> for Latencies {
    fn add_assign(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        match (&mut self.histogram, &other.histogram) {
            (_, None) => {}
            (none @ None, some) => none.clone_from(some),
            // Both have the bounds above, so neither holds what the other cannot.
            (Some(ours), Some(theirs)) => ours.add(theirs).expect("the bounds are the same"),
        }
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Latencies");
        shown.field("count", &self.count()).field("p50", &self.at(0.5)).field("longest", &self.longest()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_port_has_counted_is_read() {
        let buckets = Buckets::default();
        buckets.add(1_000, 98);
        buckets.add(50_000, 2);
        let latencies = Latencies::read(&buckets, 50_000);
        assert_eq!((latencies.count(), latencies.longest()), (100, Some(Duration::from_micros(50))));
        let near = |found: Option<Duration>, right: u128| {
            let found = found.unwrap().as_nanos();
            found >= right * 98 / 100 && found <= right * 104 / 100
        };
        assert!(near(latencies.at(0.5), 1_000) && near(latencies.at(0.99), 50_000) && near(latencies.mean(), 1_980));
        assert_eq!(latencies.at(1.0), latencies.longest(), "no longer than the longest");
    }

    #[test]
    fn none_and_some_are_some() {
        let (buckets, none) = (Buckets::default(), Latencies::default());
        assert_eq!((none.count(), none.at(0.5), none.mean(), none.longest()), (0, None, None, None));
        buckets.add(7, 3);
        let some = Latencies::read(&buckets, 7);
        let mut sum = none.clone();
        sum += &some;
        assert_eq!(sum, some);
        sum += &none;
        sum += &some;
        assert_eq!((sum.count(), sum.longest()), (6, Some(Duration::from_nanos(7))));
    }
}
