//! What a marker says: a line that tells what the file is, and a line of JSON. The rest of the file is a hole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::LinkError;

/// The first line.
const MAGIC: &str = "TENTPEG-SEGMENT\n";
/// The version that is written, and the newest that is read.
pub(super) const VERSION: u32 = 1;
/// The most bytes of a header.
pub(super) const MOST: usize = 4096;

/// The segment that a marker stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The device of the segment, as its label names it; of a stripe the set.
    pub device: Uuid,
    /// The segment's name, for people.
    pub segment: String,
    /// The segment.
    pub uuid: Uuid,
    /// Its bytes.
    pub capacity: u64,
}

/// The second line. A newer version may have more in it.
#[derive(Serialize, Deserialize)]
struct Line {
    version: u32,
    #[serde(flatten)]
    marker: Marker,
}

/// As much as must be understood of any version.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Marker {
    /// Whether both are of one segment, whatever it is called and however large it is.
    pub fn is_same_segment(&self, other: &Self) -> bool {
        (self.device, self.uuid) == (other.device, other.uuid)
    }

    /// The header; all of what an attribute holds.
    pub(super) fn header(&self) -> Result<Vec<u8>, LinkError> {
        let line = serde_json::to_string(&Line { version: VERSION, marker: self.clone() });
        // Strings and numbers always are JSON.
        let header = format!("{MAGIC}{}\n", line.unwrap_or_default()).into_bytes();
        if header.len() > MOST || header.len() as u64 > self.capacity {
            let needed = header.len();
            return Err(LinkError::TooSmall { capacity: self.capacity.min(MOST as u64), needed });
        }
        Ok(header)
    }

    pub(super) fn read(file: &File, path: &Path) -> Result<Self, LinkError> {
        let mut bytes = [0; MOST];
        let mut len = 0;
        // A read may give less than there is.
        while len < MOST {
            match file.read_at(&mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(source) => return Err(LinkError::Kernel { step: "read", path: path.to_owned(), source }),
            }
        }
        Self::parse(&bytes[..len], path)
    }

    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, LinkError> {
        let not = |reason| LinkError::NotMarker { path: path.to_owned(), reason };
        let line = bytes.strip_prefix(MAGIC.as_bytes()).ok_or(not("it does not begin with TENTPEG-SEGMENT"))?;
        let end = line.iter().position(|byte| *byte == b'\n').ok_or(not("its second line does not end"))?;
        let line = &line[..end];
        let Versioned { version } = serde_json::from_slice(line).map_err(|_| not("its second line has no version"))?;
        if version > VERSION {
            return Err(LinkError::Newer { path: path.to_owned(), version });
        }
        let Line { marker, .. } = serde_json::from_slice(line).map_err(|_| not("its second line names no segment"))?;
        Ok(marker)
    }
}
