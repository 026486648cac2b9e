//! PRP lists and SGLs against a device's walk.

use std::ptr::NonNull;

use tentpeg_driver::dma::{DmaView, Iova};
use tentpeg_driver::queue::Extent;
use tentpeg_driver::queue::prp::{self, DataPointer, ListPages};
use tentpeg_driver::queue::sgl::{self, SglSupport};
use tentpeg_driver::spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType};

use super::{Input, Reached};

/// What the memory around the list pages holds.
const GUARD: u64 = 0x4755_4152_4447_5541;
/// Where the list pages lie for the device.
const LIST: u64 = 0x7_0000_0000;
/// The most list pages of a run.
const MOST_PAGES: u64 = 6;
/// The most extents of a run.
const MOST_EXTENTS: usize = 600;

/// List pages with one guard page on either side.
struct GuardedList {
    words: Vec<u64>,
    page_size: u64,
    pages: u64,
}

impl GuardedList {
    fn new(page_size: u64, pages: u64) -> Self {
        Self { words: vec![GUARD; ((pages + 2) * page_size / 8) as usize], page_size, pages }
    }

    /// Lends the list pages, and checks afterwards that what is around them is whole.
    fn lend<T>(&mut self, use_it: impl FnOnce(ListPages<'_>) -> T) -> T {
        let (page, bytes) = ((self.page_size / 8) as usize, (self.pages * self.page_size) as usize);
        let base = NonNull::from(&mut self.words[page]).cast::<u8>();
        // SAFETY: the words are borrowed for the view's life and used by nobody else meanwhile; `bytes` of them lie
        // between the two guard pages.
        let view = unsafe { DmaView::new(base, bytes) };
        let result = use_it(ListPages { view, iova: Iova::new(LIST).expect("not 0") });
        let after = page + bytes / 8;
        assert!(
            self.words[..page].iter().chain(&self.words[after..]).all(|word| *word == GUARD),
            "a guard was touched"
        );
        result
    }

    /// The word at a device address.
    fn word(&self, address: u64) -> u64 {
        let offset = address.checked_sub(LIST).filter(|offset| *offset < self.pages * self.page_size);
        let offset = offset.unwrap_or_else(|| panic!("the device is sent to {address:#x}, outside the list"));
        assert!(offset.is_multiple_of(8));
        self.words[((offset + self.page_size) / 8) as usize]
    }
}

/// Bytes as runs of contiguous addresses.
#[derive(Default, PartialEq, Debug)]
struct Runs(Vec<(u64, u64)>);

impl Runs {
    fn add(&mut self, address: u64, len: u64) {
        match self.0.last_mut() {
            Some((start, run)) if *start + *run == address => *run += len,
            _ => self.0.push((address, len)),
        }
    }

    fn of(extents: &[Extent]) -> Self {
        let mut runs = Self::default();
        extents.iter().for_each(|extent| runs.add(extent.iova.get(), extent.len));
        runs
    }
}

/// Extents of the input: mostly such that seams lie on pages.
fn extents(input: &mut Input, page_size: u64) -> Vec<Extent> {
    let count = match input.u8() {
        many @ 0xF0.. => usize::from(many - 0xEF) * (MOST_EXTENTS / 16),
        few => 1 + usize::from(few) % 48,
    };
    let mut at = 0x10_0000u64;
    let mut extents = Vec::new();
    for index in 0..count {
        let how = input.u8();
        at += u64::from(how & 3) * page_size;
        let mut pages = 1 + u64::from(input.u8());
        if how & 4 != 0 {
            pages *= 8;
        }
        let mut extent = Extent { iova: Iova::new(at).expect("not 0"), len: pages * page_size };
        at += extent.len;
        // The ends of the whole may lie anywhere.
        if index == 0 && how & 8 != 0 {
            let offset = (u64::from(input.u16()) % page_size) & !3;
            extent.iova = Iova::new(extent.iova.get() + offset).expect("not 0");
            extent.len -= offset;
        }
        if index == count - 1 && how & 16 != 0 {
            let cut = u64::from(input.u16()) % extent.len;
            extent.len -= cut & !3;
        }
        // And something wrong now and then.
        match how >> 5 {
            6 => extent.len = input.u64(),
            7 => {
                if let Some(iova) = Iova::new(input.u64()) {
                    extent.iova = iova;
                }
            }
            _ => {}
        }
        extents.push(extent);
    }
    extents
}

/// Builds lists for extents of the input and walks them as a device does (NVM Express Base 2.1, 4.3.1 and 4.3.2).
///
/// # Panics
/// When what the device finds is not what the extents say, when memory beside the list is written, or when extents are
/// refused that have a list, or taken that have none.
pub fn prp_sgl(data: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let mut input = Input::new(data);
    let page_size = input.choice(&[4096u64, 8192, 16384, 65536]);
    let pages = u64::from(input.u8()) % (MOST_PAGES + 1);
    let support = SglSupport {
        alignment: input.choice(&[1, 4]),
        max_descriptors: Some(u32::from(input.u8())).filter(|most| *most != 0),
    };
    let max_transfer = 1 << (12 + input.u8() % 16);
    let extents = extents(&mut input, page_size);
    reached.note(check_prps(&extents, page_size, pages), 1);
    reached.note(check_sgl(&extents, support, max_transfer, page_size, pages), 1);
    reached
}

fn check_prps(extents: &[Extent], page_size: u64, pages: u64) -> &'static str {
    let mut list = GuardedList::new(page_size, pages);
    let built = list.lend(|pages| prp::build(extents, page_size, || pages));
    let entries = prp_entries(extents, page_size);
    let room = room(pages, page_size);
    match built {
        Ok(pointer) => {
            let entries = entries.unwrap_or_else(|| panic!("{extents:?} have no PRPs"));
            assert!(entries <= 1 || entries <= room, "{entries} entries, {room} places");
            let len = extents.iter().map(|extent| extent.len).sum();
            assert_eq!(walk_prps(&list, pointer, len), Runs::of(extents));
            match entries {
                0 | 1 => "PRPs without a list",
                _ if entries <= page_size / 8 => "a PRP list of one page",
                _ => "a chained PRP list",
            }
        }
        Err(error) => {
            assert!(entries.is_none_or(|entries| entries > room.max(1)), "{error}: {extents:?}");
            "no PRPs"
        }
    }
}

fn check_sgl(extents: &[Extent], support: SglSupport, max_transfer: u64, page_size: u64, pages: u64) -> &'static str {
    let mut list = GuardedList::new(page_size, pages);
    let built = list.lend(|pages| sgl::build(extents, support, max_transfer, page_size, pages));
    let most = u64::from(support.max_descriptors.unwrap_or(u32::MAX));
    let sum = extents.iter().map(|extent| u128::from(extent.len)).sum::<u128>();
    let fits = extents.iter().all(|extent| {
        let aligned = (extent.iova.get() | extent.len).is_multiple_of(support.alignment);
        extent.len != 0 && aligned && extent.iova.get().checked_add(extent.len).is_some()
    });
    let per_page = page_size / SglDescriptor::LENGTH as u64;
    let room: u64 = (0..pages).map(|page| if page + 1 == pages { per_page } else { per_page - 1 }).sum();
    let count = extents.len() as u64;
    let possible = fits && sum <= max_transfer.into() && count <= most && count <= room.max(1);
    match built {
        Ok(first) => {
            assert!(possible, "{extents:?} have no SGL");
            assert_eq!(walk_sgl(&list, first, count), Runs::of(extents));
            match count {
                1 => "an SGL of one descriptor",
                _ if count <= per_page => "an SGL of one segment",
                _ => "a chained SGL",
            }
        }
        Err(error) => {
            assert!(!possible, "{error}: {extents:?}");
            "no SGL"
        }
    }
}

/// Reads segments to their end. Each must lie in one list page, and only the last may be called so.
fn walk_sgl(list: &GuardedList, first: SglDescriptor, most: u64) -> Runs {
    let mut runs = Runs::default();
    let mut blocks = 0;
    let mut data = |descriptor: SglDescriptor| {
        blocks += 1;
        assert!(blocks <= most && descriptor.length > 0);
        runs.add(descriptor.address, descriptor.length.into());
    };
    let mut next = Some(first);
    while let Some(pointer) = next.take() {
        assert_eq!(pointer.subtype(), SglDescriptorSubType::ADDRESS);
        let last = match pointer.kind() {
            SglDescriptorType::DATA_BLOCK => {
                data(pointer);
                break;
            }
            SglDescriptorType::SEGMENT => false,
            SglDescriptorType::LAST_SEGMENT => true,
            other => panic!("{other:?} is none of ours"),
        };
        let (start, bytes) = (pointer.address, u64::from(pointer.length));
        assert!(bytes > 0 && bytes.is_multiple_of(16) && start.is_multiple_of(16));
        assert_eq!(start / list.page_size, (start + bytes - 1) / list.page_size, "a segment crosses a page");
        for at in (start..start + bytes).step_by(SglDescriptor::LENGTH) {
            let descriptor = SglDescriptor::from_words([list.word(at), list.word(at + 8)]);
            if descriptor.kind() == SglDescriptorType::DATA_BLOCK {
                data(descriptor);
            } else {
                assert!(!last && at + 16 == start + bytes, "a pointer that is not the last of its segment");
                next = Some(descriptor);
            }
        }
        assert!(last || next.is_some(), "a segment that is not the last leads nowhere");
    }
    runs
}

/// Entries of data that fit into list pages.
fn room(pages: u64, page_size: u64) -> u64 {
    let per_page = page_size / 8;
    (0..pages).map(|page| if page + 1 == pages { per_page } else { per_page - 1 }).sum()
}

/// How many PRP entries there are after PRP1; `None` where the extents cannot be named by PRPs.
fn prp_entries(extents: &[Extent], page_size: u64) -> Option<u64> {
    let mut pages = 0u128;
    for (index, extent) in extents.iter().enumerate() {
        let (start, end) = (u128::from(extent.iova.get()), u128::from(extent.iova.get()) + u128::from(extent.len));
        let whole = |address: u128| address.is_multiple_of(page_size.into());
        let bad_start = if index == 0 { !start.is_multiple_of(4) } else { !whole(start) };
        if extent.len == 0 || bad_start || index + 1 < extents.len() && !whole(end) {
            return None;
        }
        // The end of an extent is a 64-bit address, but for one that lies in its first page.
        let in_one_page = extents.len() == 1 && (start / u128::from(page_size)) == (end - 1) / u128::from(page_size);
        if end > u64::MAX.into() && !in_one_page {
            return None;
        }
        pages += end.div_ceil(page_size.into()) - start / u128::from(page_size);
    }
    Some(u64::try_from(pages - 1).unwrap_or(u64::MAX))
}

fn walk_prps(list: &GuardedList, pointer: DataPointer, len: u64) -> Runs {
    let page_size = list.page_size;
    let mut runs = Runs::default();
    let first = len.min(page_size - pointer.prp1 % page_size);
    runs.add(pointer.prp1, first);
    let mut left = len - first;
    if left <= page_size {
        assert!(pointer.prp2.is_multiple_of(page_size));
        if left == 0 {
            assert_eq!(pointer.prp2, 0, "PRP2 is reserved when one page is enough");
        } else {
            runs.add(pointer.prp2, left);
        }
        return runs;
    }
    let mut at = pointer.prp2;
    while left > 0 {
        let entry = list.word(at);
        assert!(entry.is_multiple_of(page_size), "an entry of a list has no offset: {entry:#x}");
        let last_place = (at + 8).is_multiple_of(page_size);
        if last_place && left > page_size {
            at = entry;
            continue;
        }
        let now = left.min(page_size);
        runs.add(entry, now);
        left -= now;
        at += 8;
    }
    runs
}
