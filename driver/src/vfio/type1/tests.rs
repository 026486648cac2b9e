//! What is refused before VFIO is asked.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A machine with functions on these drivers, each in this group, and no VFIO.
fn machine(functions: &[(&str, Option<&str>, Option<u32>)]) -> TempDir {
    let root = TempDir::new().unwrap();
    for (address, driver, group) in functions {
        let folder = root.path().join("sys/bus/pci/devices").join(address);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("class"), "0x010802\n").unwrap();
        if let Some(driver) = driver {
            symlink(format!("../drivers/{driver}"), folder.join("driver")).unwrap();
        }
        if let Some(group) = group {
            symlink(format!("../iommu_groups/{group}"), folder.join("iommu_group")).unwrap();
            let members = root.path().join(format!("sys/kernel/iommu_groups/{group}/devices"));
            fs::create_dir_all(&members).unwrap();
            fs::write(members.join(address), "").unwrap();
        }
    }
    root
}

fn refused(root: &TempDir, addresses: &[&str]) -> String {
    let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    match open(&Sysfs::below(root.path()), &addresses) {
        Ok(devices) => panic!("{} devices were opened", devices.len()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_refusal_says_what_would_help() {
    let root = machine(&[
        ("0000:01:00.0", Some("nvme"), Some(1)),
        ("0000:02:00.0", None, Some(2)),
        ("0000:03:00.0", Some("vfio-pci"), None),
        ("0000:04:00.0", Some("vfio-pci"), Some(4)),
        ("0000:04:00.1", Some("vfio-pci"), Some(4)),
    ]);
    for (addresses, expected) in [
        (&["01:00.0"][..], "0000:01:00.0 is bound to the driver nvme: give it to VFIO by `tentpeg bind 0000:01:00.0`"),
        (&["02:00.0"], "0000:02:00.0 is bound to no driver: give it to VFIO by `tentpeg bind 0000:02:00.0`"),
        (&["03:00.0"], "0000:03:00.0 is in no IOMMU group: switch the IOMMU on in the firmware"),
        (&["04:00.0", "04:00.1"], "0000:04:00.1 and 0000:04:00.0 are both in IOMMU group 4"),
        (&["04:00.0", "04:00.0"], "name each function to be opened once, and at least one: 2 were named"),
        (&[], "name each function to be opened once, and at least one: 0 were named"),
        (&["05:00.0"], "there is no PCI function 0000:05:00.0"),
        (&["04:00.0"], "No such file or directory (os error 2): load the modules vfio-pci and vfio_iommu_type1"),
    ] {
        let error = refused(&root, addresses);
        assert!(error.contains(expected), "{addresses:?}: {error}");
    }
}

#[test]
fn a_group_that_is_not_viable_is_told_with_its_other_members() {
    let root = machine(&[
        ("0000:04:00.0", Some("vfio-pci"), Some(4)),
        ("0000:04:00.1", Some("xhci_hcd"), Some(4)),
        ("0000:04:00.2", None, Some(4)),
    ]);
    let error = not_viable(&Sysfs::below(root.path()), "04:00.0".parse().unwrap(), 4);
    let VfioError::NotViable { others, .. } = error else { panic!("{error}") };
    assert_eq!(others, [("0000:04:00.1".parse().unwrap(), "xhci_hcd".to_owned())]);
}
