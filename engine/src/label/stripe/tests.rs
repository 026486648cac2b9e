use super::*;
use crate::blocks::Blocks;
use crate::blocks::memory::MemoryBlocks;
use crate::label::{Identity, Malformed, Mode, NewLabel, NewSegment, create as create_label};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const CHUNK: u64 = 8192;

/// Three devices with `data` blocks of 4,096 bytes for segments, on one clock.
fn three(data: u64) -> Vec<MemoryBlocks> {
    labelled(3, data)
}

fn labelled(count: u128, data: u64) -> Vec<MemoryBlocks> {
    let clock = Arc::<AtomicU64>::default();
    let device = |number| {
        let mut device = MemoryBlocks::new(512 + data, 4096).with_clock(Arc::clone(&clock));
        let new = NewLabel { device: uuid(number), alignment: 4096, scratch: 0, ..NewLabel::default() };
        create_label(&mut device, &new).unwrap();
        device
    };
    (0..count).map(device).collect()
}

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(0xD0 + number)
}

fn open(devices: &mut [MemoryBlocks]) -> Vec<Label> {
    let open = |device| Label::open(device, &Identity::default(), Mode::ReadWrite).unwrap();
    devices.iter_mut().map(|device| open(device)).collect()
}

fn with<R>(devices: &mut [MemoryBlocks], change: impl FnOnce(&mut [Member<'_>]) -> R) -> R {
    let mut labels = open(devices);
    let members = labels.iter_mut().zip(devices);
    change(&mut members.map(|(label, blocks)| Member { label, blocks }).collect::<Vec<_>>())
}

fn found(devices: &mut [MemoryBlocks]) -> Vec<Found> {
    let labels = open(devices);
    sets(&labels.iter().collect::<Vec<_>>())
}

fn whole(devices: &mut [MemoryBlocks]) -> Set {
    let found = found(devices).remove(0);
    assert!(!found.unsettled);
    found.set.unwrap().unwrap()
}

fn new(chunks: u64) -> NewSet {
    NewSet { name: "set".into(), uuid: Uuid::from_u128(5), capacity: chunks * CHUNK, chunk: CHUNK, ..NewSet::default() }
}

/// Three devices with a set of seven chunks.
fn striped() -> Vec<MemoryBlocks> {
    let mut devices = three(64);
    with(&mut devices, |members| create(members, &new(7))).unwrap();
    devices
}

const SET: Uuid = Uuid::from_u128(5);

#[test]
fn a_life_of_a_set() {
    let mut devices = striped();
    let set = whole(&mut devices);
    assert_eq!((set.uuid, set.name.as_str(), set.generation), (SET, "set", 1));
    assert_eq!((set.chunk, set.capacity, set.block_size), (CHUNK, 7 * CHUNK, 4096));
    assert_eq!(
        set.parts.iter().map(|part| part.capacity).collect::<Vec<_>>(),
        [6, 4, 4],
        "chunks 0, 3 and 6 are the first's"
    );
    let stripe = |part: &SegmentEntry| part.stripe.clone().unwrap();
    assert_eq!(set.parts.iter().map(|part| stripe(part).index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(set.parts.iter().all(|part| stripe(part).members == [uuid(0), uuid(1), uuid(2)]));

    with(&mut devices, |members| resize(members, SET, 11 * CHUNK)).unwrap();
    devices.reverse();
    with(&mut devices, |members| rename(members, SET, "other")).unwrap();
    let set = whole(&mut devices);
    assert_eq!((set.name.as_str(), set.generation, set.capacity), ("other", 3, 11 * CHUNK), "in whichever order");
    assert_eq!(set.parts.iter().map(|part| part.capacity).collect::<Vec<_>>(), [8, 8, 6]);

    with(&mut devices, |members| delete(members, SET)).unwrap();
    assert_eq!(found(&mut devices), []);
    assert!(open(&mut devices).iter().all(|label| label.free_blocks() == 64));
}

#[test]
fn a_set_has_no_more_members_than_an_engine_opens() {
    let mut devices = labelled(65, 4);
    with(&mut devices, |members| {
        let refused = create(members, &new(65)).unwrap_err();
        assert_eq!(refused.to_string(), "the number of members is 65: it must be 2 to 64, which an engine can open");
        create(&mut members[..64], &new(65)).unwrap();
    });
    assert_eq!(whole(&mut devices).parts.len(), 64);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let mut devices = striped();
    devices.iter_mut().for_each(MemoryBlocks::begin_journal);
    let argument = |result: Result<Uuid, SetError>| match result {
        Err(SetError::Argument { argument, value, .. }) => (argument, value),
        other => panic!("{other:?}"),
    };
    let other = NewSet { name: "new".into(), uuid: Uuid::nil(), ..new(3) };
    with(&mut devices, |members| {
        assert_eq!(argument(create(&mut members[..1], &other)), ("the number of members", 1));
        assert_eq!(argument(create(&mut [], &other)), ("the number of members", 0));
        for chunk in [0, 4095, 4097] {
            assert_eq!(argument(create(members, &NewSet { chunk, ..other.clone() })), ("chunk", chunk));
        }
        for capacity in [0, CHUNK, 2 * CHUNK, 3 * CHUNK + 4096, u64::MAX] {
            assert_eq!(argument(create(members, &NewSet { capacity, ..other.clone() })), ("capacity", capacity));
            assert!(matches!(resize(members, SET, capacity), Err(SetError::Argument { argument: "capacity", .. })));
        }
        let refused = |result: Result<(), SetError>| match result {
            Err(SetError::Member { device, error }) => (device, *error),
            other => panic!("{other:?}"),
        };
        let taken = LabelError::NameTaken { name: "set".into() };
        let same_name = NewSet { name: "set".into(), ..other.clone() };
        assert_eq!(refused(create(members, &same_name).map(drop)), (uuid(0), taken));
        let twice = Malformed::Twice { what: "set UUID", value: SET.to_string() };
        let same = NewSet { uuid: SET, ..other.clone() };
        assert_eq!(refused(create(members, &same).map(drop)), (uuid(0), LabelError::Refused(twice)));
        assert!(matches!(refused(resize(members, SET, 97 * CHUNK)), (_, LabelError::NoSpace { .. })));
        assert_eq!(resize(members, uuid(9), 6 * CHUNK), Err(SetError::NoSet { set: uuid(9) }));
        assert_eq!(delete(members, uuid(9)), Err(SetError::NoSet { set: uuid(9) }));
        assert!(matches!(refused(rename(members, SET, "a/b")), (_, LabelError::Name(_))));
        for member in members {
            let in_set = LabelError::InSet { name: "set".into(), set: SET };
            assert_eq!(member.label.delete_segment(member.blocks, "set"), Err(in_set.clone()));
            assert_eq!(member.label.resize_segment(member.blocks, "set", 4096), Err(in_set.clone()));
            assert_eq!(member.label.rename_segment(member.blocks, "set", "x"), Err(in_set));
        }
    });
    assert!(devices.iter().all(|device| device.journal().is_empty()));
}

/// The last member has no room: the others are not touched.
#[test]
fn all_is_planned_before_anything_is_written() {
    let mut devices = striped();
    with(&mut devices, |members| {
        let all = NewSegment { name: "all".into(), capacity: 60 * 4096, ..NewSegment::default() };
        members[2].label.create_segment(members[2].blocks, &all).unwrap();
    });
    devices.iter_mut().for_each(MemoryBlocks::begin_journal);
    let refused = with(&mut devices, |members| resize(members, SET, 12 * CHUNK)).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with(&format!("device {}: 16KiB are wanted, and 0B are free in whole units of 4KiB", uuid(2))),
        "{refused}"
    );
    assert!(devices.iter().all(|device| device.journal().is_empty()));
}

#[test]
fn members_that_are_missing_are_named_and_nothing_is_done() {
    let mut devices = striped();
    devices.iter_mut().for_each(MemoryBlocks::begin_journal);
    let missing = |index: u16| Missing { index, device: uuid(index.into()) };
    let incomplete = |missing| Err(SetError::Incomplete { name: "set".into(), count: 3, missing });
    assert_eq!(found(&mut devices[1..])[0].set, incomplete(vec![missing(0)]));
    assert_eq!(found(&mut devices[1..2])[0].set, incomplete(vec![missing(0), missing(2)]));
    let message = found(&mut devices[1..2])[0].set.clone().unwrap_err().to_string();
    let says = format!("of its 3 members these are missing: 0 (device {}), 2 (device {})", uuid(0), uuid(2));
    assert!(message.contains(&says), "{message}");
    with(&mut devices[..2], |members| {
        assert!(matches!(resize(members, SET, 9 * CHUNK), Err(SetError::Incomplete { .. })));
        assert!(matches!(delete(members, SET), Err(SetError::Incomplete { .. })));
        assert!(matches!(settle(members).unwrap()[0].set, Err(SetError::Incomplete { .. })));
    });
    assert!(devices.iter().all(|device| device.journal().is_empty()));
}

#[test]
fn a_copy_and_another_device_are_no_members() {
    let mut devices = striped();
    let mut copied = vec![devices[0].clone(), devices[1].clone(), devices[2].clone(), devices[1].clone()];
    assert_eq!(found(&mut copied)[0].set, Err(SetError::Copy { device: uuid(1) }));
    let copies = with(&mut copied, |members| create(members, &NewSet { name: "new".into(), uuid: uuid(7), ..new(4) }));
    assert_eq!(copies, Err(SetError::Copy { device: uuid(1) }));
    // A new label on the same namespace is another device.
    let again = NewLabel { replace: true, alignment: 4096, scratch: 0, ..NewLabel::default() };
    create_label(&mut devices[1], &again).unwrap();
    let missing = vec![Missing { index: 1, device: uuid(1) }];
    assert_eq!(found(&mut devices)[0].set, Err(SetError::Incomplete { name: "set".into(), count: 3, missing }));
}

#[test]
fn blocks_of_two_sizes_make_no_set() {
    let mut devices = three(64);
    devices[2] = MemoryBlocks::new(8192, 512);
    create_label(&mut devices[2], &NewLabel { scratch: 0, ..NewLabel::default() }).unwrap();
    let refused = with(&mut devices, |members| create(members, &new(3))).unwrap_err();
    assert!(matches!(refused, SetError::Argument { argument: "the block of a member", value: 512, .. }));
}

type Change = fn(&mut [Member<'_>]) -> Result<(), SetError>;

const CHANGES: [(&str, Change); 5] = [
    ("create", |members| create(members, &NewSet { name: "new".into(), uuid: uuid(8), ..new(4) }).map(drop)),
    ("grow", |members| resize(members, SET, 15 * CHUNK)),
    ("shrink", |members| resize(members, SET, 3 * CHUNK)),
    ("rename", |members| rename(members, SET, "renamed")),
    ("delete", |members| delete(members, SET)),
];

fn outcome(devices: &mut [MemoryBlocks]) -> Vec<Set> {
    found(devices).into_iter().filter_map(|found| found.set.unwrap()).collect()
}

/// A command that fails, each in turn: what the labels say then is the old or the new state, the same to everyone, and
/// settled alike.
#[test]
fn a_device_fails_in_the_middle_of_a_change() {
    for (name, change) in CHANGES {
        let mut after = striped();
        let old = outcome(&mut after);
        with(&mut after, change).unwrap();
        let new = outcome(&mut after);
        let (mut back, mut forward, mut doubted) = (0, 0, 0);
        for fails in 0.. {
            let mut devices = striped();
            let start =
                1 + devices.iter().filter_map(|device| device.journal().last()).map(|last| last.tick).max().unwrap();
            devices.iter_mut().for_each(|device| device.fail_from(Some(start + fails)));
            let failed = with(&mut devices, |members| {
                let made = change(members);
                if made.is_err() {
                    let labels: Vec<_> = members.iter().map(|member| &*member.label).collect();
                    let uncertain =
                        sets(&labels).into_iter().any(|found| matches!(found.set, Err(SetError::Member { .. })));
                    let certain = labels.iter().all(|label| label.is_certain());
                    assert!(uncertain || certain, "{name} {fails}: an uncertain label is believed");
                    doubted += u32::from(uncertain);
                }
                made.is_err()
            });
            devices.iter_mut().for_each(|device| device.fail_from(None));
            let unsettled = found(&mut devices).iter().any(|found| found.unsettled);
            // UUIDs of parts are random: what is compared is what a user sees.
            let seen = |sets: &[Set]| {
                sets.iter().map(|set| (set.name.clone(), set.generation, set.capacity)).collect::<Vec<_>>()
            };
            let decided = outcome(&mut devices);
            assert!([&old, &new].iter().any(|state| seen(state) == seen(&decided)), "{name} {fails}: {decided:?}");
            if unsettled && name != "create" && name != "delete" {
                let again = with(&mut devices, |members| rename(members, SET, "again"));
                assert_eq!(again, Err(SetError::Unsettled { name: decided[0].name.clone() }), "{name} {fails}");
            }
            let mut read_only = devices.clone();
            with(&mut devices, settle).unwrap();
            assert!(found(&mut devices).iter().all(|found| !found.unsettled), "{name} {fails}");
            assert_eq!(outcome(&mut devices), decided, "{name} {fails}: settled as it was decided");
            assert_eq!(outcome(&mut read_only), decided);
            *(if seen(&decided) == seen(&old) { &mut back } else { &mut forward }) += 1;
            if !failed {
                break;
            }
        }
        assert!(back > 3 && forward > 3 && doubted > 3, "{name}: {back} {forward} {doubted}");
    }
}

/// With a member missing nothing is decided; when it is back, it is.
#[test]
fn what_is_pending_waits_for_a_member_that_is_missing() {
    for fails in [6 * 2, 12 * 2 + 2] {
        let mut devices = striped();
        let start =
            1 + devices.iter().filter_map(|device| device.journal().last()).map(|last| last.tick).max().unwrap();
        // Passes of two writes and two flushes on each member: in the middle of the first, and of the second.
        devices.iter_mut().for_each(|device| device.fail_from(Some(start + fails / 2)));
        with(&mut devices, |members| rename(members, SET, "renamed")).unwrap_err();
        devices.iter_mut().for_each(|device| device.fail_from(None));
        devices.iter_mut().for_each(MemoryBlocks::begin_journal);
        let decided = outcome(&mut devices.clone());
        let expected = if fails < 24 { "set" } else { "renamed" };
        assert_eq!(decided[0].name, expected);
        for missing in 0..3 {
            let mut rest = devices.clone();
            rest.remove(missing);
            let settled = with(&mut rest, settle).unwrap();
            assert!(settled.iter().all(|found| matches!(found.set, Err(SetError::Incomplete { .. }))), "{settled:?}");
            // What opening did to bring an end up to date is no change of the set.
            let mut back = rest;
            back.insert(missing, devices[missing].clone());
            assert_eq!(outcome(&mut back), decided);
        }
    }
}

#[test]
fn labels_that_no_crash_can_leave_are_broken() {
    type Edit = fn(&mut Record);
    let edits: [(&str, u16, Edit); 8] = [
        ("its name, generation or durability", 1, |record| record.committed.as_mut().unwrap().name = "x".into()),
        ("its name, generation or durability", 2, |record| record.committed.as_mut().unwrap().generation = 2),
        ("its name, generation or durability", 1, |record| {
            record.committed.as_mut().unwrap().durability = Durability::Fua
        }),
        ("its capacity does not fit", 0, |record| record.committed.as_mut().unwrap().capacity = 2),
        ("its chunk or its members", 1, |record| {
            record.committed.as_mut().unwrap().stripe.as_mut().unwrap().chunk = 4096;
        }),
        ("its chunk or its members", 2, |record| {
            record.committed.as_mut().unwrap().stripe.as_mut().unwrap().members.swap(0, 1);
        }),
        ("something else is pending", 2, |record| record.pending = Some(Pending::Delete)),
        ("it is neither before nor behind", 2, |record| record.committed.as_mut().unwrap().generation = 5),
    ];
    for (says, index, edit) in edits {
        let mut devices = striped();
        with(&mut devices, |members| {
            let rewrite = |member: &mut Member<'_>, edit: &dyn Fn(&mut Record)| {
                let mut next = member.label.contents().clone();
                edit(&mut next.records[0]);
                let prepared = member.label.prepare(&*member.blocks, next).unwrap();
                member.label.write(member.blocks, prepared).unwrap();
            };
            // What is wrong with the third is found with the first.
            rewrite(&mut members[if says.starts_with("its capacity") { 2 } else { usize::from(index) }], &edit);
            if says.contains("pending") || says.starts_with("it is neither") {
                rewrite(&mut members[0], &|record| {
                    let mut next = record.committed.clone().unwrap();
                    next.generation += 1;
                    record.pending = Some(Pending::Next(next));
                });
            }
        });
        let broken = found(&mut devices)[0].set.clone().unwrap_err();
        assert!(matches!(&broken, SetError::Broken { index: at, .. } if *at == index), "{broken}");
        assert!(broken.to_string().contains(says), "{broken}, and not {says}");
        let refused = with(&mut devices, |members| {
            assert!(settle(members).unwrap()[0].set.is_err());
            delete(members, SET)
        });
        assert!(matches!(refused, Err(SetError::Broken { .. })));
    }
}

#[test]
fn a_part_whose_set_is_lost_can_be_forgotten() {
    let mut devices = striped();
    with(&mut devices[..1], |members| {
        let Member { label, blocks } = &mut members[0];
        label.forget_part(&mut **blocks, SET).unwrap();
        assert_eq!(label.free_blocks(), 64);
        let none = LabelError::NoSegment { name: SET.to_string() };
        assert_eq!(label.forget_part(&mut **blocks, SET), Err(none));
    });
    let set = found(&mut devices)[0].set.clone();
    let wrong = "it has no part of the set";
    assert_eq!(set, Err(SetError::Broken { name: "set".into(), index: 0, wrong }));
}

#[test]
fn chunks_are_dealt_in_turn() {
    for members in 2..6_usize {
        for chunks in 0..20_u64 {
            let dealt = |index: u64| (0..chunks).filter(|chunk| chunk % members as u64 == index).count() as u64;
            for index in 0..members as u16 {
                assert_eq!(change::chunks_of(chunks, index, members), dealt(index.into()));
            }
        }
    }
}

#[test]
fn what_a_set_gets_reads_as_zeroes() {
    let mut devices = three(64);
    devices.iter_mut().for_each(|device| device.write(256, &vec![9; 64 * 4096]).unwrap());
    with(&mut devices, |members| create(members, &new(7))).unwrap();
    with(&mut devices, |members| resize(members, SET, 20 * CHUNK)).unwrap();
    let parts = whole(&mut devices).parts;
    for (device, part) in devices.iter_mut().zip(parts) {
        for extent in part.extents {
            let mut read = vec![1; extent.blocks() as usize * 4096];
            device.read(extent.slba(), &mut read).unwrap();
            assert!(read.iter().all(|byte| *byte == 0));
        }
    }
}
