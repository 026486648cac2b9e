//! What some controllers do other than they say, as data.
//!
//! A row names controllers, by PCI identifiers or by what Identify Controller says, and what is different about them,
//! with the reason. All rows that match count. What can be put right is put right in one place, `Quirks::correct_controller` and
//! `Quirks::correct_namespace`, where the structures come in, so that all that follows reads a controller that says
//! the truth; what concerns a way of doing things is asked for where the thing is done, by its flag.
//!
//! Kinds that other drivers know and this one has no use for: deep power states and suspend (power states are not
//! changed here), interrupt vectors, access width of the BAR (registers are read by dwords), small DMA pools for PRP
//! lists (they start on pages here), SGLs for Dataset Management (its list is one extent, which has PRPs), metadata left
//! out of MDTS (it is counted in any case).

use std::time::Duration;

use crate::spec::identify::{IdentifyController, IdentifyNamespace, Oacs, Oncs, Sgls};

bitflags::bitflags! {
    /// What can be different about a controller.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct QuirkFlags: u32 {
        /// After EN = 0 the registers must be left alone for [`READY_DELAY`].
        const DELAY_BEFORE_READY = 1 << 0;
        /// Identify knows CNS 00h and 01h only: namespaces are found by asking for each.
        const IDENTIFY_CNS = 1 << 1;
        /// The Namespace Identification Descriptor list must not be asked for.
        const NO_DESCRIPTOR_LIST = 1 << 2;
        /// EUI64, NGUID and UUID are not unique.
        const BOGUS_IDENTIFIERS = 1 << 3;
        /// One command at a time in each I/O queue.
        const ONE_COMMAND = 1 << 4;
        /// Write Zeroes is announced, and does harm or takes for ever.
        const NO_WRITE_ZEROES = 1 << 5;
        /// SGLs are announced, and do not work.
        const NO_SGL = 1 << 6;
        /// Deallocated blocks read as zeroes, though nothing says so.
        const DEALLOCATE_ZEROES = 1 << 7;
        /// Commands had better not cross a stripe, of a size that a vendor specific byte of Identify Controller gives.
        const STRIPE = 1 << 8;
        /// Submission queues must be of medium priority, though weighted round robin is off.
        const MEDIUM_PRIORITY = 1 << 9;
        /// The temperature threshold must not be changed.
        const NO_TEMPERATURE_THRESHOLD = 1 << 10;
        /// The admin submission queue must fill whole pages of 4 KiB.
        const WHOLE_ADMIN_PAGES = 1 << 11;
        /// It needs entries or identifiers that this driver does not have.
        const UNDRIVABLE = 1 << 12;
        /// Doorbell Buffer Config is announced, and does not work.
        const NO_SHADOW_DOORBELLS = 1 << 13;
    }
}

/// How long the registers of a controller with [`QuirkFlags::DELAY_BEFORE_READY`] are left alone.
pub const READY_DELAY: Duration = Duration::from_millis(2300);

/// A function's identifiers in PCI configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciId {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
}

/// Controllers of one kind, and what is different about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quirk {
    /// PCI Vendor ID.
    pub vendor: u16,
    /// PCI Device ID; any where there is none. A row with one matches only where the caller knows the function's.
    pub device: Option<u16>,
    /// What the model number begins with; anything where it is empty.
    pub model: &'static str,
    /// What the firmware revision begins with; anything where it is empty.
    pub firmware: &'static str,
    /// What is different.
    pub flags: QuirkFlags,
    /// How it shows, in a line.
    pub reason: &'static str,
}

const fn device(vendor: u16, device: u16, flags: QuirkFlags, reason: &'static str) -> Quirk {
    Quirk { vendor, device: Some(device), model: "", firmware: "", flags, reason }
}

const fn vendor(vendor: u16, flags: QuirkFlags, reason: &'static str) -> Quirk {
    Quirk { vendor, device: None, model: "", firmware: "", flags, reason }
}

const RESETS_SLOWLY: &str = "must not be asked for CSTS.RDY right after EN = 0";
const STRIPED: &str =
    "splits commands that cross its stripe, and zeroes what it deallocates, before there were fields to say so";
const TWIN: &str = "units share their namespace identifiers, or return garbage for them";
const LOSES_DATA: &str = "resets and loses data when a queue holds more than one command";
const ZEROES_SLOWLY: &str = "fails or stalls on Write Zeroes that it says it supports";
const STRIPED_AND_ZEROED: QuirkFlags = QuirkFlags::STRIPE.union(QuirkFlags::DEALLOCATE_ZEROES);

/// The controllers that are known to be different.
pub const QUIRKS: &[Quirk] = &[
    device(0x8086, 0x0953, STRIPED_AND_ZEROED, STRIPED),
    device(0x8086, 0x0A53, STRIPED_AND_ZEROED, STRIPED),
    device(0x8086, 0x0A54, STRIPED_AND_ZEROED, STRIPED),
    device(0x8086, 0x0A55, STRIPED_AND_ZEROED, STRIPED),
    device(0x8086, 0x0B60, QuirkFlags::STRIPE, "splits commands that cross its stripe"),
    device(
        0x8086,
        0xF1A5,
        QuirkFlags::MEDIUM_PRIORITY.union(QuirkFlags::NO_TEMPERATURE_THRESHOLD).union(QuirkFlags::NO_WRITE_ZEROES),
        "looks at queue priorities though weighted round robin is off; its temperature warning stays once a threshold was set",
    ),
    device(
        0x8086,
        0x5845,
        QuirkFlags::IDENTIFY_CNS.union(QuirkFlags::NO_WRITE_ZEROES).union(QuirkFlags::BOGUS_IDENTIFIERS),
        "old emulation: CNS above 01h and Write Zeroes are answered wrongly, identifiers are made up",
    ),
    device(0x1B36, 0x0010, QuirkFlags::BOGUS_IDENTIFIERS, "emulation: identifiers are made up"),
    device(0x126F, 0x2262, QuirkFlags::BOGUS_IDENTIFIERS, TWIN),
    device(
        0x126F,
        0x2263,
        QuirkFlags::NO_DESCRIPTOR_LIST.union(QuirkFlags::BOGUS_IDENTIFIERS),
        "fails the descriptor list of the version that it claims; units share their identifiers",
    ),
    device(0x1987, 0x5012, QuirkFlags::BOGUS_IDENTIFIERS, TWIN),
    device(0x1F40, 0x1202, QuirkFlags::BOGUS_IDENTIFIERS, TWIN),
    device(0x1CC1, 0x5350, QuirkFlags::BOGUS_IDENTIFIERS, TWIN),
    device(0x1BB1, 0x0100, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x1C58, 0x0003, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x1C58, 0x0023, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x1C5F, 0x0540, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x144D, 0xA821, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x144D, 0xA822, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x144D, 0xA826, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x144D, 0xA808, QuirkFlags::DELAY_BEFORE_READY, RESETS_SLOWLY),
    device(0x1217, 0x8760, QuirkFlags::ONE_COMMAND, LOSES_DATA),
    device(0x106B, 0x2001, QuirkFlags::ONE_COMMAND, LOSES_DATA),
    device(
        0x106B,
        0x2005,
        QuirkFlags::UNDRIVABLE,
        "its submission queue entries are 128 bytes, and its queues share one set of CIDs",
    ),
    device(
        0x106B,
        0x2006,
        QuirkFlags::UNDRIVABLE,
        "its CIDs must be smaller than a queue, and leave no room for a generation",
    ),
    device(0x2646, 0x501E, QuirkFlags::NO_WRITE_ZEROES, ZEROES_SLOWLY),
    device(0x2646, 0x502F, QuirkFlags::NO_WRITE_ZEROES, ZEROES_SLOWLY),
    vendor(0x19E5, QuirkFlags::NO_SGL, "says that it supports SGLs, and does not work with them"),
    device(0x1414, 0xB111, QuirkFlags::WHOLE_ADMIN_PAGES, "requires an admin submission queue of whole pages"),
];

/// What is different about one controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quirks {
    flags: QuirkFlags,
    /// Of rows that rule the controller out: why.
    undrivable: Option<&'static str>,
}

impl Quirks {
    /// What is known before a controller is touched.
    pub fn of_function(table: &[Quirk], pci: PciId) -> Self {
        let nameless = |row: &&Quirk| row.model.is_empty() && row.firmware.is_empty();
        Self::of(
            table
                .iter()
                .filter(nameless)
                .filter(|row| row.vendor == pci.vendor && row.device.is_none_or(|device| device == pci.device)),
        )
    }

    /// What is known once it has said who it is.
    pub fn of_controller(table: &[Quirk], pci: Option<PciId>, controller: &IdentifyController) -> Self {
        let (model, firmware) = (controller.model_number(), controller.firmware_revision());
        // The subsystem vendor is whoever put a name on it; the vendor of the function is who made it.
        let vendor = pci.map_or(controller.vid, |pci| pci.vendor);
        Self::of(table.iter().filter(|row| {
            row.vendor == vendor
                && row.device.is_none_or(|device| pci.is_some_and(|pci| pci.device == device))
                && model.starts_with(row.model)
                && firmware.starts_with(row.firmware)
        }))
    }

    fn of<'a>(rows: impl Iterator<Item = &'a Quirk>) -> Self {
        rows.fold(Self::default(), |quirks, row| Self {
            flags: quirks.flags | row.flags,
            undrivable: quirks.undrivable.or(row.flags.contains(QuirkFlags::UNDRIVABLE).then_some(row.reason)),
        })
    }

    /// Whether all of `flags` are among them.
    pub fn has(&self, flags: QuirkFlags) -> bool {
        self.flags.contains(flags)
    }

    /// All of them.
    pub fn flags(&self) -> QuirkFlags {
        self.flags
    }

    /// Why the controller cannot be driven, where that is so.
    pub(super) fn undrivable(&self) -> Option<&'static str> {
        self.undrivable
    }

    /// How long the registers are left alone after EN = 0.
    pub(super) fn ready_delay(&self) -> Duration {
        if self.has(QuirkFlags::DELAY_BEFORE_READY) { READY_DELAY } else { Duration::ZERO }
    }

    /// The entries of an admin queue for which `entries` were asked.
    pub(super) fn admin_entries(&self, entries: u32) -> u32 {
        // 64 entries of 64 bytes are 4 KiB.
        if self.has(QuirkFlags::WHOLE_ADMIN_PAGES) { entries.next_multiple_of(64) } else { entries }
    }

    /// Puts right what Identify Controller says.
    pub(super) fn correct_controller(&self, controller: &mut IdentifyController) {
        if self.has(QuirkFlags::NO_WRITE_ZEROES) {
            controller.oncs.remove(Oncs::WRITE_ZEROES);
        }
        if self.has(QuirkFlags::NO_SGL) {
            controller.sgls = Sgls::from_bits(0);
        }
        if self.has(QuirkFlags::NO_SHADOW_DOORBELLS) {
            controller.oacs.remove(Oacs::DOORBELL_BUFFER_CONFIG);
        }
    }

    /// Puts right what Identify Namespace says. `page` is CAP.MPSMIN in bytes.
    pub(super) fn correct_namespace(
        &self,
        page: u64,
        controller: &IdentifyController,
        namespace: &mut IdentifyNamespace,
    ) {
        if self.has(QuirkFlags::BOGUS_IDENTIFIERS) {
            namespace.nguid = [0; 16];
            namespace.eui64 = [0; 8];
        }
        if self.has(QuirkFlags::DEALLOCATE_ZEROES) && namespace.dlfeat.drb() == 0 {
            namespace.dlfeat = namespace.dlfeat.with_drb(1);
        }
        if self.has(QuirkFlags::STRIPE) && namespace.noiob == 0 {
            namespace.noiob = stripe(page, controller, namespace).unwrap_or(0);
        }
    }
}

/// The stripe in blocks: byte 3 of the vendor specific part is a power of two in pages of CAP.MPSMIN, 0 for none.
fn stripe(page: u64, controller: &IdentifyController, namespace: &IdentifyNamespace) -> Option<u16> {
    let exponent = Some(controller.vs[3]).filter(|exponent| *exponent != 0)?;
    let bytes = 1u64.checked_shl(exponent.into())?.checked_mul(page)?;
    let block = namespace.current_lba_format()?.data_size()?;
    u16::try_from(bytes / block).ok()
}

#[cfg(test)]
mod tests;
