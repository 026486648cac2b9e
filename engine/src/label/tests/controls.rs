//! Writers that do it wrong: the test that finds no fault with ours finds one with each of them.

use uuid::Uuid;

use super::rig::{BLOCK, Rig, segment, survives};
use crate::blocks::Blocks;
use crate::label::entry::{Pending, Record};
use crate::label::open::clear;
use crate::label::segments::resize;
use crate::label::slots::Encoded;
use crate::label::space::resized;
use crate::label::stripe::{self, NewSet};
use crate::label::{Finding, Label, Mode, SlotPlace, inspect};

fn one() -> Rig {
    let mut rig = Rig::new(1);
    for name in ["a", "b"] {
        rig.change(0, |label, device| label.create_segment(device, &segment(name, 2)).unwrap());
    }
    rig.tenants_write();
    rig
}

fn fault(rig: Rig, change: impl FnOnce(&mut Rig)) -> String {
    match survives(rig, change) {
        Ok(crashes) => panic!("no fault was found in {crashes:?}"),
        Err(fault) => fault,
    }
}

/// The label with "a" renamed, as it would be written.
fn renamed(label: &Label) -> Vec<u8> {
    let mut next = label.contents().clone();
    next.sequence += 1;
    next.records[0].committed.as_mut().unwrap().name = "renamed".to_owned();
    let mut bytes = Encoded::of(&next).unwrap().bytes;
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn slots(label: &Label) -> [u64; 4] {
    SlotPlace::ALL.map(|place| label.contents().geometry.slot(place).slba())
}

#[test]
fn writing_all_slots_at_once_is_found_out() {
    let mut rig = one();
    rig.honour_fua(false);
    let found = fault(rig, |rig| {
        let label = rig.open(0, Mode::ReadOnly);
        for slba in slots(&label) {
            rig.devices[0].write(slba, &renamed(&label)).unwrap();
        }
        rig.devices[0].flush().unwrap();
    });
    assert!(found.contains("does not open") || found.contains("neither the old nor the new state"), "{found}");
}

#[test]
fn overwriting_the_slots_that_count_at_both_ends_is_found_out() {
    let mut rig = one();
    rig.honour_fua(false);
    let found = fault(rig, |rig| {
        let label = rig.open(0, Mode::ReadOnly);
        let findings = inspect(&mut rig.devices[0]).unwrap();
        let counts =
            |finding: &Finding| matches!(finding, Finding::Valid { sequence, .. } if *sequence == label.sequence());
        for (slba, _) in slots(&label).into_iter().zip(findings.0.iter()).filter(|(_, finding)| counts(finding)) {
            rig.devices[0].write(slba, &renamed(&label)).unwrap();
        }
        rig.devices[0].flush().unwrap();
    });
    assert!(found.contains("neither the old nor the new state"), "an older one comes back: {found}");
}

#[test]
fn listing_before_clearing_is_found_out() {
    let found = fault(one(), |rig| {
        rig.change(0, |label, device| {
            let mut next = label.contents().clone();
            let mut entry = next.records[0].committed.clone().unwrap();
            entry.extents = resized(&next, &[], 2).unwrap();
            (entry.uuid, entry.name) = (Uuid::from_u128(5), "c".to_owned());
            let extents = entry.extents.clone();
            next.records.push(Record::committed(entry));
            let prepared = label.prepare(device, next).unwrap();
            label.write(device, prepared).unwrap();
            clear(device, &extents).unwrap();
        });
    });
    assert!(found.contains("c reads what others have written"), "{found}");
}

#[test]
fn clearing_without_a_flush_is_found_out() {
    let found = fault(one(), |rig| {
        rig.change(0, |label, device| {
            let mut next = label.contents().clone();
            let entry = next.records[1].committed.as_mut().unwrap();
            let new = resize(label.contents(), entry, 4).unwrap();
            let prepared = label.prepare(device, next).unwrap();
            new.iter().for_each(|extent| device.zero(extent.slba(), extent.blocks()).unwrap());
            label.write(device, prepared).unwrap();
        });
    });
    assert!(found.contains("b reads what others have written"), "{found}");
}

#[test]
fn using_blocks_that_are_not_free_yet_is_found_out() {
    let found = fault(one(), |rig| {
        rig.change(0, |label, device| {
            let freed = label.segment("a").unwrap().extents.clone();
            clear(device, &freed).unwrap();
            label.delete_segment(device, "a").unwrap();
        });
    });
    assert!(found.contains("a has lost what it had written"), "{found}");
}

fn two() -> (Rig, Uuid) {
    let mut rig = Rig::new(2);
    let new = NewSet { name: "set".into(), capacity: 4 * BLOCK as u64, chunk: BLOCK as u64, ..NewSet::default() };
    let set = rig.members(|members| stripe::create(members, &new).unwrap());
    rig.tenants_write();
    (rig, set)
}

/// Writes a state of a member's label.
fn write(rig: &mut Rig, index: usize, change: impl FnOnce(&mut Vec<Record>)) {
    rig.change(index, |label, device| {
        let mut next = label.contents().clone();
        change(&mut next.records);
        let prepared = label.prepare(device, next).unwrap();
        label.write(device, prepared).unwrap();
    });
}

#[test]
fn changing_a_set_in_one_pass_is_found_out() {
    let (rig, _) = two();
    let found = fault(rig, |rig| {
        for index in 0..2 {
            write(rig, index, |records| {
                let entry = records[0].committed.as_mut().unwrap();
                (entry.name, entry.generation) = ("renamed".to_owned(), 2);
            });
        }
    });
    assert!(found.contains("is broken: member 1"), "{found}");
}

#[test]
fn deleting_a_set_in_one_pass_is_found_out() {
    let (rig, _) = two();
    let found = fault(rig, |rig| (0..2).for_each(|index| write(rig, index, Vec::clear)));
    assert!(found.contains("is broken: member 0: it has no part of the set"), "{found}");
}

#[test]
fn committing_before_all_have_it_pending_is_found_out() {
    let (rig, _) = two();
    let found = fault(rig, |rig| {
        for index in 0..2 {
            let next = |records: &[Record]| {
                let mut entry = records[0].committed.clone().unwrap();
                (entry.name, entry.generation) = ("renamed".to_owned(), 2);
                entry
            };
            write(rig, index, |records| records[0].pending = Some(Pending::Next(next(records))));
            write(rig, index, |records| records[0] = Record::committed(records[0].next().unwrap().clone()));
        }
    });
    assert!(found.contains("is broken: member 1"), "{found}");
}
