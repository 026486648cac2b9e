use super::*;
use crate::label::entry::{Durability, Record, SegmentEntry};
use crate::label::place::Geometry;
use crate::label::{Identity, Owner};
use proptest::prelude::*;
use uuid::Uuid;

fn extent(slba: u64, blocks: u64) -> BlockExtent {
    BlockExtent::new(slba, blocks).unwrap()
}

/// Data from block 256 on, `data` blocks, of which these are taken.
fn with(data: u64, alignment: u64, taken: &[(u64, u64)]) -> Contents {
    let record = |(at, (slba, blocks)): (usize, &(u64, u64))| {
        Record::committed(SegmentEntry {
            name: at.to_string(),
            uuid: Uuid::from_u128(at as u128 + 1),
            generation: 1,
            durability: Durability::None,
            capacity: *blocks,
            extents: vec![extent(*slba, *blocks)],
            stripe: None,
        })
    };
    Contents {
        sequence: 1,
        device: Uuid::from_u128(1),
        namespace: Identity::default(),
        geometry: Geometry::new(512 + data, 12).unwrap(),
        owner: Owner::default(),
        may_be_overwritten: false,
        alignment,
        scratch: None,
        records: taken.iter().enumerate().map(record).collect(),
    }
}

fn found(contents: &Contents, extents: &[(u64, u64)], capacity: u64) -> Result<Vec<(u64, u64)>, (u64, u64)> {
    let extents: Vec<_> = extents.iter().map(|(slba, blocks)| extent(*slba, *blocks)).collect();
    match resized(contents, &extents, capacity) {
        Ok(extents) => Ok(extents.iter().map(|extent| (extent.slba(), extent.blocks())).collect()),
        Err(LabelError::NoSpace { wanted, free, .. }) => Err((wanted, free)),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_first_hole_that_holds_all_is_taken_whole_units_of_it() {
    let contents = with(100, 10, &[(256, 4), (280, 20), (320, 6)]);
    // Free are 260..280, 300..320 and 330..350; the data ends at 356.
    assert_eq!(free_blocks(&contents), 60);
    assert_eq!(found(&contents, &[], 1), Ok(vec![(260, 10)]));
    assert_eq!(found(&contents, &[], 20), Ok(vec![(260, 20)]));
    assert_eq!(found(&contents, &[], 21), Ok(vec![(330, 20), (260, 10)]), "the largest, of equals the last");
    assert_eq!(found(&contents, &[], 60).map(|extents| extents.len()), Ok(3));
    assert_eq!(found(&contents, &[], 61), Err((70, 60)));
    assert_eq!(found(&contents, &[], u64::MAX), Err((u64::MAX, 60)), "no unit above it");
    assert_eq!(found(&contents, &[], u64::MAX / 10 * 10), Err((u64::MAX / 10 * 10, 60)));
}

#[test]
fn a_large_hole_is_preferred_to_many_small_ones() {
    let contents = with(64, 1, &[(258, 2), (262, 2), (266, 24), (300, 4)]);
    // 256..258, 260..262, 264..266, 290..300, 304..320.
    assert_eq!(found(&contents, &[], 3), Ok(vec![(290, 3)]));
    assert_eq!(found(&contents, &[], 11), Ok(vec![(304, 11)]));
    assert_eq!(found(&contents, &[], 18), Ok(vec![(304, 16), (256, 2)]));
    assert_eq!(found(&contents, &[], 26), Ok(vec![(304, 16), (290, 10)]));
}

#[test]
fn what_grows_begins_behind_its_last_extent() {
    let contents = with(64, 4, &[(260, 8), (280, 4)]);
    // 256..260, 268..280, 284..320.
    assert_eq!(found(&contents, &[(260, 8)], 8), Ok(vec![(260, 8)]));
    assert_eq!(found(&contents, &[(260, 8)], 9), Ok(vec![(260, 12)]));
    assert_eq!(found(&contents, &[(260, 8)], 20), Ok(vec![(260, 20)]));
    assert_eq!(found(&contents, &[(260, 8)], 21), Ok(vec![(260, 20), (256, 4)]));
    assert_eq!(found(&contents, &[(260, 8)], 60), Ok(vec![(260, 20), (284, 36), (256, 4)]));
    assert_eq!(found(&contents, &[(260, 8)], 61), Err((56, 52)));
    assert_eq!(found(&contents, &[(260, 8)], 4), Ok(vec![(260, 4)]));
    assert_eq!(found(&contents, &[(260, 8)], 1), Ok(vec![(260, 4)]));
}

#[test]
fn nothing_is_free_beyond_what_is_there() {
    let contents = with(3, 4, &[]);
    assert_eq!(free_blocks(&contents), 0, "not one unit");
    assert_eq!(found(&contents, &[], 1), Err((4, 0)));
    assert_eq!(free_blocks(&with(8, 1, &[(256, 8)])), 0);
    let mut contents = with(8, 1, &[]);
    contents.scratch = BlockExtent::new(256, 7);
    assert_eq!(found(&contents, &[], 1), Ok(vec![(263, 1)]));
    assert_eq!(round_up(u64::MAX, 2), None);
}

proptest! {
    /// Any blocks taken: what is given was free, is whole units, enough, and first fit wherever one hole holds it.
    #[test]
    fn what_is_given_was_free(taken in prop::collection::vec(any::<bool>(), 64), unit in 1_u64..6, capacity in 1_u64..70) {
        let runs: Vec<_> = taken.iter().enumerate().filter(|(_, taken)| **taken).map(|(at, _)| (256 + at as u64, 1)).collect();
        let contents = with(64, unit, &runs);
        let is_free = |block: u64| !taken[(block - 256) as usize];
        let wanted = capacity.next_multiple_of(unit);
        let units = (256_u64..320).filter(|at| at % unit == 0 && at + unit <= 320 && (*at..at + unit).all(is_free));
        let units: Vec<_> = units.collect();
        prop_assert_eq!(free_blocks(&contents), units.len() as u64 * unit);
        match resized(&contents, &[], capacity) {
            Ok(extents) => {
                prop_assert_eq!(total(&extents), Some(wanted));
                let mut blocks: Vec<_> = extents.iter().flat_map(|extent| extent.slba()..extent.end()).collect();
                prop_assert!(blocks.iter().all(|block| is_free(*block)));
                prop_assert!(extents.iter().all(|extent| extent.slba() % unit == 0 && extent.blocks() % unit == 0));
                let count = blocks.len();
                blocks.sort_unstable();
                blocks.dedup();
                prop_assert_eq!(blocks.len(), count);
                let fits = |at: &&u64| (**at..**at + wanted).all(|block| block < 320 && is_free(block));
                if let Some(first) = units.iter().find(fits) {
                    prop_assert_eq!(extents, vec![extent(*first, wanted)]);
                }
            }
            Err(LabelError::NoSpace { wanted: said, free, .. }) => {
                prop_assert_eq!((said, free), (wanted, units.len() as u64 * unit));
                prop_assert!(wanted > free);
            }
            Err(other) => panic!("{other}"),
        }
    }
}
