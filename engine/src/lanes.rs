//! Sets of lanes, which are numbered as the devices that they serve are.

/// A set of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LaneSet(u64);

/// The most devices, and with them lanes, of an engine.
pub const MAX_DEVICES: usize = 64;

const _: () = assert!(MAX_DEVICES == u64::BITS as usize);

impl LaneSet {
    /// The set of this lane alone.
    #[inline]
    pub(crate) const fn one(lane: u8) -> Self {
        Self(1 << (lane & 63))
    }

    /// The set of the first `count` lanes.
    pub(crate) const fn first(count: usize) -> Self {
        if count >= MAX_DEVICES { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn contains(self, lane: u8) -> bool {
        (lane as usize) < MAX_DEVICES && self.0 >> lane & 1 == 1
    }

    pub(crate) fn insert(&mut self, lane: u8) {
        *self = self.union(Self::one(lane));
    }

    #[inline]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The lanes, ascending.
    #[inline]
    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lane = (left != 0).then(|| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(lane)
        })
    }
}

impl FromIterator<u8> for LaneSet {
    fn from_iter<I: IntoIterator<Item = u8>>(lanes: I) -> Self {
        lanes.into_iter().fold(Self::default(), |set, lane| set.union(Self::one(lane)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        let set: LaneSet = [63, 0, 7, 7].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 7, 63]);
        assert_eq!((set.count(), set.contains(7), set.contains(8)), (3, true, false));
        assert_eq!([64, 71, 127, 255].map(|lane| LaneSet::first(MAX_DEVICES).contains(lane)), [false; 4]);
        let mut one = LaneSet::default();
        one.insert(9);
        assert_eq!(one, LaneSet::one(9));
        assert_eq!(LaneSet::from_bits(set.bits()), set);
        assert_eq!(LaneSet::default().iter().next(), None);
        assert_eq!((LaneSet::first(0).count(), LaneSet::first(3).bits(), LaneSet::first(64).count()), (0, 7, 64));
    }
}
