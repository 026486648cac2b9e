//! Looking whether somebody uses a controller, before it is moved.
//!
//! What cannot be seen counts as used: who is wrong about that loses data.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use tentpeg_driver::bus::{PciFunction, Sysfs, Use};

use super::BindError;

/// Refuses a function whose disks somebody uses, or of which that cannot be seen. One that the kernel offers no disk of
/// needs no look.
pub(super) fn refuse_used(sysfs: &Sysfs, function: &PciFunction) -> Result<(), BindError> {
    let address = function.address;
    let openers = sysfs.openers(&function.device_files);
    let uses = openers.uses_of(function).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if function.block_devices.iter().any(|disk| disk.is_boot_disk()) {
        return Err(BindError::BootDisk { address, uses });
    }
    if !uses.is_empty() {
        return Err(BindError::InUse { address, uses });
    }
    if let Some(reason) = openers.unseen() {
        let what: Vec<_> = function.device_files.iter().map(|file| file.path()).collect();
        return Err(BindError::Unseen { what: what.join(", "), reason: reason.to_owned() });
    }
    // What the kernel claims without a trace in files (a pool of ZFS) it does not let others claim.
    let (mut claimed, mut unseen) = (Vec::new(), None);
    for disk in &function.block_devices {
        match claim(sysfs, function, &disk.name) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => claimed.push(disk.name.as_str()),
            Err(error) => {
                let what = format!("/dev/{}", disk.name);
                unseen.get_or_insert(BindError::Unseen { what, reason: format!("it cannot be opened: {error}") });
            }
        }
    }
    if !claimed.is_empty() {
        return Err(BindError::InUse { address, uses: format!("{} is opened exclusively", claimed.join(", ")) });
    }
    unseen.map_or(Ok(()), Err)
}

/// Claims a disk for a moment.
fn claim(sysfs: &Sysfs, function: &PciFunction, name: &str) -> io::Result<()> {
    // The kernel hides disks that it cannot read: nobody can open them.
    let hidden = std::fs::read_to_string(sysfs.path(&format!("/sys/class/block/{name}/hidden")));
    if hidden.is_ok_and(|text| text.trim() == "1") {
        return Ok(());
    }
    OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(sysfs.path(&format!("/dev/{name}")))?;
    let is_there = function.device_files.iter().any(|file| file.name == name && file.is_there(sysfs));
    if is_there { Ok(()) } else { Err(io::Error::other("it is another device, or none")) }
}

/// Refuses to take a function from VFIO that a process drives, or of which that cannot be seen: the kernel would wait for
/// that process, and we with it.
pub(super) fn refuse_driven(sysfs: &Sysfs, function: &PciFunction) -> Result<(), BindError> {
    let address = function.address;
    let files = sysfs.vfio_files(function);
    let openers = sysfs.openers(&files);
    let by: Vec<_> = openers.of(&files).map(Use::to_string).collect();
    if !by.is_empty() {
        return Err(BindError::Driven { address, by: by.join(", ") });
    }
    let group = function.iommu_group.map(|group| format!("/dev/vfio/{group}"));
    let path = group.unwrap_or_else(|| format!("the group of {address}"));
    let error = match OpenOptions::new().read(true).write(true).open(sysfs.path(&path)) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EBUSY) => Err(BindError::Driven { address, by: format!("{path} is open") }),
        // A kernel need not have files of groups, nor a container those that the kernel has: then processes tell.
        Some(libc::ENOENT) if !files.is_empty() => openers.unseen().map_or(Ok(()), |reason| {
            let what: Vec<_> = files.iter().map(|file| file.path()).collect();
            Err(BindError::Unseen { what: what.join(", "), reason: reason.to_owned() })
        }),
        _ => Err(BindError::Unseen { what: address.to_string(), reason: format!("{path} cannot be opened: {error}") }),
    }
}
