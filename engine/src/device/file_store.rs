//! The file that a model keeps its bytes in: found, or created, and never written by accident.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::serial;
use crate::ByteSize;

/// Why a file is no store.
#[derive(Debug, Error)]
pub enum FileStoreError {
    /// It is a directory, a device, a pipe or a socket.
    #[error("{} is {kind}: a model's store must be a regular file", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It does not exist and no size was named.
    #[error("{} does not exist: name a size to create it, such as size=4GiB", path.display())]
    NoSize {
        /// The path.
        path: PathBuf,
    },
    /// It does not exist, and was to be read.
    #[error("{} does not exist, and what is opened for reading is not created: name a file that exists", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It exists with another length.
    #[error("{} has {length} bytes, but size={size} was asked for: leave size away, or name the file's own", path.display())]
    OtherSize {
        /// The path.
        path: PathBuf,
        /// The file's length.
        length: u64,
        /// The size asked for.
        size: ByteSize,
    },
    /// It ends within a block.
    #[error("{} has {length} bytes, which is no multiple of the block of {block} bytes: make it longer or shorter, or write another lba", path.display())]
    NotWholeBlocks {
        /// The path.
        path: PathBuf,
        /// The file's length.
        length: u64,
        /// Bytes of a block.
        block: u32,
    },
    /// It is a link to nothing.
    #[error("{} is a link to a file that does not exist: remove it, or name that file", path.display())]
    DanglingLink {
        /// The path.
        path: PathBuf,
    },
    /// The folder that it would be in does not exist.
    #[error("{} cannot be created: the folder {} does not exist", path.display(), folder.display())]
    NoFolder {
        /// The path.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// It exists and is empty.
    #[error("{} is empty: a store has at least one block; remove it to have it created", path.display())]
    Empty {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Kernel {
        /// The path.
        path: PathBuf,
        /// What was tried.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A file that can be a store.
#[derive(Debug)]
pub(super) struct FileStore {
    pub(super) size: u64,
    pub(super) writable: bool,
    /// The serial number of a model over it.
    pub(super) serial: String,
    pub(super) created: Option<Created>,
}

/// A file that was created just now; removed again unless it is kept.
#[derive(Debug)]
pub(super) struct Created {
    path: PathBuf,
    keep: bool,
}

impl Created {
    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file stays.
    pub(super) fn keep(mut self) {
        self.keep = true;
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if !self.keep {
            // It was made a moment ago and nothing has been written to it; what opening failed of is the error.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Finds the file, or creates it sparse with `size` bytes. One that exists is for reading only unless `overwrite`.
pub(super) fn find_or_create(
    path: &Path,
    size: Option<ByteSize>,
    overwrite: bool,
) -> Result<FileStore, FileStoreError> {
    let kernel = |step| move |source| FileStoreError::Kernel { path: path.to_owned(), step, source };
    match fs::metadata(path) {
        Ok(metadata) => {
            if !metadata.is_file() {
                return Err(FileStoreError::NotRegular { path: path.to_owned(), kind: kind(&metadata) });
            }
            let length = metadata.len();
            match size {
                Some(size) if size.0 != length => {
                    Err(FileStoreError::OtherSize { path: path.to_owned(), length, size })
                }
                _ if length == 0 => Err(FileStoreError::Empty { path: path.to_owned() }),
                _ => {
                    let serial = serial::of_file(&metadata);
                    Ok(FileStore { size: length, writable: overwrite, serial, created: None })
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if fs::symlink_metadata(path).is_ok() {
                return Err(FileStoreError::DanglingLink { path: path.to_owned() });
            }
            if let Some(folder) = path.parent().filter(|folder| *folder != Path::new(""))
                && !folder.exists()
            {
                return Err(FileStoreError::NoFolder { path: path.to_owned(), folder: folder.to_owned() });
            }
            let size = size.ok_or_else(|| FileStoreError::NoSize { path: path.to_owned() })?;
            let file: File = OpenOptions::new().write(true).create_new(true).open(path).map_err(kernel("create"))?;
            let created = Created { path: path.to_owned(), keep: false };
            file.set_len(size.0).map_err(kernel("size"))?;
            let serial = serial::of_file(&file.metadata().map_err(kernel("look at"))?);
            Ok(FileStore { size: size.0, writable: true, serial, created: Some(created) })
        }
        Err(error) => Err(kernel("look at")(error)),
    }
}

fn kind(metadata: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "something else"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_created_once_and_then_only_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let size = Some(ByteSize(1 << 20));
        assert!(matches!(find_or_create(&path, None, false), Err(FileStoreError::NoSize { .. })));
        assert!(!path.exists(), "nothing is written on an error");
        find_or_create(&path, size, false).unwrap().created.unwrap().keep();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        let found = find_or_create(&path, None, false).unwrap();
        assert!(!found.writable && found.created.is_none() && found.size == 1 << 20);
        assert!(find_or_create(&path, size, true).unwrap().writable);
        let other = find_or_create(&path, Some(ByteSize(4096)), true).unwrap_err().to_string();
        assert!(other.contains("has 1048576 bytes, but size=4KiB"), "{other}");
    }

    #[test]
    fn a_file_that_was_made_in_vain_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        drop(find_or_create(&path, Some(ByteSize(4096)), false).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn anything_but_a_regular_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| find_or_create(path, None, true).unwrap_err().to_string();
        assert!(refused(folder.path()).contains("is a directory: a model's store must be a regular file"));
        assert!(refused(Path::new("/dev/null")).contains("is a character device"));
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(refused(&socket).contains("is a socket"));
        let empty = folder.path().join("empty");
        fs::write(&empty, b"").unwrap();
        assert!(refused(&empty).contains("is empty"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/nowhere/at/all", &link).unwrap();
        let message = find_or_create(&link, Some(ByteSize(4096)), true).unwrap_err().to_string();
        assert!(message.contains("is a link to a file that does not exist"), "and is not followed: {message}");
        assert!(refused(&folder.path().join("none/store")).contains("none does not exist"));
    }
}
