//! The name of a ZFS pool, from the list of names and values in a vdev label: XDR, each pair with its length, numbers
//! big-endian.

use super::signature::{Structure, text};

/// Pairs that are looked at: a label has about thirty.
const MOST_PAIRS: usize = 64;
/// Where the first pair is: after the encoding, the version and the flags.
const FIRST: usize = 12;
const UINT64: u32 = 8;
const STRING: u32 = 9;

pub(super) fn name(label: &Structure<'_>) -> Option<String> {
    let at = value(label, b"name", STRING)?;
    text(label.slice(at + 4, label.be32(at) as usize))
}

/// The pool's GUID, in decimal as ZFS shows it.
pub(super) fn guid(label: &Structure<'_>) -> Option<String> {
    value(label, b"pool_guid", UINT64).map(|at| label.be64(at).to_string())
}

/// Where the value of the first pair of this name and type is.
fn value(label: &Structure<'_>, name: &[u8], kind: u32) -> Option<usize> {
    let mut at = FIRST;
    for _ in 0..MOST_PAIRS {
        let size = label.be32(at) as usize;
        // No pair is shorter than its own head, and a length of zero ends the list.
        if size < 20 || size > label.bytes.len() {
            return None;
        }
        let length = label.be32(at + 8) as usize;
        if length == name.len() && label.has(at + 12, name) {
            let head = at + 12 + length.next_multiple_of(4);
            return (label.be32(head) == kind && label.be32(head + 4) == 1).then_some(head + 8);
        }
        at += size;
    }
    None
}
