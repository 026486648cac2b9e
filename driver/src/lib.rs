//! Tentpeg's driver: NVMe in userspace, with memory of any kind as the target of its DMA.
//!
//! The rooms, from the ground up; each may use those above it in this list, never those below:
//! - [`spec`]: the wire: registers, entries, status codes, data structures.
//! - [`dma`]: memory that devices can reach.
//! - [`bus`]: what a way to a controller must offer.
//! - [`keeper`]: a process that holds descriptors until this one is gone.
//! - [`vfio`]: controllers of this machine, given by the kernel.
//! - [`vfio_user`]: a function behind a socket, both ends.
//! - [`gpu`]: GPU memory, through CUDA where there is one.
//! - [`model`]: an NVMe controller in software. It shares the rooms above with the driver and nothing of those below,
//!   so that the two sides cannot share a mistake.
//! - [`queue`]: how commands reach a controller and completions come back.
//! - [`controller`]: a controller from disabled to shut down.

pub mod bus;
pub mod controller;
pub mod dma;
pub mod gpu;
pub mod keeper;
pub mod model;
pub mod queue;
pub mod spec;
pub mod vfio;
pub mod vfio_user;
