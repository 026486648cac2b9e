//! Where the label lies on a namespace, and what is left for data.
//!
//! The first and the last MiB belong to the label, two slots of 512 KiB in each. A MiB is whole blocks for every block of
//! 512 to 65,536 bytes, so the places are the same bytes whatever the LBA format is.

use std::fmt;

use super::{BlockExtent, LabelError};
use crate::blocks::Blocks;

/// Bytes of each end that belong to the label.
pub(super) const END_BYTES: u64 = 1 << 20;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 512 << 10;
/// The smallest block, as a power of two (LBADS).
pub(super) const MIN_LBADS: u8 = 9;
/// The largest.
pub(super) const MAX_LBADS: u8 = 16;

/// One of the two ends of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The first MiB.
    Front,
    /// The last MiB.
    Back,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Front => "front",
            Self::Back => "back",
        })
    }
}

/// One of the four slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotPlace {
    /// At which end.
    pub end: End,
    /// The second of the end's two.
    pub second: bool,
}

impl SlotPlace {
    /// All four, in the order in which they lie.
    pub const ALL: [Self; 4] = [
        Self { end: End::Front, second: false },
        Self { end: End::Front, second: true },
        Self { end: End::Back, second: false },
        Self { end: End::Back, second: true },
    ];

    /// Its index in [`ALL`](Self::ALL).
    pub(super) fn index(self) -> usize {
        2 * usize::from(self.end == End::Back) + usize::from(self.second)
    }
}

impl fmt::Display for SlotPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slot {}", self.end, u8::from(self.second))
    }
}

/// The size of a namespace that can hold a label: both ends and at least one block between them, and fewer than 2^64
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    blocks: u64,
    lbads: u8,
}

impl Geometry {
    /// `blocks` blocks of 2^`lbads` bytes.
    pub(super) fn new(blocks: u64, lbads: u8) -> Option<Self> {
        if !(MIN_LBADS..=MAX_LBADS).contains(&lbads) {
            return None;
        }
        let bytes = blocks.checked_mul(1 << lbads)?;
        (bytes > 2 * END_BYTES).then_some(Self { blocks, lbads })
    }

    /// That of a device.
    pub(super) fn of(device: &(impl Blocks + ?Sized)) -> Result<Self, LabelError> {
        let (blocks, block_size) = (device.blocks(), device.block_size());
        let refused = LabelError::Unsuitable { blocks, block_size };
        if !block_size.is_power_of_two() {
            return Err(refused);
        }
        // At most 31, so it fits.
        Self::new(blocks, block_size.trailing_zeros() as u8).ok_or(refused)
    }

    pub(super) fn blocks(self) -> u64 {
        self.blocks
    }

    pub(super) fn lbads(self) -> u8 {
        self.lbads
    }

    pub(super) fn block_size(self) -> u32 {
        1 << self.lbads
    }

    /// Blocks of an end.
    fn end_blocks(self) -> u64 {
        END_BYTES >> self.lbads
    }

    /// One of the two ends.
    pub(super) fn end(self, end: End) -> BlockExtent {
        let blocks = self.end_blocks();
        let slba = match end {
            End::Front => 0,
            End::Back => self.blocks - blocks,
        };
        BlockExtent::new(slba, blocks).expect("both ends fit, as Geometry::new has seen")
    }

    /// The slot in that place.
    pub(super) fn slot(self, place: SlotPlace) -> BlockExtent {
        let end = self.end(place.end);
        let half = end.blocks() / 2;
        BlockExtent::new(end.slba() + if place.second { half } else { 0 }, half).expect("it is half of an end")
    }

    /// What lies between the ends.
    pub(super) fn data(self) -> BlockExtent {
        let blocks = self.end_blocks();
        BlockExtent::between(blocks, self.blocks - blocks).expect("there is a block between the ends")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_two_ends_and_a_block_at_the_least() {
        for lbads in MIN_LBADS..=MAX_LBADS {
            let ends = (2 * END_BYTES) >> lbads;
            assert_eq!(Geometry::new(ends, lbads), None);
            let least = Geometry::new(ends + 1, lbads).unwrap();
            assert_eq!(least.data(), BlockExtent::new(ends / 2, 1).unwrap());
            let most = u64::MAX >> lbads;
            assert!(Geometry::new(most, lbads).is_some());
            assert_eq!(Geometry::new(most + 1, lbads), None);
        }
        assert_eq!(Geometry::new(1 << 30, MIN_LBADS - 1), None);
        assert_eq!(Geometry::new(1 << 30, MAX_LBADS + 1), None);
    }

    #[test]
    fn the_slots_fill_the_ends_and_touch_nothing_else() {
        for lbads in MIN_LBADS..=MAX_LBADS {
            let size = 1_u64 << lbads;
            let geometry = Geometry::new((5 << 20) / size, lbads).unwrap();
            let bytes = |place| {
                let slot = geometry.slot(place);
                (slot.slba() * size, slot.end() * size)
            };
            assert_eq!(
                SlotPlace::ALL.map(bytes),
                [
                    (0, 512 << 10),
                    (512 << 10, 1 << 20),
                    (4 << 20, (4 << 20) + (512 << 10)),
                    ((4 << 20) + (512 << 10), 5 << 20)
                ]
            );
            assert_eq!((geometry.data().slba() * size, geometry.data().end() * size), (1 << 20, 4 << 20));
            assert_eq!(geometry.block_size() as u64, size);
        }
        for (index, place) in SlotPlace::ALL.iter().enumerate() {
            assert_eq!(place.index(), index);
        }
    }
}
