//! GPU memory as a place for a device's data.
//!
//! CUDA is loaded when somebody asks for it and never before: nothing of it is needed to build this program or to run
//! it without a GPU, and what is missing is a [`LibraryError`] that says so. [`Cuda`] is the loaded library and the only
//! way to it; a [`Gpu`] is one device with its primary context. [`locate`] finds what lies at an address,
//! and [`climb`] which ways a device's bytes can take there; [`DirectMemory`] is memory that they reach by one of them.
//! A [`Copier`] copies between GPU and pinned host memory, for bytes that go by way of the host; [`CudaMover`] does for a
//! controller in software. [`Accelerator`] is all of this as whoever stands above uses it: a GPU, or a [`StandIn`] where
//! there is none.
//!
//! What a device's controller is, and how it reaches memory, is not known here.

mod accelerator;
mod copier;
mod device;
mod direct;
mod error;
mod file;
mod kernels;
mod ladder;
mod library;
mod management;
mod memory;
mod mover;
mod provider;
mod stand_in;
mod stream;

pub use accelerator::{Accelerator, Copies};
pub use copier::{Copier, CopierConfig, CopierCounters, CopyError, KvError, KvLayout, KvPages, KvShape, Ticket};
pub use device::{Gpu, GpuInfo, WritesOrdering};
pub use direct::{BarMapping, DirectMemory, DmaBuf};
pub use error::CudaError;
pub use file::{FileRead, FileReader, FileWay, FileWayConfig, FileWayError, FileWayNameError};
pub use kernels::{KernelError, OLDEST_DRIVER, WordSeries};
pub use ladder::{
    Gdrdrv, GdrdrvVersion, GpuPath, GpuPaths, GpuPathsError, NoPath, Obstacle, PathProbe, Rung, Wanted, choose, climb,
};
pub use library::{Cuda, CudaVersion, LibraryError};
pub use management::{GpuManagement, management};
pub use memory::{CallerGpuMemory, GPU_PAGE, GpuMemory, GpuMemoryError, GpuPages, PinnedMemory};
pub use mover::CudaMover;
pub use provider::{Allocation, AllocationKind, PlaceError, Placement, PointerAttributes, PointerQueries, locate};
pub use stand_in::{StandIn, StandInMemory, StandInWays, StandInWindow};
pub use stream::GpuProducer;
