//! The one way to the bytes of memory that a device may touch.
//!
//! A device writes when it likes, so the compiler must not believe that such bytes hold still: they are never
//! behind a `&[u8]`. A [`DmaView`] is a bounds-checked window that reads and writes them by volatile access, or
//! lends a word as an atomic where one side publishes to the other.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A window of memory that a device may touch, valid for `'a`.
///
/// Offsets are bytes from its start. One that leaves the window panics, as an index of a slice does: an offset is
/// always this program's own number and never one that a device or a client gave.
#[derive(Clone, Copy)]
pub struct DmaView<'a> {
    base: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a ()>,
}

// SAFETY: a view is a window of memory that outlives 'a; it makes no reference to it, every access is volatile or
// atomic and bounds-checked, and all it does to memory shared with another thread is what a device does to it too.
unsafe impl Send for DmaView<'_> {}
// SAFETY: as above.
unsafe impl Sync for DmaView<'_> {}

impl<'a> DmaView<'a> {
    /// A view of `len` bytes from `base`.
    ///
    /// # Safety
    /// The bytes stay mapped and readable for `'a`, writable where something is written through the view, and nobody makes
    /// a reference to those of them that are used through it in that time.
    pub const unsafe fn new(base: NonNull<u8>, len: usize) -> Self {
        Self { base, len, memory: PhantomData }
    }

    /// The length in bytes.
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether the window has no byte.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first byte's address in this process.
    #[inline]
    pub const fn base(self) -> NonNull<u8> {
        self.base
    }

    /// The window of `len` bytes at `offset` of this one.
    pub fn slice(self, offset: usize, len: usize) -> Self {
        let base = self.at(offset, len, 1);
        Self { base, len, memory: PhantomData }
    }

    /// Copies `from` to `offset`.
    pub fn write(self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len(), 1);
        // SAFETY: `at` checked that `from.len()` bytes at `to` lie in the window; the lengths are equal.
        unsafe { copy_volatile(from.as_ptr(), to.as_ptr(), from.len()) }
    }

    /// Copies from `offset` into the whole of `to`.
    pub fn read(self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len(), 1);
        // SAFETY: `at` checked that `to.len()` bytes at `from` lie in the window; the lengths are equal.
        unsafe { copy_volatile(from.as_ptr(), to.as_mut_ptr(), to.len()) }
    }

    /// Writes words to `offset`, a multiple of 8.
    #[inline]
    pub fn write_words(self, offset: usize, from: &[u64]) {
        let to = self.at(offset, size_of_val(from), align_of::<u64>()).cast::<u64>();
        for (index, word) in from.iter().enumerate() {
            // SAFETY: `at` checked bounds and alignment for all of `from`.
            unsafe { to.add(index).write_volatile(*word) }
        }
    }

    /// Writes `count` words to `offset`, a multiple of 8: `first`, and each of the others `step` more than the one
    /// before, modulo 2^64.
    #[inline]
    pub fn write_series(self, offset: usize, first: u64, step: u64, count: usize) {
        let to = self.at(offset, count.saturating_mul(8), align_of::<u64>()).cast::<u64>();
        let mut word = first;
        for index in 0..count {
            // SAFETY: `at` checked bounds and alignment for all of them.
            unsafe { to.add(index).write_volatile(word) }
            word = word.wrapping_add(step);
        }
    }

    /// Reads words from `offset`, a multiple of 8, into the whole of `to`.
    #[inline]
    pub fn read_words(self, offset: usize, to: &mut [u64]) {
        let from = self.at(offset, size_of_val(to), align_of::<u64>()).cast::<u64>();
        for (index, word) in to.iter_mut().enumerate() {
            // SAFETY: `at` checked bounds and alignment for all of `to`.
            *word = unsafe { from.add(index).read_volatile() };
        }
    }

    /// Sets every byte of the window.
    pub fn fill(self, byte: u8) {
        let mut done = 0;
        while done < self.len {
            // SAFETY: `done` is less than the window's length.
            let at = unsafe { self.base.add(done) };
            if at.addr().get().is_multiple_of(8) && self.len - done >= 8 {
                // SAFETY: eight more bytes lie in the window, and `at` is a multiple of 8.
                unsafe { at.cast::<u64>().write_volatile(u64::from_ne_bytes([byte; 8])) };
                done += 8;
            } else {
                // SAFETY: `at` lies in the window.
                unsafe { at.write_volatile(byte) };
                done += 1;
            }
        }
    }

    /// The 32-bit word at `offset`, a multiple of 4, as an atomic.
    #[inline]
    pub fn atomic_u32(self, offset: usize) -> &'a AtomicU32 {
        let word = self.at(offset, 4, align_of::<AtomicU32>()).cast::<u32>();
        // SAFETY: `at` checked bounds and alignment; the memory outlives 'a and is only used by volatile or atomic
        // access.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }
    }

    /// The 64-bit word at `offset`, a multiple of 8, as an atomic.
    #[inline]
    pub fn atomic_u64(self, offset: usize) -> &'a AtomicU64 {
        let word = self.at(offset, 8, align_of::<AtomicU64>()).cast::<u64>();
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// The address of `offset` after the checks that every access makes.
    #[inline]
    #[track_caller]
    fn at(self, offset: usize, len: usize, align: usize) -> NonNull<u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {offset} leave a window of {} bytes", self.len);
        // SAFETY: `offset` is at most the window's length.
        let address = unsafe { self.base.add(offset) };
        assert!(address.addr().get().is_multiple_of(align), "offset {offset} is not a multiple of {align}");
        address
    }
}

/// Copies `len` bytes by volatile accesses, by words where both sides are aligned alike.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and the two do not overlap.
unsafe fn copy_volatile(from: *const u8, to: *mut u8, len: usize) {
    let mut done = 0;
    if from.addr() % 8 == to.addr() % 8 {
        let head = ((8 - from.addr() % 8) % 8).min(len);
        while done < head {
            // SAFETY: `done` is less than `len`, for which the caller vouches.
            unsafe { to.add(done).write_volatile(from.add(done).read_volatile()) };
            done += 1;
        }
        while len - done >= 8 {
            // SAFETY: eight more bytes lie within `len`; both addresses are multiples of 8 after the head.
            unsafe { to.add(done).cast::<u64>().write_volatile(from.add(done).cast::<u64>().read_volatile()) };
            done += 8;
        }
    }
    while done < len {
        // SAFETY: `done` is less than `len`, for which the caller vouches.
        unsafe { to.add(done).write_volatile(from.add(done).read_volatile()) };
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with_view<T>(bytes: &mut [u64], use_it: impl FnOnce(DmaView<'_>) -> T) -> T {
        let len = size_of_val(bytes);
        // SAFETY: `bytes` is borrowed for the view's life and not used meanwhile.
        use_it(unsafe { DmaView::new(NonNull::from(bytes).cast(), len) })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_nothing_else_changes(
            offset in 0usize..64, data in prop::collection::vec(any::<u8>(), 0..64), skew in 0usize..8
        ) {
            let mut memory = [0x5555_5555_5555_5555u64; 16];
            with_view(&mut memory, |view| {
                let mut source = vec![0u8; skew];
                source.extend(&data);
                view.write(offset, &source[skew..]);
                let mut all = [0u8; 128];
                view.read(0, &mut all);
                for (index, byte) in all.iter().enumerate() {
                    let expected = index.checked_sub(offset).and_then(|at| data.get(at)).copied().unwrap_or(0x55);
                    assert_eq!(*byte, expected, "at {index}");
                }
            });
        }
    }

    #[test]
    fn words_and_fill() {
        let mut memory = [0u64; 4];
        with_view(&mut memory, |view| {
            view.write_series(8, 10, 5, 2);
            let mut words = [0; 4];
            view.read_words(0, &mut words);
            assert_eq!(words, [0, 10, 15, 0]);
            view.write_words(8, &[1, 2]);
            view.read_words(0, &mut words);
            assert_eq!(words, [0, 1, 2, 0]);
            view.slice(3, 18).fill(0xab);
            let mut bytes = [0; 32];
            view.read(0, &mut bytes);
            assert_eq!(bytes.iter().filter(|byte| **byte == 0xab).count(), 18);
            assert_eq!((bytes[2], bytes[3], bytes[20], bytes[21]), (0, 0xab, 0xab, 0));
        });
    }

    #[test]
    #[should_panic(expected = "8 bytes at 25 leave a window of 32 bytes")]
    fn an_offset_outside_panics() {
        with_view(&mut [0u64; 4], |view| view.write(25, &[0; 8]));
    }

    #[test]
    #[should_panic(expected = "leave a window")]
    fn an_offset_that_overflows_panics() {
        with_view(&mut [0u64; 4], |view| view.write(usize::MAX, &[0; 8]));
    }

    #[test]
    #[should_panic(expected = "not a multiple of 4")]
    fn an_atomic_is_aligned() {
        with_view(&mut [0u64; 4], |view| view.atomic_u32(2).load(std::sync::atomic::Ordering::Relaxed));
    }
}
