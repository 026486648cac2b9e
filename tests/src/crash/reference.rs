//! What the label must say and every block may hold, from what children have said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use tentpeg_engine::Durability;
use tentpeg_engine::label::SegmentEntry;
use uuid::Uuid;

use super::record::{Begin, Change, MODES, Record, Work};
use super::{Counters, Mistake};
use crate::chaos::blocks::{Blocks, Moment, WriteEnd, origin};

/// All that is known of an image.
pub(super) struct Reference {
    lba_size: u64,
    tenants: Vec<Tenant>,
    /// The change that has been begun and not ended.
    changing: Option<Change>,
    /// Whether the controller is being shut down.
    closing: bool,
    flights: BTreeMap<u32, Flight>,
    /// Whose blocks a write was for, by its number.
    writers: HashMap<u32, Uuid>,
    now: Moment,
    mistake: Option<Mistake>,
}

/// What the label must say of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    name: String,
    uuid: Uuid,
    blocks: u64,
    durability: Durability,
    generation: u64,
}

/// A segment.
struct Tenant {
    listed: Listed,
    blocks: Blocks,
    /// Acknowledged since the child began, and durable.
    durable: u64,
    /// Acknowledged since the child began, and not durable: number and end.
    cached: BTreeMap<u32, Moment>,
    /// Which of these may be the last one of a block: what each left there, and its number.
    last: BTreeMap<u64, Vec<(u32, u32)>>,
}

struct Flight {
    task: Begin,
    submitted: Moment,
}

impl Begin {
    fn range(&self) -> Range<u64> {
        self.first..self.first + self.blocks
    }
}

impl Listed {
    fn of(entry: &SegmentEntry) -> Self {
        Self {
            name: entry.name.clone(),
            uuid: entry.uuid,
            blocks: entry.capacity,
            durability: entry.durability,
            generation: entry.generation,
        }
    }

    /// The same segments, in no order.
    fn all(listed: impl Iterator<Item = Self>) -> BTreeMap<Uuid, Self> {
        listed.map(|listed| (listed.uuid, listed)).collect()
    }
}

impl Tenant {
    fn new(listed: Listed, lba_size: u64) -> Self {
        let blocks = Blocks::new(listed.blocks, lba_size);
        Self { listed, blocks, durable: 0, cached: BTreeMap::new(), last: BTreeMap::new() }
    }

    /// All that had ended before `submitted` is durable.
    fn flushed(&mut self, submitted: Moment, now: Moment) {
        self.blocks.flushed(submitted, now);
        let all = self.cached.len();
        self.cached.retain(|_, ended| *ended >= submitted);
        self.durable += (all - self.cached.len()) as u64;
        let cached = &self.cached;
        self.last.retain(|_, last| {
            last.retain(|(_, number)| cached.contains_key(number));
            !last.is_empty()
        });
    }

    /// A write in mode `none` has been acknowledged.
    fn acknowledged(&mut self, flight: &Flight, now: Moment) {
        let Flight { task, submitted } = flight;
        self.cached.insert(task.number, now);
        let content = if task.work == Work::Write { task.number } else { 0 };
        for block in task.range() {
            let last = self.last.entry(block).or_default();
            last.retain(|(_, number)| self.cached.get(number).is_some_and(|ended| ended > submitted));
            last.push((content, task.number));
        }
    }
}

impl Reference {
    /// Of an image that was just made.
    pub(super) fn new(lba_size: u32, segments: &[SegmentEntry], mistake: Option<Mistake>) -> Self {
        let lba_size = lba_size.into();
        Self {
            lba_size,
            tenants: segments.iter().map(|entry| Tenant::new(Listed::of(entry), lba_size)).collect(),
            changing: None,
            closing: false,
            flights: BTreeMap::new(),
            writers: HashMap::new(),
            now: 1,
            mistake,
        }
    }

    fn moment(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn tenant(&mut self, uuid: Uuid) -> Result<&mut Tenant, String> {
        let tenant = self.tenants.iter_mut().find(|tenant| tenant.listed.uuid == uuid);
        tenant.ok_or_else(|| format!("there is no segment {uuid}"))
    }

    /// Takes in what a child has said.
    pub(super) fn hear(&mut self, record: Record, counters: &mut Counters) -> Result<(), String> {
        let now = self.moment();
        match record {
            Record::Change(change) => self.changing = Some(change),
            Record::Changed => {
                counters.changes += 1;
                let change = self.changing.take().ok_or("a change was made that had not been begun")?;
                self.apply(&change)?;
            }
            Record::Refused => {
                counters.refused += 1;
                self.changing = None;
            }
            Record::Begin(task) => self.begin(task, now)?,
            Record::End { number } => self.end(number, now, counters)?,
            Record::Closing => self.closing = true,
            Record::Closed => {
                self.closing = false;
                counters.sessions += 1;
                self.tenants.iter_mut().for_each(|tenant| tenant.flushed(now, now));
            }
            Record::Done => {}
            Record::Failed(what) => return Err(what),
        }
        Ok(())
    }

    fn begin(&mut self, task: Begin, submitted: Moment) -> Result<(), String> {
        let forgotten = self.mistake == Some(Mistake::ForgetsAWrite) && task.number.is_multiple_of(20);
        if task.work != Work::Flush && !forgotten {
            self.writers.insert(task.number, task.segment);
            let tenant = self.tenant(task.segment)?;
            tenant.blocks.begin(task.number, task.work != Work::Write, task.range());
        }
        self.flights.insert(task.number, Flight { task, submitted });
        Ok(())
    }

    fn end(&mut self, number: u32, now: Moment, counters: &mut Counters) -> Result<(), String> {
        let flight = self.flights.remove(&number).ok_or_else(|| format!("task {number} ended and had not begun"))?;
        let submitted = flight.submitted;
        let tenant = self.tenant(flight.task.segment)?;
        if flight.task.work == Work::Flush {
            counters.flushes += 1;
            tenant.flushed(submitted, now);
            return Ok(());
        }
        counters.writes += 1;
        let end = if tenant.listed.durability == Durability::None {
            tenant.acknowledged(&flight, now);
            WriteEnd::Cached
        } else {
            tenant.durable += 1;
            WriteEnd::Succeeded
        };
        tenant.blocks.end(number, flight.task.range(), end, submitted, now, now);
        Ok(())
    }

    fn apply(&mut self, change: &Change) -> Result<(), String> {
        let place = |name: &str| {
            let place = self.tenants.iter().position(|tenant| tenant.listed.name == *name);
            place.ok_or_else(|| format!("there is no segment {name}"))
        };
        match change {
            Change::Create { name, uuid, blocks, mode } => {
                let durability = MODES[*mode];
                let listed = Listed { name: name.clone(), uuid: *uuid, blocks: *blocks, durability, generation: 1 };
                self.tenants.push(Tenant::new(listed, self.lba_size));
            }
            Change::Resize { name, blocks } => {
                let place = place(name)?;
                let tenant = &mut self.tenants[place];
                tenant.listed.blocks = *blocks;
                tenant.listed.generation += 1;
                tenant.blocks.resize(*blocks);
            }
            Change::Rename { name, to } => {
                let place = place(name)?;
                let listed = &mut self.tenants[place].listed;
                listed.name.clone_from(to);
                listed.generation += 1;
            }
            Change::Delete { name } => {
                let place = place(name)?;
                self.tenants.remove(place);
            }
        }
        Ok(())
    }

    /// The child has been killed: what was in flight may have been done or not, and the cache is gone. Whether the label
    /// is right, when it lists `found`: what was acknowledged, and a change in flight wholly or not at all.
    pub(super) fn killed(&mut self, found: &[SegmentEntry], counters: &mut Counters) -> Result<(), String> {
        let now = self.moment();
        counters.killed_writing += u64::from(self.flights.values().any(|flight| flight.task.work != Work::Flush));
        counters.killed_changing += u64::from(self.changing.is_some());
        counters.killed_closing += u64::from(self.closing);
        self.closing = false;
        let in_flight = self.flights.iter().map(|(number, flight)| (*number, flight.task.clone(), flight.submitted));
        for (number, task, submitted) in in_flight.collect::<Vec<_>>() {
            let tenant = self.tenant(task.segment)?;
            tenant.blocks.end(number, task.range(), WriteEnd::Unknown, submitted, now, now);
        }
        self.tenants.iter_mut().for_each(|tenant| tenant.blocks.lose_power(now));

        let found = Listed::all(found.iter().map(Listed::of));
        let listed = |reference: &Self| Listed::all(reference.tenants.iter().map(|tenant| tenant.listed.clone()));
        let before = listed(self);
        let Some(change) = self.changing.take() else {
            return if found == before { Ok(()) } else { Err(format!("the label lists {found:?}, not {before:?}")) };
        };
        if found == before {
            counters.change_undone += 1;
            return Ok(());
        }
        self.apply(&change)?;
        let after = listed(self);
        if found != after {
            return Err(format!("in {change:?} the label lists {found:?}, neither {before:?} nor {after:?}"));
        }
        counters.change_done += 1;
        Ok(())
    }

    /// Whether a block may hold these words after a kill.
    pub(super) fn check(
        &mut self,
        segment: &SegmentEntry,
        block: u64,
        words: &[u64],
        lost: &mut BTreeSet<u32>,
        counters: &mut Counters,
    ) -> Result<(), String> {
        let now = self.moment();
        let in_flight: Vec<u32> = self
            .flights
            .values()
            .filter(|Flight { task, .. }| task.segment == segment.uuid && task.range().contains(&block))
            .map(|flight| if flight.task.work == Work::Write { flight.task.number } else { 0 })
            .collect();
        let tenant = self.tenant(segment.uuid)?;
        let content = match tenant.blocks.check(block, words, now, now) {
            Ok(content) => content,
            Err(wrong) => {
                let writer = self.writers.get(&origin(wrong.found).write).filter(|writer| **writer != segment.uuid);
                let whose = writer.map(|writer| format!("; another tenant wrote that, {writer}")).unwrap_or_default();
                let Listed { name, durability, .. } = Listed::of(segment);
                return Err(format!("segment {name} in mode {durability}: {wrong}{whose}"));
            }
        };
        counters.blocks += 1;
        if !in_flight.is_empty() {
            let done = content.is_some_and(|content| in_flight.contains(&content));
            counters.in_flight_done += u64::from(done);
            counters.in_flight_undone += u64::from(!done);
        } else if let Some(last) = tenant.last.get(&block)
            && !last.iter().any(|(left, _)| Some(*left) == content)
        {
            lost.extend(last.iter().map(|(_, number)| *number));
        }
        Ok(())
    }

    /// All blocks have been looked at: what they hold is what they will hold.
    pub(super) fn settled(&mut self, counters: &mut Counters) {
        let now = self.moment();
        self.flights.clear();
        for tenant in &mut self.tenants {
            counters.durable += tenant.durable;
            tenant.blocks.flushed(now, now);
            tenant.durable = 0;
            tenant.cached.clear();
            tenant.last.clear();
        }
    }
}

#[cfg(test)]
mod tests;
