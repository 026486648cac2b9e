use proptest::prelude::*;

use super::*;
use crate::replay::cache::{Kind, Prefix, SlotCache};
use crate::replay::generator::Generator;

fn slots(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn of(number: u32, requests: &[Vec<u64>]) -> HitCurve {
    let requests = requests.iter().map(|hash_ids| Ok::<_, ()>(Request { hash_ids: hash_ids.clone() }));
    HitCurve::of(slots(number), requests).unwrap()
}

/// Hits with `number` slots, by the cache itself.
fn by_the_cache(number: u64, requests: &[Vec<u64>]) -> u64 {
    let mut cache = SlotCache::new(slots(u32::try_from(number).unwrap()));
    let hits_of = |hash_ids: &Vec<u64>| {
        let mut prefix = Prefix::new();
        let decisions = hash_ids.iter().map(|block| cache.decide(&mut prefix, *block).kind);
        decisions.filter(|kind| *kind == Kind::Read).count() as u64
    };
    requests.iter().map(hits_of).sum()
}

#[test]
fn hits_of_a_trace_small_enough_to_count_by_hand() {
    // 1 again after one other block, 2 after two others; 3 is never held before.
    let curve = of(2, &[vec![1], vec![2], vec![1], vec![3], vec![2]]);
    let hits = |slots| curve.points.iter().find(|point| point.slots == slots).unwrap().hits;
    assert_eq!((curve.requests, curve.blocks), (5, 5));
    assert_eq!([1, 2, 3, 4, 8].map(hits), [0, 1, 2, 2, 2]);
    assert_eq!(curve.hits(), 1);
    // Held, but behind a block that was not.
    assert_eq!(of(4, &[vec![1, 2], vec![3, 1, 2], vec![1, 2]]).hits(), 2);
    // The second use of an id in one request.
    assert_eq!(of(4, &[vec![1], vec![1, 1]]).hits(), 2);
}

#[test]
fn the_numbers_of_slots_are_ascending_and_the_runs_own_is_there() {
    for number in [1, 2, 3, 5, 7, 8, 12, 100, 4096, 65_537, u32::MAX] {
        let points = points(number.into());
        let all: Vec<_> = points.iter().map(|point| point.slots).collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{number}: {all:?}");
        assert!(all.len() < 80 && all[0] >= 1, "{number}");
        assert_eq!(*all.last().unwrap(), 4 * u64::from(number));
        assert!(all.contains(&number.into()), "{number}");
        let named: Vec<_> = points.iter().filter(|point| point.named).map(|point| point.slots).collect();
        let expected = [number / 8, number / 4, number / 2].map(u64::from).into_iter().filter(|slots| *slots > 0);
        let mut expected: Vec<_> = expected.chain([1, 2, 4].map(|times| times * u64::from(number))).collect();
        expected.dedup();
        assert_eq!(named, expected, "{number}");
    }
}

#[test]
fn nothing_gives_a_curve_of_noughts_and_an_error_is_passed_on() {
    let curve = of(16, &[]);
    assert!(curve.blocks == 0 && curve.points.iter().all(|point| point.hits == 0));
    let requests = [Ok(Request { hash_ids: vec![1] }), Err("gone")];
    assert_eq!(HitCurve::of(slots(1), requests), Err("gone"));
}

#[test]
fn a_long_trace_is_counted_as_the_cache_does_and_in_memory_that_does_not_grow() {
    let requests: Vec<_> = Generator::new(3, 400).map(|request| request.hash_ids).collect();
    let curve = of(64, &requests);
    for point in curve.points.iter().filter(|point| point.named) {
        assert_eq!(point.hits, by_the_cache(point.slots, &requests), "{} slots", point.slots);
    }
    assert!(curve.points.last().unwrap().hits > curve.points[0].hits, "the trace tells sizes apart");
    let mut stack = Stack::new(256);
    requests.iter().flatten().for_each(|block| {
        stack.use_of(*block);
    });
    assert!(stack.places.len() <= 256 && stack.used.len() <= FIRST_ROOM && stack.last_uses.len() == FIRST_ROOM);
}

#[test]
fn a_stack_that_outgrows_its_room_keeps_all_distances() {
    let mut stack = Stack::new(1 << 20);
    let blocks = 3 * FIRST_ROOM as u64;
    assert!((0..blocks).all(|block| stack.use_of(block).is_none()));
    assert!((0..blocks).all(|block| stack.use_of(block) == Some(blocks)));
    assert!((0..blocks).rev().zip(1..).all(|(block, distance)| stack.use_of(block) == Some(distance)));
}

proptest! {
    #[test]
    fn each_point_is_what_the_cache_does_with_that_many_slots(
        number in 1u32..24,
        requests in prop::collection::vec(prop::collection::vec(0u64..40, 0..12), 0..60),
    ) {
        let curve = of(number, &requests);
        prop_assert_eq!(curve.blocks, requests.iter().map(Vec::len).sum::<usize>() as u64);
        for point in &curve.points {
            prop_assert_eq!(point.hits, by_the_cache(point.slots, &requests), "{} slots", point.slots);
        }
    }
}
