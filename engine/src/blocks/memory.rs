//! A device in memory for tests: it keeps a journal of what was asked of it, and says what a loss of power at any point
//! would have left.
//!
//! Blocks that were never written are zeroes and take no room. Whoever wants to cut several devices at one moment gives
//! them one [`clock`](MemoryBlocks::with_clock): each command takes its next tick.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Blocks, BlocksError, check_bounds};

type Contents = BTreeMap<u64, Vec<u8>>;

/// What was asked of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// [`Blocks::write`].
    Write {
        /// First block.
        slba: u64,
        /// The data.
        data: Vec<u8>,
    },
    /// [`Blocks::zero`].
    Zero {
        /// First block.
        slba: u64,
        /// How many.
        blocks: u64,
    },
    /// [`Blocks::flush`].
    Flush,
}

/// A change, and when it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The tick of the clock.
    pub tick: u64,
    /// What was asked for.
    pub change: Change,
}

/// How much of the command in flight is on the medium.
pub enum Torn<'a> {
    /// Its first bytes.
    Bytes(u64),
    /// The blocks, counted from its first, of which this says so.
    Blocks(&'a dyn Fn(u64) -> bool),
}

/// A namespace in memory.
#[derive(Debug, Clone)]
pub struct MemoryBlocks {
    block_size: u32,
    blocks: u64,
    /// What a read sees.
    current: Contents,
    /// What was on the medium when the journal began.
    base: Contents,
    journal: Vec<Command>,
    clock: Arc<AtomicU64>,
    honours_fua: bool,
    writable: bool,
    fails_from: Option<u64>,
}

impl MemoryBlocks {
    /// `blocks` blocks of zeroes, with a volatile cache that FUA and flush go through.
    ///
    /// # Panics
    /// When `block_size` is no power of two.
    pub fn new(blocks: u64, block_size: u32) -> Self {
        assert!(block_size.is_power_of_two(), "a block of {block_size} bytes");
        Self {
            block_size,
            blocks,
            current: Contents::new(),
            base: Contents::new(),
            journal: Vec::new(),
            clock: Arc::default(),
            honours_fua: true,
            writable: true,
            fails_from: None,
        }
    }

    /// Takes its ticks from this clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<AtomicU64>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether a write is durable at once. Where it is not, only a flush makes it so.
    pub fn honour_fua(&mut self, honours: bool) {
        self.honours_fua = honours;
    }

    /// Whether it may be written.
    pub fn set_writable(&mut self, writable: bool) {
        self.writable = writable;
    }

    /// Every write, zero and flush from this tick on fails and does nothing.
    pub fn fail_from(&mut self, tick: Option<u64>) {
        self.fails_from = tick;
    }

    /// Makes it longer or shorter; what is beyond the end is gone.
    pub fn resize(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.current.retain(|block, _| *block < blocks);
        self.begin_journal();
    }

    /// Takes what a read sees for durable and starts an empty journal.
    pub fn begin_journal(&mut self) {
        self.base = self.current.clone();
        self.journal.clear();
    }

    /// What was asked of it since the journal began.
    pub fn journal(&self) -> &[Command] {
        &self.journal
    }

    /// Sets one byte, past the journal.
    ///
    /// # Panics
    /// When there is no such byte.
    pub fn poke(&mut self, byte: u64, value: u8) {
        let size = u64::from(self.block_size);
        assert!(byte / size < self.blocks, "byte {byte} of {} blocks", self.blocks);
        let block = self.current.entry(byte / size).or_insert_with(|| vec![0; size as usize]);
        block[(byte % size) as usize] = value;
    }

    /// What is on the medium when power goes at `tick`: all that was durable before it, `torn` of the command that was in
    /// flight, and of the blocks that waited in the cache, in the order in which they came, those of which `kept` says so
    /// by their number. Its journal is empty.
    pub fn cut(&self, tick: u64, torn: &Torn<'_>, kept: &dyn Fn(u64) -> bool) -> Self {
        let mut left = Self { current: self.base.clone(), journal: Vec::new(), fails_from: None, ..self.clone() };
        let mut cache: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
        let mut in_flight = None;
        for Command { tick: at, change } in &self.journal {
            if *at >= tick {
                in_flight = (*at == tick).then_some(change);
                break;
            }
            match change {
                Change::Write { slba, data } => {
                    let blocks = (*slba..).zip(data.chunks(self.block_size as usize));
                    if self.honours_fua {
                        let end = slba + (data.len() / self.block_size as usize) as u64;
                        cache.retain(|(block, _)| !(*slba..end).contains(block));
                        left.current.extend(blocks.map(|(block, data)| (block, data.to_vec())));
                    } else {
                        cache.extend(blocks.map(|(block, data)| (block, Some(data.to_vec()))));
                    }
                }
                Change::Zero { slba, blocks } => cache.extend((*slba..slba + blocks).map(|block| (block, None))),
                Change::Flush => cache.drain(..).for_each(|(block, data)| left.put(block, data)),
            }
        }
        for (number, (block, data)) in (0..).zip(cache) {
            if kept(number) {
                left.put(block, data);
            }
        }
        match in_flight {
            None | Some(Change::Flush) => {}
            Some(Change::Write { slba, data }) => left.tear(*slba, data, torn),
            Some(Change::Zero { slba, blocks }) => {
                left.tear(*slba, &vec![0; *blocks as usize * self.block_size as usize], torn);
            }
        }
        left.begin_journal();
        left
    }

    fn put(&mut self, block: u64, data: Option<Vec<u8>>) {
        match data {
            Some(data) => self.current.insert(block, data),
            None => self.current.remove(&block),
        };
    }

    fn tear(&mut self, slba: u64, data: &[u8], torn: &Torn<'_>) {
        let size = self.block_size as usize;
        for (number, data) in (0_u64..).zip(data.chunks(size)) {
            let there = match torn {
                Torn::Bytes(bytes) => bytes.saturating_sub(number * size as u64).min(size as u64) as usize,
                Torn::Blocks(chosen) => size * usize::from(chosen(number)),
            };
            if there > 0 {
                let block = self.current.entry(slba + number).or_insert_with(|| vec![0; size]);
                block[..there].copy_from_slice(&data[..there]);
            }
        }
    }

    /// What a command that changes something begins with.
    fn take(&mut self, name: &'static str, slba: u64, bytes: u64, change: Change) -> Result<(), BlocksError> {
        check_bounds(self, name, slba, bytes)?;
        if !self.writable {
            return Err(BlocksError::ReadOnly { command: name, slba });
        }
        let tick = self.clock.fetch_add(1, Ordering::Relaxed);
        if self.fails_from.is_some_and(|from| tick >= from) {
            return Err(BlocksError::Device { command: name, slba, reason: "told to fail".to_owned() });
        }
        self.journal.push(Command { tick, change });
        Ok(())
    }
}

impl Blocks for MemoryBlocks {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, slba: u64, data: &mut [u8]) -> Result<(), BlocksError> {
        check_bounds(self, "read", slba, data.len() as u64)?;
        let size = self.block_size as usize;
        data.fill(0);
        let end = slba + (data.len() / size) as u64;
        for (block, contents) in self.current.range(slba..end) {
            data[(block - slba) as usize * size..][..size].copy_from_slice(contents);
        }
        Ok(())
    }

    fn write(&mut self, slba: u64, data: &[u8]) -> Result<(), BlocksError> {
        self.take("write", slba, data.len() as u64, Change::Write { slba, data: data.to_vec() })?;
        self.tear(slba, data, &Torn::Bytes(data.len() as u64));
        Ok(())
    }

    fn zero(&mut self, slba: u64, blocks: u64) -> Result<(), BlocksError> {
        let bytes = blocks.saturating_mul(self.block_size.into());
        self.take("zero", slba, bytes, Change::Zero { slba, blocks })?;
        self.current.extract_if(slba..slba + blocks, |_, _| true).for_each(drop);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        self.take("flush", 0, 0, Change::Flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &mut MemoryBlocks, slba: u64, blocks: usize) -> Vec<u8> {
        let mut data = vec![0xEE; blocks * 512];
        device.read(slba, &mut data).unwrap();
        data
    }

    fn whole(device: &MemoryBlocks, tick: u64, kept: bool) -> MemoryBlocks {
        device.cut(tick, &Torn::Bytes(0), &|_| kept)
    }

    #[test]
    fn it_reads_what_was_written_and_zeroes_elsewhere() {
        let mut device = MemoryBlocks::new(8, 512);
        device.write(2, &[7; 1024]).unwrap();
        device.zero(3, 1).unwrap();
        assert_eq!(read(&mut device, 1, 3), [[0; 512], [7; 512], [0; 512]].concat());
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut device = MemoryBlocks::new(8, 512);
        assert!(matches!(device.write(7, &[0; 1024]), Err(BlocksError::Bounds { .. })));
        assert!(matches!(device.write(0, &[0; 100]), Err(BlocksError::Bounds { .. })));
        assert!(matches!(device.read(8, &mut [0; 512]), Err(BlocksError::Bounds { .. })));
        assert!(matches!(device.zero(1, u64::MAX), Err(BlocksError::Bounds { .. })));
        device.set_writable(false);
        assert!(matches!(device.write(0, &[0; 512]), Err(BlocksError::ReadOnly { .. })));
        assert_eq!(device.journal(), []);
    }

    #[test]
    fn a_cut_leaves_what_is_durable_and_what_the_cache_kept() {
        let mut device = MemoryBlocks::new(8, 512);
        device.write(0, &[1; 1024]).unwrap();
        device.begin_journal();
        device.zero(0, 2).unwrap();
        device.write(1, &[2; 512]).unwrap();
        let end = 3;
        assert_eq!(read(&mut whole(&device, end, false), 0, 2), [[1; 512], [2; 512]].concat());
        assert_eq!(read(&mut whole(&device, end, true), 0, 2), [[0; 512], [2; 512]].concat(), "an old zero comes late");
        device.honour_fua(false);
        assert_eq!(read(&mut whole(&device, end, false), 0, 2), [1; 1024]);
        device.flush().unwrap();
        assert_eq!(read(&mut whole(&device, end + 1, false), 0, 2), [[0; 512], [2; 512]].concat());
        assert_eq!(read(&mut whole(&device, 1, false), 0, 2), [1; 1024], "before the first command");
    }

    #[test]
    fn a_command_in_flight_is_torn_at_a_byte_or_between_blocks() {
        let mut device = MemoryBlocks::new(8, 512);
        device.write(0, &[1; 1024]).unwrap();
        device.begin_journal();
        device.write(0, &[2; 1024]).unwrap();
        let mut torn = device.cut(1, &Torn::Bytes(513), &|_| true);
        assert_eq!(read(&mut torn, 0, 2), [vec![2; 513], vec![1; 511]].concat());
        let mut torn = device.cut(1, &Torn::Blocks(&|block| block == 1), &|_| true);
        assert_eq!(read(&mut torn, 0, 2), [[1; 512], [2; 512]].concat());
    }

    #[test]
    fn it_fails_from_a_tick_on() {
        let clock = Arc::new(AtomicU64::new(0));
        let mut device = MemoryBlocks::new(8, 512).with_clock(Arc::clone(&clock));
        device.fail_from(Some(1));
        device.write(0, &[1; 512]).unwrap();
        assert!(matches!(device.flush(), Err(BlocksError::Device { .. })));
        assert_eq!((device.journal().len(), clock.load(Ordering::Relaxed)), (1, 2));
    }
}
