//! Tentpeg's driver: NVMe in userspace, with memory of any kind as the target of its DMA.
//!
//! The rooms, from the ground up; each may use those above it in this list, never those below:
//! - [`spec`]: the wire: registers, entries, status codes, data structures.
//! - [`dma`]: memory that devices can reach.
//! - [`bus`]: what a way to a controller must offer.
//! - [`model`]: an NVMe controller in software.
//! - [`queue`]: how commands reach a controller and completions come back. Not even tests of the model use it.
//! - [`controller`]: a controller from disabled to shut down.

pub mod bus;
pub mod controller;
pub mod dma;
pub mod model;
pub mod queue;
pub mod spec;
