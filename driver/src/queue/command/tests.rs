//! Each argument of a command, right and wrong.

use proptest::prelude::*;

use super::*;
use crate::dma::Iova;
use crate::queue::{ControllerLimits, OptionalCommands};
use crate::spec::identify::{Dps, IdentifyController, IdentifyControllerNvm, IdentifyNamespace, LbaFormat};
use crate::spec::registers::Cap;

const EVERYTHING: Oncs = Oncs::all();

/// 1,000 blocks of 4,096 bytes, MDTS 128 KiB.
fn limits(ms: u16, extended: bool, pit: u8) -> Limits {
    limits_with(ms, extended, pit, EVERYTHING, &IdentifyControllerNvm::default())
}

fn limits_with(ms: u16, extended: bool, pit: u8, oncs: Oncs, nvm: &IdentifyControllerNvm) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let controller = IdentifyController { oncs, ..IdentifyController::default() };
    let optional = OptionalCommands::of(cap, &controller, Some(nvm));
    let controller = ControllerLimits { optional, ..ControllerLimits::new(cap, 4096, 5).unwrap() };
    let mut namespace = IdentifyNamespace { nsze: 1000, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms, lbads: 12, rp: 0 };
    namespace.flbas = namespace.flbas.with_metadata_extended(extended);
    namespace.dps = Dps::from_bits(0).with_pit(pit);
    controller.namespace(&namespace).unwrap()
}

fn extent(iova: u64, len: u64) -> Extent {
    Extent { iova: Iova::new(iova).unwrap(), len }
}

#[test]
fn a_write_as_it_lies_in_the_queue() {
    let data = [extent(0x1_0000, 2 * 4096)];
    let protection = Protection::checked(ProtectionType::Type1, 0x7).with_application_tag(0xabcd, 0x00ff);
    let command = IoCommand::write(7, 2, &data)
        .with_metadata(extent(0x9_0004, 16))
        .with_protection(protection)
        .with_fua()
        .with_limited_retry();
    let sqe = command.sqe(5, &limits(8, false, 1)).unwrap();
    assert_eq!((sqe.opcode, sqe.nsid, sqe.slba(), sqe.nlb().count(), sqe.mptr), (1, 5, 7, 2, 0x9_0004));
    assert_eq!(sqe.cdw12, 0xC000_0001 | 0b0111 << 26);
    assert_eq!((sqe.cdw14, sqe.cdw15), (7, 0x00ff_abcd));
}

#[test]
fn commands_without_data() {
    let limits = limits(0, false, 0);
    let sqe = |command: IoCommand<'_>| command.sqe(1, &limits).unwrap();
    assert_eq!(sqe(IoCommand::flush()), Sqe::flush(1));
    assert_eq!(sqe(IoCommand::verify(3, 4)).nvm_opcode(), NvmOpcode::VERIFY);
    let zeroes = sqe(IoCommand::write_zeroes(3, 997, true));
    assert_eq!((zeroes.nvm_opcode(), zeroes.deac(), zeroes.nlb().count()), (NvmOpcode::WRITE_ZEROES, true, 997));
    assert!(!sqe(IoCommand::write_zeroes(3, 4, false)).deac());
}

/// Field failures 19 and 23: which argument, its value, what it should be.
#[test]
fn each_wrong_argument_is_named() {
    let plain = limits(0, false, 0);
    let say = |command: IoCommand<'_>, limits: &Limits| command.sqe(1, limits).unwrap_err().to_string();
    let block = [extent(0x1_0000, 4096)];
    assert_eq!(say(IoCommand::read(0, 0, &[]), &plain), "nlb is 0: a command concerns 1 block or more");
    assert_eq!(
        say(IoCommand::read(0, 33, &block), &plain),
        "nlb is 33: this command may concern 32 blocks at the most"
    );
    assert_eq!(
        say(IoCommand::read(999, 2, &block), &plain),
        "slba 999 and nlb 2 end beyond the namespace, which has 1000 blocks"
    );
    assert!(IoCommand::read(999, 1, &block).sqe(1, &plain).is_ok());
    assert!(matches!(IoCommand::read(u64::MAX, 1, &block).sqe(1, &plain), Err(IoError::OutOfRange { .. })));
    let odd = [extent(0x1_0000, 4000), extent(0x2_0000, 95)];
    assert_eq!(
        say(IoCommand::read(0, 1, &odd), &plain),
        "the data's extents have 4095 bytes: 1 blocks of 4096 bytes are 4096"
    );
    let endless = [extent(0x1_0000, u64::MAX), extent(0x2_0000, 4097)];
    assert!(matches!(IoCommand::read(0, 1, &endless).sqe(1, &plain), Err(IoError::DataLength { bytes: u64::MAX, .. })));
    assert!(matches!(IoCommand::verify(0, 1).with_metadata(block[0]).sqe(1, &plain), Err(IoError::MetadataUnexpected)));
    assert_eq!(
        say(IoCommand::read(0, 1, &block).with_protection(Protection::checked(ProtectionType::Type2, 0)), &plain),
        "prinfo is ProtectionInformation(PRCHK_REFERENCE_TAG | PRCHK_GUARD): the namespace has no protection \
         information, it must be empty"
    );
}

#[test]
fn metadata_in_its_own_buffer_and_between_the_blocks() {
    let data = [extent(0x1_0000, 2 * 4096)];
    let separate = limits(16, false, 0);
    let with = |iova, len| IoCommand::write(0, 2, &data).with_metadata(extent(iova, len)).sqe(1, &separate);
    assert_eq!(with(0x9_0000, 32).unwrap().mptr, 0x9_0000);
    assert_eq!(with(0x9_0000, 31), Err(IoError::MetadataLength { bytes: 31, nlb: 2, expected: 32 }));
    assert_eq!(with(0x9_0002, 32), Err(IoError::MetadataAddress { iova: 0x9_0002 }));
    assert_eq!(with(u64::MAX - 15, 32), Err(IoError::MetadataAddress { iova: u64::MAX - 15 }));
    let none = IoCommand::write(0, 2, &data).sqe(1, &separate);
    assert_eq!(none, Err(IoError::MetadataLength { bytes: 0, nlb: 2, expected: 32 }));

    let extended = limits(16, true, 0);
    assert_eq!(
        IoCommand::write(0, 2, &data).sqe(1, &extended),
        Err(IoError::DataLength { bytes: 8192, nlb: 2, block: 4112, expected: 8224 })
    );
    let longer = [extent(0x1_0000, 2 * 4112)];
    assert_eq!(IoCommand::write(0, 2, &longer).sqe(1, &extended).unwrap().mptr, 0);
    assert_eq!(
        IoCommand::write(0, 2, &longer).with_metadata(extent(0x9_0000, 32)).sqe(1, &extended),
        Err(IoError::MetadataUnexpected)
    );
}

/// NVM Command Set 1.1, 5.3.2: with PRACT the host sees no metadata where all of it is protection information, and all
/// of it where there is more.
#[test]
fn protection_that_the_controller_inserts_and_strips() {
    let action = Protection::checked(ProtectionType::Type2, 0).generated();
    for extended in [false, true] {
        let only = limits(8, extended, 2);
        let data = [extent(0x1_0000, 4096)];
        let sqe = IoCommand::read(0, 1, &data).with_protection(action).sqe(1, &only).unwrap();
        assert_eq!((sqe.mptr, sqe.prinfo().raw()), (0, 0b1101));
        assert!(IoCommand::read(0, 1, &data).sqe(1, &only).is_err(), "without PRACT it is transferred");
        let more = limits(16, extended, 2);
        let error = IoCommand::read(0, 1, &data).with_protection(action).sqe(1, &more).unwrap_err();
        assert!(matches!(error, IoError::DataLength { .. } | IoError::MetadataLength { .. }), "{error}");
    }
}

#[test]
fn tags_that_a_type_does_not_have() {
    let data = [extent(0x1_0000, 4096)];
    let metadata = extent(0x9_0000, 8);
    let with = |pit, protection| {
        let command = IoCommand::read(9, 1, &data).with_metadata(metadata).with_protection(protection);
        command.sqe(1, &limits(8, false, pit)).map(|sqe| sqe.ilbrt())
    };
    let tagged = |ilbrt| Protection { ilbrt, ..Protection::checked(ProtectionType::Type1, 0) };
    assert_eq!(with(1, tagged(9)), Ok(9));
    assert_eq!(with(1, tagged(8)), Err(IoError::ReferenceTag { ilbrt: 8, expected: 9 }));
    assert_eq!(with(2, tagged(8)), Ok(8));
    assert_eq!(with(3, tagged(9)), Err(IoError::ReferenceCheck));
    assert_eq!(with(3, Protection::checked(ProtectionType::Type3, 9)), Ok(9));
    let unchecked = Protection { ilbrt: 8, ..Protection::default() };
    assert_eq!(with(1, unchecked), Ok(8), "what nobody checks may be anything");
    let action = Protection { prinfo: ProtectionInformation::PRACT, ..unchecked };
    let command = IoCommand::write(9, 1, &data).with_protection(action);
    assert_eq!(command.sqe(1, &limits(8, false, 1)), Err(IoError::ReferenceTag { ilbrt: 8, expected: 9 }));
    let verify = IoCommand::verify(9, 1).with_protection(tagged(9).generated());
    assert_eq!(verify.sqe(1, &limits(8, false, 1)), Err(IoError::VerifyAction));
}

#[test]
fn commands_that_the_controller_does_not_have_or_limits() {
    let block = [extent(0x1_0000, 4096)];
    let nothing = limits_with(0, false, 0, Oncs::empty(), &IdentifyControllerNvm::default());
    for command in [IoCommand::compare(0, 1, &block), IoCommand::verify(0, 1), IoCommand::write_zeroes(0, 1, true)] {
        assert!(matches!(command.sqe(1, &nothing), Err(IoError::Unsupported { .. })));
    }
    assert!(IoCommand::read(0, 1, &block).sqe(1, &nothing).is_ok());
    assert!(IoCommand::flush().sqe(1, &nothing).is_ok(), "Flush is not optional");

    let nvm = IdentifyControllerNvm { vsl: 1, wzsl: 2, wzdsl: 3, ..IdentifyControllerNvm::default() };
    let limited = limits_with(0, false, 0, EVERYTHING, &nvm);
    for (command, max) in [
        (IoCommand::verify(0, 999), 2),
        (IoCommand::write_zeroes(0, 999, false), 4),
        (IoCommand::write_zeroes(0, 999, true), 8),
    ] {
        assert_eq!(command.sqe(1, &limited), Err(IoError::TooManyBlocks { nlb: 999, max }));
    }
}

proptest! {
    /// What passes the check is what the device will find: blocks that exist, and as many bytes as they have.
    #[test]
    fn what_is_accepted_fits(
        slba in prop_oneof![0u64..1100, any::<u64>()], nlb in prop_oneof![0u32..40, any::<u32>()],
        ms in prop::sample::select(vec![0u16, 8, 16, 64]), extended: bool, pit in 0u8..4, pract: bool,
        data_blocks in 0u64..40, metadata_blocks in prop::option::of(0u64..40),
    ) {
        prop_assume!(pit == 0 || ms > 0);
        let limits = limits(ms, extended, pit);
        let in_memory = 4096 + if extended && !(pract && pit > 0 && ms == 8) { u64::from(ms) } else { 0 };
        let data = [extent(0x10_0000, (data_blocks * in_memory).max(1))];
        let mut command = IoCommand::write(slba, nlb, &data);
        if let Some(blocks) = metadata_blocks {
            command = command.with_metadata(extent(0x90_0000, blocks * u64::from(ms)));
        }
        if pract {
            command = command.with_protection(Protection {
                prinfo: ProtectionInformation::PRACT, ilbrt: slba as u32, ..Protection::default()
            });
        }
        if let Ok(sqe) = command.sqe(1, &limits) {
            prop_assert!(u128::from(slba) + u128::from(nlb) <= 1000);
            prop_assert_eq!((u64::from(nlb), sqe.nlb().count()), (data_blocks, nlb));
            let through_mptr = !extended && ms > 0 && !(pract && pit > 0 && ms == 8);
            prop_assert_eq!(through_mptr, sqe.mptr != 0);
            prop_assert!(!through_mptr || metadata_blocks == Some(u64::from(nlb)));
            prop_assert!(!pract || pit > 0);
        }
    }
}
