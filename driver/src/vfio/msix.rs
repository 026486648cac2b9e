//! Where the tables of MSI-X lie (PCI Express Base 6.0, 7.7.2): registers that belong to the kernel.

use super::VfioDevice;
use crate::bus::capability;

/// The MSI-X capability, and its registers that say where the table and the pending bits are.
const MSIX: u8 = 0x11;
const TABLE: u64 = 4;
const PENDING_BITS: u64 = 8;

/// The offsets in BAR 0 of the table and of the pending bits, where they lie there.
pub(super) fn tables_in_bar0(device: &VfioDevice) -> Vec<u64> {
    tables(|offset| device.read_config(offset).ok().map(u32::from_le_bytes))
}

/// As [`tables_in_bar0`], over any configuration space that is read by dwords.
fn tables(read: impl Fn(u64) -> Option<u32>) -> Vec<u64> {
    let found = || {
        let at = capability(&read, MSIX)?;
        Some([read(at + TABLE)?, read(at + PENDING_BITS)?])
    };
    // The lowest three bits name the BAR.
    let in_bar0 = |register: u32| (register & 7 == 0).then_some(u64::from(register & !7));
    found().into_iter().flatten().filter_map(in_bar0).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space(words: &[(u64, u32)]) -> impl Fn(u64) -> Option<u32> {
        let words = words.to_vec();
        move |at| Some(words.iter().find(|(offset, _)| *offset == at).map_or(0, |(_, word)| *word))
    }

    const LIST: (u64, u32) = (4, 0x0010_0000);

    #[test]
    fn tables_behind_another_capability() {
        let config = [LIST, (0x34, 0x40), (0x40, 0x0000_5001), (0x50, 0x0040_0011), (0x54, 0x2000), (0x58, 0x3004)];
        assert_eq!(tables(space(&config)), [0x2000], "the pending bits are in BAR 4");
        let without = [(0x34, 0x40), (0x40, 0x11)];
        assert_eq!(tables(space(&without)), [], "no list");
        assert_eq!(tables(|_| None), [], "nobody answers");
        assert_eq!(tables(|_| Some(u32::MAX)), [], "all ones");
    }

    #[test]
    fn a_list_that_goes_round_ends() {
        assert_eq!(tables(space(&[LIST, (0x34, 0x40), (0x40, 0x4005)])), []);
        assert_eq!(tables(space(&[LIST, (0x34, 0x08), (0x08, 0x11)])), [], "into the header");
    }

    proptest! {
        #[test]
        fn no_configuration_space_panics(words in prop::collection::vec(any::<u32>(), 64)) {
            let _ = tables(|at| words.get(at as usize / 4).copied());
        }
    }
}
