//! The calls to iommufd, and those that tie a device to it, one function each (Linux, include/uapi/linux/iommufd.h and
//! vfio.h).

use std::ffi::c_ulong;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use iommufd_bindings::{
    IOMMUFD_CMD_IOAS_ALLOC, IOMMUFD_CMD_IOAS_IOVA_RANGES, IOMMUFD_CMD_IOAS_MAP, IOMMUFD_CMD_IOAS_MAP_FILE,
    IOMMUFD_CMD_IOAS_UNMAP, IOMMUFD_TYPE, iommu_ioas_alloc, iommu_ioas_iova_ranges, iommu_ioas_map,
    iommu_ioas_map_file, iommu_ioas_unmap, iommu_iova_range, iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE, iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE,
};
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FEATURE_DMA_BUF, VFIO_DEVICE_FEATURE_GET, vfio_device_attach_iommufd_pt, vfio_device_bind_iommufd,
    vfio_device_detach_iommufd_pt, vfio_device_feature, vfio_device_feature_dma_buf, vfio_region_dma_range,
};

use super::{request, with_pointer};
use crate::dma::{Access, IovaRange};

/// `_IO(IOMMUFD_TYPE, number)`.
const fn iommufd_request(number: u32) -> c_ulong {
    ((IOMMUFD_TYPE as u32) << 8 | number) as c_ulong
}

const IOAS_ALLOC: c_ulong = iommufd_request(IOMMUFD_CMD_IOAS_ALLOC);
const IOAS_IOVA_RANGES: c_ulong = iommufd_request(IOMMUFD_CMD_IOAS_IOVA_RANGES);
const IOAS_MAP: c_ulong = iommufd_request(IOMMUFD_CMD_IOAS_MAP);
const IOAS_MAP_FILE: c_ulong = iommufd_request(IOMMUFD_CMD_IOAS_MAP_FILE);
const IOAS_UNMAP: c_ulong = iommufd_request(IOMMUFD_CMD_IOAS_UNMAP);
const DEVICE_FEATURE: c_ulong = request(17);
const DEVICE_BIND_IOMMUFD: c_ulong = request(18);
const DEVICE_ATTACH_IOMMUFD_PT: c_ulong = request(19);
const DEVICE_DETACH_IOMMUFD_PT: c_ulong = request(20);

/// The most windows of addresses that are read: an IOMMU has a handful.
const MOST_RANGES: u32 = 4096;

/// Makes an I/O address space; its number.
pub(in crate::vfio) fn allocate(iommufd: &File) -> io::Result<u32> {
    let mut alloc = iommu_ioas_alloc { size: size_of::<iommu_ioas_alloc>() as u32, ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `size` bytes of `alloc`.
    unsafe { with_pointer(iommufd, IOAS_ALLOC, (&raw mut alloc).cast()) }?;
    Ok(alloc.out_ioas_id)
}

/// From first to last address what a space can map, and what both ends of a mapping are multiples of. It depends on the
/// devices that are attached.
pub(in crate::vfio) fn iova_ranges(iommufd: &File, ioas: u32) -> io::Result<(Vec<(u64, u64)>, u64)> {
    let mut count = 16;
    loop {
        let mut ranges = vec![iommu_iova_range::default(); count as usize];
        let mut query = iommu_ioas_iova_ranges {
            size: size_of::<iommu_ioas_iova_ranges>() as u32,
            ioas_id: ioas,
            num_iovas: count,
            allowed_iovas: ranges.as_mut_ptr().expose_provenance() as u64,
            ..Default::default()
        };
        // SAFETY: the kernel reads and writes no more than the `size` bytes of `query`, and no more than the `num_iovas`
        // ranges that it points to, which `ranges` has.
        match unsafe { with_pointer(iommufd, IOAS_IOVA_RANGES, (&raw mut query).cast()) } {
            Ok(_) => {
                ranges.truncate(query.num_iovas as usize);
                let pairs = ranges.iter().map(|range| (range.start, range.last)).collect();
                return Ok((pairs, query.out_iova_alignment));
            }
            Err(error)
                if error.raw_os_error() == Some(libc::EMSGSIZE)
                    && (count + 1..=MOST_RANGES).contains(&query.num_iovas) =>
            {
                count = query.num_iovas;
            }
            Err(error) => return Err(error),
        }
    }
}

fn flags(access: Access) -> u32 {
    let mut flags = iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA;
    for (bit, flag) in [
        (Access::DEVICE_READS, iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE),
        (Access::DEVICE_WRITES, iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE),
    ] {
        if access.contains(bit) {
            flags |= flag;
        }
    }
    flags
}

/// Makes the bytes at `memory` reachable at `range`.
///
/// # Safety
/// As [`AddressSpace::map`](crate::dma::AddressSpace::map): the memory stays mapped until it is unmapped from there.
pub(in crate::vfio) unsafe fn map(
    iommufd: &File,
    ioas: u32,
    range: IovaRange,
    memory: NonNull<u8>,
    access: Access,
) -> io::Result<()> {
    let mut map = iommu_ioas_map {
        size: size_of::<iommu_ioas_map>() as u32,
        flags: flags(access),
        ioas_id: ioas,
        user_va: memory.addr().get() as u64,
        length: range.len(),
        iova: range.start().get(),
        ..Default::default()
    };
    // SAFETY: the kernel reads and writes the `size` bytes of `map`; the caller vouches for the memory that it names.
    unsafe { with_pointer(iommufd, IOAS_MAP, (&raw mut map).cast()) }.map(drop)
}

/// As [`map`], for the bytes of `file` from `offset` on: a memfd, or a dma-buf.
///
/// # Safety
/// The bytes are nobody else's until they are unmapped from there.
pub(in crate::vfio) unsafe fn map_file(
    iommufd: &File,
    ioas: u32,
    range: IovaRange,
    (file, offset): (BorrowedFd<'_>, u64),
    access: Access,
) -> io::Result<()> {
    let mut map = iommu_ioas_map_file {
        size: size_of::<iommu_ioas_map_file>() as u32,
        flags: flags(access),
        ioas_id: ioas,
        fd: file.as_raw_fd(),
        start: offset,
        length: range.len(),
        iova: range.start().get(),
    };
    // SAFETY: the kernel reads and writes the `size` bytes of `map`; the caller vouches for the bytes that it names.
    unsafe { with_pointer(iommufd, IOAS_MAP_FILE, (&raw mut map).cast()) }.map(drop)
}

/// Removes the mappings within `len` bytes at `iova`, each as a whole; how many bytes were mapped there. All of them with
/// 0 and `u64::MAX`.
pub(in crate::vfio) fn unmap(iommufd: &File, ioas: u32, iova: u64, len: u64) -> io::Result<u64> {
    let mut unmap = iommu_ioas_unmap { size: size_of::<iommu_ioas_unmap>() as u32, ioas_id: ioas, iova, length: len };
    // SAFETY: the kernel reads and writes the `size` bytes of `unmap`. Taking mappings away reaches no memory of ours.
    unsafe { with_pointer(iommufd, IOAS_UNMAP, (&raw mut unmap).cast()) }?;
    Ok(unmap.length)
}

/// Takes a device for this process and ties it to `iommufd`. Before this the kernel answers nothing else of it.
pub(in crate::vfio) fn bind(device: &File, iommufd: &File) -> io::Result<()> {
    let argsz = size_of::<vfio_device_bind_iommufd>() as u32;
    let mut bind = vfio_device_bind_iommufd { argsz, iommufd: iommufd.as_raw_fd(), ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `bind`.
    unsafe { with_pointer(device, DEVICE_BIND_IOMMUFD, (&raw mut bind).cast()) }.map(drop)
}

/// Has the IOMMU translate for a device by an address space.
pub(in crate::vfio) fn attach(device: &File, ioas: u32) -> io::Result<()> {
    // Without what came later, for other address spaces within a device: older kernels refuse what they do not know.
    let argsz = offset_of!(vfio_device_attach_iommufd_pt, pasid) as u32;
    let mut attach = vfio_device_attach_iommufd_pt { argsz, pt_id: ioas, ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `attach`.
    unsafe { with_pointer(device, DEVICE_ATTACH_IOMMUFD_PT, (&raw mut attach).cast()) }.map(drop)
}

/// Takes a device out of its address space: it reaches nothing any more.
pub(in crate::vfio) fn detach(device: &File) -> io::Result<()> {
    let argsz = offset_of!(vfio_device_detach_iommufd_pt, pasid) as u32;
    let mut detach = vfio_device_detach_iommufd_pt { argsz, ..Default::default() };
    // SAFETY: the kernel reads no more than the `argsz` bytes of `detach`.
    unsafe { with_pointer(device, DEVICE_DETACH_IOMMUFD_PT, (&raw mut detach).cast()) }.map(drop)
}

/// The first `len` bytes of a region as a dma-buf.
pub(in crate::vfio) fn export_dma_buf(device: &File, region: u32, len: u64) -> io::Result<OwnedFd> {
    const HEAD: usize = size_of::<vfio_device_feature>();
    const REQUEST: usize = size_of::<vfio_device_feature_dma_buf>();
    const LEN: usize = HEAD + REQUEST + size_of::<vfio_region_dma_range>();
    let mut words = [0u64; LEN / 8];
    let put = |words: &mut [u64; LEN / 8], at: usize, value: u32| {
        let word = &mut words[at / 8];
        *word |= u64::from(value) << (at % 8 * 8);
    };
    put(&mut words, offset_of!(vfio_device_feature, argsz), LEN as u32);
    put(&mut words, offset_of!(vfio_device_feature, flags), VFIO_DEVICE_FEATURE_GET | VFIO_DEVICE_FEATURE_DMA_BUF);
    put(&mut words, HEAD + offset_of!(vfio_device_feature_dma_buf, region_index), region);
    let open_flags = (libc::O_RDWR | libc::O_CLOEXEC) as u32;
    put(&mut words, HEAD + offset_of!(vfio_device_feature_dma_buf, open_flags), open_flags);
    put(&mut words, HEAD + offset_of!(vfio_device_feature_dma_buf, nr_ranges), 1);
    words[(HEAD + REQUEST + offset_of!(vfio_region_dma_range, length)) / 8] = len;
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes that `words` has, aligned to 8.
    let fd = unsafe { with_pointer(device, DEVICE_FEATURE, words.as_mut_ptr().cast()) }?;
    // SAFETY: the kernel has just made this descriptor, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_header() {
        // From include/uapi/linux/iommufd.h: IOMMUFD_TYPE is ';', IOMMUFD_CMD_BASE 0x80.
        assert_eq!([IOAS_ALLOC, IOAS_IOVA_RANGES, IOAS_MAP], [0x3b81, 0x3b84, 0x3b85]);
        assert_eq!([IOAS_UNMAP, IOAS_MAP_FILE], [0x3b86, 0x3b8f]);
        assert_eq!([DEVICE_FEATURE, DEVICE_BIND_IOMMUFD], [0x3b75, 0x3b76]);
    }

    #[test]
    fn a_device_reads_or_writes_only_where_it_may() {
        assert_eq!([Access::DEVICE_READS, Access::DEVICE_WRITES, Access::all()].map(flags), [0b101, 0b011, 0b111]);
    }
}
