//! Copies between a GPU's memory and pinned host memory, many in one launch.
//!
//! A call of CUDA costs microseconds, whatever it copies. So a [`Copier`] takes lists: each is one launch of a kernel
//! that gathers and scatters its pieces, and large ones of it go to a copy engine. When a list is done the GPU writes its
//! number to a word in pinned memory, so that a poll is one load and no call.
//!
//! The list lies in pinned memory until it is done; room for it is what bounds the copies in flight. What is copied
//! belongs to the caller.

mod launches;
mod paged;

use std::sync::Arc;

use thiserror::Error;

use super::device::Gpu;
use super::error::CudaError;
use super::kernels::{KernelError, WordSeries};
use super::memory::GpuMemory;
use crate::dma::MemoryCopy;
use launches::Launches;
pub use launches::Ticket;
pub use paged::{KvError, KvLayout, KvPages, KvShape};

/// Pieces that a copy is cut into, one for a warp each, in bytes.
pub(super) const CHUNK: u64 = 16 << 10;

/// How a copier works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopierConfig {
    /// Pieces of at most 16 KiB that may be in flight: a power of two, 1 to 2^20.
    pub pieces: u32,
    /// Bytes from which on a copy is made by a copy engine, not by the kernel.
    pub engine_from: u64,
}

impl Default for CopierConfig {
    /// 16,384 pieces, 256 MiB of large ones; the copy engine from 4 MiB on, where it was measured to be the faster (see
    /// docs/gpu-direct.md).
    fn default() -> Self {
        Self { pieces: 1 << 14, engine_from: 4 << 20 }
    }
}

/// Why a list was not begun.
#[derive(Debug, Error)]
pub enum CopyError {
    /// More pieces than there is ever room for. The caller is at fault.
    #[error("{pieces} pieces are more than the {most} that there is room for: make the list shorter")]
    TooMany {
        /// Pieces of the list.
        pieces: u64,
        /// Pieces that there is room for.
        most: u32,
    },
    /// Lists that are not done yet take the room. Nothing is begun; try again later.
    #[error("{pieces} pieces have no room beside those in flight: try again when these are done")]
    Busy {
        /// Pieces of the list.
        pieces: u64,
    },
    /// CUDA refused, now or before: nothing that was begun may be relied on.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

/// What a copier has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopierCounters {
    /// Lists begun.
    pub lists: u64,
    /// Copies of these lists.
    pub copies: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Copies given to a copy engine.
    pub engine_copies: u64,
}

/// Makes copies for one owner, in a stream of its own. Dropping it waits for what was begun.
pub struct Copier {
    launches: Launches,
    wrong: GpuMemory,
    config: CopierConfig,
    counters: CopierCounters,
}

impl Copier {
    /// A copier of `gpu`.
    ///
    /// # Errors
    /// [`KernelError`].
    ///
    /// # Panics
    /// When `config` is outside of what it says.
    pub fn new(gpu: &Arc<Gpu>, config: CopierConfig) -> Result<Self, KernelError> {
        let pieces = config.pieces;
        assert!(pieces.is_power_of_two() && pieces <= 1 << 20, "{pieces} pieces: a power of two, 1 to 2^20");
        let launches = Launches::new(gpu, pieces)?;
        let wrong = GpuMemory::allocate(gpu, 16).map_err(KernelError::Memory)?;
        Ok(Self { launches, wrong, config, counters: CopierCounters::default() })
    }

    /// What it has done.
    pub fn counters(&self) -> CopierCounters {
        self.counters
    }

    /// Begins the copies of a list, in any order.
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// Until the list is done, all that it names is memory of this GPU, or of this process and registered with it; no two
    /// copies write the same bytes, and nobody else writes them or makes a reference to them.
    pub unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<Ticket, CopyError> {
        let (large, small): (Vec<&MemoryCopy>, Vec<&MemoryCopy>) =
            copies.iter().partition(|copy| copy.len >= self.config.engine_from);
        let pieces = small.iter().map(|copy| copy.len.div_ceil(CHUNK)).sum();
        let entries =
            small.iter().flat_map(|copy| cut(**copy, CHUNK)).map(|piece| [piece.to, piece.from, piece.len, 0]);
        // SAFETY: the pieces are those of `copies`, for which the caller vouches.
        let ticket = unsafe {
            self.launches.run(pieces, entries, |kernels, stream, list, count| {
                if count > 0 {
                    kernels.copy(stream, list, count)?;
                }
                large.iter().try_for_each(|copy| stream.copy(copy.to, copy.from, copy.len as usize))
            })
        }?;
        self.counters.lists += 1;
        self.counters.copies += copies.len() as u64;
        self.counters.bytes += copies.iter().map(|copy| copy.len).sum::<u64>();
        self.counters.launches += u64::from(pieces > 0);
        self.counters.engine_copies += large.len() as u64;
        Ok(ticket)
    }

    /// Writes series of words. A piece of room is taken for each.
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    pub unsafe fn write_series(&mut self, series: &[WordSeries]) -> Result<Ticket, CopyError> {
        let entries = series.iter().map(|one| [one.address, one.words, one.first, one.step]);
        // SAFETY: the caller vouches for the series.
        unsafe {
            self.launches.run(series.len() as u64, entries, |kernels, stream, list, count| match count {
                0 => Ok(()),
                count => kernels.write_series(stream, list, count),
            })
        }
    }

    /// Compares memory with series of words, and waits for the answer: how many words differ, and the number of the first
    /// series that has one.
    ///
    /// # Errors
    /// [`CopyError`].
    ///
    /// # Safety
    /// As for [`begin`](Self::begin), for memory that is read.
    pub unsafe fn check_series(&mut self, series: &[WordSeries]) -> Result<Option<(u64, u64)>, CopyError> {
        let entries = series.iter().map(|one| [one.address, one.words, one.first, one.step]);
        let (wrong, answer) = (self.wrong.address(), self.launches.answer());
        // SAFETY: the caller vouches for the series. `wrong` are 16 bytes of ours, and so is `answer`; nobody else uses
        // either, as the answer is waited for here.
        let ticket = unsafe {
            self.launches.run(series.len() as u64, entries, |kernels, stream, list, count| {
                stream.fill(wrong, 0, 8)?;
                stream.fill(wrong + 8, 0xFF, 8)?;
                if count > 0 {
                    kernels.check_series(stream, list, count, wrong)?;
                }
                stream.copy(answer, wrong, 16)
            })
        }?;
        self.wait(ticket)?;
        let [count, first] = self.launches.read_answer();
        Ok((count > 0).then_some((count, first)))
    }

    /// Whether a list is done, and what it copied visible to the host, to devices and to work that is given to the GPU
    /// from now on. One load.
    #[inline]
    pub fn is_done(&self, ticket: Ticket) -> bool {
        self.launches.is_done(ticket)
    }

    /// Whether the GPU still works: for whoever has waited for long. A call of CUDA.
    ///
    /// # Errors
    /// [`CudaError`]: what was begun is not done and never will be.
    pub fn check(&self) -> Result<(), CudaError> {
        self.launches.check()
    }

    /// Waits until a list is done.
    ///
    /// # Errors
    /// [`CudaError`], as from [`check`](Self::check).
    pub fn wait(&self, ticket: Ticket) -> Result<(), CudaError> {
        self.launches.wait(ticket)
    }
}

/// A copy in pieces of at most `chunk` bytes; none where it has no byte.
pub(super) fn cut(copy: MemoryCopy, chunk: u64) -> impl Iterator<Item = MemoryCopy> {
    (0..copy.len.div_ceil(chunk)).map(move |index| {
        let done = index * chunk;
        MemoryCopy::new(copy.to.wrapping_add(done), copy.from.wrapping_add(done), chunk.min(copy.len - done))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_pieces_of_a_copy_are_all_of_it_and_no_more(to: u32, from: u32, len in 0u64..200_000, chunk in 1u64..70_000) {
            let copy = MemoryCopy::new(to.into(), from.into(), len);
            let mut done = 0;
            for piece in cut(copy, chunk) {
                prop_assert_eq!((piece.to - copy.to, piece.from - copy.from), (done, done));
                prop_assert!((1..=chunk).contains(&piece.len));
                done += piece.len;
            }
            prop_assert_eq!(done, len);
            prop_assert_eq!(cut(copy, chunk).count() as u64, len.div_ceil(chunk));
        }
    }
}
