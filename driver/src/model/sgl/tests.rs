use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::dma::{Access, AddressSpace, Backing, HostMemory, Iova, IovaRange, PageSize};
use crate::model::SoftwareIommu;
use crate::model::iommu::{FaultKind, Table};

/// Where segments lie; what is before and behind is not mapped.
const SEGMENTS: u64 = 0x10_0000;
const ROOM: u64 = 64 << 10;
const DATA: u64 = 0x5000_0000;

struct Bench {
    memory: HostMemory,
    table: Arc<Table>,
    walk: SglWalk,
}

fn rules() -> SglConfig {
    SglConfig { support: SglSupport::Byte, bit_bucket: true, ..SglConfig::default() }
}

impl Bench {
    fn new(rules: SglConfig) -> Self {
        let memory = HostMemory::allocate_on(ROOM as usize, PageSize::Ordinary).unwrap();
        let iommu = SoftwareIommu::new();
        let range = IovaRange::new(Iova::new(SEGMENTS).unwrap(), ROOM).unwrap();
        // SAFETY: the memory is kept beside the table, which nothing else refers to.
        unsafe { iommu.map(range, memory.base(), Access::DEVICE_READS) }.unwrap();
        Self { memory, table: iommu.table(), walk: SglWalk::new(rules) }
    }

    fn put(&self, address: u64, descriptors: &[SglDescriptor]) {
        let offset = (address - SEGMENTS) as usize;
        assert!(offset + descriptors.len() * 16 <= ROOM as usize);
        for (index, word) in descriptors.iter().flat_map(|descriptor| descriptor.words()).enumerate() {
            // SAFETY: the assertion above; nobody else uses the memory.
            unsafe { self.memory.base().add(offset).cast::<u64>().add(index).write_volatile(word) };
        }
    }

    fn walk(&mut self, flow: Flow, first: SglDescriptor, len: u64) -> Result<(), SglError> {
        self.walk.walk(&self.table.reach(), flow, (0, first), len)
    }

    fn code(&mut self, first: SglDescriptor, len: u64) -> StatusCode {
        match self.walk(Flow::Destination, first, len) {
            Ok(()) => StatusCode::SUCCESS,
            Err(SglError::Descriptor { code, .. }) => code,
            Err(SglError::Length { .. }) => StatusCode::DATA_SGL_LENGTH_INVALID,
            Err(SglError::Segment(_)) => StatusCode::DATA_TRANSFER_ERROR,
        }
    }
}

fn block(index: u64, length: u32) -> SglDescriptor {
    SglDescriptor::data_block(DATA + index * 0x1_0000, length)
}

/// A descriptor with another identifier byte.
fn identified(descriptor: SglDescriptor, byte: u64) -> SglDescriptor {
    let [first, second] = descriptor.words();
    SglDescriptor::from_words([first, second & !(0xFF << 56) | byte << 56])
}

#[test]
fn each_wrong_descriptor_has_its_status() {
    use StatusCode as S;
    let (a, b) = (SEGMENTS, SEGMENTS + 0x1000);
    let bucket = SglDescriptor::bit_bucket(512);
    let (to, last) = (SglDescriptor::segment, SglDescriptor::last_segment);
    // The command's descriptor, the segment at `a`, the segment at `b`; 512 bytes.
    let cases: &[(SglDescriptor, &[SglDescriptor], &[SglDescriptor], StatusCode)] = &[
        (block(0, 512), &[], &[], S::SUCCESS),
        (block(0, 511), &[], &[], S::DATA_SGL_LENGTH_INVALID),
        (block(0, 513), &[], &[], S::DATA_SGL_LENGTH_INVALID),
        (block(0, 0), &[], &[], S::DATA_SGL_LENGTH_INVALID),
        (bucket, &[], &[], S::SUCCESS),
        (last(a, 16), &[block(0, 512)], &[], S::SUCCESS),
        (last(a, 48), &[block(0, 512), block(1, 0), SglDescriptor::bit_bucket(0)], &[], S::SUCCESS),
        (last(a, 32), &[block(0, 256), bucket], &[], S::DATA_SGL_LENGTH_INVALID),
        (to(a, 32), &[block(0, 256), last(b, 16)], &[block(1, 256)], S::SUCCESS),
        (to(a, 16), &[last(b, 16)], &[block(1, 512)], S::SUCCESS),
        // Segment descriptors that are wrong themselves.
        (last(a, 0), &[], &[], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (last(a, 24), &[block(0, 512)], &[], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (to(a, 8), &[block(0, 512)], &[], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (last(a + 4, 16), &[block(0, 512)], &[], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (to(a, 16), &[last(b, 20)], &[block(0, 512)], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        // A last segment that leads on; one that is not the last and does not.
        (last(a, 32), &[block(0, 256), last(b, 16)], &[block(1, 256)], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (last(a, 32), &[block(0, 256), to(b, 16)], &[block(1, 256)], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        (to(a, 16), &[block(0, 512)], &[], S::INVALID_SGL_SEGMENT_DESCRIPTOR),
        // One in the middle.
        (to(a, 32), &[last(b, 16), block(0, 256)], &[block(1, 256)], S::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        (last(a, 32), &[to(b, 16), block(0, 256)], &[block(1, 256)], S::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        // A chain without an end.
        (to(a, 16), &[to(a, 16)], &[], S::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        // Types and subtypes that there are not.
        (identified(block(0, 512), 0x40), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (identified(block(0, 512), 0x5A), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (identified(block(0, 512), 0xF0), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (identified(block(0, 512), 0x01), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (identified(block(0, 512), 0x0A), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (identified(bucket, 0x11), &[], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        (last(a, 16), &[identified(block(0, 512), 0x60)], &[], S::SGL_DESCRIPTOR_TYPE_INVALID),
        // A segment that is not mapped, wholly or at its end.
        (last(SEGMENTS + ROOM, 16), &[], &[], S::DATA_TRANSFER_ERROR),
        (last(0, 16), &[], &[], S::DATA_TRANSFER_ERROR),
        (last(u64::MAX - 7, 16), &[], &[], S::DATA_TRANSFER_ERROR),
    ];
    let mut bench = Bench::new(rules());
    for (first, at_a, at_b, code) in cases {
        bench.put(a, at_a);
        bench.put(b, at_b);
        assert_eq!(bench.code(*first, 512), *code, "{first:?} {at_a:?} {at_b:?}");
    }
}

#[test]
fn what_is_not_offered_is_refused() {
    use StatusCode as S;
    let odd = SglDescriptor::data_block(DATA + 2, 512);
    let uneven = |extra| [block(0, 512 - extra), block(1, extra)];
    let offset = identified(block(0, 512), 0x01);
    let dword = SglConfig { support: SglSupport::Dword, bit_bucket: false, ..rules() };
    let mut bench = Bench::new(dword);
    assert_eq!(bench.code(block(0, 512), 512), S::SUCCESS);
    assert_eq!(bench.code(odd, 512), S::SGL_DATA_BLOCK_GRANULARITY_INVALID);
    bench.put(SEGMENTS, &uneven(2));
    let list = SglDescriptor::last_segment(SEGMENTS, 32);
    assert_eq!(bench.code(list, 512), S::SGL_DATA_BLOCK_GRANULARITY_INVALID);
    bench.put(SEGMENTS, &uneven(4));
    assert_eq!(bench.code(list, 512), S::SUCCESS);
    assert_eq!(bench.code(SglDescriptor::bit_bucket(512), 512), S::SGL_DESCRIPTOR_TYPE_INVALID);
    assert_eq!(bench.code(offset, 512), S::SGL_DESCRIPTOR_TYPE_INVALID);
    let mut bench = Bench::new(SglConfig { offset: true, ..rules() });
    assert_eq!(bench.code(offset, 512), S::SGL_OFFSET_INVALID);
    assert_eq!(bench.code(odd, 512), S::SUCCESS, "any byte will do");
}

#[test]
fn what_is_too_long_is_cut_where_that_is_offered() {
    let mut bench = Bench::new(SglConfig { oversize: true, ..rules() });
    bench.put(SEGMENTS, &[block(0, 300), block(1, 300), block(2, 300), SglDescriptor::bit_bucket(9)]);
    bench.walk(Flow::Destination, SglDescriptor::last_segment(SEGMENTS, 64), 512).unwrap();
    let expected = [Extent { address: DATA, len: 300 }, Extent { address: DATA + 0x1_0000, len: 212 }];
    assert_eq!((bench.walk.extents(), bench.walk.skips()), (&expected[..], &[][..]));
    assert_eq!((bench.walk.descriptors(), bench.walk.segments()), (5, 1));
    let short = bench.walk(Flow::Destination, block(0, 511), 512);
    assert_eq!(short, Err(SglError::Length { described: 511 }), "too short it is all the same");
}

#[test]
fn a_bucket_counts_by_direction() {
    let mut bench = Bench::new(rules());
    bench.put(SEGMENTS, &[block(0, 100), SglDescriptor::bit_bucket(12), block(1, 400)]);
    let list = SglDescriptor::last_segment(SEGMENTS, 48);
    bench.walk(Flow::Destination, list, 512).unwrap();
    assert_eq!(bench.walk.skips(), [Skip { start: 100, len: 12 }]);
    assert_eq!(bench.walk(Flow::Source, list, 512), Err(SglError::Length { described: 500 }));
    bench.walk(Flow::Source, list, 500).unwrap();
    assert_eq!(bench.walk.skips(), []);
}

#[test]
fn the_fault_names_the_address() {
    let mut bench = Bench::new(rules());
    let end = SEGMENTS + ROOM;
    bench.put(end - 16, &[block(0, 256)]);
    let error = bench.walk(Flow::Destination, SglDescriptor::last_segment(end - 16, 32), 512);
    let fault = Fault { address: end, wanted: Access::DEVICE_READS, kind: FaultKind::Unmapped };
    assert_eq!(error, Err(SglError::Segment(fault)));
}

proptest! {
    /// A random list, cut into random segments chained across the room: the walk finds exactly the bytes that were
    /// described, in order, however they are cut.
    #[test]
    fn random_chains(
        items in prop::collection::vec((any::<bool>(), 0u32..5000, 0u64..8, any::<bool>()), 1..200),
        source: bool,
    ) {
        let mut bench = Bench::new(rules());
        // Each item: a block or a bucket, its length, where it lies, and whether its segment ends behind it.
        let mut segments: Vec<Vec<SglDescriptor>> = vec![Vec::new()];
        let (mut bytes, mut total) = (Vec::<(u64, u64)>::new(), 0u64);
        let mut holes = Vec::<(u64, u64)>::new();
        for (index, (bucket, length, jump, ends)) in items.iter().enumerate() {
            let descriptor = if *bucket {
                if !source && *length > 0 {
                    holes.push((total, u64::from(*length)));
                }
                total += if source { 0 } else { u64::from(*length) };
                SglDescriptor::bit_bucket(*length)
            } else {
                let address = DATA + index as u64 * 0x10_0000 + jump;
                if *length > 0 {
                    bytes.push((address, u64::from(*length)));
                }
                total += u64::from(*length);
                SglDescriptor::data_block(address, *length)
            };
            segments.last_mut().unwrap().push(descriptor);
            if *ends && index + 1 < items.len() {
                segments.push(Vec::new());
            }
        }
        let count = segments.len();
        // From the end of the room backwards, so that a walk that goes on too far meets what is not mapped.
        let mut address = SEGMENTS + ROOM;
        let mut next: Option<SglDescriptor> = None;
        for (index, mut segment) in segments.into_iter().enumerate().rev() {
            segment.extend(next);
            let length = segment.len() as u32 * 16;
            address -= u64::from(length) + (index as u64 % 3) * 8 * u64::from(index + 1 < count);
            bench.put(address, &segment);
            let last = index + 1 == count;
            next = Some(if last { SglDescriptor::last_segment(address, length) } else { SglDescriptor::segment(address, length) });
        }
        let flow = if source { Flow::Source } else { Flow::Destination };
        bench.walk(flow, next.unwrap(), total).unwrap();
        let found: Vec<_> = bench.walk.extents().iter().map(|extent| (extent.address, extent.len)).collect();
        let skipped: Vec<_> = bench.walk.skips().iter().map(|skip| (skip.start, skip.len)).collect();
        prop_assert_eq!(found, bytes);
        prop_assert_eq!(skipped, holes);
        prop_assert_eq!(bench.walk.segments(), count as u64);
        // One byte more or less is another transfer.
        prop_assert_eq!(bench.walk(flow, next.unwrap(), total + 1), Err(SglError::Length { described: total }));
    }
}
