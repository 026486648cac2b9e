//! The protocol's messages as plain data, in the byte order of the host. No I/O.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::ProtocolError;

/// Bytes of a header.
pub(super) const HEADER_LEN: usize = size_of::<Header>();
/// The most bytes after a header that are taken from the other end: those of a list of areas, or of a version. Data of
/// a region has less (see [`MAX_DATA`]).
pub(super) const MAX_PAYLOAD: usize = 16 << 10;
/// The most bytes of a region that are read or written by one message.
pub(super) const MAX_DATA: usize = 4096;
/// The most file descriptors that are taken with one message.
pub(super) const MAX_DESCRIPTORS: usize = 8;

/// The version of the protocol.
pub(super) const VERSION: (u16, u16) = (0, 1);

/// Region of BAR 0 (VFIO_PCI_BAR0_REGION_INDEX).
pub(super) const BAR0: u32 = 0;
/// Region of the configuration space (VFIO_PCI_CONFIG_REGION_INDEX).
pub(super) const CONFIGURATION: u32 = 7;
/// Regions of a PCI device (VFIO_PCI_NUM_REGIONS).
pub(super) const PCI_REGIONS: u32 = 9;

/// A command's number.
pub(super) mod command {
    pub(in crate::vfio_user) const VERSION: u16 = 1;
    pub(in crate::vfio_user) const DMA_MAP: u16 = 2;
    pub(in crate::vfio_user) const DMA_UNMAP: u16 = 3;
    pub(in crate::vfio_user) const DEVICE_GET_INFO: u16 = 4;
    pub(in crate::vfio_user) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(in crate::vfio_user) const REGION_READ: u16 = 9;
    pub(in crate::vfio_user) const REGION_WRITE: u16 = 10;
    pub(in crate::vfio_user) const DEVICE_RESET: u16 = 13;
}

/// What stands before every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Header {
    pub(super) message_id: u16,
    pub(super) command: u16,
    /// Bytes of the message, the header's included.
    pub(super) message_size: u32,
    pub(super) flags: u32,
    pub(super) error: u32,
}

const _: () = assert!(size_of::<Header>() == 16);

impl Header {
    /// Flags, bits 3:0: a command.
    pub(super) const COMMAND: u32 = 0;
    /// Flags, bits 3:0: a reply.
    pub(super) const REPLY: u32 = 1;
    /// Flags: no reply is wanted.
    pub(super) const NO_REPLY: u32 = 1 << 4;
    /// Flags: the command has failed; `error` may say why.
    const ERROR: u32 = 1 << 5;

    /// The header of a command with `len` bytes after it.
    pub(super) fn command(message_id: u16, command: u16, len: usize) -> Self {
        Self { message_id, command, message_size: (HEADER_LEN + len) as u32, flags: Self::COMMAND, error: 0 }
    }

    /// The header of the reply to this command, with `len` bytes after it.
    pub(super) fn reply(&self, len: usize) -> Self {
        Self { message_size: (HEADER_LEN + len) as u32, flags: Self::REPLY, error: 0, ..*self }
    }

    /// The header of a reply that says that this command has failed. Nothing follows it.
    pub(super) fn failure(&self, errno: i32) -> Self {
        let error = errno.unsigned_abs();
        Self { message_size: HEADER_LEN as u32, flags: Self::REPLY | Self::ERROR, error, ..*self }
    }

    /// The header in these bytes, with the length of what follows it.
    pub(super) fn decode(bytes: [u8; HEADER_LEN], max_payload: usize) -> Result<(Self, usize), ProtocolError> {
        let header: Self = zerocopy::transmute!(bytes);
        let max = HEADER_LEN + max_payload;
        let size = header.message_size as usize;
        if !(HEADER_LEN..=max).contains(&size) {
            return Err(ProtocolError::MessageSize { size: header.message_size, max: max as u32 });
        }
        Ok((header, size - HEADER_LEN))
    }

    /// Whether it is of this type.
    pub(super) fn expect(&self, due: u32) -> Result<(), ProtocolError> {
        let found = self.flags & 0xf;
        if found == due { Ok(()) } else { Err(ProtocolError::MessageType { found, due }) }
    }

    pub(super) fn wants_reply(&self) -> bool {
        self.flags & Self::NO_REPLY == 0
    }

    /// The errno of a reply that says that its command has failed; 0 where it gives none.
    pub(super) fn errno(&self) -> Option<i32> {
        (self.flags & Self::ERROR != 0).then_some(i32::try_from(self.error).unwrap_or(0))
    }

    /// The structure at the start of this command's payload, and what follows it.
    pub(super) fn payload<'a, T: FromBytes>(&self, bytes: &'a [u8]) -> Result<(T, &'a [u8]), ProtocolError> {
        T::read_from_prefix(bytes).map_err(|_| ProtocolError::Payload {
            command: self.command,
            len: bytes.len(),
            least: size_of::<T>(),
        })
    }
}

/// A version; capabilities as a JSON text with a zero at its end may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Version {
    pub(super) major: u16,
    pub(super) minor: u16,
}

/// Memory that the server may reach from now on; its file's descriptor comes with the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DmaMap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}

const _: () = assert!(size_of::<DmaMap>() == 32);

impl DmaMap {
    /// The device may read it.
    pub(super) const READ: u32 = 1;
    /// The device may write it.
    pub(super) const WRITE: u32 = 2;
}

/// Memory that the server may not reach any more, exactly as it was mapped. The reply repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DmaUnmap {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) address: u64,
    pub(super) size: u64,
}

const _: () = assert!(size_of::<DmaUnmap>() == 24);

/// What the device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) num_regions: u32,
    pub(super) num_irqs: u32,
}

impl DeviceInfo {
    /// It can be reset.
    pub(super) const RESET: u32 = 1;
    /// It is a PCI device.
    pub(super) const PCI: u32 = 2;
}

/// What one of the device's regions is; capabilities may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RegionInfo {
    pub(super) argsz: u32,
    pub(super) flags: u32,
    pub(super) index: u32,
    /// Where the first capability stands, from the start of this structure; 0 is nowhere.
    pub(super) cap_offset: u32,
    pub(super) size: u64,
    /// Where the region begins in the file that comes with the message.
    pub(super) offset: u64,
}

const _: () = assert!(size_of::<RegionInfo>() == 32);

impl RegionInfo {
    /// It can be read by messages.
    pub(super) const READ: u32 = 1;
    /// It can be written by messages.
    pub(super) const WRITE: u32 = 2;
    /// It, or its areas, can be mapped.
    pub(super) const MMAP: u32 = 4;
    /// Capabilities follow.
    pub(super) const CAPS: u32 = 8;

    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag == flag
    }

    /// The parts of the region that can be mapped: those of a sparse region, else the whole. `info` is the reply's payload,
    /// of which this structure is the beginning.
    pub(super) fn areas(&self, info: &[u8]) -> Result<Vec<Area>, ProtocolError> {
        if !self.has(Self::MMAP) {
            return Ok(Vec::new());
        }
        let mut areas = None;
        let mut next = if self.has(Self::CAPS) { self.cap_offset as usize } else { 0 };
        // Each capability must stand behind the end of the one before it, so that a list has an end.
        let mut least = size_of::<Self>();
        while next != 0 {
            let unsound = || ProtocolError::Capability { offset: next, len: info.len() };
            let bytes = info.get(next..).filter(|_| next >= least).ok_or_else(unsound)?;
            let (capability, mut rest) = CapabilityHeader::read_from_prefix(bytes).map_err(|_| unsound())?;
            if capability.id == CapabilityHeader::SPARSE_MMAP {
                let (sparse, list) = SparseMmap::read_from_prefix(rest).map_err(|_| unsound())?;
                let len = (sparse.nr_areas as usize).checked_mul(size_of::<Area>());
                let (list, behind) = len.and_then(|len| list.split_at_checked(len)).ok_or_else(unsound)?;
                let found = list.chunks_exact(size_of::<Area>()).filter_map(|area| Area::read_from_bytes(area).ok());
                areas.get_or_insert_with(Vec::new).extend(found);
                rest = behind;
            }
            least = info.len() - rest.len();
            next = capability.next as usize;
        }
        Ok(areas.unwrap_or_else(|| vec![Area { offset: 0, size: self.size }]))
    }
}

/// What stands before a capability of a region (`struct vfio_info_cap_header`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CapabilityHeader {
    pub(super) id: u16,
    pub(super) version: u16,
    /// Where the next one stands, from the start of the region's information; 0 is nowhere.
    pub(super) next: u32,
}

impl CapabilityHeader {
    /// VFIO_REGION_INFO_CAP_SPARSE_MMAP.
    pub(super) const SPARSE_MMAP: u16 = 1;
}

/// How many areas follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SparseMmap {
    pub(super) nr_areas: u32,
    pub(super) reserved: u32,
}

/// A part of a region that can be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Area {
    /// From the start of the region.
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// An access to a region; data follows where it is written, or was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct RegionAccess {
    pub(super) offset: u64,
    pub(super) region: u32,
    pub(super) count: u32,
}

const _: () = assert!(size_of::<RegionAccess>() == 16);

#[cfg(test)]
mod tests;
