//! Memory that requests can name.

use std::sync::Arc;

use tentpeg_driver::dma::{Backing, DmaView, HostMemory, HostMemoryError, Pages, Region, RegisterError};
use thiserror::Error;

/// Why there is no memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The host has none.
    #[error(transparent)]
    Allocate(#[from] HostMemoryError),
    /// It could not be mapped for devices.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Host memory that was allocated and registered by an engine. Clones name the same memory.
///
/// It stays registered as long as the engine is open, and allocated as long as a handle is there.
#[derive(Clone)]
pub struct Memory {
    pub(crate) region: Arc<Region<HostMemory>>,
}

impl Memory {
    /// The address of the first byte: what a request's `source` counts from.
    pub fn address(&self) -> u64 {
        self.region.backing().base().addr().get() as u64
    }

    /// The length in bytes: what was asked for, rounded up to whole pages.
    pub fn len(&self) -> usize {
        self.region.backing().len()
    }

    /// Whether there is no byte: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// What it stands on.
    pub fn pages(&self) -> &Pages {
        self.region.backing().pages()
    }

    /// The bytes. What a pending task reads or writes is of no meaning meanwhile.
    pub fn view(&self) -> DmaView<'_> {
        self.region.view()
    }
}
