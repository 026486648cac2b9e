//! Segments: what requests name as their target.

use crate::SegmentId;
use tentpeg_driver::queue::Limits;

/// A range of a namespace that requests can name.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Its number.
    pub id: SegmentId,
    /// Its name.
    pub name: String,
    /// The namespace that it lies in.
    pub nsid: u32,
    /// Its first logical block.
    pub first_lba: u64,
    /// Its length in bytes, a multiple of the block.
    pub capacity: u64,
    /// Whether requests may write it.
    pub writable: bool,
    /// What fits into a command on its namespace.
    pub limits: Limits,
}
