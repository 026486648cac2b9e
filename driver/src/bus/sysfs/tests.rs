//! Machines of folders and files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A machine in a folder.
struct Fake(TempDir);

impl Fake {
    fn new() -> Self {
        let fake = Self(TempDir::new().unwrap());
        fs::create_dir_all(fake.path("sys/bus/pci/devices")).unwrap();
        fake
    }

    fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(path)
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::below(self.0.path())
    }

    fn file(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// A function of this class on this driver, in this group.
    fn function(&self, address: &str, class: &str, driver: Option<&str>, group: u32) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/class"), format!("{class}\n"));
        self.file(&format!("{folder}/vendor"), "0x144d\n");
        self.file(&format!("{folder}/device"), "0xa80a\n");
        self.file(&format!("{folder}/numa_node"), "1\n");
        self.file(&format!("{folder}/driver_override"), "(null)\n");
        if let Some(driver) = driver {
            self.link(&format!("{folder}/driver"), &format!("../../../bus/pci/drivers/{driver}"));
        }
        self.link(&format!("{folder}/iommu_group"), &format!("../../../kernel/iommu_groups/{group}"));
        self.link(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), &format!("../../../{folder}"));
    }

    /// A partition or a disk with its number.
    fn block(&self, name: &str, numbers: &str) {
        self.file(&format!("sys/class/block/{name}/dev"), format!("{numbers}\n"));
        self.file(&format!("sys/class/block/{name}/size"), "2048\n");
    }
}

const NVME: &str = "0x010802";

#[test]
fn nvme_functions_by_class_with_all_that_is_known() {
    let fake = Fake::new();
    fake.function("0000:04:00.0", NVME, Some("nvme"), 7);
    fake.function("0000:03:00.0", NVME, Some("vfio-pci"), 6);
    fake.function("0000:01:00.0", "0x030000", Some("nvidia"), 5);
    fake.file("sys/bus/pci/devices/0000:03:00.0/driver_override", "vfio-pci\n");
    fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme0/nvme0n1/size", "");
    fake.block("nvme0n1", "259:0");
    let found = fake.sysfs().nvme_functions().unwrap();
    let addresses: Vec<_> = found.iter().map(|function| function.address.to_string()).collect();
    assert_eq!(addresses, ["0000:03:00.0", "0000:04:00.0"]);
    assert!(found[0].is_on_vfio() && found[0].driver_override.as_deref() == Some("vfio-pci"));
    let disk = BlockDevice { name: "nvme0n1".to_owned(), bytes: Some(2048 * 512), uses: Vec::new() };
    let expected = PciFunction {
        address: "0000:04:00.0".parse().unwrap(),
        vendor: Some(0x144d),
        device: Some(0xa80a),
        class: Some(0x010802),
        driver: Some("nvme".to_owned()),
        driver_override: None,
        iommu_group: Some(7),
        numa_node: Some(1),
        block_devices: vec![disk],
        device_files: vec![DeviceFile::block("nvme0n1".to_owned())],
    };
    assert_eq!(found[1], expected);
}

#[test]
fn a_group_with_its_other_members() {
    let fake = Fake::new();
    fake.function("0000:00:01.0", "0x060400", Some("pcieport"), 1);
    fake.function("0000:01:00.0", NVME, Some("vfio-pci"), 1);
    fake.function("0000:01:00.1", "0x020000", Some("e1000e"), 1);
    let members = fake.sysfs().group(1).unwrap();
    let viable: Vec<_> = members.iter().map(PciFunction::is_viable).collect();
    assert_eq!(viable, [true, true, false]);
    assert!(matches!(fake.sysfs().group(2), Err(SysfsError::Unreadable { .. })));
}

/// The kernel lets a bridge between PCI buses be, and whatever is with a driver of VFIO, under any of their names. It does
/// not let other bridges be, nor devices of other buses.
#[test]
fn what_keeps_a_group_from_userspace_is_named() {
    let fake = Fake::new();
    fake.function("0000:00:01.0", "0x060401", Some("some_bridge"), 1);
    fake.function("0000:00:1f.0", "0x060100", Some("lpc_ich"), 1);
    fake.function("0000:01:00.0", NVME, Some("vfio-pci"), 1);
    fake.function("0000:02:00.0", "0x068000", Some("nvidia-nvswitch"), 1);
    fake.function("0000:02:00.1", "0x068000", None, 1);
    for (number, driver) in ["mlx5_vfio_pci", "nvgrace_gpu_vfio_pci", "hisi-acc-vfio-pci"].into_iter().enumerate() {
        fake.function(&format!("0000:03:00.{number}"), "0x020000", Some(driver), 1);
    }
    let devices = "sys/kernel/iommu_groups/1/devices";
    fake.link(&format!("{devices}/ARMH0011:00/driver"), "../../../../bus/platform/drivers/sbsa-uart");
    fake.link(&format!("{devices}/LNRO0005:00/driver"), "../../../../bus/platform/drivers/vfio-platform");
    fake.file(&format!("{devices}/PNP0501:00/modalias"), "");
    let shown: Vec<_> = fake.sysfs().hindrances(1).iter().map(Hindrance::to_string).collect();
    assert_eq!(
        shown,
        ["0000:00:1f.0 is with lpc_ich", "0000:02:00.0 is with nvidia-nvswitch", "ARMH0011:00 is with sbsa-uart",]
    );
    let address = fake.sysfs().hindrances(1).into_iter().map(|hindrance| hindrance.address);
    assert_eq!(address.collect::<Vec<_>>(), ["00:1f.0", "02:00.0", ""].map(|text| text.parse().ok()));
    assert_eq!(fake.sysfs().hindrances(2), []);
}

#[test]
fn every_use_is_found_through_partitions_and_what_stands_on_them() {
    let fake = Fake::new();
    fake.function("0000:04:00.0", NVME, Some("nvme"), 7);
    fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme3/nvme3n1/size", "");
    fake.block("nvme3n1", "259:0");
    for (partition, numbers) in [("nvme3n1p1", "259:1"), ("nvme3n1p2", "259:2"), ("nvme3n1p3", "259:3")] {
        fake.block(partition, numbers);
        fake.file(&format!("sys/class/block/nvme3n1/{partition}/dev"), "");
    }
    fake.file("sys/class/block/nvme3n1p3/holders/dm-0", "");
    fake.block("dm-0", "254:0");
    fake.file("sys/class/block/dm-0/dm/name", "vg-root\n");
    // A holder that leads back to itself must not go on for ever.
    fake.file("sys/class/block/dm-0/holders/dm-0", "");
    fake.file(
        "proc/self/mountinfo",
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/mapper/vg-root rw\n\
         23 22 259:1 / /my\\040data rw - ext4 /dev/nvme3n1p1 rw\n\
         24 22 0:44 / /srv rw master:3 shared:4 - btrfs /dev/nvme3n1 rw\n\
         25 22 0:4 / /proc rw - proc proc rw\n\
         odd\n",
    );
    fake.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme3n1p2 partition 1 0 -2\n");
    let function = fake.sysfs().function("0000:04:00.0".parse().unwrap()).unwrap();
    let [disk] = &function.block_devices[..] else { panic!("{function:?}") };
    let uses: Vec<_> = disk.uses.iter().map(Use::to_string).collect();
    assert_eq!(
        uses,
        [
            "dm-0 is mounted on /",
            "nvme3n1 is mounted on /srv",
            "nvme3n1p1 is mounted on /my data",
            "nvme3n1p2 is used for swap",
            "dm-0 is held by dm-0",
            "nvme3n1p3 is held by dm-0",
        ]
    );
    assert!(disk.is_boot_disk(), "/ stands on it, by way of LVM");
}

/// A machine with one disk of two partitions, which the kernel has.
fn with_a_disk() -> Fake {
    let fake = Fake::new();
    fake.function("0000:04:00.0", NVME, Some("nvme"), 7);
    fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme0/nvme0n1/size", "");
    fake.block("nvme0n1", "259:0");
    for (partition, numbers) in [("nvme0n1p1", "259:1"), ("nvme0n1p2", "259:2")] {
        fake.block(partition, numbers);
        fake.file(&format!("sys/class/block/nvme0n1/{partition}/dev"), "");
    }
    fake
}

fn uses(fake: &Fake) -> Vec<String> {
    let function = fake.sysfs().function("0000:04:00.0".parse().unwrap()).unwrap();
    function.block_devices.iter().flat_map(|disk| &disk.uses).map(Use::to_string).collect()
}

#[test]
fn a_loop_device_holds_the_disk_below_it_with_all_that_stands_on_it() {
    let fake = with_a_disk();
    fake.file("dev/nvme0n1p2", "");
    fake.link("dev/disk/by-id/some-part2", "../../nvme0n1p2");
    for (name, numbers, backing) in [
        ("loop0", "7:0", "/dev/nvme0n1p1"),
        ("loop1", "7:1", "/srv/an image.img"),
        ("loop2", "7:2", "/dev/disk/by-id/some-part2"),
        // As another mount namespace has it.
        ("loop3", "7:3", "/machines/one/dev/nvme0n1 (deleted)"),
        ("loop4", "7:4", "/dev/nvme0n10"),
    ] {
        fake.block(name, numbers);
        fake.file(&format!("sys/class/block/{name}/loop/backing_file"), format!("{backing}\n"));
    }
    fake.block("loop0p1", "259:9");
    fake.file("sys/class/block/loop0/loop0p1/dev", "");
    fake.file("proc/self/mountinfo", "22 1 259:9 / /usr rw - ext4 /dev/loop0p1 rw\n");
    assert_eq!(
        uses(&fake),
        [
            "loop0p1 is mounted on /usr",
            "nvme0n1 is held by loop3",
            "nvme0n1p1 is held by loop0",
            "nvme0n1p2 is held by loop2",
        ]
    );
}

#[test]
fn what_the_kernels_target_shows_is_used() {
    let fake = with_a_disk();
    let target = "sys/kernel/config/nvmet/subsystems";
    fake.file(&format!("{target}/nqn.a/namespaces/1/device_path"), "/dev/nvme0n1p1\n");
    fake.file(&format!("{target}/nqn.a/namespaces/1/enable"), "1\n");
    fake.file(&format!("{target}/nqn.b/namespaces/1/device_path"), "/dev/nvme0n1\n");
    fake.file(&format!("{target}/nqn.b/namespaces/1/enable"), "0\n");
    fake.file(&format!("{target}/nqn.b/namespaces/2/device_path"), "(null)\n");
    fake.file(&format!("{target}/nqn.c/passthru/device_path"), "/dev/nvme0\n");
    fake.file(&format!("{target}/nqn.d/passthru/device_path"), "/dev/nvme1\n");
    assert_eq!(
        uses(&fake),
        [
            "nvme0 is exported by the kernel's NVMe target as nqn.c",
            "nvme0n1p1 is exported by the kernel's NVMe target as nqn.a",
        ]
    );
}

/// Nothing is looked at twice: with each of 30 standing on each other, there are more ways than could be gone.
#[test]
fn devices_that_stand_on_each_other_in_circles_come_to_an_end() {
    let fake = with_a_disk();
    fake.file("sys/class/block/nvme0n1/holders/dm-0", "");
    for below in 0..30 {
        fake.block(&format!("dm-{below}"), &format!("254:{below}"));
        for above in 0..30 {
            fake.file(&format!("sys/class/block/dm-{below}/holders/dm-{above}"), "");
        }
    }
    fake.file("proc/self/mountinfo", "22 1 254:29 / /data rw - xfs /dev/dm-29 rw\n");
    let uses = uses(&fake);
    assert_eq!((uses.len(), uses[0].as_str()), (30 * 30 + 2, "dm-29 is mounted on /data"));
}

#[test]
fn a_name_that_is_no_utf8_hides_nothing_else() {
    let fake = with_a_disk();
    let lines = b"30 22 0:50 / /media/caf\xe9 rw - tmpfs tmpfs rw\n22 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n";
    fake.file("proc/self/mountinfo", lines);
    fake.file("proc/swaps", b"Filename Type\n/swap\xff file\n/dev/nvme0n1p2 partition\n");
    assert_eq!(uses(&fake), ["nvme0n1 is mounted on /", "nvme0n1p2 is used for swap"]);
}

#[test]
fn a_namespace_with_many_paths_is_found_below_its_subsystem() {
    let fake = Fake::new();
    fake.function("0000:04:00.0", NVME, Some("nvme"), 7);
    fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme1/nvme0c1n1/size", "");
    fake.file("sys/class/nvme-subsystem/nvme-subsys0/nvme1", "");
    fake.file("sys/class/nvme-subsystem/nvme-subsys0/nvme0n1", "");
    fake.file("sys/class/nvme-subsystem/nvme-subsys9/nvme9n1", "");
    fake.block("nvme0n1", "259:5");
    fake.file("proc/self/mountinfo", "22 1 259:5 / /data rw - xfs /dev/nvme0n1 rw\n");
    let function = fake.sysfs().function("04:00.0".parse().unwrap()).unwrap();
    let [disk] = &function.block_devices[..] else { panic!("{function:?}") };
    assert_eq!(disk.name, "nvme0n1");
    assert_eq!(disk.uses, [Use::Mounted { device: "nvme0n1".to_owned(), at: "/data".to_owned() }]);
    assert!(!disk.is_boot_disk());
}

#[test]
fn odd_contents_make_fields_absent() {
    let fake = Fake::new();
    let folder = "sys/bus/pci/devices/0000:04:00.0";
    fake.file(&format!("{folder}/class"), [0xff, 0xfe, b'\n']);
    fake.file(&format!("{folder}/vendor"), "0x12345\n");
    fake.file(&format!("{folder}/device"), "-1\n");
    fake.file(&format!("{folder}/numa_node"), "-1\n");
    // A file where a link should be, a link to nothing in particular, a file where a folder should be.
    fake.file(&format!("{folder}/driver"), "nvme");
    fake.link(&format!("{folder}/iommu_group"), "/");
    fake.file(&format!("{folder}/nvme"), "");
    fake.file("sys/bus/pci/devices/not an address/class", "0x010802\n");
    let function = fake.sysfs().function("0000:04:00.0".parse().unwrap()).unwrap();
    let PciFunction { address, vendor, device, class, driver, iommu_group, numa_node, .. } = function.clone();
    assert_eq!((vendor, device, class, driver, iommu_group, numa_node), (None, None, None, None, None, None));
    assert!(!function.is_nvme() && function.block_devices.is_empty(), "{address}");
    assert_eq!(fake.sysfs().nvme_functions().unwrap(), []);
}

#[test]
fn what_is_not_there_is_named() {
    let fake = Fake::new();
    let address = "0000:05:00.0".parse().unwrap();
    let error = fake.sysfs().function(address).unwrap_err().to_string();
    assert_eq!(error, "there is no PCI function 0000:05:00.0: `tentpeg list` shows those with an NVMe controller");
    let nowhere = Sysfs::below("/nonexistent").nvme_functions().unwrap_err().to_string();
    assert!(nowhere.contains("is sysfs mounted on /sys?"), "{nowhere}");
}

#[test]
fn configuration_space_is_as_long_as_the_user_is_shown() {
    use crate::bus::AccessControl;
    let fake = Fake::new();
    let address = "0000:01:00.0".parse().unwrap();
    assert_eq!(fake.sysfs().config_space(address), None);
    let mut bytes = vec![0; 5000];
    bytes[..4].copy_from_slice(&[0x4D, 0x14, 0x0A, 0xA8]);
    let mut shown = |len: usize| {
        bytes[0x100..0x108].copy_from_slice(&[0x0D, 0, 1, 0, 0x5F, 0, 0x1D, 0]);
        fake.file("sys/bus/pci/devices/0000:01:00.0/config", &bytes[..len]);
        fake.sysfs().config_space(address).unwrap()
    };
    assert_eq!(shown(64).access_control(), AccessControl::NeedsRoot);
    assert!(matches!(shown(4096).access_control(), AccessControl::Present(_)));
    assert_eq!(shown(5000), shown(4096), "no more than there can be");
}

#[test]
fn windows_of_memory_are_those_that_have_addresses() {
    let fake = Fake::new();
    fake.function("0000:01:00.0", "0x010802", None, 1);
    let lines = "0x00000000fe000000 0x00000000fe003fff 0x0000000000140204\n\
                 0x000000000000e000 0x000000000000e0ff 0x0000000000040101\n\
                 0x0000000000000000 0x0000000000003fff 0x0000000000140204\n\
                 0x0000038000000000 0x0000039fffffffff 0x000000000014220c\n\
                 0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                 0x0000000000002000 0x0000000000001000 0x0000000000140204\n\
                 0x0000000000002000 0xffffffffffffffff 0x0000000000140204\n\
                 nothing\n";
    fake.file("sys/bus/pci/devices/0000:01:00.0/resource", lines);
    fake.function("0000:02:00.0", "0x010802", None, 2);
    assert_eq!(fake.sysfs().memory_windows(), [(0xfe00_0000, 0xfe00_4000), (0x380_0000_0000, 0x3a0_0000_0000)]);
}
