//! Get Log Page: which pages there are, and from where they can be read.

use super::super::ModelConfig;
use super::answers::log;
use super::host::{Host, small};
use crate::spec::command::{AdminOpcode, Cns, Csi, FeatureIdentifier, LogPageIdentifier, NvmOpcode, Select, Sqe};
use crate::spec::identify::{IdentifyController, Lpa, Oacs, Oncs};
use crate::spec::log::{
    CommandEffects, CommandsSupportedAndEffectsLog, ErrorInformationLogEntry, FeatureEffects, LogPageSupport,
};
use crate::spec::status::StatusCode;

#[test]
fn a_page_is_supported_exactly_where_it_says_so() {
    let mut host = Host::new(small());
    let support: [LogPageSupport; 256] = host.log(LogPageIdentifier::SUPPORTED_LOG_PAGES);
    for lid in 0..=255 {
        let entry = support[usize::from(lid)];
        let lid = LogPageIdentifier::from_raw(lid);
        let supported = entry.contains(LogPageSupport::SUPPORTED);
        let code = host.fetch::<[u8; 64]>(log(lid, 64)).err().unwrap_or(StatusCode::SUCCESS);
        assert_eq!(code, if supported { StatusCode::SUCCESS } else { StatusCode::INVALID_LOG_PAGE }, "{lid}");
        let indexed = host.fetch::<[u8; 64]>(log(lid, 64).with_ot(true).with_lpo(1));
        assert_eq!(indexed.is_ok(), entry.contains(LogPageSupport::INDEX_OFFSET), "{lid}");
    }
}

#[test]
fn a_command_is_supported_exactly_where_it_says_so() {
    let mut host = Host::new(small());
    let mut pair = host.io_pair(1, 8);
    let effects: CommandsSupportedAndEffectsLog = host.log(LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS);
    // Those that would wait or take time, and those whose fields of zeroes mean something.
    let known = [AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, AdminOpcode::FIRMWARE_COMMIT];
    for opcode in 0..=255 {
        let supported = effects.admin[usize::from(opcode)].contains(CommandEffects::SUPPORTED);
        let opcode = AdminOpcode::from_raw(opcode);
        if known.contains(&opcode) {
            assert!(supported);
        } else {
            // A namespace that cannot be, and no memory: what is supported fails in another way.
            let code = host.code(Sqe::admin(opcode, 0xFFFF_FFF0));
            assert_eq!(code != StatusCode::INVALID_COMMAND_OPCODE, supported, "{opcode}");
        }
    }
    for opcode in 0..=255 {
        let supported = effects.io[usize::from(opcode)].contains(CommandEffects::SUPPORTED);
        let opcode = NvmOpcode::from_raw(opcode);
        let code = host.io_code(&mut pair, Sqe::nvm(opcode, 1));
        assert_eq!(code != StatusCode::INVALID_COMMAND_OPCODE, supported, "{opcode}");
    }
    let other = log(LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS, 64).with_log_csi(Csi::ZONED_NAMESPACE);
    assert_eq!(host.fetch::<[u8; 64]>(other), Err(StatusCode::INVALID_FIELD_IN_COMMAND));
}

#[test]
fn a_feature_is_supported_exactly_where_it_says_so() {
    for volatile_write_cache in [false, true] {
        let mut host = Host::new(ModelConfig { volatile_write_cache, ..small() });
        let effects: [FeatureEffects; 256] = host.log(LogPageIdentifier::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS);
        for fid in 0..=255 {
            let supported = effects[usize::from(fid)].contains(FeatureEffects::SUPPORTED);
            let fid = FeatureIdentifier::from_raw(fid);
            let code = host.code(Sqe::get_features(fid, Select::SUPPORTED_CAPABILITIES, 1));
            assert_eq!(code == StatusCode::SUCCESS, supported, "{fid}");
        }
    }
}

#[test]
fn identify_promises_what_there_is() {
    let mut host = Host::new(ModelConfig { acl: 7, nn: 12, ..small() });
    let controller: IdentifyController = host.fetch(Sqe::identify(Cns::CONTROLLER, 0)).unwrap();
    assert_eq!((controller.acl.count(), controller.nn), (8, 12));
    assert_eq!(controller.oacs, Oacs::FORMAT_NVM | Oacs::FIRMWARE | Oacs::DEVICE_SELF_TEST);
    assert!(controller.oncs.contains(Oncs::SAVE_AND_SELECT | Oncs::TIMESTAMP));
    assert!(controller.lpa.contains(Lpa::SUPPORTED_AND_EFFECTS_PAGES | Lpa::COMMANDS_SUPPORTED_AND_EFFECTS));
    assert!(!controller.lpa.contains(Lpa::TELEMETRY));
    assert_eq!((controller.frmw, controller.sanicap & 7), (0x37, 7));
}

#[test]
fn a_page_from_an_index_on() {
    let mut host = Host::new(small());
    for cid in 1..=3 {
        host.code(Sqe::admin(AdminOpcode::KEEP_ALIVE, 0).with_cid(cid));
    }
    let errors = LogPageIdentifier::ERROR_INFORMATION;
    let from = |lpo| log(errors, 64).with_ot(true).with_lpo(lpo);
    for (index, cid) in [(0, 3), (1, 2), (2, 1)] {
        let entry: ErrorInformationLogEntry = host.fetch(from(index)).unwrap();
        assert_eq!(entry.cid, cid);
        assert_eq!(host.fetch(log(errors, 64).with_lpo(index * 64)), Ok(entry));
    }
    for lpo in [65, u64::MAX, u64::MAX / 64 + 1] {
        assert_eq!(host.fetch::<[u8; 64]>(from(lpo)), Err(StatusCode::INVALID_FIELD_IN_COMMAND), "{lpo}");
    }
    assert_eq!(host.fetch::<[u8; 64]>(from(64)), Ok([0; 64]), "at the end there is nothing");
}

#[test]
fn pages_are_the_controllers_and_not_a_namespaces() {
    let mut host = Host::new(ModelConfig { nn: 3, ..small() });
    for (nsid, code) in [
        (0, StatusCode::SUCCESS),
        (u32::MAX, StatusCode::SUCCESS),
        (1, StatusCode::INVALID_FIELD_IN_COMMAND),
        (2, StatusCode::INVALID_FIELD_IN_COMMAND),
        (4, StatusCode::INVALID_NAMESPACE_OR_FORMAT),
    ] {
        let sqe = Sqe { nsid, ..log(LogPageIdentifier::SMART_HEALTH_INFORMATION, 512) };
        assert_eq!(host.fetch::<[u8; 512]>(sqe).err().unwrap_or(StatusCode::SUCCESS), code, "{nsid}");
    }
}
