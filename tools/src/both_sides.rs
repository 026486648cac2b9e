//! Both sides' counts: what the engine says it asked for, and what the model saw of it.
//!
//! A model fetches SQEs and walks PRPs with code of its own. So commands and bytes counted by the engine as it submits, and by the
//! model as it executes, agree only when both are right. [`Start`] is taken before a run's first request, [`BothSides`] after its last
//! completion; what they hold is the difference. A device that is no model has one side.

use std::thread;
use std::time::{Duration, Instant};

use tentpeg_driver::model::ModelCounters;
use tentpeg_engine::{Engine, EngineCounters};

use crate::report::{Errors, Row, Value};

/// How long the engine's lane may take to publish the counts of its last turn.
const SETTLE: Duration = Duration::from_secs(10);

/// What one side counted in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Commands of I/O queues: submitted, or fetched as SQEs.
    pub commands: u64,
    /// Read commands of them.
    pub reads: u64,
    /// Write commands of them.
    pub writes: u64,
    /// Flush commands of them.
    pub flushes: u64,
    /// Bytes that read commands asked for, or that their PRPs covered.
    pub bytes_read: u64,
    /// Bytes that write commands asked for, or that their PRPs covered.
    pub bytes_written: u64,
}

impl Side {
    fn of_engine(now: EngineCounters, start: EngineCounters) -> Self {
        Self {
            commands: now.commands.wrapping_sub(start.commands),
            reads: now.reads.wrapping_sub(start.reads),
            writes: now.writes.wrapping_sub(start.writes),
            flushes: now.flushes.wrapping_sub(start.flushes),
            bytes_read: now.bytes_read.wrapping_sub(start.bytes_read),
            bytes_written: now.bytes_written.wrapping_sub(start.bytes_written),
        }
    }

    fn of_model(now: ModelCounters, start: ModelCounters) -> Self {
        Self {
            commands: now.io_sqes.wrapping_sub(start.io_sqes),
            reads: now.reads.wrapping_sub(start.reads),
            writes: now.writes.wrapping_sub(start.writes),
            flushes: now.flushes.wrapping_sub(start.flushes),
            bytes_read: now.read_bytes.wrapping_sub(start.read_bytes),
            bytes_written: now.write_bytes.wrapping_sub(start.write_bytes),
        }
    }

    /// The counts by name: what the engine counted, and what the model did.
    fn named(self) -> [(&'static str, &'static str, u64); 6] {
        [
            ("commands issued", "SQEs fetched", self.commands),
            ("reads issued", "reads fetched", self.reads),
            ("writes issued", "writes fetched", self.writes),
            ("flushes issued", "flushes fetched", self.flushes),
            ("bytes asked for by reads", "bytes covered by the PRPs of reads", self.bytes_read),
            ("bytes asked for by writes", "bytes covered by the PRPs of writes", self.bytes_written),
        ]
    }
}

/// The counts before a run.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    engine: EngineCounters,
    model: Option<ModelCounters>,
}

impl Start {
    /// Of a device that has no I/O in flight.
    pub fn of(engine: &Engine) -> Self {
        // What came before on this engine may not have been published yet.
        let (engine, model) =
            settled(engine, |engine, model| model.is_none_or(|model| model.io_sqes == engine.commands));
        Self { engine, model }
    }
}

/// What both sides counted in a run, and what each found wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BothSides {
    /// The engine's counts.
    pub issued: Side,
    /// The model's; `None`: the device is no model.
    pub seen: Option<Side>,
    /// Entries of PRP lists that the model has walked; `None`: as above.
    pub prp_list_entries: Option<u64>,
    /// Completions that the engine dropped as unsound.
    pub anomalies: u64,
    /// Commands that the engine has not seen the end of.
    pub unfinished: u64,
    /// What the model says a driver must never do, and this one did.
    pub violations: Vec<String>,
}

impl BothSides {
    /// Since `start`, after the last completion: every batch of the run is finished.
    pub fn since(start: &Start, engine: &Engine) -> Self {
        let (now, model) = settled(engine, |now, model| {
            let sides = model.zip(start.model).map(|(model, start)| Side::of_model(model, start));
            sides.is_none_or(|seen| seen == Side::of_engine(*now, start.engine))
        });
        Self {
            issued: Side::of_engine(now, start.engine),
            seen: model.zip(start.model).map(|(model, start)| Side::of_model(model, start)),
            prp_list_entries: model
                .zip(start.model)
                .map(|(model, start)| model.prp_list_entries.wrapping_sub(start.prp_list_entries)),
            anomalies: now.anomalies.wrapping_sub(start.engine.anomalies),
            unfinished: now.commands.saturating_sub(now.completions),
            violations: engine.violations().iter().map(|violation| format!("{violation:?}")).collect(),
        }
    }

    /// Adds an error for each difference and for all that was found wrong.
    pub fn check(&self, errors: &mut Errors) {
        if let Some(seen) = self.seen {
            for ((asked, _, issued), (_, saw, seen)) in self.issued.named().into_iter().zip(seen.named()) {
                if issued != seen {
                    errors.add(format!("both sides' counts differ: {issued} {asked}, {seen} {saw}"));
                }
            }
        }
        if self.anomalies != 0 {
            errors.add(format!("{} completions were unsound and were dropped", self.anomalies));
        }
        if self.unfinished != 0 {
            errors.add(format!("{} commands have not ended after the last completion", self.unfinished));
        }
        for violation in &self.violations {
            errors.add(format!("the model saw what a driver must never do: {violation}"));
        }
    }

    /// How a report shows them.
    pub fn rows(&self) -> Vec<Row> {
        let Side { commands, reads, writes, flushes, bytes_read, bytes_written } = self.issued;
        let mut rows = vec![
            Row::json("commands_issued", Value::Count(commands)),
            Row::json("reads_issued", Value::Count(reads)),
            Row::json("writes_issued", Value::Count(writes)),
            Row::json("flushes_issued", Value::Count(flushes)),
            Row::json("bytes_read_asked_for", Value::Count(bytes_read)),
            Row::json("bytes_written_asked_for", Value::Count(bytes_written)),
            Row::json("anomalies", Value::Count(self.anomalies)),
        ];
        let asked = bytes_read.saturating_add(bytes_written);
        let Some(seen) = self.seen else {
            rows.insert(0, Row::table("commands", Value::Count(commands)));
            rows.insert(1, Row::table("bytes asked for", Value::Count(asked)));
            return rows;
        };
        let walked = seen.bytes_read.saturating_add(seen.bytes_written);
        let pair = |ours, what, theirs, saw| Value::Pair { ours, what, theirs, saw };
        let fetched = if seen.commands == 1 { "SQE fetched" } else { "SQEs fetched" };
        rows.insert(0, Row::table("commands", pair(commands, "issued", seen.commands, fetched)));
        rows.insert(1, Row::table("bytes of commands", pair(asked, "asked for", walked, "covered by PRPs")));
        if let Some(entries) = self.prp_list_entries {
            rows.insert(2, Row::both("prp_list_entries_walked", "PRP list entries", Value::Count(entries)));
        }
        rows.extend([
            Row::json("sqes_fetched", Value::Count(seen.commands)),
            Row::json("reads_fetched", Value::Count(seen.reads)),
            Row::json("writes_fetched", Value::Count(seen.writes)),
            Row::json("flushes_fetched", Value::Count(seen.flushes)),
            Row::json("bytes_read_walked", Value::Count(seen.bytes_read)),
            Row::json("bytes_written_walked", Value::Count(seen.bytes_written)),
            Row::json("violations", Value::Count(self.violations.len() as u64)),
        ]);
        rows
    }
}

/// The counts once nothing is in flight by the engine's own, published count and `right` holds, or as they are when that takes too
/// long: the lane publishes at the end of a turn, and the last task ends before.
fn settled(
    engine: &Engine,
    right: impl Fn(&EngineCounters, Option<ModelCounters>) -> bool,
) -> (EngineCounters, Option<ModelCounters>) {
    let deadline = Instant::now() + SETTLE;
    loop {
        let (now, model) = (engine.counters(), engine.model_counters());
        if (now.commands == now.completions && right(&now, model)) || Instant::now() >= deadline {
            return (now, model);
        }
        thread::sleep(Duration::from_micros(100));
    }
}

#[cfg(test)]
mod tests;
