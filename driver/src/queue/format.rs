//! How a namespace's blocks lie in memory: metadata and protection information (NVM Command Set 1.1, 2.1.6 and 5.3).

use super::limits::LimitsError;
use crate::spec::identify::{IdentifyNamespace, IdentifyNamespaceNvm};

/// Bytes of protection information with a 16-bit guard, the one kind that is carried.
pub const PROTECTION_INFORMATION: u16 = 8;

/// Where the metadata of a command's blocks is (FLBAS bit 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataPlacement {
    /// After the data of each block: one extended block after the other.
    Extended,
    /// In a buffer of its own, which MPTR addresses.
    Separate,
}

/// What protects a block (DPS.PIT).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtectionType {
    /// The reference tag is the LBA, its lower 32 bits.
    Type1,
    /// The reference tag starts at ILBRT and counts blocks.
    Type2,
    /// The reference tag is the application's, and is not checked.
    Type3,
}

/// The protection information that a namespace is formatted with: 8 bytes of a block's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProtectionFormat {
    /// What its reference tag is.
    pub kind: ProtectionType,
    /// Whether it is the first 8 bytes of the metadata, or the last (DPS.PIP).
    pub first: bool,
}

/// The metadata that a namespace is formatted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataFormat {
    /// Bytes a block, protection information among them.
    pub size: u16,
    /// Where it is.
    pub placement: MetadataPlacement,
    /// Protection information in it.
    pub protection: Option<ProtectionFormat>,
}

impl MetadataFormat {
    /// What `namespace` says of itself. `elbas` is whether the controller has extended LBA formats (CTRATT.ELBAS): only
    /// then do guards of more than 16 bits exist, and `nvm` says whether they do here.
    pub(super) fn of(
        namespace: &IdentifyNamespace,
        ms: u16,
        elbas: bool,
        nvm: Option<&IdentifyNamespaceNvm>,
    ) -> Result<Option<Self>, LimitsError> {
        let protection = match namespace.dps.pit() {
            0 => None,
            1 => Some(ProtectionType::Type1),
            2 => Some(ProtectionType::Type2),
            3 => Some(ProtectionType::Type3),
            pit => return Err(LimitsError::ProtectionType { pit }),
        };
        if ms == 0 && protection.is_none() {
            return Ok(None);
        }
        let protection = match protection {
            Some(_) if ms < PROTECTION_INFORMATION => return Err(LimitsError::NoRoomForProtection { ms }),
            Some(kind) => {
                if elbas {
                    sixteen_bit_guard(namespace, nvm)?;
                }
                Some(ProtectionFormat { kind, first: namespace.dps.pip() })
            }
            None => None,
        };
        let placement =
            if namespace.flbas.metadata_extended() { MetadataPlacement::Extended } else { MetadataPlacement::Separate };
        Ok(Some(Self { size: ms, placement, protection }))
    }

    /// Bytes of metadata that follow each block's data in memory.
    pub const fn interleaved(&self) -> u64 {
        match self.placement {
            MetadataPlacement::Extended => self.size as u64,
            MetadataPlacement::Separate => 0,
        }
    }

    /// Whether there is nothing in the metadata but protection information, so that the controller strips and inserts
    /// all of it when asked to (PRACT).
    pub const fn is_protection_only(&self) -> bool {
        self.protection.is_some() && self.size == PROTECTION_INFORMATION
    }
}

/// Refuses storage tags and guards of more than 16 bits (ELBAF: STS in bits 6:0, PIF in bits 8:7).
fn sixteen_bit_guard(namespace: &IdentifyNamespace, nvm: Option<&IdentifyNamespaceNvm>) -> Result<(), LimitsError> {
    let nvm = nvm.ok_or(LimitsError::UnknownGuard)?;
    let elbaf = nvm.elbaf.get(namespace.format_index()).copied().unwrap_or(0);
    let (sts, pif) = ((elbaf & 0x7F) as u8, (elbaf >> 7 & 3) as u8);
    if (sts, pif) == (0, 0) { Ok(()) } else { Err(LimitsError::Guard { sts, pif }) }
}
