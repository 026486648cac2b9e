use proptest::prelude::*;

use super::*;

/// A space of `len` bytes with these dwords, and zeroes between.
fn space(len: usize, dwords: &[(usize, u32)]) -> ConfigSpace {
    let mut bytes = vec![0; len];
    // A vendor and a device, and a list of capabilities.
    for (at, dword) in [(0, 0xA80A_144D), (4, CAPABILITIES_LIST)].iter().chain(dwords) {
        if let Some(room) = bytes.get_mut(*at..at + 4) {
            room.copy_from_slice(&dword.to_le_bytes());
        }
    }
    ConfigSpace::new(bytes)
}

/// The header of an extended capability, version 1.
fn header(id: u16, next: u32) -> u32 {
    u32::from(id) | 1 << 16 | next << 20
}

const ALL_CAPABLE: u32 = 0x7F;

#[test]
fn the_registers_are_found_behind_others() {
    let other = header(1, 0x148);
    let dwords = [(0x100, other), (0x148, header(ACS, 0)), (0x14C, 0x001D_005F)];
    let AccessControl::Present(Acs { capable, enabled }) = space(4096, &dwords).access_control() else { panic!() };
    assert_eq!(enabled, {
        use AcsControls as C;
        C::SOURCE_VALIDATION | C::REQUEST_REDIRECT | C::COMPLETION_REDIRECT | C::UPSTREAM_FORWARDING
    });
    assert_eq!(capable, AcsControls::all() - AcsControls::EGRESS_CONTROL);
    // The size of the egress control vector lies above the bits.
    let AccessControl::Present(Acs { capable, .. }) =
        space(4096, &[(0x100, header(ACS, 0)), (0x104, 0xFF00)]).access_control()
    else {
        panic!()
    };
    assert_eq!(capable, AcsControls::empty());
}

#[test]
fn what_was_not_read_is_told_from_what_is_not_there() {
    let of = |len, dwords: &[(usize, u32)]| space(len, dwords).access_control();
    assert_eq!(of(64, &[]), AccessControl::NeedsRoot);
    assert_eq!(of(256, &[]), AccessControl::OutOfReach);
    assert_eq!(of(4096, &[]), AccessControl::Absent);
    assert_eq!(of(4096, &[(0x100, !0)]), AccessControl::Absent);
    assert_eq!(of(4096, &[(0x100, header(1, 0))]), AccessControl::Absent);
    // A next one in the header of the space, where none can be.
    assert_eq!(of(4096, &[(0x100, header(1, 0x40)), (0x40, header(ACS, 0))]), AccessControl::Absent);
    // The list, and the capability itself, lead out of what was read.
    assert_eq!(of(0x200, &[(0x100, header(1, 0x300))]), AccessControl::OutOfReach);
    assert_eq!(of(4096, &[(0x100, header(1, 0xFFC)), (0xFFC, header(ACS, 0))]), AccessControl::OutOfReach);
    assert_eq!(of(4096, &[(0, !0)]), AccessControl::Silent);
    assert_eq!(of(0, &[]), AccessControl::Silent);
}

#[test]
fn a_list_that_goes_round_ends() {
    let round = [(0x100, header(1, 0x140)), (0x140, header(2, 0x100))];
    assert_eq!(space(4096, &round).access_control(), AccessControl::Absent);
    assert_eq!(space(4096, &[(0x100, header(1, 0x100))]).access_control(), AccessControl::Absent);
    let round = space(256, &[(0x34, 0x40), (0x40, 0x4001)]);
    assert_eq!(capability(|at| round.dword(at), PCI_EXPRESS), None);
}

#[test]
fn kinds_of_ports() {
    let of = |port_type: u32| {
        let capabilities = [(0x34, 0x43), (0x40, 0x6001), (0x60, u32::from(PCI_EXPRESS) | 2 << 16 | port_type << 20)];
        space(256, &capabilities).port_type()
    };
    for (number, kind) in [
        (0, PortType::Endpoint),
        (4, PortType::Root),
        (5, PortType::Upstream),
        (6, PortType::Downstream),
        (7, PortType::Other(7)),
        (9, PortType::Endpoint),
    ] {
        assert_eq!(of(number), Some(kind));
    }
    assert_eq!(space(256, &[(0x34, 0x40), (0x40, 0x01)]).port_type(), None, "no PCI Express");
    assert_eq!(space(64, &[(0x34, 0x40)]).port_type(), None, "not shown");
    let without = space(256, &[(4, 0), (0x34, 0x40), (0x40, u32::from(PCI_EXPRESS))]);
    assert_eq!(without.port_type(), None, "no list");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..4200)) {
        let space = ConfigSpace::new(bytes);
        let _ = (space.port_type(), space.access_control(), format!("{space:?}"));
    }

    /// Lists of any length, over and over themselves: dwords that are pointers, most of them.
    #[test]
    fn no_list_panics(dwords in prop::collection::vec((0usize..1024, 0u16..16, 0u32..1024), 0..64), len in 64usize..4097) {
        let dwords: Vec<_> = dwords.iter().map(|(at, id, next)| (at * 4, header(*id, next * 4))).collect();
        let space = space(len, &dwords);
        let _ = (space.port_type(), space.access_control());
    }

    #[test]
    fn it_is_found_wherever_it_is_in_a_list(
        mut places in prop::sample::subsequence((1u32..480).collect::<Vec<_>>(), 0..40),
        turn in 0usize..40,
        enabled in 0u32..128,
    ) {
        // Eight bytes each, in any order, the first where the list starts.
        let len = places.len();
        places.rotate_left(turn.checked_rem(len).unwrap_or(0));
        let at: Vec<u32> = [0].into_iter().chain(places).map(|place| 0x100 + 8 * place).collect();
        let mut dwords = Vec::new();
        for (number, pair) in at.windows(2).enumerate() {
            // None of them is ACS.
            dwords.push((pair[0] as usize, header(0x20 + number as u16, pair[1])));
        }
        let last = at[at.len() - 1] as usize;
        dwords.extend([(last, header(ACS, 0)), (last + 4, ALL_CAPABLE | enabled << 16)]);
        let expected = Acs { capable: AcsControls::all(), enabled: AcsControls::from_bits_truncate(enabled as u16) };
        prop_assert_eq!(space(4096, &dwords).access_control(), AccessControl::Present(expected));
    }
}
