//! Opening functions: what can be known without VFIO, and by which way of the kernel.
//!
//! All functions of an engine are opened together: they share one address space, so that a region has one IOVA, and what
//! addresses that is made of is known only when the last of them has joined.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::capability::IommuInfo;
use super::space::{Container, ContainerSpace};
use super::{VfioDevice, VfioError, cdev, type1};
use crate::bus::{PciAddress, PciFunction, Sysfs};
use crate::dma::{DmaSpace, Iova, IovaAllocator, IovaRange};

/// The ways on which the kernel gives functions away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Groups in a container with the IOMMU driver of type 1. It maps what this process can touch, memory of other
    /// devices included.
    Type1,
    /// A device file of each function, and an address space of iommufd (Linux 6.6). It maps memory, and files of memory;
    /// of other devices' memory only what the kernel exports as a dma-buf of a kind that it knows (Linux 6.19).
    Iommufd,
}

impl Way {
    /// How it is written where a program reads it: in a URI, on a command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Type1 => "type1",
            Self::Iommufd => "iommufd",
        }
    }

    /// The way of that [`word`](Self::word).
    pub fn of_word(word: &str) -> Option<Self> {
        [Self::Type1, Self::Iommufd].into_iter().find(|way| way.word() == word)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type1 => "type 1",
            Self::Iommufd => "iommufd",
        })
    }
}

/// A function that is to be opened, and its IOMMU group.
pub(super) struct Candidate {
    pub(super) function: PciFunction,
    pub(super) group: u32,
}

/// Opens functions that are bound to `vfio-pci`, in the order of `addresses`, and puts them into one address space: by
/// `way`, or by [`probe`]d one.
///
/// Nothing of a device is touched but what VFIO does when it is opened: it is reset, its memory is enabled and bus
/// mastering is off.
///
/// # Errors
/// [`VfioError`], which says what would help; nothing stays open then.
pub fn open(sysfs: &Sysfs, addresses: &[PciAddress], way: Option<Way>) -> Result<Vec<VfioDevice>, VfioError> {
    let candidates = candidates(sysfs, addresses)?;
    match way.unwrap_or_else(|| probe(sysfs, addresses)) {
        Way::Type1 => type1::open(sysfs, &candidates),
        Way::Iommufd => cdev::open(sysfs, &candidates),
    }
}

/// The way by which these functions would be opened: type 1 where the machine has it, for it maps more; iommufd where
/// it has that alone, with a device file of each.
pub fn probe(sysfs: &Sysfs, addresses: &[PciAddress]) -> Way {
    let has_files = || addresses.iter().all(|address| cdev::device_file(sysfs, *address).is_some());
    match ways(sysfs)[..] {
        [Way::Iommufd] if has_files() => Way::Iommufd,
        _ => Way::Type1,
    }
}

/// The ways that the machine has, whatever its functions are bound to: their modules are loaded and their files are there.
pub fn ways(sysfs: &Sysfs) -> Vec<Way> {
    let has = |path: &str| sysfs.path(path).exists();
    let there = |way: &Way| match way {
        Way::Type1 => has("/sys/module/vfio_iommu_type1") && has(type1::CONTAINER),
        Way::Iommufd => has(cdev::IOMMUFD) && has(cdev::FOLDER),
    };
    [Way::Type1, Way::Iommufd].into_iter().filter(there).collect()
}

/// The files that are opened when a function is opened by `way`: one for all, and the function's own, where it can be
/// told. Their paths are those of a running machine, whatever `sysfs` is.
pub fn files(sysfs: &Sysfs, function: &PciFunction, way: Way) -> Vec<String> {
    match way {
        Way::Type1 => {
            let group = function.iommu_group.map(|group| format!("/dev/vfio/{group}"));
            [Some(type1::CONTAINER.to_owned()), group].into_iter().flatten().collect()
        }
        Way::Iommufd => {
            let device = cdev::device_file(sysfs, function.address);
            [Some(cdev::IOMMUFD.to_owned()), device].into_iter().flatten().collect()
        }
    }
}

/// What was asked for, each with its group, after all that can be known without VFIO.
fn candidates(sysfs: &Sysfs, addresses: &[PciAddress]) -> Result<Vec<Candidate>, VfioError> {
    let mut found: Vec<Candidate> = Vec::new();
    for &address in addresses {
        let function = sysfs.function(address)?;
        let group = function.iommu_group.ok_or(VfioError::NoGroup { address })?;
        if !function.is_on_vfio() {
            return Err(VfioError::NotBound { address, driver: function.driver });
        }
        if found.iter().any(|other| other.function.address == address) {
            return Err(VfioError::Addresses { count: addresses.len() });
        }
        found.push(Candidate { function, group });
    }
    if found.is_empty() { Err(VfioError::Addresses { count: 0 }) } else { Ok(found) }
}

/// Names what keeps a group from being viable.
pub(super) fn not_viable(sysfs: &Sysfs, address: PciAddress, group: u32) -> VfioError {
    let others = sysfs.hindrances(group).into_iter().filter(|other| other.address != Some(address)).collect();
    VfioError::NotViable { address, group, others }
}

pub(super) fn open_file(path: PathBuf) -> Result<File, VfioError> {
    let open = |path: &Path| -> io::Result<File> { OpenOptions::new().read(true).write(true).open(path) };
    open(&path).map_err(|source| VfioError::Open { path, source })
}

/// The space of regions over an address space of the kernel. No IOVA of it is an address of the bus at which a function
/// answers: where no port redirects requests (ACS), a switch delivers what has such an address to that function, whatever
/// the IOMMU would make of it.
pub(super) fn space_of<C: Container + 'static>(
    sysfs: &Sysfs,
    space: &Arc<ContainerSpace<C>>,
    info: &IommuInfo,
) -> Arc<DmaSpace> {
    let windows = sysfs.memory_windows().into_iter().filter_map(|(first, end)| whole_pages(first, end, info.page_size));
    DmaSpace::new(Arc::clone(space) as _, IovaAllocator::new(&info.apertures, &windows.collect::<Vec<_>>()))
}

/// The pages of `page` bytes that a window lies on.
fn whole_pages(first: u64, end: u64, page: u64) -> Option<IovaRange> {
    let first = first / page * page;
    let end = end.div_ceil(page).checked_mul(page)?;
    IovaRange::new(Iova::new(first.max(page))?, end.checked_sub(first.max(page))?)
}

#[cfg(test)]
mod tests;
