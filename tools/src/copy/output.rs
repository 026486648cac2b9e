//! Where bytes that were read go: standard output, or a file that appears whole or not at all.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::CopyError;

/// An open output. Dropping one that is not finished leaves nothing of a file.
pub(super) enum Output {
    /// Standard output.
    Stdout(io::Stdout),
    /// A file beside the one that it becomes.
    File { temporary: NamedTempFile, path: PathBuf, force: bool },
}

impl Output {
    /// Opens `path`; `-` is standard output. A file that exists is refused unless `force`.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self, CopyError> {
        if path == Path::new("-") {
            let stdout = io::stdout();
            return if stdout.is_terminal() { Err(CopyError::Terminal) } else { Ok(Self::Stdout(stdout)) };
        }
        let replaced = fs::symlink_metadata(path);
        match &replaced {
            Ok(metadata) if !metadata.is_file() => return Err(CopyError::NotReplaceable(path.to_owned())),
            Ok(_) if !force => return Err(CopyError::Exists(path.to_owned())),
            _ => {}
        }
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let temporary = tempfile::Builder::new()
            .prefix(".tentpeg-")
            // As for any new file: the umask takes away what it takes away.
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(|source| CopyError::File {
                step: "create a file in",
                name: folder.display().to_string(),
                source: plain(source),
            })?;
        if let Ok(replaced) = replaced {
            // What takes the place of a file is as accessible as that was.
            let set = temporary.as_file().set_permissions(replaced.permissions());
            set.map_err(|source| CopyError::File {
                step: "set the mode of",
                name: path.display().to_string(),
                source,
            })?;
        }
        Ok(Self::File { temporary, path: path.to_owned(), force })
    }

    /// What stands at `path`, or standard output is; `None`: nothing that can be looked at.
    pub(super) fn metadata(path: &Path) -> Option<Metadata> {
        if path == Path::new("-") {
            let duplicate = io::stdout().as_fd().try_clone_to_owned().ok()?;
            return File::from(duplicate).metadata().ok();
        }
        fs::metadata(path).ok()
    }

    /// What it is called.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Stdout(_) => "standard output".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    /// Writes all of `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        let written = match self {
            Self::Stdout(stdout) => stdout.lock().write_all(bytes),
            Self::File { temporary, .. } => temporary.as_file_mut().write_all(bytes),
        };
        written.map_err(|source| CopyError::File { step: "write to", name: self.name(), source })
    }

    /// Makes it last, and gives a file its name.
    pub(super) fn finish(self) -> Result<(), CopyError> {
        let name = self.name();
        let failed = |step| move |source| CopyError::File { step, name, source };
        match self {
            Self::Stdout(mut stdout) => stdout.flush().map_err(failed("write to")),
            Self::File { temporary, path, force } => {
                // Before the name: after a crash it must not stand for a file without its bytes.
                temporary.as_file().sync_all().map_err(failed("write to"))?;
                let named = if force { temporary.persist(&path) } else { temporary.persist_noclobber(&path) };
                match named {
                    Ok(_) => Ok(()),
                    // It was made in the meantime.
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(CopyError::Exists(path)),
                    Err(error) => {
                        Err(CopyError::File { step: "create", name: path.display().to_string(), source: error.error })
                    }
                }
            }
        }
    }
}

/// What the kernel said, without the name of the temporary file.
fn plain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound {
        return io::Error::new(error.kind(), "the folder does not exist");
    }
    let inner = error.get_ref().and_then(|inner| inner.source()).and_then(|inner| inner.downcast_ref::<io::Error>());
    inner.and_then(io::Error::raw_os_error).map_or(error, io::Error::from_raw_os_error)
}
