//! GPU memory as a place for a device's data.
//!
//! CUDA is loaded when somebody asks for it and never before: nothing of it is needed to build this program or to run
//! it without a GPU, and what is missing is a [`LibraryError`] that says so. [`Cuda`] is the loaded library and the only
//! way to it; a [`Gpu`] is one device with its primary context. [`locate`] finds what lies at an address,
//! and [`climb`] which ways a device's bytes can take there.
//!
//! What a device's controller is, and how it reaches memory, is not known here.

mod device;
mod error;
mod ladder;
mod library;
mod provider;

pub use device::{Gpu, GpuInfo, WritesOrdering};
pub use error::CudaError;
pub use ladder::{
    Gdrdrv, GdrdrvVersion, GpuPath, GpuPaths, GpuPathsError, NoPath, Obstacle, PathProbe, Rung, Translation, Wanted,
    choose, climb,
};
pub use library::{Cuda, CudaVersion, LibraryError};
pub use provider::{Allocation, AllocationKind, PlaceError, Placement, PointerAttributes, PointerQueries, locate};
