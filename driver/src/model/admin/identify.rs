//! Identify (NVM Express Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).

use zerocopy::IntoBytes;

use super::super::config::ModelConfig;
use super::super::namespaces::{Entry, Namespaces};
use super::super::registers::VERSION;
use super::super::subsystem::Role;
use super::super::transfer::permanent;
use super::Answer;
use super::firmware::{FRMW, FWUG};
use super::logs::ERROR_ENTRIES;
use super::sanitize::SANICAP;
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, Csi, NSID_ALL, Sqe};
use crate::spec::identify::{
    ActiveNamespaceList, Cmic, ControllerType, Ctratt, DescriptorWriter, Dlfeat, Flbas, FlushBehavior, Fna,
    IDENTIFY_LENGTH, IdentifyController, IdentifyControllerNvm, IdentifyNamespace, IdentifyNamespaceNvm, Lpa,
    NamespaceIdentifier, Nmic, Nsattr, Nsfeat, Oacs, Oaes, Oncs, Rescap, Vwc,
};
use crate::spec::registers::Vs;
use crate::spec::status::{Status, StatusCode};

/// Entries of 64 and 16 bytes, required and at most: SQES and CQES.
const SQES: u8 = 0x66;
const CQES: u8 = 0x44;
/// Warning and critical temperature in kelvins.
pub(super) const WCTEMP: u16 = 343;
const CCTEMP: u16 = 353;
/// NMIC, RESCAP, NSATTR and NSTAT in the I/O Command Set Independent Identify Namespace structure (Base 2.1, 5.1.13.2.8).
const INDEPENDENT_NMIC: usize = 1;
const INDEPENDENT_RESCAP: usize = 2;
const INDEPENDENT_NSATTR: usize = 8;
const INDEPENDENT_NSTAT: usize = 14;
/// NSTAT.NRDY: the namespace is ready.
const NRDY: u8 = 1;
/// The identifier that means the controller that executes the command.
const THIS_CONTROLLER: u16 = 0xFFFF;
/// Minutes that an extended self-test is said to take.
const EDSTT: u16 = 1;
/// DSTO: one self-test in the NVM subsystem at a time.
const DSTO: u8 = 1;

/// The identifiers of a namespace.
struct Identifiers {
    uuid: [u8; 16],
    nguid: [u8; 16],
    eui64: [u8; 8],
}

/// Who the controller and its namespaces are.
pub(super) struct Identity {
    controller: IdentifyController,
    controller_nvm: IdentifyControllerNvm,
    serial: String,
    dlfeat: Dlfeat,
    npwg: ZeroesBased<u16>,
    noiob: u16,
}

impl Identity {
    pub(super) fn new(config: &ModelConfig, role: Role) -> Self {
        let uuid = identifiers(&config.serial, 1).uuid;
        Self {
            controller: controller(config, role, uuid),
            controller_nvm: controller_nvm(config),
            serial: config.serial.clone(),
            dlfeat: config.dlfeat(),
            npwg: ZeroesBased::<u16>::from_raw(config.npwg),
            noiob: config.noiob,
        }
    }

    /// Which optional admin commands there are.
    pub(super) fn oacs(&self) -> Oacs {
        self.controller.oacs
    }

    /// Which optional I/O commands there are.
    pub(super) fn oncs(&self) -> Oncs {
        self.controller.oncs
    }

    pub(super) fn cntlid(&self) -> u16 {
        self.controller.cntlid
    }

    /// The structure that `sqe` asks for, from a controller that runs firmware `revision`.
    pub(super) fn page(&self, sqe: &Sqe, namespaces: &Namespaces, revision: [u8; 8]) -> Result<Answer, Status> {
        // An identifier that no namespace has now is described by zeroes, where the structure is the namespace's own.
        let described = |describe: &dyn Fn(&Entry) -> Vec<u8>| match namespaces.get(sqe.nsid) {
            Some(entry) => Ok(describe(entry)),
            None if namespaces.is_valid(sqe.nsid) => Ok(Vec::new()),
            // NSID FFFFFFFFh asks for what all have in common, which is part of Namespace Management.
            None => Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT)),
        };
        let nvm = || match sqe.identify_csi() {
            Csi::NVM => Ok(()),
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        };
        let bytes = match sqe.cns() {
            // All namespaces that there are are attached to the controller.
            Cns::NAMESPACE | Cns::ALLOCATED_NAMESPACE => described(&|entry| self.structure(entry).as_bytes().to_vec())?,
            Cns::CONTROLLER => IdentifyController { fr: revision, ..self.controller.clone() }.as_bytes().to_vec(),
            Cns::ACTIVE_NAMESPACE_LIST | Cns::ALLOCATED_NAMESPACE_LIST => list(sqe.nsid, namespaces)?,
            Cns::IO_COMMAND_SET_ACTIVE_NAMESPACE_LIST => {
                nvm()?;
                list(sqe.nsid, namespaces)?
            }
            Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST => {
                let Identifiers { uuid, nguid, eui64 } = identifiers(&self.serial, namespaces.find(sqe.nsid)?.nsid);
                let mut list = DescriptorWriter::new();
                for identifier in [
                    NamespaceIdentifier::Eui64(eui64),
                    NamespaceIdentifier::Nguid(nguid),
                    NamespaceIdentifier::Uuid(uuid),
                    NamespaceIdentifier::Csi(Csi::NVM),
                ] {
                    list.push(identifier).map_err(|_| StatusCode::INTERNAL_ERROR.status())?;
                }
                list.finish().to_vec()
            }
            Cns::IO_COMMAND_SET_NAMESPACE => {
                nvm()?;
                described(&|_| IdentifyNamespaceNvm::default().as_bytes().to_vec())?
            }
            Cns::IO_COMMAND_SET_CONTROLLER => {
                nvm()?;
                self.controller_nvm.as_bytes().to_vec()
            }
            Cns::INDEPENDENT_NAMESPACE => described(&|entry| {
                let mut page = vec![0; IDENTIFY_LENGTH];
                page[INDEPENDENT_NMIC] = self.nmic().raw();
                page[INDEPENDENT_RESCAP] = self.rescap().raw();
                page[INDEPENDENT_NSATTR] = nsattr(entry).raw();
                page[INDEPENDENT_NSTAT] = NRDY;
                page
            })?,
            Cns::IO_COMMAND_SET => {
                if ![self.controller.cntlid, THIS_CONTROLLER].contains(&sqe.cntid()) {
                    return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
                }
                // One combination: the NVM Command Set alone.
                vec![1]
            }
            _ => return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        };
        Ok(Answer::Data(bytes, IDENTIFY_LENGTH as u64))
    }

    fn nmic(&self) -> Nmic {
        if self.controller.cmic.contains(Cmic::MULTIPLE_CONTROLLERS) { Nmic::SHARED } else { Nmic::empty() }
    }

    fn rescap(&self) -> Rescap {
        if !self.oncs().contains(Oncs::RESERVATIONS) {
            return Rescap::empty();
        }
        Rescap::PERSIST_THROUGH_POWER_LOSS
            | Rescap::WRITE_EXCLUSIVE
            | Rescap::EXCLUSIVE_ACCESS
            | Rescap::WRITE_EXCLUSIVE_REGISTRANTS_ONLY
            | Rescap::EXCLUSIVE_ACCESS_REGISTRANTS_ONLY
            | Rescap::WRITE_EXCLUSIVE_ALL_REGISTRANTS
            | Rescap::EXCLUSIVE_ACCESS_ALL_REGISTRANTS
            | Rescap::IGNORE_EXISTING_KEY
    }

    fn structure(&self, entry: &Entry) -> IdentifyNamespace {
        let Identifiers { nguid, eui64, .. } = identifiers(&self.serial, entry.nsid);
        let nsze = entry.namespace.nsze;
        let metadata = entry.namespace.metadata();
        let mut data = IdentifyNamespace {
            nsze,
            ncap: nsze,
            nuse: nsze,
            nlbaf: ZeroesBased::<u8>::from_raw((entry.formats.len() - 1) as u8),
            flbas: Flbas::default().with_fidxl(entry.format as u8).with_metadata_extended(metadata.extended),
            mc: metadata.mc(),
            dpc: metadata.dpc(),
            dps: metadata.dps(),
            dlfeat: self.dlfeat,
            npwg: self.npwg,
            // Bit 7: the percentage of a format that is left is told.
            fpi: 0x80 | entry.format_left.unwrap_or(0),
            noiob: self.noiob,
            nvmcap: u128::from(entry.size).into(),
            nmic: self.nmic(),
            rescap: self.rescap(),
            nsattr: nsattr(entry),
            nguid,
            eui64,
            ..IdentifyNamespace::default()
        };
        if self.npwg.raw() != 0 {
            data.nsfeat = Nsfeat::OPTIMAL_PERFORMANCE;
        }
        data.lbaf[..entry.formats.len()].copy_from_slice(&entry.formats);
        data
    }
}

/// The identifiers of active namespaces above `nsid`.
fn list(nsid: u32, namespaces: &Namespaces) -> Result<Vec<u8>, Status> {
    if nsid >= NSID_ALL - 1 {
        return Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
    }
    let above = namespaces.iter().map(|entry| entry.nsid).filter(|other| *other > nsid);
    Ok(ActiveNamespaceList::from_nsids(above).as_bytes().to_vec())
}

/// The same serial number makes the same identifiers, so that a model over a file is known again.
fn identifiers(serial: &str, nsid: u32) -> Identifiers {
    let text = if nsid == 1 { serial.to_owned() } else { format!("{serial}/{nsid}") };
    let halves = [1, 2].map(|seed| digest(seed, &text));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&halves[0].to_be_bytes());
    uuid[8..].copy_from_slice(&halves[1].to_be_bytes());
    let mut nguid = uuid;
    // RFC 9562: version 8, variant 10b.
    uuid[6] = uuid[6] & 0x0F | 0x80;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    let mut eui64 = halves[0].to_be_bytes();
    // Locally administered, not a group.
    eui64[0] = eui64[0] & 0xFC | 0x02;
    nguid[8..].copy_from_slice(&eui64);
    Identifiers { uuid, nguid, eui64 }
}

fn controller(config: &ModelConfig, role: Role, uuid: [u8; 16]) -> IdentifyController {
    let mut data = IdentifyController {
        rab: 6,
        mdts: config.mdts,
        cmic: if role.shared { Cmic::MULTIPLE_CONTROLLERS } else { Cmic::empty() },
        cntlid: role.cntlid,
        ver: VERSION,
        cntrltype: ControllerType::IO,
        oaes: Oaes::ATTACHED_NAMESPACE_ATTRIBUTE | Oaes::FIRMWARE_ACTIVATION,
        ctratt: Ctratt::HOST_IDENTIFIER_128_BIT,
        oacs: oacs(config),
        acl: ZeroesBased::<u8>::from_raw(config.acl),
        aerl: ZeroesBased::<u8>::from_raw(config.aerl),
        frmw: FRMW,
        lpa: Lpa::EXTENDED_DATA | Lpa::COMMANDS_SUPPORTED_AND_EFFECTS | Lpa::SUPPORTED_AND_EFFECTS_PAGES,
        elpe: ZeroesBased::<u8>::from_raw((ERROR_ENTRIES - 1) as u8),
        wctemp: WCTEMP,
        cctemp: CCTEMP,
        sqes: SQES,
        cqes: CQES,
        edstt: EDSTT,
        dsto: DSTO,
        fwug: FWUG,
        sanicap: SANICAP,
        nn: config.nn,
        oncs: Oncs::SAVE_AND_SELECT | Oncs::TIMESTAMP | config.oncs(),
        sgls: config.sgl.sgls(),
        fna: Fna::CRYPTOGRAPHIC_ERASE,
        awun: ZeroesBased::<u16>::from_raw(config.awun),
        awupf: ZeroesBased::<u16>::from_raw(config.awupf),
        vwc: Vwc::default().with_present(config.volatile_write_cache).with_fb(FlushBehavior::BROADCAST_NSID_SUPPORTED),
        tnvmcap: u128::from(config.size).into(),
        ..IdentifyController::default()
    };
    data.psd[0].mp = 2500;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let [a, b, c, d, e] = [0..4, 4..6, 6..8, 8..10, 10..16].map(|part| hex(&uuid[part]));
    let texts = data.set_serial_number(&config.serial)
        && data.set_model_number(&config.model_number)
        && data.set_nvm_subsystem_nqn(&format!("nqn.2014-08.org.nvmexpress:uuid:{a}-{b}-{c}-{d}-{e}"));
    debug_assert!(texts, "the configuration was checked");
    data
}

fn oacs(config: &ModelConfig) -> Oacs {
    let mut oacs = Oacs::FORMAT_NVM | Oacs::FIRMWARE | Oacs::DEVICE_SELF_TEST;
    oacs.set(Oacs::DOORBELL_BUFFER_CONFIG, config.shadow_doorbells);
    oacs
}

fn controller_nvm(config: &ModelConfig) -> IdentifyControllerNvm {
    let mut data = IdentifyControllerNvm { ver: Vs::new(1, 1, 0), ..IdentifyControllerNvm::default() };
    let commands = &config.io_commands;
    if let Some(limits) = commands.dataset_management_limits.filter(|_| commands.dataset_management) {
        (data.dmrl, data.dmrsl, data.dmsl) = (limits.dmrl, limits.dmrsl, limits.dmsl);
    }
    data
}

fn nsattr(entry: &Entry) -> Nsattr {
    if entry.namespace.store.writable() { Nsattr::empty() } else { Nsattr::WRITE_PROTECTED }
}

/// FNV-1a of `text`, begun with `seed`.
fn digest(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    text.bytes().fold(start, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
