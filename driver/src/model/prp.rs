//! PRP entries and lists, walked as strictly as a controller may (NVM Express Base 2.1, 4.3.1).
//!
//! The walk reads the entries that the length asks for and no other, and finds out which IOVAs they name. Whether
//! these are mapped is not its business.

use super::iommu::{Extent, Fault, Hint, Reach};

/// Bytes of a PRP entry.
const ENTRY: u64 = 8;
/// Entries read at a time.
const BATCH: usize = 64;

/// Which PRP entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrpPlace {
    /// PRP Entry 1 of the command.
    Prp1,
    /// PRP Entry 2 of the command, an entry.
    Prp2,
    /// PRP Entry 2 of the command, a pointer to a list.
    ListPointer,
    /// An entry of a list.
    List,
    /// The last entry of a list's page, a pointer to the next.
    Chain,
}

/// Why a walk ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrpError {
    /// An entry has an offset that it must not have.
    Offset { place: PrpPlace, entry: u64 },
    /// A list could not be read.
    List(Fault),
}

/// A walk and what it found. Kept from command to command so that none allocates.
#[derive(Default)]
pub(super) struct PrpWalk {
    extents: Vec<Extent>,
    entries: u64,
    pages: u64,
    hint: Hint,
}

impl PrpWalk {
    /// Walks the entries for `len` bytes, in memory pages of `page` bytes.
    ///
    /// # Errors
    /// [`PrpError`]; what was found so far is of no use then.
    #[inline]
    pub(super) fn walk(
        &mut self,
        reach: &Reach<'_>,
        page: u64,
        (prp1, prp2): (u64, u64),
        len: u64,
    ) -> Result<(), PrpError> {
        self.extents.clear();
        (self.entries, self.pages) = (0, 0);
        if len == 0 {
            return Ok(());
        }
        if !prp1.is_multiple_of(4) {
            return Err(PrpError::Offset { place: PrpPlace::Prp1, entry: prp1 });
        }
        let first = len.min(page - (prp1 & (page - 1)));
        self.extents.push(Extent { address: prp1, len: first });
        let rest = len - first;
        if rest == 0 {
            Ok(())
        } else if rest <= page {
            self.push(PrpPlace::Prp2, page, prp2, rest)
        } else {
            self.walk_lists(reach, page, prp2, rest)
        }
    }

    /// What the command's data lies in, in order; neighbours are joined.
    #[inline]
    pub(super) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// Entries read from lists, pointers to further lists included.
    #[inline]
    pub(super) fn list_entries(&self) -> u64 {
        self.entries
    }

    /// Pages of lists read from.
    #[inline]
    pub(super) fn list_pages(&self) -> u64 {
        self.pages
    }

    /// On its own, so that its loop has the registers to itself.
    #[inline(never)]
    fn walk_lists(&mut self, reach: &Reach<'_>, page: u64, pointer: u64, mut rest: u64) -> Result<(), PrpError> {
        if !pointer.is_multiple_of(ENTRY) {
            return Err(PrpError::Offset { place: PrpPlace::ListPointer, entry: pointer });
        }
        let mut list = pointer;
        let mut words = [0; BATCH];
        loop {
            self.pages += 1;
            let wanted = rest.div_ceil(page);
            let there = (page - (list & (page - 1))) / ENTRY;
            // The last entry of a page is data only where it is the last of all.
            let (data, chained) = if wanted <= there { (wanted, false) } else { (there - 1, true) };
            let mut done = 0;
            while done < data {
                let batch = &mut words[..BATCH.min((data - done) as usize)];
                self.read(reach, list, done, batch)?;
                done += batch.len() as u64;
                for entry in batch {
                    let part = rest.min(page);
                    self.push(PrpPlace::List, page, *entry, part)?;
                    rest -= part;
                }
            }
            if !chained {
                return Ok(());
            }
            self.read(reach, list, data, &mut words[..1])?;
            list = words[0];
            if list & (page - 1) != 0 {
                return Err(PrpError::Offset { place: PrpPlace::Chain, entry: list });
            }
        }
    }

    fn read(&mut self, reach: &Reach<'_>, list: u64, index: u64, words: &mut [u64]) -> Result<(), PrpError> {
        self.entries += words.len() as u64;
        // Within one memory page, whose last byte has a 64-bit address.
        reach.read_words(list + index * ENTRY, words, &mut self.hint).map_err(PrpError::List)
    }

    #[inline]
    fn push(&mut self, place: PrpPlace, page: u64, entry: u64, len: u64) -> Result<(), PrpError> {
        if entry & (page - 1) != 0 {
            return Err(PrpError::Offset { place, entry });
        }
        match self.extents.last_mut() {
            Some(last) if last.address.wrapping_add(last.len) == entry && entry != 0 => last.len += len,
            _ => self.extents.push(Extent { address: entry, len }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
