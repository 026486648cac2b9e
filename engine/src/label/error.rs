//! What can be wrong: with a slot ([`Malformed`]), and with what was asked of a label ([`LabelError`]).

use std::fmt;

use thiserror::Error;
use uuid::Uuid;

use super::{BlockExtent, End, Identity, NameError, SlotPlace};
use crate::ByteSize;
use crate::blocks::BlocksError;

/// What is wrong with a slot that begins as a label does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Malformed {
    /// It says a length that no label has, or not that of what it lists.
    #[error("it says that it has {length} bytes: it must have {least} to {most}")]
    Length {
        /// What it says.
        length: u64,
        /// The fewest that there can be, with the entries that it says it has.
        least: u64,
        /// The most.
        most: u64,
    },
    /// Its bytes are not those that were written: the write was torn, or they have changed since.
    #[error("its CRC-32C is {computed:08x}, and it says {stored:08x}: a write was torn, or the bytes have changed")]
    Crc {
        /// What it says.
        stored: u32,
        /// What its bytes have.
        computed: u32,
    },
    /// A field has a value that it must not have.
    #[error("{field} is {value}: it must be {must}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        must: &'static str,
    },
    /// A name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A name is not UTF-8.
    #[error("a name is not UTF-8: {bytes:x?}")]
    NotUtf8 {
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// An extent lies outside the data area.
    #[error("blocks {} to {} lie outside the data area, {} to {}", extent.slba(), extent.end(), data.slba(), data.end())]
    Outside {
        /// The extent.
        extent: BlockExtent,
        /// The data area.
        data: BlockExtent,
    },
    /// Two extents share blocks.
    #[error("blocks {} to {} and {} to {} overlap", one.slba(), one.end(), other.slba(), other.end())]
    Overlap {
        /// The first.
        one: BlockExtent,
        /// The second.
        other: BlockExtent,
    },
    /// A segment's capacity is not what its extents can hold.
    #[error("segment {name} has a capacity of {capacity} blocks and extents of {blocks}: it must be 1 to {blocks}")]
    Capacity {
        /// The segment.
        name: String,
        /// What it says.
        capacity: u64,
        /// Blocks of its extents.
        blocks: u64,
    },
    /// What must be one of a kind is there twice.
    #[error("the {what} {value} is there twice")]
    Twice {
        /// What.
        what: &'static str,
        /// Its value.
        value: String,
    },
    /// A part of a striped set that cannot be.
    #[error("segment {name}: of the striped set: {wrong}")]
    Stripe {
        /// The segment.
        name: String,
        /// Why.
        wrong: &'static str,
    },
    /// Something is pending that cannot be.
    #[error("segment {name}: of what is pending: {wrong}")]
    Pending {
        /// The segment.
        name: String,
        /// Why.
        wrong: &'static str,
    },
    /// It is whole, but was written for another place: the end of a namespace of another size, or by something that
    /// copied it.
    #[error("it was written for a namespace of {blocks} blocks of {block_size} bytes, whose end is not here")]
    Elsewhere {
        /// Blocks of that namespace.
        blocks: u64,
        /// Their bytes.
        block_size: u32,
    },
}

/// What a slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Zeroes.
    Blank,
    /// Something that does not begin as a label does.
    Foreign,
    /// A label, and what is wrong with it.
    Damaged(Malformed),
    /// A label that a later version of Tentpeg wrote.
    Newer {
        /// Its version.
        version: u32,
        /// Its incompatible flags that this version does not know.
        flags: u64,
    },
    /// A label. The highest sequence of the four is the one that counts.
    Valid {
        /// Its sequence.
        sequence: u64,
        /// The UUID of the device.
        device: Uuid,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => f.write_str("zeroes"),
            Self::Foreign => f.write_str("something other than a label"),
            Self::Damaged(malformed) => write!(f, "a damaged label: {malformed}"),
            Self::Newer { version, flags } => {
                write!(f, "a label of version {version} with the incompatible flags {flags:#x}")
            }
            Self::Valid { sequence, device } => write!(f, "a label of device {device}, sequence {sequence}"),
        }
    }
}

/// What the four slots hold, in the order of [`SlotPlace::ALL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings(pub Box<[Finding; 4]>);

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in SlotPlace::ALL.iter().zip(self.0.iter()) {
            let separator = if place.index() == 0 { "" } else { "; " };
            write!(f, "{separator}{place}: {finding}")?;
        }
        Ok(())
    }
}

/// Why something was not done with a label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelError {
    /// Device: it did not read or write.
    #[error("the label: {0}")]
    Blocks(#[from] BlocksError),
    /// Caller: the namespace can have no label.
    #[error(
        "{blocks} blocks of {block_size} bytes: a label needs blocks of 512 to 65536 bytes, more than 2 MiB of them, and fewer than 2^64 bytes"
    )]
    Unsuitable {
        /// Blocks of the namespace.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Caller: the namespace can have no label any more, and begins with one.
    #[error(
        "it begins with a label, and {blocks} blocks of {block_size} bytes can have none: it was made smaller, or reformatted: give it its former size and format back, or zero its first MiB if nobody needs what was on it"
    )]
    Remnant {
        /// Blocks of the namespace.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Caller: there is no label: all four slots are zeroes.
    #[error("there is no label: create one by `tentpeg label create`")]
    Blank,
    /// Caller: there is no label, and there is something else in its place.
    #[error("there is no label, but something else in its place ({0}): see whose it is before you create one")]
    Foreign(Findings),
    /// Device: there was a label, and no slot of it can be read any more.
    #[error("the label is damaged, and no slot of it is whole ({0})")]
    Damaged(Findings),
    /// Caller: a later version of Tentpeg wrote the label.
    #[error(
        "{place} holds a label of version {version} with the incompatible flags {flags:#x}, this is version 1: use the Tentpeg that wrote it"
    )]
    Newer {
        /// The slot.
        place: SlotPlace,
        /// Its version.
        version: u32,
        /// Its incompatible flags that this version does not know.
        flags: u64,
    },
    /// Device: two slots with one sequence say different things. Two hosts have written, or a slot was copied.
    #[error(
        "{one} and {other} both have sequence {sequence} and say different things: two hosts wrote to one device, or a slot was copied"
    )]
    Conflict {
        /// A slot.
        one: SlotPlace,
        /// Another.
        other: SlotPlace,
        /// Their sequence.
        sequence: u64,
    },
    /// Device: two slots have labels of different devices.
    #[error("{one} has the label of device {}, {other} that of device {}: one was copied from elsewhere", devices[0], devices[1])]
    TwoDevices {
        /// A slot.
        one: SlotPlace,
        /// Another.
        other: SlotPlace,
        /// The UUIDs that they have.
        devices: [Uuid; 2],
    },
    /// Caller: the label is that of another namespace.
    #[error(
        "the label was made for a namespace with {label}, and this one has {device}: it was copied, or the namespace was replaced: open the one that it was made for (a file that was moved to another file system, or restored, is another one: `tentpeg read --whole-device` still reads it), or remove the label by `tentpeg label erase`"
    )]
    Replaced {
        /// As the label has it.
        label: Box<Identity>,
        /// As the device says.
        device: Box<Identity>,
    },
    /// Caller: the namespace has another LBA format than when the label was made.
    #[error("the label was made for blocks of {label_block_size} bytes with {} bytes of metadata and protection type {}, and this namespace has {block_size}, {} and {}: it was reformatted, or a model is opened with another `lba`", label.ms, label.pit, device.ms, device.pit)]
    Reformatted {
        /// Bytes of a block when the label was made.
        label_block_size: u32,
        /// Bytes of a block now.
        block_size: u32,
        /// The rest of the format when the label was made.
        label: Box<Identity>,
        /// The rest of the format now.
        device: Box<Identity>,
    },
    /// Caller: the namespace has another size than when the label was made.
    #[error(
        "the label was made for {label} blocks, and this namespace has {device}: it was resized: `tentpeg label repair --resized` takes it as it is, if every segment still lies in it"
    )]
    Resized {
        /// Blocks when the label was made.
        label: u64,
        /// Blocks now.
        device: u64,
    },
    /// Caller: an end of the namespace was overwritten with something that is no label.
    #[error(
        "the {end} of the namespace was overwritten with something else: see whose it is, then run `tentpeg label repair`"
    )]
    Overwritten {
        /// Which.
        end: End,
    },
    /// Caller: a label is there already.
    #[error("there is a label already ({0}): it is only replaced when that is asked for (`--replace`)")]
    Exists(Findings),
    /// Caller: the label was opened for reading only.
    #[error("the label is open for reading only")]
    ReadOnly,
    /// Caller: the blocks are not those of the device that the label was read from.
    #[error("the label belongs to a device of {label} blocks, and this one has {device}")]
    OtherDevice {
        /// Blocks of the label's device.
        label: u64,
        /// Blocks of the one given.
        device: u64,
    },
    /// Device: an earlier change failed half-way. What the device holds is its old or its new state.
    #[error("an earlier change of the label failed: open it again to see whether it was made")]
    Uncertain,
    /// Caller: the argument cannot be.
    #[error("{argument} is {value}: it must be {must}")]
    Argument {
        /// Which.
        argument: &'static str,
        /// What it is.
        value: u64,
        /// What it must be.
        must: String,
    },
    /// Caller: what was asked for cannot be in a label.
    #[error("{0}")]
    Refused(#[from] Malformed),
    /// Caller: the name is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Caller: a segment of that name is there already.
    #[error("there is a segment {name} already")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Caller: there is no such segment.
    #[error("there is no segment {name}")]
    NoSegment {
        /// The name.
        name: String,
    },
    /// Caller: the segment is a part of a striped set, and changes with it alone.
    #[error("segment {name} is a part of the striped set {set}: change the set")]
    InSet {
        /// The segment.
        name: String,
        /// The set.
        set: Uuid,
    },
    /// Caller: not enough is free.
    #[error(
        "{} are wanted, and {} are free in whole units of {}",
        bytes(*wanted, *block_size), bytes(*free, *block_size), bytes(*alignment, *block_size)
    )]
    NoSpace {
        /// Blocks that are wanted, in whole units.
        wanted: u64,
        /// Blocks that are free, in whole units.
        free: u64,
        /// Blocks of a unit.
        alignment: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Caller: the label has no room for more.
    #[error("the label would have {bytes} bytes, of {most}: delete segments, or have fewer extents or members in them")]
    Full {
        /// Bytes that it would have.
        bytes: u64,
        /// The most that it can have.
        most: u64,
    },
    /// Caller: the segment, or the label, has been changed 2^64 times.
    #[error("{what} has no next value")]
    Exhausted {
        /// What.
        what: &'static str,
    },
}

/// Blocks as people count them.
fn bytes(blocks: u64, block_size: u32) -> ByteSize {
    ByteSize(blocks.saturating_mul(block_size.into()))
}
