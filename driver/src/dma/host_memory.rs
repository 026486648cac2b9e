//! Host memory of our own: shared anonymous files on hugepages where there are some, faulted in when allocated.
//!
//! Memory that is promised but not there shows as a signal at the first touch, in the middle of a run and perhaps
//! by a device. So every page is faulted in before [`HostMemory::allocate`] returns, hugepages with
//! `MADV_POPULATE_WRITE`, which reports a short pool or a hugetlb cgroup's limit as an error: the answer is then
//! ordinary pages, and [`Pages`] says why.
//!
//! Each allocation is a memfd, so that it can be handed to another process by descriptor.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::ptr::NonNull;

use thiserror::Error;

use super::Backing;

/// The page size of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageSize {
    /// The kernel's ordinary pages (4 KiB on x86-64).
    Ordinary,
    /// Hugepages of 2 MiB.
    Huge2MiB,
    /// Hugepages of 1 GiB.
    Huge1GiB,
}

impl PageSize {
    /// The page in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Ordinary => ordinary_page_size(),
            Self::Huge2MiB => 2 << 20,
            Self::Huge1GiB => 1 << 30,
        }
    }

    /// Flags for memfd_create(2): log2 of the page size in bits 26 to 31 beside MFD_HUGETLB.
    fn memfd_flags(self) -> libc::c_uint {
        match self {
            Self::Ordinary => 0,
            Self::Huge2MiB => libc::MFD_HUGETLB | (21 << 26),
            Self::Huge1GiB => libc::MFD_HUGETLB | (30 << 26),
        }
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ordinary => "ordinary pages",
            Self::Huge2MiB => "2 MiB hugepages",
            Self::Huge1GiB => "1 GiB hugepages",
        })
    }
}

/// What an allocation stands on, and why not on something better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The pages it has.
    pub size: PageSize,
    /// Why it has no hugepages, where it was large enough for one.
    pub fall_back: Option<String>,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fall_back {
            Some(reason) => write!(f, "{}; {reason}", self.size),
            None => write!(f, "{}", self.size),
        }
    }
}

/// Why no memory was allocated.
#[derive(Debug, Error)]
pub enum HostMemoryError {
    /// The caller asked for nothing, or for more than an address can name.
    #[error("cannot allocate {len} bytes of host memory: the length must be 1 to {max}")]
    Length {
        /// Bytes asked for.
        len: usize,
        /// The longest allocation.
        max: usize,
    },
    /// The kernel refused.
    #[error("cannot allocate {len} bytes of host memory on {pages}: {step}: {source}")]
    Kernel {
        /// Bytes asked for, rounded up to whole pages.
        len: usize,
        /// The pages that were tried.
        pages: PageSize,
        /// The call that failed.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Host memory, zeroed, page-aligned and faulted in. A whole number of pages of its kind.
#[derive(Debug)]
pub struct HostMemory {
    base: NonNull<u8>,
    len: usize,
    file: File,
    pages: Pages,
}

// SAFETY: the mapping belongs to this value alone; it hands out no reference to its bytes.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// At least `len` bytes on the largest pages that suit the length and are free, else on ordinary pages.
    ///
    /// 1 GiB pages are tried from 1 GiB on where rounding up costs at most an eighth, 2 MiB pages from 2 MiB on.
    ///
    /// # Errors
    /// [`HostMemoryError`] when ordinary pages cannot be had either.
    pub fn allocate(len: usize) -> Result<Self, HostMemoryError> {
        let mut reasons = Vec::new();
        for size in [PageSize::Huge1GiB, PageSize::Huge2MiB] {
            if !suits(size, len) {
                continue;
            }
            match Self::allocate_on(len, size) {
                Ok(memory) => return Ok(memory),
                Err(error) => reasons.push(error),
            }
        }
        let mut memory = Self::allocate_on(len, PageSize::Ordinary)?;
        memory.pages.fall_back = reasons.last().map(why_no_hugepages);
        Ok(memory)
    }

    /// At least `len` bytes on pages of one size and no other.
    ///
    /// # Errors
    /// [`HostMemoryError`], with the call that failed.
    pub fn allocate_on(len: usize, size: PageSize) -> Result<Self, HostMemoryError> {
        let max = isize::MAX as usize;
        let rounded = len.checked_next_multiple_of(size.bytes()).filter(|rounded| (1..=max).contains(rounded));
        let Some(rounded) = rounded else {
            return Err(HostMemoryError::Length { len, max });
        };
        let failed =
            |step| HostMemoryError::Kernel { len: rounded, pages: size, step, source: io::Error::last_os_error() };

        // SAFETY: the name is a C string; the call touches nothing else of ours.
        let fd = unsafe {
            libc::memfd_create(c"tentpeg".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | size.memfd_flags())
        };
        if fd < 0 {
            return Err(failed("memfd_create"));
        }
        // SAFETY: the descriptor is new and ours alone.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(rounded as u64).map_err(|_| failed("ftruncate"))?;
        // Whoever maps it, this process or a server that it is handed to, meets no page that is gone.
        // SAFETY: the descriptor is our own file; the call touches no memory.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } != 0 {
            return Err(failed("F_ADD_SEALS"));
        }
        // SAFETY: a new mapping at an address of the kernel's choice; no existing memory is touched.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                rounded,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        let base = match NonNull::new(address.cast::<u8>()) {
            Some(base) if address != libc::MAP_FAILED => base,
            _ => return Err(failed("mmap")),
        };
        let memory = Self { base, len: rounded, file, pages: Pages { size, fall_back: None } };
        memory.fault_in().map_err(|_| failed("MADV_POPULATE_WRITE"))?;
        Ok(memory)
    }

    /// What the memory stands on.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Faults every page in. On a kernel without `MADV_POPULATE_WRITE` (before Linux 5.14) ordinary pages are
    /// allocated in the file instead; hugepages are refused there, as a touch could be a signal.
    fn fault_in(&self) -> io::Result<()> {
        // SAFETY: the range is the whole of our own mapping.
        let done = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EINVAL) && self.pages.size == PageSize::Ordinary {
            // SAFETY: the descriptor is our own file; the length is the file's.
            let done = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, 0, self.len as libc::off_t) };
            return if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        }
        Err(error)
    }
}

// SAFETY: the mapping stays where it is until Drop; nothing hands out a reference to its bytes.
unsafe impl Backing for HostMemory {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }

    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        Some((self.file.as_fd(), 0))
    }
}

impl AsFd for HostMemory {
    /// The memfd, for another process to map.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it after its owner.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(done, 0, "the whole of a mapping of ours");
    }
}

/// Whether an allocation of `len` bytes should try pages of `size`.
fn suits(size: PageSize, len: usize) -> bool {
    let page = size.bytes();
    match size {
        PageSize::Huge1GiB => {
            len >= page && len.checked_next_multiple_of(page).is_some_and(|rounded| rounded - len <= len / 8)
        }
        _ => len >= page,
    }
}

/// The reason, for a person.
fn why_no_hugepages(error: &HostMemoryError) -> String {
    match error {
        HostMemoryError::Kernel { step: "MADV_POPULATE_WRITE", source, .. }
            if source.raw_os_error() == Some(libc::EINVAL) =>
        {
            "hugepages need Linux 5.14 or newer".to_owned()
        }
        HostMemoryError::Kernel { source, .. }
            if matches!(source.raw_os_error(), Some(libc::ENOMEM | libc::EFAULT | libc::ENOSPC)) =>
        {
            match free_hugepages() {
                Some(0) => "no hugepages free".to_owned(),
                Some(free) => format!("{free} hugepages of 2 MiB free, too few, or the cgroup's limit is lower"),
                None => "this kernel has no hugepages".to_owned(),
            }
        }
        other => other.to_string(),
    }
}

/// Free hugepages of 2 MiB in the system's pool; `None` where the kernel has none of that size.
fn free_hugepages() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").ok()?;
    text.trim().parse().ok()
}

/// The kernel's ordinary page in bytes.
pub(super) fn ordinary_page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::DmaView;

    fn view(memory: &HostMemory) -> DmaView<'_> {
        // SAFETY: the memory outlives the view and gives out no references.
        unsafe { DmaView::new(memory.base(), memory.len()) }
    }

    #[test]
    fn memory_is_zeroed_whole_and_resident() {
        let memory = HostMemory::allocate_on(10_000, PageSize::Ordinary).unwrap();
        assert_eq!(memory.len() % PageSize::Ordinary.bytes(), 0);
        let mut bytes = vec![1u8; memory.len()];
        view(&memory).read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
        let mut resident = vec![0u8; memory.len() / PageSize::Ordinary.bytes()];
        // SAFETY: the range is a mapping of ours, the vector has one byte a page.
        let done = unsafe { libc::mincore(memory.base().as_ptr().cast(), memory.len(), resident.as_mut_ptr()) };
        assert_eq!(done, 0);
        assert!(resident.iter().all(|page| page & 1 == 1), "every page was faulted in");
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(matches!(HostMemory::allocate(0), Err(HostMemoryError::Length { len: 0, .. })));
        assert!(matches!(HostMemory::allocate(usize::MAX), Err(HostMemoryError::Length { .. })));
        assert!(matches!(HostMemory::allocate(1 << 62), Err(HostMemoryError::Kernel { .. })));
    }

    #[test]
    fn more_hugepages_than_there_are_is_a_reported_fall_back() {
        // Where the pool is large the fall-back would be, too: a machine with a few pages, or none, shows it as well.
        let Some(free) = free_hugepages().filter(|free| *free <= 64) else { return };
        let memory = HostMemory::allocate(((free + 8) * (2 << 20)) as usize).unwrap();
        assert_eq!(memory.pages().size, PageSize::Ordinary);
        let reason = memory.pages().fall_back.clone().unwrap();
        assert!(reason.contains("free"), "{reason}");
        view(&memory).write(memory.len() - 1, &[7]);
    }

    #[test]
    fn hugepages_where_some_are_free() {
        let Some(free) = free_hugepages().filter(|free| *free >= 4) else {
            println!("skipped: fewer than 4 free hugepages of 2 MiB");
            return;
        };
        let memory = HostMemory::allocate(3 << 20).unwrap();
        // Another test may have taken pages between the two looks; then the fall-back says so.
        if memory.pages().size == PageSize::Huge2MiB {
            assert_eq!(*memory.pages(), Pages { size: PageSize::Huge2MiB, fall_back: None });
            assert_eq!((memory.len(), memory.base().addr().get() % (2 << 20)), (4 << 20, 0));
            view(&memory).fill(1);
        } else {
            assert!(free_hugepages().unwrap() < free, "{}", memory.pages());
        }
    }

    #[test]
    fn small_allocations_do_not_ask_for_hugepages() {
        let memory = HostMemory::allocate(4096).unwrap();
        assert_eq!(*memory.pages(), Pages { size: PageSize::Ordinary, fall_back: None });
    }

    #[test]
    fn one_gib_pages_where_little_is_lost() {
        let gib = 1 << 30;
        assert!(suits(PageSize::Huge1GiB, gib));
        assert!(!suits(PageSize::Huge1GiB, gib - 1));
        assert!(!suits(PageSize::Huge1GiB, gib + gib / 4));
        assert!(suits(PageSize::Huge1GiB, 8 * gib + 1));
        assert!(suits(PageSize::Huge2MiB, 2 << 20));
        assert!(!suits(PageSize::Huge2MiB, (2 << 20) - 1));
    }

    #[test]
    fn the_descriptor_names_the_same_bytes() {
        use std::os::unix::fs::FileExt;
        let memory = HostMemory::allocate(4096).unwrap();
        view(&memory).write(100, b"seen by both");
        let mut bytes = [0; 12];
        memory.file.read_exact_at(&mut bytes, 100).unwrap();
        assert_eq!(&bytes, b"seen by both");
    }
}
