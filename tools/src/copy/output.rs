//! Where bytes that were read go: standard output, or a file that appears whole or not at all.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tempfile::NamedTempFile;

use super::CopyError;
use crate::interrupt::Interrupt;

/// An open output. Dropping one that is not finished leaves nothing of a file.
pub(super) enum Output {
    /// Standard output.
    Stdout(Stream),
    /// A file beside the one that it becomes.
    File { temporary: NamedTempFile, path: PathBuf, force: bool },
}

impl Output {
    /// Opens `path`; `-` is standard output. A file that exists is refused unless `force`.
    pub(super) fn open(path: &Path, force: bool) -> Result<Self, CopyError> {
        if path == Path::new("-") {
            let stdout = io::stdout();
            if stdout.is_terminal() {
                return Err(CopyError::Terminal);
            }
            return Stream::start(&stdout).map(Self::Stdout);
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

    /// Writes all of `bytes`, or what goes to standard output until the interrupt.
    pub(super) fn write(&mut self, bytes: &[u8], interrupt: &Interrupt) -> Result<(), CopyError> {
        let written = match self {
            Self::Stdout(stream) => stream.write(bytes, interrupt),
            Self::File { temporary, .. } => temporary.as_file_mut().write_all(bytes),
        };
        written.map_err(|source| CopyError::File { step: "write to", name: self.name(), source })
    }

    /// Makes it last, and gives a file its name.
    pub(super) fn finish(self) -> Result<(), CopyError> {
        let name = self.name();
        let failed = |step| move |source| CopyError::File { step, name, source };
        match self {
            // Each write has come to its end.
            Self::Stdout(_) => Ok(()),
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

/// How often a reader that takes nothing is left to look at the interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// Standard output, written by a thread of its own, so that Ctrl-C ends a copy into a pipe that nobody reads.
pub(super) struct Stream {
    full: Sender<Vec<u8>>,
    /// The buffer again, or why it was not written.
    written: Receiver<io::Result<Vec<u8>>>,
    buffer: Vec<u8>,
}

impl Stream {
    fn start(stdout: &io::Stdout) -> Result<Self, CopyError> {
        let failed = |step| move |source| CopyError::File { step, name: "standard output".to_owned(), source };
        let mut file = File::from(stdout.as_fd().try_clone_to_owned().map_err(failed("open"))?);
        let (full, buffers) = channel::<Vec<u8>>();
        let (done, written) = channel();
        let run = move || {
            for buffer in buffers {
                // Nobody listens when the copy has ended early.
                if done.send(file.write_all(&buffer).map(|()| buffer)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("tentpeg-output".to_owned()).spawn(run);
        thread.map_err(failed("start a thread to write to"))?;
        Ok(Self { full, written, buffer: Vec::new() })
    }

    fn write(&mut self, bytes: &[u8], interrupt: &Interrupt) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(bytes);
        let gone = || io::Error::other("its thread has ended");
        self.full.send(buffer).map_err(|_| gone())?;
        while !interrupt.is_set() {
            match self.written.recv_timeout(LOOK) {
                Ok(result) => {
                    self.buffer = result?;
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
            }
        }
        Ok(())
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
