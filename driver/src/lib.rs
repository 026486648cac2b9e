//! Tentpeg's driver: NVMe in userspace, with memory of any kind as the target of its DMA.
//!
//! The rooms, from the ground up; each may use those above it in this list, never those below:
//! - [`spec`]: the wire, as the specification has it.
//! - [`dma`]: memory that devices can reach.
//! - [`bus`]: what a way to a controller must offer.
//! - [`queue`]: how commands reach a controller and completions come back.
//! - [`controller`]: a controller from disabled to shut down.

pub mod bus;
pub mod controller;
pub mod dma;
pub mod queue;
pub mod spec;
