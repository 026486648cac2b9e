//! The guest: a stock kernel with real VFIO and an emulated IOMMU, NVMe controllers of QEMU's own, and a second
//! function whose memory stands in for an accelerator's.
//!
//! One binary, linked statically, is all of the guest's userspace. The host packs it with the kernel's modules into an
//! archive ([`archive`]), starts QEMU ([`machine`]), and reads from a serial port how each test ended ([`report`]). In
//! the guest it is the first process ([`system`]): it loads the modules, gives the functions to VFIO as `tentpeg bind`
//! does, and runs the one list of device tests on them ([`VfioTier`]), then [`checks`] of what only VFIO has, and those of
//! what QEMU's controller has beside plain blocks ([`features`]).

pub mod archive;
mod bar_bench;
mod by_uri;
pub mod checks;
pub mod compare;
pub mod direct;
pub mod drives;
pub mod features;
mod inventoried;
pub mod killed;
pub mod machine;
mod monitor;
mod only_mapped;
pub mod report;
pub mod system;
mod tier;
pub mod trace;

pub use tier::VfioTier;
pub(crate) use tier::open_function;
