use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;

use proptest::prelude::*;

use super::*;
use crate::replay::trace::TraceReader;

fn cache(slots: u32) -> SlotCache {
    SlotCache::new(NonZeroU32::new(slots).unwrap())
}

fn request(cache: &mut SlotCache, hash_ids: &[u64]) -> Vec<Decision> {
    let mut prefix = Prefix::new();
    hash_ids.iter().map(|&block| cache.decide(&mut prefix, block)).collect()
}

/// Decisions as text: kind, block, slot, number of the write.
fn shown(decisions: &[Decision]) -> Vec<String> {
    let letter = |kind| match kind {
        Kind::Read => 'r',
        Kind::Write => 'w',
    };
    decisions.iter().map(|d| format!("{}{}@{}#{}", letter(d.kind), d.block, d.slot, d.write)).collect()
}

#[test]
fn a_held_block_behind_a_miss_is_written_again_in_its_place() {
    let mut cache = cache(4);
    assert_eq!(shown(&request(&mut cache, &[10, 11, 12])), ["w10@0#1", "w11@1#2", "w12@2#3"]);
    assert_eq!(shown(&request(&mut cache, &[10, 13, 12])), ["r10@0#1", "w13@3#4", "w12@2#5"]);
    assert_eq!(shown(&request(&mut cache, &[12])), ["r12@2#5"]);
}

#[test]
fn the_least_recently_used_makes_room_and_a_rewrite_is_a_use() {
    let mut cache = cache(3);
    request(&mut cache, &[1, 2, 3]);
    // 9 evicts 1; 2 is written again, so that 3 is now the oldest.
    assert_eq!(shown(&request(&mut cache, &[9, 2])), ["w9@0#4", "w2@1#5"]);
    assert_eq!(shown(&request(&mut cache, &[8])), ["w8@2#6"]);
    assert_eq!(shown(&request(&mut cache, &[9])), ["r9@0#4"]);
    // A read is a use: 2 goes, not 9.
    assert_eq!(shown(&request(&mut cache, &[7])), ["w7@1#7"]);
}

#[test]
fn a_full_cache_holds_as_many_blocks_as_it_has_slots() {
    let mut cache = cache(3);
    request(&mut cache, &[1, 2, 3]);
    assert_eq!(shown(&request(&mut cache, &[1, 2, 3])), ["r1@0#1", "r2@1#2", "r3@2#3"]);
}

#[test]
fn an_id_twice_in_a_request() {
    let mut cache = cache(4);
    assert_eq!(shown(&request(&mut cache, &[5, 5])), ["w5@0#1", "w5@0#2"]);
    assert_eq!(shown(&request(&mut cache, &[5, 5])), ["r5@0#2", "r5@0#2"]);
}

#[test]
fn a_request_longer_than_the_cache_evicts_its_own_blocks() {
    let mut cache = cache(1);
    assert_eq!(shown(&request(&mut cache, &[1, 2])), ["w1@0#1", "w2@0#2"]);
    assert_eq!(shown(&request(&mut cache, &[1, 2])), ["w1@0#3", "w2@0#4"]);
    assert_eq!(shown(&request(&mut cache, &[2])), ["r2@0#4"]);
}

#[test]
fn a_request_without_blocks_changes_nothing() {
    let mut cache = cache(1);
    request(&mut cache, &[1]);
    assert_eq!(request(&mut cache, &[]), []);
    assert_eq!(shown(&request(&mut cache, &[1])), ["r1@0#1"]);
}

/// The rule as its words have it, with neither slots nor reuse: oldest use first, insert, then evict what exceeds.
fn naive(slots: usize, requests: &[Vec<u64>]) -> Vec<(u64, Kind)> {
    let mut held: Vec<u64> = Vec::new();
    let mut decisions = Vec::new();
    for request in requests {
        let mut all_hits = true;
        for &block in request {
            let position = held.iter().position(|&other| other == block);
            all_hits &= position.is_some();
            decisions.push((block, if all_hits { Kind::Read } else { Kind::Write }));
            if let Some(position) = position {
                held.remove(position);
            }
            held.push(block);
            if held.len() > slots {
                held.remove(0);
            }
        }
    }
    decisions
}

proptest! {
    #[test]
    fn decides_as_the_naive_form_does(
        slots in 1u32..12,
        requests in prop::collection::vec(prop::collection::vec(0u64..20, 0..8), 0..60),
    ) {
        let mut cache = cache(slots);
        let decisions: Vec<Decision> = requests.iter().flat_map(|ids| request(&mut cache, ids)).collect();
        let kinds: Vec<_> = decisions.iter().map(|d| (d.block, d.kind)).collect();
        prop_assert_eq!(kinds, naive(slots as usize, &requests));
    }

    /// A device that does as it is told gives back at each read what the read asks for.
    #[test]
    fn a_read_asks_for_the_last_write_of_its_slot(
        slots in 1u32..12,
        requests in prop::collection::vec(prop::collection::vec(0u64..20, 0..8), 0..60),
    ) {
        let mut cache = cache(slots);
        let mut device: HashMap<u32, (u64, u64)> = HashMap::new();
        let mut writes = 0;
        for decision in requests.iter().flat_map(|ids| request(&mut cache, ids)) {
            prop_assert!(decision.slot < slots);
            match decision.kind {
                Kind::Read => prop_assert_eq!(device.get(&decision.slot), Some(&(decision.block, decision.write))),
                Kind::Write => {
                    writes += 1;
                    prop_assert_eq!(decision.write, writes);
                    device.insert(decision.slot, (decision.block, decision.write));
                    let copies = device.values().filter(|(block, _)| *block == decision.block).count();
                    prop_assert_eq!(copies, 1, "a block is in one slot only");
                }
            }
        }
    }
}

/// Reads and writes over the conversation trace, as an independent count of it has them. The trace is not part of this tree:
/// `TENTPEG_TRACE` says where it is.
#[test]
fn conversation_trace() {
    let Some(path) = std::env::var_os("TENTPEG_TRACE") else {
        println!("skipped: TENTPEG_TRACE does not name conversation_trace.jsonl");
        return;
    };
    for (slots, expected) in [(16_384, (76_613, 211_887)), (65_536, (103_701, 184_799))] {
        let mut cache = cache(slots);
        let (mut reads, mut writes) = (0, 0);
        let file = File::open(&path).expect("TENTPEG_TRACE names a file");
        for ids in TraceReader::new(BufReader::new(file)) {
            for decision in request(&mut cache, &ids.unwrap().hash_ids) {
                match decision.kind {
                    Kind::Read => reads += 1,
                    Kind::Write => writes += 1,
                }
            }
        }
        assert_eq!((reads, writes), expected, "{slots} slots");
        assert_eq!(cache.writes, writes);
    }
}
