//! What a model is like, and what it cannot be.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::io_config::{CacheConfig, DeallocatedRead, IoCommandsConfig, MetadataConfig, SglConfig};
use crate::dma::{HostMemoryError, MoverError};

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
    /// MDTS: the longest transfer is 2 ^ `mdts` pages of CAP.MPSMIN; 0 is no limit, and
    /// neither is one that has no room in 64 bits.
    pub mdts: u8,
    /// CAP.MQES as it stands there, one less than the entries of the largest I/O queue. 0 is against the
    /// specification: then there is no size that an I/O queue can have.
    pub mqes: u16,
    /// CAP.DSTRD: doorbells lie 2 ^ (2 + `dstrd`) bytes apart; 0 to 15.
    pub dstrd: u8,
    /// CAP.TO in units of 500 ms: how long a driver has to wait for RDY; 0 has been seen.
    pub to: u8,
    /// CAP.MPSMIN: the smallest memory page is 2 ^ (12 + `mpsmin`) bytes.
    pub mpsmin: u8,
    /// CAP.MPSMAX: the largest memory page is 2 ^ (12 + `mpsmax`) bytes; `mpsmin` to 15.
    pub mpsmax: u8,
    /// I/O queue pairs that it grants, however many are asked for: 1 to 65,534.
    pub queues: u16,
    /// Turns between a change of CC.EN and that of CSTS.RDY.
    pub ready_delay: u32,
    /// Turns that a shutdown takes.
    pub shutdown_delay: u32,
    /// CAP.NSSRS: whether there is an NVM Subsystem Reset.
    pub nssrs: bool,
    /// Whether the function has a Function Level Reset.
    pub flr: bool,
    /// Whether doorbells can have shadows in memory (OACS: Doorbell Buffer Config), as a controller that is emulated
    /// for a virtual machine has them. Real ones do not.
    pub shadow_doorbells: bool,
    /// The Controller Memory Buffer in units of 4 KiB, 0 to 1,048,575; 0 is none. Anything may lie in it: queues, lists
    /// and data.
    pub cmb_pages: u32,
    /// Serial number: 1 to 20 printable ASCII characters.
    pub serial: String,
    /// Model number: 1 to 40 printable ASCII characters.
    pub model_number: String,
    /// Whether there is a volatile write cache: then only a Flush or FUA makes writes durable, else each write is.
    pub volatile_write_cache: bool,
    /// The cache simulated: what is in it is lost with the power. Without, writes go straight to the store.
    pub cache_simulation: Option<CacheConfig>,
    /// Optional commands.
    pub io_commands: IoCommandsConfig,
    /// What deallocated blocks read as.
    pub deallocated_read: DeallocatedRead,
    /// SGLs.
    pub sgl: SglConfig,
    /// Metadata and protection information.
    pub metadata: MetadataConfig,
    /// NPWG, one less than the blocks that writes had better be multiples of; 0 is not reported.
    pub npwg: u16,
    /// NOIOB: the boundary in logical blocks that a command had better not cross; 0 is none.
    pub noiob: u16,
    /// AWUN as it stands in Identify Controller, one less than the logical blocks that are written atomically.
    pub awun: u16,
    /// AWUPF as it stands there: the same when the power fails; at most `awun`.
    pub awupf: u16,
    /// AERL as it stands in Identify Controller, one less than the asynchronous event requests it holds.
    pub aerl: u8,
    /// ACL as it stands in Identify Controller, one less than the Abort commands that may be outstanding.
    pub acl: u8,
    /// NN: the greatest identifier that a namespace can have; 1 or more. Namespace 1 is there from the start, others
    /// come by [`Model::namespaces`](super::Model::namespaces).
    pub nn: u32,
    /// Turns that a Format NVM command takes.
    pub format_delay: u32,
    /// Turns that a sanitize operation takes.
    pub sanitize_delay: u32,
    /// Turns that a short self-test takes; an extended one takes four times as many.
    pub self_test_delay: u32,
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
            nssrs: false,
            flr: true,
            shadow_doorbells: false,
            cmb_pages: 0,
            serial: "TENTPEG0001".to_owned(),
            model_number: "Tentpeg Model Controller".to_owned(),
            volatile_write_cache: true,
            cache_simulation: None,
            io_commands: IoCommandsConfig::default(),
            deallocated_read: DeallocatedRead::default(),
            sgl: SglConfig::default(),
            metadata: MetadataConfig::default(),
            npwg: 0,
            noiob: 0,
            awun: 0,
            awupf: 0,
            aerl: 3,
            acl: 3,
            nn: 1,
            format_delay: 4,
            sanitize_delay: 8,
            self_test_delay: 8,
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
    /// Metadata of a size that no namespace here has.
    #[error("a model has no metadata of {size} bytes a block: it must be 0, 8, 16 or 64")]
    MetadataSize {
        /// The size asked for.
        size: u16,
    },
    /// A cache is to be simulated that is not there.
    #[error(
        "a model without a volatile write cache cannot simulate one: set volatile_write_cache, or leave \
         cache_simulation away"
    )]
    NoCache,
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
    /// There was no second descriptor of the store's file, for its metadata.
    #[error("cannot open the store's file a second time: {source}")]
    CannotShare {
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
    /// The host has no memory for a Controller Memory Buffer.
    #[error("no memory for a Controller Memory Buffer: {source}")]
    MemoryBuffer {
        /// Why.
        source: HostMemoryError,
    },
    /// A mover copies to and from memory, and there is none.
    #[error(
        "a model with a mover has its blocks in memory or nowhere, as plain bytes: set store to memory or null, and leave \
         metadata, cache_simulation and deallocated blocks that read as ones away"
    )]
    NotMovable,
    /// The mover does not reach the store.
    #[error(transparent)]
    Mover(#[from] MoverError),
    /// No thread could be started for it.
    #[error("cannot start the model's thread: {source}")]
    Thread {
        /// The kernel's reason.
        source: io::Error,
    },
}

impl ModelConfig {
    /// The most bytes that one command may move; `u64::MAX` is no limit.
    pub(super) fn max_transfer(&self) -> u64 {
        let pages = match self.mdts {
            0 => None,
            mdts => 1u64.checked_shl(mdts.into()),
        };
        pages.and_then(|pages| pages.checked_mul(4096 << self.mpsmin)).unwrap_or(u64::MAX)
    }

    /// Whether a controller can be like this.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        if !matches!(self.lba_size, 512 | 1024 | 2048 | 4096) {
            return Err(ModelError::LbaSize { lba_size: self.lba_size });
        }
        if self.size == 0 || !self.size.is_multiple_of(self.lba_size.into()) {
            return Err(ModelError::Size { size: self.size, lba_size: self.lba_size });
        }
        for (field, value, least, greatest) in [
            ("dstrd", u64::from(self.dstrd), 0, 15),
            ("mpsmin", self.mpsmin.into(), 0, 15),
            ("mpsmax", self.mpsmax.into(), self.mpsmin.into(), 15),
            ("awupf", self.awupf.into(), 0, self.awun.into()),
            ("queues", self.queues.into(), 1, 65_534),
            ("cmb_pages", self.cmb_pages.into(), 0, 0xF_FFFF),
            // Beyond this the identifiers are reserved.
            ("nn", self.nn.into(), 1, 0xFFFF_FFFD),
        ] {
            if !(least..=greatest).contains(&value) {
                return Err(ModelError::Field { field, value, least, greatest });
            }
        }
        self.check_io()?;
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
    fn what_drives_have_been_seen_with_is_accepted() {
        assert_eq!(message(|config| (config.mqes, config.to, config.mdts) = (0, 0, 255)), "accepted");
        let limit = |mdts, mpsmin| ModelConfig { mdts, mpsmin, ..ModelConfig::default() }.max_transfer();
        assert_eq!((limit(0, 0), limit(1, 0), limit(20, 0)), (u64::MAX, 8192, 1 << 32));
        assert_eq!((limit(51, 0), limit(52, 0), limit(63, 4), limit(255, 15)), (1 << 63, u64::MAX, u64::MAX, u64::MAX));
        assert_eq!(limit(5, 2), 16384 << 5);
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
        assert_eq!(message(|config| config.awupf = 1), "a model cannot have awupf 1: it must be 0 to 0");
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
            message(|config| config.queues = 0),
            message(|config| config.model_number = "naïve".to_owned()),
        ] {
            assert!(wrong.contains("it must be"), "{wrong}");
        }
    }
}
