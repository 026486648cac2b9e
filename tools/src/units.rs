//! Numbers as people read them.
//!
//! Sizes are in units of 1,024 by their IEC names. Rates are in GB/s, which is 10^9 bytes a second, as drives and links state theirs.
//! Sizes that people write are read by [`ByteSize`](tentpeg_engine::ByteSize).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Units of [`About`], largest first, with how many bits they shift.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// A number of bytes for a reader: three digits or so, in the unit that suits. `3.31 GiB`, `512 B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About(pub u64);

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Half of the unit below is enough to reach a unit, so that 1023.9 KiB reads as 1.00 MiB.
        let reached = |shift: u32| self.0.saturating_add((1u64 << shift) >> 11) >> shift > 0;
        match UNITS.iter().find(|(_, shift)| reached(*shift)) {
            Some((unit, shift @ 10..)) => {
                f.pad(&format!("{} {unit}", three_digits(self.0 as f64 / (1u64 << shift) as f64)))
            }
            _ => f.pad(&format!("{} B", self.0)),
        }
    }
}

/// A number of things, with a separator at each thousand: `76,613`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// A length of time with three digits: `812 ns`, `12.4 µs`, `3.05 ms`, `75.0 s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(pub Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        if nanoseconds < 1000 {
            return f.pad(&format!("{nanoseconds} ns"));
        }
        // What rounds to 1,000 of a unit is 1 of the next.
        let (unit, in_ns) = match nanoseconds {
            0..999_500 => ("µs", 1e3),
            999_500..999_500_000 => ("ms", 1e6),
            _ => ("s", 1e9),
        };
        f.pad(&format!("{} {unit}", three_digits(nanoseconds as f64 / in_ns)))
    }
}

/// A length of time as users write it: a whole number with its unit, `500ms`, `10s`, `2min`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

/// A text that is no [`Time`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{text}' is no time: write a whole number and ms, s or min, such as 500ms or 10s; at most 10,000min")]
pub struct TimeError {
    /// The text.
    pub text: String,
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let milliseconds: Option<u64> = match unit {
            "ms" => Some(1),
            "s" => Some(1000),
            "min" => Some(60_000),
            _ => None,
        };
        let product = number.parse::<u64>().ok().zip(milliseconds).and_then(|(number, unit)| number.checked_mul(unit));
        let time = product.filter(|milliseconds| *milliseconds <= 600_000_000).map(Duration::from_millis);
        time.map(Self).ok_or_else(|| TimeError { text: text.to_owned() })
    }
}

/// A rate of bytes: `12.4 GB/s`. Always in GB/s, which is 10^9 bytes a second, so that rates are easy to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    gb_per_s: f64,
}

impl Rate {
    /// So many bytes in so much time. `None`: no time has passed, so there is no rate.
    pub fn of(bytes: u64, time: Duration) -> Option<Self> {
        let gb_per_s = bytes as f64 / 1e9 / time.as_secs_f64();
        (!time.is_zero()).then_some(Self { gb_per_s })
    }

    /// A rate that is known, of `rate` bytes a second.
    pub fn of_bytes_a_second(rate: f64) -> Self {
        Self { gb_per_s: rate / 1e9 }
    }

    /// The rate, in 10^9 bytes a second.
    pub fn gb_per_s(self) -> f64 {
        self.gb_per_s
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} GB/s", three_digits(self.gb_per_s)))
    }
}

/// Three digits of a number that is not negative: more where it has more before the point, fewer where it is below 0.1.
fn three_digits(number: f64) -> String {
    match number {
        ..0.9995 => format!("{number:.3}"),
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests;
