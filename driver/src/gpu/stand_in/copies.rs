//! A stand-in's copies: by the processor, at addresses that were exposed.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::StandIn;
use crate::dma::{MemoryCopy, Mover, MoverError};
use crate::gpu::accelerator::Copies;
use crate::gpu::copier::{CopierCounters, CopyError, Ticket};
use crate::gpu::error::CudaError;
use crate::gpu::kernels::WordSeries;

/// Copies a list at each look, so that what is begun is not made at once.
pub(super) struct StandInMover {
    stand_in: Arc<StandIn>,
    lists: VecDeque<Vec<MemoryCopy>>,
    ended: u64,
}

impl StandInMover {
    pub(super) fn new(stand_in: Arc<StandIn>) -> Self {
        Self { stand_in, lists: VecDeque::new(), ended: 0 }
    }
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
pub(super) struct StandInCopier {
    stand_in: Arc<StandIn>,
    sequence: u32,
    counters: CopierCounters,
}

impl StandInCopier {
    pub(super) fn new(stand_in: Arc<StandIn>) -> Self {
        Self { stand_in, sequence: 0, counters: CopierCounters::default() }
    }

    fn ticket(&mut self) -> Ticket {
        self.stand_in.launches.fetch_add(1, Ordering::Relaxed);
        self.sequence = self.sequence.wrapping_add(1);
        Ticket::new(self.sequence)
    }
}

impl Copies for StandInCopier {
    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<Ticket, CopyError> {
        // SAFETY: the caller vouches for the copies.
        copies.iter().for_each(|copy| unsafe {
            make(*copy);
            self.stand_in.show(copy.to, copy.len);
        });
        self.counters.lists += 1;
        self.counters.launches += 1;
        self.counters.copies += copies.len() as u64;
        self.counters.bytes += copies.iter().map(|copy| copy.len).sum::<u64>();
        Ok(self.ticket())
    }

    unsafe fn write_series(&mut self, series: &[WordSeries]) -> Result<Ticket, CopyError> {
        // SAFETY: the caller vouches for the series.
        series.iter().for_each(|series| unsafe { write_words(&self.stand_in, *series) });
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

/// Writes a series, as the stand-in's own.
///
/// # Safety
/// Its words are in memory that is mapped, on multiples of 8, and nobody else's.
pub(super) unsafe fn write_words(stand_in: &StandIn, series: WordSeries) {
    for (address, word) in words(series) {
        // SAFETY: the caller vouches for it.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(address as usize).write_volatile(word) }
    }
    // SAFETY: it was written above.
    unsafe { stand_in.show(series.address, series.words * 8) }
}

/// Makes a copy.
///
/// # Safety
/// Both ranges are mapped memory whose addresses were exposed, and do not overlap; nobody has a reference to either.
pub(super) unsafe fn make(MemoryCopy { to, from, len, .. }: MemoryCopy) {
    let to = ptr::with_exposed_provenance_mut::<u8>(to as usize);
    let from = ptr::with_exposed_provenance::<u8>(from as usize);
    // SAFETY: the caller vouches for both.
    unsafe { ptr::copy_nonoverlapping(from, to, len as usize) }
}
