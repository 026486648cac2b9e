//! Firmware Slot Information, LID 03h (NVM Express Base 2.1, 5.1.12.1.4).

use core::mem::{offset_of, size_of};
use std::borrow::Cow;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::spec::text;

/// Firmware Slot Information log page, LID 03h (Base 2.1, 5.1.12.1.4).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info: the slot that runs in bits 2:0, the one after the next reset in bits
    /// 6:4.
    pub afi: u8,
    /// Reserved.
    pub reserved_1: [u8; 7],
    /// Firmware Revision for Slots 1 to 7. See [`revision`](Self::revision).
    pub frs: [[u8; 8]; 7],
    /// Reserved.
    pub reserved_64: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);
const _: () = assert!(offset_of!(FirmwareSlotLog, frs) == 8);
const _: () = assert!(offset_of!(FirmwareSlotLog, reserved_64) == 64);

impl Default for FirmwareSlotLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl FirmwareSlotLog {
    /// The slot from which the running firmware was loaded: 1 to 7.
    pub const fn active_slot(&self) -> u8 {
        self.afi & 0x7
    }

    /// The slot that is to run after the next Controller Level Reset; 0: not reported.
    pub const fn next_active_slot(&self) -> u8 {
        self.afi >> 4 & 0x7
    }

    /// The revision in `slot`, which is 1 to 7, without padding. `None` for another slot or an empty
    /// one.
    pub fn revision(&self, slot: u8) -> Option<Cow<'_, str>> {
        let field = self.frs.get(usize::from(slot).checked_sub(1)?)?;
        (*field != [0; 8]).then(|| text::read(field))
    }
}
