//! The map against a list of every block, and what it refuses.

use proptest::prelude::*;
use tentpeg_driver::queue::ControllerLimits;
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::identify::{IdentifyNamespace, LbaFormat};
use tentpeg_driver::spec::registers::Cap;

use super::*;
use crate::segment::{Durability, MemberLayout, check_disjoint};

fn limits(lbads: u8, nsze: u64) -> Limits {
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let mut namespace = IdentifyNamespace { nsze, ..IdentifyNamespace::default() };
    namespace.lbaf[0] = LbaFormat { ms: 0, lbads, rp: 0 };
    ControllerLimits::new(cap, 4096, 5).unwrap().namespace(&namespace).unwrap()
}

fn layout(members: &[(usize, &[(u64, u64)])], chunk: u64) -> SegmentLayout {
    let extent = |(slba, blocks): &(u64, u64)| BlockExtent::new(*slba, *blocks).unwrap();
    SegmentLayout {
        name: "s".to_owned(),
        uuid: [0; 16],
        durability: Durability::None,
        unaligned_reads: false,
        members: members
            .iter()
            .map(|(device, extents)| MemberLayout { device: *device, extents: extents.iter().map(extent).collect() })
            .collect(),
        chunk,
    }
}

fn refused(members: &[(usize, &[(u64, u64)])], chunk: u64) -> String {
    let devices = [limits(12, 1000), limits(12, 1000), limits(9, 1000), limits(12, u64::MAX), limits(12, u64::MAX)];
    SegmentMap::new(&layout(members, chunk), &devices).map(drop).unwrap_err().to_string()
}

#[test]
fn each_wrong_layout_is_named() {
    assert_eq!(refused(&[], 0), "segment s has 0 members: it must have 1 to 64");
    let many: Vec<(usize, &[(u64, u64)])> = (0..65).map(|device| (device, &[(0, 1)][..])).collect();
    assert_eq!(refused(&many, 4096), "segment s has 65 members: it must have 1 to 64");
    assert_eq!(refused(&[(5, &[(0, 1)])], 0), "segment s has a member on device 5: 5 devices are open, counted from 0");
    assert_eq!(
        refused(&[(1, &[(0, 1)]), (1, &[(1, 1)])], 4096),
        "segment s has two members on device 1: each member of a stripe lies on a device of its own"
    );
    assert_eq!(
        refused(&[(1, &[(0, 1)]), (2, &[(1, 8)])], 4096),
        "segment s has blocks of 4096 bytes on one device and of 512 on another: they must be equal"
    );
    let chunk = |bytes| refused(&[(0, &[(0, 100)]), (1, &[(0, 100)])], bytes);
    assert_eq!(chunk(0), "segment s has chunks of 0 bytes: a multiple of the block of 4096 bytes is needed, not 0");
    assert_eq!(
        chunk(4097),
        "segment s has chunks of 4097 bytes: a multiple of the block of 4096 bytes is needed, not 0"
    );
    assert_eq!(chunk(101 * 4096), "segment s has no room on device 0: 100 blocks, of which 101 are needed at least");
    assert_eq!(refused(&[(0, &[])], 0), "segment s has no room on device 0: 0 blocks, of which 1 are needed at least");
    for (slba, blocks) in [(0, 1001), (1000, 1), (u64::MAX - 1, 1), (1, u64::MAX - 1)] {
        let message = refused(&[(0, &[(0, 1), (slba, blocks)])], 0);
        assert!(message.ends_with("on device 0, which has 1000: all must lie in it"), "{message}");
    }
    let half = u64::MAX / 2;
    assert_eq!(refused(&[(3, &[(0, half)])], 0), "segment s has more bytes than 64 bits count");
    assert_eq!(
        refused(&[(3, &[(0, half), (half, half), (0, half)])], 0),
        "segment s has more bytes than 64 bits count"
    );
    let striped = [(3, &[(0, half)][..]), (4, &[(0, half)][..])];
    assert_eq!(refused(&striped, 4096), "segment s has more bytes than 64 bits count");
}

#[test]
fn a_block_belongs_to_one_segment() {
    let of = |name: &str, extents: &[(u64, u64)]| SegmentLayout {
        name: name.to_owned(),
        ..layout(&[(0, &[(100, 10)]), (1, extents)], 4096)
    };
    let apart = layout(&[(1, &[(10, 5), (0, 10)])], 0);
    assert_eq!(check_disjoint(&[apart.clone(), of("t", &[(15, 1)])]), Ok(()));
    let error = check_disjoint(&[of("t", &[(14, 1)]), apart]).unwrap_err().to_string();
    assert!(error.starts_with("block 14 of device 1 belongs to segment s and to segment t"), "{error}");
    let twice = check_disjoint(&[of("t", &[(0, 2), (1, 2)])]).unwrap_err().to_string();
    assert!(twice.contains("to segment t and to segment t"), "{twice}");
    let last = check_disjoint(&[of("t", &[(u64::MAX - 2, 2), (u64::MAX - 1, 1)])]);
    assert!(last.is_err(), "and nothing overflows");
}

/// Extents of one member within 64 blocks, none overlapping, in any order.
fn extents() -> impl Strategy<Value = Vec<(u64, u64)>> {
    (prop::collection::vec((0u64..3, 1u64..8), 1..5), any::<prop::sample::Index>()).prop_map(|(parts, turn)| {
        let mut at = 0;
        let mut extents = Vec::new();
        for (gap, blocks) in parts {
            extents.push((at + gap, blocks));
            at += gap + blocks;
        }
        let by = turn.index(extents.len());
        extents.rotate_left(by);
        extents
    })
}

proptest! {
    #[test]
    fn the_map_agrees_with_a_list_of_all_blocks(
        members in prop::collection::vec(extents(), 1..4), chunk in 1u64..6, from in 0u64..100, len in 1u64..40
    ) {
        let devices = [limits(9, 64); 3];
        // Devices in another order than the members.
        let places = [2, 0, 1];
        let members: Vec<(usize, &[(u64, u64)])> =
            members.iter().zip(places).map(|(extents, device)| (device, &extents[..])).collect();
        let count = members.len();
        // Every block of each member, in order.
        let flat: Vec<Vec<(u8, u64)>> = members.iter().map(|(device, extents)| {
            extents.iter().flat_map(|(slba, blocks)| (*slba..slba + blocks).map(|lba| (*device as u8, lba))).collect()
        }).collect();
        let rounds = flat.iter().map(|blocks| blocks.len() as u64 / chunk).min().unwrap_or(0);
        let mut naive: Vec<(u8, u64)> = Vec::new();
        if count == 1 {
            naive.clone_from(&flat[0]);
        } else {
            for number in 0.. {
                let (round, member) = (number / count, &flat[number % count]);
                let (begin, end) = (round * chunk as usize, (round + 1) * chunk as usize);
                match member.get(begin..end) {
                    Some(blocks) => naive.extend(blocks),
                    None => break,
                }
            }
        }
        let map = match SegmentMap::new(&layout(&members, chunk * 512), &devices) {
            Ok(map) => map,
            Err(error) => {
                prop_assert!(count > 1 && rounds == 0, "{}", error);
                return Ok(());
            }
        };
        prop_assert_eq!(map.blocks(), naive.len() as u64);
        prop_assert_eq!(map.chunk(), (count > 1).then_some(chunk));
        prop_assert_eq!(map.locate(map.blocks()), None);
        prop_assert_eq!(map.locate(u64::MAX), None);

        // Each block by itself, and how far it goes on.
        for (block, (device, slba)) in (0u64..).zip(naive.iter().copied()) {
            let piece = map.locate(block).unwrap();
            prop_assert_eq!((piece.block, piece.device, piece.slba), (block, device, slba));
            prop_assert!(piece.blocks >= 1);
            for ahead in 0..piece.blocks {
                prop_assert_eq!(naive.get((block + ahead) as usize), Some(&(device, slba + ahead)));
            }
            prop_assert_eq!(map.contiguous(block, piece.blocks), Some((device, slba)));
        }

        // A range: each device's pieces are its blocks of the range, in order.
        let end = (from + len).min(map.blocks());
        if from < end {
            let range = &naive[from as usize..end as usize];
            let mut found = 0;
            for device in 0..3u8 {
                let (mut at, mut blocks) = (from, Vec::new());
                while let Some(piece) = map.next_on(device, at, end) {
                    prop_assert!(piece.blocks >= 1 && piece.block >= at && piece.device == device);
                    blocks.extend((0..piece.blocks).map(|ahead| (piece.block + ahead, piece.slba + ahead)));
                    at = piece.block + piece.blocks;
                }
                let expected: Vec<(u64, u64)> = (from..).zip(range).filter(|(_, (of, _))| *of == device)
                    .map(|(block, (_, slba))| (block, *slba)).collect();
                prop_assert_eq!(map.devices_of(from, end - from).contains(device), !expected.is_empty());
                found += expected.len();
                prop_assert_eq!(blocks, expected);
            }
            prop_assert_eq!(found, range.len());
        }
        let single = members.len() == 1 && members[0].1.len() == 1;
        prop_assert_eq!(map.single(), single.then(|| naive[0]));
    }
}
