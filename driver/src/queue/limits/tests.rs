use proptest::prelude::*;

use super::*;
use crate::dma::Iova;
use crate::queue::{MetadataPlacement, ProtectionFormat, ProtectionType};
use crate::spec::ZeroesBased;
use crate::spec::identify::{Dps, LbaFormat, SglDataBlock, Sgls};

fn cap(mqes: u16, mpsmin: u8) -> Cap {
    Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(mqes)).with_mpsmin(mpsmin)
}

fn namespace(lbads: u8, ms: u16, nsze: u64) -> IdentifyNamespace {
    let mut namespace = IdentifyNamespace::default();
    namespace.lbaf[0] = LbaFormat { ms, lbads, rp: 0 };
    namespace.nsze = nsze;
    namespace
}

#[test]
fn mdts_counts_pages_of_mpsmin() {
    let limit = |mdts, mpsmin| ControllerLimits::new(cap(127, mpsmin), 4096 << mpsmin, mdts).unwrap().max_transfer;
    assert_eq!(limit(0, 0), MAX_TRANSFER, "no limit is not one page");
    assert_eq!(limit(1, 0), 8192);
    assert_eq!(limit(5, 0), 128 << 10);
    assert_eq!(limit(5, 4), 2 << 20);
    for mdts in [20, 52, 63, 64, 255] {
        assert_eq!(limit(mdts, 0), MAX_TRANSFER, "MDTS {mdts}");
    }
}

#[test]
fn queue_entries_at_the_edges_of_mqes() {
    assert_eq!(ControllerLimits::new(cap(0, 0), 4096, 0), Err(LimitsError::QueueTooSmall));
    let entries = |mqes| ControllerLimits::new(cap(mqes, 0), 4096, 0).unwrap().max_queue_entries;
    assert_eq!([entries(1), entries(2), entries(127), entries(0xffff)], [2, 3, 128, 4097]);
}

#[test]
fn formats_that_cannot_be_served() {
    let limits = ControllerLimits::new(cap(127, 0), 4096, 1).unwrap();
    assert_eq!(limits.namespace(&namespace(0, 0, 1)), Err(LimitsError::BadLbaFormat { index: 0, lbads: 0 }));
    assert_eq!(limits.namespace(&namespace(32, 0, 1)), Err(LimitsError::BadLbaFormat { index: 0, lbads: 32 }));
    assert_eq!(
        limits.namespace(&namespace(14, 0, 1)),
        Err(LimitsError::BlockTooLarge { max_transfer: 8192, lba_size: 16384 })
    );
}

fn formatted(mut namespace: IdentifyNamespace, extended: bool, pit: u8) -> IdentifyNamespace {
    namespace.flbas = namespace.flbas.with_metadata_extended(extended);
    namespace.dps = Dps::from_bits(0).with_pit(pit);
    namespace
}

/// Field failure 21: 4 KiB and 8 bytes, and its like, are neither refused nor misread.
#[test]
fn metadata_and_protection_are_read_from_the_format() {
    let limits = ControllerLimits::new(cap(127, 0), 4096, 5).unwrap();
    let metadata = |ms, extended, pit| {
        let limits = limits.namespace(&formatted(namespace(12, ms, 1), extended, pit)).unwrap();
        (limits.max_blocks(), limits.metadata())
    };
    let (extended, separate) = (MetadataPlacement::Extended, MetadataPlacement::Separate);
    assert_eq!(metadata(0, false, 0), (32, None));
    assert_eq!(metadata(0, true, 0), (32, None));
    let plain = |size, placement| Some(MetadataFormat { size, placement, protection: None });
    assert_eq!(metadata(8, false, 0), (32, plain(8, separate)));
    assert_eq!(metadata(64, true, 0), (31, plain(64, extended)), "MDTS counts what lies between the blocks");
    for (pit, kind) in [(1, ProtectionType::Type1), (2, ProtectionType::Type2), (3, ProtectionType::Type3)] {
        let protection = Some(ProtectionFormat { kind, first: false });
        assert_eq!(metadata(16, true, pit).1, Some(MetadataFormat { size: 16, placement: extended, protection }));
    }
    let mut first = formatted(namespace(12, 8, 1), false, 1);
    first.dps = first.dps.with_pip(true);
    let format = limits.namespace(&first).unwrap().metadata().unwrap();
    assert!(format.protection.unwrap().first && format.is_protection_only());
}

#[test]
fn protection_that_cannot_be() {
    let limits = ControllerLimits::new(cap(127, 0), 4096, 5).unwrap();
    let error = |ms, pit| limits.namespace(&formatted(namespace(12, ms, 1), false, pit)).unwrap_err();
    assert_eq!(error(8, 4), LimitsError::ProtectionType { pit: 4 });
    assert_eq!(error(7, 1), LimitsError::NoRoomForProtection { ms: 7 });
    assert_eq!(error(0, 3), LimitsError::NoRoomForProtection { ms: 0 });

    let extended = ControllerLimits { extended_lba_formats: true, ..limits };
    let protected = formatted(namespace(12, 16, 1), false, 1);
    let mut nvm = IdentifyNamespaceNvm::default();
    assert_eq!(extended.namespace(&protected), Err(LimitsError::UnknownGuard));
    assert!(extended.namespace_with(&protected, Some(&nvm)).is_ok(), "16-bit guards, no storage tag");
    nvm.elbaf[0] = 2 << 7 | 16;
    assert_eq!(extended.namespace_with(&protected, Some(&nvm)), Err(LimitsError::Guard { sts: 16, pif: 2 }));
    assert!(extended.namespace(&namespace(12, 16, 1)).is_ok(), "without protection there is no guard");
    assert!(limits.namespace_with(&protected, Some(&nvm)).is_ok(), "without ELBAS the field says nothing");
}

#[test]
fn a_namespace_has_its_size_in_blocks_and_in_bytes() {
    let controller = ControllerLimits::new(cap(127, 1), 8192, 3).unwrap();
    let limits = controller.namespace(&namespace(9, 0, 1 << 40)).unwrap();
    assert_eq!((limits.page_size(), limits.lba_size(), limits.lba_shift()), (8192, 512, 9));
    assert_eq!((limits.nsze(), limits.capacity()), (1 << 40, 1 << 49));
    assert_eq!((limits.max_blocks(), limits.max_transfer()), (128, 64 << 10));
    let huge = controller.namespace(&namespace(12, 0, 1 << 52)).unwrap();
    assert_eq!(huge.capacity(), u64::MAX, "it saturates");
}

#[test]
fn a_controller_says_whether_it_has_extended_formats() {
    for ctratt in [Ctratt::empty(), Ctratt::EXTENDED_LBA_FORMATS] {
        let controller = IdentifyController { ctratt, ..IdentifyController::default() };
        let limits = ControllerLimits::identified(cap(127, 0), 4096, &controller, None).unwrap();
        assert_eq!(limits.extended_lba_formats, !ctratt.is_empty());
    }
}

#[test]
fn limits_of_optional_commands_count_pages_too() {
    let cap = cap(127, 1);
    let mut controller =
        IdentifyController { oncs: Oncs::WRITE_ZEROES | Oncs::VERIFY, ..IdentifyController::default() };
    let nvm = IdentifyControllerNvm { vsl: 1, wzsl: 2, wzdsl: 3, dmrl: 5, dmrsl: 6, dmsl: 7, ..Default::default() };
    let none = OptionalCommands::of(cap, &controller, None);
    assert_eq!((none.max_verify, none.max_write_zeroes, none.max_dataset_blocks), (u64::MAX, u64::MAX, u64::MAX));
    assert_eq!((none.max_ranges, none.max_range_blocks), (256, u32::MAX));
    let some = OptionalCommands::of(cap, &controller, Some(&nvm));
    assert_eq!((some.max_verify, some.max_write_zeroes), (16 << 10, 32 << 10));
    assert_eq!(some.max_write_zeroes_deallocate, 32 << 10, "WZDSL counts only where ONCS says so");
    assert_eq!(none.oncs, controller.oncs);
    assert_eq!(some.oncs, controller.oncs | Oncs::DATASET_MANAGEMENT, "its limits say that it is there");
    assert_eq!((some.max_ranges, some.max_range_blocks, some.max_dataset_blocks), (5, 6, 7));
    let plain = IdentifyControllerNvm::default();
    for one in [
        IdentifyControllerNvm { dmrl: 1, ..plain.clone() },
        IdentifyControllerNvm { dmrsl: 1, ..plain.clone() },
        IdentifyControllerNvm { dmsl: 1, ..plain },
    ] {
        for oncs in [Oncs::empty(), Oncs::DATASET_MANAGEMENT] {
            let controller = IdentifyController { oncs, ..IdentifyController::default() };
            assert_eq!(OptionalCommands::of(cap, &controller, Some(&one)).oncs, Oncs::DATASET_MANAGEMENT);
        }
    }
    controller.oncs |= Oncs::MAXIMUM_WRITE_ZEROES_WITH_DEALLOCATE;
    assert_eq!(OptionalCommands::of(cap, &controller, Some(&nvm)).max_write_zeroes_deallocate, 64 << 10);
}

/// Field failure 19: PRP, SGL, or which argument is wrong and what it should be.
#[test]
fn the_pointer_of_each_kind_of_memory() {
    let mut controller = IdentifyController { mdts: 5, ..IdentifyController::default() };
    let prps = ControllerLimits::identified(cap(127, 0), 4096, &controller, None).unwrap();
    controller.sgls = Sgls::from_bits(0).with_supported(SglDataBlock::DWORD);
    let dwords = ControllerLimits::identified(cap(127, 0), 4096, &controller, None).unwrap();
    controller.sgls = Sgls::from_bits(0).with_supported(SglDataBlock::BYTE);
    let bytes = ControllerLimits::identified(cap(127, 0), 4096, &controller, None).unwrap();
    let extent = |iova, len| Extent { iova: Iova::new(iova).unwrap(), len };
    let say = |limits: &ControllerLimits, extents: &[Extent]| match limits.pointer(extents) {
        Ok(kind) => format!("{kind:?}"),
        Err(error) => error.to_string(),
    };

    let pages = [extent(0x1_0204, 0xe00 - 4), extent(0x3_0000, 8192)];
    let dword_seam = [extent(0x1_0e00, 512), extent(0x3_0204, 512)];
    let byte_start = [extent(0x1_0001, 512)];
    for limits in [&prps, &dwords, &bytes] {
        // The first extent ends on a page (204h + dfch = 1000h), so PRPs do.
        assert_eq!(say(limits, &pages), "Prp");
    }
    assert_eq!(
        say(&prps, &dword_seam),
        "extents 0 and 1 meet at IOVA 0x30204 in the middle of a page: inner seams must be multiples of 4096 bytes \
         (the controller has PRPs only: SGLS is 0)"
    );
    assert_eq!((say(&dwords, &dword_seam), say(&bytes, &dword_seam)), ("Sgl".into(), "Sgl".into()));
    assert_eq!(
        say(&prps, &byte_start),
        "the memory starts at IOVA 0x10001: it must be a multiple of 4 (the controller has PRPs only: SGLS is 0)"
    );
    assert_eq!(say(&dwords, &byte_start), "extent 0 is 512 bytes at IOVA 0x10001: both must be multiples of 4 (SGLS)");
    assert_eq!(say(&bytes, &byte_start), "Sgl");
    let long = [extent(0x1_0001, (128 << 10) + 1)];
    assert_eq!(say(&bytes, &long), "the extents have 131073 bytes: a command may carry 131072 at the most");
}

#[test]
fn a_controller_with_sgls_has_a_list_page_even_where_no_prp_list_is_needed() {
    let mut controller = IdentifyController { mdts: 0, ..IdentifyController::default() };
    let list_pages = |controller: &IdentifyController, page_size| {
        ControllerLimits::identified(cap(127, 0), page_size, controller, None).unwrap().list_pages
    };
    controller.mdts = 4;
    assert_eq!(list_pages(&controller, 65536), 0);
    controller.sgls = Sgls::from_bits(0).with_supported(SglDataBlock::BYTE);
    assert_eq!(list_pages(&controller, 65536), 1);
}

proptest! {
    #[test]
    fn a_command_of_the_limit_fits_the_device_and_the_slot(
        mdts in 0u8..=255, mpsmin in 0u8..=4, more in 0u8..=4, lbads in 9u8..=31, nsze in any::<u64>(),
        ms in prop::sample::select(vec![0u16, 8, 16, 64, 65535]), extended: bool
    ) {
        let page_size = 4096u64 << (mpsmin + more);
        let limits = ControllerLimits::new(cap(127, mpsmin), page_size, mdts).unwrap();
        let device = if mdts == 0 { u128::MAX } else { (4096u128 << mpsmin).checked_shl(mdts.into()).unwrap_or(u128::MAX) };
        prop_assert!(u128::from(limits.max_transfer) <= device || mdts >= 100);
        if let Ok(namespace) = limits.namespace(&formatted(namespace(lbads, ms, nsze), extended, 0)) {
            let in_memory = if extended { namespace.lba_size() + u64::from(ms) } else { namespace.lba_size() };
            let most = u64::from(namespace.max_blocks()) * in_memory;
            prop_assert!(most <= limits.max_transfer);
            prop_assert!(most + in_memory > limits.max_transfer || namespace.max_blocks() == 65536, "one more would not fit");
            prop_assert!((1..=65536).contains(&namespace.max_blocks()));
            prop_assert!(prp::list_pages(most, page_size) <= limits.list_pages);
        }
    }
}
