use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::spec::ZeroesBased;
use crate::spec::command::Csi;
use crate::spec::registers::{Cap, Vs};

#[test]
fn controller_as_it_lies_in_memory() {
    let mut page = [0; IDENTIFY_LENGTH];
    page[0..2].copy_from_slice(&[0x4D, 0x14]);
    page[4..24].copy_from_slice(b"S5GXNX0R123456      ");
    page[24..64].copy_from_slice(b"A drive of 40 columns with a long name  ");
    page[77] = 5;
    page[80..84].copy_from_slice(&[0x00, 0x04, 0x01, 0x00]);
    page[256..260].copy_from_slice(&[0x17, 0x00, 7, 3]);
    page[280..282].copy_from_slice(&[0x00, 0x10]);
    page[512..514].copy_from_slice(&[0x66, 0x44]);
    page[516] = 32;
    page[520] = 0x5F;
    page[525] = 0x07;
    page[536..539].copy_from_slice(&[0x02, 0x00, 0x01]);
    page[768..775].copy_from_slice(b"nqn.x.y");
    let controller = IdentifyController::read_from_bytes(&page).unwrap();
    assert_eq!(controller.vid, 0x144D);
    assert_eq!(controller.serial_number(), "S5GXNX0R123456");
    assert_eq!(
        controller.model_number(),
        "A drive of 40 columns with a long name"
    );
    assert_eq!(controller.firmware_revision(), "");
    assert_eq!(controller.nvm_subsystem_nqn(), "nqn.x.y");
    assert_eq!(controller.ver, Vs::new(1, 4, 0));
    assert_eq!(
        controller.oacs,
        Oacs::SECURITY | Oacs::FORMAT_NVM | Oacs::FIRMWARE | Oacs::DEVICE_SELF_TEST
    );
    assert_eq!((controller.acl.count(), controller.aerl.count()), (8, 4));
    assert_eq!(controller.tnvmcap.get(), 4096);
    assert_eq!(
        (controller.sqes, controller.cqes, controller.nn),
        (0x66, 0x44, 32)
    );
    assert!(!controller.oncs.contains(Oncs::RESERVATIONS));
    assert!(
        controller
            .oncs
            .contains(Oncs::COMPARE | Oncs::WRITE_ZEROES | Oncs::TIMESTAMP)
    );
    assert!(controller.vwc.present());
    assert_eq!(controller.vwc.fb(), FlushBehavior::BROADCAST_NSID_SUPPORTED);
    assert_eq!(controller.sgls.supported(), SglDataBlock::DWORD);
    assert!(controller.sgls.bit_bucket() && !controller.sgls.keyed());
    assert_eq!(controller.as_bytes(), page);
}

#[test]
fn mdts_counts_in_smallest_pages() {
    let cap = Cap::default();
    let limit = |mdts, cap| {
        IdentifyController {
            mdts,
            ..Default::default()
        }
        .max_data_transfer_size(cap)
    };
    assert_eq!(limit(0, cap), None);
    assert_eq!(limit(5, cap), Some(128 << 10));
    assert_eq!(limit(5, cap.with_mpsmin(1)), Some(256 << 10));
    assert_eq!(limit(51, cap), Some(1 << 63));
    assert_eq!(limit(52, cap), None);
    assert_eq!(limit(255, cap.with_mpsmin(15)), None);
}

#[test]
fn controller_strings_are_refused_when_they_do_not_fit() {
    let mut controller = IdentifyController::default();
    assert!(controller.set_serial_number("TP-1"));
    assert_eq!(controller.sn, *b"TP-1                ");
    assert!(!controller.set_serial_number("more than twenty bytes"));
    assert_eq!(controller.serial_number(), "TP-1");
    assert!(controller.set_model_number("Model") && controller.set_firmware_revision("12345678"));
    assert!(!controller.set_nvm_subsystem_nqn(&"n".repeat(224)));
    assert!(controller.set_nvm_subsystem_nqn(&"n".repeat(223)));
    assert_eq!(controller.nvm_subsystem_nqn().len(), 223);
}

#[test]
fn namespace_as_it_lies_in_memory() {
    let mut page = [0; IDENTIFY_LENGTH];
    page[0..8].copy_from_slice(&0x1234_5678u64.to_le_bytes());
    page[25] = 1;
    page[26] = 0x01;
    page[120..128].copy_from_slice(&[0x00, 0x25, 0x38, 1, 2, 3, 4, 5]);
    page[128..136].copy_from_slice(&[0, 0, 9, 1, 8, 0, 12, 0]);
    let namespace = IdentifyNamespace::read_from_bytes(&page).unwrap();
    assert_eq!(namespace.nsze, 0x1234_5678);
    assert_eq!((namespace.format_count(), namespace.format_index()), (2, 1));
    let format = namespace.current_lba_format().unwrap();
    assert_eq!(
        (format.data_size(), format.ms, format.rp),
        (Some(4096), 8, 0)
    );
    assert_eq!(namespace.eui64, [0x00, 0x25, 0x38, 1, 2, 3, 4, 5]);
    assert_eq!(namespace.as_bytes(), page);
}

#[test]
fn a_format_that_is_not_there() {
    let mut namespace = IdentifyNamespace {
        nlbaf: ZeroesBased::<u8>::from_raw(0),
        flbas: Flbas::default().with_fidxl(1),
        ..Default::default()
    };
    namespace.lbaf[0].lbads = 9;
    namespace.lbaf[1].lbads = 12;
    assert_eq!(namespace.current_lba_format(), None);
    namespace.nlbaf = ZeroesBased::<u8>::from_raw(1);
    assert_eq!(
        namespace.current_lba_format().unwrap().data_size(),
        Some(4096)
    );
    for lbads in [0, 8, 64, 255] {
        namespace.lbaf[1].lbads = lbads;
        assert_eq!(namespace.current_lba_format(), None, "lbads {lbads}");
    }
}

#[test]
fn upper_bits_of_the_format_index_count_beyond_sixteen() {
    let flbas = Flbas::default().with_fidxl(2).with_fidxu(1);
    let of = |nlbaf| IdentifyNamespace {
        flbas,
        nlbaf: ZeroesBased::<u8>::from_raw(nlbaf),
        ..Default::default()
    };
    assert_eq!(of(15).format_index(), 2);
    assert_eq!(of(16).format_index(), 18);
    assert_eq!(of(255).format_count(), 64);
}

#[test]
fn namespace_list_stops_at_the_first_zero() {
    let list = ActiveNamespaceList::from_nsids([1, 3, 9]);
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, 3, 9]);
    let mut list = ActiveNamespaceList::from_nsids(1..=2000);
    assert_eq!(list.iter().count(), 1024);
    list.nsid[5] = 0;
    assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

const ALL_KINDS: [NamespaceIdentifier<'static>; 5] = [
    NamespaceIdentifier::Eui64([1, 2, 3, 4, 5, 6, 7, 8]),
    NamespaceIdentifier::Nguid([2; 16]),
    NamespaceIdentifier::Uuid([3; 16]),
    NamespaceIdentifier::Csi(Csi::NVM),
    NamespaceIdentifier::Reserved {
        nidt: 0x80,
        nid: &[9, 9],
    },
];

#[test]
fn descriptors_are_read_as_written() {
    let mut writer = DescriptorWriter::new();
    for identifier in ALL_KINDS {
        writer.push(identifier).unwrap();
    }
    let page = writer.finish();
    assert_eq!(page[..12], [1, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let read: Result<Vec<_>, _> = Descriptors::new(&page).collect();
    assert_eq!(read.unwrap(), ALL_KINDS);
}

#[test]
fn a_descriptor_of_a_wrong_length_is_an_error() {
    let mut page = [0; IDENTIFY_LENGTH];
    page[..2].copy_from_slice(&[3, 15]);
    let mut descriptors = Descriptors::new(&page);
    let error = descriptors.next().unwrap().unwrap_err();
    assert_eq!(
        error,
        DescriptorError::Length {
            offset: 0,
            nidt: 3,
            nidl: 15,
            expected: 16
        }
    );
    assert_eq!(descriptors.next(), None);
}

#[test]
fn a_list_ends_with_its_page() {
    let mut writer = DescriptorWriter::new();
    let nid = [7; 252];
    for _ in 0..16 {
        writer
            .push(NamespaceIdentifier::Reserved {
                nidt: 0x80,
                nid: &nid,
            })
            .unwrap();
    }
    let full = writer.push(NamespaceIdentifier::Csi(Csi::NVM)).unwrap_err();
    assert_eq!(full, DescriptorListFull { length: 1, free: 0 });
    let mut page = writer.finish();
    assert_eq!(Descriptors::new(&page).filter(Result::is_ok).count(), 16);
    page[15 * 256 + 1] = 253;
    let last = Descriptors::new(&page).last().unwrap();
    assert_eq!(
        last,
        Err(DescriptorError::PastEnd {
            offset: 15 * 256,
            nidl: 253
        })
    );
    let mut writer = DescriptorWriter::new();
    assert!(
        writer
            .push(NamespaceIdentifier::Reserved {
                nidt: 0x80,
                nid: &[0; 256]
            })
            .is_err()
    );
    assert!(
        writer
            .push(NamespaceIdentifier::Reserved {
                nidt: 0x80,
                nid: &[]
            })
            .is_err()
    );
}

/// Pages that are likely to begin with descriptors and then go wrong.
fn page() -> impl Strategy<Value = Box<[u8; IDENTIFY_LENGTH]>> {
    let chunk = (
        0u8..6,
        prop_oneof![Just(1u8), Just(8), Just(16), any::<u8>()],
        any::<u8>(),
    );
    prop::collection::vec(chunk, 0..600).prop_map(|chunks| {
        let mut page = Box::new([0; IDENTIFY_LENGTH]);
        let mut offset = 0;
        for (nidt, nidl, fill) in chunks {
            let bytes = [nidt, nidl, 0, 0]
                .into_iter()
                .chain(std::iter::repeat_n(fill, nidl.into()));
            for byte in bytes {
                let Some(place) = page.get_mut(offset) else {
                    return page;
                };
                *place = byte;
                offset += 1;
            }
        }
        page
    })
}

proptest! {
    #[test]
    fn any_page_is_read_to_an_end(page in page()) {
        let mut bytes = 0;
        let mut errors = 0;
        for descriptor in Descriptors::new(&page) {
            prop_assert_eq!(errors, 0, "a descriptor after an error");
            match descriptor {
                Ok(NamespaceIdentifier::Eui64(_)) => bytes += 12,
                Ok(NamespaceIdentifier::Nguid(_) | NamespaceIdentifier::Uuid(_)) => bytes += 20,
                Ok(NamespaceIdentifier::Csi(_)) => bytes += 5,
                Ok(NamespaceIdentifier::Reserved { nid, .. }) => bytes += 4 + nid.len(),
                Err(error) => {
                    errors += 1;
                    prop_assert!(!error.to_string().is_empty());
                }
            }
            prop_assert!(bytes <= IDENTIFY_LENGTH);
        }
    }

    #[test]
    fn any_bytes_are_a_structure(bytes in prop::collection::vec(any::<u8>(), IDENTIFY_LENGTH)) {
        let controller = IdentifyController::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(controller.as_bytes(), &bytes);
        let mut text = format!("{controller:?} {:?}", controller.nvm_subsystem_nqn());
        let namespace = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(namespace.as_bytes(), &bytes);
        prop_assert!(namespace.format_index() < 64);
        text += &format!("{namespace:?}");
        prop_assert!(!text.contains(|c: char| c.is_control()));
        let _ = controller.max_data_transfer_size(Cap::from_bits(u64::MAX));
    }
}

field_properties! {
    flbas_fields, u8, Flbas::from_bits;
    fidxl / with_fidxl = 0x0F;
    metadata_extended / with_metadata_extended = 0x10;
    fidxu / with_fidxu = 0x60;
}

field_properties! {
    dps_fields, u8, Dps::from_bits;
    pit / with_pit = 0x07;
    pip / with_pip = 0x08;
}

field_properties! {
    dlfeat_fields, u8, Dlfeat::from_bits;
    drb / with_drb = 0x07;
    wzds / with_wzds = 0x08;
    gds / with_gds = 0x10;
}

field_properties! {
    vwc_fields, u8, Vwc::from_bits;
    present / with_present = 0x01;
    fb / with_fb = 0x06;
}

field_properties! {
    sgls_fields, u32, Sgls::from_bits;
    supported / with_supported = 0x3;
    keyed / with_keyed = 0x4;
    sdt / with_sdt = 0xFF00;
    bit_bucket / with_bit_bucket = 0x1_0000;
    metadata_byte_aligned / with_metadata_byte_aligned = 0x2_0000;
    oversize / with_oversize = 0x4_0000;
    metadata_sgl / with_metadata_sgl = 0x8_0000;
    offset / with_offset = 0x10_0000;
    transport / with_transport = 0x20_0000;
}
