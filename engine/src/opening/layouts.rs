//! From labels to the layouts of segments, over all devices of an engine.

use std::collections::HashMap;

use super::{NotOpened, OpenOptions, Scope, UnalignedReads};
use crate::administration::Administration;
use crate::blocks::Blocks;
use crate::device::OpenError;
use crate::label::stripe::{self, Found, Member, Set};
use crate::label::{Label, SegmentEntry};
use crate::segment::extent::part;
use crate::segment::{MemberLayout, SegmentLayout};

/// A label, and the device that it is on.
struct Labelled {
    device: usize,
    label: Label,
}

/// What the devices serve, and the stripes on them that cannot be served. The devices that may be written are this node's
/// then.
pub(super) fn layouts(
    devices: &mut [Administration],
    options: &OpenOptions,
) -> Result<(Vec<SegmentLayout>, Vec<NotOpened>), OpenError> {
    let served_whole: Vec<bool> =
        devices.iter().map(|device| options.scope == Scope::Device || !device.has_label()).collect();
    // All that can be refused is, before anything is written.
    let mut by_uuid = HashMap::new();
    for number in 0..devices.len() {
        require(&mut devices[number], served_whole[number])?;
        if !served_whole[number]
            && let Some(first) = by_uuid.insert(devices[number].label()?.device(), number)
        {
            let [first, second] = [first, number].map(|device| devices[device].info().name.clone());
            return Err(OpenError::Twice { first, second });
        }
    }
    let labels = own(devices, &served_whole)?;
    for Labelled { device, label } in &labels {
        devices[*device].set_scratch(label.scratch());
    }
    let (mut layouts, not_opened) = of_labels(&labels);
    let several = devices.len() > 1;
    for (number, device) in devices.iter().enumerate().filter(|(number, _)| served_whole[*number]) {
        let name = if several { format!("whole-{number}") } else { "whole".to_owned() };
        layouts.push(SegmentLayout::whole(&name, number, device.info().limits.nsze()));
    }
    let name_of = |device: usize| devices[device].info().name.clone();
    let all = || devices.iter().map(|device| device.info().name.as_str()).collect::<Vec<_>>().join(" and ");
    if layouts.is_empty() {
        let missing = not_opened.iter().map(|not_opened| not_opened.reason.to_string()).collect();
        return Err(OpenError::NoSegments { devices: all(), missing });
    }
    let mut by_name = HashMap::new();
    for layout in &layouts {
        let device = layout.members.first().map_or(0, |member| member.device);
        if let Some(other) = by_name.insert(&layout.name, device) {
            let (first, second) = (name_of(other), name_of(device));
            return Err(OpenError::SegmentTwice { segment: layout.name.clone(), first, second });
        }
    }
    match &options.unaligned_reads {
        UnalignedReads::None => {}
        UnalignedReads::All => layouts.iter_mut().for_each(|layout| layout.unaligned_reads = true),
        UnalignedReads::Of(names) => {
            if let Some(segment) = names.iter().find(|name| !by_name.contains_key(name)) {
                return Err(OpenError::NoSegment { segment: segment.clone(), devices: all() });
            }
            layouts.iter_mut().for_each(|layout| layout.unaligned_reads = names.contains(&layout.name));
        }
    }
    Ok((layouts, not_opened))
}

/// Refuses a device that may be written and must not be.
fn require(device: &mut Administration, whole: bool) -> Result<(), OpenError> {
    if !device.info().writable {
        return Ok(());
    }
    device.require_no_foreign()?;
    match (whole, device.has_label()) {
        (true, true) => Err(OpenError::Labelled { device: device.info().name.clone() }),
        (true, false) => Ok(()),
        (false, _) => Ok(device.require_change()?),
    }
}

/// Makes those devices this node's that may be written, and reads the labels.
fn own(devices: &mut [Administration], served_whole: &[bool]) -> Result<Vec<Labelled>, OpenError> {
    let mut labels = Vec::new();
    let mut changed: Vec<(usize, Label, Box<dyn Blocks + '_>)> = Vec::new();
    for ((number, device), whole) in devices.iter_mut().enumerate().zip(served_whole) {
        match (device.info().writable, whole) {
            (true, false) => {
                let (label, blocks) = device.change()?;
                changed.push((number, label, blocks));
            }
            (true, true) if device.knows_reservations() => device.claim_unlabelled()?,
            (false, false) => labels.push(Labelled { device: number, label: device.label()? }),
            (_, true) => {}
        }
    }
    let mut members: Vec<_> =
        changed.iter_mut().map(|(_, label, blocks)| Member { label, blocks: &mut **blocks }).collect();
    stripe::settle(&mut members)?;
    drop(members);
    labels.extend(changed.into_iter().map(|(device, label, _)| Labelled { device, label }));
    labels.sort_by_key(|labelled| labelled.device);
    Ok(labels)
}

fn of_labels(labels: &[Labelled]) -> (Vec<SegmentLayout>, Vec<NotOpened>) {
    let mut layouts = Vec::new();
    for Labelled { device, label } in labels {
        let plain = label.segments().filter(|entry| entry.stripe.is_none());
        layouts.extend(plain.map(|entry| SegmentLayout {
            name: entry.name.clone(),
            uuid: entry.uuid.into_bytes(),
            durability: entry.durability,
            unaligned_reads: false,
            members: vec![member(*device, entry)],
            chunk: 0,
        }));
    }
    let mut not_opened = Vec::new();
    for Found { name, set, .. } in stripe::sets(&labels.iter().map(|labelled| &labelled.label).collect::<Vec<_>>()) {
        match set {
            Ok(Some(set)) => layouts.push(striped(labels, set)),
            // Its creation did not get far enough, or its deletion did.
            Ok(None) => {}
            Err(reason) => not_opened.push(NotOpened { name, reason }),
        }
    }
    (layouts, not_opened)
}

fn striped(labels: &[Labelled], set: Set) -> SegmentLayout {
    let on = |part: &SegmentEntry| {
        let stripe = part.stripe.as_ref()?;
        let uuid = stripe.members.get(usize::from(stripe.index))?;
        labels.iter().find(|labelled| labelled.label.device() == *uuid).map(|labelled| labelled.device)
    };
    SegmentLayout {
        // The set is complete: each of its parts was found in a label.
        members: set.parts.iter().filter_map(|part| Some(member(on(part)?, part))).collect(),
        name: set.name,
        uuid: set.uuid.into_bytes(),
        durability: set.durability,
        unaligned_reads: false,
        chunk: set.chunk,
    }
}

/// What of a device belongs to a segment: no more than its capacity, whatever its extents hold besides.
fn member(device: usize, entry: &SegmentEntry) -> MemberLayout {
    MemberLayout { device, extents: part(&entry.extents, 0, entry.capacity) }
}
