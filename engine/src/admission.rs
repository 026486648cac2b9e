//! Admission: whether a request can be served, before anything of it is submitted.
//!
//! What passes is inside its segment, whole blocks, inside one registered region that the device may use that way, and on
//! dwords: the planner and the driver need not ask again. A read of a segment that was opened for unaligned ones may be
//! anything inside it, and memory that may be staged may be on any byte, and need not be reached by the device. Here it is
//! decided, too, whether a request is contiguous on one device.

use tentpeg_driver::dma::{Access, Iova, RegionLookup, RegionTable, ResolveError};
use thiserror::Error;

use crate::memory::Nameable;
use crate::segment::{Durability, Segment};
use crate::task::{Head, Operation, Spread, Transfer, Work};
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
    /// The segment cannot be deallocated.
    #[error("target_id {} lies on a device without Dataset Management (ONCS): write zeroes instead", target_id.0)]
    NoDeallocation {
        /// The segment.
        target_id: SegmentId,
    },
    /// `source` lies in no registered memory, or not in one region.
    #[error("source: {0}")]
    Memory(#[from] ResolveError),
    /// `source` is not on a dword.
    #[error("source {source_address:#x} must be a multiple of 4")]
    SourceAlignment {
        /// The address asked for.
        source_address: u64,
    },
    /// The request's bytes would have to be copied by the host, and the memory is a GPU's.
    #[error(
        "source {source_address:#x} is memory of a GPU, which the host cannot copy to: read whole blocks, on their \
         boundaries, into memory on a multiple of 4"
    )]
    HostCopy {
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

/// Finds the requests that are most of them: whole blocks of a segment that is one extent, in memory that is like that of
/// the one before. All others are a matter for [`admit`], and so is the reason of a refusal.
pub(crate) struct Plain<'a> {
    segments: &'a [Segment],
    regions: RegionLookup<'a>,
}

impl<'a> Plain<'a> {
    pub(crate) fn new(segments: &'a [Segment], regions: &'a RegionTable) -> Self {
        Self { segments, regions: regions.lookup() }
    }

    /// What [`admit`] says of `request` as well; `None`: it has to be asked.
    // Always: the error of `admit` would go through memory, and with it every transfer.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, request: &Request) -> Option<Transfer> {
        let Request { opcode, source, target_id, target_offset, length } = *request;
        let (_, segment) = find(target_id, self.segments)?;
        let single = segment.single.as_ref()?;
        if !is_whole(segment, target_offset, length, source) || !is_inside(segment, target_offset, length) {
            return None;
        }
        if opcode == OpCode::Write && !segment.writable {
            return None;
        }
        let (iova, registered) = self.regions.find(source, length)?;
        if !registered.contains(needed(opcode)) {
            return None;
        }
        let slba = single.slba + (target_offset >> segment.lba_shift);
        Some(Transfer { head: single.head(opcode), slba, iova, length })
    }
}

/// Says whether `request` can be served, and how.
#[cold]
pub(crate) fn admit(request: &Request, segments: &[Segment], memory: &Nameable) -> Result<Work, RequestError> {
    let Request { opcode, source, target_id, target_offset, length } = *request;
    let (index, segment) = find(target_id, segments).ok_or(RequestError::NoSegment { target_id })?;
    if !is_whole(segment, target_offset, length, source) {
        return admit_odd(request, index, segment, memory);
    }
    check_bounds(segment, target_offset, length)?;
    if opcode == OpCode::Write && !segment.writable {
        return Err(RequestError::ReadOnly);
    }
    match memory.resolve(source, length) {
        Ok((iova, registered)) => {
            check_access(request, registered)?;
            Ok(map(request, index, segment, iova))
        }
        Err(error) => match memory.staged(source, length) {
            // Memory that no device reaches begins there.
            Some(staged) if matches!(error, ResolveError::NotRegistered { .. }) => {
                check_access(request, staged?)?;
                Ok(staged_work(request, index, segment))
            }
            _ => Err(error.into()),
        },
    }
}

/// Where the blocks of a request lie, when all about it is right.
fn map(request: &Request, index: u16, segment: &Segment, memory: Iova) -> Work {
    let Request { opcode, target_offset, length, .. } = *request;
    let durability = segment.layout.durability;
    let (block, blocks) = (target_offset >> segment.lba_shift, length >> segment.lba_shift);
    match segment.map.contiguous(block, blocks) {
        Some((device, slba)) => {
            let head = Head::transfer(opcode, durability, device, index);
            Work::Transfer(Transfer { head, slba, iova: memory, length })
        }
        None => {
            let operation = if opcode == OpCode::Read { Operation::Read } else { Operation::Write };
            let head = Head::spread(operation, durability, index);
            let lanes = segment.map.devices_of(block, blocks);
            Work::Spread(Spread { head, lanes, offset: target_offset, memory: memory.get(), length })
        }
    }
}

/// A request that is not whole blocks on dwords: a read of a segment that was opened for such, or of whole blocks with memory
/// that may be staged, through staging memory; or refused.
fn admit_odd(request: &Request, index: u16, segment: &Segment, memory: &Nameable) -> Result<Work, RequestError> {
    let Request { opcode, source, target_offset, length, .. } = *request;
    if opcode == OpCode::Read && segment.layout.unaligned_reads && length != 0 {
        check_bounds(segment, target_offset, length)?;
        if !memory.is_touchable(source) {
            return Err(RequestError::HostCopy { source_address: source });
        }
        let registered = match memory.resolve(source, length) {
            Ok((_, registered)) => registered,
            Err(error) => memory.staged(source, length).unwrap_or(Err(error))?,
        };
        check_access(request, registered)?;
        return Ok(staged_work(request, index, segment));
    }
    check_blocks(segment, target_offset, length)?;
    check_bounds(segment, target_offset, length)?;
    if opcode == OpCode::Write && !segment.writable {
        return Err(RequestError::ReadOnly);
    }
    // What is left is that the memory is on no dword.
    let staged = memory.staged(source, length).ok_or(RequestError::SourceAlignment { source_address: source })?;
    check_access(request, staged?)?;
    Ok(staged_work(request, index, segment))
}

/// A request whose bytes are copied, wherever its blocks lie.
fn staged_work(request: &Request, index: u16, segment: &Segment) -> Work {
    let Request { opcode, source, target_offset, length, .. } = *request;
    let operation = match opcode {
        OpCode::Read => Operation::StagedRead,
        OpCode::Write => Operation::StagedWrite,
    };
    let (first, last) = (target_offset >> segment.lba_shift, (target_offset + (length - 1)) >> segment.lba_shift);
    let head = Head::spread(operation, segment.layout.durability, index);
    let lanes = segment.map.devices_of(first, last - first + 1);
    Work::Spread(Spread { head, lanes, offset: target_offset, memory: source, length })
}

/// Says whether a range of a segment can be zeroed or deallocated.
pub(crate) fn admit_range(
    operation: Operation,
    target_id: SegmentId,
    target_offset: u64,
    length: u64,
    segments: &[Segment],
) -> Result<Work, RequestError> {
    let (index, segment) = find(target_id, segments).ok_or(RequestError::NoSegment { target_id })?;
    check_blocks(segment, target_offset, length)?;
    check_bounds(segment, target_offset, length)?;
    if !segment.writable {
        return Err(RequestError::ReadOnly);
    }
    if operation == Operation::Deallocate && !segment.deallocates {
        return Err(RequestError::NoDeallocation { target_id });
    }
    let head = Head::spread(operation, segment.layout.durability, index);
    let lanes = segment.map.devices_of(target_offset >> segment.lba_shift, length >> segment.lba_shift);
    Ok(Work::Spread(Spread { head, lanes, offset: target_offset, memory: 0, length }))
}

/// Says whether a segment can be flushed: it exists.
pub(crate) fn admit_flush(target_id: SegmentId, segments: &[Segment]) -> Result<Work, RequestError> {
    let (index, segment) = find(target_id, segments).ok_or(RequestError::NoSegment { target_id })?;
    let head = Head::spread(Operation::Flush, Durability::None, index);
    Ok(Work::Spread(Spread { head, lanes: segment.map.devices(), offset: 0, memory: 0, length: 0 }))
}

/// The segment of that number, and its place in the list.
#[inline(always)]
fn find(target_id: SegmentId, segments: &[Segment]) -> Option<(u16, &Segment)> {
    // Numbers count from 1, in the order of the list, which has no more than 16 bits name.
    let index = target_id.0.wrapping_sub(1);
    let segment = segments.get(usize::try_from(index).ok()?)?;
    Some((index as u16, segment))
}

/// Whether a request is whole blocks, one or more, with memory on dwords.
#[inline(always)]
fn is_whole(segment: &Segment, target_offset: u64, length: u64, source: u64) -> bool {
    (length | target_offset) & (segment.lba_size - 1) == 0 && length != 0 && source & 3 == 0
}

/// Whether a range lies inside the segment.
#[inline(always)]
fn is_inside(segment: &Segment, target_offset: u64, length: u64) -> bool {
    target_offset.checked_add(length).is_some_and(|end| end <= segment.capacity)
}

/// What devices must be allowed to do with the memory of a request.
#[inline(always)]
fn needed(opcode: OpCode) -> Access {
    match opcode {
        OpCode::Read => Access::DEVICE_WRITES,
        OpCode::Write => Access::DEVICE_READS,
    }
}

fn check_blocks(segment: &Segment, target_offset: u64, length: u64) -> Result<(), RequestError> {
    let lba_size = segment.lba_size;
    if length == 0 || length & (lba_size - 1) != 0 {
        return Err(RequestError::Length { length, lba_size });
    }
    if target_offset & (lba_size - 1) != 0 {
        return Err(RequestError::Offset { target_offset, lba_size });
    }
    Ok(())
}

fn check_bounds(segment: &Segment, target_offset: u64, length: u64) -> Result<(), RequestError> {
    if !is_inside(segment, target_offset, length) {
        return Err(RequestError::OutOfBounds { target_offset, length, capacity: segment.capacity });
    }
    Ok(())
}

/// Whether the memory was registered for what the request does.
fn check_access(request: &Request, registered: Access) -> Result<(), RequestError> {
    let needed = needed(request.opcode);
    if !registered.contains(needed) {
        return Err(RequestError::Access { source_address: request.source, registered, needed });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
