//! The blocks of a namespace: data, the metadata beside it, and the simulated write cache in front of both.
//!
//! A store knows bytes; this knows logical blocks and what their bytes are like when nobody has written them. Two
//! things lie complemented in the stores, so that what is sparse there reads right: everything where deallocated
//! blocks read as ones, and else the protection information, whose FFh bytes stand for a block that was never written
//! (NVM Command Set 1.1, 3.3.3.2.1).
//!
//! Plain namespaces have neither metadata nor complements nor cache, and go straight to the [`Store`].

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::cache::{Content, Entry, WriteCache};
use super::config::{ModelConfig, ModelError};
use super::io_config::DeallocatedRead;
use super::iommu::Piece;
use super::power::{Chance, PowerLoss, Survivors};
use super::protection::Protection;
use super::store::{Mapped, Store};

/// Bytes of zeroes written at a time, where they have to be.
const FILL: usize = 1 << 20;

/// What a namespace's blocks are.
pub(super) struct Media {
    store: Store,
    metadata: Option<Store>,
    cache: Option<WriteCache>,
    /// What is written back out of its turn.
    write_back: Chance,
    /// Bytes of a block's data.
    pub(super) block: usize,
    /// Bytes of its metadata.
    pub(super) ms: usize,
    /// Which bytes of metadata are protection information; empty without.
    tuple: Range<usize>,
    deallocated: DeallocatedRead,
    /// Bytes that the data may have at most: metadata in a file stays where it is.
    room: u64,
    /// Blocks whose write a loss of power cannot tear: AWUPF + 1.
    atomic: u64,
}

/// The data and metadata of the same blocks, in buffers of our own.
pub(super) struct BlockBuffers<'a> {
    pub(super) data: &'a mut [u8],
    pub(super) metadata: &'a mut [u8],
}

impl Media {
    pub(super) fn open(config: &ModelConfig) -> Result<Self, ModelError> {
        let store = Store::open(config)?;
        let metadata = store.open_metadata(config)?;
        let protection = Protection::new(&config.metadata);
        Ok(Self {
            store,
            metadata,
            cache: config.cache_simulation.map(|cache| WriteCache::new(cache.blocks)),
            write_back: Chance::new(config.cache_simulation.and_then(|cache| cache.write_back)),
            block: config.lba_size as usize,
            ms: config.metadata.size.into(),
            tuple: protection.map_or(0..0, |protection| protection.tuple_range()),
            deallocated: config.deallocated_read,
            room: if config.is_file() && config.metadata.size > 0 { config.file_layout().0 } else { u64::MAX },
            atomic: u64::from(config.awupf) + 1,
        })
    }

    /// Whether bytes lie in the store as the host wrote them, and nothing stands in front of it.
    pub(super) fn is_plain(&self) -> bool {
        self.metadata.is_none() && self.cache.is_none() && self.deallocated != DeallocatedRead::Ones
    }

    /// Whether nothing is moved.
    pub(super) fn is_null(&self) -> bool {
        matches!(self.store, Store::Null)
    }

    /// The mapping of a store in memory, shared.
    pub(super) fn share(&self) -> Option<Arc<Mapped>> {
        self.store.share()
    }

    /// Where `len` bytes of the data from `offset` on lie in memory. For plain media only.
    pub(super) fn address(&self, offset: u64, len: u64) -> Option<u64> {
        self.store.address(offset, len)
    }

    #[inline]
    pub(super) fn writable(&self) -> bool {
        self.store.writable()
    }

    /// Reads from byte `offset` of the data on. For plain media only.
    #[inline]
    pub(super) fn read(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        self.store.read(offset, pieces)
    }

    /// Writes from byte `offset` of the data on. For plain media only.
    #[inline]
    pub(super) fn write(&self, offset: u64, pieces: &[Piece<'_>]) -> io::Result<()> {
        self.store.write(offset, pieces)
    }

    /// Makes what was written survive a loss of power.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.cache.is_some() {
            self.drain(u64::MAX)?;
        }
        self.persist()
    }

    /// Makes what the stores hold survive a loss of power. What is in the simulated cache stays there.
    #[inline]
    pub(super) fn persist(&self) -> io::Result<()> {
        self.store.flush()
    }

    /// Gives up everything that is written: all of its `size` bytes of data become as if they never had been.
    #[cold]
    pub(super) fn erase(&mut self, size: u64) -> io::Result<()> {
        while self.cache.as_mut().and_then(WriteCache::pop).is_some() {}
        self.store.discard(0, size)?;
        match &self.metadata {
            Some(store) => store.discard(0, self.metadata_bytes(size)),
            None => Ok(()),
        }
    }

    /// Makes room for `size` bytes of data. Blocks that stay are as they were, new ones were never written.
    #[cold]
    pub(super) fn resize(&mut self, size: u64) -> io::Result<()> {
        // What is beyond a new end must not be written there later.
        self.drain(u64::MAX)?;
        if size > self.room {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let bytes = self.metadata_bytes(size);
        self.store.resize(size)?;
        match &mut self.metadata {
            Some(store) => store.resize(bytes),
            None => Ok(()),
        }
    }

    /// Erases all of its `size` bytes and cuts them into blocks of `block` bytes, protected as `protection` says. The
    /// bytes of a block's metadata stay as many as they are.
    #[cold]
    pub(super) fn reformat(&mut self, size: u64, block: usize, protection: Option<Protection>) -> io::Result<()> {
        self.erase(size)?;
        self.block = block;
        self.tuple = protection.map_or(0..0, |protection| protection.tuple_range());
        let bytes = self.metadata_bytes(size);
        if let Some(store) = &mut self.metadata {
            store.resize(bytes)?;
            // What a file has behind the former end is none of ours.
            store.discard(0, bytes)?;
        }
        Ok(())
    }

    /// Bytes of the metadata beside `size` bytes of data.
    fn metadata_bytes(&self, size: u64) -> u64 {
        size / self.block as u64 * self.ms as u64
    }

    /// Reads the blocks from `slba` on, as many as there is room for.
    pub(super) fn read_blocks(&self, slba: u64, to: BlockBuffers<'_>) -> io::Result<()> {
        let BlockBuffers { data, metadata } = to;
        let nlb = (data.len() / self.block) as u64;
        self.store.read(slba * self.block as u64, &[Piece::over(data)])?;
        if let Some(store) = &self.metadata {
            store.read(slba * self.ms as u64, &[Piece::over(metadata)])?;
        }
        self.complement(data, metadata);
        let Some(cache) = &self.cache else { return Ok(()) };
        for (lba, entry, place) in cache.newest(slba..slba + nlb) {
            let index = (lba - slba) as usize;
            let data = &mut data[index * self.block..][..self.block];
            let metadata = &mut metadata[index * self.ms..][..self.ms];
            match entry.content() {
                Content::Written { data: written, metadata: beside } => {
                    data.copy_from_slice(&written[place * self.block..][..self.block]);
                    metadata.copy_from_slice(&beside[place * self.ms..][..self.ms]);
                }
                Content::Zeroes { metadata: beside } => {
                    data.fill(0);
                    metadata.copy_from_slice(&beside[place * self.ms..][..self.ms]);
                }
                Content::Deallocated => {
                    data.fill(0);
                    metadata.fill(0);
                    self.complement(data, metadata);
                }
            }
        }
        Ok(())
    }

    /// Makes what the cache holds of `lbas` durable, and what is older: before a read with FUA.
    pub(super) fn settle(&mut self, lbas: Range<u64>) -> io::Result<()> {
        let depth = self.cache.as_ref().map_or(0, |cache| cache.depth(lbas));
        self.drain(depth)
    }

    /// Puts `nlb` blocks from `slba` on into the cache, or past it where they are to be `durable` or have no room.
    /// Deallocating blocks that keep what they held is nothing.
    pub(super) fn put(&mut self, slba: u64, nlb: u64, content: Content, durable: bool) -> io::Result<()> {
        if content == Content::Deallocated && self.deallocated == DeallocatedRead::NotReported {
            return Ok(());
        }
        match &mut self.cache {
            Some(cache) if !durable && nlb <= cache.capacity() => {
                self.write_back()?;
                while self.cache.as_ref().is_some_and(|cache| cache.is_full_for(nlb)) {
                    self.drain(1)?;
                }
                if let Some(cache) = &mut self.cache {
                    cache.push(slba, nlb, content);
                }
                Ok(())
            }
            Some(cache) => {
                cache.forget(slba..slba + nlb);
                self.store_blocks(slba, nlb, content)
            }
            None => self.store_blocks(slba, nlb, content),
        }
    }

    /// The power goes: of what is only in the cache the `survivors` become durable, the rest is lost.
    pub(super) fn lose_power(&mut self, survivors: Survivors) -> io::Result<PowerLoss> {
        let mut chance = Chance::new(survivors.seed());
        let mut loss = PowerLoss::default();
        while let Some(entry) = self.cache.as_mut().and_then(WriteCache::pop) {
            let whole = (entry.nlb() <= self.atomic).then(|| chance.says_yes());
            for place in entry.live() {
                if whole.unwrap_or_else(|| chance.says_yes()) {
                    self.store_block(&entry, place)?;
                    loss.survived += 1;
                } else {
                    loss.lost += 1;
                }
            }
        }
        self.persist()?;
        Ok(loss)
    }

    /// Before every other command that goes into the cache a drive that writes back when it likes makes one of those that
    /// are there durable: as a whole, or, where a loss of power may tear it, some of its blocks.
    fn write_back(&mut self) -> io::Result<()> {
        if !self.write_back.says_yes() {
            return Ok(());
        }
        let Some(number) = self.write_back.number() else { return Ok(()) };
        let drawn = self.cache.as_ref().and_then(|cache| Some((cache.draw(number)?, cache)));
        let Some((index, entry)) = drawn.and_then(|(index, cache)| Some((index, cache.entry(index)?))) else {
            return Ok(());
        };
        let torn = entry.nlb() > self.atomic;
        let chance = &mut self.write_back;
        let places: Vec<usize> = entry.live().filter(|_| !torn || chance.says_yes()).collect();
        for place in &places {
            self.store_block(entry, *place)?;
        }
        if let Some(cache) = &mut self.cache {
            cache.settle(index, &places);
        }
        Ok(())
    }

    /// Makes the `depth` oldest entries of the cache durable.
    fn drain(&mut self, depth: u64) -> io::Result<()> {
        for _ in 0..depth {
            let Some(entry) = self.cache.as_mut().and_then(WriteCache::pop) else { break };
            for place in entry.live() {
                self.store_block(&entry, place)?;
            }
        }
        Ok(())
    }

    /// Writes one block of an entry to the stores.
    fn store_block(&self, entry: &Entry, place: usize) -> io::Result<()> {
        let part = |bytes: &[u8], size: usize| bytes[place * size..][..size].into();
        let content = match entry.content() {
            Content::Written { data, metadata } => {
                Content::Written { data: part(data, self.block), metadata: part(metadata, self.ms) }
            }
            Content::Zeroes { metadata } => Content::Zeroes { metadata: part(metadata, self.ms) },
            Content::Deallocated => Content::Deallocated,
        };
        self.store_blocks(entry.slba() + place as u64, 1, content)
    }

    /// Writes blocks to the stores.
    fn store_blocks(&self, slba: u64, nlb: u64, content: Content) -> io::Result<()> {
        let (offset, len) = (slba * self.block as u64, nlb * self.block as u64);
        let mut metadata = match content {
            Content::Written { mut data, mut metadata } => {
                self.complement(&mut data, &mut metadata);
                self.store.write(offset, &[Piece::over(&mut data)])?;
                metadata
            }
            Content::Zeroes { mut metadata } => {
                if self.deallocated == DeallocatedRead::Ones {
                    self.fill(offset, len, 0xFF)?;
                } else {
                    self.store.discard(offset, len)?;
                }
                self.complement(&mut [], &mut metadata);
                metadata
            }
            Content::Deallocated => {
                self.store.discard(offset, len)?;
                if let Some(store) = &self.metadata {
                    store.discard(slba * self.ms as u64, nlb * self.ms as u64)?;
                }
                return Ok(());
            }
        };
        match &self.metadata {
            Some(store) => store.write(slba * self.ms as u64, &[Piece::over(&mut metadata)]),
            None => Ok(()),
        }
    }

    fn fill(&self, offset: u64, len: u64, byte: u8) -> io::Result<()> {
        let mut bytes = vec![byte; FILL.min(len as usize)];
        let mut done = 0;
        while done < len {
            let part = (len - done).min(bytes.len() as u64);
            self.store.write(offset + done, &[Piece::over(&mut bytes[..part as usize])])?;
            done += part;
        }
        Ok(())
    }

    /// Between what lies in the stores and what the host sees, either way.
    fn complement(&self, data: &mut [u8], metadata: &mut [u8]) {
        let flip = |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = !*byte);
        if self.deallocated == DeallocatedRead::Ones {
            flip(data);
            flip(metadata);
        } else if self.ms > 0 && !self.tuple.is_empty() {
            for metadata in metadata.chunks_exact_mut(self.ms) {
                flip(&mut metadata[self.tuple.clone()]);
            }
        }
    }
}
