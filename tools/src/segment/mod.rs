//! `tentpeg segment`: the segments of devices with a label, of one device or striped over several.

mod change;
mod find;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tentpeg_engine::ByteSize;
use tentpeg_engine::administration::AdministrationError;
use tentpeg_engine::label::stripe::SetError;
use tentpeg_engine::label::{Durability, LabelError};
use tentpeg_engine::link::LinkError;
use thiserror::Error;
use uuid::Uuid;

use crate::device::NodeArgs;
use crate::label::{Answer, LabelCommandError};

/// What is done with a segment.
#[derive(Subcommand, Clone, Debug)]
pub enum SegmentCommand {
    /// Make a segment, of which all reads as zeroes
    #[command(
        after_help = "Examples:\n  tentpeg segment create kv --device model:path=disk.img,overwrite --size 64MiB\n  \
                            tentpeg segment create wide --device model:path=a,overwrite --device model:path=b,overwrite \
                            --chunk 128KiB --size 256MiB"
    )]
    Create(CreateArgs),
    /// List the segments of these devices; nothing is written
    #[command(after_help = "Example:\n  tentpeg segment list --device model:path=disk.img")]
    List(DevicesArgs),
    /// Show one segment; nothing is written
    #[command(after_help = "Example:\n  tentpeg segment show kv --device model:path=disk.img")]
    Show(NamedArgs),
    /// Make a segment larger or smaller; what is new reads as zeroes
    #[command(after_help = "Example:\n  tentpeg segment resize kv --device model:path=disk.img,overwrite --size 96MiB")]
    Resize(ResizeArgs),
    /// Give a segment another name
    #[command(after_help = "Example:\n  tentpeg segment rename kv cache --device model:path=disk.img,overwrite")]
    Rename(RenameArgs),
    /// Say what it takes for a write to a segment to be completed
    #[command(after_help = "Example:\n  tentpeg segment durability kv flush --device model:path=disk.img,overwrite")]
    Durability(DurabilityArgs),
    /// Remove what these devices have of a stripe of which other devices are lost
    #[command(
        after_help = "Example:\n  tentpeg segment forget wide --device model:path=a,overwrite --members-are-lost"
    )]
    Forget(ForgetArgs),
    /// See which segment a marker stands for, and whether it still does
    #[command(after_help = "Example:\n  tentpeg segment check kv.segment --device model:path=disk.img")]
    Check(CheckArgs),
    /// Remove a segment, with all that is in it
    #[command(after_help = "Example:\n  tentpeg segment delete cache --device model:path=disk.img,overwrite")]
    Delete(ChangedArgs),
    /// Make a file that stands for a segment, which TENT opens as file://; again after a resize or a rename
    #[command(after_help = "Example:\n  tentpeg segment link kv kv.segment --device model:path=disk.img")]
    Link(LinkArgs),
}

/// Which devices, and how to tell.
#[derive(Args, Clone, Debug)]
pub struct DevicesArgs {
    /// A device, such as model:path=FILE; what is written needs `overwrite` in it. Several: all those of a stripe
    #[arg(long = "device", value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// Print one JSON object, with sizes in bytes, instead of a table
    #[arg(long)]
    json: bool,
}

/// Which segment.
#[derive(Args, Clone, Debug)]
pub struct NamedArgs {
    /// The segment's name
    name: String,
    #[command(flatten)]
    on: DevicesArgs,
}

/// Which segment is changed, and by whom.
#[derive(Args, Clone, Debug)]
pub struct ChangedArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    node: NodeArgs,
}

/// Which stripe is forgotten.
#[derive(Args, Clone, Debug)]
pub struct ForgetArgs {
    #[command(flatten)]
    changed: ChangedArgs,
    /// The devices that were not named are lost: what these have of the stripe is of no use without them
    #[arg(long)]
    members_are_lost: bool,
}

/// What a new segment is to be.
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    changed: ChangedArgs,
    /// Its size, in whole blocks, or whole chunks of a stripe
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    /// With several devices: how much lies on one before the next has its turn
    #[arg(long, value_name = "SIZE")]
    chunk: Option<ByteSize>,
    /// What it takes for a write to be completed
    #[arg(long, value_enum, default_value_t = Mode::None)]
    durability: Mode,
}

/// A size for a segment.
#[derive(Args, Clone, Debug)]
pub struct ResizeArgs {
    #[command(flatten)]
    changed: ChangedArgs,
    /// Its new size, in whole blocks, or whole chunks of a stripe
    #[arg(long, value_name = "SIZE")]
    size: ByteSize,
    #[command(flatten)]
    markers: MarkersArgs,
}

/// Which markers are made right again.
#[derive(Args, Clone, Debug)]
pub struct MarkersArgs {
    /// A marker of the segment, which is made right again; may be given several times
    #[arg(long = "marker", value_name = "FILE")]
    markers: Vec<PathBuf>,
}

/// A durability mode for a segment.
#[derive(Args, Clone, Debug)]
pub struct DurabilityArgs {
    #[command(flatten)]
    changed: ChangedArgs,
    /// What it takes for a write to be completed
    #[arg(value_enum)]
    mode: Mode,
}

/// A marker to be looked at.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The marker
    path: PathBuf,
    #[command(flatten)]
    on: DevicesArgs,
}

/// A name for a segment.
#[derive(Args, Clone, Debug)]
pub struct RenameArgs {
    #[command(flatten)]
    changed: ChangedArgs,
    /// Its new name
    to: String,
    #[command(flatten)]
    markers: MarkersArgs,
}

/// A marker for a segment.
#[derive(Args, Clone, Debug)]
pub struct LinkArgs {
    #[command(flatten)]
    named: NamedArgs,
    /// The marker: a file that does not exist, or the segment's own
    path: PathBuf,
}

/// A durability mode, as the command line has it.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The controller's word
    None,
    /// Every write has FUA
    Fua,
    /// A Flush behind the write
    Flush,
}

impl From<Mode> for Durability {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::None => Self::None,
            Mode::Fua => Self::Fua,
            Mode::Flush => Self::Flush,
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum SegmentCommandError {
    /// A device was not opened, or this host does not know who it is.
    #[error(transparent)]
    Open(#[from] LabelCommandError),
    /// A device or its label.
    #[error(transparent)]
    Administration(#[from] AdministrationError),
    /// The label of a device refused, or was not written.
    #[error("{device}: {source}")]
    Label {
        /// The device.
        device: String,
        /// Why.
        source: LabelError,
    },
    /// Host: it has failed the file that a device lies in.
    #[error("{error}; {reason}")]
    Store {
        /// What did not succeed.
        error: Box<SegmentCommandError>,
        /// What the host says.
        reason: String,
    },
    /// The labels of a stripe.
    #[error(transparent)]
    Set(#[from] SetError),
    /// The marker.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Caller: there is no such segment.
    #[error("there is no segment '{}' on {devices}: `tentpeg segment list` shows what there is", name.escape_debug())]
    NoSegment {
        /// The name.
        name: String,
        /// The devices.
        devices: String,
    },
    /// Caller: there are several of that name.
    #[error("{count} segments are called '{}' on these devices: name the devices of one of them alone", name.escape_debug())]
    Ambiguous {
        /// The name.
        name: String,
        /// How many there are.
        count: usize,
    },
    /// Caller: one of the devices has a segment of the new name.
    #[error("there is a segment '{}' on these devices already", name.escape_debug())]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Caller: a stripe without a chunk.
    #[error("{devices} devices make a stripe, which needs a chunk: add --chunk, such as --chunk 128KiB")]
    NoChunk {
        /// How many devices.
        devices: usize,
    },
    /// Caller: the device of a marker's segment was not named.
    #[error("{} names segment '{}' of device {device}, which is not among those named: name it, by --device", path.display(), segment.escape_debug())]
    OnAnotherDevice {
        /// The marker.
        path: PathBuf,
        /// The segment's name when the marker was made.
        segment: String,
        /// The device's UUID.
        device: Uuid,
    },
    /// Caller: a marker is another segment's. Nothing was changed.
    #[error("{} is a marker of segment '{}', and not of '{}': nothing was changed", path.display(), other.escape_debug(), name.escape_debug())]
    OthersMarker {
        /// The marker.
        path: PathBuf,
        /// Whose it is.
        other: String,
        /// The segment that was to be changed.
        name: String,
    },
    /// Caller: whether members that were not named are lost cannot be seen.
    #[error("{source}. Nothing was removed: they may only not have been named")]
    MayBeThere {
        /// What is missing.
        source: SetError,
    },
    /// Caller: there is nothing to forget.
    #[error("no striped segment '{}' has lost a member: remove it by `tentpeg segment delete`", name.escape_debug())]
    NotLost {
        /// The name.
        name: String,
    },
    /// The segment was changed, and a marker of it was not.
    #[error("the segment was changed, but not its marker: {0}")]
    Marker(LinkError),
    /// Caller: a chunk without a stripe.
    #[error("--chunk is for a stripe over several devices: add a --device, or leave --chunk away")]
    ChunkAlone,
}

/// Does it.
///
/// # Errors
/// [`SegmentCommandError`].
pub fn run(command: &SegmentCommand) -> Result<Answer, SegmentCommandError> {
    match command {
        SegmentCommand::Create(args) => change::create(args),
        SegmentCommand::List(args) => find::list(args),
        SegmentCommand::Show(args) => find::show(args),
        SegmentCommand::Resize(args) => change::resize(args),
        SegmentCommand::Rename(args) => change::rename(args),
        SegmentCommand::Durability(args) => change::durability(args),
        SegmentCommand::Forget(args) => change::forget(args),
        SegmentCommand::Check(args) => find::check(args),
        SegmentCommand::Delete(args) => change::delete(args),
        SegmentCommand::Link(args) => find::link(args),
    }
}
