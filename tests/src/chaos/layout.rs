//! How a command's blocks lie in memory: data, metadata, and protection information in it.
//!
//! Of each write the metadata is as telling as the data: its bytes are those of a word of the block. Where a block has
//! protection information that the host makes, its guard is computed here, by code that neither side shares.

use std::ops::Range;

use crc::{CRC_16_T10_DIF, Crc, Table};
use tentpeg_driver::queue::{Limits, MetadataFormat, MetadataPlacement, Protection, ProtectionType};
use tentpeg_driver::spec::command::ProtectionInformation;
use tentpeg_driver::spec::protection::ProtectionTuple;

use super::blocks::word;

static GUARD: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);

/// The place of the word that a block's metadata is made of.
const METADATA_PLACE: usize = 511;
/// The application tag of what the host writes: not the one that turns checks off.
const APPLICATION_TAG: u16 = 0x7E57;

/// The blocks of a namespace, and how one command has them in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    lba_size: usize,
    metadata: Option<MetadataFormat>,
    /// Whether the controller makes and takes protection information (PRACT).
    pub(super) generated: bool,
}

/// What a command has in memory.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// Data, with metadata between the blocks where that is the format.
    pub(super) data: Vec<u8>,
    /// Metadata in a buffer of its own.
    pub(super) metadata: Vec<u8>,
}

impl Layout {
    pub(super) fn new(limits: &Limits, generated: bool) -> Self {
        let protected = limits.metadata().is_some_and(|metadata| metadata.protection.is_some());
        Self { lba_size: limits.lba_size() as usize, metadata: limits.metadata(), generated: generated && protected }
    }

    /// What a command from `slba` asks the controller to do about protection.
    pub(super) fn protection(&self, slba: u64) -> Protection {
        let Some(format) = self.metadata.and_then(|metadata| metadata.protection) else {
            return Protection::default();
        };
        let checked = Protection::checked(format.kind, slba).with_application_tag(APPLICATION_TAG, 0);
        if self.generated { checked.generated() } else { checked }
    }

    /// The same for a Write Zeroes, which finds nothing to be checked: the controller makes all of it.
    pub(super) fn protection_of_zeroes(&self, slba: u64) -> Protection {
        let protection = self.protection(slba);
        if protection.prinfo.is_empty() {
            return protection;
        }
        Protection { prinfo: ProtectionInformation::PRACT, ..protection }
    }

    /// Metadata that the command moves, where it moves any.
    fn moved(&self) -> Option<MetadataFormat> {
        self.metadata.filter(|metadata| !(self.generated && metadata.is_protection_only()))
    }

    /// Bytes of a block in the data buffer.
    fn block(&self) -> usize {
        self.lba_size + self.moved().map_or(0, |metadata| metadata.interleaved() as usize)
    }

    pub(super) fn data_len(&self, nlb: u32) -> usize {
        nlb as usize * self.block()
    }

    /// Bytes of the metadata buffer, 0 where there is none.
    pub(super) fn metadata_len(&self, nlb: u32) -> usize {
        let separate = self.moved().filter(|metadata| metadata.placement == MetadataPlacement::Separate);
        nlb as usize * separate.map_or(0, |metadata| usize::from(metadata.size))
    }

    /// What a write moves.
    pub(super) fn written(&self, write: u32, blocks: Range<u64>) -> Bytes {
        let mut bytes = Bytes::default();
        for block in blocks {
            let start = bytes.data.len();
            bytes.data.extend((0..self.lba_size / 8).flat_map(|place| word(write, block, place).to_le_bytes()));
            let Some(format) = self.moved() else { continue };
            let mut metadata = metadata_of(write, block, format);
            if let Some(range) = tuple_range(format) {
                let guard = guard(&bytes.data[start..], &metadata[..range.start]);
                let tuple = ProtectionTuple::new(guard, APPLICATION_TAG, block as u32);
                metadata[range].copy_from_slice(zerocopy::IntoBytes::as_bytes(&tuple));
            }
            match format.placement {
                MetadataPlacement::Extended => bytes.data.extend(metadata),
                MetadataPlacement::Separate => bytes.metadata.extend(metadata),
            }
        }
        bytes
    }

    /// What a Compare takes blocks to hold that have no metadata: the writes in `held`, 0 for zeroes.
    pub(super) fn compared(&self, held: &[u32], slba: u64) -> Bytes {
        let mut data = Vec::new();
        for (write, block) in held.iter().zip(slba..) {
            let of = |place| if *write == 0 { 0 } else { word(*write, block, place) };
            data.extend((0..self.lba_size / 8).flat_map(|place| of(place).to_le_bytes()));
        }
        Bytes { data, metadata: Vec::new() }
    }

    /// The data of each block that a read has moved, as words.
    pub(super) fn words(&self, bytes: &Bytes) -> Vec<u64> {
        let data = bytes.data.chunks_exact(self.block()).flat_map(|block| block[..self.lba_size].chunks_exact(8));
        data.map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
    }

    /// What is wrong with the metadata of block `block`, the command's `index`th, which holds what `write` left.
    pub(super) fn check_metadata(&self, bytes: &Bytes, index: usize, block: u64, write: u32) -> Result<(), String> {
        let Some(format) = self.moved().filter(|_| write != 0) else { return Ok(()) };
        let size = usize::from(format.size);
        let data = &bytes.data[index * self.block()..][..self.lba_size];
        let found = match format.placement {
            MetadataPlacement::Extended => &bytes.data[index * self.block() + self.lba_size..][..size],
            MetadataPlacement::Separate => &bytes.metadata[index * size..][..size],
        };
        let mut expected = metadata_of(write, block, format);
        if let Some(range) = tuple_range(format) {
            let tuple = &found[range.clone()];
            let guard = guard(data, &expected[..range.start]);
            if tuple[..2] != guard.to_be_bytes() {
                return Err(format!("block {block} has the guard {:02x?} in place of {guard:#06x}", &tuple[..2]));
            }
            let counts = format.protection.is_some_and(|protection| protection.kind != ProtectionType::Type3);
            if counts && tuple[4..] != (block as u32).to_be_bytes() {
                return Err(format!("block {block} has the reference tag {:02x?}", &tuple[4..]));
            }
            expected[range.clone()].copy_from_slice(tuple);
        }
        if found != expected {
            return Err(format!(
                "block {block}, write {write}, has the metadata {found:02x?} in place of {expected:02x?}"
            ));
        }
        Ok(())
    }
}

/// What the metadata of a block is, but for protection information.
fn metadata_of(write: u32, block: u64, format: MetadataFormat) -> Vec<u8> {
    word(write, block, METADATA_PLACE).to_le_bytes().into_iter().cycle().take(format.size.into()).collect()
}

fn tuple_range(format: MetadataFormat) -> Option<Range<usize>> {
    let start = if format.protection?.first { 0 } else { usize::from(format.size) - ProtectionTuple::LENGTH };
    Some(start..start + ProtectionTuple::LENGTH)
}

fn guard(data: &[u8], metadata: &[u8]) -> u16 {
    let mut digest = GUARD.digest();
    digest.update(data);
    digest.update(metadata);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use tentpeg_driver::queue::ProtectionFormat;

    use super::*;

    fn layouts() -> impl Iterator<Item = Layout> {
        let places = [MetadataPlacement::Extended, MetadataPlacement::Separate];
        let protections = [None, Some(true), Some(false)];
        [8, 16, 64].into_iter().flat_map(move |size| {
            places.into_iter().flat_map(move |placement| {
                protections.into_iter().map(move |first| {
                    let protection = first.map(|first| ProtectionFormat { kind: ProtectionType::Type1, first });
                    let metadata = Some(MetadataFormat { size, placement, protection });
                    Layout { lba_size: 512, metadata, generated: false }
                })
            })
        })
    }

    #[test]
    fn what_is_written_is_right_and_each_byte_of_metadata_counts() {
        for layout in layouts() {
            let bytes = layout.written(7, 100..102);
            assert_eq!((bytes.data.len(), bytes.metadata.len()), (layout.data_len(2), layout.metadata_len(2)));
            let words: Vec<u64> = (0..64).map(|place| word(7, 101, place)).collect();
            assert_eq!(layout.words(&bytes)[64..], words);
            assert_eq!(layout.check_metadata(&bytes, 1, 101, 7), Ok(()));
            assert!(layout.check_metadata(&bytes, 0, 101, 7).is_err(), "another block's");
            let telling = layout.metadata.is_some_and(|metadata| !metadata.is_protection_only());
            assert_eq!(layout.check_metadata(&bytes, 1, 101, 8).is_err(), telling, "another write's");

            let size = layout.metadata.map_or(0, |metadata| usize::from(metadata.size));
            let range = layout.metadata.and_then(tuple_range);
            for at in 0..size {
                let mut bytes = layout.written(7, 100..102);
                let flipped = match layout.metadata_len(1) {
                    0 => &mut bytes.data[layout.data_len(1) + 512 + at],
                    len => &mut bytes.metadata[len + at],
                };
                *flipped ^= 1;
                // The application tag is nobody's to check.
                let application = range.as_ref().is_some_and(|range| (range.start + 2..range.start + 4).contains(&at));
                assert_eq!(layout.check_metadata(&bytes, 1, 101, 7).is_ok(), application, "{layout:?}, byte {at}");
            }
        }
    }

    #[test]
    fn a_guard_is_that_of_t10() {
        assert_eq!(guard(b"1234", b"56789"), 0xD0DB);
    }
}
