//! GPU memory that devices reach by themselves: through BAR1, by a mapping or a dma-buf.
//!
//! Three things are owned here, and given up in the one safe order (invariant 3): what exposes the memory, a mapping of
//! BAR1 or a dma-buf; the keeper's duplicate of its descriptor, without which the GPU could be told that its memory is free
//! while a controller of a killed process still writes there; and the memory. The mapping in the IOMMU is not: a
//! [`Region`](crate::dma::Region) is made of a [`DirectMemory`], and ends its own first.
//!
//! Which way is open is the ladder's to say ([`climb`](super::climb)).

mod bar;
mod gdrdrv;

use std::os::fd::AsFd;
use std::sync::Arc;

pub use bar::{BarMapping, DmaBuf};
pub(super) use gdrdrv::{GDRDRV_WITH_ATTRIBUTES, ask, pin};

use super::ladder::{GpuPath, Obstacle, PathProbe};
use crate::dma::{AcceleratorMemory, Exposure};
use crate::keeper::{Keeper, Kept};

/// GPU memory, and what exposes it.
pub struct DirectMemory {
    // In this order they are dropped.
    exposed: Exposed,
    _kept: Option<Kept>,
    memory: Arc<dyn AcceleratorMemory>,
}

enum Exposed {
    Mapping(BarMapping),
    DmaBuf(DmaBuf),
}

impl DirectMemory {
    /// Exposes `memory`, whole pages of [`GPU_PAGE`](super::GPU_PAGE) bytes, by a direct way; `None`: [`GpuPath::Staged`]
    /// exposes nothing. Where a controller outlives this process, as drives do, `keeper` holds what has to outlive it with it.
    ///
    /// # Errors
    /// What is in the way; nothing is left exposed then.
    pub fn new(
        probe: &dyn PathProbe,
        path: GpuPath,
        memory: Arc<dyn AcceleratorMemory>,
        keeper: Option<&Keeper>,
    ) -> Result<Option<Self>, Obstacle> {
        let (address, len) = (memory.address(), memory.len());
        let export = || probe.export(address, len).map_err(Obstacle::Export);
        let exposed = match path {
            GpuPath::DmaBufMmap => {
                let mapping = probe.map(export()?, len).map_err(|errno| Obstacle::Mmap { errno })?;
                Exposed::Mapping(mapping)
            }
            GpuPath::Gdrdrv => Exposed::Mapping(probe.pin(address, len).map_err(|errno| Obstacle::Pin { errno })?),
            GpuPath::Iommufd => Exposed::DmaBuf(export()?),
            GpuPath::Staged => return Ok(None),
        };
        if let Exposed::Mapping(mapping) = &exposed
            && mapping.len() as u64 != len
        {
            // What lies behind a shorter one is not the GPU's.
            return Err(Obstacle::Mmap { errno: libc::EINVAL });
        }
        let kept = keeper.map(|keeper| {
            let descriptor = match &exposed {
                Exposed::Mapping(mapping) => mapping.descriptor(),
                Exposed::DmaBuf(dma_buf) => dma_buf.file.as_fd(),
            };
            keeper.keep(descriptor).map_err(|error| Obstacle::Keeper { reason: error.to_string() })
        });
        Ok(Some(Self { exposed, _kept: kept.transpose()?, memory }))
    }
}

// SAFETY: the memory is held, and is its owner's to promise; the mapping is of all of it, as long, and is dropped after the
// region that was made of this has ended; the dma-buf was exported of all of it. Nobody makes a reference to either.
unsafe impl AcceleratorMemory for DirectMemory {
    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn exposure(&self) -> Exposure<'_> {
        match &self.exposed {
            Exposed::Mapping(mapping) => Exposure::Mapping(mapping.base()),
            Exposed::DmaBuf(DmaBuf { file, offset }) => Exposure::DmaBuf(file.as_fd(), *offset),
        }
    }
}

#[cfg(test)]
mod tests;
