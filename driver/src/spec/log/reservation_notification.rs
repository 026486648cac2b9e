//! Reservation Notification, LID 80h (NVM Express Base 2.1, 5.1.12.1.32).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

codes! {
    /// Reservation Notification Log Page Type (Base 2.1, 5.1.12.1.32). Its bit in the Reservation Notification Mask has
    /// the same number.
    pub struct ReservationNotificationType(u8) {
        EMPTY = 0, "Empty Log Page";
        REGISTRATION_PREEMPTED = 1, "Registration Preempted";
        RESERVATION_RELEASED = 2, "Reservation Released";
        RESERVATION_PREEMPTED = 3, "Reservation Preempted";
    }
}

/// Reservation Notification log page, LID 80h (Base 2.1, 5.1.12.1.32): one notification, which reading the page takes
/// from the queue of them.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReservationNotificationLog {
    /// Log Page Count: notifications so far, this one included; 0: there is none.
    pub log_page_count: u64,
    /// Reservation Notification Log Page Type.
    pub kind: ReservationNotificationType,
    /// Number of Available Log Pages: those that are left after this one, 255 and more alike.
    pub available: u8,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// The namespace.
    pub nsid: u32,
    /// Reserved.
    pub reserved_16: [u8; 48],
}

const _: () = assert!(size_of::<ReservationNotificationLog>() == 64);
const _: () = assert!(offset_of!(ReservationNotificationLog, nsid) == 12);

impl Default for ReservationNotificationLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
