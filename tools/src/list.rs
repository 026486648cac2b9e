//! `tentpeg list`: the NVMe controllers of this machine, who has them, and whether they can be driven from here.

use clap::Args;
use serde::Serialize;
use tentpeg_driver::bus::{Hindrance, Openers, PciFunction, Sysfs, SysfsError};

use crate::units::About;

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Print a JSON array of one object for each controller, with sizes in bytes, instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Whether a controller can be driven from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub enum State {
    /// VFIO has it, and its group can be opened.
    Ready,
    /// VFIO has it, but not the other devices of its group, which are named.
    NotViable(String),
    /// The kernel or nobody has it, and nobody uses it as far as this user sees: `tentpeg bind` gives it to VFIO.
    Bindable,
    /// A driver has it that is neither the kernel's own nor one of VFIO's; it is named.
    OtherDriver(String),
    /// Somebody uses its disks.
    InUse(String),
    /// The machine runs from one of its disks.
    BootDisk(String),
    /// No IOMMU translates for it.
    NoIommu,
}

impl State {
    /// The state of a controller, of whose files it was looked who has them open.
    pub fn of(sysfs: &Sysfs, function: &PciFunction, openers: &Openers) -> Self {
        let uses: Vec<_> = openers.uses_of(function).map(ToString::to_string).collect();
        if function.block_devices.iter().any(|disk| disk.is_boot_disk()) {
            return Self::BootDisk(uses.join(", "));
        }
        if !uses.is_empty() {
            return Self::InUse(uses.join(", "));
        }
        if let Some(driver) = function.other_driver() {
            return Self::OtherDriver(driver.to_owned());
        }
        let Some(group) = function.iommu_group else { return Self::NoIommu };
        if !function.is_on_vfio() {
            return Self::Bindable;
        }
        let others: Vec<_> = sysfs.hindrances(group).iter().map(Hindrance::to_string).collect();
        if others.is_empty() { Self::Ready } else { Self::NotViable(others.join(", ")) }
    }

    /// For a person.
    pub fn text(&self) -> String {
        match self {
            Self::Ready => "ready".to_owned(),
            Self::NotViable(others) => format!("its IOMMU group is not viable: {others}"),
            Self::Bindable => "free: `tentpeg bind` gives it to VFIO".to_owned(),
            Self::OtherDriver(driver) => format!("with {driver}, which is neither the kernel's own driver nor VFIO's"),
            Self::InUse(uses) => format!("in use: {uses}"),
            Self::BootDisk(uses) => format!("this machine runs from it: {uses}"),
            Self::NoIommu => "no IOMMU group".to_owned(),
        }
    }
}

/// A controller as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Entry {
    address: String,
    id: Option<String>,
    driver: Option<String>,
    iommu_group: Option<u32>,
    numa_node: Option<u32>,
    disks: Vec<Disk>,
    #[serde(flatten)]
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Disk {
    name: String,
    bytes: Option<u64>,
}

impl Entry {
    fn new(sysfs: &Sysfs, function: &PciFunction, openers: &Openers) -> Self {
        let ids = function.vendor.zip(function.device);
        let disks = function.block_devices.iter().map(|disk| Disk { name: disk.name.clone(), bytes: disk.bytes });
        Self {
            address: function.address.to_string(),
            id: ids.map(|(vendor, device)| format!("{vendor:04x}:{device:04x}")),
            driver: function.driver.clone(),
            iommu_group: function.iommu_group,
            numa_node: function.numa_node,
            disks: disks.collect(),
            state: State::of(sysfs, function, openers),
        }
    }

    fn cells(&self) -> [String; 7] {
        let disk = |disk: &Disk| match disk.bytes {
            Some(bytes) => format!("{} ({})", disk.name, About(bytes)),
            None => disk.name.clone(),
        };
        let disks: Vec<_> = self.disks.iter().map(disk).collect();
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let cells = [
            Some(self.address.clone()),
            self.id.clone(),
            self.driver.clone(),
            number(self.iommu_group),
            number(self.numa_node),
            Some(disks.join(", ")).filter(|disks| !disks.is_empty()),
            Some(self.state.text()),
        ];
        cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned()))
    }
}

/// Lists the controllers.
///
/// # Errors
/// [`SysfsError`] when PCI functions cannot be listed.
pub fn run(sysfs: &Sysfs, args: &ListArgs) -> Result<String, SysfsError> {
    let functions = sysfs.nvme_functions()?;
    let openers = sysfs.openers(functions.iter().flat_map(|function| &function.device_files));
    let entries: Vec<_> = functions.iter().map(|function| Entry::new(sysfs, function, &openers)).collect();
    if args.json {
        let text = serde_json::to_string(&entries).expect("texts and numbers always serialise");
        return Ok(text + "\n");
    }
    if entries.is_empty() {
        return Ok("no NVMe controller on this machine's PCI bus\n".to_owned());
    }
    let heads = ["address", "id", "driver", "group", "NUMA", "disks", "state"].map(str::to_owned);
    let rows: Vec<_> = [heads].into_iter().chain(entries.iter().map(Entry::cells)).collect();
    Ok(columns(&rows))
}

/// Rows in columns as wide as they must be; the last as it is.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn every_state_in_a_table_and_as_json() {
        let machine = Machine::with_controllers();
        let shown = run(&machine.sysfs(), &ListArgs { json: false }).unwrap();
        assert_eq!(
            shown,
            "\
address       id         driver    group  NUMA  disks               state
0000:01:00.0  144d:a80a  nvme      1      0     nvme0n1 (1.00 GiB)  this machine runs from it: nvme0n1 is mounted on /boot/efi
0000:02:00.0  144d:a80a  nvme      2      0     nvme1n1 (1.00 GiB)  in use: nvme1n1 is held by dm-3
0000:03:00.0  144d:a80a  nvme      3      0     nvme2n1 (1.00 GiB)  free: `tentpeg bind` gives it to VFIO
0000:04:00.0  144d:a80a  vfio-pci  4      0     -                   ready
0000:05:00.0  144d:a80a  nvme      -      0     -                   no IOMMU group
0000:06:00.0  144d:a80a  vfio-pci  6      0     -                   its IOMMU group is not viable: 0000:06:00.1 is with snd_hda_intel
"
        );
        let json = run(&machine.sysfs(), &ListArgs { json: true }).unwrap();
        let entries: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(entries[2]["disks"][0]["bytes"], 1u64 << 30);
        assert_eq!(entries[3]["state"], "ready");
        assert_eq!(entries[5]["state"], "not_viable");
        assert_eq!(entries[5]["reason"], "0000:06:00.1 is with snd_hda_intel");
    }

    #[test]
    fn what_other_programs_have_is_not_free() {
        let machine = Machine::with_controllers();
        machine.process(20, "qemu-system-x86", &["/dev/nvme2n1"]);
        // Of this one nothing can be seen: the list is not for deciding by.
        machine.file("proc/30/fd", "");
        machine.function("0000:08:00.0", "0x010802", Some("uio_pci_generic"), Some(8));
        machine.function("0000:09:00.0", "0x010802", None, Some(9));
        let json = run(&machine.sysfs(), &ListArgs { json: true }).unwrap();
        let entries: serde_json::Value = serde_json::from_str(&json).unwrap();
        let state = |number: usize| [&entries[number]["state"], &entries[number]["reason"]].map(|text| text.as_str());
        assert_eq!(state(2), [Some("in_use"), Some("nvme2n1 is open in process 20 (qemu-system-x86)")]);
        assert_eq!(state(6), [Some("other_driver"), Some("uio_pci_generic")]);
        assert_eq!(state(7), [Some("bindable"), None]);
        let shown = run(&machine.sysfs(), &ListArgs { json: false }).unwrap();
        let line = shown.lines().find(|line| line.starts_with("0000:08:00.0")).unwrap();
        assert!(
            line.ends_with("  with uio_pci_generic, which is neither the kernel's own driver nor VFIO's"),
            "{line}"
        );
    }

    #[test]
    fn a_machine_without_controllers() {
        let machine = Machine::new();
        let shown = run(&machine.sysfs(), &ListArgs { json: false }).unwrap();
        assert_eq!(shown, "no NVMe controller on this machine's PCI bus\n");
        assert_eq!(run(&machine.sysfs(), &ListArgs { json: true }).unwrap(), "[]\n");
    }
}
