//! Finding segments in the labels of some devices, and what is shown of them.

use serde_json::{Value as Json, json};
use tentpeg_engine::ByteSize;
use tentpeg_engine::administration::Administration;
use tentpeg_engine::label::stripe::{Set, SetError, sets};
use tentpeg_engine::label::{Durability, Label, SegmentEntry};
use tentpeg_engine::link::{self, LinkError, Marker};
use uuid::Uuid;

use super::{CheckArgs, DevicesArgs, LinkArgs, NamedArgs, SegmentCommandError};
use crate::device::refuse_twice;
use crate::label::{Answer, LabelCommandError, open};
use crate::report::{Row, Value};

/// A segment, as some labels have it.
#[derive(Clone, Debug)]
pub(super) enum Target {
    /// On one device, by its place among those given.
    Plain {
        /// Its device.
        device: usize,
        /// UUID of it.
        device_uuid: Uuid,
        /// Bytes of a block.
        block_size: u32,
        /// What the label says.
        entry: SegmentEntry,
    },
    /// A stripe.
    Striped(Set),
}

impl Target {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Plain { entry, .. } => &entry.name,
            Self::Striped(set) => &set.name,
        }
    }

    fn uuid(&self) -> Uuid {
        match self {
            Self::Plain { entry, .. } => entry.uuid,
            Self::Striped(set) => set.uuid,
        }
    }

    fn capacity(&self) -> u64 {
        match self {
            Self::Plain { entry, block_size, .. } => entry.capacity.saturating_mul(u64::from(*block_size)),
            Self::Striped(set) => set.capacity,
        }
    }

    fn durability(&self) -> Durability {
        match self {
            Self::Plain { entry, .. } => entry.durability,
            Self::Striped(set) => set.durability,
        }
    }

    fn generation(&self) -> u64 {
        match self {
            Self::Plain { entry, .. } => entry.generation,
            Self::Striped(set) => set.generation,
        }
    }

    /// Members and bytes of a chunk, of a stripe.
    fn stripe(&self) -> Option<(usize, u64)> {
        match self {
            Self::Plain { .. } => None,
            Self::Striped(set) => Some((set.parts.len(), set.chunk)),
        }
    }

    pub(super) fn marker(&self) -> Marker {
        let device = match self {
            Self::Plain { device_uuid, .. } => *device_uuid,
            Self::Striped(set) => set.uuid,
        };
        Marker { device, segment: self.name().to_owned(), uuid: self.uuid(), capacity: self.capacity() }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = vec![
            Row::json("name", Value::Text(self.name().to_owned())),
            Row::table("name", Value::Text(shown(self.name()))),
            Row::both("uuid", "UUID", Value::Text(self.uuid().to_string())),
            Row::both("capacity_bytes", "capacity", Value::Bytes(self.capacity())),
            Row::both("durability", "durability", Value::Text(self.durability().to_string())),
            Row::both("generation", "generation", Value::Count(self.generation())),
        ];
        if let Some((members, chunk)) = self.stripe() {
            rows.push(Row::both("members", "members", Value::Count(members as u64)));
            rows.push(Row::both("chunk_bytes", "chunk", Value::Bytes(chunk)));
        }
        if let Self::Plain { entry, .. } = self {
            let extents = entry.extents.iter().map(|extent| format!("{}+{}", extent.slba(), extent.blocks()));
            rows.push(Row::both("extents", "extents (block+blocks)", Value::Texts(extents.collect())));
        }
        rows
    }

    fn json(&self) -> Json {
        let (members, chunk) = self.stripe().unzip();
        json!({
            "name": self.name(),
            "uuid": self.uuid().to_string(),
            "capacity_bytes": self.capacity(),
            "durability": self.durability().to_string(),
            "generation": self.generation(),
            "members": members.unwrap_or(1),
            "chunk_bytes": chunk,
        })
    }
}

/// What the labels have: whole segments, and stripes that are not to be opened, with the reason.
pub(super) struct Segments {
    pub(super) whole: Vec<Target>,
    pub(super) broken: Vec<(String, SetError)>,
}

pub(super) fn segments(labels: &[&Label]) -> Segments {
    let mut whole = Vec::new();
    for (device, label) in labels.iter().enumerate() {
        let (device_uuid, block_size) = (label.device(), label.block_size());
        let plain = label.segments().filter(|entry| entry.stripe.is_none()).cloned();
        whole.extend(plain.map(|entry| Target::Plain { device, device_uuid, block_size, entry }));
    }
    let mut broken = Vec::new();
    for found in sets(labels) {
        match found.set {
            Ok(Some(set)) => whole.push(Target::Striped(set)),
            Ok(None) => {}
            Err(error) => broken.push((found.name, error)),
        }
    }
    Segments { whole, broken }
}

/// The one segment of this name.
pub(super) fn one(labels: &[&Label], name: &str, devices: &[String]) -> Result<Target, SegmentCommandError> {
    let Segments { whole, broken } = segments(labels);
    let mut named: Vec<_> = whole.into_iter().filter(|target| target.name() == name).collect();
    // A stripe that cannot be opened may be the one that is meant.
    let others = broken.iter().filter(|(broken, _)| broken == name).count();
    match (named.pop(), named.len() + others) {
        (Some(target), 0) => Ok(target),
        (Some(_), others) => Err(SegmentCommandError::Ambiguous { name: name.to_owned(), count: others + 1 }),
        (None, _) => match broken.into_iter().find(|(broken, _)| broken == name) {
            Some((_, error)) => Err(error.into()),
            None => Err(SegmentCommandError::NoSegment { name: name.to_owned(), devices: devices.join(" and ") }),
        },
    }
}

/// Whether a segment has this name, be it one that cannot be opened.
pub(super) fn is_named(labels: &[&Label], name: &str) -> bool {
    let Segments { whole, broken } = segments(labels);
    whole.iter().map(Target::name).chain(broken.iter().map(|(name, _)| name.as_str())).any(|other| other == name)
}

/// Opens the labels of these devices to read them, and closes the devices.
fn labels(command: &'static str, args: &DevicesArgs) -> Result<Vec<Label>, SegmentCommandError> {
    refuse_twice(&args.devices).map_err(LabelCommandError::from)?;
    let opened = args.devices.iter().map(|uri| open(command, uri)).collect::<Result<Vec<_>, _>>()?;
    let mut labels = Vec::new();
    for mut device in opened {
        labels.push(device.label()?);
        Administration::close(device)?;
    }
    Ok(labels)
}

pub(super) fn show(args: &NamedArgs) -> Result<Answer, SegmentCommandError> {
    let labels = labels("segment show", &args.on)?;
    let target = one(&labels.iter().collect::<Vec<_>>(), &args.name, &args.on.devices)?;
    Ok(Answer::of(&target.rows(), args.on.json))
}

pub(super) fn list(args: &DevicesArgs) -> Result<Answer, SegmentCommandError> {
    let labels = labels("segment list", args)?;
    let Segments { whole, broken } = segments(&labels.iter().collect::<Vec<_>>());
    let reasons = || broken.iter().map(|(_, error)| error.to_string());
    if args.json {
        let listed: Vec<_> = whole.iter().map(Target::json).collect();
        let broken: Vec<_> =
            broken.iter().map(|(name, error)| json!({"name": name, "reason": error.to_string()})).collect();
        return Ok(Answer { text: format!("{}\n", json!({"segments": listed, "not_opened": broken})), note: None });
    }
    let mut lines = vec![["name", "capacity", "durability", "members", "chunk"].map(str::to_owned)];
    lines.extend(whole.iter().map(|target| {
        let (members, chunk) = target.stripe().unwrap_or((1, 0));
        let chunk = if chunk == 0 { "-".to_owned() } else { ByteSize(chunk).to_string() };
        let capacity = ByteSize(target.capacity()).to_string();
        [shown(target.name()), capacity, target.durability().to_string(), members.to_string(), chunk]
    }));
    let note = (!broken.is_empty()).then(|| reasons().collect::<Vec<_>>().join("; "));
    Ok(Answer { text: columns(&lines), note })
}

/// A name as a table has it: what is not seen, or moves what is seen, is written out.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}

/// Lines with their columns one below the other.
fn columns(lines: &[[String; 5]]) -> String {
    let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or_default();
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

pub(super) fn link(args: &LinkArgs) -> Result<Answer, SegmentCommandError> {
    let NamedArgs { name, on } = &args.named;
    let labels = labels("segment link", on)?;
    let target = one(&labels.iter().collect::<Vec<_>>(), name, &on.devices)?;
    let made = link::create(&args.path, &target.marker())?;
    let rows = [
        Row::both("path", "path", Value::Text(args.path.to_string_lossy().into_owned())),
        Row::both("segment", "segment", Value::Text(name.clone())),
        Row::both("uuid", "UUID", Value::Text(target.uuid().to_string())),
        Row::both("capacity_bytes", "capacity", Value::Bytes(target.capacity())),
        Row::both("replaced", "replaced", Value::Flag(made.replaced)),
        Row::both("attribute", "extended attribute", Value::Flag(made.attribute)),
    ];
    Ok(Answer::of(&rows, on.json))
}

pub(super) fn check(args: &CheckArgs) -> Result<Answer, SegmentCommandError> {
    let labels = labels("segment check", &args.on)?;
    let Segments { whole, mut broken } = segments(&labels.iter().collect::<Vec<_>>());
    let mut target = None;
    let resolved = link::resolve(&args.path, |marker| {
        target = whole.iter().find(|target| target.marker().is_same_segment(marker));
        target.map(Target::marker)
    });
    match (resolved, target) {
        (Ok(_), Some(target)) => Ok(Answer::of(&target.rows(), args.on.json)),
        // A stripe of which a member is missing is not gone.
        (Err(LinkError::Gone { segment, .. }), _) if broken.iter().any(|(name, _)| *name == segment) => {
            broken.retain(|(name, _)| *name == segment);
            Err(broken.remove(0).1.into())
        }
        (Err(LinkError::Gone { path, segment, device, .. }), _)
            if !labels.iter().any(|label| label.device() == device) =>
        {
            Err(SegmentCommandError::OnAnotherDevice { path, segment, device })
        }
        (Err(error), _) => Err(error.into()),
        (Ok(_), None) => unreachable!("only a segment that is there is resolved"),
    }
}
