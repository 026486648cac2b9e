use super::*;
use crate::blocks::memory::{Change, MemoryBlocks, Torn};
use crate::label::place::SLOT_BYTES;
use crate::label::{Malformed, Mode, NewSegment};

const BLOCKS: u64 = 8 << 20 >> 9;
const ID: Identity = Identity { nguid: [5; 16], eui64: [0; 8], uuid: Uuid::nil(), ms: 0, pit: 0 };
const RESIZED: Repair = Repair { resized: true };

fn options() -> NewLabel {
    NewLabel { identity: ID, ..NewLabel::default() }
}

/// A device with segments "a" of 1 MiB at 2 MiB, behind the scratch extent, and "b" of `b` MiB behind it.
fn labelled(b: u64) -> MemoryBlocks {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    let mut label = create(&mut device, &options()).unwrap();
    for (name, capacity) in [("a", 1 << 20), ("b", b << 20)] {
        let new = NewSegment { name: name.to_owned(), capacity, ..NewSegment::default() };
        label.create_segment(&mut device, &new).unwrap();
    }
    device.begin_journal();
    device
}

/// The names, or the error.
fn names(device: &mut MemoryBlocks) -> Result<String, LabelError> {
    let label = Label::open(device, &ID, Mode::ReadOnly)?;
    Ok(label.segments().map(|segment| segment.name.as_str()).collect())
}

/// What is left by a cut at each byte of a write, at some blocks of what is cleared, with all and nothing of the cache.
fn each_cut(device: &MemoryBlocks, mut check: impl FnMut(MemoryBlocks, &str)) {
    for (number, command) in device.journal().iter().enumerate() {
        for kept in [false, true] {
            let cut = |bytes| device.cut(command.tick, &Torn::Bytes(bytes), &|_| kept);
            let when = |bytes| format!("command {number}, {bytes} bytes, cache kept: {kept}");
            match &command.change {
                // Nothing waits in the cache when a label is written: once is enough.
                Change::Write { .. } if kept => {}
                Change::Write { slba, data } => {
                    let mut left = cut(0);
                    for (bytes, value) in (0..).zip(data) {
                        check(left.clone(), &when(bytes));
                        left.poke(slba * 512 + bytes, *value);
                    }
                    check(left, &when(data.len() as u64));
                }
                Change::Zero { blocks, .. } => {
                    [0, 512, (blocks - 1) * 512].into_iter().for_each(|bytes| check(cut(bytes), &when(bytes)));
                }
                Change::Flush => check(cut(0), &when(0)),
            }
        }
    }
}

#[test]
fn a_label_is_what_was_asked_for() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    let owner = Owner { node: Uuid::from_u128(3), name: "three".to_owned(), epoch: 4 };
    let new = NewLabel {
        device: Uuid::from_u128(2),
        owner: owner.clone(),
        alignment: 64 << 10,
        scratch: 512,
        may_be_overwritten: true,
        ..options()
    };
    create(&mut device, &new).unwrap();
    let label = Label::open(&mut device, &ID, Mode::ReadWrite).unwrap();
    assert_eq!((label.device(), label.owner(), label.alignment()), (Uuid::from_u128(2), &owner, 128));
    assert_eq!((label.scratch(), label.may_be_overwritten()), (BlockExtent::new(2048, 128), true));
    assert_eq!((label.blocks(), label.block_size(), label.identity(), label.sequence()), (BLOCKS, 512, &ID, 1));
    let random = create(&mut MemoryBlocks::new(BLOCKS, 512), &options()).unwrap();
    assert_ne!(random.device(), create(&mut MemoryBlocks::new(BLOCKS, 512), &options()).unwrap().device());
}

#[test]
fn nonsense_is_refused_and_nothing_is_written() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    let data = 6 << 20;
    for (alignment, scratch, argument) in [
        (0, 512, "alignment"),
        (511, 512, "alignment"),
        (513, 512, "alignment"),
        (data + 512, 512, "alignment"),
        (u64::MAX, 512, "alignment"),
        (512, 511, "scratch"),
        (512, data + 512, "scratch"),
    ] {
        let refused = create(&mut device, &NewLabel { alignment, scratch, ..options() }).unwrap_err();
        assert!(matches!(refused, LabelError::Argument { argument: named, .. } if named == argument), "{refused}");
    }
    let too_much = create(&mut device, &NewLabel { alignment: 4 << 20, scratch: data, ..options() });
    assert!(matches!(too_much, Err(LabelError::NoSpace { .. })));
    let owner = Owner { name: "x".repeat(64), ..Owner::default() };
    assert!(matches!(create(&mut device, &NewLabel { owner, ..options() }), Err(LabelError::Name(_))));
    let identity = Identity { pit: 4, ..ID };
    assert!(matches!(create(&mut device, &NewLabel { identity, ..options() }), Err(LabelError::Refused(_))));
    assert_eq!(device.journal().len(), 0);
    create(&mut device, &NewLabel { alignment: data, scratch: data, ..options() }).unwrap_err();
    create(&mut device, &NewLabel { alignment: 1 << 20, scratch: data, ..options() }).unwrap();
}

#[test]
fn what_was_at_the_ends_is_gone_and_data_is_not() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    for mib in [0, 1, 6, 7] {
        device.write(mib << 11, &[9; 1 << 20]).unwrap();
    }
    create(&mut device, &options()).unwrap();
    let mut end = vec![0; 1 << 20];
    for slba in [0, BLOCKS - 2048] {
        device.read(slba, &mut end).unwrap();
        assert!(end[512..].iter().all(|byte| *byte == 0));
    }
    device.read(2048, &mut end).unwrap();
    assert_eq!(end, [9; 1 << 20]);
}

#[test]
fn a_label_is_replaced_only_when_that_is_asked_for() {
    let mut device = labelled(1);
    for broken in [None, Some(8), Some(40)] {
        // Whole, of a version that cannot be, damaged.
        if let Some(byte) = broken {
            [0, 512 << 10, 7 << 20, 15 << 19].iter().for_each(|slot| device.poke(slot + byte, 0x77));
            device.begin_journal();
        }
        assert!(matches!(create(&mut device, &options()), Err(LabelError::Exists(_))));
        assert_eq!(device.journal().len(), 0);
        let mut replaced = device.clone();
        create(&mut replaced, &NewLabel { replace: true, ..options() }).unwrap();
        assert_eq!(names(&mut replaced), Ok(String::new()));
    }
}

#[test]
fn power_goes_while_a_label_is_made() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    device.write(0, &[9; 1024]).unwrap();
    device.begin_journal();
    create(&mut device, &options()).unwrap();
    let (mut none, mut made) = (0, 0);
    each_cut(&device, |mut left, when| match names(&mut left) {
        Ok(names) if names.is_empty() => {
            made += 1;
            Label::open(&mut left, &ID, Mode::ReadWrite).unwrap();
        }
        Err(LabelError::Blank | LabelError::Foreign(_) | LabelError::Damaged(_)) => {
            none += 1;
            create(&mut left, &NewLabel { replace: true, ..options() }).unwrap();
            assert_eq!(names(&mut left), Ok(String::new()), "{when}");
        }
        other => panic!("{when}: {other:?}"),
    });
    assert!(none > 100 && made > 100, "{none} {made}");
}

#[test]
fn power_goes_while_a_label_is_replaced_or_erased() {
    for replace in [true, false] {
        let mut device = labelled(1);
        if replace {
            create(&mut device, &NewLabel { replace, ..options() }).unwrap();
        } else {
            erase(&mut device).unwrap();
            assert_eq!(names(&mut device), Err(LabelError::Blank));
        }
        let (mut old, mut none) = (0, 0);
        each_cut(&device, |mut left, when| match names(&mut left) {
            Ok(names) if names == "ab" => old += 1,
            Ok(names) => assert!(replace && names.is_empty(), "{when}: an older state comes back: {names}"),
            Err(LabelError::Blank | LabelError::Foreign(_) | LabelError::Damaged(_)) => none += 1,
            Err(other) => panic!("{when}: {other}"),
        });
        assert!(old > 100 && none > 100, "{old} {none}");
    }
}

/// The back has the newest state, the front an older one: that must not be what is left last.
#[test]
fn power_goes_while_a_label_is_erased_whose_front_is_behind() {
    let mut device = without_newest_at_front(0);
    assert_eq!(names(&mut device).unwrap(), "ab");
    erase(&mut device).unwrap();
    each_cut(&device, |mut left, when| match names(&mut left) {
        Ok(names) => assert_eq!(names, "ab", "{when}: an older state comes back"),
        Err(LabelError::Blank | LabelError::Foreign(_) | LabelError::Damaged(_)) => {}
        Err(other) => panic!("{when}: {other}"),
    });
}

/// Until nothing is left of a slot it is known for one, so that erasing can be done again.
#[test]
fn a_slot_is_erased_from_behind() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    let mut label = create(&mut device, &NewLabel { alignment: 512, ..options() }).unwrap();
    // Enough for more than a block of a slot, each time that it is written.
    for number in 0..8 {
        let name = format!("{number}{}", "x".repeat(40));
        label.create_segment(&mut device, &NewSegment { name, capacity: 512, ..NewSegment::default() }).unwrap();
    }
    let geometry = Geometry::new(BLOCKS, 9).unwrap();
    let halves = |device: &mut MemoryBlocks| {
        SlotPlace::ALL.map(|place| {
            let mut bytes = vec![0; 2 * 512];
            device.read(geometry.slot(place).slba(), &mut bytes).unwrap();
            [&bytes[..512], &bytes[512..]].map(|block| *block != [0; 512])
        })
    };
    assert_eq!(halves(&mut device), [[true, true]; 4]);
    device.begin_journal();
    erase(&mut device).unwrap();
    let mut seen = [false; 2];
    each_cut(&device, |mut left, when| {
        for (place, [first, second]) in SlotPlace::ALL.into_iter().zip(halves(&mut left)) {
            assert!(first || !second, "{when}: what is behind the first block of {place} is left alone");
            seen[usize::from(second)] = true;
        }
    });
    assert_eq!(seen, [true; 2]);
}

#[test]
fn erasing_leaves_what_is_no_label() {
    let mut device = MemoryBlocks::new(BLOCKS, 512);
    assert_eq!(erase(&mut device), Err(LabelError::Blank));
    device.write(0, &[9; 512]).unwrap();
    assert!(matches!(erase(&mut device), Err(LabelError::Foreign(_))));
    let mut device = labelled(1);
    device.write(0, &[9; 512]).unwrap();
    erase(&mut device).unwrap();
    let mut block = [0; 512];
    device.read(0, &mut block).unwrap();
    assert_eq!(block, [9; 512]);
    assert!(matches!(names(&mut device), Err(LabelError::Foreign(_))));
}

#[test]
fn another_namespace_is_noticed() {
    let mut device = labelled(1);
    let with = |identity: Identity, device: &mut MemoryBlocks| {
        device.begin_journal();
        let read = Label::open(device, &identity, Mode::ReadOnly).unwrap_err();
        assert_eq!(Label::open(device, &identity, Mode::ReadWrite).unwrap_err(), read);
        assert_eq!(repair(device, &identity, RESIZED).unwrap_err(), read);
        assert_eq!(device.journal().len(), 0);
        read
    };
    let other = Identity { nguid: [6; 16], ..ID };
    let replaced = LabelError::Replaced { label: Box::new(ID), device: Box::new(other) };
    assert_eq!(with(other, &mut device), replaced);
    for identity in [Identity { ms: 8, ..ID }, Identity { pit: 1, ..ID }] {
        let (label, now) = (Box::new(ID), Box::new(identity));
        let reformatted = LabelError::Reformatted { label_block_size: 512, block_size: 512, label, device: now };
        assert_eq!(with(identity, &mut device), reformatted);
    }
    // The same bytes in blocks of another size.
    let mut reformatted = MemoryBlocks::new(BLOCKS / 8, 4096);
    let mut bytes = vec![0; 8 << 20];
    device.read(0, &mut bytes).unwrap();
    reformatted.write(0, &bytes).unwrap();
    let error = with(ID, &mut reformatted);
    assert!(matches!(error, LabelError::Reformatted { label_block_size: 512, block_size: 4096, .. }), "{error}");
    assert_eq!(Label::read(&mut reformatted).unwrap().segments().count(), 2, "it can be shown");
}

fn resized_to(blocks: u64, b: u64) -> MemoryBlocks {
    let mut device = labelled(b);
    device.resize(blocks);
    let resized = Err(LabelError::Resized { label: BLOCKS, device: blocks });
    assert_eq!(names(&mut device), resized);
    assert_eq!(repair(&mut device, &ID, Repair::default()).map(drop), resized.map(drop));
    assert_eq!(device.journal().len(), 0);
    device
}

#[test]
fn a_namespace_that_was_resized_is_taken_as_it_is() {
    for blocks in [BLOCKS + 1, BLOCKS + 100, BLOCKS + 2048, BLOCKS + 5000, BLOCKS - 1, BLOCKS - 2048, BLOCKS - 3 * 2048]
    {
        let mut device = resized_to(blocks, 1);
        if blocks < BLOCKS - 3 * 2048 {
            let refused = repair(&mut device, &ID, RESIZED).unwrap_err();
            assert!(matches!(refused, LabelError::Refused(Malformed::Outside { .. })), "{refused}");
            assert_eq!(device.journal().len(), 0);
            continue;
        }
        assert_eq!(repair(&mut device, &ID, RESIZED).unwrap(), SlotPlace::ALL);
        let label = Label::open(&mut device, &ID, Mode::ReadWrite).unwrap();
        assert_eq!((label.blocks(), label.segments().count()), (blocks, 2));
        let old_back = BLOCKS - 2048..BLOCKS.min(blocks - 2048);
        for block in old_back {
            let mut bytes = [1; 512];
            device.read(block, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 512], "the old back is no label any more");
        }
        if ![BLOCKS + 1, BLOCKS + 5000, BLOCKS - 2048].contains(&blocks) {
            continue;
        }
        each_cut(&device, |mut left, when| match names(&mut left) {
            Ok(names) => assert_eq!(names, "ab", "{when}"),
            Err(LabelError::Resized { .. }) => {
                repair(&mut left, &ID, RESIZED).unwrap();
                assert_eq!(names(&mut left).unwrap(), "ab", "{when}");
            }
            Err(other) => panic!("{when}: {other}"),
        });
    }
}

/// The front has lost its newest slot; the old back has it, in the middle of what is larger now: in its first slot, and in
/// its second.
#[test]
fn the_old_back_has_its_say_when_the_namespace_was_enlarged() {
    // Where it is partly, and where it is not at all in the way of the new one.
    for (names_then, more) in ["ab", "abc"].into_iter().flat_map(|names| [1, 1500, 5000].map(|more| (names, more))) {
        let mut device = without_newest_at_front(names_then.len() as u32 - 2);
        device.resize(BLOCKS + more);
        repair(&mut device, &ID, RESIZED).unwrap();
        assert_eq!(names(&mut device).unwrap(), names_then);
        each_cut(&device, |mut left, when| {
            let _ = repair(&mut left, &ID, RESIZED);
            assert_eq!(names(&mut left).unwrap(), names_then, "{when}, {more} blocks more");
        });
    }
}

/// As [`labelled`] with 1 MiB and so many segments more, less the slot at the front that has the last of them.
fn without_newest_at_front(more: u32) -> MemoryBlocks {
    let mut device = labelled(1);
    for name in ["c", "d"].into_iter().take(more as usize) {
        let mut label = Label::open(&mut device, &ID, Mode::ReadWrite).unwrap();
        label.create_segment(&mut device, &NewSegment { name: name.to_owned(), ..new_of(1 << 20) }).unwrap();
    }
    let findings = inspect(&mut device).unwrap().0;
    let sequence = |finding: &Finding| match finding {
        Finding::Valid { sequence, .. } => *sequence,
        other => panic!("{other:?}"),
    };
    let newest = if sequence(&findings[0]) > sequence(&findings[1]) { 0 } else { SLOT_BYTES as u64 };
    let crc = newest + 40;
    device.poke(crc, device_byte(&mut device.clone(), crc) ^ 1);
    device.begin_journal();
    device
}

fn new_of(capacity: u64) -> NewSegment {
    NewSegment { capacity, ..NewSegment::default() }
}

fn device_byte(device: &mut MemoryBlocks, at: u64) -> u8 {
    let mut block = [0; 512];
    device.read(at / 512, &mut block).unwrap();
    block[(at % 512) as usize]
}

#[test]
fn an_erased_label_does_not_come_back_with_the_old_size() {
    let mut device = resized_to(BLOCKS + 5000, 1);
    erase(&mut device).unwrap();
    device.resize(BLOCKS);
    assert_eq!(names(&mut device), Err(LabelError::Blank));
}

#[test]
fn repair_mends_every_bad_slot_from_the_one_that_counts() {
    for bad in 0..16_u32 {
        let mut device = labelled(1);
        let places: Vec<_> = SlotPlace::ALL.into_iter().filter(|place| bad >> place.index() & 1 == 1).collect();
        for place in &places {
            device.poke(Geometry::new(BLOCKS, 9).unwrap().slot(*place).slba() * 512 + 600, 0x99);
        }
        device.begin_journal();
        let before = names(&mut device);
        let mended = repair(&mut device, &ID, Repair::default());
        if bad == 15 {
            assert!(matches!(mended, Err(LabelError::Damaged(_))) && matches!(before, Err(LabelError::Damaged(_))));
            continue;
        }
        let mended = mended.unwrap();
        assert!(places.iter().all(|place| mended.contains(place)), "{mended:?} of {places:?}");
        assert_eq!(bad == 0, mended.is_empty());
        assert_eq!(names(&mut device), before, "the same state");
        assert!(inspect(&mut device).unwrap().0.iter().all(|finding| matches!(finding, Finding::Valid { .. })));
        if [0b0001, 0b1010, 0b1110].contains(&bad) {
            each_cut(&device, |mut left, when| assert_eq!(names(&mut left), before, "{when}"));
        }
        device.begin_journal();
        assert_eq!(repair(&mut device, &ID, Repair::default()), Ok(Vec::new()), "there is nothing left to mend");
    }
}
