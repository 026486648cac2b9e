//! Opening a device for a subcommand, without making a file that nobody asked for.
//!
//! `model:path=FILE,size=4GiB` creates FILE. That suits what writes; what only looks, [`open_existing`], refuses instead. And since
//! nothing may be written when a request is wrong, a request that would create a file is checked before, against the [`Geometry`]
//! that the file would give the device ([`to_be_created`]).

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tentpeg_engine::administration::{Administration, AdministrationError};
use tentpeg_engine::{ByteSize, DeviceUri, Engine, EngineConfig, ModelUri, OpenError, StoreUri};
use thiserror::Error;

/// What a request is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a logical block, a power of two.
    pub block: u64,
    /// Bytes of the device, a multiple of the block.
    pub capacity: u64,
}

impl Geometry {
    /// Of an open device.
    pub fn of(engine: &Engine) -> Self {
        let limits = engine.info().limits;
        Self { block: limits.lba_size(), capacity: limits.capacity() }
    }
}

/// Why there is no device.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// The engine's reason.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Caller: opening it would create a file.
    #[error("{} does not exist, and `{command}` creates no file: name one that exists, or create it by `tentpeg write`", path.display())]
    WouldCreate {
        /// The subcommand.
        command: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Caller: the store keeps nothing.
    #[error(
        "{uri} keeps no bytes, so there is nothing to {command}: leave store=null away, or measure it by `tentpeg bench`"
    )]
    KeepsNothing {
        /// The subcommand.
        command: &'static str,
        /// The device.
        uri: String,
    },
    /// What is on it was not seen, or is not Tentpeg's.
    #[error(transparent)]
    Administration(#[from] AdministrationError),
    /// Caller: it has segments, and this would write over them and the label.
    #[error(
        "{uri} has a label, which would be overwritten: leave `overwrite` away to read it, or remove the label by `tentpeg label erase`"
    )]
    Labelled {
        /// The device.
        uri: String,
    },
    /// Caller: the store is gone when the command ends.
    #[error("{uri} is gone when this command ends, and a label with it: name one in a file, such as model:path=FILE")]
    Forgets {
        /// The device.
        uri: String,
    },
    /// Caller: it may not be written.
    #[error(
        "{uri} is open for reading only: a file that exists is written only where the URI says so: add `,overwrite`"
    )]
    ReadOnly {
        /// The device.
        uri: String,
    },
}

/// Opens a device that is there already: never creates a file.
///
/// # Errors
/// [`DeviceError::Open`], or [`DeviceError::WouldCreate`] where the URI names a file that does not exist.
pub fn open_existing(command: &'static str, uri: &str, config: EngineConfig) -> Result<Engine, DeviceError> {
    refuse_to_create(command, uri)?;
    Ok(Engine::open(uri, config)?)
}

/// Refuses a device whose file opening would create.
///
/// # Errors
/// [`DeviceError::WouldCreate`]; [`DeviceError::Open`]: the URI is wrong.
pub fn refuse_to_create(command: &'static str, uri: &str) -> Result<(), DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    match file_of(&parsed) {
        Some((path, _)) if is_missing(path) => Err(DeviceError::WouldCreate { command, path: path.to_owned() }),
        _ => Ok(()),
    }
}

/// Refuses a file that may be overwritten and is somebody's: it has a label, or something on it that is not Tentpeg's.
///
/// # Errors
/// [`DeviceError::Labelled`], [`DeviceError::Administration`]; [`DeviceError::Open`]: the URI is wrong.
pub fn require_nobodys(uri: &str) -> Result<(), DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    let DeviceUri::Model(ModelUri { store: StoreUri::File { path, overwrite: true }, .. }) = &parsed else {
        return Ok(());
    };
    if is_missing(path) {
        return Ok(());
    }
    let device = Administration::open(uri)?;
    device.require_no_foreign()?;
    let labelled = device.has_label();
    device.close()?;
    if labelled { Err(DeviceError::Labelled { uri: uri.to_owned() }) } else { Ok(()) }
}

/// Refuses a device of which nothing is left when the command ends.
///
/// # Errors
/// [`DeviceError::Forgets`]; [`DeviceError::Open`]: the URI is wrong.
pub fn require_lasting(uri: &str) -> Result<(), DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    match file_of(&parsed) {
        Some(_) => Ok(()),
        None => Err(DeviceError::Forgets { uri: uri.to_owned() }),
    }
}

/// The geometry of a device whose file opening would create; `None` when it would create none.
///
/// # Errors
/// [`DeviceError::Open`]: the URI is wrong.
pub fn to_be_created(uri: &str) -> Result<Option<Geometry>, DeviceError> {
    let parsed: DeviceUri = uri.parse().map_err(OpenError::from)?;
    let DeviceUri::Model(model) = &parsed;
    Ok(match file_of(&parsed) {
        Some((path, Some(ByteSize(capacity)))) if is_missing(path) => {
            Some(Geometry { block: model.lba.into(), capacity })
        }
        _ => None,
    })
}

/// Refuses a device that may not be written.
///
/// # Errors
/// [`DeviceError::ReadOnly`].
pub fn require_writable(engine: &Engine) -> Result<(), DeviceError> {
    if engine.info().writable { Ok(()) } else { Err(DeviceError::ReadOnly { uri: engine.info().name.clone() }) }
}

/// Refuses a device that keeps no bytes.
///
/// # Errors
/// [`DeviceError::KeepsNothing`].
pub fn require_bytes(command: &'static str, engine: &Engine) -> Result<(), DeviceError> {
    if engine.info().moves_data {
        return Ok(());
    }
    Err(DeviceError::KeepsNothing { command, uri: engine.info().name.clone() })
}

/// Whether the device's bytes are in this process's memory, gone when it ends.
pub fn is_in_memory(uri: &str) -> bool {
    matches!(uri.parse(), Ok(DeviceUri::Model(model)) if model.store == StoreUri::Memory)
}

/// The file that the device `uri` lies in, when `other` is of that very file, by whatever name.
pub fn own_file(uri: &str, other: &Metadata) -> Option<PathBuf> {
    let parsed: DeviceUri = uri.parse().ok()?;
    let (path, _) = file_of(&parsed)?;
    let own = path.metadata().ok()?;
    ((own.dev(), own.ino()) == (other.dev(), other.ino())).then(|| path.to_owned())
}

/// The file that opening a device created, for a run that may come to nothing: then it must not be in the way of the next one.
#[derive(Debug)]
pub struct NewFile(Option<PathBuf>);

impl NewFile {
    /// That of `engine`, if it created one.
    pub fn of(engine: &Engine) -> Self {
        Self(engine.info().created_file.clone())
    }

    /// Removes it. `None`: there is none. Its name, so that it can be told.
    ///
    /// # Errors
    /// [`NotRemoved`].
    pub fn remove(self) -> Result<Option<PathBuf>, NotRemoved> {
        let Some(path) = self.0 else { return Ok(None) };
        match fs::remove_file(&path) {
            Ok(()) => Ok(Some(path)),
            Err(source) => Err(NotRemoved { path, source }),
        }
    }
}

/// A file of a run that came to nothing which is still there.
#[derive(Debug, Error)]
#[error("{}, which was created for it, could not be removed again: {source}", path.display())]
pub struct NotRemoved {
    /// The file.
    path: PathBuf,
    /// What the operating system says.
    source: io::Error,
}

fn file_of(uri: &DeviceUri) -> Option<(&Path, Option<ByteSize>)> {
    let DeviceUri::Model(model) = uri;
    match &model.store {
        StoreUri::File { path, .. } => Some((path, model.size)),
        StoreUri::Memory | StoreUri::Null => None,
    }
}

fn is_missing(path: &Path) -> bool {
    // A link to nothing is there; the engine says what is wrong with it.
    matches!(path.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests;
