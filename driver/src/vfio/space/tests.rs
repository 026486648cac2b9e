//! A container of a kernel that answers as it is told.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::dma::{DmaSpace, HostMemory, Iova, IovaAllocator};

/// What the kernel did, and what it is to answer.
#[derive(Default)]
struct Fake {
    map_errno: i32,
    /// Bytes that an unmap says it removed; `None`: those that it was asked for.
    unmapped: Option<u64>,
    unmap_errno: i32,
    detach_errno: i32,
    unmap_all_errno: i32,
    access: AtomicU8,
    calls: Mutex<Vec<String>>,
}

impl Fake {
    fn answer(&self, call: String, errno: i32) -> io::Result<()> {
        self.calls.lock().unwrap().push(call);
        if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
    }
}

impl Container for Fake {
    const TRANSLATION: Translation = Translation::Type1;

    unsafe fn map(&self, range: IovaRange, _memory: NonNull<u8>, access: Access) -> io::Result<()> {
        self.access.store(access.bits(), Ordering::Relaxed);
        self.answer(format!("map {:#x}", range.len()), self.map_errno)
    }

    fn unmap(&self, range: IovaRange) -> io::Result<u64> {
        self.answer(format!("unmap {:#x}", range.len()), self.unmap_errno)?;
        Ok(self.unmapped.unwrap_or(range.len()))
    }

    fn unmap_all(&self) -> io::Result<()> {
        self.answer("unmap all".to_owned(), self.unmap_all_errno)
    }

    fn detach(&self, _member: &File) -> io::Result<()> {
        self.answer("detach".to_owned(), self.detach_errno)
    }
}

fn range(len: u64) -> IovaRange {
    IovaRange::new(Iova::new(0x10_0000).unwrap(), len).unwrap()
}

fn space(container: Fake, groups: usize) -> ContainerSpace<Fake> {
    let info = IommuInfo { page_size: 4096, apertures: vec![range(1 << 30)], mappings_left: Some(65535) };
    ContainerSpace::new(container, &info, groups)
}

fn map(space: &ContainerSpace<Fake>, len: u64) -> Result<(), MapError> {
    let memory = HostMemory::allocate(1 << 20).unwrap();
    // SAFETY: no device is behind the fake; nobody uses the mapping.
    unsafe { space.map(range(len), crate::dma::Backing::base(&memory), Access::all()) }
}

fn calls(space: &ContainerSpace<Fake>) -> Vec<String> {
    space.container.calls.lock().unwrap().clone()
}

#[test]
fn each_refusal_names_its_reason() {
    for (errno, expected) in [
        (
            libc::ENOSPC,
            "at its limit of 65535 mappings: register fewer and larger pieces of memory, or raise dma_entry_limit",
        ),
        (libc::ENOMEM, "the 8192 bytes exceed what this process may lock in memory (RLIMIT_MEMLOCK)"),
        (libc::EEXIST, "is mapped there already"),
        (libc::EFAULT, "Bad address"),
        (libc::EIO, "Input/output error"),
    ] {
        let error = map(&space(Fake { map_errno: errno, ..Fake::default() }, 1), 8192).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_misaligned_never_reaches_the_kernel() {
    let space = space(Fake::default(), 1);
    assert_eq!(map(&space, 4097), Err(MapError::Misaligned { range: range(4097), page_size: 4096 }));
    assert_eq!(calls(&space), [""; 0]);
}

#[test]
fn a_region_is_one_mapping_however_long() {
    let fake = Arc::new(space(Fake::default(), 1));
    let translation: Arc<dyn AddressSpace> = fake.clone();
    let dma = DmaSpace::new(translation, IovaAllocator::new(&[range(1 << 30)], &[]));
    let region = dma.register(HostMemory::allocate(8 << 20).unwrap(), Access::DEVICE_READS).unwrap();
    assert_eq!(fake.container.access.load(Ordering::Relaxed), Access::DEVICE_READS.bits());
    region.release();
    assert_eq!(calls(&fake), ["map 0x800000", "unmap 0x800000"]);
}

#[test]
fn the_size_that_the_kernel_removed_is_checked() {
    for short in [0, 4096] {
        let space = space(Fake { unmapped: Some(short), ..Fake::default() }, 1);
        assert_eq!(space.unmap(range(8192)), Err(MapError::NotMapped { range: range(8192) }), "{short} of 8192");
    }
    let space = space(Fake { unmap_errno: libc::EINVAL, ..Fake::default() }, 1);
    assert_eq!(space.unmap(range(8192)), Err(MapError::NotMapped { range: range(8192) }));
}

/// A region that outlives its last function gives its memory back: the kernel has removed the mapping.
#[test]
fn nothing_is_mapped_once_the_last_group_has_left() {
    let file = tempfile::tempfile().unwrap();
    let space = space(Fake { unmap_errno: libc::EINVAL, ..Fake::default() }, 2);
    space.detach(&file);
    assert!(map(&space, 4096).is_ok(), "one group is left");
    assert!(space.unmap(range(4096)).is_err());
    space.detach(&file);
    assert_eq!(map(&space, 4096), Err(MapError::Detached { range: range(4096) }));
    assert_eq!(space.unmap(range(4096)), Ok(()));
}

#[test]
fn a_group_that_cannot_leave_takes_every_mapping_with_it() {
    let space = space(Fake { detach_errno: libc::EBUSY, unmapped: Some(0), ..Fake::default() }, 2);
    space.detach(&tempfile::tempfile().unwrap());
    assert_eq!(calls(&space), ["detach", "unmap all"]);
    assert_eq!(map(&space, 4096), Err(MapError::Detached { range: range(4096) }));
    assert_eq!(space.unmap(range(4096)), Ok(()), "it is gone with the others");
}

/// Whether mappings are left nobody knows then: what cannot be unmapped is not given back.
#[test]
fn where_not_all_can_be_taken_away_an_unmap_that_fails_says_so() {
    for (members, errno) in [(1, libc::EIO), (2, libc::EIO), (2, libc::EINVAL)] {
        let fake =
            Fake { detach_errno: libc::EBUSY, unmap_all_errno: errno, unmap_errno: libc::EIO, ..Fake::default() };
        let space = space(fake, members);
        map(&space, 0x1000).unwrap();
        space.detach(&tempfile::tempfile().unwrap());
        assert!(matches!(space.unmap(range(0x1000)), Err(MapError::Kernel { errno: libc::EIO, .. })));
        assert!(matches!(map(&space, 0x1000), Err(MapError::Detached { .. })));
    }
}

/// Dma-bufs go to whoever takes them, and to nobody as a mapping.
#[test]
fn a_dma_buf_is_refused_where_the_kernel_takes_none() {
    let space = space(Fake::default(), 1);
    let file = tempfile::tempfile().unwrap();
    let map = |offset| {
        // SAFETY: no device is behind the fake; nobody uses the mapping.
        unsafe { space.map_dma_buf(range(0x1000), (std::os::fd::AsFd::as_fd(&file), offset), Access::all()) }
    };
    assert_eq!(map(0), Err(MapError::NoDmaBuf { range: range(0x1000) }));
    assert_eq!(map(512), Err(MapError::Misaligned { range: range(0x1000), page_size: 4096 }));
    assert!(space.container.calls.lock().unwrap().is_empty(), "its mapping was not tried instead");
}

/// A device that the kernel took away was alone in its group, and the group in its container.
#[test]
fn a_group_that_has_gone_by_itself_leaves_nothing_mapped() {
    let gone = Fake {
        detach_errno: libc::ENODEV,
        unmap_all_errno: libc::EINVAL,
        unmap_errno: libc::EINVAL,
        ..Fake::default()
    };
    let space = space(gone, 1);
    map(&space, 0x1000).unwrap();
    space.detach(&tempfile::tempfile().unwrap());
    space.unmap(range(0x1000)).unwrap();
    assert!(matches!(map(&space, 0x1000), Err(MapError::Detached { .. })));
}
