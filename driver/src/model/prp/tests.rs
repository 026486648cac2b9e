use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::dma::{Access, AddressSpace, Backing, HostMemory, Iova, IovaRange, PageSize};
use crate::model::SoftwareIommu;
use crate::model::iommu::{FaultKind, Table};

const PAGE: u64 = 4096;
/// Where lists lie; the page before and the one behind are not mapped.
const LISTS: u64 = 0x10_0000;

/// Mapped pages for lists, and a walker.
struct Bench {
    memory: HostMemory,
    table: Arc<Table>,
    walk: PrpWalk,
}

impl Bench {
    fn new(pages: u64) -> Self {
        let memory = HostMemory::allocate_on((pages * PAGE) as usize, PageSize::Ordinary).unwrap();
        let iommu = SoftwareIommu::new();
        let range = IovaRange::new(Iova::new(LISTS).unwrap(), pages * PAGE).unwrap();
        // SAFETY: the memory is kept beside the table, which nothing else refers to.
        unsafe { iommu.map(range, memory.base(), Access::DEVICE_READS) }.unwrap();
        Self { memory, table: iommu.table(), walk: PrpWalk::default() }
    }

    fn put(&self, address: u64, words: &[u64]) {
        assert!(address >= LISTS && address + words.len() as u64 * 8 <= LISTS + self.memory.len() as u64);
        for (index, word) in words.iter().enumerate() {
            // SAFETY: the assertion above; nobody else uses the memory.
            unsafe {
                let at = self.memory.base().add((address - LISTS) as usize).cast::<u64>().add(index);
                at.write_volatile(*word);
            }
        }
    }

    fn walk(&mut self, page: u64, prps: (u64, u64), len: u64) -> Result<Vec<(u64, u64)>, PrpError> {
        self.walk.walk(&self.table.reach(), page, prps, len)?;
        Ok(self.walk.extents().iter().map(|extent| (extent.address, extent.len)).collect())
    }
}

#[test]
fn without_a_list() {
    let mut bench = Bench::new(1);
    let (a, b) = (0x5000_0000, 0x7000_0000);
    let unused = 0xDEAD_BEEF_DEAD_BEEF;
    for (prps, len, extents) in [
        ((a, unused), 0, vec![]),
        ((a, unused), 4, vec![(a, 4)]),
        ((a, unused), 4096, vec![(a, 4096)]),
        ((a + 4092, unused), 4, vec![(a + 4092, 4)]),
        ((a + 4092, b), 8, vec![(a + 4092, 4), (b, 4)]),
        ((a + 4, b), 4096, vec![(a + 4, 4092), (b, 4)]),
        ((a + 512, b), 512 + 3072 + 4096 - 512, vec![(a + 512, 3584), (b, 3584)]),
        ((a, b), 8192, vec![(a, 4096), (b, 4096)]),
        ((a, a + 4096), 8192, vec![(a, 8192)]),
        ((a + 2048, a + 4096), 6144, vec![(a + 2048, 6144)]),
    ] {
        assert_eq!(bench.walk(PAGE, prps, len), Ok(extents), "{prps:x?} {len}");
        assert_eq!((bench.walk.list_entries(), bench.walk.list_pages()), (0, 0));
    }
}

#[test]
fn exactly_the_entries_that_are_needed_are_read() {
    let mut bench = Bench::new(2);
    let data = |index: u64| 0x4000_0000 + index * 0x1_0000;
    let end = LISTS + 2 * PAGE;
    // The list ends where the mapping does: one entry more would be a fault.
    for entries in [2u64, 3, 64, 65, 512] {
        let list = end - entries * 8;
        bench.put(list, &(1..=entries).map(data).collect::<Vec<_>>());
        let extents = bench.walk(PAGE, (data(0) + 512, list), 3584 + entries * 4096).unwrap();
        assert_eq!(extents.len() as u64, entries + 1);
        assert_eq!(extents[0], (data(0) + 512, 3584));
        assert_eq!(extents[entries as usize], (data(entries), 4096));
        assert_eq!((bench.walk.list_entries(), bench.walk.list_pages()), (entries, 1));
    }
    // Not even a whole entry more is needed for a part of a page.
    bench.put(end - 16, &[data(1), data(2)]);
    assert_eq!(bench.walk(PAGE, (data(0), end - 16), 4096 + 4096 + 4).unwrap().last(), Some(&(data(2), 4)));
}

#[test]
fn the_last_entry_of_a_page_is_a_pointer_only_where_more_is_needed() {
    let mut bench = Bench::new(3);
    let data = |index: u64| 0x4000_0000 + index * 0x1_0000;
    // The first list begins at the last entry of its page: that is all pointer.
    bench.put(LISTS + PAGE - 8, &[LISTS + 2 * PAGE]);
    bench.put(LISTS + 2 * PAGE, &[data(1), data(2)]);
    let extents = bench.walk(PAGE, (data(0), LISTS + PAGE - 8), 3 * 4096).unwrap();
    assert_eq!(extents, [(data(0), 4096), (data(1), 4096), (data(2), 4096)]);
    assert_eq!((bench.walk.list_entries(), bench.walk.list_pages()), (3, 2));
    // Two entries and need of three: one data, one pointer.
    bench.put(LISTS + PAGE - 16, &[data(7), LISTS + 2 * PAGE]);
    let extents = bench.walk(PAGE, (data(0), LISTS + PAGE - 16), 4 * 4096).unwrap();
    assert_eq!(extents, [(data(0), 4096), (data(7), 4096), (data(1), 4096), (data(2), 4096)]);
}

#[test]
fn wrong_offsets_are_refused_wherever_they_are() {
    let mut bench = Bench::new(2);
    let data = 0x4000_0000;
    let refused = |place, entry| Err(PrpError::Offset { place, entry });
    for skew in [1, 2, 3] {
        assert_eq!(bench.walk(PAGE, (data + skew, 0), 512), refused(PrpPlace::Prp1, data + skew));
    }
    assert_eq!(bench.walk(PAGE, (data, data + 4), 8192), refused(PrpPlace::Prp2, data + 4));
    assert_eq!(bench.walk(PAGE, (data, data + 2048), 8192), refused(PrpPlace::Prp2, data + 2048));
    assert_eq!(bench.walk(PAGE, (data, LISTS + 4), 3 * 4096), refused(PrpPlace::ListPointer, LISTS + 4));
    bench.put(LISTS, &[data, data + 8]);
    assert_eq!(bench.walk(PAGE, (data, LISTS), 3 * 4096), refused(PrpPlace::List, data + 8));
    bench.put(LISTS + PAGE - 16, &[data, LISTS + PAGE + 8]);
    let chain = bench.walk(PAGE, (data, LISTS + PAGE - 16), 4 * 4096);
    assert_eq!(chain, refused(PrpPlace::Chain, LISTS + PAGE + 8));
}

#[test]
fn the_page_size_is_that_of_the_controller() {
    let mut bench = Bench::new(1);
    let page = 65536;
    let data = 0x4000_0000;
    assert_eq!(bench.walk(page, (data + 4096, 0), 61440), Ok(vec![(data + 4096, 61440)]));
    let wrong = Err(PrpError::Offset { place: PrpPlace::Prp2, entry: data + 4096 });
    assert_eq!(bench.walk(page, (data, data + 4096), 2 * page), wrong);
    bench.put(LISTS, &[data + 2 * page, data + 3 * page]);
    let extents = bench.walk(page, (data, LISTS), 3 * page);
    assert_eq!(extents, Ok(vec![(data, page), (data + 2 * page, 2 * page)]));
}

#[test]
fn a_list_that_is_not_mapped_is_a_fault_with_its_address() {
    let mut bench = Bench::new(1);
    let fault =
        |address| Err(PrpError::List(Fault { address, wanted: Access::DEVICE_READS, kind: FaultKind::Unmapped }));
    assert_eq!(bench.walk(PAGE, (0x4000_0000, 0), 3 * 4096), fault(0));
    assert_eq!(bench.walk(PAGE, (0x4000_0000, LISTS - 8), 3 * 4096), fault(LISTS - 8));
    let top = u64::MAX - 4095;
    assert_eq!(bench.walk(PAGE, (0x4000_0000, top), 300 * 4096), fault(top), "no overflow at the top");
}

#[test]
fn entries_that_are_zero_or_at_the_very_top_are_passed_on_as_they_are() {
    let mut bench = Bench::new(1);
    let top = u64::MAX - 4095;
    assert_eq!(bench.walk(PAGE, (top, 0), 8192), Ok(vec![(top, 4096), (0, 4096)]), "no neighbours round the end");
}

/// The address of byte `at` of what `extents` cover.
fn address_of(extents: &[(u64, u64)], mut at: u64) -> Option<u64> {
    for (address, len) in extents {
        if at < *len {
            return Some(address + at);
        }
        at -= len;
    }
    None
}

proptest! {
    /// Lists as a host would build them, from the specification and not from the walker: entry by entry, a pointer
    /// wherever the page would end too soon.
    #[test]
    fn any_list_covers_what_it_was_built_from(
        pages in prop::collection::vec(1u64..1 << 30, 1..1200),
        neighbours in any::<u64>(),
        offset in (0u64..1024).prop_map(|dword| dword * 4),
        cut in (0u64..1024).prop_map(|dword| dword * 4),
        first_entry in 0u64..512,
    ) {
        let mut data: Vec<u64> = pages.iter().map(|page| page << 12).collect();
        for index in 1..data.len() {
            if neighbours >> (index % 64) & 1 == 1 {
                data[index] = data[index - 1] + PAGE;
            }
        }
        let whole = data.len() as u64 * PAGE - offset;
        // The last page is used in part, but used.
        let last_page = if data.len() == 1 { PAGE - offset } else { PAGE };
        let len = whole - cut % last_page;

        let mut bench = Bench::new(8);
        let (mut slot, mut list_page, mut entries, mut list_pages) = (first_entry, 0, 0, 1);
        for (index, page) in data.iter().enumerate().skip(1) {
            let more = index + 1 < data.len();
            if slot == 511 && more {
                bench.put(LISTS + list_page * PAGE + slot * 8, &[LISTS + (list_page + 2) * PAGE]);
                (slot, list_page, entries, list_pages) = (0, list_page + 2, entries + 1, list_pages + 1);
            }
            bench.put(LISTS + list_page * PAGE + slot * 8, &[*page]);
            (slot, entries) = (slot + 1, entries + 1);
        }
        let prp2 = match data.len() {
            1 => 0,
            2 => data[1],
            _ => LISTS + first_entry * 8,
        };
        let extents = bench.walk(PAGE, (data[0] + offset, prp2), len).unwrap();
        prop_assert_eq!(extents.iter().map(|(_, len)| len).sum::<u64>(), len);
        for (index, page) in data.iter().enumerate() {
            let begin = if index == 0 { offset } else { 0 };
            let at = index as u64 * PAGE + begin - offset;
            let end = (at + PAGE - begin).min(len) - 1;
            prop_assert_eq!(address_of(&extents, at), Some(page + begin), "first byte of page {}", index);
            prop_assert_eq!(address_of(&extents, end), Some(page + begin + end - at), "last byte of page {}", index);
        }
        prop_assert!(extents.windows(2).all(|two| two[0].0 + two[0].1 != two[1].0), "neighbours are joined");
        let listed = data.len() > 2;
        let counts = (bench.walk.list_entries(), bench.walk.list_pages());
        prop_assert_eq!(counts, if listed { (entries, list_pages) } else { (0, 0) });
    }
}
