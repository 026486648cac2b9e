use core::time::Duration;

use super::*;

#[test]
fn decodes_a_capabilities_register() {
    // MPSMAX 4, CSS NVM, TO 30, CQR, MQES 1023: a common drive's.
    let cap = Cap::from_bits(0x0040_0020_1E01_03FF);
    assert_eq!(cap.mqes().count(), 1024);
    assert!(cap.cqr());
    assert_eq!(cap.to(), 30);
    assert_eq!(cap.timeout(), Duration::from_secs(15));
    assert_eq!((cap.dstrd(), cap.doorbell_stride()), (0, 4));
    assert_eq!(cap.css(), CommandSets::NVM);
    assert_eq!((cap.min_page_size(), cap.max_page_size()), (4096, 65_536));
    assert!(!cap.nssrs() && !cap.bps() && !cap.pmrs() && !cap.cmbs() && !cap.nsss());
    assert!(cap.ams().is_empty() && cap.crms().is_empty());
}

#[test]
fn a_removed_device_decodes_without_a_panic() {
    let cap = Cap::from_bits(u64::MAX);
    assert_eq!(cap.mqes().count(), 65_536);
    assert_eq!(cap.doorbell_stride(), 131_072);
    assert_eq!(cap.max_page_size(), 128 << 20);
    assert_eq!(Cmbsz::from_bits(u32::MAX).size(), None);
    assert!(
        !format!(
            "{cap:?} {:?} {:?}",
            Cc::from_bits(u32::MAX),
            Csts::from_bits(u32::MAX)
        )
        .is_empty()
    );
}

#[test]
fn encodes_controller_configuration() {
    let cc = Cc::default()
        .with_en(true)
        .with_iosqes(6)
        .with_iocqes(4)
        .with_shn(ShutdownNotification::NORMAL);
    assert_eq!(cc.bits(), 0x0046_4001);
    assert_eq!(cc.page_size(), 4096);
    let csts = Csts::from_bits(0b1001);
    assert!(csts.rdy() && !csts.cfs());
    assert_eq!(csts.shst(), ShutdownStatus::COMPLETE);
}

#[test]
fn encodes_queue_attributes_and_version() {
    let entries = |n| ZeroesBased::<u16>::from_count(n).unwrap();
    let aqa = Aqa::default()
        .with_asqs(entries(32))
        .with_acqs(entries(4096));
    assert_eq!(aqa.bits(), 0x0FFF_001F);
    assert_eq!(Vs::new(2, 1, 0).bits(), 0x0002_0100);
    assert_eq!(Vs::from_bits(0x0001_0400).to_string(), "1.4.0");
    assert!(Vs::new(1, 4, 0) < Vs::new(2, 0, 0));
}

#[test]
fn doorbells_follow_the_stride() {
    use DoorbellKind::*;
    assert_eq!(doorbell_offset(0, 0, SubmissionTail), 0x1000);
    assert_eq!(doorbell_offset(0, 0, CompletionHead), 0x1004);
    assert_eq!(doorbell_offset(0, 3, SubmissionTail), 0x1018);
    assert_eq!(doorbell_offset(4, 1, CompletionHead), 0x1000 + 3 * 64);
    // The farthest one fits in 64 bits many times over.
    assert_eq!(
        doorbell_offset(15, u16::MAX, CompletionHead),
        0x1000 + 131_071 * 131_072
    );
}

#[test]
fn subsystem_magic_is_ascii() {
    assert_eq!(NSSR_RESET.to_be_bytes(), *b"NVMe");
    assert_eq!(NSSD_NORMAL.to_be_bytes(), *b"Nrml");
    assert_eq!(NSSD_ABRUPT.to_be_bytes(), *b"Abpt");
}

#[test]
fn controller_memory_buffer_size() {
    let cmbsz = Cmbsz::default().with_szu(2).with_sz(512).with_sqs(true);
    assert_eq!(cmbsz.size(), Some(512 << 20));
    assert_eq!(
        Cmbsz::default().with_szu(6).with_sz(0xF_FFFF).size(),
        Some(0xF_FFFF << 36)
    );
    assert_eq!(
        Cmbmsc::default().with_cba(0x1_2345).with_cmse(true).bits(),
        0x1234_5002
    );
}

field_properties! {
    cap_fields, u64, Cap::from_bits;
    mqes / with_mqes = 0xFFFF;
    cqr / with_cqr = 0x1_0000;
    ams / with_ams = 0x6_0000;
    to / with_to = 0xFF00_0000;
    dstrd / with_dstrd = 0xF_0000_0000;
    nssrs / with_nssrs = 0x10_0000_0000;
    css / with_css = 0x1FE0_0000_0000;
    bps / with_bps = 0x2000_0000_0000;
    cps / with_cps = 0xC000_0000_0000;
    mpsmin / with_mpsmin = 0xF_0000_0000_0000;
    mpsmax / with_mpsmax = 0xF0_0000_0000_0000;
    pmrs / with_pmrs = 0x0100_0000_0000_0000;
    cmbs / with_cmbs = 0x0200_0000_0000_0000;
    nsss / with_nsss = 0x0400_0000_0000_0000;
    crms / with_crms = 0x1800_0000_0000_0000;
    nsses / with_nsses = 0x2000_0000_0000_0000;
}

field_properties! {
    vs_fields, u32, Vs::from_bits;
    tertiary / with_tertiary = 0xFF;
    minor / with_minor = 0xFF00;
    major / with_major = 0xFFFF_0000;
}

field_properties! {
    cc_fields, u32, Cc::from_bits;
    en / with_en = 0x1;
    css / with_css = 0x70;
    mps / with_mps = 0x780;
    ams / with_ams = 0x3800;
    shn / with_shn = 0xC000;
    iosqes / with_iosqes = 0xF_0000;
    iocqes / with_iocqes = 0xF0_0000;
    crime / with_crime = 0x100_0000;
}

field_properties! {
    csts_fields, u32, Csts::from_bits;
    rdy / with_rdy = 0x1;
    cfs / with_cfs = 0x2;
    shst / with_shst = 0xC;
    nssro / with_nssro = 0x10;
    pp / with_pp = 0x20;
    st / with_st = 0x40;
}

field_properties! {
    aqa_fields, u32, Aqa::from_bits;
    asqs / with_asqs = 0xFFF;
    acqs / with_acqs = 0xFFF_0000;
}

field_properties! {
    crto_fields, u32, Crto::from_bits;
    crwmt / with_crwmt = 0xFFFF;
    crimt / with_crimt = 0xFFFF_0000;
}

field_properties! {
    cmbloc_fields, u32, Cmbloc::from_bits;
    bir / with_bir = 0x7;
    cqmms / with_cqmms = 0x8;
    cqpds / with_cqpds = 0x10;
    cdpmls / with_cdpmls = 0x20;
    cdpcils / with_cdpcils = 0x40;
    cdmmms / with_cdmmms = 0x80;
    cqda / with_cqda = 0x100;
    ofst / with_ofst = 0xFFFF_F000;
}

field_properties! {
    cmbsz_fields, u32, Cmbsz::from_bits;
    sqs / with_sqs = 0x1;
    cqs / with_cqs = 0x2;
    lists / with_lists = 0x4;
    rds / with_rds = 0x8;
    wds / with_wds = 0x10;
    szu / with_szu = 0xF00;
    sz / with_sz = 0xFFFF_F000;
}
