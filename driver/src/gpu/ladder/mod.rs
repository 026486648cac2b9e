//! The ways by which a device's bytes can come to GPU memory, best first, and why each better one cannot be gone.
//!
//! Direct ways need a CPU mapping of the GPU's BAR1 that the IOMMU maps (type1), or a dma-buf that it imports (iommufd).
//! Which there is depends on driver, kernel and module, so it is tried, not deduced: [`climb`] goes from rung to rung
//! with memory that is to be registered, and leaves each with what is in its way. Which rungs may be stood on is the
//! caller's to say ([`GpuPaths`]); the choice is made once, when memory is registered, and never changes by itself.

mod probe;

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;
use thiserror::Error;

use super::device::{GpuInfo, WritesOrdering};
use super::direct::{BarMapping, DmaBuf, GDRDRV_WITH_ATTRIBUTES};
use super::error::CudaError;
use super::library::CudaVersion;
use super::memory::GPU_PAGE;
use super::provider::{PlaceError, Placement};
use crate::dma::{RegisterError, Translation};

/// A way to GPU memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuPath {
    /// Direct: the dma-buf is mapped by this process, and the mapping by type1.
    DmaBufMmap,
    /// Direct: gdrdrv pins and maps, and type1 maps that.
    Gdrdrv,
    /// Direct: iommufd imports the dma-buf.
    Iommufd,
    /// Through pinned host memory, by a copy of the GPU's.
    Staged,
}

impl GpuPath {
    /// All of them, best first.
    pub const ALL: [Self; 4] = [Self::DmaBufMmap, Self::Gdrdrv, Self::Iommufd, Self::Staged];

    fn bit(self) -> GpuPaths {
        match self {
            Self::DmaBufMmap => GpuPaths::DMA_BUF_MMAP,
            Self::Gdrdrv => GpuPaths::GDRDRV,
            Self::Iommufd => GpuPaths::IOMMUFD,
            Self::Staged => GpuPaths::STAGED,
        }
    }
}

impl fmt::Display for GpuPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DmaBufMmap => "direct by dma-buf mmap",
            Self::Gdrdrv => "direct by gdrdrv",
            Self::Iommufd => "direct by iommufd",
            Self::Staged => "staged",
        })
    }
}

bitflags! {
    /// Ways that may be gone. From text: `auto`, `direct`, `staged`, `dma-buf`, `gdrdrv`, `iommufd`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct GpuPaths: u8 {
        /// [`GpuPath::DmaBufMmap`].
        const DMA_BUF_MMAP = 1;
        /// [`GpuPath::Gdrdrv`].
        const GDRDRV = 2;
        /// [`GpuPath::Iommufd`].
        const IOMMUFD = 4;
        /// [`GpuPath::Staged`].
        const STAGED = 8;
        /// Every direct one: staging is refused.
        const DIRECT = 7;
    }
}

/// The text names no way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no way to GPU memory: it must be auto, direct, staged, dma-buf, gdrdrv or iommufd")]
pub struct GpuPathsError {
    /// The text.
    pub text: String,
}

impl FromStr for GpuPaths {
    type Err = GpuPathsError;

    fn from_str(text: &str) -> Result<Self, GpuPathsError> {
        Ok(match text {
            "auto" => Self::all(),
            "direct" => Self::DIRECT,
            "staged" => Self::STAGED,
            "dma-buf" => Self::DMA_BUF_MMAP,
            "gdrdrv" => Self::GDRDRV,
            "iommufd" => Self::IOMMUFD,
            _ => return Err(GpuPathsError { text: text.to_owned() }),
        })
    }
}

/// gdrdrv's version as its module has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GdrdrvVersion {
    /// The first number.
    pub major: u16,
    /// The second.
    pub minor: u16,
}

impl fmt::Display for GdrdrvVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What gdrdrv says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gdrdrv {
    /// Its version.
    pub version: GdrdrvVersion,
    /// Whether its mappings outlive the memory they are of. `None`: too old to be asked.
    pub persistent: Option<bool>,
}

/// What is in the way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Obstacle {
    /// The GPU cannot.
    #[error("this GPU lets no other device reach its memory")]
    NoRdma,
    /// The memory was allocated without.
    #[error(
        "this memory was allocated so that no other device reaches it: use cuMemAlloc, or cuMemCreate with \
         gpuDirectRDMACapable; memory pools give none"
    )]
    NotRdmaCapable,
    /// The functions are translated in another way.
    #[error("the device's addresses are translated by {have}, and this needs {need}")]
    Translation {
        /// What they are translated by.
        have: Translation,
        /// What it would need.
        need: Translation,
    },
    /// There is no room in BAR1.
    #[error("{wanted} bytes do not fit BAR1, of which {free} are free: register less, or enable a larger BAR1")]
    BarFull {
        /// Bytes of whole GPU pages that the memory covers.
        wanted: u64,
        /// Bytes free.
        free: u64,
    },
    /// There would be room in BAR1, and no more of it may be taken.
    #[error(
        "{wanted} bytes do not fit into the {left} that are left of the budget of BAR1: register less, or raise it"
    )]
    Budget {
        /// Bytes of whole GPU pages that the memory covers.
        wanted: u64,
        /// Bytes left.
        left: u64,
    },
    /// The driver exports no dma-bufs.
    #[error("the driver exports no dma-bufs: it needs the open kernel modules")]
    NoDmaBuf,
    /// The export failed.
    #[error("the export as a dma-buf failed: {0}")]
    Export(CudaError),
    /// The driver's dma-bufs cannot be mapped by a process.
    #[error("the driver, for CUDA {driver}, does not let a process map its dma-bufs: those for 13.3 and newer may")]
    NoMmap {
        /// The driver's CUDA.
        driver: CudaVersion,
    },
    /// Nobody would know when a device's writes are there.
    #[error(
        "writes of other devices are ordered for {have} on this GPU, {need} was asked for, and the host cannot flush them"
    )]
    NoFlush {
        /// For whom they are.
        have: WritesOrdering,
        /// For whom they are to be.
        need: WritesOrdering,
    },
    /// It has no whole pages.
    #[error("{0}")]
    Pages(PlaceError),
    /// The keeper does not hold it, so a killed process could have the GPU's memory written to after its end.
    #[error("{reason}")]
    Keeper {
        /// What is wrong with the keeper.
        reason: String,
    },
    /// The whole of the memory was not mapped for the devices.
    #[error("{0}")]
    Register(RegisterError),
    /// The mapping failed.
    #[error("the mapping of the dma-buf failed: errno {errno}")]
    Mmap {
        /// The kernel's reason.
        errno: i32,
    },
    /// gdrdrv does not pin it.
    #[error("gdrdrv does not pin and map the memory: errno {errno}")]
    Pin {
        /// The kernel's reason.
        errno: i32,
    },
    /// There is no gdrdrv.
    #[error("/dev/gdrdrv cannot be opened (errno {errno}): install gdrcopy 2.5 or newer and load its module")]
    NoGdrdrv {
        /// The kernel's reason.
        errno: i32,
    },
    /// gdrdrv is too old to say whether its mappings persist.
    #[error("gdrdrv {have} cannot say whether its mappings persist: {need} or newer can", need = GDRDRV_WITH_ATTRIBUTES)]
    GdrdrvTooOld {
        /// Its version.
        have: GdrdrvVersion,
    },
    /// gdrdrv's mappings go when the memory is freed.
    #[error(
        "gdrdrv's mappings end with the memory, under a device that still writes: load it with use_persistent_mapping=1"
    )]
    GdrdrvNotPersistent,
    /// iommufd does not import the dma-buf.
    #[error(
        "iommufd does not import the dma-buf (errno {errno}): that needs Linux 6.19, and an exporter that it knows"
    )]
    Import {
        /// The kernel's reason.
        errno: i32,
    },
}

/// One way, and what is in the way of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rung {
    /// The way.
    pub path: GpuPath,
    /// What is in the way, if anything is.
    pub obstacle: Option<Obstacle>,
}

/// How it is found out what can be done: the machine, or a fake in its place.
pub trait PathProbe {
    /// The GPU.
    fn info(&self) -> &GpuInfo;

    /// The driver's CUDA.
    fn driver(&self) -> CudaVersion;

    /// Exports `len` bytes at `address`, both multiples of a page, as a dma-buf.
    ///
    /// # Errors
    /// [`CudaError`].
    fn export(&self, address: u64, len: u64) -> Result<DmaBuf, CudaError>;

    /// Maps a dma-buf of `len` bytes.
    ///
    /// # Errors
    /// The kernel's errno.
    fn map(&self, dma_buf: DmaBuf, len: u64) -> Result<BarMapping, i32>;

    /// Has gdrdrv pin `len` bytes at `address`, whole GPU pages, and maps them.
    ///
    /// # Errors
    /// The kernel's errno.
    fn pin(&self, address: u64, len: u64) -> Result<BarMapping, i32>;

    /// Has iommufd import a dma-buf of `len` bytes, and gives it up.
    ///
    /// # Errors
    /// The kernel's errno.
    fn import(&self, dma_buf: &DmaBuf, len: u64) -> Result<(), i32>;

    /// Asks gdrdrv.
    ///
    /// # Errors
    /// The kernel's errno.
    fn gdrdrv(&self) -> Result<Gdrdrv, i32>;

    /// Bytes of BAR1 that nobody has mapped, where that is known.
    fn bar1_free(&self) -> Option<u64>;
}

/// What is asked of every rung.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The memory.
    pub placement: &'a Placement,
    /// What translates the addresses of the functions that are to reach it.
    pub translation: Translation,
    /// Bytes of BAR1 that nobody has mapped, where that is known.
    pub bar1_free: Option<u64>,
    /// Bytes of BAR1 that may still be mapped, of a budget.
    pub bar1_left: Option<u64>,
    /// Who is to see what devices have written, after a flush if need be.
    pub visible_to: WritesOrdering,
}

/// Tries every rung. The last, staged, is always free.
pub fn climb(probe: &dyn PathProbe, wanted: Wanted<'_>) -> [Rung; 4] {
    GpuPath::ALL.map(|path| Rung { path, obstacle: try_rung(probe, wanted, path).err() })
}

fn try_rung(probe: &dyn PathProbe, wanted: Wanted<'_>, path: GpuPath) -> Result<(), Obstacle> {
    let need = match path {
        GpuPath::Staged => return Ok(()),
        GpuPath::DmaBufMmap | GpuPath::Gdrdrv => Translation::Type1,
        GpuPath::Iommufd => Translation::Iommufd,
    };
    // What type1 maps, a model reaches, too.
    let fits = wanted.translation == need || (wanted.translation, need) == (Translation::Process, Translation::Type1);
    if !probe.info().rdma {
        return Err(Obstacle::NoRdma);
    }
    if !wanted.placement.rdma_capable() {
        return Err(Obstacle::NotRdmaCapable);
    }
    if !fits {
        return Err(Obstacle::Translation { have: wanted.translation, need });
    }
    let Placement { address, len, .. } = *wanted.placement;
    let covered = covered(wanted.placement);
    if !wanted.placement.holds(first_page(wanted.placement), covered) {
        return Err(Obstacle::Pages(PlaceError::Pages { address, len, page: GPU_PAGE }));
    }
    if let Some(free) = wanted.bar1_free.filter(|free| *free < covered) {
        return Err(Obstacle::BarFull { wanted: covered, free });
    }
    if let Some(left) = wanted.bar1_left.filter(|left| *left < covered) {
        return Err(Obstacle::Budget { wanted: covered, left });
    }
    let GpuInfo { writes_ordering: have, host_flush, .. } = *probe.info();
    if have < wanted.visible_to && !host_flush {
        return Err(Obstacle::NoFlush { have, need: wanted.visible_to });
    }
    match path {
        GpuPath::Gdrdrv => try_gdrdrv(probe, wanted.placement),
        GpuPath::DmaBufMmap => {
            if probe.info().dma_buf_mmap != Some(true) && probe.info().dma_buf {
                return Err(Obstacle::NoMmap { driver: probe.driver() });
            }
            let (dma_buf, len) = export(probe, wanted.placement)?;
            probe.map(dma_buf, len).map(drop).map_err(|errno| Obstacle::Mmap { errno })
        }
        _ => {
            let (dma_buf, len) = export(probe, wanted.placement)?;
            probe.import(&dma_buf, len).map_err(|errno| Obstacle::Import { errno })
        }
    }
}

/// gdrdrv is used only where its mappings persist: else a device could write to memory that is somebody else's by then,
/// and no copy of a descriptor would prevent it (invariant 3).
fn try_gdrdrv(probe: &dyn PathProbe, placement: &Placement) -> Result<(), Obstacle> {
    let gdrdrv = probe.gdrdrv().map_err(|errno| Obstacle::NoGdrdrv { errno })?;
    match gdrdrv.persistent {
        None => Err(Obstacle::GdrdrvTooOld { have: gdrdrv.version }),
        Some(false) => Err(Obstacle::GdrdrvNotPersistent),
        Some(true) => {
            let pinned = probe.pin(first_page(placement), GPU_PAGE);
            pinned.map(drop).map_err(|errno| Obstacle::Pin { errno })
        }
    }
}

/// Exports a GPU page of the memory, enough to try with.
fn export(probe: &dyn PathProbe, placement: &Placement) -> Result<(DmaBuf, u64), Obstacle> {
    if !probe.info().dma_buf {
        return Err(Obstacle::NoDmaBuf);
    }
    probe.export(first_page(placement), GPU_PAGE).map(|dma_buf| (dma_buf, GPU_PAGE)).map_err(Obstacle::Export)
}

/// The GPU page that the memory begins in.
fn first_page(placement: &Placement) -> u64 {
    placement.address / GPU_PAGE * GPU_PAGE
}

/// Bytes of the whole GPU pages that the memory covers.
fn covered(placement: &Placement) -> u64 {
    let end = placement.address.saturating_add(placement.len);
    end.div_ceil(GPU_PAGE).saturating_sub(placement.address / GPU_PAGE).saturating_mul(GPU_PAGE)
}

/// No way that may be gone can be gone. The host is at fault, or whoever allowed no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no allowed way to this GPU memory: {}", reasons(rungs))]
pub struct NoPath {
    /// The allowed ways, each with what is in its way.
    pub rungs: Vec<Rung>,
}

fn reasons(rungs: &[Rung]) -> String {
    if rungs.is_empty() {
        return "none is allowed".to_owned();
    }
    let each = rungs.iter().map(|Rung { path, obstacle }| match obstacle {
        Some(obstacle) => format!("{path}: {obstacle}"),
        None => path.to_string(),
    });
    each.collect::<Vec<_>>().join("; ")
}

/// The best of the allowed ways that nothing is in the way of.
///
/// # Errors
/// [`NoPath`].
pub fn choose(rungs: &[Rung], allowed: GpuPaths) -> Result<GpuPath, NoPath> {
    let mut rungs: Vec<&Rung> = rungs.iter().filter(|rung| allowed.contains(rung.path.bit())).collect();
    rungs.sort_by_key(|rung| rung.path);
    match rungs.iter().find(|rung| rung.obstacle.is_none()) {
        Some(rung) => Ok(rung.path),
        None => Err(NoPath { rungs: rungs.into_iter().cloned().collect() }),
    }
}

#[cfg(test)]
mod tests;
