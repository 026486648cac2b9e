//! Namespaces: which there are, and what fits into a command on each (NVM Express Base 2.1, 5.1.13.2.2; NVM Command
//! Set 1.1, 4.1.5.1).

use super::ControllerError;
use super::admin::AdminQueue;
use crate::queue::{ControllerLimits, Limits, LimitsError};
use crate::spec::command::Cns;
use crate::spec::identify::{ActiveNamespaceList, IdentifyNamespace};

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

/// Identifies every active namespace.
///
/// The lists come in pages of 1,024, each of identifiers above the last one of the page before. Identifiers must
/// ascend, so the walk ends, whatever a device says; `nn`, the largest identifier that there can be, ends it early.
pub(super) fn active(
    admin: &mut AdminQueue,
    limits: &ControllerLimits,
    nn: u32,
) -> Result<Vec<Namespace>, ControllerError> {
    let mut namespaces = Vec::new();
    let mut after = 0;
    loop {
        let list: Box<ActiveNamespaceList> = Box::new(admin.identify(Cns::ACTIVE_NAMESPACE_LIST, after)?);
        let mut listed = 0;
        for nsid in list.iter() {
            if nsid <= after || nsid > nn {
                return Err(ControllerError::NamespaceList { nsid, after });
            }
            after = nsid;
            listed += 1;
            let identify: Box<IdentifyNamespace> = Box::new(admin.identify(Cns::NAMESPACE, nsid)?);
            let limits = limits.namespace(&identify, None);
            namespaces.push(Namespace { nsid, identify, limits });
        }
        if listed < list.nsid.len() || after >= nn {
            return Ok(namespaces);
        }
    }
}
