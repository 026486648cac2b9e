//! The logic of `tentpeg replay`, without any I/O to a device.
//!
//! A replay goes through these in turn: [`trace`] or [`generator`] gives requests; [`cache`] decides for each block whether it is read
//! or written, and in which slot; [`schedule`] says when that I/O may start and into which pool block; [`payload`] says what the bytes
//! must be. Each owns its own state only; whoever drives them owns the memory, the device and the clock.

pub mod cache;
pub mod generator;
pub mod payload;
pub mod schedule;
pub mod trace;

/// One request of a trace: the prefix blocks of its prompt, in order.
///
/// An equal id is an equal block, wherever it appears. A request may have no blocks, and may name a block more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Ids of the blocks, first block of the prompt first.
    pub hash_ids: Vec<u64>,
}
