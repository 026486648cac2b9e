use proptest::prelude::*;

use super::*;

/// CRC-16 of T10 DIF bit by bit: polynomial 8BB7h, from the most significant bit on, begun with 0.
fn reference_crc(bytes: impl IntoIterator<Item = u8>) -> u16 {
    bytes.into_iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| crc << 1 ^ if crc & 0x8000 != 0 { 0x8BB7 } else { 0 })
    })
}

fn config(size: u16, protection_type: u8, first_eight: bool) -> MetadataConfig {
    MetadataConfig { size, extended: false, protection_type, first_eight }
}

fn tags(prinfo: u8, reference: u32, application: u16, mask: u16) -> Tags {
    Tags { prinfo: ProtectionInformation::from_raw(prinfo), reference, application, mask }
}

#[test]
fn the_reference_is_the_published_crc() {
    assert_eq!(reference_crc(*b"123456789"), 0xD0DB, "the check value of the catalogue");
    assert_eq!(reference_crc([0; 512]), 0);
}

#[test]
fn no_type_is_no_protection() {
    assert_eq!(Protection::new(&config(8, 0, false)), None);
    assert_eq!(Protection::new(&config(64, 1, false)).unwrap().tuple_range(), 56..64);
    assert_eq!(Protection::new(&config(64, 1, true)).unwrap().tuple_range(), 0..8);
    assert_eq!(Protection::new(&config(8, 3, false)).unwrap().tuple_range(), 0..8);
}

#[test]
fn which_reference_tags_are_accepted() {
    let sqe = |prinfo, slba, ilbrt| {
        let prinfo = ProtectionInformation::from_raw(prinfo);
        Sqe::read(1, slba, crate::spec::ZeroesBased::<u16>::ONE).with_prinfo(prinfo).with_ilbrt(ilbrt)
    };
    for (kind, prinfo, slba, ilbrt, accepted) in [
        (1, 1, 5, 5, true),
        (1, 1, 5, 6, false),
        (1, 1, 0x7_0000_0005, 5, true),
        (1, 6, 5, 6, true),
        (1, 8, 5, 6, true),
        (2, 1, 5, 6, true),
        (3, 1, 5, 5, false),
        (3, 6, 5, 5, true),
    ] {
        let protection = Protection::new(&config(8, kind, false)).unwrap();
        assert_eq!(protection.accept(&sqe(prinfo, slba, ilbrt)).is_ok(), accepted, "type {kind}, {prinfo}, {ilbrt}");
    }
}

#[test]
fn an_escape_is_not_checked_at_all() {
    for (kind, tuple, checked) in [
        (1, ProtectionTuple::new(1, 0xFFFF, 7), false),
        (2, ProtectionTuple::new(1, 0xFFFF, 7), false),
        (3, ProtectionTuple::new(1, 0xFFFF, 7), true),
        (3, ProtectionTuple::new(1, 0xFFFF, 0xFFFF_FFFF), false),
        (1, ProtectionTuple::new(1, 0xFFFE, 0xFFFF_FFFF), true),
    ] {
        let protection = Protection::new(&config(8, kind, false)).unwrap();
        let verdict = protection.check(tags(7, 0, 0, 0xFFFF), 0, (&[0; 512], 512), (tuple.as_bytes(), 8));
        assert_eq!(verdict.is_err(), checked, "type {kind}: {tuple:?}");
    }
}

#[test]
fn zeroes_have_the_tuple_that_is_inserted_over_them() {
    for (size, first) in [(8, false), (16, false), (64, true)] {
        let protection = Protection::new(&config(size, 2, first)).unwrap();
        let (size, tags) = (usize::from(size), tags(8, 0xFFFF_FFFE, 0x1234, 0));
        let (mut fast, mut slow) = (vec![0; 3 * size], vec![0; 3 * size]);
        protection.insert_over_zeroes(tags, 512, (&mut fast, size));
        protection.insert(tags, (&[0; 3 * 512], 512), (&mut slow, size));
        assert_eq!(fast, slow);
    }
}

proptest! {
    /// What is inserted is what the specification says, checks pass, and any bit that is flipped is found by the check
    /// that is about it, and only where that is asked for.
    #[test]
    fn every_flipped_bit_is_found(
        kind in 1u8..=3,
        (size, first_eight) in (prop::sample::select(vec![8u16, 16, 64]), any::<bool>()),
        data in prop::collection::vec(any::<u8>(), 3 * 64),
        fill: u8,
        (reference, application, mask) in any::<(u32, u16, u16)>(),
        (place, bit) in (0usize..3 * 128, 0u8..8),
        prchk in 0u8..8,
    ) {
        prop_assume!(application != 0xFFFF);
        let config = config(size, kind, first_eight);
        let protection = Protection::new(&config).unwrap();
        let size = usize::from(size);
        let mut data = data;
        let mut metadata = vec![fill; 3 * size];
        protection.insert(tags(8, reference, application, 0), (&data, 64), (&mut metadata, size));
        let range = protection.tuple_range();
        for index in 0..3 {
            let (block, beside) = (&data[index * 64..][..64], &metadata[index * size..][..size]);
            let guarded = if first_eight { &[] } else { &beside[..size - 8] };
            let guard = reference_crc(block.iter().chain(guarded).copied());
            let counted = if kind == 3 { 0 } else { index as u32 };
            let mut expected = guard.to_be_bytes().to_vec();
            expected.extend(application.to_be_bytes());
            expected.extend(reference.wrapping_add(counted).to_be_bytes());
            prop_assert_eq!(&beside[range.clone()], &expected[..]);
            let rest = beside.iter().enumerate().filter(|(at, _)| !range.contains(at));
            prop_assert!(rest.into_iter().all(|(_, byte)| *byte == fill));
        }
        let asked = tags(prchk, reference, application ^ (0x5A5A & !mask), mask);
        prop_assert_eq!(protection.check(asked, 0, (&data, 64), (&metadata, size)), Ok(()));

        let (block, at) = (place / 128, place % 128);
        let expected = if at < 64 {
            data[block * 64 + at] ^= 1 << bit;
            Some(4)
        } else if at - 64 < size {
            metadata[block * size + at - 64] ^= 1 << bit;
            match (at - 64).checked_sub(range.start) {
                // Before the tuple metadata is guarded, behind it not.
                None => Some(4),
                Some(0..2) => Some(4),
                Some(byte @ 2..4) => {
                    let flipped = 1u16 << bit << if byte == 2 { 8 } else { 0 };
                    (mask & flipped != 0).then_some(2)
                }
                Some(4..8) => Some(1),
                Some(_) => None,
            }
        } else {
            None
        };
        let tuple = ProtectionTuple::read_from_bytes(&metadata[block * size..][range].to_vec()[..]).unwrap();
        prop_assume!(!tuple.is_escape(ProtectionType::from_raw(kind)));
        let verdict = protection.check(asked, 0, (&data, 64), (&metadata, size));
        let status = match expected.filter(|check| prchk & check != 0) {
            Some(4) => Err(StatusCode::END_TO_END_GUARD_CHECK_ERROR),
            Some(2) => Err(StatusCode::END_TO_END_APPLICATION_TAG_CHECK_ERROR),
            Some(_) => Err(StatusCode::END_TO_END_REFERENCE_TAG_CHECK_ERROR),
            None => Ok(()),
        };
        prop_assert_eq!(verdict, status);
    }
}
