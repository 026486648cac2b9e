//! Memory that requests can name.

use std::sync::Arc;

use tentpeg_driver::dma::{
    Backing, DmaView, HostMemory, HostMemoryError, Pages, Region, RegionEntry, RegionTable, RegisterError,
};
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

/// All memory that requests can name, as it was at some time.
#[derive(Default)]
pub(crate) struct Registered {
    /// What admission asks.
    pub(crate) table: RegionTable,
    /// By address.
    regions: Vec<Memory>,
}

impl Registered {
    /// The same with one more. `None`: it shares addresses with another.
    pub(crate) fn with(&self, memory: Memory) -> Option<Self> {
        let mut regions = self.regions.clone();
        regions.push(memory);
        regions.sort_by_key(Memory::address);
        let entries = regions.iter().map(|memory| RegionEntry {
            address: memory.address(),
            len: memory.len() as u64,
            iova: memory.region.iova(),
            access: memory.region.access(),
        });
        let table = RegionTable::new(entries.collect()).ok()?;
        Some(Self { table, regions })
    }

    /// The memory that has the `len` bytes at `address`, and where in it they begin.
    pub(crate) fn find(&self, address: u64, len: u64) -> Option<(&Memory, usize)> {
        let after = self.regions.partition_point(|memory| memory.address() <= address);
        let memory = self.regions.get(after.checked_sub(1)?)?;
        let offset = address - memory.address();
        let end = offset.checked_add(len)?;
        (end <= memory.len() as u64).then_some((memory, offset as usize))
    }
}
