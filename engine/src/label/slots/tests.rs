use super::*;
use crate::blocks::memory::MemoryBlocks;
use crate::label::entry::Record;
use crate::label::place::END_BYTES;
use crate::label::{BlockExtent, Identity, Label, Mode, NewLabel, Owner, create, erase, inspect, repair};

const BLOCKS: u64 = 5 << 20 >> 9;
const FRONT: SlotPlace = SlotPlace::ALL[0];
const FRONT_2: SlotPlace = SlotPlace::ALL[1];
const BACK: SlotPlace = SlotPlace::ALL[2];
const BACK_2: SlotPlace = SlotPlace::ALL[3];

fn geometry() -> Geometry {
    Geometry::new(BLOCKS, 9).unwrap()
}

/// A device with a label that was changed `changes` times: each changes the epoch.
fn labelled(changes: u64) -> MemoryBlocks {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    let mut label = create(&mut device, &NewLabel::default()).unwrap();
    for epoch in 1..=changes {
        label.set_owner(&mut device, Owner { epoch, ..Owner::default() }).unwrap();
    }
    device.begin_journal();
    device
}

fn byte(place: SlotPlace, at: u64) -> u64 {
    geometry().slot(place).slba() * 512 + at
}

/// Makes the CRC wrong.
fn damage(device: &mut MemoryBlocks, place: SlotPlace) {
    device.poke(byte(place, 40), 0x55);
    device.poke(byte(place, 41), 0xAA);
}

fn open(device: &mut MemoryBlocks, mode: Mode) -> Result<(u64, u64), LabelError> {
    let label = Label::open(device, &Identity::default(), mode)?;
    Ok((label.sequence(), label.owner().epoch))
}

fn copy(device: &mut MemoryBlocks, from: SlotPlace, to: SlotPlace) {
    let mut bytes = vec![0; SLOT_BYTES];
    device.read(geometry().slot(from).slba(), &mut bytes).unwrap();
    device.write(geometry().slot(to).slba(), &bytes).unwrap();
}

/// Writes the label that counts, changed, into a slot.
fn plant(device: &mut MemoryBlocks, place: SlotPlace, change: impl FnOnce(&mut Contents)) {
    let slots = Slots::read(device, geometry()).unwrap();
    let mut contents = slots.decide().unwrap().contents.clone();
    change(&mut contents);
    Ranks::free().write_slot(device, geometry(), place, &Encoded::of(&contents).unwrap()).unwrap();
}

#[test]
fn the_highest_sequence_of_the_four_counts() {
    let mut device = labelled(5);
    for (bad, left) in [(vec![], 6), (vec![FRONT_2], 6), (vec![FRONT_2, BACK_2], 5), (vec![FRONT_2, BACK_2, FRONT], 5)]
    {
        bad.iter().for_each(|place| damage(&mut device, *place));
        assert_eq!(open(&mut device, Mode::ReadOnly), Ok((left, left - 1)), "{bad:?}");
    }
    damage(&mut device, BACK);
    let Err(LabelError::Damaged(findings)) = open(&mut device, Mode::ReadOnly) else { panic!("no slot is whole") };
    assert!(findings.0.iter().all(|finding| matches!(finding, Finding::Damaged(Malformed::Crc { .. }))));
    assert!(findings.to_string().starts_with("front slot 0: a damaged label: its CRC-32C is "), "{findings}");
    assert!(open(&mut device, Mode::ReadWrite).is_err());
    assert_eq!(device.journal().len(), 0, "never a new label");
}

#[test]
fn each_change_spares_the_newest_slot_of_each_end() {
    let mut device = labelled(0);
    let mut label = Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
    for epoch in 1..6_u64 {
        label.set_owner(&mut device, Owner { epoch, ..Owner::default() }).unwrap();
        let sequences = inspect(&mut device).unwrap().0.map(|finding| match finding {
            Finding::Valid { sequence, .. } => sequence,
            other => panic!("{other}"),
        });
        let mut expected = [epoch, epoch + 1];
        if epoch % 2 == 0 {
            expected.reverse();
        }
        assert_eq!(sequences, [expected, expected].concat()[..]);
    }
}

#[test]
fn reading_writes_nothing() {
    let mut device = labelled(3);
    damage(&mut device, FRONT);
    damage(&mut device, FRONT_2);
    device.set_writable(false);
    assert_eq!(open(&mut device, Mode::ReadOnly), Ok((4, 3)));
    inspect(&mut device).unwrap();
    Label::read(&mut device).unwrap();
    let mut label = Label::open(&mut device, &Identity::default(), Mode::ReadOnly).unwrap();
    assert_eq!(label.set_may_be_overwritten(&mut device, true), Err(LabelError::ReadOnly));
    assert_eq!(device.journal().len(), 0);
}

#[test]
fn an_end_that_is_behind_is_brought_up_to_date() {
    for lost in [[FRONT, FRONT_2], [BACK, BACK_2]] {
        let mut device = labelled(3);
        lost.iter().for_each(|place| damage(&mut device, *place));
        assert_eq!(open(&mut device, Mode::ReadWrite), Ok((4, 3)));
        assert_eq!(device.journal().len(), 2, "one write and one flush");
        let others = SlotPlace::ALL.into_iter().filter(|place| !lost.contains(place));
        others.for_each(|place| damage(&mut device, place));
        assert_eq!(open(&mut device, Mode::ReadOnly), Ok((4, 3)), "the other end can be lost now");
    }
}

#[test]
fn a_later_version_beside_it_is_refused() {
    for place in SlotPlace::ALL {
        let mut device = labelled(3);
        let mut bytes = Slots::read(&mut device, geometry()).unwrap().decide().unwrap().bytes.clone();
        bytes[8] = 2;
        bytes[40..44].fill(0);
        let crc = crc32c::crc32c(&bytes);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        Ranks::free().write_slot(&mut device, geometry(), place, &Encoded { sequence: 9, bytes }).unwrap();
        device.begin_journal();
        let refused = Err(LabelError::Newer { place, version: 2, flags: 0 });
        assert_eq!(open(&mut device, Mode::ReadOnly), refused);
        assert_eq!(open(&mut device, Mode::ReadWrite), refused);
        assert!(matches!(repair(&mut device, &Identity::default(), Default::default()), Err(LabelError::Newer { .. })));
        assert_eq!(device.journal().len(), 0);
    }
}

#[test]
fn one_sequence_says_one_thing() {
    let mut device = labelled(4);
    copy(&mut device, FRONT, FRONT_2);
    assert_eq!(open(&mut device, Mode::ReadOnly), Ok((5, 4)), "the same twice is no conflict");
    plant(&mut device, BACK_2, |contents| contents.owner.epoch = 77);
    let conflict = LabelError::Conflict { one: FRONT, other: BACK_2, sequence: 5 };
    assert_eq!(open(&mut device, Mode::ReadWrite), Err(conflict.clone()));
    assert_eq!(repair(&mut device, &Identity::default(), Default::default()), Err(conflict));
    // Of sequences that do not count it does not matter, wherever they are.
    for newest in [FRONT_2, BACK] {
        let mut device = labelled(4);
        plant(&mut device, BACK_2, |contents| contents.owner.epoch = 77);
        copy(&mut device, BACK_2, if newest == BACK { FRONT_2 } else { BACK });
        let bytes = Slots::read(&mut labelled(5), geometry()).unwrap().decide().unwrap().bytes.clone();
        let mut contents = wire::decode(&bytes).unwrap();
        contents.device = Slots::read(&mut device, geometry()).unwrap().anchor().unwrap().contents.device;
        Ranks::free().write_slot(&mut device, geometry(), newest, &Encoded::of(&contents).unwrap()).unwrap();
        assert_eq!(open(&mut device, Mode::ReadOnly), Ok((6, 5)), "{newest}");
    }
}

#[test]
fn labels_of_two_devices_are_not_mixed() {
    let mut device = labelled(4);
    let other = uuid::Uuid::from_u128(1);
    plant(&mut device, BACK, |contents| (contents.device, contents.sequence) = (other, 9));
    let Err(LabelError::TwoDevices { one, other: front, devices }) = open(&mut device, Mode::ReadOnly) else {
        panic!("they are mixed")
    };
    assert_eq!((one, front, devices[0]), (BACK, FRONT, other));
}

#[test]
fn nothing_and_something_else_are_told_apart() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    assert_eq!(open(&mut device, Mode::ReadWrite), Err(LabelError::Blank));
    for place in SlotPlace::ALL {
        for at in [0, 4096, SLOT_BYTES as u64 - 1] {
            let mut device = device.clone();
            device.poke(byte(place, at), 1);
            let Err(LabelError::Foreign(findings)) = open(&mut device, Mode::ReadWrite) else { panic!("{place}") };
            let foreign = findings.0.iter().position(|finding| *finding == Finding::Foreign);
            assert_eq!(foreign, Some(place.index()));
        }
    }
    device.poke(END_BYTES, 1);
    assert_eq!(open(&mut device, Mode::ReadOnly), Err(LabelError::Blank), "data is not looked at");
}

#[test]
fn an_end_that_was_overwritten_is_left_until_it_is_repaired() {
    for (end, places) in [(End::Front, [FRONT, FRONT_2]), (End::Back, [BACK, BACK_2])] {
        let mut device = labelled(3);
        device.poke(byte(places[0], 0), b'x');
        assert_eq!(open(&mut device.clone(), Mode::ReadWrite), Ok((4, 3)), "a half of it is not");
        device.poke(byte(places[1], 0), b'x');
        device.begin_journal();
        assert_eq!(open(&mut device, Mode::ReadWrite), Err(LabelError::Overwritten { end }));
        assert_eq!(device.journal().len(), 0);
        assert_eq!(open(&mut device, Mode::ReadOnly), Ok((4, 3)));
        assert_eq!(repair(&mut device, &Identity::default(), Default::default()), Ok(places.to_vec()));
        assert_eq!(open(&mut device, Mode::ReadWrite), Ok((4, 3)));
    }
}

/// Somebody else's bytes beside our label are overwritten last of all.
#[test]
fn foreign_bytes_are_spared() {
    let mut device = labelled(3);
    device.poke(byte(FRONT, 0), b'x');
    let mut label = Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
    label.set_owner(&mut device, Owner::default()).unwrap();
    let findings = inspect(&mut device).unwrap();
    assert_eq!(findings.0[0], Finding::Foreign);
    assert!(matches!(findings.0[1], Finding::Valid { sequence: 5, .. }));
}

#[test]
fn a_slot_that_was_written_for_another_place_is_not_believed() {
    let mut device = labelled(3);
    plant(&mut device, BACK, |contents| {
        (contents.geometry, contents.sequence) = (Geometry::new(BLOCKS + 1, 9).unwrap(), 99);
    });
    assert_eq!(open(&mut device, Mode::ReadOnly), Ok((4, 3)));
    let findings = inspect(&mut device).unwrap();
    let elsewhere = Malformed::Elsewhere { blocks: BLOCKS + 1, block_size: 512 };
    assert_eq!(findings.0[2], Finding::Damaged(elsewhere));
}

/// A tenant's data at the new end of a namespace that was made smaller.
#[test]
fn what_a_tenant_made_look_like_a_label_is_not_believed() {
    let mut device = labelled(3);
    let smaller = Geometry::new(BLOCKS - 4096, 9).unwrap();
    let forged = |device: &mut MemoryBlocks, epoch| {
        let slots = Slots::read(device, geometry()).unwrap();
        let mut contents = slots.decide().unwrap().contents.clone();
        (contents.geometry, contents.sequence, contents.owner.epoch) = (smaller, 1 << 40, epoch);
        Encoded::of(&contents).unwrap()
    };
    let label = forged(&mut device, 66);
    Ranks::free().write_end(&mut device, smaller, End::Back, &label).unwrap();
    device.resize(smaller.blocks());
    let resized = LabelError::Resized { label: BLOCKS, device: smaller.blocks() };
    assert_eq!(open(&mut device, Mode::ReadOnly), Err(resized));
    assert_eq!(inspect(&mut device).unwrap().0[2], Finding::Foreign);
    repair(&mut device, &Identity::default(), crate::label::Repair { resized: true }).unwrap();
    assert_eq!(open(&mut device, Mode::ReadWrite), Ok((5, 3)), "the state of the front");
}

#[test]
fn a_write_that_fails_leaves_the_label_uncertain() {
    for command in 0..4 {
        let mut device = labelled(0);
        let mut label = Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
        let mut probe = device.clone();
        label.set_may_be_overwritten(&mut probe, true).unwrap();
        let start = probe.journal()[0].tick;
        // The probe's clock is the device's: it has gone on by four.
        device.fail_from(Some(start + 4 + command));
        let mut label = Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
        assert!(matches!(label.set_may_be_overwritten(&mut device, true), Err(LabelError::Blocks(_))));
        device.fail_from(None);
        assert_eq!(label.set_may_be_overwritten(&mut device, true), Err(LabelError::Uncertain));
        let label = Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
        assert_eq!(label.may_be_overwritten(), command > 0, "what was written counts, also when it was not answered");
    }
}

#[test]
fn every_block_size_has_the_same_bytes() {
    let mut of_512: Option<Vec<u8>> = None;
    for lbads in 9..=16_u8 {
        let mut device = MemoryBlocks::new(5 << 20 >> lbads, 1 << lbads);
        let mut label =
            create(&mut device, &NewLabel { device: uuid::Uuid::from_u128(1), ..NewLabel::default() }).unwrap();
        label.set_owner(&mut device, Owner { epoch: 3, ..Owner::default() }).unwrap();
        assert_eq!(open(&mut device, Mode::ReadWrite), Ok((2, 3)));
        let mut bytes = vec![0; 5 << 20];
        device.read(0, &mut bytes).unwrap();
        // But for NSZE, LBADS, extents in blocks, and the CRC of them.
        let same: Vec<_> = [0_usize, 512 << 10, 4 << 20, (4 << 20) + (512 << 10)]
            .iter()
            .flat_map(|slot| {
                [&bytes[*slot..slot + 40], &bytes[slot + 44..slot + 104], &bytes[slot + 176..slot + 4096]].concat()
            })
            .collect();
        assert_eq!(*of_512.get_or_insert_with(|| same.clone()), same);
    }
    for (blocks, block_size) in [(1 << 20, 256), (1 << 10, 131_072), (4096, 512)] {
        let mut device = MemoryBlocks::new(blocks, block_size);
        let unsuitable = LabelError::Unsuitable { blocks, block_size };
        assert_eq!(open(&mut device, Mode::ReadOnly), Err(unsuitable.clone()));
        assert_eq!(create(&mut device, &NewLabel::default()).unwrap_err(), unsuitable);
    }
}

#[test]
fn what_is_too_small_now_and_begins_with_a_label_is_known_for_it() {
    let label = |second: bool| {
        let mut device = MemoryBlocks::new(1024, 4096);
        let mut label = create(&mut device, &NewLabel::default()).unwrap();
        label.set_owner(&mut device, Owner { epoch: 3, ..Owner::default() }).unwrap();
        let mut slot = vec![0; SLOT_BYTES];
        device.read(if second { 128 } else { 0 }, &mut slot).unwrap();
        slot
    };
    let (first, second) = (label(false), label(true));
    // Blocks, bytes of one, the slot that is still there, its byte, and whether it is known.
    for (blocks, block_size, slot, at, known) in [
        (512, 4096, &first, 0, true),
        (512, 4096, &second, 512 << 10, true),
        (4096, 512, &second, 512 << 10, true),
        (128, 4096, &first, 0, true),
        // Here a slot does not begin.
        (512, 4096, &first, 256 << 10, false),
        (1 << 10, 131_072, &first, 0, true),
        (1 << 10, 131_072, &second, 512 << 10, true),
        // Here it does not begin at a block.
        (1 << 10, 1 << 20, &second, 512 << 10, false),
    ] {
        let mut device = MemoryBlocks::new(blocks, block_size);
        let mut bytes = vec![0; (at + SLOT_BYTES).next_multiple_of(block_size as usize)];
        bytes[at..at + SLOT_BYTES].copy_from_slice(slot);
        device.write(0, &bytes).unwrap();
        let refused = match known {
            true => LabelError::Remnant { blocks, block_size },
            false => LabelError::Unsuitable { blocks, block_size },
        };
        device.begin_journal();
        assert_eq!(open(&mut device, Mode::ReadWrite), Err(refused.clone()), "{blocks} of {block_size}, byte {at}");
        assert_eq!(inspect(&mut device).unwrap_err(), refused);
        assert_eq!(erase(&mut device).unwrap_err(), refused);
        assert_eq!(create(&mut device, &NewLabel { replace: true, ..NewLabel::default() }).unwrap_err(), refused);
        assert!(device.journal().is_empty());
    }
}

/// CRC-32C of `suffix`, from an empty start and without the last inversion: what a change of bytes changes in the CRC.
fn difference(suffix: impl DoubleEndedIterator<Item = u8>) -> Vec<u32> {
    // What each bit of a byte in front of so many bytes comes to: one more byte of zeroes is one step of the register.
    let step = |register: u32| (0..8).fold(register, |now, _| (now >> 1) ^ (0x82F6_3B78 * (now & 1)));
    let mut bits: [u32; 8] = array::from_fn(|bit| step(1 << bit));
    let mut sum = 0;
    let mut sums = vec![0];
    for byte in suffix.rev() {
        sum ^= bits.iter().enumerate().filter(|(bit, _)| byte >> bit & 1 == 1).fold(0, |sum, (_, value)| sum ^ value);
        bits = bits.map(step);
        sums.push(sum);
    }
    sums.reverse();
    sums
}

/// A label of 1,024 segments, torn at every byte of its 400 KiB and more. That a CRC is linear says of each tear at once
/// whether it goes unnoticed; what it says is compared with the CRC itself here and there.
#[test]
fn a_full_label_is_torn_at_every_byte() {
    let full = |sequence: u64, shift: u64| {
        let record = |at: u64| crate::label::SegmentEntry {
            name: format!("segment {}", at + shift),
            uuid: uuid::Uuid::from_u128((u128::from(at) << 64) + 1),
            generation: sequence,
            durability: crate::label::Durability::None,
            capacity: 14,
            extents: (0..14)
                .map(|extent| BlockExtent::new(3000 + at * 32 + 2 * extent, 1 + extent % 2 * shift).unwrap())
                .collect(),
            stripe: None,
        };
        let records = (0..1024).map(|at| Record::committed(record(at))).collect();
        let mut device = MemoryBlocks::new(1 << 20, 512);
        create(&mut device, &NewLabel { device: uuid::Uuid::from_u128(1), scratch: 0, ..NewLabel::default() }).unwrap();
        let slots = Slots::read(&mut device, Geometry::new(1 << 20, 9).unwrap()).unwrap();
        let contents = Contents { sequence, records, ..slots.decide().unwrap().contents.clone() };
        Encoded::of(&contents).unwrap().bytes
    };
    let (old, new) = (full(6, 0), full(8, 1));
    assert!(old.len() == new.len() && new.len() > 400 << 10);
    let crc_field = 40..44;
    let blank = |bytes: &[u8]| [&bytes[..crc_field.start], &[0; 4], &bytes[crc_field.end..]].concat();
    let (old_blank, new_blank) = (blank(&old), blank(&new));
    let changed = difference(old_blank.iter().zip(&new_blank).map(|(old, new)| old ^ new));
    let whole = crc32c::crc32c(&new_blank);
    let mut torn = old.clone();
    let (mut unnoticed, mut compared) = (Vec::new(), 0);
    for at in 0..=new.len() {
        // The first `at` bytes are new.
        let computed = whole ^ changed[at];
        let stored = u32::from_le_bytes(torn[crc_field.clone()].try_into().unwrap());
        if at % 9973 == 0 || computed == stored {
            compared += 1;
            assert_eq!(crc32c::crc32c(&blank(&torn)), computed, "{at} bytes");
            let whole = torn == old || torn == new;
            assert_eq!((computed == stored, wire::decode(&torn).is_ok()), (whole, whole), "{at} bytes");
            if whole {
                unnoticed.push(torn == new);
            }
        }
        if at < new.len() {
            torn[at] = new[at];
        }
    }
    assert!(compared > 40);
    assert!(unnoticed.contains(&false) && unnoticed.contains(&true), "the old label, and the new one");
}

/// Nothing behind the end of what is too small is looked at, not even where a slot would begin there.
#[test]
fn what_is_too_small_is_read_to_its_end_at_the_most() {
    for (blocks, block_size) in [(1, 512), (1024, 512), (127, 4096), (128, 4096), (129, 4096)] {
        let mut device = MemoryBlocks::new(blocks, block_size);
        assert_eq!(inspect(&mut device).unwrap_err(), LabelError::Unsuitable { blocks, block_size });
    }
}
