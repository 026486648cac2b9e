//! The volatile write cache: what was written and is not durable yet, in the order in which it was written.
//!
//! Each command's blocks are an entry. A block may be in several; the newest is what a read sees, and all of them are
//! kept, because a drive that loses its power may have made any of them durable. Entries become durable from the
//! oldest on, or one out of its turn, and then what is older of its blocks is dropped: what is older never lies over what
//! is newer. Where that is, and what an entry's bytes mean, is left to the owner.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// What a command left for its blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Data of each block, then metadata of each.
    Written {
        /// Bytes of the blocks.
        data: Box<[u8]>,
        /// Bytes of their metadata.
        metadata: Box<[u8]>,
    },
    /// Zeroes, with this metadata of each block.
    Zeroes {
        /// Bytes of the blocks' metadata.
        metadata: Box<[u8]>,
    },
    /// Nothing any more.
    Deallocated,
}

/// The blocks of one command.
#[derive(Debug)]
pub(super) struct Entry {
    slba: u64,
    content: Content,
    /// Whether a block's bytes here still count: those of a block that was since written past the cache do not.
    live: Box<[bool]>,
}

impl Entry {
    pub(super) fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn slba(&self) -> u64 {
        self.slba
    }

    /// Blocks of the command.
    pub(super) fn nlb(&self) -> u64 {
        self.live.len() as u64
    }

    /// The places of blocks that count.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> {
        self.live.iter().enumerate().filter_map(|(place, live)| live.then_some(place))
    }

    /// Whether the block at `place` counts.
    fn is_live(&self, place: usize) -> bool {
        self.live.get(place).copied().unwrap_or(false)
    }
}

/// The cache.
#[derive(Debug)]
pub(super) struct WriteCache {
    entries: VecDeque<Entry>,
    /// The number of the first entry in the queue; those behind it follow one by one.
    first: u64,
    /// Number of the newest entry by LBA. Every LBA that counts in any entry is here.
    newest: BTreeMap<u64, u64>,
    /// Blocks of all entries.
    held: u64,
    capacity: u64,
}

impl WriteCache {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity.into();
        Self { entries: VecDeque::new(), first: 0, newest: BTreeMap::new(), held: 0, capacity }
    }

    /// Blocks that it can hold.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether `nlb` more blocks have no room until the oldest entry is gone.
    pub(super) fn is_full_for(&self, nlb: u64) -> bool {
        !self.entries.is_empty() && self.held + nlb > self.capacity
    }

    /// Adds the newest entry, `nlb` blocks from `slba`.
    pub(super) fn push(&mut self, slba: u64, nlb: u64, content: Content) {
        let number = self.first + self.entries.len() as u64;
        self.newest.extend((slba..slba + nlb).map(|lba| (lba, number)));
        self.held += nlb;
        self.entries.push_back(Entry { slba, content, live: vec![true; nlb as usize].into() });
    }

    /// Takes the oldest entry, which is to become durable now.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        for place in entry.live() {
            let lba = entry.slba + place as u64;
            if self.newest.get(&lba) == Some(&self.first) {
                self.newest.remove(&lba);
            }
        }
        self.first += 1;
        self.held -= entry.nlb();
        Some(entry)
    }

    /// The place, counted from the oldest, of the entry that `number` falls on among those of which blocks count.
    pub(super) fn draw(&self, number: u64) -> Option<usize> {
        let counts = |index: &usize| self.entries[*index].live().next().is_some();
        let drawn: Vec<usize> = (0..self.entries.len()).filter(counts).collect();
        drawn.get(number.checked_rem(drawn.len() as u64)? as usize).copied()
    }

    /// The entry at `index`, counted from the oldest.
    pub(super) fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Drops these places of the entry at `index`, which have become durable, and what older entries hold of the same
    /// blocks. What newer ones hold stays, but places are counted anew: the oldest entries go when nothing of them counts.
    pub(super) fn settle(&mut self, index: usize, places: &[usize]) {
        let Some(entry) = self.entries.get(index) else { return };
        let lbas: Vec<u64> = places.iter().map(|place| entry.slba + *place as u64).collect();
        for Entry { slba, live, .. } in self.entries.iter_mut().take(index + 1) {
            for lba in &lbas {
                if let Some(live) = lba.checked_sub(*slba).and_then(|place| live.get_mut(place as usize)) {
                    *live = false;
                }
            }
        }
        let number = self.first + index as u64;
        for lba in lbas {
            if self.newest.get(&lba) == Some(&number) {
                self.newest.remove(&lba);
            }
        }
        while self.entries.front().is_some_and(|oldest| oldest.live().next().is_none()) {
            self.pop();
        }
    }

    /// How many of the oldest entries must go so that none of `lbas` is here any more.
    pub(super) fn depth(&self, lbas: Range<u64>) -> u64 {
        self.newest.range(lbas).map(|(_, number)| number - self.first + 1).max().unwrap_or(0)
    }

    /// Drops every version of `lbas`: something newer has become durable.
    pub(super) fn forget(&mut self, lbas: Range<u64>) {
        let depth = self.depth(lbas.clone());
        for Entry { slba, live, .. } in self.entries.iter_mut().take(depth as usize) {
            for (lba, live) in (*slba..).zip(live) {
                *live &= !lbas.contains(&lba);
            }
        }
        let known: Vec<u64> = self.newest.range(lbas).map(|(lba, _)| *lba).collect();
        for lba in known {
            self.newest.remove(&lba);
        }
    }

    /// The newest versions of `lbas`: LBA, entry, and the block's place in it.
    pub(super) fn newest(&self, lbas: Range<u64>) -> impl Iterator<Item = (u64, &Entry, usize)> {
        self.newest.range(lbas).filter_map(|(lba, number)| {
            let entry = self.entries.get((number - self.first) as usize)?;
            let place = (lba - entry.slba) as usize;
            debug_assert!(entry.is_live(place), "the newest version counts");
            Some((*lba, entry, place))
        })
    }
}

#[cfg(test)]
mod tests;
