//! What a label says of one segment.

use thiserror::Error;
use uuid::Uuid;

use super::BlockExtent;
pub use crate::segment::Durability;

/// The most bytes of a segment's name.
pub const NAME_BYTES: usize = 120;
/// The most bytes of an owner's name.
pub const OWNER_NAME_BYTES: usize = 63;
/// The fewest and the most namespaces of a striped set.
pub(super) const MEMBERS: std::ops::RangeInclusive<usize> = 2..=256;

/// Why a name is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has no bytes, or too many.
    #[error("a name of {bytes} bytes: it must have 1 to {most}")]
    Length {
        /// How many.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// It cannot be shown, or would be something else in a path.
    #[error("the name {name:?}: it must not be . or .., begin or end with a space, or hold / or a control character")]
    Character {
        /// The name.
        name: String,
    },
}

/// Whether a segment can have this name. It is one component of a path wherever a path is made of it.
pub(super) fn check_name(name: &str, most: usize) -> Result<(), NameError> {
    if name.is_empty() || name.len() > most {
        return Err(NameError::Length { bytes: name.len(), most });
    }
    let wrong = |c: char| c == '/' || c.is_control();
    if name.contains(wrong) || name.trim() != name || matches!(name, "." | "..") {
        return Err(NameError::Character { name: name.to_owned() });
    }
    Ok(())
}

/// A segment's part in a striped set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    /// The set's UUID, which is the striped segment's.
    pub set: Uuid,
    /// Which member it is, from 0.
    pub index: u16,
    /// Bytes of a chunk. Chunk c of the set lies on member c mod n and is the member's chunk c div n.
    pub chunk: u64,
    /// The device UUIDs of all members, by index.
    pub members: Vec<Uuid>,
}

/// A segment, or one member's part of a striped one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Its name, one of a kind on its device. All members of a striped set have the set's.
    pub name: String,
    /// Its UUID. It never changes. Each member of a striped set has its own.
    pub uuid: Uuid,
    /// 1 when it is created, and one more with each change.
    pub generation: u64,
    /// What it takes for a write to be COMPLETED.
    pub durability: Durability,
    /// Blocks that can be read and written. The extents may hold some more, for alignment.
    pub capacity: u64,
    /// Where its blocks lie, in the order of its offsets.
    pub extents: Vec<BlockExtent>,
    /// Its part in a striped set.
    pub stripe: Option<Stripe>,
}

/// What comes next for a member's part of a striped set, once all members know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pending {
    /// This one.
    Next(SegmentEntry),
    /// Nothing: it is deleted.
    Delete,
}

/// All that a label says of one segment: what is committed, what is pending beside it, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) committed: Option<SegmentEntry>,
    pub(super) pending: Option<Pending>,
}

impl Record {
    pub(super) fn committed(entry: SegmentEntry) -> Self {
        Self { committed: Some(entry), pending: None }
    }

    /// The entry that is to come.
    pub(super) fn next(&self) -> Option<&SegmentEntry> {
        match &self.pending {
            Some(Pending::Next(entry)) => Some(entry),
            _ => None,
        }
    }

    /// Its entries: the committed one, then the pending one.
    pub(super) fn entries(&self) -> impl Iterator<Item = &SegmentEntry> {
        self.committed.iter().chain(self.next())
    }

    /// The extents that are taken: those of the longer entry, whose beginning is the other (see
    /// [`check`](super::contents::Contents::check)).
    pub(super) fn taken(&self) -> &[BlockExtent] {
        let blocks = |entry: &&SegmentEntry| crate::segment::extent::total(&entry.extents);
        self.entries().max_by_key(blocks).map_or(&[], |entry| &entry.extents)
    }

    /// The set that it is a part of.
    pub(super) fn stripe(&self) -> Option<&Stripe> {
        self.entries().find_map(|entry| entry.stripe.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        for good in ["a", "...", ".hidden", "two words", "schlüssel", "a\\b", &"x".repeat(NAME_BYTES)] {
            assert_eq!(check_name(good, NAME_BYTES), Ok(()), "{good:?}");
        }
        for bad in [".", "..", "a/b", "/", " a", "a ", "a\nb", "a\0", "\u{7F}", "\u{85}a"] {
            assert_eq!(check_name(bad, NAME_BYTES), Err(NameError::Character { name: bad.to_owned() }));
        }
        assert_eq!(check_name("", 3), Err(NameError::Length { bytes: 0, most: 3 }));
        assert_eq!(check_name("abcd", 3), Err(NameError::Length { bytes: 4, most: 3 }));
        assert_eq!(check_name("éé", 3), Err(NameError::Length { bytes: 4, most: 3 }));
        assert_eq!(check_name("abc", 3), Ok(()));
    }
}
