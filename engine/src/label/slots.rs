//! The four slots: which of them counts, and in which order they are written.
//!
//! The front MiB is never data, whatever size the namespace has. The back MiB has been if the namespace was made smaller,
//! and a tenant may have written there what looks like a label. So the front is the anchor: a slot at the back is believed
//! only where the front says that the back is where it is looked for, or where the front has nothing to say.

use std::array;

use super::contents::Contents;
use super::error::{Finding, Findings};
use super::place::{End, Geometry, SLOT_BYTES, SlotPlace};
use super::wire::{self, Undecodable};
use super::{LabelError, Malformed};
use crate::blocks::Blocks;

/// Bytes that are read of a slot to see what is in it; those of the largest header, and of a block at the least.
const FIRST_READ: usize = 4096;

/// A label that was read, and its bytes.
#[derive(Debug, Clone)]
pub(super) struct Valid {
    pub(super) contents: Contents,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
struct Slot {
    finding: Finding,
    valid: Option<Valid>,
}

impl From<Finding> for Slot {
    fn from(finding: Finding) -> Self {
        Self { finding, valid: None }
    }
}

/// What the four slots hold.
#[derive(Debug)]
pub(super) struct Slots {
    geometry: Geometry,
    slots: [Slot; 4],
}

impl Slots {
    /// Reads the slots of a namespace of this size.
    pub(super) fn read(device: &mut dyn Blocks, geometry: Geometry) -> Result<Self, LabelError> {
        let [a, b, c, d] = SlotPlace::ALL.map(|place| read_slot(device, geometry, place));
        let mut slots = Self { geometry, slots: [a?, b?, c?, d?] };
        slots.believe();
        Ok(slots)
    }

    /// Takes for what they are the slots at the back that are not to be believed.
    fn believe(&mut self) {
        let geometry = self.geometry;
        let anchored = self.anchor().is_none_or(|anchor| anchor.contents.geometry == geometry);
        for slot in &mut self.slots[2..] {
            let elsewhere = slot.valid.as_ref().map(|valid| valid.contents.geometry).filter(|of| *of != geometry);
            if let Some(of) = elsewhere {
                let malformed = Malformed::Elsewhere { blocks: of.blocks(), block_size: of.block_size() };
                *slot = Finding::Damaged(malformed).into();
            } else if !anchored && slot.finding != Finding::Blank {
                *slot = Finding::Foreign.into();
            }
        }
    }

    /// The newest label at the front.
    pub(super) fn anchor(&self) -> Option<&Valid> {
        self.slots[..2].iter().filter_map(|slot| slot.valid.as_ref()).max_by_key(|valid| valid.contents.sequence)
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What was found.
    pub(super) fn findings(&self) -> Findings {
        Findings(Box::new(array::from_fn(|index| self.slots[index].finding.clone())))
    }

    /// Whether a slot begins as a label does.
    pub(super) fn any_label(&self) -> bool {
        self.slots.iter().any(|slot| !matches!(slot.finding, Finding::Blank | Finding::Foreign))
    }

    /// The label that counts: the highest sequence of all four.
    pub(super) fn decide(&self) -> Result<&Valid, LabelError> {
        for place in SlotPlace::ALL {
            if let Finding::Newer { version, flags } = self.slots[place.index()].finding {
                return Err(LabelError::Newer { place, version, flags });
            }
        }
        // Of several with the highest sequence the first: `max_by_key` has the last.
        let counts =
            self.valid().collect::<Vec<_>>().into_iter().rev().max_by_key(|(_, valid)| valid.contents.sequence);
        if let Some((one, newest)) = counts {
            let sequence = newest.contents.sequence;
            for (other, valid) in self.valid() {
                let devices = [newest.contents.device, valid.contents.device];
                if devices[0] != devices[1] {
                    return Err(LabelError::TwoDevices { one, other, devices });
                }
                if valid.contents.sequence == sequence && valid.bytes != newest.bytes {
                    return Err(LabelError::Conflict { one, other, sequence });
                }
            }
        }
        counts.map(|(_, valid)| valid).ok_or_else(|| {
            let is = |finding: &Finding| self.slots.iter().all(|slot| slot.finding == *finding);
            match self.any_label() {
                true => LabelError::Damaged(self.findings()),
                false if is(&Finding::Blank) => LabelError::Blank,
                false => LabelError::Foreign(self.findings()),
            }
        })
    }

    fn valid(&self) -> impl Iterator<Item = (SlotPlace, &Valid)> {
        SlotPlace::ALL.into_iter().filter_map(|place| Some((place, self.slots[place.index()].valid.as_ref()?)))
    }

    /// What a writer has to know of them.
    pub(super) fn ranks(&self) -> Ranks {
        Ranks(array::from_fn(|index| match (&self.slots[index].finding, &self.slots[index].valid) {
            (_, Some(valid)) => Rank::Sequence(valid.contents.sequence),
            (Finding::Foreign, None) => Rank::Foreign,
            (_, None) => Rank::Free,
        }))
    }
}

/// The size of a namespace that can have a label.
///
/// # Errors
/// [`LabelError::Remnant`] where it can have none and begins with one, else [`LabelError::Unsuitable`].
pub(super) fn geometry(device: &mut dyn Blocks) -> Result<Geometry, LabelError> {
    let (blocks, block_size) = match Geometry::of(device) {
        Err(LabelError::Unsuitable { blocks, block_size }) => (blocks, block_size),
        found => return found,
    };
    let mut block = vec![0; block_size as usize];
    let size = u64::from(block_size);
    // As far as they are there, and begin where a block does.
    let slots =
        [0, SLOT_BYTES as u64].into_iter().filter_map(|byte| byte.checked_div(size).filter(|slba| slba * size == byte));
    for slba in slots.filter(|slba| *slba < blocks) {
        device.read(slba, &mut block)?;
        if wire::stated_length(&block).is_some() {
            return Err(LabelError::Remnant { blocks, block_size });
        }
    }
    Err(LabelError::Unsuitable { blocks, block_size })
}

fn read_slot(device: &mut dyn Blocks, geometry: Geometry, place: SlotPlace) -> Result<Slot, LabelError> {
    let slot = geometry.slot(place);
    let block_size = geometry.block_size() as usize;
    let mut bytes = vec![0; FIRST_READ.max(block_size)];
    device.read(slot.slba(), &mut bytes)?;
    let length = match wire::stated_length(&bytes) {
        Some(Ok(length)) => length,
        Some(Err(malformed)) => return Ok(Finding::Damaged(malformed).into()),
        None => {
            let blank = zeroes(&bytes) && {
                bytes = vec![0; SLOT_BYTES];
                device.read(slot.slba(), &mut bytes)?;
                zeroes(&bytes)
            };
            return Ok(if blank { Finding::Blank } else { Finding::Foreign }.into());
        }
    };
    if length > bytes.len() {
        // At most a slot, which is whole blocks.
        bytes = vec![0; length.next_multiple_of(block_size)];
        device.read(slot.slba(), &mut bytes)?;
    }
    bytes.truncate(length);
    Ok(match wire::decode(&bytes) {
        Ok(contents) => Slot {
            finding: Finding::Valid { sequence: contents.sequence, device: contents.device },
            valid: Some(Valid { contents, bytes }),
        },
        Err(Undecodable::Malformed(malformed)) => Finding::Damaged(malformed).into(),
        Err(Undecodable::Newer { version, flags }) => Finding::Newer { version, flags }.into(),
    })
}

fn zeroes(bytes: &[u8]) -> bool {
    const ZEROES: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROES.len()).all(|chunk| *chunk == ZEROES[..chunk.len()])
}

/// How well a slot can be spared: the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Nothing that counts is in it.
    Free,
    /// A label.
    Sequence(u64),
    /// Something that is no label, and may be somebody's.
    Foreign,
}

/// What is in the four slots, as a writer has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ranks([Rank; 4]);

impl Ranks {
    /// The places of an end.
    fn places(end: End) -> impl Iterator<Item = SlotPlace> {
        SlotPlace::ALL.into_iter().filter(move |place| place.end == end)
    }

    /// Whether an end has the label of this sequence.
    pub(super) fn has(&self, end: End, sequence: u64) -> bool {
        Self::places(end).any(|place| self.holds(place, sequence))
    }

    /// Whether a slot has the label of this sequence.
    pub(super) fn holds(&self, place: SlotPlace, sequence: u64) -> bool {
        self.0[place.index()] == Rank::Sequence(sequence)
    }

    /// Takes the slots of an end for free.
    pub(super) fn set_free(&mut self, end: End) {
        Self::places(end).for_each(|place| self.0[place.index()] = Rank::Free);
    }

    /// Whether both slots of an end were overwritten with something else.
    pub(super) fn overwritten(&self, end: End) -> bool {
        Self::places(end).all(|place| self.0[place.index()] == Rank::Foreign)
    }

    /// The slots that do not hold a label.
    pub(super) fn without_label(&self) -> impl Iterator<Item = SlotPlace> {
        SlotPlace::ALL.into_iter().filter(|place| !matches!(self.0[place.index()], Rank::Sequence(_)))
    }

    /// Takes every slot for free.
    pub(super) fn free() -> Self {
        Self([Rank::Free; 4])
    }

    /// Writes a label into the slot of `end` that can be spared best, and says which. It is on the medium when this
    /// returns.
    pub(super) fn write_end(
        &mut self,
        device: &mut dyn Blocks,
        geometry: Geometry,
        end: End,
        label: &Encoded,
    ) -> Result<SlotPlace, LabelError> {
        let place = Self::places(end).min_by_key(|place| self.0[place.index()]).expect("an end has two slots");
        self.write_slot(device, geometry, place, label)?;
        Ok(place)
    }

    /// Writes a label into this slot. It is on the medium when this returns.
    pub(super) fn write_slot(
        &mut self,
        device: &mut dyn Blocks,
        geometry: Geometry,
        place: SlotPlace,
        label: &Encoded,
    ) -> Result<(), LabelError> {
        let mut bytes = label.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(geometry.block_size() as usize), 0);
        device.write(geometry.slot(place).slba(), &bytes)?;
        // Also where FUA is not what it says, the other end is only written when this one is on the medium.
        device.flush()?;
        self.0[place.index()] = Rank::Sequence(label.sequence);
        Ok(())
    }

    /// Writes a label at the front, then at the back.
    pub(super) fn write(
        &mut self,
        device: &mut dyn Blocks,
        geometry: Geometry,
        label: &Encoded,
    ) -> Result<(), LabelError> {
        [End::Front, End::Back].into_iter().try_for_each(|end| self.write_end(device, geometry, end, label).map(drop))
    }
}

/// A label as it is written.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
}

impl Encoded {
    /// The bytes of what passes the same check as what is read.
    pub(super) fn of(contents: &Contents) -> Result<Self, LabelError> {
        contents.check()?;
        let most = SLOT_BYTES as u64;
        let bytes = wire::encode(contents).map_err(|bytes| LabelError::Full { bytes, most })?;
        Ok(Self { sequence: contents.sequence, bytes })
    }
}

#[cfg(test)]
mod tests;
