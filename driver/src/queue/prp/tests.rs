//! The builder against a walk as a device does it, byte for byte, with guard pages around the list.

use std::ptr::NonNull;

use proptest::prelude::*;

use super::*;

const GUARD: u64 = 0x6755_4152_4447_5541;
/// Where the list pages lie for the device.
const LIST: u64 = 0x7000_0000;

/// List pages between two guard pages.
struct GuardedList {
    words: Vec<u64>,
    page_size: u64,
    pages: u64,
}

impl GuardedList {
    fn new(page_size: u64, pages: u64) -> Self {
        Self { words: vec![GUARD; ((pages + 2) * page_size / ENTRY) as usize], page_size, pages }
    }

    fn build(&mut self, extents: &[Extent]) -> Result<DataPointer, PrpError> {
        let start = (self.page_size / ENTRY) as usize;
        let base = NonNull::from(&mut self.words[start]).cast::<u8>();
        let len = (self.pages * self.page_size) as usize;
        // SAFETY: the words are borrowed for the view's life and used by nobody else meanwhile.
        let view = unsafe { DmaView::new(base, len) };
        build(extents, self.page_size, || ListPages { view, iova: Iova::new(LIST).unwrap() })
    }

    /// The entry at a device address; one outside the list is the builder's mistake.
    fn entry(&self, address: u64) -> u64 {
        assert!((LIST..LIST + self.pages * self.page_size).contains(&address), "a list entry at {address:#x}");
        self.words[((address - LIST + self.page_size) / ENTRY) as usize]
    }

    fn guards_are_whole(&self) -> bool {
        let words = (self.page_size / ENTRY) as usize;
        self.words[..words].iter().chain(&self.words[self.words.len() - words..]).all(|word| *word == GUARD)
    }

    /// The device's walk (4.3.1): the address of every byte, as runs, and how many entries it read.
    fn walk(&self, pointer: DataPointer, len: u64) -> (Vec<Extent>, u64) {
        let mut runs: Vec<Extent> = Vec::new();
        let mut add = |address: u64, len: u64| match runs.last_mut() {
            Some(run) if run.iova.get() + run.len == address => run.len += len,
            _ => runs.push(Extent { iova: Iova::new(address).unwrap(), len }),
        };
        let first = len.min(self.page_size - pointer.prp1 % self.page_size);
        add(pointer.prp1, first);
        let mut left = len - first;
        if left == 0 {
            assert_eq!(pointer.prp2, 0, "PRP2 is reserved when one page is enough");
            return (runs, 0);
        }
        if left <= self.page_size {
            assert_eq!(pointer.prp2 % self.page_size, 0);
            add(pointer.prp2, left);
            return (runs, 0);
        }
        let (mut at, mut read) = (pointer.prp2, 0);
        while left > 0 {
            let entry = self.entry(at);
            read += 1;
            assert_eq!(entry % self.page_size, 0, "an entry of a list has no offset");
            let last_of_page = at % self.page_size == self.page_size - ENTRY;
            if last_of_page && left > self.page_size {
                at = entry;
                continue;
            }
            let now = left.min(self.page_size);
            add(entry, now);
            left -= now;
            at += ENTRY;
        }
        (runs, read)
    }
}

/// What the walk should find: the extents, joined where they touch.
fn joined(extents: &[Extent]) -> Vec<Extent> {
    let mut runs: Vec<Extent> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some(run) if run.iova.get() + run.len == extent.iova.get() => run.len += extent.len,
            _ => runs.push(*extent),
        }
    }
    runs
}

fn extent(iova: u64, len: u64) -> Extent {
    Extent { iova: Iova::new(iova).unwrap(), len }
}

/// Builds, walks, compares; the walk's result for more checks.
fn check(extents: &[Extent], page_size: u64) -> u64 {
    let len = extents.iter().map(|extent| extent.len).sum();
    let mut list = GuardedList::new(page_size, list_pages(len, page_size));
    let pointer = list.build(extents).unwrap();
    let (runs, read) = list.walk(pointer, len);
    assert_eq!(runs, joined(extents));
    assert!(list.guards_are_whole());
    read
}

#[test]
fn one_two_and_three_pages() {
    assert_eq!(check(&[extent(0x10000, 4096)], 4096), 0);
    assert_eq!(check(&[extent(0x10ffc, 4)], 4096), 0);
    assert_eq!(check(&[extent(0x10ffc, 8)], 4096), 0);
    // A byte into the second page, which needs an address of its own.
    assert_eq!(check(&[extent(0x10000, 4097)], 4096), 0);
    assert_eq!(check(&[extent(0x10ffc, 5)], 4096), 0);
    assert_eq!(check(&[extent(0x10000, 8192)], 4096), 0);
    assert_eq!(check(&[extent(0x10000, 4096), extent(0x30000, 4096)], 4096), 0);
    assert_eq!(check(&[extent(0x10ffc, 4), extent(0x30000, 4096)], 4096), 0);
    assert_eq!(check(&[extent(0x10000, 8196)], 4096), 2);
    assert_eq!(check(&[extent(0x10ffc, 8196)], 4096), 2);
}

#[test]
fn the_last_place_of_a_page_holds_data_when_nothing_follows() {
    // 1 + 512 pages: 512 entries fill a list page exactly. One more page makes a chain.
    assert_eq!(check(&[extent(0x100_0000, 513 * 4096)], 4096), 512);
    assert_eq!(check(&[extent(0x100_0000, 514 * 4096)], 4096), 514);
}

#[test]
fn two_four_and_eight_mib_at_each_first_offset() {
    for mib in [2u64, 4, 8] {
        for offset in [0, 512, 4092] {
            check(&[extent(0x4000_0000 + offset, mib << 20)], 4096);
        }
    }
}

#[test]
fn a_2_mib_object_over_64_shuffled_pages_of_32_kib() {
    let extents: Vec<_> = (0..64u64).map(|page| extent(0x1000_0000 + (page * 37 % 64) * 0x10000, 32 << 10)).collect();
    check(&extents, 4096);
}

#[test]
fn list_pages_at_the_edges() {
    assert_eq!(list_pages(4096, 4096), 0, "from an offset it ends in the second page: PRP2 is enough");
    assert_eq!(list_pages(4097, 4096), 1);
    assert_eq!(list_pages(512 * 4096, 4096), 1);
    assert_eq!(list_pages(513 * 4096, 4096), 2);
    assert_eq!(list_pages((511 + 512) * 4096, 4096), 2);
    assert_eq!(list_pages((511 + 512) * 4096 + 1, 4096), 3);
}

#[test]
fn each_caller_error_is_named() {
    let mut list = GuardedList::new(4096, 1);
    let page_size = 4096;
    assert_eq!(list.build(&[]), Err(PrpError::NoBytes { index: 0 }));
    assert_eq!(list.build(&[extent(0x1000, 0)]), Err(PrpError::NoBytes { index: 0 }));
    assert_eq!(list.build(&[extent(0x1000, u64::MAX)]), Err(PrpError::NoBytes { index: 0 }));
    let iova = Iova::new(0x1002).unwrap();
    assert_eq!(list.build(&[extent(0x1002, 8)]), Err(PrpError::NotDwordAligned { iova }));
    assert_eq!(
        list.build(&[extent(0x1000, 0x800), extent(0x3000, 0x800)]),
        Err(PrpError::SeamInsidePage { index: 0, at: 0x1800, page_size })
    );
    assert_eq!(
        list.build(&[extent(0x1000, 0x1000), extent(0x3200, 0x800)]),
        Err(PrpError::SeamInsidePage { index: 0, at: 0x3200, page_size })
    );
    assert_eq!(list.build(&[extent(0x1000, 514 * 4096)]), Err(PrpError::TooManyPages { entries: 513, capacity: 512 }));
    assert!(list.guards_are_whole());
}

/// Extents with page seams: a first offset, a last length, whole pages between, some extents touching.
fn extents(page_size: u64) -> impl Strategy<Value = Vec<Extent>> {
    let piece = (1u64..40, 0u64..5);
    (prop::collection::vec(piece, 1..30), 0..page_size / 4, 1..=page_size / 4, any::<bool>()).prop_map(
        move |(pieces, offset, tail, long)| {
            let mut at = 0x1000_0000u64;
            let last = pieces.len() - 1;
            let scale = if long { 37 } else { 1 };
            let mut extents = Vec::new();
            for (index, (pages, gap)) in pieces.into_iter().enumerate() {
                at += gap * page_size;
                let mut piece = extent(at, pages * scale * page_size);
                at += piece.len;
                if index == last {
                    piece.len -= page_size - tail * 4;
                }
                if index == 0 && offset * 4 < piece.len {
                    piece = extent(piece.iova.get() + offset * 4, piece.len - offset * 4);
                }
                extents.push(piece);
            }
            extents
        },
    )
}

proptest! {
    #[test]
    fn a_walk_covers_each_byte_once(
        (page_size, extents) in prop::sample::select(vec![4096u64, 8192, 65536])
            .prop_flat_map(|page_size| (Just(page_size), extents(page_size)))
    ) {
        check(&extents, page_size);
    }

    /// The negative control: one wrong bit in any place that the builder wrote is seen by the walk.
    #[test]
    fn an_injected_mistake_is_seen(extents in extents(4096), place in any::<prop::sample::Index>(), bit in 3u32..31) {
        let len = extents.iter().map(|extent| extent.len).sum();
        let mut list = GuardedList::new(4096, list_pages(len, 4096));
        let pointer = list.build(&extents).unwrap();
        let (_, read) = list.walk(pointer, len);
        prop_assume!(read > 0);
        let word = 512 + place.index(read as usize);
        list.words[word] ^= 1 << bit;
        let walk = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| list.walk(pointer, len)));
        if let Ok((runs, _)) = walk {
            prop_assert_ne!(runs, joined(&extents));
        }
    }
}
