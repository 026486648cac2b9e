//! What a client has mapped: its memory in this process, and in the address space of the function.
//!
//! Owned here from the mapping on. Given up in one order, as a [`Region`](crate::dma::Region) is: first the address
//! space forgets it, and with that all DMA to it has ended; then this process does.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use super::super::mapping::{FileMapping, Seal};
use super::super::wire::{DmaMap, DmaUnmap};
use crate::dma::{Access, AddressSpace, Iova, IovaRange, MapError};

/// The mappings of one client.
pub(super) struct Memory {
    space: Arc<dyn AddressSpace>,
    seal: Seal,
    max_mappings: u64,
    max_bytes: u64,
    bytes: u64,
    /// By the first IOVA.
    mappings: BTreeMap<u64, (IovaRange, FileMapping)>,
}

impl Memory {
    /// Nothing, in `space`, with limits of mappings and of their bytes.
    pub(super) fn new(space: Arc<dyn AddressSpace>, seal: Seal, (max_mappings, max_bytes): (u64, u64)) -> Self {
        Self { space, seal, max_mappings, max_bytes, bytes: 0, mappings: BTreeMap::new() }
    }

    /// Maps a part of `file`. The errors are those that the client is told.
    pub(super) fn map(&mut self, map: &DmaMap, file: &OwnedFd) -> Result<(), Errno> {
        let range = range(map.address, map.size)?;
        let access = access(map.flags)?;
        // Before any work is done for it.
        if self.mappings.len() as u64 >= self.max_mappings {
            return Err(Errno::NOSPC);
        }
        let bytes = self.bytes.checked_add(map.size).filter(|bytes| *bytes <= self.max_bytes).ok_or(Errno::NOMEM)?;
        let page = self.space.page_size();
        if [map.address, map.size, map.offset].iter().any(|value| !value.is_multiple_of(page)) {
            return Err(Errno::INVAL);
        }
        if let Some((_, (former, _))) = self.mappings.range(..range.end()).next_back()
            && former.overlaps(range)
        {
            return Err(Errno::EXIST);
        }
        let mapping = FileMapping::new(file.as_fd(), map.offset, map.size, self.seal)?;
        // SAFETY: the mapping is kept, untouched by any reference, until `unmap` of exactly this range has returned; where it
        // does not return well, for ever.
        unsafe { self.space.map(range, mapping.base(), access) }.map_err(|error| errno(&error))?;
        self.mappings.insert(map.address, (range, mapping));
        self.bytes = bytes;
        Ok(())
    }

    /// Forgets a mapping, the whole of it. When it returns no DMA to it is under way.
    pub(super) fn unmap(&mut self, unmap: &DmaUnmap) -> Result<(), Errno> {
        let range = range(unmap.address, unmap.size)?;
        if unmap.flags != 0 {
            return Err(Errno::INVAL);
        }
        if self.mappings.get(&unmap.address).is_none_or(|(mapped, _)| *mapped != range) {
            return Err(Errno::NOENT);
        }
        self.space.unmap(range).map_err(|error| errno(&error))?;
        self.mappings.remove(&unmap.address);
        self.bytes -= range.len();
        Ok(())
    }

    /// Forgets everything. What the address space does not let go is leaked.
    pub(super) fn clear(&mut self) {
        for (range, mapping) in std::mem::take(&mut self.mappings).into_values() {
            if self.space.unmap(range).is_err() {
                std::mem::forget(mapping);
            }
        }
        self.bytes = 0;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.clear();
    }
}

fn range(address: u64, size: u64) -> Result<IovaRange, Errno> {
    Iova::new(address).and_then(|start| IovaRange::new(start, size)).ok_or(Errno::INVAL)
}

/// What the device may do, where that is something and nothing that is not known.
fn access(flags: u32) -> Result<Access, Errno> {
    let mut access = Access::empty();
    access.set(Access::DEVICE_READS, flags & DmaMap::READ != 0);
    access.set(Access::DEVICE_WRITES, flags & DmaMap::WRITE != 0);
    if access.is_empty() || flags & !(DmaMap::READ | DmaMap::WRITE) != 0 { Err(Errno::INVAL) } else { Ok(access) }
}

fn errno(error: &MapError) -> Errno {
    match error {
        MapError::Misaligned { .. } => Errno::INVAL,
        MapError::Occupied { .. } => Errno::EXIST,
        MapError::EntryLimit { .. } => Errno::NOSPC,
        MapError::NotMapped { .. } => Errno::NOENT,
        MapError::NoAccelerator { .. } | MapError::NoDmaBuf { .. } => Errno::OPNOTSUPP,
        MapError::LockedMemory { .. } => Errno::NOMEM,
        MapError::DeviceMemory { .. } => Errno::FAULT,
        MapError::Detached { .. } => Errno::NODEV,
        MapError::Kernel { errno, .. } => Errno::from_raw_os_error(*errno),
    }
}
