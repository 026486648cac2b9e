//! Where a segment's bytes are said to lie: the plain description that a label gives, before anything is checked.

use std::fmt;

use thiserror::Error;

use super::BlockExtent;
use crate::MAX_DEVICES;

/// What becomes of a write before it is COMPLETED. Without a volatile write cache (VWC = 0) all modes are the same, and
/// none costs anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// Nothing: a loss of power, or a controller that has to be reset, may take it away until a flush has COMPLETED.
    #[default]
    None,
    /// Each write has FUA; a deallocation, which has no such bit, waits for a Flush.
    Fua,
    /// It waits for a Flush that was submitted after its completion; one Flush serves all that wait.
    Flush,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Fua => "fua",
            Self::Flush => "flush",
        })
    }
}

/// The part of a segment that lies on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberLayout {
    /// The device: its place among those that the engine opens.
    pub device: usize,
    /// Its blocks in the order of the member's bytes, one or more extents.
    pub extents: Vec<BlockExtent>,
}

/// A segment as a label describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Its name.
    pub name: String,
    /// Its UUID, as RFC 9562 lays it out; zeroes where it has none.
    pub uuid: [u8; 16],
    /// When writes are COMPLETED.
    pub durability: Durability,
    /// Whether reads may begin and end anywhere, through staging memory; writes are whole blocks in any case.
    pub unaligned_reads: bool,
    /// Its members, each on a device of its own. One: the segment's bytes lie there one after the other. Several: a
    /// stripe, chunk `c` of the segment is chunk `c / n` of member `c mod n`.
    pub members: Vec<MemberLayout>,
    /// Bytes of a chunk of a stripe, a multiple of the block. Of no meaning with one member.
    pub chunk: u64,
}

impl SegmentLayout {
    /// The first `blocks` blocks of a device, as a segment without a label.
    pub fn whole(name: &str, device: usize, blocks: u64) -> Self {
        Self {
            name: name.to_owned(),
            uuid: [0; 16],
            durability: Durability::None,
            unaligned_reads: false,
            members: vec![MemberLayout { device, extents: BlockExtent::new(0, blocks).into_iter().collect() }],
            chunk: 0,
        }
    }
}

/// What is wrong with a layout. Whoever wrote it is at fault: the label, or the caller.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// No segment, or more than an engine serves.
    #[error("{count} segments: an engine serves 1 to {max}")]
    Segments {
        /// Segments given.
        count: usize,
        /// The most.
        max: usize,
    },
    /// No member, or more than there can be devices.
    #[error("segment {segment} has {count} members: it must have 1 to {MAX_DEVICES}")]
    Members {
        /// The segment's name.
        segment: String,
        /// Members given.
        count: usize,
    },
    /// A device that is not open.
    #[error("segment {segment} has a member on device {device}: {devices} devices are open, counted from 0")]
    NoDevice {
        /// The segment's name.
        segment: String,
        /// The device named.
        device: usize,
        /// Devices that are open.
        devices: usize,
    },
    /// Two members on one device.
    #[error(
        "segment {segment} has two members on device {device}: each member of a stripe lies on a device of its own"
    )]
    SameDevice {
        /// The segment's name.
        segment: String,
        /// The device.
        device: usize,
    },
    /// Members with blocks of different sizes.
    #[error(
        "segment {segment} has blocks of {first} bytes on one device and of {other} on another: they must be equal"
    )]
    BlockSizes {
        /// The segment's name.
        segment: String,
        /// Bytes of a block of the first member.
        first: u64,
        /// Bytes of a block of another.
        other: u64,
    },
    /// A chunk that is no whole number of blocks.
    #[error("segment {segment} has chunks of {chunk} bytes: a multiple of the block of {block} bytes is needed, not 0")]
    Chunk {
        /// The segment's name.
        segment: String,
        /// Bytes of a chunk.
        chunk: u64,
        /// Bytes of a block.
        block: u64,
    },
    /// An extent with blocks that the device does not have.
    #[error("segment {segment}: {blocks} blocks from {slba} on device {device}, which has {nsze}: all must lie in it")]
    Extent {
        /// The segment's name.
        segment: String,
        /// The device.
        device: usize,
        /// First block.
        slba: u64,
        /// Blocks.
        blocks: u64,
        /// Blocks of the device.
        nsze: u64,
    },
    /// A member without room for a chunk, or without an extent.
    #[error("segment {segment} has no room on device {device}: {blocks} blocks, of which {least} are needed at least")]
    NoRoom {
        /// The segment's name.
        segment: String,
        /// The device.
        device: usize,
        /// Blocks of the member.
        blocks: u64,
        /// Blocks that it needs.
        least: u64,
    },
    /// More bytes than 64 bits count.
    #[error("segment {segment} has more bytes than 64 bits count")]
    TooLarge {
        /// The segment's name.
        segment: String,
    },
    /// Blocks that belong to two segments, or twice to one.
    #[error(
        "block {slba} of device {device} belongs to segment {first} and to segment {second}: a block belongs to one, once"
    )]
    Overlap {
        /// The device.
        device: usize,
        /// The first block of the second.
        slba: u64,
        /// A segment's name.
        first: String,
        /// Another's, or the same.
        second: String,
    },
}

/// Checks that no block belongs to two segments, or twice to one.
pub(crate) fn check_disjoint(layouts: &[SegmentLayout]) -> Result<(), LayoutError> {
    let mut owned: Vec<(usize, BlockExtent, &str)> = layouts
        .iter()
        .flat_map(|layout| layout.members.iter().map(|member| (member, layout.name.as_str())))
        .flat_map(|(member, name)| member.extents.iter().map(move |extent| (member.device, *extent, name)))
        .collect();
    owned.sort_by_key(|(device, extent, _)| (*device, extent.slba()));
    for pair in owned.windows(2) {
        let ((device, before, first), (other, after, second)) = (pair[0], pair[1]);
        if device == other && before.end() > after.slba() {
            let (first, second) = (first.to_owned(), second.to_owned());
            return Err(LayoutError::Overlap { device, slba: after.slba(), first, second });
        }
    }
    Ok(())
}
