//! Configuration space of a PCI function: the two lists of capabilities in it, and what a port says of itself there.
//!
//! The bytes are whatever somebody has read: of a function that is gone, of a list that leads into itself, or fewer than there
//! are. None of that is more than an answer that says less.

use std::fmt;

use bitflags::bitflags;

/// The Status register's dword, its Capabilities List bit, and the pointer to the first capability (PCI Express Base 6.0,
/// 7.5.1.1.4 and 7.5.1.1.11).
const COMMAND_AND_STATUS: u64 = 0x04;
const CAPABILITIES_LIST: u32 = 1 << 20;
const CAPABILITIES_POINTER: u64 = 0x34;
/// Capabilities lie behind the header.
const HEADER_END: u64 = 0x40;
/// More capabilities than 192 bytes have room for: a list that is longer goes round.
const MOST_CAPABILITIES: usize = 48;

/// The PCI Express capability, and the Device/Port Type in its first dword (7.5.3.1 and 7.5.3.2).
const PCI_EXPRESS: u8 = 0x10;
const PORT_TYPE_SHIFT: u32 = 20;

/// Where extended capabilities are (7.6.1 and 7.6.3).
const EXTENDED_START: u64 = 0x100;
const EXTENDED_END: u64 = 0x1000;
/// As many as have room with a dword each: a list that is longer goes round.
const MOST_EXTENDED: u64 = (EXTENDED_END - EXTENDED_START) / 4;
/// Access Control Services, and the dword with its capability and its control register (6.12).
const ACS: u16 = 0x0D;
const ACS_REGISTERS: u64 = 4;
/// What a function that does not answer reads as.
const NOBODY: u32 = !0;

/// The offset of the capability `id` in the space that `read` reads by dwords, where there is one.
pub(crate) fn capability(read: impl Fn(u64) -> Option<u32>, id: u8) -> Option<u64> {
    if read(COMMAND_AND_STATUS)? & CAPABILITIES_LIST == 0 {
        return None;
    }
    // The lowest two bits of a pointer are reserved.
    let mut at = u64::from(read(CAPABILITIES_POINTER)? as u8 & !3);
    for _ in 0..MOST_CAPABILITIES {
        let header = read(at).filter(|_| at >= HEADER_END)?;
        if header as u8 == id {
            return Some(at);
        }
        at = u64::from((header >> 8) as u8 & !3);
    }
    None
}

bitflags! {
    /// Bits of both registers of Access Control Services: what a port is capable of, and what of it is switched on (PCI
    /// Express Base 6.0, 6.12).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AcsControls: u16 {
        /// Requests from a bus that is not below the port are refused.
        const SOURCE_VALIDATION = 1;
        /// Requests whose address says of itself that it is translated are refused.
        const TRANSLATION_BLOCKING = 1 << 1;
        /// Requests for a peer go upstream.
        const REQUEST_REDIRECT = 1 << 2;
        /// Completions for a peer go upstream.
        const COMPLETION_REDIRECT = 1 << 3;
        /// What comes from above for a device below goes there, though it came from there.
        const UPSTREAM_FORWARDING = 1 << 4;
        /// A list of the port's own says what becomes of requests for which peer.
        const EGRESS_CONTROL = 1 << 5;
        /// Requests whose address is translated go straight to a peer, whatever else is on.
        const DIRECT_TRANSLATED = 1 << 6;
    }
}

/// The registers of Access Control Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acs {
    /// What there is.
    pub capable: AcsControls,
    /// What of it is on.
    pub enabled: AcsControls,
}

/// What a function's configuration space says of Access Control Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessControl {
    /// It has them.
    Present(Acs),
    /// It has none.
    Absent,
    /// The header alone is there: more of it is shown to root only.
    NeedsRoot,
    /// Extended configuration space is not there, or ends before its list does.
    OutOfReach,
    /// The function does not answer.
    Silent,
}

/// What a function of PCI Express is to the bus (PCI Express Base 6.0, 7.5.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortType {
    /// A port of the root complex.
    Root,
    /// The port of a switch towards the root complex.
    Upstream,
    /// A port of a switch away from it.
    Downstream,
    /// None: a device's function, of the root complex or not.
    Endpoint,
    /// A bridge to or from conventional PCI, or a number that has no meaning yet.
    Other(u8),
}

/// A function's configuration space, as much as was read of it.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigSpace(Vec<u8>);

impl ConfigSpace {
    /// How many bytes it has at most.
    pub const MOST: u64 = EXTENDED_END;

    /// Of bytes from the start of the space: 64 of them, 256, 4096, or as many as there are.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The dword at an offset, where it was read.
    fn dword(&self, at: u64) -> Option<u32> {
        let (dword, _) = self.0.get(usize::try_from(at).ok()?..)?.split_first_chunk()?;
        Some(u32::from_le_bytes(*dword))
    }

    /// What kind of port it is. `None`: not of PCI Express, or it cannot be told of what was read.
    pub fn port_type(&self) -> Option<PortType> {
        let read = |at| self.dword(at);
        let registers = read(capability(read, PCI_EXPRESS)?)?;
        Some(match (registers >> PORT_TYPE_SHIFT) as u8 & 0xF {
            4 => PortType::Root,
            5 => PortType::Upstream,
            6 => PortType::Downstream,
            0 | 1 | 9 | 10 => PortType::Endpoint,
            other => PortType::Other(other),
        })
    }

    /// What it says of Access Control Services.
    pub fn access_control(&self) -> AccessControl {
        match self.dword(0) {
            None | Some(NOBODY) => return AccessControl::Silent,
            Some(_) if self.0.len() as u64 <= HEADER_END => return AccessControl::NeedsRoot,
            Some(_) => {}
        }
        let mut at = EXTENDED_START;
        for _ in 0..MOST_EXTENDED {
            // The identifier, a version, and the next one's offset. All zeroes: there is none.
            let Some(header) = self.dword(at) else { return AccessControl::OutOfReach };
            if header == 0 || header == NOBODY {
                break;
            }
            if header as u16 == ACS {
                let Some(registers) = self.dword(at + ACS_REGISTERS) else { return AccessControl::OutOfReach };
                return AccessControl::Present(Acs {
                    capable: AcsControls::from_bits_truncate(registers as u16),
                    enabled: AcsControls::from_bits_truncate((registers >> 16) as u16),
                });
            }
            at = u64::from(header >> 20) & !3;
            if at < EXTENDED_START {
                break;
            }
        }
        AccessControl::Absent
    }
}

impl fmt::Debug for ConfigSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConfigSpace({} bytes, {:?}, {:?})", self.0.len(), self.port_type(), self.access_control())
    }
}

#[cfg(test)]
mod tests;
