//! Where the requests of a replay come from: a trace in a file, or the generator.
//!
//! A trace is read twice: once whole, so that a mistake anywhere in it is known before anything is done on its behalf, and once more as
//! it is replayed, so that memory does not grow with it. So it must be a regular file; a pipe can be read once only.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Request;
use super::generator::Generator;
use super::trace::{TraceError, TraceReader, survey};
use crate::report::file::kind;

/// Where requests come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file in the format that [`trace`](super::trace) describes.
    Trace(PathBuf),
    /// The built-in generator.
    Generator {
        /// How many requests it makes.
        requests: u64,
        /// Which of its traces it is.
        seed: u64,
    },
}

/// Why there are no requests, or no more of them.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("cannot open the trace {}: {source}", path.display())]
    Open {
        /// The path as given.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// It is a directory, a pipe, a device or a socket.
    #[error(
        "the trace {} is {kind}: it must be a regular file, as it is read twice, the first time to check all of it",
        path.display()
    )]
    NotRegular {
        /// The path as given.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It is compressed.
    #[error("the trace {} is gzip-compressed: decompress it first (gzip -d)", path.display())]
    Gzip {
        /// The path as given.
        path: PathBuf,
    },
    /// It is no trace.
    #[error("{}: {source}", path.display())]
    Trace {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it, and in which line.
        source: TraceError,
    },
}

impl Source {
    /// Checks the whole of it, and gives its requests from the first one on.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn open(&self) -> Result<Requests, SourceError> {
        match self {
            Self::Trace(path) => Requests::of_file(path),
            Self::Generator { requests, seed } => {
                Ok(Requests { total: *requests, origin: Origin::Generator(Generator::new(*seed, *requests)) })
            }
        }
    }
}

/// The requests of a source, in order.
#[derive(Debug)]
pub struct Requests {
    total: u64,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Trace { path: PathBuf, reader: TraceReader<BufReader<File>> },
    Generator(Generator),
}

impl Requests {
    fn of_file(path: &Path) -> Result<Self, SourceError> {
        let cannot_open = |source| SourceError::Open { path: path.to_owned(), source };
        // Looked at first: to open a pipe would wait for somebody to open its other end.
        let metadata = fs::metadata(path).map_err(cannot_open)?;
        if !metadata.is_file() {
            return Err(SourceError::NotRegular { path: path.to_owned(), kind: kind(metadata.file_type()) });
        }
        let mut file = File::open(path).map_err(cannot_open)?;
        // The magic number of gzip (RFC 1952, 2.3.1).
        let mut magic = [0; 2];
        if file.read_at(&mut magic, 0).is_ok_and(|read| read == 2) && magic == [0x1f, 0x8b] {
            return Err(SourceError::Gzip { path: path.to_owned() });
        }
        let found = survey(BufReader::new(&file));
        let found = found.map_err(|source| SourceError::Trace { path: path.to_owned(), source })?;
        file.rewind().map_err(cannot_open)?;
        let reader = TraceReader::new(BufReader::new(file));
        Ok(Self { total: found.requests, origin: Origin::Trace { path: path.to_owned(), reader } })
    }

    /// How many there are in all.
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Iterator for Requests {
    type Item = Result<Request, SourceError>;

    /// The next request. An error here means that the file has changed since it was checked.
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.origin {
            Origin::Generator(generator) => generator.next().map(Ok),
            Origin::Trace { path, reader } => {
                let next = reader.next()?;
                Some(next.map_err(|source| SourceError::Trace { path: path.clone(), source }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        Source::Trace(path.to_owned()).open().unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_checked_whole_and_then_read_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.jsonl");
        fs::write(&path, "{\"hash_ids\":[1,18446744073709551615]}\n\n{\"hash_ids\":[],\"later\":{}}\n").unwrap();
        let requests = Source::Trace(path.clone()).open().unwrap();
        assert_eq!(requests.total(), 2);
        let ids: Vec<_> = requests.map(|request| request.unwrap().hash_ids).collect();
        assert_eq!(ids, [vec![1, u64::MAX], vec![]]);
        fs::write(&path, "{\"hash_ids\":[1]}\n{\"hash_ids\":[1,").unwrap();
        assert!(message(&path).contains("trace.jsonl: line 2: the line is cut off"));
    }

    #[test]
    fn what_cannot_be_read_twice_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(message(folder.path()).contains("is a directory: it must be a regular file"));
        assert!(message(Path::new("/dev/null")).contains("is a device: it must be a regular file"));
        assert!(message(&folder.path().join("none")).contains("cannot open the trace"));
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(message(&pipe).contains("is a pipe: it must be a regular file"));
    }

    #[test]
    fn generated_requests_are_counted_before_they_are_made() {
        let requests = Source::Generator { requests: 3, seed: 1 }.open().unwrap();
        assert_eq!(requests.total(), 3);
        assert_eq!(requests.count(), 3);
    }
}
