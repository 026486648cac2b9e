//! The calls to VFIO, one function each (Linux, include/uapi/linux/vfio.h).
//!
//! Layouts and constants are those of `vfio-bindings`; what the kernel answers is handed back as it is, and read
//! elsewhere. Reads and writes of regions are plain reads and writes of the device's file and need nothing here.

pub(super) mod iommufd;

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_UNMAP_FLAG_ALL, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE,
    VFIO_TYPE, vfio_device_info, vfio_group_status, vfio_iommu_type1_dma_map, vfio_iommu_type1_dma_unmap,
    vfio_iommu_type1_info, vfio_irq_info, vfio_irq_set, vfio_region_info,
};
use zerocopy::IntoBytes;

use super::capability::Reply;

/// The longest answer with capabilities that is read: thousands of windows. A longer one is an error.
const LONGEST_REPLY: usize = 64 << 10;

/// `_IO(VFIO_TYPE, VFIO_BASE + number)`.
const fn request(number: u32) -> c_ulong {
    ((VFIO_TYPE as u32) << 8 | (VFIO_BASE + number)) as c_ulong
}

const GET_API_VERSION: c_ulong = request(0);
const CHECK_EXTENSION: c_ulong = request(1);
const SET_IOMMU: c_ulong = request(2);
const GROUP_GET_STATUS: c_ulong = request(3);
const GROUP_SET_CONTAINER: c_ulong = request(4);
const GROUP_UNSET_CONTAINER: c_ulong = request(5);
const GROUP_GET_DEVICE_FD: c_ulong = request(6);
const DEVICE_GET_INFO: c_ulong = request(7);
const DEVICE_GET_REGION_INFO: c_ulong = request(8);
const DEVICE_GET_IRQ_INFO: c_ulong = request(9);
const DEVICE_SET_IRQS: c_ulong = request(10);
const DEVICE_RESET: c_ulong = request(11);
const IOMMU_GET_INFO: c_ulong = request(12);
const IOMMU_MAP_DMA: c_ulong = request(13);
const IOMMU_UNMAP_DMA: c_ulong = request(14);

/// The version of VFIO's interface.
pub(super) fn api_version(container: &File) -> io::Result<c_int> {
    with_value(container, GET_API_VERSION, 0)
}

/// Whether the container has an extension, such as a kind of IOMMU.
pub(super) fn has_extension(container: &File, extension: u32) -> io::Result<bool> {
    Ok(with_value(container, CHECK_EXTENSION, extension.into())? == 1)
}

/// Chooses the kind of IOMMU; the first group is attached before.
pub(super) fn set_iommu(container: &File, kind: u32) -> io::Result<()> {
    with_value(container, SET_IOMMU, kind.into()).map(drop)
}

/// The flags of a group: viable, in a container.
pub(super) fn group_flags(group: &File) -> io::Result<u32> {
    let mut status = vfio_group_status { argsz: size_of::<vfio_group_status>() as u32, flags: 0 };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `status`.
    unsafe { with_pointer(group, GROUP_GET_STATUS, (&raw mut status).cast()) }?;
    Ok(status.flags)
}

/// Attaches a group to a container.
pub(super) fn set_container(group: &File, container: &File) -> io::Result<()> {
    let mut fd = container.as_raw_fd();
    // SAFETY: the kernel reads one descriptor number.
    unsafe { with_pointer(group, GROUP_SET_CONTAINER, (&raw mut fd).cast()) }.map(drop)
}

/// Detaches a group from its container. The kernel refuses while a device of the group is open.
pub(super) fn unset_container(group: &File) -> io::Result<()> {
    with_value(group, GROUP_UNSET_CONTAINER, 0).map(drop)
}

/// Opens a device of a group, by its PCI address as text.
pub(super) fn open_device(group: &File, address: &CStr) -> io::Result<File> {
    // SAFETY: the kernel reads a string that ends with a zero.
    let fd = unsafe { with_pointer(group, GROUP_GET_DEVICE_FD, address.as_ptr().cast_mut().cast()) }?;
    // SAFETY: the kernel has just made this descriptor, for us alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// What a device is: flags, numbers of regions and kinds of interrupts.
pub(super) fn device_info(device: &File) -> io::Result<vfio_device_info> {
    let mut info = vfio_device_info { argsz: size_of::<vfio_device_info>() as u32, ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `info`.
    unsafe { with_pointer(device, DEVICE_GET_INFO, (&raw mut info).cast()) }?;
    Ok(info)
}

/// A region, with its chain of capabilities.
pub(super) fn region_info(device: &File, index: u32) -> io::Result<Reply> {
    reply(
        device,
        DEVICE_GET_REGION_INFO,
        size_of::<vfio_region_info>(),
        &[(offset_of!(vfio_region_info, index), index)],
    )
}

/// What a container's IOMMU is, with its chain of capabilities.
pub(super) fn iommu_info(container: &File) -> io::Result<Reply> {
    reply(container, IOMMU_GET_INFO, size_of::<vfio_iommu_type1_info>(), &[])
}

/// How many interrupts of a kind a device has.
pub(super) fn irq_count(device: &File, index: u32) -> io::Result<u32> {
    let mut info = vfio_irq_info { argsz: size_of::<vfio_irq_info>() as u32, index, ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `info`.
    unsafe { with_pointer(device, DEVICE_GET_IRQ_INFO, (&raw mut info).cast()) }?;
    Ok(info.count)
}

/// Has the kernel signal `events`, one for each interrupt of a kind from the first on; none switches the kind off.
pub(super) fn signal_events(device: &File, index: u32, events: &[BorrowedFd<'_>]) -> io::Result<()> {
    let data = if events.is_empty() { VFIO_IRQ_SET_DATA_NONE } else { VFIO_IRQ_SET_DATA_EVENTFD };
    let header = size_of::<vfio_irq_set>();
    let argsz = (header + events.len() * size_of::<i32>()) as u32;
    // argsz, flags, index, start, count; then the descriptors.
    let mut words = vec![argsz, data | VFIO_IRQ_SET_ACTION_TRIGGER, index, 0, events.len() as u32];
    words.extend(events.iter().map(|event| event.as_raw_fd() as u32));
    // SAFETY: the kernel reads the `argsz` bytes that `words` has, laid out as `vfio_irq_set` with its array.
    unsafe { with_pointer(device, DEVICE_SET_IRQS, words.as_mut_ptr().cast()) }.map(drop)
}

/// Has the kernel signal `event` from now on when interrupt `vector` of kind `index` comes, or nobody, where it is `None`. Others
/// stay as they are.
pub(super) fn signal_event(device: &File, index: u32, vector: u32, event: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let argsz = (size_of::<vfio_irq_set>() + size_of::<i32>()) as u32;
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let descriptor = event.map_or(-1, |event| event.as_raw_fd());
    let mut words = [argsz, flags, index, vector, 1, descriptor as u32];
    // SAFETY: the kernel reads the `argsz` bytes that `words` has, laid out as `vfio_irq_set` with its array.
    unsafe { with_pointer(device, DEVICE_SET_IRQS, words.as_mut_ptr().cast()) }.map(drop)
}

const _: () = assert!(size_of::<vfio_irq_set>() == 20 && offset_of!(vfio_irq_set, count) == 16);

/// Resets a device.
pub(super) fn reset(device: &File) -> io::Result<()> {
    with_value(device, DEVICE_RESET, 0).map(drop)
}

/// Makes `size` bytes at `memory` reachable at `iova`, for `flags` of `VFIO_DMA_MAP_FLAG_READ` and `_WRITE`.
///
/// # Safety
/// As [`AddressSpace::map`](crate::dma::AddressSpace::map): the memory stays mapped until it is unmapped from there.
pub(super) unsafe fn map_dma(
    container: &File,
    iova: u64,
    size: u64,
    memory: NonNull<u8>,
    flags: u32,
) -> io::Result<()> {
    let vaddr = memory.addr().get() as u64;
    let argsz = size_of::<vfio_iommu_type1_dma_map>() as u32;
    let mut map = vfio_iommu_type1_dma_map { argsz, flags, vaddr, iova, size };
    // SAFETY: the kernel reads the `argsz` bytes of `map`; the caller vouches for the memory that it names.
    unsafe { with_pointer(container, IOMMU_MAP_DMA, (&raw mut map).cast()) }.map(drop)
}

/// Removes the mappings within `size` bytes at `iova`; how many bytes were mapped there.
pub(super) fn unmap_dma(container: &File, iova: u64, size: u64) -> io::Result<u64> {
    unmap(container, iova, size, 0)
}

/// Removes every mapping of the container.
pub(super) fn unmap_all(container: &File) -> io::Result<()> {
    const HALF: u64 = 1 << 63;
    match unmap(container, 0, 0, VFIO_DMA_UNMAP_FLAG_ALL) {
        // A kernel that does not know the flag (before Linux 5.12), and takes half of the addresses in a call at the most.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            [0, HALF].into_iter().try_for_each(|start| unmap(container, start, HALF, 0).map(drop))
        }
        unmapped => unmapped.map(drop),
    }
}

fn unmap(container: &File, iova: u64, size: u64, flags: u32) -> io::Result<u64> {
    let argsz = size_of::<vfio_iommu_type1_dma_unmap>() as u32;
    let mut unmap = vfio_iommu_type1_dma_unmap { argsz, flags, iova, size, ..Default::default() };
    // SAFETY: the kernel reads and writes no more than the `argsz` bytes of `unmap`. Taking mappings away reaches no
    // memory of ours.
    unsafe { with_pointer(container, IOMMU_UNMAP_DMA, (&raw mut unmap).cast()) }?;
    Ok(unmap.size)
}

/// An eventfd(2) for the kernel to signal. Reading it never blocks.
pub(super) fn event() -> io::Result<OwnedFd> {
    // SAFETY: the call has no precondition.
    let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// An answer with a chain of capabilities: asked for once more when the kernel says that it is longer.
fn reply(file: &File, request: c_ulong, least: usize, fields: &[(usize, u32)]) -> io::Result<Reply> {
    let mut argsz = least;
    loop {
        let mut words = vec![0u64; argsz.div_ceil(8)];
        let bytes = words.as_mut_bytes();
        for (offset, value) in [(0, argsz as u32)].iter().chain(fields) {
            bytes[*offset..*offset + 4].copy_from_slice(&value.to_ne_bytes());
        }
        // SAFETY: the kernel reads and writes no more than the `argsz` bytes that `words` has, aligned to 8.
        unsafe { with_pointer(file, request, words.as_mut_ptr().cast()) }?;
        let reply = Reply::new(words.as_bytes()[..argsz].to_vec());
        match reply.wanted() {
            wanted if wanted <= argsz => return Ok(reply),
            wanted if wanted > LONGEST_REPLY => return Err(io::Error::from_raw_os_error(libc::E2BIG)),
            wanted => argsz = wanted,
        }
    }
}

fn with_value(file: &File, request: c_ulong, value: c_ulong) -> io::Result<c_int> {
    // SAFETY: every request that is made by this takes a number, and no address.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), request as _, value) })
}

/// # Safety
/// The request reads and writes at `argument` only what belongs to the caller.
unsafe fn with_pointer(file: &File, request: c_ulong, argument: *mut c_void) -> io::Result<c_int> {
    // SAFETY: the caller's promise.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), request as _, argument) })
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
