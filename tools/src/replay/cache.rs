//! Decides, block by block in the order of the trace, what is read, what is written, and in which slot.
//!
//! The rule: a block is a *hit* when it is held and every earlier block of its request was a hit. A hit is read. Anything else is
//! written: a block that is not held into a slot of its own, a block that is held behind a miss again into the slot it has (its
//! bytes depend on the blocks before it, which are being computed anew). Either use makes the block the most recently used. After an
//! insert that exceeds the slots, the least recently used block is evicted.
//!
//! The block just inserted is the most recently used, so it is never the one evicted, and to evict first and insert into the slot
//! that this frees gives the same decisions. That is what is done here, so that a full cache of `n` blocks needs `n` slots and not
//! `n + 1`. Slots are first used in ascending order.
//!
//! An id that a request names twice follows the same rule: the second is read if all before it were hits, else written again.
//!
//! The cache holds no bytes. It decides as if each I/O had ended at once; [`schedule`](super::schedule) keeps that true where I/O
//! overlaps.

use std::num::NonZeroU32;

use lru::LruCache;

/// What is to be done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read from the slot into the pool.
    Read,
    /// Written from the pool into the slot.
    Write,
}

/// What is to be done for one block of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The block's id.
    pub block: u64,
    /// The slot on the device that holds the block from now on, below the number of slots.
    pub slot: u32,
    /// Whether the slot is read or written.
    pub kind: Kind,
    /// The number of the block's write: of this one, or for a read of the last one, whose bytes must be found. Writes are counted
    /// over all blocks and slots from 1, so no two have the same number, and a slot that holds anything but its last write, be it
    /// an earlier write of the same block or a copy of the block from another slot, cannot pass for it.
    pub write: u64,
}

/// How far a request has come: whether every block so far was a hit. A new one for each request.
#[derive(Clone, Copy, Debug)]
pub struct Prefix {
    hit: bool,
}

impl Prefix {
    /// Before the first block of a request.
    pub fn new() -> Self {
        Self { hit: true }
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self::new()
    }
}

/// The blocks that are held, by recency of use. A decision takes O(1) time; memory is proportional to the slots in use.
#[derive(Debug)]
pub struct SlotCache {
    // Unbounded to the crate, which would otherwise allocate for all slots at once. The bound is kept in `slot_for_new`.
    held: LruCache<u64, Held>,
    slots: NonZeroU32,
    writes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u32,
    write: u64,
}

impl SlotCache {
    /// An empty cache over `slots` slots.
    pub fn new(slots: NonZeroU32) -> Self {
        Self { held: LruCache::unbounded(), slots, writes: 0 }
    }

    /// Decides for the next block of a request. The blocks of a request are decided in order, all with the request's own `prefix`,
    /// and those of different requests do not interleave.
    pub fn decide(&mut self, prefix: &mut Prefix, block: u64) -> Decision {
        let (held, kind) = match self.held.get_mut(&block) {
            Some(held) if prefix.hit => (*held, Kind::Read),
            Some(held) => {
                self.writes += 1;
                held.write = self.writes;
                (*held, Kind::Write)
            }
            None => {
                prefix.hit = false;
                self.writes += 1;
                let slot = self.slot_for_new();
                let held = Held { slot, write: self.writes };
                self.held.put(block, held);
                (held, Kind::Write)
            }
        };
        let Held { slot, write } = held;
        Decision { block, slot, kind, write }
    }

    /// A slot that holds no block: one never used, else the one of the block least recently used, which is evicted.
    fn slot_for_new(&mut self) -> u32 {
        let held = self.held.len() as u32;
        if held < self.slots.get() {
            return held;
        }
        match self.held.pop_lru() {
            Some((_, evicted)) => evicted.slot,
            None => unreachable!("a cache has at least one slot"),
        }
    }
}

#[cfg(test)]
mod tests;
