//! Changes of segments. All devices are open before the first is written, and a change of a stripe that was interrupted is
//! finished or dropped first.

use tentpeg_engine::administration::Administration;
use tentpeg_engine::blocks::Blocks;
use tentpeg_engine::label::stripe::{self, Member, NewSet, sets};
use tentpeg_engine::label::{Label, LabelError, NewSegment};
use tentpeg_engine::link;

use super::find::{Target, one};
use super::{ChangedArgs, CreateArgs, DurabilityArgs, MarkersArgs, RenameArgs, ResizeArgs, SegmentCommandError};
use crate::device::not_fenced;
use crate::label::{Answer, open_lasting};
use crate::report::{Row, Value};

/// What a change is lent: the labels and their devices, in the order of the command line.
struct Open<'a, 'b> {
    members: &'a mut [Member<'b>],
    args: &'a ChangedArgs,
}

impl Open<'_, '_> {
    fn labels(&self) -> Vec<&Label> {
        self.members.iter().map(|member| &*member.label).collect()
    }

    /// The segment of this name.
    fn target(&self, name: &str) -> Result<Target, SegmentCommandError> {
        one(&self.labels(), name, &self.args.named.on.devices)
    }

    fn of_device<T>(
        &mut self,
        device: usize,
        change: impl FnOnce(&mut Label, &mut dyn Blocks) -> Result<T, LabelError>,
    ) -> Result<T, SegmentCommandError> {
        let Member { label, blocks } = &mut self.members[device];
        change(label, &mut **blocks)
            .map_err(|source| SegmentCommandError::Label { device: self.args.named.on.devices[device].clone(), source })
    }
}

/// Opens all devices and labels, makes the change, and closes them. What it gives, and what is to be noted.
fn with_labels<R>(
    command: &'static str,
    args: &ChangedArgs,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<R, SegmentCommandError>,
) -> Result<(R, Option<String>), SegmentCommandError> {
    let opened = args.named.on.devices.iter().map(|uri| open_lasting(command, uri, &args.node));
    let mut devices = opened.collect::<Result<Vec<_>, _>>()?;
    // An owner is written into a label only when all of them can be changed.
    for device in &mut devices {
        device.require_change()?;
    }
    let result = {
        let mut open = devices.iter_mut().map(Administration::change).collect::<Result<Vec<_>, _>>()?;
        let mut members: Vec<_> =
            open.iter_mut().map(|(label, blocks)| Member { label, blocks: &mut **blocks }).collect();
        stripe::settle(&mut members)?;
        change(&mut Open { members: &mut members, args })
    }?;
    let note = not_fenced(devices.iter().map(Administration::info));
    devices.into_iter().try_for_each(Administration::close)?;
    Ok((result, note))
}

pub(super) fn create(args: &CreateArgs) -> Result<Answer, SegmentCommandError> {
    let name = &args.changed.named.name;
    let devices = args.changed.named.on.devices.len();
    let chunk = match (devices, args.chunk) {
        (1, None) => None,
        (1, Some(_)) => return Err(SegmentCommandError::ChunkAlone),
        (_, Some(chunk)) => Some(chunk.0),
        (devices, None) => return Err(SegmentCommandError::NoChunk { devices }),
    };
    let (capacity, durability) = (args.size.0, args.durability.into());
    answer("segment create", &args.changed, name, |open| match chunk {
        None => {
            let new = NewSegment { name: name.clone(), capacity, durability, ..NewSegment::default() };
            open.of_device(0, |label, blocks| label.create_segment(blocks, &new))
        }
        Some(chunk) => {
            let new = NewSet { name: name.clone(), capacity, chunk, durability, ..NewSet::default() };
            stripe::create(open.members, &new)?;
            Ok(())
        }
    })
}

pub(super) fn resize(args: &ResizeArgs) -> Result<Answer, SegmentCommandError> {
    let (name, size) = (&args.changed.named.name, args.size.0);
    marked(&args.markers, "segment resize", &args.changed, name, |open| match open.target(name)? {
        Target::Plain { device, .. } => {
            open.of_device(device, |label, blocks| label.resize_segment(blocks, name, size))
        }
        Target::Striped(set) => Ok(stripe::resize(open.members, set.uuid, size)?),
    })
}

pub(super) fn rename(args: &RenameArgs) -> Result<Answer, SegmentCommandError> {
    let (name, to) = (&args.changed.named.name, &args.to);
    marked(&args.markers, "segment rename", &args.changed, to, |open| match open.target(name)? {
        Target::Plain { device, .. } => open.of_device(device, |label, blocks| label.rename_segment(blocks, name, to)),
        Target::Striped(set) => Ok(stripe::rename(open.members, set.uuid, to)?),
    })
}

pub(super) fn durability(args: &DurabilityArgs) -> Result<Answer, SegmentCommandError> {
    let (name, mode) = (&args.changed.named.name, args.mode.into());
    answer("segment durability", &args.changed, name, |open| match open.target(name)? {
        Target::Plain { device, .. } => {
            open.of_device(device, |label, blocks| label.set_durability(blocks, name, mode))
        }
        Target::Striped(set) => Ok(stripe::set_durability(open.members, set.uuid, mode)?),
    })
}

/// Only of a set that cannot be whole any more: the others are deleted.
pub(super) fn forget(args: &ChangedArgs) -> Result<Answer, SegmentCommandError> {
    let name = &args.named.name;
    let ((), note) = with_labels("segment forget", args, |open| {
        let found = sets(&open.labels()).into_iter().find(|found| found.name == *name && found.set.is_err());
        let found = found.ok_or_else(|| SegmentCommandError::NotLost { name: name.clone() })?;
        for device in 0..open.members.len() {
            match open.of_device(device, |label, blocks| label.forget_part(blocks, found.uuid)) {
                Err(SegmentCommandError::Label { source: LabelError::NoSegment { .. }, .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })?;
    let rows =
        [Row::both("name", "name", Value::Text(name.clone())), Row::both("forgotten", "forgotten", Value::Flag(true))];
    Ok(Answer { note, ..Answer::of(&rows, args.named.on.json) })
}

pub(super) fn delete(args: &ChangedArgs) -> Result<Answer, SegmentCommandError> {
    let name = &args.named.name;
    let ((), note) = with_labels("segment delete", args, |open| match open.target(name)? {
        Target::Plain { device, .. } => open.of_device(device, |label, blocks| label.delete_segment(blocks, name)),
        Target::Striped(set) => Ok(stripe::delete(open.members, set.uuid)?),
    })?;
    let rows =
        [Row::both("name", "name", Value::Text(name.clone())), Row::both("deleted", "deleted", Value::Flag(true))];
    Ok(Answer { note, ..Answer::of(&rows, args.named.on.json) })
}

/// Makes a change, and shows the segment that is called `then` after it.
fn answer(
    command: &'static str,
    args: &ChangedArgs,
    then: &str,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<(), SegmentCommandError>,
) -> Result<Answer, SegmentCommandError> {
    let (target, note) = changed(command, args, then, change)?;
    Ok(Answer { note, ..Answer::of(&target.rows(), args.named.on.json) })
}

/// Makes a change that markers do not know of, has those that are named be right again, and says that others are not.
fn marked(
    markers: &MarkersArgs,
    command: &'static str,
    args: &ChangedArgs,
    then: &str,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<(), SegmentCommandError>,
) -> Result<Answer, SegmentCommandError> {
    let (target, not_fenced) = changed(command, args, then, change)?;
    for path in &markers.markers {
        link::refresh(path, &target.marker()).map_err(SegmentCommandError::Marker)?;
    }
    let others = markers.markers.is_empty().then(|| {
        let devices: String = args.named.on.devices.iter().map(|uri| format!(" --device {uri}")).collect();
        format!("markers of the segment are as they were: for each run tentpeg segment link {then} FILE{devices}")
    });
    let note: Vec<_> = not_fenced.into_iter().chain(others).collect();
    let note = (!note.is_empty()).then(|| note.join("; "));
    Ok(Answer { note, ..Answer::of(&target.rows(), args.named.on.json) })
}

/// Makes a change. The segment that is called `then` after it, and what is to be noted.
fn changed(
    command: &'static str,
    args: &ChangedArgs,
    then: &str,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<(), SegmentCommandError>,
) -> Result<(Target, Option<String>), SegmentCommandError> {
    with_labels(command, args, |open| {
        change(open)?;
        open.target(then)
    })
}
