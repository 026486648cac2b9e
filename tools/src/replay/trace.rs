//! Reads a KV-cache trace, one request at a time.
//!
//! The format is that of the traces published with Mooncake (FAST '25): one JSON object a line, in UTF-8.
//!
//! | part of a line | what it must be |
//! | --- | --- |
//! | `hash_ids` | required: an array of whole numbers from 0 to 2^64 − 1, the ids of the prefix blocks. It may be empty (a request that moves nothing) and may repeat an id |
//! | `timestamp`, `input_length`, `output_length`, any other field | not looked at, except that the line must be JSON |
//! | line end | `\n` or `\r\n`; the last line may lack it if its object is whole |
//! | a line of white space only | skipped, but counted in line numbers |
//! | a byte-order mark before the first line | skipped |
//! | length | at most [`MAX_LINE_BYTES`], so that memory stays bounded whatever the file holds |
//!
//! A file cut off inside a line is an error that says so. One cut off exactly between two lines is a shorter trace: the format has no
//! way to tell. A trace without any request is an error.
//!
//! The caller owns the file. To have nothing written on behalf of a bad trace, it runs [`survey`] over the whole file first.

use std::fmt;
use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use thiserror::Error;

use super::Request;

/// The longest line that is read, in bytes and without its line end: room for 190,000 ids of 20 digits.
pub const MAX_LINE_BYTES: usize = 4 << 20;

/// What is wrong with a trace. Lines and columns count from 1, columns in bytes.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file holds no request.
    #[error("the trace holds no requests: it must have one JSON object a line, such as {EXAMPLE}")]
    Empty,
    /// The file ends inside a line.
    #[error(
        "line {line}: the line is cut off, as the file ends in it: get the whole file, or remove this line to replay what is before it"
    )]
    CutOff {
        /// Number of the unfinished line.
        line: u64,
    },
    /// The line is longer than this reader keeps in memory.
    #[error(
        "line {line}: longer than {MAX_LINE_BYTES} bytes: a trace has one request a line, each on a line of its own"
    )]
    TooLong {
        /// Number of the line.
        line: u64,
    },
    /// The line is not text.
    #[error(
        "line {line}, column {column}: not UTF-8: a trace is a text file of one JSON object a line, such as {EXAMPLE}"
    )]
    NotUtf8 {
        /// Number of the line.
        line: u64,
        /// The first byte that does not belong to a character.
        column: usize,
    },
    /// The line is not a request.
    #[error("line {line}, column {column}: {what}: a request is one JSON object on one line, such as {EXAMPLE}")]
    NotARequest {
        /// Number of the line.
        line: u64,
        /// Where in the line the parser stopped.
        column: usize,
        /// What it found there, and what it expected.
        what: String,
    },
    /// The file could not be read.
    #[error("line {line}: the trace cannot be read: {source}")]
    Read {
        /// Number of the line that was being read.
        line: u64,
        /// What the operating system says.
        source: io::Error,
    },
}

const EXAMPLE: &str = r#"{"hash_ids": [0, 14, 15]}"#;

/// An iterator over the requests of a trace. After an error it ends.
#[derive(Debug)]
pub struct TraceReader<R> {
    reader: R,
    buffer: Vec<u8>,
    line: u64,
    found_any: bool,
    ended: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// Reads a trace from its beginning.
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), line: 0, found_any: false, ended: false }
    }

    /// The next request, or `None` at the end of a trace that had some.
    fn read_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let line = self.line;
            // Two bytes more than a line may have: its line end, if it is not too long.
            (&mut self.reader)
                .take(MAX_LINE_BYTES as u64 + 2)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| TraceError::Read { line, source })?;
            if self.buffer.is_empty() {
                return if self.found_any { Ok(None) } else { Err(TraceError::Empty) };
            }
            if let Some(request) = parse_line(line, &self.buffer)? {
                self.found_any = true;
                return Ok(Some(request));
            }
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.read_request().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Parses a line with its line end, if it has one. `None`: the line is blank.
fn parse_line(line: u64, bytes: &[u8]) -> Result<Option<Request>, TraceError> {
    let (content, terminated) = match bytes.strip_suffix(b"\n") {
        Some(content) => (content.strip_suffix(b"\r").unwrap_or(content), true),
        None => (bytes, false),
    };
    if content.len() > MAX_LINE_BYTES {
        return Err(TraceError::TooLong { line });
    }
    let text = str::from_utf8(content).map_err(|error| {
        // No error length: the bytes end inside a character.
        if error.error_len().is_none() && !terminated {
            TraceError::CutOff { line }
        } else {
            let column = error.valid_up_to() + 1;
            TraceError::NotUtf8 { line, column }
        }
    })?;
    let text = match text.strip_prefix('\u{feff}') {
        Some(rest) if line == 1 => rest,
        _ => text,
    };
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(Fields { hash_ids }) => Ok(Some(Request { hash_ids })),
        Err(error) if !terminated && is_cut_off(text, &error) => Err(TraceError::CutOff { line }),
        Err(error) => Err(TraceError::NotARequest { line, column: error.column(), what: without_position(&error) }),
    }
}

/// Whether `text`, which nothing follows, is wrong only because it ends where it does.
fn is_cut_off(text: &str, error: &serde_json::Error) -> bool {
    // Of a number that lacks its digits, the parser does not say that it has met the end.
    let in_a_number = || error.is_syntax() && error.column() >= text.len() && text.ends_with(['-', '+', '.', 'e', 'E']);
    text.trim_ascii_start().starts_with('{') && (error.is_eof() || in_a_number())
}

/// The parser's message without its own "at line 1 column 9": to it, each line is a file.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rsplit_once(" at line ") {
        Some((what, _)) => what.to_owned(),
        None => message,
    }
}

/// The fields of a line that matter. Deserialised by hand, as a derived form would also take an array for an object.
struct Fields {
    hash_ids: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    HashIds,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object with `hash_ids`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut hash_ids: Option<Vec<BlockId>> = None;
                while let Some(field) = map.next_key()? {
                    match field {
                        Field::HashIds if hash_ids.is_some() => {
                            return Err(serde::de::Error::duplicate_field("hash_ids"));
                        }
                        Field::HashIds => hash_ids = Some(map.next_value()?),
                        Field::Other => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                let hash_ids = hash_ids.ok_or_else(|| serde::de::Error::missing_field("hash_ids"))?;
                let hash_ids = hash_ids.into_iter().map(|BlockId(id)| id).collect();
                Ok(Fields { hash_ids })
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// A block's id. A type of its own for the sake of its error message.
struct BlockId(u64);

impl<'de> Deserialize<'de> for BlockId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BlockIdVisitor;

        impl Visitor<'_> for BlockIdVisitor {
            type Value = BlockId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a block id, a whole number from 0 to {}", u64::MAX)
            }

            fn visit_u64<E>(self, id: u64) -> Result<BlockId, E> {
                Ok(BlockId(id))
            }
        }

        deserializer.deserialize_u64(BlockIdVisitor)
    }
}

/// What a whole trace holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Requests, those without blocks included.
    pub requests: u64,
    /// Blocks visited, over all requests.
    pub blocks: u64,
    /// Blocks of the longest request.
    pub longest: u64,
}

/// Reads a trace to its end and counts, so that an error anywhere in it is known before anything is done on its behalf.
///
/// # Errors
/// The first error of the trace.
pub fn survey(reader: impl BufRead) -> Result<Survey, TraceError> {
    TraceReader::new(reader).try_fold(Survey::default(), |survey, request| {
        let blocks = request?.hash_ids.len() as u64;
        Ok(Survey {
            requests: survey.requests + 1,
            blocks: survey.blocks + blocks,
            longest: survey.longest.max(blocks),
        })
    })
}

#[cfg(test)]
mod tests;
