//! What QEMU's controller can show of the driver, one check for each feature; and what it cannot, with the reason. The
//! table in docs/hardware-in-the-loop.md is this one, and a test compares the two.

mod commands;
mod formats;
mod sharing;

use std::sync::Arc;

use tentpeg_driver::bus::{Function, PciAddress, Sysfs};
use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_driver::vfio::Way;

use super::drives::SPECIAL;
use super::tier::open_function;
use crate::device_tests::{Bench, DeviceTest, Ending, Verdict};

/// The controllers that each have something of their own. All are with `vfio-pci`.
#[derive(Debug, Clone)]
pub struct Special {
    /// The machine.
    pub sysfs: Sysfs,
    /// By what they are opened.
    pub way: Way,
    /// Namespaces of many formats.
    pub formats: PciAddress,
    /// One queue pair, and a Controller Memory Buffer.
    pub buffer: PciAddress,
    /// Two of a subsystem, with the same namespace.
    pub twins: [PciAddress; 2],
}

type Check = fn(&Special) -> Verdict;

/// How a feature is shown, or why it is not.
enum Shown {
    /// By a check of this file, under the feature's name.
    Here(Check),
    /// By other tests of the guest.
    By(&'static str),
    /// Not at all.
    Not(&'static str),
}

use Shown::{By, Here, Not};

/// The driver's features, in the order of the table.
const FEATURES: [(&str, Shown); 29] = [
    ("several controllers", By("every device test opens one of several")),
    ("several namespaces", Here(formats::several)),
    ("blocks of 512 and of 4,096 bytes", By("the device tests")),
    ("metadata without protection information", Here(formats::metadata)),
    ("protection information of types 1 to 3, last or first in the metadata", Here(formats::protection)),
    ("protection information that the controller inserts and strips", Here(formats::generated)),
    ("a format that is changed", Here(formats::changed)),
    ("guards of 32 and 64 bits", Not("the driver refuses such namespaces")),
    ("MDTS small and large", By("MDTS 1, and 2 MiB in one command")),
    ("MDTS 11", Not("QEMU 7.2 fails commands of more than 1,024 pages")),
    ("a single queue pair", Here(sharing::single_pair)),
    ("as many queue pairs as the controller has", Here(sharing::all_pairs)),
    ("memory without PRPs, by SGLs", Here(commands::without_prps)),
    ("Compare, Write Zeroes, deallocation and FUA", Here(commands::of_blocks)),
    ("events", Here(commands::events)),
    ("features, log pages and Abort", Here(commands::administration)),
    ("shadow doorbells", Here(sharing::shadow_doorbells)),
    ("two controllers of a subsystem", Here(sharing::twins)),
    ("another controller's memory buffer as a target", Here(sharing::buffer_of_another)),
    ("its own memory buffer as a target", Here(sharing::own_buffer)),
    ("reservations", Not("QEMU 7.2 has none")),
    ("Verify, Sanitize, self-tests and firmware", Not("QEMU 7.2 has none")),
    ("zoned namespaces, Persistent Memory Regions", Not("the driver has none")),
    ("interrupts", By("interrupts are events")),
    ("a function that the kernel wants back", By("the kernel asks for a function back under load and gets it")),
    ("a function that is unplugged in order", By("a slot's button is pressed under load and the controller given up")),
    (
        "a BAR behind what a narrow IOMMU names",
        By("another function's memory lies behind what a narrow IOMMU could name"),
    ),
    ("a function that is pulled", By("a controller is pulled under load")),
    ("devices that lie, stall or lose the power", Not("the model does that")),
];

/// The checks.
pub fn list(special: &Special) -> Vec<DeviceTest> {
    let checks = FEATURES.iter().filter_map(|(name, shown)| match shown {
        Here(check) => Some((*name, *check)),
        By(_) | Not(_) => None,
    });
    let bind = |(name, check): (&str, Check)| {
        let special = special.clone();
        DeviceTest::new(name, move |_| check(&special))
    };
    checks.map(bind).collect()
}

impl Special {
    /// The addresses of [`SPECIAL`], in their order.
    ///
    /// # Errors
    /// [`Ending::Failed`] where there are others.
    pub fn new(sysfs: Sysfs, way: Way, addresses: &[PciAddress]) -> Result<Self, Ending> {
        match *addresses {
            [formats, buffer, first, second] => Ok(Self { sysfs, way, formats, buffer, twins: [first, second] }),
            _ => Err(Ending::Failed(format!("{} special controllers, not {}", addresses.len(), SPECIAL.len()))),
        }
    }

    fn enable(&self, address: PciAddress, config: ControllerConfig) -> Result<Controller, Ending> {
        let function = open_function(&self.sysfs, address, self.way)?;
        Ok(Controller::enable(function as Arc<dyn Function>, config)?)
    }

    fn open(&self, address: PciAddress) -> Result<Bench, Ending> {
        Bench::new(self.enable(address, ControllerConfig::default())?, None)
    }
}

/// The rows of the table, as the documentation has them.
pub fn rows() -> impl Iterator<Item = String> {
    FEATURES.iter().map(|(feature, shown)| match shown {
        Here(_) => format!("| {feature} | yes, by a check of that name |"),
        By(tests) => format!("| {feature} | yes: {tests} |"),
        Not(reason) => format!("| {feature} | no: {reason} |"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_documentation_is_this_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hardware-in-the-loop.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<_> = rows().collect();
        let table = rows.join("\n");
        assert!(text.contains(&format!("| --- | --- |\n{table}\n\n")), "the table is not\n{table}");
    }
}
