//! Firmware Image Download and Firmware Commit.

use super::super::{ModelConfig, firmware_image};
use super::host::{Host, small};
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, CommitAction, FeatureIdentifier, LogPageIdentifier, Sqe};
use crate::spec::events::{AsynchronousEvent, AsynchronousEventConfiguration};
use crate::spec::identify::IdentifyController;
use crate::spec::log::FirmwareSlotLog;
use crate::spec::status::StatusCode;

/// Hands over one piece of 4 KiB, or of another length, at an offset in bytes.
fn download(host: &mut Host, bytes: &[u8], offset: usize) -> StatusCode {
    let numd = ZeroesBased::<u32>::from_count(bytes.len() as u64 / 4).unwrap();
    host.send(Sqe::firmware_image_download(numd, offset as u32 / 4), bytes)
}

fn whole(host: &mut Host, revision: &str) {
    let image = firmware_image(revision, 12 << 10);
    // Pieces may come in any order.
    for at in [8 << 10, 0, 4 << 10] {
        assert_eq!(download(host, &image[at..at + 4096], at), StatusCode::SUCCESS);
    }
}

fn runs(host: &mut Host) -> String {
    let controller: IdentifyController = host.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    controller.firmware_revision().into_owned()
}

/// The slot that runs, the one after a reset, and what is in slots 1 to 3.
fn slots(host: &mut Host) -> (u8, u8, [Option<String>; 3]) {
    let log: FirmwareSlotLog = host.log(LogPageIdentifier::FIRMWARE_SLOT_INFORMATION);
    let revision = |slot| log.revision(slot).map(|revision| revision.into_owned());
    (log.active_slot(), log.next_active_slot(), [1, 2, 3].map(revision))
}

fn text(revision: &str) -> Option<String> {
    Some(revision.to_owned())
}

#[test]
fn an_image_is_replaced_and_activated_at_a_reset_or_at_once() {
    let mut host = Host::new(small());
    assert_eq!(slots(&mut host), (1, 0, [text("1.0"), None, None]));
    whole(&mut host, "2.0");
    assert_eq!(host.code(Sqe::firmware_commit(2, CommitAction::REPLACE)), StatusCode::SUCCESS);
    assert_eq!(slots(&mut host), (1, 0, [text("1.0"), text("2.0"), None]));
    host.disable();
    host.enable();
    assert_eq!(runs(&mut host), "1.0", "it was not to be activated");
    assert_eq!(host.code(Sqe::firmware_commit(2, CommitAction::ACTIVATE_AT_RESET)), StatusCode::SUCCESS);
    assert_eq!((slots(&mut host).0, slots(&mut host).1), (1, 2));
    host.disable();
    host.enable();
    assert_eq!((runs(&mut host), slots(&mut host).0, slots(&mut host).1), ("2.0".to_owned(), 2, 0));

    whole(&mut host, "3.0");
    let commit = Sqe::firmware_commit(0, CommitAction::REPLACE_AND_ACTIVATE_AT_RESET);
    assert_eq!(host.code(commit), StatusCode::SUCCESS);
    assert_eq!(slots(&mut host), (2, 3, [text("1.0"), text("2.0"), text("3.0")]), "the free slot was chosen");
    host.disable();
    host.enable();
    assert_eq!(runs(&mut host), "3.0");

    let wanted = AsynchronousEventConfiguration::default().with_firmware_activation(true).bits();
    host.code(Sqe::set_features(FeatureIdentifier::ASYNCHRONOUS_EVENT_CONFIGURATION, 0, wanted));
    host.request_events(2);
    whole(&mut host, "2.1");
    activate(&mut host, 2);
    assert_eq!(runs(&mut host), "2.1");
    slots(&mut host);
    // Without a new image the one in the slot is taken.
    activate(&mut host, 1);
    assert_eq!(runs(&mut host), "1.0");
}

/// Activates a slot at once, which is told.
fn activate(host: &mut Host, slot: u8) {
    host.post(Sqe::firmware_commit(slot, CommitAction::ACTIVATE_IMMEDIATELY).with_cid(7));
    let ends: Vec<_> =
        host.completions().iter().map(|cqe| (cqe.cid == 7, cqe.dw0, cqe.status.status().code())).collect();
    let event = AsynchronousEvent::FIRMWARE_ACTIVATION_STARTING.bits();
    assert_eq!(ends, [(true, 0, StatusCode::SUCCESS), (false, event, StatusCode::SUCCESS)]);
}

#[test]
fn pieces_that_do_not_fit() {
    let mut host = Host::new(small());
    let image = firmware_image("2.0", 8 << 10);
    for (offset, len, code) in [
        (0, 512, StatusCode::INVALID_FIELD_IN_COMMAND),
        (512, 4096, StatusCode::INVALID_FIELD_IN_COMMAND),
        (1 << 30, 4096, StatusCode::INVALID_FIELD_IN_COMMAND),
        (4096, 4096, StatusCode::SUCCESS),
        (4096, 4096, StatusCode::OVERLAPPING_RANGE),
        (0, 8192, StatusCode::OVERLAPPING_RANGE),
        (0, 4096, StatusCode::SUCCESS),
    ] {
        assert_eq!(download(&mut host, &image[..len], offset), code, "{len} bytes at {offset}");
    }
    // More than MDTS.
    let mut host = Host::new(ModelConfig { mdts: 1, ..small() });
    let numd = ZeroesBased::<u32>::from_count(3 * 1024).unwrap();
    assert_eq!(host.code(Sqe::firmware_image_download(numd, 0)), StatusCode::INVALID_FIELD_IN_COMMAND);
}

#[test]
fn what_cannot_be_committed() {
    let mut host = Host::new(small());
    let commit = Sqe::firmware_commit;
    let bad = StatusCode::INVALID_FIRMWARE_IMAGE;
    host.expect([
        (commit(4, CommitAction::REPLACE), StatusCode::INVALID_FIRMWARE_SLOT),
        (commit(7, CommitAction::ACTIVATE_AT_RESET), StatusCode::INVALID_FIRMWARE_SLOT),
        (commit(1, CommitAction::REPLACE), StatusCode::INVALID_FIRMWARE_SLOT),
        (commit(2, CommitAction::REPLACE), bad),
        (commit(2, CommitAction::ACTIVATE_AT_RESET), bad),
        (commit(2, CommitAction::ACTIVATE_IMMEDIATELY), bad),
        (commit(2, CommitAction::from_raw(4)), StatusCode::INVALID_FIELD_IN_COMMAND),
        (commit(2, CommitAction::REPLACE_BOOT_PARTITION), StatusCode::INVALID_FIELD_IN_COMMAND),
    ]);
    let image = firmware_image("2.0", 12 << 10);
    // A hole in the middle.
    for at in [0, 8 << 10] {
        assert_eq!(download(&mut host, &image[at..at + 4096], at), StatusCode::SUCCESS);
    }
    assert_eq!(host.code(commit(2, CommitAction::REPLACE)), bad);
    // Something else than an image.
    assert_eq!(download(&mut host, &[0x5A; 4096], 0), StatusCode::SUCCESS);
    assert_eq!(host.code(commit(2, CommitAction::REPLACE)), bad);
    // What was downloaded before a reset.
    assert_eq!(download(&mut host, &image[..4096], 0), StatusCode::SUCCESS);
    host.disable();
    host.enable();
    assert_eq!(host.code(commit(2, CommitAction::REPLACE)), bad);
    assert_eq!(slots(&mut host), (1, 0, [text("1.0"), None, None]));
}
