//! What somebody else has left on a device: partition tables, file systems, volume managers, RAID, encryption, the stores
//! of other engines. Asked before the first write to a device that carries no label of ours.
//!
//! What is looked for stands in one table (`table`), each row with where it is looked for, the bytes that mark it and
//! what else must be right there; a row makes no I/O. The reads are those of both ends of the device, a MiB each, and of
//! single blocks where copies lie between. Nothing is ever written. What the label says is the label's own matter: one of
//! Tentpeg is not foreign.

use std::fmt;

use crate::blocks::{Blocks, BlocksError};

mod signature;
mod table;
mod window;
mod zfs;

use signature::Structure;
use table::{EMPTY_MBR, GPT, PROTECTIVE_MBR, SIGNATURES};
use window::Window;

/// Something that is not ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignContents {
    /// What it is called, such as "XFS" or "LVM2 physical volume".
    pub name: &'static str,
    /// Where it and its copies were found: bytes from the device's start, ascending.
    pub places: Vec<u64>,
    /// The name that its owner gave it. Control characters are escaped.
    pub label: Option<String>,
    /// Its UUID or serial number, in its own notation.
    pub uuid: Option<String>,
}

impl fmt::Display for ForeignContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.places.iter().map(u64::to_string).collect();
        let bytes = if places.len() == 1 { "byte" } else { "bytes" };
        write!(f, "{} at {bytes} {}", self.name, places.join(", "))?;
        match (&self.label, &self.uuid) {
            (Some(label), Some(uuid)) => write!(f, " (label {label}, UUID {uuid})"),
            (Some(label), None) => write!(f, " (label {label})"),
            (None, Some(uuid)) => write!(f, " (UUID {uuid})"),
            (None, None) => Ok(()),
        }
    }
}

/// What there is on `device`, in the order of the places. Empty: nothing that is known.
///
/// # Errors
/// [`BlocksError`]: a block that had to be looked at cannot be read. Then nothing is known of the device.
pub fn find(device: &mut dyn Blocks) -> Result<Vec<ForeignContents>, BlocksError> {
    let mut window = Window::new(device);
    let mut found: Vec<ForeignContents> = Vec::new();
    for signature in SIGNATURES {
        let mut places: Vec<u64> = signature.places.iter().filter_map(|place| window.resolve(*place)).collect();
        places.sort_unstable();
        places.dedup();
        for at in places {
            let structure = Structure { at, bytes: window.up_to(at, signature.length)? };
            if signature.matches(&structure) {
                let (label, uuid) = (signature.label(&structure), signature.uuid(&structure));
                add(&mut found, ForeignContents { name: signature.name, places: vec![at], label, uuid });
            }
        }
    }
    // A GPT brings its protective MBR. An MBR without partitions is what is left of boot code, or of a boot sector that
    // has its own row.
    let has = |name: &str| found.iter().any(|contents| contents.name == name);
    let (gpt, others) = (has(GPT), found.iter().any(|contents| contents.name != EMPTY_MBR));
    found.retain(|contents| !(contents.name == PROTECTIVE_MBR && gpt || contents.name == EMPTY_MBR && others));
    found.sort_by(|one, other| one.places.cmp(&other.places));
    Ok(found)
}

/// Copies of one thing are one thing in several places.
fn add(found: &mut Vec<ForeignContents>, new: ForeignContents) {
    let is_copy = |old: &&mut ForeignContents| old.name == new.name && old.uuid == new.uuid && old.label == new.label;
    match found.iter_mut().find(is_copy) {
        Some(old) => old.places.extend(new.places),
        None => found.push(new),
    }
}

#[cfg(test)]
mod tests;
