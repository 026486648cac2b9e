use proptest::prelude::*;

use super::*;

fn bytes(header: Header) -> [u8; HEADER_LEN] {
    zerocopy::transmute!(header)
}

#[test]
fn a_header_stands_as_the_protocol_has_it() {
    let header = Header::command(0x1234, command::DMA_MAP, 32);
    let size = 48u32.to_ne_bytes();
    let expected = [&0x1234u16.to_ne_bytes()[..], &2u16.to_ne_bytes(), &size, &[0; 8]].concat();
    assert_eq!(bytes(header).as_slice(), expected);
    assert_eq!(Header::decode(bytes(header), 32), Ok((header, 32)));
    let failure = header.failure(17);
    assert_eq!((failure.message_size, failure.flags, failure.errno()), (16, 0x21, Some(17)));
    assert_eq!((header.reply(24).message_size, header.reply(24).flags, header.reply(24).errno()), (40, 1, None));
    assert!(failure.expect(Header::REPLY).is_ok());
    assert_eq!(failure.expect(Header::COMMAND), Err(ProtocolError::MessageType { found: 1, due: 0 }));
}

#[test]
fn lengths_that_no_message_has() {
    for size in [0, 15, 16 + 33, u32::MAX] {
        let header = Header { message_size: size, ..Header::command(1, 9, 0) };
        assert_eq!(Header::decode(bytes(header), 32), Err(ProtocolError::MessageSize { size, max: 48 }));
    }
    let header = Header::command(1, command::REGION_READ, 15);
    let short = ProtocolError::Payload { command: 9, len: 15, least: 16 };
    assert_eq!(header.payload::<RegionAccess>(&[0; 15]).unwrap_err(), short);
}

/// A region's information with capabilities of these identifiers, next offsets and contents, one after the other.
fn info(flags: u32, capabilities: &[(u16, u32, Vec<u8>)]) -> (RegionInfo, Vec<u8>) {
    let info = RegionInfo { flags, cap_offset: 32, size: 0x10000, ..RegionInfo::default() };
    let mut payload = info.as_bytes().to_vec();
    for (id, next, content) in capabilities {
        payload.extend(CapabilityHeader { id: *id, version: 1, next: *next }.as_bytes());
        payload.extend(content);
    }
    (info, payload)
}

fn sparse(nr_areas: u32, areas: &[Area]) -> Vec<u8> {
    [SparseMmap { nr_areas, reserved: 0 }.as_bytes(), areas.as_bytes()].concat()
}

const MAPPABLE: u32 = RegionInfo::MMAP | RegionInfo::CAPS;

#[test]
fn areas_of_a_region() {
    let list = [Area { offset: 0x1000, size: 0x1000 }, Area { offset: 0x4000, size: 0x2000 }];
    let found = |(info, payload): (RegionInfo, Vec<u8>)| info.areas(&payload);
    assert_eq!(found(info(MAPPABLE, &[(1, 0, sparse(2, &list))])), Ok(list.to_vec()));
    // One that is not known goes before it.
    assert_eq!(found(info(MAPPABLE, &[(2, 48, vec![0; 8]), (1, 0, sparse(2, &list))])), Ok(list.to_vec()));
    // A sparse region without an area is not a region that can be mapped as a whole.
    assert_eq!(found(info(MAPPABLE, &[(1, 0, sparse(0, &[]))])), Ok(vec![]));
    assert_eq!(found(info(RegionInfo::MMAP, &[])), Ok(vec![Area { offset: 0, size: 0x10000 }]));
    assert_eq!(found(info(RegionInfo::READ | RegionInfo::CAPS, &[(1, 0, sparse(2, &list))])), Ok(vec![]));
}

#[test]
fn lists_of_capabilities_that_cannot_be() {
    let area = [Area { offset: 0, size: 4096 }];
    for (name, capabilities) in [
        ("more areas than came", vec![(1, 0, sparse(2, &area))]),
        ("so many that their length overflows", vec![(1, 0, sparse(u32::MAX, &area))]),
        ("the next one is itself", vec![(1, 32, sparse(1, &area))]),
        ("the next one overlaps it", vec![(1, 39, sparse(1, &area))]),
        ("the next one lies in the information", vec![(1, 8, sparse(1, &area))]),
        ("the next one lies behind the reply", vec![(1, 4000, sparse(1, &area))]),
        ("the next one is cut off", vec![(1, 60, sparse(1, &area))]),
        ("none is there", vec![]),
    ] {
        let (info, payload) = info(MAPPABLE, &capabilities);
        let found = info.areas(&payload);
        assert!(matches!(found, Err(ProtocolError::Capability { .. })), "{name}: {found:?}");
    }
}

proptest! {
    /// Whatever comes as a header is a length within bounds, or an error.
    #[test]
    fn any_header(bytes: [u8; HEADER_LEN], max in 0usize..100_000) {
        match Header::decode(bytes, max) {
            Ok((header, len)) => prop_assert!(len <= max && header.message_size as usize == len + HEADER_LEN),
            Err(error) => prop_assert!(matches!(error, ProtocolError::MessageSize { .. }), "{error}"),
        }
    }

    /// A list of capabilities of any bytes ends, and gives no more areas than have room in it.
    #[test]
    fn any_capabilities(mut tail in proptest::collection::vec(any::<u8>(), 0..300), sizes: bool, next in 0u32..64) {
        // Small numbers where a list would have them, so that not every case ends at its first capability.
        for (index, byte) in tail.iter_mut().enumerate() {
            if sizes && index % 8 >= 1 {
                *byte = if index % 8 == 4 { (*byte % 5) * 16 } else { 0 };
            }
        }
        let info = RegionInfo { flags: MAPPABLE, cap_offset: 32 + next, ..RegionInfo::default() };
        let payload = [info.as_bytes(), &tail].concat();
        if let Ok(areas) = info.areas(&payload) {
            prop_assert!(areas.len() * size_of::<Area>() <= payload.len());
        }
    }
}
