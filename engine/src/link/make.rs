//! Making a marker: whole, under a name of its own, and then moved to where it belongs.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, XattrFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::{ATTRIBUTE, LinkError, MODE, Made, Marker, Opened, folder_of, inode_of};

/// How often it is tried to put a marker in a place where somebody else puts things too.
const ATTEMPTS: usize = 16;
/// A hole that shows whether the file system has any. Not so large that writing it would hurt.
const PROBE: u64 = 1 << 20;

pub(super) fn make(path: &Path, marker: &Marker, may_be_new: bool) -> Result<Made, LinkError> {
    let header = marker.header()?;
    if i64::try_from(marker.capacity).is_err() {
        return Err(LinkError::TooLarge { path: path.to_owned(), capacity: marker.capacity });
    }
    for _ in 0..ATTEMPTS {
        let old = replaceable(path, marker)?;
        if old.is_none() && !may_be_new {
            return Err(kernel("open", path, ErrorKind::NotFound.into()));
        }
        let (file, attribute) = written(path, &header, marker.capacity)?;
        let placed = match old {
            None => create(path, file)?,
            Some(inode) => replace(path, file, inode)?,
        };
        if placed {
            // Not every file system can sync a folder, and a marker that a crash takes is made again.
            let _ = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
            return Ok(Made { replaced: old.is_some(), attribute });
        }
    }
    Err(LinkError::Exists { path: path.to_owned(), is: "changes all the time" })
}

fn kernel(step: &'static str, path: &Path, source: io::Error) -> LinkError {
    LinkError::Kernel { step, path: path.to_owned(), source }
}

/// What is at `path` and may be replaced, by device and inode; `None` where nothing is.
fn replaceable(path: &Path, marker: &Marker) -> Result<Option<(u64, u64)>, LinkError> {
    let exists = |is| Err(LinkError::Exists { path: path.to_owned(), is });
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(kernel("look at", path, source)),
        Ok(metadata) if metadata.is_symlink() => return exists("is a link"),
        Ok(metadata) if metadata.is_dir() => return exists("is a folder"),
        Ok(_) => {}
    }
    let opened = Opened::open(path);
    // Its attribute and its size may be wrong: that is what making it again is for.
    match opened.and_then(|opened| Ok((opened.inode, Marker::read(&opened.file, path)?))) {
        Ok((inode, old)) if old.is_same_segment(marker) => Ok(Some(inode)),
        Ok((_, old)) => Err(LinkError::OtherSegment { path: path.to_owned(), segment: old.segment, uuid: old.uuid }),
        Err(LinkError::Kernel { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(LinkError::NotMarker { .. }) => exists("is no marker of a segment"),
        Err(error) => Err(error),
    }
}

/// A marker beside `path`, and whether it has its attribute.
fn written(path: &Path, header: &[u8], capacity: u64) -> Result<(NamedTempFile, bool), LinkError> {
    let folder = folder_of(path);
    let made = tempfile::Builder::new().prefix(".tentpeg-").suffix(".part").tempfile_in(&folder);
    let mut made = made.map_err(|source| kernel("create a file in", &folder, source))?;
    made.write_all(header).map_err(|source| kernel("write", path, source))?;
    let file = made.as_file();
    set_size(file, path, capacity)?;
    let attribute = match rustix::fs::fsetxattr(file, ATTRIBUTE, header, XattrFlags::empty()) {
        Ok(()) => true,
        Err(Errno::NOTSUP) => false,
        Err(errno) => return Err(kernel("set an attribute of", path, errno.into())),
    };
    // Not by the mode of creation, which the umask changes.
    file.set_permissions(Permissions::from_mode(MODE)).map_err(|source| kernel("change the mode of", path, source))?;
    file.sync_all().map_err(|source| kernel("sync", path, source))?;
    Ok((made, attribute))
}

/// Gives it the size, as a hole. A file system without holes would write all of it, and is found out by a small one.
fn set_size(file: &File, path: &Path, capacity: u64) -> Result<(), LinkError> {
    let set = |size| {
        file.set_len(size).map_err(|source| match source.kind() {
            ErrorKind::FileTooLarge | ErrorKind::InvalidInput => {
                LinkError::TooLarge { path: path.to_owned(), capacity }
            }
            _ => kernel("size", path, source),
        })
    };
    if capacity > PROBE {
        set(PROBE)?;
        let metadata = file.metadata().map_err(|source| kernel("look at", path, source))?;
        // In units of 512 bytes.
        if metadata.blocks() * 512 >= PROBE {
            return Err(LinkError::NotSparse { path: path.to_owned() });
        }
    }
    set(capacity)
}

/// Gives it its name where there is nothing. Not where there is something by now: `false`.
fn create(path: &Path, made: NamedTempFile) -> Result<bool, LinkError> {
    match made.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(kernel("create", path, error.error)),
    }
}

/// Puts it in the place of `old`. Not in that of something else that is there by now: `false`.
fn replace(path: &Path, made: NamedTempFile, old: (u64, u64)) -> Result<bool, LinkError> {
    let swap = || rustix::fs::renameat_with(CWD, made.path(), CWD, path, RenameFlags::EXCHANGE);
    match swap() {
        Ok(()) if inode_of(made.path()) == Some(old) => {
            // What was there has the other name now, and goes with it.
            drop(made);
            Ok(true)
        }
        Ok(()) => match swap() {
            Ok(()) => Ok(false),
            Err(errno) => {
                // What has the other name is somebody's, and stays.
                let _ = made.keep();
                Err(kernel("put back", path, errno.into()))
            }
        },
        Err(Errno::NOENT) => Ok(false),
        // Not every file system can swap.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) if inode_of(path) == Some(old) => {
            made.persist(path).map_err(|error| kernel("replace", path, error.error))?;
            Ok(true)
        }
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(kernel("replace", path, errno.into())),
    }
}
