//! Axes: where a value lies, and which values get a line and a label.

use std::time::Duration;

use crate::units::Elapsed;

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Spread {
    Linear,
    /// Equal ratios are equally long; values are above 0.
    Log,
}

/// A value with a line and a label.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Tick {
    /// Where.
    pub(in crate::report) value: f64,
    /// What stands there.
    pub(in crate::report) label: String,
}

/// An axis from a low to a high value.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Axis {
    spread: Spread,
    low: f64,
    high: f64,
    /// What is measured, and in which unit.
    pub(in crate::report) title: String,
    /// Its lines, in ascending order.
    pub(in crate::report) ticks: Vec<Tick>,
}

/// Labels that an axis has at least room for.
const LABELS: f64 = 5.0;

impl Axis {
    /// From 0 to a round number that is not below `most`.
    pub(in crate::report) fn from_zero(title: impl Into<String>, most: f64) -> Self {
        let most = if most.is_finite() && most > f64::MIN_POSITIVE { most } else { 1.0 };
        let step = round_step(most / LABELS);
        let steps = (most / step).ceil().max(1.0);
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let tick = |number: u32| {
            let value = f64::from(number) * step;
            Tick { value, label: format!("{value:.decimals$}") }
        };
        let ticks = (0..=steps as u32).map(tick).collect();
        Self { spread: Spread::Linear, low: 0.0, high: steps * step, title: title.into(), ticks }
    }

    /// From 0 to `most` itself.
    pub(in crate::report) fn up_to(title: impl Into<String>, most: f64) -> Self {
        let mut axis = Self::from_zero(title, most);
        if most > 0.0 && most < axis.high {
            axis.high = most;
            axis.ticks.retain(|tick| tick.value <= most);
        }
        axis
    }

    /// From `low` to `high`, both above 0, with lines at `ticks`.
    pub(in crate::report) fn log(title: impl Into<String>, low: f64, high: f64, ticks: Vec<Tick>) -> Self {
        let low = if low.is_finite() { low.max(f64::MIN_POSITIVE) } else { 1.0 };
        let high = if high > low && high.is_finite() { high } else { low * 2.0 };
        Self { spread: Spread::Log, low, high, title: title.into(), ticks }
    }

    /// From 0 to `high`, with lines at `ticks`.
    pub(in crate::report) fn linear(title: impl Into<String>, high: f64, ticks: Vec<Tick>) -> Self {
        Self { spread: Spread::Linear, low: 0.0, high, title: title.into(), ticks }
    }

    /// Of times in nanoseconds, logarithmic, with room for `least` to `most`.
    pub(in crate::report) fn of_times(title: impl Into<String>, least: f64, most: f64) -> Self {
        let (least, most) = (least.max(1.0), most.max(1.0));
        // A value at the very end would lie on the frame.
        let (low, high) = (least / 1.15, most * 1.15);
        let decades = (high / low).log10();
        let mantissas: &[u32] = match decades {
            ..1.0 => &[1, 2, 3, 4, 5, 6, 7, 8, 9],
            ..3.0 => &[1, 2, 5],
            _ => &[1],
        };
        let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let values = powers.flat_map(|power| mantissas.iter().map(move |m| f64::from(*m) * 10f64.powi(power)));
        // Nothing is shorter than a nanosecond, and an end of the axis may be.
        let inside = values.filter(|value| (low..=high).contains(value) && *value >= 1.0);
        let mut ticks: Vec<_> = inside.map(|value| Tick { value, label: time(value) }).collect();
        if ticks.is_empty() {
            ticks.push(Tick { value: least, label: time(least) });
        }
        Self::log(title, low, high, ticks)
    }

    /// Where a value lies, from 0 at the low end to 1 at the high one; what is beyond an end lies on it.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log => (value.max(f64::MIN_POSITIVE) / self.low).ln() / (self.high / self.low).ln(),
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }
}

/// The least of 1, 2 or 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    // What is a hair above a round number is that number.
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// A round number of nanoseconds, without digits that say nothing: `1 ms`, not `1.00 ms`.
fn time(nanoseconds: f64) -> String {
    let text = Elapsed(Duration::from_nanos(nanoseconds.round() as u64)).to_string();
    let (number, unit) = text.split_once(' ').unwrap_or((&text, ""));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number} {unit}")
}

/// A unit for times up to `most`: its name, and how many nanoseconds it has.
pub(in crate::report) fn unit_of_time(most: Duration) -> (&'static str, f64) {
    match most.as_nanos() {
        0..10_000 => ("ns", 1.0),
        10_000..10_000_000 => ("µs", 1e3),
        10_000_000..10_000_000_000 => ("ms", 1e6),
        10_000_000_000..600_000_000_000 => ("s", 1e9),
        600_000_000_000..36_000_000_000_000 => ("min", 60e9),
        _ => ("h", 3600e9),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn lines_are_at_round_numbers() {
        assert_eq!(labels(&Axis::from_zero("", 2.42)), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!(labels(&Axis::from_zero("", 100.0)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Axis::from_zero("", 0.0003)), ["0.0000", "0.0001", "0.0002", "0.0003"]);
        assert_eq!(labels(&Axis::up_to("", 1.16)), ["0.0", "0.5", "1.0"]);
        assert_eq!(labels(&Axis::of_times("", 1.2e6, 3.2e6)), ["2 ms", "3 ms"]);
        assert_eq!(
            labels(&Axis::of_times("", 900.0, 150_000.0)),
            ["1 µs", "2 µs", "5 µs", "10 µs", "20 µs", "50 µs", "100 µs"]
        );
        assert_eq!(labels(&Axis::of_times("", 1.0, 1e13)).len(), 14);
        assert_eq!(labels(&Axis::of_times("", 0.0, 0.0)), ["1 ns"]);
    }

    #[test]
    fn a_value_has_its_place_and_none_is_outside() {
        let linear = Axis::from_zero("", 10.0);
        assert_eq!([-1.0, 0.0, 5.0, 10.0, 11.0].map(|value| linear.place(value)), [0.0, 0.0, 0.5, 1.0, 1.0]);
        let log = Axis::log("", 1.0, 100.0, Vec::new());
        assert_eq!([0.0, 1.0, 10.0, 1000.0].map(|value| log.place(value)), [0.0, 0.0, 0.5, 1.0]);
        assert_eq!([f64::NAN, f64::INFINITY].map(|value| log.place(value)), [0.0, 1.0]);
    }

    proptest! {
        #[test]
        fn any_numbers_make_an_axis(most in any::<f64>(), other in any::<f64>()) {
            for axis in [
                Axis::from_zero("", most),
                Axis::up_to("", most),
                Axis::of_times("", most.abs().min(1e19), other.abs().min(1e19)),
                Axis::log("", most, other, Vec::new()),
            ] {
                for value in [most, other, 0.0, 1.0] {
                    prop_assert!((0.0..=1.0).contains(&axis.place(value)), "{:?}", axis);
                }
                prop_assert!(axis.ticks.len() < 40 && axis.ticks.windows(2).all(|pair| pair[0].value < pair[1].value));
                prop_assert!(axis.ticks.iter().all(|tick| tick.label.len() < 340), "{:?}", axis);
            }
        }
    }
}
