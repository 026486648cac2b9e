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

fn refused(root: &TempDir, addresses: &[&str], way: Way) -> String {
    let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    match open(&Sysfs::below(root.path()), &addresses, Some(way)) {
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
        let error = refused(&root, addresses, Way::Type1);
        assert!(error.contains(expected), "{addresses:?}: {error}");
    }
    // One group is no hindrance here.
    let error = refused(&root, &["04:00.0", "04:00.1"], Way::Iommufd);
    assert!(error.contains("/dev/iommu: No such file or directory (os error 2): load the module iommufd"), "{error}");
}

#[test]
fn iommufd_is_taken_where_there_is_nothing_else_and_each_function_has_its_file() {
    let root = machine(&[("0000:04:00.0", Some("vfio-pci"), Some(4)), ("0000:05:00.0", Some("vfio-pci"), Some(5))]);
    let sysfs = Sysfs::below(root.path());
    let addresses: [PciAddress; 2] = ["04:00.0", "05:00.0"].map(|address| address.parse().unwrap());
    let add = |path: &str| {
        fs::create_dir_all(root.path().join(path).parent().unwrap()).unwrap();
        fs::write(root.path().join(path), "").unwrap();
    };
    assert_eq!(probe(&sysfs, &addresses), Way::Type1, "which says then what is missing");
    add("dev/iommu");
    add("dev/vfio/devices/vfio0");
    add("sys/bus/pci/devices/0000:04:00.0/vfio-dev/vfio0/dev");
    assert_eq!(probe(&sysfs, &addresses), Way::Type1, "one has no file");
    add("sys/bus/pci/devices/0000:05:00.0/vfio-dev/vfio1/dev");
    assert_eq!(probe(&sysfs, &addresses), Way::Iommufd);
    add("dev/vfio/vfio");
    assert_eq!(probe(&sysfs, &addresses), Way::Iommufd, "the file without what is behind it");
    add("sys/module/vfio_iommu_type1/parameters/dma_entry_limit");
    assert_eq!(probe(&sysfs, &addresses), Way::Type1, "it maps more");
}

#[test]
fn a_function_without_a_device_file_is_told() {
    let root = machine(&[("0000:04:00.0", Some("vfio-pci"), Some(4))]);
    assert_eq!(cdev::device_file(&Sysfs::below(root.path()), "04:00.0".parse().unwrap()), None);
    let folder = root.path().join("sys/bus/pci/devices/0000:04:00.0/vfio-dev");
    fs::create_dir_all(folder.join("vfio7")).unwrap();
    fs::create_dir_all(folder.join("power")).unwrap();
    let device_file = || cdev::device_file(&Sysfs::below(root.path()), "04:00.0".parse().unwrap());
    assert_eq!(device_file(), None, "a kernel without such files has that folder, too");
    fs::write(folder.join("vfio7/dev"), "511:7\n").unwrap();
    let file = device_file();
    assert_eq!(file.as_deref(), Some("/dev/vfio/devices/vfio7"));
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
    let others: Vec<_> = others.iter().map(|other| (&*other.name, &*other.driver)).collect();
    assert_eq!(others, [("0000:04:00.1", "xhci_hcd")]);
}

/// Sysfs need not show what the kernel goes by, and members of a group need not be on the PCI bus.
#[test]
fn a_group_that_is_not_viable_is_never_told_by_an_empty_list() {
    let root = machine(&[("0000:04:00.0", Some("vfio-pci"), Some(4)), ("0000:04:00.1", Some("xhci_hcd"), Some(5))]);
    let told = |group| not_viable(&Sysfs::below(root.path()), "04:00.0".parse().unwrap(), group).to_string();
    assert!(
        told(4).contains("and it does not say which: end who has the group, or unbind what stands in"),
        "{}",
        told(4)
    );
    assert!(told(5).contains("0000:04:00.1 (xhci_hcd)"), "{}", told(5));
    let other = root.path().join("sys/kernel/iommu_groups/5/devices/ARMH0011:00");
    fs::create_dir_all(&other).unwrap();
    symlink("../../../../bus/platform/drivers/sbsa-uart", other.join("driver")).unwrap();
    assert!(told(5).contains("uses: 0000:04:00.1 (xhci_hcd), ARMH0011:00 (sbsa-uart): bind them"), "{}", told(5));
}

#[test]
fn no_iova_is_an_address_of_the_bus() {
    let root = machine(&[("0000:01:00.0", Some("vfio-pci"), Some(1))]);
    let resource = root.path().join("sys/bus/pci/devices/0000:01:00.0/resource");
    fs::write(resource, "0x20200 0x2ffff 0x200\n0x80000 0x80000 0x200\n0x0 0xfff 0x200\n").unwrap();
    let range = |start, len| IovaRange::new(Iova::new(start).unwrap(), len).unwrap();
    let info = IommuInfo { page_size: 4096, apertures: vec![range(0x1_0000, 0x10_0000)], mappings_left: None };
    let space = Arc::new(ContainerSpace::new(tempfile::tempfile().unwrap(), &info, 1));
    let dma = space_of(&Sysfs::below(root.path()), &space, &info);
    assert_eq!(dma.free_iovas(), 0x10_0000 - 0x1_0000 - 0x1000);
    let taken: Vec<_> = std::iter::from_fn(|| dma.reserve(0x1_0000).ok()).collect();
    assert!(taken.iter().all(|taken| !taken.range().overlaps(range(0x2_0000, 0x1_0000))));
    assert!(taken.iter().all(|taken| !taken.range().overlaps(range(0x8_0000, 0x1000))) && taken.len() > 10);
}

proptest::proptest! {
    #[test]
    fn whole_pages_hold_the_window(first in 1u64..1 << 50, len in 1u64..1 << 40, shift in 12u32..17) {
        let page = 1 << shift;
        let range = whole_pages(first, first + len, page);
        if let Some(range) = range {
            proptest::prop_assert!(range.start().get().is_multiple_of(page) && range.end().is_multiple_of(page));
            proptest::prop_assert!(range.start().get() <= first.max(page) && first + len <= range.end());
        } else {
            proptest::prop_assert!(first + len <= page, "only what lies before the first page has none");
        }
    }
}
