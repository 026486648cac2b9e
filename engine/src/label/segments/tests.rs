use super::*;
use crate::blocks::memory::MemoryBlocks;
use crate::label::{Identity, Malformed, Mode, NameError, NewLabel, create};

const BLOCK: u64 = 4096;

/// 16 MiB in blocks of 4,096 bytes, extents at multiples of 64 KiB.
fn labelled() -> (MemoryBlocks, Label) {
    let mut device = MemoryBlocks::new(4096, 4096);
    let label = create(&mut device, &NewLabel { alignment: 64 << 10, ..NewLabel::default() }).unwrap();
    (device, label)
}

fn new(name: &str, capacity: u64) -> NewSegment {
    NewSegment { name: name.to_owned(), capacity, ..NewSegment::default() }
}

fn reopened(device: &mut MemoryBlocks) -> Label {
    Label::open(device, &Identity::default(), Mode::ReadOnly).unwrap()
}

#[test]
fn a_life_of_a_segment() {
    let (mut device, mut label) = labelled();
    let uuid = Uuid::from_u128(9);
    let wanted = NewSegment { uuid, durability: Durability::Fua, ..new("kv", 5 * BLOCK) };
    label.create_segment(&mut device, &wanted).unwrap();
    let free = label.free_blocks();
    let made = reopened(&mut device).segment("kv").unwrap().clone();
    assert_eq!((made.uuid, made.generation, made.capacity, made.durability), (uuid, 1, 5, Durability::Fua));
    assert_eq!(made.extents, [BlockExtent::new(512, 16).unwrap()], "behind the scratch extent, a whole unit");

    label.resize_segment(&mut device, "kv", 17 * BLOCK).unwrap();
    label.rename_segment(&mut device, "kv", "cache").unwrap();
    label.rename_segment(&mut device, "cache", "cache").unwrap();
    label.set_durability(&mut device, "cache", Durability::Flush).unwrap();
    let now = reopened(&mut device);
    let segment = now.segment("cache").unwrap();
    assert_eq!((segment.uuid, segment.generation, segment.capacity), (uuid, 5, 17));
    assert_eq!(segment.durability, Durability::Flush);
    assert_eq!((segment.extents.len(), now.segments().count(), now.sequence()), (1, 1, 6));
    assert_eq!(label.free_blocks(), free - 16);

    label.delete_segment(&mut device, "cache").unwrap();
    assert_eq!((reopened(&mut device).segments().count(), label.free_blocks()), (0, free + 16));
}

#[test]
fn two_segments_have_two_random_uuids() {
    let (mut device, mut label) = labelled();
    label.create_segment(&mut device, &new("a", BLOCK)).unwrap();
    label.create_segment(&mut device, &new("b", BLOCK)).unwrap();
    let uuids: Vec<_> = label.segments().map(|segment| segment.uuid).collect();
    assert!(uuids[0] != uuids[1] && !uuids[0].is_nil());
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_written() {
    let (mut device, mut label) = labelled();
    label.create_segment(&mut device, &new("a", BLOCK)).unwrap();
    label.create_segment(&mut device, &new("b", BLOCK)).unwrap();
    device.begin_journal();
    let sequence = label.sequence();
    let device = &mut device;
    for capacity in [0, 1, BLOCK - 1, BLOCK + 512, u64::MAX] {
        let wrong = LabelError::Argument {
            argument: "capacity",
            value: capacity,
            must: "a multiple of the block of 4096 bytes, and not 0".to_owned(),
        };
        assert_eq!(label.create_segment(device, &new("c", capacity)), Err(wrong.clone()));
        assert_eq!(label.resize_segment(device, "a", capacity), Err(wrong));
    }
    let taken = |name: &str| Err(LabelError::NameTaken { name: name.to_owned() });
    assert_eq!(label.create_segment(device, &new("a", BLOCK)), taken("a"));
    assert_eq!(label.rename_segment(device, "a", "b"), taken("b"));
    let uuid = label.segment("a").unwrap().uuid;
    let twice = Malformed::Twice { what: "segment UUID", value: uuid.to_string() };
    let same = NewSegment { uuid, ..new("c", BLOCK) };
    assert_eq!(label.create_segment(device, &same), Err(LabelError::Refused(twice)));
    let wrong = NameError::Character { name: "a/b".to_owned() };
    assert_eq!(label.create_segment(device, &new("a/b", BLOCK)), Err(LabelError::Name(wrong.clone())));
    assert_eq!(label.rename_segment(device, "a", "a/b"), Err(LabelError::Name(wrong)));
    let none = Err(LabelError::NoSegment { name: "none".to_owned() });
    assert_eq!(label.resize_segment(device, "none", BLOCK), none);
    assert_eq!(label.rename_segment(device, "none", "c"), none);
    assert_eq!(label.delete_segment(device, "none"), none);
    let most = u64::MAX / BLOCK * BLOCK;
    assert!(matches!(label.create_segment(device, &new("c", most)), Err(LabelError::NoSpace { .. })));
    assert!(matches!(label.resize_segment(device, "a", most), Err(LabelError::NoSpace { .. })));
    let mut other = MemoryBlocks::new(4095, 4096);
    let not_it = LabelError::OtherDevice { label: 4096, device: 4095 };
    assert_eq!(label.delete_segment(&mut other, "a"), Err(not_it));
    assert_eq!((device.journal().len(), label.sequence()), (0, sequence));
}

/// Of the last unit of a segment only a part is shown; what is behind may be what it held before it shrank.
#[test]
fn what_grows_back_reads_as_zeroes() {
    let (mut device, mut label) = labelled();
    label.create_segment(&mut device, &new("a", 16 * BLOCK)).unwrap();
    let at = label.segment("a").unwrap().extents[0].slba();
    device.write(at, &vec![7; 16 * BLOCK as usize]).unwrap();
    label.resize_segment(&mut device, "a", 3 * BLOCK).unwrap();
    assert_eq!(label.segment("a").unwrap().extents[0].blocks(), 16);
    label.resize_segment(&mut device, "a", 5 * BLOCK).unwrap();
    let mut read = vec![1; 5 * BLOCK as usize];
    device.read(at, &mut read).unwrap();
    assert_eq!(read, [vec![7; 3 * BLOCK as usize], vec![0; 2 * BLOCK as usize]].concat());
}

#[test]
fn as_many_segments_as_there_can_be() {
    let mut device = MemoryBlocks::new((2 << 20) / 512 + 3000, 512);
    let options = NewLabel { alignment: 512, scratch: 0, ..NewLabel::default() };
    let mut label = create(&mut device, &options).unwrap();
    let mut next = label.contents().clone();
    for at in 0..1023_u64 {
        next.records.push(Record::committed(SegmentEntry {
            name: at.to_string(),
            uuid: Uuid::from_u128(u128::from(at) + 1),
            generation: u64::MAX,
            durability: Durability::None,
            capacity: 1,
            extents: vec![BlockExtent::new(2048 + at, 1).unwrap()],
            stripe: None,
        }));
    }
    let prepared = label.prepare(&device, next).unwrap();
    label.write(&mut device, prepared).unwrap();
    label.create_segment(&mut device, &new("the last", 512)).unwrap();
    let full = label.create_segment(&mut device, &new("one more", 512)).unwrap_err();
    assert_eq!(full.to_string(), "segments is 1025: it must be at most 1024");
    let label = &mut Label::open(&mut device, &Identity::default(), Mode::ReadWrite).unwrap();
    assert_eq!(label.segments().count(), 1024);
    let exhausted = Err(LabelError::Exhausted { what: "the segment's generation" });
    assert_eq!(label.rename_segment(&mut device, "7", "seven"), exhausted);
    assert_eq!(label.resize_segment(&mut device, "7", 1024), exhausted);
    label.delete_segment(&mut device, "7").unwrap();
    label.create_segment(&mut device, &new("one more", 512)).unwrap();
}

#[test]
fn a_label_that_was_changed_as_often_as_can_be() {
    let (mut device, mut label) = labelled();
    let mut next = label.contents().clone();
    for (sequence, fine) in [(u64::MAX - 2, true), (u64::MAX - 1, true), (u64::MAX, false)] {
        next.sequence = sequence;
        label = Label::written(next.clone(), crate::label::slots::Ranks::free());
        let made = label.create_segment(&mut device, &new(&sequence.to_string(), BLOCK));
        assert_eq!(made.is_ok(), fine, "{made:?}");
    }
    assert_eq!(reopened(&mut device).sequence(), u64::MAX);
}
