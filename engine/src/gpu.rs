//! The GPU of an engine: whose memory its requests can name, and which way their bytes take.
//!
//! An engine knows one GPU at the most, as an [`Accelerator`]; what of CUDA there is stays behind that. The way is chosen
//! once, when memory is registered, from what the devices are: by the movers of models, or by what the ladder of the driver
//! ([`climb`]) says of drives. On the way of a request nothing knows of any of this: a region is a region. What devices
//! write straight into memory that has to be flushed is the lanes' to flush ([`Visibility`]), and whether a way leads where it
//! should is proved with data ([`proof`]).

pub(crate) mod proof;
mod visibility;
mod words;

use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use tentpeg_driver::dma::{AcceleratorMemory, Access, DmaSpace, Translation};
use tentpeg_driver::gpu::{
    Accelerator, CallerGpuMemory, DirectMemory, GPU_PAGE, GpuPath, GpuPaths, Obstacle, PathProbe, PlaceError,
    Placement, Rung, Wanted, WritesOrdering, choose, climb, locate,
};
use tentpeg_driver::keeper::{self, Keeper};

pub use proof::{GpuProof, Moved, ProofError, Proving, ProvingError};
pub(crate) use visibility::Visibility;
pub use words::{GpuSeries, GpuWords, GpuWordsError, WrongWords};

use crate::memory::{GpuHome, GpuOrigin, GpuRegion, Memory, MemoryError};

/// The GPU that an engine is opened with.
#[derive(Debug, Clone)]
pub struct GpuOptions {
    /// The GPU.
    pub accelerator: Arc<dyn Accelerator>,
    /// Which ways its memory may be reached. Where none of those that are allowed is free, registering is refused with all
    /// reasons; without a direct one models have no mover.
    pub paths: GpuPaths,
    /// Bytes of BAR1 that what the engine maps of it may have in all; `None`: all that is free.
    pub bar1: Option<u64>,
    /// Who is to see what devices have written when a task is COMPLETED. Where the GPU does not order their writes for these,
    /// a lane flushes before it says so.
    pub visible_to: WritesOrdering,
    /// Whether direct ways are proved with data when memory is registered.
    pub proving: Proving,
    /// The program that holds a GPU's memory until this process is gone with the drives' descriptors, where drives write
    /// there directly.
    pub keeper: PathBuf,
}

impl GpuOptions {
    /// Any way to the memory of `accelerator`, proved where that can be, for readers on the GPU itself. The keeper is
    /// looked for beside this program.
    pub fn new(accelerator: Arc<dyn Accelerator>) -> Self {
        let folder = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
        Self {
            accelerator,
            paths: GpuPaths::all(),
            bar1: None,
            visible_to: WritesOrdering::Owner,
            proving: Proving::default(),
            keeper: folder.unwrap_or_default().join(keeper::PROGRAM),
        }
    }

    /// Whether models are to be made with a mover, where they can: unless one way was asked for that they have not.
    pub(crate) fn moves(&self) -> bool {
        self.paths.contains(GpuPaths::DIRECT)
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
    options: GpuOptions,
    /// Whether all devices are models with a mover.
    moved: bool,
    /// What translates the addresses of the devices.
    translation: Translation,
    visibility: Option<Arc<Visibility>>,
    /// Started when the first drive is to reach the GPU.
    keeper: Mutex<Option<Keeper>>,
}

impl EngineGpu {
    pub(crate) fn new(options: GpuOptions, moved: bool, translation: Translation) -> Self {
        let flushes = !moved && options.accelerator.info().needs_flush(options.visible_to);
        let visibility = flushes.then(|| Visibility::new(Arc::clone(&options.accelerator), options.visible_to));
        Self { options, moved, translation, visibility, keeper: Mutex::default() }
    }

    /// What lanes flush by, where what devices write has to be flushed.
    pub(crate) fn visibility(&self) -> Option<&Arc<Visibility>> {
        self.visibility.as_ref()
    }

    /// The GPU.
    pub(crate) fn accelerator(&self) -> &Arc<dyn Accelerator> {
        &self.options.accelerator
    }

    /// Whether its memory is proved when it is registered.
    pub(crate) fn proving(&self) -> Proving {
        self.options.proving
    }

    /// Allocates memory of the GPU, and finds its way. `mapped` bytes of BAR1 are the engine's already.
    pub(crate) fn allocate(&self, space: &Arc<DmaSpace>, len: usize, mapped: u64) -> Result<Memory, MemoryError> {
        let accelerator = self.accelerator();
        let memory = Arc::clone(accelerator).allocate(len)?;
        let placement = locate(&**accelerator, accelerator.info().ordinal, memory.address(), memory.len())?;
        let range = (memory.address(), memory.len());
        let (path, region) = self.open(space, (&memory, &placement), Access::all(), mapped)?;
        let origin = GpuOrigin::Allocated(Arc::clone(accelerator));
        Ok(Memory::of_gpu(range, Access::all(), GpuHome::new(region, memory, (0, path), origin)))
    }

    /// Finds the caller's memory.
    pub(crate) fn locate(&self, memory: &CallerGpuMemory) -> Result<Placement, PlaceError> {
        let accelerator = self.accelerator();
        memory.locate(&**accelerator, accelerator.info().ordinal)
    }

    /// Finds the way to the caller's memory, which lies there.
    pub(crate) fn register(
        &self,
        space: &Arc<DmaSpace>,
        (memory, placement): (CallerGpuMemory, Placement),
        access: Access,
        mapped: u64,
    ) -> Result<Memory, MemoryError> {
        let range = (memory.address(), memory.len());
        // Devices are given whole pages: of BAR1, or of a mover's table. Copies need none.
        let page = if self.moved { space.page_size() } else { GPU_PAGE };
        let pages = match memory.pages(&placement, page) {
            Ok(pages) => pages,
            // Which is in every direct way, by the ladder.
            Err(_) if !self.moved => memory.pages(&placement, 1)?,
            pages => pages?,
        };
        let before = pages.before();
        let memory: Arc<dyn AcceleratorMemory> = Arc::new(pages);
        let (path, region) = self.open(space, (&memory, &placement), access, mapped)?;
        let before = if region.is_some() { before } else { 0 };
        Ok(Memory::of_gpu(range, access, GpuHome::new(region, memory, (before, path), GpuOrigin::Caller(placement))))
    }

    /// What copies between staging buffers and the GPU, where its memory may be staged.
    pub(crate) fn stager(&self) -> Option<&Arc<dyn Accelerator>> {
        (self.options.stages() && !self.moved).then_some(self.accelerator())
    }

    /// What writes and compares words of memory that was allocated here.
    pub(crate) fn words(&self, memory: &Memory) -> Result<GpuWords, GpuWordsError> {
        GpuWords::new(self, memory)
    }

    /// What is in the way of each way.
    fn rungs(&self, placement: &Placement, mapped: u64) -> [Rung; 4] {
        let accelerator = self.accelerator();
        let bar1_left = self.options.bar1.map(|most| most.saturating_sub(mapped));
        let bar1_free = accelerator.bar1_free();
        let Self { translation, options: GpuOptions { visible_to, .. }, .. } = *self;
        climb(&**accelerator, Wanted { placement, translation, bar1_free, bar1_left, visible_to })
    }

    /// Goes the best way that is allowed and free; where it proves not to be, when all of the memory has gone it, the next.
    fn open(
        &self,
        space: &Arc<DmaSpace>,
        (memory, placement): (&Arc<dyn AcceleratorMemory>, &Placement),
        access: Access,
        mapped: u64,
    ) -> Result<(MemoryPath, Option<GpuRegion>), MemoryError> {
        let gpu = self.options.name();
        if self.moved {
            let region = space.register_accelerator(Arc::clone(memory), access)?;
            return Ok((MemoryPath::GpuByMover { gpu }, Some(region)));
        }
        let mut rungs = self.rungs(placement, mapped);
        loop {
            let path = choose(&rungs, self.allowed())?;
            match self.reach(space, path, memory, access) {
                Ok(region) => return Ok((MemoryPath::Gpu { gpu, path }, region)),
                Err(obstacle) => {
                    for rung in rungs.iter_mut().filter(|rung| rung.path == path) {
                        rung.obstacle = Some(obstacle.clone());
                    }
                }
            }
        }
    }

    /// The ways that may be gone. A model without a mover copies by the processor, for which reading BAR1 is far slower than
    /// staging: it does where nothing else is allowed.
    fn allowed(&self) -> GpuPaths {
        match self.translation {
            Translation::Process if self.options.stages() => GpuPaths::STAGED,
            _ => self.options.paths,
        }
    }

    /// Has the devices reach memory in one way; they do not where it is staged.
    fn reach(
        &self,
        space: &Arc<DmaSpace>,
        path: GpuPath,
        memory: &Arc<dyn AcceleratorMemory>,
        access: Access,
    ) -> Result<Option<GpuRegion>, Obstacle> {
        // A model ends with this process, and reaches nothing then.
        let keeper = match (path, self.translation) {
            (GpuPath::Staged, _) | (_, Translation::Process | Translation::Other) => None,
            (_, Translation::Type1 | Translation::Iommufd) => Some(self.keeper()?),
        };
        let probe: &dyn PathProbe = &**self.accelerator();
        let direct = DirectMemory::new(probe, path, Arc::clone(memory), keeper.as_ref());
        if let Err(Obstacle::Keeper { .. }) = &direct {
            // Whoever comes next starts another.
            *self.keeper.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        let Some(direct) = direct? else { return Ok(None) };
        let direct: Arc<dyn AcceleratorMemory> = Arc::new(direct);
        let region = space.register_accelerator(direct, access).map_err(Obstacle::Register)?;
        if let Some(visibility) = &self.visibility
            && access.contains(Access::DEVICE_WRITES)
        {
            visibility.add(region.range());
        }
        Ok(Some(region))
    }

    /// Memory was taken back: no device reaches it any more.
    pub(crate) fn forget(&self, memory: &Memory) {
        if let (Some(visibility), Some(range)) = (&self.visibility, memory.iovas())
            && memory.is_gpu()
        {
            visibility.remove(range);
        }
    }

    /// The keeper, which one registration starts for all.
    fn keeper(&self) -> Result<Keeper, Obstacle> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = &*keeper {
            return Ok(keeper.clone());
        }
        let started = Keeper::start(Command::new(&self.options.keeper));
        let started = started.map_err(|error| Obstacle::Keeper { reason: error.to_string() })?;
        Ok(keeper.insert(started).clone())
    }
}
