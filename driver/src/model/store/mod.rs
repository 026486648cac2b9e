//! Where a model's blocks lie.
//!
//! A store moves bytes between its own place and pieces of the host's memory, and knows nothing of blocks or
//! commands. One executor uses it; it takes no lock.

mod file;
mod memory;

use std::io;
use std::sync::Arc;

use super::config::{ModelConfig, ModelError, StoreConfig};
use super::iommu::Piece;
use file::FileStore;
pub(super) use memory::Mapped;
use memory::MemoryStore;

/// A place for the bytes of one namespace.
pub(super) enum Store {
    /// Memory of this process.
    Memory(MemoryStore),
    /// A regular file.
    File(FileStore),
    /// Nowhere: nothing is moved.
    Null,
}

impl Store {
    /// The store that `config` asks for, of `config.size` bytes.
    pub(super) fn open(config: &ModelConfig) -> Result<Self, ModelError> {
        Ok(match &config.store {
            StoreConfig::Memory => Self::Memory(MemoryStore::new(config.size)?),
            StoreConfig::File { path, writable } => {
                Self::File(FileStore::open(path, *writable, config.file_layout().1)?)
            }
            StoreConfig::Null => Self::Null,
        })
    }

    /// The place of the metadata that belongs to this store, if `config` asks for any.
    pub(super) fn open_metadata(&self, config: &ModelConfig) -> Result<Option<Self>, ModelError> {
        let bytes = config.metadata_bytes();
        if bytes == 0 {
            return Ok(None);
        }
        Ok(Some(match self {
            Self::Memory(_) => Self::Memory(MemoryStore::new(bytes)?),
            Self::File(file) => Self::File(file.behind(config.file_layout().0)?),
            Self::Null => Self::Null,
        }))
    }

    /// Whether it takes writes.
    #[inline]
    pub(super) fn writable(&self) -> bool {
        match self {
            Self::File(file) => file.writable(),
            Self::Memory(_) | Self::Null => true,
        }
    }

    /// Reads from `offset` on into the whole of `pieces`. The caller has checked that this lies within the size.
    #[inline]
    pub(super) fn read(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.read(offset, pieces);
                Ok(())
            }
            Self::File(file) => file.read(offset, pieces),
            Self::Null => Ok(()),
        }
    }

    /// Writes the whole of `pieces` from `offset` on. The caller has checked that this lies within the size.
    #[inline]
    pub(super) fn write(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.write(offset, pieces);
                Ok(())
            }
            Self::File(file) => file.write(offset, pieces),
            Self::Null => Ok(()),
        }
    }

    /// The mapping of a store in memory, shared.
    pub(super) fn share(&self) -> Option<Arc<Mapped>> {
        match self {
            Self::Memory(memory) => Some(memory.share()),
            Self::File(_) | Self::Null => None,
        }
    }

    /// Where the `len` bytes from `offset` on lie in memory. The caller has checked that this lies within the size.
    pub(super) fn address(&self, offset: u64, len: u64) -> Option<u64> {
        match self {
            Self::Memory(memory) => Some(memory.address(offset, len)),
            Self::File(_) | Self::Null => None,
        }
    }

    /// Makes `len` bytes from `offset` on zero, without room of their own where the store can give it back. The
    /// caller has checked that this lies within the size.
    pub(super) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => {
                memory.discard(offset, len);
                Ok(())
            }
            Self::File(file) => file.discard(offset, len),
            Self::Null => Ok(()),
        }
    }

    /// Makes room for `size` bytes; those that stay are as they were, new ones in memory are zeroes.
    #[cold]
    pub(super) fn resize(&mut self, size: u64) -> io::Result<()> {
        match self {
            Self::Memory(memory) => memory.resize(size),
            Self::File(file) => file.resize(size),
            Self::Null => Ok(()),
        }
    }

    /// Makes what was written survive a loss of power, as far as the store can.
    #[inline]
    pub(super) fn flush(&self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Memory(_) | Self::Null => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
