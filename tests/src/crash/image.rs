//! The image that children work on, one after the other: how it is made, and what is found on it.

use std::error::Error;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tentpeg_engine::administration::Administration;
use tentpeg_engine::blocks::Blocks;
use tentpeg_engine::label::{NewLabel, NewSegment, SegmentEntry};
use tentpeg_engine::{ByteSize, CacheUri, DeviceUri, Devices, EngineConfig, LaneMode, ModelUri, OpenOptions, StoreUri};
use uuid::Uuid;

use super::record::MODES;
use crate::chaos::dice::Dice;

/// Bytes of an image: the label's two MiB, and four for segments.
const SIZE: u64 = 6 << 20;
/// Bytes that extents begin at multiples of.
const ALIGNMENT: u64 = 64 << 10;
/// Whose label it is.
const NODE: Uuid = Uuid::from_u128(0x6B69_6C6C_2D39_4069_7373_7565_2D34_0001);

/// An image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Image {
    path: PathBuf,
    /// Bytes of a block.
    pub(super) lba_size: u32,
    /// Bytes of the cache.
    cache: u64,
}

pub(super) fn text(error: impl Error) -> String {
    error.to_string()
}

impl Image {
    /// Draws one that is to lie at `path`.
    pub(super) fn draw(path: PathBuf, dice: &mut Dice) -> Self {
        Self { path, lba_size: dice.pick(&[512, 4096, 4096]), cache: dice.pick(&[16 << 10, 64 << 10, 1 << 20]) }
    }

    /// What to open to write, with a cache whose choices begin with `seed`.
    pub(super) fn writable(&self, seed: u64) -> String {
        self.uri(true, Some(CacheUri { size: ByteSize(self.cache), seed }))
    }

    fn uri(&self, overwrite: bool, cache: Option<CacheUri>) -> String {
        let store = StoreUri::File { path: self.path.clone(), overwrite };
        DeviceUri::Model(ModelUri { size: Some(ByteSize(SIZE)), lba: self.lba_size, store, cache, mdts: 5, queues: 4 })
            .to_string()
    }

    /// All that open it are one node.
    pub(super) fn options() -> OpenOptions {
        OpenOptions { node: Some(NODE), ..OpenOptions::default() }
    }

    /// Makes the file, the label, and a segment of each mode.
    pub(super) fn create(&self, dice: &mut Dice) -> Result<(), String> {
        let mut device = Administration::open_with(self.uri(false, None), &Self::options()).map_err(text)?;
        let new = NewLabel { alignment: ALIGNMENT, scratch: 0, ..NewLabel::default() };
        device.create_label(&new).map_err(text)?;
        let (mut label, mut blocks) = device.change().map_err(text)?;
        for durability in MODES {
            let capacity = dice.between(1, 40) * u64::from(self.lba_size);
            let uuid = Uuid::from_u128(u128::from(dice.word()) << 64 | u128::from(dice.word()));
            let new = NewSegment { name: durability.to_string(), uuid, capacity, durability };
            label.create_segment(&mut *blocks, &new).map_err(text)?;
        }
        drop(blocks);
        device.close().map_err(text)
    }

    /// The segments that the label has, which is only read.
    pub(super) fn segments(&self) -> Result<Vec<SegmentEntry>, String> {
        let mut device = Administration::open(&self.uri(false, None)).map_err(text)?;
        let label = device.label().map_err(text)?;
        if label.owner().node != NODE {
            return Err(format!("the label is another's: {:?}", label.owner()));
        }
        let segments = label.segments().cloned().collect();
        device.close().map_err(text)?;
        Ok(segments)
    }

    /// Opens the label for changes, as a child would.
    pub(super) fn open_for_changes(&self) -> Result<(), String> {
        let mut device = Administration::open_with(self.uri(true, None), &Self::options()).map_err(text)?;
        device.change().map_err(text)?;
        device.close().map_err(text)
    }

    /// Reads all that `segments` hold, without a cache, and calls `see` with the number of the segment, its block, and
    /// the words there.
    pub(super) fn read(
        &self,
        segments: &[SegmentEntry],
        mut see: impl FnMut(usize, u64, &[u64]) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
        let device = devices.open(&self.uri(false, None)).map_err(text)?;
        let device = devices.get_mut(device).ok_or("the device is not there")?;
        let mut device = device.blocks().map_err(text)?;
        for (number, segment) in segments.iter().enumerate() {
            let mut block = 0;
            for extent in &segment.extents {
                // The last extent may be longer than what the segment shows.
                let blocks = extent.blocks().min(segment.capacity - block);
                let mut bytes = vec![0; blocks as usize * self.lba_size as usize];
                device.read(extent.slba(), &mut bytes).map_err(text)?;
                for bytes in bytes.chunks_exact(self.lba_size as usize) {
                    let words = bytes.chunks_exact(8).map(|word| word.try_into().map(u64::from_le_bytes));
                    let words: Vec<u64> = words.collect::<Result<_, _>>().map_err(text)?;
                    see(number, block, &words)?;
                    block += 1;
                }
            }
        }
        Ok(())
    }
}
