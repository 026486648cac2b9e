//! Why there is no marker, or none that can be used. Each says what mends it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use uuid::Uuid;

use super::header::VERSION;

/// Why a marker was not made, or is not used.
#[derive(Debug, Error)]
pub enum LinkError {
    /// Caller: something else is there.
    #[error("{} exists and {is}: it is not replaced: name another path, or remove it", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
        /// What is there.
        is: &'static str,
    },
    /// Caller: a marker of another segment is there.
    #[error(
        "{} is the marker of segment '{}' ({uuid}): it is not replaced: name another path, or remove it",
        path.display(), segment.escape_debug()
    )]
    OtherSegment {
        /// The path.
        path: PathBuf,
        /// The segment's name when it was made.
        segment: String,
        /// The segment.
        uuid: Uuid,
    },
    /// Caller: it is something else.
    #[error("{} is no marker of a segment: {reason}: name a file that `tentpeg segment link` made", path.display())]
    NotMarker {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Caller: it is of a version that is not known here.
    #[error("{} is a marker of version {version}, and this Tentpeg knows up to {VERSION}: use a newer one, or make the marker again", path.display())]
    Newer {
        /// The path.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// Host: its attribute says another thing than its first bytes.
    #[error("{}: its first bytes and its attribute {} differ: remove it and make it again", path.display(), super::ATTRIBUTE)]
    Disagrees {
        /// The path.
        path: PathBuf,
    },
    /// Host: its size is not the segment's.
    #[error("{} is for {size} bytes and its segment has {capacity}: make it again by `tentpeg segment link`", path.display())]
    Size {
        /// The path.
        path: PathBuf,
        /// The file's size, or that which its first bytes say.
        size: u64,
        /// The segment's.
        capacity: u64,
    },
    /// Caller: its segment does not exist.
    #[error("{} names segment '{}' ({uuid}) of device {device}, which does not exist: remove it", path.display(), segment.escape_debug())]
    Gone {
        /// The path.
        path: PathBuf,
        /// The segment's name when the marker was made.
        segment: String,
        /// The segment.
        uuid: Uuid,
        /// The device.
        device: Uuid,
    },
    /// Caller: a marker says in its first bytes what it is, and the segment has not so many.
    #[error(
        "a segment of {capacity} bytes has no room for what a marker says, {needed} bytes: make the segment larger, or its name shorter"
    )]
    TooSmall {
        /// The segment's size.
        capacity: u64,
        /// The bytes of the header.
        needed: usize,
    },
    /// Host: the file system has no such large files.
    #[error("{}: its file system has no files of {capacity} bytes: put the marker on one that has, such as XFS or tmpfs", path.display())]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The segment's size.
        capacity: u64,
    },
    /// Host: the file system would write all of it.
    #[error("{}: its file system has no sparse files, so that a marker would take all of the segment's size: put it on another", path.display())]
    NotSparse {
        /// The path.
        path: PathBuf,
    },
    /// Host: the kernel refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// The path.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}
