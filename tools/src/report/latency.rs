//! How long requests took, in memory that does not grow with their number.
//!
//! A [`Distribution`] is what plots show of it: on an axis of *nines* (one for 90%, two for 99%), where the rare slow requests have the
//! room, and in ranges of equal width on a logarithmic axis of time.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Row, Value};

/// The longest that is told apart: an hour. What took longer counts as that, except for the maximum.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Digits of a value that are kept.
const DIGITS: u8 = 3;

/// Latencies as they come in. About 270 KiB, however many.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    /// To the nanosecond, where the histogram has three digits.
    max_ns: u64,
}

/// Latencies of a run. A value at a percentile is right to three digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencySummary {
    /// How many there were; at least one.
    pub count: u64,
    /// Half took no longer.
    pub p50: Duration,
    /// 99% took no longer.
    pub p99: Duration,
    /// 99.9% took no longer.
    pub p999: Duration,
    /// None took longer.
    pub max: Duration,
}

/// How latencies are distributed. Each is right to three digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// None was shorter.
    pub least: Duration,
    /// What [`Latency::summary`] says of the same.
    pub summary: LatencySummary,
    /// Percentiles that people ask for, each with at least one request beyond it: the part of all requests that took no longer, and how
    /// long. The last one is the maximum.
    pub percentiles: Vec<(f64, Duration)>,
    /// Ascending nines and what the percentile at each is, up to the share that a single request has.
    pub nines: Vec<(f64, Duration)>,
    /// Ranges side by side, from the shortest latency to the longest.
    pub ranges: Vec<LatencyRange>,
}

/// Requests that took equally long, more or less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyRange {
    /// The shortest latency of the range, in nanoseconds; at least 1.
    pub from_ns: f64,
    /// The latency at which the next range begins.
    pub to_ns: f64,
    /// How many there were.
    pub count: u64,
}

/// Points of the curve to a nine.
const POINTS_A_NINE: u32 = 24;
/// The most ranges of a distribution, and the most to a power of ten.
const RANGES: u32 = 40;
const RANGES_A_DECADE: f64 = 20.0;
/// Percentiles that people ask for.
const ASKED_FOR: [f64; 8] = [0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];

impl Default for Latency {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("1 is below an hour, 3 digits below 6");
        Self { histogram, max_ns: 0 }
    }
}

impl Latency {
    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.record_many(latency, 1);
    }

    /// Adds `count` that took equally long.
    #[inline]
    pub fn record_many(&mut self, latency: Duration, count: u64) {
        if count > 0 {
            let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            self.max_ns = self.max_ns.max(nanoseconds);
            self.histogram.saturating_record_n(nanoseconds.min(LONGEST_NS), count);
        }
    }

    /// What is known so far; `None` when none was added.
    pub fn summary(&self) -> Option<LatencySummary> {
        (!self.histogram.is_empty()).then(|| LatencySummary {
            count: self.histogram.len(),
            p50: self.at(0.5),
            p99: self.at(0.99),
            p999: self.at(0.999),
            max: Duration::from_nanos(self.max_ns),
        })
    }

    /// How those so far are distributed; `None` when none was added.
    pub fn distribution(&self) -> Option<Distribution> {
        let summary = self.summary()?;
        let beyond = |quantile: f64| summary.count as f64 * (1.0 - quantile);
        // A float of one may be a little less.
        let percentiles = ASKED_FOR.into_iter().filter(|quantile| beyond(*quantile) > 1.0 - 1e-6);
        let percentiles = percentiles.map(|quantile| (quantile, self.at(quantile))).chain([(1.0, summary.max)]);
        // One request of all, and the whole first nine where there are fewer than ten.
        let most = (summary.count as f64).log10().max(1.0);
        let steps = (most * f64::from(POINTS_A_NINE)) as u32;
        let nines = (0..steps).map(|step| f64::from(step) / f64::from(POINTS_A_NINE));
        let below = self.counts_below();
        let at_nines = |nines: f64| {
            let rank = (summary.count as f64 * (1.0 - 10f64.powf(-nines))).ceil().max(1.0) as u64;
            let first = below.partition_point(|(_, count)| *count < rank).min(below.len() - 1);
            Duration::from_nanos(below[first].0.min(self.max_ns))
        };
        let nines = nines.map(|nines| (nines, at_nines(nines))).chain([(most, summary.max)]);
        Some(Distribution {
            least: self.at(0.0),
            percentiles: percentiles.collect(),
            nines: nines.collect(),
            ranges: self.ranges(&below),
            summary,
        })
    }

    fn at(&self, quantile: f64) -> Duration {
        // A bucket's upper end may lie above all that is in it.
        Duration::from_nanos(self.histogram.value_at_quantile(quantile).min(self.max_ns))
    }

    /// Each latency that there was, ascending, and how many took no longer: to look up many percentiles, as each look-up of the
    /// histogram's own goes through all of it.
    fn counts_below(&self) -> Vec<(u64, u64)> {
        let mut count = 0;
        let upto = |bucket: hdrhistogram::iterators::IterationValue<u64>| {
            count += bucket.count_since_last_iteration();
            (bucket.value_iterated_to(), count)
        };
        self.histogram.iter_recorded().map(upto).collect()
    }

    fn ranges(&self, below: &[(u64, u64)]) -> Vec<LatencyRange> {
        let (least, most) = (self.histogram.min().max(1) as f64, self.histogram.max().max(1) as f64);
        let decades = (most / least).log10();
        let count = (decades * RANGES_A_DECADE).ceil().clamp(1.0, f64::from(RANGES)) as u32;
        // A width of nothing would be a range that holds nothing.
        let width = (decades / f64::from(count)).max(1.0 / RANGES_A_DECADE);
        let edge = |index: u32| least * 10f64.powf(width * f64::from(index));
        let mut ranges: Vec<_> =
            (0..count).map(|index| LatencyRange { from_ns: edge(index), to_ns: edge(index + 1), count: 0 }).collect();
        let mut before = 0;
        for (value, count) in below {
            let index = ranges.partition_point(|range| range.to_ns <= *value as f64).min(ranges.len() - 1);
            ranges[index].count += count - before;
            before = *count;
        }
        ranges
    }
}

impl LatencySummary {
    pub(super) fn rows(&self) -> [Row; 4] {
        [
            Row::both("latency_p50_ns", "latency p50", Value::Elapsed(self.p50)),
            Row::both("latency_p99_ns", "latency p99", Value::Elapsed(self.p99)),
            Row::both("latency_p999_ns", "latency p99.9", Value::Elapsed(self.p999)),
            Row::both("latency_max_ns", "latency max", Value::Elapsed(self.max)),
        ]
    }
}

#[cfg(test)]
mod tests;
