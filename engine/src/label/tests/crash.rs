//! Every change, its power cut at every byte.

use super::rig::{BLOCK, DATA, Rig, segment, survives};
use crate::blocks::memory::MemoryBlocks;
use crate::label::stripe::{self, Member, NewSet};
use crate::label::{Durability, Label, Owner};
use uuid::Uuid;

/// Two segments with a hole between them, and all four slots written.
fn one() -> Rig {
    let mut rig = Rig::new(1);
    rig.change(0, |label, device| {
        for (name, blocks) in [("a", 3), ("hole", 2), ("b", 3)] {
            label.create_segment(device, &segment(name, blocks)).unwrap();
        }
        label.delete_segment(device, "hole").unwrap();
    });
    rig.tenants_write();
    rig
}

/// A set over two devices, beside a segment on each.
fn two() -> Rig {
    let mut rig = Rig::new(2);
    for index in 0..2 {
        rig.change(index, |label, device| label.create_segment(device, &segment("beside", 2)).unwrap());
    }
    rig.members(|members| stripe::create(members, &set("set", 5)).unwrap());
    rig.tenants_write();
    rig
}

fn set(name: &str, chunks: u64) -> NewSet {
    NewSet { name: name.to_owned(), capacity: chunks * BLOCK as u64, chunk: BLOCK as u64, ..NewSet::default() }
}

/// On a device that honours FUA, and on one that does not.
fn everywhere(rig: &Rig, change: impl Fn(&mut Rig)) {
    for honours in [true, false] {
        let mut rig = rig.clone();
        rig.honour_fua(honours);
        let crashes = survives(rig, &change).unwrap_or_else(|error| panic!("FUA honoured: {honours}: {error}"));
        assert!(crashes.old > 50 && crashes.new > 50, "both states are seen: {crashes:?}");
    }
}

fn of_one(change: impl Fn(&mut Label, &mut MemoryBlocks)) {
    everywhere(&one(), |rig| rig.change(0, &change));
}

#[test]
fn a_segment_is_created() {
    of_one(|label, device| label.create_segment(device, &segment("c", 4)).unwrap());
}

#[test]
fn a_segment_is_created_in_two_pieces() {
    of_one(|label, device| {
        label.create_segment(device, &segment("c", DATA - 6)).unwrap();
        assert_eq!(label.segment("c").unwrap().extents.len(), 2);
    });
}

#[test]
fn a_segment_grows_where_it_is() {
    of_one(|label, device| {
        label.resize_segment(device, "a", 5 * BLOCK as u64).unwrap();
        assert_eq!(label.segment("a").unwrap().extents.len(), 1);
    });
}

#[test]
fn a_segment_grows_into_two_pieces() {
    of_one(|label, device| {
        label.resize_segment(device, "a", 8 * BLOCK as u64).unwrap();
        assert_eq!(label.segment("a").unwrap().extents.len(), 2);
    });
}

#[test]
fn a_segment_shrinks() {
    of_one(|label, device| label.resize_segment(device, "b", BLOCK as u64).unwrap());
}

#[test]
fn a_segment_is_renamed() {
    of_one(|label, device| label.rename_segment(device, "a", "another name").unwrap());
}

#[test]
fn a_segment_is_made_durable_otherwise() {
    of_one(|label, device| label.set_durability(device, "a", Durability::Fua).unwrap());
}

#[test]
fn a_segment_is_deleted() {
    of_one(|label, device| label.delete_segment(device, "b").unwrap());
}

#[test]
fn a_device_gets_an_owner() {
    let owner = Owner { node: Uuid::from_u128(7), name: "node seven".to_owned(), epoch: 3 };
    of_one(|label, device| label.set_owner(device, owner.clone()).unwrap());
}

#[test]
fn a_set_is_created() {
    let mut rig = two();
    let before = rig.set();
    rig.members(|members| stripe::delete(members, before).unwrap());
    everywhere(&rig, |rig| {
        rig.members(|members| stripe::create(members, &set("set", 5)).unwrap());
    });
}

fn of_set(change: impl Fn(&mut [Member<'_>], Uuid)) {
    everywhere(&two(), |rig| {
        let set = rig.set();
        rig.members(|members| change(members, set));
    });
}

#[test]
fn a_set_grows() {
    of_set(|members, set| stripe::resize(members, set, 9 * BLOCK as u64).unwrap());
}

#[test]
fn a_set_shrinks() {
    of_set(|members, set| stripe::resize(members, set, 2 * BLOCK as u64).unwrap());
}

#[test]
fn a_set_is_renamed() {
    of_set(|members, set| stripe::rename(members, set, "renamed").unwrap());
}

#[test]
fn a_set_is_made_durable_otherwise() {
    of_set(|members, set| stripe::set_durability(members, set, Durability::Fua).unwrap());
}

#[test]
fn a_set_is_deleted() {
    of_set(|members, set| stripe::delete(members, set).unwrap());
}
