//! Segments: what requests name as their target.
//!
//! A segment is bytes from 0 to its capacity, and a map that says on which device each of its blocks lies. Layouts come
//! from outside ([`SegmentLayout`]); what they say is checked here, once, before anything is served.

pub(crate) mod extent;
mod layout;
mod map;

use tentpeg_driver::queue::Limits;

pub use extent::BlockExtent;
pub(crate) use layout::check_disjoint;
pub use layout::{Durability, LayoutError, MemberLayout, SegmentLayout};
pub(crate) use map::{Piece, SegmentMap};

use crate::task::Head;
use crate::{OpCode, SegmentId};

/// The most segments of an engine.
pub(crate) const MAX_SEGMENTS: usize = 1 << 16;

/// A segment that requests can name.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Its number, from 1 on in the order of the layouts.
    pub id: SegmentId,
    /// What it was opened by.
    pub layout: SegmentLayout,
    /// Its length in bytes, a multiple of the block.
    pub capacity: u64,
    /// Bytes of a logical block.
    pub lba_size: u64,
    /// Whether requests may write it: every device of it may be written.
    pub writable: bool,
    /// Whether its blocks can be deallocated: every device of it has Dataset Management.
    pub deallocates: bool,
    /// Whether blocks that were deallocated read as zeroes (DLFEAT of every device of it says so). Else they read as
    /// before, or as anything.
    pub deallocated_is_zero: bool,
    pub(crate) lba_shift: u32,
    pub(crate) map: SegmentMap,
    /// Where it is one extent: the way of most requests.
    pub(crate) single: Option<Single>,
}

/// All that the transfers of a segment of one extent have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single {
    /// Its first block on the device.
    pub(crate) slba: u64,
    read: Head,
    write: Head,
}

impl Single {
    /// The head of its tasks that go this way.
    #[inline]
    pub(crate) const fn head(&self, opcode: OpCode) -> Head {
        match opcode {
            OpCode::Read => self.read,
            OpCode::Write => self.write,
        }
    }
}

/// What a segment must know of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceTraits {
    pub(crate) limits: Limits,
    pub(crate) writable: bool,
    pub(crate) deallocates: bool,
    pub(crate) deallocated_is_zero: bool,
}

impl Segment {
    pub(crate) fn new(id: SegmentId, layout: SegmentLayout, devices: &[DeviceTraits]) -> Result<Self, LayoutError> {
        let limits: Vec<Limits> = devices.iter().map(|device| device.limits).collect();
        let map = SegmentMap::new(&layout, &limits)?;
        let members = || map.devices().iter().filter_map(|device| devices.get(usize::from(device)));
        // The map has checked that there is a member, and that all have blocks of one size.
        let lba_shift = members().next().map_or(0, |device| device.limits.lba_shift());
        // Numbers count from 1, and `open_all` has no more than 16 bits name.
        let index = id.0.wrapping_sub(1) as u16;
        let single = map.single().map(|(device, slba)| {
            let head = |opcode| Head::transfer(opcode, layout.durability, device, index);
            Single { slba, read: head(OpCode::Read), write: head(OpCode::Write) }
        });
        Ok(Self {
            id,
            capacity: map.blocks() << lba_shift,
            lba_size: 1 << lba_shift,
            writable: members().all(|device| device.writable),
            deallocates: members().all(|device| device.deallocates),
            deallocated_is_zero: members().all(|device| device.deallocated_is_zero),
            lba_shift,
            single,
            layout,
            map,
        })
    }

    /// Bytes of a chunk, where it is a stripe.
    pub fn chunk(&self) -> Option<u64> {
        self.map.chunk().map(|blocks| blocks << self.lba_shift)
    }
}

/// All segments of `layouts` over these devices; numbers count from 1 in their order.
pub(crate) fn open_all(layouts: Vec<SegmentLayout>, devices: &[DeviceTraits]) -> Result<Vec<Segment>, LayoutError> {
    if !(1..=MAX_SEGMENTS).contains(&layouts.len()) {
        return Err(LayoutError::Segments { count: layouts.len(), max: MAX_SEGMENTS });
    }
    check_disjoint(&layouts)?;
    (1..).zip(layouts).map(|(id, layout)| Segment::new(SegmentId(id), layout, devices)).collect()
}
