//! Physical Region Pages: where the bytes of a command are (NVM Express Base 2.1, 4.3.1).
//!
//! A command's memory is a list of extents in IOVAs. The first may start at any dword; every other starts on a page
//! and every one but the last ends on one. PRP1 names the first page with its offset, PRP2 the second page or a list
//! of all that follow. A list fills its pages to the end; where more entries follow than the page has room for, the
//! last one is the address of the next page. Each slot of a queue has its own list pages, contiguous in IOVA.

use thiserror::Error;

use crate::dma::{DmaView, Iova};

/// Bytes of one entry.
const ENTRY: u64 = 8;

/// A piece of memory that is contiguous in IOVA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first address.
    pub iova: Iova,
    /// The length in bytes.
    pub len: u64,
}

/// PRP1 and PRP2 as they stand in a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPointer {
    /// The first page, with the offset in it.
    pub prp1: u64,
    /// Nothing (0), the second page, or the first page of the list.
    pub prp2: u64,
}

/// Why extents have no PRPs. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PrpError {
    /// There is no extent, or one of no bytes, or one that wraps.
    #[error("extent {index} has no byte, or its end overflows")]
    NoBytes {
        /// Which extent.
        index: usize,
    },
    /// The first byte is not on a dword.
    #[error("the memory starts at IOVA {iova}: it must be a multiple of 4")]
    NotDwordAligned {
        /// Where it starts.
        iova: Iova,
    },
    /// Two extents meet in the middle of a page.
    #[error("extents {index} and {} meet at IOVA {at:#x} in the middle of a page: inner seams must be multiples of {page_size} bytes", index + 1)]
    SeamInsidePage {
        /// The extent before the seam.
        index: usize,
        /// The end of that extent, or the start of the next: the one that is off.
        at: u64,
        /// The memory page size (CC.MPS) in bytes.
        page_size: u64,
    },
    /// More pages than a slot's list has room for.
    #[error("the memory spans {entries} pages beyond the first; a slot's list has room for {capacity}")]
    TooManyPages {
        /// Entries needed.
        entries: u64,
        /// Entries that fit.
        capacity: u64,
    },
}

/// How many list pages the pages beyond the first of a transfer of `len` bytes take at the worst first offset.
pub const fn list_pages(len: u64, page_size: u64) -> u64 {
    // From an offset in the first page the bytes end in one page more than from its start.
    let entries = len.div_ceil(page_size);
    let per_page = page_size / ENTRY;
    if entries <= 1 {
        0
    } else if entries <= per_page {
        1
    } else {
        // Every page but the last gives one entry to the chain.
        (entries - 1).div_ceil(per_page - 1)
    }
}

/// The list pages of one slot.
#[derive(Clone, Copy)]
pub struct ListPages<'a> {
    /// The bytes of the pages, a whole number of them.
    pub view: DmaView<'a>,
    /// Where the device finds them.
    pub iova: Iova,
}

/// Writes the PRPs of `extents`, and the list, where there is one, into what `list` gives.
///
/// # Errors
/// [`PrpError`]; what `list` then holds is of no meaning.
#[inline]
pub fn build<'a>(
    extents: &[Extent],
    page_size: u64,
    list: impl FnOnce() -> ListPages<'a>,
) -> Result<DataPointer, PrpError> {
    let [first, rest @ ..] = extents else {
        return Err(PrpError::NoBytes { index: 0 });
    };
    let prp1 = first.iova.get();
    if !prp1.is_multiple_of(4) {
        return Err(PrpError::NotDwordAligned { iova: first.iova });
    }
    let in_first_page = page_size - first.iova.page_offset(page_size);
    if rest.is_empty() && first.len.wrapping_sub(1) < in_first_page {
        return Ok(DataPointer { prp1, prp2: 0 });
    }
    build_list(extents, page_size, in_first_page, list())
}

/// The way of everything that is longer than its first page.
fn build_list(
    extents: &[Extent],
    page_size: u64,
    in_first_page: u64,
    list: ListPages<'_>,
) -> Result<DataPointer, PrpError> {
    let prp1 = extents[0].iova.get();
    let entries = count_entries(extents, page_size)?;
    if entries <= 1 {
        // Either the rest of one extent that reaches into its second page, or a second extent of up to a page.
        let prp2 = match extents.get(1) {
            Some(second) => second.iova.get(),
            None => prp1 + in_first_page,
        };
        return Ok(DataPointer { prp1, prp2 });
    }
    let per_page = page_size / ENTRY;
    let capacity = capacity(list.view.len() as u64 / page_size, page_size);
    if entries > capacity {
        return Err(PrpError::TooManyPages { entries, capacity });
    }

    // Places are counted in words from the start of the list.
    let mut place = 0u64;
    let mut left = entries;
    let mut skip = in_first_page;
    for extent in extents {
        let mut address = extent.iova.get() + skip.min(extent.len);
        let mut pages = (extent.len - skip.min(extent.len)).div_ceil(page_size);
        skip = 0;
        while pages > 0 {
            let room = per_page - place % per_page;
            // The last place of a page is the chain's when more entries follow than places are left.
            let places = if left > room { room - 1 } else { room };
            let now = pages.min(places);
            list.view.write_series((place * ENTRY) as usize, address, page_size, now as usize);
            place += now;
            left -= now;
            pages -= now;
            address = address.wrapping_add(now * page_size);
            if now == places && left > 0 {
                let next = list.iova.get() + (place + 1) * ENTRY;
                list.view.write_words((place * ENTRY) as usize, &[next]);
                place += 1;
            }
        }
    }
    Ok(DataPointer { prp1, prp2: list.iova.get() })
}

/// How many entries fit into `pages` list pages: each but the last gives one place to the chain.
const fn capacity(pages: u64, page_size: u64) -> u64 {
    if pages == 0 { 0 } else { pages * (page_size / ENTRY - 1) + 1 }
}

/// Checks that `extents` have PRPs, of which those beyond the second fit into `pages` list pages.
///
/// # Errors
/// [`PrpError`], as [`build`] would give it.
pub fn check(extents: &[Extent], page_size: u64, pages: u64) -> Result<(), PrpError> {
    let first = extents.first().ok_or(PrpError::NoBytes { index: 0 })?;
    if !first.iova.get().is_multiple_of(4) {
        return Err(PrpError::NotDwordAligned { iova: first.iova });
    }
    let entries = count_entries(extents, page_size)?;
    let capacity = capacity(pages, page_size);
    if entries > 1 && entries > capacity {
        return Err(PrpError::TooManyPages { entries, capacity });
    }
    Ok(())
}

/// Checks seams and lengths, and counts the entries beyond PRP1.
fn count_entries(extents: &[Extent], page_size: u64) -> Result<u64, PrpError> {
    let last = extents.len() - 1;
    let mut pages = 0u64;
    for (index, extent) in extents.iter().enumerate() {
        let start = extent.iova.get();
        let end = start.checked_add(extent.len).filter(|_| extent.len != 0).ok_or(PrpError::NoBytes { index })?;
        if index > 0 && !start.is_multiple_of(page_size) {
            return Err(PrpError::SeamInsidePage { index: index - 1, at: start, page_size });
        }
        if index < last && !end.is_multiple_of(page_size) {
            return Err(PrpError::SeamInsidePage { index, at: end, page_size });
        }
        pages += (end - 1) / page_size - start / page_size + 1;
    }
    Ok(pages - 1)
}

#[cfg(test)]
mod tests;
