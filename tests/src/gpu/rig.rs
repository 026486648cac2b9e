//! A GPU, and the few things that every check does with it.
//!
//! Here, and nowhere else in these checks, addresses are put into lists of copies: each helper takes the memory that
//! they are of, and checks that they lie in it.

use std::sync::Arc;

use tentpeg_driver::dma::{Backing, MemoryCopy};
use tentpeg_driver::gpu::{
    CallerGpuMemory, Copier, CopierConfig, CopyError, Gpu, GpuMemory, KvPages, KvShape, PinnedMemory, WordSeries,
};

use super::ensure;
use crate::device_tests::Ending;

/// A GPU with a copier.
pub struct Rig {
    /// The GPU.
    pub gpu: Arc<Gpu>,
    copier: Copier,
}

/// A part of memory: offset and length in bytes.
pub(super) type Part = (usize, usize);

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the host to the GPU.
    In,
    /// From the GPU to the host.
    Out,
}

impl Rig {
    pub(super) fn new(gpu: Arc<Gpu>) -> Result<Self, Ending> {
        let config = CopierConfig { pieces: 1 << 18, ..CopierConfig::default() };
        Ok(Self { copier: Copier::new(&gpu, config)?, gpu })
    }

    pub(super) fn memory(&self, len: usize) -> Result<GpuMemory, Ending> {
        Ok(GpuMemory::allocate(&self.gpu, len)?)
    }

    /// A part of memory as a caller of an engine has it. It is dropped after the engine, or unregistered before.
    pub(super) fn caller_memory(far: &GpuMemory, (offset, len): Part) -> CallerGpuMemory {
        // SAFETY: each check keeps the memory until its engine has closed, or unregisters it before it frees it.
        unsafe { CallerGpuMemory::new(far.address() + offset as u64, len as u64) }
    }

    pub(super) fn pinned(&self, len: usize) -> Result<PinnedMemory, Ending> {
        Ok(PinnedMemory::allocate(&self.gpu, len)?)
    }

    /// Copies between parts of a GPU's memory and parts of the host's, as one list, by the kernel or by the copy engine,
    /// and waits.
    pub(super) fn copy(
        &mut self,
        far: &GpuMemory,
        near: &PinnedMemory,
        parts: &[(usize, usize, usize)],
        way: Way,
        engine: bool,
    ) -> Result<(), Ending> {
        let copies = copies(far, near, parts, way)?;
        let mut with_engine;
        let copier = if engine {
            with_engine = Copier::new(&self.gpu, CopierConfig { pieces: 1, engine_from: 1 })?;
            &mut with_engine
        } else {
            &mut self.copier
        };
        // SAFETY: every copy lies in the two memories, which outlive the wait, and nobody else uses them meanwhile.
        let ticket = unsafe { copier.begin(&copies) }?;
        Ok(copier.wait(ticket)?)
    }

    /// As [`copy`](Self::copy) by a copier of the caller's, `rounds` times with several lists in flight, all of the same
    /// parts: for measuring. Bytes are overwritten by the same bytes.
    pub(super) fn copy_often(
        copier: &mut Copier,
        (far, near): (&GpuMemory, &PinnedMemory),
        (parts, way): (&[(usize, usize, usize)], Way),
        rounds: usize,
    ) -> Result<(), Ending> {
        let copies = copies(far, near, parts, way)?;
        let mut last = None;
        for _ in 0..rounds {
            last = Some(loop {
                // SAFETY: as in `copy`; a list that writes what another writes, writes the same.
                match unsafe { copier.begin(&copies) } {
                    Ok(ticket) => break ticket,
                    Err(CopyError::Busy { .. }) => copier.check()?,
                    Err(error) => return Err(error.into()),
                }
            });
        }
        last.map_or(Ok(()), |ticket| Ok(copier.wait(ticket)?))
    }

    /// Puts all of `bytes` at `offset` of a GPU's memory.
    pub(super) fn put(&mut self, far: &GpuMemory, offset: usize, bytes: &[u8]) -> Result<(), Ending> {
        let near = self.pinned(bytes.len())?;
        near.view().write(0, bytes);
        self.copy(far, &near, &[(offset, 0, bytes.len())], Way::In, true)
    }

    /// The bytes of a part of a GPU's memory.
    pub(super) fn get(&mut self, far: &GpuMemory, (offset, len): Part) -> Result<Vec<u8>, Ending> {
        let near = self.pinned(len)?;
        self.copy(far, &near, &[(offset, 0, len)], Way::Out, true)?;
        let mut bytes = vec![0; len];
        near.view().read(0, &mut bytes);
        Ok(bytes)
    }

    /// The series of block `block` at a part of a GPU's memory.
    fn series(far: &GpuMemory, parts: &[(Part, u64)]) -> Result<Vec<WordSeries>, Ending> {
        let series = parts.iter().map(|((offset, len), block)| {
            ensure(offset + len <= far.len() && offset % 8 == 0 && len % 8 == 0, || "no part of words".to_owned())?;
            let first = block.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            Ok(WordSeries {
                address: far.address() + *offset as u64,
                words: *len as u64 / 8,
                first,
                step: first << 1 | 1,
            })
        });
        series.collect()
    }

    /// Fills parts of a GPU's memory with what is derived from a number for each.
    pub(super) fn fill(&mut self, far: &GpuMemory, parts: &[(Part, u64)]) -> Result<(), Ending> {
        let series = Self::series(far, parts)?;
        // SAFETY: every series lies in the memory, which outlives the wait.
        let ticket = unsafe { self.copier.write_series(&series) }?;
        Ok(self.copier.wait(ticket)?)
    }

    /// Whether parts of a GPU's memory are as [`fill`](Self::fill) left them: how many words are not, and in which part
    /// the first.
    pub(super) fn verify(&mut self, far: &GpuMemory, parts: &[(Part, u64)]) -> Result<Option<(u64, u64)>, Ending> {
        let series = Self::series(far, parts)?;
        // SAFETY: as in `fill`.
        Ok(unsafe { self.copier.check_series(&series) }?)
    }

    /// Packs blocks of a pool into objects in pinned memory, one after the other, or unpacks them.
    pub(super) fn kv(
        &mut self,
        (shape, layers): (KvShape, &[GpuMemory]),
        (blocks, near): (&[u32], &PinnedMemory),
        way: Way,
    ) -> Result<(), Ending> {
        let fits = layers.iter().all(|layer| shape.layer().is_some_and(|bytes| bytes <= layer.len() as u64));
        ensure(fits, || "a layer is too small".to_owned())?;
        let bases: Vec<u64> = layers.iter().map(GpuMemory::address).collect();
        // SAFETY: each layer has as many bytes as the shape says, and outlives the pool.
        let pages = unsafe { KvPages::new(&self.gpu, shape, &bases) }?;
        let room = near.len() as u64 / pages.object();
        ensure(blocks.len() as u64 <= room, || "too few bytes for the objects".to_owned())?;
        let objects: Vec<u64> = (0..blocks.len() as u64).map(|index| near.address() + index * pages.object()).collect();
        // SAFETY: the objects lie in `near`; it, the layers and the pool outlive the wait.
        let ticket = unsafe {
            match way {
                Way::Out => self.copier.pack(&pages, blocks, &objects),
                Way::In => self.copier.unpack(&pages, blocks, &objects),
            }
        }?;
        Ok(self.copier.wait(ticket)?)
    }
}

/// The list of copies between parts of a GPU's memory and parts of the host's, all of which lie there.
fn copies(
    far: &GpuMemory,
    near: &PinnedMemory,
    parts: &[(usize, usize, usize)],
    way: Way,
) -> Result<Vec<MemoryCopy>, Ending> {
    let copies = parts.iter().map(|(at_far, at_near, len)| {
        ensure(at_far + len <= far.len() && at_near + len <= near.len(), || "a part leaves its memory".to_owned())?;
        let (far, near) = (far.address() + *at_far as u64, near.address() + *at_near as u64);
        let (to, from) = if way == Way::In { (far, near) } else { (near, far) };
        Ok(MemoryCopy::new(to, from, *len as u64))
    });
    copies.collect()
}
