//! Changes of striped segments, in two passes.

use uuid::Uuid;

use super::{Decided, Found, Set, SetError, Step, after, decide, sets};
use crate::blocks::Blocks;
use crate::label::entry::{Durability, MEMBERS, Pending, Record, SegmentEntry, Stripe};
use crate::label::open::{Prepared, clear};
use crate::label::segments::{
    name_is_free, rename as rename_entry, resize as resize_entry, set_durability as set_entry_durability,
};
use crate::label::space::resized;
use crate::label::{BlockExtent, Label, LabelError};

/// A label and its device.
pub struct Member<'a> {
    /// The label, open for writing.
    pub label: &'a mut Label,
    /// The device that it was opened on.
    pub blocks: &'a mut dyn Blocks,
}

/// A striped segment that is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSet {
    /// Its name, 1 to [`NAME_BYTES`](crate::label::NAME_BYTES) bytes.
    pub name: String,
    /// Its UUID; nil for a random one.
    pub uuid: Uuid,
    /// Bytes, whole chunks, one for each member at the least.
    pub capacity: u64,
    /// Bytes of a chunk, whole blocks.
    pub chunk: u64,
    /// What it takes for a write to be COMPLETED.
    pub durability: Durability,
}

/// What a member gets: the state with it pending, and the extents that are to be cleared before.
type Planned = (Prepared, Vec<BlockExtent>);

/// Creates a striped segment over these members, in this order; all of it reads as zeroes. Returns its UUID.
///
/// # Errors
/// [`SetError`]. Where it is of a device that did not write, the labels are to be opened again and settled.
pub fn create(members: &mut [Member<'_>], new: &NewSet) -> Result<Uuid, SetError> {
    let devices: Vec<_> = members.iter().map(|member| member.label.device()).collect();
    let count = devices.len();
    if !MEMBERS.contains(&count) {
        let must = format!("{} to {}", MEMBERS.start(), MEMBERS.end());
        return Err(SetError::Argument { argument: "the number of members", value: count as u64, must });
    }
    if let Some(device) =
        (1..count).map(|at| devices[at]).find(|device| devices.iter().filter(|d| *d == device).count() > 1)
    {
        return Err(SetError::Copy { device });
    }
    let block_size = members[0].label.block_size();
    if let Some(other) = members.iter().map(|member| member.label.block_size()).find(|other| *other != block_size) {
        let must = format!("{block_size}, as on the first member");
        return Err(SetError::Argument { argument: "the block of a member", value: other.into(), must });
    }
    if new.chunk == 0 || !new.chunk.is_multiple_of(block_size.into()) {
        let must = format!("a multiple of the block of {block_size} bytes, and not 0");
        return Err(SetError::Argument { argument: "chunk", value: new.chunk, must });
    }
    let chunks = chunks(new.capacity, new.chunk, count)?;
    let set = if new.uuid.is_nil() { Uuid::new_v4() } else { new.uuid };
    let everyone: Vec<_> = (0..count).collect();
    change(members, &everyone, set, |index, label| {
        let mut next = label.contents().clone();
        name_is_free(&next, &new.name)?;
        let capacity = chunks_of(chunks, index, count) * (new.chunk / u64::from(block_size));
        let extents = resized(&next, &[], capacity)?;
        let entry = SegmentEntry {
            name: new.name.clone(),
            uuid: Uuid::new_v4(),
            generation: 1,
            durability: new.durability,
            capacity,
            extents: extents.clone(),
            stripe: Some(Stripe { set, index, chunk: new.chunk, members: devices.clone() }),
        };
        next.records.push(Record { committed: None, pending: Some(Pending::Next(entry)) });
        Ok((next, extents))
    })?;
    Ok(set)
}

/// Makes a striped segment larger or smaller, to `capacity` bytes; what is new reads as zeroes.
///
/// # Errors
/// [`SetError`]. Where it is of a device that did not write, the labels are to be opened again and settled.
pub fn resize(members: &mut [Member<'_>], set: Uuid, capacity: u64) -> Result<(), SetError> {
    let (now, places) = settled(members, set)?;
    let count = places.len();
    let chunks = chunks(capacity, now.chunk, count)?;
    let blocks = now.chunk / u64::from(now.block_size);
    change_entry(members, &places, set, |index, label, entry| {
        resize_entry(label.contents(), entry, chunks_of(chunks, index, count) * blocks)
    })
}

/// Gives a striped segment another name.
///
/// # Errors
/// [`SetError`]. Where it is of a device that did not write, the labels are to be opened again and settled.
pub fn rename(members: &mut [Member<'_>], set: Uuid, to: &str) -> Result<(), SetError> {
    let (_, places) = settled(members, set)?;
    change_entry(members, &places, set, |_, label, entry| {
        rename_entry(label.contents(), entry, to)?;
        Ok(Vec::new())
    })
}

/// Says what it takes for a write to a striped segment to be COMPLETED, for whoever opens it from then on.
///
/// # Errors
/// [`SetError`]. Where it is of a device that did not write, the labels are to be opened again and settled.
pub fn set_durability(members: &mut [Member<'_>], set: Uuid, durability: Durability) -> Result<(), SetError> {
    let (_, places) = settled(members, set)?;
    change_entry(members, &places, set, |_, _, entry| {
        set_entry_durability(entry, durability)?;
        Ok(Vec::new())
    })
}

/// Deletes a striped segment.
///
/// # Errors
/// [`SetError`]. Where it is of a device that did not write, the labels are to be opened again and settled.
pub fn delete(members: &mut [Member<'_>], set: Uuid) -> Result<(), SetError> {
    let (_, places) = settled(members, set)?;
    change(members, &places, set, |_, label| {
        let mut next = label.contents().clone();
        set_pending(&mut next.records, set, Pending::Delete);
        Ok((next, Vec::new()))
    })
}

/// Finishes or drops what is pending in every set of which no member is missing, and says what there is then.
///
/// # Errors
/// [`SetError::Member`], when a label was not written; it is to be opened again. Sets that are incomplete or broken are
/// no error: they are left as they are.
pub fn settle(members: &mut [Member<'_>]) -> Result<Vec<Found>, SetError> {
    for found in sets(&labels(members)) {
        let Ok(Decided { step: Some(step), .. }) = decide(&labels(members), found.uuid) else { continue };
        for member in members.iter_mut() {
            finish(member, found.uuid, step)?;
        }
    }
    Ok(sets(&labels(members)))
}

/// Chunks of `capacity` bytes; an error where they are not whole, or fewer than there are members.
fn chunks(capacity: u64, chunk: u64, members: usize) -> Result<u64, SetError> {
    let chunks = capacity / chunk;
    if capacity.is_multiple_of(chunk) && chunks >= members as u64 {
        return Ok(chunks);
    }
    let must = format!("a multiple of the chunk of {chunk} bytes, and at least {members} of them, one for each member");
    Err(SetError::Argument { argument: "capacity", value: capacity, must })
}

/// How many of `chunks` chunks lie on the member `index` of `members`.
pub(super) fn chunks_of(chunks: u64, index: u16, members: usize) -> u64 {
    let members = members as u64;
    chunks / members + u64::from(u64::from(index) < chunks % members)
}

fn labels<'a>(members: &'a [Member<'_>]) -> Vec<&'a Label> {
    members.iter().map(|member| &*member.label).collect()
}

/// The set, when nothing of it is pending, and where its members are in `members`, by index.
fn settled(members: &[Member<'_>], set: Uuid) -> Result<(Set, Vec<usize>), SetError> {
    let labels = labels(members);
    let Decided { set: now, step } = decide(&labels, set)?;
    let now = now.ok_or(SetError::NoSet { set })?;
    if step.is_some() {
        return Err(SetError::Unsettled { name: now.name });
    }
    let devices =
        now.parts.iter().filter_map(|part| part.stripe.as_ref()?.members.get(usize::from(part.stripe.as_ref()?.index)));
    let places = devices.filter_map(|device| labels.iter().position(|label| label.device() == *device)).collect();
    Ok((now, places))
}

/// Makes a change of the committed entry of each member, which says what is to be cleared.
fn change_entry(
    members: &mut [Member<'_>],
    places: &[usize],
    set: Uuid,
    mut plan: impl FnMut(u16, &Label, &mut SegmentEntry) -> Result<Vec<BlockExtent>, LabelError>,
) -> Result<(), SetError> {
    change(members, places, set, |index, label| {
        let mut next = label.contents().clone();
        let committed = next.part_of(set).and_then(|record| record.committed.clone());
        let mut entry = committed.ok_or_else(|| LabelError::NoSegment { name: set.to_string() })?;
        let new = plan(index, label, &mut entry)?;
        set_pending(&mut next.records, set, Pending::Next(entry));
        Ok((next, new))
    })
}

fn set_pending(records: &mut [Record], set: Uuid, pending: Pending) {
    let part = records.iter_mut().find(|record| record.stripe().is_some_and(|stripe| stripe.set == set));
    if let Some(record) = part {
        record.pending = Some(pending);
    }
}

/// Makes a change: all is planned before anything is written; then all that is new is cleared; then every member has it
/// pending; then each commits.
fn change(
    members: &mut [Member<'_>],
    places: &[usize],
    set: Uuid,
    mut plan: impl FnMut(u16, &Label) -> Result<(crate::label::contents::Contents, Vec<BlockExtent>), LabelError>,
) -> Result<(), SetError> {
    let mut planned: Vec<Planned> = Vec::with_capacity(places.len());
    for (index, place) in (0_u16..).zip(places) {
        let Member { label, blocks } = &members[*place];
        let prepared = plan(index, label).and_then(|(next, new)| Ok((label.prepare(&**blocks, next)?, new)));
        planned.push(prepared.map_err(|error| of_member(label, error))?);
    }
    for (place, (_, new)) in places.iter().zip(&planned) {
        let Member { label, blocks } = &mut members[*place];
        clear(&mut **blocks, new).map_err(|error| of_member(label, error))?;
    }
    for (place, (prepared, _)) in places.iter().zip(planned) {
        let Member { label, blocks } = &mut members[*place];
        let written = label.write(&mut **blocks, prepared);
        written.map_err(|error| of_member(label, error))?;
    }
    places.iter().try_for_each(|place| finish(&mut members[*place], set, Step::Forward))
}

/// Commits or drops what a member has pending of this set, if it has.
fn finish(member: &mut Member<'_>, set: Uuid, step: Step) -> Result<(), SetError> {
    let Member { label, blocks } = member;
    let Some(record) = label.contents().part_of(set).filter(|record| record.pending.is_some()) else { return Ok(()) };
    let committed = after(record, Some(step)).cloned();
    let mut next = label.contents().clone();
    next.records.retain(|record| record.stripe().is_none_or(|stripe| stripe.set != set));
    next.records.extend(committed.map(Record::committed));
    let written = label.prepare(&**blocks, next).and_then(|prepared| label.write(&mut **blocks, prepared));
    written.map_err(|error| of_member(label, error))
}

fn of_member(label: &Label, error: LabelError) -> SetError {
    SetError::Member { device: label.device(), error: Box::new(error) }
}

impl Label {
    /// Removes this device's part of a striped segment whose other members are lost: what the others have of it is not
    /// looked at.
    ///
    /// # Errors
    /// [`LabelError`]; the part is there then, unless it is of [`Blocks`](LabelError::Blocks).
    pub fn forget_part(&mut self, device: &mut dyn Blocks, set: Uuid) -> Result<(), LabelError> {
        let mut next = self.contents().clone();
        next.records.retain(|record| record.stripe().is_none_or(|stripe| stripe.set != set));
        if next.records.len() == self.contents().records.len() {
            return Err(LabelError::NoSegment { name: set.to_string() });
        }
        let prepared = self.prepare(device, next)?;
        self.write(device, prepared)
    }
}
