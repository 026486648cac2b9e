use std::sync::{Arc, Mutex};

use super::*;
use crate::controller::ControllerConfig;
use crate::controller::puppet::{Answer, Puppet};
use crate::spec::command::{AdminOpcode, Cns};
use crate::spec::identify::{IdentifyController, LbaFormat};

fn everything() -> IdentifyController {
    IdentifyController {
        oacs: Oacs::FORMAT_NVM | Oacs::FIRMWARE | Oacs::DEVICE_SELF_TEST,
        fna: Fna::CRYPTOGRAPHIC_ERASE,
        sanicap: 7,
        frmw: 1 | 3 << 1,
        nn: 4,
        mdts: 5,
        ..IdentifyController::default()
    }
}

#[test]
fn an_abort_says_whether_it_did() {
    let puppet = Puppet::new(everything(), |sqe, _| {
        (sqe.admin_opcode() == AdminOpcode::ABORT).then(|| Answer::Result(u32::from(sqe.abort_cid() != 7)))
    });
    let mut controller = puppet.controller();
    assert!(controller.abort(3, 7).unwrap());
    assert!(!controller.abort(3, 8).unwrap());
    assert_eq!(puppet.fetched(AdminOpcode::ABORT)[0].abort_sqid(), 3);
}

#[test]
fn a_firmware_image_goes_over_in_whole_pieces() {
    for (fwug, piece, len) in
        [(0u8, 4096usize, 200_004u32), (0xFF, 4096, 4), (1, 4096, 50 * 4096), (16, 65536, 3 * 65536)]
    {
        let received = Arc::new(Mutex::new((Vec::new(), Vec::new())));
        let receive = Arc::clone(&received);
        let puppet = Puppet::new(IdentifyController { fwug, ..everything() }, move |sqe, data| {
            if sqe.admin_opcode() != AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD {
                return None;
            }
            let mut received = receive.lock().unwrap();
            assert_eq!(sqe.firmware_ofst() as usize * 4, received.0.len());
            received.0.extend_from_slice(data);
            received.1.push(data.len());
            Some(Answer::Result(0))
        });
        let image: Vec<u8> = (0..len).map(|index| (index * 7 % 251) as u8).collect();
        puppet.controller().download_firmware(&image).unwrap();
        let received = received.lock().unwrap();
        assert!(received.0 == image, "the image, whole and in order");
        let (last, whole) = received.1.split_last().unwrap();
        assert!(whole.iter().all(|len| *len == piece), "FWUG {fwug}");
        assert_eq!(*last, (image.len() - 1) % piece + 1, "FWUG {fwug}");
    }
}

#[test]
fn firmware_arguments_that_are_wrong() {
    let puppet = Puppet::new(everything(), |_, _| None);
    let mut controller = puppet.controller();
    for len in [0, 1, 4095] {
        let error = controller.download_firmware(&vec![0; len]).unwrap_err();
        assert!(matches!(error, ControllerError::Argument { value, .. } if value == len as u64), "{error}");
    }
    let granular = IdentifyController { fwug: 1, ..everything() };
    let error = Puppet::new(granular, |_, _| None).controller().download_firmware(&[0; 4100]).unwrap_err();
    assert!(matches!(error, ControllerError::Argument { value: 4100, .. }), "{error}");
    let error = controller.commit_firmware(4, CommitAction::REPLACE).unwrap_err().to_string();
    assert_eq!(error, "slot is 0x4: the controller does not have that slot (FRMW)");
    let error = controller.commit_firmware(1, CommitAction::REPLACE).unwrap_err().to_string();
    assert_eq!(error, "slot is 0x1: slot 1 is read only (FRMW)");
    assert_eq!(puppet.fetched(AdminOpcode::FIRMWARE_COMMIT).len(), 0);
    let mut large = Puppet::new(IdentifyController { fwug: 200, ..everything() }, |_, _| None).controller();
    assert!(matches!(
        large.download_firmware(&vec![0; 200 << 12]),
        Err(ControllerError::Page { field: "FWUG", value: 200, .. })
    ));
    let mut none = Puppet::new(IdentifyController::default(), |_, _| None).controller();
    assert!(matches!(none.download_firmware(&[0; 4]), Err(ControllerError::NotSupported { field: "OACS", .. })));
    let commit = none.commit_firmware(0, CommitAction::REPLACE);
    assert!(matches!(commit, Err(ControllerError::NotSupported { field: "OACS", .. })));
}

#[test]
fn an_activation_that_needs_a_reset_is_no_error() {
    for (answer, activation) in [
        (None, Some(FirmwareActivation::AsAsked)),
        (
            Some(StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONVENTIONAL_RESET),
            Some(FirmwareActivation::AtConventionalReset),
        ),
        (
            Some(StatusCode::FIRMWARE_ACTIVATION_REQUIRES_NVM_SUBSYSTEM_RESET),
            Some(FirmwareActivation::AtSubsystemReset),
        ),
        (
            Some(StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET),
            Some(FirmwareActivation::AtControllerReset),
        ),
        (Some(StatusCode::INVALID_FIRMWARE_IMAGE), None),
    ] {
        let puppet = Puppet::new(everything(), move |sqe, _| {
            (sqe.admin_opcode() == AdminOpcode::FIRMWARE_COMMIT)
                .then(|| answer.map_or(Answer::Result(0), Answer::Status))
        });
        let said = puppet.controller().commit_firmware(2, CommitAction::ACTIVATE_IMMEDIATELY);
        assert_eq!(said.ok(), activation, "{answer:?}");
        let sqe = puppet.fetched(AdminOpcode::FIRMWARE_COMMIT)[0];
        assert_eq!((sqe.fs(), sqe.ca()), (2, CommitAction::ACTIVATE_IMMEDIATELY));
    }
}

fn formats() -> IdentifyNamespace {
    let mut namespace = IdentifyNamespace {
        nsze: 64,
        nlbaf: ZeroesBased::<u8>::from_raw(2),
        mc: 0b01,
        dpc: 0b1_0001,
        ..Default::default()
    };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads: 12, rp: 0 };
    namespace.lbaf[1] = LbaFormat { ms: 8, lbads: 12, rp: 0 };
    namespace.lbaf[2] = LbaFormat { ms: 4, lbads: 12, rp: 0 };
    namespace
}

const PLAIN: FormatSettings = FormatSettings {
    format: 0,
    metadata: MetadataPlacement::Separate,
    protection: None,
    secure_erase: SecureEraseSettings::NONE,
};

#[test]
fn a_format_is_checked_against_what_the_namespace_has() {
    let namespace = formats();
    let say = |settings: FormatSettings| match check_format(&namespace, &settings) {
        Ok(()) => "fine".to_owned(),
        Err(error) => error.to_string(),
    };
    let last = |kind| Some(ProtectionFormat { kind, first: false });
    let extended = FormatSettings { metadata: MetadataPlacement::Extended, format: 1, ..PLAIN };
    assert_eq!(say(PLAIN), "fine");
    assert_eq!(say(extended), "fine");
    assert_eq!(say(FormatSettings { protection: last(ProtectionType::Type1), ..extended }), "fine");
    for (settings, error) in [
        (
            FormatSettings { format: 3, ..PLAIN },
            "format is 0x3: the namespace does not have that LBA format (NLBAF, LBADS)",
        ),
        (
            FormatSettings { format: 255, ..PLAIN },
            "format is 0xff: the namespace does not have that LBA format (NLBAF, LBADS)",
        ),
        (
            FormatSettings { format: 1, ..PLAIN },
            "metadata is 0x1: the namespace does not have metadata in that place (MC)",
        ),
        (
            FormatSettings { protection: last(ProtectionType::Type2), ..extended },
            "protection is 0x2: the namespace does not have that type of protection (DPC)",
        ),
        (
            FormatSettings {
                protection: Some(ProtectionFormat { kind: ProtectionType::Type1, first: true }),
                ..extended
            },
            "protection.first is 0x1: the namespace does not have protection information there (DPC)",
        ),
        (
            FormatSettings { protection: last(ProtectionType::Type1), format: 2, ..extended },
            "format is 0x2: protection information needs 8 bytes of metadata, and it has fewer",
        ),
    ] {
        assert_eq!(say(settings), error);
    }
}

#[test]
fn a_formatted_namespace_is_looked_at_anew() {
    let formatted = Arc::new(Mutex::new(false));
    let format = Arc::clone(&formatted);
    let puppet = Puppet::new(everything(), move |sqe, _| match (sqe.admin_opcode(), sqe.cns()) {
        (AdminOpcode::IDENTIFY, Cns::NAMESPACE) => {
            let mut namespace = formats();
            if *format.lock().unwrap() {
                namespace.flbas = namespace.flbas.with_fidxl(1).with_metadata_extended(true);
            }
            Answer::page(&namespace)
        }
        (AdminOpcode::FORMAT_NVM, _) => {
            *format.lock().unwrap() = true;
            Some(Answer::Result(0))
        }
        _ => None,
    });
    let mut controller = puppet.controller();
    let before = controller.rescan(2).unwrap().unwrap();
    assert!(before.limits.unwrap().metadata().is_none());
    let settings = FormatSettings {
        format: 1,
        metadata: MetadataPlacement::Extended,
        protection: Some(ProtectionFormat { kind: ProtectionType::Type1, first: false }),
        secure_erase: SecureEraseSettings::CRYPTOGRAPHIC,
    };
    let after = controller.format_nvm(&before, settings, Duration::from_secs(60)).unwrap().unwrap();
    assert_eq!(after.limits.unwrap().metadata().unwrap().size, 8);
    let sqe = puppet.fetched(AdminOpcode::FORMAT_NVM)[0];
    assert_eq!((sqe.nsid, sqe.cdw10), (2, 1 | 1 << 4 | 1 << 5 | 2 << 9));

    let mut without = Puppet::new(IdentifyController { fna: Fna::empty(), ..everything() }, |_, _| None).controller();
    let refused = without.format_nvm(&before, settings, Duration::ZERO);
    assert!(matches!(refused, Err(ControllerError::NotSupported { field: "FNA", .. })));
}

#[test]
fn a_sanitize_has_what_it_needs_and_says_it() {
    let puppet =
        Puppet::new(everything(), |sqe, _| (sqe.admin_opcode() == AdminOpcode::SANITIZE).then_some(Answer::Result(0)));
    let mut controller = puppet.controller();
    let overwrite = SanitizeSettings {
        passes: 16,
        pattern: 0xDEAD_BEEF,
        invert: true,
        ause: true,
        ..SanitizeSettings::new(SanitizeAction::OVERWRITE)
    };
    controller.sanitize(overwrite).unwrap();
    controller.sanitize(SanitizeSettings::new(SanitizeAction::BLOCK_ERASE)).unwrap();
    let said: Vec<_> = puppet.fetched(AdminOpcode::SANITIZE).iter().map(|sqe| (sqe.cdw10, sqe.cdw11)).collect();
    assert_eq!(said, [(3 | 1 << 3 | 1 << 8, 0xDEAD_BEEF), (2, 0)]);
    for passes in [0, 17] {
        let error = controller.sanitize(SanitizeSettings { passes, ..overwrite }).unwrap_err();
        assert!(matches!(error, ControllerError::Argument { argument: "passes", .. }), "{error}");
    }
    for (sanicap, action) in [
        (6, SanitizeAction::CRYPTO_ERASE),
        (5, SanitizeAction::BLOCK_ERASE),
        (3, SanitizeAction::OVERWRITE),
        (0, SanitizeAction::EXIT_FAILURE_MODE),
    ] {
        let mut controller = Puppet::new(IdentifyController { sanicap, ..everything() }, |_, _| None).controller();
        let refused = controller.sanitize(SanitizeSettings::new(action));
        assert!(matches!(refused, Err(ControllerError::NotSupported { field: "SANICAP", .. })), "{action}");
    }
}

#[test]
fn a_self_test_of_namespaces_that_can_be() {
    let puppet = Puppet::new(everything(), |sqe, _| {
        (sqe.admin_opcode() == AdminOpcode::DEVICE_SELF_TEST).then_some(Answer::Result(0))
    });
    let mut controller = puppet.enable(ControllerConfig::default()).unwrap();
    for nsid in [0, 4, NSID_ALL] {
        controller.device_self_test(nsid, SelfTestCode::SHORT).unwrap();
    }
    let error = controller.device_self_test(5, SelfTestCode::SHORT).unwrap_err().to_string();
    assert_eq!(error, "nsid is 0x5: the controller has no such namespace (NN)");
    assert_eq!(puppet.fetched(AdminOpcode::DEVICE_SELF_TEST).len(), 3);
}

/// MTFA can be hours, and a controller that says so may never end.
#[test]
fn activation_is_waited_for_no_longer_than_is_configured() {
    let puppet = Puppet::new(IdentifyController { mtfa: 20, ..everything() }, |sqe, _| {
        (sqe.admin_opcode() == AdminOpcode::FIRMWARE_COMMIT).then_some(Answer::Hold)
    });
    let (admin_timeout, longest_wait) = (Duration::from_millis(20), Duration::from_millis(30));
    let config = ControllerConfig { admin_timeout, longest_wait, ..ControllerConfig::default() };
    let outcome = puppet.enable(config).unwrap().commit_firmware(2, CommitAction::ACTIVATE_IMMEDIATELY);
    let Err(ControllerError::Timeout { limit, .. }) = outcome else { panic!("{outcome:?}") };
    assert_eq!(limit, admin_timeout + longest_wait);
}
