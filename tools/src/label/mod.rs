//! `tentpeg label`: what says whose a device is and which segments it holds.

use clap::{Args, Subcommand};
use tentpeg_engine::ByteSize;
use tentpeg_engine::administration::{Administration, AdministrationError};
use tentpeg_engine::label::{Finding, Label, NewLabel, Repair, SlotPlace};
use thiserror::Error;

use crate::device::{DeviceError, NodeArgs, not_fenced, refuse_to_create, require_lasting};
use crate::report::{self, Row, Value};

/// What is done with a label.
#[derive(Subcommand, Clone, Debug)]
pub enum LabelCommand {
    /// Make a label on a device that has nothing on it
    #[command(after_help = "Example:\n  tentpeg label create model:path=disk.img,size=1GiB")]
    Create(CreateArgs),
    /// Show the label; nothing is written
    #[command(after_help = "Example:\n  tentpeg label show model:path=disk.img")]
    Show(DeviceArgs),
    /// Write the label where a copy of it is damaged or gone
    #[command(after_help = "Example:\n  tentpeg label repair model:path=disk.img,overwrite")]
    Repair(RepairArgs),
    /// Say whether tests may overwrite the device, segments and all
    #[command(after_help = "Example:\n  tentpeg label mark model:path=disk.img,overwrite --may-be-overwritten true")]
    Mark(MarkArgs),
    /// Remove the label, and with it the only trace of where segments lie
    #[command(after_help = "Example:\n  tentpeg label erase model:path=disk.img,overwrite")]
    Erase(EraseArgs),
}

/// Which device, and how to tell.
#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// The device, such as model:path=FILE; what is written and exists needs `overwrite` in it
    pub device: String,
    /// Print one JSON object, with sizes in bytes, instead of a table
    #[arg(long)]
    pub json: bool,
}

/// What a new label is to be.
#[derive(Args, Clone, Debug)]
pub struct CreateArgs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// What segments begin at multiples of
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    alignment: ByteSize,
    /// Room for self-tests; may be 0
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    scratch: ByteSize,
    /// Replace what is in its place: a label, whose segments are gone then, or anything else but known contents
    #[arg(long)]
    replace: bool,
}

/// How a label is mended.
#[derive(Args, Clone, Debug)]
pub struct RepairArgs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Take a namespace that was resized as it is now
    #[arg(long)]
    resized: bool,
}

/// What tests may do with a device.
#[derive(Args, Clone, Debug)]
pub struct MarkArgs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Whether tests may overwrite it
    #[arg(long, value_name = "BOOL", action = clap::ArgAction::Set)]
    may_be_overwritten: bool,
}

/// Which label is removed.
#[derive(Args, Clone, Debug)]
pub struct EraseArgs {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Also where there are segments, or may be: nobody finds again what is in them
    #[arg(long)]
    with_segments: bool,
}

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum LabelCommandError {
    /// The device is none for this.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device or its label.
    #[error(transparent)]
    Administration(#[from] AdministrationError),
    /// Caller: segments would go with it.
    #[error(
        "{device} has segments ({}), whose places only the label says: delete them by `tentpeg segment delete`, or say --with-segments", segments.join(", ")
    )]
    HasSegments {
        /// The device.
        device: String,
        /// Their names.
        segments: Vec<String>,
    },
    /// Caller: segments may go with it, and which nobody can say.
    #[error(
        "{source}. Nothing was erased: which segments would go with the label cannot be seen then; --with-segments erases it all the same"
    )]
    MayHaveSegments {
        /// Why it cannot be seen.
        source: AdministrationError,
    },
    /// Caller: there is something where the label would be.
    #[error(
        "{device} has something else in the place of a label ({places}): look at it by `tentpeg read --whole-device`, and say --replace if it may go"
    )]
    SomethingElse {
        /// The device.
        device: String,
        /// Where.
        places: String,
    },
    /// Host: it has failed the file that the device lies in.
    #[error("{source}; {reason}")]
    Store {
        /// What did not succeed.
        source: AdministrationError,
        /// What the host says.
        reason: String,
    },
}

/// What is printed.
#[derive(Debug)]
pub struct Answer {
    /// On standard output.
    pub text: String,
    /// On standard error.
    pub note: Option<String>,
}

impl Answer {
    /// Rows as a table or as JSON.
    pub(crate) fn of(rows: &[Row], json: bool) -> Self {
        Self { text: if json { report::json(rows) } else { report::table(rows) }, note: None }
    }
}

/// Does it.
///
/// # Errors
/// [`LabelCommandError`].
pub fn run(command: &LabelCommand) -> Result<Answer, LabelCommandError> {
    match command {
        LabelCommand::Create(args) => create(args),
        LabelCommand::Show(args) => show(args),
        LabelCommand::Repair(args) => repair(args),
        LabelCommand::Mark(args) => mark(args),
        LabelCommand::Erase(args) => erase(args),
    }
}

/// Opens a device that is there already, to look at it.
///
/// # Errors
/// [`LabelCommandError`]; no file is created.
pub(crate) fn open(command: &'static str, uri: &str) -> Result<Administration, LabelCommandError> {
    refuse_to_create(command, uri)?;
    Ok(Administration::open(uri).map_err(DeviceError::from)?)
}

/// Opens a device that is there already, for its label to be changed by this node.
///
/// # Errors
/// [`LabelCommandError`]; no file is created.
pub(crate) fn open_lasting(
    command: &'static str,
    uri: &str,
    node: &NodeArgs,
) -> Result<Administration, LabelCommandError> {
    require_lasting(uri)?;
    refuse_to_create(command, uri)?;
    Ok(Administration::open_with(uri, &node.options()).map_err(DeviceError::from)?)
}

/// What a change of a device gave; where this host has failed the device's file, with that.
fn told<T>(device: &Administration, changed: Result<T, AdministrationError>) -> Result<T, LabelCommandError> {
    changed.map_err(|source| match device.store_error() {
        Some(reason) => LabelCommandError::Store { source, reason },
        None => source.into(),
    })
}

/// Says once that other hosts are not kept from a device that is this node's now.
pub(crate) fn with_note(answer: Answer, device: &Administration) -> Answer {
    Answer { note: answer.note.or(not_fenced([device.info()])), ..answer }
}

fn create(args: &CreateArgs) -> Result<Answer, LabelCommandError> {
    require_lasting(&args.device.device)?;
    let opened = Administration::open_with(args.device.device.as_str(), &args.node.options());
    let mut device = opened.map_err(DeviceError::from)?;
    // What somebody else has there is refused behind this, with its name and whatever is said.
    if !args.replace
        && device.foreign().is_empty()
        && let Some(findings) = device.findings()
    {
        let places = SlotPlace::ALL.iter().zip(findings.0.iter()).filter(|(_, found)| **found == Finding::Foreign);
        let places: Vec<_> = places.map(|(place, _)| place.to_string()).collect();
        if !places.is_empty() {
            let (device, places) = (device.info().name.clone(), places.join(", "));
            return Err(LabelCommandError::SomethingElse { device, places });
        }
    }
    let new =
        NewLabel { alignment: args.alignment.0, scratch: args.scratch.0, replace: args.replace, ..NewLabel::default() };
    let label = device.create_label(&new);
    let label = told(&device, label)?;
    let answer = with_note(Answer::of(&rows(&device, &label), args.device.json), &device);
    device.close()?;
    Ok(answer)
}

fn show(args: &DeviceArgs) -> Result<Answer, LabelCommandError> {
    let mut device = open("label show", &args.device)?;
    let label = device.label()?;
    let rows = rows(&device, &label);
    device.close()?;
    Ok(Answer::of(&rows, args.json))
}

fn repair(args: &RepairArgs) -> Result<Answer, LabelCommandError> {
    let mut device = open_lasting("label repair", &args.device.device, &args.node)?;
    let written = device.repair_label(Repair { resized: args.resized });
    let written = told(&device, written)?;
    let written: Vec<_> = written.iter().map(SlotPlace::to_string).collect();
    let shown = if written.is_empty() { "none: each holds the label".to_owned() } else { written.join("; ") };
    let rows = [Row::table("slots written", Value::Text(shown)), Row::json("slots_written", Value::Texts(written))];
    device.close()?;
    Ok(Answer::of(&rows, args.device.json))
}

fn mark(args: &MarkArgs) -> Result<Answer, LabelCommandError> {
    let mut device = open_lasting("label mark", &args.device.device, &args.node)?;
    let name = device.info().name.clone();
    let marked = device.change().and_then(|(mut label, mut blocks)| {
        let set = label.set_may_be_overwritten(&mut *blocks, args.may_be_overwritten);
        set.map(|()| label).map_err(|source| AdministrationError::Label { device: name, source })
    });
    let label = told(&device, marked)?;
    device.look_again()?;
    let answer = with_note(Answer::of(&rows(&device, &label), args.device.json), &device);
    device.close()?;
    Ok(answer)
}

fn erase(args: &EraseArgs) -> Result<Answer, LabelCommandError> {
    let mut device = open_lasting("label erase", &args.device.device, &args.node)?;
    // Where there is none the erasing says so.
    if !args.with_segments && device.has_label() {
        let label = device.label().map_err(|source| LabelCommandError::MayHaveSegments { source })?;
        let segments: Vec<_> =
            label.segments().map(|segment| segment.name.as_str().escape_debug().to_string()).collect();
        if !segments.is_empty() {
            return Err(LabelCommandError::HasSegments { device: device.info().name.clone(), segments });
        }
    }
    let erased = device.erase_label();
    told(&device, erased)?;
    let rows = [
        Row::both("device", "device", Value::Text(device.info().name.clone())),
        Row::both("erased", "label erased", Value::Flag(true)),
    ];
    device.close()?;
    Ok(Answer::of(&rows, args.device.json))
}

fn rows(device: &Administration, label: &Label) -> Vec<Row> {
    let block = u64::from(label.block_size());
    let bytes = |blocks: u64| Value::Bytes(blocks.saturating_mul(block));
    let owner = label.owner();
    let mut rows = vec![
        Row::both("device", "device", Value::Text(device.info().name.clone())),
        Row::both("device_uuid", "device UUID", Value::Text(label.device().to_string())),
        Row::both("namespace", "namespace", Value::Text(label.identity().to_string())),
        Row::both("sequence", "sequence", Value::Count(label.sequence())),
        Row::both("owner_node", "owner", Value::Text(owner.node.to_string())),
        Row::both("owner_name", "owner's name", Value::Text(owner.name.escape_debug().to_string())),
        Row::both("owner_epoch", "owner's epoch", Value::Count(owner.epoch)),
        Row::both("capacity_bytes", "capacity", bytes(label.blocks())),
        Row::both("block_bytes", "logical block", Value::Bytes(block)),
        Row::both("alignment_bytes", "alignment", bytes(label.alignment())),
        Row::both("scratch_bytes", "scratch", bytes(label.scratch().map_or(0, |extent| extent.blocks()))),
        Row::both("free_bytes", "free", bytes(label.free_blocks())),
        Row::both("segments", "segments", Value::Count(label.segments().count() as u64)),
        Row::both("may_be_overwritten", "may be overwritten", Value::Flag(label.may_be_overwritten())),
    ];
    if let Some(findings) = device.findings() {
        let slots = SlotPlace::ALL.iter().zip(findings.0.iter()).map(|(place, found)| format!("{place}: {found}"));
        rows.push(Row::both("slots", "slots", Value::Texts(slots.collect())));
    }
    rows
}
