//! Commands with SGLs: bytes land where descriptors say, and what is wrong is a status and a violation.

use super::super::{DeallocatedRead, MetadataConfig, ModelConfig, SglConfig, SglSupport, Violation};
use super::bench::{Bench, bench};
use super::host::{count, small};
use crate::spec::command::{Cns, Psdt, Sqe};
use crate::spec::identify::IdentifyController;
use crate::spec::sgl::SglDescriptor;
use crate::spec::status::StatusCode;

fn sgl() -> SglConfig {
    SglConfig { support: SglSupport::Byte, bit_bucket: true, ..SglConfig::default() }
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 8) as u8) ^ seed).collect()
}

impl Bench {
    fn sgl_at(&self, offset: usize, descriptors: &[SglDescriptor]) -> SglDescriptor {
        let words: Vec<u64> = descriptors.iter().flat_map(|descriptor| descriptor.words()).collect();
        self.data.view().write_words(offset, &words);
        SglDescriptor::last_segment(self.at(offset as u64), words.len() as u32 * 8)
    }
}

fn with(sqe: Sqe, first: SglDescriptor) -> Sqe {
    sqe.with_sgl1(first).with_psdt(Psdt::SGL_MPTR_BUFFER)
}

#[test]
fn bytes_lie_where_the_descriptors_say() {
    // A plain namespace, and one whose bytes pass through buffers.
    for deallocated_read in [DeallocatedRead::Zeroes, DeallocatedRead::Ones] {
        let mut b = bench(ModelConfig { sgl: sgl(), deallocated_read, ..small() });
        let sgls = b.identify::<IdentifyController>(Cns::CONTROLLER, 0).sgls;
        assert_eq!(sgls.bits(), 1 | 1 << 16);
        let bytes = pattern(2048, 0x11);
        b.put(7, &bytes[..1001]);
        b.put(5000, &bytes[1001..]);
        let block = |b: &Bench, at, len| SglDescriptor::data_block(b.at(at), len);
        let bucket = SglDescriptor::bit_bucket;
        let list = [block(&b, 7, 1001), bucket(99), block(&b, 5000, 1047)];
        let first = b.sgl_at(32 << 10, &list);
        assert_eq!(b.code(with(Sqe::write(1, 3, count(4)), first)), StatusCode::SUCCESS, "a write counts no bucket");
        b.data.view().fill(0xEE);
        let list = [block(&b, 1, 13), bucket(600), block(&b, 901, 400), block(&b, 20001, 35), bucket(1000)];
        let first = b.sgl_at(32 << 10, &list);
        assert_eq!(b.code(with(Sqe::read(1, 3, count(4)), first)), StatusCode::SUCCESS);
        let mut expected = vec![0xEE; 20040];
        expected[1..14].copy_from_slice(&bytes[..13]);
        expected[901..1301].copy_from_slice(&bytes[613..1013]);
        expected[20001..20036].copy_from_slice(&bytes[1013..1048]);
        assert_eq!(b.bytes(0, 20040), expected);
        let counters = b.host.model.counters();
        assert_eq!((counters.read_bytes, counters.write_bytes), (2048, 2048));
        assert_eq!((counters.sgl_segments, counters.sgl_descriptors), (2, 10));
        assert_eq!(b.host.model.violations(), []);
    }
}

#[test]
fn dataset_management_and_compare_take_sgls_too() {
    let mut b = bench(ModelConfig { sgl: sgl(), ..small() });
    b.put(0, &[0x5A; 512]);
    let data = SglDescriptor::data_block(b.at(0), 512);
    assert_eq!(b.code(with(Sqe::write(1, 9, count(1)), data)), StatusCode::SUCCESS);
    assert_eq!(b.code(with(Sqe::compare(1, 9, count(1)), data)), StatusCode::SUCCESS);
    b.data.view().write_words(1024, &[1 << 32, 9]);
    let range = SglDescriptor::data_block(b.at(1024), 16);
    let deallocate = Sqe::dataset_management(1, crate::spec::ZeroesBased::<u8>::ONE).with_ad(true);
    assert_eq!(b.code(with(deallocate, range)), StatusCode::SUCCESS);
    assert_eq!(b.code(with(Sqe::compare(1, 9, count(1)), data)), StatusCode::COMPARE_FAILURE);
}

#[test]
fn what_is_wrong_is_a_status_and_a_violation() {
    let mut b = bench(ModelConfig { sgl: sgl(), ..small() });
    let read = Sqe::read(1, 0, count(1)).with_cid(0x33);
    let keyed = SglDescriptor::from_words([b.at(0), 0x40 << 56 | 512]);
    assert_eq!(b.code(with(read, keyed)), StatusCode::SGL_DESCRIPTOR_TYPE_INVALID);
    let short = SglDescriptor::data_block(b.at(0), 500);
    assert_eq!(b.code(with(read, short)), StatusCode::DATA_SGL_LENGTH_INVALID);
    let nowhere = SglDescriptor::data_block(b.data.range().end(), 512);
    assert_eq!(b.code(with(read, nowhere)), StatusCode::DATA_TRANSFER_ERROR);
    let lost = SglDescriptor::last_segment(b.data.range().end(), 16);
    assert_eq!(b.code(with(read, lost)), StatusCode::DATA_TRANSFER_ERROR);
    let violations = b.host.model.violations();
    assert!(matches!(violations[0], Violation::Sgl { cid: 0x33, at: 0, descriptor, .. } if descriptor == keyed));
    assert!(matches!(violations[1], Violation::SglLength { described: 500, wanted: 512, .. }));
    let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
    assert!(texts[0].contains("SGL Descriptor Type Invalid"), "{}", texts[0]);
    assert!(texts[1].contains("describes 500 bytes and not 512"), "{}", texts[1]);
    assert!(texts[2].contains("the data of command 0x33"), "{}", texts[2]);
    assert!(texts[3].contains("an SGL segment of command 0x33"), "{}", texts[3]);
    assert_eq!(violations.len(), 4);
}

#[test]
fn what_is_not_offered_is_an_invalid_field() {
    let refused = |config: SglConfig, psdt| {
        let mut b = bench(ModelConfig { sgl: config, ..small() });
        let sqe = Sqe::read(1, 0, count(1)).with_sgl1(SglDescriptor::data_block(b.at(0), 512)).with_psdt(psdt);
        let code = b.code(sqe);
        assert_eq!(b.host.model.violations(), []);
        code
    };
    let (buffer, segment) = (Psdt::SGL_MPTR_BUFFER, Psdt::SGL_MPTR_SGL);
    let none = SglConfig { metadata_sgl: true, ..SglConfig::default() };
    for (config, psdt, code) in [
        (none, buffer, StatusCode::INVALID_FIELD_IN_COMMAND),
        (none, segment, StatusCode::INVALID_FIELD_IN_COMMAND),
        (sgl(), segment, StatusCode::INVALID_FIELD_IN_COMMAND),
        (sgl(), Psdt::from_raw(3), StatusCode::INVALID_FIELD_IN_COMMAND),
        (sgl(), buffer, StatusCode::SUCCESS),
        (SglConfig { metadata_sgl: true, ..sgl() }, segment, StatusCode::SUCCESS),
    ] {
        assert_eq!(refused(config, psdt), code, "{config:?} {psdt:?}");
    }
}

#[test]
fn metadata_by_buffer_and_by_segment() {
    let metadata = MetadataConfig { size: 16, ..MetadataConfig::default() };
    let sgl = SglConfig { metadata_byte_aligned: true, metadata_sgl: true, ..sgl() };
    let mut b = bench(ModelConfig { sgl, metadata, ..small() });
    let beside = pattern(32, 0x22);
    b.put(8001, &beside);
    let data = SglDescriptor::data_block(b.at(1), 1024);
    let (write, read) = (Sqe::write(1, 5, count(2)), Sqe::read(1, 5, count(2)));
    assert_eq!(b.code(with(write, data).with_mptr(b.at(8001))), StatusCode::SUCCESS, "at any byte");
    assert_eq!(b.code(with(read, data).with_mptr(b.at(9003))), StatusCode::SUCCESS);
    assert_eq!(b.bytes(9003, 32), beside);

    // One descriptor at MPTR, which leads to a segment of two blocks and a bucket.
    let blocks = [
        SglDescriptor::data_block(b.at(10_001), 10),
        SglDescriptor::bit_bucket(5),
        SglDescriptor::data_block(b.at(11_001), 17),
    ];
    let first = b.sgl_at(16 << 10, &blocks);
    b.sgl_at(12 << 10, &[first]);
    let by_segment = |sqe: Sqe, mptr| sqe.with_sgl1(data).with_psdt(Psdt::SGL_MPTR_SGL).with_mptr(mptr);
    let sqe = by_segment(read, b.at(12 << 10));
    assert_eq!(b.code(sqe), StatusCode::SUCCESS);
    assert_eq!((b.bytes(10_001, 10), b.bytes(11_001, 17)), (beside[..10].to_vec(), beside[15..].to_vec()));
    assert_eq!(b.bytes(10_011, 1), [0], "not a byte more");
    assert_eq!(b.host.model.violations(), []);

    let sqe = by_segment(write, b.at(12 << 10));
    assert_eq!(b.code(sqe), StatusCode::METADATA_SGL_LENGTH_INVALID, "27 bytes without the bucket");
    let sqe = by_segment(read, b.at((12 << 10) + 4));
    assert_eq!(b.code(sqe), StatusCode::INVALID_FIELD_IN_COMMAND);
    let sqe = by_segment(read, b.data.range().end());
    assert_eq!(b.code(sqe), StatusCode::DATA_TRANSFER_ERROR);
    let sqe = with(read, data).with_mptr(b.data.range().end() - 4);
    assert_eq!(b.code(sqe), StatusCode::DATA_TRANSFER_ERROR);
    assert!(b.host.model.violations()[2].to_string().contains("the metadata of command"));
    assert_eq!(b.code(read.with_prp1(b.at(0)).with_mptr(b.at(2))), StatusCode::INVALID_FIELD_IN_COMMAND, "a dword");
}
