//! A GPU among the controllers of a machine, as `info` and `doctor` tell of it: which way a drive's bytes would go to its memory,
//! tried with some of it, and where it sits beside a controller.
//!
//! Nothing here prints, and nothing needs CUDA: whoever asks has opened the GPU, or has another [`Accelerator`].

mod pair;

use std::sync::Arc;

use tentpeg_driver::bus::{PciFunction, Sysfs};
use tentpeg_driver::dma::{AcceleratorMemory, Translation};
use tentpeg_driver::gpu::{
    Accelerator, GpuMemoryError, GpuPath, Obstacle, PlaceError, Placement, Rung, Wanted, WritesOrdering, climb, locate,
};
use tentpeg_driver::vfio::{self, Way};
use thiserror::Error;

pub(crate) use pair::{Pair, Port};

/// Bytes that ways are tried with.
const TRIED: usize = 1 << 20;

/// Why no way could be tried.
#[derive(Debug, Error)]
pub(crate) enum ProbeError {
    /// There was no memory to try them with.
    #[error(transparent)]
    Memory(#[from] GpuMemoryError),
    /// It was not found.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Memory of a GPU, to try ways to it.
pub(crate) struct Probe<'a> {
    gpu: &'a Arc<dyn Accelerator>,
    bar1_free: Option<u64>,
    placement: Placement,
    /// What the placement is of.
    _memory: Arc<dyn AcceleratorMemory>,
}

impl<'a> Probe<'a> {
    /// Takes some of the GPU's memory. `bar1_free`: bytes of BAR1 that are free, where that is known.
    ///
    /// # Errors
    /// [`ProbeError`].
    pub(crate) fn new(gpu: &'a Arc<dyn Accelerator>, bar1_free: Option<u64>) -> Result<Self, ProbeError> {
        let memory = Arc::clone(gpu).allocate(TRIED)?;
        let placement = locate(&**gpu, gpu.info().ordinal, memory.address(), memory.len())?;
        Ok(Self { gpu, bar1_free, placement, _memory: memory })
    }

    /// Tries every way, for a drive whose addresses are translated so.
    pub(crate) fn ways(&self, translation: Translation) -> Ways {
        let wanted = Wanted {
            placement: &self.placement,
            translation,
            bar1_free: self.bar1_free,
            bar1_left: None,
            visible_to: WritesOrdering::Owner,
        };
        Ways::of(&climb(&**self.gpu, wanted))
    }
}

/// The way that would be gone, and why each better one cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ways {
    pub(crate) used: GpuPath,
    pub(crate) closed: Vec<(GpuPath, Obstacle)>,
}

impl Ways {
    pub(crate) fn of(rungs: &[Rung]) -> Self {
        let used = rungs.iter().find(|rung| rung.obstacle.is_none()).map_or(GpuPath::Staged, |rung| rung.path);
        let closed = rungs.iter().map_while(|rung| Some((rung.path, rung.obstacle.clone()?)));
        Self { used, closed: closed.collect() }
    }

    /// Why each better one cannot be gone; `None`: there is no better one.
    pub(crate) fn reasons(&self) -> Option<String> {
        let reasons: Vec<_> = self.closed.iter().map(|(path, obstacle)| format!("{path}: {obstacle}")).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// What would translate a controller's addresses on this machine.
pub(crate) fn translation(sysfs: &Sysfs) -> Translation {
    match vfio::ways(sysfs).first() {
        Some(Way::Type1) => Translation::Type1,
        Some(Way::Iommufd) => Translation::Iommufd,
        None => Translation::Other,
    }
}

/// What would translate this controller's: nothing does where it has no IOMMU.
pub(crate) fn translation_of(sysfs: &Sysfs, controller: &PciFunction) -> Translation {
    controller.iommu_group.map_or(Translation::Other, |_| translation(sysfs))
}

#[cfg(test)]
mod tests;
