//! The folder of lock files. Whoever could write it could put another file in place of one that is locked, so it must
//! belong to who uses it or to root, and nobody else may write it. It is opened once, without following a link at its end,
//! and files are looked for in what has been opened.

use std::env;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::{LockError, LockName};

/// Root's folder. Everybody can write `/run/lock`, so it is looked at before it is believed.
const OF_ROOT: &str = "/run/lock/tentpeg";
const MANY_CAN_WRITE: &str = "it must not be writable for everybody: remove it if you did not make it, or chmod o-w";
const NOT_OURS: &str = "it must belong to you or to root: remove it, or configure another folder";

/// Where lock files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockFolder(PathBuf);

impl LockFolder {
    /// `/run/lock/tentpeg` for root, else `$XDG_RUNTIME_DIR/tentpeg`. Openers of different users need a common folder to
    /// be held apart by their locks.
    ///
    /// # Errors
    /// [`LockError::NoFolder`].
    pub fn of_this_user() -> Result<Self, LockError> {
        if rustix::process::geteuid().is_root() {
            return Ok(Self(OF_ROOT.into()));
        }
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        // The specification of XDG_RUNTIME_DIR has a relative path ignored.
        let runtime = runtime.filter(|path| path.is_absolute()).ok_or(LockError::NoFolder)?;
        Ok(Self(runtime.join("tentpeg")))
    }

    /// This one. It may be writable for a group, whose members then trust each other; it is made, for its owner alone,
    /// where it does not exist and the folder above it does.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn open(&self) -> Result<OpenFolder, LockError> {
        let path = &self.0;
        let kernel = |step| move |errno: Errno| LockError::Kernel { step, path: path.clone(), source: errno.into() };
        match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(kernel("create")(errno)),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let folder = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(folder) => File::from(folder),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                let reason = "it must be a folder and no link: remove it, or configure another";
                return Err(LockError::NotTrusted { path: path.clone(), reason });
            }
            Err(errno) => return Err(kernel("open")(errno)),
        };
        let metadata = folder.metadata();
        let metadata = metadata.map_err(|source| LockError::Kernel { step: "look at", path: path.clone(), source })?;
        let reason = match metadata.mode() & 0o002 {
            0 if is_trusted(metadata.uid()) => return Ok(OpenFolder { path: path.clone(), folder }),
            0 => NOT_OURS,
            _ => MANY_CAN_WRITE,
        };
        Err(LockError::NotTrusted { path: path.clone(), reason })
    }
}

fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// A folder that has been looked at.
pub(super) struct OpenFolder {
    path: PathBuf,
    folder: File,
}

impl OpenFolder {
    pub(super) fn path_of(&self, name: &LockName) -> PathBuf {
        self.path.join(name.as_str())
    }

    /// The file of `name`, made where there is none.
    pub(super) fn file(&self, name: &LockName) -> Result<File, LockError> {
        let path = || self.path_of(name);
        let not_trusted = || LockError::NotTrusted {
            path: path(),
            reason: "it must be a file with one name and no link: remove it if you did not make it",
        };
        let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let open = |access| rustix::fs::openat(&self.folder, name.as_str(), flags | access, Mode::from_raw_mode(0o644));
        // Another member's file can be locked, though not written.
        let opened = match open(OFlags::RDWR) {
            Err(Errno::ACCESS) => open(OFlags::RDONLY),
            opened => opened,
        };
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(not_trusted()),
            Err(errno) => return Err(LockError::Kernel { step: "open", path: path(), source: errno.into() }),
        };
        let metadata = file.metadata().map_err(|source| LockError::Kernel { step: "look at", path: path(), source })?;
        // Of a file that has just been removed no name is left; whether the lock counts is looked at after it is taken.
        if metadata.is_file() && metadata.nlink() <= 1 { Ok(file) } else { Err(not_trusted()) }
    }

    /// Whether `file` is still the one that is called `name`.
    pub(super) fn holds(&self, name: &LockName, file: &File) -> Result<bool, LockError> {
        let kernel = |source: io::Error| LockError::Kernel { step: "look at", path: self.path_of(name), source };
        let locked = file.metadata().map_err(kernel)?;
        match rustix::fs::statat(&self.folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => Ok(FileType::from_raw_mode(now.st_mode) == FileType::RegularFile
                && (now.st_dev, now.st_ino) == (locked.dev(), locked.ino())),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(kernel(errno.into())),
        }
    }
}
