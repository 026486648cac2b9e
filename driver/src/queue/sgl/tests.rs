//! The builder against a walk as a device does it, with guard pages around the list.

use std::ptr::NonNull;

use proptest::prelude::*;

use super::*;
use crate::dma::{DmaView, Iova};
use crate::spec::sgl::{SglDescriptorSubType, SglDescriptorType};

const GUARD: u64 = 0x6755_4152_4447_5541;
/// Where the list pages lie for the device.
const LIST: u64 = 0x7000_0000;
/// A transfer limit that is in nobody's way.
const MAX: u64 = 1 << 30;
const BYTES: SglSupport = SglSupport { alignment: 1, max_descriptors: None };
const DWORDS: SglSupport = SglSupport { alignment: 4, max_descriptors: None };

/// List pages between two guard pages.
struct GuardedList {
    words: Vec<u64>,
    page_size: u64,
    pages: u64,
}

/// What a device's walk finds wrong.
#[derive(Debug, PartialEq)]
struct Refused(&'static str);

impl GuardedList {
    fn new(page_size: u64, pages: u64) -> Self {
        Self { words: vec![GUARD; ((pages + 2) * page_size / 8) as usize], page_size, pages }
    }

    fn build(&mut self, extents: &[Extent], support: SglSupport) -> Result<SglDescriptor, SglError> {
        let start = (self.page_size / 8) as usize;
        let base = NonNull::from(&mut self.words[start]).cast::<u8>();
        let len = (self.pages * self.page_size) as usize;
        // SAFETY: the words are borrowed for the view's life and used by nobody else meanwhile.
        let view = unsafe { DmaView::new(base, len) };
        build(extents, support, MAX, self.page_size, ListPages { view, iova: Iova::new(LIST).unwrap() })
    }

    fn descriptor(&self, address: u64) -> Result<SglDescriptor, Refused> {
        if !address.is_multiple_of(8) || !(LIST..LIST + self.pages * self.page_size).contains(&address) {
            return Err(Refused("a descriptor outside the list"));
        }
        let word = ((address - LIST + self.page_size) / 8) as usize;
        Ok(SglDescriptor::from_words([self.words[word], self.words[word + 1]]))
    }

    fn guards_are_whole(&self) -> bool {
        let words = (self.page_size / 8) as usize;
        self.words[..words].iter().chain(&self.words[self.words.len() - words..]).all(|word| *word == GUARD)
    }

    /// The device's walk (4.3.2): the data blocks in order, and how many descriptors it read from memory.
    fn walk(&self, first: SglDescriptor) -> Result<(Vec<Extent>, usize), Refused> {
        let mut blocks = Vec::new();
        let mut read = 0;
        let mut block = |descriptor: SglDescriptor| -> Result<(), Refused> {
            if descriptor.length == 0 {
                return Err(Refused("a data block of no bytes"));
            }
            let iova = Iova::new(descriptor.address).ok_or(Refused("a data block at 0"))?;
            blocks.push(Extent { iova, len: descriptor.length.into() });
            Ok(())
        };
        let mut leads = first;
        loop {
            if leads.reserved_12 != [0; 3] || leads.subtype() != SglDescriptorSubType::ADDRESS {
                return Err(Refused("a reserved field is set"));
            }
            let last = match leads.kind() {
                SglDescriptorType::DATA_BLOCK if read == 0 => {
                    block(leads)?;
                    return Ok((blocks, read));
                }
                SglDescriptorType::SEGMENT => false,
                SglDescriptorType::LAST_SEGMENT => true,
                _ => return Err(Refused("a descriptor of the wrong type leads on")),
            };
            if leads.length == 0 || !leads.length.is_multiple_of(16) {
                return Err(Refused("a segment's length is no multiple of 16"));
            }
            let count = u64::from(leads.length / 16);
            if leads.address / self.page_size != (leads.address + count * 16 - 1) / self.page_size {
                return Err(Refused("a segment crosses a page"));
            }
            for index in 0..count {
                let descriptor = self.descriptor(leads.address + index * 16)?;
                read += 1;
                if !last && index == count - 1 {
                    leads = descriptor;
                    break;
                }
                if descriptor.kind() != SglDescriptorType::DATA_BLOCK
                    || descriptor.subtype() != SglDescriptorSubType::ADDRESS
                    || descriptor.reserved_12 != [0; 3]
                {
                    return Err(Refused("not a data block"));
                }
                block(descriptor)?;
            }
            if last {
                return Ok((blocks, read));
            }
            if read > self.words.len() {
                return Err(Refused("a chain that does not end"));
            }
        }
    }
}

fn extent(iova: u64, len: u64) -> Extent {
    Extent { iova: Iova::new(iova).unwrap(), len }
}

/// That many extents of 12 bytes, 16 apart: nothing that a PRP could name.
fn crumbs(count: usize) -> Vec<Extent> {
    (0..count as u64).map(|index| extent(0x1000_0004 + index * 16, 12)).collect()
}

/// Builds, walks, compares; how many descriptors lay in memory.
fn check_walk(extents: &[Extent], support: SglSupport, page_size: u64, pages: u64) -> usize {
    let mut list = GuardedList::new(page_size, pages);
    let first = list.build(extents, support).unwrap();
    let (blocks, read) = list.walk(first).unwrap();
    assert_eq!(blocks, extents);
    assert!(list.guards_are_whole());
    read
}

#[test]
fn one_extent_is_in_the_command() {
    assert_eq!(check_walk(&[extent(0x1003, 5)], BYTES, 4096, 0), 0);
    assert_eq!(check_walk(&[extent(0x1004, 8 << 20)], DWORDS, 4096, 1), 0);
}

#[test]
fn a_page_is_filled_to_its_end_before_a_chain_begins() {
    assert_eq!(check_walk(&crumbs(2), DWORDS, 4096, 1), 2);
    assert_eq!(check_walk(&crumbs(256), DWORDS, 4096, 1), 256);
    assert_eq!(check_walk(&crumbs(257), DWORDS, 4096, 2), 258, "255 and a chain, then 2");
    assert_eq!(check_walk(&crumbs(255 + 256), DWORDS, 4096, 2), 512);
    assert_eq!(check_walk(&crumbs(255 + 257), DWORDS, 4096, 3), 514);
}

#[test]
fn the_list_holds_as_many_as_its_capacity_says_and_no_more() {
    for (page_size, pages) in [(4096u64, 0), (4096, 1), (4096, 2), (4096, 5), (8192, 1), (8192, 3), (65536, 2)] {
        let most = capacity(pages, page_size);
        check_walk(&crumbs(most as usize), DWORDS, page_size, pages);
        let mut list = GuardedList::new(page_size, pages);
        assert_eq!(
            list.build(&crumbs(most as usize + 1), DWORDS),
            Err(SglError::TooManyExtents { extents: most + 1, capacity: most })
        );
        assert!(list.words.iter().all(|word| *word == GUARD), "an error writes nothing");
    }
}

#[test]
fn each_caller_error_is_named() {
    let mut list = GuardedList::new(4096, 1);
    assert_eq!(list.build(&[], BYTES), Err(SglError::NoBytes { index: 0 }));
    assert_eq!(list.build(&[extent(0x1000, 4), extent(0x2000, 0)], BYTES), Err(SglError::NoBytes { index: 1 }));
    assert_eq!(list.build(&[extent(0x1000, u64::MAX)], BYTES), Err(SglError::NoBytes { index: 0 }));
    assert_eq!(
        list.build(&[extent(0x1000, 4), extent(0x2002, 8)], DWORDS),
        Err(SglError::Misaligned { index: 1, iova: 0x2002, len: 8, alignment: 4 })
    );
    // Both at once, and by the same number of bytes.
    assert_eq!(
        list.build(&[extent(0x1002, 6)], DWORDS),
        Err(SglError::Misaligned { index: 0, iova: 0x1002, len: 6, alignment: 4 })
    );
    assert_eq!(
        list.build(&[extent(0x1000, 6)], DWORDS).unwrap_err().to_string(),
        "extent 0 is 6 bytes at IOVA 0x1000: both must be multiples of 4 (SGLS)"
    );
    assert_eq!(
        list.build(&[extent(0x1000, MAX), extent(0x8000_0000, 4)], BYTES),
        Err(SglError::TooLong { bytes: MAX + 4, max: MAX })
    );
    let three = SglSupport { max_descriptors: Some(3), ..BYTES };
    assert_eq!(list.build(&crumbs(4), three), Err(SglError::TooManyExtents { extents: 4, capacity: 3 }));
    check_walk(&crumbs(3), three, 4096, 1);
}

#[test]
fn a_descriptor_length_has_32_bits() {
    let long = [extent(0x1_0000_0000, 1 << 32)];
    let max = u64::from(u32::MAX);
    assert_eq!(check(&long, BYTES, u64::MAX, 1, 4096), Err(SglError::TooLong { bytes: 1 << 32, max }));
    assert_eq!(check(&[extent(0x1_0000_0000, max)], BYTES, u64::MAX, 1, 4096), Ok(()));
}

#[test]
fn what_identify_controller_says_of_sgls() {
    let mut controller = IdentifyController::default();
    assert_eq!(SglSupport::of(&controller), None);
    controller.sgls = controller.sgls.with_supported(SglDataBlock::DWORD);
    assert_eq!(SglSupport::of(&controller), Some(DWORDS));
    controller.sgls = controller.sgls.with_supported(SglDataBlock::BYTE).with_sdt(7);
    assert_eq!(SglSupport::of(&controller), Some(BYTES), "a threshold is no limit");
    controller.fabrics[11] = 16;
    assert_eq!(SglSupport::of(&controller), Some(SglSupport { alignment: 1, max_descriptors: Some(16) }));
    controller.sgls = controller.sgls.with_supported(SglDataBlock::from_raw(3));
    assert_eq!(SglSupport::of(&controller), None, "a reserved value");
}

/// Extents anywhere, touching, overlapping or apart.
fn extents(alignment: u64) -> impl Strategy<Value = Vec<Extent>> {
    let piece = (1u64..1 << 40, 1u64..9000)
        .prop_map(move |(iova, len)| extent(iova * alignment, len.next_multiple_of(alignment)));
    prop::collection::vec(piece, 1..700)
}

proptest! {
    #[test]
    fn a_walk_finds_each_extent_once(
        (support, extents) in prop::sample::select(vec![BYTES, DWORDS])
            .prop_flat_map(|support| (Just(support), extents(support.alignment))),
        page_size in prop::sample::select(vec![4096u64, 8192, 65536]),
    ) {
        let mut pages = 0;
        while capacity(pages, page_size) < extents.len() as u64 {
            pages += 1;
        }
        check_walk(&extents, support, page_size, pages);
    }

    /// The negative control: one wrong bit anywhere in what the builder wrote is seen by the walk.
    #[test]
    fn an_injected_mistake_is_seen(extents in extents(1), place in any::<prop::sample::Index>(), bit in 0u32..64) {
        prop_assume!(extents.len() > 1);
        let mut list = GuardedList::new(4096, 3);
        let first = list.build(&extents, BYTES).unwrap();
        let (_, read) = list.walk(first).unwrap();
        let word = 512 + place.index(read * 2);
        list.words[word] ^= 1 << bit;
        if let Ok((blocks, _)) = list.walk(first) {
            prop_assert_ne!(blocks, extents);
        }
    }
}
