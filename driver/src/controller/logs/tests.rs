use super::*;
use crate::controller::puppet::{Answer, Puppet};
use crate::spec::command::AdminOpcode;
use crate::spec::identify::IdentifyController;

fn entries(sqe: &Sqe, valid: u64) -> Option<Answer> {
    if sqe.lid() != LogPageIdentifier::ERROR_INFORMATION || sqe.admin_opcode() != AdminOpcode::GET_LOG_PAGE {
        return None;
    }
    let first = sqe.lpo() / 64;
    let bytes = sqe.numd().count() as usize * 4;
    let mut page = vec![0; bytes];
    for (index, entry) in page.chunks_mut(64).enumerate() {
        let number = first + index as u64;
        if number < valid {
            entry[..8].copy_from_slice(&(1000 - number).to_le_bytes());
        }
    }
    Some(Answer::Data(page))
}

#[test]
fn error_entries_piece_by_piece() {
    let identify =
        |lpa| IdentifyController { elpe: ZeroesBased::<u8>::from_raw(199), lpa, ..IdentifyController::default() };
    let mut controller = Puppet::new(identify(Lpa::EXTENDED_DATA), |sqe, _| entries(sqe, 150)).controller();
    let log = controller.error_log(usize::MAX).unwrap();
    assert_eq!(log.len(), 150);
    assert!(log.iter().enumerate().all(|(index, entry)| entry.error_count == 1000 - index as u64));
    assert_eq!(controller.error_log(65).unwrap().len(), 65);
    assert_eq!(controller.error_log(0).unwrap(), []);
    let mut plain = Puppet::new(identify(Lpa::empty()), |sqe, _| entries(sqe, 150)).controller();
    assert_eq!(plain.error_log(usize::MAX).unwrap().len(), 64, "without offsets there is one page");
    let mut empty = Puppet::new(identify(Lpa::empty()), |sqe, _| entries(sqe, 0)).controller();
    assert_eq!(empty.error_log(9).unwrap(), []);
}

#[test]
fn pages_that_say_what_cannot_be() {
    let identify = IdentifyController { oacs: Oacs::DEVICE_SELF_TEST, ..IdentifyController::default() };
    let pages = |afi, completion| {
        move |sqe: &Sqe, _: &[u8]| match (sqe.admin_opcode(), sqe.lid()) {
            (AdminOpcode::GET_LOG_PAGE, LogPageIdentifier::FIRMWARE_SLOT_INFORMATION) => {
                Answer::page(&FirmwareSlotLog { afi, ..FirmwareSlotLog::default() })
            }
            (AdminOpcode::GET_LOG_PAGE, LogPageIdentifier::DEVICE_SELF_TEST) => {
                Answer::page(&DeviceSelfTestLog { completion, ..DeviceSelfTestLog::default() })
            }
            _ => None,
        }
    };
    let mut good = Puppet::new(identify.clone(), pages(0x21, 100)).controller();
    assert_eq!(good.firmware_slot_log().unwrap().active_slot(), 1);
    assert_eq!(good.device_self_test_log().unwrap().completion, 100);
    let mut bad = Puppet::new(identify, pages(0x20, 101)).controller();
    let error = bad.firmware_slot_log().unwrap_err().to_string();
    assert_eq!(error, "Firmware Slot Information: the active slot is 0x0: a slot is 1 to 7");
    let error = bad.device_self_test_log().unwrap_err().to_string();
    assert_eq!(error, "Device Self-test: the current completion is 0x65: it is in percent, 0 to 100");
}

#[test]
fn pages_that_the_controller_does_not_have() {
    let mut controller = Puppet::new(IdentifyController::default(), |_, _| None).controller();
    let errors = [
        controller.commands_supported_and_effects().unwrap_err(),
        controller.device_self_test_log().unwrap_err(),
        controller.sanitize_status().unwrap_err(),
    ];
    let fields = errors.map(|error| match error {
        ControllerError::NotSupported { field, .. } => field,
        other => panic!("{other}"),
    });
    assert_eq!(fields, ["LPA", "OACS", "SANICAP"]);
}
