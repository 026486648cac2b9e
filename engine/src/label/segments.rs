//! Changes of a label's segments. Each is one update of the label, so it is made or it is not.
//!
//! What a segment gets is cleared before the label that lists it is written: what somebody else has left there is never
//! seen, also not after a crash. What a segment loses is free only when the label that does not list it is at both ends.

use uuid::Uuid;

use super::contents::Contents;
use super::entry::{Durability, NAME_BYTES, Record, SegmentEntry, check_name};
use super::open::{Label, clear};
use super::space::resized;
use super::{BlockExtent, LabelError};
use crate::blocks::Blocks;
use crate::segment::extent::part;

/// A segment that is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSegment {
    /// Its name, 1 to [`NAME_BYTES`] bytes.
    pub name: String,
    /// Its UUID; nil for a random one.
    pub uuid: Uuid,
    /// Bytes, whole blocks.
    pub capacity: u64,
    /// What it takes for a write to be COMPLETED.
    pub durability: Durability,
}

impl Label {
    /// Creates a segment, whose blocks all read as zeroes.
    ///
    /// # Errors
    /// [`LabelError`]; no segment is listed then, unless it is of [`Blocks`](LabelError::Blocks): then the label is to be
    /// opened again.
    pub fn create_segment(&mut self, device: &mut dyn Blocks, new: &NewSegment) -> Result<(), LabelError> {
        let capacity = blocks_of(new.capacity, self.block_size())?;
        let mut next = self.contents().clone();
        name_is_free(&next, &new.name)?;
        let extents = resized(&next, &[], capacity)?;
        next.records.push(Record::committed(SegmentEntry {
            name: new.name.clone(),
            uuid: if new.uuid.is_nil() { Uuid::new_v4() } else { new.uuid },
            generation: 1,
            durability: new.durability,
            capacity,
            extents: extents.clone(),
            stripe: None,
        }));
        let prepared = self.prepare(device, next)?;
        clear(device, &extents)?;
        self.write(device, prepared)
    }

    /// Makes a segment larger or smaller, to `capacity` bytes; what is new reads as zeroes.
    ///
    /// # Errors
    /// [`LabelError`]; the segment is as it was then, unless it is of [`Blocks`](LabelError::Blocks): then the label is to
    /// be opened again.
    pub fn resize_segment(&mut self, device: &mut dyn Blocks, name: &str, capacity: u64) -> Result<(), LabelError> {
        let capacity = blocks_of(capacity, self.block_size())?;
        let mut next = self.contents().clone();
        let entry = plain(&mut next, name)?;
        let new = resize(self.contents(), entry, capacity)?;
        let prepared = self.prepare(device, next)?;
        clear(device, &new)?;
        self.write(device, prepared)
    }

    /// Gives a segment another name.
    ///
    /// # Errors
    /// [`LabelError`]; it has its old name then, unless it is of [`Blocks`](LabelError::Blocks): then the label is to be
    /// opened again.
    pub fn rename_segment(&mut self, device: &mut dyn Blocks, name: &str, to: &str) -> Result<(), LabelError> {
        let mut next = self.contents().clone();
        let entry = plain(&mut next, name)?;
        rename(self.contents(), entry, to)?;
        let prepared = self.prepare(device, next)?;
        self.write(device, prepared)
    }

    /// Says what it takes for a write to a segment to be COMPLETED, for whoever opens it from then on.
    ///
    /// # Errors
    /// [`LabelError`]; it is as it was then, unless it is of [`Blocks`](LabelError::Blocks): then the label is to be opened
    /// again.
    pub fn set_durability(
        &mut self,
        device: &mut dyn Blocks,
        name: &str,
        durability: Durability,
    ) -> Result<(), LabelError> {
        let mut next = self.contents().clone();
        set_durability(plain(&mut next, name)?, durability)?;
        let prepared = self.prepare(device, next)?;
        self.write(device, prepared)
    }

    /// Deletes a segment. Its blocks are free when this returns; what they hold is cleared before another segment has
    /// them.
    ///
    /// # Errors
    /// [`LabelError`]; it is there then, unless it is of [`Blocks`](LabelError::Blocks): then the label is to be opened
    /// again.
    pub fn delete_segment(&mut self, device: &mut dyn Blocks, name: &str) -> Result<(), LabelError> {
        let mut next = self.contents().clone();
        let uuid = plain(&mut next, name)?.uuid;
        next.records.retain(|record| record.entries().all(|entry| entry.uuid != uuid));
        let prepared = self.prepare(device, next)?;
        self.write(device, prepared)
    }
}

/// `bytes` in blocks; an error where they are none, or not whole ones.
pub(super) fn blocks_of(bytes: u64, block_size: u32) -> Result<u64, LabelError> {
    let block_size = u64::from(block_size);
    if bytes == 0 || !bytes.is_multiple_of(block_size) {
        let must = format!("a multiple of the block of {block_size} bytes, and not 0");
        return Err(LabelError::Argument { argument: "capacity", value: bytes, must });
    }
    Ok(bytes / block_size)
}

/// Whether a new segment can have this name: it is one, and nobody has it or is to have it.
pub(super) fn name_is_free(contents: &Contents, name: &str) -> Result<(), LabelError> {
    check_name(name, NAME_BYTES)?;
    match contents.records.iter().flat_map(Record::entries).any(|entry| entry.name == name) {
        true => Err(LabelError::NameTaken { name: name.to_owned() }),
        false => Ok(()),
    }
}

/// Gives `entry` its next generation, in which it has `capacity` blocks. Returns the extents that it has not shown
/// before; they are to be cleared before it is listed.
pub(super) fn resize(
    contents: &Contents,
    entry: &mut SegmentEntry,
    capacity: u64,
) -> Result<Vec<BlockExtent>, LabelError> {
    let extents = resized(contents, &entry.extents, capacity)?;
    let new = if capacity > entry.capacity { part(&extents, entry.capacity, u64::MAX) } else { Vec::new() };
    (entry.capacity, entry.extents) = (capacity, extents);
    next_generation(entry)?;
    Ok(new)
}

/// Gives `entry` its next generation, in which it has this name.
pub(super) fn rename(contents: &Contents, entry: &mut SegmentEntry, to: &str) -> Result<(), LabelError> {
    if entry.name != to {
        name_is_free(contents, to)?;
        to.clone_into(&mut entry.name);
    }
    next_generation(entry)
}

/// Gives `entry` its next generation, in which it has this durability.
pub(super) fn set_durability(entry: &mut SegmentEntry, durability: Durability) -> Result<(), LabelError> {
    entry.durability = durability;
    next_generation(entry)
}

fn next_generation(entry: &mut SegmentEntry) -> Result<(), LabelError> {
    let exhausted = LabelError::Exhausted { what: "the segment's generation" };
    entry.generation = entry.generation.checked_add(1).ok_or(exhausted)?;
    Ok(())
}

/// The segment of that name, which no striped set has a part in.
fn plain<'a>(contents: &'a mut Contents, name: &str) -> Result<&'a mut SegmentEntry, LabelError> {
    let named = |record: &&mut Record| record.entries().any(|entry| entry.name == name);
    let record = contents.records.iter_mut().find(named);
    let no_segment = || LabelError::NoSegment { name: name.to_owned() };
    let record = record.ok_or_else(no_segment)?;
    if let Some(stripe) = record.stripe() {
        return Err(LabelError::InSet { name: name.to_owned(), set: stripe.set });
    }
    record.committed.as_mut().ok_or_else(no_segment)
}

#[cfg(test)]
mod tests;
