//! Changes of segments. All devices are open before the first is written, and a change of a stripe that was interrupted is
//! finished or dropped first.

use tentpeg_engine::administration::Administration;
use tentpeg_engine::blocks::Blocks;
use tentpeg_engine::label::stripe::{self, Member, NewSet, SetError, sets};
use tentpeg_engine::label::{Label, LabelError, NewSegment};
use tentpeg_engine::link::{self, LinkError};

use super::find::{Target, is_named, one};
use super::{
    ChangedArgs, CreateArgs, DurabilityArgs, ForgetArgs, MarkersArgs, RenameArgs, ResizeArgs, SegmentCommandError,
};
use crate::device::{not_fenced, refuse_twice};
use crate::label::{Answer, LabelCommandError, open_lasting};
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

    /// A change of a stripe: where a member refuses, it is called by what the command line calls it.
    fn of_set<T>(
        &mut self,
        change: impl FnOnce(&mut [Member<'_>]) -> Result<T, SetError>,
    ) -> Result<T, SegmentCommandError> {
        let changed = change(self.members);
        changed.map_err(|error| {
            let place = |uuid| self.members.iter().position(|member| member.label.device() == uuid);
            match error {
                SetError::Member { device, error } if let Some(at) = place(device) => {
                    SegmentCommandError::Label { device: self.args.named.on.devices[at].clone(), source: *error }
                }
                error => error.into(),
            }
        })
    }
}

/// Opens all devices and labels, makes the change, and closes them. What it gives, and what is to be noted.
fn with_labels<R>(
    command: &'static str,
    args: &ChangedArgs,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<R, SegmentCommandError>,
) -> Result<(R, Option<String>), SegmentCommandError> {
    refuse_twice(&args.named.on.devices).map_err(LabelCommandError::from)?;
    let opened = args.named.on.devices.iter().map(|uri| open_lasting(command, uri, &args.node));
    let mut devices = opened.collect::<Result<Vec<_>, _>>()?;
    // An owner is written into a label only when all of them can be changed.
    for device in &mut devices {
        device.require_change()?;
    }
    let changed = change_open(&mut devices, args, change);
    let result = changed.map_err(|error| match devices.iter().find_map(Administration::store_error) {
        Some(reason) => SegmentCommandError::Store { error: Box::new(error), reason },
        None => error,
    })?;
    let note = not_fenced(devices.iter().map(Administration::info));
    devices.into_iter().try_for_each(Administration::close)?;
    Ok((result, note))
}

/// Opens all labels, and makes the change.
fn change_open<R>(
    devices: &mut [Administration],
    args: &ChangedArgs,
    change: impl FnOnce(&mut Open<'_, '_>) -> Result<R, SegmentCommandError>,
) -> Result<R, SegmentCommandError> {
    let mut open = devices.iter_mut().map(Administration::change).collect::<Result<Vec<_>, _>>()?;
    let mut members: Vec<_> = open.iter_mut().map(|(label, blocks)| Member { label, blocks: &mut **blocks }).collect();
    stripe::settle(&mut members)?;
    change(&mut Open { members: &mut members, args })
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
            open.of_set(|members| stripe::create(members, &new)).map(drop)
        }
    })
}

pub(super) fn resize(args: &ResizeArgs) -> Result<Answer, SegmentCommandError> {
    let (name, size) = (&args.changed.named.name, args.size.0);
    marked(&args.markers, "segment resize", &args.changed, name, |open| match open.target(name)? {
        Target::Plain { device, .. } => {
            open.of_device(device, |label, blocks| label.resize_segment(blocks, name, size))
        }
        Target::Striped(set) => open.of_set(|members| stripe::resize(members, set.uuid, size)),
    })
}

pub(super) fn rename(args: &RenameArgs) -> Result<Answer, SegmentCommandError> {
    let (name, to) = (&args.changed.named.name, &args.to);
    marked(&args.markers, "segment rename", &args.changed, to, |open| {
        let target = open.target(name)?;
        // Each label sees to its own names alone.
        if to != name && is_named(&open.labels(), to) {
            return Err(SegmentCommandError::NameTaken { name: to.clone() });
        }
        match target {
            Target::Plain { device, .. } => {
                open.of_device(device, |label, blocks| label.rename_segment(blocks, name, to))
            }
            Target::Striped(set) => open.of_set(|members| stripe::rename(members, set.uuid, to)),
        }
    })
}

pub(super) fn durability(args: &DurabilityArgs) -> Result<Answer, SegmentCommandError> {
    let (name, mode) = (&args.changed.named.name, args.mode.into());
    answer("segment durability", &args.changed, name, |open| match open.target(name)? {
        Target::Plain { device, .. } => {
            open.of_device(device, |label, blocks| label.set_durability(blocks, name, mode))
        }
        Target::Striped(set) => open.of_set(|members| stripe::set_durability(members, set.uuid, mode)),
    })
}

/// Only of a set that cannot be whole any more: the others are deleted.
pub(super) fn forget(args: &ForgetArgs) -> Result<Answer, SegmentCommandError> {
    let ForgetArgs { changed: args, members_are_lost } = args;
    let name = &args.named.name;
    let ((), note) = with_labels("segment forget", args, |open| {
        let found = sets(&open.labels()).into_iter().find(|found| found.name == *name && found.set.is_err());
        // Where there is none at all, that is what is said.
        let found = match found {
            Some(found) => found,
            None => return open.target(name).and(Err(SegmentCommandError::NotLost { name: name.clone() })),
        };
        if let (Err(source @ SetError::Incomplete { .. }), false) = (found.set, *members_are_lost) {
            return Err(SegmentCommandError::MayBeThere { source });
        }
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
        Target::Striped(set) => open.of_set(|members| stripe::delete(members, set.uuid)),
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
    // Before anything is changed: one that is none, or another's, would be left as it is.
    let read = markers.markers.iter().map(|path| match link::read(path) {
        // It is made right again whatever is wrong with its size.
        Err(LinkError::Size { .. }) => Ok(None),
        read => read.map(|marker| Some((path, marker))),
    });
    let read: Vec<_> = read.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    let (target, not_fenced) = changed(command, args, then, |open| {
        let name = &args.named.name;
        let own = open.target(name)?.marker();
        if let Some((path, marker)) = read.iter().find(|(_, marker)| !own.is_same_segment(marker)) {
            let (path, other) = ((*path).clone(), marker.segment.clone());
            return Err(SegmentCommandError::OthersMarker { path, other, name: name.clone() });
        }
        change(open)
    })?;
    for path in &markers.markers {
        link::refresh(path, &target.marker()).map_err(SegmentCommandError::Marker)?;
    }
    let others = markers.markers.is_empty().then(|| {
        let devices: String = args.named.on.devices.iter().map(|uri| format!(" --device {}", quoted(uri))).collect();
        let then = quoted(then);
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

/// A word as a shell takes it for one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.,:=/+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_to_a_shell() {
        for (word, shown) in [
            ("kv", "kv"),
            ("model:path=/tmp/a.img,overwrite", "model:path=/tmp/a.img,overwrite"),
            ("kv two", "'kv two'"),
            ("a$b", "'a$b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("~", "'~'"),
            ("ä", "'ä'"),
        ] {
            assert_eq!(quoted(word), shown);
            let echoed = std::process::Command::new("sh").arg("-c").arg(format!("printf %s {shown}")).output().unwrap();
            assert_eq!(String::from_utf8(echoed.stdout).unwrap(), word);
        }
    }
}
