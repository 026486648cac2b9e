//! How long requests took, in memory that does not grow with their number.

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
        // A bucket's upper end may lie above all that is in it.
        let at = |quantile| Duration::from_nanos(self.histogram.value_at_quantile(quantile).min(self.max_ns));
        (!self.histogram.is_empty()).then(|| LatencySummary {
            count: self.histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: Duration::from_nanos(self.max_ns),
        })
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
