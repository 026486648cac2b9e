//! Addresses as a device sees them.

use std::fmt;
use std::num::NonZeroU64;

/// An address in a [`DmaSpace`](super::DmaSpace), as it stands in a command.
///
/// Zero is no IOVA: a field that was never filled in cannot be mistaken for one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Iova(NonZeroU64);

impl Iova {
    /// The IOVA of this value, `None` for zero.
    #[inline]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The value as it is written into a command.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The address `bytes` further on, `None` past the end of the 64-bit space.
    #[inline]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The offset of this address within a page of `page_size` bytes, a power of two.
    #[inline]
    pub const fn page_offset(self, page_size: u64) -> u64 {
        self.0.get() & (page_size - 1)
    }
}

impl fmt::Debug for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.get())
    }
}

/// A range of IOVAs: at least one byte, and its end is a 64-bit value too.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IovaRange {
    start: Iova,
    len: u64,
}

impl IovaRange {
    /// The range of `len` bytes from `start`; `None` when it is empty or its end overflows.
    pub const fn new(start: Iova, len: u64) -> Option<Self> {
        if len == 0 || start.get().checked_add(len).is_none() {
            return None;
        }
        Some(Self { start, len })
    }

    /// The first address.
    #[inline]
    pub const fn start(self) -> Iova {
        self.start
    }

    /// The length in bytes, never zero.
    #[inline]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Always false: a range has at least one byte.
    pub const fn is_empty(self) -> bool {
        false
    }

    /// The first address after the range.
    #[inline]
    pub const fn end(self) -> u64 {
        self.start.get() + self.len
    }

    /// Whether the two ranges share a byte.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.get() < other.end() && other.start.get() < self.end()
    }
}

impl fmt::Debug for IovaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}..{:#x}", self.start.get(), self.end())
    }
}

impl fmt::Display for IovaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_iova() {
        assert_eq!(Iova::new(0), None);
        assert_eq!(size_of::<Option<Iova>>(), 8);
    }

    #[test]
    fn a_range_is_never_empty_and_never_wraps() {
        let start = Iova::new(u64::MAX - 4095).unwrap();
        assert_eq!(IovaRange::new(start, 0), None);
        assert_eq!(IovaRange::new(start, 4096), None, "the end would be 2^64");
        assert_eq!(IovaRange::new(start, 4095).unwrap().end(), u64::MAX);
    }

    #[test]
    fn touching_ranges_do_not_overlap() {
        let at = |start, len| IovaRange::new(Iova::new(start).unwrap(), len).unwrap();
        assert!(!at(0x1000, 0x1000).overlaps(at(0x2000, 0x1000)));
        assert!(at(0x1000, 0x1001).overlaps(at(0x2000, 0x1000)));
    }
}
