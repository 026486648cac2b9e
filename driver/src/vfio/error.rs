//! Why a function was not opened, or did not do what it was asked for.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::bus::{Hindrance, PciAddress, SysfsError};
use crate::keeper::KeeperError;

/// Why a function was not opened through VFIO, or a part of it not mapped.
#[derive(Debug, Error)]
pub enum VfioError {
    /// Caller: there is no such function, or sysfs cannot be read.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// Caller: no function, or one twice, was named.
    #[error("name each function to be opened once, and at least one: {count} were named")]
    Addresses {
        /// How many were named.
        count: usize,
    },
    /// Caller: two of the functions are in one group, from which the IOMMU cannot take one without the other.
    #[error(
        "{address} and {other} are both in IOMMU group {group}: the IOMMU cannot tell them apart, so only one of them can be opened"
    )]
    SharedGroup {
        /// A function.
        address: PciAddress,
        /// The other one.
        other: PciAddress,
        /// Their group.
        group: u32,
    },
    /// Host: another driver has the function.
    #[error(
        "{address} is {}: give it to VFIO by `tentpeg bind {address}`",
        driver.as_ref().map_or("bound to no driver".to_owned(), |driver| format!("bound to the driver {driver}"))
    )]
    NotBound {
        /// The function.
        address: PciAddress,
        /// The driver that has it.
        driver: Option<String>,
    },
    /// Host: no IOMMU translates for the function.
    #[error(
        "{address} is in no IOMMU group: switch the IOMMU on in the firmware (VT-d, AMD-Vi, SMMU) and, with an Intel processor, start the kernel with intel_iommu=on"
    )]
    NoGroup {
        /// The function.
        address: PciAddress,
    },
    /// Host: other functions of the group are with other drivers.
    #[error("{address} cannot be opened, as {}", in_the_way(*address, *group, others))]
    NotViable {
        /// The function.
        address: PciAddress,
        /// Its group.
        group: u32,
        /// The other devices that the kernel uses; none where it does not say which.
        others: Vec<Hindrance>,
    },
    /// Host: a file of VFIO cannot be opened.
    #[error("cannot open {}: {source}{}", path.display(), open_remedy(path, source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Host: the IOMMU does not remap interrupts, so the device could forge one.
    #[error(
        "the kernel refuses {address}, as its IOMMU does not remap interrupts and the device could forge one: switch interrupt remapping on in the firmware, or accept the risk by the option allow_unsafe_interrupts=1 of the module {module}"
    )]
    UnsafeInterrupts {
        /// The function.
        address: PciAddress,
        /// The module of the kernel that has the option.
        module: &'static str,
    },
    /// Host: the kernel makes no device file of the function.
    #[error(
        "{address} has no device file below /dev/vfio/devices: the kernel has them from Linux 6.6 on, with CONFIG_VFIO_DEVICE_CDEV: open it through type 1"
    )]
    NoDeviceFile {
        /// The function.
        address: PciAddress,
    },
    /// Host: this kernel's VFIO has no type 1 IOMMU of version 2.
    #[error("this kernel's VFIO has no IOMMU of type 1, version 2: load the module vfio_iommu_type1")]
    NoType1,
    /// Host: the kernel refused.
    #[error("{name}: cannot {step}: {source}")]
    Kernel {
        /// The function.
        name: String,
        /// What was tried.
        step: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// Caller or device: there is no such BAR, or it cannot be mapped as a whole.
    #[error("{name} has no memory at BAR {bar} that can be mapped as a whole ({len} bytes)")]
    NoBar {
        /// The function.
        name: String,
        /// The BAR's number.
        bar: u32,
        /// Its length in bytes; 0 where there is none.
        len: u64,
    },
    /// Caller: the function is no NVMe controller that this driver knows.
    #[error("{name} has {len} bytes of registers at BAR 0: an NVMe controller has at least {least}")]
    NoRegisters {
        /// The function.
        name: String,
        /// The length of BAR 0 in bytes.
        len: u64,
        /// Bytes of an NVMe controller's registers with its admin queue's doorbells.
        least: u64,
    },
    /// Host or device: it has been cut off from its address space.
    #[error("{name} has been cut off")]
    CutOff {
        /// The function.
        name: String,
    },
    /// Host: nothing holds its descriptor beyond the end of this process.
    #[error("{name}: {source}")]
    Keeper {
        /// The function.
        name: String,
        /// What is wrong with the keeper.
        source: KeeperError,
    },
    /// Caller: more interrupts than there are.
    #[error("{name} has {available} MSI-X interrupts, and {wanted} were asked for: ask for 1 to {available}")]
    Interrupts {
        /// The function.
        name: String,
        /// How many were asked for.
        wanted: u32,
        /// How many there are.
        available: u32,
    },
}

/// What keeps a group from being given to us, and what helps.
fn in_the_way(address: PciAddress, group: u32, others: &[Hindrance]) -> String {
    if others.is_empty() {
        return format!(
            "IOMMU group {group} is taken already, or has another device that the kernel uses, and it does not say which: end \
             who has the group, or unbind what stands in /sys/kernel/iommu_groups/{group}/devices"
        );
    }
    let list: Vec<_> = others.iter().map(|other| format!("{} ({})", other.name, other.driver)).collect();
    format!(
        "IOMMU group {group} has other devices that the kernel uses: {}: bind them to vfio-pci too, unbind them, or move \
         {address} to a slot with a group of its own",
        list.join(", ")
    )
}

/// Whether a path is that of an IOMMU group's file, `/dev/vfio/7`.
fn is_of_a_group(path: &Path) -> bool {
    let number = path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<u32>().is_ok());
    number && path.parent().is_some_and(|folder| folder.ends_with("dev/vfio"))
}

/// What helps where a file of VFIO cannot be opened.
fn open_remedy(path: &Path, error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV) if path.ends_with("dev/iommu") => {
            ": load the module iommufd, or, if the kernel has none, use type 1"
        }
        Some(libc::ENOENT | libc::ENODEV) if is_of_a_group(path) => {
            ": the function is bound to VFIO, so the file is not in this container (pass it in), or the kernel has the group \
             without an IOMMU (noiommu), which is not used"
        }
        Some(libc::ENOENT | libc::ENODEV) => ": load the modules vfio-pci and vfio_iommu_type1",
        Some(libc::EACCES | libc::EPERM) => ": run as root, or make this user the owner of the file",
        Some(libc::EBUSY) => ": another process has it open, and only one may",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    #[test]
    fn a_group_that_is_not_viable_names_the_others() {
        let other = |name: &str, driver: &str| {
            let (name, driver) = (name.to_owned(), driver.to_owned());
            Hindrance { address: name.parse().ok(), name, driver }
        };
        let others = vec![other("0000:01:00.1", "e1000e"), other("0000:01:00.2", "snd_hda_intel")];
        let error = VfioError::NotViable { address: address("01:00.0"), group: 9, others };
        assert_eq!(
            error.to_string(),
            "0000:01:00.0 cannot be opened, as IOMMU group 9 has other devices that the kernel uses: 0000:01:00.1 \
             (e1000e), 0000:01:00.2 (snd_hda_intel): bind them to vfio-pci too, unbind them, or move 0000:01:00.0 to \
             a slot with a group of its own"
        );
    }

    #[test]
    fn a_groups_file_that_is_not_there_is_no_lack_of_modules() {
        let error = |path: &str| {
            VfioError::Open { path: path.into(), source: io::Error::from_raw_os_error(libc::ENOENT) }.to_string()
        };
        assert!(error("/dev/vfio/17").contains("not in this container (pass it in)"), "{}", error("/dev/vfio/17"));
        for other in ["/dev/vfio/vfio", "/dev/other/17"] {
            assert!(error(other).contains("load the modules"), "{}", error(other));
        }
    }

    #[test]
    fn a_file_that_cannot_be_opened_says_what_helps() {
        let iommufd = VfioError::Open { path: "/dev/iommu".into(), source: io::Error::from_raw_os_error(libc::ENOENT) };
        assert!(iommufd.to_string().contains("load the module iommufd"), "{iommufd}");
        for (errno, remedy) in [
            (libc::ENOENT, "load the modules"),
            (libc::EACCES, "run as root"),
            (libc::EBUSY, "another process"),
            (libc::EIO, ""),
        ] {
            let source = io::Error::from_raw_os_error(errno);
            let text = VfioError::Open { path: "/dev/vfio/vfio".into(), source }.to_string();
            assert!(text.starts_with("cannot open /dev/vfio/vfio: ") && text.contains(remedy), "{text}");
        }
    }
}
