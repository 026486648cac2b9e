//! BAR 0: registers and doorbells, by messages, and as memory where the server lets them be mapped.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use zerocopy::IntoBytes;

use super::super::mapping::{FileMapping, Seal};
use super::super::wire::{Area, BAR0, RegionAccess, RegionInfo, command};
use super::connection::Connection;
use crate::bus::{BusError, Doorbell};
use crate::dma::barrier;

const READ: &str = "a register's value";
const WRITE: &str = "the write of a register";
const RING: &str = "the ring of a doorbell";

/// The longest area that is mapped: all doorbells that there can be, 4 bytes apart. Its pages are faulted in.
const LARGEST_AREA: u64 = 1 << 20;

/// BAR 0 of a function behind a socket.
pub(super) struct Bar {
    connection: Arc<Connection>,
    size: u64,
    /// Counts revocations: a doorbell's handle is of one generation.
    generation: AtomicU64,
    areas: RwLock<Vec<Arc<MappedArea>>>,
    /// The file of the areas, and where in it the region begins.
    file: Option<(OwnedFd, u64)>,
}

/// A part of the BAR that is mapped.
struct MappedArea {
    area: Area,
    mapping: FileMapping,
}

impl MappedArea {
    /// Maps an area, where that is safe: what cannot be mapped is accessed by messages.
    fn new(area: Area, size: u64, file: &(OwnedFd, u64)) -> Option<Arc<Self>> {
        area.offset.checked_add(area.size).filter(|end| *end <= size && area.offset.is_multiple_of(4))?;
        if area.size > LARGEST_AREA {
            return None;
        }
        let offset = file.1.checked_add(area.offset)?;
        let mapping = FileMapping::new(file.0.as_fd(), offset, area.size, Seal::Required).ok()?;
        Some(Arc::new(Self { area, mapping }))
    }

    /// Where `len` bytes at `offset` of the BAR are in the mapping.
    fn place(&self, offset: u64, len: u64) -> Option<usize> {
        let inside = offset.checked_sub(self.area.offset)?;
        (inside.checked_add(len)? <= self.area.size).then_some(inside as usize)
    }
}

impl Bar {
    /// BAR 0 as `info` describes it, with `areas` of `file` mapped.
    pub(super) fn new(connection: Arc<Connection>, info: &RegionInfo, areas: &[Area], file: Option<OwnedFd>) -> Self {
        let file = file.map(|file| (file, info.offset));
        let map = |file| areas.iter().filter_map(move |area| MappedArea::new(*area, info.size, file)).collect();
        let areas = RwLock::new(file.as_ref().map(map).unwrap_or_default());
        Self { connection, size: info.size, generation: AtomicU64::new(0), areas, file }
    }

    /// Whether a register of `len` bytes can be at `offset`.
    fn holds(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(4) && offset.checked_add(len).is_some_and(|end| end <= self.size)
    }

    /// The mapped area that holds `len` bytes at `offset`, and where.
    fn area(&self, offset: u64, len: u64) -> Option<(Arc<MappedArea>, usize)> {
        let areas = self.areas.read().unwrap_or_else(PoisonError::into_inner);
        areas.iter().find_map(|area| Some((Arc::clone(area), area.place(offset, len)?)))
    }

    pub(super) fn read_u32(&self, offset: u64) -> u32 {
        if !self.holds(offset, 4) {
            return u32::MAX;
        }
        if let Some((area, place)) = self.area(offset, 4) {
            return u32::from_le(area.mapping.view().atomic_u32(place).load(Ordering::Acquire));
        }
        let mut bytes = [0; 4];
        match self.connection.read(READ, BAR0, offset, &mut bytes) {
            Ok(()) => u32::from_le_bytes(bytes),
            Err(_) => u32::MAX,
        }
    }

    pub(super) fn write_u32(&self, offset: u64, value: u32) {
        if !self.holds(offset, 4) {
            return;
        }
        if let Some((area, place)) = self.area(offset, 4) {
            area.mapping.view().atomic_u32(place).store(value.to_le(), Ordering::Release);
            return;
        }
        // A write that nobody takes is lost, as on a bus.
        let _ = self.connection.write(WRITE, BAR0, offset, &value.to_le_bytes());
    }

    /// In one message; as two dwords where the register is mapped.
    pub(super) fn read_u64(&self, offset: u64) -> u64 {
        let mapped = self.area(offset, 4).is_some() || self.area(offset.wrapping_add(4), 4).is_some();
        if mapped || !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            let low = self.read_u32(offset);
            return u64::from(low) | u64::from(self.read_u32(offset.wrapping_add(4))) << 32;
        }
        let mut bytes = [0; 8];
        match self.connection.read(READ, BAR0, offset, &mut bytes) {
            Ok(()) => u64::from_le_bytes(bytes),
            Err(_) => u64::MAX,
        }
    }

    /// As two dwords, the lower first: every server has those.
    pub(super) fn write_u64(&self, offset: u64, value: u64) {
        self.write_u32(offset, value as u32);
        self.write_u32(offset.wrapping_add(4), (value >> 32) as u32);
    }

    /// A handle to the doorbell at `offset`.
    pub(super) fn doorbell(this: &Arc<Self>, offset: u64) -> Result<BarDoorbell, BusError> {
        if !this.holds(offset, 4) {
            return Err(BusError::NoRegister { offset, end: this.size });
        }
        // In this order: a handle that is given out during a revocation is of the former generation, whatever it maps.
        let generation = this.generation.load(Ordering::Acquire);
        Ok(BarDoorbell { bar: Arc::clone(this), offset, generation, area: this.area(offset, 4) })
    }

    /// Makes every handle given out so far lead nowhere.
    pub(super) fn revoke(&self) {
        let mut areas = self.areas.write().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::AcqRel);
        if let Some(file) = &self.file {
            let former = std::mem::take(&mut *areas);
            for area in &former {
                area.mapping.detach();
            }
            *areas = former.iter().filter_map(|former| MappedArea::new(former.area, self.size, file)).collect();
        }
        drop(areas);
        // A ring that had found itself wanted has been sent.
        self.connection.settle();
    }
}

/// A handle to a doorbell.
pub(super) struct BarDoorbell {
    bar: Arc<Bar>,
    offset: u64,
    generation: u64,
    area: Option<(Arc<MappedArea>, usize)>,
}

impl BarDoorbell {
    fn is_wanted(&self) -> bool {
        self.bar.generation.load(Ordering::Acquire) == self.generation
    }
}

impl Doorbell for BarDoorbell {
    fn ring(&self, value: u16) {
        let value = u32::from(value);
        match &self.area {
            Some((area, place)) => {
                // One that is revoked right now stores into the anonymous pages in the area's place.
                if self.is_wanted() && !area.mapping.is_detached() {
                    barrier::stores_before_doorbell();
                    area.mapping.view().atomic_u32(*place).store(value.to_le(), Ordering::Release);
                }
            }
            None => {
                let access = RegionAccess { offset: self.offset, region: BAR0, count: 4 };
                let payload = [access.as_bytes(), &value.to_le_bytes()];
                self.bar.connection.tell(RING, command::REGION_WRITE, &payload, || self.is_wanted());
            }
        }
    }
}
