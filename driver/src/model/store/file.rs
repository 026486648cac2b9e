//! A store in a regular file: bytes go straight between the file and the host's memory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::super::config::ModelError;
use super::super::iommu::Piece;

/// Pieces in one system call.
const BATCH: usize = 64;
/// Bytes of zeroes written at a time, where there are no holes.
const ZEROES: usize = 1 << 20;

/// A part of a file that is long enough for it. The file's length is never changed. It is locked (flock(2)): for itself
/// alone where it is writable, else together with others that only read.
pub(in crate::model) struct FileStore {
    file: File,
    /// Where in the file the part begins.
    start: u64,
    writable: bool,
}

/// preadv(2) or pwritev(2).
type Transfer = unsafe extern "C" fn(libc::c_int, *const libc::iovec, libc::c_int, libc::off_t) -> libc::ssize_t;

impl FileStore {
    pub(super) fn open(path: &Path, writable: bool, size: u64) -> Result<Self, ModelError> {
        let cannot_open = |source| ModelError::CannotOpen { path: path.to_owned(), writable, source };
        // A FIFO would block until somebody opens its other end; a file does not care for the flag.
        let file = OpenOptions::new()
            .read(true)
            .write(writable)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(cannot_open)?;
        let metadata = file.metadata().map_err(cannot_open)?;
        if !metadata.is_file() {
            return Err(ModelError::NotRegular { path: path.to_owned() });
        }
        if metadata.len() < size {
            return Err(ModelError::TooShort { path: path.to_owned(), len: metadata.len(), size });
        }
        // Until it is closed. Two controllers that write to one file would each believe what the other has undone.
        match if writable { file.try_lock() } else { file.try_lock_shared() } {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(ModelError::InUse { path: path.to_owned() }),
            // There are file systems without locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(source)) => return Err(cannot_open(source)),
        }
        Ok(Self { file, start: 0, writable })
    }

    /// The part of the same file that begins at `start`.
    pub(super) fn behind(&self, start: u64) -> Result<Self, ModelError> {
        let file = self.file.try_clone().map_err(|source| ModelError::CannotShare { source })?;
        Ok(Self { file, start, writable: self.writable })
    }

    #[inline]
    pub(super) fn writable(&self) -> bool {
        self.writable
    }

    pub(super) fn read(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        self.transfer(libc::preadv, self.start + offset, pieces)
    }

    pub(super) fn write(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        self.transfer(libc::pwritev, self.start + offset, pieces)
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        if self.writable { self.file.sync_data() } else { Ok(()) }
    }

    /// Makes bytes zero: a hole where the file system has holes, written zeroes elsewhere.
    pub(super) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let start = self.start + offset;
        let signed = |value| libc::off_t::try_from(value).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let (at, count) = (signed(start)?, signed(len)?);
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a call by number on our own descriptor; no memory is passed.
        if unsafe { libc::fallocate(self.file.as_raw_fd(), mode, at, count) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
        self.fill_zero(start, len)
    }

    fn fill_zero(&self, start: u64, len: u64) -> io::Result<()> {
        let zeroes = vec![0; ZEROES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(zeroes.len() as u64);
            self.file.write_all_at(&zeroes[..part as usize], start + done)?;
            done += part;
        }
        Ok(())
    }

    /// Whether the file has `size` bytes: its length is never changed.
    pub(super) fn resize(&self, size: u64) -> io::Result<()> {
        if self.file.metadata()?.len() < self.start.saturating_add(size) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }

    fn transfer(&self, call: Transfer, mut offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        for batch in pieces.chunks(BATCH) {
            let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
            for (vector, piece) in vectors.iter_mut().zip(batch) {
                *vector = libc::iovec { iov_base: piece.base().as_ptr().cast(), iov_len: piece.len() };
            }
            let mut left = &mut vectors[..batch.len()];
            while !left.is_empty() {
                let at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
                // SAFETY: each vector is a piece of mapped memory, or the end of one (see `Piece`); the kernel makes
                // no reference to it.
                let moved = unsafe { call(self.file.as_raw_fd(), left.as_ptr(), left.len() as libc::c_int, at) };
                match moved {
                    // The file has become shorter, or has no room: waiting would not help.
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    moved if moved > 0 => {
                        offset += moved as u64;
                        left = advance(left, moved as usize);
                    }
                    _ => {
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// What is left of `vectors` after `moved` bytes.
fn advance(vectors: &mut [libc::iovec], mut moved: usize) -> &mut [libc::iovec] {
    let whole = vectors.iter().take_while(|vector| {
        let done = vector.iov_len <= moved;
        if done {
            moved -= vector.iov_len;
        }
        done
    });
    let whole = whole.count();
    let left = &mut vectors[whole..];
    if let Some(first) = left.first_mut() {
        first.iov_base = first.iov_base.wrapping_byte_add(moved);
        first.iov_len -= moved;
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped() {
        let lengths = [3usize, 5, 7];
        for moved in 0..=15 {
            let mut base = 0x1000usize;
            let mut vectors = lengths.map(|iov_len| {
                let iov_base = std::ptr::without_provenance_mut(base);
                base += iov_len;
                libc::iovec { iov_base, iov_len }
            });
            let left = advance(&mut vectors, moved);
            assert_eq!(left.iter().map(|vector| vector.iov_len).sum::<usize>(), 15 - moved);
            if let Some(first) = left.first() {
                assert_eq!(first.iov_base.addr(), 0x1000 + moved);
            }
        }
    }
}
