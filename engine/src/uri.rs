//! What a device is called: `model:size=4GiB,lba=4096`, `pci:0000:04:00.0`, `vfio-user:/run/nvme.socket`.
//!
//! A URI is a kind and, after the colon, settings parted by commas, before which stands where a function is. A comma within one is written `\,`, and a backslash
//! `\\` (before anything else it may stand alone). This module reads it; [`open`](crate::device) makes
//! a device of it.

mod function;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tentpeg_driver::bus::PciAddressError;
use thiserror::Error;

pub use function::{PciUri, VfioUserUri};

use crate::ByteSize;

/// The settings of a model, for messages.
const MODEL_SETTINGS: &str = "size, lba, store, path, overwrite, cache, seed, mdts, queues";

/// A device as the caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceUri {
    /// A controller in software, in this process.
    Model(ModelUri),
    /// A controller of this machine, that VFIO has.
    Pci(PciUri),
    /// A controller behind a socket, in another process.
    VfioUser(VfioUserUri),
}

/// The settings of a `model:` URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelUri {
    /// The namespace's size; where a file exists its length unless said.
    pub size: Option<ByteSize>,
    /// Bytes of a logical block.
    pub lba: u32,
    /// Where the bytes are kept.
    pub store: StoreUri,
    /// A volatile write cache in front of a file.
    pub cache: Option<CacheUri>,
    /// Maximum Data Transfer Size, as a power of two of 4 KiB pages; 0 is no limit.
    pub mdts: u8,
    /// I/O queue pairs that the controller grants.
    pub queues: u16,
}

/// A volatile write cache that is held in this process, in front of a model's file: the end of the process is a loss of
/// power. What was neither flushed nor written with FUA is lost then, but for what the device has written back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUri {
    /// What it holds.
    pub size: ByteSize,
    /// Where the choice begins of what is written back, and when; 0 unless said.
    pub seed: u64,
}

/// Where a model keeps its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUri {
    /// In memory, sparse; gone with the process.
    Memory,
    /// Nowhere: reads and writes move nothing. For measuring everything else.
    Null,
    /// In a file.
    File {
        /// The file; created where it does not exist.
        path: PathBuf,
        /// Whether a file that exists may be written.
        overwrite: bool,
    },
}

/// Why a text names no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UriError {
    /// It has no kind, or one that is not known.
    #[error(
        "'{}' names no device: write model: with settings, such as model:size=4GiB,lba=4096, pci: with the address of a controller that vfio-pci has, such as pci:0000:04:00.0, or vfio-user: with a socket, such as vfio-user:/run/nvme.socket",
        .0.escape_debug()
    )]
    Kind(String),
    /// An address that is none.
    #[error(transparent)]
    Address(PciAddressError),
    /// A setting that a function does not have.
    #[error("{of} has no setting '{}': it has {has}", setting.escape_debug())]
    NotOf {
        /// What the URI names.
        of: &'static str,
        /// What stands there.
        setting: String,
        /// What it has.
        has: &'static str,
    },
    /// A setting that a model does not have.
    #[error(
        "a model has no setting '{}': it has {MODEL_SETTINGS}{}", name.escape_debug(),
        if *after_path { "; a comma within a path is written \\," } else { "" }
    )]
    UnknownSetting {
        /// What stands there.
        name: String,
        /// Whether it may be the rest of a path with a comma.
        after_path: bool,
    },
    /// Nothing between two commas, or after the last.
    #[error("a comma too many: one stands between two settings, and none at the end")]
    Comma,
    /// A setting without a value, or an `overwrite` with one.
    #[error("setting '{}' {wrong}", name.escape_debug())]
    Form {
        /// The setting.
        name: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// A setting that stands twice.
    #[error("setting '{}' stands twice: write it once", .0.escape_debug())]
    Twice(String),
    /// A value that the setting cannot have.
    #[error("{name}={}: {}", value.escape_debug(), wrong.replace(char::is_control, "?"))]
    Value {
        /// The setting.
        name: &'static str,
        /// The value as written.
        value: String,
        /// What is wrong with it and what would be right.
        wrong: String,
    },
    /// Settings that do not go together.
    #[error("{0}")]
    Together(&'static str),
}

impl FromStr for DeviceUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("model", settings)) => settings.parse().map(Self::Model),
            Some(("pci", settings)) => settings.parse().map(Self::Pci),
            Some(("vfio-user", settings)) => settings.parse().map(Self::VfioUser),
            _ => Err(UriError::Kind(text.to_owned())),
        }
    }
}

impl FromStr for ModelUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut seen = Vec::new();
        let mut uri = Self { size: None, lba: 4096, store: StoreUri::Memory, cache: None, mdts: 9, queues: 64 };
        let (mut store, mut path, mut overwrite) = (None, None, false);
        let (mut cache, mut seed) = (None, None);
        for setting in split_at_commas(text) {
            let (name, value) = match setting.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (setting.as_str(), None),
            };
            if setting.is_empty() {
                return Err(UriError::Comma);
            }
            if seen.iter().any(|other| other == name) {
                return Err(UriError::Twice(name.to_owned()));
            }
            seen.push(name.to_owned());
            match (name, value) {
                ("overwrite", None) => overwrite = true,
                ("overwrite", Some(_)) => {
                    return Err(UriError::Form {
                        name: name.to_owned(),
                        wrong: "takes no value: write just 'overwrite'",
                    });
                }
                ("size" | "lba" | "store" | "path" | "cache" | "seed" | "mdts" | "queues", None | Some("")) => {
                    return Err(UriError::Form { name: name.to_owned(), wrong: example(name) });
                }
                ("size", Some(value)) => uri.size = Some(size("size", value)?),
                ("lba", Some(value)) => uri.lba = lba(value)?,
                ("store", Some(value)) => store = Some(value.to_owned()),
                ("path", Some(value)) => path = Some(PathBuf::from(value)),
                ("cache", Some(value)) => cache = Some(size("cache", value)?),
                ("seed", Some(value)) => seed = Some(number("seed", value, 0, u64::MAX)?),
                ("mdts", Some(value)) => uri.mdts = number("mdts", value, 0, 255)? as u8,
                ("queues", Some(value)) => uri.queues = number("queues", value, 1, 65_535)? as u16,
                _ => {
                    return Err(UriError::UnknownSetting { name: name.to_owned(), after_path: path.is_some() });
                }
            }
        }
        uri.store = match (store.as_deref(), path) {
            (None | Some("file"), Some(path)) => StoreUri::File { path, overwrite },
            (Some("file"), None) => return Err(UriError::Together("store=file needs a path: write path=FILE")),
            (Some("memory" | "null"), Some(_)) => {
                return Err(UriError::Together("path goes with store=file only: leave either path or store away"));
            }
            (None | Some("memory"), None) => StoreUri::Memory,
            (Some("null"), None) => StoreUri::Null,
            (Some(value), _) => {
                return Err(UriError::Value {
                    name: "store",
                    value: value.to_owned(),
                    wrong: "write memory, null or file".to_owned(),
                });
            }
        };
        if overwrite && !matches!(uri.store, StoreUri::File { .. }) {
            return Err(UriError::Together(
                "overwrite is for a file that exists: write path=FILE too, or leave it away",
            ));
        }
        if let Some(size) = uri.size {
            whole_blocks("size", size, uri.lba)?;
        }
        uri.cache = match (cache, seed) {
            (Some(_), _) if !matches!(uri.store, StoreUri::File { .. }) => {
                return Err(UriError::Together(
                    "a cache is for a file, which outlives it: write path=FILE too, or leave cache away",
                ));
            }
            (Some(size), seed) => {
                whole_blocks("cache", size, uri.lba)?;
                if size.0 / u64::from(uri.lba) > u32::MAX.into() {
                    return Err(UriError::Value {
                        name: "cache",
                        value: size.to_string(),
                        wrong: format!("a cache has at most {} blocks", u32::MAX),
                    });
                }
                Some(CacheUri { size, seed: seed.unwrap_or(0) })
            }
            (None, Some(_)) => {
                return Err(UriError::Together("seed goes with a cache: write cache=SIZE too, or leave seed away"));
            }
            (None, None) => None,
        };
        Ok(uri)
    }
}

/// What a setting needs that has no value.
fn example(name: &str) -> &'static str {
    match name {
        "size" => "needs a value, such as size=4GiB",
        "lba" => "needs a value, such as lba=4096",
        "store" => "needs a value: store=memory, store=null or store=file",
        "path" => "needs a value: the name of a file, such as path=disk.img",
        "cache" => "needs a value, such as cache=1MiB",
        "seed" => "needs a value, such as seed=1",
        "mdts" => "needs a value, such as mdts=9",
        _ => "needs a value, such as queues=64",
    }
}

/// Checks that `size` bytes, of the setting `name`, are whole blocks, and at least one.
pub(crate) fn whole_blocks(name: &'static str, size: ByteSize, lba: u32) -> Result<(), UriError> {
    if size.0 == 0 || !size.0.is_multiple_of(lba.into()) {
        return Err(UriError::Value {
            name,
            value: size.to_string(),
            wrong: format!("must be a multiple of the block of {lba} bytes, and not 0"),
        });
    }
    Ok(())
}

/// A path as it stands in a URI.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,")
}

/// The parts between commas; `\,` is a comma in a part, and `\\` a backslash. No part for an empty text.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' => {
                let meant = characters.next_if(|next| matches!(next, ',' | '\\')).unwrap_or('\\');
                parts.last_mut().expect("never empty").push(meant);
            }
            ',' => parts.push(String::new()),
            _ => parts.last_mut().expect("never empty").push(character),
        }
    }
    if parts.len() == 1 && parts[0].is_empty() { Vec::new() } else { parts }
}

fn size(name: &'static str, value: &str) -> Result<ByteSize, UriError> {
    value.parse().map_err(|error: crate::ByteSizeError| UriError::Value {
        name,
        value: value.to_owned(),
        wrong: error.to_string(),
    })
}

fn lba(value: &str) -> Result<u32, UriError> {
    match value.parse::<ByteSize>() {
        Ok(ByteSize(bytes @ (512 | 1024 | 2048 | 4096))) => Ok(bytes as u32),
        _ => Err(UriError::Value {
            name: "lba",
            value: value.to_owned(),
            wrong: "a block has 512, 1024, 2048 or 4096 bytes".to_owned(),
        }),
    }
}

fn number(name: &'static str, value: &str, min: u64, max: u64) -> Result<u64, UriError> {
    match value.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(UriError::Value {
            name,
            value: value.to_owned(),
            wrong: format!("write a whole number from {min} to {max}"),
        }),
    }
}

impl fmt::Display for DeviceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => write!(f, "model:{model}"),
            Self::Pci(function) => write!(f, "pci:{function}"),
            Self::VfioUser(function) => write!(f, "vfio-user:{function}"),
        }
    }
}

impl fmt::Display for ModelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(size) = self.size {
            write!(f, "size={size},")?;
        }
        write!(f, "lba={}", self.lba)?;
        match &self.store {
            StoreUri::Memory => write!(f, ",store=memory")?,
            StoreUri::Null => write!(f, ",store=null")?,
            StoreUri::File { path, overwrite } => {
                write!(f, ",path={}", escaped(path))?;
                if *overwrite {
                    write!(f, ",overwrite")?;
                }
            }
        }
        if let Some(CacheUri { size, seed }) = self.cache {
            write!(f, ",cache={size},seed={seed}")?;
        }
        write!(f, ",mdts={},queues={}", self.mdts, self.queues)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn model(text: &str) -> ModelUri {
        match text.parse() {
            Ok(DeviceUri::Model(model)) => model,
            other => panic!("{other:?}"),
        }
    }

    fn message(text: &str) -> String {
        text.parse::<DeviceUri>().unwrap_err().to_string()
    }

    #[test]
    fn what_a_device_is_called() {
        let plain = model("model:");
        assert_eq!((plain.size, plain.lba, plain.store), (None, 4096, StoreUri::Memory));
        let file = model("model:path=/a\\,b,size=4GiB,overwrite,lba=512");
        assert_eq!(file.size, Some(ByteSize(4 << 30)));
        assert_eq!(file.store, StoreUri::File { path: "/a,b".into(), overwrite: true });
        let ends = model(r"model:path=a\b\\,mdts=5");
        assert_eq!(ends.store, StoreUri::File { path: r"a\b\".into(), overwrite: false });
        assert!(ends.to_string().contains(r"path=a\\b\\,mdts=5"), "{ends}");
        assert_eq!(ends.cache, None);
        let cached = model("model:path=a,cache=64KiB");
        assert_eq!(cached.cache, Some(CacheUri { size: ByteSize(64 << 10), seed: 0 }));
        let cached = model("model:seed=7,cache=512,lba=512,path=a");
        assert_eq!(cached.cache, Some(CacheUri { size: ByteSize(512), seed: 7 }));
        assert!(cached.to_string().contains("path=a,cache=512B,seed=7"), "{cached}");
        let null = model("model:store=null,mdts=5,queues=1");
        assert_eq!((null.store, null.mdts, null.queues), (StoreUri::Null, 5, 1));
    }

    #[test]
    fn each_mistake_is_named() {
        assert!(message("/dev/nvme0n1").contains("'/dev/nvme0n1' names no device"));
        assert!(message("modle:size=1GiB").contains("write model:"));
        assert!(message("model:sise=1GiB").contains("no setting 'sise': it has size"));
        assert!(message("model:size=1GiB,size=2GiB").contains("'size' stands twice"));
        assert!(message("model:size").contains("'size' needs a value"));
        assert!(message("model:overwrite=yes,path=x").contains("takes no value"));
        assert!(message("model:overwrite").contains("path=FILE"));
        assert!(message("model:size=4GB").contains("GiB is probably meant"));
        assert!(message("model:size=0").contains("size=0B: must be a multiple"));
        assert!(message("model:size=6144").contains("block of 4096 bytes"));
        assert!(message("model:lba=4097").contains("512, 1024, 2048 or 4096"));
        assert!(message("model:store=disk").contains("memory, null or file"));
        assert!(message("model:store=file").contains("path=FILE"));
        assert!(message("model:store=null,path=x").contains("either path or store"));
        assert!(message("model:queues=0").contains("from 1 to 65535"));
        assert!(message("model:mdts=256").contains("from 0 to 255"));
        assert!(message("model:cache=1MiB").contains("write path=FILE too"));
        assert!(message("model:cache=1MiB,store=null").contains("a cache is for a file"));
        assert!(message("model:path=a,seed=1").contains("write cache=SIZE too"));
        assert!(message("model:path=a,cache=6KiB").contains("cache=6KiB: must be a multiple of the block of 4096"));
        assert!(message("model:path=a,cache=0").contains("and not 0"));
        assert!(message("model:path=a,cache=16TiB").contains("at most 4294967295 blocks"));
        assert!(message("model:path=a,cache=1GB").contains("GiB is probably meant"));
        assert!(message("model:path=a,cache=4KiB,seed=-1").contains("from 0 to 18446744073709551615"));
        assert!(message("model:size=1GiB,").contains("a comma too many"));
        assert!(message("model:size=1GiB,,lba=512").contains("a comma too many"));
        for (text, example) in [
            ("lba=", "lba=4096"),
            ("path", "path=disk.img"),
            ("store=", "store=null"),
            ("mdts=", "mdts=9"),
            ("queues", "queues=64"),
            ("cache=", "cache=1MiB"),
            ("seed", "seed=1"),
        ] {
            assert!(message(&format!("model:{text}")).contains(example), "{text}");
        }
        assert!(message("model:path=a,b").ends_with(r"a comma within a path is written \,"));
        assert!(!message("model:b,path=a").contains("comma"));
        for text in ["\u{1b}[31m", "model:\u{7}", "model:size=\u{1b}", "model:lba=1\n", "model:\u{7}=,\u{7}="] {
            assert!(!message(text).contains(char::is_control), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_what_is_read_is_written(text in "model:[a-z0-9=,\\\\GiBKM/]{0,40}") {
            if let Ok(uri) = text.parse::<DeviceUri>() {
                prop_assert_eq!(uri.to_string().parse(), Ok(uri));
            }
        }
    }
}
