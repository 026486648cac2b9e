//! Protection information with a 16-bit guard (NVM Command Set 1.1, 5.3): the tuple that lies in a block's metadata.
//!
//! What PRINFO asks to be checked, and the tags it is checked against, stand in the command
//! ([`ProtectionInformation`](super::command::ProtectionInformation)). The guard's CRC is left to those who compute
//! or check it: each side has its own, so that the two cannot share a mistake.

use core::mem::{offset_of, size_of};

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Protection Information Type, DPS.PIT (NVM Command Set 1.1, 4.1.5.1).
    pub struct ProtectionType(u8) {
        NONE = 0, "Protection Information Disabled";
        TYPE_1 = 1, "Type 1";
        TYPE_2 = 2, "Type 2";
        TYPE_3 = 3, "Type 3";
    }
}

/// Protection information of one logical block with a 16-bit guard and no storage tag (NVM Command Set 1.1, 5.3.1.1).
/// Unlike all else in NVMe its fields have the most significant byte first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProtectionTuple {
    /// CRC-16 of T10 DIF over the block's data and the metadata before the tuple.
    pub guard: U16,
    /// Application Tag.
    pub application_tag: U16,
    /// Reference Tag: of types 1 and 2 one more in each block of a command.
    pub reference_tag: U32,
}

const _: () = assert!(size_of::<ProtectionTuple>() == ProtectionTuple::LENGTH && align_of::<ProtectionTuple>() == 1);
const _: () = assert!(offset_of!(ProtectionTuple, application_tag) == 2);
const _: () = assert!(offset_of!(ProtectionTuple, reference_tag) == 4);

impl ProtectionTuple {
    /// Bytes of a tuple.
    pub const LENGTH: usize = 8;

    /// An application tag that turns checks off: alone under types 1 and 2, under type 3 with
    /// [`ESCAPE_REFERENCE_TAG`](Self::ESCAPE_REFERENCE_TAG) (NVM Command Set 1.1, 5.3.3).
    pub const ESCAPE_APPLICATION_TAG: u16 = 0xFFFF;
    /// See [`ESCAPE_APPLICATION_TAG`](Self::ESCAPE_APPLICATION_TAG).
    pub const ESCAPE_REFERENCE_TAG: u32 = 0xFFFF_FFFF;

    /// The tuple with these values.
    pub const fn new(guard: u16, application_tag: u16, reference_tag: u32) -> Self {
        Self {
            guard: U16::new(guard),
            application_tag: U16::new(application_tag),
            reference_tag: U32::new(reference_tag),
        }
    }

    /// Whether a namespace of that type checks nothing of a block with this tuple (NVM Command Set 1.1, 5.3.3).
    pub fn is_escape(&self, protection: ProtectionType) -> bool {
        self.application_tag.get() == Self::ESCAPE_APPLICATION_TAG
            && (protection != ProtectionType::TYPE_3 || self.reference_tag.get() == Self::ESCAPE_REFERENCE_TAG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_significant_byte_comes_first() {
        let tuple = ProtectionTuple::new(0x1122, 0x3344, 0x5566_7788);
        assert_eq!(tuple.as_bytes(), [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
    }

    #[test]
    fn which_tags_turn_checks_off() {
        for (application, reference, of_1_and_2, of_3) in [
            (0xFFFF, 0xFFFF_FFFF, true, true),
            (0xFFFF, 0xFFFF_FFFE, true, false),
            (0xFFFE, 0xFFFF_FFFF, false, false),
            (0, 0, false, false),
        ] {
            let tuple = ProtectionTuple::new(0, application, reference);
            assert_eq!(tuple.is_escape(ProtectionType::TYPE_1), of_1_and_2);
            assert_eq!(tuple.is_escape(ProtectionType::TYPE_2), of_1_and_2);
            assert_eq!(tuple.is_escape(ProtectionType::TYPE_3), of_3);
        }
    }
}
