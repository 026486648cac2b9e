//! Error Information, LID 01h (NVM Express Base 2.1, 5.1.12.1.2).

use core::mem::{offset_of, size_of};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::spec::completion::StatusField;

/// One entry of the Error Information log page, LID 01h (Base 2.1, 5.1.12.1.2). The newest is first;
/// Identify Controller's ELPE says how many there are.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct ErrorInformationLogEntry {
    /// Error Count: a number for this error, unique over the controller's life; 0: no entry.
    pub error_count: u64,
    /// Submission Queue ID; FFFFh: of no command.
    pub sqid: u16,
    /// Command ID; FFFFh: of no command.
    pub cid: u16,
    /// Status Info: the completion's status field.
    pub status_info: StatusField,
    /// Parameter Error Location: byte of the command in bits 7:0, bit in bits 10:8; FFFFh: of no
    /// parameter.
    pub parameter_error_location: u16,
    /// The first LBA with the error.
    pub lba: u64,
    /// Namespace identifier.
    pub nsid: u32,
    /// Vendor Specific Information Available: a log page identifier; 0: none.
    pub vendor_specific_information_available: u8,
    /// Transport Type.
    pub trtype: u8,
    /// Command Set Indicator; valid when [`log_page_version`](Self::log_page_version) is 1.
    pub csi: u8,
    /// Opcode; valid when [`log_page_version`](Self::log_page_version) is 1.
    pub opc: u8,
    /// Command Specific Information.
    pub command_specific_information: u64,
    /// Transport Type Specific Information.
    pub transport_type_specific_information: u16,
    /// Reserved.
    pub reserved_42: [u8; 21],
    /// Log Page Version: 1 when `csi` and `opc` are valid.
    pub log_page_version: u8,
}

const _: () = assert!(size_of::<ErrorInformationLogEntry>() == 64);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, sqid) == 8);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, cid) == 10);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, status_info) == 12);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, parameter_error_location) == 14);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, lba) == 16);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, nsid) == 24);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, trtype) == 29);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, csi) == 30);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, opc) == 31);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, command_specific_information) == 32);
const _: () = assert!(
    offset_of!(
        ErrorInformationLogEntry,
        transport_type_specific_information
    ) == 40
);
const _: () = assert!(offset_of!(ErrorInformationLogEntry, log_page_version) == 63);
