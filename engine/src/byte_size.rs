//! Sizes in bytes as people write them.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A number of bytes. Read from `4096`, `128KiB`, `4GiB`; written in the largest unit that divides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// The units, from the largest.
const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ByteSizeError {
    /// It has no number, or one with a sign, a fraction or an exponent.
    #[error("'{0}' is no size: write a whole number of bytes, or one with B, KiB, MiB, GiB or TiB, such as 128KiB")]
    NotANumber(String),
    /// Its unit is not one of ours.
    #[error("'{text}' has the unit '{unit}': write B, KiB, MiB, GiB or TiB (powers of 1,024){}", meant(unit).map(|meant| format!("; {meant} is probably meant")).unwrap_or_default())]
    Unit {
        /// The whole text.
        text: String,
        /// What follows the number.
        unit: String,
    },
    /// It is 2^64 bytes or more.
    #[error("'{0}' is more than 16,777,215 TiB, the most that can be named")]
    TooLarge(String),
}

/// The unit that somebody who wrote `unit` had in mind.
fn meant(unit: &str) -> Option<&'static str> {
    match unit.to_ascii_lowercase().as_str() {
        "k" | "kb" | "ki" | "kib" => Some("KiB"),
        "m" | "mb" | "mi" | "mib" => Some("MiB"),
        "g" | "gb" | "gi" | "gib" => Some("GiB"),
        "t" | "tb" | "ti" | "tib" => Some("TiB"),
        _ => None,
    }
}

impl FromStr for ByteSize {
    type Err = ByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        if number.is_empty() {
            return Err(ByteSizeError::NotANumber(text.to_owned()));
        }
        let shift = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, shift)) => *shift,
            None if unit.is_empty() => 0,
            None if unit.starts_with(['.', ',', 'e', 'E', '_', ' ']) => {
                return Err(ByteSizeError::NotANumber(text.to_owned()));
            }
            None => return Err(ByteSizeError::Unit { text: text.to_owned(), unit: unit.to_owned() }),
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| ByteSizeError::TooLarge(text.to_owned()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().find(|(_, shift)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match unit {
            Some((name, shift)) if *shift > 0 => write!(f, "{}{name}", self.0 >> shift),
            _ => write!(f, "{}B", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_people_write() {
        let size = |text: &str| text.parse::<ByteSize>().map(|size| size.0);
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("512B"), Ok(512));
        assert_eq!(size("128KiB"), Ok(128 << 10));
        assert_eq!(size("8TiB"), Ok(8 << 40));
        assert!(size("4GB").unwrap_err().to_string().contains("GiB is probably meant"));
        assert!(size("4G").unwrap_err().to_string().contains("GiB is probably meant"));
        assert!(!size("4parsecs").unwrap_err().to_string().contains("probably"));
        for wrong in ["", "GiB", "-1", "+1", "1.5GiB", " 1", "1 GiB", "1e9", "0x10"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("16777216TiB"), Err(ByteSizeError::TooLarge("16777216TiB".into())));
        assert_eq!(size("18446744073709551616"), Err(ByteSizeError::TooLarge("18446744073709551616".into())));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes in any::<u64>(), shift in 0u32..64) {
            let size = ByteSize(bytes >> shift << (shift / 2));
            prop_assert_eq!(size.to_string().parse(), Ok(size));
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,12}") {
            let _ = text.parse::<ByteSize>();
        }
    }
}
