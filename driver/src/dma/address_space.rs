//! Address spaces: what maps memory for devices, and the one space that an engine's functions share.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bitflags::bitflags;
use thiserror::Error;

use super::caller_memory::{CallerMemory, CallerMemoryError, WholePages};
use super::{AcceleratorMemory, AllocateError, Backing, Exposure, IovaAllocator, IovaRange, Region, Translation};

bitflags! {
    /// What a device may do with memory.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// The device reads it: data of a write command, SQEs, PRP lists.
        const DEVICE_READS = 1;
        /// The device writes it: data of a read command, CQEs.
        const DEVICE_WRITES = 2;
    }
}

/// Why a mapping was not made or not removed. The host, or whatever stands between it and the device, is at fault.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MapError {
    /// The range or the memory is not a multiple of the space's page.
    #[error("cannot map {range}: IOVA, memory and length must be multiples of {page_size} bytes")]
    Misaligned {
        /// The range to be mapped.
        range: IovaRange,
        /// The space's page in bytes.
        page_size: u64,
    },
    /// A part of the range is mapped already.
    #[error("cannot map {range}: {mapped} is mapped there already")]
    Occupied {
        /// The range to be mapped.
        range: IovaRange,
        /// What is there.
        mapped: IovaRange,
    },
    /// The space has no room for one more mapping.
    #[error(
        "cannot map {range}: the address space is at its limit of {limit} mappings: register fewer and larger pieces of memory, or raise dma_entry_limit of the module vfio_iommu_type1"
    )]
    EntryLimit {
        /// The range to be mapped.
        range: IovaRange,
        /// Mappings that the space can hold.
        limit: usize,
    },
    /// The kernel may not lock that much memory for this process.
    #[error(
        "cannot map {range}: the {} bytes exceed what this process may lock in memory (RLIMIT_MEMLOCK): raise it by `ulimit -l`, or by LimitMEMLOCK= of its service", range.len()
    )]
    LockedMemory {
        /// The range to be mapped.
        range: IovaRange,
    },
    /// The kernel does not take memory of another device by what it is mapped as here.
    #[error(
        "cannot map {range}: the kernel refuses memory of another device by its mapping in this process, as iommufd does: open the functions through type 1 (module vfio_iommu_type1), or have a kernel from Linux 6.19 on whose driver exports it as a dma-buf that iommufd knows"
    )]
    DeviceMemory {
        /// The range to be mapped.
        range: IovaRange,
    },
    /// The functions that shared the space have left it.
    #[error("cannot map {range}: no function is in the address space any more")]
    Detached {
        /// The range to be mapped.
        range: IovaRange,
    },
    /// The range to be removed was not mapped as one piece.
    #[error("cannot unmap {range}: it was not mapped as one piece")]
    NotMapped {
        /// The range to be removed.
        range: IovaRange,
    },
    /// The space maps nothing but memory of this process.
    #[error("cannot map {range}: this address space maps nothing but memory that the process can touch")]
    NoAccelerator {
        /// The range to be mapped.
        range: IovaRange,
    },
    /// The space takes no dma-bufs.
    #[error(
        "cannot map {range}: this address space takes no dma-buf: open the functions through iommufd, on Linux 6.19 or newer"
    )]
    NoDmaBuf {
        /// The range to be mapped.
        range: IovaRange,
    },
    /// The kernel refused.
    #[error("cannot map or unmap {range}: {}", std::io::Error::from_raw_os_error(*errno))]
    Kernel {
        /// The range in question.
        range: IovaRange,
        /// The kernel's errno.
        errno: i32,
    },
}

/// What translates a device's addresses: an IOMMU, or the model's own. The bus implements it; one value serves all
/// functions that share the space.
pub trait AddressSpace: Send + Sync {
    /// The smallest unit of a mapping in bytes, a power of two.
    fn page_size(&self) -> u64;

    /// Which memory of other devices it takes.
    fn translation(&self) -> Translation {
        Translation::Other
    }

    /// Makes `range.len()` bytes at `memory` reachable at `range`.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    ///
    /// # Safety
    /// The memory stays mapped in this process until [`unmap`](Self::unmap) of exactly this range has returned, readable,
    /// and writable where `access` lets devices write; and meanwhile nobody makes a reference to what commands name of it.
    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError>;

    /// As [`map`](Self::map), for memory that is a mapping of `file` from byte `offset` on: a translation in another
    /// process, or one that maps files (iommufd, IOAS_MAP_FILE), needs no more of the memory than that. By default as
    /// `map`.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    ///
    /// # Safety
    /// As of `map`; and the memory is that of the file, shared.
    unsafe fn map_file(
        &self,
        range: IovaRange,
        memory: NonNull<u8>,
        (file, offset): (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        let _ = (file, offset);
        // SAFETY: the caller keeps what `map` asks for.
        unsafe { self.map(range, memory, access) }
    }

    /// Makes `range.len()` bytes of an accelerator's memory at `address` reachable at `range`. Most spaces cannot.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    ///
    /// # Safety
    /// The bytes are memory of the accelerator until [`unmap`](Self::unmap) of exactly this range has returned.
    unsafe fn map_accelerator(&self, range: IovaRange, address: u64, access: Access) -> Result<(), MapError> {
        let _ = (address, access);
        Err(MapError::NoAccelerator { range })
    }

    /// Makes `range.len()` bytes of a dma-buf reachable at `range`, from byte `offset` of it on: memory of another device that
    /// no process needs to map. By default refused.
    ///
    /// # Errors
    /// [`MapError`]; nothing is mapped then.
    ///
    /// # Safety
    /// Whoever exported it keeps these bytes for it, and nobody makes a reference to them, until [`unmap`](Self::unmap) of
    /// exactly this range has returned.
    unsafe fn map_dma_buf(
        &self,
        range: IovaRange,
        (dma_buf, offset): (BorrowedFd<'_>, u64),
        access: Access,
    ) -> Result<(), MapError> {
        let _ = (dma_buf, offset, access);
        Err(MapError::NoDmaBuf { range })
    }

    /// Removes a mapping, the whole of one and no more. When it returns no device reaches the memory through it.
    ///
    /// # Errors
    /// [`MapError`]; the mapping must be taken to be still there.
    fn unmap(&self, range: IovaRange) -> Result<(), MapError>;
}

/// Why memory did not become a region.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// No IOVA was left.
    #[error(transparent)]
    Iova(#[from] AllocateError),
    /// The mapping was refused.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// IOVAs at which nothing is mapped. A controller that takes them for its own (CMBMSC.CBA) would do so even where memory
/// was mapped there, so they are nobody's again only by [`release`](Self::release): dropped, they stay out of use.
pub struct ReservedIovas {
    space: Arc<DmaSpace>,
    range: IovaRange,
}

impl ReservedIovas {
    /// The IOVAs.
    pub fn range(&self) -> IovaRange {
        self.range
    }

    /// Makes them usable for regions: no controller takes them for its own any more.
    pub fn release(self) {
        self.space.give_back(self.range, true);
    }
}

/// Why memory of the caller was not registered where it lies.
#[derive(Debug, Error)]
pub enum InPlaceError {
    /// It is not such memory.
    #[error(transparent)]
    Memory(#[from] CallerMemoryError),
    /// It could not be mapped.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// The page of an IOMMU that is worth being aligned to: 2 MiB.
const LARGE_PAGE: u64 = 2 << 20;

/// One address space with its IOVAs: where regions come from. Shared by all functions of an engine, so that a
/// region has one IOVA.
pub struct DmaSpace {
    translation: Arc<dyn AddressSpace>,
    iovas: Mutex<IovaAllocator>,
}

impl DmaSpace {
    /// A space over `translation` that gives out IOVAs of `iovas`.
    pub fn new(translation: Arc<dyn AddressSpace>, iovas: IovaAllocator) -> Arc<Self> {
        Arc::new(Self { translation, iovas: Mutex::new(iovas) })
    }

    /// Bytes of IOVAs that no region has, in all: what the IOMMU can translate, less what is in use or retired.
    pub fn free_iovas(&self) -> u64 {
        self.iovas.lock().unwrap_or_else(PoisonError::into_inner).free_bytes()
    }

    /// Which memory of other devices it takes.
    pub fn translation(&self) -> Translation {
        self.translation.translation()
    }

    /// The smallest unit of a mapping in bytes.
    pub fn page_size(&self) -> u64 {
        self.translation.page_size()
    }

    /// Maps the whole of `backing` and returns the region that owns it from now on.
    ///
    /// The IOVA is aligned to the largest power of two up to 2 MiB that divides the length, so that large mappings
    /// can use large pages of the IOMMU.
    ///
    /// # Errors
    /// [`RegisterError`]; `backing` is dropped and nothing is mapped.
    pub fn register<B: Backing>(self: &Arc<Self>, backing: B, access: Access) -> Result<Region<B>, RegisterError> {
        let range = self.take_range(backing.len() as u64)?;
        // SAFETY: a region owns its backing and drops it only after `unmap` has returned; `Backing` promises that
        // the bytes stay where they are meanwhile, that nobody makes a reference to them, and what its file is.
        let mapped = unsafe {
            match backing.file() {
                Some(file) => self.translation.map_file(range, backing.base(), file, access),
                None => self.translation.map(range, backing.base(), access),
            }
        };
        self.made(range, mapped, backing, access)
    }

    /// [`register`](Self::register) for memory of an accelerator, by what it is [exposed](AcceleratorMemory::exposure) by.
    ///
    /// # Errors
    /// [`RegisterError`], of which [`MapError::NoAccelerator`] is what most spaces answer to a mere address.
    pub fn register_accelerator<B: AcceleratorMemory>(
        self: &Arc<Self>,
        backing: B,
        access: Access,
    ) -> Result<Region<B>, RegisterError> {
        let range = self.take_range(backing.len())?;
        // SAFETY: a region owns its backing and drops it only after `unmap` has returned; `AcceleratorMemory` promises
        // that the bytes, their mapping and their dma-buf stay what they are meanwhile.
        let mapped = unsafe {
            match backing.exposure() {
                Exposure::Address => self.translation.map_accelerator(range, backing.address(), access),
                Exposure::Mapping(base) => self.translation.map(range, base, access),
                Exposure::DmaBuf(file, offset) => self.translation.map_dma_buf(range, (file, offset), access),
            }
        };
        self.made(range, mapped, backing, access)
    }

    /// Takes `len` bytes of IOVAs at which nothing is mapped: where a controller answers by itself.
    ///
    /// # Errors
    /// [`AllocateError`], which says how much is left.
    pub fn reserve(self: &Arc<Self>, len: u64) -> Result<ReservedIovas, AllocateError> {
        let range = self.take_range(len)?;
        Ok(ReservedIovas { space: Arc::clone(self), range })
    }

    /// Maps memory of the caller where it lies: the [`whole_pages`](CallerMemory::whole_pages) that it is on, by
    /// [`page_size`](Self::page_size). Every page is faulted in first, for writing where it can be written, so that no
    /// page is replaced behind the mapping.
    ///
    /// From 2 MiB on IOVA and address are the same modulo 2 MiB: where the memory is on large pages the IOMMU can have as
    /// large ones.
    ///
    /// # Errors
    /// [`InPlaceError`]; nothing is mapped then.
    pub fn register_in_place(
        self: &Arc<Self>,
        memory: &Arc<CallerMemory>,
        access: Access,
    ) -> Result<Region<Arc<CallerMemory>>, InPlaceError> {
        memory.check_access(access)?;
        memory.check_kind()?;
        let pages = memory.whole_pages(self.page_size())?;
        memory.fault_in()?;
        let WholePages { base, len, before, .. } = pages;
        let (address, bytes) = (base.addr().get() as u64, len as u64);
        let align = if bytes >= LARGE_PAGE { LARGE_PAGE } else { 1 };
        let align = align.max(self.page_size());
        let range = self.lock_iovas().allocate_like(bytes, align, address).map_err(RegisterError::Iova)?;
        let file = memory.file().map(|(file, offset)| (file, offset.checked_sub(before as u64)));
        // SAFETY: a region owns its backing and ends its mapping before it drops it; `CallerMemory` stands for its creator's
        // promise that the bytes stay mapped for that long, and what its file is; that they are readable, and writable
        // where that is asked for, was looked up. Of the rest of its first and last pages commands name nothing.
        let mapped = unsafe {
            match file {
                Some((file, Some(offset))) => self.translation.map_file(range, base, (file, offset), access),
                _ => self.translation.map(range, base, access),
            }
        };
        Ok(self.made(range, mapped, Arc::clone(memory), access)?)
    }

    fn take_range(&self, len: u64) -> Result<IovaRange, AllocateError> {
        let align = (1u64 << len.trailing_zeros().min(LARGE_PAGE.trailing_zeros())).max(self.page_size());
        self.lock_iovas().allocate(len, align)
    }

    /// The region of a range that was mapped, or not.
    fn made<B>(
        self: &Arc<Self>,
        range: IovaRange,
        mapped: Result<(), MapError>,
        backing: B,
        access: Access,
    ) -> Result<Region<B>, RegisterError> {
        if let Err(error) = mapped {
            self.give_back(range, true);
            return Err(error.into());
        }
        Ok(Region::new(Arc::clone(self), range, backing, access))
    }

    /// Makes the IOVAs of regions that were dropped unproven usable again: every function of this space has been
    /// disabled or reset since.
    pub fn reclaim_retired(&self) {
        self.lock_iovas().reclaim_retired();
    }

    pub(super) fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        self.translation.unmap(range)
    }

    pub(super) fn give_back(&self, range: IovaRange, quiet: bool) {
        let mut iovas = self.lock_iovas();
        let taken = if quiet { iovas.free(range) } else { iovas.retire(range) };
        debug_assert!(taken.is_ok(), "a region holds a range that was handed out");
    }

    fn lock_iovas(&self) -> MutexGuard<'_, IovaAllocator> {
        // The allocator keeps its own invariants at every step, so a panic elsewhere leaves it usable.
        self.iovas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
