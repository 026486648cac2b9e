use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::spec::status::StatusCode;

#[test]
fn smart_as_it_lies_in_memory() {
    let mut page = [0; 512];
    page[0] = 0b0000_1010;
    page[1..3].copy_from_slice(&[0x37, 0x01]); // 311 K
    page[3..6].copy_from_slice(&[100, 10, 3]);
    page[32..48].fill(0xFF);
    page[112] = 7;
    page[200..202].copy_from_slice(&[0x38, 0x01]);
    let smart = SmartLog::read_from_bytes(&page).unwrap();
    assert_eq!(
        smart.critical_warning,
        CriticalWarning::TEMPERATURE | CriticalWarning::READ_ONLY
    );
    assert_eq!(smart.celsius(), Some(38));
    assert_eq!(
        (
            smart.available_spare,
            smart.available_spare_threshold,
            smart.percentage_used
        ),
        (100, 10, 3)
    );
    assert_eq!(smart.data_units_read.get(), u128::MAX);
    assert_eq!(smart.power_cycles.get(), 7);
    assert_eq!(smart.temperature_sensor[0], 312);
    assert_eq!(smart.as_bytes(), page);
    assert_eq!(SmartLog::default().celsius(), None);
}

#[test]
fn flags_without_a_name_are_kept() {
    let warning = CriticalWarning::from_raw(0x81);
    assert!(warning.contains(CriticalWarning::AVAILABLE_SPARE));
    assert_eq!((warning | CriticalWarning::TEMPERATURE).raw(), 0x83);
    assert_eq!(
        format!("{warning:?}"),
        "CriticalWarning(AVAILABLE_SPARE | 0x80)"
    );
}

#[test]
fn error_entry_carries_a_status() {
    let mut entry = [0u8; 64];
    entry[0] = 9;
    entry[8..14].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0x02, 0x05]);
    let entry = ErrorInformationLogEntry::read_from_bytes(&entry).unwrap();
    assert_eq!(
        (entry.error_count, entry.sqid, entry.cid),
        (9, 0xFFFF, 0xFFFF)
    );
    assert_eq!(
        entry.status_info.status().code(),
        StatusCode::UNRECOVERED_READ_ERROR
    );
}

#[test]
fn firmware_slots() {
    let mut log = FirmwareSlotLog {
        afi: 0x21,
        ..FirmwareSlotLog::default()
    };
    log.frs[0] = *b"1.0     ";
    assert_eq!((log.active_slot(), log.next_active_slot()), (1, 2));
    assert_eq!(log.revision(1).as_deref(), Some("1.0"));
    assert_eq!(
        [0, 2, 8, 255].map(|slot| log.revision(slot)),
        [const { None }; 4]
    );
}
