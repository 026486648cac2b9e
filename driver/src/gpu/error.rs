//! What CUDA answers when it refuses.

use thiserror::Error;

/// A call that CUDA refused. Who is at fault depends on the call; whoever knows wraps it in an error that says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{call}: {name} (CUDA error {code})")]
pub struct CudaError {
    /// The function of the driver API.
    pub call: &'static str,
    /// Its CUresult.
    pub code: u32,
    /// The name that CUDA has for it.
    pub name: String,
}

/// CUresults that are told apart here (cuda.h, `cudaError_enum`).
pub(super) mod code {
    pub(in crate::gpu) const INVALID_VALUE: u32 = 1;
    pub(in crate::gpu) const OUT_OF_MEMORY: u32 = 2;
    pub(in crate::gpu) const DEINITIALIZED: u32 = 4;
    pub(in crate::gpu) const STUB_LIBRARY: u32 = 34;
    pub(in crate::gpu) const NO_DEVICE: u32 = 100;
    pub(in crate::gpu) const INVALID_CONTEXT: u32 = 201;
    pub(in crate::gpu) const UNSUPPORTED_PTX_VERSION: u32 = 222;
    pub(in crate::gpu) const OPERATING_SYSTEM: u32 = 304;
    pub(in crate::gpu) const NOT_READY: u32 = 600;
    pub(in crate::gpu) const CONTEXT_IS_DESTROYED: u32 = 709;
    pub(in crate::gpu) const NOT_PERMITTED: u32 = 800;
    pub(in crate::gpu) const NOT_SUPPORTED: u32 = 801;
}
