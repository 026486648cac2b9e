//! Why memory was not registered, or stays so.

use std::sync::Arc;

use tentpeg_driver::dma::{Access, HostMemoryError, InPlaceError, RegisterError};
use tentpeg_driver::gpu::{GpuMemoryError, KernelError, NoPath, PlaceError};
use thiserror::Error;

use super::Memory;
use crate::gpu::ProofError;

/// Why there is no memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The host has none.
    #[error(transparent)]
    Allocate(#[from] HostMemoryError),
    /// It could not be mapped for devices.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Memory of the caller could not be registered where it lies, and staging was not allowed, or could not help.
    #[error(transparent)]
    InPlace(#[from] InPlaceError),
    /// The engine has no GPU.
    #[error("this engine was opened without a GPU: name one in EngineConfig::gpu")]
    NoGpu,
    /// The GPU has no memory.
    #[error(transparent)]
    Gpu(#[from] GpuMemoryError),
    /// The GPU copies nothing to and from staging buffers.
    #[error("memory of the GPU cannot be staged: {0}")]
    GpuStaging(Arc<KernelError>),
    /// What lies at the address cannot be registered as memory of the engine's GPU.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No allowed way leads to it.
    #[error(transparent)]
    GpuPath(#[from] NoPath),
    /// A direct way leads to it, and bytes that were moved that way did not arrive, or it was not proved and was to be.
    #[error(transparent)]
    Proof(#[from] ProofError),
    /// Nobody was to do anything with it.
    #[error(
        "memory {address:#x} was to be registered for {access:?}: DEVICE_READS, DEVICE_WRITES or both would be right"
    )]
    NoAccess {
        /// The first byte's address.
        address: u64,
        /// What was asked for.
        access: Access,
    },
    /// It shares addresses with what is registered already, and is not the same.
    #[error(
        "memory {address:#x} with a length of {len} bytes shares addresses with the {other_len} bytes at {other:#x} that are registered: requests may name any part of what is registered, so register the whole once, or unregister the other first"
    )]
    Overlaps {
        /// The first byte's address.
        address: u64,
        /// The length in bytes.
        len: u64,
        /// The address of what is registered.
        other: u64,
        /// Its length in bytes.
        other_len: u64,
    },
    /// The same memory is registered, with other options.
    #[error(
        "memory {address:#x} with a length of {len} bytes is registered already, with another access, or other leave to stage: unregister it first, or register it as before"
    )]
    RegisteredOtherwise {
        /// The first byte's address.
        address: u64,
        /// The length in bytes.
        len: u64,
    },
}

/// Memory that stays registered, as requests that have not ended name it.
#[derive(Debug, Error)]
#[error("{tasks} tasks that have not ended name the memory ({memory:?}): wait for them, or cancel them")]
pub struct MemoryInUse {
    /// The memory, given back.
    pub memory: Memory,
    /// Tasks that name it.
    pub tasks: usize,
}
