//! `tentpeg bind` and `tentpeg unbind`: give a controller to VFIO, and back to the kernel.
//!
//! A [`Plan`] is worked out from what sysfs says, and refused where the kernel, or somebody, uses the device. It is a
//! short list of writes to files of sysfs, which can be shown instead of being done. It names one function: no other
//! device of the same kind is touched, as it would be by `new_id`.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use tentpeg_driver::bus::{PciAddress, PciFunction, Sysfs, SysfsError, VFIO_DRIVER};
use thiserror::Error;

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct BindArgs {
    /// The controllers by PCI address, such as 0000:04:00.0; `tentpeg list` shows them
    #[arg(required = true)]
    pub addresses: Vec<PciAddress>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Why a controller was not given to VFIO, or back to the kernel.
#[derive(Debug, Error)]
pub enum BindError {
    /// Caller or host: there is no such function, or sysfs cannot be read.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// Caller: it is something else.
    #[error("{address} is no NVMe controller{}: `tentpeg list` shows those of this machine", class.map(|class| format!(" (its class is {class:06x})")).unwrap_or_default())]
    NotNvme {
        /// The function.
        address: PciAddress,
        /// Its class, where it is known.
        class: Option<u32>,
    },
    /// Caller: the machine runs from it.
    #[error("{address} holds the disk that this machine runs from ({uses}): it is never taken")]
    BootDisk {
        /// The function.
        address: PciAddress,
        /// What the disk is used for.
        uses: String,
    },
    /// Caller: it is used.
    #[error("{address} is in use: {uses}: unmount it, switch its swap off, or stop what stands on it")]
    InUse {
        /// The function.
        address: PciAddress,
        /// What it is used for.
        uses: String,
    },
    /// Host: VFIO is not there.
    #[error("the driver vfio-pci is not loaded: load it by `modprobe vfio-pci`")]
    NoVfio,
    /// Host: without an IOMMU nothing would keep the device from memory that is not its own.
    #[error(
        "{address} is in no IOMMU group, so nothing would keep it from memory that is not its own: switch the IOMMU on in the firmware (VT-d, AMD-Vi, SMMU) and, with an Intel processor, start the kernel with intel_iommu=on"
    )]
    NoGroup {
        /// The function.
        address: PciAddress,
    },
    /// Caller: a process drives it.
    #[error("{address} is driven by another process, which has {} open: end that first", path.display())]
    Driven {
        /// The function.
        address: PciAddress,
        /// The file of its group.
        path: PathBuf,
    },
    /// Host: a file of sysfs was not written.
    #[error("cannot write {text:?} to {}: {source}{}", path.display(), if source.kind() == io::ErrorKind::PermissionDenied { ": run as root" } else { "" })]
    Write {
        /// The file.
        path: PathBuf,
        /// What was to be written.
        text: String,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Host: the kernel did otherwise.
    #[error("{address} should be with {wanted} now and is with {found}: the kernel's log (`dmesg`) says why")]
    Elsewhere {
        /// The function.
        address: PciAddress,
        /// The driver that should have it.
        wanted: String,
        /// The driver that has it, or none.
        found: String,
    },
}

/// A write to a file of sysfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    path: PathBuf,
    text: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "echo {} > {}", self.text, self.path.display())
    }
}

/// What is to be done with one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    address: PciAddress,
    to_vfio: bool,
    steps: Vec<Step>,
    notes: Vec<String>,
}

impl Plan {
    /// The plan that gives the controller at `address` to VFIO; nothing is done where it is there.
    ///
    /// # Errors
    /// [`BindError`], when it must stay where it is.
    pub fn bind(sysfs: &Sysfs, address: PciAddress) -> Result<Self, BindError> {
        let function = sysfs.function(address)?;
        if !function.is_nvme() {
            return Err(BindError::NotNvme { address, class: function.class });
        }
        refuse_used(sysfs, &function)?;
        Self::take(sysfs, &function)
    }

    /// The plan that gives any function to VFIO, an accelerator that stands beside a controller for one. Whether
    /// somebody uses it is for the caller to know.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn take(sysfs: &Sysfs, function: &PciFunction) -> Result<Self, BindError> {
        let address = function.address;
        let group = function.iommu_group.ok_or(BindError::NoGroup { address })?;
        if !sysfs.path(&format!("/sys/bus/pci/drivers/{VFIO_DRIVER}")).is_dir() {
            return Err(BindError::NoVfio);
        }
        let others = sysfs.group(group).unwrap_or_default().into_iter().filter(|other| other.address != address);
        let notes = others.filter(|other| !other.is_viable()).map(|other| {
            let driver = other.driver.as_deref().unwrap_or_default();
            format!(
                "{address} cannot be opened yet: {} of the same IOMMU group {group} is with {driver}: bind or unbind it too",
                other.address
            )
        });
        let notes = notes.collect();
        let steps = if function.is_on_vfio() { Vec::new() } else { move_to(sysfs, function, VFIO_DRIVER) };
        Ok(Self { address, to_vfio: true, steps, notes })
    }

    /// The plan that gives the controller at `address` back to the kernel's own driver.
    ///
    /// # Errors
    /// [`BindError`], when a process drives it: the kernel would wait for that process, and we with it.
    pub fn unbind(sysfs: &Sysfs, address: PciAddress) -> Result<Self, BindError> {
        let function = sysfs.function(address)?;
        if !function.is_nvme() {
            return Err(BindError::NotNvme { address, class: function.class });
        }
        let ours = function.is_on_vfio() || function.driver_override.as_deref() == Some(VFIO_DRIVER);
        if let Some(group) = function.iommu_group.filter(|_| function.is_on_vfio()) {
            let path = sysfs.path(&format!("/dev/vfio/{group}"));
            if is_busy(&path, 0) {
                return Err(BindError::Driven { address, path });
            }
        }
        // An empty line takes the override away.
        let steps = if ours { move_to(sysfs, &function, "") } else { Vec::new() };
        Ok(Self { address, to_vfio: false, steps, notes: Vec::new() })
    }

    /// Does it, and looks whether the kernel followed. What was done is taken back when it did not.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn run(&self, sysfs: &Sysfs) -> Result<(), BindError> {
        for step in &self.steps {
            if let Err(source) = write(&step.path, &step.text) {
                self.take_back(sysfs);
                return Err(BindError::Write { path: step.path.clone(), text: step.text.clone(), source });
            }
        }
        let function = sysfs.function(self.address)?;
        if self.to_vfio && !function.is_on_vfio() {
            self.take_back(sysfs);
            let found = function.driver.unwrap_or_else(|| "no driver".to_owned());
            return Err(BindError::Elsewhere { address: self.address, wanted: VFIO_DRIVER.to_owned(), found });
        }
        if !self.to_vfio && function.is_on_vfio() {
            let (wanted, found) = ("the kernel's own driver".to_owned(), VFIO_DRIVER.to_owned());
            return Err(BindError::Elsewhere { address: self.address, wanted, found });
        }
        Ok(())
    }

    /// Lets the kernel's own driver have the function, as before. What cannot be taken back is told by the error that
    /// led here.
    fn take_back(&self, sysfs: &Sysfs) {
        if self.to_vfio && !self.steps.is_empty() {
            let _ = write(&sysfs.function_folder(self.address).join("driver_override"), "");
            let _ = write(&probe_file(sysfs), &self.address.to_string());
        }
    }
}

/// The steps, one on a line, and what else there is to say.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            let whose = if self.to_vfio { VFIO_DRIVER } else { "the kernel" };
            writeln!(f, "# {} is with {whose} already", self.address)?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "# {note}"))
    }
}

/// Binds, or unbinds, each of `addresses`; shows it where that is all that is wanted. All plans are made before the
/// first is carried out.
///
/// # Errors
/// [`BindError`]: of a plan, and nothing was done; or of a step, and those before it were.
pub fn run(sysfs: &Sysfs, args: &BindArgs, to_vfio: bool) -> Result<String, BindError> {
    let plan = |&address| if to_vfio { Plan::bind(sysfs, address) } else { Plan::unbind(sysfs, address) };
    let plans = args.addresses.iter().map(plan).collect::<Result<Vec<_>, _>>()?;
    if !args.dry_run {
        // Asked anew, as the last of them may have come into use while the first was moved.
        args.addresses.iter().try_for_each(|address| plan(address)?.run(sysfs))?;
    }
    Ok(plans.iter().map(Plan::to_string).collect())
}

/// Refuses a function whose disks somebody uses.
fn refuse_used(sysfs: &Sysfs, function: &PciFunction) -> Result<(), BindError> {
    let address = function.address;
    let uses: Vec<_> = function.block_devices.iter().flat_map(|disk| &disk.uses).map(ToString::to_string).collect();
    let uses = uses.join(", ");
    if function.block_devices.iter().any(|disk| disk.is_boot_disk()) {
        return Err(BindError::BootDisk { address, uses });
    }
    if !uses.is_empty() {
        return Err(BindError::InUse { address, uses });
    }
    // What the kernel claims without a trace in these files (a pool of ZFS, a raw database) it does not let others claim.
    let claimed = function.block_devices.iter().map(|disk| &disk.name);
    let claimed: Vec<_> =
        claimed.filter(|name| is_busy(&sysfs.path(&format!("/dev/{name}")), libc::O_EXCL)).cloned().collect();
    if claimed.is_empty() {
        return Ok(());
    }
    Err(BindError::InUse { address, uses: format!("{} is opened exclusively", claimed.join(", ")) })
}

/// Whether a file cannot be opened because it is busy.
fn is_busy(path: &Path, flags: i32) -> bool {
    let opened = OpenOptions::new().read(true).write(flags == 0).custom_flags(flags).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// The writes that have `driver`, or where it is empty whichever driver wants it, take the function.
fn move_to(sysfs: &Sysfs, function: &PciFunction, driver: &str) -> Vec<Step> {
    let folder = sysfs.function_folder(function.address);
    let mut steps = vec![Step { path: folder.join("driver_override"), text: driver.to_owned() }];
    if function.driver.is_some() {
        steps.push(Step { path: folder.join("driver/unbind"), text: function.address.to_string() });
    }
    steps.push(Step { path: probe_file(sysfs), text: function.address.to_string() });
    steps
}

/// Writes a line to a file that is there.
fn write(path: &Path, text: &str) -> io::Result<()> {
    // In one write: each is a command to the kernel.
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(format!("{text}\n").as_bytes())
}

fn probe_file(sysfs: &Sysfs) -> PathBuf {
    sysfs.path("/sys/bus/pci/drivers_probe")
}

#[cfg(test)]
mod tests;
