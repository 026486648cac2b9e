//! The lock that holds the openers of one device on one node apart: `flock(2)`, on a file named by the namespace in a
//! [folder](LockFolder) that only its owner can write. A file that a model keeps its bytes in is locked by the model, on
//! the file itself and by the same rules; [`store_in_use`] says who has it.
//!
//! Whoever writes holds it alone; those who only read share it. It belongs to an open file description, so that two
//! engines in one process exclude each other as two processes do, and it ends with the process, whatever ends that; a
//! process that forks without exec shares it with its child. Lock files stay, and an old one is harmless: the lock
//! decides, never a file's being there. What stands in one names the holder, for the message of who comes too late.
//!
//! Processes that look into different folders, as those of different users do unless one is configured for all, are
//! not held apart by it, and neither are nodes. There the reservation decides, and that a function has one driver.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use thiserror::Error;

mod folder;
mod holder;
mod name;

pub use folder::LockFolder;
pub use holder::Holder;
pub use name::LockName;

/// How often a lock is tried on a file that is replaced meanwhile.
const ATTEMPTS: usize = 16;

/// Who else may have the device open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Others that only read.
    Shared,
    /// Nobody.
    Exclusive,
}

/// Why there is no lock.
#[derive(Debug, Error)]
pub enum LockError {
    /// Host: somebody else has it open.
    #[error("{what} is in use by {}: end that first, or open another device", holder::list(holders))]
    Held {
        /// What is locked.
        what: String,
        /// Who has it, as far as can be seen.
        holders: Vec<Holder>,
    },
    /// Host: there is no folder for locks.
    #[error(
        "there is no folder for locks: XDG_RUNTIME_DIR is not set: set it to a folder of your own, or configure one"
    )]
    NoFolder,
    /// Host: somebody else could put something in place of what is locked.
    #[error("{} cannot be trusted with locks: {reason}", path.display())]
    NotTrusted {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it, and what would be right.
        reason: &'static str,
    },
    /// Host: the kernel refused.
    #[error("cannot {step} {}: {source}", path.display())]
    Kernel {
        /// What was tried.
        step: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
    mode: LockMode,
    /// Whether the file names this process.
    recorded: bool,
}

impl Lock {
    /// Locks the namespace `name`.
    ///
    /// # Errors
    /// [`LockError::Held`] by others that exclude this one; the others where the folder is not as it must be.
    pub fn of_namespace(folder: &LockFolder, name: &LockName, mode: LockMode) -> Result<Self, LockError> {
        let folder = folder.open()?;
        for _ in 0..ATTEMPTS {
            let file = folder.file(name)?;
            try_lock(&file, mode, name, &folder.path_of(name))?;
            // Somebody may have removed the file and made another before this lock was taken.
            if folder.holds(name, &file)? {
                let recorded = mode == LockMode::Exclusive && Holder::of_this_process().record(&file).is_ok();
                return Ok(Self { file, mode, recorded });
            }
        }
        let reason = "it is replaced again and again: see who removes files there";
        Err(LockError::NotTrusted { path: folder.path_of(name), reason })
    }

    /// Who else may have the device open.
    pub fn mode(&self) -> LockMode {
        self.mode
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if self.recorded {
            // While the lock is held: the next holder's name is not taken away. A name that stays misleads nobody,
            // since it is only looked at where the lock is held.
            let _ = self.file.set_len(0);
        }
    }
}

/// What to say of the file of a model's store that [is in use](tentpeg_driver::model::ModelError::InUse).
pub fn store_in_use(path: &Path) -> LockError {
    // A pipe would wait for its other end.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let holders = file.map(|file| holder::listed(&file)).unwrap_or_default();
    LockError::Held { what: format!("the store {}", path.display()), holders }
}

fn try_lock(file: &File, mode: LockMode, name: &LockName, path: &Path) -> Result<(), LockError> {
    let outcome = match mode {
        LockMode::Shared => file.try_lock_shared(),
        LockMode::Exclusive => file.try_lock(),
    };
    outcome.map_err(|error| match error {
        TryLockError::WouldBlock => LockError::Held { what: format!("namespace {name}"), holders: holder::of(file) },
        TryLockError::Error(source) => LockError::Kernel { step: "lock", path: path.to_owned(), source },
    })
}

#[cfg(test)]
mod tests;
