use std::collections::HashSet;

use super::*;

#[test]
fn every_code_has_a_name_and_a_number_of_its_own() {
    let numbers: HashSet<_> = StatusCode::ALL.iter().collect();
    assert_eq!(numbers.len(), StatusCode::ALL.len());
    let names: HashSet<_> = StatusCode::ALL
        .iter()
        .map(|code| code.name().unwrap())
        .collect();
    assert_eq!(names.len(), StatusCode::ALL.len());
    for &code in StatusCode::ALL {
        assert_eq!(Status::from(code).code(), code);
        assert_eq!(StatusCode::new(code.sct(), code.sc()), code);
    }
}

#[test]
fn codes_as_the_specification_numbers_them() {
    let parts = |code: StatusCode| (code.sct().raw(), code.sc());
    assert_eq!(parts(StatusCode::SUCCESS), (0, 0x00));
    assert_eq!(parts(StatusCode::INVALID_FIELD_IN_COMMAND), (0, 0x02));
    assert_eq!(
        parts(StatusCode::COMMAND_ABORTED_DUE_TO_SQ_DELETION),
        (0, 0x08)
    );
    assert_eq!(parts(StatusCode::PRP_OFFSET_INVALID), (0, 0x13));
    assert_eq!(parts(StatusCode::LBA_OUT_OF_RANGE), (0, 0x80));
    assert_eq!(parts(StatusCode::RESERVATION_CONFLICT), (0, 0x83));
    assert_eq!(parts(StatusCode::COMPLETION_QUEUE_INVALID), (1, 0x00));
    assert_eq!(parts(StatusCode::INVALID_QUEUE_DELETION), (1, 0x0C));
    assert_eq!(parts(StatusCode::UNRECOVERED_READ_ERROR), (2, 0x81));
    assert_eq!(parts(StatusCode::HOST_PATHING_ERROR), (3, 0x70));
}

#[test]
fn says_what_happened() {
    let status = StatusCode::INVALID_FIELD_IN_COMMAND.status();
    assert_eq!(status.to_string(), "Invalid Field in Command (0h/02h)");
    assert_eq!(
        status.with_dnr(true).to_string(),
        "Invalid Field in Command (0h/02h, do not retry)"
    );
    assert_eq!(
        StatusCode::UNRECOVERED_READ_ERROR
            .status()
            .with_crd(2)
            .with_more(true)
            .to_string(),
        "Unrecovered Read Error (2h/81h, retry after CRDT2, more in the error log)"
    );
    let vendor = StatusCode::new(StatusCodeType::VENDOR_SPECIFIC, 0xC1);
    assert_eq!(
        vendor.status().to_string(),
        "Vendor Specific Status (7h/C1h)"
    );
    assert_eq!(
        StatusCode::from_raw(0x5FF).status().to_string(),
        "Unknown Status (5h/FFh)"
    );
}

#[test]
fn success_is_code_and_type() {
    assert!(Status::SUCCESS.with_more(true).is_success());
    assert!(!StatusCode::INTERNAL_PATH_ERROR.status().is_success());
    assert!(!StatusCode::COMPLETION_QUEUE_INVALID.status().is_success());
}

field_properties! {
    status_fields, u16, Status::from_bits;
    sc / with_sc = 0x00FF;
    sct / with_sct = 0x0700;
    crd / with_crd = 0x1800;
    more / with_more = 0x2000;
    dnr / with_dnr = 0x4000;
}
