//! Words in GPU memory, written and compared by the GPU: what a run knows its blocks by.
//!
//! Only memory that the engine has allocated is taken: a handle to it keeps it allocated, so whatever is asked here is of
//! memory that is there. What a device does to the same bytes at the same time is the caller's to avoid, and harms nothing
//! but the bytes.

use std::sync::Arc;

use tentpeg_driver::dma::{Backing, DmaView, MemoryCopy};
use tentpeg_driver::gpu::{
    CopierConfig, CopierCounters, Copies, CopyError, CudaError, GpuMemoryError, KernelError, WordSeries,
};
use thiserror::Error;

use super::EngineGpu;
use crate::memory::Memory;

/// Series in one list.
const MOST: usize = 1 << 14;
/// Bytes that are read back at a time.
const BACK: usize = 64 << 10;

/// Words of 8 bytes in a GPU's memory, each `step` more than the one before, modulo 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuSeries {
    /// The first byte, from the memory's start: a multiple of 8.
    pub offset: u64,
    /// How many words.
    pub words: u64,
    /// The first word.
    pub first: u64,
    /// How much each is more than the one before.
    pub step: u64,
}

/// Words that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongWords {
    /// How many.
    pub words: u64,
    /// The number of the first series that has one.
    pub series: usize,
}

/// Why words were neither written nor compared.
#[derive(Debug, Error)]
pub enum GpuWordsError {
    /// Caller: the engine has not allocated it on a GPU.
    #[error("{address:#x} is no GPU memory that this engine has allocated: allocate it by allocate_gpu_memory")]
    NotAllocated {
        /// The memory's address.
        address: u64,
    },
    /// Caller: words that are not in the memory.
    #[error("{words} words at byte {offset} are not in the memory's {len} bytes, on multiples of 8")]
    Outside {
        /// Where they begin.
        offset: u64,
        /// How many.
        words: u64,
        /// Bytes of the memory.
        len: u64,
    },
    /// Host: the GPU has no kernels for it.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// Host: no pinned memory.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// Host: a list was not begun.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// Host: the GPU does not work any more.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// Writes and compares words of one memory.
pub struct GpuWords {
    // In this order they are dropped: what copies, then what it copies to.
    copies: Box<dyn Copies>,
    back: Box<dyn Backing>,
    memory: Memory,
    list: Vec<WordSeries>,
}

impl GpuWords {
    pub(super) fn new(gpu: &EngineGpu, memory: &Memory) -> Result<Self, GpuWordsError> {
        let accelerator = gpu.accelerator();
        if !memory.is_allocated_on(accelerator) {
            return Err(GpuWordsError::NotAllocated { address: memory.address() });
        }
        let copies = Arc::clone(accelerator).copier(CopierConfig { pieces: MOST as u32, ..CopierConfig::default() })?;
        let back = Arc::clone(accelerator).allocate_pinned(BACK)?;
        Ok(Self { copies, back, memory: memory.clone(), list: Vec::new() })
    }

    /// Sets words, and waits until they are. No two series may share a word.
    ///
    /// # Errors
    /// [`GpuWordsError`].
    pub fn fill(&mut self, series: impl IntoIterator<Item = GpuSeries>) -> Result<(), GpuWordsError> {
        self.collect(series)?;
        for list in self.list.chunks(MOST) {
            // SAFETY: each series was found to lie in the memory, which the handle keeps allocated; it is waited for here.
            let ticket = unsafe { self.copies.write_series(list) }?;
            self.copies.wait(ticket)?;
        }
        Ok(())
    }

    /// Compares words with what is there. `None`: all are right.
    ///
    /// # Errors
    /// [`GpuWordsError`].
    pub fn check(&mut self, series: impl IntoIterator<Item = GpuSeries>) -> Result<Option<WrongWords>, GpuWordsError> {
        self.collect(series)?;
        let mut found: Option<WrongWords> = None;
        for (number, list) in self.list.chunks(MOST).enumerate() {
            // SAFETY: as in `fill`; this call waits itself.
            let Some((words, first)) = (unsafe { self.copies.check_series(list) })? else { continue };
            let series = number * MOST + first as usize;
            let before = found.get_or_insert(WrongWords { words: 0, series });
            before.words += words;
        }
        Ok(found)
    }

    /// Copies words from `offset` on to where they can be looked at: for what was found wrong.
    ///
    /// # Errors
    /// [`GpuWordsError`].
    pub fn read(&mut self, offset: u64, words: &mut [u64]) -> Result<(), GpuWordsError> {
        let mut at = offset;
        for part in words.chunks_mut(BACK / 8) {
            let series = GpuSeries { offset: at, words: part.len() as u64, first: 0, step: 0 };
            let from = self.located(series)?.address;
            let to = self.back.base().addr().get() as u64;
            let bytes = size_of_val::<[u64]>(part) as u64;
            // SAFETY: the source lies in the memory, as in `fill`; the target is ours, as long, and nobody else's.
            let ticket = unsafe { self.copies.begin(&[MemoryCopy::new(to, from, bytes)]) }?;
            self.copies.wait(ticket)?;
            // SAFETY: pinned memory of ours, of which nobody makes a reference.
            unsafe { DmaView::new(self.back.base(), self.back.len()) }.read_words(0, part);
            at += bytes;
        }
        Ok(())
    }

    /// What was done on the GPU for this.
    pub fn counters(&self) -> CopierCounters {
        self.copies.counters()
    }

    fn collect(&mut self, series: impl IntoIterator<Item = GpuSeries>) -> Result<(), GpuWordsError> {
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        for one in series {
            list.push(self.located(one)?);
        }
        self.list = list;
        Ok(())
    }

    /// A series at its address, which lies in the memory.
    fn located(&self, series: GpuSeries) -> Result<WordSeries, GpuWordsError> {
        let GpuSeries { offset, words, first, step } = series;
        let (len, address) = (self.memory.len() as u64, self.memory.address() + offset.min(self.memory.len() as u64));
        let end = words.checked_mul(8).and_then(|bytes| bytes.checked_add(offset));
        match end.filter(|end| *end <= len && address.is_multiple_of(8)) {
            Some(_) => Ok(WordSeries { address, words, first, step }),
            None => Err(GpuWordsError::Outside { offset, words, len }),
        }
    }
}
