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
    assert_eq!(smart.critical_warning, CriticalWarning::TEMPERATURE | CriticalWarning::READ_ONLY);
    assert_eq!(smart.celsius(), Some(38));
    assert_eq!((smart.available_spare, smart.available_spare_threshold, smart.percentage_used), (100, 10, 3));
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
    assert_eq!(format!("{warning:?}"), "CriticalWarning(AVAILABLE_SPARE | 0x80)");
}

#[test]
fn error_entry_carries_a_status() {
    let mut entry = [0u8; 64];
    entry[0] = 9;
    entry[8..14].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0x02, 0x05]);
    let entry = ErrorInformationLogEntry::read_from_bytes(&entry).unwrap();
    assert_eq!((entry.error_count, entry.sqid, entry.cid), (9, 0xFFFF, 0xFFFF));
    assert_eq!(entry.status_info.status().code(), StatusCode::UNRECOVERED_READ_ERROR);
}

#[test]
fn firmware_slots() {
    let mut log = FirmwareSlotLog { afi: 0x21, ..FirmwareSlotLog::default() };
    log.frs[0] = *b"1.0     ";
    assert_eq!((log.active_slot(), log.next_active_slot()), (1, 2));
    assert_eq!(log.revision(1).as_deref(), Some("1.0"));
    assert_eq!([0, 2, 8, 255].map(|slot| log.revision(slot)), [const { None }; 4]);
}

#[test]
fn more_changed_namespaces_than_fit_are_one_mark() {
    let list = ChangedNamespaceList::from_nsids([2, 9]);
    assert_eq!((list.iter().collect::<Vec<_>>(), list.overflowed()), (vec![2, 9], false));
    assert_eq!(ChangedNamespaceList::from_nsids(1..=1024).iter().count(), 1024);
    let list = ChangedNamespaceList::from_nsids(1..=1025);
    assert_eq!((list.iter().collect::<Vec<_>>(), list.overflowed()), (vec![u32::MAX], true));
}

#[test]
fn a_self_test_as_it_lies_in_memory() {
    let mut page = [0u8; 564];
    page[..2].copy_from_slice(&[0x02, 40]);
    page[4..8].copy_from_slice(&[0x17, 3, 0x03, 0]);
    page[8] = 77;
    page[16] = 1;
    page[20] = 9;
    let log = DeviceSelfTestLog::read_from_bytes(&page).unwrap();
    assert_eq!((log.current(), log.completion), (Some(crate::spec::command::SelfTestCode::EXTENDED), 40));
    let newest = log.results[0];
    assert_eq!(newest.status.result(), SelfTestResultCode::SEGMENT_FAILED);
    assert_eq!(newest.status.code(), crate::spec::command::SelfTestCode::SHORT);
    assert_eq!((newest.segment, newest.power_on_hours.get()), (3, 77));
    assert_eq!(newest.valid, SelfTestDiagnostics::NSID | SelfTestDiagnostics::FAILING_LBA);
    assert_eq!((newest.nsid.get(), newest.failing_lba.get()), (1, 9));
    assert_eq!(DeviceSelfTestLog::default().current(), None);
}

field_properties! {
    sanitize_status_fields, u16, SanitizeStatus::from_bits;
    state / with_state = 0x7;
    passes / with_passes = 0xF8;
    global_data_erased / with_global_data_erased = 0x100;
    media_verification_canceled / with_media_verification_canceled = 0x200;
}

field_properties! {
    self_test_status_fields, u8, SelfTestStatus::from_bits;
    result / with_result = 0x0F;
    code / with_code = 0xF0;
}
