//! Format NVM (NVM Express Base 2.1, 5.1.10; NVM Command Set 1.1, 4.1.2).
//!
//! A format takes turns. Its namespaces are closed meanwhile, and open again with the new format and every block zero
//! when the command completes. A reset drops the command; the format goes on.

use std::collections::VecDeque;

use super::super::io_config::MetadataConfig;
use super::super::namespaces::Namespaces;
use super::super::reservations::Wish;
use super::super::transfer::permanent;
use super::{Answer, LateCompletion};
use crate::spec::command::{NSID_ALL, SecureEraseSettings, Sqe};
use crate::spec::status::{Status, StatusCode};

/// Bytes of protection information, which metadata must have room for.
const PROTECTION_INFORMATION: u16 = 8;

/// A format in progress.
struct Format {
    /// The command that waits for it; `None` after a reset.
    cid: Option<u16>,
    nsids: Vec<u32>,
    index: usize,
    metadata: MetadataSettings,
    left: u32,
}

/// How a format transfers and protects metadata, where there is any.
#[derive(Clone, Copy)]
struct MetadataSettings {
    extended: bool,
    protection_type: u8,
    first_eight: bool,
}

impl MetadataSettings {
    fn of_size(self, size: u16) -> MetadataConfig {
        let Self { extended, protection_type, first_eight } = self;
        match size {
            0 => MetadataConfig::default(),
            _ => MetadataConfig { size, extended, protection_type, first_eight },
        }
    }
}

/// Formats in progress.
pub(super) struct Formats {
    formats: Vec<Format>,
    delay: u32,
}

impl Formats {
    pub(super) fn new(delay: u32) -> Self {
        Self { formats: Vec::new(), delay }
    }

    pub(super) fn reset(&mut self) {
        for format in &mut self.formats {
            format.cid = None;
        }
    }

    pub(super) fn busy(&self) -> bool {
        !self.formats.is_empty()
    }

    pub(super) fn waits(&self, cid: u16) -> bool {
        self.formats.iter().any(|format| format.cid == Some(cid))
    }

    pub(super) fn format(&mut self, sqe: &Sqe, namespaces: &mut Namespaces) -> Result<Answer, Status> {
        if !matches!(
            sqe.ses(),
            SecureEraseSettings::NONE | SecureEraseSettings::USER_DATA | SecureEraseSettings::CRYPTOGRAPHIC
        ) {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if sqe.nsid != NSID_ALL {
            namespaces.find(sqe.nsid)?;
        }
        let index = usize::from(sqe.format_index());
        let named = |nsid| sqe.nsid == NSID_ALL || sqe.nsid == nsid;
        for entry in namespaces.iter().filter(|entry| named(entry.nsid)) {
            let format = entry.formats.get(index).ok_or(permanent(StatusCode::INVALID_FORMAT))?;
            if sqe.format_pi() > 3 || sqe.format_pi() > 0 && format.ms < PROTECTION_INFORMATION {
                return Err(permanent(StatusCode::INVALID_FORMAT));
            }
            if entry.format_left.is_some() {
                return Err(StatusCode::FORMAT_IN_PROGRESS.status());
            }
            if entry.namespace.reservations.forbids(Wish::Write) {
                return Err(StatusCode::RESERVATION_CONFLICT.status());
            }
            if !entry.namespace.store.writable() {
                return Err(permanent(StatusCode::NAMESPACE_IS_WRITE_PROTECTED));
            }
        }
        let nsids: Vec<u32> = namespaces.iter().map(|entry| entry.nsid).filter(|nsid| named(*nsid)).collect();
        for nsid in &nsids {
            namespaces.set_format_left(*nsid, Some(100));
        }
        let metadata =
            MetadataSettings { extended: sqe.mset(), protection_type: sqe.format_pi(), first_eight: sqe.format_pil() };
        self.formats.push(Format { cid: Some(sqe.cid), nsids, index, metadata, left: self.delay });
        Ok(Answer::Later)
    }

    /// One turn passes.
    pub(super) fn tick(&mut self, namespaces: &mut Namespaces, late: &mut VecDeque<LateCompletion>) {
        let delay = self.delay.max(1);
        self.formats.retain_mut(|format| {
            if format.left > 0 {
                format.left -= 1;
                let percent = (u64::from(format.left) * 100 / u64::from(delay)) as u8;
                format.nsids.iter().for_each(|nsid| namespaces.set_format_left(*nsid, Some(percent)));
                return true;
            }
            let mut outcome = Ok(0);
            for nsid in &format.nsids {
                outcome = outcome.and(match namespaces.get_mut(*nsid) {
                    Some(entry) => {
                        let metadata = format.metadata.of_size(entry.formats[format.index].ms);
                        let formatted = entry.reformat(format.index, metadata);
                        formatted.map(|()| 0).map_err(|_| StatusCode::WRITE_FAULT.status())
                    }
                    // It was removed meanwhile.
                    None => Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND)),
                });
                namespaces.set_format_left(*nsid, None);
            }
            late.extend(format.cid.map(|cid| (cid, outcome)));
            false
        });
    }
}
