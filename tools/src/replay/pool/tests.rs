use std::num::NonZeroU32;

use proptest::prelude::*;
use tentpeg_driver::gpu::StandIn;
use tentpeg_engine::{ByteSize, EngineConfig, GpuOptions};

use super::*;
use crate::replay::payload::Holds;

fn pool(pool_blocks: u32, block: u64, page: u64) -> (Engine, Pool, Geometry) {
    let number = |number| NonZeroU32::new(number).unwrap();
    let geometry = Geometry::new(number(4), number(pool_blocks), ByteSize(block), ByteSize(page)).unwrap();
    let engine = Engine::open("model:size=1MiB", EngineConfig::default()).unwrap();
    let pool = Pool::allocate(&engine, &geometry).unwrap();
    (engine, pool, geometry)
}

/// A pool on a GPU, for which memory of the host stands in.
fn pool_on_gpu(pool_blocks: u32, block: u64, page: u64) -> (Engine, Pool) {
    let number = |number| NonZeroU32::new(number).unwrap();
    let geometry = Geometry::new(number(4), number(pool_blocks), ByteSize(block), ByteSize(page)).unwrap();
    let gpu = Some(GpuOptions::new(StandIn::new(1 << 20)));
    let engine = Engine::open("model:size=1MiB", EngineConfig { gpu, ..EngineConfig::default() }).unwrap();
    let pool = Pool::allocate(&engine, &geometry).unwrap();
    (engine, pool)
}

/// GPU and host agree on each word: a block that one has written the other finds right.
#[test]
fn blocks_on_a_gpu_are_those_of_the_host() {
    let (engine, mut on_gpu) = pool_on_gpu(2, 32 << 10, 8 << 10);
    let (payload, other) = (Payload::new(7, 2), Payload::new(8, 1));
    assert!(on_gpu.fill(0, &payload, || false) && on_gpu.fill(1, &other, || false));
    assert_eq!(on_gpu.verify(0, &payload, || false), Ok(true));
    assert_eq!(on_gpu.verify(0, &payload, || true), Ok(false), "it was to stop");
    let mut words = vec![0; 1024];
    let mut back = engine.gpu_words(on_gpu.memory()).unwrap();
    for (number, page) in (0..).zip(on_gpu.layout.pages(0).to_vec()) {
        back.read(u64::from(page) * 8192, &mut words).unwrap();
        assert_eq!(payload.verify(number * 1024, &words), Ok(()));
    }
    assert_eq!(on_gpu.verify(1, &payload, || false).unwrap_err().holds, Holds::OtherPayload { block: 8, write: 1 });
    assert!(on_gpu.poison(0, &payload, || false));
    let mismatch = on_gpu.verify(0, &payload, || false).unwrap_err();
    assert_eq!((mismatch.byte_offset, mismatch.holds), (0, Holds::Poison));
    // One word of the third page.
    assert!(on_gpu.fill(0, &payload, || false));
    let place = u64::from(on_gpu.layout.pages(0)[2]) * 8192 + 4096;
    back.fill([GpuSeries { offset: place, words: 1, first: 5, step: 1 }]).unwrap();
    let mismatch = on_gpu.verify(0, &payload, || false).unwrap_err();
    assert_eq!((mismatch.byte_offset, mismatch.found), (2 * 8192 + 4096, 5));
    assert!(on_gpu.take_error().is_none());
}

proptest! {
    #[test]
    fn every_page_is_dealt_out_once_and_none_is_followed_by_the_next(blocks in 1u32..40, per_block in 1usize..40) {
        let pages = blocks * per_block as u32;
        let layout = PageLayout::shuffled(pages, per_block);
        let mut dealt: Vec<u32> = (0..blocks).flat_map(|block| layout.pages(block).to_vec()).collect();
        dealt.sort_unstable();
        prop_assert_eq!(dealt, (0..pages).collect::<Vec<_>>());
        for block in 0..blocks {
            for pair in layout.pages(block).windows(2) {
                prop_assert_ne!(pair[0] + 1, pair[1], "block {}", block);
            }
        }
    }
}

#[test]
fn pages_of_a_block_lie_all_over_the_pool() {
    let layout = PageLayout::shuffled(4096, 8);
    let spread = |block| {
        let pages = layout.pages(block);
        pages.iter().max().unwrap() - pages.iter().min().unwrap()
    };
    let mean = (0..512).map(spread).sum::<u32>() / 512;
    assert!(mean > 4096 / 2, "drawn from all pages, eight span 7/9 of them on average; these span {mean}");
}

#[test]
fn requests_are_contiguous_on_the_device_and_scattered_in_memory() {
    let (_engine, pool, geometry) = pool(4, 64 << 10, 16 << 10);
    let mut requests = Vec::new();
    let mut sources = Vec::new();
    for pool_block in 0..4 {
        let at = 2 * geometry.block();
        pool.requests(pool_block, OpCode::Write, SegmentId(1), at, &mut requests);
        let offsets: Vec<u64> = requests.iter().map(|request| request.target_offset - at).collect();
        assert_eq!(offsets, [0, 16 << 10, 32 << 10, 48 << 10]);
        assert!(requests.iter().all(|request| request.length == 16 << 10 && request.opcode == OpCode::Write));
        sources.extend(requests.iter().map(|request| request.source - pool.memory().address()));
    }
    sources.sort_unstable();
    assert_eq!(sources, (0..16).map(|page| page * (16 << 10)).collect::<Vec<u64>>());
}

#[test]
fn a_wrong_byte_anywhere_in_a_block_is_found_and_placed() {
    let (_engine, mut pool, geometry) = pool(2, 32 << 10, 8 << 10);
    let payload = Payload::new(7, 1);
    for at in [0, 1, 8191, 8192, 20_000, (32 << 10) - 1] {
        pool.fill(1, &payload, || false);
        assert_eq!(pool.verify(1, &payload, || false), Ok(true));
        let page = pool.layout.pages(1)[at as usize / 8192];
        let place = u64::from(page) * geometry.page() + at % 8192;
        let mut byte = [0];
        pool.memory.view().read(place as usize, &mut byte);
        pool.memory.view().write(place as usize, &[byte[0] ^ 0x10]);
        assert_eq!(pool.verify(1, &payload, || true), Ok(false), "it was to stop");
        let mismatch = pool.verify(1, &payload, || false).unwrap_err();
        assert_eq!((mismatch.block, mismatch.write), (7, 1));
        assert_eq!(mismatch.byte_offset, at - at % 8);
        assert_eq!(mismatch.expected ^ mismatch.found, 0x10 << (8 * (at % 8)), "in little-endian order");
    }
}

#[test]
fn what_was_not_read_is_poison_and_other_blocks_are_told_apart() {
    let (_engine, mut pool, _) = pool(2, 32 << 10, 8 << 10);
    let (payload, other) = (Payload::new(7, 2), Payload::new(8, 1));
    pool.poison(0, &payload, || false);
    assert_eq!(pool.verify(0, &payload, || false).unwrap_err().holds, Holds::Poison);
    pool.fill(0, &other, || false);
    assert_eq!(pool.verify(0, &payload, || false).unwrap_err().holds, Holds::OtherPayload { block: 8, write: 1 });
    // Filling one pool block leaves the other alone.
    pool.fill(1, &payload, || false);
    assert_eq!(pool.verify(0, &other, || false), Ok(true));
    assert_eq!(pool.verify(1, &payload, || false), Ok(true));
}
