//! Opening functions through a container and groups, with the IOMMU driver of type 1.
//!
//! All functions of an engine are opened together: they share one container, so that a region has one IOVA, and what
//! addresses that is made of is known only when the last of them has joined.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vfio_bindings::bindings::vfio::{VFIO_API_VERSION, VFIO_GROUP_FLAGS_VIABLE, VFIO_TYPE1v2_IOMMU};

use super::capability::IommuInfo;
use super::space::ContainerSpace;
use super::{VfioDevice, VfioError, ioctl};
use crate::bus::{PciAddress, PciFunction, Sysfs};
use crate::dma::{DmaSpace, IovaAllocator, PageSize};

/// Opens functions that are bound to `vfio-pci`, in the order of `addresses`, and puts them into one address space.
///
/// Nothing of a device is touched but what VFIO does when it is opened: it is reset, its memory is enabled and bus
/// mastering is off.
///
/// # Errors
/// [`VfioError`], which says what would help; nothing stays open then.
pub fn open(sysfs: &Sysfs, addresses: &[PciAddress]) -> Result<Vec<VfioDevice>, VfioError> {
    let candidates = candidates(sysfs, addresses)?;
    let container = open_file(sysfs.path("/dev/vfio/vfio"))?;
    let failed =
        |address: PciAddress, step| move |source| VfioError::Kernel { name: address.to_string(), step, source };
    let first = candidates[0].0.address;
    let version = ioctl::api_version(&container).map_err(failed(first, "ask for VFIO's version"))?;
    let has_type1 = ioctl::has_extension(&container, VFIO_TYPE1v2_IOMMU).map_err(failed(first, "ask for type 1"))?;
    if version != VFIO_API_VERSION as i32 || !has_type1 {
        return Err(VfioError::NoType1);
    }
    let mut groups = Vec::new();
    for (function, group) in &candidates {
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
            Some(libc::EPERM) => VfioError::UnsafeInterrupts { address },
            _ => VfioError::Kernel { name: address.to_string(), step: "put its group into the container", source },
        })?;
        groups.push(file);
    }
    let reply = ioctl::iommu_info(&container).map_err(failed(first, "ask what the IOMMU translates"))?;
    let info = IommuInfo::read(&reply, PageSize::Ordinary.bytes() as u64);
    let space = Arc::new(ContainerSpace::new(container, &info, groups.len()));
    let iovas = IovaAllocator::new(&info.apertures, &[]);
    let dma = DmaSpace::new(Arc::clone(&space) as _, iovas);
    let open = candidates.iter().zip(groups).map(|((function, _), group)| {
        // An address has no zero in it; the kernel would refuse an empty one.
        let name = CString::new(function.address.to_string()).unwrap_or_default();
        let opened = ioctl::open_device(&group, &name);
        let device = opened.map_err(failed(function.address, "open it, though its group is viable"))?;
        VfioDevice::new(function.clone(), device, group, Arc::clone(&dma), Arc::clone(&space))
    });
    open.collect()
}

/// What was asked for, each with its group, after all that can be known without VFIO.
fn candidates(sysfs: &Sysfs, addresses: &[PciAddress]) -> Result<Vec<(PciFunction, u32)>, VfioError> {
    let mut found: Vec<(PciFunction, u32)> = Vec::new();
    for &address in addresses {
        let function = sysfs.function(address)?;
        let group = function.iommu_group.ok_or(VfioError::NoGroup { address })?;
        if !function.is_on_vfio() {
            return Err(VfioError::NotBound { address, driver: function.driver });
        }
        if found.iter().any(|(other, _)| other.address == address) {
            return Err(VfioError::Addresses { count: addresses.len() });
        }
        if let Some((other, _)) = found.iter().find(|(_, other)| *other == group) {
            return Err(VfioError::SharedGroup { address, other: other.address, group });
        }
        found.push((function, group));
    }
    if found.is_empty() { Err(VfioError::Addresses { count: 0 }) } else { Ok(found) }
}

/// Names the functions that keep a group from being viable.
fn not_viable(sysfs: &Sysfs, address: PciAddress, group: u32) -> VfioError {
    let members = sysfs.group(group).unwrap_or_default();
    let others = members.into_iter().filter(|member| !member.is_viable() && member.address != address);
    let named = others.map(|other| (other.address, other.driver.unwrap_or_else(|| "no driver".to_owned())));
    VfioError::NotViable { address, group, others: named.collect() }
}

fn open_file(path: PathBuf) -> Result<File, VfioError> {
    let open = |path: &Path| -> io::Result<File> { OpenOptions::new().read(true).write(true).open(path) };
    open(&path).map_err(|source| VfioError::Open { path, source })
}

#[cfg(test)]
mod tests;
