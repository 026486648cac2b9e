//! Sizes as users write them, and numbers as they read them.
//!
//! A size is a whole number of bytes, or of a unit of 1,024, by its IEC name: `4096`, `512B`, `128KiB`, `4GiB`, `1TiB`. Units that
//! mean a power of 1,000 to some and of 1,024 to others (`K`, `M`, `KB`, `MB`) are refused. Rates are in GB/s, which is 10^9 bytes a
//! second, as drives and links state theirs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// Units of [`Size`], largest first, with how many bits they shift.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// A number of bytes. Shown exactly, in the largest unit of which it is a whole number; what is shown can be parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Why a text is not a [`Size`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizeError {
    /// It does not begin with a digit.
    #[error("`{text}` is not a size: write a whole number of bytes or of a unit, such as 4096, 128KiB or 4GiB")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The number has a fraction or separators.
    #[error(
        "`{text}` is not a whole number: write a smaller unit instead, such as 1536MiB for 1.5 GiB, and no separators"
    )]
    NotWhole {
        /// The text.
        text: String,
    },
    /// The unit means one thing to some and another to others.
    #[error(
        "`{text}`: the unit `{unit}` may mean {decimal} or {binary} bytes: write {number}{right} or the number of bytes",
        decimal = Count(*.decimal), binary = Count(*.binary)
    )]
    Ambiguous {
        /// The text.
        text: String,
        /// The number before the unit.
        number: u64,
        /// The unit as given.
        unit: String,
        /// What it is as a power of 1,000.
        decimal: u64,
        /// What it is as a power of 1,024.
        binary: u64,
        /// The IEC name of the latter.
        right: &'static str,
    },
    /// There is no such unit.
    #[error("`{text}`: there is no unit `{unit}`: write B, KiB, MiB, GiB or TiB right behind the number, such as 4GiB")]
    UnknownUnit {
        /// The text.
        text: String,
        /// What stands behind the number.
        unit: String,
    },
    /// The size does not fit in 64 bits.
    #[error("`{text}` is too large: the most is {} bytes", u64::MAX)]
    TooLarge {
        /// The text.
        text: String,
    },
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let owned = || text.to_owned();
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(SizeError::NotANumber { text: owned() });
        }
        if unit.starts_with(['.', ',', '_']) {
            return Err(SizeError::NotWhole { text: owned() });
        }
        // Digits only, so the one thing that can be wrong is their number.
        let number: u64 = number.parse().map_err(|_| SizeError::TooLarge { text: owned() })?;
        let shift = match unit {
            "" => 0,
            _ => match UNITS.iter().find(|(name, _)| *name == unit) {
                Some((_, shift)) => *shift,
                None => return Err(wrong_unit(text, number, unit)),
            },
        };
        let size = number.checked_mul(1 << shift);
        size.map(Size).ok_or_else(|| SizeError::TooLarge { text: owned() })
    }
}

fn wrong_unit(text: &str, number: u64, unit: &str) -> SizeError {
    let (text, unit) = (text.to_owned(), unit.to_owned());
    let letter = unit.to_ascii_uppercase();
    let letter = letter.strip_suffix('B').unwrap_or(&letter);
    let prefixes = [("K", 1, "KiB"), ("M", 2, "MiB"), ("G", 3, "GiB"), ("T", 4, "TiB")];
    match prefixes.into_iter().find(|(prefix, _, _)| *prefix == letter) {
        Some((_, power, right)) => {
            SizeError::Ambiguous { text, number, unit, decimal: 1000u64.pow(power), binary: 1024u64.pow(power), right }
        }
        None => SizeError::UnknownUnit { text, unit },
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |shift: u32| self.0 != 0 && self.0.trailing_zeros() >= shift;
        match UNITS.iter().find(|(_, shift)| whole(*shift)) {
            Some((unit, shift)) => f.pad(&format!("{}{unit}", self.0 >> shift)),
            None => f.pad("0B"),
        }
    }
}

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
