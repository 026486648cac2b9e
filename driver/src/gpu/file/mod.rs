//! Other ways from a file to GPU memory, to be measured beside this driver's own: cuFile, by its batches and by threads that
//! wait; reads into host memory that is copied; io_uring with copies that are not waited for one by one.
//!
//! Each does a list of reads and returns when all of it is in GPU memory. They go through a file system and the kernel's own
//! drivers, and nothing of this driver uses them.

mod cufile;
mod host;
mod uring;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use super::device::Gpu;
use super::error::CudaError;
use super::memory::{GpuMemory, GpuMemoryError, PinnedMemory};
use super::stream::Stream;

/// A way from a file to GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileWay {
    /// cuFile's batches.
    CufileBatch,
    /// cuFileRead, by several threads.
    Cufile,
    /// pread into host memory, then cuMemcpyHtoD, by several threads.
    Pread,
    /// io_uring into pinned memory, and cuMemcpyAsync.
    IoUring,
}

impl FileWay {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::CufileBatch, Self::Cufile, Self::Pread, Self::IoUring];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::CufileBatch => "cufile-batch",
            Self::Cufile => "cufile",
            Self::Pread => "pread",
            Self::IoUring => "io_uring",
        }
    }
}

impl fmt::Display for FileWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no way from a file to GPU memory: it must be cufile-batch, cufile, pread or io_uring")]
pub struct FileWayNameError {
    /// The text.
    pub text: String,
}

impl FromStr for FileWay {
    type Err = FileWayNameError;

    fn from_str(text: &str) -> Result<Self, FileWayNameError> {
        let named = Self::ALL.into_iter().find(|way| way.name() == text);
        named.ok_or_else(|| FileWayNameError { text: text.to_owned() })
    }
}

/// Why a way is not gone. The host is at fault, or whoever named the file.
#[derive(Debug, Error)]
pub enum FileWayError {
    /// There is no cuFile.
    #[error(
        "no cuFile library: none of {} could be loaded ({reason}); install NVIDIA's GPUDirect Storage (libcufile), or name \
         its folder in LD_LIBRARY_PATH", tried.join(", ")
    )]
    NoCufile {
        /// The names that were tried.
        tried: Vec<String>,
        /// What the dynamic loader said.
        reason: String,
    },
    /// The library lacks a function.
    #[error("{library} has no {symbol}: install a newer cuFile")]
    CufileSymbol {
        /// The library.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// cuFile refused.
    #[error(
        "{call}: cuFile error {code}, CUDA error {cuda}: without nvidia-fs it needs \"allow_compat_mode\": true in the file \
         that CUFILE_ENV_PATH_JSON names, and a file on a file system that it knows"
    )]
    Cufile {
        /// The function.
        call: &'static str,
        /// Its CUfileOpError.
        code: u32,
        /// The CUresult with it.
        cuda: u32,
    },
    /// A read came to nothing.
    #[error("a read of {len} bytes at {offset} of the file ended with {result}")]
    Read {
        /// Where it began.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes read, or the negative of what cuFile or the kernel gave as its reason.
        result: i64,
    },
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// No io_uring.
    #[error("no io_uring: {source}: the kernel needs it (Linux 5.6), and io_uring_disabled must be 0")]
    Uring {
        /// The kernel's reason.
        source: io::Error,
    },
    /// A list that leaves file or memory.
    #[error("a read of {len} bytes at {offset} of the file to byte {at} of {memory} bytes of memory leaves it")]
    Outside {
        /// Where in the file.
        offset: u64,
        /// Where in the memory.
        at: u64,
        /// Bytes.
        len: u64,
        /// Bytes of the memory.
        memory: u64,
    },
    /// No memory.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// CUDA refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// A read of a file into GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRead {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// Where in the memory.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// How the ways are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileWayConfig {
    /// Reads in flight at once, where the way has that.
    pub depth: u32,
    /// Threads, where it has these.
    pub threads: u32,
    /// The longest read in bytes.
    pub most: u64,
}

/// What is behind a way.
trait Reads: Send {
    /// Makes reads, all of which lie in the memory, and returns when their bytes are there.
    fn read(&mut self, memory: &GpuMemory, reads: &[FileRead]) -> Result<(), FileWayError>;
}

/// Reads a file into GPU memory by one way.
pub struct FileReader {
    // Before the memory, which cuFile may have registered.
    reads: Box<dyn Reads>,
    memory: GpuMemory,
    way: FileWay,
}

impl FileReader {
    /// Opens the file for one way, with as many bytes of GPU memory of its own.
    ///
    /// # Errors
    /// [`FileWayError`].
    pub fn open(
        gpu: &Arc<Gpu>,
        way: FileWay,
        path: &Path,
        memory: usize,
        config: FileWayConfig,
    ) -> Result<Self, FileWayError> {
        let memory = GpuMemory::allocate_pages(gpu, memory)?;
        let file = open(path)?;
        let reads: Box<dyn Reads> = match way {
            FileWay::CufileBatch => Box::new(cufile::Batches::new(file, &memory, config.depth)?),
            FileWay::Cufile => Box::new(cufile::Threads::new(file, &memory, config.threads)?),
            FileWay::Pread => Box::new(host::Threads::new(gpu, file, config)?),
            FileWay::IoUring => Box::new(uring::Ring::new(gpu, file, config)?),
        };
        Ok(Self { reads, memory, way })
    }

    /// Which way it is.
    pub fn way(&self) -> FileWay {
        self.way
    }

    /// Bytes of its memory.
    pub fn memory_len(&self) -> usize {
        self.memory.len()
    }

    /// Makes reads, no two to the same bytes, and returns when all bytes are in GPU memory.
    ///
    /// # Errors
    /// [`FileWayError`]; any part of the list may have been read then.
    pub fn read(&mut self, reads: &[FileRead]) -> Result<(), FileWayError> {
        let memory = self.memory.len() as u64;
        for FileRead { offset, at, len } in reads.iter().copied() {
            if at.checked_add(len).is_none_or(|end| end > memory) || offset.checked_add(len).is_none() {
                return Err(FileWayError::Outside { offset, at, len, memory });
            }
        }
        self.reads.read(&self.memory, reads)
    }

    /// Copies bytes of the memory to where they can be looked at.
    ///
    /// # Errors
    /// [`FileWayError`].
    ///
    /// # Panics
    /// Where they are not in the memory.
    pub fn look(&self, at: u64, bytes: &mut [u8]) -> Result<(), FileWayError> {
        assert!(at + bytes.len() as u64 <= self.memory.len() as u64, "{at} is not in the memory");
        let gpu = self.memory.gpu();
        let pinned = PinnedMemory::allocate(gpu, bytes.len().max(1))?;
        let stream = Stream::new(gpu)?;
        // SAFETY: both ranges lie in memory of ours that outlives the wait, and nobody else uses them.
        unsafe { stream.copy(pinned.address(), self.memory.address() + at, bytes.len()) }?;
        stream.synchronize()?;
        pinned.view().read(0, bytes);
        Ok(())
    }
}

/// The file, past the page cache where its file system allows that.
fn open(path: &Path) -> Result<File, FileWayError> {
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
    let opened = direct.or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => File::open(path),
        _ => Err(error),
    });
    opened.map_err(|source| FileWayError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_names_that_are_read_again() {
        for way in FileWay::ALL {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        let error = "posix".parse::<FileWay>().unwrap_err();
        assert!(error.to_string().contains("cufile-batch, cufile, pread or io_uring"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = open(Path::new("/nowhere/file")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/file: "), "{error}");
    }
}
