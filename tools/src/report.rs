//! What a run has to say, for people and for programs.
//!
//! A [`Report`] holds the numbers that runs have in common, and [`Row`]s of the run's own. It is shown as a table
//! ([`table`](Report::table)) or as one JSON object ([`json`](Report::json)), made of the same rows. What does not apply is left out of
//! both. In JSON each number is in its base unit: bytes, nanoseconds, and what there is of them a second; names stay as they are.
//!
//! What plots need beside it, [`Plots`], is in neither: a [`page`] shows it, with the rows, and goes to a [`mod@file`].

mod errors;
pub mod file;
mod latency;
mod machine;
pub mod page;
mod plot;
mod row;
mod statistics;
mod timeline;

use std::time::Duration;

use tentpeg_engine::Memory;
use tentpeg_engine::statistics::Statistics;

pub use errors::Errors;
pub use latency::{Distribution, Latency, LatencyRange, LatencySummary};
pub use row::{Row, Value, json, table};
pub use timeline::{Interval, Moved, Timeline};

use crate::both_sides::BothSides;
use crate::memory_place::stands_on;
use crate::replay::hit_curve::HitCurve;

/// Blocks that a run found held, of those it looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hits {
    /// Blocks that were held.
    pub hits: u64,
    /// Blocks looked for.
    pub of: u64,
}

/// Memory that a run moved bytes to or from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUsed {
    /// Its length in bytes.
    pub bytes: u64,
    /// What it stands on, and why not on something better: `ordinary pages; no hugepages free`.
    pub pages: String,
}

impl From<&Memory> for MemoryUsed {
    fn from(memory: &Memory) -> Self {
        Self { bytes: memory.len() as u64, pages: stands_on(memory) }
    }
}

/// What is drawn of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plots {
    /// The segment that the bytes went to and came from.
    pub segment: String,
    /// Bytes of a block, where blocks are of one size.
    pub block_bytes: Option<u64>,
    /// What completed when.
    pub timeline: Timeline,
    /// How long requests took.
    pub latency: Option<Distribution>,
    /// What a latency is of.
    pub latency_of: &'static str,
    /// Hits with other numbers of slots; `None`: the run has no slots, or they were not asked for.
    pub hit_curve: Option<HitCurve>,
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The subcommand.
    pub command: &'static str,
    /// The device, as the engine names it.
    pub device: String,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// What the run was asked for, and whatever is to stand before the counts.
    pub settings: Vec<Row>,
    /// Requests that ended.
    pub requests: Option<u64>,
    /// Blocks that were held.
    pub hits: Option<Hits>,
    /// Blocks read from the device.
    pub reads: Option<u64>,
    /// Blocks written to the device.
    pub writes: Option<u64>,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// From the first submit to the last completion.
    pub elapsed: Duration,
    /// From the start of the run, before the device was opened, to its first completion.
    pub set_up: Option<Duration>,
    /// How long requests took.
    pub latency: Option<LatencySummary>,
    /// Rows of the run's own, after the latency.
    pub rows: Vec<Row>,
    /// Memory that the bytes went to or came from.
    pub memory: Option<MemoryUsed>,
    /// The most memory that the process had resident, in bytes.
    pub peak_resident: Option<u64>,
    /// Which way the bytes went.
    pub path: Option<String>,
    /// What engine and model counted.
    pub both_sides: Option<BothSides>,
    /// What the engine counted by lane, device, segment and path.
    pub statistics: Option<Statistics>,
    /// What went wrong.
    pub errors: Errors,
    /// What is to be said of it on standard error.
    pub note: Option<String>,
    /// What is drawn of it.
    pub plots: Plots,
}

impl Report {
    /// Adds both sides' counts, and an error for each difference.
    pub fn add_both_sides(&mut self, both_sides: BothSides) {
        both_sides.check(&mut self.errors);
        self.both_sides = Some(both_sides);
    }

    /// Everything as rows, in the order of the table.
    pub fn all_rows(&self) -> Vec<Row> {
        let mut rows = vec![
            Row::json("command", Value::Text(self.command.to_owned())),
            Row::both("device", "device", Value::Text(self.device.clone())),
            Row::json("interrupted", Value::Flag(self.interrupted)),
        ];
        if self.interrupted {
            rows.push(Row::table(
                "interrupted",
                Value::Text("yes: the numbers are of what was done so far".to_owned()),
            ));
        }
        rows.extend_from_slice(&self.settings);
        rows.extend(self.requests.map(|requests| Row::both("requests", "requests", Value::Count(requests))));
        if let Some(Hits { hits, of }) = self.hits {
            rows.push(Row::both("blocks", "blocks", Value::Count(of)));
            rows.push(Row::json("hits", Value::Count(hits)));
            rows.push(Row::table("hits", Value::Share { part: hits, of }));
        }
        rows.extend(self.reads.map(|reads| Row::both("reads", "reads", Value::Count(reads))));
        rows.extend(self.writes.map(|writes| Row::both("writes", "writes", Value::Count(writes))));
        let bytes = self.bytes_read.saturating_add(self.bytes_written);
        rows.extend([
            Row::json("bytes_read", Value::Count(self.bytes_read)),
            Row::json("bytes_written", Value::Count(self.bytes_written)),
            Row::both("bytes", "bytes", Value::Bytes(bytes)),
            Row::both("elapsed_ns", "time", Value::Elapsed(self.elapsed)),
        ]);
        rows.extend(self.set_up.map(|set_up| Row::both("set_up_ns", "set-up to first I/O", Value::Elapsed(set_up))));
        // A rate needs time to have passed.
        let a_second = |number: u64| number as f64 / self.elapsed.as_secs_f64();
        if !self.elapsed.is_zero() {
            rows.push(Row::both("bytes_per_second", "GB/s", Value::BytesASecond(a_second(bytes))));
            if self.reads.is_some() || self.writes.is_some() {
                let blocks = self.reads.unwrap_or_default().saturating_add(self.writes.unwrap_or_default());
                rows.push(Row::both("blocks_per_second", "blocks/s", Value::ASecond(a_second(blocks))));
            }
        }
        rows.extend(self.latency.iter().flat_map(LatencySummary::rows));
        rows.extend_from_slice(&self.rows);
        rows.extend(self.both_sides.iter().flat_map(BothSides::rows));
        rows.extend(self.statistics.iter().flat_map(statistics::rows));
        if let Some(MemoryUsed { bytes, pages }) = &self.memory {
            rows.push(Row::both("memory", "memory used", Value::Text(pages.clone())));
            rows.push(Row::both("memory_bytes", "memory size", Value::Bytes(*bytes)));
        }
        rows.extend(
            self.peak_resident.map(|peak| Row::both("peak_resident_bytes", "peak resident", Value::Bytes(peak))),
        );
        rows.extend(self.path.iter().map(|path| Row::both("path", "path of the bytes", Value::Text(path.clone()))));
        rows.extend(self.errors.rows());
        rows
    }

    /// A table with a line for each row, each ended by a newline.
    pub fn table(&self) -> String {
        table(&self.all_rows())
    }

    /// One JSON object on one line, ended by a newline.
    pub fn json(&self) -> String {
        json(&self.all_rows())
    }
}

#[cfg(test)]
mod tests;
