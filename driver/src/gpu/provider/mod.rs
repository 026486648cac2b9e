//! What lies at an address, as CUDA sees it.
//!
//! From any address inside memory that CUDA allocated, in whichever way, [`locate`] finds the GPU and the allocation;
//! memory that is no fixed place of a GPU is refused with what would be right. Nothing is rounded: the placement is of
//! exactly the bytes that were named.
//!
//! CUDA gives an address out again after it was freed. An allocation therefore has a buffer id, never used twice, and
//! [`Placement::check`] asks whether it is still the same.

mod cuda;

use thiserror::Error;

use super::error::{CudaError, code};

/// Memory types (cuda.h, CUmemorytype).
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;

/// What CUDA knows of an address (cuPointerGetAttributes). All of it is zero where there is nothing of CUDA's, or no
/// more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PointerAttributes {
    /// A CUmemorytype, or 0.
    pub memory_type: u32,
    /// Number of the allocation, never used twice in a process.
    pub buffer_id: u64,
    /// Whether the driver moves it between host and GPU.
    pub managed: bool,
    /// The GPU that it belongs to.
    pub device: i32,
    /// Whether it came from a memory pool.
    pub pool: bool,
    /// Whether it has a context: what cuMemMap maps and what pools give has none.
    pub has_context: bool,
    /// Bytes of the cuMemMap mapping that it lies in; 0 where it is none.
    pub mapping_len: u64,
    /// Where that begins.
    pub mapping_base: u64,
    /// Whether other devices may reach it.
    pub rdma_capable: bool,
}

/// How CUDA is asked about addresses: a GPU, or a fake in its place.
pub trait PointerQueries {
    /// What is at `address`.
    ///
    /// # Errors
    /// [`CudaError`]; an unknown address is none.
    fn attributes(&self, address: u64) -> Result<PointerAttributes, CudaError>;

    /// Base and bytes of the allocation that `address` lies in (cuMemGetAddressRange).
    ///
    /// # Errors
    /// [`CudaError`].
    fn address_range(&self, address: u64) -> Result<(u64, u64), CudaError>;
}

/// How memory came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationKind {
    /// cuMemAlloc and its kin.
    Plain,
    /// A memory pool, as cuMemAllocAsync takes it from.
    Pool,
    /// cuMemMap: one mapping of a reservation that may hold several.
    Mapping,
}

/// One allocation of a GPU's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocation {
    /// Its first address.
    pub base: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its number, never used twice in a process.
    pub buffer_id: u64,
    /// How it came about.
    pub kind: AllocationKind,
    /// Whether other devices may reach it.
    pub rdma_capable: bool,
}

/// Where a range of addresses lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The first address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// The GPU's number.
    pub device: u32,
    /// The allocations that hold it, side by side; more than one only where cuMemMap made them.
    pub allocations: Vec<Allocation>,
}

/// Why a range of addresses is no GPU memory that a device's data can have as its place. The caller is at fault, but for
/// the last.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// No bytes, or more than there are addresses.
    #[error("{len} bytes at {address:#x} are no range: the length must be 1 to {max}", max = u64::MAX - address)]
    Length {
        /// The first address.
        address: u64,
        /// Bytes named.
        len: u64,
    },
    /// CUDA knows nothing there.
    #[error(
        "{address:#x} is not CUDA's: it was freed, or CUDA never allocated it; allocate it anew, or register it as host \
         memory if that is what it is"
    )]
    NotCuda {
        /// The address.
        address: u64,
    },
    /// Host memory that CUDA knows.
    #[error("{address:#x} is host memory that CUDA has pinned: register it as host memory")]
    Host {
        /// The address.
        address: u64,
    },
    /// Managed memory.
    #[error(
        "{address:#x} is managed memory, which the driver moves between host and GPU at any time: allocate it with \
         cuMemAlloc instead of cuMemAllocManaged"
    )]
    Managed {
        /// The address.
        address: u64,
    },
    /// An array, or another kind that has no plain addresses.
    #[error(
        "{address:#x} is of CUDA's memory type {memory_type} (3 is an array), which has no plain order of bytes: use linear memory"
    )]
    NotLinear {
        /// The address.
        address: u64,
        /// CUDA's number for the type.
        memory_type: u32,
    },
    /// The range leaves its allocation.
    #[error(
        "{len} bytes at {address:#x} leave the allocation of {allocation_len} bytes at {base:#x}: {fits} bytes are \
         left there", fits = base.saturating_add(*allocation_len).saturating_sub(*address)
    )]
    PastAllocation {
        /// The first address.
        address: u64,
        /// Bytes named.
        len: u64,
        /// Where the allocation begins.
        base: u64,
        /// Its bytes.
        allocation_len: u64,
    },
    /// A reservation with a part to which nothing is mapped.
    #[error(
        "{len} bytes at {address:#x}: nothing is mapped from {hole:#x} on; map the whole range with cuMemMap first"
    )]
    Hole {
        /// The first address.
        address: u64,
        /// Bytes named.
        len: u64,
        /// The first address where there is nothing.
        hole: u64,
    },
    /// The pages that it lies on are not all its allocations'.
    #[error(
        "{len} bytes at {address:#x} lie on pages of {page} bytes of which the allocation has only a part: devices are given \
         whole pages, so allocate a multiple of {page} bytes, on a multiple of them"
    )]
    Pages {
        /// The first address.
        address: u64,
        /// Bytes named.
        len: u64,
        /// Bytes of a page.
        page: u64,
    },
    /// Another GPU's.
    #[error("{address:#x} is memory of GPU {device}, and not of GPU {wanted}: open that one, or allocate on this")]
    WrongDevice {
        /// The address.
        address: u64,
        /// The GPU that has it.
        device: i32,
        /// The GPU that was meant.
        wanted: u32,
    },
    /// What was there is gone, and something else may have its addresses.
    #[error("the allocation at {base:#x} was freed since it was registered: unregister memory before it is freed")]
    Gone {
        /// Where it began.
        base: u64,
    },
    /// The context is gone.
    #[error(
        "the GPU's context was destroyed ({source}), and all memory with it: after cuDevicePrimaryCtxReset or \
         cudaDeviceReset open the GPU again"
    )]
    ContextDestroyed {
        /// What CUDA said.
        source: CudaError,
    },
    /// CUDA failed.
    #[error(transparent)]
    Call(CudaError),
}

impl From<CudaError> for PlaceError {
    fn from(source: CudaError) -> Self {
        match source.code {
            code::DEINITIALIZED | code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED => {
                Self::ContextDestroyed { source }
            }
            _ => Self::Call(source),
        }
    }
}

/// Finds where `len` bytes at `address` lie: memory of GPU `wanted` all of it.
///
/// # Errors
/// [`PlaceError`].
pub fn locate(queries: &dyn PointerQueries, wanted: u32, address: u64, len: u64) -> Result<Placement, PlaceError> {
    let end = address.checked_add(len).filter(|_| len > 0).ok_or(PlaceError::Length { address, len })?;
    let mut allocations = Vec::new();
    let mut at = address;
    while at < end {
        let found = match allocation(queries, wanted, at) {
            Err(PlaceError::NotCuda { address: hole }) if at != address => {
                return Err(PlaceError::Hole { address, len, hole });
            }
            found => found?,
        };
        let allocation_end = found.base.saturating_add(found.len);
        // Only mappings lie side by side in one range.
        if found.kind != AllocationKind::Mapping && (allocation_end < end || at != address) {
            let Allocation { base, len: allocation_len, .. } = *allocations.first().unwrap_or(&found);
            return Err(PlaceError::PastAllocation { address, len, base, allocation_len });
        }
        allocations.push(found);
        at = allocation_end;
    }
    Ok(Placement { address, len, device: wanted, allocations })
}

/// The allocation that holds `address`.
fn allocation(queries: &dyn PointerQueries, wanted: u32, address: u64) -> Result<Allocation, PlaceError> {
    let attributes = queries.attributes(address)?;
    let PointerAttributes { memory_type, managed, device, .. } = attributes;
    // Managed memory may say that it is the host's or the GPU's, whichever has it now.
    match memory_type {
        _ if managed => return Err(PlaceError::Managed { address }),
        0 => return Err(PlaceError::NotCuda { address }),
        HOST => return Err(PlaceError::Host { address }),
        DEVICE => {}
        ARRAY | 4.. => return Err(PlaceError::NotLinear { address, memory_type }),
    }
    if u32::try_from(device) != Ok(wanted) {
        return Err(PlaceError::WrongDevice { address, device, wanted });
    }
    let mapping = !attributes.has_context && !attributes.pool && attributes.mapping_len > 0;
    let (base, len) = if mapping {
        (attributes.mapping_base, attributes.mapping_len)
    } else {
        queries.address_range(address).map_err(|error| match error.code {
            // It was there a moment ago.
            code::INVALID_VALUE => PlaceError::NotCuda { address },
            _ => error.into(),
        })?
    };
    // An answer that does not hold the address would never get the caller any further.
    if address.checked_sub(base).is_none_or(|offset| offset >= len) {
        return Err(PlaceError::NotCuda { address });
    }
    let kind = match attributes.pool {
        true => AllocationKind::Pool,
        false if mapping => AllocationKind::Mapping,
        false => AllocationKind::Plain,
    };
    Ok(Allocation { base, len, buffer_id: attributes.buffer_id, kind, rdma_capable: attributes.rdma_capable })
}

impl Placement {
    /// Whether `len` bytes at `base` lie in the allocations, which lie side by side.
    pub(super) fn holds(&self, base: u64, len: u64) -> bool {
        let first = self.allocations.first().is_some_and(|first| first.base <= base);
        let last = self.allocations.last().map(|last| last.base.saturating_add(last.len));
        first && base.checked_add(len).zip(last).is_some_and(|(end, last)| end <= last)
    }

    /// Whether other devices may reach all of it.
    pub fn rdma_capable(&self) -> bool {
        self.allocations.iter().all(|allocation| allocation.rdma_capable)
    }

    /// Whether all of it is still what it was when it was found.
    ///
    /// # Errors
    /// [`PlaceError::Gone`] where it is not, or that CUDA cannot say.
    pub fn check(&self, queries: &dyn PointerQueries) -> Result<(), PlaceError> {
        for allocation in &self.allocations {
            let now = queries.attributes(allocation.base)?;
            if now.memory_type != DEVICE || now.buffer_id != allocation.buffer_id {
                return Err(PlaceError::Gone { base: allocation.base });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
