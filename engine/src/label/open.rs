//! A label that is open: what it says, and the changes that can be made to it, each one atomic update.

use uuid::Uuid;

use super::contents::Contents;
use super::entry::{OWNER_NAME_BYTES, SegmentEntry, check_name};
use super::place::{End, Geometry};
use super::slots::{Encoded, Ranks, Slots, Valid};
use super::space::free_blocks;
use super::{BlockExtent, Identity, LabelError, Owner};
use crate::blocks::Blocks;

/// What a label is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is written, whatever is found.
    ReadOnly,
    /// The label may be changed, and both ends are brought to the same state at once.
    ReadWrite,
}

/// The label of a namespace. It holds what the label says and not the device, which each change is lent.
#[derive(Debug)]
pub struct Label {
    contents: Contents,
    ranks: Ranks,
    mode: Mode,
    /// Whether `contents` is what the device holds; not after a write that failed.
    certain: bool,
}

/// A state of the label that can be written.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) contents: Contents,
    encoded: Encoded,
}

impl Label {
    /// Opens the label of a namespace that says `identity` of itself.
    ///
    /// For [`Mode::ReadWrite`] an end that a crash has left behind is brought up to date first, so that losing either end
    /// later loses nothing.
    ///
    /// # Errors
    /// [`LabelError`]: there is no label, it is damaged or of a later version, or the namespace is not the one that it
    /// was made for. Nothing was written then.
    pub fn open(device: &mut dyn Blocks, identity: &Identity, mode: Mode) -> Result<Self, LabelError> {
        let geometry = Geometry::of(device)?;
        let slots = Slots::read(device, geometry)?;
        let Valid { contents, bytes } = slots.decide()?.clone();
        check_namespace(&contents, identity, geometry)?;
        let mut label = Self { ranks: slots.ranks(), contents, mode, certain: true };
        if mode == Mode::ReadWrite {
            let sequence = label.contents.sequence;
            let behind = [End::Front, End::Back].into_iter().filter(|end| !label.ranks.has(*end, sequence));
            let behind: Vec<_> = behind.collect();
            if let Some(end) = behind.iter().copied().find(|end| label.ranks.overwritten(*end)) {
                return Err(LabelError::Overwritten { end });
            }
            let encoded = Encoded { sequence, bytes };
            for end in behind {
                label.ranks.write_end(device, geometry, end, &encoded)?;
            }
        }
        Ok(label)
    }

    /// Reads a label for showing it, whichever namespace it was made for.
    ///
    /// # Errors
    /// [`LabelError`]: there is no label, it is damaged or of a later version.
    pub fn read(device: &mut dyn Blocks) -> Result<Self, LabelError> {
        let geometry = Geometry::of(device)?;
        let slots = Slots::read(device, geometry)?;
        let contents = slots.decide()?.contents.clone();
        Ok(Self { ranks: slots.ranks(), contents, mode: Mode::ReadOnly, certain: true })
    }

    /// One that was just written in full.
    pub(super) fn written(contents: Contents, ranks: Ranks) -> Self {
        Self { contents, ranks, mode: Mode::ReadWrite, certain: true }
    }

    /// UUID of the device.
    pub fn device(&self) -> Uuid {
        self.contents.device
    }

    /// Sequence of the label: one more with each change.
    pub fn sequence(&self) -> u64 {
        self.contents.sequence
    }

    /// What the namespace said of itself when the label was made.
    pub fn identity(&self) -> &Identity {
        &self.contents.namespace
    }

    /// Blocks of the namespace.
    pub fn blocks(&self) -> u64 {
        self.contents.geometry.blocks()
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u32 {
        self.contents.geometry.block_size()
    }

    /// Extents begin at multiples of so many blocks.
    pub fn alignment(&self) -> u64 {
        self.contents.alignment
    }

    /// Who may write to the device.
    pub fn owner(&self) -> &Owner {
        &self.contents.owner
    }

    /// Where self-tests may write.
    pub fn scratch(&self) -> Option<BlockExtent> {
        self.contents.scratch
    }

    /// Whether tests may overwrite the device.
    pub fn may_be_overwritten(&self) -> bool {
        self.contents.may_be_overwritten
    }

    /// Blocks that segments can still have, in whole units of [`alignment`](Self::alignment).
    pub fn free_blocks(&self) -> u64 {
        free_blocks(&self.contents)
    }

    /// What is committed: segments, and parts of striped sets. Of the latter [`stripe::sets`](super::stripe::sets)
    /// says what they amount to.
    pub fn segments(&self) -> impl Iterator<Item = &SegmentEntry> {
        self.contents.records.iter().filter_map(|record| record.committed.as_ref())
    }

    /// The segment of that name.
    pub fn segment(&self, name: &str) -> Option<&SegmentEntry> {
        self.segments().find(|segment| segment.name == name)
    }

    /// Makes the device somebody's.
    ///
    /// # Errors
    /// [`LabelError`].
    pub fn set_owner(&mut self, device: &mut dyn Blocks, owner: Owner) -> Result<(), LabelError> {
        if !owner.name.is_empty() {
            check_name(&owner.name, OWNER_NAME_BYTES)?;
        }
        self.update(device, |contents| contents.owner = owner)
    }

    /// Says whether tests may overwrite the device.
    ///
    /// # Errors
    /// [`LabelError`].
    pub fn set_may_be_overwritten(&mut self, device: &mut dyn Blocks, may_be: bool) -> Result<(), LabelError> {
        self.update(device, |contents| contents.may_be_overwritten = may_be)
    }

    /// Whether what it says is what the device holds.
    pub(super) fn is_certain(&self) -> bool {
        self.certain
    }

    pub(super) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Makes one change of the label itself.
    fn update(&mut self, device: &mut dyn Blocks, change: impl FnOnce(&mut Contents)) -> Result<(), LabelError> {
        let mut next = self.contents.clone();
        change(&mut next);
        let prepared = self.prepare(device, next)?;
        self.write(device, prepared)
    }

    /// Sees to it that `next` can be written as the next state of the label. Nothing is written.
    pub(super) fn prepare(&self, device: &dyn Blocks, mut next: Contents) -> Result<Prepared, LabelError> {
        if self.mode == Mode::ReadOnly {
            return Err(LabelError::ReadOnly);
        }
        if !self.certain {
            return Err(LabelError::Uncertain);
        }
        if Geometry::of(device)? != self.contents.geometry {
            return Err(LabelError::OtherDevice { label: self.blocks(), device: device.blocks() });
        }
        let exhausted = LabelError::Exhausted { what: "the label's sequence" };
        next.sequence = self.contents.sequence.checked_add(1).ok_or(exhausted)?;
        let encoded = Encoded::of(&next)?;
        Ok(Prepared { contents: next, encoded })
    }

    /// Makes a prepared state the label's: it is on the medium, at both ends, when this returns.
    pub(super) fn write(&mut self, device: &mut dyn Blocks, prepared: Prepared) -> Result<(), LabelError> {
        self.certain = false;
        self.ranks.write(device, self.contents.geometry, &prepared.encoded)?;
        self.contents = prepared.contents;
        self.certain = true;
        Ok(())
    }
}

/// Whether a label is that of the namespace that it was found on.
pub(super) fn check_namespace(label: &Contents, device: &Identity, geometry: Geometry) -> Result<(), LabelError> {
    if !device.is(&label.namespace) {
        return Err(LabelError::Replaced { label: Box::new(label.namespace), device: Box::new(*device) });
    }
    let format = |geometry: Geometry, identity: &Identity| (geometry.lbads(), identity.ms, identity.pit);
    if format(label.geometry, &label.namespace) != format(geometry, device) {
        return Err(LabelError::Reformatted {
            label_block_size: label.geometry.block_size(),
            block_size: geometry.block_size(),
            label: Box::new(label.namespace),
            device: Box::new(*device),
        });
    }
    if label.geometry != geometry {
        return Err(LabelError::Resized { label: label.geometry.blocks(), device: geometry.blocks() });
    }
    Ok(())
}

/// Has these blocks read as zeroes, lastingly.
pub(super) fn clear(device: &mut dyn Blocks, extents: &[BlockExtent]) -> Result<(), LabelError> {
    if extents.is_empty() {
        return Ok(());
    }
    extents.iter().try_for_each(|extent| device.zero(extent.slba(), extent.blocks()))?;
    Ok(device.flush()?)
}
