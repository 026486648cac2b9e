//! `tentpeg replay`: a KV-cache trace on a device.
//!
//! A replay goes through these in turn: [`trace`] or [`generator`] gives requests; [`cache`] decides for each block whether it is read
//! or written, and in which slot; [`schedule`] says when that I/O may start and into which pool block; [`payload`] says what the bytes
//! must be. Each owns its own state only and does no I/O to a device. [`runner`] drives them: on an engine, through the memory of a
//! [`pool`], in the sizes of a [`geometry`], for the requests of a [`source`]; an [`outcome`] is what comes of it.
//! [`hit_curve`] counts the hits that other numbers of slots would have had. [`command`] is the command line's part.

pub mod cache;
pub mod command;
pub mod generator;
pub mod geometry;
pub mod hit_curve;
pub mod outcome;
pub mod payload;
pub mod pool;
pub mod runner;
pub mod schedule;
pub mod slots;
pub mod source;
pub mod trace;

/// One request of a trace: the prefix blocks of its prompt, in order.
///
/// An equal id is an equal block, wherever it appears. A request may have no blocks, and may name a block more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Ids of the blocks, first block of the prompt first.
    pub hash_ids: Vec<u64>,
}
