use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn written(byte: u8, nlb: u64) -> Content {
    Content::Written { data: vec![byte; nlb as usize].into(), metadata: Box::default() }
}

/// The bytes of a block of one byte.
fn byte(entry: &Entry, place: usize) -> u8 {
    match entry.content() {
        Content::Written { data, .. } => data[place],
        Content::Zeroes { .. } | Content::Deallocated => 0,
    }
}

#[test]
fn the_oldest_goes_first_and_the_newest_is_seen() {
    let mut cache = WriteCache::new(4);
    cache.push(10, 2, written(1, 2));
    cache.push(11, 2, written(2, 2));
    assert!(cache.is_full_for(1) && !cache.is_full_for(0));
    let seen: Vec<_> = cache.newest(0..100).map(|(lba, entry, place)| (lba, byte(entry, place))).collect();
    assert_eq!(seen, [(10, 1), (11, 2), (12, 2)]);
    assert_eq!((cache.depth(10..11), cache.depth(11..12), cache.depth(13..99)), (1, 2, 0));
    let oldest = cache.pop().unwrap();
    assert_eq!(oldest.live().collect::<Vec<_>>(), [0, 1], "an older version may yet become durable");
    assert!(!cache.is_full_for(2));
    cache.forget(12..13);
    assert_eq!(cache.pop().unwrap().live().collect::<Vec<_>>(), [0]);
    assert!(cache.pop().is_none() && cache.newest(0..100).next().is_none());
}

#[test]
fn what_becomes_durable_out_of_its_turn_takes_what_is_older_with_it() {
    let mut cache = WriteCache::new(8);
    cache.push(10, 2, written(1, 2));
    cache.push(10, 2, written(2, 2));
    cache.push(11, 1, written(3, 1));
    assert_eq!([0, 1, 2, 3].map(|number| cache.draw(number)), [Some(0), Some(1), Some(2), Some(0)]);
    cache.settle(1, &[0, 1]);
    let seen: Vec<_> = cache.newest(0..100).map(|(lba, entry, place)| (lba, byte(entry, place))).collect();
    assert_eq!(seen, [(11, 3)], "what is newer is still to come");
    assert_eq!([0, 1, 2].map(|number| cache.draw(number)), [Some(0); 3], "the others have nothing left");
    cache.settle(0, &[0]);
    assert_eq!((cache.draw(7), cache.depth(0..100)), (None, 0));
    assert_eq!(WriteCache::new(1).draw(7), None);
}

#[test]
fn an_empty_cache_is_never_full() {
    assert!(!WriteCache::new(1).is_full_for(100), "there is nothing that could make room");
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, u64),
    Past(u64, u64),
    Pop,
    /// One out of its turn: a number to draw it by, and which of its blocks.
    Settle(u64, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0u64..12, 1u64..5);
    let step = prop_oneof![
        4 => range.clone().prop_map(|(slba, nlb)| Step::Write(slba, nlb)),
        1 => range.prop_map(|(slba, nlb)| Step::Past(slba, nlb)),
        2 => Just(Step::Pop),
        3 => (any::<u64>(), any::<u8>()).prop_map(|(number, mask)| Step::Settle(number, mask)),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Whatever happens, what is seen through the cache is what was written last, and so is what is durable when the
    /// cache is empty.
    #[test]
    fn the_last_write_wins(steps in steps()) {
        let mut cache = WriteCache::new(8);
        let (mut durable, mut expected) = (BTreeMap::<u64, u8>::new(), BTreeMap::<u64, u8>::new());
        let settle = |entry: Entry, durable: &mut BTreeMap<u64, u8>| {
            for place in entry.live() {
                durable.insert(entry.slba() + place as u64, byte(&entry, place));
            }
        };
        for (index, step) in steps.into_iter().enumerate() {
            let value = index as u8 + 1;
            match step {
                Step::Write(slba, nlb) => {
                    while cache.is_full_for(nlb) {
                        settle(cache.pop().unwrap(), &mut durable);
                    }
                    cache.push(slba, nlb, written(value, nlb));
                    expected.extend((slba..slba + nlb).map(|lba| (lba, value)));
                }
                Step::Past(slba, nlb) => {
                    cache.forget(slba..slba + nlb);
                    durable.extend((slba..slba + nlb).map(|lba| (lba, value)));
                    expected.extend((slba..slba + nlb).map(|lba| (lba, value)));
                }
                Step::Settle(number, mask) => {
                    if let Some(index) = cache.draw(number) {
                        let entry = cache.entry(index).unwrap();
                        let places: Vec<_> = entry.live().filter(|place| mask >> place & 1 == 1).collect();
                        for place in &places {
                            durable.insert(entry.slba() + *place as u64, byte(entry, *place));
                        }
                        cache.settle(index, &places);
                    }
                }
                Step::Pop => {
                    if let Some(entry) = cache.pop() {
                        settle(entry, &mut durable);
                    }
                }
            }
            let mut seen = durable.clone();
            seen.extend(cache.newest(0..u64::MAX).map(|(lba, entry, place)| (lba, byte(entry, place))));
            prop_assert_eq!(&seen, &expected);
        }
        while let Some(entry) = cache.pop() {
            settle(entry, &mut durable);
        }
        prop_assert_eq!(durable, expected);
    }
}
