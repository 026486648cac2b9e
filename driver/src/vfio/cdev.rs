//! Opening functions by a device file of each, with an address space of iommufd.
//!
//! There is no group to open: the kernel claims the whole of it when a device is bound, and functions of one group can
//! share an address space.

use std::io;
use std::sync::Arc;

use super::ioas::Ioas;
use super::open::{Candidate, not_viable, open_file, space_of};
use super::space::ContainerSpace;
use super::{VfioDevice, VfioError};
use crate::bus::{PciAddress, Sysfs};
use crate::dma::PageSize;

/// The file by which iommufd is opened.
pub(super) const IOMMUFD: &str = "/dev/iommu";

/// Where the files of devices are.
pub(super) const FOLDER: &str = "/dev/vfio/devices";

/// Opens functions that are bound to `vfio-pci`.
pub(super) fn open(sysfs: &Sysfs, candidates: &[Candidate]) -> Result<Vec<VfioDevice>, VfioError> {
    let failed =
        |address: PciAddress, step| move |source| VfioError::Kernel { name: address.to_string(), step, source };
    let first = candidates[0].function.address;
    let ioas = Ioas::allocate(open_file(sysfs.path(IOMMUFD))?);
    let ioas = ioas.map_err(failed(first, "make an address space of iommufd"))?;
    let mut devices = Vec::new();
    for Candidate { function, group } in candidates {
        let address = function.address;
        let path = sysfs.path(&device_file(sysfs, address).ok_or(VfioError::NoDeviceFile { address })?);
        let device = open_file(path.clone())?;
        ioas.bind(&device).map_err(|source| match source.raw_os_error() {
            // A device that is bound already, to us or to somebody else, is refused with this.
            Some(libc::EINVAL) => VfioError::Open { path, source: io::Error::from_raw_os_error(libc::EBUSY) },
            Some(libc::EPERM) => VfioError::UnsafeInterrupts { address, module: "iommufd" },
            Some(libc::EBUSY) => match not_viable(sysfs, address, *group) {
                // It is the device itself that somebody has.
                VfioError::NotViable { others, .. } if others.is_empty() => {
                    failed(address, "tie it to iommufd")(source)
                }
                error => error,
            },
            _ => failed(address, "tie it to iommufd")(source),
        })?;
        ioas.attach(&device).map_err(failed(address, "put it into the address space"))?;
        devices.push(device);
    }
    // What can be mapped is known once the last of them is there.
    let info = ioas.info(PageSize::Ordinary.bytes() as u64);
    let info = info.map_err(failed(first, "ask what the IOMMU translates"))?;
    let space = Arc::new(ContainerSpace::new(ioas, &info, devices.len()));
    let dma = space_of(sysfs, &space, &info);
    let open = candidates.iter().zip(devices).map(|(candidate, device)| {
        VfioDevice::new(candidate.function.clone(), device, None, Arc::clone(&dma), Arc::clone(&space) as _)
    });
    open.collect()
}

/// The file of a device of its own; `None` where the kernel has made none (before Linux 6.6, or without
/// CONFIG_VFIO_DEVICE_CDEV).
pub(super) fn device_file(sysfs: &Sysfs, address: PciAddress) -> Option<String> {
    let name = sysfs.vfio_devices(address).into_iter().filter(|name| name.starts_with("vfio")).min()?;
    Some(format!("{FOLDER}/{name}"))
}
