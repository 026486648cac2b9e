//! A part of a device's region in this process's memory, which can be made to lead nowhere.
//!
//! A BAR that is mapped is the device's own memory: what is written there goes to it, and pages can go away under the
//! program (a fault is then a signal). [`Mapping::revoke`] puts ordinary memory in the place of the BAR, at the same
//! addresses and in one step: an access before it reaches the device, one after it reaches nobody, and none is a signal.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A part of a device's region.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// What takes the region's place: a file of ordinary memory of the same length, of which no page exists yet.
    sink: File,
}

// SAFETY: the mapping belongs to this value alone and stays where it is until Drop; its bytes are reached only by
// volatile or atomic access, and no reference to them is handed out.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a device's file.
    ///
    /// # Errors
    /// The kernel's; an offset or a length that it cannot take is `EINVAL`.
    pub(super) fn new(device: &File, file_offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let len = usize::try_from(len).map_err(invalid)?;
        let offset = libc::off_t::try_from(file_offset).map_err(invalid)?;
        // SAFETY: the name is a C string; the call touches nothing else of ours.
        let fd = unsafe { libc::memfd_create(c"tentpeg-revoked".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours alone.
        let sink = unsafe { File::from_raw_fd(fd) };
        sink.set_len(len as u64)?;
        // SAFETY: a new mapping at an address of the kernel's choice; no existing memory is touched.
        let base = unsafe {
            let (readable, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), len, readable, shared, device.as_raw_fd(), offset)
        };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(_) if base == libc::MAP_FAILED => return Err(io::Error::last_os_error()),
            Some(base) => base,
            None => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        let mapping = Self { base, len, sink };
        // A child that inherited it would keep the device open after we have closed it.
        // SAFETY: the range is the whole of our own mapping; its contents do not change.
        if unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(mapping)
    }

    /// The first byte.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length in bytes, not 0.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The word at `offset`; `None` where there is none, or the offset is not a multiple of 4.
    pub(super) fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let inside = offset.is_multiple_of(4) && offset.checked_add(4).is_some_and(|end| end <= self.len);
        // SAFETY: the word lies in the mapping, which starts on a page and stays until `self` is dropped; it is only
        // used by atomic access.
        inside.then(|| unsafe { AtomicU32::from_ptr(self.base.add(offset).cast().as_ptr()) })
    }

    /// Has the kernel put the page of a word in place, so that no access to it has to be served later. The device is
    /// there and its memory is enabled: else this is a signal.
    pub(super) fn fault_in(&self, offset: usize) {
        if let Some(word) = self.word(offset) {
            word.load(Ordering::Relaxed);
        }
    }

    /// Makes the mapping lead nowhere. Whether it does now.
    ///
    /// The kernel swaps the whole under its lock of the address space: an access of another thread at the same moment
    /// goes to the device or to the sink, and waits where it would meet neither.
    #[must_use]
    pub(super) fn revoke(&self) -> bool {
        // SAFETY: the range is the whole of our own mapping, replaced by memory that is as readable and writable, and
        // that nobody holds a reference to, as nobody did to what was there.
        let base = unsafe {
            let (readable, fixed) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
            libc::mmap(self.base.as_ptr().cast(), self.len, readable, fixed, self.sink.as_raw_fd(), 0)
        };
        base != libc::MAP_FAILED
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it after its owner.
        let done = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(done, 0, "the whole of a mapping of ours");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A file that stands for a device's region.
    fn device() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x4000).unwrap();
        file
    }

    fn word_of(device: &File, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        device.read_exact_at(&mut bytes, offset).unwrap();
        u32::from_ne_bytes(bytes)
    }

    #[test]
    fn what_is_revoked_leads_nowhere_and_its_neighbours_stay() {
        let device = device();
        let [first, second] = [0x1000, 0x2000].map(|offset| Mapping::new(&device, offset, 0x1000).unwrap());
        first.fault_in(0xffc);
        first.word(0xffc).unwrap().store(1, Ordering::Relaxed);
        assert!(first.revoke());
        first.word(0xffc).unwrap().store(2, Ordering::Relaxed);
        second.word(0).unwrap().store(3, Ordering::Relaxed);
        assert_eq!((word_of(&device, 0x1ffc), word_of(&device, 0x2000)), (1, 3));
        assert_eq!(first.word(0xffc).unwrap().load(Ordering::Relaxed), 2, "it is ordinary memory now");
        assert!(first.revoke(), "twice");
    }

    #[test]
    fn words_lie_inside_and_are_aligned() {
        let mapping = Mapping::new(&device(), 0, 0x1000).unwrap();
        for offset in [1, 2, 0xffd, 0x1000, usize::MAX, usize::MAX - 3] {
            assert!(mapping.word(offset).is_none(), "{offset:#x}");
        }
        assert!(mapping.word(0xffc).is_some());
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        for (offset, len) in [(1, 0x1000), (0, 0), (u64::MAX, 0x1000), (0, u64::MAX)] {
            assert!(Mapping::new(&device(), offset, len).is_err(), "{len:#x} at {offset:#x}");
        }
    }

    /// A file that is cut short is what a device that went away is: its pages are gone. Without the revocation the
    /// stores after it are a signal.
    #[test]
    fn stores_go_on_through_a_revocation_and_the_end_of_the_device() {
        let device = device();
        let mapping = Arc::new(Mapping::new(&device, 0, 0x1000).unwrap());
        let (other, stop) = (Arc::clone(&mapping), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let mut number = 0u32;
            while !stopped.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                other.word(8).unwrap().store(number, Ordering::Relaxed);
            }
            number
        });
        while word_of(&device, 8) == 0 {
            std::thread::yield_now();
        }
        assert!(mapping.revoke());
        let last = word_of(&device, 8);
        device.set_len(0).unwrap();
        let seen = mapping.word(8).unwrap();
        while seen.load(Ordering::Relaxed) <= last.wrapping_add(1000) {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > last);
    }
}
