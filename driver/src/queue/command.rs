//! Commands on a namespace, checked before a device sees them (NVM Command Set 1.1, 3.3; NVM Express Base 2.1, 7.2).
//!
//! An [`IoCommand`] says which blocks, where their bytes are, and how they are protected.
//! [`QueuePair::submit_io`] checks it against the namespace's [`Limits`], so that a caller's mistake is an error that
//! names the argument and not a status of the device. Memory stays the caller's: an extent must lie in a region that
//! outlives the command.

use thiserror::Error;

use super::format::{MetadataFormat, MetadataPlacement, ProtectionType};
use super::limits::Limits;
use super::pair::{QueuePair, SubmitError};
use super::prp::Extent;
use super::ranges::RangeList;
use super::slots::Cid;
use crate::spec::ZeroesBased;
use crate::spec::command::{NvmOpcode, ProtectionInformation, Sqe};
use crate::spec::identify::Oncs;

/// What the controller does with the protection information of a command's blocks (NVM Command Set 1.1, 5.3).
/// `Default` is nothing: it is moved as it is and not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protection {
    /// What it checks (PRCHK), and whether it inserts on a write and strips on a read (PRACT).
    pub prinfo: ProtectionInformation,
    /// The reference tag of the first block: initial on a write (ILBRT), expected on a read (EILBRT).
    pub ilbrt: u32,
    /// The application tag of each block (LBAT, on a read ELBAT).
    pub lbat: u16,
    /// Which bits of the application tag are checked (LBATM, on a read ELBATM).
    pub lbatm: u16,
}

impl Protection {
    /// Guard and, but for type 3, reference tag of blocks from `slba` are checked, whose reference tags are their LBAs.
    pub fn checked(kind: ProtectionType, slba: u64) -> Self {
        let mut prinfo = ProtectionInformation::PRCHK_GUARD;
        if kind != ProtectionType::Type3 {
            prinfo |= ProtectionInformation::PRCHK_REFERENCE_TAG;
        }
        Self { prinfo, ilbrt: slba as u32, ..Self::default() }
    }

    /// The same, and the controller inserts and strips the information itself (PRACT).
    #[must_use]
    pub fn generated(mut self) -> Self {
        self.prinfo |= ProtectionInformation::PRACT;
        self
    }

    /// The same, and the bits `lbatm` of the application tag must be those of `lbat`.
    #[must_use]
    pub fn with_application_tag(mut self, lbat: u16, lbatm: u16) -> Self {
        self.prinfo |= ProtectionInformation::PRCHK_APPLICATION_TAG;
        self.lbat = lbat;
        self.lbatm = lbatm;
        self
    }
}

/// Why a command was not written. The caller is at fault, but for [`Unsupported`](Self::Unsupported).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum IoError {
    /// Device: it does not have the command.
    #[error("the controller does not have {command} (ONCS)")]
    Unsupported {
        /// The command's name.
        command: &'static str,
    },
    /// No block.
    #[error("nlb is 0: a command concerns 1 block or more")]
    NoBlocks,
    /// More blocks than a command may concern.
    #[error("nlb is {nlb}: this command may concern {max} blocks at the most")]
    TooManyBlocks {
        /// Blocks asked for.
        nlb: u32,
        /// The most that the device takes.
        max: u32,
    },
    /// Blocks that the namespace does not have.
    #[error("slba {slba} and nlb {nlb} end beyond the namespace, which has {nsze} blocks")]
    OutOfRange {
        /// The first block.
        slba: u64,
        /// How many.
        nlb: u32,
        /// Blocks of the namespace.
        nsze: u64,
    },
    /// Memory that is shorter or longer than the blocks.
    #[error("the data's extents have {bytes} bytes: {nlb} blocks of {block} bytes are {expected}")]
    DataLength {
        /// Bytes of all extents.
        bytes: u64,
        /// Blocks of the command.
        nlb: u32,
        /// Bytes of a block in memory, with metadata that lies between the blocks.
        block: u64,
        /// Bytes of all of them.
        expected: u64,
    },
    /// A metadata buffer that is shorter or longer than the blocks' metadata, or that is missing.
    #[error("the metadata buffer has {bytes} bytes: the metadata of {nlb} blocks is {expected}")]
    MetadataLength {
        /// Bytes of the buffer, 0 where there is none.
        bytes: u64,
        /// Blocks of the command.
        nlb: u32,
        /// Bytes of their metadata.
        expected: u64,
    },
    /// A metadata buffer for blocks that have none, or none of their own.
    #[error("a metadata buffer was given: metadata of this command's blocks is not transferred through one")]
    MetadataUnexpected,
    /// A metadata buffer that MPTR cannot address.
    #[error("the metadata buffer is at IOVA {iova:#x}: it must be a multiple of 4, and end within 64 bits")]
    MetadataAddress {
        /// Where it starts.
        iova: u64,
    },
    /// Checks of protection information where there is none.
    #[error("prinfo is {prinfo:?}: the namespace has no protection information, it must be empty")]
    NoProtection {
        /// What was asked for.
        prinfo: ProtectionInformation,
    },
    /// A reference tag that cannot be that of a block of type 1.
    #[error("ilbrt is {ilbrt:#x}: protection type 1 wants the lower 32 bits of slba, {expected:#x}")]
    ReferenceTag {
        /// The tag given.
        ilbrt: u32,
        /// The tag of the first block.
        expected: u32,
    },
    /// The reference tag of type 3 is the application's.
    #[error("prinfo asks to check the reference tag: protection type 3 has none that a controller could check")]
    ReferenceCheck,
    /// A Verify moves nothing, so nothing can be inserted or stripped.
    #[error("prinfo has PRACT: Verify neither inserts nor strips protection information")]
    VerifyAction,
    /// The memory, or the queue.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// A command on a namespace.
#[derive(Debug, Clone, Copy)]
pub struct IoCommand<'a> {
    opcode: NvmOpcode,
    slba: u64,
    nlb: u32,
    data: &'a [Extent],
    metadata: Option<Extent>,
    protection: Protection,
    fua: bool,
    lr: bool,
    deac: bool,
    ranges: Option<&'a RangeList>,
}

impl<'a> IoCommand<'a> {
    /// Reads `nlb` blocks from `slba` into `data`.
    pub fn read(slba: u64, nlb: u32, data: &'a [Extent]) -> Self {
        Self { data, ..Self::blocks(NvmOpcode::READ, slba, nlb) }
    }

    /// Writes `nlb` blocks from `slba` with what is in `data`.
    pub fn write(slba: u64, nlb: u32, data: &'a [Extent]) -> Self {
        Self { data, ..Self::blocks(NvmOpcode::WRITE, slba, nlb) }
    }

    /// Compares `nlb` blocks from `slba` with what is in `data`: Compare Failure where they differ.
    pub fn compare(slba: u64, nlb: u32, data: &'a [Extent]) -> Self {
        Self { data, ..Self::blocks(NvmOpcode::COMPARE, slba, nlb) }
    }

    /// Reads `nlb` blocks from `slba` inside the device, and checks them.
    pub fn verify(slba: u64, nlb: u32) -> Self {
        Self::blocks(NvmOpcode::VERIFY, slba, nlb)
    }

    /// Makes `nlb` blocks from `slba` read as zeroes; with `deallocate` (DEAC) the device may give their room up, where
    /// deallocated blocks read as zeroes.
    pub fn write_zeroes(slba: u64, nlb: u32, deallocate: bool) -> Self {
        Self { deac: deallocate, ..Self::blocks(NvmOpcode::WRITE_ZEROES, slba, nlb) }
    }

    /// Makes every completed write of the namespace durable.
    pub fn flush() -> Self {
        Self::blocks(NvmOpcode::FLUSH, 0, 0)
    }

    /// Tells the device that what is in `ranges` is of no use any more (Dataset Management, AD).
    pub fn deallocate(ranges: &'a RangeList) -> Self {
        Self { ranges: Some(ranges), data: ranges.extents(), ..Self::blocks(NvmOpcode::DATASET_MANAGEMENT, 0, 0) }
    }

    const fn blocks(opcode: NvmOpcode, slba: u64, nlb: u32) -> Self {
        Self {
            opcode,
            slba,
            nlb,
            data: &[],
            metadata: None,
            protection: Protection { prinfo: ProtectionInformation::from_raw(0), ilbrt: 0, lbat: 0, lbatm: 0 },
            fua: false,
            lr: false,
            deac: false,
            ranges: None,
        }
    }

    /// The same, with the blocks' metadata in a buffer of its own: one extent, on a dword.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Extent) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The same, with that protection.
    #[must_use]
    pub fn with_protection(mut self, protection: Protection) -> Self {
        self.protection = protection;
        self
    }

    /// The same, past any cache: what was written is durable when the command ends (FUA).
    #[must_use]
    pub fn with_fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// The same, and the device is to give up soon where it meets an error (LR).
    #[must_use]
    pub fn with_limited_retry(mut self) -> Self {
        self.lr = true;
        self
    }

    /// Where the command's data is.
    pub fn data(&self) -> &'a [Extent] {
        self.data
    }

    /// The command as it stands in a queue, without CID and data pointer.
    ///
    /// # Errors
    /// [`IoError`]: the first thing that is wrong.
    pub fn sqe(&self, nsid: u32, limits: &Limits) -> Result<Sqe, IoError> {
        let command = self.opcode.name().unwrap_or("this command");
        let oncs = limits.optional().oncs;
        let (needs, max) = match self.opcode {
            NvmOpcode::FLUSH => return Ok(Sqe::flush(nsid)),
            NvmOpcode::COMPARE => (Oncs::COMPARE, limits.max_blocks()),
            NvmOpcode::VERIFY => (Oncs::VERIFY, limits.optional().verify),
            NvmOpcode::WRITE_ZEROES if self.deac => (Oncs::WRITE_ZEROES, limits.optional().write_zeroes_deallocate),
            NvmOpcode::WRITE_ZEROES => (Oncs::WRITE_ZEROES, limits.optional().write_zeroes),
            NvmOpcode::DATASET_MANAGEMENT => (Oncs::DATASET_MANAGEMENT, 0),
            _ => (Oncs::empty(), limits.max_blocks()),
        };
        if !oncs.contains(needs) {
            return Err(IoError::Unsupported { command });
        }
        if let Some(ranges) = self.ranges {
            return Ok(Sqe::dataset_management(nsid, ranges.nr()).with_ad(true));
        }
        let nlb = self.nlb;
        if nlb == 0 {
            return Err(IoError::NoBlocks);
        }
        let Some(count) = ZeroesBased::<u16>::from_count(nlb).filter(|_| nlb <= max) else {
            return Err(IoError::TooManyBlocks { nlb, max });
        };
        if self.slba.checked_add(nlb.into()).is_none_or(|end| end > limits.nsze()) {
            return Err(IoError::OutOfRange { slba: self.slba, nlb, nsze: limits.nsze() });
        }
        self.check_protection(limits.metadata())?;
        let mptr = self.check_memory(limits)?;
        let mut sqe = Sqe::nvm(self.opcode, nsid)
            .with_slba(self.slba)
            .with_nlb(count)
            .with_fua(self.fua)
            .with_lr(self.lr)
            .with_deac(self.deac)
            .with_mptr(mptr);
        if limits.metadata().is_some() {
            let Protection { prinfo, ilbrt, lbat, lbatm } = self.protection;
            sqe = sqe.with_prinfo(prinfo).with_ilbrt(ilbrt).with_lbat(lbat).with_lbatm(lbatm);
        }
        Ok(sqe)
    }

    /// Whether the command moves data.
    fn moves_data(&self) -> bool {
        matches!(self.opcode, NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE)
    }

    fn acts(&self) -> bool {
        self.protection.prinfo.contains(ProtectionInformation::PRACT)
    }

    fn check_protection(&self, metadata: Option<MetadataFormat>) -> Result<(), IoError> {
        let prinfo = self.protection.prinfo;
        let Some(format) = metadata.and_then(|metadata| metadata.protection) else {
            return if prinfo.is_empty() { Ok(()) } else { Err(IoError::NoProtection { prinfo }) };
        };
        if self.acts() && self.opcode == NvmOpcode::VERIFY {
            return Err(IoError::VerifyAction);
        }
        let checks_reference = prinfo.contains(ProtectionInformation::PRCHK_REFERENCE_TAG);
        let (ilbrt, expected) = (self.protection.ilbrt, self.slba as u32);
        match format.kind {
            // The tag is what the controller writes, too, where it inserts the information.
            ProtectionType::Type1 if (checks_reference || self.acts()) && ilbrt != expected => {
                Err(IoError::ReferenceTag { ilbrt, expected })
            }
            ProtectionType::Type3 if checks_reference => Err(IoError::ReferenceCheck),
            _ => Ok(()),
        }
    }

    /// Checks the lengths of data and metadata; gives MPTR.
    fn check_memory(&self, limits: &Limits) -> Result<u64, IoError> {
        let nlb = self.nlb;
        // Where there is nothing but protection information, and the controller inserts and strips it, no metadata is
        // transferred at all (NVM Command Set 1.1, 5.3.2).
        let metadata = limits.metadata().filter(|metadata| {
            self.moves_data() && metadata.size != 0 && !(self.acts() && metadata.is_protection_only())
        });
        let block = limits.lba_size() + metadata.map_or(0, |metadata| metadata.interleaved());
        let expected = if self.moves_data() { u64::from(nlb) * block } else { 0 };
        let bytes = self.data.iter().fold(0u64, |sum, extent| sum.saturating_add(extent.len));
        if bytes != expected {
            return Err(IoError::DataLength { bytes, nlb, block, expected });
        }
        let separate = metadata.filter(|metadata| metadata.placement == MetadataPlacement::Separate);
        match (separate, self.metadata) {
            (None, None) => Ok(0),
            (None, Some(_)) => Err(IoError::MetadataUnexpected),
            (Some(metadata), buffer) => {
                let expected = u64::from(nlb) * u64::from(metadata.size);
                let Some(buffer) = buffer.filter(|buffer| buffer.len == expected) else {
                    let bytes = buffer.map_or(0, |buffer| buffer.len);
                    return Err(IoError::MetadataLength { bytes, nlb, expected });
                };
                let iova = buffer.iova.get();
                if !iova.is_multiple_of(4) || iova.checked_add(expected).is_none() {
                    return Err(IoError::MetadataAddress { iova });
                }
                Ok(iova)
            }
        }
    }
}

impl<T: Copy + Default> QueuePair<T> {
    /// Checks `command` against the limits of namespace `nsid` and writes it into the submission queue, as
    /// [`submit`](Self::submit) does.
    ///
    /// # Errors
    /// [`IoError`]; nothing was written to the queue then.
    pub fn submit_io(&mut self, nsid: u32, limits: &Limits, command: &IoCommand<'_>, token: T) -> Result<Cid, IoError> {
        let sqe = command.sqe(nsid, limits)?;
        Ok(self.submit(sqe, command.data(), token)?)
    }
}

#[cfg(test)]
mod tests;
