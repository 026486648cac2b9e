//! What changes a whole drive or namespace: Format NVM, Sanitize, firmware, self-test; and Abort (NVM Express Base 2.1,
//! 5.1.1, 5.1.5, 5.1.8 to 5.1.10 and 5.1.22).
//!
//! Each is checked against what the controller says it has, so that a mistake is an error that names the argument and
//! nothing is lost by a command that meant something else. Whether data may be lost is the caller's to know: nothing
//! here asks.

use std::time::Duration;

use super::{Controller, ControllerError, Namespace};
use crate::queue::{MetadataPlacement, PROTECTION_INFORMATION, ProtectionFormat, ProtectionType};
use crate::spec::ZeroesBased;
use crate::spec::command::{CommitAction, NSID_ALL, SanitizeAction, SecureEraseSettings, SelfTestCode, Sqe};
use crate::spec::identify::{Fna, IdentifyNamespace, Oacs};
use crate::spec::status::StatusCode;

/// The unit of FWUG.
const FIRMWARE_UNIT: u64 = 4096;

/// What a namespace is to be formatted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatSettings {
    /// Index of the LBA format, 0 to 63.
    pub format: u8,
    /// Where its metadata is to be, when it has any.
    pub metadata: MetadataPlacement,
    /// Protection information.
    pub protection: Option<ProtectionFormat>,
    /// How thoroughly what was there is to be erased.
    pub secure_erase: SecureEraseSettings,
}

/// How a sanitize operation is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SanitizeSettings {
    /// What to do.
    pub action: SanitizeAction,
    /// Allow Unrestricted Sanitize Exit: a failed operation may be left without success.
    pub ause: bool,
    /// Passes of an overwrite: 1 to 16.
    pub passes: u8,
    /// The pattern of an overwrite.
    pub pattern: u32,
    /// Whether each pass of an overwrite inverts the pattern.
    pub invert: bool,
    /// No-Deallocate After Sanitize.
    pub no_deallocate: bool,
}

impl SanitizeSettings {
    /// An operation without options; one pass of zeroes where it overwrites.
    pub const fn new(action: SanitizeAction) -> Self {
        Self { action, ause: false, passes: 1, pattern: 0, invert: false, no_deallocate: false }
    }
}

/// When a committed firmware image runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirmwareActivation {
    /// As was asked for.
    AsAsked,
    /// Only after a conventional reset of the function.
    AtConventionalReset,
    /// Only after an NVM Subsystem Reset.
    AtSubsystemReset,
    /// Only after a Controller Level Reset.
    AtControllerReset,
}

impl Controller {
    /// Asks for the abort of command `cid` of Submission Queue `sqid`: whether the controller says that it has aborted
    /// it. Either way the command ends with a completion of its own, or not at all.
    ///
    /// # Errors
    /// [`ControllerError`] when the controller does not answer, or refuses: it has a limit of aborts (ACL).
    pub fn abort(&mut self, sqid: u16, cid: u16) -> Result<bool, ControllerError> {
        // Bit 0 of the result is 0 where the command was aborted (5.1.1).
        Ok(self.admin.execute(Sqe::abort(sqid, cid))?.dw0 & 1 == 0)
    }

    /// Formats `namespace`, and says what it is like then. All its data is lost, and on some controllers that of all
    /// namespaces (FNA). `limit` is how long it may take: minutes and more on large drives.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] and [`ControllerError::Argument`] where the controller or the namespace does not
    /// have what is asked for; another when the controller does not answer, or refuses.
    pub fn format_nvm(
        &mut self,
        namespace: &Namespace,
        settings: FormatSettings,
        limit: Duration,
    ) -> Result<Option<Namespace>, ControllerError> {
        self.needs(self.identify.oacs.contains(Oacs::FORMAT_NVM), Some("Format NVM"), "OACS")?;
        if settings.secure_erase == SecureEraseSettings::CRYPTOGRAPHIC {
            self.needs(self.identify.fna.contains(Fna::CRYPTOGRAPHIC_ERASE), Some("cryptographic erase"), "FNA")?;
        }
        check_format(&namespace.identify, &settings)?;
        let mut sqe = Sqe::format_nvm(namespace.nsid, settings.format)
            .with_mset(settings.metadata == MetadataPlacement::Extended)
            .with_ses(settings.secure_erase);
        if let Some(protection) = settings.protection {
            sqe = sqe.with_format_pi(number(protection.kind)).with_format_pil(protection.first);
        }
        self.admin.execute_within(sqe, limit)?;
        self.rescan(namespace.nsid)
    }

    /// Begins to sanitize the whole NVM subsystem: all data in it is lost. The Sanitize Status log says how far it is,
    /// and an event tells of its end.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] and [`ControllerError::Argument`] where the controller does not have what is
    /// asked for; another when it does not answer, or refuses.
    pub fn sanitize(&mut self, settings: SanitizeSettings) -> Result<(), ControllerError> {
        let capabilities = self.identify.sanicap;
        let has = |bit: u32| capabilities >> bit & 1 == 1;
        let (has, what) = match settings.action {
            SanitizeAction::CRYPTO_ERASE => (has(0), "Crypto Erase"),
            SanitizeAction::BLOCK_ERASE => (has(1), "Block Erase"),
            SanitizeAction::OVERWRITE => (has(2), "Overwrite"),
            _ => (capabilities & 7 != 0, "Sanitize"),
        };
        self.needs(has, Some(what), "SANICAP")?;
        if !(1..=16).contains(&settings.passes) {
            let value = settings.passes.into();
            return Err(ControllerError::Argument { argument: "passes", value, right: "1 to 16 would be right" });
        }
        let mut sqe = Sqe::sanitize(settings.action).with_ause(settings.ause).with_ndas(settings.no_deallocate);
        if settings.action == SanitizeAction::OVERWRITE {
            // 16 passes are written as 0.
            sqe = sqe.with_owpass(settings.passes & 15).with_oipbp(settings.invert).with_ovrpat(settings.pattern);
        }
        self.admin.execute(sqe).map(|_| ())
    }

    /// Hands over a firmware image, in pieces as large as the controller wants them (FWUG). Nothing is done with it
    /// until it is committed.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where the controller takes no firmware, [`ControllerError::Argument`] for an
    /// image that is no whole number of dwords, or of the controller's granularity, [`ControllerError::Page`] for pieces that are larger than MDTS; another
    /// when it does not answer, or refuses.
    pub fn download_firmware(&mut self, image: &[u8]) -> Result<(), ControllerError> {
        self.needs(self.identify.oacs.contains(Oacs::FIRMWARE), Some("Firmware Image Download"), "OACS")?;
        let dwords = u32::try_from(image.len() / 4).ok().filter(|_| !image.is_empty() && image.len().is_multiple_of(4));
        if dwords.is_none() {
            let right = "a multiple of 4 bytes, 4 or more and less than 16 GiB, would be right";
            return Err(ControllerError::Argument { argument: "the image's length", value: image.len() as u64, right });
        }
        // Pieces of the granularity that the controller asks for, the last one included; of one unit where it asks for
        // none, which any controller takes.
        let (piece, granularity) = match self.identify.fwug {
            0 | 0xFF => (FIRMWARE_UNIT, 4),
            units => (u64::from(units) * FIRMWARE_UNIT, u64::from(units) * FIRMWARE_UNIT),
        };
        if !(image.len() as u64).is_multiple_of(granularity) {
            let right = "a multiple of the controller's granularity, FWUG times 4 KiB, would be right";
            return Err(ControllerError::Argument { argument: "the image's length", value: image.len() as u64, right });
        }
        if piece > self.limits.max_transfer {
            return Err(ControllerError::Page {
                page: "Identify Controller",
                field: "FWUG",
                value: self.identify.fwug.into(),
                right: "pieces of a firmware image are no larger than a command may carry (MDTS)",
            });
        }
        let memory = self.admin.sending(piece as usize)?;
        for (index, bytes) in image.chunks(piece as usize).enumerate() {
            memory.view().write(0, bytes);
            let numd = ZeroesBased::<u32>::from_raw((bytes.len() / 4) as u32 - 1);
            let ofst = (index as u64 * piece / 4) as u32;
            self.admin.send(Sqe::firmware_image_download(numd, ofst), &memory, bytes.len() as u64)?;
        }
        memory.release();
        Ok(())
    }

    /// Commits what was downloaded to `slot`, 1 to 7 or 0 for one of the controller's choice, or chooses what runs; when
    /// it will. Activation without a reset may take as long as MTFA says, but no longer than
    /// [`ControllerConfig::longest_wait`](super::ControllerConfig::longest_wait).
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] and [`ControllerError::Argument`] where the controller does not have what is
    /// asked for; another when it does not answer, or refuses.
    pub fn commit_firmware(&mut self, slot: u8, action: CommitAction) -> Result<FirmwareActivation, ControllerError> {
        self.needs(self.identify.oacs.contains(Oacs::FIRMWARE), Some("Firmware Commit"), "OACS")?;
        // FRMW: slot 1 is read only in bit 0, the number of slots in bits 3:1.
        let (first_read_only, slots) = (self.identify.frmw & 1 == 1, self.identify.frmw >> 1 & 7);
        let wrong = |right| ControllerError::Argument { argument: "slot", value: slot.into(), right };
        if slot > slots {
            return Err(wrong("the controller does not have that slot (FRMW)"));
        }
        let replaces = matches!(action, CommitAction::REPLACE | CommitAction::REPLACE_AND_ACTIVATE_AT_RESET);
        if slot == 1 && first_read_only && replaces {
            return Err(wrong("slot 1 is read only (FRMW)"));
        }
        // MTFA is in units of 100 ms, up to almost two hours.
        let said = Duration::from_millis(u64::from(self.identify.mtfa) * 100).min(self.config.longest_wait);
        let limit = self.admin.timeout().saturating_add(said);
        match self.admin.execute_within(Sqe::firmware_commit(slot, action), limit) {
            Ok(_) => Ok(FirmwareActivation::AsAsked),
            Err(ControllerError::Command { command, status }) => match status.code() {
                StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONVENTIONAL_RESET => {
                    Ok(FirmwareActivation::AtConventionalReset)
                }
                StatusCode::FIRMWARE_ACTIVATION_REQUIRES_NVM_SUBSYSTEM_RESET => {
                    Ok(FirmwareActivation::AtSubsystemReset)
                }
                StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET => {
                    Ok(FirmwareActivation::AtControllerReset)
                }
                _ => Err(ControllerError::Command { command, status }),
            },
            Err(error) => Err(error),
        }
    }

    /// Begins a self-test of the controller and of the namespaces `nsid` (0 for none, FFFFFFFFh for all), or aborts the
    /// one in progress. The Device Self-test log says how far it is.
    ///
    /// # Errors
    /// [`ControllerError::NotSupported`] where the controller has no self-test, or another when it does not answer, or
    /// refuses: one is in progress already.
    pub fn device_self_test(&mut self, nsid: u32, code: SelfTestCode) -> Result<(), ControllerError> {
        self.needs(self.identify.oacs.contains(Oacs::DEVICE_SELF_TEST), Some("Device Self-test"), "OACS")?;
        if nsid > self.identify.nn && nsid != NSID_ALL {
            let right = "the controller has no such namespace (NN)";
            return Err(ControllerError::Argument { argument: "nsid", value: nsid.into(), right });
        }
        self.admin.execute(Sqe::device_self_test(nsid, code)).map(|_| ())
    }
}

/// DPS.PIT of a type.
const fn number(kind: ProtectionType) -> u8 {
    match kind {
        ProtectionType::Type1 => 1,
        ProtectionType::Type2 => 2,
        ProtectionType::Type3 => 3,
    }
}

/// Checks that `namespace` can be formatted so.
fn check_format(namespace: &IdentifyNamespace, settings: &FormatSettings) -> Result<(), ControllerError> {
    let wrong = |argument, value: u64, right| Err(ControllerError::Argument { argument, value, right });
    let index = usize::from(settings.format);
    let formats = &namespace.lbaf[..namespace.format_count()];
    let Some(format) = formats.get(index).filter(|format| format.data_size().is_some()) else {
        return wrong("format", index as u64, "the namespace does not have that LBA format (NLBAF, LBADS)");
    };
    // MC: extended blocks in bit 0, a separate buffer in bit 1.
    let (placement, bit) = match settings.metadata {
        MetadataPlacement::Extended => (0, 0),
        MetadataPlacement::Separate => (1, 1),
    };
    if format.ms != 0 && namespace.mc >> bit & 1 == 0 {
        return wrong("metadata", placement, "the namespace does not have metadata in that place (MC)");
    }
    let Some(protection) = settings.protection else {
        return Ok(());
    };
    let pit = number(protection.kind);
    // DPC: types 1 to 3 in bits 2:0, first and last bytes of the metadata in bits 3 and 4.
    if namespace.dpc >> (pit - 1) & 1 == 0 {
        return wrong("protection", pit.into(), "the namespace does not have that type of protection (DPC)");
    }
    if namespace.dpc >> (if protection.first { 3 } else { 4 }) & 1 == 0 {
        let place = u64::from(protection.first);
        return wrong("protection.first", place, "the namespace does not have protection information there (DPC)");
    }
    if format.ms < PROTECTION_INFORMATION {
        return wrong("format", index as u64, "protection information needs 8 bytes of metadata, and it has fewer");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
