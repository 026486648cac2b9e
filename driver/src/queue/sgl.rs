//! Scatter Gather Lists: where the bytes of a command are when PRPs cannot say it (NVM Express Base 2.1, 4.3.2).
//!
//! Extents may start and end anywhere that the controller's SGLS allows: on dwords, or on any byte. One extent is one
//! Data Block descriptor in the command itself. Of more extents the descriptors lie in the list pages of the slot, the
//! same that a PRP list would take, a segment a page: the last descriptor of a page leads to the next one where more
//! follow, and the command holds the descriptor of the first.

use thiserror::Error;

use super::prp::{Extent, ListPages};
use crate::spec::identify::{IdentifyController, SglDataBlock};
use crate::spec::sgl::SglDescriptor;

/// Bytes of one descriptor.
const DESCRIPTOR: u64 = SglDescriptor::LENGTH as u64;
/// Where MSDBD lies in the NVMe over Fabrics part of Identify Controller, byte 1803 of the whole.
const MSDBD: usize = 1803 - 1792;

/// What a controller's SGLs may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SglSupport {
    /// Each data block's address and length are multiples of it: 1 or 4 (SGLS bits 1:0).
    pub alignment: u64,
    /// The most data descriptors of a command (MSDBD), where the controller says so.
    ///
    /// The field is NVMe over Fabrics', and zero, no limit, in most controllers on PCIe; one that fills it means it.
    /// The SGL Descriptor Threshold (SGLS.SDT) is a recommendation, and more descriptors are not an error.
    pub max_descriptors: Option<u32>,
}

impl SglSupport {
    /// What Identify Controller says: `None` where there are no SGLs, or of a kind that is not known.
    pub fn of(controller: &IdentifyController) -> Option<Self> {
        let alignment = match controller.sgls.supported() {
            SglDataBlock::BYTE => 1,
            SglDataBlock::DWORD => 4,
            _ => return None,
        };
        let max_descriptors = Some(u32::from(controller.fabrics[MSDBD])).filter(|most| *most != 0);
        Some(Self { alignment, max_descriptors })
    }
}

/// Why extents have no SGL. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SglError {
    /// There is no extent, or one of no bytes, or one that wraps.
    #[error("extent {index} has no byte, or its end overflows")]
    NoBytes {
        /// Which extent.
        index: usize,
    },
    /// An extent that the controller's SGLs cannot name.
    #[error("extent {index} is {len} bytes at IOVA {iova:#x}: both must be multiples of {alignment} (SGLS)")]
    Misaligned {
        /// Which extent.
        index: usize,
        /// Where it starts.
        iova: u64,
        /// Its length in bytes.
        len: u64,
        /// What both must be a multiple of.
        alignment: u64,
    },
    /// More bytes than a command may carry.
    #[error("the extents have {bytes} bytes: a command may carry {max} at the most")]
    TooLong {
        /// Bytes of all extents, as far as they were counted.
        bytes: u64,
        /// Bytes that a command may carry.
        max: u64,
    },
    /// More extents than descriptors fit.
    #[error("the memory is {extents} extents: a command may have {capacity} at the most")]
    TooManyExtents {
        /// Descriptors needed.
        extents: u64,
        /// Descriptors that fit into a slot's list pages, or that the controller takes.
        capacity: u64,
    },
}

/// How many data descriptors fit into `pages` list pages: each page but the last gives one place to the chain. A
/// command without list pages still holds one.
pub const fn capacity(pages: u64, page_size: u64) -> u64 {
    if pages == 0 { 1 } else { pages * (page_size / DESCRIPTOR - 1) + 1 }
}

/// Checks `extents` against what the controller and a slot of `pages` list pages can carry.
///
/// # Errors
/// [`SglError`]: the first thing that is wrong.
pub fn check(
    extents: &[Extent],
    support: SglSupport,
    max_transfer: u64,
    pages: u64,
    page_size: u64,
) -> Result<(), SglError> {
    if extents.is_empty() {
        return Err(SglError::NoBytes { index: 0 });
    }
    // A descriptor's length has 32 bits.
    let max = max_transfer.min(u32::MAX.into());
    let mut bytes = 0u64;
    for (index, extent) in extents.iter().enumerate() {
        let (iova, len) = (extent.iova.get(), extent.len);
        if len == 0 || iova.checked_add(len).is_none() {
            return Err(SglError::NoBytes { index });
        }
        if !(iova | len).is_multiple_of(support.alignment) {
            return Err(SglError::Misaligned { index, iova, len, alignment: support.alignment });
        }
        bytes = bytes.saturating_add(len);
        if bytes > max {
            return Err(SglError::TooLong { bytes, max });
        }
    }
    let fit = capacity(pages, page_size);
    let capacity = support.max_descriptors.map_or(fit, |most| fit.min(most.into()));
    let count = extents.len() as u64;
    if count > capacity {
        return Err(SglError::TooManyExtents { extents: count, capacity });
    }
    Ok(())
}

/// Writes the SGL of `extents`: gives the descriptor that belongs into the command, and writes the others, where there
/// are any, into `list`.
///
/// # Errors
/// [`SglError`]; nothing was written then.
pub fn build(
    extents: &[Extent],
    support: SglSupport,
    max_transfer: u64,
    page_size: u64,
    list: ListPages<'_>,
) -> Result<SglDescriptor, SglError> {
    check(extents, support, max_transfer, list.view.len() as u64 / page_size, page_size)?;
    let block = |extent: &Extent| SglDescriptor::data_block(extent.iova.get(), extent.len as u32);
    if let [only] = extents {
        return Ok(block(only));
    }
    let per_page = (page_size / DESCRIPTOR) as usize;
    let mut left = extents;
    let mut page = 0;
    loop {
        let at = page * page_size;
        // The last place of a page is the chain's when more descriptors follow than the page has places.
        let here = if left.len() > per_page { per_page - 1 } else { left.len() };
        let (now, later) = left.split_at(here);
        let mut place = at as usize;
        for extent in now {
            list.view.write_words(place, &block(extent).words());
            place += SglDescriptor::LENGTH;
        }
        if later.is_empty() {
            return Ok(segment(list.iova.get(), extents.len(), per_page));
        }
        page += 1;
        let next = segment(list.iova.get() + page * page_size, later.len(), per_page);
        list.view.write_words(place, &next.words());
        left = later;
    }
}

/// What leads to a page at `address` whose segment, with all that follow it, holds `descriptors` data descriptors.
fn segment(address: u64, descriptors: usize, per_page: usize) -> SglDescriptor {
    let bytes = |places: usize| (places * SglDescriptor::LENGTH) as u32;
    if descriptors > per_page {
        SglDescriptor::segment(address, bytes(per_page))
    } else {
        SglDescriptor::last_segment(address, bytes(descriptors))
    }
}

#[cfg(test)]
mod tests;
