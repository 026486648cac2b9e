//! Device files, and the processes that have them open.
//!
//! The kernel says of a disk who claimed it, and of nothing else who uses it: QEMU and databases on raw disks open them as
//! they open files. So every process is asked what it has open. Only root on the host sees all of them; what was not seen
//! is told ([`Openers::unseen`]), for who must not take silence for an answer.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

use super::{PciAddress, PciFunction, Sysfs, Use, names, text};

/// The name of the first namespace of processes, which no other has (`PROC_PID_INIT_INO`, include/uapi/linux/nsfs.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// A file below `/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFile {
    /// Its name there.
    pub name: String,
    /// Where sysfs has its number.
    numbers: String,
    is_block: bool,
}

impl DeviceFile {
    pub(super) fn block(name: String) -> Self {
        Self { numbers: format!("/sys/class/block/{name}/dev"), name, is_block: true }
    }

    pub(super) fn generic(name: String) -> Self {
        Self { numbers: format!("/sys/class/nvme-generic/{name}/dev"), name, is_block: false }
    }

    /// What this file is known by: by its number, whatever it is called in whichever `/dev`. In a machine of files, which has
    /// no devices, by its place.
    pub(super) fn identities(&self, sysfs: &Sysfs) -> Vec<Identity> {
        let numbers = text(&sysfs.path(&self.numbers));
        let numbers = numbers.as_deref().and_then(|text| text.split_once(':'));
        let numbers = numbers.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let by_number = numbers.map(|numbers| Identity::Device { is_block: self.is_block, numbers });
        let place =
            self.found(sysfs).ok().filter(|place| matches!(place, Identity::Other { .. }) && !sysfs.is_system());
        by_number.into_iter().chain(place).collect()
    }

    /// Whether the file that has its name is that device, and not another of the name.
    pub fn is_there(&self, sysfs: &Sysfs) -> bool {
        self.found(sysfs).is_ok_and(|found| self.identities(sysfs).contains(&found))
    }

    /// Its path on a running machine.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    fn found(&self, sysfs: &Sysfs) -> io::Result<Identity> {
        Identity::of(&sysfs.path(&self.path()))
    }
}

/// What tells a file from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Identity {
    /// A device has a kind and a number: major, minor.
    Device { is_block: bool, numbers: (u32, u32) },
    /// Any other file has a file system and a number in it.
    Other { device: (u32, u32), inode: u64 },
}

impl Identity {
    /// Of the file that a path leads to. No file system is made to ask its server, which may not answer.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let found = statx(CWD, path, flags, StatxFlags::TYPE | StatxFlags::INO)?;
        let is_block = match FileType::from_raw_mode(found.stx_mode.into()) {
            FileType::BlockDevice => true,
            FileType::CharacterDevice => false,
            _ => {
                return Ok(Self::Other { device: (found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino });
            }
        };
        Ok(Self::Device { is_block, numbers: (found.stx_rdev_major, found.stx_rdev_minor) })
    }
}

/// Who has device files open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Openers {
    /// Each file with each process, once: [`Use::Open`].
    uses: Vec<Use>,
    /// Why not all of it was seen.
    unseen: Option<String>,
}

impl Openers {
    /// Who has one of these files open.
    pub fn of(&self, files: &[DeviceFile]) -> impl Iterator<Item = &Use> {
        self.uses
            .iter()
            .filter(|found| matches!(found, Use::Open { device, .. } if files.iter().any(|file| file.name == *device)))
    }

    /// What a function is used for: its disks, by what the kernel says of them, and its files by who has them open.
    pub fn uses_of<'a>(&'a self, function: &'a PciFunction) -> impl Iterator<Item = &'a Use> {
        function.block_devices.iter().flat_map(|disk| &disk.uses).chain(self.of(&function.device_files))
    }

    /// Why there may be more of them, and more uses of disks at all, than this process can see; `None` where it sees
    /// everything.
    pub fn unseen(&self) -> Option<&str> {
        self.unseen.as_deref()
    }
}

impl Sysfs {
    /// Which other processes have `files` open. All are looked at once, however many files there are, and none where there
    /// are none.
    pub fn openers<'a>(&self, files: impl IntoIterator<Item = &'a DeviceFile>) -> Openers {
        let wanted: Vec<_> = files.into_iter().map(|file| (file, file.identities(self))).collect();
        if wanted.is_empty() {
            return Openers::default();
        }
        let (mut uses, mut unseen) = (Vec::new(), self.unseen_tables().or_else(|| self.unseen_processes()));
        let folder = self.path("/proc");
        // Of a machine of files, and where procfs is not of this process, there is no such link.
        let own = fs::read_link(folder.join("self")).ok();
        for name in names(&folder) {
            let Ok(process) = name.parse::<u32>() else { continue };
            if own.as_deref() == Some(Path::new(&name)) {
                continue;
            }
            match identities(&folder.join(&name).join("fd")) {
                Ok(open) => {
                    let found = wanted.iter().filter(|(_, known)| known.iter().any(|one| open.contains(one)));
                    uses.extend(found.map(|(file, _)| {
                        let command = text(&folder.join(&name).join("comm")).unwrap_or_default();
                        Use::Open { device: file.name.clone(), process, command }
                    }));
                }
                Err(error) => {
                    unseen.get_or_insert_with(|| format!("/proc/{name}/fd cannot be read: {error}"));
                }
            }
        }
        Openers { uses, unseen }
    }

    /// The files by which processes drive a function that VFIO has: its group's, and its own, as far as the kernel has them.
    /// They need not be in this `/dev`.
    pub fn vfio_files(&self, function: &PciFunction) -> Vec<DeviceFile> {
        let file = |name: String, numbers: String| DeviceFile { name, numbers, is_block: false };
        // Without an IOMMU a group's name says so.
        let group = function.iommu_group.iter().flat_map(|group| [group.to_string(), format!("noiommu-{group}")]);
        let groups = group.map(|name| file(format!("vfio/{name}"), format!("/sys/class/vfio/{name}/dev")));
        // What has no number has no file.
        let groups = groups.filter(|file| self.path(&file.numbers).exists());
        let folder = vfio_folder(function.address);
        let own = self.vfio_devices(function.address).into_iter();
        groups.chain(own.map(|name| file(format!("vfio/devices/{name}"), format!("{folder}/{name}/dev")))).collect()
    }

    /// The names of a function's own files below `/dev/vfio/devices`. A kernel that makes no such files has the folder all the
    /// same, without the files' numbers in it.
    pub(crate) fn vfio_devices(&self, address: PciAddress) -> Vec<String> {
        let folder = self.path(&vfio_folder(address));
        names(&folder).into_iter().filter(|name| folder.join(name).join("dev").exists()).collect()
    }

    /// Why there may be processes that are not below `/proc`.
    fn unseen_processes(&self) -> Option<String> {
        // Without namespaces of processes in the kernel there is no link.
        let namespace = fs::read_link(self.path("/proc/self/ns/pid")).ok();
        if namespace.is_some_and(|namespace| namespace != Path::new(FIRST_PID_NAMESPACE)) {
            return Some("processes outside this container are hidden".to_owned());
        }
        // The first process is always there, and hidden where others are (hidepid=, proc(5)).
        (!self.path("/proc/1").exists()).then(|| "/proc does not show all processes".to_owned())
    }
}

/// Where sysfs has what VFIO has made of a function.
fn vfio_folder(address: PciAddress) -> String {
    format!("/sys/bus/pci/devices/{address}/vfio-dev")
}

/// What a process has open, devices or not. Nothing of one that has ended meanwhile.
fn identities(folder: &Path) -> io::Result<Vec<Identity>> {
    let has_ended =
        |error: &io::Error| error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH);
    let entries = match fs::read_dir(folder) {
        Err(error) if has_ended(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let identity = match entry {
            Ok(entry) => Identity::of(&entry.path()),
            Err(error) => Err(error),
        };
        match identity {
            Ok(identity) => found.push(identity),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(error),
            // It has been closed, or its file system has no answer, as none does that a device is on.
            Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
