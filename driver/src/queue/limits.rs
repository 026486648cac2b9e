//! What fits into a command: computed once, used by planner, PRP builder and messages alike (invariant 6).
//!
//! [`ControllerLimits`] holds for a controller and one enable; [`Limits`] for one of its namespaces. Memory that
//! needs more than dword alignment has no place here yet: host memory has none of its own.

use thiserror::Error;

use super::format::MetadataFormat;
use super::prp::{self, Extent, PrpError};
use super::sgl::{self, SglError, SglSupport};
use super::slots::Slots;
use crate::spec::identify::{
    Ctratt, IdentifyController, IdentifyControllerNvm, IdentifyNamespace, IdentifyNamespaceNvm, Oncs,
};
use crate::spec::registers::Cap;

/// The most bytes that one command carries where the controller knows no limit, or a higher one: what a slot's list
/// pages are sized for.
const MAX_TRANSFER: u64 = 8 << 20;

/// Why a controller or a namespace cannot be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// CAP.MQES of 0: a queue of one entry holds no command.
    #[error("CAP.MQES is 0: a queue of one entry holds no command; the specification's least is 1")]
    QueueTooSmall,
    /// A transfer limit below one logical block.
    #[error("MDTS allows {max_transfer} bytes a command, less than one logical block of {lba_size} bytes")]
    BlockTooLarge {
        /// Bytes that one command may carry.
        max_transfer: u64,
        /// Bytes of one logical block.
        lba_size: u64,
    },
    /// FLBAS names a format that does not exist, or one whose data size makes no sense.
    #[error("namespace is formatted as LBA format {index}, whose LBADS is {lbads}: 9 to 31 would be right")]
    BadLbaFormat {
        /// The index of the format.
        index: usize,
        /// log2 of its data size in bytes, 0 when there is no such format.
        lbads: u8,
    },
    /// DPS names a type of protection that the specification does not have.
    #[error("namespace is formatted with protection information of type {pit}: 0 to 3 would be right")]
    ProtectionType {
        /// DPS.PIT.
        pit: u8,
    },
    /// Protection information is on, and there is no room for it.
    #[error(
        "namespace is formatted with protection information, but has {ms} bytes of metadata a block: 8 or more would be right"
    )]
    NoRoomForProtection {
        /// Bytes of metadata a block.
        ms: u16,
    },
    /// Protection information of a kind that this driver does not carry.
    #[error(
        "namespace has protection information of format {pif} with {sts} bits of storage tag: this driver carries 16-bit guards without storage tag (0 and 0)"
    )]
    Guard {
        /// Storage Tag Size in bits.
        sts: u8,
        /// Protection Information Format: 0 for 16-bit guards, 1 for 32, 2 for 64.
        pif: u8,
    },
    /// The controller did not say which kind of protection information it is.
    #[error(
        "namespace has protection information, and the controller, which has extended LBA formats, does not say of what format (Identify CNS 05h)"
    )]
    UnknownGuard,
}

/// Limits of a controller, from one enable to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerLimits {
    /// The memory page size in bytes (CC.MPS).
    pub page_size: u64,
    /// Entries of the largest queue.
    pub max_queue_entries: u32,
    /// The most data bytes of a command.
    pub max_transfer: u64,
    /// Pages of a slot for its PRP list or its SGL segments.
    pub list_pages: u64,
    /// SGLs, where the controller has them.
    pub sgl: Option<SglSupport>,
    /// What it takes besides reads and writes.
    pub optional: OptionalCommands,
    /// Whether Identify CNS 05h says how blocks are protected (CTRATT.ELBAS).
    pub extended_lba_formats: bool,
}

/// Which optional commands a controller takes, and how much each may concern. `Default` is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OptionalCommands {
    /// Which there are (ONCS).
    pub oncs: Oncs,
    /// The most bytes of a Verify (VSL).
    pub max_verify: u64,
    /// The most bytes of a Write Zeroes (WZSL).
    pub max_write_zeroes: u64,
    /// The most bytes of a Write Zeroes that deallocates (WZDSL, where ONCS says that it counts).
    pub max_write_zeroes_deallocate: u64,
    /// The most ranges of a Dataset Management: 1 to 256 (DMRL).
    pub max_ranges: u32,
    /// The most blocks of a range (DMRSL).
    pub max_range_blocks: u32,
    /// The most blocks of all ranges of a command (DMSL).
    pub max_dataset_blocks: u64,
}

impl OptionalCommands {
    /// What Identify Controller and, where the controller has it, CNS 06h of the NVM Command Set say. A limit of 0 there
    /// is none (NVM Command Set 1.1, 4.1.5.4).
    pub fn of(cap: Cap, controller: &IdentifyController, nvm: Option<&IdentifyControllerNvm>) -> Self {
        let zeroed;
        let nvm = match nvm {
            Some(nvm) => nvm,
            None => {
                zeroed = IdentifyControllerNvm::default();
                &zeroed
            }
        };
        let or_none = |limit: u64| if limit == 0 { u64::MAX } else { limit };
        // Where ONCS does not say so, limits alone say that there is Dataset Management, and that it holds to them (NVM
        // Command Set 1.1, 3.3.3).
        let limited = nvm.dmrl != 0 || nvm.dmrsl != 0 || nvm.dmsl != 0;
        let dataset_management = if limited { Oncs::DATASET_MANAGEMENT } else { Oncs::empty() };
        let own_limit = controller.oncs.contains(Oncs::MAXIMUM_WRITE_ZEROES_WITH_DEALLOCATE);
        Self {
            oncs: controller.oncs | dataset_management,
            max_verify: pages_of(cap, nvm.vsl),
            max_write_zeroes: pages_of(cap, nvm.wzsl),
            max_write_zeroes_deallocate: pages_of(cap, if own_limit { nvm.wzdsl } else { nvm.wzsl }),
            max_ranges: or_none(nvm.dmrl.into()).min(256) as u32,
            max_range_blocks: or_none(nvm.dmrsl.into()).min(u32::MAX.into()) as u32,
            max_dataset_blocks: or_none(nvm.dmsl),
        }
    }
}

/// The bytes of 2 ^ `exponent` pages of CAP.MPSMIN, which MDTS and its like count in whatever CC.MPS is; of exponent 0,
/// and beyond 64 bits, no limit.
fn pages_of(cap: Cap, exponent: u8) -> u64 {
    match exponent {
        0 => u64::MAX,
        _ => 1u64
            .checked_shl(exponent.into())
            .and_then(|pages| pages.checked_mul(cap.min_page_size()))
            .unwrap_or(u64::MAX),
    }
}

impl ControllerLimits {
    /// The limits of a controller that was enabled with pages of `page_size` bytes. Before the controller has been
    /// identified `mdts` is 0, no limit.
    ///
    /// # Errors
    /// [`LimitsError::QueueTooSmall`].
    pub fn new(cap: Cap, page_size: u64, mdts: u8) -> Result<Self, LimitsError> {
        if cap.mqes().count() < 2 {
            return Err(LimitsError::QueueTooSmall);
        }
        // Identify Controller, byte 77.
        let max_transfer = pages_of(cap, mdts).min(MAX_TRANSFER);
        Ok(Self {
            page_size,
            // One slot fewer than entries, and no more slots than a CID can name with its generation.
            max_queue_entries: cap.mqes().count().min(Slots::<()>::MAX as u32 + 1),
            max_transfer,
            list_pages: prp::list_pages(max_transfer, page_size),
            sgl: None,
            optional: OptionalCommands::default(),
            extended_lba_formats: false,
        })
    }

    /// The limits with what Identify Controller says, and CNS 06h of the NVM Command Set where the controller has it.
    ///
    /// # Errors
    /// [`LimitsError::QueueTooSmall`].
    pub fn identified(
        cap: Cap,
        page_size: u64,
        controller: &IdentifyController,
        nvm: Option<&IdentifyControllerNvm>,
    ) -> Result<Self, LimitsError> {
        let limits = Self::new(cap, page_size, controller.mdts)?;
        let sgl = SglSupport::of(controller);
        Ok(Self {
            // Where a transfer is too short for a PRP list its extents may still be many.
            list_pages: limits.list_pages.max(u64::from(sgl.is_some())),
            sgl,
            optional: OptionalCommands::of(cap, controller, nvm),
            extended_lba_formats: controller.ctratt.contains(Ctratt::EXTENDED_LBA_FORMATS),
            ..limits
        })
    }

    /// What a command with the memory of `extents` has as its data pointer: PRPs where they can name it, an SGL where
    /// they cannot and the controller has SGLs.
    ///
    /// # Errors
    /// [`PointerError`]: why there is neither.
    pub fn pointer(&self, extents: &[Extent]) -> Result<PointerKind, PointerError> {
        match (prp::check(extents, self.page_size, self.list_pages), self.sgl) {
            (Ok(()), _) => Ok(PointerKind::Prp),
            (Err(error), None) => Err(PointerError::Prp(error)),
            (Err(_), Some(support)) => {
                sgl::check(extents, support, self.max_transfer, self.list_pages, self.page_size)?;
                Ok(PointerKind::Sgl)
            }
        }
    }

    /// The limits of one of the controller's namespaces.
    ///
    /// MDTS includes metadata that lies between the blocks, unless the controller says that it does not (CTRATT.MEM).
    /// It is counted in any case, since it takes room in a slot's list pages: such a controller could carry a little
    /// more. Metadata in a buffer of its own counts nowhere.
    ///
    /// # Errors
    /// [`LimitsError`] when its format cannot be served.
    pub fn namespace(&self, namespace: &IdentifyNamespace) -> Result<Limits, LimitsError> {
        self.namespace_with(namespace, None)
    }

    /// As [`namespace`](Self::namespace), with Identify CNS 05h of the NVM Command Set: needed where a controller with
    /// extended LBA formats has a namespace with protection information.
    ///
    /// # Errors
    /// [`LimitsError`] when its format cannot be served.
    pub fn namespace_with(
        &self,
        namespace: &IdentifyNamespace,
        nvm: Option<&IdentifyNamespaceNvm>,
    ) -> Result<Limits, LimitsError> {
        let index = namespace.format_index();
        let format = namespace.current_lba_format();
        let lbads = format.map_or(0, |format| format.lbads);
        // 512 bytes is the least the specification knows; more than 2 GiB is nonsense, and would overflow below.
        let Some(format) = format.filter(|_| (9..=31).contains(&lbads)) else {
            return Err(LimitsError::BadLbaFormat { index, lbads });
        };
        let metadata = MetadataFormat::of(namespace, format.ms, self.extended_lba_formats, nvm)?;
        let block_bytes = (1u64 << lbads) + metadata.map_or(0, |metadata| metadata.interleaved());
        // NLB is 16 bits, 0's based.
        let blocks = |bytes: u64| (bytes / block_bytes).min(1 << 16) as u32;
        let max_blocks = blocks(self.max_transfer);
        if max_blocks == 0 {
            return Err(LimitsError::BlockTooLarge { max_transfer: self.max_transfer, lba_size: block_bytes });
        }
        Ok(Limits {
            page_size: self.page_size,
            lba_shift: lbads.into(),
            nsze: namespace.nsze,
            max_blocks,
            metadata,
            optional: OptionalBlocks {
                oncs: self.optional.oncs,
                verify: blocks(self.optional.max_verify),
                write_zeroes: blocks(self.optional.max_write_zeroes),
                write_zeroes_deallocate: blocks(self.optional.max_write_zeroes_deallocate),
                ranges: self.optional.max_ranges,
                range: self.optional.max_range_blocks,
                dataset: self.optional.max_dataset_blocks,
            },
        })
    }
}

/// What a command's data pointer holds (PSDT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerKind {
    /// PRP1 and PRP2, and a list where there is more.
    Prp,
    /// An SGL descriptor, and segments where there is more.
    Sgl,
}

/// Why memory cannot be named in a command. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PointerError {
    /// It has no PRPs, and the controller has no SGLs.
    #[error("{0} (the controller has PRPs only: SGLS is 0)")]
    Prp(PrpError),
    /// It has no PRPs, nor an SGL.
    #[error(transparent)]
    Sgl(#[from] SglError),
}

/// [`OptionalCommands`] in blocks of one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OptionalBlocks {
    pub(super) oncs: Oncs,
    pub(super) verify: u32,
    pub(super) write_zeroes: u32,
    pub(super) write_zeroes_deallocate: u32,
    pub(super) ranges: u32,
    pub(super) range: u32,
    pub(super) dataset: u64,
}

/// Limits of a command on one namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    page_size: u64,
    lba_shift: u32,
    nsze: u64,
    max_blocks: u32,
    metadata: Option<MetadataFormat>,
    optional: OptionalBlocks,
}

impl Limits {
    /// The memory page size in bytes (CC.MPS): inner seams of a command's memory lie on multiples of it.
    #[inline]
    pub fn page_size(&self) -> u64 {
        self.page_size
    }

    /// Bytes of one logical block without its metadata, a power of two.
    #[inline]
    pub fn lba_size(&self) -> u64 {
        1 << self.lba_shift
    }

    /// log2 of [`lba_size`](Self::lba_size).
    #[inline]
    pub fn lba_shift(&self) -> u32 {
        self.lba_shift
    }

    /// The namespace's size in logical blocks (NSZE).
    #[inline]
    pub fn nsze(&self) -> u64 {
        self.nsze
    }

    /// The namespace's size in bytes; saturates where no 64-bit number holds it.
    pub fn capacity(&self) -> u64 {
        self.nsze.saturating_mul(self.lba_size())
    }

    /// The most blocks of one command.
    #[inline]
    pub fn max_blocks(&self) -> u32 {
        self.max_blocks
    }

    /// The metadata that each block has, where it has any.
    #[inline]
    pub fn metadata(&self) -> Option<MetadataFormat> {
        self.metadata
    }

    /// What the other commands may concern.
    pub(super) fn optional(&self) -> &OptionalBlocks {
        &self.optional
    }

    /// The most data bytes of one command, metadata not counted: a multiple of the block.
    #[inline]
    pub fn max_transfer(&self) -> u64 {
        u64::from(self.max_blocks) << self.lba_shift
    }
}

#[cfg(test)]
mod tests;
