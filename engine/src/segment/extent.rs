//! Runs of blocks, and lists of them in the order in which a segment's offsets run.

/// A run of blocks of a namespace. It is never empty, and its end is no more than 2^64 - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockExtent {
    slba: u64,
    blocks: u64,
}

impl BlockExtent {
    /// `blocks` blocks from `slba` on; none when that is no block, or runs past 2^64 - 1.
    pub fn new(slba: u64, blocks: u64) -> Option<Self> {
        slba.checked_add(blocks).filter(|_| blocks > 0).map(|_| Self { slba, blocks })
    }

    /// The blocks from `start` up to `end`, without `end`; none when there are none.
    pub(crate) fn between(start: u64, end: u64) -> Option<Self> {
        Self::new(start, end.checked_sub(start)?)
    }

    /// First block.
    pub fn slba(self) -> u64 {
        self.slba
    }

    /// How many blocks.
    pub fn blocks(self) -> u64 {
        self.blocks
    }

    /// The block behind the last.
    pub fn end(self) -> u64 {
        self.slba + self.blocks
    }

    /// Whether all of `other` lies in it.
    pub(crate) fn holds(self, other: Self) -> bool {
        self.slba <= other.slba && other.end() <= self.end()
    }
}

/// The blocks of a list; none when they are more than 2^64 - 1.
pub(crate) fn total(extents: &[BlockExtent]) -> Option<u64> {
    extents.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.blocks))
}

/// The part of a list from its `from`th block up to its `to`th, without that one.
pub(crate) fn part(extents: &[BlockExtent], from: u64, to: u64) -> Vec<BlockExtent> {
    let mut at = 0_u64;
    let mut part = Vec::new();
    for extent in extents {
        let start = from.max(at);
        let end = to.min(at.saturating_add(extent.blocks));
        if start < end {
            part.extend(BlockExtent::new(extent.slba + (start - at), end - start));
        }
        at = at.saturating_add(extent.blocks);
    }
    part
}

/// Puts `extent` at the end of a list, joined to the last one where it follows it on the device.
pub(crate) fn append(extents: &mut Vec<BlockExtent>, extent: BlockExtent) {
    match extents.last_mut() {
        Some(last)
            if last.end() == extent.slba && BlockExtent::new(last.slba, last.blocks + extent.blocks).is_some() =>
        {
            last.blocks += extent.blocks;
        }
        _ => extents.push(extent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extent(slba: u64, blocks: u64) -> BlockExtent {
        BlockExtent::new(slba, blocks).unwrap()
    }

    #[test]
    fn an_extent_is_never_empty_and_never_wraps() {
        assert_eq!(BlockExtent::new(5, 0), None);
        assert_eq!(BlockExtent::new(u64::MAX, 1), None);
        assert_eq!(BlockExtent::new(2, u64::MAX - 1), None);
        assert_eq!(extent(1, u64::MAX - 1).end(), u64::MAX);
        assert_eq!(BlockExtent::between(4, 4), None);
        assert_eq!(BlockExtent::between(5, 4), None);
        assert_eq!(BlockExtent::between(4, 6), Some(extent(4, 2)));
    }

    #[test]
    fn holding_is_inclusive_at_both_ends() {
        let outer = extent(10, 10);
        assert!(outer.holds(outer) && outer.holds(extent(10, 1)) && outer.holds(extent(19, 1)));
        assert!(!outer.holds(extent(9, 2)) && !outer.holds(extent(19, 2)) && !outer.holds(extent(20, 1)));
    }

    #[test]
    fn a_sum_that_overflows_is_no_sum() {
        assert_eq!(total(&[]), Some(0));
        assert_eq!(total(&[extent(0, u64::MAX - 1), extent(0, 1)]), Some(u64::MAX));
        assert_eq!(total(&[extent(0, u64::MAX - 1), extent(0, 2)]), None);
    }

    #[test]
    fn what_follows_is_joined() {
        let mut list = vec![extent(0, 2)];
        append(&mut list, extent(2, 3));
        append(&mut list, extent(6, 1));
        append(&mut list, extent(5, 1));
        assert_eq!(list, [extent(0, 5), extent(6, 1), extent(5, 1)]);
    }

    proptest! {
        #[test]
        fn a_part_is_what_a_list_of_blocks_says(
            list in prop::collection::vec((0_u64..1000, 1_u64..6), 0..6), from in 0_u64..40, to in 0_u64..40,
        ) {
            let list: Vec<_> = list.into_iter().map(|(slba, blocks)| extent(slba, blocks)).collect();
            let flat = |list: &[BlockExtent]| list.iter().flat_map(|e| e.slba..e.end()).collect::<Vec<_>>();
            let all = flat(&list);
            let expected: Vec<_> = all.iter().copied().enumerate()
                .filter(|(at, _)| (from..to).contains(&(*at as u64))).map(|(_, block)| block).collect();
            prop_assert_eq!(flat(&part(&list, from, to)), expected);
        }
    }
}
