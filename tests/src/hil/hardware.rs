//! Drives of this machine: those of an inventory whose label says that they may be overwritten.
//!
//! Device tests take a namespace as it is, from its first block to its last. So the two ends, where the label is, are read
//! before and written back afterwards; what segments held is lost. A run that is killed leaves a drive without its label:
//! then nothing can be run on it until it has a new one.

use std::sync::Arc;

use tentpeg_driver::bus::Sysfs;
use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::vfio::{self, Way};
use tentpeg_engine::OpenOptions;
use tentpeg_engine::administration::Administration;
use tentpeg_engine::blocks::{Blocks, NamespaceBlocks};
use uuid::Uuid;

use super::inventory::{Entry, Inventory};
use crate::device_tests::{Bench, Ending, Tier, Verdict, ensure};
use crate::guest::VfioTier;
use crate::guest::open_function;

/// Bytes at each end that are kept: more than a label has there.
const END: u64 = 2 << 20;

/// A drive while tests have it.
pub struct Drive {
    tier: VfioTier,
    entry: Entry,
    way: Way,
    sysfs: Sysfs,
    options: OpenOptions,
    /// Its label's UUID of the device.
    device: Uuid,
}

/// A drive that tests overwrite now.
pub struct Taken {
    drive: Drive,
    /// Blocks of the two ends: where each begins, and what it held.
    ends: [(u64, Vec<u8>); 2],
}

impl Drive {
    /// The drives of an inventory, all of which must be what it says, and may be overwritten. Nothing is written before that
    /// is known of all.
    ///
    /// # Errors
    /// [`Ending::Failed`] with the drive, what is wrong with it and what would be right.
    pub fn all(sysfs: &Sysfs, inventory: &Inventory, options: &OpenOptions) -> Result<Vec<Self>, Ending> {
        inventory.controllers.iter().map(|entry| Self::new(sysfs, entry, inventory.way, options)).collect()
    }

    fn new(sysfs: &Sysfs, entry: &Entry, way: Option<Way>, options: &OpenOptions) -> Result<Self, Ending> {
        let address = entry.address;
        let way = way.unwrap_or_else(|| vfio::probe(sysfs, &[address]));
        let device = allowed(entry, way, options)?;
        let tier = VfioTier::named(address.to_string(), sysfs.clone(), &[address], way)?;
        let (entry, sysfs, options) = (entry.clone(), sysfs.clone(), options.clone());
        Ok(Self { tier, entry, way, sysfs, options, device })
    }

    /// Takes it for tests, directly before they run: sees once more that it is the drive that it was and may be overwritten
    /// still, and keeps its ends.
    ///
    /// # Errors
    /// [`Ending::Failed`]; nothing was written.
    pub fn take(self) -> Result<Taken, Ending> {
        self.is_as_it_was()?;
        let Self { sysfs, entry, way, .. } = &self;
        let [front, back] = with_blocks(sysfs, entry, *way, false, |blocks| {
            let len = END.min(blocks.blocks() / 2 * u64::from(blocks.block_size()));
            let count = len / u64::from(blocks.block_size());
            [0, blocks.blocks() - count].map(|slba| {
                let mut bytes = vec![0; len as usize];
                blocks.read(slba, &mut bytes).map(|()| (slba, bytes))
            })
        })?;
        Ok(Taken { ends: [front?, back?], drive: self })
    }

    /// Whether its label is the one that it had, and lets tests have it.
    fn is_as_it_was(&self) -> Verdict {
        let Self { entry, way, options, device, .. } = self;
        let found = allowed(entry, *way, options)?;
        ensure(found == *device, || format!("{}: the label is of device {found}, not {device}", entry.address))
    }

    /// What its tier is called in the table.
    pub fn name(&self) -> &str {
        self.tier.name()
    }
}

impl Taken {
    /// What the tests run on.
    pub fn tier(&self) -> &VfioTier {
        &self.drive.tier
    }

    /// Writes the ends back, and sees that the label is there again.
    ///
    /// # Errors
    /// [`Ending::Failed`]; the drive has no label then.
    pub fn give_back(self) -> Verdict {
        let Self { drive, ends } = self;
        with_blocks(&drive.sysfs, &drive.entry, drive.way, true, |blocks| {
            ends.iter().try_for_each(|(slba, bytes)| blocks.write(*slba, bytes)).and_then(|()| blocks.flush())
        })??;
        drive.is_as_it_was()
    }
}

/// The UUID of the device, if its label lets tests have it.
fn allowed(entry: &Entry, way: Way, options: &OpenOptions) -> Result<Uuid, Ending> {
    let Entry { address, .. } = entry;
    let uri = format!("pci:{address},way={}", way.word());
    let mut device = Administration::open_with(uri, options)?;
    has_serial(device.info().controller.serial_number(), entry)?;
    let remedy = |step: &str| format!("make it one that tests may have by `tentpeg label {step}`");
    if !device.has_label() {
        let remedy = remedy(&format!(
            "create pci:{address},overwrite` and `tentpeg label mark pci:{address},overwrite --may-be-overwritten true"
        ));
        return Err(Ending::Failed(format!("{address} has no label: {remedy}")));
    }
    let label = device.label()?;
    let uuid = label.device();
    ensure(label.may_be_overwritten(), || {
        let remedy = remedy(&format!("mark pci:{address},overwrite --may-be-overwritten true"));
        format!("the label of {address} does not say that it may be overwritten: {remedy}")
    })?;
    device.close()?;
    Ok(uuid)
}

/// Whether the drive is the one that is meant.
fn has_serial(found: impl AsRef<str>, Entry { address, serial }: &Entry) -> Verdict {
    let found = found.as_ref();
    ensure(found == serial, || {
        format!("{address} is the drive with the serial number {found:?}, and the inventory says {serial:?}")
    })
}

/// Does something with the blocks of a drive's first namespace, whatever they hold.
fn with_blocks<T>(
    sysfs: &Sysfs,
    entry: &Entry,
    way: Way,
    writable: bool,
    act: impl FnOnce(&mut dyn Blocks) -> T,
) -> Result<T, Ending> {
    let function = open_function(sysfs, entry.address, way)?;
    let controller = Controller::enable(function as Arc<_>, ControllerConfig::default())?;
    has_serial(controller.identify().serial_number(), entry)?;
    let mut bench = Bench::new(controller, None)?;
    let mut pair = bench.pair(8)?;
    let mut blocks = NamespaceBlocks::new(&mut bench.controller, &mut pair, &bench.namespace, writable)?;
    let done = act(&mut blocks);
    drop(blocks);
    bench.controller.delete_queue_pair(&mut pair)?;
    bench.controller.shutdown()?;
    Ok(done)
}
