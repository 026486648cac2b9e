//! A stand-in for a GPU: host memory under addresses that nobody but its own copies touches, for everything above that
//! works the same with and without a GPU.
//!
//! It answers as CUDA would: about addresses, of memory that was freed, of ranges past an allocation. No device reaches it
//! directly, and no figure is to be had from it.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::accelerator::{Accelerator, Copies};
use super::copier::{CopierConfig, CopierCounters, CopyError, Ticket};
use super::device::{GpuInfo, WritesOrdering};
use super::error::{CudaError, code};
use super::kernels::{KernelError, WordSeries};
use super::ladder::{Gdrdrv, PathProbe};
use super::library::CudaVersion;
use super::memory::{GPU_PAGE, GpuMemoryError};
use super::provider::{PointerAttributes, PointerQueries};
use crate::dma::{AcceleratorMemory, Backing, DmaView, HostMemory, MemoryCopy, Mover, MoverError, PageSize};

/// CU_MEMORYTYPE_DEVICE.
const DEVICE: u32 = 2;

/// An allocation.
#[derive(Debug, Clone, Copy)]
struct Known {
    base: u64,
    len: u64,
    buffer_id: u64,
}

/// A GPU that is none.
pub struct StandIn {
    info: GpuInfo,
    known: Mutex<Vec<Known>>,
    next: AtomicU64,
    launches: AtomicU64,
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StandIn").field(&self.info.name).finish()
    }
}

impl StandIn {
    /// One with `memory` bytes.
    pub fn new(memory: u64) -> Arc<Self> {
        let info = GpuInfo {
            ordinal: 0,
            name: "stand-in".to_owned(),
            pci_address: "0000:00:00.0".to_owned(),
            memory,
            multiprocessors: 1,
            compute_capability: (0, 0),
            writes_ordering: WritesOrdering::AllDevices,
            host_flush: false,
            rdma: true,
            dma_buf: false,
            dma_buf_mmap: None,
        };
        Arc::new(Self { info, known: Mutex::default(), next: AtomicU64::new(1), launches: AtomicU64::new(0) })
    }

    /// Memory of it, to be looked into: for a caller who has allocated his own.
    ///
    /// # Errors
    /// [`GpuMemoryError::NoRoom`] where all of it is given away, or the host has none.
    pub fn allocate_memory(self: &Arc<Self>, len: usize) -> Result<Arc<StandInMemory>, GpuMemoryError> {
        let (ordinal, total) = (self.info.ordinal, self.info.memory);
        let no_room = || GpuMemoryError::NoRoom { ordinal, len, total };
        let pages = len.max(1).checked_next_multiple_of(GPU_PAGE as usize).ok_or_else(no_room)?;
        let mut known = self.lock();
        let used: u64 = known.iter().map(|known| known.len).sum();
        if total.checked_sub(used).is_none_or(|free| free < pages as u64) {
            return Err(no_room());
        }
        let memory = HostMemory::allocate_on(pages, PageSize::Ordinary)?;
        let base = memory.base().as_ptr().expose_provenance() as u64;
        let buffer_id = self.next.fetch_add(1, Ordering::Relaxed);
        known.push(Known { base, len: memory.len() as u64, buffer_id });
        drop(known);
        Ok(Arc::new(StandInMemory { stand_in: Arc::clone(self), memory }))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        // Each change leaves the list whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, address: u64) -> Option<Known> {
        self.lock().iter().find(|known| address >= known.base && address - known.base < known.len).copied()
    }
}

/// Memory of a stand-in.
#[derive(Debug)]
pub struct StandInMemory {
    stand_in: Arc<StandIn>,
    memory: HostMemory,
}

impl StandInMemory {
    /// The bytes.
    pub fn view(&self) -> DmaView<'_> {
        // SAFETY: the memory outlives the view; nobody makes a reference to it.
        unsafe { DmaView::new(self.memory.base(), self.memory.len()) }
    }
}

impl Drop for StandInMemory {
    fn drop(&mut self) {
        let base = self.address();
        self.stand_in.lock().retain(|known| known.base != base);
    }
}

// SAFETY: as the host memory that it is.
unsafe impl AcceleratorMemory for StandInMemory {
    fn address(&self) -> u64 {
        self.memory.base().addr().get() as u64
    }

    fn len(&self) -> u64 {
        self.memory.len() as u64
    }
}

impl PointerQueries for StandIn {
    fn attributes(&self, address: u64) -> Result<PointerAttributes, CudaError> {
        let attributes = |known: Known| PointerAttributes {
            memory_type: DEVICE,
            buffer_id: known.buffer_id,
            has_context: true,
            rdma_capable: true,
            ..PointerAttributes::default()
        };
        Ok(self.find(address).map(attributes).unwrap_or_default())
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError> {
        let unknown = || CudaError {
            call: "cuMemGetAddressRange",
            code: code::INVALID_VALUE,
            name: "CUDA_ERROR_INVALID_VALUE".to_owned(),
        };
        self.find(address).map(|known| (known.base, known.len)).ok_or_else(unknown)
    }
}

impl PathProbe for StandIn {
    fn info(&self) -> &GpuInfo {
        &self.info
    }

    fn driver(&self) -> CudaVersion {
        CudaVersion(0)
    }

    fn export(&self, _: u64, _: u64) -> Result<OwnedFd, CudaError> {
        let name = "CUDA_ERROR_NOT_SUPPORTED".to_owned();
        Err(CudaError { call: "cuMemGetHandleForAddressRange", code: code::NOT_SUPPORTED, name })
    }

    fn map(&self, _: &OwnedFd, _: u64) -> Result<(), i32> {
        Err(libc::ENODEV)
    }

    fn import(&self, _: &OwnedFd, _: u64) -> Result<(), i32> {
        Err(libc::ENODEV)
    }

    fn gdrdrv(&self) -> Result<Gdrdrv, i32> {
        Err(libc::ENOENT)
    }
}

impl Accelerator for StandIn {
    fn allocate(self: Arc<Self>, len: usize) -> Result<Arc<dyn AcceleratorMemory>, GpuMemoryError> {
        Ok(self.allocate_memory(len)?)
    }

    fn allocate_pinned(self: Arc<Self>, len: usize) -> Result<Box<dyn Backing>, GpuMemoryError> {
        Ok(Box::new(HostMemory::allocate(len)?))
    }

    fn mover(self: Arc<Self>, _: u32) -> Result<Box<dyn Mover>, KernelError> {
        Ok(Box::new(StandInMover { stand_in: self, lists: VecDeque::new(), ended: 0 }))
    }

    fn copier(self: Arc<Self>, _: CopierConfig) -> Result<Box<dyn Copies>, KernelError> {
        Ok(Box::new(StandInCopier { stand_in: self, sequence: 0, counters: CopierCounters::default() }))
    }

    fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }
}

/// Copies a list at each look, so that what is begun is not made at once.
struct StandInMover {
    stand_in: Arc<StandIn>,
    lists: VecDeque<Vec<MemoryCopy>>,
    ended: u64,
}

impl Mover for StandInMover {
    unsafe fn admit(&mut self, base: NonNull<u8>, _: usize) -> Result<(), MoverError> {
        let _ = base.as_ptr().expose_provenance();
        Ok(())
    }

    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<(), MoverError> {
        self.stand_in.launches.fetch_add(1, Ordering::Relaxed);
        self.lists.push_back(copies.to_vec());
        Ok(())
    }

    fn ended(&mut self) -> Result<u64, MoverError> {
        if let Some(list) = self.lists.pop_front() {
            // SAFETY: the caller of `begin` vouches for the copies until this has counted them.
            list.into_iter().for_each(|copy| unsafe { make(copy) });
            self.ended += 1;
        }
        Ok(self.ended)
    }
}

/// Copies at once.
struct StandInCopier {
    stand_in: Arc<StandIn>,
    sequence: u32,
    counters: CopierCounters,
}

impl StandInCopier {
    fn ticket(&mut self) -> Ticket {
        self.stand_in.launches.fetch_add(1, Ordering::Relaxed);
        self.sequence = self.sequence.wrapping_add(1);
        Ticket::new(self.sequence)
    }
}

impl Copies for StandInCopier {
    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<Ticket, CopyError> {
        // SAFETY: the caller vouches for the copies.
        copies.iter().for_each(|copy| unsafe { make(*copy) });
        self.counters.lists += 1;
        self.counters.launches += 1;
        self.counters.copies += copies.len() as u64;
        self.counters.bytes += copies.iter().map(|copy| copy.len).sum::<u64>();
        Ok(self.ticket())
    }

    unsafe fn write_series(&mut self, series: &[WordSeries]) -> Result<Ticket, CopyError> {
        for (address, word) in series.iter().flat_map(|series| words(*series)) {
            // SAFETY: the caller vouches for the series: words of memory that is mapped, on multiples of 8.
            unsafe { ptr::with_exposed_provenance_mut::<u64>(address as usize).write_volatile(word) }
        }
        Ok(self.ticket())
    }

    unsafe fn check_series(&mut self, series: &[WordSeries]) -> Result<Option<(u64, u64)>, CopyError> {
        let (mut wrong, mut first) = (0, None);
        for (number, series) in (0u64..).zip(series) {
            for (address, word) in words(*series) {
                // SAFETY: as in `write_series`.
                let found = unsafe { ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() };
                if found != word {
                    wrong += 1;
                    first.get_or_insert(number);
                }
            }
        }
        self.ticket();
        Ok(first.map(|first| (wrong, first)))
    }

    fn is_done(&self, _: Ticket) -> bool {
        true
    }

    fn check(&self) -> Result<(), CudaError> {
        Ok(())
    }

    fn wait(&self, _: Ticket) -> Result<(), CudaError> {
        Ok(())
    }

    fn counters(&self) -> CopierCounters {
        self.counters
    }
}

/// The words of a series, each with its address.
fn words(WordSeries { address, words, first, step }: WordSeries) -> impl Iterator<Item = (u64, u64)> {
    (0..words).map(move |index| (address + 8 * index, first.wrapping_add(step.wrapping_mul(index))))
}

/// Makes a copy.
///
/// # Safety
/// Both ranges are mapped memory whose addresses were exposed, and do not overlap; nobody has a reference to either.
unsafe fn make(MemoryCopy { to, from, len, .. }: MemoryCopy) {
    let to = ptr::with_exposed_provenance_mut::<u8>(to as usize);
    let from = ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: the caller vouches for both.
    unsafe { ptr::copy_nonoverlapping(from, to, len as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::{CallerGpuMemory, PlaceError, locate};

    #[test]
    fn it_answers_about_its_addresses_as_cuda_does() {
        let gpu = StandIn::new(1 << 20);
        let memory = gpu.allocate_memory(100_000).unwrap();
        let (base, len) = (memory.address(), AcceleratorMemory::len(&*memory));
        assert_eq!(len, 128 << 10);
        assert_eq!(locate(&*gpu, 0, base + 4096, 4096).unwrap().allocations.len(), 1);
        let past = locate(&*gpu, 0, base + 4096, len).unwrap_err();
        assert!(matches!(past, PlaceError::PastAllocation { .. }), "{past}");
        assert!(matches!(locate(&*gpu, 1, base, 8), Err(PlaceError::WrongDevice { device: 0, wanted: 1, .. })));
        assert!(matches!(gpu.allocate_memory(1 << 20), Err(GpuMemoryError::NoRoom { .. })));
        let placement = locate(&*gpu, 0, base, len).unwrap();
        drop(memory);
        assert!(matches!(placement.check(&*gpu), Err(PlaceError::Gone { .. })));
        assert!(matches!(locate(&*gpu, 0, base, 8), Err(PlaceError::NotCuda { .. })));
    }

    #[test]
    fn the_pages_of_a_part_lie_in_the_allocation_or_are_refused() {
        let gpu = StandIn::new(1 << 20);
        let memory = gpu.allocate_memory(64 << 10).unwrap();
        let of = |offset: u64, len: u64| {
            // SAFETY: the memory outlives what is made of it.
            let part = unsafe { CallerGpuMemory::new(memory.address() + offset, len) };
            let placement = part.locate(&*gpu, 0).unwrap();
            part.pages(&placement, 4096)
        };
        let pages = of(4096 + 8, 4096).unwrap();
        assert_eq!((pages.address() - memory.address(), AcceleratorMemory::len(&pages)), (4096, 8192));
        assert_eq!(pages.before(), 8);
        let whole = of(0, 64 << 10).unwrap();
        assert_eq!((whole.before(), AcceleratorMemory::len(&whole)), (0, 64 << 10));
        // SAFETY: nothing is made of it but a refusal.
        let part = unsafe { CallerGpuMemory::new(memory.address(), 64 << 10) };
        let placement = part.locate(&*gpu, 0).unwrap();
        // No allocation begins on a page of so many bytes.
        let refused = part.pages(&placement, 1 << 62).unwrap_err();
        assert!(matches!(refused, PlaceError::Pages { page, .. } if page == 1 << 62), "{refused}");
    }

    #[test]
    fn a_word_that_is_wrong_is_counted_and_found() {
        let gpu = StandIn::new(1 << 20);
        let memory = gpu.allocate_memory(4096).unwrap();
        let mut copier = Arc::clone(&gpu).copier(CopierConfig::default()).unwrap();
        let series = |at: u64, first| WordSeries { address: memory.address() + at, words: 64, first, step: 3 };
        let all = [series(0, 5), series(512, 77)];
        // SAFETY: both lie in the memory, which nobody else uses.
        unsafe {
            copier.write_series(&all).unwrap();
            assert_eq!(copier.check_series(&all).unwrap(), None);
            memory.view().write(512 + 8, &[0xFF]);
            assert_eq!(copier.check_series(&all).unwrap(), Some((1, 1)));
        }
        assert_eq!(gpu.launches(), 3);
    }
}
