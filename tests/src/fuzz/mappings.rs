//! The address space of a device that a fuzzer plays: what is mapped, and a way to it that refuses the rest.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tentpeg_driver::dma::{Access, AddressSpace, DmaView, IovaRange, MapError};

/// The unit of a mapping in bytes.
const PAGE_SIZE: u64 = 4096;

struct Mapping {
    range: IovaRange,
    base: NonNull<u8>,
    access: Access,
}

// SAFETY: an address with a promise that holds until it is unmapped; it is used under the lock alone.
unsafe impl Send for Mapping {}

/// What is mapped.
#[derive(Default)]
pub(super) struct Mappings {
    list: Mutex<Vec<Mapping>>,
}

impl Mappings {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Reads as a device. Whether it was allowed to; nothing was read if not.
    pub(super) fn read(&self, address: u64, to: &mut [u8]) -> bool {
        self.with(address, to.len(), Access::DEVICE_READS, |view, offset| view.read(offset, to))
    }

    /// Writes as a device. Whether it was allowed to; nothing was written if not.
    pub(super) fn write(&self, address: u64, from: &[u8]) -> bool {
        self.with(address, from.len(), Access::DEVICE_WRITES, |view, offset| view.write(offset, from))
    }

    /// The range of the mapping of that number, modulo how many there are.
    pub(super) fn range(&self, number: usize) -> Option<IovaRange> {
        let list = self.lock();
        list.get(number.checked_rem(list.len())?).map(|mapping| mapping.range)
    }

    fn with(&self, address: u64, len: usize, wanted: Access, use_it: impl FnOnce(DmaView<'_>, usize)) -> bool {
        let list = self.lock();
        let found = list.iter().find_map(|mapping| {
            let offset = address.checked_sub(mapping.range.start().get())?;
            let end = offset.checked_add(len as u64)?;
            (end <= mapping.range.len() && mapping.access.contains(wanted)).then_some((mapping, offset))
        });
        let Some((mapping, offset)) = found else { return false };
        // SAFETY: whoever mapped the range keeps it mapped and without references until `unmap` has returned, which
        // waits for the lock that is held here.
        let view = unsafe { DmaView::new(mapping.base, mapping.range.len() as usize) };
        use_it(view, offset as usize);
        true
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AddressSpace for Mappings {
    fn page_size(&self) -> u64 {
        PAGE_SIZE
    }

    unsafe fn map(&self, range: IovaRange, memory: NonNull<u8>, access: Access) -> Result<(), MapError> {
        let mut list = self.lock();
        if let Some(mapping) = list.iter().find(|mapping| mapping.range.overlaps(range)) {
            return Err(MapError::Occupied { range, mapped: mapping.range });
        }
        list.push(Mapping { range, base: memory, access });
        Ok(())
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        let mut list = self.lock();
        let place = list.iter().position(|mapping| mapping.range == range).ok_or(MapError::NotMapped { range })?;
        list.swap_remove(place);
        Ok(())
    }
}
