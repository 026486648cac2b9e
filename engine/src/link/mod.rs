//! Marker files: what a TENT build that was not patched opens as `file://`, to reach a segment of ours.
//!
//! TENT stats the path, demands a regular file, and takes its length for the segment's. So a marker is sparse, as long as
//! the segment, and says in its first bytes which segment it is, and in the extended attribute [`ATTRIBUTE`] where its
//! file system has them. It is mode 0444: another transport that opens it for writing gets an error and not the marker's
//! bytes. It never holds a segment's data, and a segment never depends on it.
//!
//! Markers are made beside their path and moved there whole, so that nobody sees half of one; a file that is no marker of
//! the same segment is never replaced. After a resize or a rename [`refresh`] makes it right again.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

mod error;
mod header;
mod make;

pub use error::LinkError;
pub use header::Marker;

/// The extended attribute that says what the first bytes say.
pub const ATTRIBUTE: &str = "user.tentpeg.segment";

/// The mode of a marker: for reading only, by everybody.
const MODE: u32 = 0o444;

/// A marker that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Whether one of the same segment was there, and was replaced.
    pub replaced: bool,
    /// Whether the file system has extended attributes, so that the marker has its own.
    pub attribute: bool,
}

/// Makes a marker at `path`, or makes one of the same segment right again.
///
/// # Errors
/// [`LinkError::Exists`] or [`LinkError::OtherSegment`] for what is in the way; [`LinkError::TooSmall`],
/// [`LinkError::TooLarge`] or [`LinkError::NotSparse`] where there can be no such marker; [`LinkError::Kernel`]. Then
/// what was there before still is.
pub fn create(path: &Path, marker: &Marker) -> Result<Made, LinkError> {
    make::make(path, marker, true)
}

/// Makes the marker at `path` right again, after its segment was resized or renamed.
///
/// # Errors
/// As [`create`]; [`LinkError::Kernel`] where there is none.
pub fn refresh(path: &Path, marker: &Marker) -> Result<Made, LinkError> {
    make::make(path, marker, false)
}

/// What the marker at `path` says. Whether its segment still exists only [`resolve`] knows.
///
/// # Errors
/// [`LinkError::NotMarker`] and [`LinkError::Newer`] for what cannot be read as one, [`LinkError::Disagrees`] where its
/// attribute says another thing, [`LinkError::Size`] where it is not as long as it says, [`LinkError::Kernel`].
pub fn read(path: &Path) -> Result<Marker, LinkError> {
    let opened = Opened::open(path)?;
    let marker = opened.marker(path)?;
    match opened.size == marker.capacity {
        true => Ok(marker),
        false => Err(LinkError::Size { path: path.to_owned(), size: opened.size, capacity: marker.capacity }),
    }
}

/// The segment that the marker at `path` names, as it is now: `lookup` gives the marker that it would have now, if there
/// is one of the same device and UUID. A name that has changed since is no error.
///
/// # Errors
/// [`LinkError::Gone`] where there is no such segment, [`LinkError::Size`] where it has another size than the marker,
/// else as [`read`].
pub fn resolve(path: &Path, lookup: impl FnOnce(&Marker) -> Option<Marker>) -> Result<Marker, LinkError> {
    let opened = Opened::open(path)?;
    let marker = opened.marker(path)?;
    let Some(now) = lookup(&marker).filter(|now| now.is_same_segment(&marker)) else {
        let Marker { segment, uuid, device, .. } = marker;
        return Err(LinkError::Gone { path: path.to_owned(), segment, uuid, device });
    };
    // What TENT goes by is the file's size; what the marker says must be no other.
    let wrong = [opened.size, marker.capacity].into_iter().find(|size| *size != now.capacity);
    match wrong {
        None => Ok(now),
        Some(size) => Err(LinkError::Size { path: path.to_owned(), size, capacity: now.capacity }),
    }
}

/// A regular file, opened for reading.
struct Opened {
    file: File,
    size: u64,
    /// What it is, whatever it is called.
    inode: (u64, u64),
}

impl Opened {
    fn open(path: &Path) -> Result<Self, LinkError> {
        let kernel = |step| move |source| LinkError::Kernel { step, path: path.to_owned(), source };
        // A pipe would wait for its other end.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(kernel("open"))?;
        let metadata = file.metadata().map_err(kernel("look at"))?;
        if !metadata.is_file() {
            return Err(LinkError::NotMarker { path: path.to_owned(), reason: "it is no regular file" });
        }
        Ok(Self { file, size: metadata.len(), inode: (metadata.dev(), metadata.ino()) })
    }

    fn marker(&self, path: &Path) -> Result<Marker, LinkError> {
        let marker = Marker::read(&self.file, path)?;
        let mut attribute = vec![0; header::MOST];
        match rustix::fs::fgetxattr(&self.file, ATTRIBUTE, &mut attribute) {
            Ok(len) if Marker::parse(&attribute[..len], path).is_ok_and(|other| other == marker) => Ok(marker),
            Ok(_) | Err(Errno::RANGE) => Err(LinkError::Disagrees { path: path.to_owned() }),
            // A copy may have lost it, and not every file system has it.
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(marker),
            Err(errno) => {
                Err(LinkError::Kernel { step: "read the attribute of", path: path.to_owned(), source: errno.into() })
            }
        }
    }
}

/// What is called `path`, by device and inode, without following a link.
fn inode_of(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The folder that `path` is in.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests;
