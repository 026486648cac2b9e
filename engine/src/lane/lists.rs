//! Lists of ranges, one range each, for the Dataset Management commands of a port.

use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::dma::{Access, HostMemory, Region};
use tentpeg_driver::queue::{Limits, RangeError, RangeList};
use tentpeg_driver::spec::command::DatasetManagementRange;

use crate::memory::MemoryError;

const RANGE: usize = size_of::<DatasetManagementRange>();

/// Room for as many lists as there can be commands in flight.
pub(super) struct Lists {
    region: Region<HostMemory>,
    free: Vec<u16>,
}

impl Lists {
    pub(super) fn new(function: &Arc<dyn Function>, count: usize) -> Result<Self, MemoryError> {
        let memory = HostMemory::allocate(count * RANGE)?;
        let region = function.dma().register(memory, Access::DEVICE_READS)?;
        Ok(Self { region, free: (0..count as u16).rev().collect() })
    }

    /// Writes a list of one range. Its number, to be given back, and where it lies. `None`: all are in use.
    pub(super) fn write(
        &mut self,
        limits: &Limits,
        slba: u64,
        blocks: u64,
    ) -> Option<Result<(u16, RangeList), RangeError>> {
        let number = *self.free.last()?;
        let lengthlb = u32::try_from(blocks).unwrap_or(u32::MAX);
        let range = DatasetManagementRange { cattr: 0, lengthlb, slba };
        let offset = usize::from(number) * RANGE;
        let list = RangeList::write(limits, &[range], &self.region, offset as u64);
        Some(list.map(|list| {
            self.free.pop();
            (number, list)
        }))
    }

    /// No command names that list any more.
    pub(super) fn give_back(&mut self, number: u16) {
        self.free.push(number);
    }
}
