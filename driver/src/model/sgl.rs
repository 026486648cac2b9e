//! Scatter Gather Lists, walked as strictly as a controller may (NVM Express Base 2.1, 4.3.2).
//!
//! The walk reads every segment to its end and finds out which IOVAs the descriptors name, and which part of a read
//! is to be discarded. Whether the data's addresses are mapped is not its business.

use super::io_config::{SglConfig, SglSupport};
use super::iommu::{Extent, Fault, Hint, Reach};
use crate::spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType};
use crate::spec::status::StatusCode;

/// Bytes of a descriptor.
const DESCRIPTOR: u64 = SglDescriptor::LENGTH as u64;
/// Descriptors read at a time.
const BATCH: usize = 32;
/// Descriptors of one command: more than any transfer needs, and an end to a chain that leads back into itself.
const MOST_DESCRIPTORS: u64 = 1 << 17;

/// What an SGL describes, seen from the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Where data goes: a bit bucket discards it.
    Destination,
    /// Where data comes from: a bit bucket counts for nothing.
    Source,
}

/// Why a walk ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SglError {
    /// A descriptor that cannot be; `at` is its address, or 0 for the one in the command.
    Descriptor { at: u64, descriptor: SglDescriptor, code: StatusCode },
    /// All in all it describes another length than the transfer's.
    Length { described: u64 },
    /// A segment could not be read.
    Segment(Fault),
}

/// A part of a transfer that goes nowhere: bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) start: u64,
    pub(super) len: u64,
}

/// A walk and what it found. Kept from command to command so that none allocates.
#[derive(Default)]
pub(super) struct SglWalk {
    rules: SglConfig,
    extents: Vec<Extent>,
    skips: Vec<Skip>,
    described: u64,
    descriptors: u64,
    segments: u64,
    hint: Hint,
}

/// A segment to be read.
#[derive(Clone, Copy)]
struct Segment {
    address: u64,
    count: u64,
    last: bool,
}

impl SglWalk {
    pub(super) fn new(rules: SglConfig) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Walks the list that begins with `first`, for `len` bytes.
    ///
    /// # Errors
    /// [`SglError`]; what was found so far is of no use then.
    pub(super) fn walk(
        &mut self,
        reach: &Reach<'_>,
        flow: Flow,
        (at, first): (u64, SglDescriptor),
        len: u64,
    ) -> Result<(), SglError> {
        self.extents.clear();
        self.skips.clear();
        (self.described, self.descriptors, self.segments) = (0, 1, 0);
        let mut next = self.take(flow, at, first, len)?;
        while let Some(segment) = next {
            next = self.walk_segment(reach, flow, segment, len)?;
        }
        let right = if self.rules.oversize { self.described >= len } else { self.described == len };
        if right { Ok(()) } else { Err(SglError::Length { described: self.described }) }
    }

    /// What the transfer lies in, in order and without what is skipped; neighbours are joined.
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// What of the transfer goes nowhere, in order.
    pub(super) fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// Descriptors looked at, the one in the command included.
    pub(super) fn descriptors(&self) -> u64 {
        self.descriptors
    }

    /// Segments read from memory.
    pub(super) fn segments(&self) -> u64 {
        self.segments
    }

    /// Takes the descriptors of one segment. The segment that follows, if any does.
    fn walk_segment(
        &mut self,
        reach: &Reach<'_>,
        flow: Flow,
        segment: Segment,
        len: u64,
    ) -> Result<Option<Segment>, SglError> {
        self.segments += 1;
        let mut words = [0; BATCH * 2];
        let (mut done, mut next) = (0, None);
        while done < segment.count {
            let batch = (segment.count - done).min(BATCH as u64);
            let address = segment.address.wrapping_add(done * DESCRIPTOR);
            let words = &mut words[..batch as usize * 2];
            reach.read_words(address, words, &mut self.hint).map_err(SglError::Segment)?;
            for pair in words.as_chunks().0 {
                let (at, descriptor) =
                    (segment.address.wrapping_add(done * DESCRIPTOR), SglDescriptor::from_words(*pair));
                let refused = |code| Err(SglError::Descriptor { at, descriptor, code });
                done += 1;
                self.descriptors += 1;
                if self.descriptors > MOST_DESCRIPTORS {
                    return refused(StatusCode::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                }
                let leads_on =
                    matches!(descriptor.kind(), SglDescriptorType::SEGMENT | SglDescriptorType::LAST_SEGMENT);
                if leads_on && done < segment.count {
                    return refused(StatusCode::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                }
                // The last segment must not lead on, and every other must.
                next = self.take(flow, at, descriptor, len)?;
                if done == segment.count && leads_on == segment.last {
                    return refused(StatusCode::INVALID_SGL_SEGMENT_DESCRIPTOR);
                }
            }
        }
        Ok(next)
    }

    /// Takes one descriptor. The segment that it leads to, if it is one that does.
    fn take(&mut self, flow: Flow, at: u64, descriptor: SglDescriptor, len: u64) -> Result<Option<Segment>, SglError> {
        let refused = |code| Err(SglError::Descriptor { at, descriptor, code });
        let (kind, length) = (descriptor.kind(), u64::from(descriptor.length));
        let bucket = kind == SglDescriptorType::BIT_BUCKET;
        match kind {
            SglDescriptorType::DATA_BLOCK | SglDescriptorType::SEGMENT | SglDescriptorType::LAST_SEGMENT => {}
            SglDescriptorType::BIT_BUCKET if self.rules.bit_bucket => {}
            _ => return refused(StatusCode::SGL_DESCRIPTOR_TYPE_INVALID),
        }
        match descriptor.subtype() {
            SglDescriptorSubType::ADDRESS => {}
            SglDescriptorSubType::OFFSET if self.rules.offset && !bucket => {
                return refused(StatusCode::SGL_OFFSET_INVALID);
            }
            _ => return refused(StatusCode::SGL_DESCRIPTOR_TYPE_INVALID),
        }
        match kind {
            SglDescriptorType::DATA_BLOCK => {
                let dwords = descriptor.address.is_multiple_of(4) && length.is_multiple_of(4);
                if self.rules.support == SglSupport::Dword && !dwords {
                    return refused(StatusCode::SGL_DATA_BLOCK_GRANULARITY_INVALID);
                }
                self.push(descriptor.address, length.min(len.saturating_sub(self.described)));
                self.described += length;
                Ok(None)
            }
            SglDescriptorType::BIT_BUCKET => {
                if flow == Flow::Destination {
                    let part = length.min(len.saturating_sub(self.described));
                    if part > 0 {
                        self.skips.push(Skip { start: self.described, len: part });
                    }
                    self.described += length;
                }
                Ok(None)
            }
            _ => {
                let whole = length > 0 && length.is_multiple_of(DESCRIPTOR);
                if !whole || !descriptor.address.is_multiple_of(8) {
                    return refused(StatusCode::INVALID_SGL_SEGMENT_DESCRIPTOR);
                }
                let last = kind == SglDescriptorType::LAST_SEGMENT;
                Ok(Some(Segment { address: descriptor.address, count: length / DESCRIPTOR, last }))
            }
        }
    }

    fn push(&mut self, address: u64, len: u64) {
        if len == 0 {
            return;
        }
        match self.extents.last_mut() {
            Some(last) if last.address.wrapping_add(last.len) == address => last.len += len,
            _ => self.extents.push(Extent { address, len }),
        }
    }
}

#[cfg(test)]
mod tests;
