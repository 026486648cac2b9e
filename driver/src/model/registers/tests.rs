use super::*;

fn registers() -> Registers {
    Registers::new(&ModelConfig { ready_delay: 3, shutdown_delay: 2, mpsmin: 0, mpsmax: 4, ..ModelConfig::default() })
}

/// AQA, ASQ and ACQ as a host sets them up.
fn with_queues() -> Registers {
    let mut registers = registers();
    for (offset, value) in [(offset::AQA, 0x000F_001F), (offset::ASQ, 0x10_0000), (offset::ACQ, 0x20_0000)] {
        registers.write(offset, value).unwrap();
    }
    registers
}

fn enabled() -> Registers {
    let mut registers = with_queues();
    registers.write(offset::CC, 1).unwrap();
    while registers.unsettled() {
        registers.tick();
    }
    assert!(csts(&registers).rdy());
    registers
}

fn csts(registers: &Registers) -> Csts {
    Csts::from_bits(registers.read(offset::CSTS))
}

/// Turns until nothing is left to do, and what they told the executor.
fn settle(registers: &mut Registers) -> (usize, Vec<Transition>) {
    let (mut turns, mut told) = (0, Vec::new());
    while registers.unsettled() {
        told.extend(registers.tick());
        turns += 1;
        assert!(turns < 100);
    }
    (turns, told)
}

#[test]
fn capabilities_are_as_configured_and_cannot_be_written() {
    let config = ModelConfig { mqes: 255, to: 7, dstrd: 2, mpsmin: 1, mpsmax: 3, ..ModelConfig::default() };
    let mut registers = Registers::new(&config);
    for offset in [offset::CAP, CAP_HIGH, offset::VS, offset::CSTS, offset::CRTO] {
        let before = registers.read(offset);
        registers.write(offset, !before).unwrap();
        assert_eq!(registers.read(offset), before, "{offset:#x}");
    }
    let cap = Cap::from_bits(u64::from(registers.read(CAP_HIGH)) << 32 | u64::from(registers.read(offset::CAP)));
    assert_eq!((cap.mqes().count(), cap.to(), cap.dstrd(), cap.mpsmin(), cap.mpsmax()), (256, 7, 2, 1, 3));
    assert!(cap.cqr() && !cap.nssrs());
    assert_eq!(cap.css(), CommandSets::NVM);
    assert_eq!(cap.crms(), ReadyModes::WITH_MEDIA);
    assert_eq!(Crto::from_bits(registers.read(offset::CRTO)).crwmt(), 7);
    assert_eq!(registers.read(offset::VS), 0x0002_0100);
}

#[test]
fn what_is_not_there_reads_as_zero() {
    let mut registers = registers();
    for offset in [offset::NSSR, offset::CMBLOC, offset::CMBSZ, offset::BPINFO, offset::PMRCAP, 0x18, 0xFFC] {
        registers.write(offset, 0x4E56_4D65).unwrap();
        assert_eq!(registers.read(offset), 0, "{offset:#x}");
    }
    assert!(!registers.unsettled(), "there is no NVM subsystem reset");
}

#[test]
fn the_interrupt_mask_is_set_and_cleared_by_bits() {
    let mut registers = registers();
    registers.write(offset::INTMS, 0b1011).unwrap();
    registers.write(offset::INTMC, 0b0010).unwrap();
    assert_eq!((registers.read(offset::INTMS), registers.read(offset::INTMC)), (0b1001, 0b1001));
}

#[test]
fn admin_queue_registers_keep_what_is_written_without_reserved_bits() {
    let mut registers = registers();
    for offset in [offset::AQA, offset::ASQ, ASQ_HIGH, offset::ACQ, ACQ_HIGH] {
        registers.write(offset, u32::MAX).unwrap();
    }
    assert_eq!(registers.read(offset::AQA), 0x0FFF_0FFF);
    assert_eq!(registers.read(offset::ASQ), 0xFFFF_F000);
    assert_eq!(registers.read(ASQ_HIGH), u32::MAX);
    assert_eq!(registers.read(offset::ACQ), 0xFFFF_F000);
    assert_eq!(registers.read(ACQ_HIGH), u32::MAX);
}

#[test]
fn ready_follows_enable_after_the_delay() {
    let mut registers = with_queues();
    registers.write(offset::CC, 1).unwrap();
    for _ in 0..3 {
        assert_eq!(registers.tick(), None);
        assert!(!csts(&registers).rdy());
    }
    let queues = AdminQueues { asq: 0x10_0000, asqs: 32, acq: 0x20_0000, acqs: 16, page_size: 4096 };
    assert_eq!(registers.tick(), Some(Transition::Start(queues)));
    assert!(csts(&registers).rdy() && !registers.unsettled());
}

#[test]
fn disabling_stops_at_once_and_ready_follows_after_the_delay() {
    let mut registers = enabled();
    registers.write(offset::INTMS, 5).unwrap();
    registers.write(offset::CC, 0).unwrap();
    assert_eq!(registers.tick(), Some(Transition::Stop), "all queues are gone while RDY is still 1");
    assert!(csts(&registers).rdy());
    let (turns, told) = settle(&mut registers);
    assert_eq!((turns, told), (4, vec![]));
    assert_eq!(csts(&registers), Csts::default());
    assert_eq!(registers.read(offset::INTMS), 0, "reset");
    assert_eq!(registers.read(offset::AQA), 0x000F_001F, "kept over a reset");
    assert_eq!((registers.read(offset::ASQ), registers.read(offset::ACQ)), (0x10_0000, 0x20_0000), "kept as well");
}

#[test]
fn a_disable_before_ready_takes_the_enable_back() {
    let mut registers = with_queues();
    registers.write(offset::CC, 1).unwrap();
    registers.tick();
    registers.write(offset::CC, 0).unwrap();
    assert_eq!(settle(&mut registers), (0, vec![]));
    assert_eq!(csts(&registers), Csts::default());
}

#[test]
fn enabling_while_ready_is_a_violation_and_takes_effect_later() {
    let mut registers = enabled();
    registers.write(offset::CC, 0).unwrap();
    assert_eq!(registers.write(offset::CC, 1), Err(Violation::EnabledWhileReady));
    let (_, told) = settle(&mut registers);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(matches!(told[..], [Transition::Stop, Transition::Start(_)]));
    assert!(csts(&registers).rdy());
}

#[test]
fn unusable_values_are_fatal_until_the_next_reset() {
    let unusable = |prepare: fn(&mut Registers), cc: u32| {
        let mut registers = with_queues();
        prepare(&mut registers);
        let verdict = registers.write(offset::CC, cc);
        assert!(matches!(verdict, Err(Violation::UnusableConfiguration { .. })), "{cc:#x}: {verdict:?}");
        assert_eq!(settle(&mut registers), (0, vec![]));
        assert!(csts(&registers).cfs() && !csts(&registers).rdy());
        registers.write(offset::CC, 0).unwrap();
        assert_eq!(csts(&registers), Csts::default());
        verdict.unwrap_err().to_string()
    };
    let cc = Cc::default().with_en(true);
    assert!(unusable(|_| (), cc.with_mps(5).bits()).contains("CC.MPS must be CAP.MPSMIN to CAP.MPSMAX: 0x5"));
    assert!(unusable(|_| (), cc.with_css(CommandSetSelected::ALL_SUPPORTED).bits()).contains("CC.CSS"));
    assert!(unusable(|_| (), cc.with_ams(ArbitrationMechanism::VENDOR_SPECIFIC).bits()).contains("CC.AMS"));
    assert!(unusable(|r| r.write(offset::AQA, 0x000F_0000).unwrap(), cc.bits()).contains("2 entries"));
    assert!(unusable(|r| r.write(offset::AQA, 0x0000_000F).unwrap(), cc.bits()).contains("2 entries"));
    assert!(unusable(|r| r.write(offset::ASQ, 0).unwrap(), cc.bits()).contains("ASQ"));
    assert!(unusable(|r| r.write(offset::ACQ, 0x20_1000).unwrap(), cc.with_mps(1).bits()).contains("ACQ"));
}

#[test]
fn what_must_hold_still_while_enabled_does() {
    let mut registers = enabled();
    let sizes = cc_bits(&registers).with_iosqes(6).with_iocqes(4);
    assert_eq!(registers.write(offset::CC, sizes.bits()), Ok(()), "entry sizes count at queue creation");
    let written = sizes.with_mps(1).bits();
    assert_eq!(
        registers.write(offset::CC, written),
        Err(Violation::ConfigurationChanged { was: sizes.bits(), written })
    );
    assert_eq!(cc_bits(&registers), sizes);
    for offset in [offset::AQA, offset::ASQ, ASQ_HIGH, offset::ACQ, ACQ_HIGH] {
        let before = registers.read(offset);
        assert_eq!(registers.write(offset, 0x7000), Err(Violation::AdminQueueChanged { offset }));
        assert_eq!(registers.read(offset), before);
    }
}

#[test]
fn a_shutdown_is_seen_to_begin_and_to_end() {
    for kind in [ShutdownNotification::NORMAL, ShutdownNotification::ABRUPT] {
        let mut registers = enabled();
        let cc = cc_bits(&registers).with_shn(kind);
        registers.write(offset::CC, cc.bits()).unwrap();
        assert_eq!(csts(&registers).shst(), ShutdownStatus::IN_PROGRESS);
        assert_eq!(registers.tick(), None);
        registers.write(offset::CC, cc.bits()).unwrap();
        assert_eq!(settle(&mut registers), (2, vec![Transition::ShutDown]), "written again it does not begin again");
        assert_eq!(csts(&registers), Csts::default().with_rdy(true).with_shst(ShutdownStatus::COMPLETE));
        registers.write(offset::CC, 0).unwrap();
        settle(&mut registers);
        assert_eq!(csts(&registers), Csts::default(), "a reset ends it");
    }
}

#[test]
fn a_reset_in_the_middle_of_a_shutdown_ends_both() {
    let mut registers = enabled();
    registers.write(offset::CC, cc_bits(&registers).with_shn(ShutdownNotification::NORMAL).bits()).unwrap();
    registers.write(offset::CC, 0).unwrap();
    assert_eq!(settle(&mut registers).1, vec![Transition::Stop]);
    assert_eq!(csts(&registers), Csts::default());
}

#[test]
fn a_fatal_status_stays_until_the_next_reset() {
    let mut registers = enabled();
    registers.fail();
    assert!(csts(&registers).cfs() && csts(&registers).rdy());
    registers.write(offset::CC, 0).unwrap();
    settle(&mut registers);
    assert_eq!(csts(&registers), Csts::default());
}

fn cc_bits(registers: &Registers) -> Cc {
    Cc::from_bits(registers.read(offset::CC))
}
