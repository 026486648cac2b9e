//! VFIO: the controllers of this machine, given to this process by the kernel.
//!
//! [`open`] opens functions that are bound to `vfio-pci` and puts them into one address space, translated by the IOMMU:
//! a [`VfioDevice`] each. It does so on one of two [`Way`]s of the kernel. [`VfioFunction`] is one of them as the
//! driver's [`Function`](crate::bus::Function); [`BarMemory`] is the memory of another, as a target of DMA.
//!
//! Layouts and constants are those of the crates `vfio-bindings` and `iommufd-bindings`. The calls are made in two small
//! files here, and not by `vfio-ioctls`: that crate swallows errors of regions and resets, cannot be asked for IOVA
//! ranges or the entry limit, maps for reading and writing only, and cannot close a device that was removed.
//!
//! What VFIO leaves to us: whether a function may be taken at all is asked of [`Sysfs`](crate::bus::Sysfs), and binding
//! it is an operator's act.

mod bar;
mod capability;
mod cdev;
mod device;
mod doorbells;
mod error;
mod event;
mod function;
mod interrupt;
mod ioas;
mod ioctl;
mod mapping;
mod msix;
mod open;
mod space;
mod type1;

pub use bar::BarMemory;
pub use device::VfioDevice;
pub use error::VfioError;
pub use event::Event;
pub use function::VfioFunction;
pub use ioas::try_dma_buf;
pub use open::{Way, files, open, probe, ways};
