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
    /// The tier that it is.
    pub tier: VfioTier,
    entry: Entry,
    way: Way,
    sysfs: Sysfs,
    options: OpenOptions,
    /// Its label's UUID of the device.
    device: Uuid,
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
        let ends = with_blocks(sysfs, entry, way, false, |blocks| {
            let len = END.min(blocks.blocks() / 2 * u64::from(blocks.block_size()));
            let count = len / u64::from(blocks.block_size());
            [0, blocks.blocks() - count].map(|slba| {
                let mut bytes = vec![0; len as usize];
                blocks.read(slba, &mut bytes).map(|()| (slba, bytes))
            })
        })?;
        let [front, back] = ends;
        let tier = VfioTier::named(address.to_string(), sysfs.clone(), &[address], way)?;
        let (entry, sysfs, options) = (entry.clone(), sysfs.clone(), options.clone());
        Ok(Self { tier, entry, way, sysfs, options, device, ends: [front?, back?] })
    }

    /// What its tier is called in the table.
    pub fn name(&self) -> &str {
        self.tier.name()
    }

    /// Writes the ends back, and sees that the label is there again.
    ///
    /// # Errors
    /// [`Ending::Failed`]; the drive has no label then.
    pub fn give_back(self) -> Verdict {
        let Self { entry, way, sysfs, options, device, ends, .. } = self;
        with_blocks(&sysfs, &entry, way, true, |blocks| {
            ends.iter().try_for_each(|(slba, bytes)| blocks.write(*slba, bytes)).and_then(|()| blocks.flush())
        })??;
        let found = allowed(&entry, way, &options)?;
        ensure(found == device, || format!("{}: the label is of device {found}, not {device}", entry.address))
    }
}

/// The UUID of the device, if its label lets tests have it.
fn allowed(entry: &Entry, way: Way, options: &OpenOptions) -> Result<Uuid, Ending> {
    let Entry { address, serial } = entry;
    let uri = format!("pci:{address},way={}", way.word());
    let mut device = Administration::open_with(uri, options)?;
    let found = device.info().controller.serial_number();
    ensure(found == *serial, || {
        format!("{address} is the drive with the serial number {found:?}, and the inventory says {serial:?}")
    })?;
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

/// Does something with the blocks of a drive's first namespace, whatever they hold.
fn with_blocks<T>(
    sysfs: &Sysfs,
    entry: &Entry,
    way: Way,
    writable: bool,
    act: impl FnOnce(&mut dyn Blocks) -> T,
) -> Result<T, Ending> {
    let function = open_function(sysfs, entry.address, way)?;
    let mut bench = Bench::new(Controller::enable(function as Arc<_>, ControllerConfig::default())?, None)?;
    let mut pair = bench.pair(8)?;
    let mut blocks = NamespaceBlocks::new(&mut bench.controller, &mut pair, &bench.namespace, writable)?;
    let done = act(&mut blocks);
    drop(blocks);
    bench.controller.delete_queue_pair(&mut pair)?;
    bench.controller.shutdown()?;
    Ok(done)
}
