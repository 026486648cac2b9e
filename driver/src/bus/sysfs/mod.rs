//! What Linux says of the functions on this machine: sysfs and procfs, read and never written.
//!
//! [`Sysfs`] reads below a root folder, `/` on a machine and any folder in a test. What is found there is taken for
//! what it is: a text file that somebody else wrote. A file that is missing, odd or unreadable makes a field absent, and
//! a listing with one odd entry is a listing without it; nothing here fails because of a neighbour.
//!
//! Whether a function may be taken from the kernel is decided by who asks; [`BlockDevice::uses`] is what it goes by.

mod block;
mod files;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::config_space::ConfigSpace;
use super::pci::{PciAddress, hex};
pub use block::{BlockDevice, Use};
pub use files::{DeviceFile, Openers};

/// The class of an NVMe I/O controller: mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment,
/// 1.16: 01h, 08h, 02h).
const NVME_CLASS: u32 = 0x01_0802;
/// Base class and subclass of PCI-to-PCI bridges: part of a group without being anybody's device. Other bridges, such as
/// those to ISA or NVLink, are devices like any other.
const PCI_BRIDGE_CLASS: u32 = 0x0604;

/// The kernel's own driver of NVMe controllers.
const KERNEL_DRIVER: &str = "nvme";

/// The driver that gives functions to userspace.
pub const VFIO_DRIVER: &str = "vfio-pci";

/// The machine cannot be asked.
#[derive(Debug, Error)]
pub enum SysfsError {
    /// Caller: there is no such function.
    #[error("there is no PCI function {address}: `tentpeg list` shows those with an NVMe controller")]
    NoFunction {
        /// The address asked for.
        address: PciAddress,
    },
    /// Host: sysfs is not there, or cannot be read.
    #[error("cannot read {}: {source}: is sysfs mounted on /sys?", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
}

/// A PCI function as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciFunction {
    /// Where it is.
    pub address: PciAddress,
    /// Vendor ID.
    pub vendor: Option<u16>,
    /// Device ID.
    pub device: Option<u16>,
    /// Class code: base class, subclass and programming interface, 24 bits.
    pub class: Option<u32>,
    /// The driver bound to it.
    pub driver: Option<String>,
    /// The only driver that may bind to it, where one has been named.
    pub driver_override: Option<String>,
    /// Its IOMMU group; `None` without an IOMMU.
    pub iommu_group: Option<u32>,
    /// Its NUMA node; `None` where the machine does not say.
    pub numa_node: Option<u32>,
    /// Block devices of the kernel's own driver on it.
    pub block_devices: Vec<BlockDevice>,
    /// The files through which processes reach its namespaces, by way of the kernel's own driver.
    pub device_files: Vec<DeviceFile>,
}

impl PciFunction {
    /// Whether it is an NVMe I/O controller.
    pub fn is_nvme(&self) -> bool {
        self.class == Some(NVME_CLASS)
    }

    /// Whether it is a bridge between PCI buses, which stays with the kernel and keeps no group from being viable.
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|class| class >> 8 == PCI_BRIDGE_CLASS)
    }

    /// Whether VFIO has it: [`VFIO_DRIVER`], or one that knows more of a kind of device and does the same.
    pub fn is_on_vfio(&self) -> bool {
        self.driver.as_deref().is_some_and(is_vfio_driver)
    }

    /// The driver that has an NVMe controller, where that is neither the kernel's own nor one of VFIO's: one by which another
    /// program drives it (`uio_pci_generic`), or another machine (`xen-pciback`).
    pub fn other_driver(&self) -> Option<&str> {
        self.driver.as_deref().filter(|driver| *driver != KERNEL_DRIVER && !is_vfio_driver(driver))
    }

    /// Whether its group can be given to userspace as far as this function goes: it is on VFIO, on no driver at all, or a
    /// bridge between PCI buses.
    pub fn is_viable(&self) -> bool {
        self.is_bridge() || self.is_on_vfio() || matches!(self.driver.as_deref(), None | Some("pci-stub" | "pcieport"))
    }
}

/// Whether a driver gives functions to userspace by VFIO: `vfio-pci`, or a variant of it (`mlx5_vfio_pci`).
pub fn is_vfio_driver(name: &str) -> bool {
    name.ends_with("vfio-pci") || name.ends_with("_vfio_pci")
}

/// A member of an IOMMU group that keeps it from being given to userspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// Where it is; `None` where it is no PCI function.
    pub address: Option<PciAddress>,
    /// What the kernel calls it.
    pub name: String,
    /// The driver that has it.
    pub driver: String,
}

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is with {}", self.name, self.driver)
    }
}

/// The machine, as sysfs and procfs below a root folder show it.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// This machine.
    pub fn system() -> Self {
        Self::below("/")
    }

    /// The machine whose `sys`, `proc` and `dev` lie in `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the running machine, and not a folder of files.
    fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// A path of the machine, such as `/sys/bus/pci`, as it is reached from here.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Every PCI function, by address.
    ///
    /// # Errors
    /// [`SysfsError::Unreadable`] when they cannot be listed at all.
    pub fn functions(&self) -> Result<Vec<PciFunction>, SysfsError> {
        let addresses = self.addresses(&self.path("/sys/bus/pci/devices"))?;
        Ok(addresses.into_iter().filter_map(|address| self.function(address).ok()).collect())
    }

    /// Every NVMe I/O controller, by address.
    ///
    /// # Errors
    /// As [`functions`](Self::functions).
    pub fn nvme_functions(&self) -> Result<Vec<PciFunction>, SysfsError> {
        Ok(self.functions()?.into_iter().filter(PciFunction::is_nvme).collect())
    }

    /// The function at `address`.
    ///
    /// # Errors
    /// [`SysfsError::NoFunction`].
    pub fn function(&self, address: PciAddress) -> Result<PciFunction, SysfsError> {
        let folder = self.function_folder(address);
        if !folder.is_dir() {
            return Err(SysfsError::NoFunction { address });
        }
        let number = |name, digits| text(&folder.join(name)).and_then(|text| hex(text.strip_prefix("0x")?, digits));
        let numa_node = text(&folder.join("numa_node")).and_then(|text| text.parse::<u32>().ok());
        let group = link_name(&folder.join("iommu_group"));
        Ok(PciFunction {
            address,
            vendor: number("vendor", 4).map(|id| id as u16),
            device: number("device", 4).map(|id| id as u16),
            class: number("class", 6),
            driver: link_name(&folder.join("driver")),
            driver_override: text(&folder.join("driver_override")).filter(|name| name != "(null)" && !name.is_empty()),
            iommu_group: group.and_then(|group| group.parse().ok()),
            numa_node,
            block_devices: self.block_devices(&folder),
            device_files: self.device_files(&folder),
        })
    }

    /// Every function of an IOMMU group, by address.
    ///
    /// # Errors
    /// [`SysfsError::Unreadable`] when there is no such group.
    pub fn group(&self, group: u32) -> Result<Vec<PciFunction>, SysfsError> {
        let folder = self.path(&format!("/sys/kernel/iommu_groups/{group}/devices"));
        let addresses = self.addresses(&folder)?;
        Ok(addresses.into_iter().filter_map(|address| self.function(address).ok()).collect())
    }

    /// What keeps an IOMMU group from being given to userspace, by name. Devices of other buses count as well, with VFIO's
    /// drivers for those. Empty, too, where there is no such group.
    pub fn hindrances(&self, group: u32) -> Vec<Hindrance> {
        let folder = self.path(&format!("/sys/kernel/iommu_groups/{group}/devices"));
        let hindrance = |name: String| {
            let address = name.parse().ok();
            let driver = match address {
                Some(address) => self.function(address).ok().filter(|function| !function.is_viable())?.driver?,
                None => link_name(&folder.join(&name).join("driver")).filter(|driver| !driver.starts_with("vfio"))?,
            };
            Some(Hindrance { address, name, driver })
        };
        names(&folder).into_iter().filter_map(hindrance).collect()
    }

    /// Where the kernel keeps the files of a function.
    pub fn function_folder(&self, address: PciAddress) -> PathBuf {
        self.path(&format!("/sys/bus/pci/devices/{address}"))
    }

    /// Where functions answer on the bus, and what bridges pass on: the first address of each window of memory and the one
    /// behind its last, as far as they have been given addresses. These are the processor's, which are the bus's, too, but
    /// on machines whose host bridges translate.
    pub fn memory_windows(&self) -> Vec<(u64, u64)> {
        let functions = self.addresses(&self.path("/sys/bus/pci/devices")).unwrap_or_default();
        let resources =
            functions.into_iter().filter_map(|address| text(&self.function_folder(address).join("resource")));
        resources.flat_map(|lines| lines.lines().filter_map(memory_window).collect::<Vec<_>>()).collect()
    }

    /// The configuration space of the function at `address`, as much as this user is shown of it: the kernel keeps all but the
    /// header for root. `None` where none can be read.
    pub fn config_space(&self, address: PciAddress) -> Option<ConfigSpace> {
        let file = fs::File::open(self.function_folder(address).join("config")).ok()?;
        let mut bytes = Vec::new();
        file.take(ConfigSpace::MOST).read_to_end(&mut bytes).ok()?;
        Some(ConfigSpace::new(bytes))
    }

    /// The addresses that entries of a folder are named by; what is named otherwise is no PCI function.
    fn addresses(&self, folder: &Path) -> Result<Vec<PciAddress>, SysfsError> {
        let entries =
            fs::read_dir(folder).map_err(|source| SysfsError::Unreadable { path: folder.to_owned(), source })?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut addresses: Vec<_> = names.filter_map(|name| name.parse().ok()).collect();
        addresses.sort_unstable();
        Ok(addresses)
    }
}

/// The names in a folder, sorted; none where it cannot be read.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<_> = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

/// A file's text without the white space around it; `None` where it cannot be read.
fn text(path: &Path) -> Option<String> {
    read_text(path).ok()
}

/// The same. What is no UTF-8 is replaced: one odd name, of a mount say, must not hide all others of the file.
fn read_text(path: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path)?).trim().to_owned())
}

/// A line of a function's `resource`: first address, last address and flags (`include/linux/ioport.h`); where it is memory
/// that has an address.
fn memory_window(line: &str) -> Option<(u64, u64)> {
    const IORESOURCE_MEM: u64 = 0x200;
    let mut words = line.split_whitespace().map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    let (first, last, flags) = (words.next()??, words.next()??, words.next()??);
    let end = last.checked_add(1)?;
    (flags & IORESOURCE_MEM != 0 && first != 0 && first < end).then_some((first, end))
}

/// The last part of what a link leads to, which need not exist.
fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_str()?.to_owned())
}
