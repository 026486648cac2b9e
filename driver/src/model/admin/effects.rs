//! What the controller supports, as its log pages say it: Supported Log Pages, Commands Supported and Effects, Feature
//! Identifiers Supported and Effects (NVM Express Base 2.1, 5.1.12.1.1, 5.1.12.1.6 and 5.1.12.1.18).

use zerocopy::IntoBytes;

use super::features::Features;
use crate::spec::command::{AdminOpcode, FeatureCapabilities, FeatureIdentifier, LogPageIdentifier, NvmOpcode};
use crate::spec::identify::{Oacs, Oncs};
use crate::spec::log::{CommandEffects, CommandsSupportedAndEffectsLog, FeatureEffects, LogPageSupport};

/// Admin commands and what they do.
const ADMIN_COMMANDS: &[(AdminOpcode, CommandEffects)] = &[
    (AdminOpcode::DELETE_IO_SUBMISSION_QUEUE, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::CREATE_IO_SUBMISSION_QUEUE, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::GET_LOG_PAGE, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::DELETE_IO_COMPLETION_QUEUE, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::CREATE_IO_COMPLETION_QUEUE, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::IDENTIFY, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::ABORT, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::SET_FEATURES, CommandEffects::CONTROLLER_SCOPE.union(CommandEffects::CONTROLLER_CAPABILITY_CHANGE)),
    (AdminOpcode::GET_FEATURES, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::FIRMWARE_COMMIT, CommandEffects::SUBSYSTEM_SCOPE.union(CommandEffects::CONTROLLER_CAPABILITY_CHANGE)),
    (AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD, CommandEffects::SUBSYSTEM_SCOPE),
    (AdminOpcode::DEVICE_SELF_TEST, CommandEffects::CONTROLLER_SCOPE),
    (AdminOpcode::DOORBELL_BUFFER_CONFIG, CommandEffects::CONTROLLER_SCOPE),
    (
        AdminOpcode::FORMAT_NVM,
        CommandEffects::NAMESPACE_SCOPE
            .union(CommandEffects::LOGICAL_BLOCK_CONTENT_CHANGE)
            .union(CommandEffects::NAMESPACE_CAPABILITY_CHANGE)
            .union(CommandEffects::ALONE_ON_ITS_NAMESPACE),
    ),
    (
        AdminOpcode::SANITIZE,
        CommandEffects::SUBSYSTEM_SCOPE
            .union(CommandEffects::LOGICAL_BLOCK_CONTENT_CHANGE)
            .union(CommandEffects::ALONE),
    ),
];

/// Log pages, and the bytes of an element where the page can be read from an index on.
const LOG_PAGES: &[(LogPageIdentifier, Option<u64>)] = &[
    (LogPageIdentifier::SUPPORTED_LOG_PAGES, Some(4)),
    (LogPageIdentifier::ERROR_INFORMATION, Some(64)),
    (LogPageIdentifier::SMART_HEALTH_INFORMATION, None),
    (LogPageIdentifier::FIRMWARE_SLOT_INFORMATION, None),
    (LogPageIdentifier::CHANGED_ATTACHED_NAMESPACE_LIST, Some(4)),
    (LogPageIdentifier::COMMANDS_SUPPORTED_AND_EFFECTS, Some(4)),
    (LogPageIdentifier::DEVICE_SELF_TEST, None),
    (LogPageIdentifier::FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS, Some(4)),
    (LogPageIdentifier::SANITIZE_STATUS, None),
    (LogPageIdentifier::RESERVATION_NOTIFICATION, None),
];

/// The log pages of a controller with those optional commands.
pub(super) fn log_pages(oncs: Oncs) -> impl Iterator<Item = &'static (LogPageIdentifier, Option<u64>)> {
    let reservations = oncs.contains(Oncs::RESERVATIONS);
    LOG_PAGES.iter().filter(move |(lid, _)| reservations || *lid != LogPageIdentifier::RESERVATION_NOTIFICATION)
}

pub(super) fn supported_log_pages(oncs: Oncs) -> Vec<u8> {
    let mut page = [LogPageSupport::empty(); 256];
    for (lid, element) in log_pages(oncs) {
        let entry = &mut page[usize::from(lid.raw())];
        *entry = LogPageSupport::SUPPORTED;
        entry.set(LogPageSupport::INDEX_OFFSET, element.is_some());
    }
    page.as_bytes().to_vec()
}

pub(super) fn commands(oacs: Oacs, io: &[(NvmOpcode, CommandEffects)]) -> Vec<u8> {
    let mut log = CommandsSupportedAndEffectsLog::default();
    let has_buffers = oacs.contains(Oacs::DOORBELL_BUFFER_CONFIG);
    let there = |opcode| opcode != AdminOpcode::DOORBELL_BUFFER_CONFIG || has_buffers;
    for (opcode, effects) in ADMIN_COMMANDS.iter().filter(|(opcode, _)| there(*opcode)) {
        log.admin[usize::from(opcode.raw())] = *effects | CommandEffects::SUPPORTED;
    }
    for (opcode, effects) in io {
        log.io[usize::from(opcode.raw())] = *effects | CommandEffects::SUPPORTED;
    }
    log.as_bytes().to_vec()
}

pub(super) fn features(features: &Features) -> Vec<u8> {
    let mut page = [FeatureEffects::empty(); 256];
    for fid in FeatureIdentifier::ALL {
        if let Some(capabilities) = features.capabilities(*fid) {
            let scope = if capabilities.contains(FeatureCapabilities::NAMESPACE_SPECIFIC) {
                FeatureEffects::NAMESPACE_SCOPE
            } else {
                FeatureEffects::CONTROLLER_SCOPE
            };
            page[usize::from(fid.raw())] = FeatureEffects::SUPPORTED | scope;
        }
    }
    page.as_bytes().to_vec()
}
