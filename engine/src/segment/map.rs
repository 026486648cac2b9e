//! Where each byte of a segment lies: from offsets to devices and logical blocks.
//!
//! A map is made once, from a [`SegmentLayout`] that it checks, and then only asked. Offsets are in blocks here, as the
//! caller has checked that they are whole ones and inside the segment; what is outside all the same is nowhere.

use tentpeg_driver::queue::Limits;

use super::BlockExtent;
use super::layout::{LayoutError, SegmentLayout};
use crate::MAX_DEVICES;
use crate::lanes::LaneSet;

/// Blocks of a segment that follow each other on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first one's place in the segment.
    pub(crate) block: u64,
    /// The device.
    pub(crate) device: u8,
    /// The first one's place on the device.
    pub(crate) slba: u64,
    /// How many.
    pub(crate) blocks: u64,
}

#[derive(Debug, Clone)]
struct Member {
    device: u8,
    /// Each with the member's block that it begins with, ascending from 0.
    extents: Box<[(u64, BlockExtent)]>,
}

impl Member {
    /// Where the member's block `local` lies, and how many follow it there.
    fn locate(&self, local: u64) -> Option<(u64, u64)> {
        let after = self.extents.partition_point(|(start, _)| *start <= local);
        let (start, extent) = self.extents.get(after.checked_sub(1)?)?;
        let within = local - start;
        let blocks = extent.blocks().checked_sub(within).filter(|blocks| *blocks != 0)?;
        Some((extent.slba() + within, blocks))
    }
}

/// The map of one segment.
#[derive(Debug, Clone)]
pub(crate) struct SegmentMap {
    members: Box<[Member]>,
    /// Blocks of a chunk; of a segment with one member all blocks are one.
    chunk: u64,
    blocks: u64,
}

impl SegmentMap {
    /// Checks `layout` against the devices that are open, by their limits, and maps it.
    pub(crate) fn new(layout: &SegmentLayout, devices: &[Limits]) -> Result<Self, LayoutError> {
        let segment = || layout.name.clone();
        let count = layout.members.len();
        if !(1..=MAX_DEVICES).contains(&count) {
            return Err(LayoutError::Members { segment: segment(), count });
        }
        let mut members = Vec::new();
        let mut rooms = Vec::new();
        let mut lba_size = None;
        let mut seen = LaneSet::default();
        for member in &layout.members {
            let device = member.device;
            let limits = devices.get(device);
            let Some((limits, lane)) = limits.zip(u8::try_from(device).ok()) else {
                return Err(LayoutError::NoDevice { segment: segment(), device, devices: devices.len() });
            };
            if seen.contains(lane) {
                return Err(LayoutError::SameDevice { segment: segment(), device });
            }
            seen.insert(lane);
            let first = *lba_size.get_or_insert(limits.lba_size());
            if first != limits.lba_size() {
                return Err(LayoutError::BlockSizes { segment: segment(), first, other: limits.lba_size() });
            }
            let mut extents = Vec::new();
            let mut sum = 0u64;
            for extent in member.extents.iter().copied() {
                let (slba, blocks, nsze) = (extent.slba(), extent.blocks(), limits.nsze());
                if extent.end() > nsze {
                    return Err(LayoutError::Extent { segment: segment(), device, slba, blocks, nsze });
                }
                extents.push((sum, extent));
                sum = sum.checked_add(blocks).ok_or_else(|| LayoutError::TooLarge { segment: segment() })?;
            }
            let needed = if count == 1 { 1 } else { (layout.chunk / first).max(1) };
            if sum < needed {
                return Err(LayoutError::NoRoom { segment: segment(), device, blocks: sum, least: needed });
            }
            rooms.push(sum);
            members.push(Member { device: lane, extents: extents.into() });
        }
        let block = lba_size.unwrap_or(1);
        let (chunk, blocks) = if count == 1 {
            (rooms[0], Some(rooms[0]))
        } else {
            if layout.chunk == 0 || !layout.chunk.is_multiple_of(block) {
                return Err(LayoutError::Chunk { segment: segment(), chunk: layout.chunk, block });
            }
            let chunk = layout.chunk / block;
            (chunk, chunks(rooms.iter().map(|room| room / chunk)).and_then(|chunks| chunks.checked_mul(chunk)))
        };
        let blocks = blocks.filter(|blocks| blocks.checked_mul(block).is_some());
        let blocks = blocks.ok_or_else(|| LayoutError::TooLarge { segment: segment() })?;
        Ok(Self { members: members.into(), chunk, blocks })
    }

    /// Blocks of the segment.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of a chunk, where it is a stripe.
    pub(crate) fn chunk(&self) -> Option<u64> {
        (self.members.len() > 1).then_some(self.chunk)
    }

    /// The devices that it lies on.
    pub(crate) fn devices(&self) -> LaneSet {
        self.members.iter().map(|member| member.device).collect()
    }

    /// The device and the first block of a segment that is one extent.
    pub(crate) fn single(&self) -> Option<(u8, u64)> {
        match &*self.members {
            [Member { device, extents }] if extents.len() == 1 => Some((*device, extents[0].1.slba())),
            _ => None,
        }
    }

    /// Where `block` lies, and how many blocks follow it there.
    pub(crate) fn locate(&self, block: u64) -> Option<Piece> {
        if block >= self.blocks {
            return None;
        }
        let count = self.members.len() as u64;
        let (chunk, within) = (block / self.chunk, block % self.chunk);
        let member = self.members.get((chunk % count) as usize)?;
        let (slba, follow) = member.locate(chunk / count * self.chunk + within)?;
        let blocks = follow.min(self.chunk - within).min(self.blocks - block);
        Some(Piece { block, device: member.device, slba, blocks })
    }

    /// Where `blocks` blocks from `block` on lie, if they follow each other on one device.
    pub(crate) fn contiguous(&self, block: u64, blocks: u64) -> Option<(u8, u64)> {
        self.locate(block).filter(|piece| piece.blocks >= blocks).map(|piece| (piece.device, piece.slba))
    }

    /// The first piece on `device` that has a block of `block..end`, cut to that range.
    pub(crate) fn next_on(&self, device: u8, block: u64, end: u64) -> Option<Piece> {
        let count = self.members.len() as u64;
        let place = self.members.iter().position(|member| member.device == device)? as u64;
        let chunk = block / self.chunk;
        let ahead = (place + count - chunk % count) % count;
        let block = match ahead {
            0 => block,
            _ => chunk.checked_add(ahead)?.checked_mul(self.chunk)?,
        };
        let piece = self.locate(block).filter(|_| block < end)?;
        Some(Piece { blocks: piece.blocks.min(end - block), ..piece })
    }

    /// The devices that have a block of the `blocks` blocks from `block` on.
    pub(crate) fn devices_of(&self, block: u64, blocks: u64) -> LaneSet {
        let count = self.members.len() as u64;
        let (first, last) = (block / self.chunk, block.saturating_add(blocks.saturating_sub(1)) / self.chunk);
        if last - first >= count - 1 {
            return self.devices();
        }
        (first..=last)
            .filter_map(|chunk| self.members.get((chunk % count) as usize))
            .map(|member| member.device)
            .collect()
    }
}

/// Chunks of a stripe over members with room for so many, by index: all before the first that finds no room where it
/// belongs. `None` where 64 bits do not count them.
fn chunks(rooms: impl ExactSizeIterator<Item = u64>) -> Option<u64> {
    let members = rooms.len() as u64;
    // Member i has no room for the chunk that is its room's next: number room * members + i of the stripe.
    let ends = (0..).zip(rooms).map(|(index, room)| room.checked_mul(members)?.checked_add(index));
    ends.collect::<Option<Vec<u64>>>()?.into_iter().min()
}

#[cfg(test)]
mod tests;
