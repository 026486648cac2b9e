//! The completion queue entry (NVM Express Base 2.1, 4.2).

use core::fmt;
use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::status::Status;

/// Completion queue entry (Base 2.1, 4.2.1).
///
/// The phase lies in the last dword, together with CID and status. A reader takes that dword first
/// and the others after it; how it does so is left to the queue.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result, dword 0.
    pub dw0: u32,
    /// Command specific result, dword 1.
    pub dw1: u32,
    /// SQ Head Pointer: entries before it have been fetched.
    pub sqhd: u16,
    /// SQ Identifier of the command.
    pub sqid: u16,
    /// Command Identifier of the command.
    pub cid: u16,
    /// Status, with the phase tag.
    pub status: StatusField,
}

const _: () = assert!(size_of::<Cqe>() == 16);
const _: () = assert!(offset_of!(Cqe, dw1) == 4);
const _: () = assert!(offset_of!(Cqe, sqhd) == 8);
const _: () = assert!(offset_of!(Cqe, sqid) == 10);
const _: () = assert!(offset_of!(Cqe, cid) == 12);
const _: () = assert!(offset_of!(Cqe, status) == 14);

impl Cqe {
    /// Dword 3 taken apart: the CID in its low half, the status field in its high half.
    #[inline]
    pub const fn split_dw3(dw3: u32) -> (u16, StatusField) {
        (dw3 as u16, StatusField((dw3 >> 16) as u16))
    }

    /// Dwords 0 and 1 as one number, for commands whose result has 64 bits.
    #[inline]
    pub const fn result(&self) -> u64 {
        (self.dw1 as u64) << 32 | self.dw0 as u64
    }
}

/// The high half of dword 3: the status, and the phase tag in bit 0 (Base 2.1, 4.2.3 and 4.2.4).
#[derive(
    Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct StatusField(u16);

impl StatusField {
    /// `status` with the phase tag `phase`.
    #[inline]
    pub const fn new(phase: bool, status: Status) -> Self {
        Self(status.bits() << 1 | phase as u16)
    }

    /// The field as it is on the wire.
    #[inline]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// The bits on the wire.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Phase Tag: inverts each time the controller goes round the queue (Base 2.1, 4.2.4).
    #[inline]
    pub const fn phase(self) -> bool {
        self.0 & 1 != 0
    }

    /// The status without the phase tag.
    #[inline]
    pub const fn status(self) -> Status {
        Status::from_bits(self.0 >> 1)
    }
}

impl fmt::Debug for StatusField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StatusField(phase {}, {})",
            u8::from(self.phase()),
            self.status()
        )
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromBytes, IntoBytes};

    use super::{Cqe, StatusField};
    use crate::spec::status::{Status, StatusCode};

    #[test]
    fn decodes_an_entry_as_it_lies_in_memory() {
        let bytes = [
            0x78, 0x56, 0x34, 0x12, 0xEF, 0xCD, 0xAB, 0x90, // dw0, dw1
            0x05, 0x00, 0x03, 0x00, // sqhd, sqid
            0x42, 0x01, 0x05, 0x80, // cid, status: phase, Invalid Field, do not retry
        ];
        let cqe = Cqe::read_from_bytes(&bytes).unwrap();
        assert_eq!(cqe.result(), 0x90AB_CDEF_1234_5678);
        assert_eq!((cqe.sqhd, cqe.sqid, cqe.cid), (5, 3, 0x142));
        assert!(cqe.status.phase());
        assert_eq!(
            cqe.status.status().code(),
            StatusCode::INVALID_FIELD_IN_COMMAND
        );
        assert!(cqe.status.status().dnr());
        assert_eq!(cqe.as_bytes(), bytes);
        assert_eq!(Cqe::split_dw3(0x8005_0142), (0x142, cqe.status));
    }

    #[test]
    fn phase_and_status_do_not_touch_each_other() {
        for bits in 0..=u16::MAX {
            let field = StatusField::from_bits(bits);
            assert_eq!(StatusField::new(field.phase(), field.status()), field);
            assert_eq!(
                StatusField::new(!field.phase(), field.status()).bits(),
                bits ^ 1
            );
        }
        assert!(Status::SUCCESS.is_success());
    }
}
