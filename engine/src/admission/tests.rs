//! What admission refuses, with which words; and that it never lets anything else through.

use proptest::prelude::*;
use tentpeg_driver::dma::RegionEntry;
use tentpeg_driver::queue::{ControllerLimits, Limits};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::identify::{IdentifyNamespace, LbaFormat};
use tentpeg_driver::spec::registers::Cap;

use super::*;

fn limits(lbads: u8, nsze: u64) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads, rp: 0 };
    ControllerLimits::new(cap, 4096, 5).unwrap().namespace(&namespace).unwrap()
}

/// A segment of `blocks` that starts at block `first_lba` of a namespace that goes on behind it.
fn segment(id: u64, lbads: u8, first_lba: u64, blocks: u64, writable: bool) -> Segment {
    let limits = limits(lbads, first_lba.saturating_add(blocks).saturating_add(1000));
    Segment { id: SegmentId(id), name: "test".into(), nsid: 1, first_lba, capacity: blocks << lbads, writable, limits }
}

fn region(address: u64, len: u64, iova: u64, access: Access) -> RegionEntry {
    RegionEntry { address, len, iova: Iova::new(iova).unwrap(), access }
}

/// Segments 1 (16 blocks of 4,096 bytes from block 100 on), 2 (the same, for reading only) and 3 (blocks of 512).
fn segments() -> [Segment; 3] {
    [segment(1, 12, 100, 16, true), segment(2, 12, 100, 16, false), segment(3, 9, 7, 16, true)]
}

/// 0x10000 to 0x14000 and, touching it, to 0x18000; then one that devices may only write and one they may only read.
fn regions() -> RegionTable {
    RegionTable::new(vec![
        region(0x1_0000, 0x4000, 0x70_0000, Access::all()),
        region(0x1_4000, 0x4000, 0x90_0000, Access::all()),
        region(0x3_0000, 0x4000, 0xa0_0000, Access::DEVICE_WRITES),
        region(0x5_0000, 0x4000, 0xb0_0000, Access::DEVICE_READS),
    ])
    .unwrap()
}

const GOOD: Request =
    Request { opcode: OpCode::Read, source: 0x1_0000, target_id: SegmentId(1), target_offset: 8192, length: 4096 };

#[test]
fn what_is_right_is_admitted_at_its_place() {
    let admit = |request| admit(&request, &segments(), &regions());
    let iova = |value| Iova::new(value).unwrap();
    assert_eq!(admit(GOOD), Ok(Admitted { opcode: OpCode::Read, slba: 102, iova: iova(0x70_0000), length: 4096 }));
    let last = Request { target_offset: 15 * 4096, source: 0x1_7000, opcode: OpCode::Write, ..GOOD };
    assert_eq!(admit(last), Ok(Admitted { opcode: OpCode::Write, slba: 115, iova: iova(0x90_3000), length: 4096 }));
    let small = Request { target_id: SegmentId(3), target_offset: 512, length: 1024, source: 0x1_0004, ..GOOD };
    assert_eq!(admit(small), Ok(Admitted { opcode: OpCode::Read, slba: 8, iova: iova(0x70_0004), length: 1024 }));
    assert!(admit(Request { target_offset: 0, length: 0x4000, ..GOOD }).is_ok(), "the whole of a region");
    assert!(admit(Request { source: 0x3_0000, ..GOOD }).is_ok(), "reading into what devices may write");
    assert!(admit(Request { source: 0x5_0000, opcode: OpCode::Write, ..GOOD }).is_ok(), "writing what they may read");
}

/// Which argument, its value, and what it should be.
#[test]
fn each_mistake_of_a_caller_is_named_with_its_value() {
    let end = u64::MAX - 4095;
    for (request, message) in [
        (Request { target_id: SegmentId(0), ..GOOD }, "target_id 0 is no open segment"),
        (Request { target_id: SegmentId(u64::MAX), ..GOOD }, "target_id 18446744073709551615 is no open segment"),
        (Request { length: 0, ..GOOD }, "length 0 must be a multiple of the block of 4096 bytes, and not 0"),
        (Request { length: 512, ..GOOD }, "length 512 must be a multiple of the block of 4096 bytes, and not 0"),
        (
            Request { length: u64::MAX, ..GOOD },
            "length 18446744073709551615 must be a multiple of the block of 4096 bytes, and not 0",
        ),
        (
            Request { target_id: SegmentId(3), length: 256, ..GOOD },
            "length 256 must be a multiple of the block of 512 bytes, and not 0",
        ),
        (Request { target_offset: 4095, ..GOOD }, "target_offset 4095 must be a multiple of the block of 4096 bytes"),
        (
            Request { target_offset: 16 * 4096, ..GOOD },
            "target_offset 65536 with length 4096 leaves the segment, which has 65536 bytes",
        ),
        (
            Request { target_offset: 15 * 4096, length: 8192, ..GOOD },
            "target_offset 61440 with length 8192 leaves the segment, which has 65536 bytes",
        ),
        (
            Request { target_offset: end, length: 4096, ..GOOD },
            "target_offset 18446744073709547520 with length 4096 leaves the segment, which has 65536 bytes",
        ),
        (
            Request { target_offset: 4096, length: end, ..GOOD },
            "target_offset 4096 with length 18446744073709547520 leaves the segment, which has 65536 bytes",
        ),
        (
            Request { target_id: SegmentId(2), opcode: OpCode::Write, ..GOOD },
            "the segment is open for reading only; a file that exists is opened for writing by 'overwrite' in its URI",
        ),
        (Request { source: 0x1_0002, ..GOOD }, "source 0x10002 must be a multiple of 4"),
        (Request { source: u64::MAX, ..GOOD }, "source 0xffffffffffffffff must be a multiple of 4"),
        (Request { source: 0, ..GOOD }, "source: memory 0x0 lies in no registered region"),
        (Request { source: 0xf000, length: 8192, ..GOOD }, "source: memory 0xf000 lies in no registered region"),
        (
            Request { source: u64::MAX - 3, ..GOOD },
            "source: memory 0xfffffffffffffffc with a length of 4096 bytes is no range",
        ),
        (
            Request { source: 0x1_3004, ..GOOD },
            "source: memory 0x13004 with a length of 4096 bytes spans two regions, which meet at 0x14000: split the \
             request there",
        ),
        (
            Request { source: 0x1_7004, ..GOOD },
            "source: memory 0x17004 with a length of 4096 bytes leaves its region, which ends at 0x18000",
        ),
        (
            Request { source: 0x3_0000, opcode: OpCode::Write, ..GOOD },
            "source 0x30000 was registered for Access(DEVICE_WRITES), the request needs Access(DEVICE_READS)",
        ),
        (
            Request { source: 0x5_0000, ..GOOD },
            "source 0x50000 was registered for Access(DEVICE_READS), the request needs Access(DEVICE_WRITES)",
        ),
    ] {
        let error = admit(&request, &segments(), &regions()).expect_err(message);
        assert_eq!(error.to_string(), message, "{request:?}");
    }
}

/// Numbers near everything that could matter, and all others.
fn number() -> impl Strategy<Value = u64> {
    let near = prop::sample::select(vec![
        0,
        512,
        4096,
        0x1_0000,
        0x1_4000,
        0x1_8000,
        0x3_0000,
        0x5_0000,
        1 << 32,
        1 << 63,
        u64::MAX,
    ]);
    prop_oneof![
        1 => any::<u64>(),
        2 => (near, -16i64..16, prop::sample::select(vec![1i64, 4, 512, 4096]))
            .prop_map(|(base, steps, unit)| base.wrapping_add_signed(steps * unit)),
        3 => (0u64..20).prop_map(|blocks| blocks * 4096),
        3 => (0u64..0x600).prop_map(|dwords| 0x1_0000 + dwords * 64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// Against the same rules in 128 bits, where nothing overflows.
    #[test]
    fn nothing_is_admitted_but_what_lies_inside(
        write: bool, source in number(), target_id in 0u64..5, target_offset in number(), length in number(),
        // The last block of the device has a number near 2^52: its offset in bytes is near 2^64.
        far: bool
    ) {
        let opcode = if write { OpCode::Write } else { OpCode::Read };
        let request = Request { opcode, source, target_id: SegmentId(target_id), target_offset, length };
        let mut segments = segments().to_vec();
        segments.push(segment(4, 12, 0, if far { (1 << 52) - 1 } else { 1 << 20 }, true));
        let table = regions();

        let (offset, long, address) = (u128::from(target_offset), u128::from(length), u128::from(source));
        let target = segments.iter().find(|segment| segment.id.0 == target_id);
        let in_segment = target.is_some_and(|segment| {
            let block = 1u128 << segment.limits.lba_shift();
            long != 0 && long % block == 0 && offset % block == 0 && offset + long <= u128::from(segment.capacity)
                && (!write || segment.writable)
        });
        let home = table.entries().iter().find(|entry| {
            let (start, end) = (u128::from(entry.address), u128::from(entry.address) + u128::from(entry.len));
            let needed = if write { Access::DEVICE_READS } else { Access::DEVICE_WRITES };
            start <= address && address + long <= end && entry.access.contains(needed)
        });
        let expected = (in_segment && address % 4 == 0).then_some(home).flatten();

        match (admit(&request, &segments, &table), expected, target) {
            (Ok(admitted), Some(home), Some(segment)) => {
                prop_assert_eq!((admitted.opcode, admitted.length), (opcode, length));
                prop_assert_eq!(admitted.iova.get(), home.iova.get() + (source - home.address));
                let byte = (u128::from(admitted.slba) - u128::from(segment.first_lba)) << segment.limits.lba_shift();
                prop_assert_eq!(byte, offset);
                prop_assert!(u128::from(admitted.slba) + (long >> segment.limits.lba_shift()) <= u128::from(segment.limits.nsze()));
            }
            (Err(_), None, _) => {}
            (outcome, expected, _) => prop_assert!(false, "{:?}: {:?}, but the reference says {:?}", request, outcome, expected),
        }
    }
}
