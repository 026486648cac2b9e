//! The model's IOMMU: the only way from the model to memory.
//!
//! A [`SoftwareIommu`] is a sorted table of what is mapped, shared by all models of an engine. The driver's side
//! maps and unmaps through [`AddressSpace`]; a model takes the table for a turn with [`Table::reach`] and gets at
//! memory through that [`Reach`] and nothing else. Unmapping waits for every `Reach`, so that when it returns no
//! access is in progress and none can follow.
//!
//! Who owns the memory is not known here: whoever mapped it vouches for it until it is unmapped.

mod reach;
mod window;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::dma::{Access, AddressSpace, DmaSpace, IovaAllocator, IovaRange, MapError, Translation};

pub use reach::FaultKind;
pub(super) use reach::{Extent, Fault, Hint, Piece, Pieces, Reach, Scatter, Span, gather, gather_into, write_padded};
pub(super) use window::Window;

/// The unit of a mapping in bytes.
const PAGE_SIZE: u64 = 4096;
/// The address space of all models of one engine.
pub struct SoftwareIommu {
    table: Arc<Table>,
    space: Arc<DmaSpace>,
}

impl SoftwareIommu {
    /// An IOMMU in which nothing is mapped.
    pub fn new() -> Arc<Self> {
        let table = Arc::new(Table::default());
        let translation: Arc<dyn AddressSpace> = table.clone();
        Arc::new(Self { table, space: DmaSpace::new(translation, IovaAllocator::common()) })
    }

    /// The space that memory is registered in: one and the same each time, so that a region has one IOVA for all
    /// models.
    pub fn space(self: &Arc<Self>) -> Arc<DmaSpace> {
        Arc::clone(&self.space)
    }

    /// Has room for so many mappings at a time from now on, as an IOMMU's driver may have; those that there are stay.
    pub fn limit_mappings(&self, most: usize) {
        self.table.limit.store(most, Ordering::Relaxed);
    }

    /// How many mappings there are.
    pub fn mappings(&self) -> usize {
        self.table.mappings.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }
}

impl AddressSpace for SoftwareIommu {
    fn translation(&self) -> Translation {
        Translation::Process
    }

    fn page_size(&self) -> u64 {
        PAGE_SIZE
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { self.table.map(range, memory, access) }
    }

    unsafe fn map_accelerator(&self, range: IovaRange, address: u64, access: Access) -> Result<(), MapError> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { self.table.map_accelerator(range, address, access) }
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        self.table.unmap(range)
    }
}

/// One mapping.
struct Mapping {
    range: IovaRange,
    /// In this process, or where an accelerator has it.
    base: NonNull<u8>,
    /// What the model may do itself: nothing where it is an accelerator's.
    access: Access,
    /// What it may have a mover do: nothing where it is this process's.
    moved: Access,
    /// How many were made before it in this table. 32 bits, with which a mapping is found by a shift; no test makes
    /// more.
    number: u32,
}

impl Mapping {
    fn duplicate(&self) -> Self {
        Self { ..*self }
    }
}

const _: () = assert!(size_of::<Mapping>() == 32);

// SAFETY: a mapping is an address with a promise that holds for the process; who may use it, and how long, is
// decided by the table's lock.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What is mapped, sorted by IOVA, no two overlapping.
pub(super) struct Table {
    mappings: RwLock<Vec<Mapping>>,
    made: AtomicU32,
    /// The most at a time.
    limit: AtomicUsize,
}

impl Default for Table {
    fn default() -> Self {
        Self { mappings: RwLock::default(), made: AtomicU32::new(0), limit: AtomicUsize::new(usize::MAX) }
    }
}

impl Table {
    /// Takes the table for a while. Nothing is unmapped until the result is dropped.
    pub(super) fn reach(&self) -> Reach<'_> {
        self.reach_with(None)
    }

    /// As [`reach`](Self::reach), for a controller that has a window of its own.
    #[inline]
    pub(super) fn reach_with<'a>(&'a self, window: Option<&'a Window>) -> Reach<'a> {
        // Every change leaves the table whole, so a panic elsewhere does not make it unusable.
        Reach::new(self.mappings.read().unwrap_or_else(PoisonError::into_inner), window)
    }

    /// Mappings made so far.
    pub(super) fn made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Keeps everybody from the table until dropped.
    #[cfg(test)]
    pub(super) fn close(&self) -> impl Drop + '_ {
        self.mappings.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every `Reach` of this moment has been dropped.
    pub(super) fn wait_for_all(&self) {
        drop(self.mappings.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl AddressSpace for Table {
    fn translation(&self) -> Translation {
        Translation::Process
    }

    fn page_size(&self) -> u64 {
        PAGE_SIZE
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        self.insert(range, memory, access, Access::empty())
    }

    unsafe fn map_accelerator(&self, range: IovaRange, address: u64, access: Access) -> Result<(), MapError> {
        // Never touched as memory of this process: `access` is empty for it.
        let memory = NonNull::new(std::ptr::without_provenance_mut(address as usize));
        let memory = memory.ok_or(MapError::Misaligned { range, page_size: PAGE_SIZE })?;
        self.insert(range, memory, Access::empty(), access)
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        match mappings.binary_search_by_key(&range.start(), |mapping| mapping.range.start()) {
            Ok(at) if mappings[at].range == range => {
                mappings.remove(at);
                Ok(())
            }
            _ => Err(MapError::NotMapped { range }),
        }
    }
}

impl Table {
    fn insert(&self, range: IovaRange, memory: NonNull<u8>, access: Access, moved: Access) -> Result<(), MapError> {
        let aligned = |value: u64| value.is_multiple_of(PAGE_SIZE);
        if !(aligned(range.start().get()) && aligned(range.len()) && aligned(memory.addr().get() as u64)) {
            return Err(MapError::Misaligned { range, page_size: PAGE_SIZE });
        }
        let mut mappings = self.mappings.write().unwrap_or_else(PoisonError::into_inner);
        let at = mappings.partition_point(|mapping| mapping.range.end() <= range.start().get());
        if let Some(mapping) = mappings.get(at).filter(|mapping| mapping.range.overlaps(range)) {
            return Err(MapError::Occupied { range, mapped: mapping.range });
        }
        let limit = self.limit.load(Ordering::Relaxed);
        if mappings.len() >= limit {
            return Err(MapError::EntryLimit { range, limit });
        }
        let number = self.made.fetch_add(1, Ordering::AcqRel);
        mappings.insert(at, Mapping { range, base: memory, access, moved, number });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
