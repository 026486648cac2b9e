//! Machines of folders and files, for tests of what reads sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tentpeg_driver::bus::Sysfs;

/// A machine in a folder of its own.
pub(crate) struct Machine(TempDir);

impl Machine {
    /// A machine on whose bus nothing is.
    pub(crate) fn new() -> Self {
        let machine = Self(TempDir::new().unwrap());
        fs::create_dir_all(machine.path("sys/bus/pci/devices")).unwrap();
        machine
    }

    /// A machine with a controller in each state: the boot disk, one that LVM stands on, one that is free (beside a
    /// network card), one with VFIO, one without an IOMMU, one with VFIO beside a device that is not.
    pub(crate) fn with_controllers() -> Self {
        let machine = Self::new();
        machine.function("0000:01:00.0", "0x010802", Some("nvme"), Some(1));
        machine.disk("0000:01:00.0", "nvme0", "nvme0n1", "259:0");
        machine.function("0000:02:00.0", "0x010802", Some("nvme"), Some(2));
        machine.disk("0000:02:00.0", "nvme1", "nvme1n1", "259:1");
        machine.file("sys/class/block/nvme1n1/holders/dm-3", "");
        machine.function("0000:03:00.0", "0x010802", Some("nvme"), Some(3));
        machine.disk("0000:03:00.0", "nvme2", "nvme2n1", "259:2");
        machine.function("0000:03:00.1", "0x020000", Some("igb"), Some(3));
        machine.function("0000:04:00.0", "0x010802", Some("vfio-pci"), Some(4));
        machine.function("0000:05:00.0", "0x010802", Some("nvme"), None);
        machine.function("0000:06:00.0", "0x010802", Some("vfio-pci"), Some(6));
        machine.function("0000:06:00.1", "0x040300", Some("snd_hda_intel"), Some(6));
        machine.file("proc/self/mountinfo", "22 1 259:0 / /boot/efi rw - vfat /dev/nvme0n1 rw\n");
        machine.file("sys/bus/pci/drivers/vfio-pci/bind", "");
        machine.file("sys/bus/pci/drivers_probe", "");
        for group in [4, 6] {
            machine.file(&format!("dev/vfio/{group}"), "");
        }
        machine.process(1, "init", &[]);
        machine
    }

    /// A machine with a GPU where a stand-in says that it is: below a switch that redirects nothing, in one group with a
    /// controller there; another controller is below a root port of its own, which redirects, as does the GPU's.
    pub(crate) fn with_gpu_below_a_switch() -> Self {
        const ON: Option<[u8; 2]> = Some([0x1F, 0x1D]);
        let machine = Self::new();
        machine.bridge("pci0000:00", "0000:00:01.0", 4, ON);
        machine.bridge("pci0000:00/0000:00:01.0", "0000:01:00.0", 5, None);
        let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
        machine.bridge(switch, "0000:02:00.0", 6, Some([0x1F, 0]));
        machine.bridge(switch, "0000:02:01.0", 6, Some([0x1F, 0]));
        machine.place(&format!("{switch}/0000:02:00.0"), "0000:00:00.0", "0x030200", Some(7));
        machine.place(&format!("{switch}/0000:02:01.0"), "0000:04:00.0", "0x010802", Some(7));
        machine.bridge("pci0000:00", "0000:00:02.0", 4, ON);
        machine.place("pci0000:00/0000:00:02.0", "0000:05:00.0", "0x010802", Some(8));
        machine.file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "65535\n");
        machine.file("dev/vfio/vfio", "");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::below(self.0.path())
    }

    pub(crate) fn file(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn link(&self, path: String, to: String) {
        let path = self.path(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    /// A function of this class, on this driver, in this group.
    pub(crate) fn function(&self, address: &str, class: &str, driver: Option<&str>, group: Option<u32>) {
        let folder = format!("sys/bus/pci/devices/{address}");
        for (name, contents) in [("class", class), ("vendor", "0x144d"), ("device", "0xa80a"), ("numa_node", "0")] {
            self.file(&format!("{folder}/{name}"), format!("{contents}\n"));
        }
        self.file(&format!("{folder}/driver_override"), "(null)\n");
        if let Some(driver) = driver {
            fs::create_dir_all(self.path(&format!("sys/bus/pci/drivers/{driver}"))).unwrap();
            self.link(format!("{folder}/driver"), format!("../../drivers/{driver}"));
        }
        if let Some(group) = group {
            self.link(format!("{folder}/iommu_group"), format!("../../../../kernel/iommu_groups/{group}"));
            self.file(&format!("sys/kernel/iommu_groups/{group}/devices/{address}"), "");
        }
    }

    /// A function of this class at its place on the bus, by the folders above it: `pci0000:00/0000:00:01.0`.
    pub(crate) fn place(&self, folders: &str, address: &str, class: &str, group: Option<u32>) {
        let folder = format!("sys/devices/{folders}/{address}");
        self.file(&format!("{folder}/class"), format!("{class}\n"));
        self.file(&format!("{folder}/numa_node"), "0\n");
        if let Some(group) = group {
            self.link(format!("{folder}/iommu_group"), format!("../../../kernel/iommu_groups/{group}"));
        }
        let to = format!("../../../devices/{folders}/{address}");
        self.link(format!("sys/bus/pci/devices/{address}"), to);
    }

    /// A bridge at its place on the bus: of this type of PCI Express, and with these two registers of Access Control Services.
    pub(crate) fn bridge(&self, folders: &str, address: &str, port_type: u8, acs: Option<[u8; 2]>) {
        self.place(folders, address, "0x060400", None);
        let mut config = vec![0; 4096];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[0x86, 0x80]);
        // There is a list of capabilities, and PCI Express is its only one.
        put(6, &[0x10]);
        put(0x34, &[0x40]);
        put(0x40, &[0x10, 0, 2 | port_type << 4]);
        if let Some([capable, enabled]) = acs {
            put(0x100, &[0x0D, 0, 1, 0, capable, 0, enabled, 0]);
        }
        self.file(&format!("sys/devices/{folders}/{address}/config"), config);
    }

    /// A namespace of 1 GiB of the controller of a function, with its number as a block device.
    pub(crate) fn disk(&self, address: &str, controller: &str, name: &str, numbers: &str) {
        self.file(&format!("sys/bus/pci/devices/{address}/nvme/{controller}/{name}/size"), "");
        self.file(&format!("sys/class/block/{name}/dev"), format!("{numbers}\n"));
        self.file(&format!("sys/class/block/{name}/size"), "2097152\n");
        self.file(&format!("dev/{name}"), "");
    }

    /// A process that has files of this machine open, which need not be there yet.
    pub(crate) fn process(&self, number: u32, command: &str, open: &[&str]) {
        self.file(&format!("proc/{number}/comm"), format!("{command}\n"));
        fs::create_dir_all(self.path(&format!("proc/{number}/fd"))).unwrap();
        for (descriptor, path) in open.iter().enumerate() {
            self.link(format!("proc/{number}/fd/{descriptor}"), format!("../../..{path}"));
        }
    }

    /// A text with this machine's paths as they would be on a real one.
    pub(crate) fn relative(&self, text: &str) -> String {
        text.replace(self.0.path().to_str().unwrap(), "")
    }

    /// Every file with its contents.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, String> {
        fn collect(folder: &Path, found: &mut BTreeMap<PathBuf, String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    collect(&entry.path(), found);
                } else if kind.is_file() {
                    found.insert(entry.path(), fs::read_to_string(entry.path()).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        collect(self.0.path(), &mut found);
        found
    }
}
