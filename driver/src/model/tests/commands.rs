//! Write Zeroes, Dataset Management, Compare and Verify: what they do, and every status that the model has for them.

use super::super::{
    DatasetManagementLimits, DeallocatedRead, IoCommandsConfig, MetadataConfig, ModelConfig, StoreConfig,
};
use super::bench::{Bench, bench};
use super::host::{count, small};
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, DatasetManagementRange, NSID_ALL, NvmOpcode, Sqe};
use crate::spec::identify::{IdentifyController, IdentifyControllerNvm, IdentifyNamespace, LbaFormat, Nsfeat, Oncs};
use crate::spec::status::StatusCode;
use zerocopy::IntoBytes;

const BLOCKS: u64 = (16 << 20) / 512;

fn verify(slba: u64, nlb: u32) -> Sqe {
    Sqe::nvm(NvmOpcode::VERIFY, 1).with_slba(slba).with_nlb(count(nlb))
}

impl Bench {
    fn write(&mut self, slba: u64, nlb: u32, byte: u8) {
        let len = nlb as usize * 512;
        self.put(0, &vec![byte; len]);
        let sqe = self.with_prps(Sqe::write(1, slba, count(nlb)), len);
        assert_eq!(self.code(sqe), StatusCode::SUCCESS);
    }

    /// The first byte of each block, all bytes of which are equal.
    fn read(&mut self, slba: u64, nlb: u32) -> Vec<u8> {
        let len = nlb as usize * 512;
        self.put(0, &vec![0x77; len]);
        let sqe = self.with_prps(Sqe::read(1, slba, count(nlb)), len);
        assert_eq!(self.code(sqe), StatusCode::SUCCESS);
        let bytes = self.bytes(0, len);
        bytes.chunks(512).map(|block| block.iter().all(|byte| *byte == block[0]).then_some(block[0]).unwrap()).collect()
    }

    /// Dataset Management over ranges of (first LBA, blocks).
    fn deallocate(&mut self, ranges: &[(u64, u32)]) -> StatusCode {
        let sqe = self.management(ranges);
        self.code(sqe.with_ad(true))
    }

    fn management(&mut self, ranges: &[(u64, u32)]) -> Sqe {
        for (index, (slba, lengthlb)) in ranges.iter().enumerate() {
            let range = DatasetManagementRange { cattr: 0, lengthlb: *lengthlb, slba: *slba };
            self.put(index * 16, range.as_bytes());
        }
        let nr = ZeroesBased::<u8>::from_count(ranges.len() as u32).unwrap();
        Sqe::dataset_management(1, nr).with_prp1(self.at(0))
    }
}

#[test]
fn zeroes_are_written_without_data() {
    for drb in [DeallocatedRead::NotReported, DeallocatedRead::Zeroes, DeallocatedRead::Ones] {
        for deac in [false, true] {
            let mut b = bench(ModelConfig { deallocated_read: drb, ..small() });
            b.write(10, 4, 0xA1);
            assert_eq!(b.code(Sqe::write_zeroes(1, 11, count(2)).with_deac(deac)), StatusCode::SUCCESS);
            assert_eq!(b.read(10, 4), [0xA1, 0, 0, 0xA1], "{drb:?} {deac}");
            // All that one command can name: far more than MDTS and one page of the store.
            b.write(0, 4, 0xA2);
            b.write(BLOCKS - 2, 2, 0xA3);
            assert_eq!(
                b.code(Sqe::write_zeroes(1, 1, count((BLOCKS - 2) as u32)).with_deac(deac)),
                StatusCode::SUCCESS
            );
            assert_eq!((b.read(0, 4), b.read(BLOCKS - 2, 2)), (vec![0xA2, 0, 0, 0], vec![0, 0xA3]), "{drb:?} {deac}");
            assert_eq!(b.host.model.counters().write_zeroes, 2);
        }
    }
}

#[test]
fn deallocated_blocks_read_as_dlfeat_says() {
    for (drb, reported, unwritten, deallocated) in [
        (DeallocatedRead::NotReported, 0, 0, 0xB1),
        (DeallocatedRead::Zeroes, 1, 0, 0),
        (DeallocatedRead::Ones, 2, 0xFF, 0xFF),
    ] {
        for store in [StoreConfig::Memory, file_store()] {
            let mut b = bench(ModelConfig { deallocated_read: drb, store, ..small() });
            let namespace: IdentifyNamespace = b.identify(Cns::NAMESPACE, 1);
            assert_eq!(
                (namespace.dlfeat.drb(), namespace.dlfeat.wzds(), namespace.dlfeat.gds()),
                (reported, true, false)
            );
            b.write(100, 300, 0xB1);
            assert_eq!(b.deallocate(&[(101, 1), (103, 0), (104, 290), (u64::MAX, 0)]), StatusCode::SUCCESS);
            let mut expected = vec![0xB1; 300];
            expected[1] = deallocated;
            expected[4..294].fill(deallocated);
            assert_eq!(b.read(100, 300), expected, "{drb:?}");
            assert_eq!(b.read(5000, 2), [unwritten; 2], "{drb:?}");
            b.write(104, 1, 0xB2);
            assert_eq!(b.read(104, 2), [0xB2, deallocated]);
        }
    }
}

/// A file as long as a small model, that lives as long as the process has it open.
fn file_store() -> StoreConfig {
    let (_, path) = tempfile::NamedTempFile::new().unwrap().keep().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(16 << 20).unwrap();
    StoreConfig::File { path, writable: true }
}

#[test]
fn hints_change_nothing() {
    let mut b = bench(small());
    b.write(0, 8, 0xC1);
    let sqe = b.management(&[(0, 8)]);
    assert_eq!(b.code(sqe.with_idr(true).with_idw(true)), StatusCode::SUCCESS);
    assert_eq!(b.read(0, 8), [0xC1; 8]);
    assert_eq!(b.host.model.counters().dataset_managements, 1);
}

#[test]
fn two_hundred_and_fifty_six_ranges() {
    let mut b = bench(small());
    b.write(0, 256, 0xC2);
    b.write(256, 256, 0xC2);
    let ranges: Vec<_> = (0..256).map(|index| (index * 2, 1)).collect();
    assert_eq!(b.deallocate(&ranges), StatusCode::SUCCESS);
    let expected: Vec<u8> = (0..512).map(|lba| if lba % 2 == 0 { 0 } else { 0xC2 }).collect();
    assert_eq!([b.read(0, 256), b.read(256, 256)].concat(), expected);
}

#[test]
fn limits_abort_or_leave_out() {
    let limits = |strict| DatasetManagementLimits { dmrl: 2, dmrsl: 3, dmsl: 5, strict };
    let config = |strict| ModelConfig {
        io_commands: IoCommandsConfig {
            dataset_management_limits: Some(limits(strict)),
            ..IoCommandsConfig::default()
        },
        ..small()
    };
    let mut b = bench(config(true));
    let nvm: IdentifyControllerNvm = b.identify(Cns::IO_COMMAND_SET_CONTROLLER, 0);
    assert_eq!((nvm.dmrl, nvm.dmrsl, nvm.dmsl), (2, 3, 5));
    assert!(!b.identify::<IdentifyController>(Cns::CONTROLLER, 0).oncs.contains(Oncs::DATASET_MANAGEMENT));
    b.write(0, 16, 0xC3);
    for (ranges, code) in [
        (&[(0, 3), (4, 2)][..], StatusCode::SUCCESS),
        (&[(0, 1), (4, 1), (8, 1)], StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED),
        (&[(8, 4)], StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED),
        (&[(8, 3), (12, 3)], StatusCode::COMMAND_SIZE_LIMIT_EXCEEDED),
    ] {
        assert_eq!(b.deallocate(ranges), code, "{ranges:?}");
    }
    let left = |gone: &[usize]| (0..16).map(|lba| if gone.contains(&lba) { 0 } else { 0xC3 }).collect::<Vec<u8>>();
    assert_eq!(b.read(0, 16), left(&[0, 1, 2, 4, 5]));

    let mut b = bench(config(false));
    assert!(b.identify::<IdentifyController>(Cns::CONTROLLER, 0).oncs.contains(Oncs::DATASET_MANAGEMENT));
    b.write(0, 16, 0xC3);
    assert_eq!(b.deallocate(&[(0, 4), (5, 3), (12, 1)]), StatusCode::SUCCESS);
    assert_eq!(b.read(0, 16), left(&[0, 1, 2, 5, 6]), "three of the first range, five in all, two ranges");
}

#[test]
fn what_is_equal_compares_and_what_is_not_does_not() {
    let mut b = bench(small());
    b.write(20, 8, 0xD1);
    let compare = |b: &Bench, slba, nlb: u32| b.with_prps(Sqe::compare(1, slba, count(nlb)), nlb as usize * 512);
    b.put(0, &[0xD1; 4096]);
    let sqe = compare(&b, 20, 8);
    assert_eq!(b.code(sqe), StatusCode::SUCCESS);
    b.put(4095, &[0xD0]);
    let status = b.host.io(&mut b.pair, sqe).status.status();
    assert_eq!((status.code(), status.dnr()), (StatusCode::COMPARE_FAILURE, true));
    b.put(0, &[0; 512]);
    let sqe = compare(&b, 28, 1);
    assert_eq!(b.code(sqe), StatusCode::SUCCESS, "never written");
    assert_eq!(b.read(20, 8), [0xD1; 8], "nothing is written");
    assert_eq!(b.host.model.counters().compares, 3);
    assert_eq!(b.host.model.violations(), []);
}

#[test]
fn each_wrong_field_has_its_status() {
    use StatusCode as S;
    let mut b = bench(ModelConfig { mdts: 1, ..small() });
    let prp1 = b.at(0);
    let compare = |slba, nlb| Sqe::compare(1, slba, count(nlb)).with_prp1(prp1);
    let zeroes = |slba, nlb| Sqe::write_zeroes(1, slba, count(nlb));
    let one = ZeroesBased::<u8>::ONE;
    for (sqe, code) in [
        (zeroes(BLOCKS - 1, 1), S::SUCCESS),
        (zeroes(BLOCKS - 1, 2), S::LBA_OUT_OF_RANGE),
        (zeroes(u64::MAX, 1), S::LBA_OUT_OF_RANGE),
        (zeroes(0, 17), S::SUCCESS),
        (zeroes(0, 1).with_nsz(true), S::INVALID_FIELD_IN_COMMAND),
        (Sqe::write_zeroes(2, 0, count(1)), S::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::write_zeroes(NSID_ALL, 0, count(1)), S::INVALID_NAMESPACE_OR_FORMAT),
        (verify(0, BLOCKS as u32), S::SUCCESS),
        (verify(1, BLOCKS as u32), S::LBA_OUT_OF_RANGE),
        (compare(0, 16).with_prp2(prp1 + 4096), S::SUCCESS),
        (compare(0, 17), S::INVALID_FIELD_IN_COMMAND),
        (compare(BLOCKS, 1), S::LBA_OUT_OF_RANGE),
        (Sqe::compare(0, 0, count(1)).with_prp1(prp1), S::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::dataset_management(2, one).with_prp1(prp1), S::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        let status = b.host.io(&mut b.pair, sqe).status.status();
        assert_eq!((status.code(), status.dnr()), (code, code != S::SUCCESS), "{sqe:?}");
    }
    for (ranges, code) in [
        (&[(BLOCKS - 1, 1)][..], S::SUCCESS),
        (&[(BLOCKS, 1)], S::LBA_OUT_OF_RANGE),
        (&[(0, 1), (BLOCKS - 1, 2)], S::LBA_OUT_OF_RANGE),
        (&[(u64::MAX, u32::MAX)], S::LBA_OUT_OF_RANGE),
    ] {
        assert_eq!(b.deallocate(ranges), code, "{ranges:?}");
    }
    b.write(0, 1, 0xE1);
    assert_eq!(b.deallocate(&[(0, 1), (BLOCKS, 1)]), S::LBA_OUT_OF_RANGE);
    assert_eq!(b.read(0, 1), [0xE1], "nothing is done unless all can be");
    assert_eq!(b.host.model.violations(), []);
    assert_eq!(b.code(Sqe::dataset_management(1, one)), S::DATA_TRANSFER_ERROR, "the ranges are not mapped");
}

#[test]
fn each_command_can_be_left_out() {
    let all = IoCommandsConfig::default();
    let bits = [Oncs::COMPARE, Oncs::VERIFY, Oncs::WRITE_ZEROES, Oncs::DATASET_MANAGEMENT];
    let whole = bits.into_iter().fold(Oncs::empty(), |all, bit| all | bit);
    for (index, (without, bit)) in [
        IoCommandsConfig { compare: false, ..all.clone() },
        IoCommandsConfig { verify: false, ..all.clone() },
        IoCommandsConfig { write_zeroes: false, ..all.clone() },
        IoCommandsConfig { dataset_management: false, ..all.clone() },
    ]
    .into_iter()
    .zip(bits)
    .enumerate()
    {
        let mut b = bench(ModelConfig { io_commands: without, ..small() });
        assert_eq!(b.identify::<IdentifyController>(Cns::CONTROLLER, 0).oncs & whole, whole - bit);
        let prp1 = b.at(0);
        let commands = [
            Sqe::compare(1, 0, count(1)).with_prp1(prp1),
            verify(0, 1),
            Sqe::write_zeroes(1, 0, count(1)),
            Sqe::dataset_management(1, ZeroesBased::<u8>::ONE).with_prp1(prp1),
        ];
        for (other, sqe) in commands.into_iter().enumerate() {
            let code = if other == index { StatusCode::INVALID_COMMAND_OPCODE } else { StatusCode::SUCCESS };
            assert_eq!(b.code(sqe), code, "{bit:?} left out, {sqe:?}");
        }
    }
    let mut b =
        bench(ModelConfig { io_commands: IoCommandsConfig { write_zeroes_deallocate: false, ..all }, ..small() });
    assert!(!b.identify::<IdentifyNamespace>(Cns::NAMESPACE, 1).dlfeat.wzds());
    assert_eq!(b.code(Sqe::write_zeroes(1, 0, count(1)).with_deac(true)), StatusCode::INVALID_FIELD_IN_COMMAND);
}

#[test]
fn what_may_not_be_written_is_not() {
    let StoreConfig::File { path, .. } = file_store() else { unreachable!("that is what it makes") };
    let mut b = bench(ModelConfig { store: StoreConfig::File { path, writable: false }, ..small() });
    assert_eq!(b.code(Sqe::write_zeroes(1, 0, count(1))), StatusCode::NAMESPACE_IS_WRITE_PROTECTED);
    assert_eq!(b.deallocate(&[(0, 1)]), StatusCode::NAMESPACE_IS_WRITE_PROTECTED);
    let sqe = b.management(&[(0, 1)]);
    assert_eq!(b.code(sqe), StatusCode::SUCCESS, "a hint writes nothing");
    assert_eq!(b.code(verify(0, 8)), StatusCode::SUCCESS);
}

#[test]
fn the_namespace_says_what_it_is() {
    let metadata = MetadataConfig { size: 16, extended: true, protection_type: 2, first_eight: true };
    let mut b = bench(ModelConfig { metadata, awun: 15, awupf: 7, npwg: 3, noiob: 256, ..small() });
    let controller: IdentifyController = b.identify(Cns::CONTROLLER, 0);
    assert_eq!((controller.awun.count(), controller.awupf.count(), controller.sgls.bits()), (16, 8, 0));
    let namespace: IdentifyNamespace = b.identify(Cns::NAMESPACE, 1);
    assert_eq!(namespace.current_lba_format(), Some(LbaFormat { ms: 16, lbads: 9, rp: 0 }));
    assert!(namespace.flbas.metadata_extended());
    assert_eq!((namespace.mc, namespace.dpc, namespace.dps.bits()), (0b11, 0b1_1111, 0b0000_1010));
    assert_eq!((namespace.npwg.count(), namespace.noiob, namespace.nsfeat), (4, 256, Nsfeat::OPTIMAL_PERFORMANCE));
    let namespace: IdentifyNamespace = bench(small()).identify(Cns::NAMESPACE, 1);
    assert_eq!((namespace.mc, namespace.dpc, namespace.dps.bits(), namespace.flbas.bits()), (0, 0, 0, 0));
}
