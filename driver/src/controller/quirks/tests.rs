use super::*;
use crate::spec::identify::{LbaFormat, SglDataBlock};

fn controller(vid: u16, model: &str, firmware: &str) -> IdentifyController {
    let mut controller = IdentifyController { vid, ..IdentifyController::default() };
    assert!(controller.set_model_number(model) && controller.set_firmware_revision(firmware));
    controller
}

#[test]
fn every_row_is_found_has_a_reason_and_no_twin() {
    for (index, row) in QUIRKS.iter().enumerate() {
        assert!(!row.flags.is_empty() && row.reason.len() > 10, "row {index}");
        let same = |other: &&Quirk| {
            (other.vendor, other.device, other.model, other.firmware)
                == (row.vendor, row.device, row.model, row.firmware)
        };
        assert_eq!(QUIRKS.iter().filter(same).count(), 1, "row {index}");
        let pci = PciId { vendor: row.vendor, device: row.device.unwrap_or(0x1234) };
        assert!(Quirks::of_function(QUIRKS, pci).has(row.flags), "row {index}");
        assert!(
            Quirks::of_controller(QUIRKS, Some(pci), &controller(row.vendor, row.model, row.firmware)).has(row.flags)
        );
        let other = PciId { vendor: row.vendor ^ 0x8000, ..pci };
        assert_eq!(Quirks::of_function(QUIRKS, other), Quirks::default(), "row {index}, another vendor");
    }
}

#[test]
fn a_row_matches_by_all_that_it_names() {
    let table = [
        Quirk { vendor: 1, device: None, model: "ACME", firmware: "2.", flags: QuirkFlags::NO_SGL, reason: "" },
        Quirk { vendor: 1, device: Some(7), model: "", firmware: "", flags: QuirkFlags::STRIPE, reason: "" },
    ];
    let of = |pci, vid, model, firmware| Quirks::of_controller(&table, pci, &controller(vid, model, firmware)).flags();
    let seven = Some(PciId { vendor: 1, device: 7 });
    assert_eq!(of(None, 1, "ACME 9000", "2.1"), QuirkFlags::NO_SGL);
    assert_eq!(of(None, 1, "ACME 9000", "3.0"), QuirkFlags::empty());
    assert_eq!(of(None, 2, "ACME 9000", "2.1"), QuirkFlags::empty());
    assert_eq!(of(None, 1, "ACM", "2.1"), QuirkFlags::empty());
    assert_eq!(of(seven, 1, "ACME", "2."), QuirkFlags::NO_SGL | QuirkFlags::STRIPE, "all rows that match count");
    assert_eq!(of(seven, 1, "Other", "2."), QuirkFlags::STRIPE);
    let function = Quirks::of_function(&table, PciId { vendor: 1, device: 7 });
    assert_eq!(function.flags(), QuirkFlags::STRIPE, "names are not known before Identify");
}

#[test]
fn what_a_controller_says_is_put_right() {
    let all = Quirks { flags: QuirkFlags::all(), undrivable: None };
    let mut said = controller(1, "x", "y");
    said.oncs = Oncs::WRITE_ZEROES | Oncs::COMPARE;
    said.sgls = said.sgls.with_supported(SglDataBlock::BYTE);
    let mut right = said.clone();
    Quirks::default().correct_controller(&mut right);
    assert_eq!(right, said, "without quirks nothing changes");
    all.correct_controller(&mut right);
    assert_eq!((right.oncs, right.sgls.supported()), (Oncs::COMPARE, SglDataBlock::NOT_SUPPORTED));

    let mut said = IdentifyNamespace { nguid: [1; 16], eui64: [2; 8], ..IdentifyNamespace::default() };
    said.lbaf[0] = LbaFormat { ms: 0, lbads: 9, rp: 0 };
    let mut striped = controller(1, "x", "y");
    striped.vs[3] = 5;
    let mut right = said.clone();
    Quirks::default().correct_namespace(4096, &striped, &mut right);
    assert_eq!(right, said);
    all.correct_namespace(4096, &striped, &mut right);
    assert_eq!((right.nguid, right.eui64, right.dlfeat.drb()), ([0; 16], [0; 8], 1));
    assert_eq!(right.noiob, 256, "2^5 pages of 4,096 bytes in blocks of 512");
    for exponent in [0, 20, 63, 64, 255] {
        striped.vs[3] = exponent;
        let mut right = said.clone();
        all.correct_namespace(4096, &striped, &mut right);
        assert_eq!(right.noiob, 0, "exponent {exponent} is no stripe");
    }
    let mut own = IdentifyNamespace { noiob: 8, dlfeat: said.dlfeat.with_drb(2), ..said };
    striped.vs[3] = 5;
    all.correct_namespace(4096, &striped, &mut own);
    assert_eq!((own.noiob, own.dlfeat.drb()), (8, 2), "what the namespace says itself counts");
}

#[test]
fn ways_that_differ() {
    let none = Quirks::default();
    assert_eq!((none.ready_delay(), none.admin_entries(32)), (Duration::ZERO, 32));
    let all = Quirks { flags: QuirkFlags::all(), undrivable: None };
    assert_eq!((all.ready_delay(), all.admin_entries(32), all.admin_entries(65)), (READY_DELAY, 64, 128));
}
