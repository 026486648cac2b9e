//! Scatter Gather Lists (NVM Express Base 2.1, 4.3.2).
//!
//! An SGL is one or more segments of 16-byte descriptors. The first descriptor stands in the command, where PRPs
//! would ([`Sqe::sgl1`](crate::spec::command::Sqe::sgl1)). A data descriptor names bytes; a segment or last segment
//! descriptor, always the last of its own segment, says where the next segment is. Which descriptor may stand where,
//! and what a controller supports, is left to those who build and walk them.

use core::mem::{align_of, offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::command::Sqe;

codes! {
    /// SGL Descriptor Type, bits 7:4 of the SGL Identifier (Base 2.1, 4.3.2).
    pub struct SglDescriptorType(u8) {
        DATA_BLOCK = 0x0, "SGL Data Block";
        BIT_BUCKET = 0x1, "SGL Bit Bucket";
        SEGMENT = 0x2, "SGL Segment";
        LAST_SEGMENT = 0x3, "SGL Last Segment";
        KEYED_DATA_BLOCK = 0x4, "Keyed SGL Data Block";
        TRANSPORT_DATA_BLOCK = 0x5, "Transport SGL Data Block";
        VENDOR_SPECIFIC = 0xF, "Vendor Specific";
    }
}

codes! {
    /// SGL Descriptor Sub Type, bits 3:0 of the SGL Identifier (Base 2.1, 4.3.2).
    pub struct SglDescriptorSubType(u8) {
        ADDRESS = 0x0, "Address";
        OFFSET = 0x1, "Offset";
        TRANSPORT_SPECIFIC = 0xA, "NVMe Transport Specific";
    }
}

wire_word! {
    /// SGL Identifier, byte 15 of a descriptor (Base 2.1, 4.3.2).
    #[derive(Debug)]
    pub struct SglIdentifier(u8) {
        /// SGL Descriptor Sub Type.
        subtype / with_subtype [0, 4]: SglDescriptorSubType;
        /// SGL Descriptor Type.
        kind / with_kind [4, 4]: SglDescriptorType;
    }
}

/// An SGL descriptor as the types of NVMe over PCIe have it: Data Block, Bit Bucket, Segment and Last Segment (Base
/// 2.1, 4.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(8))]
pub struct SglDescriptor {
    /// Address of the data or of the next segment; reserved in a bit bucket.
    pub address: u64,
    /// Length in bytes: of the data, of what a read discards, or of the next segment (a multiple of 16 there).
    pub length: u32,
    /// Reserved.
    pub reserved_12: [u8; 3],
    /// SGL Identifier: type and subtype.
    pub identifier: SglIdentifier,
}

const _: () = assert!(size_of::<SglDescriptor>() == 16 && align_of::<SglDescriptor>() == 8);
const _: () = assert!(offset_of!(SglDescriptor, length) == 8);
const _: () = assert!(offset_of!(SglDescriptor, identifier) == 15);

impl SglDescriptor {
    /// Bytes of one descriptor.
    pub const LENGTH: usize = size_of::<Self>();

    /// `length` bytes of data at `address`.
    #[inline]
    pub const fn data_block(address: u64, length: u32) -> Self {
        Self::of(SglDescriptorType::DATA_BLOCK, address, length)
    }

    /// `length` bytes of the data that a read discards, and that a write does not count.
    #[inline]
    pub const fn bit_bucket(length: u32) -> Self {
        Self::of(SglDescriptorType::BIT_BUCKET, 0, length)
    }

    /// The next segment, whose last descriptor is again a segment or last segment descriptor.
    #[inline]
    pub const fn segment(address: u64, length: u32) -> Self {
        Self::of(SglDescriptorType::SEGMENT, address, length)
    }

    /// The next segment, which is the last.
    #[inline]
    pub const fn last_segment(address: u64, length: u32) -> Self {
        Self::of(SglDescriptorType::LAST_SEGMENT, address, length)
    }

    /// The type.
    #[inline]
    pub const fn kind(&self) -> SglDescriptorType {
        self.identifier.kind()
    }

    /// The subtype.
    #[inline]
    pub const fn subtype(&self) -> SglDescriptorSubType {
        self.identifier.subtype()
    }

    /// The descriptor as two words, in the order in which they lie in memory and in a command.
    #[inline]
    pub const fn words(self) -> [u64; 2] {
        zerocopy::transmute!(self)
    }

    /// The descriptor that two words hold.
    #[inline]
    pub const fn from_words(words: [u64; 2]) -> Self {
        zerocopy::transmute!(words)
    }

    #[inline]
    const fn of(kind: SglDescriptorType, address: u64, length: u32) -> Self {
        let identifier = SglIdentifier::from_bits(0).with_kind(kind);
        Self { address, length, reserved_12: [0; 3], identifier }
    }
}

impl Sqe {
    /// SGL Entry 1: the data pointer as an SGL descriptor, where PSDT says that it is one (Base 2.1, 4.1.1).
    #[inline]
    pub const fn sgl1(&self) -> SglDescriptor {
        SglDescriptor::from_words([self.prp1, self.prp2])
    }

    /// The same command with that SGL Entry 1. PSDT is left as it is.
    #[inline]
    #[must_use]
    pub const fn with_sgl1(mut self, descriptor: SglDescriptor) -> Self {
        let [first, second] = descriptor.words();
        self.prp1 = first;
        self.prp2 = second;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ZeroesBased;

    #[test]
    fn descriptors_as_they_lie_in_memory() {
        let block = SglDescriptor::data_block(0x1122_3344_5566_7788, 0x0102_0304);
        assert_eq!(
            block.as_bytes(),
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x04, 0x03, 0x02, 0x01, 0, 0, 0, 0x00]
        );
        let last_byte = |descriptor: SglDescriptor| descriptor.as_bytes()[15];
        assert_eq!(last_byte(SglDescriptor::bit_bucket(4)), 0x10);
        assert_eq!(last_byte(SglDescriptor::segment(0x1000, 4096)), 0x20);
        assert_eq!(last_byte(SglDescriptor::last_segment(0x1000, 4096)), 0x30);
        let keyed = SglDescriptor::from_words([0, 0x4A << 56]);
        assert_eq!(
            (keyed.kind(), keyed.subtype()),
            (SglDescriptorType::KEYED_DATA_BLOCK, SglDescriptorSubType::TRANSPORT_SPECIFIC)
        );
    }

    #[test]
    fn the_command_holds_one_descriptor() {
        let descriptor = SglDescriptor::last_segment(0x2000, 64);
        let sqe = Sqe::read(1, 0, ZeroesBased::<u16>::ONE).with_sgl1(descriptor);
        assert_eq!(sqe.sgl1(), descriptor);
        assert_eq!((sqe.prp1, sqe.prp2), (0x2000, 0x3000_0000_0000_0040));
    }

    proptest::proptest! {
        #[test]
        fn words_and_descriptors_are_the_same_bytes(first: u64, second: u64) {
            proptest::prop_assert_eq!(SglDescriptor::from_words([first, second]).words(), [first, second]);
        }
    }
}
