//! End-to-end data protection with a 16-bit guard (NVM Command Set 1.1, 5.3): what a controller inserts and checks.
//!
//! Works on the data and the metadata of a block side by side; where they lie in the host's memory is not its business.

use crc::{CRC_16_T10_DIF, Crc, Table};
use zerocopy::{FromBytes, IntoBytes};

use super::io_config::MetadataConfig;
use super::transfer::permanent;
use crate::spec::command::{ProtectionInformation, Sqe};
use crate::spec::protection::{ProtectionTuple, ProtectionType};
use crate::spec::status::{Status, StatusCode};

static GUARD: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_T10_DIF);

/// How the blocks of a namespace are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protection {
    kind: ProtectionType,
    /// Where in the metadata the tuple begins. What comes before it is guarded with the data.
    offset: usize,
}

/// What a command says about protection, for its first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) prinfo: ProtectionInformation,
    reference: u32,
    application: u16,
    mask: u16,
}

impl Tags {
    pub(super) fn of(sqe: &Sqe) -> Self {
        Self { prinfo: sqe.prinfo(), reference: sqe.ilbrt(), application: sqe.lbat(), mask: sqe.lbatm() }
    }

    /// Whether the controller inserts or strips the tuple.
    pub(super) fn pract(self) -> bool {
        self.prinfo.contains(ProtectionInformation::PRACT)
    }

    /// The reference tag of block `index` of the command.
    fn reference(self, kind: ProtectionType, index: usize) -> u32 {
        if kind == ProtectionType::TYPE_3 { self.reference } else { self.reference.wrapping_add(index as u32) }
    }

    /// Whether anything is to be checked.
    pub(super) fn checks(self) -> bool {
        !(self.prinfo - ProtectionInformation::PRACT).is_empty()
    }
}

impl Protection {
    /// The protection that `metadata` asks for, if it asks for any.
    pub(super) fn new(metadata: &MetadataConfig) -> Option<Self> {
        let kind = metadata.protection();
        (kind != ProtectionType::NONE).then(|| Self { kind, offset: metadata.tuple_offset() })
    }

    /// Where in the metadata the tuple lies.
    pub(super) fn tuple_range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + ProtectionTuple::LENGTH
    }

    /// Whether tags can be checked as `sqe` asks (NVM Command Set 1.1, 5.3.3): under type 1 the first reference tag is
    /// the LBA's lower half, and under type 3 there is nothing to check it against.
    pub(super) fn accept(&self, sqe: &Sqe) -> Result<(), Status> {
        let right = !sqe.prinfo().contains(ProtectionInformation::PRCHK_REFERENCE_TAG)
            || match self.kind {
                ProtectionType::TYPE_1 => sqe.ilbrt() == sqe.slba() as u32,
                ProtectionType::TYPE_3 => false,
                _ => true,
            };
        if right { Ok(()) } else { Err(permanent(StatusCode::INVALID_PROTECTION_INFORMATION)) }
    }

    /// Checks block after block what `tags` asks for: guard, application tag, reference tag. `data` and `metadata`
    /// are those of the same whole blocks, the first of which is block `first` of the command.
    pub(super) fn check(
        &self,
        tags: Tags,
        first: usize,
        (data, block): (&[u8], usize),
        (metadata, size): (&[u8], usize),
    ) -> Result<(), StatusCode> {
        let asked = |flag| tags.prinfo.contains(flag);
        for (index, (data, metadata)) in data.chunks_exact(block).zip(metadata.chunks_exact(size)).enumerate() {
            let tuple = self.tuple(metadata);
            if tuple.is_escape(self.kind) {
                continue;
            }
            if asked(ProtectionInformation::PRCHK_GUARD) && tuple.guard.get() != self.guard(data, metadata) {
                return Err(StatusCode::END_TO_END_GUARD_CHECK_ERROR);
            }
            let differing = tuple.application_tag.get() ^ tags.application;
            if asked(ProtectionInformation::PRCHK_APPLICATION_TAG) && differing & tags.mask != 0 {
                return Err(StatusCode::END_TO_END_APPLICATION_TAG_CHECK_ERROR);
            }
            let reference = tags.reference(self.kind, first + index);
            if asked(ProtectionInformation::PRCHK_REFERENCE_TAG) && tuple.reference_tag.get() != reference {
                return Err(StatusCode::END_TO_END_REFERENCE_TAG_CHECK_ERROR);
            }
        }
        Ok(())
    }

    /// Writes the tuple of each block into `metadata`.
    pub(super) fn insert(&self, tags: Tags, (data, block): (&[u8], usize), (metadata, size): (&mut [u8], usize)) {
        for (index, (data, metadata)) in data.chunks_exact(block).zip(metadata.chunks_exact_mut(size)).enumerate() {
            let guard = self.guard(data, metadata);
            let tuple = ProtectionTuple::new(guard, tags.application, tags.reference(self.kind, index));
            metadata[self.tuple_range()].copy_from_slice(tuple.as_bytes());
        }
    }

    /// Writes the tuple of each block of zeroes into `metadata`, which is zero.
    pub(super) fn insert_over_zeroes(&self, tags: Tags, block: usize, (metadata, size): (&mut [u8], usize)) {
        // Every block has the same guard.
        let guard = self.guard(&vec![0; block], &metadata[..size]);
        for (index, metadata) in metadata.chunks_exact_mut(size).enumerate() {
            let tuple = ProtectionTuple::new(guard, tags.application, tags.reference(self.kind, index));
            metadata[self.tuple_range()].copy_from_slice(tuple.as_bytes());
        }
    }

    fn tuple(&self, metadata: &[u8]) -> ProtectionTuple {
        let bytes = &metadata[self.tuple_range()];
        ProtectionTuple::read_from_bytes(bytes).expect("the range is as long as a tuple")
    }

    fn guard(&self, data: &[u8], metadata: &[u8]) -> u16 {
        let mut digest = GUARD.digest();
        digest.update(data);
        digest.update(&metadata[..self.offset]);
        digest.finalize()
    }
}

#[cfg(test)]
mod tests;
