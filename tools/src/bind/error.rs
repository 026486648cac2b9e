//! Why a controller was not given to VFIO, or back to the kernel.

use std::io;
use std::path::PathBuf;

use tentpeg_driver::bus::{PciAddress, SysfsError};
use thiserror::Error;

/// How a function is taken from a driver by which something else drives it.
pub(crate) fn take_from(address: PciAddress, driver: &str) -> String {
    format!("end what drives it through that, then `echo {address} > /sys/bus/pci/drivers/{driver}/unbind`")
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
    /// Caller: another program has it, or another machine.
    #[error(
        "{address} is with the driver {driver}, which is neither the kernel's own nor one of VFIO's: {}",
        take_from(*address, driver)
    )]
    OtherDriver {
        /// The function.
        address: PciAddress,
        /// The driver that has it.
        driver: String,
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
    #[error("{address} is in use: {uses}: unmount it, switch its swap off, or end what stands on it or has it open")]
    InUse {
        /// The function.
        address: PciAddress,
        /// What it is used for.
        uses: String,
    },
    /// Caller or host: it may be used, and nobody may be told that it is not.
    #[error("cannot see whether {what} is in use: {reason}: run as root on the host, with its /dev and /proc")]
    Unseen {
        /// The files, by which it would be used.
        what: String,
        /// What could not be seen.
        reason: String,
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
    #[error("{address} is driven by another process ({by}): end that first")]
    Driven {
        /// The function.
        address: PciAddress,
        /// What shows it.
        by: String,
    },
    /// Host: a file of sysfs was not written.
    #[error("cannot write {text:?} to {}: {source}{}", path.display(), write_remedy(source))]
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
    /// Host: it was given back, and the kernel's own driver did not take it.
    #[error(
        "{address} is with no driver now, as the kernel's own did not take it: load that by `modprobe nvme`, then `tentpeg unbind {address}`; if it is loaded, the kernel's log (`dmesg`) says why"
    )]
    NoDriver {
        /// The function.
        address: PciAddress,
    },
    /// One of these, after which functions are not where they were.
    #[error("{error}; {left}")]
    Left {
        /// What went wrong.
        error: Box<BindError>,
        /// Where they are.
        left: String,
    },
}

impl BindError {
    /// The same with what was not taken back, if anything.
    pub(super) fn and_left(self, left: &[String]) -> Self {
        if left.is_empty() { self } else { Self::Left { error: Box::new(self), left: left.join("; ") } }
    }
}

fn write_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ": run as root",
        io::ErrorKind::ReadOnlyFilesystem => {
            ": sysfs is mounted read-only, as in a container: run on the host, or in a container that may write it (`--privileged`)"
        }
        _ => "",
    }
}
