//! The simulated write cache, and what a loss of power leaves of it.

use super::super::{
    CacheConfig, Drive, MetadataConfig, Model, ModelConfig, PowerLoss, SoftwareIommu, StoreConfig, Survivors,
};
use super::bench::{Bench, bench};
use super::host::{count, small};
use crate::bus::Function;
use crate::spec::command::{FeatureIdentifier, Sqe};
use crate::spec::registers::offset;
use crate::spec::status::StatusCode;

fn cached(blocks: u32) -> ModelConfig {
    ModelConfig { cache_simulation: Some(CacheConfig { blocks, write_back: None }), ..small() }
}

impl Bench {
    fn fill(&mut self, slba: u64, nlb: u32, byte: u8, fua: bool) {
        let len = nlb as usize * 512;
        self.put(0, &vec![byte; len]);
        let sqe = self.with_prps(Sqe::write(1, slba, count(nlb)).with_fua(fua), len);
        assert_eq!(self.code(sqe), StatusCode::SUCCESS);
    }

    fn first_bytes(&mut self, slba: u64, nlb: u32) -> Vec<u8> {
        let len = nlb as usize * 512;
        let sqe = self.with_prps(Sqe::read(1, slba, count(nlb)), len);
        assert_eq!(self.code(sqe), StatusCode::SUCCESS);
        self.bytes(0, len)
            .chunks(512)
            .map(|block| block.iter().all(|byte| *byte == block[0]).then_some(block[0]).unwrap())
            .collect()
    }

    fn cut(&mut self, survivors: Survivors) -> PowerLoss {
        let loss = self.host.model.power_cut(survivors).unwrap();
        self.power_on();
        loss
    }
}

#[test]
fn what_was_not_flushed_is_lost_and_the_rest_is_not() {
    let mut b = bench(cached(1000));
    b.fill(0, 4, 1, false);
    assert_eq!(b.code(Sqe::flush(1)), StatusCode::SUCCESS);
    b.fill(1, 1, 2, true);
    b.fill(2, 2, 3, false);
    b.fill(10, 1, 4, false);
    assert_eq!(b.first_bytes(0, 4), [1, 2, 3, 3], "reads see what was written last");
    assert_eq!(b.cut(Survivors::Nothing), PowerLoss { lost: 3, survived: 0 });
    assert_eq!((b.first_bytes(0, 4), b.first_bytes(10, 1)), (vec![1, 2, 1, 1], vec![0]));
    assert_eq!(b.cut(Survivors::Nothing), PowerLoss::default(), "there is nothing left to lose");
}

#[test]
fn force_unit_access_makes_its_own_blocks_durable_and_no_others() {
    let mut b = bench(cached(1000));
    b.fill(0, 8, 1, false);
    b.fill(3, 1, 2, true);
    b.fill(20, 1, 3, false);
    assert_eq!(b.first_bytes(0, 8), [1, 1, 1, 2, 1, 1, 1, 1]);
    assert_eq!(b.cut(Survivors::Nothing).lost, 8);
    assert_eq!(b.first_bytes(0, 8), [0, 0, 0, 2, 0, 0, 0, 0]);

    b.fill(0, 1, 4, false);
    b.fill(9, 1, 5, false);
    let read = b.with_prps(Sqe::read(1, 0, count(1)).with_fua(true), 512);
    assert_eq!(b.code(read), StatusCode::SUCCESS);
    assert_eq!(b.bytes(0, 1), [4]);
    b.cut(Survivors::Nothing);
    assert_eq!((b.first_bytes(0, 1), b.first_bytes(9, 1)), (vec![4], vec![0]), "a read with FUA, too");
}

#[test]
fn zeroes_and_deallocation_are_lost_like_writes() {
    let mut b = bench(cached(1000));
    b.fill(0, 8, 7, true);
    assert_eq!(b.code(Sqe::write_zeroes(1, 1, count(2))), StatusCode::SUCCESS);
    b.data.view().write_words(0, &[2 << 32, 5]);
    let deallocate = Sqe::dataset_management(1, crate::spec::ZeroesBased::<u8>::ONE).with_ad(true);
    assert_eq!(b.code(deallocate.with_prp1(b.at(0))), StatusCode::SUCCESS);
    assert_eq!(b.first_bytes(0, 8), [7, 0, 0, 7, 7, 0, 0, 7]);
    assert_eq!(b.cut(Survivors::Nothing).lost, 4);
    assert_eq!(b.first_bytes(0, 8), [7; 8]);
    assert_eq!(b.code(Sqe::write_zeroes(1, 1, count(2)).with_fua(true)), StatusCode::SUCCESS);
    b.cut(Survivors::Nothing);
    assert_eq!(b.first_bytes(0, 8), [7, 0, 0, 7, 7, 7, 7, 7]);
}

#[test]
fn a_cache_that_is_full_makes_room_by_the_oldest() {
    let mut b = bench(cached(4));
    for lba in 0..6 {
        b.fill(lba, 1, 9, false);
    }
    assert_eq!(b.cut(Survivors::Nothing).lost, 4);
    assert_eq!(b.first_bytes(0, 6), [9, 9, 0, 0, 0, 0]);
    b.fill(0, 5, 8, false);
    assert_eq!(b.cut(Survivors::Nothing).lost, 0, "what is larger than the cache goes past it");
    assert_eq!(b.first_bytes(0, 6), [8, 8, 8, 8, 8, 0]);
}

#[test]
fn a_cache_that_is_off_holds_nothing() {
    let mut b = bench(cached(100));
    let wce = |on| Sqe::set_features(FeatureIdentifier::VOLATILE_WRITE_CACHE, 0, u32::from(on));
    b.fill(0, 1, 1, false);
    assert_eq!(b.host.code(wce(false)), StatusCode::SUCCESS);
    b.fill(1, 1, 2, false);
    assert_eq!(b.cut(Survivors::Nothing).lost, 0, "turning it off empties it");
    assert_eq!(b.first_bytes(0, 2), [1, 2]);
    b.fill(2, 1, 3, false);
    assert_eq!(b.cut(Survivors::Nothing).lost, 1, "after power on it is on again");

    let mut b = bench(small());
    b.fill(0, 1, 1, false);
    assert_eq!(b.cut(Survivors::Nothing), PowerLoss::default());
    assert_eq!(b.first_bytes(0, 1), [1], "without a simulation nothing is lost");
}

#[test]
fn a_reset_and_a_shutdown_are_no_loss_of_power() {
    let mut b = bench(cached(100));
    b.fill(0, 1, 1, false);
    b.host.disable();
    b.host.enable();
    b.pair = b.host.io_pair(1, 8);
    assert_eq!(b.first_bytes(0, 1), [1]);
    b.fill(1, 1, 2, false);
    b.host.write_cc(super::host::cc(true).with_shn(crate::spec::registers::ShutdownNotification::NORMAL));
    let done = crate::spec::registers::ShutdownStatus::COMPLETE;
    assert!(b.host.wait(|host| host.csts().shst() == done));
    assert_eq!(b.cut(Survivors::Nothing).lost, 0, "a shutdown empties it first");
    assert_eq!(b.first_bytes(0, 2), [1, 2]);
}

/// Old blocks are 1; then `writes` of (first block, blocks, byte) go to the cache. What is there after the cut.
fn after_cut(awupf: u16, seed: u64, writes: &[(u64, u32, u8)]) -> (PowerLoss, Vec<u8>) {
    let mut b = bench(ModelConfig { awun: awupf, awupf, ..cached(1000) });
    b.fill(0, 16, 1, true);
    for (slba, nlb, byte) in writes {
        b.fill(*slba, *nlb, *byte, false);
    }
    let loss = b.cut(Survivors::Some { seed });
    (loss, b.first_bytes(0, 16))
}

#[test]
fn survivors_are_chosen_by_the_seed_and_torn_only_beyond_awupf() {
    let writes = [(0, 8, 2), (8, 8, 3)];
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let (loss, blocks) = after_cut(0, seed, &writes);
        assert_eq!(loss.lost + loss.survived, 16);
        let survived = blocks.iter().filter(|byte| **byte != 1).count() as u64;
        assert_eq!(survived, loss.survived);
        assert!(
            blocks[..8].iter().all(|byte| matches!(byte, 1 | 2))
                && blocks[8..].iter().all(|byte| matches!(byte, 1 | 3))
        );
        assert_eq!(after_cut(0, seed, &writes).1, blocks, "the same seed makes the same choice");
        seen.insert(blocks);
    }
    assert!(seen.len() > 60, "{} of 64 differ", seen.len());
    let torn = seen.iter().filter(|blocks| blocks[..8] != [1; 8] && blocks[..8] != [2; 8]).count();
    assert!(torn > 50, "writes beyond AWUPF are torn between blocks");

    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let (_, blocks) = after_cut(7, seed, &writes);
        outcomes.insert((blocks[..8].to_vec(), blocks[8..].to_vec()));
    }
    let expected = [1, 2].into_iter().flat_map(|first| [1, 3].map(|second| (vec![first; 8], vec![second; 8])));
    assert_eq!(outcomes, expected.collect(), "within AWUPF all or nothing, each write by itself");
}

#[test]
fn a_newer_write_may_be_lost_and_the_older_one_not() {
    let outcomes: std::collections::BTreeSet<_> =
        (0..64).map(|seed| after_cut(15, seed, &[(0, 4, 2), (2, 4, 3)]).1[..6].to_vec()).collect();
    let expected = [[1, 1, 1, 1, 1, 1], [2, 2, 2, 2, 1, 1], [1, 1, 3, 3, 3, 3], [2, 2, 3, 3, 3, 3]];
    assert_eq!(outcomes, expected.map(|blocks| blocks.to_vec()).into());
}

#[test]
fn the_controller_is_as_after_power_on() {
    let mut b = bench(cached(10));
    b.data.view().fill(0x42);
    b.pair.push(Sqe::read(1, 0, count(1)).with_prp1(b.at(0)));
    b.pair.ring();
    b.host.model.power_cut(Survivors::Nothing).unwrap();
    for register in [offset::CC, offset::CSTS, offset::AQA, offset::ASQ, offset::ACQ] {
        assert_eq!(b.host.function.read_u32(register), 0, "{register:#x}");
    }
    for _ in 0..100 {
        b.host.model.turn();
    }
    assert!(b.pair.peek().is_none() && b.bytes(0, 1) == [0x42], "what was rung and not executed never is");
    b.power_on();
    assert_eq!(b.first_bytes(0, 1), [0]);
}

#[test]
fn a_threaded_model_loses_its_power_too() {
    let mut host = super::host::Host::driven(cached(100), Drive::Threaded);
    let pair = host.io_pair(1, 8);
    let data = host.memory(super::bench::MEMORY);
    let mut b = Bench { host, pair, data };
    b.fill(0, 4, 6, false);
    assert_eq!(b.cut(Survivors::Nothing).lost, 4);
    assert_eq!(b.first_bytes(0, 4), [0; 4]);
}

#[test]
fn what_a_file_has_is_what_was_made_durable() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len((1 << 20) + 4096 * 64).unwrap();
    for metadata in [MetadataConfig::default(), MetadataConfig { size: 8, ..MetadataConfig::default() }] {
        let store = StoreConfig::File { path: file.path().to_owned(), writable: true };
        let config = ModelConfig { size: 1 << 20, store, metadata, ..cached(100) };
        let beside = |b: &Bench, sqe: Sqe| sqe.with_mptr(b.at(128 << 10));
        {
            let mut b = bench(config.clone());
            for (slba, byte, fua) in [(0, 0xA0, true), (1, 0xA1, false)] {
                b.put(0, &[byte; 512]);
                let sqe = b.with_prps(Sqe::write(1, slba, count(1)).with_fua(fua), 512);
                assert_eq!(b.code(beside(&b, sqe)), StatusCode::SUCCESS);
            }
        }
        // The model is dropped, as by the end of its process.
        let stored = std::fs::read(file.path()).unwrap();
        assert_eq!((stored[0], stored[512]), (0xA0, 0));
    }
}

/// Which blocks of a file are there when a model ends as its process would: they were written to its cache, so many by
/// each command, and then there was a Flush, or none.
fn left(seed: u64, nlb: u32, awupf: u16, flushed: bool) -> Vec<bool> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let store = StoreConfig::File { path: file.path().to_owned(), writable: true };
    let cache_simulation = Some(CacheConfig { blocks: 64, write_back: Some(seed) });
    let mut b = bench(ModelConfig { size: 1 << 20, store, cache_simulation, awun: awupf, awupf, ..small() });
    for slba in (0..32).step_by(nlb as usize) {
        b.fill(slba, nlb, 5, false);
    }
    assert_eq!(b.first_bytes(0, 32), [5; 32]);
    if flushed {
        assert_eq!(b.code(Sqe::flush(1)), StatusCode::SUCCESS);
    }
    drop(b);
    let bytes = std::fs::read(file.path()).unwrap();
    bytes.chunks(512).take(32).map(|block| block.iter().all(|byte| *byte == 5)).collect()
}

#[test]
fn a_cache_that_writes_back_loses_some_at_the_end_of_the_process_in_any_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..16 {
        let blocks = left(seed, 1, 0, false);
        assert_eq!(left(seed, 1, 0, false), blocks, "the same seed makes the same choice");
        let count = blocks.iter().filter(|there| **there).count();
        assert!((1..32).contains(&count), "{count} of 32");
        assert!(blocks.windows(2).any(|pair| pair == [false, true]), "not the oldest first: {blocks:?}");
        seen.insert(blocks);
    }
    assert_eq!(seen.len(), 16);
    assert_eq!(left(1, 1, 0, true), [true; 32]);
    let torn = |blocks: &[bool]| blocks.chunks(8).any(|command| command.iter().any(|there| *there != command[0]));
    assert!((0..16).any(|seed| torn(&left(seed, 8, 0, false))));
    assert!(!(0..16).any(|seed| torn(&left(seed, 8, 7, false))), "within AWUPF all or nothing");
}

#[test]
fn a_cache_needs_room_in_its_own_settings() {
    let config = ModelConfig { volatile_write_cache: false, ..cached(4) };
    let error = Model::new(config, Drive::Stepped, &SoftwareIommu::new()).err().unwrap().to_string();
    assert!(error.contains("cannot simulate one"), "{error}");
}
