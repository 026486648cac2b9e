//! Movers: what copies to and from memory that the host cannot touch.
//!
//! A controller in hardware reaches such memory over the bus. One in software cannot, and hands its copies to a mover:
//! those of many commands as one list, so that a copy costs no call of its own, and what they belong to is completed when
//! the mover says that they are made.

use std::error::Error;
use std::ptr::NonNull;

use thiserror::Error;

/// One copy. Addresses are those of the mover's accelerator, which reaches memory of this process at the process's own.
///
/// Laid out as a kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryCopy {
    /// Where the first byte goes.
    pub to: u64,
    /// Where it comes from.
    pub from: u64,
    /// Bytes.
    pub len: u64,
    /// Zero.
    pub reserved: u64,
}

impl MemoryCopy {
    /// `len` bytes from `from` to `to`.
    pub const fn new(to: u64, from: u64, len: u64) -> Self {
        Self { to, from, len, reserved: 0 }
    }
}

/// Why copies were not made. The host is at fault.
#[derive(Debug, Error)]
#[error("the accelerator made no copy: {source}")]
pub struct MoverError {
    /// What it said.
    pub source: Box<dyn Error + Send + Sync>,
}

impl MoverError {
    /// An error for that reason.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: source.into() }
    }
}

/// What makes copies.
pub trait Mover: Send {
    /// Makes memory of this process reachable for later copies, until the mover is dropped.
    ///
    /// # Errors
    /// [`MoverError`]; it is not reachable then.
    ///
    /// # Safety
    /// The memory stays mapped until the mover is dropped, its pages stay where they are, and nobody makes a reference to
    /// it.
    unsafe fn admit(&mut self, base: NonNull<u8>, len: usize) -> Result<(), MoverError>;

    /// Begins copies. They may be made in any order, also with regard to those that were begun before.
    ///
    /// # Errors
    /// [`MoverError`]; of `copies` and of lists that are in progress any part may have been made, and none is made any
    /// more. `copies` do not count as begun.
    ///
    /// # Safety
    /// Until [`ended`](Self::ended) has counted them or failed, all that they name stays where it is: memory of the
    /// accelerator, or admitted memory of this process; and nobody makes a reference to it. What another thread or device
    /// does to the same bytes meanwhile is as between devices: it may tear, and harms nothing else.
    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<(), MoverError>;

    /// How many of the lists that were ever begun are no longer in progress, from the first on: they are made, and visible
    /// to the host and to work that is given to the accelerator from now on, or were lost when an error was reported.
    ///
    /// # Errors
    /// [`MoverError`]; then what was in progress is not made any more, and is counted from now on.
    fn ended(&mut self) -> Result<u64, MoverError>;
}
