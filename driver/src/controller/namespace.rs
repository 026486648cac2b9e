//! What a controller and its namespaces say of themselves (NVM Express Base 2.1, 5.1.13; NVM Command Set 1.1, 4.1.5).

use super::admin::AdminQueue;
use super::quirks::{QuirkFlags, Quirks};
use super::{Controller, ControllerConfig, ControllerError};
use crate::queue::{ControllerLimits, Limits, LimitsError};
use crate::spec::command::{Cns, Csi, Sqe};
use crate::spec::identify::{
    ActiveNamespaceList, Descriptors, IDENTIFY_LENGTH, IdentifyController, IdentifyControllerNvm, IdentifyNamespace,
    IdentifyNamespaceNvm, NamespaceIdentifier,
};
use crate::spec::registers::{Cap, Cc, Vs};
use crate::spec::status::StatusCode;

/// The version from which on a controller has the structures of I/O command sets, CNS 05h and 06h.
const COMMAND_SETS: Vs = Vs::new(2, 0, 0);
/// The version from which on a controller has the Namespace Identification Descriptor list.
const DESCRIPTORS: Vs = Vs::new(1, 3, 0);

/// An active namespace.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// Its identifier.
    pub nsid: u32,
    /// What Identify Namespace said.
    pub identify: Box<IdentifyNamespace>,
    /// What fits into a command, or why it cannot be served.
    pub limits: Result<Limits, LimitsError>,
}

/// By what a namespace is known again, and its command set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceIdentity {
    /// IEEE Extended Unique Identifier, most significant byte first.
    pub eui64: Option<[u8; 8]>,
    /// Namespace Globally Unique Identifier, most significant byte first.
    pub nguid: Option<[u8; 16]>,
    /// UUID, as RFC 9562 lays it out.
    pub uuid: Option<[u8; 16]>,
    /// Command set.
    pub csi: Option<Csi>,
}

/// What an enabled controller has said of itself, and what follows from it.
pub(super) struct Learned {
    pub(super) identify: Box<IdentifyController>,
    pub(super) limits: ControllerLimits,
    pub(super) quirks: Quirks,
}

/// Asks a controller who it is. The same questions after each enable, so that the answers can be compared.
pub(super) fn learn(
    admin: &mut AdminQueue,
    cap: Cap,
    cc: Cc,
    config: &ControllerConfig,
) -> Result<Learned, ControllerError> {
    let mut identify: Box<IdentifyController> = Box::new(admin.identify(Cns::CONTROLLER, 0)?);
    let quirks = Quirks::of_controller(config.quirks, config.pci, &identify);
    quirks.correct_controller(&mut identify);
    let nvm = if identify.ver >= COMMAND_SETS && !quirks.has(QuirkFlags::IDENTIFY_CNS) {
        optional(identify_controller_nvm(admin))?
    } else {
        None
    };
    let mut limits = ControllerLimits::identified(cap, cc.page_size(), &identify, nvm.as_deref())?;
    if quirks.has(QuirkFlags::ONE_COMMAND) {
        limits.max_queue_entries = 2;
    }
    Ok(Learned { identify, limits, quirks })
}

impl Controller {
    /// Its active namespaces, in order, each with what fits into a command or why it cannot be served.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or lists more namespaces than
    /// [`ControllerConfig::max_namespaces`](super::ControllerConfig::max_namespaces), or not in order.
    pub fn namespaces(&mut self) -> Result<Vec<Namespace>, ControllerError> {
        let mut namespaces = Vec::new();
        for nsid in self.active_namespaces()? {
            // One that is not there any more was detached since it was listed.
            namespaces.extend(self.rescan(nsid)?);
        }
        Ok(namespaces)
    }

    /// The identifiers of its active namespaces, ascending.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces).
    pub fn active_namespaces(&mut self) -> Result<Vec<u32>, ControllerError> {
        if self.quirks.has(QuirkFlags::IDENTIFY_CNS) {
            let (nn, max) = (self.identify.nn, self.config.max_namespaces);
            return if nn <= max { Ok((1..=nn).collect()) } else { Err(ControllerError::TooManyNamespaces { max }) };
        }
        self.list(Cns::ACTIVE_NAMESPACE_LIST)
    }

    /// The identifiers of the namespaces that exist in the subsystem, attached to this controller or not, ascending.
    ///
    /// # Errors
    /// As [`namespaces`](Self::namespaces); a controller without Namespace Management refuses.
    pub fn allocated_namespaces(&mut self) -> Result<Vec<u32>, ControllerError> {
        self.list(Cns::ALLOCATED_NAMESPACE_LIST)
    }

    /// What namespace `nsid` is like now; `None` when it is not active (any more).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer.
    pub fn rescan(&mut self, nsid: u32) -> Result<Option<Namespace>, ControllerError> {
        let found = self.admin.identify::<IdentifyNamespace>(Cns::NAMESPACE, nsid);
        let mut identify = match found {
            // An inactive namespace is a page of zeroes (5.1.13.2.1); one that cannot be is a status.
            Ok(identify) if identify.nsze == 0 => return Ok(None),
            Ok(identify) => Box::new(identify),
            Err(ControllerError::Command { status, .. })
                if status.code() == StatusCode::INVALID_NAMESPACE_OR_FORMAT =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        self.quirks.correct_namespace(self.cap.min_page_size(), &self.identify, &mut identify);
        // Only the format of protection information is of interest there, and only where there can be more than one.
        let nvm = if self.limits.extended_lba_formats && identify.dps.pit() != 0 {
            optional(self.identify_namespace_nvm(nsid))?
        } else {
            None
        };
        let limits = self.limits.namespace_with(&identify, nvm.as_deref());
        Ok(Some(Namespace { nsid, identify, limits }))
    }

    /// The NVM Command Set's Identify Namespace (CNS 05h).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn identify_namespace_nvm(&mut self, nsid: u32) -> Result<Box<IdentifyNamespaceNvm>, ControllerError> {
        let sqe = Sqe::identify(Cns::IO_COMMAND_SET_NAMESPACE, nsid).with_identify_csi(Csi::NVM);
        self.admin.fetch(sqe).map(Box::new)
    }

    /// The NVM Command Set's Identify Controller (CNS 06h).
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses.
    pub fn identify_controller_nvm(&mut self) -> Result<Box<IdentifyControllerNvm>, ControllerError> {
        identify_controller_nvm(&mut self.admin)
    }

    /// By what a namespace is known again: its Namespace Identification Descriptors where the controller has them, else
    /// what Identify Namespace says. Nothing, where identifiers are known to be made up.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or returns a list that is broken.
    pub fn namespace_identity(&mut self, namespace: &Namespace) -> Result<NamespaceIdentity, ControllerError> {
        let of = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0);
        let mut identity = NamespaceIdentity {
            eui64: Some(namespace.identify.eui64).filter(|eui64| of(eui64)),
            nguid: Some(namespace.identify.nguid).filter(|nguid| of(nguid)),
            ..NamespaceIdentity::default()
        };
        let without = QuirkFlags::NO_DESCRIPTOR_LIST | QuirkFlags::IDENTIFY_CNS;
        if self.identify.ver < DESCRIPTORS || self.quirks.flags().intersects(without) {
            return Ok(identity);
        }
        let bogus = self.quirks.has(QuirkFlags::BOGUS_IDENTIFIERS);
        let cns = Cns::NAMESPACE_IDENTIFICATION_DESCRIPTOR_LIST;
        let page: Box<[u8; IDENTIFY_LENGTH]> = Box::new(self.admin.identify(cns, namespace.nsid)?);
        for descriptor in Descriptors::new(&page) {
            match descriptor? {
                NamespaceIdentifier::Csi(csi) => identity.csi = Some(csi),
                _ if bogus => {}
                NamespaceIdentifier::Eui64(eui64) => identity.eui64 = Some(eui64),
                NamespaceIdentifier::Nguid(nguid) => identity.nguid = Some(nguid),
                NamespaceIdentifier::Uuid(uuid) => identity.uuid = Some(uuid),
                NamespaceIdentifier::Reserved { .. } => {}
            }
        }
        Ok(identity)
    }

    /// Walks a list of namespaces, which comes in pages of 1,024, each of identifiers above the last one of the page
    /// before. Identifiers must ascend and be no greater than NN, and there is a limit to how many are listened to: so
    /// the walk ends, whatever a device says.
    fn list(&mut self, cns: Cns) -> Result<Vec<u32>, ControllerError> {
        let (nn, max) = (self.identify.nn, self.config.max_namespaces);
        let mut nsids = Vec::new();
        let mut after = 0;
        loop {
            let list: Box<ActiveNamespaceList> = Box::new(self.admin.identify(cns, after)?);
            let mut listed = 0;
            for nsid in list.iter() {
                if nsid <= after || nsid > nn {
                    return Err(ControllerError::NamespaceList { nsid, after });
                }
                if nsids.len() as u64 >= u64::from(max) {
                    return Err(ControllerError::TooManyNamespaces { max });
                }
                after = nsid;
                listed += 1;
                nsids.push(nsid);
            }
            if listed < list.nsid.len() || after >= nn {
                return Ok(nsids);
            }
        }
    }
}

fn identify_controller_nvm(admin: &mut AdminQueue) -> Result<Box<IdentifyControllerNvm>, ControllerError> {
    admin.fetch(Sqe::identify(Cns::IO_COMMAND_SET_CONTROLLER, 0).with_identify_csi(Csi::NVM)).map(Box::new)
}

/// What a controller may do without: nothing where it refuses.
fn optional<T>(answer: Result<T, ControllerError>) -> Result<Option<T>, ControllerError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ControllerError::Command { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
