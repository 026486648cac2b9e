//! What admission refuses, with which words; and that it never lets anything else through.

use proptest::prelude::*;
use tentpeg_driver::dma::RegionEntry;
use tentpeg_driver::queue::{ControllerLimits, Limits};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::identify::{IdentifyNamespace, LbaFormat};
use tentpeg_driver::spec::registers::Cap;

use super::*;
use crate::lanes::LaneSet;
use crate::memory::StagedEntry;
use crate::segment::{BlockExtent, DeviceTraits, MemberLayout, SegmentLayout};

fn limits(lbads: u8, nsze: u64) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads, rp: 0 };
    ControllerLimits::new(cap, 4096, 5).unwrap().namespace(&namespace).unwrap()
}

/// A segment of `blocks` that starts at block `first_lba` of a namespace that goes on behind it.
fn segment(id: u64, lbads: u8, first_lba: u64, blocks: u64, writable: bool) -> Segment {
    let extent = BlockExtent::new(first_lba, blocks).unwrap();
    let mut layout = SegmentLayout::whole("test", 0, blocks);
    layout.members[0].extents = vec![extent];
    open(id, layout, lbads, first_lba.saturating_add(blocks).saturating_add(1000), writable)
}

fn open(id: u64, layout: SegmentLayout, lbads: u8, nsze: u64, writable: bool) -> Segment {
    let traits =
        DeviceTraits { limits: limits(lbads, nsze), writable, deallocates: writable, deallocated_is_zero: true };
    Segment::new(SegmentId(id), layout, &[traits; 3]).unwrap()
}

fn region(address: u64, len: u64, iova: u64, access: Access) -> RegionEntry {
    RegionEntry { address, len, iova: Iova::new(iova).unwrap(), access }
}

/// Segments 1 (16 blocks of 4,096 bytes from block 100 on), 2 (the same, for reading only) and 3 (blocks of 512).
fn segments() -> [Segment; 3] {
    [segment(1, 12, 100, 16, true), segment(2, 12, 100, 16, false), segment(3, 9, 7, 16, true)]
}

/// 0x10000 to 0x14000 and, touching it, to 0x18000; then one that devices may only write and one they may only read.
fn regions() -> Nameable {
    let direct = RegionTable::new(vec![
        region(0x1_0000, 0x4000, 0x70_0000, Access::all()),
        region(0x1_4000, 0x4000, 0x90_0000, Access::all()),
        region(0x3_0000, 0x4000, 0xa0_0000, Access::DEVICE_WRITES),
        region(0x5_0000, 0x4000, 0xb0_0000, Access::DEVICE_READS),
    ]);
    Nameable::new(direct.unwrap(), Vec::new())
}

const GOOD: Request =
    Request { opcode: OpCode::Read, source: 0x1_0000, target_id: SegmentId(1), target_offset: 8192, length: 4096 };

#[test]
fn what_is_right_is_admitted_at_its_place() {
    let admit = |request| admit(&request, &segments(), &regions());
    let transfer = |opcode, segment, slba, iova, length| {
        let head = Head::transfer(opcode, Durability::None, 0, segment);
        Ok(Work::Transfer(Transfer { head, slba, iova: Iova::new(iova).unwrap(), length }))
    };
    assert_eq!(admit(GOOD), transfer(OpCode::Read, 0, 102, 0x70_0000, 4096));
    let last = Request { target_offset: 15 * 4096, source: 0x1_7000, opcode: OpCode::Write, ..GOOD };
    assert_eq!(admit(last), transfer(OpCode::Write, 0, 115, 0x90_3000, 4096));
    let small = Request { target_id: SegmentId(3), target_offset: 512, length: 1024, source: 0x1_0004, ..GOOD };
    assert_eq!(admit(small), transfer(OpCode::Read, 2, 8, 0x70_0004, 1024));
    assert!(admit(Request { target_offset: 0, length: 0x4000, ..GOOD }).is_ok(), "the whole of a region");
    assert!(admit(Request { source: 0x3_0000, ..GOOD }).is_ok(), "reading into what devices may write");
    assert!(admit(Request { source: 0x5_0000, opcode: OpCode::Write, ..GOOD }).is_ok(), "writing what they may read");
}

/// What is right, and plain, needs no second look; what is not gets one.
#[test]
fn what_is_plain_is_admitted_at_first_sight() {
    let (segments, regions) = (segments(), regions());
    let at_first_sight = |request| Plain::new(&segments, &regions.direct).transfer(&request).map(Work::Transfer);
    for request in [
        GOOD,
        Request { opcode: OpCode::Write, ..GOOD },
        Request { target_id: SegmentId(2), ..GOOD },
        Request { target_id: SegmentId(3), target_offset: 15 * 512, length: 512, source: 0x1_7e00, ..GOOD },
    ] {
        assert_eq!(at_first_sight(request), Some(admit(&request, &segments, &regions).unwrap()), "{request:?}");
    }
    for request in [
        Request { target_id: SegmentId(2), opcode: OpCode::Write, ..GOOD },
        Request { target_offset: 16 * 4096, ..GOOD },
        // Each is off by as much as the other.
        Request { target_offset: 100, length: 4096 + 100, ..GOOD },
        Request { target_offset: 100, length: 4096 - 100, ..GOOD },
    ] {
        assert_eq!(at_first_sight(request), None, "{request:?}");
        assert!(admit(&request, &segments, &regions).is_err(), "{request:?}");
    }
}

/// Memory that no device reaches, and such as is on no dword, where that may be copied.
#[test]
fn what_may_be_staged_is_admitted_so() {
    let entry = |address, len, access| StagedEntry { address, len, access };
    let staged = vec![
        entry(0x1_0000, 0x4000, Access::all()),
        entry(0x8_0001, 0x4000, Access::all()),
        entry(0x9_0000, 0x4000, Access::DEVICE_READS),
    ];
    let memory = Nameable::new(regions().direct, staged);
    let segments = segments();
    let admit = |request: Request| admit(&request, &segments, &memory);
    let copied = |operation, offset, source| {
        let head = Head::spread(operation, Durability::None, 0);
        Ok(Work::Spread(Spread { head, lanes: LaneSet::one(0), offset, memory: source, length: 4096 }))
    };
    let (read, write) = (Operation::StagedRead, Operation::StagedWrite);
    let at = |source| Request { source, ..GOOD };
    let writing = |source| Request { opcode: OpCode::Write, ..at(source) };
    assert_eq!(admit(at(0x8_0001)), copied(read, 8192, 0x8_0001));
    assert_eq!(admit(at(0x8_0004)), copied(read, 8192, 0x8_0004), "on a dword, and devices do not reach it");
    assert_eq!(admit(writing(0x8_3001)), copied(write, 8192, 0x8_3001), "to its last byte");
    assert_eq!(admit(writing(0x1_0003)), copied(write, 8192, 0x1_0003));
    assert!(matches!(admit(at(0x1_0000)), Ok(Work::Transfer(_))), "devices reach it as it is");
    assert_eq!(admit(writing(0x9_0000)), copied(write, 8192, 0x9_0000));
    for (request, message) in [
        (at(0x9_0000), "was registered for Access(DEVICE_READS), the request needs Access(DEVICE_WRITES)"),
        (at(0x9_0001), "was registered for Access(DEVICE_READS), the request needs Access(DEVICE_WRITES)"),
        (at(0x8_0000), "memory 0x80000 lies in no registered region"),
        (at(0x8_3002), "memory 0x83002 with a length of 4096 bytes leaves its region, which ends at 0x84001"),
        (at(0x8_3004), "memory 0x83004 with a length of 4096 bytes leaves its region, which ends at 0x84001"),
        (at(0x1_3001), "memory 0x13001 with a length of 4096 bytes leaves its region, which ends at 0x14000"),
        (at(0x1_4001), "source 0x14001 must be a multiple of 4"),
        (Request { length: 4095, ..writing(0x8_0001) }, "length 4095 must be a multiple of the block"),
        (Request { target_offset: 1, ..at(0x8_0001) }, "target_offset 1 must be a multiple of the block"),
        (Request { target_offset: 1 << 20, ..at(0x8_0001) }, "leaves the segment, which has 65536 bytes"),
        (Request { target_id: SegmentId(2), ..writing(0x8_0001) }, "the segment is open for reading only"),
    ] {
        let refused = admit(request).unwrap_err().to_string();
        assert!(refused.contains(message), "{refused}");
    }
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
        (
            Request { target_id: SegmentId(2), opcode: OpCode::Write, source: 0x1_0002, ..GOOD },
            "the segment is open for reading only; a file that exists is opened for writing by 'overwrite' in its URI",
        ),
        (Request { target_id: SegmentId(2), source: 0x1_0002, ..GOOD }, "source 0x10002 must be a multiple of 4"),
        (
            Request { target_offset: 100, length: 4096 + 100, ..GOOD },
            "length 4196 must be a multiple of the block of 4096 bytes, and not 0",
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
        far: bool, before in number()
    ) {
        let opcode = if write { OpCode::Write } else { OpCode::Read };
        let request = Request { opcode, source, target_id: SegmentId(target_id), target_offset, length };
        let mut segments = segments().to_vec();
        segments.push(segment(4, 12, 0, if far { (1 << 52) - 1 } else { 1 << 20 }, true));
        let table = regions();

        let (offset, long, address) = (u128::from(target_offset), u128::from(length), u128::from(source));
        let target = segments.iter().find(|segment| segment.id.0 == target_id);
        let in_segment = target.is_some_and(|segment| {
            let block = u128::from(segment.lba_size);
            long != 0 && long % block == 0 && offset % block == 0 && offset + long <= u128::from(segment.capacity)
                && (!write || segment.writable)
        });
        let home = table.direct.entries().iter().find(|entry| {
            let (start, end) = (u128::from(entry.address), u128::from(entry.address) + u128::from(entry.len));
            let needed = if write { Access::DEVICE_READS } else { Access::DEVICE_WRITES };
            start <= address && address + long <= end && entry.access.contains(needed)
        });
        let expected = (in_segment && address % 4 == 0).then_some(home).flatten();

        // Whatever the one before was.
        let mut plain = Plain::new(&segments, &table.direct);
        plain.transfer(&Request { source: before, ..GOOD });
        let admitted = admit(&request, &segments, &table);
        let transfer = plain.transfer(&request).map(Work::Transfer);
        prop_assert_eq!(transfer, admitted.ok(), "every segment here is one extent");

        match (admitted, expected, target) {
            (Ok(Work::Transfer(admitted)), Some(home), Some(segment)) => {
                let extent = segment.layout.members[0].extents[0];
                prop_assert_eq!((admitted.head.opcode(), admitted.length), (opcode, length));
                prop_assert_eq!(admitted.head.segment() as u64 + 1, target_id);
                prop_assert_eq!(admitted.iova.get(), home.iova.get() + (source - home.address));
                let byte = (u128::from(admitted.slba) - u128::from(extent.slba())) << segment.lba_shift;
                prop_assert_eq!(byte, offset);
                prop_assert!(u128::from(admitted.slba) + (long >> segment.lba_shift) <= u128::from(extent.slba()) + u128::from(extent.blocks()));
            }
            (Err(_), None, _) => {}
            (outcome, expected, _) => prop_assert!(false, "{:?}: {:?}, but the reference says {:?}", request, outcome, expected),
        }
    }
}

/// A stripe of three, two blocks of 512 a chunk, opened for unaligned reads.
fn striped() -> Segment {
    let members = (0..3).map(|device| MemberLayout { device, extents: vec![BlockExtent::new(10, 8).unwrap()] });
    let layout = SegmentLayout {
        members: members.collect(),
        chunk: 1024,
        unaligned_reads: true,
        durability: Durability::Flush,
        ..SegmentLayout::whole("striped", 0, 0)
    };
    open(1, layout, 9, 100, true)
}

#[test]
fn a_request_of_a_stripe_goes_where_its_chunks_are() {
    let admit = |target_offset, length, source| {
        let request = Request { target_offset, length, source, ..GOOD };
        admit(&request, &[striped()], &regions())
    };
    let on = |device| Head::transfer(OpCode::Read, Durability::Flush, device, 0);
    let iova = Iova::new(0x70_0000).unwrap();
    assert_eq!(
        admit(512, 512, 0x1_0000),
        Ok(Work::Transfer(Transfer { head: on(0), slba: 11, iova, length: 512 })),
        "within a chunk"
    );
    assert_eq!(
        admit(5 * 1024, 1024, 0x1_0000),
        Ok(Work::Transfer(Transfer { head: on(2), slba: 12, iova, length: 1024 })),
        "a chunk of the second round"
    );
    let spread = |operation, lanes: &[u8], offset, memory, length| {
        let head = Head::spread(operation, Durability::Flush, 0);
        let lanes = lanes.iter().copied().collect::<LaneSet>();
        Ok(Work::Spread(Spread { head, lanes, offset, memory, length }))
    };
    assert_eq!(admit(512, 1024, 0x1_0000), spread(Operation::Read, &[0, 1], 512, 0x70_0000, 1024));
    assert_eq!(admit(0, 12 * 1024, 0x1_0000), spread(Operation::Read, &[0, 1, 2], 0, 0x70_0000, 12 * 1024));
    // Any byte, any length, any address; by the address, as the processor copies.
    assert_eq!(admit(1023, 1, 0x1_0001), spread(Operation::StagedRead, &[0], 1023, 0x1_0001, 1));
    assert_eq!(admit(1023, 2, 0x1_0001), spread(Operation::StagedRead, &[0, 1], 1023, 0x1_0001, 2));
    assert_eq!(admit(0, 512, 0x1_0002), spread(Operation::StagedRead, &[0], 0, 0x1_0002, 512));
}

#[test]
fn what_an_unaligned_read_may_not_be() {
    let segments = [striped()];
    let message = |request: Request| admit(&request, &segments, &regions()).unwrap_err().to_string();
    let odd = Request { target_offset: 1, length: 3, ..GOOD };
    assert!(admit(&odd, &segments, &regions()).is_ok());
    assert!(message(Request { opcode: OpCode::Write, ..odd }).starts_with("length 3 must be a multiple of the block"));
    assert!(message(Request { length: 0, ..odd }).starts_with("length 0 must be"));
    let capacity = segments[0].capacity;
    assert_eq!(capacity, 12 * 1024);
    assert!(message(Request { target_offset: capacity - 2, ..odd }).contains("leaves the segment, which has 12288"));
    assert!(message(Request { target_offset: u64::MAX, ..odd }).contains("leaves the segment"));
    assert!(message(Request { source: 0x5_0001, ..odd }).contains("was registered for Access(DEVICE_READS)"));
    assert!(message(Request { source: 0x1_7fff, ..odd }).contains("leaves its region"));
    assert!(
        message(Request { opcode: OpCode::Write, source: 0x1_0002, target_offset: 0, length: 512, ..GOOD })
            .contains("must be a multiple of 4")
    );
}

#[test]
fn ranges_are_held_to_the_same_rules() {
    let segments = [striped(), segment(2, 12, 100, 16, false), segment(3, 9, 7, 16, true)];
    let range =
        |operation, segment, offset, length| admit_range(operation, SegmentId(segment), offset, length, &segments);
    let head = Head::spread(Operation::Zeroes, Durability::Flush, 0);
    let lanes = LaneSet::first(3);
    assert_eq!(
        range(Operation::Zeroes, 1, 512, 4096,),
        Ok(Work::Spread(Spread { head, lanes, offset: 512, memory: 0, length: 4096 }))
    );
    let on = |lanes: &[u8], offset, length| {
        let lanes = lanes.iter().copied().collect::<LaneSet>();
        Ok(Work::Spread(Spread { head, lanes, offset, memory: 0, length }))
    };
    assert_eq!(range(Operation::Zeroes, 1, 1024, 1024), on(&[1], 1024, 1024), "a chunk");
    assert_eq!(range(Operation::Zeroes, 1, 5 * 1024 - 512, 1024), on(&[1, 2], 5 * 1024 - 512, 1024), "around an edge");
    assert!(range(Operation::Deallocate, 3, 512, 512).is_ok());
    for (segment, offset, length, message) in [
        (0, 0, 512, "target_id 0 is no open segment"),
        (4, 0, 512, "target_id 4 is no open segment"),
        (1, 1, 512, "target_offset 1 must be a multiple of the block of 512 bytes"),
        (1, 0, 0, "length 0 must be a multiple of the block of 512 bytes, and not 0"),
        (1, 12288, 512, "target_offset 12288 with length 512 leaves the segment, which has 12288 bytes"),
    ] {
        for operation in [Operation::Zeroes, Operation::Deallocate] {
            assert_eq!(range(operation, segment, offset, length).unwrap_err().to_string(), message);
        }
    }
    assert_eq!(range(Operation::Zeroes, 2, 0, 4096), Err(RequestError::ReadOnly));
    let mut without = striped();
    without.deallocates = false;
    let refused = admit_range(Operation::Deallocate, SegmentId(1), 0, 512, &[without]).unwrap_err().to_string();
    assert_eq!(refused, "target_id 1 lies on a device without Dataset Management (ONCS): write zeroes instead");
    assert!(admit_flush(SegmentId(3), &segments).is_ok());
    assert_eq!(admit_flush(SegmentId(4), &segments), Err(RequestError::NoSegment { target_id: SegmentId(4) }));
}
