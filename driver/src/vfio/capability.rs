//! What the kernel answers with a chain of capabilities behind it (Linux, include/uapi/linux/vfio.h).
//!
//! Plain bytes, read by offset and with every bound checked: a chain that leaves the answer, or leads backwards, ends
//! there.

use std::mem::offset_of;

use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS,
    VFIO_REGION_INFO_FLAG_MMAP, vfio_info_cap_header, vfio_iommu_type1_info, vfio_iommu_type1_info_cap_iova_range,
    vfio_iommu_type1_info_dma_avail, vfio_region_info, vfio_region_info_cap_sparse_mmap,
};

use crate::dma::{Iova, IovaRange};

/// The first address that is given out: a small number taken for an address must never be mapped.
const FIRST_IOVA: u64 = 0x1_0000;

/// An answer of the kernel: a structure that starts with `argsz` and `flags`, and what follows it.
#[derive(Debug, Clone)]
pub(super) struct Reply(Vec<u8>);

impl Reply {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// How long the whole answer is.
    pub(super) fn wanted(&self) -> usize {
        self.u32(offset_of!(vfio_region_info, argsz)).unwrap_or(0) as usize
    }

    fn flags(&self) -> u32 {
        self.u32(offset_of!(vfio_region_info, flags)).unwrap_or(0)
    }

    fn u16(&self, offset: usize) -> Option<u16> {
        Some(u16::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }

    fn u32(&self, offset: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }

    fn u64(&self, offset: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }

    /// Where the capability with this identifier starts, in the chain that begins at the offset in `first`.
    fn capability(&self, first: usize, id: u32) -> Option<usize> {
        let mut at = self.u32(first)? as usize;
        while at != 0 {
            if u32::from(self.u16(at + offset_of!(vfio_info_cap_header, id))?) == id {
                return Some(at);
            }
            let next = self.u32(at + offset_of!(vfio_info_cap_header, next))? as usize;
            // The kernel appends each to the last: a chain that leads backwards could go on for ever.
            if next <= at {
                return None;
            }
            at = next;
        }
        None
    }

    /// Pairs of 64-bit numbers, as many as `count` says and as there are.
    fn pairs(&self, count: usize, from: usize) -> Vec<(u64, u64)> {
        let count = self.u32(count).unwrap_or(0) as usize;
        let pair = |index: usize| {
            let at = from.checked_add(index.checked_mul(16)?)?;
            Some((self.u64(at)?, self.u64(at + 8)?))
        };
        (0..count).map_while(pair).collect()
    }
}

/// A part of a region that can be mapped, in bytes from the region's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Area {
    /// Whether `len` bytes at `offset` lie in it.
    pub(super) fn contains(self, offset: u64, len: u64) -> bool {
        offset.checked_sub(self.offset).and_then(|start| start.checked_add(len)).is_some_and(|end| end <= self.len)
    }
}

/// A region of a device: a BAR, or its configuration space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// Its length in bytes; 0 where there is none.
    pub(super) len: u64,
    /// Where it starts in the device's file.
    pub(super) file_offset: u64,
    /// What of it can be mapped. All of it where the kernel names no areas, nothing where it forbids mapping.
    pub(super) areas: Vec<Area>,
}

impl RegionInfo {
    pub(super) fn read(reply: &Reply) -> Self {
        let len = reply.u64(offset_of!(vfio_region_info, size)).unwrap_or(0);
        let file_offset = reply.u64(offset_of!(vfio_region_info, offset)).unwrap_or(0);
        let flags = reply.flags();
        let chain = (flags & VFIO_REGION_INFO_FLAG_CAPS != 0).then_some(offset_of!(vfio_region_info, cap_offset));
        let sparse = chain.and_then(|chain| reply.capability(chain, VFIO_REGION_INFO_CAP_SPARSE_MMAP));
        let mut areas = match sparse {
            _ if flags & VFIO_REGION_INFO_FLAG_MMAP == 0 => Vec::new(),
            Some(at) => {
                let count = at + offset_of!(vfio_region_info_cap_sparse_mmap, nr_areas);
                let pairs = reply.pairs(count, at + size_of::<vfio_region_info_cap_sparse_mmap>());
                pairs.into_iter().map(|(offset, len)| Area { offset, len }).collect()
            }
            None => vec![Area { offset: 0, len }],
        };
        let all = Area { offset: 0, len };
        areas.retain(|area| area.len != 0 && all.contains(area.offset, area.len));
        Self { len, file_offset, areas }
    }
}

/// A container's IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// The smallest unit of a mapping, at least the host's own page.
    pub(super) page_size: u64,
    /// What addresses it translates.
    pub(super) apertures: Vec<IovaRange>,
    /// How many more mappings it takes, where the kernel says.
    pub(super) mappings_left: Option<u32>,
}

impl IommuInfo {
    pub(super) fn read(reply: &Reply, host_page: u64) -> Self {
        let flags = reply.flags();
        let sizes = if flags & VFIO_IOMMU_INFO_PGSIZES != 0 {
            reply.u64(offset_of!(vfio_iommu_type1_info, iova_pgsizes)).unwrap_or(0)
        } else {
            0
        };
        let smallest = if sizes == 0 { host_page } else { 1 << sizes.trailing_zeros() };
        let page_size = smallest.max(host_page);
        let chain = offset_of!(vfio_iommu_type1_info, cap_offset);
        let find = |id| (flags & VFIO_IOMMU_INFO_CAPS != 0).then(|| reply.capability(chain, id)).flatten();
        let ranges = find(VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE).map(|at| {
            let count = at + offset_of!(vfio_iommu_type1_info_cap_iova_range, nr_iovas);
            reply.pairs(count, at + size_of::<vfio_iommu_type1_info_cap_iova_range>())
        });
        let avail = offset_of!(vfio_iommu_type1_info_dma_avail, avail);
        Self {
            page_size,
            // A kernel that does not say (before Linux 5.4): what every IOMMU of a server translates, without x86's
            // window for interrupts.
            apertures: apertures(
                ranges.as_deref().unwrap_or(&[(0, 0xfedf_ffff), (0xfef0_0000, (1 << 39) - 1)]),
                page_size,
            ),
            mappings_left: find(VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL).and_then(|at| reply.u32(at + avail)),
        }
    }

    /// Of an address space without a limit of mappings: ranges from first to last address.
    pub(super) fn of_ranges(ranges: &[(u64, u64)], page_size: u64) -> Self {
        Self { page_size, apertures: apertures(ranges, page_size), mappings_left: None }
    }
}

/// Ranges from first to last address, as whole pages above [`FIRST_IOVA`]. The last page of the 64-bit space is left
/// out: its end is no address.
fn apertures(ranges: &[(u64, u64)], page_size: u64) -> Vec<IovaRange> {
    let range = |&(first, last): &(u64, u64)| {
        let start = first.max(FIRST_IOVA).checked_next_multiple_of(page_size)?;
        let end = last.checked_add(1).unwrap_or(last) / page_size * page_size;
        IovaRange::new(Iova::new(start)?, end.checked_sub(start)?)
    };
    ranges.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests;
