//! The memory of a rig: areas, each registered in its own way, each with slots for tasks.

use tentpeg_driver::dma::{DmaView, HostMemoryError};
use tentpeg_driver::model::SoftwareIommu;
use tentpeg_engine::{Engine, Memory, RegisterOptions};

use super::flight::SLOT;
use crate::own_memory::OwnMemory;

/// Areas of a rig.
pub(super) const AREAS: usize = 4;
/// Slots of an area.
pub(super) const SLOTS: usize = 6;
/// What memory is filled with that is not registered any more.
const REST: u8 = 0x3C;

/// Whose an area is, and how devices reach it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The engine allocates it.
    Allocated,
    /// The harness's own, where it lies; what is on no dword goes through staging.
    InPlace,
    /// The harness's own, out of the devices' reach: everything goes through staging.
    Staged,
}

const WAYS: [Way; AREAS] = [Way::Allocated, Way::InPlace, Way::Staged, Way::Allocated];

/// Memory for some tasks.
pub(super) struct Area {
    pub(super) way: Way,
    memory: Memory,
    own: Option<OwnMemory>,
    /// Until when it is not registered, in turns of the rig.
    pub(super) rests: Option<u64>,
}

impl Area {
    /// All areas of a rig, registered.
    pub(super) fn all(engine: &Engine, iommu: &SoftwareIommu) -> Result<Vec<Self>, String> {
        let new = |way: Way| {
            let own = (way != Way::Allocated).then(|| OwnMemory::new(SLOTS * SLOT)).transpose();
            let own = own.map_err(|error: HostMemoryError| error.to_string())?;
            let memory = register(engine, iommu, way, own.as_ref())?;
            Ok(Self { way, memory, own, rests: None })
        };
        WAYS.into_iter().map(new).collect()
    }

    pub(super) fn view(&self) -> DmaView<'_> {
        self.own.as_ref().map_or_else(|| self.memory.view(), OwnMemory::view)
    }

    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Whether a request's memory need not be on a dword.
    pub(super) fn takes_any_byte(&self) -> bool {
        self.way != Way::Allocated
    }

    /// A handle, to unregister it by.
    pub(super) fn memory(&self) -> Memory {
        self.memory.clone()
    }

    /// It was unregistered: from now on nothing may touch it until the turn `until`.
    pub(super) fn rest(&mut self, until: u64) {
        self.view().fill(REST);
        self.rests = Some(until);
    }

    /// Registers it again, where it has rested for long enough. Whether it has.
    pub(super) fn wake(&mut self, engine: &Engine, iommu: &SoftwareIommu, now: u64) -> Result<bool, String> {
        if self.rests.is_none_or(|until| now < until) {
            return Ok(false);
        }
        let mut bytes = vec![0; self.view().len()];
        self.view().read(0, &mut bytes);
        if let Some(at) = bytes.iter().position(|byte| *byte != REST) {
            let way = self.way;
            return Err(format!("memory of the kind {way:?} was written at {at:#x} after it had been unregistered"));
        }
        self.memory = register(engine, iommu, self.way, self.own.as_ref())?;
        self.rests = None;
        Ok(true)
    }
}

fn register(engine: &Engine, iommu: &SoftwareIommu, way: Way, own: Option<&OwnMemory>) -> Result<Memory, String> {
    let Some(own) = own else { return engine.allocate_memory(SLOTS * SLOT).map_err(|error| error.to_string()) };
    let part = own.part(0, SLOTS * SLOT).map_err(|error| error.to_string())?;
    if way == Way::Staged {
        // No room for one more. What the buffers need is there since the first registration.
        iommu.limit_mappings(iommu.mappings());
    }
    let options = RegisterOptions { staging: true, ..RegisterOptions::default() };
    let memory = engine.register_memory(part, options).map_err(|error| error.to_string());
    iommu.limit_mappings(usize::MAX);
    let memory = memory?;
    match memory.staged().is_some() == (way == Way::Staged) {
        true => Ok(memory),
        false => Err(format!("memory of the kind {way:?} says of staging: {:?}", memory.staged())),
    }
}
