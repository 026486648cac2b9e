//! Metadata and protection information in commands: every size, place and type, by hand.

use super::super::faults::{Action, CommandQueue, Rule, When};
use super::super::{DeallocatedRead, MetadataConfig, ModelConfig, StoreConfig};
use super::bench::{Bench, bench};
use super::host::{count, small};
use crate::spec::command::{Cns, NvmOpcode, ProtectionInformation, Sqe};
use crate::spec::identify::{IdentifyNamespace, LbaFormat};
use crate::spec::status::StatusCode;

/// Where separate metadata lies.
const BESIDE: usize = 128 << 10;
const BLOCK: usize = 512;

/// Data and metadata of a block.
type Block = (Vec<u8>, Vec<u8>);

/// CRC-16 of T10 DIF bit by bit.
fn crc(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x8BB7 } else { 0 })
    })
}

fn prinfo(bits: u8) -> ProtectionInformation {
    ProtectionInformation::from_raw(bits)
}

const PRACT: u8 = 8;
const ALL: u8 = 7;

/// A block with a right tuple.
fn protected(config: &MetadataConfig, seed: u8, application: u16, reference: u32) -> Block {
    let data: Vec<u8> = (0..BLOCK).map(|at| (at as u8).wrapping_mul(13) ^ seed).collect();
    let ms = usize::from(config.size);
    let mut metadata: Vec<u8> = (0..ms).map(|at| at as u8 ^ seed ^ 0x80).collect();
    let offset = if config.first_eight { 0 } else { ms - 8 };
    let guard = crc(&[&data[..], &metadata[..offset]].concat());
    metadata[offset..offset + 2].copy_from_slice(&guard.to_be_bytes());
    metadata[offset + 2..offset + 4].copy_from_slice(&application.to_be_bytes());
    metadata[offset + 4..offset + 8].copy_from_slice(&reference.to_be_bytes());
    (data, metadata)
}

fn all_configs() -> impl Iterator<Item = MetadataConfig> {
    let sizes = [8u16, 16, 64];
    sizes.into_iter().flat_map(|size| {
        (0..=3u8).flat_map(move |protection_type| {
            [(false, false), (false, true), (true, false), (true, true)]
                .into_iter()
                .map(move |(extended, first_eight)| MetadataConfig { size, extended, protection_type, first_eight })
        })
    })
}

impl Bench {
    /// Lays blocks out in memory as the namespace transfers them, and points the command there.
    fn lay(&self, config: &MetadataConfig, sqe: Sqe, blocks: &[Block]) -> Sqe {
        let bytes: Vec<u8> = blocks
            .iter()
            .flat_map(|(data, metadata)| {
                let metadata: &[u8] = if config.extended { metadata } else { &[] };
                [data, metadata].concat()
            })
            .collect();
        self.put(0, &bytes);
        let beside: Vec<u8> = blocks.iter().flat_map(|(_, metadata)| metadata.clone()).collect();
        self.put(BESIDE, &beside);
        self.with_prps(sqe, bytes.len()).with_mptr(self.at(BESIDE as u64))
    }

    /// What a read of `nlb` blocks brought.
    fn laid(&self, config: &MetadataConfig, nlb: usize) -> Vec<Block> {
        let ms = usize::from(config.size);
        let step = if config.extended { BLOCK + ms } else { BLOCK };
        (0..nlb)
            .map(|index| {
                let data = self.bytes(index * step, BLOCK);
                let at = if config.extended { index * step + BLOCK } else { BESIDE + index * ms };
                (data, self.bytes(at, ms))
            })
            .collect()
    }

    fn read_with(&mut self, config: &MetadataConfig, sqe: Sqe) -> (StatusCode, Vec<Block>) {
        self.data.view().fill(0xEE);
        let nlb = sqe.nlb().count() as usize;
        let step = BLOCK + if config.extended { usize::from(config.size) } else { 0 };
        let sqe = self.with_prps(sqe, nlb * step).with_mptr(self.at(BESIDE as u64));
        let code = self.code(sqe);
        (code, self.laid(config, nlb))
    }
}

#[test]
fn metadata_comes_back_with_its_blocks() {
    for config in all_configs() {
        let mut b = bench(ModelConfig { metadata: config, ..small() });
        let blocks: Vec<_> = (0..20).map(|index| protected(&config, index, 0x1234, 100 + u32::from(index))).collect();
        let sqe = b.lay(&config, Sqe::write(1, 100, count(20)), &blocks);
        assert_eq!(b.code(sqe), StatusCode::SUCCESS, "{config:?}");
        let (code, back) = b.read_with(&config, Sqe::read(1, 100, count(20)));
        assert_eq!((code, back), (StatusCode::SUCCESS, blocks.clone()), "{config:?}");
        let (_, part) = b.read_with(&config, Sqe::read(1, 107, count(2)));
        assert_eq!(part, blocks[7..9], "{config:?}");
        let step = BLOCK + if config.extended { usize::from(config.size) } else { 0 };
        let counters = b.host.model.counters();
        assert_eq!((counters.write_bytes, counters.read_bytes), (20 * step as u64, 22 * step as u64));
        assert_eq!(b.host.model.violations(), []);
    }
}

#[test]
fn blocks_that_were_never_written_or_were_deallocated_are_not_checked() {
    for deallocated_read in [DeallocatedRead::Zeroes, DeallocatedRead::Ones] {
        for config in all_configs().filter(|config| config.protection_type > 0) {
            let mut b = bench(ModelConfig { metadata: config, deallocated_read, ..small() });
            let fill = if deallocated_read == DeallocatedRead::Ones { 0xFF } else { 0 };
            let ms = usize::from(config.size);
            let offset = if config.first_eight { 0 } else { ms - 8 };
            let mut metadata = vec![fill; ms];
            metadata[offset..offset + 8].fill(0xFF);
            let empty = (vec![fill; BLOCK], metadata);
            let check = if config.protection_type == 3 { ALL & !1 } else { ALL };
            let read = Sqe::read(1, 9, count(1)).with_prinfo(prinfo(check)).with_ilbrt(9);
            assert_eq!(b.read_with(&config, read), (StatusCode::SUCCESS, vec![empty.clone()]), "{config:?}");
            let blocks = [protected(&config, 1, 2, 9)];
            let sqe = b.lay(&config, Sqe::write(1, 9, count(1)), &blocks);
            assert_eq!(b.code(sqe), StatusCode::SUCCESS);
            b.data.view().write_words(0, &[1 << 32, 9]);
            let deallocate = Sqe::dataset_management(1, crate::spec::ZeroesBased::<u8>::ONE).with_ad(true);
            assert_eq!(b.code(deallocate.with_prp1(b.at(0))), StatusCode::SUCCESS);
            assert_eq!(b.read_with(&config, read), (StatusCode::SUCCESS, vec![empty]), "{config:?}");
        }
    }
}

#[test]
fn each_check_fails_for_its_own_reason_on_every_way() {
    for config in all_configs().filter(|config| config.protection_type > 0) {
        let type_3 = config.protection_type == 3;
        let (application, reference, lba) = (0x4321, 50u32, 50u64);
        let good = protected(&config, 7, application, reference);
        let offset = if config.first_eight { 0 } else { usize::from(config.size) - 8 };
        let damaged = |byte: usize| {
            let (data, mut metadata) = good.clone();
            metadata[offset + byte] ^= 0x10;
            (data, metadata)
        };
        let mut wrong_data = good.clone();
        wrong_data.0[100] ^= 1;
        for (block, check, error) in [
            (good.clone(), 0, None),
            (damaged(0), 4, Some(StatusCode::END_TO_END_GUARD_CHECK_ERROR)),
            (wrong_data, 4, Some(StatusCode::END_TO_END_GUARD_CHECK_ERROR)),
            (damaged(3), 2, Some(StatusCode::END_TO_END_APPLICATION_TAG_CHECK_ERROR)),
            (damaged(7), 1, Some(StatusCode::END_TO_END_REFERENCE_TAG_CHECK_ERROR)),
        ] {
            if type_3 && check == 1 {
                continue;
            }
            let mut b = bench(ModelConfig { metadata: config, ..small() });
            let checkable = if type_3 { ALL & !1 } else { ALL };
            for bits in (0..=ALL).filter(|bits| bits & !checkable == 0) {
                let tags = |sqe: Sqe| {
                    sqe.with_prinfo(prinfo(bits)).with_ilbrt(reference).with_lbat(application).with_lbatm(0xFFFF)
                };
                let expected = error.filter(|_| bits & check != 0).unwrap_or(StatusCode::SUCCESS);
                let write = b.lay(&config, tags(Sqe::write(1, lba, count(1))), std::slice::from_ref(&block));
                assert_eq!(b.code(write), expected, "write {config:?} {bits}");
                // Stored unchecked, it is found by whoever looks.
                let unchecked = write.with_prinfo(prinfo(0));
                assert_eq!(b.code(unchecked), StatusCode::SUCCESS);
                let verify = tags(Sqe::nvm(NvmOpcode::VERIFY, 1).with_slba(lba).with_nlb(count(1)));
                assert_eq!(b.code(verify), expected, "verify {config:?} {bits}");
                let compare = b.lay(&config, tags(Sqe::compare(1, lba, count(1))), std::slice::from_ref(&block));
                assert_eq!(b.code(compare), expected, "compare {config:?} {bits}");
                let (code, back) = b.read_with(&config, tags(Sqe::read(1, lba, count(1))));
                assert_eq!(code, expected, "read {config:?} {bits}");
                let arrived = back == std::slice::from_ref(&block);
                assert_eq!(arrived, expected == StatusCode::SUCCESS, "what fails its check is not delivered");
            }
            // A mask without the damaged bit does not see it.
            let masked = Sqe::read(1, lba, count(1)).with_prinfo(prinfo(2)).with_lbat(application).with_lbatm(0xFFEF);
            assert_eq!(b.read_with(&config, masked).0, StatusCode::SUCCESS, "{config:?}");
        }
    }
}

#[test]
fn compare_looks_at_metadata_but_not_at_tags() {
    for config in all_configs() {
        let mut b = bench(ModelConfig { metadata: config, ..small() });
        let block = protected(&config, 7, 1, 60);
        let write = b.lay(&config, Sqe::write(1, 60, count(1)), std::slice::from_ref(&block));
        assert_eq!(b.code(write), StatusCode::SUCCESS);
        let offset = if config.first_eight { 0 } else { usize::from(config.size) - 8 };
        for at in 0..usize::from(config.size) {
            let mut other = block.clone();
            other.1[at] ^= 0x40;
            let compare = b.lay(&config, Sqe::compare(1, 60, count(1)), &[other]);
            let tag = config.protection_type > 0 && (offset..offset + 8).contains(&at);
            let code = if tag { StatusCode::SUCCESS } else { StatusCode::COMPARE_FAILURE };
            assert_eq!(b.code(compare), code, "{config:?}, byte {at}");
        }
    }
}

#[test]
fn pract_inserts_and_strips() {
    for config in all_configs().filter(|config| config.protection_type > 0) {
        let mut b = bench(ModelConfig { metadata: config, ..small() });
        let ms = usize::from(config.size);
        let hidden = ms == 8;
        let counted = |index: u32| if config.protection_type == 3 { 0 } else { index };
        let expected: Vec<_> =
            (0..3u32).map(|index| protected(&config, index as u8, 0x55AA, 70 + counted(index))).collect();
        // The host's tuples are rubbish, or there is no metadata at all.
        let offset = if config.first_eight { 0 } else { ms - 8 };
        let sent: Vec<_> = expected
            .iter()
            .map(|(data, metadata)| {
                let mut metadata = if hidden { Vec::new() } else { metadata.clone() };
                if !hidden {
                    metadata[offset..offset + 8].fill(0x99);
                }
                (data.clone(), metadata)
            })
            .collect();
        let write = Sqe::write(1, 70, count(3)).with_prinfo(prinfo(PRACT)).with_ilbrt(70).with_lbat(0x55AA);
        let mut sqe = b.lay(&config, write, &sent);
        if hidden {
            // Nothing is fetched by a pointer that leads nowhere.
            sqe = sqe.with_mptr(0xDEAD_0000_0000);
        }
        assert_eq!(b.code(sqe), StatusCode::SUCCESS, "{config:?}");
        let check = if config.protection_type == 3 { 6 } else { ALL };
        let read = Sqe::read(1, 70, count(3)).with_ilbrt(70).with_lbat(0x55AA).with_lbatm(0xFFFF);
        let (code, back) = b.read_with(&config, read.with_prinfo(prinfo(check)));
        assert_eq!((code, back), (StatusCode::SUCCESS, expected.clone()), "{config:?}");

        // Read back with PRACT: checked, and then stripped where there is nothing but the tuple.
        b.data.view().fill(0xEE);
        let step = BLOCK + if config.extended && !hidden { ms } else { 0 };
        let sqe = b.with_prps(read.with_prinfo(prinfo(PRACT | check)), 3 * step).with_mptr(b.at(BESIDE as u64));
        assert_eq!(b.code(sqe), StatusCode::SUCCESS, "{config:?}");
        if hidden {
            let data: Vec<u8> = expected.iter().flat_map(|(data, _)| data.clone()).collect();
            assert_eq!((b.bytes(0, 3 * BLOCK), b.bytes(3 * BLOCK, 1)), (data, vec![0xEE]), "{config:?}");
            assert_eq!(b.bytes(BESIDE, 24), [0xEE; 24]);
        } else {
            assert_eq!(b.laid(&config, 3), expected, "{config:?}");
        }
        let wrong = read.with_prinfo(prinfo(PRACT | 2)).with_lbat(0);
        assert_eq!(b.read_with(&config, wrong).0, StatusCode::END_TO_END_APPLICATION_TAG_CHECK_ERROR);
        assert_eq!(b.host.model.violations(), []);
    }
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let config = |protection_type| MetadataConfig { size: 8, protection_type, ..MetadataConfig::default() };
    let refused = StatusCode::INVALID_PROTECTION_INFORMATION;
    for (kind, bits, ilbrt, code) in [
        (1, 1, 5, StatusCode::SUCCESS),
        (1, 1, 6, refused),
        (2, 1, 6, StatusCode::SUCCESS),
        (3, 1, 5, refused),
        (0, 1, 6, StatusCode::SUCCESS),
    ] {
        let mut b = bench(ModelConfig { metadata: config(kind), ..small() });
        let read = Sqe::read(1, 5, count(1)).with_prinfo(prinfo(bits)).with_ilbrt(ilbrt);
        let (got, _) = b.read_with(&config(kind), read);
        assert_eq!(got, code, "type {kind}");
        let compare = if kind == 0 { StatusCode::SUCCESS } else { refused };
        let sqe = Sqe::compare(1, 5, count(1)).with_prinfo(prinfo(PRACT));
        b.data.view().fill(0);
        assert_eq!(b.code(b.with_prps(sqe, BLOCK).with_mptr(b.at(BESIDE as u64))), compare, "type {kind}");
        let sqe = Sqe::nvm(NvmOpcode::VERIFY, 1).with_nlb(count(1)).with_prinfo(prinfo(PRACT));
        assert_eq!(b.code(sqe), compare, "type {kind}");
        let sqe = Sqe::write_zeroes(1, 5, count(1)).with_prinfo(prinfo(4));
        assert_eq!(b.code(sqe), compare, "type {kind}");
    }
}

#[test]
fn zeroes_are_protected_as_asked() {
    for config in all_configs().filter(|config| config.protection_type > 0) {
        for deallocated_read in [DeallocatedRead::Zeroes, DeallocatedRead::Ones] {
            let mut b = bench(ModelConfig { metadata: config, deallocated_read, ..small() });
            let read = Sqe::read(1, 30, count(2));
            let sqe = Sqe::write_zeroes(1, 30, count(2)).with_deac(true);
            assert_eq!(b.code(sqe), StatusCode::SUCCESS);
            let zero = (vec![0; BLOCK], vec![0; config.size.into()]);
            assert_eq!(b.read_with(&config, read).1, [zero.clone(), zero], "without PRACT all is zero");
            let sqe = sqe.with_prinfo(prinfo(PRACT)).with_ilbrt(30).with_lbat(0x77);
            assert_eq!(b.code(sqe), StatusCode::SUCCESS);
            let check = if config.protection_type == 3 { 6 } else { ALL };
            let checked = read.with_prinfo(prinfo(check)).with_ilbrt(30).with_lbat(0x77).with_lbatm(0xFFFF);
            let (code, blocks) = b.read_with(&config, checked);
            assert_eq!(code, StatusCode::SUCCESS, "{config:?}");
            let offset = if config.first_eight { 0 } else { usize::from(config.size) - 8 };
            for (data, metadata) in blocks {
                assert_eq!((data, &metadata[offset + 2..offset + 4]), (vec![0; BLOCK], &[0, 0x77][..]));
            }
        }
    }
}

#[test]
fn metadata_is_kept_in_a_file_behind_the_data() {
    let config = MetadataConfig { size: 8, protection_type: 1, ..MetadataConfig::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let (size, beside) = (1u64 << 20, (1u64 << 20) / 512 * 8);
    let model = || ModelConfig {
        size,
        metadata: config,
        store: StoreConfig::File { path: file.path().to_owned(), writable: true },
        ..small()
    };
    file.as_file().set_len(size + beside - 1).unwrap();
    let iommu = super::super::SoftwareIommu::new();
    let error = super::super::Model::new(model(), super::super::Drive::Stepped, &iommu).err().unwrap().to_string();
    assert!(error.contains("too few"), "{error}");
    file.as_file().set_len(size + beside).unwrap();
    let last = size / 512 - 1;
    let block = protected(&config, 3, 9, last as u32);
    {
        let mut b = bench(model());
        let sqe = b.lay(&config, Sqe::write(1, last, count(1)), std::slice::from_ref(&block));
        assert_eq!(b.code(sqe), StatusCode::SUCCESS);
    }
    let stored = std::fs::read(file.path()).unwrap();
    assert_eq!(stored[size as usize - 512..size as usize], block.0);
    let complement: Vec<u8> = block.1.iter().map(|byte| !byte).collect();
    assert_eq!(stored[(size + beside) as usize - 8..], complement);
    let mut b = bench(model());
    let read = Sqe::read(1, last, count(1)).with_prinfo(prinfo(5)).with_ilbrt(last as u32);
    assert_eq!(b.read_with(&config, read), (StatusCode::SUCCESS, vec![block]));
}

#[test]
fn interleaved_metadata_counts_for_mdts() {
    let config = |extended| MetadataConfig { size: 64, extended, ..MetadataConfig::default() };
    for (extended, code) in [(false, StatusCode::SUCCESS), (true, StatusCode::INVALID_FIELD_IN_COMMAND)] {
        let mut b = bench(ModelConfig { metadata: config(extended), mdts: 1, ..small() });
        assert_eq!(b.read_with(&config(extended), Sqe::read(1, 0, count(16))).0, code);
        assert_eq!(b.read_with(&config(extended), Sqe::read(1, 0, count(14))).0, StatusCode::SUCCESS);
    }
}

#[test]
fn the_null_store_has_metadata_nowhere() {
    for config in all_configs() {
        let mut b = bench(ModelConfig { metadata: config, store: StoreConfig::Null, ..small() });
        let blocks = [protected(&config, 1, 2, 3)];
        let sqe = b.lay(&config, Sqe::write(1, 3, count(1)), &blocks);
        assert_eq!(b.code(sqe), StatusCode::SUCCESS);
        let bits = if config.protection_type == 3 { 6 } else { ALL };
        let read = Sqe::read(1, 3, count(1)).with_prinfo(prinfo(bits)).with_ilbrt(3);
        let (code, back) = b.read_with(&config, read);
        assert_eq!((code, back[0].0[0], back[0].1[0]), (StatusCode::SUCCESS, 0xEE, 0xEE), "nothing is moved");
    }
}

#[test]
fn a_format_changes_blocks_and_their_protection() {
    let before = MetadataConfig { size: 16, extended: false, protection_type: 1, first_eight: false };
    let after = MetadataConfig { extended: true, protection_type: 2, first_eight: true, ..before };
    let mut b = bench(ModelConfig { metadata: before, lba_size: 4096, ..small() });
    b.data.view().fill(0x44);
    let sqe = b.with_prps(Sqe::write(1, 0, count(1)), 4096).with_mptr(b.at(BESIDE as u64));
    assert_eq!(b.code(sqe), StatusCode::SUCCESS);
    let format = Sqe::format_nvm(1, 1);
    let format = format.with_mset(true).with_format_pi(2).with_format_pil(true);
    assert_eq!(b.host.code(format), StatusCode::SUCCESS);
    let namespace: IdentifyNamespace = b.identify(Cns::NAMESPACE, 1);
    assert_eq!(namespace.current_lba_format(), Some(LbaFormat { ms: 16, lbads: 9, rp: 0 }));
    assert_eq!((namespace.flbas.metadata_extended(), namespace.dps.bits()), (true, 0b1010));

    let last = namespace.nsze - 1;
    assert_eq!(last, (16 << 20) / 512 - 1);
    for lba in [0, last] {
        let mut metadata = vec![0; 16];
        metadata[..8].fill(0xFF);
        let (code, blocks) = b.read_with(&after, Sqe::read(1, lba, count(1)));
        assert_eq!((code, blocks), (StatusCode::SUCCESS, vec![(vec![0; BLOCK], metadata)]), "block {lba}");
    }
    let block = protected(&after, 5, 6, 7);
    let tags = |sqe: Sqe| sqe.with_prinfo(prinfo(ALL)).with_ilbrt(7).with_lbat(6).with_lbatm(0xFFFF);
    let sqe = b.lay(&after, tags(Sqe::write(1, last, count(1))), std::slice::from_ref(&block));
    assert_eq!(b.code(sqe), StatusCode::SUCCESS);
    let (code, back) = b.read_with(&after, tags(Sqe::read(1, last, count(1))));
    assert_eq!((code, back), (StatusCode::SUCCESS, vec![block]));
}

/// Half of a write is half of that write over what was there, and nothing of a command before.
#[test]
fn a_torn_write_leaves_the_rest_as_it_was() {
    for config in all_configs().filter(|config| config.protection_type == 0 && config.extended) {
        let mut b = bench(ModelConfig { metadata: config, ..small() });
        let former: Vec<_> = (0..4).map(|index| protected(&config, index, 0, 0)).collect();
        let sqe = b.lay(&config, Sqe::write(1, 100, count(4)), &former);
        assert_eq!(b.code(sqe), StatusCode::SUCCESS);
        let other: Vec<_> = (0x50..0x54).map(|index| protected(&config, index, 0, 0)).collect();
        let sqe = b.lay(&config, Sqe::write(1, 300, count(4)), &other);
        assert_eq!(b.code(sqe), StatusCode::SUCCESS);

        let opcode = Some(NvmOpcode::WRITE.raw());
        b.host.model.faults().add(Rule { queue: CommandQueue::Io, opcode, when: When::Nth(1), action: Action::Torn });
        let latter: Vec<_> = (0x20..0x24).map(|index| protected(&config, index, 0, 0)).collect();
        let sqe = b.lay(&config, Sqe::write(1, 100, count(4)), &latter);
        assert_eq!(b.code(sqe), StatusCode::SUCCESS);
        let (_, back) = b.read_with(&config, Sqe::read(1, 100, count(4)));
        assert_eq!(back, [&latter[..2], &former[2..]].concat(), "{config:?}");
    }
}
