use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::spec::ZeroesBased;

fn count(n: u32) -> ZeroesBased<u16> {
    ZeroesBased::<u16>::from_count(n).unwrap()
}

/// The entry's sixteen dwords.
fn dwords(sqe: Sqe) -> [u32; 16] {
    zerocopy::transmute!(sqe)
}

#[test]
fn read_as_it_lies_in_memory() {
    let sqe = Sqe::read(1, 0x1_2345_6789, count(8))
        .with_cid(0x0105)
        .with_prp1(0xABCD_E000)
        .with_prp2(0x1_0000_2000)
        .with_fua(true);
    assert_eq!(
        dwords(sqe),
        [0x0105_0002, 1, 0, 0, 0, 0, 0xABCD_E000, 0, 0x0000_2000, 1, 0x2345_6789, 1, 0x4000_0007, 0, 0, 0]
    );
    assert_eq!((sqe.nvm_opcode(), sqe.slba(), sqe.nlb().count()), (NvmOpcode::READ, 0x1_2345_6789, 8));
    assert!(sqe.fua() && !sqe.lr());
}

#[test]
fn admin_commands_by_their_dwords() {
    let of = |sqe: Sqe| {
        let dw = dwords(sqe);
        (dw[0], dw[1], dw[10], dw[11])
    };
    assert_eq!(of(Sqe::identify(Cns::CONTROLLER, 0)), (0x06, 0, 0x01, 0));
    assert_eq!(of(Sqe::identify(Cns::NAMESPACE, 7)), (0x06, 7, 0x00, 0));
    let cq = Sqe::create_io_completion_queue(3, count(1024), 0x8000, Some(5));
    assert_eq!(of(cq), (0x05, 0, 0x03FF_0003, 0x0005_0003));
    let cq = Sqe::create_io_completion_queue(3, count(1024), 0x8000, None);
    assert_eq!(of(cq), (0x05, 0, 0x03FF_0003, 0x0000_0001));
    let sq = Sqe::create_io_submission_queue(2, count(256), 0x9000, 3, QueuePriority::MEDIUM);
    assert_eq!(of(sq), (0x01, 0, 0x00FF_0002, 0x0003_0005));
    assert_eq!(sq.prp1, 0x9000);
    assert_eq!(of(Sqe::delete_io_submission_queue(2)), (0x00, 0, 2, 0));
    assert_eq!(of(Sqe::delete_io_completion_queue(3)), (0x04, 0, 3, 0));
    let buffers = Sqe::doorbell_buffer_config(0xA000, 0xB000);
    assert_eq!((of(buffers), buffers.prp1, buffers.prp2), ((0x7C, 0, 0, 0), 0xA000, 0xB000));
    let queues = NumberOfQueues::new(count(4), count(2));
    assert_eq!(of(Sqe::set_number_of_queues(queues)), (0x09, 0, 0x07, 0x0001_0003));
    let get = Sqe::get_features(FeatureIdentifier::VOLATILE_WRITE_CACHE, Select::DEFAULT, 0);
    assert_eq!(of(get), (0x0A, 0, 0x0000_0106, 0));
    assert_eq!(of(Sqe::abort(4, 0x1234)), (0x08, 0, 0x1234_0004, 0));
    assert_eq!(of(Sqe::asynchronous_event_request()), (0x0C, 0, 0, 0));
    let format = Sqe::format_nvm(NSID_ALL, 0x21).with_ses(SecureEraseSettings::CRYPTOGRAPHIC);
    assert_eq!((of(format), format.format_index()), ((0x80, NSID_ALL, 0x2401, 0), 0x21));
    let sanitize = Sqe::sanitize(SanitizeAction::OVERWRITE).with_owpass(2).with_ovrpat(0xDEAD_BEEF);
    assert_eq!(of(sanitize.with_ause(true)), (0x84, 0, 0x2B, 0xDEAD_BEEF));
    let download = Sqe::firmware_image_download(ZeroesBased::<u32>::from_count(1024).unwrap(), 4096);
    assert_eq!(of(download), (0x11, 0, 1023, 4096));
    assert_eq!(of(Sqe::firmware_commit(2, CommitAction::ACTIVATE_IMMEDIATELY)), (0x10, 0, 0x1A, 0));
    assert_eq!(of(Sqe::device_self_test(1, SelfTestCode::EXTENDED)), (0x14, 1, 2, 0));
}

#[test]
fn log_page_length_and_offset_are_split() {
    let numd = ZeroesBased::<u32>::from_count(128).unwrap();
    let sqe = Sqe::get_log_page(LogPageIdentifier::SMART_HEALTH_INFORMATION, NSID_ALL, numd);
    assert_eq!((dwords(sqe)[1], sqe.cdw10, sqe.cdw11), (0xFFFF_FFFF, 0x007F_0002, 0));
    let sqe = sqe.with_numd(ZeroesBased::<u32>::from_raw(0x0012_3456)).with_lpo(0xA_0000_0004);
    assert_eq!((sqe.cdw10, sqe.cdw11), (0x3456_0002, 0x12));
    assert_eq!((sqe.cdw12, sqe.cdw13), (4, 0xA));
    assert_eq!(sqe.numd().raw(), 0x0012_3456);
}

#[test]
fn nvm_commands_by_their_dwords() {
    assert_eq!(dwords(Sqe::flush(1))[..2], [0x00, 1]);
    assert_eq!(Sqe::write_zeroes(1, 0, count(1)).with_deac(true).cdw12, 0x0200_0000);
    let dsm = Sqe::dataset_management(1, ZeroesBased::<u8>::from_count(2).unwrap()).with_ad(true);
    assert_eq!((dsm.opcode, dsm.cdw10, dsm.cdw11), (0x09, 1, 4));
    let range = DatasetManagementRange { cattr: 0, lengthlb: 8, slba: 0x10 };
    assert_eq!(range.as_bytes()[4..12], [8, 0, 0, 0, 0x10, 0, 0, 0]);
    let write = Sqe::write(1, 0, count(65_536)).with_dtype(DirectiveType::STREAMS).with_dspec(9);
    assert_eq!((write.cdw12, write.cdw13), (0x0010_FFFF, 0x0009_0000));
}

#[test]
fn opcodes_are_unique_and_say_their_direction() {
    use std::collections::HashSet;
    assert_eq!(AdminOpcode::ALL.iter().collect::<HashSet<_>>().len(), AdminOpcode::ALL.len());
    assert_eq!(NvmOpcode::ALL.iter().collect::<HashSet<_>>().len(), NvmOpcode::ALL.len());
    // Bits 1:0 of an opcode are the direction of its data: 1 to the controller, 2 from it.
    assert_eq!(NvmOpcode::WRITE.raw() & 3, 1);
    assert_eq!(NvmOpcode::READ.raw() & 3, 2);
    assert_eq!(AdminOpcode::IDENTIFY.raw() & 3, 2);
    assert_eq!(AdminOpcode::from_raw(0xC0).name(), None);
    assert_eq!(AdminOpcode::IDENTIFY.to_string(), "Identify (06h)");
}

proptest! {
    #[test]
    fn any_bytes_are_an_entry(bytes: [[u8; 32]; 2]) {
        let sqe = Sqe::read_from_bytes(bytes.as_bytes()).unwrap();
        prop_assert_eq!(sqe.as_bytes(), bytes.as_bytes());
        let text = format!("{sqe:?} {:?} {:?}", sqe.prinfo(), sqe.cns());
        prop_assert!(!text.is_empty());
    }

    #[test]
    fn slba_and_numd_are_whole(slba: u64, numd: u32, lpo: u64) {
        let sqe = Sqe::default().with_slba(slba);
        prop_assert_eq!(sqe.slba(), slba);
        prop_assert_eq!(Sqe::read(1, slba, count(1)), Sqe::read(1, 0, count(1)).with_slba(slba));
        let log = Sqe::default().with_numd(ZeroesBased::<u32>::from_raw(numd)).with_lpo(lpo);
        prop_assert_eq!((log.numd().raw(), log.lpo()), (numd, lpo));
    }
}

/// An entry with `0xA5` in every byte, so that a field in the wrong dword shows.
fn filled() -> Sqe {
    Sqe::read_from_bytes(&[0xA5; 64]).unwrap()
}

field_properties! {
    flags_fields, u8, |flags| Sqe { flags, ..filled() };
    fuse / with_fuse = 0x03;
    psdt / with_psdt = 0xC0;
}

field_properties! {
    cdw10_fields, u32, |cdw10| Sqe { cdw10, ..filled() };
    cns / with_cns = 0xFF;
    cntid / with_cntid = 0xFFFF_0000;
    qid / with_qid = 0xFFFF;
    qsize / with_qsize = 0xFFFF_0000;
    fid / with_fid = 0xFF;
    sel / with_sel = 0x700;
    sv / with_sv = 0x8000_0000;
    lid / with_lid = 0xFF;
    lsp / with_lsp = 0x7F00;
    rae / with_rae = 0x8000;
    numdl / with_numdl = 0xFFFF_0000;
    abort_sqid / with_abort_sqid = 0xFFFF;
    abort_cid / with_abort_cid = 0xFFFF_0000;
    nr / with_nr = 0xFF;
    lbafl / with_lbafl = 0xF;
    mset / with_mset = 0x10;
    format_pi / with_format_pi = 0xE0;
    format_pil / with_format_pil = 0x100;
    ses / with_ses = 0xE00;
    lbafu / with_lbafu = 0x3000;
    sanact / with_sanact = 0x7;
    ause / with_ause = 0x8;
    owpass / with_owpass = 0xF0;
    oipbp / with_oipbp = 0x100;
    ndas / with_ndas = 0x200;
    emvs / with_emvs = 0x400;
    fs / with_fs = 0x7;
    ca / with_ca = 0x38;
    bpid / with_bpid = 0x8000_0000;
    firmware_numd / with_firmware_numd = 0xFFFF_FFFF;
    self_test_code / with_self_test_code = 0xF;
}

field_properties! {
    cdw11_fields, u32, |cdw11| Sqe { cdw11, ..filled() };
    cnssid / with_cnssid = 0xFFFF;
    identify_csi / with_identify_csi = 0xFF00_0000;
    pc / with_pc = 0x1;
    ien / with_ien = 0x2;
    iv / with_iv = 0xFFFF_0000;
    qprio / with_qprio = 0x6;
    cqid / with_cqid = 0xFFFF_0000;
    numdu / with_numdu = 0xFFFF;
    lsi / with_lsi = 0xFFFF_0000;
    idr / with_idr = 0x1;
    idw / with_idw = 0x2;
    ad / with_ad = 0x4;
    exhid / with_exhid = 0x1;
    ovrpat / with_ovrpat = 0xFFFF_FFFF;
    firmware_ofst / with_firmware_ofst = 0xFFFF_FFFF;
}

field_properties! {
    cdw12_fields, u32, |cdw12| Sqe { cdw12, ..filled() };
    nvmsetid / with_nvmsetid = 0xFFFF;
    nlb / with_nlb = 0xFFFF;
    dtype / with_dtype = 0x00F0_0000;
    nsz / with_nsz = 0x0080_0000;
    stc / with_stc = 0x0100_0000;
    deac / with_deac = 0x0200_0000;
    prinfo / with_prinfo = 0x3C00_0000;
    fua / with_fua = 0x4000_0000;
    lr / with_lr = 0x8000_0000;
}

field_properties! {
    cdw13_fields, u32, |cdw13| Sqe { cdw13, ..filled() };
    dsm / with_dsm = 0xFF;
    dspec / with_dspec = 0xFFFF_0000;
}

field_properties! {
    cdw14_fields, u32, |cdw14| Sqe { cdw14, ..filled() };
    ilbrt / with_ilbrt = 0xFFFF_FFFF;
    uuid_index / with_uuid_index = 0x7F;
    ot / with_ot = 0x0080_0000;
    log_csi / with_log_csi = 0xFF00_0000;
}

field_properties! {
    cdw15_fields, u32, |cdw15| Sqe { cdw15, ..filled() };
    lbat / with_lbat = 0xFFFF;
    lbatm / with_lbatm = 0xFFFF_0000;
}

field_properties! {
    number_of_queues_fields, u32, NumberOfQueues::from_bits;
    nsq / with_nsq = 0xFFFF;
    ncq / with_ncq = 0xFFFF_0000;
}

field_properties! {
    temperature_threshold_fields, u32, TemperatureThreshold::from_bits;
    tmpth / with_tmpth = 0xFFFF;
    tmpsel / with_tmpsel = 0xF_0000;
    thsel / with_thsel = 0x30_0000;
}

/// Bits as Base 2.1, 7.5 to 7.8 have them.
#[test]
fn reservation_commands_by_their_dwords() {
    use crate::spec::reservation::ReservationType;
    let of = |sqe: Sqe| {
        let dw = dwords(sqe);
        (dw[0], dw[1], dw[10], dw[11])
    };
    let register = Sqe::reservation_register(3, RegisterAction::REPLACE, ChangePersistence::PERSIST);
    assert_eq!(of(register.with_iekey(true)), (0x0D, 3, 0xC000_000A, 0));
    let acquire = Sqe::reservation_acquire(3, AcquireAction::PREEMPT_AND_ABORT, ReservationType::EXCLUSIVE_ACCESS);
    assert_eq!(of(acquire), (0x11, 3, 0x0202, 0));
    let all = ReservationType::EXCLUSIVE_ACCESS_ALL_REGISTRANTS;
    assert_eq!(of(Sqe::reservation_release(3, ReleaseAction::CLEAR, all)), (0x15, 3, 0x0601, 0));
    let report = Sqe::reservation_report(3, ZeroesBased::<u32>::from_count(1024).unwrap(), true);
    assert_eq!((of(report), report.reservation_numd().count()), ((0x0E, 3, 1023, 1), 1024));
}
