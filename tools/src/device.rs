//! Opening a device for a subcommand, without making a file that nobody asked for.
//!
//! `model:path=FILE,size=4GiB` creates FILE. That suits what writes; what only looks, [`open_to_read`], refuses instead. And since
//! nothing may be written when a request is wrong, a request that would create a file is checked before, against the [`Geometry`]
//! that the file would give the device ([`to_be_created`]).

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tentpeg_engine::label::stripe::SetError;
use tentpeg_engine::ownership::reservation::{Fencing, NotFenced};
use tentpeg_engine::{
    ByteSize, DeviceInfo, DeviceUri, Engine, Lane, NotOpened, OpenError, OpenOptions, Segment, StoreUri,
};
use thiserror::Error;
use uuid::Uuid;

/// What a request is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block, a power of two.
    pub block: u64,
    /// Bytes of the device, a multiple of the block.
    pub capacity: u64,
}

impl Geometry {
    /// Of a segment.
    pub fn of(segment: &Segment) -> Self {
        Self { block: segment.lba_size, capacity: segment.capacity }
    }
}

/// Who this host is to the devices that it writes.
#[derive(Args, Clone, Debug, Default)]
pub struct NodeArgs {
    /// UUID of this node; without, the one that follows from its machine-id
    #[arg(long, value_name = "UUID")]
    pub node: Option<Uuid>,
    /// Take a device over that is another node's, and fence that where the device has reservations
    #[arg(long)]
    pub take_over: bool,
}

/// Which segment of a device with a label.
#[derive(Args, Clone, Debug, Default)]
pub struct SegmentArgs {
    /// The segment, of a device with a label [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub segment: Option<String>,
    /// Another device that the segment lies on, of a stripe; may be given several times
    #[arg(long = "with", value_name = "DEVICE")]
    pub with: Vec<String>,
}

impl NodeArgs {
    /// How devices are opened by this node.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { node: self.node, take_over: self.take_over, ..OpenOptions::default() }
    }
}

impl SegmentArgs {
    /// All devices: `first`, and the others.
    pub fn devices<'a>(&'a self, first: &'a str) -> impl Iterator<Item = &'a str> {
        [first].into_iter().chain(self.with.iter().map(String::as_str))
    }

    /// The segments that are meant: the one, or where several devices were named without a word of segments, the one on
    /// each of them; of a stripe among them, all its devices have that one.
    ///
    /// # Errors
    /// As [`of`](Self::of); [`DeviceError::NothingOn`].
    pub fn all_of<'a>(&self, engine: &'a Engine) -> Result<Vec<&'a Segment>, DeviceError> {
        let segments = engine.segments();
        let one = segments.len() == 1 || engine.devices().len() == 1 || !engine.not_opened().is_empty();
        if self.segment.is_some() || !self.with.is_empty() || one {
            return self.of(engine).map(|segment| vec![segment]);
        }
        for (number, device) in engine.devices().enumerate() {
            let on_it = |segment: &&Segment| segment.layout.members.iter().any(|member| member.device == number);
            let names: Vec<_> = segments.iter().filter(on_it).map(|segment| segment.layout.name.as_str()).collect();
            let device = || device.info().name.clone();
            match names.len() {
                0 => return Err(DeviceError::NothingOn { device: device() }),
                1 => {}
                _ => {
                    let segments = listed(names.into_iter());
                    return Err(DeviceError::WhichSegment { device: device(), segments });
                }
            }
        }
        Ok(segments.iter().collect())
    }

    /// The segment that is meant.
    ///
    /// # Errors
    /// [`DeviceError::WhichSegment`], [`DeviceError::NotTheOnly`], [`DeviceError::NoSegment`],
    /// [`DeviceError::NotOpened`].
    pub fn of<'a>(&self, engine: &'a Engine) -> Result<&'a Segment, DeviceError> {
        let segments = engine.segments();
        let listed = || listed(segments.iter().map(|segment| segment.layout.name.as_str()));
        let not_opened = engine.not_opened();
        match (&self.segment, segments) {
            // A stripe of which a member was forgotten may have been meant, and is no segment of the engine then.
            (None, [only]) if not_opened.is_empty() => Ok(only),
            (None, [_]) => {
                let reasons: Vec<_> = not_opened.iter().map(|not_opened| not_opened.reason.to_string()).collect();
                Err(DeviceError::NotTheOnly { segment: listed(), reason: reasons.join("; ") })
            }
            (None, _) => Err(DeviceError::WhichSegment { device: engine.info().name.clone(), segments: listed() }),
            (Some(name), _) => {
                if let Some(segment) = segments.iter().find(|segment| segment.layout.name == *name) {
                    return Ok(segment);
                }
                Err(match not_opened.iter().find(|not_opened| not_opened.name == *name) {
                    Some(NotOpened { reason, .. }) => DeviceError::NotOpened(reason.clone()),
                    None => DeviceError::NoSegment { name: name.clone(), segments: listed() },
                })
            }
        }
    }
}

/// The most names that a message has.
const NAMES: usize = 8;

/// Names as a message has them: not all, where there are many.
fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(NAMES);
    let mut names: Vec<_> = names.take(NAMES).map(|name| format!("'{}'", name.escape_debug())).collect();
    if more > 0 {
        names.push(format!("and {more} more, which `tentpeg segment list` shows"));
    }
    names.join(", ")
}

/// Refuses devices of which two lie in one file, whatever it is called. Opened for writing, the second would only be told
/// that the file is in use.
///
/// # Errors
/// [`DeviceError::Open`] of [`OpenError::Twice`].
pub fn refuse_twice(devices: &[String]) -> Result<(), DeviceError> {
    for (number, second) in devices.iter().enumerate() {
        // What cannot be looked at is refused when it is opened.
        let Some(file) = file_at(second) else { continue };
        if let Some(first) = devices[..number].iter().find(|first| own_file(first, &file).is_some()) {
            return Err(OpenError::Twice { first: first.clone(), second: second.clone() }.into());
        }
    }
    Ok(())
}

fn file_at(uri: &str) -> Option<Metadata> {
    let parsed: DeviceUri = uri.parse().ok()?;
    file_of(&parsed)?.0.metadata().ok()
}

/// What to tell whoever has opened devices that other hosts can use all the same.
pub fn not_fenced<'a>(devices: impl IntoIterator<Item = &'a DeviceInfo>) -> Option<String> {
    let mut reasons: Vec<(NotFenced, Vec<String>)> = Vec::new();
    for info in devices {
        let Some(Fencing::NotFenced(reason)) = info.ownership.map(|ownership| ownership.fencing) else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(info.name.clone()),
            None => reasons.push((reason, vec![info.name.clone()])),
        }
    }
    let told: Vec<_> = reasons
        .into_iter()
        .map(|(reason, mut names)| {
            let more = names.len().saturating_sub(NAMES);
            names.truncate(NAMES);
            if more > 0 {
                names.push(format!("{more} more"));
            }
            format!("{}: {reason}", names.join(" and "))
        })
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// Why an engine's tasks fail, where it knows more than their status says: another host has taken its device, or this
/// host has failed a model's store.
pub fn cause_of_failures(engine: &Engine) -> Option<String> {
    engine.taken_over().map(ToString::to_string).or_else(|| engine.store_error())
}

/// Why there is no device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The engine's reason.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Caller: opening it would create a file.
    #[error(
        "{} does not exist, and `{command}` creates no file: name one that exists, or create it by `tentpeg {}`",
        path.display(), creator(command)
    )]
    WouldCreate {
        /// The subcommand.
        command: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Caller: the store keeps nothing.
    #[error(
        "{uri} keeps no bytes, so there is nothing to {command}: leave store=null away, or measure it by `tentpeg bench`"
    )]
    KeepsNothing {
        /// The subcommand.
        command: &'static str,
        /// The device.
        uri: String,
    },
    /// Caller: it has several segments.
    #[error("{device} has several segments: add --segment with one of {segments}")]
    WhichSegment {
        /// The device.
        device: String,
        /// Their names.
        segments: String,
    },
    /// Caller: one of several devices has no segment.
    #[error("no segment lies on {device}: leave it away, or create one on it by `tentpeg segment create`")]
    NothingOn {
        /// The device.
        device: String,
    },
    /// Caller: it has one segment that was opened, and others that were not: which is meant is not clear.
    #[error("{segment} is not the only segment: add --segment with its name, for {reason}")]
    NotTheOnly {
        /// The one.
        segment: String,
        /// Why the others were not opened.
        reason: String,
    },
    /// Caller: it has no such segment.
    #[error("there is no segment '{}': there is {segments}", name.escape_debug())]
    NoSegment {
        /// The name.
        name: String,
        /// Those that there are.
        segments: String,
    },
    /// Caller: the segment cannot be opened.
    #[error(transparent)]
    NotOpened(SetError),
    /// Caller: the store is gone when the command ends.
    #[error("{uri} is gone when this command ends, and a label with it: name one in a file, such as model:path=FILE")]
    Forgets {
        /// The device.
        uri: String,
    },
    /// Caller: it may not be written.
    #[error(
        "{uri} is open for reading only: a file that exists is written only where the URI says so: add `,overwrite`"
    )]
    ReadOnly {
        /// The device.
        uri: String,
    },
}

/// The command that creates a file where `command` does not.
fn creator(command: &str) -> &'static str {
    match command.split_once(' ') {
        Some(("label" | "segment", _)) => "label create",
        _ => "write",
    }
}

/// Opens devices that are there already, for reading only: never creates a file.
///
/// # Errors
/// [`DeviceError::Open`], or [`DeviceError::WouldCreate`] where a URI names a file that does not exist.
pub fn open_to_read<'a>(
    command: &'static str,
    devices: impl Iterator<Item = &'a str>,
    options: OpenOptions,
) -> Result<(Engine, Option<Lane>), DeviceError> {
    let devices: Vec<_> = devices.collect();
    devices.iter().try_for_each(|uri| refuse_to_create(command, uri))?;
    Ok(Engine::open_devices(devices, OpenOptions { read_only: true, ..options })?)
}

/// Refuses a device whose file opening would create.
///
/// # Errors
/// [`DeviceError::WouldCreate`]; [`DeviceError::Open`]: the URI is wrong.
pub fn refuse_to_create(command: &'static str, uri: &str) -> Result<(), DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    match file_of(&parsed) {
        Some((path, _)) if is_missing(path) => Err(DeviceError::WouldCreate { command, path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Refuses a device of which nothing is left when the command ends.
///
/// # Errors
/// [`DeviceError::Forgets`]; [`DeviceError::Open`]: the URI is wrong.
pub fn require_lasting(uri: &str) -> Result<(), DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    match parsed {
        DeviceUri::Model(model) if !matches!(model.store, StoreUri::File { .. }) => {
            Err(DeviceError::Forgets { uri: uri.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The geometry of a device whose file opening would create; `None` when it would create none.
///
/// # Errors
/// [`DeviceError::Open`]: the URI is wrong.
pub fn to_be_created(uri: &str) -> Result<Option<Geometry>, DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    let DeviceUri::Model(model) = &parsed else { return Ok(None) };
    Ok(match file_of(&parsed) {
        Some((path, Some(ByteSize(capacity)))) if is_missing(path) => {
            Some(Geometry { block: model.lba.into(), capacity })
        }
        _ => None,
    })
}

/// Refuses a segment that may not be written.
///
/// # Errors
/// [`DeviceError::ReadOnly`].
pub fn require_writable(engine: &Engine, segment: &Segment) -> Result<(), DeviceError> {
    if segment.writable {
        return Ok(());
    }
    let info = engine.devices().map(|device| device.info()).find(|info| !info.writable).unwrap_or(engine.info());
    Err(DeviceError::ReadOnly { uri: info.name.clone() })
}

/// Refuses devices of which one keeps no bytes.
///
/// # Errors
/// [`DeviceError::KeepsNothing`].
pub fn require_bytes(command: &'static str, engine: &Engine) -> Result<(), DeviceError> {
    match engine.devices().map(|device| device.info()).find(|info| !info.moves_data) {
        None => Ok(()),
        Some(info) => Err(DeviceError::KeepsNothing { command, uri: info.name.clone() }),
    }
}

/// Whether the device's bytes are in this process's memory, gone when it ends.
pub fn is_in_memory(uri: &str) -> bool {
    matches!(uri.parse(), Ok(DeviceUri::Model(model)) if model.store == StoreUri::Memory)
}

/// The file that the device `uri` lies in, when `other` is of that very file, by whatever name.
pub fn own_file(uri: &str, other: &Metadata) -> Option<PathBuf> {
    let parsed: DeviceUri = uri.parse().ok()?;
    let (path, _) = file_of(&parsed)?;
    let own = path.metadata().ok()?;
    ((own.dev(), own.ino()) == (other.dev(), other.ino())).then(|| path.to_owned())
}

/// The names of an engine's devices, as a report has them.
pub fn names(engine: &Engine) -> String {
    engine.devices().map(|device| device.info().name.as_str()).collect::<Vec<_>>().join(" and ")
}

/// The names of segments, as a report has them.
pub fn segment_names(segments: &[&Segment]) -> String {
    segments.iter().map(|segment| segment.layout.name.as_str()).collect::<Vec<_>>().join(" and ")
}

/// The files that opening devices created, for a run that may come to nothing: then they must not be in the way of the next one.
#[derive(Debug)]
pub struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Those of `engine`, if it created some.
    pub fn of(engine: &Engine) -> Self {
        Self(engine.devices().filter_map(|device| device.info().created_file.clone()).collect())
    }

    /// Removes them. `None`: there are none. Their names, so that they can be told.
    ///
    /// # Errors
    /// [`NotRemoved`]: the first one that is still there; the others are gone, if they can be removed.
    pub fn remove(self) -> Result<Option<String>, NotRemoved> {
        let mut left = None;
        for path in &self.0 {
            if let Err(source) = fs::remove_file(path) {
                left.get_or_insert(NotRemoved { path: path.clone(), source });
            }
        }
        let names = self.0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
        match left {
            Some(left) => Err(left),
            None => Ok((!names.is_empty()).then(|| names.join(" and "))),
        }
    }
}

/// A file of a run that came to nothing which is still there.
#[derive(Debug, Error)]
#[error("{}, which was created for it, could not be removed again: {source}", path.display())]
pub struct NotRemoved {
    /// The file.
    path: PathBuf,
    /// What the operating system says.
    source: io::Error,
}

fn file_of(uri: &DeviceUri) -> Option<(&Path, Option<ByteSize>)> {
    let DeviceUri::Model(model) = uri else { return None };
    match &model.store {
        StoreUri::File { path, .. } => Some((path, model.size)),
        StoreUri::Memory | StoreUri::Null => None,
    }
}

fn is_missing(path: &Path) -> bool {
    // A link to nothing is there; the engine says what is wrong with it.
    matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
