//! Settings of what a namespace can do and how its blocks are made: optional commands, SGLs, metadata, the simulated
//! write cache. Each has a default that leaves a plain namespace plain.

use super::config::{ModelConfig, ModelError, StoreConfig};
use crate::spec::identify::{Dlfeat, Dps, Oncs, SglDataBlock, Sgls};
use crate::spec::protection::{ProtectionTuple, ProtectionType};

/// Optional commands of the NVM Command Set, ONCS (NVM Express Base 2.1, 5.1.13.2.1). By default all are there, and
/// Dataset Management has no limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoCommandsConfig {
    /// Compare.
    pub compare: bool,
    /// Verify.
    pub verify: bool,
    /// Write Zeroes.
    pub write_zeroes: bool,
    /// Whether Write Zeroes has the Deallocate bit, DLFEAT.WZDS.
    pub write_zeroes_deallocate: bool,
    /// Dataset Management.
    pub dataset_management: bool,
    /// Limits of Dataset Management, if it has any.
    pub dataset_management_limits: Option<DatasetManagementLimits>,
    /// Reservations (RESCAP has all types, Persist Through Power Loss and Ignore Existing Key).
    pub reservations: bool,
}

impl Default for IoCommandsConfig {
    fn default() -> Self {
        Self {
            compare: true,
            verify: true,
            write_zeroes: true,
            write_zeroes_deallocate: true,
            dataset_management: true,
            dataset_management_limits: None,
            reservations: false,
        }
    }
}

/// What one Dataset Management command may name (NVM Command Set 1.1, 3.3.3). Each is 1 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatasetManagementLimits {
    /// DMRL: ranges.
    pub dmrl: u8,
    /// DMRSL: logical blocks of a range.
    pub dmrsl: u32,
    /// DMSL: logical blocks of all ranges.
    pub dmsl: u64,
    /// Whether a command beyond a limit is aborted with Command Size Limit Exceeded; ONCS then lacks the bit of
    /// Dataset Management, and the limits alone say that it is there. Else what is beyond is left as it is.
    pub strict: bool,
}

/// What deallocated and never written blocks read as, DLFEAT.DRB (NVM Command Set 1.1, 3.3.3.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeallocatedRead {
    /// Not reported. Here a deallocated block keeps what it held, and one that was never written reads as zeroes.
    NotReported,
    /// Zeroes.
    #[default]
    Zeroes,
    /// All bits set. The store then holds the complement of each byte, so that what is sparse in it reads as ones.
    Ones,
}

/// SGLs of I/O commands, SGLS (NVM Express Base 2.1, 5.1.13.2.1). By default there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SglConfig {
    /// Whether there are SGLs, and how data blocks must be aligned.
    pub support: SglSupport,
    /// Whether a read may name what is to be discarded, by a Bit Bucket descriptor.
    pub bit_bucket: bool,
    /// Whether an SGL may be longer than the data.
    pub oversize: bool,
    /// With PSDT 01b: whether MPTR may point to any byte; else it must be a multiple of 4.
    pub metadata_byte_aligned: bool,
    /// Whether PSDT 10b is supported: MPTR points to an SGL segment.
    pub metadata_sgl: bool,
    /// Whether addresses may be offsets. On PCIe there is nothing that they could be offsets into: each is answered
    /// by SGL Offset Invalid, and without this setting by SGL Descriptor Type Invalid.
    pub offset: bool,
}

/// SGLS bits 1:0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SglSupport {
    /// No SGLs.
    #[default]
    NotSupported,
    /// Data blocks at any address, of any length.
    Byte,
    /// Data blocks whose address and length are multiples of 4.
    Dword,
}

impl SglConfig {
    /// The field SGLS that says so.
    pub(super) fn sgls(&self) -> Sgls {
        let supported = match self.support {
            SglSupport::NotSupported => return Sgls::default(),
            SglSupport::Byte => SglDataBlock::BYTE,
            SglSupport::Dword => SglDataBlock::DWORD,
        };
        Sgls::default()
            .with_supported(supported)
            .with_bit_bucket(self.bit_bucket)
            .with_oversize(self.oversize)
            .with_metadata_byte_aligned(self.metadata_byte_aligned)
            .with_metadata_sgl(self.metadata_sgl)
            .with_offset(self.offset)
    }
}

/// Metadata of each logical block (NVM Command Set 1.1, 5.2.2.1 and 5.3). By default there is none.
///
/// A store in a file keeps it behind the data, from the next multiple of 4,096 bytes on, block by block; protection
/// information lies there complemented, so that a hole reads as the FFh bytes of a block that was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MetadataConfig {
    /// Bytes a block: 0, 8, 16 or 64.
    pub size: u16,
    /// Whether it follows each block's data in one buffer; else it is in a buffer of its own, at MPTR.
    pub extended: bool,
    /// Protection information with a 16-bit guard: 0 for none, or type 1, 2 or 3.
    pub protection_type: u8,
    /// Whether protection information is the first 8 bytes of the metadata; else it is the last.
    pub first_eight: bool,
}

impl MetadataConfig {
    /// The type of protection.
    pub(super) fn protection(&self) -> ProtectionType {
        ProtectionType::from_raw(self.protection_type)
    }

    /// Where in the metadata protection information begins.
    pub(super) fn tuple_offset(&self) -> usize {
        if self.first_eight { 0 } else { usize::from(self.size).saturating_sub(ProtectionTuple::LENGTH) }
    }

    /// MC of Identify Namespace: metadata can be transferred either way, by a Format NVM command.
    pub(super) fn mc(&self) -> u8 {
        if self.size == 0 { 0 } else { 0b11 }
    }

    /// DPC of Identify Namespace: every type of protection information in either place.
    pub(super) fn dpc(&self) -> u8 {
        if self.size == 0 { 0 } else { 0b1_1111 }
    }

    /// DPS of Identify Namespace.
    pub(super) fn dps(&self) -> Dps {
        Dps::default().with_pit(self.protection_type).with_pip(self.protection_type != 0 && self.first_eight)
    }
}

/// A volatile write cache that a power cut empties (see [`Model::power_cut`](super::Model::power_cut)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Blocks that it holds, 1 or more; the oldest make room by becoming durable. A command that names more than that
    /// goes past it.
    pub blocks: u32,
    /// Whether blocks become durable by themselves as well, as in a drive that writes back when it likes: about half of
    /// them, in any order, drawn by chance that begins with this number. So the end of the process leaves over a file
    /// what a loss of power leaves on such a drive. A write of at most AWUPF + 1 blocks is written back as a whole.
    pub write_back: Option<u64>,
}

impl ModelConfig {
    /// ONCS as the settings have it.
    pub(super) fn oncs(&self) -> Oncs {
        let commands = &self.io_commands;
        let variant = commands.dataset_management_limits.is_none_or(|limits| !limits.strict);
        let bit = |flag, there: bool| if there { flag } else { Oncs::empty() };
        bit(Oncs::COMPARE, commands.compare)
            | bit(Oncs::VERIFY, commands.verify)
            | bit(Oncs::WRITE_ZEROES, commands.write_zeroes)
            | bit(Oncs::DATASET_MANAGEMENT, commands.dataset_management && variant)
            | bit(Oncs::RESERVATIONS, commands.reservations)
    }

    /// DLFEAT as the settings have it.
    pub(super) fn dlfeat(&self) -> Dlfeat {
        let commands = &self.io_commands;
        let drb = match self.deallocated_read {
            DeallocatedRead::NotReported => 0,
            DeallocatedRead::Zeroes => 1,
            DeallocatedRead::Ones => 2,
        };
        Dlfeat::default().with_drb(drb).with_wzds(commands.write_zeroes && commands.write_zeroes_deallocate)
    }

    /// Whether I/O can be like this.
    pub(super) fn check_io(&self) -> Result<(), ModelError> {
        let metadata = &self.metadata;
        if !matches!(metadata.size, 0 | 8 | 16 | 64) {
            return Err(ModelError::MetadataSize { size: metadata.size });
        }
        let greatest_type = if metadata.size == 0 { 0 } else { 3 };
        let mut ranges = vec![("metadata.protection_type", u64::from(metadata.protection_type), 0, greatest_type)];
        if let Some(limits) = self.io_commands.dataset_management_limits {
            ranges.push(("dmrl", limits.dmrl.into(), 1, u8::MAX.into()));
            ranges.push(("dmrsl", limits.dmrsl.into(), 1, u32::MAX.into()));
            ranges.push(("dmsl", limits.dmsl, 1, u64::MAX));
        }
        if let Some(cache) = self.cache_simulation {
            ranges.push(("cache_simulation.blocks", cache.blocks.into(), 1, u32::MAX.into()));
        }
        for (field, value, least, greatest) in ranges {
            if !(least..=greatest).contains(&value) {
                return Err(ModelError::Field { field, value, least, greatest });
            }
        }
        if self.cache_simulation.is_some() && !self.volatile_write_cache {
            return Err(ModelError::NoCache);
        }
        Ok(())
    }

    /// Whether the store is a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.store, StoreConfig::File { .. })
    }

    /// Bytes of all metadata.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.size / u64::from(self.lba_size) * u64::from(self.metadata.size)
    }

    /// Where in a file metadata begins; bytes that the file must have.
    pub(super) fn file_layout(&self) -> (u64, u64) {
        match self.metadata_bytes() {
            0 => (self.size, self.size),
            bytes => {
                let start = self.size.next_multiple_of(4096);
                (start, start.saturating_add(bytes))
            }
        }
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
        assert_eq!(
            message(|config| config.metadata.size = 12),
            "a model has no metadata of 12 bytes a block: it must be 0, 8, 16 or 64"
        );
        assert_eq!(
            message(|config| config.metadata.protection_type = 1),
            "a model cannot have metadata.protection_type 1: it must be 0 to 0"
        );
        assert!(
            message(|config| config.metadata = MetadataConfig { size: 8, protection_type: 4, ..Default::default() })
                .contains("it must be 0 to 3")
        );
        let limits = DatasetManagementLimits { dmrl: 1, dmrsl: 1, dmsl: 0, strict: true };
        assert!(
            message(|config| config.io_commands.dataset_management_limits = Some(limits))
                .contains("cannot have dmsl 0")
        );
        assert!(
            message(|config| config.cache_simulation = Some(CacheConfig { blocks: 0, write_back: None }))
                .contains("must be 1 to")
        );
        assert_eq!(
            message(|config| {
                (config.volatile_write_cache, config.cache_simulation) =
                    (false, Some(CacheConfig { blocks: 1, write_back: None }));
            }),
            "a model without a volatile write cache cannot simulate one: set volatile_write_cache, or leave \
             cache_simulation away"
        );
    }

    #[test]
    fn what_is_reported_is_what_is_set() {
        let mut config = ModelConfig::default();
        let all = Oncs::COMPARE | Oncs::VERIFY | Oncs::WRITE_ZEROES | Oncs::DATASET_MANAGEMENT;
        assert_eq!((config.oncs(), config.dlfeat().bits()), (all, 0b1001));
        let limits = DatasetManagementLimits { dmrl: 1, dmrsl: 1, dmsl: 1, strict: true };
        config.io_commands.dataset_management_limits = Some(limits);
        assert_eq!(config.oncs(), all - Oncs::DATASET_MANAGEMENT, "the limits say it");
        config.io_commands.dataset_management_limits = Some(DatasetManagementLimits { strict: false, ..limits });
        assert_eq!(config.oncs(), all);
        config.io_commands = IoCommandsConfig {
            compare: false,
            verify: false,
            write_zeroes: false,
            dataset_management: false,
            ..IoCommandsConfig::default()
        };
        config.deallocated_read = DeallocatedRead::Ones;
        assert_eq!((config.oncs(), config.dlfeat().bits()), (Oncs::empty(), 0b0010));
        let sgl = SglConfig { bit_bucket: true, ..SglConfig::default() };
        assert_eq!(sgl.sgls().bits(), 0, "without SGLs none of the rest counts");
        let sgl = SglConfig { support: SglSupport::Dword, oversize: true, ..sgl };
        assert_eq!(sgl.sgls().bits(), 2 | 1 << 16 | 1 << 18);
    }
}
