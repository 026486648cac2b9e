//! What Reservation Report returns (NVM Express Base 2.1, 7.8; reservations: 8.1.22), laid out as on the wire: a
//! [`ReservationStatus`], in the extended structure 40 reserved bytes, and one [`RegisteredController`], or
//! [`RegisteredControllerExtended`], for each controller of each host that is registered.

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Reservation Type, RTYPE (Base 2.1, 7.5): what others than its holder, and than the registrants, may not do.
    pub struct ReservationType(u8) {
        NONE = 0, "No Reservation Held";
        WRITE_EXCLUSIVE = 1, "Write Exclusive Reservation";
        EXCLUSIVE_ACCESS = 2, "Exclusive Access Reservation";
        WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 3, "Write Exclusive - Registrants Only Reservation";
        EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 4, "Exclusive Access - Registrants Only Reservation";
        WRITE_EXCLUSIVE_ALL_REGISTRANTS = 5, "Write Exclusive - All Registrants Reservation";
        EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 6, "Exclusive Access - All Registrants Reservation";
    }
}

impl ReservationType {
    /// Whether it is one of the six that can be acquired.
    pub const fn is_reservation(self) -> bool {
        matches!(self.raw(), 1..=6)
    }

    /// Whether it keeps others from reading, too.
    pub const fn excludes_reads(self) -> bool {
        matches!(self, Self::EXCLUSIVE_ACCESS | Self::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY)
            || matches!(self, Self::EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
    }

    /// Whether every registrant may do what the holder may.
    pub const fn admits_registrants(self) -> bool {
        matches!(self.raw(), 3..=6)
    }

    /// Whether every registrant is a holder.
    pub const fn is_held_by_all(self) -> bool {
        matches!(self.raw(), 5 | 6)
    }
}

/// The head of the Reservation Status data structure (Base 2.1, 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReservationStatus {
    /// Generation: counts registrations, clears and preemptions.
    pub generation: U32,
    /// Reservation Type.
    pub rtype: ReservationType,
    /// Number of Registered Controllers.
    pub regctl: U16,
    /// Reserved.
    pub reserved_7: [u8; 2],
    /// Persist Through Power Loss State: 1 where registrations and the reservation persist.
    pub ptpls: u8,
    /// Reserved.
    pub reserved_10: [u8; 14],
}

impl ReservationStatus {
    /// Bytes of the head in the extended data structure.
    pub const EXTENDED_LENGTH: usize = 64;
}

/// A registered controller (Base 2.1, 7.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisteredController {
    /// Controller ID; FFFFh where the host is registered and no controller is known to be its.
    pub cntlid: U16,
    /// Reservation Status: bit 0 is 1 where the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub reserved_3: [u8; 5],
    /// Host Identifier of 64 bits.
    pub hostid: [u8; 8],
    /// Reservation Key.
    pub rkey: U64,
}

/// A registered controller in the extended data structure (Base 2.1, 7.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegisteredControllerExtended {
    /// Controller ID; FFFFh where the host is registered and no controller is known to be its.
    pub cntlid: U16,
    /// Reservation Status: bit 0 is 1 where the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub reserved_3: [u8; 5],
    /// Reservation Key.
    pub rkey: U64,
    /// Host Identifier of 128 bits.
    pub hostid: [u8; 16],
    /// Reserved.
    pub reserved_32: [u8; 32],
}

const _: () = assert!(size_of::<ReservationStatus>() == 24);
const _: () = assert!(offset_of!(ReservationStatus, regctl) == 5);
const _: () = assert!(offset_of!(ReservationStatus, ptpls) == 9);
const _: () = assert!(size_of::<RegisteredController>() == 24);
const _: () = assert!(offset_of!(RegisteredController, hostid) == 8);
const _: () = assert!(offset_of!(RegisteredController, rkey) == 16);
const _: () = assert!(size_of::<RegisteredControllerExtended>() == 64);
const _: () = assert!(offset_of!(RegisteredControllerExtended, rkey) == 8);
const _: () = assert!(offset_of!(RegisteredControllerExtended, hostid) == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_type_keeps_from_whom() {
        let bits = |rtype: ReservationType| {
            (rtype.is_reservation(), rtype.excludes_reads(), rtype.admits_registrants(), rtype.is_held_by_all())
        };
        let table = [
            (false, false, false, false),
            (true, false, false, false),
            (true, true, false, false),
            (true, false, true, false),
            (true, true, true, false),
            (true, false, true, true),
            (true, true, true, true),
            (false, false, false, false),
        ];
        for (raw, expected) in (0..).zip(table) {
            assert_eq!(bits(ReservationType::from_raw(raw)), expected, "{raw}");
        }
    }
}
