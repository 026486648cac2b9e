//! Format NVM, Sanitize, Device Self-test: what they do, what is refused meanwhile, and how they end.

use super::super::{ModelConfig, StoreConfig};
use super::host::{Host, count, small};
use crate::spec::command::{
    AdminOpcode, Cns, CommitAction, FeatureIdentifier, LogPageIdentifier, NSID_ALL, SanitizeAction,
    SecureEraseSettings, SelfTestCode, Sqe,
};
use crate::spec::events::AsynchronousEvent;
use crate::spec::identify::IdentifyNamespace;
use crate::spec::log::{DeviceSelfTestLog, SanitizeState, SanitizeStatusLog, SelfTestResultCode};
use crate::spec::status::StatusCode;

/// The longest that an operation here takes.
const LONG: usize = 64;

fn identify(host: &mut Host, nsid: u32) -> IdentifyNamespace {
    host.fetch(Sqe::identify(Cns::NAMESPACE, nsid)).unwrap()
}

#[test]
fn a_format_erases_and_changes_the_size_of_blocks() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.fill_blocks(&mut pair, 1, 7), StatusCode::SUCCESS);
    let before = identify(&mut host, 1);
    assert_eq!((before.format_count(), before.format_index(), before.nsze), (2, 0, 32768));
    assert_eq!(before.lbaf[1].data_size(), Some(4096));
    assert_eq!(host.code(Sqe::format_nvm(1, 1)), StatusCode::SUCCESS);
    let after = identify(&mut host, 1);
    assert_eq!((after.format_index(), after.nsze), (1, 4096));
    assert_eq!(after.current_lba_format().unwrap().data_size(), Some(4096));
    let data = host.memory(4096);
    data.view().fill(0xAA);
    let read = |slba| Sqe::read(1, slba, count(1)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, read(0)), StatusCode::SUCCESS);
    let mut bytes = [1; 4096];
    data.view().read(0, &mut bytes);
    assert_eq!(bytes, [0; 4096]);
    assert_eq!(host.io_code(&mut pair, read(4095)), StatusCode::SUCCESS);
    assert_eq!(host.io_code(&mut pair, read(4096)), StatusCode::LBA_OUT_OF_RANGE);
    for (index, ses) in [(0, SecureEraseSettings::USER_DATA), (1, SecureEraseSettings::CRYPTOGRAPHIC)] {
        assert_eq!(host.code(Sqe::format_nvm(NSID_ALL, index).with_ses(ses)), StatusCode::SUCCESS);
        assert_eq!(identify(&mut host, 1).format_index(), usize::from(index));
    }
    assert_eq!(host.model.violations(), []);
}

#[test]
fn what_cannot_be_formatted() {
    let mut host = Host::new(ModelConfig { nn: 4, ..small() });
    host.expect([
        (Sqe::format_nvm(1, 2), StatusCode::INVALID_FORMAT),
        (Sqe::format_nvm(1, 63), StatusCode::INVALID_FORMAT),
        (Sqe::format_nvm(1, 0).with_format_pi(1), StatusCode::INVALID_FORMAT),
        (Sqe::format_nvm(1, 0).with_format_pi(4), StatusCode::INVALID_FORMAT),
        (Sqe::format_nvm(1, 0).with_ses(SecureEraseSettings::from_raw(3)), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::format_nvm(2, 0), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::format_nvm(5, 0), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::format_nvm(0, 0), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
    ]);
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let store = StoreConfig::File { path: file.path().to_owned(), writable: false };
    let mut host = Host::new(ModelConfig { size: 1 << 20, store, ..small() });
    host.expect([
        (Sqe::format_nvm(1, 0), StatusCode::NAMESPACE_IS_WRITE_PROTECTED),
        (Sqe::sanitize(SanitizeAction::BLOCK_ERASE), StatusCode::NAMESPACE_IS_WRITE_PROTECTED),
    ]);
}

#[test]
fn a_file_is_erased_too() {
    use std::io::{Read, Seek, Write};
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[9; (1 << 20) + 512]).unwrap();
    let store = StoreConfig::File { path: file.path().to_owned(), writable: true };
    let mut host = Host::new(ModelConfig { size: 1 << 20, store, ..small() });
    assert_eq!(host.code(Sqe::format_nvm(1, 1)), StatusCode::SUCCESS);
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), (1 << 20) + 512);
    assert!(bytes[..1 << 20].iter().all(|byte| *byte == 0));
    assert!(bytes[1 << 20..].iter().all(|byte| *byte == 9), "what is not the namespace's stays");
}

#[test]
fn while_a_format_is_in_progress() {
    let mut host = Host::new(ModelConfig { nn: 2, format_delay: 10, ..small() });
    host.model.namespaces().add(2, 1 << 20, 512).unwrap();
    let mut pair = host.io_pair(1, 8);
    host.post(Sqe::format_nvm(1, 1).with_cid(40));
    assert_eq!(host.blocks(&mut pair, 1), Err(StatusCode::FORMAT_IN_PROGRESS));
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::FORMAT_IN_PROGRESS);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(NSID_ALL)), StatusCode::FORMAT_IN_PROGRESS);
    assert!(host.blocks(&mut pair, 2).is_ok(), "another namespace");
    let fpi = identify(&mut host, 1).fpi;
    assert!((0x81..0x80 + 100).contains(&fpi), "{fpi:#x}");
    host.expect([
        (Sqe::format_nvm(1, 0), StatusCode::FORMAT_IN_PROGRESS),
        (Sqe::format_nvm(NSID_ALL, 0), StatusCode::FORMAT_IN_PROGRESS),
        (Sqe::format_nvm(2, 0).with_cid(40), StatusCode::COMMAND_ID_CONFLICT),
        (Sqe::sanitize(SanitizeAction::CRYPTO_ERASE), StatusCode::FORMAT_IN_PROGRESS),
    ]);
    host.turns(LONG);
    let [end] = host.completions()[..] else { panic!() };
    assert_eq!((end.cid, end.status.status().code()), (40, StatusCode::SUCCESS));
    assert_eq!(identify(&mut host, 1).fpi, 0x80);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);

    // A reset drops the command and not the format.
    host.post(Sqe::format_nvm(1, 0).with_cid(41));
    host.disable();
    host.turns(LONG);
    host.enable();
    assert!(host.completions().is_empty());
    assert_eq!(identify(&mut host, 1).format_index(), 0);
}

fn status(host: &mut Host) -> SanitizeStatusLog {
    host.log(LogPageIdentifier::SANITIZE_STATUS)
}

#[test]
fn a_sanitize_operation_erases_everything() {
    for (sqe, passes) in [
        (Sqe::sanitize(SanitizeAction::BLOCK_ERASE), 0),
        (Sqe::sanitize(SanitizeAction::CRYPTO_ERASE), 0),
        (Sqe::sanitize(SanitizeAction::OVERWRITE).with_owpass(0), 16),
        (Sqe::sanitize(SanitizeAction::OVERWRITE).with_owpass(3).with_oipbp(true).with_ovrpat(0x5A), 3),
    ] {
        let mut host = Host::new(ModelConfig { nn: 2, ..small() });
        host.model.namespaces().add(2, 1 << 20, 512).unwrap();
        let mut pair = host.io_pair(1, 8);
        let before = status(&mut host);
        assert_eq!((before.sstat.state(), before.sprog), (SanitizeState::NEVER, 0xFFFF));
        assert!(before.sstat.global_data_erased(), "nothing was ever written");
        for nsid in [1, 2] {
            assert_eq!(host.fill_blocks(&mut pair, nsid, 7), StatusCode::SUCCESS);
        }
        assert!(!status(&mut host).sstat.global_data_erased());
        host.request_events(1);
        assert_eq!(host.code(sqe), StatusCode::SUCCESS, "{sqe:?}");
        assert_eq!(host.blocks(&mut pair, 1), Err(StatusCode::SANITIZE_IN_PROGRESS));
        let during = status(&mut host);
        assert_eq!((during.sstat.state(), during.scdw10, during.ssi), (SanitizeState::IN_PROGRESS, sqe.cdw10, 1));
        assert!(during.sprog < 0xFFFF);
        host.turns(LONG);
        assert_eq!(host.events(), [AsynchronousEvent::SANITIZE_OPERATION_COMPLETED]);
        let after = status(&mut host);
        assert_eq!(
            (after.sstat.state(), after.sstat.passes(), after.sprog),
            (SanitizeState::SUCCEEDED, passes, 0xFFFF)
        );
        assert!(after.sstat.global_data_erased());
        for nsid in [1, 2] {
            assert_eq!(host.blocks(&mut pair, nsid), Ok(vec![0; 1024]));
        }
    }
}

#[test]
fn while_a_sanitize_operation_is_in_progress() {
    let mut host = Host::new(ModelConfig { sanitize_delay: 1000, ..small() });
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.code(Sqe::sanitize(SanitizeAction::BLOCK_ERASE)), StatusCode::SUCCESS);
    let busy = StatusCode::SANITIZE_IN_PROGRESS;
    host.expect([
        (Sqe::sanitize(SanitizeAction::BLOCK_ERASE), busy),
        (Sqe::sanitize(SanitizeAction::EXIT_FAILURE_MODE), busy),
        (Sqe::format_nvm(1, 0), busy),
        (Sqe::device_self_test(0, SelfTestCode::SHORT), busy),
        (Sqe::firmware_commit(1, CommitAction::ACTIVATE_AT_RESET), busy),
        (super::answers::log(LogPageIdentifier::DEVICE_SELF_TEST, 512), busy),
        (Sqe::admin(AdminOpcode::KEEP_ALIVE, 0), StatusCode::INVALID_COMMAND_OPCODE),
        (Sqe::set_features(FeatureIdentifier::ARBITRATION, 0, 1), StatusCode::SUCCESS),
        (Sqe::delete_io_submission_queue(9), StatusCode::INVALID_QUEUE_IDENTIFIER),
    ]);
    let data = host.memory(4096);
    for sqe in [Sqe::read(1, 0, count(1)), Sqe::write(1, 0, count(1))] {
        assert_eq!(host.io_code(&mut pair, sqe.with_prp1(data.iova().get())), busy);
    }
    assert_eq!(host.io_code(&mut pair, Sqe::read(2, 0, count(1))), StatusCode::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    let earlier = status(&mut host).sprog;
    host.turns(400);
    assert!(status(&mut host).sprog > earlier);
    // It outlives a reset.
    host.disable();
    host.enable();
    assert_eq!(status(&mut host).sstat.state(), SanitizeState::IN_PROGRESS);
    host.turns(1000);
    assert_eq!(status(&mut host).sstat.state(), SanitizeState::SUCCEEDED);
    let mut pair = host.io_pair(1, 8);
    assert!(host.blocks(&mut pair, 1).is_ok());
}

#[test]
fn what_cannot_be_sanitized() {
    let mut host = Host::new(small());
    let erase = Sqe::sanitize(SanitizeAction::BLOCK_ERASE);
    host.expect([
        (Sqe::sanitize(SanitizeAction::from_raw(0)), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::sanitize(SanitizeAction::EXIT_MEDIA_VERIFICATION_STATE), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::sanitize(SanitizeAction::from_raw(7)), StatusCode::INVALID_FIELD_IN_COMMAND),
        (erase.with_emvs(true), StatusCode::INVALID_FIELD_IN_COMMAND),
        (erase.with_ndas(true), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::sanitize(SanitizeAction::EXIT_FAILURE_MODE), StatusCode::SUCCESS),
        (Sqe::set_features(FeatureIdentifier::SANITIZE_CONFIG, 0, 1), StatusCode::SUCCESS),
        (erase.with_ndas(true), StatusCode::SUCCESS),
    ]);
    host.turns(LONG);
    let image = super::super::firmware_image("2.0", 4096);
    let numd = crate::spec::ZeroesBased::<u32>::from_count(1024).unwrap();
    assert_eq!(host.send(Sqe::firmware_image_download(numd, 0), &image), StatusCode::SUCCESS);
    host.expect([
        (Sqe::firmware_commit(2, CommitAction::REPLACE_AND_ACTIVATE_AT_RESET), StatusCode::SUCCESS),
        (erase, StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET),
    ]);
    host.disable();
    host.enable();
    assert_eq!(host.code(erase), StatusCode::SUCCESS);
}

#[test]
fn how_a_failed_sanitize_operation_is_left() {
    let erase = |ause| Sqe::sanitize(SanitizeAction::BLOCK_ERASE).with_ause(ause);
    let exit = Sqe::sanitize(SanitizeAction::EXIT_FAILURE_MODE);
    for ause in [false, true] {
        let mut host = Host::new(small());
        let mut pair = host.io_pair(1, 8);
        host.request_events(1);
        host.model.health().fail_sanitize(true);
        assert_eq!(host.code(erase(ause)), StatusCode::SUCCESS);
        host.turns(LONG);
        assert_eq!(host.events(), [AsynchronousEvent::SANITIZE_OPERATION_COMPLETED]);
        let failed = status(&mut host);
        assert_eq!((failed.sstat.state(), failed.ssi), (SanitizeState::FAILED, if ause { 4 } else { 2 }));
        assert_eq!(host.blocks(&mut pair, 1), Err(StatusCode::SANITIZE_FAILED));
        assert_eq!(host.code(Sqe::format_nvm(1, 0)), StatusCode::SANITIZE_FAILED);
        host.model.health().fail_sanitize(false);
        if ause {
            assert_eq!(host.code(exit), StatusCode::SUCCESS);
            assert!(host.blocks(&mut pair, 1).is_ok());
            assert_eq!(status(&mut host).sstat.state(), SanitizeState::FAILED, "that it failed stays known");
        } else {
            host.expect([
                (exit, StatusCode::SANITIZE_FAILED),
                (erase(true), StatusCode::SANITIZE_FAILED),
                (erase(false), StatusCode::SUCCESS),
            ]);
            host.turns(LONG);
            assert!(host.blocks(&mut pair, 1).is_ok());
        }
    }
}

fn tests(host: &mut Host) -> DeviceSelfTestLog {
    host.log(LogPageIdentifier::DEVICE_SELF_TEST)
}

fn newest(host: &mut Host) -> (SelfTestCode, SelfTestResultCode) {
    let status = tests(host).results[0].status;
    (status.code(), status.result())
}

#[test]
fn self_tests_take_their_time_and_leave_results() {
    let mut host = Host::new(ModelConfig { self_test_delay: 100, ..small() });
    assert_eq!(newest(&mut host).1, SelfTestResultCode::NOT_USED);
    host.expect([
        (Sqe::device_self_test(1, SelfTestCode::HOST_INITIATED_REFRESH), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::device_self_test(1, SelfTestCode::VENDOR_SPECIFIC), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::device_self_test(1, SelfTestCode::from_raw(0)), StatusCode::INVALID_FIELD_IN_COMMAND),
        (Sqe::device_self_test(2, SelfTestCode::SHORT), StatusCode::INVALID_NAMESPACE_OR_FORMAT),
        (Sqe::device_self_test(0, SelfTestCode::ABORT), StatusCode::SUCCESS),
        (Sqe::device_self_test(NSID_ALL, SelfTestCode::SHORT), StatusCode::SUCCESS),
        (Sqe::device_self_test(0, SelfTestCode::EXTENDED), StatusCode::DEVICE_SELF_TEST_IN_PROGRESS),
    ]);
    let early = tests(&mut host);
    assert_eq!(early.current(), Some(SelfTestCode::SHORT));
    host.turns(50);
    let late = tests(&mut host);
    assert!(early.completion < late.completion && late.completion < 100, "{} {}", early.completion, late.completion);
    host.turns(100);
    assert_eq!(tests(&mut host).current(), None);
    assert_eq!(newest(&mut host), (SelfTestCode::SHORT, SelfTestResultCode::COMPLETED));

    host.model.health().fail_self_tests(Some(3));
    assert_eq!(host.code(Sqe::device_self_test(1, SelfTestCode::EXTENDED)), StatusCode::SUCCESS);
    host.turns(200);
    assert!(tests(&mut host).current().is_some(), "longer than a short one");
    host.turns(300);
    assert_eq!(newest(&mut host), (SelfTestCode::EXTENDED, SelfTestResultCode::SEGMENT_FAILED));
    assert_eq!(tests(&mut host).results[0].segment, 3);
    assert_eq!(tests(&mut host).results[1].status.result(), SelfTestResultCode::COMPLETED);
    for _ in 0..25 {
        host.expect([
            (Sqe::device_self_test(0, SelfTestCode::SHORT), StatusCode::SUCCESS),
            (Sqe::device_self_test(0, SelfTestCode::ABORT), StatusCode::SUCCESS),
        ]);
    }
    let results = tests(&mut host).results;
    assert!(results.iter().all(|result| result.status.result() == SelfTestResultCode::ABORTED_BY_COMMAND));
}

#[test]
fn what_ends_a_self_test_early() {
    type End = fn(&mut Host);
    let table: [(SelfTestCode, u32, SelfTestResultCode, End); 5] = [
        (SelfTestCode::SHORT, 0, SelfTestResultCode::ABORTED_BY_COMMAND, |host| {
            assert_eq!(host.code(Sqe::device_self_test(1, SelfTestCode::ABORT)), StatusCode::SUCCESS);
        }),
        (SelfTestCode::SHORT, 0, SelfTestResultCode::ABORTED_BY_RESET, |host| {
            host.disable();
            host.enable();
        }),
        (SelfTestCode::SHORT, 1, SelfTestResultCode::ABORTED_BY_NAMESPACE_REMOVAL, |host| {
            host.model.namespaces().remove(1).unwrap();
        }),
        (SelfTestCode::EXTENDED, NSID_ALL, SelfTestResultCode::ABORTED_BY_FORMAT, |host| {
            assert_eq!(host.code(Sqe::format_nvm(1, 0)), StatusCode::SUCCESS);
        }),
        (SelfTestCode::EXTENDED, 0, SelfTestResultCode::ABORTED_BY_SANITIZE, |host| {
            assert_eq!(host.code(Sqe::sanitize(SanitizeAction::CRYPTO_ERASE)), StatusCode::SUCCESS);
            host.turns(LONG);
        }),
    ];
    for (code, nsid, result, end) in table {
        let mut host = Host::new(ModelConfig { self_test_delay: 500, ..small() });
        assert_eq!(host.code(Sqe::device_self_test(nsid, code)), StatusCode::SUCCESS);
        end(&mut host);
        host.turns(1);
        assert_eq!(newest(&mut host), (code, result));
    }
    let mut host = Host::new(ModelConfig { self_test_delay: 500, ..small() });
    assert_eq!(host.code(Sqe::device_self_test(0, SelfTestCode::EXTENDED)), StatusCode::SUCCESS);
    host.disable();
    host.enable();
    assert_eq!(tests(&mut host).current(), Some(SelfTestCode::EXTENDED), "an extended one outlives a reset");
}
