//! Admission: whether a request can be served, before anything of it is submitted.
//!
//! One function. What passes it is inside its segment, whole blocks, inside one registered region that the device may
//! use that way, and on dwords: the planner and the driver need not ask again.

use tentpeg_driver::dma::{Access, Iova, RegionTable, ResolveError};
use thiserror::Error;

use crate::segment::Segment;
use crate::{OpCode, Request, SegmentId};

/// Why a request is INVALID. The caller is at fault; the argument is named with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RequestError {
    /// `target_id` names no open segment.
    #[error("target_id {} is no open segment", target_id.0)]
    NoSegment {
        /// The segment asked for.
        target_id: SegmentId,
    },
    /// `length` is 0 or no multiple of the block.
    #[error("length {length} must be a multiple of the block of {lba_size} bytes, and not 0")]
    Length {
        /// The length asked for.
        length: u64,
        /// Bytes of a block.
        lba_size: u64,
    },
    /// `target_offset` is no multiple of the block.
    #[error("target_offset {target_offset} must be a multiple of the block of {lba_size} bytes")]
    Offset {
        /// The offset asked for.
        target_offset: u64,
        /// Bytes of a block.
        lba_size: u64,
    },
    /// The range leaves the segment.
    #[error("target_offset {target_offset} with length {length} leaves the segment, which has {capacity} bytes")]
    OutOfBounds {
        /// The offset asked for.
        target_offset: u64,
        /// The length asked for.
        length: u64,
        /// The segment's length.
        capacity: u64,
    },
    /// The segment is open for reading only.
    #[error("the segment is open for reading only; a file that exists is opened for writing by 'overwrite' in its URI")]
    ReadOnly,
    /// `source` lies in no registered memory, or not in one region.
    #[error("source: {0}")]
    Memory(#[from] ResolveError),
    /// `source` is not on a dword.
    #[error("source {source_address:#x} must be a multiple of 4")]
    SourceAlignment {
        /// The address asked for.
        source_address: u64,
    },
    /// The memory was registered for the other direction only.
    #[error("source {source_address:#x} was registered for {registered:?}, the request needs {needed:?}")]
    Access {
        /// The address asked for.
        source_address: u64,
        /// What devices may do there.
        registered: Access,
        /// What the request needs.
        needed: Access,
    },
}

/// A request that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) opcode: OpCode,
    /// The first logical block in the namespace.
    pub(crate) slba: u64,
    /// Where the device finds the memory.
    pub(crate) iova: Iova,
    /// Bytes, a multiple of the block.
    pub(crate) length: u64,
}

/// Says whether `request` can be served, and how.
#[inline]
pub(crate) fn admit(request: &Request, segments: &[Segment], regions: &RegionTable) -> Result<Admitted, RequestError> {
    let Request { opcode, source, target_id, target_offset, length } = *request;
    let Some(segment) = segments.iter().find(|segment| segment.id == target_id) else {
        return Err(RequestError::NoSegment { target_id });
    };
    let lba_size = segment.limits.lba_size();
    if length == 0 || length & (lba_size - 1) != 0 {
        return Err(RequestError::Length { length, lba_size });
    }
    if target_offset & (lba_size - 1) != 0 {
        return Err(RequestError::Offset { target_offset, lba_size });
    }
    let capacity = segment.capacity;
    if target_offset.checked_add(length).is_none_or(|end| end > capacity) {
        return Err(RequestError::OutOfBounds { target_offset, length, capacity });
    }
    if opcode == OpCode::Write && !segment.writable {
        return Err(RequestError::ReadOnly);
    }
    if !source.is_multiple_of(4) {
        return Err(RequestError::SourceAlignment { source_address: source });
    }
    let (memory, registered) = regions.resolve(source, length)?;
    let needed = match opcode {
        OpCode::Read => Access::DEVICE_WRITES,
        OpCode::Write => Access::DEVICE_READS,
    };
    if !registered.contains(needed) {
        return Err(RequestError::Access { source_address: source, registered, needed });
    }
    let slba = segment.first_lba + (target_offset >> segment.limits.lba_shift());
    Ok(Admitted { opcode, slba, iova: memory.start(), length })
}

#[cfg(test)]
mod tests;
