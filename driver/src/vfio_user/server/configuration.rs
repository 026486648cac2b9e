//! The configuration space of a function that has none: the header of type 0 (PCI Local Bus 3.0, 6.1), as far as a driver
//! of a controller looks at it.

/// Who a function is in configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciIdentity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
}

/// Offset of the Command register, and the bits in it that can be set: memory space, bus master.
const COMMAND: usize = 4;
const MEMORY_SPACE: u8 = 1 << 1;
const BUS_MASTER: u8 = 1 << 2;
/// Class Code of a controller of the NVM Express I/O command sets: 010802h, the Revision ID before it.
const CLASS: (usize, [u8; 4]) = (8, [0, 0x02, 0x08, 0x01]);
/// Offset of BAR 0, a 64-bit one.
const BAR: (usize, u8) = (0x10, 0x04);

/// A configuration space. Only the Command register changes.
#[derive(Debug, Clone)]
pub(super) struct Configuration {
    bytes: [u8; Self::SIZE as usize],
    bar_size: u64,
}

impl Configuration {
    /// Bytes of a conventional configuration space.
    pub(super) const SIZE: u64 = 256;

    /// As after power on, for a BAR 0 of `registers` bytes or more.
    pub(super) fn new(identity: PciIdentity, registers: u64) -> Self {
        let mut bytes = [0; Self::SIZE as usize];
        bytes[..2].copy_from_slice(&identity.vendor.to_le_bytes());
        bytes[2..4].copy_from_slice(&identity.device.to_le_bytes());
        bytes[CLASS.0..][..4].copy_from_slice(&CLASS.1);
        bytes[BAR.0] = BAR.1;
        Self { bytes, bar_size: registers.max(4096).checked_next_power_of_two().unwrap_or(1 << 63) }
    }

    /// Bytes of BAR 0.
    pub(super) fn bar_size(&self) -> u64 {
        self.bar_size
    }

    /// Whether the function may reach memory.
    pub(super) fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & BUS_MASTER != 0
    }

    /// As after a reset of the function.
    pub(super) fn reset(&mut self) {
        self.bytes[COMMAND] = 0;
    }

    /// `len` bytes from `offset` on, as far as there are such.
    pub(super) fn read(&self, offset: usize, len: usize) -> &[u8] {
        self.bytes.get(offset..).map_or(&[], |from| from.get(..len).unwrap_or(from))
    }

    /// Writes what can be written of `data` at `offset`.
    pub(super) fn write(&mut self, offset: usize, data: &[u8]) {
        if let Some(value) = COMMAND.checked_sub(offset).and_then(|at| data.get(at)) {
            self.bytes[COMMAND] = value & (MEMORY_SPACE | BUS_MASTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: PciIdentity = PciIdentity { vendor: 0x1234, device: 0x5678 };

    #[test]
    fn a_header_as_pci_has_it() {
        let configuration = Configuration::new(IDENTITY, 0x1010);
        assert_eq!(configuration.read(0, 4), [0x34, 0x12, 0x78, 0x56]);
        assert_eq!(configuration.read(9, 3), [0x02, 0x08, 0x01]);
        assert_eq!(configuration.bar_size(), 0x2000);
        assert_eq!(configuration.read(254, 8).len(), 2);
        assert_eq!(configuration.read(1000, 8).len(), 0);
        assert_eq!(Configuration::new(IDENTITY, u64::MAX).bar_size(), 1 << 63);
    }

    #[test]
    fn only_the_command_register_can_be_written() {
        let former = Configuration::new(IDENTITY, 4096);
        let mut configuration = former.clone();
        configuration.write(0, &[0xff; 256]);
        assert_eq!(configuration.read(COMMAND, 2), [MEMORY_SPACE | BUS_MASTER, 0]);
        assert!(configuration.bus_master() && !former.bus_master());
        configuration.write(5, &[0xff; 4]);
        configuration.write(2, &[0xff; 2]);
        configuration.reset();
        assert_eq!(configuration.bytes, former.bytes);
        configuration.write(3, &[0, BUS_MASTER]);
        assert!(configuration.bus_master());
    }
}
