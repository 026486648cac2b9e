//! Memory of an accelerator, and how devices are given it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// What memory of an accelerator is mapped for devices by.
#[derive(Debug, Clone, Copy)]
pub enum Exposure<'a> {
    /// Its address, as the accelerator has it: a mover copies there, and no device reaches it.
    Address,
    /// A mapping of it in this process, of the accelerator's BAR.
    Mapping(NonNull<u8>),
    /// A dma-buf, and its first byte's offset there.
    DmaBuf(BorrowedFd<'a>, u64),
}

/// What translates devices' addresses, by which other devices' memory it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translation {
    /// A VFIO container of type1: it maps what the process maps, a BAR's pages too.
    Type1,
    /// iommufd: it imports dma-bufs, and refuses a process's mapping of a BAR.
    Iommufd,
    /// A model in this process: what the process maps, it reaches, by copies that the processor makes.
    Process,
    /// None of these: a process of its own, or nothing.
    Other,
}

impl fmt::Display for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "a type1 container",
            Self::Iommufd => "iommufd",
            Self::Process => "a model in this process",
            Self::Other => "neither type1 nor iommufd",
        })
    }
}

/// Memory of an accelerator that this process does not touch, and its owner.
///
/// # Safety
/// Until the value is dropped `address()` is the same, `len()` is the same and not 0, and the `len()` bytes there are
/// memory of the accelerator. So is what `exposure()` says: a mapping is of these bytes, readable and writable, and stays
/// where it is, and nobody makes a reference to it; a dma-buf has these bytes at the offset.
pub unsafe trait AcceleratorMemory: Send + Sync + 'static {
    /// The first address, as the accelerator has it.
    fn address(&self) -> u64;
    /// The length in bytes, not 0.
    fn len(&self) -> u64;
    /// What devices are given it by.
    fn exposure(&self) -> Exposure<'_> {
        Exposure::Address
    }
    /// Whether there is no byte: never.
    fn is_empty(&self) -> bool {
        false
    }
}

// SAFETY: the value is dropped with its last owner, of whom this is one.
unsafe impl<T: AcceleratorMemory + ?Sized> AcceleratorMemory for Arc<T> {
    fn address(&self) -> u64 {
        (**self).address()
    }

    fn len(&self) -> u64 {
        (**self).len()
    }

    fn exposure(&self) -> Exposure<'_> {
        (**self).exposure()
    }
}
