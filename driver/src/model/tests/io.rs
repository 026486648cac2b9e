//! Read, Write and Flush: data, and every status that the model has for them.

use super::super::{ModelConfig, StoreConfig, Violation};
use super::host::{Host, Pair, count, small};
use crate::dma::{Access, HostMemory, Region};
use crate::spec::command::{DirectiveType, FeatureIdentifier, Fuse, NSID_ALL, NvmOpcode, Psdt, Sqe};
use crate::spec::status::StatusCode;

struct Bench {
    host: Host,
    pair: Pair,
    data: Region<HostMemory>,
}

fn bench(config: ModelConfig) -> Bench {
    let mut host = Host::new(config);
    let pair = host.io_pair(1, 8);
    let data = host.memory(64 << 10);
    Bench { host, pair, data }
}

impl Bench {
    fn code(&mut self, sqe: Sqe) -> StatusCode {
        self.host.io_code(&mut self.pair, sqe)
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.data.view().read(offset, &mut bytes);
        bytes
    }

    fn at(&self, offset: u64) -> u64 {
        self.data.iova().get() + offset
    }
}

#[test]
fn what_is_written_is_read_and_the_rest_is_zero() {
    let mut b = bench(small());
    let pattern: Vec<u8> = (0..1024u32).map(|i| (i * 7 + 1) as u8).collect();
    b.data.view().write(512, &pattern);
    let write = Sqe::write(1, 3, count(2)).with_prp1(b.at(512)).with_cid(9);
    assert_eq!(b.code(write), StatusCode::SUCCESS);
    b.data.view().fill(0xEE);
    let read = Sqe::read(1, 2, count(4)).with_prp1(b.at(0));
    assert_eq!(b.code(read), StatusCode::SUCCESS);
    assert_eq!(b.bytes(0, 512), [0; 512]);
    assert_eq!(b.bytes(512, 1024), pattern);
    assert_eq!(b.bytes(1536, 512), [0; 512]);
    assert_eq!(b.bytes(2048, 1), [0xEE], "not a byte more");
    let counters = b.host.model.counters();
    assert_eq!((counters.reads, counters.writes, counters.io_sqes, counters.io_cqes), (1, 1, 2, 2));
    assert_eq!((counters.read_bytes, counters.write_bytes), (2048, 1024));
    assert_eq!(b.host.model.violations(), []);
}

#[test]
fn an_address_that_is_not_mapped_is_a_failed_test_with_that_address_in_it() {
    let mut b = bench(small());
    let end = b.data.range().end();
    // The second page of the transfer is one too far.
    let read = Sqe::read(1, 0, count(16)).with_prp1(end - 4096).with_prp2(end).with_cid(0x77);
    assert_eq!(b.code(read), StatusCode::DATA_TRANSFER_ERROR);
    let [violation] = b.host.model.violations()[..] else { panic!() };
    assert!(matches!(violation, Violation::Dma { address, .. } if address == end), "{violation}");
    assert!(violation.to_string().contains(&format!("{end:#x} was to be written, but is not mapped")), "{violation}");
    assert_eq!(b.bytes((64 << 10) - 4096, 4096), [0; 4096], "nothing is moved unless all can be");
    assert_eq!(b.host.model.counters().faults, 1);

    assert_eq!(b.code(Sqe::read(1, 0, count(1))), StatusCode::DATA_TRANSFER_ERROR, "PRP1 is zero");
    assert!(matches!(b.host.model.violations()[1], Violation::Dma { address: 0, .. }));
}

#[test]
fn rights_are_checked_by_direction() {
    let mut b = bench(small());
    let readable = super::host::memory(&b.host.space, 4096, Access::DEVICE_READS);
    let writable = super::host::memory(&b.host.space, 4096, Access::DEVICE_WRITES);
    let read = |region: &Region<HostMemory>| Sqe::read(1, 0, count(1)).with_prp1(region.iova().get());
    let write = |region: &Region<HostMemory>| Sqe::write(1, 0, count(1)).with_prp1(region.iova().get());
    assert_eq!(b.code(write(&readable)), StatusCode::SUCCESS);
    assert_eq!(b.code(read(&writable)), StatusCode::SUCCESS);
    assert_eq!(b.host.model.violations(), []);
    assert_eq!(b.code(read(&readable)), StatusCode::DATA_TRANSFER_ERROR);
    assert_eq!(b.code(write(&writable)), StatusCode::DATA_TRANSFER_ERROR);
    assert_eq!(b.host.model.violations().len(), 2);
    assert!(b.host.model.violations()[0].to_string().contains("without that right"));
}

#[test]
fn each_wrong_field_has_its_status() {
    let mut b = bench(ModelConfig { mdts: 3, ..small() });
    let prp1 = b.at(0);
    let blocks = b.host.model.counters();
    assert_eq!(blocks.reads, 0);
    let last = (16 << 20) / 512 - 1;
    let read = |slba, nlb| Sqe::read(1, slba, count(nlb)).with_prp1(prp1);
    for (sqe, code) in [
        (read(last, 1), StatusCode::SUCCESS),
        (read(last, 2), StatusCode::LBA_OUT_OF_RANGE),
        (read(last + 1, 1), StatusCode::LBA_OUT_OF_RANGE),
        (read(u64::MAX, 2), StatusCode::LBA_OUT_OF_RANGE),
        (read(u64::MAX - 1, 1), StatusCode::LBA_OUT_OF_RANGE),
        // MDTS is 8 pages, 64 blocks.
        (read(0, 65), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::read(0, 0, count(1)).with_prp1(prp1), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::read(2, 0, count(1)).with_prp1(prp1), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::write(NSID_ALL, 0, count(1)).with_prp1(prp1), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::flush(2), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::flush(NSID_ALL), StatusCode::SUCCESS),
        (Sqe::flush(1), StatusCode::SUCCESS),
        (read(0, 1).with_fuse(Fuse::FIRST), StatusCode::INVALID_FIELD_IN_COMMAND),
        (read(0, 1).with_psdt(Psdt::SGL_MPTR_BUFFER), StatusCode::INVALID_FIELD_IN_COMMAND),
        (
            Sqe::write(1, 0, count(1)).with_prp1(prp1).with_dtype(DirectiveType::STREAMS),
            StatusCode::INVALID_FIELD_IN_COMMAND,
        ),
        (Sqe::nvm(NvmOpcode::COPY, 1), StatusCode::INVALID_COMMAND_OPCODE),
        (Sqe::nvm(NvmOpcode::from_raw(0xFF), 1), StatusCode::INVALID_COMMAND_OPCODE),
    ] {
        let cqe = b.host.io(&mut b.pair, sqe);
        let status = cqe.status.status();
        assert_eq!(status.code(), code, "{sqe:?}");
        assert_eq!(status.dnr(), code != StatusCode::SUCCESS, "{sqe:?}");
    }
    assert_eq!(b.host.model.violations(), [], "these are a driver's right to try");
    let list = b.host.memory(4096);
    for page in 1..8u64 {
        list.view().write_words((page as usize - 1) * 8, &[prp1 + page * 4096]);
    }
    let full = read(0, 64).with_prp2(list.iova().get());
    assert_eq!(b.code(full), StatusCode::SUCCESS, "MDTS itself is allowed");
    assert_eq!(b.host.model.counters().read_bytes, 512 + 32768);
}

#[test]
fn a_wrong_prp_offset_is_a_status_and_a_violation() {
    let mut b = bench(small());
    let prp1 = b.at(0);
    let wrong = Sqe::read(1, 0, count(16)).with_prp1(prp1).with_prp2(prp1 + 4096 + 512);
    assert_eq!(b.code(wrong), StatusCode::PRP_OFFSET_INVALID);
    assert_eq!(b.code(Sqe::read(1, 0, count(1)).with_prp1(prp1 + 2)), StatusCode::PRP_OFFSET_INVALID);
    let violations = b.host.model.violations();
    assert!(matches!(violations[0], Violation::PrpOffset { entry, .. } if entry == prp1 + 4096 + 512));
    assert!(matches!(violations[1], Violation::PrpOffset { entry, .. } if entry == prp1 + 2));
}

#[test]
fn the_null_store_walks_and_moves_nothing() {
    let mut b = bench(ModelConfig { store: StoreConfig::Null, ..small() });
    b.data.view().fill(0x5A);
    let (read, write) = (Sqe::read(1, 0, count(8)).with_prp1(b.at(0)), Sqe::write(1, 0, count(8)).with_prp1(b.at(0)));
    assert_eq!(b.code(write), StatusCode::SUCCESS);
    assert_eq!(b.code(read), StatusCode::SUCCESS);
    assert_eq!(b.bytes(0, 4096), [0x5A; 4096]);
    let counters = b.host.model.counters();
    assert_eq!((counters.read_bytes, counters.write_bytes), (4096, 4096));
    let unmapped = Sqe::read(1, 0, count(1)).with_prp1(b.data.range().end());
    assert_eq!(b.code(unmapped), StatusCode::DATA_TRANSFER_ERROR, "it is checked all the same");
}

#[test]
fn five_tebibytes_are_there_to_the_last_block() {
    let mut b = bench(ModelConfig { size: 5 << 40, lba_size: 4096, ..small() });
    let last = (5u64 << 40) / 4096 - 1;
    let across = (4u64 << 30) / 4096 - 1;
    for slba in [0, across, last - 1] {
        b.data.view().slice(0, 4096).fill(slba as u8 ^ 0x31);
        b.data.view().slice(4096, 4096).fill(slba as u8 ^ 0x32);
        let write = Sqe::write(1, slba, count(2)).with_prp1(b.at(0)).with_prp2(b.at(4096));
        assert_eq!(b.code(write), StatusCode::SUCCESS);
    }
    for slba in [0, across, last - 1] {
        b.data.view().fill(0);
        let read = Sqe::read(1, slba, count(2)).with_prp1(b.at(0)).with_prp2(b.at(4096));
        assert_eq!(b.code(read), StatusCode::SUCCESS);
        assert_eq!(b.bytes(0, 4096), [slba as u8 ^ 0x31; 4096]);
        assert_eq!(b.bytes(4096, 4096), [slba as u8 ^ 0x32; 4096]);
    }
    let between = Sqe::read(1, across - 1, count(1)).with_prp1(b.at(0));
    assert_eq!(b.code(between), StatusCode::SUCCESS);
    assert_eq!(b.bytes(0, 4096), [0; 4096]);
    assert_eq!(b.code(Sqe::read(1, last, count(2)).with_prp1(b.at(0))), StatusCode::LBA_OUT_OF_RANGE);
}

#[test]
fn what_must_be_durable_is_made_so_and_nothing_else() {
    let persists = |config, commands: fn(u64) -> Vec<Sqe>| {
        let mut b = bench(config);
        for sqe in commands(b.at(0)) {
            assert_eq!(b.code(sqe), StatusCode::SUCCESS);
        }
        b.host.model.counters().persists
    };
    let plain = |prp1| vec![Sqe::write(1, 0, count(1)).with_prp1(prp1), Sqe::read(1, 0, count(1)).with_prp1(prp1)];
    assert_eq!(persists(small(), plain), 0, "there is a cache");
    assert_eq!(persists(ModelConfig { volatile_write_cache: false, ..small() }, plain), 1, "each write");
    assert_eq!(persists(small(), |prp1| vec![Sqe::write(1, 0, count(1)).with_prp1(prp1).with_fua(true)]), 1);
    assert_eq!(persists(small(), |prp1| vec![Sqe::read(1, 0, count(1)).with_prp1(prp1).with_fua(true)]), 1);
    assert_eq!(persists(small(), |_| vec![Sqe::flush(1), Sqe::flush(NSID_ALL)]), 2);
    let mut b = bench(small());
    let off = Sqe::set_features(FeatureIdentifier::VOLATILE_WRITE_CACHE, 0, 0);
    assert_eq!(b.host.code(off), StatusCode::SUCCESS);
    let write = Sqe::write(1, 0, count(1)).with_prp1(b.at(0));
    assert_eq!(b.code(write), StatusCode::SUCCESS);
    assert_eq!(b.host.model.counters().persists, 1, "the cache is off");
}
