//! The sizes of a replay, checked against each other before anything is opened or allocated.
//!
//! A block lies contiguous in a slot on the device and in whole pages of the pool. A page is a multiple of the memory page that NVMe
//! counts in ([`MEMORY_PAGE`]), as only then can the pages of a block stand in one command (PRP entries after the first begin on a
//! memory page; NVM Express Base 2.1, 4.3.1). Smaller pages would cost a command each; they are refused.

use std::num::NonZeroU32;

use tentpeg_engine::ByteSize;
use thiserror::Error;

use crate::units::Count;

/// The memory page of a controller (CC.MPS) as the driver sets it, in bytes: the least that the specification has.
pub const MEMORY_PAGE: u64 = 4096;

/// Tokens in a block of a trace.
pub const TOKENS_PER_BLOCK: u64 = 512;

const _: () = assert!(MEMORY_PAGE.is_multiple_of(TOKENS_PER_BLOCK));

/// Sizes that do not go together. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// The page is empty, or not whole memory pages.
    #[error(
        "--page {page}: must be a multiple of the memory page of {}, and not 0, such as 16KiB",
        ByteSize(MEMORY_PAGE)
    )]
    Page {
        /// The page asked for.
        page: ByteSize,
    },
    /// The block is empty, or not whole pages.
    #[error("--block {block}: must be a multiple of --page, which is {page}, and not 0{}", multiple_near(*block, *page))]
    Block {
        /// The block asked for.
        block: ByteSize,
        /// The page.
        page: ByteSize,
    },
    /// No number of 64 bits has the bytes of all slots.
    #[error(
        "{} slots of {block} are more bytes than a device can have: give --slots {} or fewer, or a smaller --block",
        Count(u64::from(*slots)), u64::MAX / block.0
    )]
    Store {
        /// Slots asked for.
        slots: u32,
        /// The block.
        block: ByteSize,
    },
    /// The pool has more bytes, or more pages, than can be counted.
    #[error("a pool of {} blocks of {block} in pages of {page} is more than memory can have: give a smaller --pool", Count(u64::from(*pool)))]
    Pool {
        /// Blocks asked for.
        pool: u32,
        /// The block.
        block: ByteSize,
        /// The page.
        page: ByteSize,
    },
}

/// The multiples of a page next to a block that is none.
fn multiple_near(block: ByteSize, page: ByteSize) -> String {
    let below = block.0 - block.0 % page.0;
    match (below, below.checked_add(page.0)) {
        (0, _) => format!(": {page} is the least"),
        (below, Some(above)) => format!(": {} or {}", ByteSize(below), ByteSize(above)),
        (below, None) => format!(": {}", ByteSize(below)),
    }
}

/// Sizes that go together. All byte counts are of a block's payload alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: NonZeroU32,
    pool_blocks: NonZeroU32,
    block: u64,
    page: u64,
}

impl Geometry {
    /// `slots` slots and a pool of `pool_blocks` blocks, of `block` bytes each, in pages of `page` bytes.
    ///
    /// # Errors
    /// [`GeometryError`]: the first rule that is broken.
    pub fn new(
        slots: NonZeroU32,
        pool_blocks: NonZeroU32,
        block: ByteSize,
        page: ByteSize,
    ) -> Result<Self, GeometryError> {
        if page.0 == 0 || !page.0.is_multiple_of(MEMORY_PAGE) {
            return Err(GeometryError::Page { page });
        }
        if block.0 == 0 || !block.0.is_multiple_of(page.0) {
            return Err(GeometryError::Block { block, page });
        }
        if u64::from(slots.get()).checked_mul(block.0).is_none() {
            return Err(GeometryError::Store { slots: slots.get(), block });
        }
        // Addresses are signed distances apart, and pages are numbered in 32 bits.
        let pool = u64::from(pool_blocks.get()).checked_mul(block.0);
        if pool.is_none_or(|bytes| isize::try_from(bytes).is_err() || bytes / page.0 > u64::from(u32::MAX)) {
            return Err(GeometryError::Pool { pool: pool_blocks.get(), block, page });
        }
        Ok(Self { slots, pool_blocks, block: block.0, page: page.0 })
    }

    /// Blocks that the store holds.
    pub fn slots(&self) -> NonZeroU32 {
        self.slots
    }

    /// Blocks that the pool holds.
    pub fn pool_blocks(&self) -> NonZeroU32 {
        self.pool_blocks
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Bytes of a page of the pool.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Pages that a block lies in.
    pub fn pages_per_block(&self) -> usize {
        // A pool of at least one block has fewer than 2^32 pages.
        (self.block / self.page) as usize
    }

    /// Bytes of all slots.
    pub fn store_bytes(&self) -> u64 {
        u64::from(self.slots.get()) * self.block
    }

    /// Bytes of the pool.
    pub fn pool_bytes(&self) -> u64 {
        u64::from(self.pool_blocks.get()) * self.block
    }

    /// Bytes of KV cache that a block of this size makes of a token.
    pub fn bytes_per_token(&self) -> u64 {
        // Without a remainder: a block is whole memory pages.
        self.block / TOKENS_PER_BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(slots: u32, pool: u32, block: u64, page: u64) -> Result<Geometry, GeometryError> {
        let number = |number| NonZeroU32::new(number).unwrap();
        Geometry::new(number(slots), number(pool), ByteSize(block), ByteSize(page))
    }

    fn message(slots: u32, pool: u32, block: u64, page: u64) -> String {
        geometry(slots, pool, block, page).unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_fit() {
        let geometry = geometry(4096, 512, 128 << 10, 16 << 10).unwrap();
        assert_eq!(geometry.pages_per_block(), 8);
        assert_eq!(geometry.store_bytes(), 512 << 20);
        assert_eq!(geometry.pool_bytes(), 64 << 20);
        assert_eq!(geometry.bytes_per_token(), 256);
    }

    #[test]
    fn each_mistake_is_named_with_what_would_be_right() {
        assert!(message(1, 1, 4096, 0).contains("--page 0B: must be a multiple of the memory page of 4KiB"));
        assert!(message(1, 1, 4096, 2048).contains("--page 2KiB: must be a multiple of the memory page of 4KiB"));
        assert!(message(1, 1, 0, 4096).contains("--block 0B: must be a multiple of --page, which is 4KiB, and not 0"));
        assert!(message(1, 1, 100 << 10, 16 << 10).ends_with(": 96KiB or 112KiB"));
        assert!(message(1, 1, 4096, 16 << 10).ends_with(": 16KiB is the least"));
        let message_of_store = message(u32::MAX, 1, 1 << 40, 4096);
        assert!(message_of_store.contains("give --slots 16777215 or fewer"), "{message_of_store}");
        assert!(geometry(16_777_215, 1, 1 << 40, 1 << 20).is_ok());
        assert!(message(1, u32::MAX, 1 << 40, 4096).contains("4,294,967,295 blocks of 1TiB in pages of 4KiB"));
        assert!(message(1, 1, 1 << 44, 4096).contains("give a smaller --pool"), "2^32 pages are one too many");
    }

    #[test]
    fn nothing_overflows_at_the_largest_sizes() {
        for page in [0, 1, 4096, 1 << 63, u64::MAX, u64::MAX - 4095] {
            for block in [0, 1, 4096, 1 << 63, u64::MAX, u64::MAX - 4095] {
                if let Err(error) = geometry(u32::MAX, u32::MAX, block, page) {
                    assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}
