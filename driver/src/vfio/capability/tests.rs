//! Answers as the kernel gives them, and as no kernel should.

use proptest::prelude::*;

use super::*;

/// An answer: header fields, then capabilities, each chained behind the last.
struct Answer(Vec<u8>);

impl Answer {
    fn region(flags: u32, len: u64, file_offset: u64) -> Self {
        let mut bytes = vec![0; size_of::<vfio_region_info>()];
        bytes[offset_of!(vfio_region_info, size)..][..8].copy_from_slice(&len.to_ne_bytes());
        bytes[offset_of!(vfio_region_info, offset)..][..8].copy_from_slice(&file_offset.to_ne_bytes());
        Self(bytes).with_flags(flags)
    }

    fn iommu(flags: u32, page_sizes: u64) -> Self {
        let mut bytes = vec![0; size_of::<vfio_iommu_type1_info>()];
        bytes[offset_of!(vfio_iommu_type1_info, iova_pgsizes)..][..8].copy_from_slice(&page_sizes.to_ne_bytes());
        Self(bytes).with_flags(flags)
    }

    fn with_flags(mut self, flags: u32) -> Self {
        self.0[4..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    /// Appends a capability, of which the offset field at `link` tells.
    fn capability(mut self, link: usize, id: u32, body: &[u32]) -> (Self, usize) {
        let at = self.0.len();
        self.0[link..link + 4].copy_from_slice(&(at as u32).to_ne_bytes());
        self.0.extend((id as u16).to_ne_bytes());
        self.0.extend(1u16.to_ne_bytes());
        self.0.extend(0u32.to_ne_bytes());
        self.0.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        (self, at + 4)
    }

    fn reply(mut self) -> Reply {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        Reply::new(self.0)
    }
}

/// A count, padding, and pairs.
fn listed(pairs: &[(u64, u64)]) -> Vec<u32> {
    let words = pairs.iter().flat_map(|pair| [pair.0, pair.1]).flat_map(|word| [word as u32, (word >> 32) as u32]);
    [pairs.len() as u32, 0].into_iter().chain(words).collect()
}

const REGION_CHAIN: usize = offset_of!(vfio_region_info, cap_offset);
const IOMMU_CHAIN: usize = offset_of!(vfio_iommu_type1_info, cap_offset);
const MMAP: u32 = VFIO_REGION_INFO_FLAG_MMAP;
const CAPS: u32 = VFIO_REGION_INFO_FLAG_CAPS;

#[test]
fn a_region_is_mappable_whole_in_parts_or_not_at_all() {
    let whole = RegionInfo::read(&Answer::region(MMAP, 0x4000, 0x1_0000).reply());
    let expected = RegionInfo { len: 0x4000, file_offset: 0x1_0000, areas: vec![Area { offset: 0, len: 0x4000 }] };
    assert_eq!(whole, expected);
    let none = RegionInfo::read(&Answer::region(0, 0x4000, 0).reply());
    assert_eq!(none.areas, []);
    // The table of MSI-X lies in the third page. Areas that leave the region are left out.
    let pairs = [(0, 0x2000), (0x3000, 0x1000), (0x3000, 0x2000), (0x1000, 0), (u64::MAX, 2)];
    let (answer, _) = Answer::region(MMAP | CAPS, 0x4000, 0).capability(REGION_CHAIN, 1, &listed(&pairs));
    let areas = [Area { offset: 0, len: 0x2000 }, Area { offset: 0x3000, len: 0x1000 }];
    assert_eq!(RegionInfo::read(&answer.reply()).areas, areas);
    // A capability that does not concern us leaves the whole.
    let (answer, _) = Answer::region(MMAP | CAPS, 0x4000, 0).capability(REGION_CHAIN, 3, &[]);
    assert_eq!(RegionInfo::read(&answer.reply()).areas.len(), 1);
}

fn range(start: u64, end: u64) -> IovaRange {
    IovaRange::new(Iova::new(start).unwrap(), end - start).unwrap()
}

#[test]
fn ranges_and_the_limit_of_mappings_come_from_the_kernel() {
    let pairs = [(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)];
    let (answer, link) = Answer::iommu(3, 0x4020_1000).capability(IOMMU_CHAIN, 1, &listed(&pairs));
    let (answer, _) = answer.capability(link, 3, &[65535]);
    let info = IommuInfo::read(&answer.reply(), 4096);
    let apertures = vec![range(0x1_0000, 0xfee0_0000), range(0xfef0_0000, 1 << 39)];
    assert_eq!(info, IommuInfo { page_size: 4096, apertures, mappings_left: Some(65535) });
}

#[test]
fn a_kernel_that_says_little_is_believed_in_little() {
    let info = IommuInfo::read(&Answer::iommu(0, 0).reply(), 4096);
    assert_eq!((info.page_size, info.mappings_left), (4096, None));
    assert_eq!(info.apertures, [range(0x1_0000, 0xfee0_0000), range(0xfef0_0000, 1 << 39)]);
    assert_eq!(IommuInfo::read(&Answer::iommu(1, 1 << 16).reply(), 4096).page_size, 1 << 16);
    assert_eq!(IommuInfo::read(&Answer::iommu(1, 1 << 12).reply(), 1 << 14).page_size, 1 << 14);
}

#[test]
fn odd_ranges() {
    let all = apertures(&[(0, u64::MAX), (5, 4), (0x1_0001, 0x1_0fff), (0, 0xfff)], 4096);
    assert_eq!(all, [range(0x1_0000, !0xfff)], "of the whole space all but its last page; of the others nothing");
}

#[test]
fn a_chain_that_leads_nowhere_ends() {
    // A capability that names itself as the next one.
    let (answer, link) = Answer::iommu(3, 4096).capability(IOMMU_CHAIN, 9, &[]);
    let mut bytes = answer.0;
    let itself = (link as u32 - 4).to_ne_bytes();
    bytes[link..link + 4].copy_from_slice(&itself);
    assert_eq!(Reply::new(bytes).capability(IOMMU_CHAIN, 1), None);
}

proptest! {
    #[test]
    fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..256), flags in 0u8..16, first in 0u8..64) {
        let mut bytes = bytes;
        for (at, value) in [(4, flags), (REGION_CHAIN, first), (IOMMU_CHAIN, first)] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        let reply = Reply::new(bytes);
        let region = RegionInfo::read(&reply);
        prop_assert!(region.areas.iter().all(|area| area.offset.checked_add(area.len).unwrap() <= region.len));
        let info = IommuInfo::read(&reply, 4096);
        prop_assert!(info.apertures.iter().all(|range| range.start().get() >= FIRST_IOVA));
    }
}
