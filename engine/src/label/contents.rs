//! All that a label says, and whether it can be so.
//!
//! [`Contents::check`] is the one judge: what is read from a device passes it before anything is believed, and what is
//! written passes it before a byte is.

use std::collections::HashSet;

use uuid::Uuid;

use super::entry::{MEMBERS, NAME_BYTES, OWNER_NAME_BYTES, Pending, Record, SegmentEntry, Stripe, check_name};
use super::place::Geometry;
use super::{BlockExtent, Identity, Malformed, Owner};
use crate::segment::extent::{part, total};

/// The most segments of a device.
pub const MAX_SEGMENTS: usize = 1024;

/// What one slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) sequence: u64,
    pub(super) device: Uuid,
    pub(super) namespace: Identity,
    pub(super) geometry: Geometry,
    pub(super) owner: Owner,
    pub(super) may_be_overwritten: bool,
    /// Extents begin at multiples of so many blocks.
    pub(super) alignment: u64,
    pub(super) scratch: Option<BlockExtent>,
    pub(super) records: Vec<Record>,
}

impl Contents {
    /// Whether all of it can be so: every extent in the data area and in one segment alone, names and UUIDs one of a
    /// kind, counts and capacities in bounds, and what is pending one step ahead of what is committed beside it.
    pub(super) fn check(&self) -> Result<(), Malformed> {
        field("sequence", self.sequence, self.sequence >= 1, "at least 1")?;
        field("device UUID", 0, !self.device.is_nil(), "set")?;
        field("PIT", self.namespace.pit.into(), self.namespace.pit <= 3, "at most 3")?;
        if !self.owner.name.is_empty() {
            check_name(&self.owner.name, OWNER_NAME_BYTES)?;
        }
        let data = self.geometry.data();
        let aligned = (1..=data.blocks()).contains(&self.alignment);
        field("alignment", self.alignment, aligned, "at least a block and at most the data area")?;
        if let Some(scratch) = self.scratch {
            inside(scratch, data)?;
        }
        field("segments", self.records.len() as u64, self.records.len() <= MAX_SEGMENTS, "at most 1024")?;
        for record in &self.records {
            record.entries().try_for_each(|entry| self.check_entry(entry))?;
            check_pending(record)?;
        }
        self.check_names()?;
        self.check_overlaps()
    }

    fn check_entry(&self, entry: &SegmentEntry) -> Result<(), Malformed> {
        check_name(&entry.name, NAME_BYTES)?;
        field("segment UUID", 0, !entry.uuid.is_nil(), "set")?;
        field("generation", entry.generation, entry.generation >= 1, "at least 1")?;
        for extent in &entry.extents {
            inside(*extent, self.geometry.data())?;
        }
        let blocks = total(&entry.extents).unwrap_or(0);
        if !(1..=blocks).contains(&entry.capacity) {
            return Err(Malformed::Capacity { name: entry.name.clone(), capacity: entry.capacity, blocks });
        }
        match &entry.stripe {
            Some(stripe) => self.check_stripe(entry, stripe),
            None => Ok(()),
        }
    }

    fn check_stripe(&self, entry: &SegmentEntry, stripe: &Stripe) -> Result<(), Malformed> {
        let block_size = u64::from(self.geometry.block_size());
        let distinct: HashSet<_> = stripe.members.iter().collect();
        let wrong = if stripe.set.is_nil() || stripe.members.iter().any(Uuid::is_nil) {
            "a UUID is not set"
        } else if !MEMBERS.contains(&stripe.members.len()) {
            "a set has 2 to 256 members"
        } else if distinct.len() != stripe.members.len() {
            "a device is in it twice"
        } else if stripe.members.get(usize::from(stripe.index)) != Some(&self.device) {
            "the member at this index is another device"
        } else if stripe.chunk == 0 || !stripe.chunk.is_multiple_of(block_size) {
            "the chunk is not whole blocks"
        } else if !entry.capacity.is_multiple_of(stripe.chunk / block_size) {
            "the capacity is not whole chunks"
        } else {
            return Ok(());
        };
        Err(Malformed::Stripe { name: entry.name.clone(), wrong })
    }

    /// Names, UUIDs and sets belong to one record each.
    fn check_names(&self) -> Result<(), Malformed> {
        let (mut names, mut uuids, mut sets) = (HashSet::new(), HashSet::new(), HashSet::new());
        for record in &self.records {
            let of_record: HashSet<_> = record.entries().map(|entry| entry.name.as_str()).collect();
            if let Some(name) = of_record.into_iter().find(|name| !names.insert(*name)) {
                return Err(Malformed::Twice { what: "name", value: name.to_owned() });
            }
            let uuid = record.entries().next().map(|entry| entry.uuid);
            let set = record.stripe().map(|stripe| stripe.set);
            for (what, value, seen) in [("segment UUID", uuid, &mut uuids), ("set UUID", set, &mut sets)] {
                if let Some(value) = value.filter(|value| !seen.insert(*value)) {
                    return Err(Malformed::Twice { what, value: value.to_string() });
                }
            }
        }
        Ok(())
    }

    fn check_overlaps(&self) -> Result<(), Malformed> {
        let taken = self.taken();
        match taken.windows(2).find(|pair| pair[0].end() > pair[1].slba()) {
            Some(pair) => Err(Malformed::Overlap { one: pair[0], other: pair[1] }),
            None => Ok(()),
        }
    }

    /// The record of a part of this set.
    pub(super) fn part_of(&self, set: Uuid) -> Option<&Record> {
        self.records.iter().find(|record| record.stripe().is_some_and(|stripe| stripe.set == set))
    }

    /// What is not free, in the order in which it lies.
    pub(super) fn taken(&self) -> Vec<BlockExtent> {
        let mut taken: Vec<_> = self.records.iter().flat_map(Record::taken).copied().chain(self.scratch).collect();
        taken.sort_unstable();
        taken
    }
}

/// What is pending follows what is committed: the next generation of the same part of the same set, of whose blocks the
/// shorter list is the beginning of the longer.
fn check_pending(record: &Record) -> Result<(), Malformed> {
    let Some(pending) = &record.pending else { return Ok(()) };
    let name = || record.entries().next().map(|entry| entry.name.clone()).unwrap_or_default();
    let wrong = |wrong| Err(Malformed::Pending { name: name(), wrong });
    if record.stripe().is_none() {
        return wrong("only a part of a striped set can be");
    }
    let (next, committed) = match (pending, &record.committed) {
        (Pending::Delete, Some(_)) => return Ok(()),
        (Pending::Delete, None) => return wrong("there is nothing to delete"),
        (Pending::Next(next), None) if next.generation == 1 => return Ok(()),
        (Pending::Next(_), None) => return wrong("the first generation is 1"),
        (Pending::Next(next), Some(committed)) => (next, committed),
    };
    if committed.generation.checked_add(1) != Some(next.generation) {
        return wrong("it is not the next generation");
    }
    if (next.uuid, &next.stripe) != (committed.uuid, &committed.stripe) {
        return wrong("it is a part of something else");
    }
    let common = [&next.extents, &committed.extents].map(|extents| total(extents).unwrap_or(0)).into_iter().min();
    let beginning = |entry: &SegmentEntry| joined(&part(&entry.extents, 0, common.unwrap_or(0)));
    if beginning(next) != beginning(committed) {
        return wrong("it lies elsewhere than what is committed");
    }
    Ok(())
}

/// The same blocks in the fewest extents.
fn joined(extents: &[BlockExtent]) -> Vec<BlockExtent> {
    let mut joined = Vec::new();
    extents.iter().for_each(|extent| crate::segment::extent::append(&mut joined, *extent));
    joined
}

fn field(field: &'static str, value: u64, right: bool, must: &'static str) -> Result<(), Malformed> {
    if right { Ok(()) } else { Err(Malformed::Field { field, value, must }) }
}

fn inside(extent: BlockExtent, data: BlockExtent) -> Result<(), Malformed> {
    if data.holds(extent) { Ok(()) } else { Err(Malformed::Outside { extent, data }) }
}
