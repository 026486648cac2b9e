//! The paged KV pool: memory of the engine, cut into pages that blocks lie in, scattered as on a GPU.
//!
//! Which pages a pool block has is drawn once, over the whole pool. No page of a block is followed in memory by the block's next one,
//! so that no two can pass for a single longer extent.
//!
//! The bytes are a device's to write, so they are never borrowed: they go through a page of scratch memory, in cache. Where the pool is
//! memory of a GPU its kernels write and compare them there, a block at a time; what they find wrong is copied back to be named.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tentpeg_engine::{Engine, GpuSeries, GpuWords, GpuWordsError, Memory, MemoryError, OpCode, Request, SegmentId};
use thiserror::Error;

use super::geometry::Geometry;
use super::payload::{Mismatch, Payload, WORD_BYTES};

/// A pool, with the scratch page through which its bytes go.
pub struct Pool {
    memory: Memory,
    layout: PageLayout,
    page: u64,
    scratch: Vec<u64>,
    /// What writes and compares where the host cannot.
    words: Option<GpuWords>,
    /// Why that did not go on.
    broken: Option<GpuWordsError>,
}

/// Why there is no pool. The host is at fault.
#[derive(Debug, Error)]
pub enum PoolError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// No kernels.
    #[error(transparent)]
    Words(#[from] GpuWordsError),
}

impl Pool {
    /// Allocates a pool of the size that `geometry` has, in memory of `engine`: of its GPU, where it has one.
    ///
    /// # Errors
    /// [`PoolError`] when there is not enough, or the device cannot reach it.
    pub fn allocate(engine: &Engine, geometry: &Geometry) -> Result<Self, PoolError> {
        // `Geometry` has checked that an address can name all of it.
        let bytes = geometry.pool_bytes() as usize;
        let (memory, words) = match engine.gpu() {
            None => (engine.allocate_memory(bytes)?, None),
            Some(_) => {
                let memory = engine.allocate_gpu_memory(bytes)?;
                let words = engine.gpu_words(&memory)?;
                (memory, Some(words))
            }
        };
        let pages = geometry.pool_bytes() / geometry.page();
        Ok(Self {
            memory,
            layout: PageLayout::shuffled(pages as u32, geometry.pages_per_block()),
            page: geometry.page(),
            scratch: vec![0; (geometry.page() / WORD_BYTES) as usize],
            words,
            broken: None,
        })
    }

    /// The memory that the pool lies in.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Sets every word of a pool block to its payload. Asks before each page whether to `stop`, and says whether it came to the end.
    pub fn fill(&mut self, pool_block: u32, payload: &Payload, stop: impl Fn() -> bool) -> bool {
        if self.words.is_some() {
            return self.write_on_gpu(pool_block, stop, |first| payload.series(first));
        }
        self.write(pool_block, stop, |first, words| payload.fill(first, words))
    }

    /// Sets every word of a pool block to what the payload does not have there. Stops like [`fill`](Self::fill).
    pub fn poison(&mut self, pool_block: u32, payload: &Payload, stop: impl Fn() -> bool) -> bool {
        if self.words.is_some() {
            return self.write_on_gpu(pool_block, stop, |first| payload.poison_series(first));
        }
        self.write(pool_block, stop, |first, words| payload.poison(first, words))
    }

    /// Compares every word of a pool block with its payload. Stops like [`fill`](Self::fill).
    ///
    /// # Errors
    /// The first word that differs.
    pub fn verify(&mut self, pool_block: u32, payload: &Payload, stop: impl Fn() -> bool) -> Result<bool, Mismatch> {
        if self.words.is_some() {
            return self.verify_on_gpu(pool_block, payload, stop);
        }
        let view = self.memory.view();
        for (first, page) in (0..).step_by(self.scratch.len()).zip(self.layout.pages(pool_block)) {
            if stop() {
                return Ok(false);
            }
            view.read_words((u64::from(*page) * self.page) as usize, &mut self.scratch);
            payload.verify(first, &self.scratch)?;
        }
        Ok(true)
    }

    fn write(&mut self, pool_block: u32, stop: impl Fn() -> bool, make: impl Fn(u64, &mut [u64])) -> bool {
        let view = self.memory.view();
        for (first, page) in (0..).step_by(self.scratch.len()).zip(self.layout.pages(pool_block)) {
            if stop() {
                return false;
            }
            make(first, &mut self.scratch);
            view.write_words((u64::from(*page) * self.page) as usize, &self.scratch);
        }
        true
    }

    /// What has ended the GPU's part of it, once: what stopped then stopped for that.
    pub fn take_error(&mut self) -> Option<GpuWordsError> {
        self.broken.take()
    }

    fn write_on_gpu(&mut self, pool_block: u32, stop: impl Fn() -> bool, of: impl Fn(u64) -> (u64, u64)) -> bool {
        let series = series(&self.layout, self.page, pool_block, of);
        match &mut self.words {
            Some(words) if !stop() => {
                let filled = words.fill(series);
                filled.map_err(|error| self.broken = Some(error)).is_ok()
            }
            _ => false,
        }
    }

    fn verify_on_gpu(&mut self, pool_block: u32, payload: &Payload, stop: impl Fn() -> bool) -> Result<bool, Mismatch> {
        let series = series(&self.layout, self.page, pool_block, |first| payload.series(first));
        let Some(words) = self.words.as_mut().filter(|_| !stop()) else { return Ok(false) };
        let found = words.check(series).and_then(|wrong| match wrong {
            None => Ok(None),
            Some(wrong) => {
                let page = self.layout.pages(pool_block)[wrong.series];
                words.read(u64::from(page) * self.page, &mut self.scratch)?;
                Ok(Some(wrong.series as u64 * (self.page / WORD_BYTES)))
            }
        });
        match found {
            Ok(None) => Ok(true),
            // Words that were wrong and are right a moment later are wrong all the same.
            Ok(Some(first)) => Err(payload.verify(first, &self.scratch).err().unwrap_or(payload.unsteady(first))),
            Err(error) => {
                self.broken = Some(error);
                Ok(false)
            }
        }
    }

    /// The transfer of a pool block to or from `target_offset` of a segment: one request a page, consecutive on the device, so that
    /// the engine joins them. They replace what `requests` holds.
    pub fn requests(
        &self,
        pool_block: u32,
        opcode: OpCode,
        target_id: SegmentId,
        target_offset: u64,
        requests: &mut Vec<Request>,
    ) {
        requests.clear();
        requests.extend(self.layout.pages(pool_block).iter().zip(0..).map(|(page, number)| Request {
            opcode,
            source: self.memory.address() + u64::from(*page) * self.page,
            target_id,
            target_offset: target_offset + number * self.page,
            length: self.page,
        }));
    }
}

/// The pages of a pool block as series of words, each of which begins as `of` says of the number of its first word.
fn series(
    layout: &PageLayout,
    page: u64,
    pool_block: u32,
    of: impl Fn(u64) -> (u64, u64),
) -> impl Iterator<Item = GpuSeries> {
    let words = page / WORD_BYTES;
    (0..).step_by(words as usize).zip(layout.pages(pool_block)).map(move |(at, number)| {
        let (first, step) = of(at);
        GpuSeries { offset: u64::from(*number) * page, words, first, step }
    })
}

/// Which pages each pool block has, in the order of its bytes.
#[derive(Debug)]
pub(crate) struct PageLayout {
    /// A permutation of all pages: those of block 0, then those of block 1, and so on.
    pages: Vec<u32>,
    per_block: usize,
}

impl PageLayout {
    /// `pages` pages dealt out to blocks of `per_block`; the same on every machine.
    pub(crate) fn shuffled(pages: u32, per_block: usize) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
        let mut pages: Vec<u32> = (0..pages).collect();
        // Fisher and Yates.
        for last in (1..pages.len()).rev() {
            let other = ((u128::from(rng.next_u64()) * (last as u128 + 1)) >> 64) as usize;
            pages.swap(last, other);
        }
        for block in pages.chunks_mut(per_block) {
            for second in 1..block.len() {
                // Two neighbours in ascending order are swapped. What comes before page n is not n, and what comes after page n - 1 is
                // not n, as these are the two: so no swap makes another necessary.
                if block[second - 1].checked_add(1) == Some(block[second]) {
                    block.swap(second - 1, second);
                }
            }
        }
        Self { pages, per_block }
    }

    /// Those of a block.
    pub(crate) fn pages(&self, pool_block: u32) -> &[u32] {
        let first = pool_block as usize * self.per_block;
        &self.pages[first..first + self.per_block]
    }
}

#[cfg(test)]
mod tests;
