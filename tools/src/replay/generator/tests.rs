use std::num::NonZeroU32;

use super::*;
use crate::replay::cache::{Kind, Prefix, SlotCache};

/// As many as the conversation trace has.
const REQUESTS: u64 = 12_031;

/// Reads and writes of the trace on an empty cache of so many slots.
fn reads_and_writes(trace: impl Iterator<Item = Request>, slots: u32) -> (u64, u64) {
    let mut cache = SlotCache::new(NonZeroU32::new(slots).unwrap());
    let (mut reads, mut writes) = (0, 0);
    for request in trace {
        let mut prefix = Prefix::new();
        for block in request.hash_ids {
            match cache.decide(&mut prefix, block).kind {
                Kind::Read => reads += 1,
                Kind::Write => writes += 1,
            }
        }
    }
    (reads, writes)
}

fn hit_percent(trace: impl Iterator<Item = Request>, slots: u32) -> f64 {
    let (reads, writes) = reads_and_writes(trace, slots);
    100.0 * reads as f64 / (reads + writes) as f64
}

fn lengths(seed: u64) -> Vec<usize> {
    let mut lengths: Vec<usize> = Generator::new(seed, REQUESTS).map(|request| request.hash_ids.len()).collect();
    lengths.sort_unstable();
    lengths
}

#[test]
fn hit_rates_are_those_of_the_conversation_trace() {
    for seed in 0..4 {
        for (slots, published) in [(16_384, 26.6), (65_536, 35.9)] {
            let percent = hit_percent(Generator::new(seed, REQUESTS), slots);
            println!("seed {seed}, {slots} slots: {percent:.1}%, published {published}%");
            assert!((percent - published).abs() <= 3.0, "seed {seed}, {slots} slots: {percent:.1}%");
        }
    }
}

#[test]
fn lengths_are_those_of_the_conversation_trace() {
    for seed in 0..4 {
        let lengths = lengths(seed);
        let at = |per_mille: usize| lengths[lengths.len() * per_mille / 1000];
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        println!("seed {seed}: mean {mean:.1}, p50 {}, p90 {}, p99 {}", at(500), at(900), at(990));
        assert!((22.5..25.5).contains(&mean), "mean {mean}, published 24.0");
        assert!((12..=16).contains(&at(500)), "p50 {}, published 14", at(500));
        assert!((50..=60).contains(&at(900)), "p90 {}, published 54", at(900));
        assert!((145..=185).contains(&at(990)), "p99 {}, published 167", at(990));
        assert_eq!(lengths[0], 2);
        let longest = lengths[lengths.len() - 1];
        assert!((240..=MAX_BLOCKS).contains(&longest), "max {longest}, published 247");
    }
}

#[test]
fn the_default_trace_has_hits_and_misses_at_the_default_slots() {
    let (reads, writes) = reads_and_writes(Generator::new(DEFAULT_SEED, DEFAULT_REQUESTS), 4_096);
    println!("{reads} reads, {writes} writes");
    assert_eq!((reads, writes), (1_991, 19_399));
}

#[test]
fn a_seed_is_a_trace() {
    let trace = |seed, requests| Generator::new(seed, requests).collect::<Vec<_>>();
    assert_eq!(trace(7, 500), trace(7, 500));
    assert_eq!(trace(7, 500), trace(7, 900)[..500]);
    assert_ne!(trace(7, 500), trace(8, 500));
    assert_eq!(trace(7, 0), []);
    // These never change: figures from one machine or release are about the same trace as those of another.
    assert_eq!(trace(DEFAULT_SEED, 3).iter().map(|request| request.hash_ids.len()).collect::<Vec<_>>(), [5, 2, 40]);
}

#[test]
fn requests_extend_earlier_ones_from_a_shared_first_block() {
    let mut seen = std::collections::HashSet::from([0]);
    let mut turns = 0;
    for request in Generator::new(3, 5_000) {
        let known = request.hash_ids.iter().take_while(|id| seen.contains(*id)).count();
        let (prefix, new) = request.hash_ids.split_at(known);
        assert_eq!(prefix[0], 0);
        assert!(!new.is_empty() && new.iter().all(|id| seen.insert(*id)), "what follows the prefix is new");
        turns += u64::from(known > 1);
    }
    assert!((1_200..2_000).contains(&turns), "{turns} of 5,000 requests extend an earlier one");
}

#[test]
fn memory_is_bounded() {
    let mut trace = Generator::new(1, 100_000);
    let mut most = 0;
    while trace.next().is_some() {
        most = most.max(trace.absent.values().map(Vec::capacity).sum());
    }
    println!("{most} ids at most");
    assert!(most * size_of::<u64>() < 400 << 10, "{most} ids");
}
