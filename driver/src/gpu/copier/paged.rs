//! Blocks of a paged KV pool, and the contiguous objects that hold them elsewhere.
//!
//! An object is one block of every layer: K and V of layer 0, K and V of layer 1, and so on, each as it lies in the pool.
//! Nothing is converted, so elements of any format keep their bits; what counts is how many bytes one has.

use std::sync::Arc;

use thiserror::Error;

use super::{CHUNK, Copier, CopyError, Ticket};
use crate::gpu::device::Gpu;
use crate::gpu::kernels::KvPool;
use crate::gpu::memory::{GpuMemoryError, PinnedMemory};

/// How a layer's tensor is laid out, as vLLM's attention backends have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvLayout {
    /// `[2, blocks, block_size, heads, head_size]`: all of K, then all of V.
    KeysThenValues,
    /// `[blocks, 2, block_size, heads, head_size]`: K and V of a block side by side.
    BlockByBlock,
}

/// What a pool's tensors are like. All layers are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvShape {
    /// The layout of a layer's tensor.
    pub layout: KvLayout,
    /// Blocks of a layer.
    pub blocks: u32,
    /// Tokens of a block.
    pub block_size: u32,
    /// KV heads.
    pub heads: u32,
    /// Elements of a head.
    pub head_size: u32,
    /// Bytes of an element: 2 for fp16 and bf16, 1 for fp8.
    pub element: u32,
}

/// Why blocks are not moved. The caller is at fault, but for the last two.
#[derive(Debug, Error)]
pub enum KvError {
    /// A shape that no pool has.
    #[error("a pool of {shape:?} has no bytes, or a block of more than 4 GiB: every number must be 1 or more")]
    Shape {
        /// The shape.
        shape: KvShape,
    },
    /// A number that is no block's.
    #[error("there is no block {block}: the pool has {blocks}, numbered from 0")]
    Block {
        /// The number.
        block: u32,
        /// Blocks of the pool.
        blocks: u32,
    },
    /// As many blocks as objects, or it is not said which goes where.
    #[error("{blocks} blocks and {objects} objects: there must be as many of the one as of the other")]
    Lengths {
        /// Blocks named.
        blocks: usize,
        /// Objects named.
        objects: usize,
    },
    /// No pinned memory for the addresses of the layers.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// The list was not begun.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl KvShape {
    /// Bytes of K, or of V, of one block of one layer.
    pub fn piece(&self) -> Option<u32> {
        let numbers = [self.block_size, self.heads, self.head_size, self.element];
        let product = numbers.iter().try_fold(1u32, |product, number| product.checked_mul(*number))?;
        (product > 0 && self.blocks > 0).then_some(product)
    }

    /// Bytes of a layer's tensor.
    pub fn layer(&self) -> Option<u64> {
        u64::from(self.piece()?).checked_mul(u64::from(self.blocks) * 2)
    }

    /// From one block to the next of the same plane, in bytes.
    fn stride(&self, piece: u32) -> u64 {
        match self.layout {
            KvLayout::KeysThenValues => piece.into(),
            KvLayout::BlockByBlock => u64::from(piece) * 2,
        }
    }

    /// Where the K and the V of block 0 lie in a layer's tensor at `base`.
    fn planes(&self, base: u64, piece: u32) -> [u64; 2] {
        let values = match self.layout {
            KvLayout::KeysThenValues => u64::from(piece) * u64::from(self.blocks),
            KvLayout::BlockByBlock => piece.into(),
        };
        [base, base.wrapping_add(values)]
    }
}

/// A paged KV pool of a GPU.
pub struct KvPages {
    shape: KvShape,
    piece: u32,
    plane_count: u32,
    planes: PinnedMemory,
}

impl KvPages {
    /// The pool whose layers' tensors begin at `layers`.
    ///
    /// # Errors
    /// [`KvError::Shape`], [`KvError::Memory`].
    ///
    /// # Safety
    /// Each layer is memory of `gpu`, [`KvShape::layer`] bytes of it, for as long as the pool is used.
    pub unsafe fn new(gpu: &Arc<Gpu>, shape: KvShape, layers: &[u64]) -> Result<Self, KvError> {
        let wrong = KvError::Shape { shape };
        let (Some(piece), Some(_), false) = (shape.piece(), shape.layer(), layers.is_empty()) else {
            return Err(wrong);
        };
        let Some(plane_count) = u32::try_from(layers.len()).ok().and_then(|layers| layers.checked_mul(2)) else {
            return Err(wrong);
        };
        let addresses: Vec<u64> = layers.iter().flat_map(|base| shape.planes(*base, piece)).collect();
        let planes = PinnedMemory::allocate(gpu, size_of_val(addresses.as_slice()))?;
        planes.view().write_words(0, &addresses);
        Ok(Self { shape, piece, plane_count, planes })
    }

    /// Bytes of an object.
    pub fn object(&self) -> u64 {
        u64::from(self.piece) * u64::from(self.plane_count)
    }
}

impl Copier {
    /// Begins to pack blocks into objects: `blocks[i]` into the object at `objects[i]`.
    ///
    /// # Errors
    /// [`KvError`].
    ///
    /// # Safety
    /// As for [`begin`](Copier::begin): each object has [`KvPages::object`] bytes, and the pool outlives the list.
    pub unsafe fn pack(&mut self, pages: &KvPages, blocks: &[u32], objects: &[u64]) -> Result<Ticket, KvError> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { self.move_blocks(pages, blocks, objects, false) }
    }

    /// Begins to unpack objects into blocks: the object at `objects[i]` into `blocks[i]`, no block twice.
    ///
    /// # Errors
    /// [`KvError`].
    ///
    /// # Safety
    /// As for [`pack`](Self::pack).
    pub unsafe fn unpack(&mut self, pages: &KvPages, blocks: &[u32], objects: &[u64]) -> Result<Ticket, KvError> {
        // SAFETY: the caller's promise is passed on as it is.
        unsafe { self.move_blocks(pages, blocks, objects, true) }
    }

    unsafe fn move_blocks(
        &mut self,
        pages: &KvPages,
        blocks: &[u32],
        objects: &[u64],
        unpack: bool,
    ) -> Result<Ticket, KvError> {
        if blocks.len() != objects.len() {
            return Err(KvError::Lengths { blocks: blocks.len(), objects: objects.len() });
        }
        if let Some(block) = blocks.iter().find(|block| **block >= pages.shape.blocks) {
            return Err(KvError::Block { block: *block, blocks: pages.shape.blocks });
        }
        let count = blocks.len() as u64;
        let pool = KvPool {
            planes: pages.planes.address(),
            block_stride: pages.shape.stride(pages.piece),
            plane_count: pages.plane_count,
            piece: pages.piece,
        };
        // The list: all objects, four to an entry, then all blocks, eight to an entry.
        let object_entries = count.div_ceil(4);
        let entries = objects.chunks(4).map(|four| std::array::from_fn(|index| four.get(index).copied().unwrap_or(0)));
        let entries = entries.chain(blocks.chunks(8).map(|eight| {
            let block = |index: usize| u64::from(eight.get(index).copied().unwrap_or(0));
            std::array::from_fn(|index| block(2 * index) | block(2 * index + 1) << 32)
        }));
        // SAFETY: the caller vouches for pool and objects; the blocks are the pool's. Objects and blocks lie in the list.
        let begun = unsafe {
            self.launches.run(object_entries + count.div_ceil(8), entries, |kernels, stream, list, _| {
                let lists = (list, list + object_entries * 32, count as u32);
                if count == 0 { Ok(()) } else { kernels.kv(stream, pool, lists, (CHUNK as u32, unpack)) }
            })
        };
        begun.map_err(KvError::Copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: KvShape =
        KvShape { layout: KvLayout::KeysThenValues, blocks: 10, block_size: 16, heads: 8, head_size: 128, element: 2 };

    /// Where an element lies by the indices of the tensor, as the layouts are written.
    fn element(shape: KvShape, kv: u64, block: u64, offset: u64) -> u64 {
        let (piece, blocks) = (u64::from(shape.piece().unwrap()), u64::from(shape.blocks));
        match shape.layout {
            KvLayout::KeysThenValues => (kv * blocks + block) * piece + offset,
            KvLayout::BlockByBlock => (block * 2 + kv) * piece + offset,
        }
    }

    #[test]
    fn planes_and_stride_are_those_of_the_tensors() {
        for layout in [KvLayout::KeysThenValues, KvLayout::BlockByBlock] {
            let shape = KvShape { layout, ..SHAPE };
            assert_eq!((shape.piece(), shape.layer()), (Some(32 << 10), Some(640 << 10)));
            let piece = shape.piece().unwrap();
            for (kv, plane) in shape.planes(1 << 40, piece).into_iter().enumerate() {
                for block in 0..10 {
                    let at = plane + shape.stride(piece) * block;
                    assert_eq!(at - (1 << 40), element(shape, kv as u64, block, 0));
                }
            }
        }
    }

    #[test]
    fn shapes_without_bytes_and_too_large_ones_have_no_piece() {
        for wrong in
            [KvShape { blocks: 0, ..SHAPE }, KvShape { element: 0, ..SHAPE }, KvShape { block_size: u32::MAX, ..SHAPE }]
        {
            assert_eq!(wrong.piece(), None);
        }
        assert_eq!(KvShape { element: 1, ..SHAPE }.piece(), Some(16 << 10));
    }
}
