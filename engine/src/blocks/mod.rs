//! A namespace, block by block, one command at a time: what opening, the label and the search for foreign contents need
//! of a device. None of it is on the way of a request.
//!
//! Who implements [`Blocks`] owns the commands and the memory they use; what the bytes mean is left to the callers.
//! [`NamespaceBlocks`] does it over a controller and an idle queue pair.

mod namespace;

pub use namespace::{NamespaceBlocks, NamespaceBlocksError};

use thiserror::Error;

/// Why blocks were not read or written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlocksError {
    /// Caller: the blocks lie outside the namespace, or the data is not whole blocks. Nothing was done.
    #[error("{command} of {bytes} bytes at block {slba}: the device has {blocks} blocks of {block_size} bytes")]
    Bounds {
        /// What was asked for.
        command: &'static str,
        /// First block.
        slba: u64,
        /// Bytes.
        bytes: u64,
        /// Blocks of the namespace.
        blocks: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// Device: it answered with an error, or not at all. Of a write each block has its old or its new contents.
    #[error("{command} at block {slba}: {reason}")]
    Device {
        /// What was asked for.
        command: &'static str,
        /// First block.
        slba: u64,
        /// What the device, or the host on the way to it, said.
        reason: String,
    },
    /// Caller: the device was opened for reading only. Nothing was done.
    #[error("{command} at block {slba}: the device is opened for reading only")]
    ReadOnly {
        /// What was asked for.
        command: &'static str,
        /// First block.
        slba: u64,
    },
}

/// A namespace's blocks. Every call returns when the device has answered.
pub trait Blocks {
    /// Bytes of a block, a power of two from 512 on (LBADS).
    fn block_size(&self) -> u32;

    /// Blocks of the namespace (NSZE).
    fn blocks(&self) -> u64;

    /// Reads the blocks from `slba` on into `data`, which is whole blocks and may be longer than MDTS.
    ///
    /// # Errors
    /// [`BlocksError`]; what `data` holds then is not said.
    fn read(&mut self, slba: u64, data: &mut [u8]) -> Result<(), BlocksError>;

    /// Writes `data`, whole blocks, from `slba` on, each command with FUA: what returned is on the medium.
    ///
    /// # Errors
    /// [`BlocksError`]; each block has its old or its new contents then, and a block being written when power goes may
    /// have neither (AWUPF counts blocks, and 0's based: one block is always whole on a device that keeps to it; a label
    /// does not rely on it).
    fn write(&mut self, slba: u64, data: &[u8]) -> Result<(), BlocksError>;

    /// Has the `blocks` blocks from `slba` on read as zeroes, lastingly once [`flush`](Self::flush) has returned.
    ///
    /// # Errors
    /// [`BlocksError`]; each block has its old contents or zeroes then.
    fn zero(&mut self, slba: u64, blocks: u64) -> Result<(), BlocksError>;

    /// Everything that was written before is on the medium when this returns.
    ///
    /// # Errors
    /// [`BlocksError`].
    fn flush(&mut self) -> Result<(), BlocksError>;
}

/// The check that every implementation makes first.
///
/// # Errors
/// [`BlocksError::Bounds`].
pub fn check_bounds(
    device: &(impl Blocks + ?Sized),
    command: &'static str,
    slba: u64,
    bytes: u64,
) -> Result<(), BlocksError> {
    let (blocks, block_size) = (device.blocks(), device.block_size());
    let whole = bytes.is_multiple_of(block_size.into());
    let end = slba.checked_add(bytes / u64::from(block_size));
    if whole && end.is_some_and(|end| end <= blocks) {
        return Ok(());
    }
    Err(BlocksError::Bounds { command, slba, bytes, blocks, block_size })
}
