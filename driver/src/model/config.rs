//! What a model is like, and what it cannot be.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Where a model's blocks lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// In memory of this process; only what is written takes room, the rest reads as zeroes.
    Memory,
    /// In the first bytes of a regular file that is at least as long as the namespace.
    File {
        /// The file.
        path: PathBuf,
        /// Whether it may be written. A model over a file that may not is a write-protected namespace.
        writable: bool,
    },
    /// Nowhere: commands are checked and their PRPs walked, but no byte is moved. For measuring the rest.
    Null,
}

/// A model's settings. `Default` is a controller without surprises: 1 GiB in memory, blocks of 4,096 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// What to call it in messages, e.g. the URI that asked for it.
    pub name: String,
    /// Bytes of namespace 1, a multiple of `lba_size`.
    pub size: u64,
    /// Bytes of a logical block: 512, 1,024, 2,048 or 4,096.
    pub lba_size: u32,
    /// Where the blocks lie.
    pub store: StoreConfig,
    /// MDTS: the longest transfer is 2 ^ `mdts` pages of CAP.MPSMIN; 0 is no limit, and what has no room in 64 bits
    /// limits nothing.
    pub mdts: u8,
    /// CAP.MQES as it stands there, one less than the entries of the largest I/O queue: 1 to 65,535.
    pub mqes: u16,
    /// CAP.DSTRD: doorbells lie 2 ^ (2 + `dstrd`) bytes apart; 0 to 15.
    pub dstrd: u8,
    /// CAP.TO in units of 500 ms: how long a driver has to wait for RDY. 1 or more.
    pub to: u8,
    /// CAP.MPSMIN: the smallest memory page is 2 ^ (12 + `mpsmin`) bytes.
    pub mpsmin: u8,
    /// CAP.MPSMAX: the largest memory page is 2 ^ (12 + `mpsmax`) bytes; `mpsmin` to 15.
    pub mpsmax: u8,
    /// I/O queue pairs that it grants: 1 to 65,534.
    pub queues: u16,
    /// Turns between a change of CC.EN and that of CSTS.RDY.
    pub ready_delay: u32,
    /// Turns that a shutdown takes.
    pub shutdown_delay: u32,
    /// Serial number: 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: 1 to 40 printable ASCII characters.
    pub model_number: String,
    /// Whether there is a volatile write cache: then only a Flush or FUA makes writes durable, else each write is.
    pub volatile_write_cache: bool,
    /// NOIOB: the boundary in logical blocks that a command had better not cross; 0 is none.
    pub noiob: u16,
    /// AERL as it stands in Identify Controller, one less than the asynchronous event requests it holds.
    pub aerl: u8,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            name: "model".to_owned(),
            size: 1 << 30,
            lba_size: 4096,
            store: StoreConfig::Memory,
            mdts: 9,
            mqes: 1023,
            dstrd: 0,
            to: 20,
            mpsmin: 0,
            mpsmax: 4,
            queues: 64,
            ready_delay: 2,
            shutdown_delay: 2,
            serial: "TENTPEG0001".to_owned(),
            model_number: "Tentpeg Model Controller".to_owned(),
            volatile_write_cache: true,
            noiob: 0,
            aerl: 3,
        }
    }
}

/// Why there is no model: the settings are the caller's, the rest is the host's.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Blocks of a size that no namespace here has.
    #[error("a model has no blocks of {lba_size} bytes: lba must be 512, 1024, 2048 or 4096")]
    LbaSize {
        /// The size asked for.
        lba_size: u32,
    },
    /// A size that is no whole number of blocks.
    #[error("a model cannot have {size} bytes: its size must be a multiple of {lba_size}, at least {lba_size}")]
    Size {
        /// The size asked for.
        size: u64,
        /// Bytes of a block.
        lba_size: u32,
    },
    /// A number outside what its field can hold or the specification allows.
    #[error("a model cannot have {field} {value}: it must be {least} to {greatest}")]
    Field {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The least value that would do.
        least: u64,
        /// The greatest.
        greatest: u64,
    },
    /// A text that Identify Controller cannot hold.
    #[error("a model cannot have the {field} {value:?}: it must be 1 to {greatest} printable ASCII characters")]
    Text {
        /// The setting.
        field: &'static str,
        /// Its value.
        value: String,
        /// Bytes that there is room for.
        greatest: usize,
    },
    /// The kernel gave no address space for a store in memory.
    #[error("the host has no room for a store of {size} bytes in memory ({source}): ask for a smaller one, or a file")]
    NoAddressSpace {
        /// Bytes asked for.
        size: u64,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The store's file could not be opened.
    #[error("cannot open {} for {}: {source}", path.display(), if *writable { "reading and writing" } else { "reading" })]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// Whether it was to be written.
        writable: bool,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The store's file is locked.
    #[error("{} is in use by another process or device: wait until that has ended, or name another file", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The store's path is something else than a file.
    #[error("{} is no regular file: a model's store must be one", path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
    },
    /// The store's file has no room for the namespace.
    #[error("{} has {len} bytes, too few for a namespace of {size}: make it longer or the namespace smaller", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        len: u64,
        /// Bytes of the namespace.
        size: u64,
    },
    /// No thread could be started for it.
    #[error("cannot start the model's thread: {source}")]
    Thread {
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ModelConfig {
    /// Whether a controller can be like this.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if !matches!(self.lba_size, 512 | 1024 | 2048 | 4096) {
            return Err(ModelError::LbaSize { lba_size: self.lba_size });
        }
        if self.size == 0 || !self.size.is_multiple_of(self.lba_size.into()) {
            return Err(ModelError::Size { size: self.size, lba_size: self.lba_size });
        }
        for (field, value, least, greatest) in [
            ("mqes", u64::from(self.mqes), 1, 0xFFFF),
            ("dstrd", self.dstrd.into(), 0, 15),
            ("to", self.to.into(), 1, 255),
            ("mpsmin", self.mpsmin.into(), 0, 15),
            ("mpsmax", self.mpsmax.into(), self.mpsmin.into(), 15),
            ("queues", self.queues.into(), 1, 65_534),
        ] {
            if !(least..=greatest).contains(&value) {
                return Err(ModelError::Field { field, value, least, greatest });
            }
        }
        for (field, value, greatest) in [("serial", &self.serial, 20), ("model_number", &self.model_number, 40)] {
            let printable = value.bytes().all(|byte| matches!(byte, 0x20..=0x7E));
            if !(1..=greatest).contains(&value.len()) || !printable {
                return Err(ModelError::Text { field, value: value.clone(), greatest });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(change: impl FnOnce(&mut ModelConfig)) -> String {
        let mut config = ModelConfig::default();
        change(&mut config);
        config.check().map_or_else(|error| error.to_string(), |()| "accepted".to_owned())
    }

    #[test]
    fn each_message_says_what_would_be_right() {
        assert_eq!(message(|_| ()), "accepted");
        assert_eq!(
            message(|config| config.lba_size = 520),
            "a model has no blocks of 520 bytes: lba must be 512, 1024, 2048 or 4096"
        );
        assert_eq!(
            message(|config| config.size = 4097),
            "a model cannot have 4097 bytes: its size must be a multiple of 4096, at least 4096"
        );
        assert_eq!(message(|config| config.mqes = 0), "a model cannot have mqes 0: it must be 1 to 65535");
        assert_eq!(
            message(|config| (config.mpsmin, config.mpsmax) = (4, 3)),
            "a model cannot have mpsmax 3: it must be 4 to 15"
        );
        assert_eq!(
            message(|config| config.serial = "x".repeat(21)),
            "a model cannot have the serial \"xxxxxxxxxxxxxxxxxxxxx\": it must be 1 to 20 printable ASCII characters"
        );
        assert!(message(|config| config.size = 0).contains("at least 4096"));
        for wrong in [
            message(|config| config.dstrd = 16),
            message(|config| config.to = 0),
            message(|config| config.queues = 0),
            message(|config| config.model_number = "naïve".to_owned()),
        ] {
            assert!(wrong.contains("it must be"), "{wrong}");
        }
    }
}
