//! Segments that are striped over several devices.
//!
//! Each member's label has the member's part, and the device UUIDs of all members. No write reaches two devices at once,
//! so a change is two passes: every member first gets the next part as pending, beside the committed one; then each
//! commits. Whoever reads the labels decides alike, whatever the crash has left ([`sets`]): forward, if any member has
//! committed or all have it pending; else back. [`settle`] writes what was decided. With a member missing nothing can be
//! decided: it may have committed.
//!
//! A label that is there and has no part of the set is told from a label that is missing, by the device UUIDs. So a
//! creation that did not reach all members, and a deletion that did not, are both decided.

mod change;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use thiserror::Error;
use uuid::Uuid;

pub use change::{Member, NewSet, create, delete, rename, resize, set_durability, settle};

use super::entry::{Durability, Pending, Record, SegmentEntry, Stripe};
use super::{Label, LabelError};

/// A striped segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// One more with each change.
    pub generation: u64,
    /// What it takes for a write to be COMPLETED.
    pub durability: Durability,
    /// Bytes of a chunk. Chunk c lies on member c mod n and is the member's chunk c div n.
    pub chunk: u64,
    /// Bytes.
    pub capacity: u64,
    /// Bytes of a block, the same on all members.
    pub block_size: u32,
    /// The members' parts, by index. Their [`Stripe`] names their devices.
    pub parts: Vec<SegmentEntry>,
}

/// A member whose label is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// Its index.
    pub index: u16,
    /// UUID of its device.
    pub device: Uuid,
}

/// A list of them, as a message has it.
struct ListOf<'a>(&'a [Missing]);

impl fmt::Display for ListOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Missing { index, device }) in self.0.iter().enumerate() {
            write!(f, "{}{index} (device {device})", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Why a striped segment is not opened or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SetError {
    /// Caller: the labels of some members are not there.
    #[error(
        "the striped segment {name} is incomplete: of its {count} members these are missing: {}: name their devices too, or, where they are lost, remove what is left of it by `tentpeg segment forget --members-are-lost`",
        ListOf(missing)
    )]
    Incomplete {
        /// The segment.
        name: String,
        /// How many members it has.
        count: usize,
        /// Which are missing.
        missing: Vec<Missing>,
    },
    /// Device: the members' labels say what no crash can leave.
    #[error(
        "the striped segment {name} is broken: member {index}: {wrong}: if nobody needs it, `tentpeg segment forget` removes what is left of it"
    )]
    Broken {
        /// The segment.
        name: String,
        /// The member that does not fit to those before it.
        index: u16,
        /// Why.
        wrong: &'static str,
    },
    /// Caller: two of the devices have one UUID.
    #[error("two of the devices have the UUID {device}: one is a copy")]
    Copy {
        /// The UUID.
        device: Uuid,
    },
    /// Caller: a change of it is not finished: settle it first.
    #[error("an earlier change of the striped segment {name} was interrupted: settle it first")]
    Unsettled {
        /// The segment.
        name: String,
    },
    /// Caller: there is no such set.
    #[error("there is no striped segment {set}")]
    NoSet {
        /// Its UUID.
        set: Uuid,
    },
    /// Caller: the argument cannot be.
    #[error("{argument} is {value}: it must be {must}")]
    Argument {
        /// Which.
        argument: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        must: String,
    },
    /// A member's label refused, or was not written.
    #[error("device {device}: {error}")]
    Member {
        /// UUID of the device.
        device: Uuid,
        /// Why.
        #[source]
        error: Box<LabelError>,
    },
}

/// A striped segment as some labels have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name; while it is being renamed, one of the two.
    pub name: String,
    /// What it is: none where its creation did not get far enough, or its deletion did.
    pub set: Result<Option<Set>, SetError>,
    /// Whether a change was interrupted and is still to be written down.
    pub unsettled: bool,
}

/// What the labels of several devices amount to. Nothing is written.
pub fn sets(labels: &[&Label]) -> Vec<Found> {
    let mut uuids = BTreeMap::new();
    for label in labels {
        for record in &label.contents().records {
            if let Some(stripe) = record.stripe() {
                uuids.entry(stripe.set).or_insert_with(|| name_of(record));
            }
        }
    }
    let found = |(uuid, name): (Uuid, String)| {
        let decided = decide(labels, uuid);
        let unsettled = decided.as_ref().is_ok_and(|decided| decided.step.is_some());
        Found { uuid, name, set: decided.map(|decided| decided.set), unsettled }
    };
    uuids.into_iter().map(found).collect()
}

fn name_of(record: &Record) -> String {
    record.entries().next().map(|entry| entry.name.clone()).unwrap_or_default()
}

/// What is done with what is pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is committed.
    Forward,
    /// It is dropped.
    Back,
}

#[derive(Debug)]
struct Decided {
    set: Option<Set>,
    /// What is to be done; none where nothing is pending.
    step: Option<Step>,
}

/// Decides what a set is, from the labels of all its members.
fn decide(labels: &[&Label], set: Uuid) -> Result<Decided, SetError> {
    let mut by_device = HashMap::new();
    for label in labels {
        if !label.is_certain() {
            return Err(SetError::Member { device: label.device(), error: Box::new(LabelError::Uncertain) });
        }
        if by_device.insert(label.device(), *label).is_some() {
            return Err(SetError::Copy { device: label.device() });
        }
    }
    let some = labels.iter().find_map(|label| label.contents().part_of(set)).ok_or(SetError::NoSet { set })?;
    let (name, stripe) = (name_of(some), some.stripe().ok_or(SetError::NoSet { set })?);
    // At most 256 members.
    let members = || (0_u16..).zip(&stripe.members);
    let missing: Vec<_> = members()
        .filter(|(_, device)| !by_device.contains_key(*device))
        .map(|(index, device)| Missing { index, device: *device })
        .collect();
    if !missing.is_empty() {
        return Err(SetError::Incomplete { name, count: stripe.members.len(), missing });
    }
    let parts = members().map(|(index, device)| (index, by_device[device].contents().part_of(set)));
    let parts = Parts { name, stripe, parts: parts.collect() };
    let step = parts.step()?;
    let block_sizes: Vec<_> = stripe.members.iter().map(|device| by_device[device].block_size()).collect();
    Ok(Decided { set: parts.outcome(step, set, &block_sizes)?, step })
}

/// The records of all members, none missing.
struct Parts<'a> {
    name: String,
    stripe: &'a Stripe,
    parts: Vec<(u16, Option<&'a Record>)>,
}

impl Parts<'_> {
    fn broken(&self, index: u16, wrong: &'static str) -> SetError {
        SetError::Broken { name: self.name.clone(), index, wrong }
    }

    /// What is to be done with what is pending.
    fn step(&self) -> Result<Option<Step>, SetError> {
        let mut target = None;
        for (index, record) in &self.parts {
            let Some((record, pending)) = record.and_then(|record| Some((record, record.pending.as_ref()?))) else {
                continue;
            };
            let after = record.committed.as_ref().map_or(0, |committed| committed.generation);
            let this = (*pending == Pending::Delete, after);
            if *target.get_or_insert(this) != this {
                return Err(self.broken(*index, "something else is pending than in those before it"));
            }
        }
        // What is pending comes after this generation; 0 is before the first.
        let Some((delete, after)) = target else { return Ok(None) };
        let (mut done, mut not_reached) = (None, None);
        for (index, record) in &self.parts {
            if record.is_some_and(|record| record.pending.is_some()) {
                continue;
            }
            let generation = record.and_then(|record| record.committed.as_ref()).map(|entry| entry.generation);
            let next = if delete { None } else { after.checked_add(1) };
            let before = if after == 0 { None } else { Some(after) };
            match generation {
                generation if generation == before => not_reached = Some(*index),
                generation if generation == next => done = Some(*index),
                _ => return Err(self.broken(*index, "it is neither before nor behind what is pending")),
            }
        }
        match (done, not_reached) {
            (Some(_), Some(index)) => Err(self.broken(index, "others have committed what it has never had")),
            (None, Some(_)) => Ok(Some(Step::Back)),
            (_, None) => Ok(Some(Step::Forward)),
        }
    }

    /// What the set is after this step.
    fn outcome(&self, step: Option<Step>, set: Uuid, block_sizes: &[u32]) -> Result<Option<Set>, SetError> {
        let mut parts: Vec<SegmentEntry> = Vec::with_capacity(self.parts.len());
        let mut gone = None;
        for (index, record) in &self.parts {
            match record.and_then(|record| after(record, step)) {
                Some(entry) => parts.push(entry.clone()),
                None => gone = Some(*index),
            }
        }
        match gone {
            Some(_) if parts.is_empty() => return Ok(None),
            Some(index) => return Err(self.broken(index, "it has no part of the set")),
            None => {}
        }
        let Self { stripe, .. } = self;
        let chunks: Vec<_> = parts
            .iter()
            .zip(block_sizes)
            .map(|(part, size)| part.capacity / (stripe.chunk / u64::from(*size)).max(1))
            .collect();
        // Each is less than 2^64 bytes in chunks of 512 or more, and there are at most 256.
        let total: u64 = chunks.iter().sum();
        for ((index, part), has) in (0_u16..).zip(&parts).zip(&chunks) {
            let same = |part: &SegmentEntry| (part.name.clone(), part.generation, part.durability);
            let of = part.stripe.as_ref();
            if same(part) != same(&parts[0]) {
                return Err(self.broken(index, "its name, generation or durability is another"));
            }
            if of.map(|of| (of.chunk, &of.members)) != Some((stripe.chunk, &stripe.members)) {
                return Err(self.broken(index, "its chunk or its members are others"));
            }
            if block_sizes.get(usize::from(index)) != block_sizes.first() {
                return Err(self.broken(index, "its blocks have another size"));
            }
            if *has != change::chunks_of(total, index, stripe.members.len()) {
                return Err(self.broken(index, "its capacity does not fit to the others"));
            }
        }
        let first = &parts[0];
        Ok(Some(Set {
            uuid: set,
            name: first.name.clone(),
            generation: first.generation,
            durability: first.durability,
            chunk: stripe.chunk,
            capacity: total.checked_mul(stripe.chunk).ok_or_else(|| self.broken(0, "it has 2^64 bytes or more"))?,
            block_size: block_sizes[0],
            parts,
        }))
    }
}

/// The entry that a record has after this step.
fn after(record: &Record, step: Option<Step>) -> Option<&SegmentEntry> {
    match (&record.pending, step) {
        (Some(Pending::Next(next)), Some(Step::Forward)) => Some(next),
        (Some(Pending::Delete), Some(Step::Forward)) => None,
        _ => record.committed.as_ref(),
    }
}

#[cfg(test)]
mod tests;
