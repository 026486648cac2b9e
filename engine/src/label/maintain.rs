//! Making a label, mending it, removing it, and looking at it without opening it.

use uuid::Uuid;

use super::contents::Contents;
use super::entry::{OWNER_NAME_BYTES, check_name};
use super::error::{Finding, Findings};
use super::open::{Label, check_namespace, clear};
use super::place::{End, Geometry, SlotPlace};
use super::slots::{self, Encoded, Ranks, Slots, Valid};
use super::space::resized;
use super::{BlockExtent, Identity, LabelError, Owner};
use crate::blocks::Blocks;

/// A label that is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLabel {
    /// UUID of the device; nil for a random one.
    pub device: Uuid,
    /// What the namespace says of itself.
    pub identity: Identity,
    /// Who may write to the device.
    pub owner: Owner,
    /// Bytes that extents begin at multiples of, whole blocks: 1 MiB, or what the namespace prefers (NOIOB, NPWG).
    pub alignment: u64,
    /// Bytes that self-tests may write, whole blocks; may be 0.
    pub scratch: u64,
    /// Whether tests may overwrite the device.
    pub may_be_overwritten: bool,
    /// Whether a label that is there, whole, damaged or of a later version, is replaced. All its segments are gone then.
    pub replace: bool,
}

impl Default for NewLabel {
    fn default() -> Self {
        Self {
            device: Uuid::nil(),
            identity: Identity::default(),
            owner: Owner::default(),
            alignment: 1 << 20,
            scratch: 1 << 20,
            may_be_overwritten: false,
            replace: false,
        }
    }
}

/// What [`repair`] may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repair {
    /// Take a namespace that was resized as it is now, if every segment and the scratch extent still lie in it.
    pub resized: bool,
}

/// Looks at the four slots. Nothing is written.
///
/// # Errors
/// [`LabelError`].
pub fn inspect(device: &mut dyn Blocks) -> Result<Findings, LabelError> {
    let geometry = slots::geometry(device)?;
    Ok(Slots::read(device, geometry)?.findings())
}

/// Makes a label without segments. The first and the last MiB of the namespace are cleared first. Whether something
/// other than a label is on the device is not looked at: the caller has.
///
/// Power that goes meanwhile leaves the label that was there, or none or a damaged one, or the new one.
///
/// # Errors
/// [`LabelError`].
pub fn create(device: &mut dyn Blocks, new: &NewLabel) -> Result<Label, LabelError> {
    let geometry = slots::geometry(device)?;
    let contents = first_contents(geometry, new)?;
    let encoded = Encoded::of(&contents)?;
    let slots = Slots::read(device, geometry)?;
    if slots.any_label() {
        if !new.replace {
            return Err(LabelError::Exists(slots.findings()));
        }
        erase_slots(device, &slots)?;
    }
    clear(device, &[geometry.end(End::Front), geometry.end(End::Back)])?;
    let mut ranks = Ranks::free();
    ranks.write(device, geometry, &encoded)?;
    Ok(Label::written(contents, ranks))
}

fn first_contents(geometry: Geometry, new: &NewLabel) -> Result<Contents, LabelError> {
    if !new.owner.name.is_empty() {
        check_name(&new.owner.name, OWNER_NAME_BYTES)?;
    }
    let block_size = u64::from(geometry.block_size());
    let blocks = |argument, bytes: u64, least| {
        let blocks = bytes / block_size;
        let data = geometry.data().blocks();
        if bytes.is_multiple_of(block_size) && (least..=data).contains(&blocks) {
            return Ok(blocks);
        }
        let must = format!(
            "a multiple of the block of {block_size} bytes, from {} to {}",
            least * block_size,
            data * block_size
        );
        Err(LabelError::Argument { argument, value: bytes, must })
    };
    let alignment = blocks("alignment", new.alignment, 1)?;
    let scratch = blocks("scratch", new.scratch, 0)?;
    let mut contents = Contents {
        sequence: 1,
        device: if new.device.is_nil() { Uuid::new_v4() } else { new.device },
        namespace: new.identity,
        geometry,
        owner: new.owner.clone(),
        may_be_overwritten: new.may_be_overwritten,
        alignment,
        scratch: None,
        records: Vec::new(),
    };
    // All that is free is one hole.
    contents.scratch = resized(&contents, &[], scratch)?.first().copied();
    Ok(contents)
}

/// Writes the label that counts into every slot that holds none, and into both ends. Returns the slots that were written.
///
/// A namespace that was resized is taken as it is when `options` says so. Its new end is cleared before the label is
/// written: until then it was data, and may hold what a tenant made look like a label.
///
/// # Errors
/// [`LabelError`]. No label is made up: where no slot is whole, two say different things, or the namespace was replaced
/// or reformatted, nothing is written. Where a segment no longer lies in the namespace, [`LabelError::Refused`].
pub fn repair(device: &mut dyn Blocks, identity: &Identity, options: Repair) -> Result<Vec<SlotPlace>, LabelError> {
    let geometry = slots::geometry(device)?;
    let slots = Slots::read(device, geometry)?;
    let Valid { contents, bytes } = slots.decide()?.clone();
    let was = contents.geometry;
    match check_namespace(&contents, identity, geometry) {
        Err(LabelError::Resized { .. }) if options.resized => {
            // While it was smaller its back was elsewhere, and may have the newer state.
            let newest = match was.blocks() < geometry.blocks() {
                true => Slots::read(device, was)?.decide()?.clone(),
                false => Valid { contents, bytes },
            };
            return take_size(device, newest, geometry, slots.ranks());
        }
        other => other?,
    }
    let encoded = Encoded { sequence: contents.sequence, bytes };
    let mut ranks = slots.ranks();
    let mut mended: Vec<_> = ranks.without_label().collect();
    for place in &mended {
        ranks.write_slot(device, geometry, *place, &encoded)?;
    }
    for end in [End::Front, End::Back] {
        if !ranks.has(end, encoded.sequence) {
            mended.push(ranks.write_end(device, geometry, end, &encoded)?);
        }
    }
    mended.sort_unstable();
    Ok(mended)
}

/// Makes `newest` the label of a namespace of another size.
fn take_size(
    device: &mut dyn Blocks,
    newest: Valid,
    geometry: Geometry,
    mut ranks: Ranks,
) -> Result<Vec<SlotPlace>, LabelError> {
    let Valid { mut contents, bytes } = newest;
    let (was, sequence) = (contents.geometry, contents.sequence);
    contents.geometry = geometry;
    let exhausted = LabelError::Exhausted { what: "the label's sequence" };
    contents.sequence = sequence.checked_add(1).ok_or(exhausted)?;
    let encoded = Encoded::of(&contents)?;
    if !ranks.has(End::Front, sequence) {
        // The old back may be a part of what is cleared now.
        ranks.write_end(device, geometry, End::Front, &Encoded { sequence, bytes })?;
    }
    clear(device, &[geometry.end(End::Back)])?;
    ranks.set_free(End::Back);
    ranks.write(device, geometry, &encoded)?;
    // The other slots hold the old size, which nobody must come back to.
    for place in SlotPlace::ALL {
        if !ranks.holds(place, encoded.sequence) {
            ranks.write_slot(device, geometry, place, &encoded)?;
        }
    }
    let old_back = was.end(End::Back);
    clear(device, BlockExtent::between(old_back.slba(), old_back.end().min(geometry.data().end())).as_slice())?;
    Ok(SlotPlace::ALL.to_vec())
}

/// Removes the label: every slot that begins as one. What else is on the device is left.
///
/// Power that goes meanwhile leaves the last state of the label, or a damaged one, or none: never an older state.
///
/// # Errors
/// [`LabelError`]; [`LabelError::Blank`] or [`LabelError::Foreign`] where there is no label.
pub fn erase(device: &mut dyn Blocks) -> Result<(), LabelError> {
    let geometry = slots::geometry(device)?;
    let slots = Slots::read(device, geometry)?;
    if !slots.any_label() {
        slots.decide()?;
    }
    erase_slots(device, &slots)
}

/// Erases the slots that begin as a label does, the one that counts last.
fn erase_slots(device: &mut dyn Blocks, slots: &Slots) -> Result<(), LabelError> {
    let geometry = slots.geometry();
    // Its back, while it was smaller: found again, should it be made so small again.
    if let Some(was) = slots.anchor().map(|anchor| anchor.contents.geometry)
        && was.blocks() < geometry.blocks()
        && was.lbads() == geometry.lbads()
    {
        let findings = Slots::read(device, was)?.findings();
        erase_findings(device, was, &findings, &SlotPlace::ALL[2..])?;
    }
    erase_findings(device, geometry, &slots.findings(), &SlotPlace::ALL)
}

fn erase_findings(
    device: &mut dyn Blocks,
    geometry: Geometry,
    findings: &Findings,
    places: &[SlotPlace],
) -> Result<(), LabelError> {
    let rank = |place: &SlotPlace| match findings.0[place.index()] {
        Finding::Blank | Finding::Foreign => None,
        Finding::Damaged(_) => Some(0),
        Finding::Valid { sequence, .. } => Some(sequence),
        Finding::Newer { .. } => Some(u64::MAX),
    };
    let mut labels: Vec<_> = places.iter().filter_map(|place| Some((rank(place)?, *place))).collect();
    labels.sort_unstable();
    for (_, place) in labels {
        let slot = geometry.slot(place);
        // The block with the magic goes last: until it is gone the slot is known for a label.
        clear(device, BlockExtent::between(slot.slba() + 1, slot.end()).as_slice())?;
        device.write(slot.slba(), &vec![0; geometry.block_size() as usize])?;
        device.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
