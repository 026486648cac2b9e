//! Rows: a name for people, a name for programs, and a value that both can read.

use std::fmt;
use std::time::Duration;

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::units::{About, Count, Elapsed, Rate};

/// A value of a row. Shown rounded, with its unit; serialised exactly, in its base unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number of things.
    Count(u64),
    /// A number that may exceed 64 bits.
    Large(u128),
    /// A number with a sign and a unit, `25 °C`.
    Unit(i64, &'static str),
    /// A number of bytes.
    Bytes(u64),
    /// Bytes a second.
    BytesASecond(f64),
    /// Things a second.
    ASecond(f64),
    /// So many of one thing for each of another.
    Ratio(f64),
    /// A length of time.
    Elapsed(Duration),
    /// So many of so many.
    Share {
        /// How many.
        part: u64,
        /// Of how many.
        of: u64,
    },
    /// What two sides counted.
    Pair {
        /// What we counted.
        ours: u64,
        /// What that is.
        what: &'static str,
        /// What the other side counted.
        theirs: u64,
        /// What that is.
        saw: &'static str,
    },
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Yes or no.
    Flag(bool),
    /// What has parts of its own; for JSON.
    Nested(serde_json::Value),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(number) => write!(f, "{}", Count(*number)),
            Self::Large(number) => match u64::try_from(*number) {
                Ok(number) => write!(f, "{}", Count(number)),
                Err(_) => write!(f, "{number}"),
            },
            Self::Unit(number, unit) => write!(f, "{number} {unit}"),
            Self::Bytes(bytes @ ..1024) => write!(f, "{bytes} B"),
            Self::Bytes(bytes) => write!(f, "{} ({} B)", About(*bytes), Count(*bytes)),
            Self::BytesASecond(rate) => write!(f, "{}", Rate::of_bytes_a_second(*rate)),
            Self::ASecond(rate @ ..100.0) => write!(f, "{rate:.1}"),
            Self::ASecond(rate) => write!(f, "{}", Count(rate.round() as u64)),
            Self::Ratio(ratio) => write!(f, "{ratio:.2}"),
            Self::Elapsed(elapsed) => write!(f, "{}", Elapsed(*elapsed)),
            Self::Share { part, of: 0 } => write!(f, "{}", Count(*part)),
            Self::Share { part, of } => write!(f, "{} ({:.1}%)", Count(*part), *part as f64 * 100.0 / *of as f64),
            Self::Pair { ours, what, theirs, saw } => {
                write!(f, "{} {what}, {} {saw}", Count(*ours), Count(*theirs))
            }
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) => f.write_str(&texts.join("; ")),
            Self::Flag(flag) => f.write_str(if *flag { "yes" } else { "no" }),
            Self::Nested(nested) => write!(f, "{nested}"),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(number) | Self::Bytes(number) => serializer.serialize_u64(*number),
            Self::Large(number) => serializer.serialize_u128(*number),
            Self::Unit(number, _) => serializer.serialize_i64(*number),
            Self::BytesASecond(rate) | Self::ASecond(rate) | Self::Ratio(rate) => serializer.serialize_f64(*rate),
            Self::Elapsed(elapsed) => serializer.serialize_u64(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)),
            Self::Share { part, .. } => serializer.serialize_u64(*part),
            Self::Pair { ours, theirs, .. } => [ours, theirs].serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Texts(texts) => texts.serialize(serializer),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Nested(nested) => nested.serialize(serializer),
        }
    }
}

/// One row of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its name in JSON, snake_case with the unit where it has one (`_ns`, `_bytes`); `None`: not there.
    pub key: Option<&'static str>,
    /// Its name in the table; `None`: not there.
    pub label: Option<&'static str>,
    /// What it says.
    pub value: Value,
}

impl Row {
    /// A row of JSON and of the table.
    pub fn both(key: &'static str, label: &'static str, value: Value) -> Self {
        Self { key: Some(key), label: Some(label), value }
    }

    /// A row of JSON alone.
    pub fn json(key: &'static str, value: Value) -> Self {
        Self { key: Some(key), label: None, value }
    }

    /// A row of the table alone.
    pub fn table(label: &'static str, value: Value) -> Self {
        Self { key: None, label: Some(label), value }
    }
}

/// The rows of the table: labels, and values in a column behind the longest.
pub fn table(rows: &[Row]) -> String {
    let lines = || rows.iter().filter_map(|row| Some((row.label?, &row.value)));
    let width = lines().map(|(label, _)| label.chars().count()).max().unwrap_or_default();
    lines().map(|(label, value)| format!("{label:width$}  {value}\n")).collect()
}

/// The rows of JSON, as one object on one line.
pub fn json(rows: &[Row]) -> String {
    let text = serde_json::to_string(&Object(rows)).expect("texts and numbers under texts always serialise");
    text + "\n"
}

/// Rows as an object, in their order.
struct Object<'a>(&'a [Row]);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for row in self.0 {
            if let Some(key) = row.key {
                map.serialize_entry(key, &row.value)?;
            }
        }
        map.end()
    }
}
