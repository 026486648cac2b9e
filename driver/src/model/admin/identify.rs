//! Identify (NVM Express Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).

use zerocopy::IntoBytes;

use super::super::config::ModelConfig;
use super::super::namespace::{NSID, Namespace};
use super::super::registers::VERSION;
use super::super::transfer::permanent;
use super::logs::ERROR_ENTRIES;
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, Csi, NSID_ALL, Sqe};
use crate::spec::identify::{
    ActiveNamespaceList, ControllerType, DescriptorWriter, Flbas, FlushBehavior, IDENTIFY_LENGTH, IdentifyController,
    IdentifyControllerNvm, IdentifyNamespace, IdentifyNamespaceNvm, LbaFormat, Lpa, NamespaceIdentifier, Nsattr,
    Nsfeat, Vwc,
};
use crate::spec::registers::Vs;
use crate::spec::status::{Status, StatusCode};

/// The firmware in slot 1, which is the only one.
pub(super) const FIRMWARE_REVISION: [u8; 8] = *b"1.0     ";
/// Entries of 64 and 16 bytes, required and at most: SQES and CQES.
const SQES: u8 = 0x66;
const CQES: u8 = 0x44;
/// FRMW: one slot, read-only.
const FRMW: u8 = 0x03;
/// Warning and critical temperature in kelvins.
const WCTEMP: u16 = 343;
const CCTEMP: u16 = 353;
/// NSATTR and NSTAT in the I/O Command Set Independent Identify Namespace structure (Base 2.1, 5.1.13.2.8).
const INDEPENDENT_NSATTR: usize = 8;
const INDEPENDENT_NSTAT: usize = 14;
/// NSTAT.NRDY: the namespace is ready.
const NRDY: u8 = 1;

type Page = Box<[u8; IDENTIFY_LENGTH]>;

/// Who the controller and its namespace are.
pub(super) struct Identity {
    controller: IdentifyController,
    controller_nvm: IdentifyControllerNvm,
    namespace: IdentifyNamespace,
    uuid: [u8; 16],
}

impl Identity {
    pub(super) fn new(config: &ModelConfig, namespace: &Namespace) -> Self {
        // The same serial number makes the same identifiers, so that a model over a file is known again.
        let halves = [1, 2].map(|seed| digest(seed, &config.serial));
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
        Self {
            controller: controller(config, uuid),
            controller_nvm: controller_nvm(config),
            namespace: structure(config, namespace, nguid, eui64),
            uuid,
        }
    }

    /// The structure that `sqe` asks for.
    pub(super) fn page(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Page, Status> {
        let here = || match sqe.nsid {
            NSID => Ok(()),
            // NSID FFFFFFFFh asks for what all have in common, which is part of Namespace Management.
            _ => Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT)),
        };
        let nvm = || match sqe.identify_csi() {
            Csi::NVM => Ok(()),
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        };
        match sqe.cns() {
            Cns::NAMESPACE => here().map(|()| page_of(&self.namespace)),
            Cns::CONTROLLER => Ok(page_of(&self.controller)),
            Cns::ACTIVE_NAMESPACE_LIST => {
                if sqe.nsid >= NSID_ALL - 1 {
                    return Err(permanent(StatusCode::INVALID_NAMESPACE_OR_FORMAT));
                }
                Ok(page_of(&ActiveNamespaceList::from_nsids((NSID > sqe.nsid).then_some(NSID))))
            }
            Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST => {
                here()?;
                let mut list = DescriptorWriter::new();
                for identifier in [
                    NamespaceIdentifier::Eui64(self.namespace.eui64),
                    NamespaceIdentifier::Nguid(self.namespace.nguid),
                    NamespaceIdentifier::Uuid(self.uuid),
                    NamespaceIdentifier::Csi(Csi::NVM),
                ] {
                    list.push(identifier).map_err(|_| StatusCode::INTERNAL_ERROR.status())?;
                }
                Ok(list.finish())
            }
            Cns::IO_COMMAND_SET_NAMESPACE => {
                nvm()?;
                here()?;
                Ok(page_of(&IdentifyNamespaceNvm::default()))
            }
            Cns::IO_COMMAND_SET_CONTROLLER => {
                nvm()?;
                Ok(page_of(&self.controller_nvm))
            }
            Cns::INDEPENDENT_NAMESPACE => {
                here()?;
                let mut page = Box::new([0; IDENTIFY_LENGTH]);
                page[INDEPENDENT_NSATTR] = nsattr(namespace).raw();
                page[INDEPENDENT_NSTAT] = NRDY;
                Ok(page)
            }
            _ => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
        }
    }
}

fn controller(config: &ModelConfig, uuid: [u8; 16]) -> IdentifyController {
    let mut data = IdentifyController {
        fr: FIRMWARE_REVISION,
        rab: 6,
        mdts: config.mdts,
        cntlid: 1,
        ver: VERSION,
        cntrltype: ControllerType::IO,
        acl: ZeroesBased::<u8>::from_raw(3),
        aerl: ZeroesBased::<u8>::from_raw(config.aerl),
        frmw: FRMW,
        lpa: Lpa::EXTENDED_DATA,
        elpe: ZeroesBased::<u8>::from_raw((ERROR_ENTRIES - 1) as u8),
        wctemp: WCTEMP,
        cctemp: CCTEMP,
        sqes: SQES,
        cqes: CQES,
        nn: NSID,
        oncs: config.oncs(),
        sgls: config.sgl.sgls(),
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

fn controller_nvm(config: &ModelConfig) -> IdentifyControllerNvm {
    let mut data = IdentifyControllerNvm { ver: Vs::new(1, 1, 0), ..IdentifyControllerNvm::default() };
    let commands = &config.io_commands;
    if let Some(limits) = commands.dataset_management_limits.filter(|_| commands.dataset_management) {
        (data.dmrl, data.dmrsl, data.dmsl) = (limits.dmrl, limits.dmrsl, limits.dmsl);
    }
    data
}

fn structure(config: &ModelConfig, namespace: &Namespace, nguid: [u8; 16], eui64: [u8; 8]) -> IdentifyNamespace {
    let mut data = IdentifyNamespace {
        nsze: namespace.nsze,
        ncap: namespace.nsze,
        nuse: namespace.nsze,
        flbas: Flbas::default().with_metadata_extended(config.metadata.extended),
        mc: config.metadata.mc(),
        dpc: config.metadata.dpc(),
        dps: config.metadata.dps(),
        dlfeat: config.dlfeat(),
        noiob: config.noiob,
        npwg: ZeroesBased::<u16>::from_raw(config.npwg),
        nvmcap: u128::from(config.size).into(),
        nsattr: nsattr(namespace),
        nguid,
        eui64,
        ..IdentifyNamespace::default()
    };
    if config.npwg != 0 {
        data.nsfeat = Nsfeat::OPTIMAL_PERFORMANCE;
    }
    data.lbaf[0] = LbaFormat { ms: config.metadata.size, lbads: namespace.lbads as u8, rp: 0 };
    data
}

fn nsattr(namespace: &Namespace) -> Nsattr {
    if namespace.store.writable() { Nsattr::empty() } else { Nsattr::WRITE_PROTECTED }
}

/// The bytes of a structure that is a page long.
fn page_of(structure: &(impl IntoBytes + zerocopy::Immutable)) -> Page {
    let mut page = Box::new([0; IDENTIFY_LENGTH]);
    page.copy_from_slice(structure.as_bytes());
    page
}

/// FNV-1a of `text`, begun with `seed`.
fn digest(seed: u64, text: &str) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    text.bytes().fold(start, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
