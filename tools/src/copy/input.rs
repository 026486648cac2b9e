//! Where bytes to be written come from: a file, a pipe, or standard input, read by a thread of its own.
//!
//! The thread is there so that Ctrl-C ends a copy whose input is silent, or a FIFO that nobody has opened for writing. It holds a few buffers and waits when nobody takes them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use super::CopyError;
use crate::interrupt::Interrupt;

/// Buffers that are read ahead.
const AHEAD: usize = 2;
/// How often a silent input is left to look at the interrupt.
const LOOK: Duration = Duration::from_millis(50);

/// An input that is open and not yet read.
pub(super) struct Input {
    name: String,
    place: Place,
    metadata: Metadata,
    /// Bytes of the file, and how many there are to read; `None`: a pipe or the like.
    regular: Option<(u64, u64)>,
}

/// What is read.
enum Place {
    Open(File),
    /// A FIFO, which is opened when it is read: that waits for somebody who writes to it.
    Fifo(PathBuf),
}

impl Input {
    /// Opens `path`; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, CopyError> {
        if let Ok(metadata) = fs::metadata(path)
            && path != Path::new("-")
            && metadata.file_type().is_fifo()
        {
            let (name, place) = (path.display().to_string(), Place::Fifo(path.to_owned()));
            return Ok(Self { name, place, metadata, regular: None });
        }
        let (name, file) = if path == Path::new("-") {
            let duplicate = io::stdin().as_fd().try_clone_to_owned();
            ("standard input".to_owned(), duplicate.map(File::from))
        } else {
            (path.display().to_string(), File::open(path))
        };
        let failed = |step| {
            let name = name.clone();
            move |source| CopyError::File { step, name, source }
        };
        let mut file = file.map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("look at"))?;
        if metadata.is_dir() {
            return Err(failed("read")(io::ErrorKind::IsADirectory.into()));
        }
        // A file of procfs is regular and has the length 0, and bytes nevertheless.
        let knows_its_length = || metadata.len() > 0 || !matches!(file.read_at(&mut [0], 0), Ok(1));
        let regular = if metadata.is_file() && knows_its_length() {
            // Standard input may have been read in part.
            let position = file.stream_position().map_err(failed("look at"))?;
            Some((metadata.len(), metadata.len().saturating_sub(position)))
        } else {
            None
        };
        Ok(Self { name, place: Place::Open(file), metadata, regular })
    }

    /// What it is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// How many bytes to take: `asked`, or all.
    pub(super) fn length(&self, asked: Option<u64>) -> Result<u64, CopyError> {
        match (asked, self.regular) {
            (Some(asked), Some((_, has))) if asked > has => {
                Err(CopyError::InputShort { name: self.name.clone(), has, asked })
            }
            (Some(length), _) | (None, Some((_, length))) => Ok(length),
            (None, None) => Err(CopyError::NoLength(self.name.clone())),
        }
    }

    /// Starts to read `length` bytes in buffers of `chunk` bytes; the last one may be shorter.
    pub(super) fn start(self, length: u64, chunk: usize) -> Result<Reading, CopyError> {
        let name = self.name.clone();
        let (full, filled) = sync_channel(AHEAD);
        let (give_back, empty) = channel();
        thread::Builder::new()
            .name("tentpeg-input".to_owned())
            .spawn(move || {
                let Self { name, place, regular, .. } = self;
                let file = match place {
                    Place::Open(file) => Ok(file),
                    Place::Fifo(path) => File::open(path),
                };
                match file {
                    Ok(file) => Reader { name, file, regular, length, chunk, full, empty }.run(),
                    Err(source) => {
                        // Nobody listens when the copy has ended early.
                        let _ = full.send(Err(CopyError::File { step: "open", name, source }));
                    }
                }
            })
            .map_err(|source| CopyError::File { step: "start a thread to read", name: name.clone(), source })?;
        Ok(Reading { name, length, filled, give_back })
    }
}

/// An input that is being read.
pub(super) struct Reading {
    name: String,
    length: u64,
    filled: Receiver<Result<Vec<u8>, CopyError>>,
    give_back: Sender<Vec<u8>>,
}

impl Reading {
    /// The next buffer. `None`: interrupted.
    pub(super) fn next(&self, interrupt: &Interrupt) -> Result<Option<Vec<u8>>, CopyError> {
        loop {
            if interrupt.is_set() {
                return Ok(None);
            }
            match self.filled.recv_timeout(LOOK) {
                Ok(result) => return result.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                // It has sent all, and this asks for more.
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CopyError::InputEnded { name: self.name.clone(), after: self.length, of: self.length });
                }
            }
        }
    }

    /// Gives a buffer back, to be filled again.
    pub(super) fn recycle(&self, buffer: Vec<u8>) {
        // A reader that has ended needs none.
        let _ = self.give_back.send(buffer);
    }

    /// After the last buffer: whether the input stayed as it was.
    pub(super) fn finish(self) -> Result<(), CopyError> {
        match self.filled.recv() {
            Ok(Err(error)) => Err(error),
            _ => Ok(()),
        }
    }
}

/// The thread's side.
struct Reader {
    name: String,
    file: File,
    regular: Option<(u64, u64)>,
    length: u64,
    chunk: usize,
    full: SyncSender<Result<Vec<u8>, CopyError>>,
    empty: Receiver<Vec<u8>>,
}

impl Reader {
    fn run(mut self) {
        let mut done = 0;
        while done < self.length {
            let result = self.read(done);
            let read = result.as_ref().map(Vec::len);
            let more = read.is_ok();
            done += read.unwrap_or_default() as u64;
            // Nobody listens when the copy has ended early.
            if self.full.send(result).is_err() || !more {
                return;
            }
        }
        if let Err(error) = self.check_size() {
            let _ = self.full.send(Err(error));
        }
    }

    /// The buffer at `done`.
    fn read(&mut self, done: u64) -> Result<Vec<u8>, CopyError> {
        let length = usize::try_from(self.length - done).map_or(self.chunk, |left| left.min(self.chunk));
        let mut buffer = self.empty.try_recv().unwrap_or_default();
        buffer.clear();
        let read = (&mut self.file).take(length as u64).read_to_end(&mut buffer);
        let name = || self.name.clone();
        read.map_err(|source| CopyError::File { step: "read", name: name(), source })?;
        if buffer.len() < length {
            return Err(CopyError::InputEnded { name: name(), after: done + buffer.len() as u64, of: self.length });
        }
        Ok(buffer)
    }

    fn check_size(&self) -> Result<(), CopyError> {
        let Some((was, _)) = self.regular else { return Ok(()) };
        let name = || self.name.clone();
        let metadata = self.file.metadata();
        let is = metadata.map_err(|source| CopyError::File { step: "look at", name: name(), source })?.len();
        if is == was { Ok(()) } else { Err(CopyError::InputChanged { name: name(), was, is }) }
    }
}
