//! Opening functions through a container and groups, with the IOMMU driver of type 1.

use std::ffi::CString;
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{VFIO_API_VERSION, VFIO_GROUP_FLAGS_VIABLE, VFIO_TYPE1v2_IOMMU};

use super::capability::IommuInfo;
use super::open::{Candidate, not_viable, open_file, space_of};
use super::space::ContainerSpace;
use super::{VfioDevice, VfioError, ioctl};
use crate::bus::{PciAddress, Sysfs};
use crate::dma::PageSize;

/// The file by which a container is made.
pub(super) const CONTAINER: &str = "/dev/vfio/vfio";

/// Opens functions that are bound to `vfio-pci`.
pub(super) fn open(sysfs: &Sysfs, candidates: &[Candidate]) -> Result<Vec<VfioDevice>, VfioError> {
    require_groups_of_their_own(candidates)?;
    let container = open_file(sysfs.path(CONTAINER))?;
    let failed =
        |address: PciAddress, step| move |source| VfioError::Kernel { name: address.to_string(), step, source };
    let first = candidates[0].function.address;
    let version = ioctl::api_version(&container).map_err(failed(first, "ask for VFIO's version"))?;
    let has_type1 = ioctl::has_extension(&container, VFIO_TYPE1v2_IOMMU).map_err(failed(first, "ask for type 1"))?;
    if version != VFIO_API_VERSION as i32 || !has_type1 {
        return Err(VfioError::NoType1);
    }
    let mut groups = Vec::new();
    for Candidate { function, group } in candidates {
        let address = function.address;
        let file = open_file(sysfs.path(&format!("/dev/vfio/{group}")))?;
        let flags = ioctl::group_flags(&file).map_err(failed(address, "ask for the group's state"))?;
        if flags & VFIO_GROUP_FLAGS_VIABLE == 0 {
            return Err(not_viable(sysfs, address, *group));
        }
        let attach = || {
            ioctl::set_container(&file, &container)?;
            // The kind of IOMMU can be chosen once a group is there, and is chosen once.
            if groups.is_empty() { ioctl::set_iommu(&container, VFIO_TYPE1v2_IOMMU) } else { Ok(()) }
        };
        attach().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => VfioError::UnsafeInterrupts { address, module: "vfio_iommu_type1" },
            _ => VfioError::Kernel { name: address.to_string(), step: "put its group into the container", source },
        })?;
        groups.push(file);
    }
    let reply = ioctl::iommu_info(&container).map_err(failed(first, "ask what the IOMMU translates"))?;
    let info = IommuInfo::read(&reply, PageSize::Ordinary.bytes() as u64);
    let space = Arc::new(ContainerSpace::new(container, &info, groups.len()));
    let dma = space_of(sysfs, &space, &info);
    let open = candidates.iter().zip(groups).map(|(Candidate { function, .. }, group)| {
        // An address has no zero in it; the kernel would refuse an empty one.
        let name = CString::new(function.address.to_string()).unwrap_or_default();
        let opened = ioctl::open_device(&group, &name);
        let device = opened.map_err(failed(function.address, "open it, though its group is viable"))?;
        VfioDevice::new(function.clone(), device, Some(group), Arc::clone(&dma), Arc::clone(&space) as _)
    });
    open.collect()
}

/// A group goes into a container as a whole, so of two functions in it each would be opened twice.
fn require_groups_of_their_own(candidates: &[Candidate]) -> Result<(), VfioError> {
    for (index, Candidate { function, group }) in candidates.iter().enumerate() {
        if let Some(other) = candidates[..index].iter().find(|other| other.group == *group) {
            let (address, other) = (function.address, other.function.address);
            return Err(VfioError::SharedGroup { address, other, group: *group });
        }
    }
    Ok(())
}
