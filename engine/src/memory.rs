//! Memory that requests can name.

use std::fmt;
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
/// It stays registered until it is unregistered, or the engine is closed, and allocated as long as a handle is there.
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

    /// As admission sees it.
    fn entry(&self) -> RegionEntry {
        RegionEntry {
            address: self.address(),
            len: self.len() as u64,
            iova: self.region.iova(),
            access: self.region.access(),
        }
    }

    /// The bytes. What a pending task reads or writes is of no meaning meanwhile.
    pub fn view(&self) -> DmaView<'_> {
        self.region.view()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.len(), self.address())
    }
}

/// Memory that stays registered, as requests that have not ended name it.
#[derive(Debug, Error)]
#[error("{tasks} tasks that have not ended name the memory ({memory:?}): wait for them, or cancel them")]
pub struct MemoryInUse {
    /// The memory, given back.
    pub memory: Memory,
    /// Tasks that name it.
    pub tasks: usize,
}

/// All memory that was registered, as it was at some time.
#[derive(Default)]
pub(crate) struct Registered {
    /// What admission asks: the memory that requests can name.
    pub(crate) table: RegionTable,
    /// By address; that which is being unregistered too, as what was admitted before is served still.
    regions: Vec<Memory>,
}

impl Registered {
    /// The same with one more. `None`: it shares addresses with another.
    pub(crate) fn with(&self, memory: Memory) -> Option<Self> {
        let mut entries = self.table.entries().to_vec();
        entries.push(memory.entry());
        let table = RegionTable::new(entries).ok()?;
        let mut regions = self.regions.clone();
        regions.push(memory);
        regions.sort_by_key(Memory::address);
        Some(Self { table, regions })
    }

    /// The same with that memory out of what requests can name. `None`: it is not among it.
    pub(crate) fn closing(&self, memory: &Memory) -> Option<Self> {
        let (closing, mut entries) = (memory.entry(), self.table.entries().to_vec());
        entries.retain(|entry| *entry != closing);
        if entries.len() == self.table.entries().len() {
            return None;
        }
        Some(Self { table: RegionTable::new(entries).ok()?, regions: self.regions.clone() })
    }

    /// The same without that memory.
    pub(crate) fn without(&self, memory: &Memory) -> Self {
        let mut regions = self.regions.clone();
        regions.retain(|region| !Arc::ptr_eq(&region.region, &memory.region));
        Self { table: self.table.clone(), regions }
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
