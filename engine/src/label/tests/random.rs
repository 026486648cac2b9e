//! Random changes of two devices, with power going at random moments.

use proptest::prelude::*;

use super::rig::{BLOCK, Promise, Rig, State, segment};
use crate::blocks::memory::Torn;
use crate::label::Durability;
use crate::label::stripe::{self, NewSet};

/// What is done; names and sizes are small, so that they meet.
#[derive(Debug, Clone)]
enum Change {
    Create { device: usize, name: u8, blocks: u64 },
    Resize { device: usize, name: u8, blocks: u64 },
    Rename { device: usize, name: u8, to: u8 },
    MakeDurable { device: usize, name: u8, how: Durability },
    Delete { device: usize, name: u8 },
    CreateSet { name: u8, chunks: u64, chunk: u64 },
    ResizeSet { chunks: u64 },
    RenameSet { to: u8 },
    MakeSetDurable { how: Durability },
    DeleteSet,
}

/// Where the power goes, if it does: at which of the commands, after how many of its bytes, and what the cache keeps.
type Cut = Option<(u64, u64, u64)>;

fn change() -> impl Strategy<Value = Change> {
    let (device, name, blocks) = (0..2_usize, 0..4_u8, 0..9_u64);
    let how = prop::sample::select(vec![Durability::None, Durability::Fua, Durability::Flush]);
    prop_oneof![
        3 => (device.clone(), name.clone(), blocks.clone()).prop_map(|(device, name, blocks)| Change::Create { device, name, blocks }),
        3 => (device.clone(), name.clone(), blocks.clone()).prop_map(|(device, name, blocks)| Change::Resize { device, name, blocks }),
        1 => (device.clone(), name.clone(), name.clone()).prop_map(|(device, name, to)| Change::Rename { device, name, to }),
        1 => (device.clone(), name.clone(), how.clone()).prop_map(|(device, name, how)| Change::MakeDurable { device, name, how }),
        2 => (device, name.clone()).prop_map(|(device, name)| Change::Delete { device, name }),
        2 => (name.clone(), blocks.clone(), 1..3_u64).prop_map(|(name, chunks, chunk)| Change::CreateSet { name, chunks, chunk }),
        2 => blocks.prop_map(|chunks| Change::ResizeSet { chunks }),
        1 => name.prop_map(|to| Change::RenameSet { to }),
        1 => how.prop_map(|how| Change::MakeSetDurable { how }),
        1 => Just(Change::DeleteSet),
    ]
}

fn called(name: u8) -> String {
    format!("segment {name}")
}

/// Makes the change; whether it was refused or not does not matter.
fn make(rig: &mut Rig, change: &Change) -> bool {
    let set = rig.view().unwrap().sets.first().map(|set| (set.uuid, set.chunk));
    let (uuid, chunk) = set.unwrap_or_default();
    match *change {
        Change::Create { device, name, blocks } => {
            rig.change(device, |label, device| label.create_segment(device, &segment(&called(name), blocks))).is_ok()
        }
        Change::Resize { device, name, blocks } => rig
            .change(device, |label, device| label.resize_segment(device, &called(name), blocks * BLOCK as u64))
            .is_ok(),
        Change::Rename { device, name, to } => {
            rig.change(device, |label, device| label.rename_segment(device, &called(name), &called(to))).is_ok()
        }
        Change::MakeDurable { device, name, how } => {
            rig.change(device, |label, device| label.set_durability(device, &called(name), how)).is_ok()
        }
        Change::Delete { device, name } => {
            rig.change(device, |label, device| label.delete_segment(device, &called(name))).is_ok()
        }
        Change::CreateSet { name, chunks, chunk } => {
            let chunk = chunk * BLOCK as u64;
            let new = NewSet { name: called(name), capacity: chunks * chunk, chunk, ..NewSet::default() };
            rig.members(|members| stripe::create(members, &new)).is_ok()
        }
        Change::ResizeSet { chunks } => rig.members(|members| stripe::resize(members, uuid, chunks * chunk)).is_ok(),
        Change::RenameSet { to } => rig.members(|members| stripe::rename(members, uuid, &called(to))).is_ok(),
        Change::MakeSetDurable { how } => rig.members(|members| stripe::set_durability(members, uuid, how)).is_ok(),
        Change::DeleteSet => rig.members(|members| stripe::delete(members, uuid)).is_ok(),
    }
}

/// Makes one change, perhaps cut, and says what is wrong then.
fn step(rig: &mut Rig, change: &Change, cut: Cut) -> Result<(), String> {
    let old = rig.view()?;
    let bytes = rig.bytes(&old);
    let start = rig.begin();
    let made = make(rig, change);
    let promise = Promise { new: rig.view()?, old, bytes };
    if !made && promise.new != promise.old {
        return Err(format!("what was refused was made: {:?}", promise.new));
    }
    let mut now = rig.view()?;
    if let Some((at, torn, kept)) = cut {
        let tick = start + at % (rig.now() - start + 1);
        *rig = rig.cut(tick, &Torn::Bytes(torn), &|number| kept >> (number % 64) & 1 == 1);
        now = rig.view()?;
        let read = rig.bytes(&now);
        let state = promise.check(&now, &read)?;
        let found = rig.members(stripe::settle).map_err(|error| error.to_string())?;
        if found.iter().any(|found| found.unsettled) {
            return Err(format!("not settled: {found:?}"));
        }
        let settled = rig.view()?;
        let read = rig.bytes(&settled);
        if promise.check(&settled, &read)? != state {
            return Err(format!("settled otherwise than decided: {state:?}"));
        }
    } else if promise.new != promise.old {
        let read = rig.bytes(&now);
        if promise.check(&now, &read)? != State::New {
            return Err("what was made is not there".to_owned());
        }
    }
    rig.tenants_write();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_changes_and_any_cuts(
        changes in prop::collection::vec((change(), prop::option::of((any::<u64>(), 0..2000_u64, any::<u64>()))), 1..24),
        honours in any::<bool>(),
    ) {
        let mut rig = Rig::new(2);
        rig.honour_fua(honours);
        for (change, cut) in changes {
            if let Err(error) = step(&mut rig, &change, cut) {
                prop_assert!(false, "{change:?}, {cut:?}: {error}");
            }
        }
    }
}
