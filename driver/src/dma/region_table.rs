//! Finds the region of an address range.
//!
//! An immutable table, sorted by address: who changes the set of regions makes a new one and swaps it whole, so
//! that a look-up takes no lock.

use thiserror::Error;

use super::{Access, Iova, IovaRange};

/// One region as the table sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionEntry {
    /// The address of the first byte, as callers name it.
    pub address: u64,
    /// The length in bytes.
    pub len: u64,
    /// The IOVA of the first byte.
    pub iova: Iova,
    /// What devices may do with it.
    pub access: Access,
}

impl RegionEntry {
    fn end(&self) -> u64 {
        self.address + self.len
    }

    /// Whether the `len` bytes at `address`, one or more, lie in it.
    #[inline]
    fn holds(&self, address: u64, len: u64) -> bool {
        // An address before the region wraps to an offset that is past its end: `address + len` of the region is a sum
        // that does not overflow.
        let offset = address.wrapping_sub(self.address);
        offset < self.len && len.wrapping_sub(1) < self.len - offset
    }
}

/// Why an address range has no IOVA. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// No byte was asked for, or the range's end overflows.
    #[error("memory {address:#x} with a length of {len} bytes is no range")]
    NoRange {
        /// The address asked for.
        address: u64,
        /// The length asked for.
        len: u64,
    },
    /// The first byte lies in no region.
    #[error("memory {address:#x} lies in no registered region")]
    NotRegistered {
        /// The address asked for.
        address: u64,
    },
    /// The range starts in a region and leaves it, into no other.
    #[error("memory {address:#x} with a length of {len} bytes leaves its region, which ends at {end:#x}")]
    PastEnd {
        /// The address asked for.
        address: u64,
        /// The length asked for.
        len: u64,
        /// The end of the region that it starts in.
        end: u64,
    },
    /// The range starts in a region and goes on in the next. Two regions have no common IOVA range: name each part
    /// in a request of its own.
    #[error(
        "memory {address:#x} with a length of {len} bytes spans two regions, which meet at {seam:#x}: split the request there"
    )]
    SpansRegions {
        /// The address asked for.
        address: u64,
        /// The length asked for.
        len: u64,
        /// Where the first region ends and the second begins.
        seam: u64,
    },
}

/// Two regions share an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("memory {address:#x} with a length of {len} bytes overlaps the region at {other:#x} of {other_len} bytes")]
pub struct TableError {
    /// The later region's address.
    pub address: u64,
    /// The later region's length.
    pub len: u64,
    /// The earlier region's address.
    pub other: u64,
    /// The earlier region's length.
    pub other_len: u64,
}

/// All regions, by address.
#[derive(Debug, Clone, Default)]
pub struct RegionTable {
    entries: Box<[RegionEntry]>,
}

impl RegionTable {
    /// A table of `entries`, in any order.
    ///
    /// # Errors
    /// [`TableError`] when two of them overlap.
    pub fn new(mut entries: Vec<RegionEntry>) -> Result<Self, TableError> {
        entries.sort_by_key(|entry| entry.address);
        for pair in entries.windows(2) {
            if pair[0].end() > pair[1].address {
                return Err(TableError {
                    address: pair[1].address,
                    len: pair[1].len,
                    other: pair[0].address,
                    other_len: pair[0].len,
                });
            }
        }
        Ok(Self { entries: entries.into() })
    }

    /// The regions, by address.
    pub fn entries(&self) -> &[RegionEntry] {
        &self.entries
    }

    /// The IOVAs of `len` bytes at `address`, and what devices may do there.
    ///
    /// # Errors
    /// [`ResolveError`] when they do not lie in one region.
    #[inline]
    pub fn resolve(&self, address: u64, len: u64) -> Result<(IovaRange, Access), ResolveError> {
        let Some(end) = address.checked_add(len).filter(|_| len != 0) else {
            return Err(ResolveError::NoRange { address, len });
        };
        let after = self.entries.partition_point(|entry| entry.address <= address);
        let Some(entry) = after.checked_sub(1).map(|index| &self.entries[index]).filter(|entry| address < entry.end())
        else {
            return Err(ResolveError::NotRegistered { address });
        };
        if end > entry.end() {
            let seam = entry.end();
            return Err(match self.entries.get(after) {
                Some(next) if next.address == seam => ResolveError::SpansRegions { address, len, seam },
                _ => ResolveError::PastEnd { address, len, end: seam },
            });
        }
        let range = entry.iova.checked_add(address - entry.address).and_then(|start| IovaRange::new(start, len));
        range.map(|range| (range, entry.access)).ok_or(ResolveError::NoRange { address, len })
    }

    /// The table for look-ups one after the other.
    #[inline]
    pub fn lookup(&self) -> RegionLookup<'_> {
        RegionLookup { table: self, last: None }
    }
}

/// Looks ranges up one after the other. It remembers the region of the last one, where the next one mostly lies too:
/// that takes two comparisons, whatever the number of regions.
#[derive(Debug, Clone)]
pub struct RegionLookup<'a> {
    table: &'a RegionTable,
    /// One whose IOVAs do not overflow.
    last: Option<&'a RegionEntry>,
}

impl<'a> RegionLookup<'a> {
    /// The first IOVA of `len` bytes at `address`, and what devices may do there; `None` where
    /// [`RegionTable::resolve`] gives an error, and for a region whose own IOVAs overflow.
    #[inline(always)]
    pub fn find(&mut self, address: u64, len: u64) -> Option<(Iova, Access)> {
        let entry = match self.last {
            Some(last) if last.holds(address, len) => last,
            _ => self.other(address, len)?,
        };
        Some((entry.iova.checked_add(address - entry.address)?, entry.access))
    }

    /// Looks for another region than the last one, and remembers it.
    #[cold]
    fn other(&mut self, address: u64, len: u64) -> Option<&'a RegionEntry> {
        let after = self.table.entries.partition_point(|entry| entry.address <= address);
        let entry = &self.table.entries[after.checked_sub(1)?];
        if !entry.holds(address, len) || IovaRange::new(entry.iova, entry.len).is_none() {
            return None;
        }
        self.last = Some(entry);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(address: u64, len: u64) -> RegionEntry {
        RegionEntry { address, len, iova: Iova::new(0x10_0000 + address).unwrap(), access: Access::all() }
    }

    #[test]
    fn the_rules_of_a_look_up() {
        let table = RegionTable::new(vec![entry(0x5000, 0x1000), entry(0x1000, 0x1000), entry(0x2000, 0x800)]).unwrap();
        let iova = |address, len| table.resolve(address, len).map(|(range, _)| (range.start().get(), range.len()));
        assert_eq!(iova(0x1000, 0x1000), Ok((0x10_1000, 0x1000)), "the whole of one");
        assert_eq!(iova(0x1800, 8), Ok((0x10_1800, 8)), "starts inside");
        assert_eq!(iova(0x27ff, 1), Ok((0x10_27ff, 1)), "ends at the end");
        assert_eq!(iova(0x2800, 1), Err(ResolveError::NotRegistered { address: 0x2800 }), "starts at the end");
        assert_eq!(iova(0xfff, 2), Err(ResolveError::NotRegistered { address: 0xfff }), "starts before");
        assert_eq!(iova(0x2700, 0x101), Err(ResolveError::PastEnd { address: 0x2700, len: 0x101, end: 0x2800 }));
        assert_eq!(iova(0x1ff8, 16), Err(ResolveError::SpansRegions { address: 0x1ff8, len: 16, seam: 0x2000 }));
        assert_eq!(iova(0x1000, 0), Err(ResolveError::NoRange { address: 0x1000, len: 0 }));
        assert_eq!(iova(0x5000, u64::MAX), Err(ResolveError::NoRange { address: 0x5000, len: u64::MAX }));
        let mut lookup = table.lookup();
        let mut found = |address, len| lookup.find(address, len).map(|(iova, _)| iova.get());
        assert_eq!(found(0x1800, 8), Some(0x10_1800));
        assert_eq!(found(0x1fff, 1), Some(0x10_1fff), "the region before");
        assert_eq!([found(0x1000, 0), found(0x1fff, 2), found(0xfff, 1), found(0x1800, u64::MAX)], [None; 4]);
        assert_eq!(found(0x5000, 0x1000), Some(0x10_5000), "and another");
    }

    #[test]
    fn regions_may_touch_but_not_overlap() {
        assert!(RegionTable::new(vec![entry(0x2000, 0x1000), entry(0x1000, 0x1000)]).is_ok());
        let error = RegionTable::new(vec![entry(0x1fff, 0x1000), entry(0x1000, 0x1000)]).unwrap_err();
        assert_eq!((error.address, error.other), (0x1fff, 0x1000));
    }

    proptest! {
        #[test]
        fn a_look_up_agrees_with_a_search_byte_by_byte(
            gaps in prop::collection::vec((0u64..5, 1u64..9), 0..6), address in 0u64..64, len in 0u64..20,
            before in prop::collection::vec((0u64..64, 0u64..4), 0..4)
        ) {
            let mut at = 1;
            let mut entries = Vec::new();
            for (gap, len) in gaps {
                entries.push(entry(at + gap, len));
                at += gap + len;
            }
            let table = RegionTable::new(entries.clone()).unwrap();
            // Whatever was looked up before.
            let mut lookup = table.lookup();
            for (first, long) in before {
                lookup.find(first, long);
            }
            let found = lookup.find(address, len);
            prop_assert_eq!(found, table.resolve(address, len).ok().map(|(range, access)| (range.start(), access)));
            let home = |byte: u64| entries.iter().position(|entry| entry.address <= byte && byte < entry.end());
            let homes: Vec<_> = (address..address + len).map(home).collect();
            let one = homes.first().is_some_and(|first| first.is_some() && homes.iter().all(|home| home == first));
            match table.resolve(address, len) {
                Ok((range, _)) => {
                    prop_assert!(one);
                    prop_assert_eq!((range.start().get(), range.len()), (0x10_0000 + address, len));
                }
                Err(ResolveError::SpansRegions { seam, .. }) => {
                    prop_assert!(!one && homes[0].is_some());
                    prop_assert!(home(seam).is_some() && home(seam) != homes[0] && home(seam - 1) == homes[0]);
                }
                Err(_) => prop_assert!(!one),
            }
        }
    }
}
