use super::*;
use proptest::prelude::*;

fn uuid(value: u128) -> Uuid {
    Uuid::from_u128(value)
}

fn entry(name: &str, id: u128, extents: &[(u64, u64)]) -> SegmentEntry {
    let extents: Vec<_> = extents.iter().map(|(slba, blocks)| BlockExtent::new(*slba, *blocks).unwrap()).collect();
    SegmentEntry {
        name: name.to_owned(),
        uuid: uuid(id),
        generation: 1,
        durability: Durability::Fua,
        capacity: extents.iter().map(|extent| extent.blocks()).sum(),
        extents,
        stripe: None,
    }
}

fn part(name: &str, id: u128, extents: &[(u64, u64)]) -> SegmentEntry {
    let stripe = Stripe { set: uuid(id << 64), index: 1, chunk: 4096, members: vec![uuid(11), uuid(10)] };
    SegmentEntry { stripe: Some(stripe), ..entry(name, id, extents) }
}

/// A namespace of 16 MiB in blocks of 4,096 bytes: its data is 256 to 3,840.
fn empty() -> Contents {
    Contents {
        sequence: 0x0102,
        device: uuid(10),
        namespace: Identity { nguid: [0xA1; 16], eui64: [0xA2; 8], uuid: uuid(12), ms: 8, pit: 1 },
        geometry: Geometry::new(4096, 12).unwrap(),
        owner: Owner { node: uuid(13), name: "node".to_owned(), epoch: 0x0304 },
        may_be_overwritten: true,
        alignment: 256,
        scratch: BlockExtent::new(256, 1),
        records: Vec::new(),
    }
}

/// One of each kind of record.
fn full() -> Contents {
    let grown = SegmentEntry { generation: 2, ..part("grows", 3, &[(520, 5), (600, 4)]) };
    Contents {
        records: vec![
            Record::committed(entry("plain", 1, &[(257, 1), (300, 10)])),
            Record { committed: None, pending: Some(Pending::Next(part("comes", 2, &[(400, 4)]))) },
            Record { committed: Some(part("grows", 3, &[(520, 5)])), pending: Some(Pending::Next(grown)) },
            Record { committed: Some(part("goes", 4, &[(700, 1)])), pending: Some(Pending::Delete) },
        ],
        ..empty()
    }
}

/// Bytes with a CRC that fits.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc(&bytes);
    bytes[CRC].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn malformed(contents: &Contents) -> String {
    match decode(&encode(contents).unwrap()) {
        Err(Undecodable::Malformed(malformed)) => malformed.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_written_is_read() {
    for contents in [empty(), full()] {
        let bytes = encode(&contents).unwrap();
        assert_eq!(stated_length(&bytes), Some(Ok(bytes.len())));
        assert_eq!(decode(&bytes), Ok(contents));
    }
}

/// Every field where the document has it.
#[test]
fn the_bytes_are_those_of_the_document() {
    let bytes = encode(&full()).unwrap();
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let uuid_at = |at: usize| Uuid::from_slice(&bytes[at..at + 16]).unwrap();
    assert_eq!(&bytes[..8], b"TENTPEG\0");
    assert_eq!((u32_at(8), u32_at(12) as usize), (1, bytes.len()));
    assert_eq!(bytes.len(), 512 + 6 * 192 + 7 * 16 + 4 * 2 * 16);
    assert_eq!((u64_at(16), u64_at(24), u64_at(32)), (0, 0, 0x0102));
    let without = [&bytes[..40], &[0; 4], &bytes[44..]].concat();
    assert_eq!(u32_at(40), ::crc32c::crc32c(&without));
    assert_eq!(
        (u32_at(44), uuid_at(48), &bytes[64..80], &bytes[80..88]),
        (1, uuid(10), &[0xA1; 16][..], &[0xA2; 8][..])
    );
    assert_eq!((uuid_at(88), u64_at(104), bytes[112], bytes[113], u16_at(114)), (uuid(12), 4096, 12, 1, 8));
    assert_eq!((u32_at(116), u32_at(120), u32_at(124)), (6, 7, 8));
    assert_eq!((uuid_at(128), u64_at(144), u64_at(152), u64_at(160), u64_at(168)), (uuid(13), 0x0304, 256, 1, 256));
    assert_eq!((bytes[176], &bytes[177..182]), (4, &b"node\0"[..]));
    assert!(bytes[182..512].iter().all(|byte| *byte == 0));
    // The pending part of "grows", the fourth entry.
    let at = 512 + 3 * 192;
    assert_eq!((uuid_at(at), uuid_at(at + 16), u64_at(at + 32)), (uuid(3), uuid(3 << 64), 2));
    assert_eq!((u64_at(at + 40), u64_at(at + 48), u32_at(at + 56)), (9, 4096, 2));
    assert_eq!((u16_at(at + 60), u16_at(at + 62)), (1, 2));
    assert_eq!((bytes[at + 64], bytes[at + 65], bytes[at + 66], &bytes[at + 67..at + 72]), (1, 1, 5, &[0; 5][..]));
    assert_eq!(&bytes[at + 72..at + 78], b"grows\0");
    assert_eq!(bytes[512 + 5 * 192 + 64], 2, "the deletion");
    let extents = 512 + 6 * 192;
    assert_eq!((u64_at(extents), u64_at(extents + 8), u64_at(extents + 16), u64_at(extents + 24)), (257, 1, 300, 10));
    let members = extents + 7 * 16;
    assert_eq!((uuid_at(members), uuid_at(members + 16)), (uuid(11), uuid(10)));
}

/// As a CRC-32C is known: "123456789" has E3069283h.
#[test]
fn the_checksum_is_crc_32c() {
    assert_eq!(::crc32c::crc32c(b"123456789"), 0xE306_9283);
}

#[test]
fn a_newer_label_is_told_from_a_torn_one() {
    let bytes = encode(&full()).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        bytes
    };
    assert_eq!(decode(&sealed(with(8, 2))), Err(Undecodable::Newer { version: 2, flags: 0 }));
    assert_eq!(decode(&sealed(with(23, 0x80))), Err(Undecodable::Newer { version: 1, flags: 1 << 63 }));
    assert!(matches!(decode(&with(8, 2)), Err(Undecodable::Malformed(Malformed::Crc { .. }))));
    assert!(matches!(
        decode(&sealed(with(8, 0))),
        Err(Undecodable::Malformed(Malformed::Field { field: "version", .. }))
    ));
    // What a newer label has behind its first 44 bytes is not looked at.
    let mut newer = with(8, 9);
    newer[44..].fill(0xFF);
    assert_eq!(decode(&sealed(newer)), Err(Undecodable::Newer { version: 9, flags: 0 }));
}

#[test]
fn compatible_flags_may_bring_bytes_behind_the_tables() {
    let mut bytes = encode(&full()).unwrap();
    bytes.extend([7; 32]);
    assert!(matches!(decode(&sealed(bytes.clone())), Err(Undecodable::Malformed(Malformed::Length { .. }))));
    bytes[24] = 1;
    assert_eq!(decode(&sealed(bytes)), Ok(full()));
}

#[test]
fn every_bit_counts() {
    let bytes = encode(&full()).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(decode(&flipped), Err(Undecodable::Malformed(Malformed::Crc { .. }))), "bit {bit}");
    }
}

#[test]
fn a_length_that_cannot_be_is_refused_before_it_is_used() {
    let mut bytes = encode(&empty()).unwrap();
    for (length, fine) in [
        (0, false),
        (511, false),
        (512, true),
        (SLOT_BYTES as u32, true),
        (SLOT_BYTES as u32 + 1, false),
        (u32::MAX, false),
    ] {
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        assert_eq!(stated_length(&bytes).unwrap().is_ok(), fine, "{length}");
    }
    assert_eq!(stated_length(&bytes[..511]), None);
    bytes[7] = 1;
    assert_eq!(stated_length(&bytes), None, "another magic");
    for count in [116, 120, 124] {
        let mut bytes = encode(&full()).unwrap();
        bytes[count..count + 4].fill(0xFF);
        assert!(matches!(decode(&sealed(bytes.clone())), Err(Undecodable::Malformed(Malformed::Length { .. }))));
        bytes[24] = 1;
        assert!(matches!(decode(&sealed(bytes)), Err(Undecodable::Malformed(Malformed::Length { .. }))));
    }
}

/// Bytes of a whole label, changed so that its CRC fits and it cannot be.
#[test]
fn no_field_is_believed() {
    let good = encode(&full()).unwrap();
    let (plain, comes, grows, goes) = (512, 512 + 192, 512 + 2 * 192, 512 + 5 * 192);
    let extents = 512 + 6 * 192;
    for (at, bytes, says) in [
        (32, &[0, 0][..], "sequence is 0"),
        (44, &[2], "flags is 2"),
        (48, &[0; 16], "device UUID"),
        (104, &[0, 2], "NSZE is 512"),
        (112, &[8], "NSZE"),
        (112, &[17], "NSZE"),
        (113, &[4], "PIT is 4"),
        (152, &[0, 0], "outside the data area"),
        (160, &[0], "blocks of an extent is 0"),
        (160, &[2], "overlap"),
        (168, &[0, 0], "alignment is 0"),
        (168, &[1, 14], "alignment is 3585"),
        (176, &[64], "length of a name is 64"),
        (176, &[3], "bytes behind a name"),
        (177, b"/", "must not be"),
        (177, &[0xFF], "not UTF-8"),
        (240, &[1], "reserved bytes of the header"),
        (plain, &[0; 16], "segment UUID"),
        (plain + 16, &[1], "members of a set"),
        (plain + 32, &[0], "generation is 0"),
        (plain + 40, &[0], "capacity of 0"),
        (plain + 40, &[12], "capacity of 12 blocks and extents of 11"),
        (plain + 48, &[1], "members of a set"),
        (plain + 56, &[0], "extents"),
        (plain + 56, &[0xFF; 4], "as many as are left"),
        (plain + 60, &[1], "members of a set"),
        (plain + 62, &[0xFF, 0xFF], "as many as are left"),
        (plain + 64, &[3], "state of an entry is 3"),
        (plain + 64, &[1], "only a part of a striped set"),
        (plain + 64, &[2], "beside what it deletes"),
        (plain + 65, &[3], "durability is 3"),
        (plain + 66, &[121], "length of a name is 121"),
        (plain + 66, &[0], "bytes behind a name"),
        (plain + 67, &[1], "reserved bytes of an entry"),
        (plain + 72, b"comes", "the name comes is there twice"),
        (plain, &uuid(4).into_bytes(), "the segment UUID"),
        (comes, &uuid(1).into_bytes(), "not the next generation"),
        (comes + 16, &uuid(3 << 64).into_bytes(), "the set UUID"),
        (comes + 32, &[2], "the first generation is 1"),
        (comes + 48, &[0, 0x11], "whole blocks"),
        (comes + 60, &[2], "the member at this index"),
        (comes + 60, &[0], "the member at this index"),
        (comes + 62, &[1], "members of no segment is 1"),
        (grows + 192 + 32, &[3], "not the next generation"),
        (grows + 192 + 60, &[0], "the member at this index"),
        (goes + 16, &[1], "bytes of a deletion"),
        (goes + 72, &[1], "bytes of a deletion"),
        (extents, &[0, 1], "overlap"),
        (extents, &[255, 0], "outside the data area"),
        (extents + 8, &[0], "blocks of an extent is 0"),
        (extents + 8, &[0xFF; 8], "blocks of an extent"),
        (extents + 24, &[0xD5, 0x0D], "outside the data area"),
        (extents + 4 * 16, &[9], "lies elsewhere than what is committed"),
    ] {
        let mut wrong = good.clone();
        wrong[at..at + bytes.len()].copy_from_slice(bytes);
        match decode(&sealed(wrong)) {
            Err(Undecodable::Malformed(malformed)) => {
                assert!(malformed.to_string().contains(says), "at {at}: {malformed}, and not {says}");
            }
            other => panic!("at {at}, {says}: {other:?}"),
        }
    }
}

#[test]
fn sets_and_what_is_pending_are_checked() {
    let with = |change: &dyn Fn(&mut Vec<Record>)| {
        let mut contents = full();
        change(&mut contents.records);
        malformed(&contents)
    };
    let stripe = |records: &mut Vec<Record>, change: &dyn Fn(&mut Stripe)| {
        let Some(Pending::Next(entry)) = &mut records[1].pending else { panic!("it is pending") };
        change(entry.stripe.as_mut().unwrap());
    };
    for (says, change) in [
        ("a UUID is not set", &(|stripe: &mut Stripe| stripe.set = Uuid::nil()) as &dyn Fn(&mut Stripe)),
        ("a UUID is not set", &|stripe| stripe.members[0] = Uuid::nil()),
        ("twice", &|stripe| stripe.members[0] = uuid(10)),
        ("2 to 256 members", &|stripe| (stripe.members, stripe.index) = (vec![uuid(10)], 0)),
        ("2 to 256 members", &|stripe| stripe.members.extend((100..355).map(uuid))),
        ("whole blocks", &|stripe| stripe.chunk = 0),
        ("whole blocks", &|stripe| stripe.chunk = 2048),
        ("whole chunks", &|stripe| stripe.chunk = 3 * 4096),
    ] {
        let found = with(&|records| stripe(records, change));
        assert!(found.contains(says), "{found}, and not {says}");
    }
    let mut other = full();
    let Some(Pending::Next(next)) = &mut other.records[2].pending else { panic!("it is pending") };
    next.uuid = uuid(99);
    assert!(other.check().unwrap_err().to_string().contains("a part of something else"));
    other.records[3].committed = None;
    other.records[2].pending = None;
    assert!(other.check().is_err(), "nothing to delete");
    let (mut most, most_members) = (full(), (100..354).map(uuid));
    stripe(&mut most.records, &|stripe| stripe.members.extend(most_members.clone()));
    assert_eq!(decode(&encode(&most).unwrap()), Ok(most), "256 members");
}

#[test]
fn what_is_pending_may_be_shorter() {
    let mut contents = full();
    let shrunk = SegmentEntry { generation: 2, ..part("shrinks", 3, &[(520, 4)]) };
    contents.records[2].pending = Some(Pending::Next(shrunk));
    assert_eq!(decode(&encode(&contents).unwrap()), Ok(contents.clone()));
    // What it still holds is taken.
    contents.records[0].committed.as_mut().unwrap().extents[0] = BlockExtent::new(524, 1).unwrap();
    assert!(malformed(&contents).contains("overlap"));
}

#[test]
fn a_thousand_and_twenty_four_segments_with_sixteen_extents_each_fit() {
    let mut contents = Contents { geometry: Geometry::new(1 << 20, 12).unwrap(), ..empty() };
    let extents = |at: u64| (0..16).map(|number| (300 + at * 32 + number * 2, 1)).collect::<Vec<_>>();
    let name = |at| format!("{at:0>NAME_BYTES$}");
    contents.records =
        (0..MAX_SEGMENTS as u64).map(|at| Record::committed(entry(&name(at), at as u128 + 1, &extents(at)))).collect();
    let bytes = encode(&contents).unwrap();
    assert_eq!(bytes.len(), 512 + 1024 * (192 + 16 * 16));
    assert_eq!(decode(&bytes).as_ref(), Ok(&contents));
    contents.records.push(Record::committed(entry("one more", 5000, &[(299, 1)])));
    assert!(malformed(&contents).contains("segments is 1025: it must be at most 1024"));
}

#[test]
fn what_does_not_fit_into_a_slot_is_not_written() {
    let mut contents = Contents { geometry: Geometry::new(1 << 20, 12).unwrap(), ..empty() };
    let most = (SLOT_BYTES - 512 - 192) as u64 / 16;
    let with = |count: u64| entry("many", 1, &(0..count).map(|at| (300 + 2 * at, 1)).collect::<Vec<_>>());
    contents.records = vec![Record::committed(with(most))];
    let bytes = encode(&contents).unwrap();
    assert!(bytes.len() <= SLOT_BYTES && bytes.len() + 16 > SLOT_BYTES);
    assert_eq!(decode(&bytes).as_ref(), Ok(&contents));
    contents.records = vec![Record::committed(with(most + 1))];
    assert_eq!(encode(&contents), Err(512 + 192 + 16 * (most + 1)));
}

proptest! {
    /// Any bytes with any CRC, and whole labels with a few bytes changed and the CRC made to fit: never a panic, and what
    /// is accepted is written as it was read.
    #[test]
    fn nothing_panics(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        changes in prop::collection::vec((0_usize..1904, any::<u8>()), 1..8),
    ) {
        let _ = decode(&noise);
        let mut bytes = encode(&full()).unwrap();
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        let bytes = sealed(bytes);
        if let Ok(contents) = decode(&bytes) {
            prop_assert_eq!(contents.check(), Ok(()));
            prop_assert_eq!(decode(&encode(&contents).unwrap()), Ok(contents));
        }
    }

    #[test]
    fn any_header_is_read_as_it_was_written(
        (sequence, epoch) in (1..u64::MAX, any::<u64>()), device in 1..u128::MAX, node in any::<u128>(),
        nguid in any::<[u8; 16]>(), ms in any::<u16>(), pit in 0..4_u8, lbads in 9..17_u8, blocks in 1_u64..1 << 30,
        name in "[a-zé ]{0,20}", may_be_overwritten in any::<bool>(),
    ) {
        let contents = Contents {
            sequence,
            device: uuid(device),
            namespace: Identity { nguid, ms, pit, ..Identity::default() },
            geometry: Geometry::new(((2 << 20) >> lbads) + blocks, lbads).unwrap(),
            owner: Owner { node: uuid(node), name: name.trim().to_owned(), epoch },
            may_be_overwritten,
            alignment: blocks,
            scratch: None,
            records: Vec::new(),
        };
        prop_assert_eq!(decode(&encode(&contents).unwrap()), Ok(contents));
    }
}
