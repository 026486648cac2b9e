//! Memory that devices can reach.
//!
//! An [`Iova`] is the only kind of address that is ever written into a command. A [`DmaSpace`] is one address
//! space, shared by all functions of an engine: it hands out IOVAs and maps memory at them through whatever
//! [`AddressSpace`] the bus has (an IOMMU, or the model's own). A [`Region`] is memory that was mapped: it owns the
//! bytes, the mapping and the IOVAs, and gives them up in the one safe order. [`HostMemory`] is the memory that we
//! allocate ourselves, [`CallerMemory`] that of somebody else in this process. [`AcceleratorMemory`] is what the host
//! does not touch: devices are given it by what it says ([`Exposure`]), or a [`Mover`] copies to and from it for a controller
//! in software. [`RegionTable`] finds the region of an address range.
//!
//! Bytes that a device may touch are never a `&[u8]`: [`DmaView`] reads and writes them.
//!
//! What a device is, and when it has stopped, is not known here: who drops a region vouches for that, or pays with
//! a retired IOVA (see [`Region`]).

mod accelerator;
mod address_space;
mod allocator;
pub mod barrier;
mod caller_memory;
mod host_memory;
mod iova;
mod mover;
mod region;
mod region_table;
mod view;

pub use accelerator::{AcceleratorMemory, Exposure, Translation};
pub use address_space::{Access, AddressSpace, DmaSpace, InPlaceError, MapError, RegisterError, ReservedIovas};
#[cfg(test)]
pub(crate) use allocator::{APERTURE, MSI_WINDOW};
pub use allocator::{AllocateError, FreeError, IovaAllocator};
pub use caller_memory::{CallerMemory, CallerMemoryError, WholePages};
pub use host_memory::{HostMemory, HostMemoryError, PageSize, Pages};
pub use iova::{Iova, IovaRange};
pub use mover::{MemoryCopy, Mover, MoverError};
pub use region::{Backing, Region};
pub use region_table::{RegionEntry, RegionLookup, RegionTable, ResolveError, TableError};
pub use view::DmaView;
