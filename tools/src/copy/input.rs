//! Where bytes to be written come from: a file, a pipe, or standard input, read by a thread of its own.
//!
//! The thread is there so that Ctrl-C ends a copy whose input is silent. It holds a few buffers and waits when nobody takes them.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;
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
    file: File,
    /// Bytes of the file, and how many there are to read; `None`: a pipe or the like.
    regular: Option<(u64, u64)>,
}

impl Input {
    /// Opens `path`; `-` is standard input.
    pub(super) fn open(path: &Path) -> Result<Self, CopyError> {
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
        let regular = if metadata.is_file() {
            // Standard input may have been read in part.
            let position = file.stream_position().map_err(failed("look at"))?;
            Some((metadata.len(), metadata.len().saturating_sub(position)))
        } else {
            None
        };
        Ok(Self { name, file, regular })
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
        let reader = Reader { input: self, length, chunk, full, empty };
        thread::Builder::new()
            .name("tentpeg-input".to_owned())
            .spawn(|| reader.run())
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
    input: Input,
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
        let read = (&mut self.input.file).take(length as u64).read_to_end(&mut buffer);
        let name = || self.input.name.clone();
        read.map_err(|source| CopyError::File { step: "read", name: name(), source })?;
        if buffer.len() < length {
            return Err(CopyError::InputEnded { name: name(), after: done + buffer.len() as u64, of: self.length });
        }
        Ok(buffer)
    }

    fn check_size(&self) -> Result<(), CopyError> {
        let Some((was, _)) = self.input.regular else { return Ok(()) };
        let name = || self.input.name.clone();
        let metadata = self.input.file.metadata();
        let is = metadata.map_err(|source| CopyError::File { step: "look at", name: name(), source })?.len();
        if is == was { Ok(()) } else { Err(CopyError::InputChanged { name: name(), was, is }) }
    }
}
