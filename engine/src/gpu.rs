//! The GPU of an engine: whose memory its requests can name, and which way their bytes take.
//!
//! An engine knows one GPU at the most, as an [`Accelerator`]; what of CUDA there is stays behind that. The way is chosen
//! once, when memory is registered, from what the devices are: by the movers of models, or by what the ladder of the driver
//! ([`climb`]) says of drives. On the way of a request nothing knows of any of this: a region is a region.

mod words;

use std::fmt;
use std::sync::Arc;

use tentpeg_driver::dma::{AcceleratorMemory, Access, DmaSpace};
use tentpeg_driver::gpu::{
    Accelerator, CallerGpuMemory, GpuPath, GpuPaths, NoPath, Obstacle, PlaceError, Placement, Rung, Translation,
    Wanted, choose, climb, locate,
};

pub use words::{GpuSeries, GpuWords, GpuWordsError, WrongWords};

use crate::memory::{GpuHome, GpuRegion, Memory, MemoryError};

/// The GPU that an engine is opened with.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// The GPU.
    pub accelerator: Arc<dyn Accelerator>,
    /// Which ways its memory may be reached. Where none of those that are allowed is free, registering is refused with all
    /// reasons; without a direct one models have no mover.
    pub paths: GpuPaths,
}

impl GpuOptions {
    /// Any way to the memory of `accelerator`.
    pub fn new(accelerator: Arc<dyn Accelerator>) -> Self {
        Self { accelerator, paths: GpuPaths::all() }
    }

    /// Whether models are to be made with a mover, where they can.
    pub(crate) fn moves(&self) -> bool {
        self.paths.intersects(GpuPaths::DIRECT)
    }

    /// Whether a device that does not reach the GPU may be used all the same.
    pub(crate) fn stages(&self) -> bool {
        self.paths.contains(GpuPaths::STAGED)
    }

    /// The GPU, as messages have it.
    pub(crate) fn name(&self) -> String {
        let info = self.accelerator.info();
        format!("GPU {} ({})", info.ordinal, info.name)
    }
}

/// The way that the bytes of registered memory take, chosen when it was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryPath {
    /// Host memory, which the devices reach.
    Host,
    /// Host memory that they do not reach: through staging buffers, copied by the processor.
    HostStaged {
        /// Why they do not.
        reason: String,
    },
    /// GPU memory that the devices, models all of them, reach by movers.
    GpuByMover {
        /// The GPU.
        gpu: String,
    },
    /// GPU memory by one of the ways of the driver's ladder.
    Gpu {
        /// The GPU.
        gpu: String,
        /// Which.
        path: GpuPath,
    },
}

impl fmt::Display for MemoryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("host memory, direct"),
            Self::HostStaged { reason } => write!(f, "host memory, staged: {reason}"),
            Self::GpuByMover { gpu } => write!(f, "{gpu}, direct by the model's mover"),
            Self::Gpu { gpu, path } => write!(f, "{gpu}, {path}"),
        }
    }
}

/// What an engine knows of its GPU and its devices.
#[derive(Debug)]
pub(crate) struct EngineGpu {
    pub(crate) options: GpuOptions,
    /// Whether all devices are models with a mover.
    pub(crate) moved: bool,
    /// What translates the addresses of the devices.
    pub(crate) translation: Translation,
}

impl EngineGpu {
    /// Allocates memory of the GPU, and finds its way.
    pub(crate) fn allocate(&self, space: &Arc<DmaSpace>, len: usize) -> Result<Memory, MemoryError> {
        let accelerator = &self.options.accelerator;
        let memory = Arc::clone(accelerator).allocate(len)?;
        let placement = locate(&**accelerator, accelerator.info().ordinal, memory.address(), memory.len())?;
        let path = self.choose(&placement)?;
        let range = (memory.address(), memory.len());
        let region = self.map(space, &memory, &path, Access::all())?;
        let home = GpuHome::new(region, memory, (0, path), None);
        Ok(Memory::of_gpu(range, Access::all(), home))
    }

    /// Finds the caller's memory.
    pub(crate) fn locate(&self, memory: &CallerGpuMemory) -> Result<Placement, PlaceError> {
        let accelerator = &self.options.accelerator;
        memory.locate(&**accelerator, accelerator.info().ordinal)
    }

    /// Finds the way to the caller's memory, which lies there.
    pub(crate) fn register(
        &self,
        space: &Arc<DmaSpace>,
        (memory, placement): (CallerGpuMemory, Placement),
        access: Access,
    ) -> Result<Memory, MemoryError> {
        let path = self.choose(&placement)?;
        let range = (memory.address(), memory.len());
        let pages = memory.pages(&placement, space.page_size())?;
        let before = pages.before();
        let memory: Arc<dyn AcceleratorMemory> = Arc::new(pages);
        let region = self.map(space, &memory, &path, access)?;
        let home = GpuHome::new(region, memory, (before, path), Some(placement));
        Ok(Memory::of_gpu(range, access, home))
    }

    /// Maps memory for the devices; not where it is staged, as they do not reach it.
    fn map(
        &self,
        space: &Arc<DmaSpace>,
        memory: &Arc<dyn AcceleratorMemory>,
        path: &MemoryPath,
        access: Access,
    ) -> Result<Option<GpuRegion>, MemoryError> {
        match path {
            MemoryPath::Gpu { path: GpuPath::Staged, .. } => Ok(None),
            _ => Ok(Some(space.register_accelerator(Arc::clone(memory), access)?)),
        }
    }

    /// What copies between staging buffers and the GPU, where its memory may be staged.
    pub(crate) fn stager(&self) -> Option<&Arc<dyn Accelerator>> {
        (self.options.stages() && !self.moved).then_some(&self.options.accelerator)
    }

    /// What writes and compares words of memory that was allocated here.
    pub(crate) fn words(&self, memory: &Memory) -> Result<GpuWords, GpuWordsError> {
        GpuWords::new(self, memory)
    }

    /// The best way to that memory which is allowed and free.
    fn choose(&self, placement: &Placement) -> Result<MemoryPath, NoPath> {
        let gpu = self.options.name();
        if self.moved {
            return Ok(MemoryPath::GpuByMover { gpu });
        }
        let wanted = Wanted { placement, translation: self.translation, bar1_free: None };
        // Of the direct ones, what the ladder finds free is not gone by this version.
        let rungs = climb(&*self.options.accelerator, wanted).map(|Rung { path, obstacle }| {
            let not_made = (path != GpuPath::Staged).then_some(Obstacle::NotMade);
            Rung { path, obstacle: obstacle.or(not_made) }
        });
        choose(&rungs, self.options.paths).map(|path| MemoryPath::Gpu { gpu, path })
    }
}
