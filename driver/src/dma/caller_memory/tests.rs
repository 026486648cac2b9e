use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use super::*;
use crate::dma::{AddressSpace, DmaSpace, InPlaceError, IovaAllocator, IovaRange, MapError};

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// A mapping of the test's own.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize, protection: i32, flags: i32, fd: i32) -> Option<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        (base != libc::MAP_FAILED).then(|| Self { base: NonNull::new(base.cast()).unwrap(), len })
    }

    fn anonymous(len: usize) -> Self {
        Self::new(len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1).unwrap()
    }

    fn at(&self, offset: usize, len: usize) -> Result<CallerMemory, CallerMemoryError> {
        // SAFETY: the test keeps the mapping for as long as it uses the memory, and makes no reference to it.
        unsafe { CallerMemory::new(self.base.add(offset), len) }
    }

    fn protect(&self, offset: usize, protection: i32) {
        // SAFETY: pages of the test's own.
        assert_eq!(unsafe { libc::mprotect(self.base.as_ptr().add(offset).cast(), PAGE, protection) }, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is the test's own, and nobody uses it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// What was mapped: where, the memory's address, the file's offset and what for.
type Mapped = Arc<Mutex<Vec<(IovaRange, usize, Option<u64>, Access)>>>;

/// An address space that writes down what it maps.
#[derive(Default)]
struct Recorder {
    mapped: Mapped,
}

impl AddressSpace for Recorder {
    fn page_size(&self) -> u64 {
        PAGE as u64
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        self.mapped.lock().unwrap().push((range, memory.addr().get(), None, access));
        Ok(())
    }

    unsafe fn map_file(
        &self,
        range: IovaRange,
        memory: NonNull<u8>,
        (_, offset): (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        self.mapped.lock().unwrap().push((range, memory.addr().get(), Some(offset), access));
        Ok(())
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        self.mapped.lock().unwrap().retain(|(mapped, ..)| *mapped != range);
        Ok(())
    }
}

fn space() -> (Mapped, Arc<DmaSpace>) {
    let recorder = Recorder::default();
    let mapped = Arc::clone(&recorder.mapped);
    (mapped, DmaSpace::new(Arc::new(recorder), IovaAllocator::common()))
}

#[test]
fn memory_is_mapped_with_the_pages_that_it_lies_on() {
    let mapping = Mapping::anonymous(8 * PAGE);
    let (mapped, space) = space();
    let start = mapping.base.addr().get();
    for (offset, len, before, after, pages) in [
        (0, 2 * PAGE, 0, 0, 2),
        (100, 5000, 100, 2 * PAGE - 5100, 2),
        (PAGE - 1, 2, PAGE - 1, PAGE - 1, 2),
        (PAGE + 8, 1, 8, PAGE - 9, 1),
        (1, 8 * PAGE - 1, 1, 0, 8),
    ] {
        let memory = Arc::new(mapping.at(offset, len).unwrap());
        let whole = memory.whole_pages(PAGE as u64).unwrap();
        assert_eq!((whole.before, whole.after, whole.len), (before, after, pages * PAGE));
        let region = space.register_in_place(&memory, Access::all()).unwrap();
        let expected = (region.range(), start + offset - before, None, Access::all());
        assert_eq!((region.range().len(), mapped.lock().unwrap().clone()), ((pages * PAGE) as u64, vec![expected]));
        drop(region);
        assert!(mapped.lock().unwrap().is_empty());
    }
}

/// So that the IOMMU can have large pages where the memory does.
#[test]
fn from_two_mib_on_iova_and_address_agree_modulo_two_mib() {
    let mapping = Mapping::anonymous(3 * HUGE);
    // SAFETY: the mapping is the test's own; this is advice for it.
    unsafe { libc::madvise(mapping.base.as_ptr().cast(), mapping.len, libc::MADV_HUGEPAGE) };
    let (_, space) = space();
    for (offset, len) in [(0, HUGE), (PAGE, HUGE), (3 * PAGE + 17, HUGE + 5000), (HUGE - PAGE, 2 * HUGE)] {
        let memory = Arc::new(mapping.at(offset, len).unwrap());
        let region = space.register_in_place(&memory, Access::all()).unwrap();
        let base = memory.whole_pages(PAGE as u64).unwrap().base.addr().get() as u64;
        assert_eq!(region.iova().get() % HUGE as u64, base % HUGE as u64, "{len} bytes at {offset}");
        memory.write(len - 1, &[7]);
    }
    let small = Arc::new(mapping.at(PAGE, PAGE).unwrap());
    assert!(space.register_in_place(&small, Access::all()).is_ok());
}

#[test]
fn memory_that_may_only_be_read_is_for_devices_to_read() {
    let mapping = Mapping::anonymous(3 * PAGE);
    mapping.protect(PAGE, libc::PROT_READ);
    let at = mapping.base.addr().get() + PAGE;
    let (mapped, space) = space();
    let memory = Arc::new(mapping.at(10, 2 * PAGE).unwrap());
    assert!(!memory.is_writable());
    for access in [Access::all(), Access::DEVICE_WRITES] {
        let refused = space.register_in_place(&memory, access).map(drop).unwrap_err();
        assert!(
            matches!(refused, InPlaceError::Memory(CallerMemoryError::ReadOnly { at: found, .. }) if found == at),
            "{refused}"
        );
    }
    assert!(mapped.lock().unwrap().is_empty());
    assert!(space.register_in_place(&memory, Access::DEVICE_READS).is_ok());
    mapping.protect(PAGE, libc::PROT_NONE);
    let refused = mapping.at(10, 2 * PAGE).unwrap_err();
    assert!(matches!(refused, CallerMemoryError::NotReadable { at: found, .. } if found == at), "{refused}");
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let mapping = Mapping::anonymous(4 * PAGE);
    let hole = mapping.base.addr().get() + 2 * PAGE;
    // SAFETY: pages of the test's own, which nobody uses; they are not mapped again before the look.
    unsafe { libc::munmap(mapping.base.as_ptr().add(2 * PAGE).cast(), PAGE) };
    // Another thread's mapping may have come into the hole meanwhile.
    match mapping.at(PAGE, 2 * PAGE) {
        Err(CallerMemoryError::NotMapped { hole: found, .. }) => assert_eq!(found, hole),
        other => assert!(other.is_ok(), "{other:?}"),
    }
    assert!(mapping.at(PAGE, PAGE).is_ok());
    assert!(matches!(mapping.at(0, 0), Err(CallerMemoryError::NoRange { .. })));
    assert!(matches!(mapping.at(0, usize::MAX), Err(CallerMemoryError::NoRange { .. })));
    // Nobody will use what is left of the hole's page.
    std::mem::forget(mapping);
}

#[test]
fn a_window_of_a_file_is_for_staging_alone() {
    let file = std::fs::File::open("/etc/passwd").unwrap();
    let mapping = Mapping::new(PAGE, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd()).unwrap();
    let memory = Arc::new(mapping.at(0, 4).unwrap());
    let (_, space) = space();
    let refused = space.register_in_place(&memory, Access::DEVICE_READS).map(drop).unwrap_err();
    assert!(matches!(refused, InPlaceError::Memory(CallerMemoryError::File { .. })), "{refused}");
    assert!(refused.to_string().contains("/etc/passwd, behind whose back"), "{refused}");
    // A copy of it that is written is memory.
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let copy = Mapping::new(PAGE, protection, libc::MAP_PRIVATE, file.as_raw_fd()).unwrap();
    assert!(space.register_in_place(&Arc::new(copy.at(0, PAGE).unwrap()), Access::all()).is_ok());
}

#[test]
fn memory_of_a_file_is_mapped_by_it() {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the descriptor is new and ours alone.
    let file = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    let file = std::fs::File::from(file);
    file.set_len(4 * PAGE as u64).unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let mapping = Mapping::new(4 * PAGE, protection, libc::MAP_SHARED, fd).unwrap();
    let (mapped, space) = space();
    let len = PAGE;
    // SAFETY: the test keeps the mapping for as long as it uses the memory; it is that of the file.
    let memory =
        unsafe { CallerMemory::of_file(mapping.base.add(PAGE + 512), len, file.into(), PAGE as u64 + 512).unwrap() };
    memory.write(len - 4, b"seen");
    let mut bytes = [0; 4];
    memory.read(len - 4, &mut bytes);
    assert_eq!(&bytes, b"seen");
    let region = space.register_in_place(&Arc::new(memory), Access::all()).unwrap();
    let expected = (region.range(), mapping.base.addr().get() + PAGE, Some(PAGE as u64), Access::all());
    assert_eq!(*mapped.lock().unwrap(), [expected]);
}

/// Hugepages that were promised and are not there are an error, and no signal later.
#[test]
fn caller_memory_on_hugepages() {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | (21 << 26);
    let (_, space) = space();
    // More than any pool of a machine that runs tests: promised without being reserved.
    let Some(promised) = Mapping::new(64 << 30, protection, flags | libc::MAP_NORESERVE, -1) else {
        return println!("skipped: this kernel has no hugepages of 2 MiB");
    };
    let Some(mapping) = Mapping::new(2 * HUGE, protection, flags, -1) else {
        let memory = Arc::new(promised.at(0, HUGE).unwrap());
        let refused = space.register_in_place(&memory, Access::all()).map(drop).unwrap_err();
        assert!(matches!(refused, InPlaceError::Memory(CallerMemoryError::Absent { .. })), "{refused}");
        return println!("the rest is skipped: fewer than 2 free hugepages of 2 MiB");
    };
    // A part of a hugepage: the IOMMU's pages are smaller.
    let memory = Arc::new(mapping.at(HUGE - 100, HUGE).unwrap());
    let region = space.register_in_place(&memory, Access::all()).unwrap();
    assert_eq!(region.range().len(), (HUGE + PAGE) as u64);
    memory.write(0, &[1; 200]);
}
