//! What a run has moved over time, sampled by the run's own loop.
//!
//! A loop calls [`look`](Timeline::look) once a turn with the time that it has at hand; all but a few thousand of these calls end at
//! one comparison. Memory is fixed: when there are [`MOST`] samples those that are near each other go, and from then on they are taken
//! less often. Samples are running totals, so nothing is lost by that but detail.

use std::time::Duration;

/// The most samples that are kept.
const MOST: usize = 240;
/// The most parts that a run is shown in.
const PARTS: u32 = 80;
/// How far apart the first samples are.
const FIRST_INTERVAL: Duration = Duration::from_millis(1);

/// What has completed since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the reads.
    pub bytes_read: u64,
    /// Bytes of the writes.
    pub bytes_written: u64,
}

impl Moved {
    fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            writes: self.writes.saturating_sub(before.writes),
            bytes_read: self.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
        }
    }
}

/// Samples of a run, in the order of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    interval: Duration,
    /// When the next sample is due.
    next: Duration,
    /// When each was taken, since the run began, and what had moved by then.
    samples: Vec<(Duration, Moved)>,
}

/// What completed between two samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its begin, since the run began.
    pub from: Duration,
    /// Its end, later than its begin.
    pub to: Duration,
    /// What completed in it.
    pub moved: Moved,
}

impl Interval {
    /// So much in the interval, as a rate a second.
    pub fn a_second(&self, number: u64) -> f64 {
        number as f64 / (self.to - self.from).as_secs_f64()
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self { interval: FIRST_INTERVAL, next: FIRST_INTERVAL, samples: Vec::new() }
    }
}

impl Timeline {
    /// Takes a sample if one is due at `elapsed` since the run began. Times do not go back from one call to the next.
    #[inline]
    pub fn look(&mut self, elapsed: Duration, moved: Moved) {
        if elapsed >= self.next {
            self.take(elapsed, moved);
        }
    }

    #[cold]
    fn take(&mut self, elapsed: Duration, moved: Moved) {
        if self.samples.len() == MOST {
            self.thin_out(elapsed);
        }
        self.samples.push((elapsed, moved));
        self.next = elapsed.saturating_add(self.interval);
    }

    /// Makes room: from now on samples are so far apart that half of the room would do for all of them, and those that are nearer go.
    /// A loop that was slow, and has left them farther apart than was asked, loses none of them.
    fn thin_out(&mut self, elapsed: Duration) {
        self.interval = self.interval.saturating_mul(2).max(elapsed / (MOST as u32 / 2));
        let (interval, mut kept) = (self.interval, Duration::ZERO);
        self.samples.retain(|(at, _)| {
            let keep = at.saturating_sub(kept) >= interval;
            kept = if keep { *at } else { kept };
            keep
        });
    }

    /// Takes the last sample, at the end of the run. What is left of an interval joins the one before when it is shorter than half.
    pub fn finish(&mut self, elapsed: Duration, moved: Moved) {
        match self.samples.last_mut() {
            Some(last) if elapsed.saturating_sub(last.0) < self.interval / 2 => *last = (elapsed.max(last.0), moved),
            _ => self.take(elapsed, moved),
        }
    }

    /// What completed from one sample to another, the first from the run's begin. Samples that are nearer than a part of the run are
    /// passed over: the bursts of so short a time say nothing.
    pub fn intervals(&self) -> Vec<Interval> {
        let (mut from, mut before) = (Duration::ZERO, Moved::default());
        let end = self.samples.last().map_or(Duration::ZERO, |(at, _)| *at);
        let least = end / PARTS;
        let mut interval = |(to, now): (Duration, Moved)| {
            let interval = Interval { from, to, moved: now.since(before) };
            // What is left before the end joins the last one.
            let is_wanted = to == end || (to - from >= least && end - to >= least);
            (to > from && is_wanted).then(|| {
                (from, before) = (to, now);
                interval
            })
        };
        self.samples.iter().filter_map(|sample| interval(*sample)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moved(number: u64) -> Moved {
        Moved { reads: number, writes: 2 * number, bytes_read: 4096 * number, bytes_written: 8192 * number }
    }

    #[test]
    fn a_sample_is_taken_only_when_it_is_due() {
        let mut timeline = Timeline::default();
        for microseconds in (0..3000).step_by(100) {
            timeline.look(Duration::from_micros(microseconds), moved(microseconds));
        }
        assert_eq!(timeline.samples.len(), 2);
        timeline.finish(Duration::from_micros(3000), moved(3000));
        let ends: Vec<_> = timeline.intervals().iter().map(|interval| interval.to.as_micros()).collect();
        assert_eq!(ends, [1000, 2000, 3000]);
    }

    #[test]
    fn a_run_without_time_has_no_interval_and_one_without_samples_has_one() {
        let mut timeline = Timeline::default();
        assert_eq!(timeline.intervals(), []);
        timeline.finish(Duration::ZERO, moved(1));
        assert_eq!(timeline.intervals(), []);
        let mut timeline = Timeline::default();
        timeline.finish(Duration::from_nanos(2), moved(1));
        let whole = Interval { from: Duration::ZERO, to: Duration::from_nanos(2), moved: moved(1) };
        assert_eq!(timeline.intervals(), [whole]);
        assert!((whole.a_second(1) - 5e8).abs() < 1.0);
    }

    #[test]
    fn what_is_left_at_the_end_makes_no_sliver() {
        let mut timeline = Timeline::default();
        timeline.look(Duration::from_millis(1), moved(1));
        timeline.look(Duration::from_millis(2), moved(2));
        timeline.finish(Duration::from_micros(2001), moved(3));
        let intervals = timeline.intervals();
        assert_eq!((intervals.len(), intervals[1].to), (2, Duration::from_micros(2001)));
        assert_eq!(intervals[1].moved, moved(2), "from 1 to 3");
    }

    #[test]
    fn a_slow_loop_has_its_begin_in_as_much_detail_as_its_end() {
        let mut timeline = Timeline::default();
        let second = Duration::from_secs(1);
        (1..=1000).for_each(|number| timeline.look(number * second, moved(u64::from(number))));
        timeline.finish(1000 * second, moved(1000));
        let lengths: Vec<_> = timeline.intervals().iter().map(|interval| interval.to - interval.from).collect();
        assert!(lengths.len() >= PARTS as usize / 2, "{lengths:?}");
        assert!(lengths.iter().all(|length| *length >= 1000 * second / PARTS && *length <= 3000 * second / PARTS));
    }

    proptest! {
        #[test]
        fn however_long_it_takes_memory_is_fixed_and_nothing_is_lost(
            steps in prop::collection::vec((0u64..1 << 40, 0u64..1000), 0..2000),
        ) {
            let (mut timeline, mut elapsed, mut total) = (Timeline::default(), Duration::ZERO, 0);
            for (nanoseconds, number) in steps {
                elapsed += Duration::from_nanos(nanoseconds);
                total += number;
                timeline.look(elapsed, moved(total));
            }
            timeline.finish(elapsed, moved(total));
            prop_assert!(timeline.samples.len() <= MOST);
            let intervals = timeline.intervals();
            if !elapsed.is_zero() {
                prop_assert_eq!(intervals.iter().map(|interval| interval.moved.reads).sum::<u64>(), total);
                prop_assert_eq!(intervals.last().unwrap().to, elapsed);
            }
            prop_assert!(intervals.iter().all(|interval| interval.to > interval.from));
            prop_assert!(intervals.len() <= PARTS as usize + 1);
            prop_assert!(intervals.windows(2).all(|pair| pair[0].to == pair[1].from));
        }
    }
}
