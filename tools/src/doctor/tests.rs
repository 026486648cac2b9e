use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::machine::Machine;

/// A machine on which all is well, asked by an ordinary user.
fn healthy() -> Machine {
    let machine = Machine::new();
    machine.file("proc/sys/kernel/osrelease", "6.12.5+deb12-amd64\n");
    machine.file(
        "proc/self/status",
        "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t27\n",
    );
    machine.file(
        "proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         unlimited            unlimited            bytes\n",
    );
    machine.file("sys/class/iommu/dmar0", "");
    machine.file("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "N\n");
    machine.file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "65535\n");
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "500\n");
    machine.file("dev/vfio/vfio", "");
    machine.file("dev/vfio/4", "");
    open_to_all(&machine, &["/dev/vfio/vfio", "/dev/vfio/4"]);
    machine.function("0000:04:00.0", "0x010802", Some("vfio-pci"), Some(4));
    machine
}

fn open_to_all(machine: &Machine, paths: &[&str]) {
    for path in paths {
        fs::set_permissions(machine.sysfs().path(path), Permissions::from_mode(0o666)).unwrap();
    }
}

/// Less type 1, and with iommufd in its place.
fn with_iommufd_alone() -> Machine {
    let machine = healthy();
    fs::remove_dir_all(machine.sysfs().path("/sys/module/vfio_iommu_type1")).unwrap();
    fs::remove_dir_all(machine.sysfs().path("/dev/vfio")).unwrap();
    machine.file("sys/module/iommufd/parameters/allow_unsafe_interrupts", "N\n");
    machine.file("dev/iommu", "");
    machine.file("dev/vfio/devices/vfio0", "");
    machine.file("sys/bus/pci/devices/0000:04:00.0/vfio-dev/vfio0/dev", "");
    open_to_all(&machine, &["/dev/iommu", "/dev/vfio/devices/vfio0"]);
    machine
}

fn shown(machine: &Machine) -> (String, Level) {
    run(&machine.sysfs(), &DoctorArgs { json: false })
}

#[test]
fn a_machine_that_is_well() {
    let (text, level) = shown(&healthy());
    assert_eq!(
        text,
        "\
good  kernel         Linux 6.12.5+deb12-amd64
good  IOMMU          1 groups
good  VFIO           vfio-pci with type 1
good  mappings       at most 65535 pieces of memory
good  locked memory  without limit
good  hugepages      500 of 512 of 2 MiB are free
good  0000:04:00.0   ready
"
    );
    assert_eq!(level, Level::Good);
}

#[test]
fn a_machine_with_nothing() {
    let (text, level) = shown(&Machine::new());
    assert_eq!(
        text,
        "\
BAD      kernel         its release cannot be read: mount /proc
BAD      IOMMU          none is switched on: switch it on in the firmware (VT-d, AMD-Vi, SMMU) and, with an Intel processor, start the kernel with intel_iommu=on
BAD      VFIO           the driver vfio-pci is not loaded: load it by `modprobe vfio-pci`
BAD      locked memory  the limit cannot be read: mount /proc
warning  hugepages      this kernel has none of 2 MiB: ordinary pages are used
warning  drives         no NVMe controller on the PCI bus: without one there is the controller in software: `tentpeg replay` runs on it
"
    );
    assert_eq!(level, Level::Bad);
}

#[test]
fn a_machine_with_iommufd_alone() {
    let machine = with_iommufd_alone();
    let line = |name: &str| {
        let (text, _) = shown(&machine);
        text.lines().find(|line| line.contains(name)).map(str::to_owned).unwrap_or_default()
    };
    assert_eq!(line("VFIO"), "good  VFIO           vfio-pci with iommufd");
    assert_eq!(line("0000:04:00.0"), "good  0000:04:00.0   ready");
    for path in ["/dev/iommu", "/dev/vfio/devices/vfio0"] {
        fs::set_permissions(machine.sysfs().path(path), Permissions::from_mode(0o660)).unwrap();
        let expected = format!("this user may not open {path}: `chown 1000 {path}`, or run as root");
        assert!(line("0000:04:00.0").ends_with(&expected), "{}", line("0000:04:00.0"));
        open_to_all(&machine, &[path]);
    }
    machine.file("sys/module/iommufd/parameters/allow_unsafe_interrupts", "Y\n");
    assert!(line("interrupts").contains("forge interrupts"));
    // Both.
    machine.file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "65535\n");
    machine.file("dev/vfio/vfio", "");
    assert!(line("VFIO").ends_with("vfio-pci with type 1 and iommufd"));
}

/// One thing at a time is wrong: its line, and no other, changes.
#[test]
fn each_fault_has_its_line_and_its_remedy() {
    type Break = fn(&Machine);
    let faults: [(Break, &str); 12] = [
        (
            |m| m.file("proc/sys/kernel/osrelease", "5.10.0-30-amd64"),
            "warning  kernel         Linux 5.10.0-30-amd64: with Linux 5.14 or newer hugepages can be used",
        ),
        (
            |m| m.file("proc/sys/kernel/osrelease", "4.19.0"),
            "BAD   kernel         Linux 4.19.0: Linux 5.4 or newer says which addresses a device can use",
        ),
        (
            |m| fs::remove_dir_all(m.sysfs().path("/sys/module/vfio_iommu_type1")).unwrap(),
            "BAD   VFIO           the module vfio_iommu_type1 is not loaded: load it by `modprobe vfio_iommu_type1`",
        ),
        (
            |m| fs::remove_file(m.sysfs().path("/dev/vfio/vfio")).unwrap(),
            "BAD   VFIO           there is no /dev/vfio/vfio: in a container, pass it in (`--device /dev/vfio`)",
        ),
        (
            |m| m.file("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n"),
            "warning  interrupts     the kernel lets devices forge interrupts (allow_unsafe_interrupts): switch interrupt remapping on in the firmware and the option off",
        ),
        (
            |m| m.file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "100\n"),
            "warning  mappings       at most 100 pieces of memory: raise dma_entry_limit of the module vfio_iommu_type1 (65535 is usual)",
        ),
        (
            |m| {
                m.file(
                    "proc/self/limits",
                    "Max locked memory         65536                65536                bytes\n",
                )
            },
            "BAD   locked memory  devices can reach 64.0 KiB of this user's memory at the most: raise it by `ulimit -l`, by LimitMEMLOCK= of a service, or in /etc/security/limits.conf",
        ),
        (
            |m| {
                m.file(
                    "proc/self/limits",
                    "Max locked memory         0                    0                    bytes\n",
                )
            },
            "BAD   locked memory  devices can reach 0 B of this user's memory at the most: raise it by `ulimit -l`, by LimitMEMLOCK= of a service, or in /etc/security/limits.conf",
        ),
        (
            |m| m.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
            "warning  hugepages      none: ordinary pages are used; `sysctl vm.nr_hugepages=1024` sets 2 GiB aside",
        ),
        (
            |m| m.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n"),
            "warning  hugepages      0 of 512 of 2 MiB are free: raise vm.nr_hugepages, or end who holds them",
        ),
        (
            |m| fs::set_permissions(m.sysfs().path("/dev/vfio/4"), Permissions::from_mode(0o600)).unwrap(),
            "BAD   0000:04:00.0   this user may not open /dev/vfio/4: `chown 1000 /dev/vfio/4`, or run as root",
        ),
        (
            |m| m.function("0000:04:00.1", "0x020000", Some("igb"), Some(4)),
            "BAD   0000:04:00.0   its IOMMU group is not viable: 0000:04:00.1 is with igb: bind or unbind the other devices, or move it to a slot with a group of its own",
        ),
    ];
    let well = shown(&healthy()).0;
    for (fault, expected) in faults {
        let machine = healthy();
        fault(&machine);
        let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let before: Vec<_> = well.lines().map(squeeze).collect();
        let (text, level) = shown(&machine);
        let changed: Vec<_> = text.lines().map(squeeze).filter(|line| !before.contains(line)).collect();
        assert_eq!(changed, [squeeze(expected)]);
        assert_ne!(level, Level::Good);
    }
}

#[test]
fn drives_in_every_state() {
    let machine = Machine::with_controllers();
    machine.file("proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
    machine.function("0000:08:00.0", "0x010802", Some("uio_pci_generic"), Some(8));
    machine.function("0000:09:00.0", "0x010802", None, Some(9));
    machine.process(20, "qemu-system-x86", &["/dev/nvme9n1"]);
    machine.function("0000:0a:00.0", "0x010802", Some("nvme"), Some(10));
    machine.disk("0000:0a:00.0", "nvme9", "nvme9n1", "259:9");
    let (text, _) = shown(&machine);
    let drives: Vec<_> = text.lines().filter(|line| line.contains("0000:")).collect();
    assert_eq!(
        drives,
        [
            "good     0000:01:00.0   left to the kernel, this machine runs from it: nvme0n1 is mounted on /boot/efi",
            "good     0000:02:00.0   left to the kernel, in use: nvme1n1 is held by dm-3",
            "warning  0000:03:00.0   with the kernel, and free: give it to VFIO by `tentpeg bind 0000:03:00.0`",
            "good     0000:04:00.0   ready",
            "BAD      0000:05:00.0   no IOMMU group: see IOMMU",
            "BAD      0000:06:00.0   its IOMMU group is not viable: 0000:06:00.1 is with snd_hda_intel: bind or unbind the other devices, or move it to a slot with a group of its own",
            "warning  0000:08:00.0   with uio_pci_generic, which is neither the kernel's own driver nor VFIO's: end what drives it through that, then `echo 0000:08:00.0 > /sys/bus/pci/drivers/uio_pci_generic/unbind`",
            "warning  0000:09:00.0   with no driver, and free: give it to VFIO by `tentpeg bind 0000:09:00.0`",
            "good     0000:0a:00.0   left to the kernel, in use: nvme9n1 is open in process 20 (qemu-system-x86)",
        ]
    );
    assert!(text.contains("without limit (CAP_IPC_LOCK)"), "{text}");
}

#[test]
fn json_has_level_and_remedy() {
    let machine = healthy();
    machine.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    let (text, level) = run(&machine.sysfs(), &DoctorArgs { json: true });
    let findings: serde_json::Value = serde_json::from_str(&text).unwrap();
    let hugepages = findings.as_array().unwrap().iter().find(|finding| finding["check"] == "hugepages").unwrap();
    assert_eq!((hugepages["level"].as_str(), hugepages["found"].as_str()), (Some("warning"), Some("none")));
    assert!(hugepages["remedy"].as_str().unwrap().contains("vm.nr_hugepages"));
    assert_eq!(findings[0].get("remedy"), None);
    assert_eq!(level, Level::Warning);
}
