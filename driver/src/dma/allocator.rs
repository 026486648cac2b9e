//! Hands out IOVAs.
//!
//! Plain arithmetic over an aperture with holes: nothing here maps anything. A range that was handed out comes back
//! in one of two ways: [`free`](IovaAllocator::free), when it is certain that no device still holds it, or
//! [`retire`](IovaAllocator::retire), when it is not: then nobody gets it until
//! [`reclaim_retired`](IovaAllocator::reclaim_retired), so that a late write of a device meets an unmapped address
//! and never somebody else's bytes (invariant 2).

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Iova, IovaRange};

/// Why no range was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AllocateError {
    /// The caller asked for nothing, or for an alignment that is no power of two.
    #[error(
        "cannot allocate {len} bytes of IOVA aligned to {align}: the length must not be 0 and the alignment must be a power of two"
    )]
    Unusable {
        /// Bytes asked for.
        len: u64,
        /// Alignment asked for, in bytes.
        align: u64,
    },
    /// No gap is large enough.
    #[error(
        "no {len} bytes of IOVA aligned to {align} are free: {free} bytes are free in all, {retired} are retired until the next enable"
    )]
    Exhausted {
        /// Bytes asked for.
        len: u64,
        /// Alignment asked for, in bytes.
        align: u64,
        /// Bytes free, in any number of pieces.
        free: u64,
        /// Bytes that were retired.
        retired: u64,
    },
}

/// A range was given back that was not handed out as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("IOVA range {range} was not handed out, or not as one piece")]
pub struct FreeError {
    /// The range that was given back.
    pub range: IovaRange,
}

/// The free, used and retired parts of an aperture. Start to length in bytes.
#[derive(Debug)]
pub struct IovaAllocator {
    free: BTreeMap<u64, u64>,
    used: BTreeMap<u64, u64>,
    retired: Vec<IovaRange>,
}

/// What an IOMMU commonly translates: 47 bits, here from 64 KiB on, so that a small number taken for an address is never
/// mapped.
pub(crate) const APERTURE: (u64, u64) = (0x1_0000, 1 << 47);
/// x86's window for message signalled interrupts, which no IOMMU translates as memory.
pub(crate) const MSI_WINDOW: (u64, u64) = (0xfee0_0000, 0xfef0_0000);

impl IovaAllocator {
    /// An allocator over what lies behind a common IOMMU, for devices that are behind none and for servers that may
    /// forward to one that is.
    pub fn common() -> Self {
        let range = |(start, end): (u64, u64)| Iova::new(start).and_then(|at| IovaRange::new(at, end - start));
        let [aperture, window] = [APERTURE, MSI_WINDOW].map(|ends| Vec::from_iter(range(ends)));
        Self::new(&aperture, &window)
    }

    /// An allocator over `apertures` without what lies in `reserved`. Reserved windows may overlap each other and
    /// the ends of an aperture.
    pub fn new(apertures: &[IovaRange], reserved: &[IovaRange]) -> Self {
        let mut reserved = reserved.to_vec();
        reserved.sort_by_key(|window| window.start());
        let mut allocator = Self { free: BTreeMap::new(), used: BTreeMap::new(), retired: Vec::new() };
        for aperture in apertures {
            let mut start = aperture.start().get();
            for window in reserved.iter().filter(|window| window.overlaps(*aperture)) {
                if window.start().get() > start {
                    allocator.insert_free(start, window.start().get() - start);
                }
                start = start.max(window.end());
            }
            if start < aperture.end() {
                allocator.insert_free(start, aperture.end() - start);
            }
        }
        allocator
    }

    /// The lowest free range of `len` bytes whose start is a multiple of `align`.
    ///
    /// # Errors
    /// [`AllocateError`], which says how much is left.
    pub fn allocate(&mut self, len: u64, align: u64) -> Result<IovaRange, AllocateError> {
        self.allocate_like(len, align, 0)
    }

    /// As [`allocate`](Self::allocate), for memory at `address`: the start is the same as that, modulo `align`, so that
    /// what lies on a large page there can have one here.
    ///
    /// # Errors
    /// [`AllocateError`], which says how much is left.
    pub fn allocate_like(&mut self, len: u64, align: u64, address: u64) -> Result<IovaRange, AllocateError> {
        if len == 0 || !align.is_power_of_two() {
            return Err(AllocateError::Unusable { len, align });
        }
        let found = self.free.iter().find_map(|(&start, &free)| {
            let aligned = start.checked_add(address.wrapping_sub(start) & (align - 1))?;
            let end = aligned.checked_add(len)?;
            (end <= start + free).then_some((start, free, aligned))
        });
        let Some((start, free, aligned)) = found else {
            return Err(AllocateError::Exhausted {
                len,
                align,
                free: self.free_bytes(),
                retired: self.retired.iter().map(|range| range.len()).sum(),
            });
        };
        self.free.remove(&start);
        if aligned > start {
            self.free.insert(start, aligned - start);
        }
        let (end, free_end) = (aligned + len, start + free);
        if free_end > end {
            self.free.insert(end, free_end - end);
        }
        self.used.insert(aligned, len);
        Iova::new(aligned).and_then(|start| IovaRange::new(start, len)).ok_or(AllocateError::Unusable { len, align })
    }

    /// Takes back a range that no device can still use.
    ///
    /// # Errors
    /// [`FreeError`] when `range` was not handed out as it is; nothing changes then.
    pub fn free(&mut self, range: IovaRange) -> Result<(), FreeError> {
        self.take_used(range)?;
        self.insert_free(range.start().get(), range.len());
        Ok(())
    }

    /// Takes a range out of use and keeps it from everybody until the next [`reclaim_retired`](Self::reclaim_retired).
    ///
    /// # Errors
    /// [`FreeError`] when `range` was not handed out as it is; nothing changes then.
    pub fn retire(&mut self, range: IovaRange) -> Result<(), FreeError> {
        self.take_used(range)?;
        self.retired.push(range);
        Ok(())
    }

    /// Makes retired ranges usable again: every device of this space has stopped since they were retired.
    pub fn reclaim_retired(&mut self) {
        for range in std::mem::take(&mut self.retired) {
            self.insert_free(range.start().get(), range.len());
        }
    }

    /// Bytes free, in any number of pieces.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    fn take_used(&mut self, range: IovaRange) -> Result<(), FreeError> {
        match self.used.get(&range.start().get()) {
            Some(&len) if len == range.len() => {
                self.used.remove(&range.start().get());
                Ok(())
            }
            _ => Err(FreeError { range }),
        }
    }

    /// Adds a free piece and joins it with its neighbours.
    fn insert_free(&mut self, mut start: u64, mut len: u64) {
        if let Some((&before, &before_len)) = self.free.range(..start).next_back()
            && before + before_len == start
        {
            self.free.remove(&before);
            start = before;
            len += before_len;
        }
        if let Some(after_len) = self.free.remove(&(start + len)) {
            len += after_len;
        }
        self.free.insert(start, len);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, len: u64) -> IovaRange {
        IovaRange::new(Iova::new(start).unwrap(), len).unwrap()
    }

    #[test]
    fn reserved_windows_are_never_handed_out() {
        // x86's MSI window lies in the middle of the first 4 GiB.
        let msi = range(0xfee0_0000, 0x10_0000);
        let mut allocator = IovaAllocator::new(&[range(0x1000, 0x1_0000_0000)], &[msi]);
        while let Ok(got) = allocator.allocate(0x100_0000, 0x1000) {
            assert!(!got.overlaps(msi), "{got} lies in the reserved window {msi}");
        }
    }

    #[test]
    fn overlapping_windows_and_windows_at_the_ends() {
        let windows = [range(0x3000, 0x2000), range(0x1000, 0x1000), range(0x3800, 0x4000), range(0xf000, 0x9000)];
        let allocator = IovaAllocator::new(&[range(0x1000, 0xf000)], &windows);
        assert_eq!(allocator.free.into_iter().collect::<Vec<_>>(), [(0x2000, 0x1000), (0x7800, 0x7800)]);
    }

    #[test]
    fn a_retired_range_comes_back_only_when_reclaimed() {
        let mut allocator = IovaAllocator::new(&[range(0x1000, 0x1000)], &[]);
        let only = allocator.allocate(0x1000, 0x1000).unwrap();
        allocator.retire(only).unwrap();
        assert_eq!(
            allocator.allocate(0x1000, 0x1000),
            Err(AllocateError::Exhausted { len: 0x1000, align: 0x1000, free: 0, retired: 0x1000 })
        );
        allocator.reclaim_retired();
        assert_eq!(allocator.allocate(0x1000, 0x1000), Ok(only));
    }

    #[test]
    fn only_what_was_handed_out_comes_back() {
        let mut allocator = IovaAllocator::new(&[range(0x1000, 0x10000)], &[]);
        let got = allocator.allocate(0x2000, 0x1000).unwrap();
        let half = range(got.start().get(), 0x1000);
        assert_eq!(allocator.free(half), Err(FreeError { range: half }));
        allocator.free(got).unwrap();
        assert_eq!(allocator.free(got), Err(FreeError { range: got }), "twice");
        assert_eq!(allocator.free_bytes(), 0x10000);
    }

    proptest! {
        #[test]
        fn ranges_never_overlap_and_all_comes_back(
            steps in prop::collection::vec(
                (1u64..0x9000, 0u32..16, any::<u64>(), any::<prop::sample::Index>(), any::<bool>()), 1..200
            )
        ) {
            let aperture = range(0x1000, 0x40_0000);
            let hole = range(0x10_0000, 0x1234);
            let mut allocator = IovaAllocator::new(&[aperture], &[hole]);
            let total = allocator.free_bytes();
            let mut held: Vec<IovaRange> = Vec::new();
            for (len, align, address, which, give_back) in steps {
                // Aligned itself, or like some address.
                let address = if address.is_multiple_of(2) { 0 } else { address };
                if give_back && !held.is_empty() {
                    let range = held.swap_remove(which.index(held.len()));
                    allocator.free(range).unwrap();
                } else if let Ok(got) = allocator.allocate_like(len, 1 << align, address) {
                    prop_assert_eq!(got.len(), len);
                    prop_assert_eq!(got.start().get() % (1 << align), address % (1 << align));
                    prop_assert!(got.start() >= aperture.start() && got.end() <= aperture.end());
                    prop_assert!(!got.overlaps(hole));
                    prop_assert!(held.iter().all(|other| !other.overlaps(got)));
                    held.push(got);
                }
                let used: u64 = held.iter().map(|range| range.len()).sum();
                prop_assert_eq!(allocator.free_bytes() + used, total);
            }
            for range in held {
                allocator.free(range).unwrap();
            }
            prop_assert_eq!(allocator.free.len(), 2, "free pieces join again, up to the hole");
        }
    }
}
