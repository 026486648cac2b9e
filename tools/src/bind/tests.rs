use super::*;
use crate::machine::Machine;

fn args(addresses: &[&str], dry_run: bool) -> BindArgs {
    BindArgs { addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(), dry_run }
}

#[test]
fn a_dry_run_shows_each_write_and_does_nothing() {
    let machine = Machine::with_controllers();
    let before = machine.contents();
    let shown = run(&machine.sysfs(), &args(&["03:00.0", "04:00.0"], true), true).unwrap();
    assert_eq!(
        machine.relative(&shown),
        "echo vfio-pci > /sys/bus/pci/devices/0000:03:00.0/driver_override\n\
         echo 0000:03:00.0 > /sys/bus/pci/devices/0000:03:00.0/driver/unbind\n\
         echo 0000:03:00.0 > /sys/bus/pci/drivers_probe\n\
         # 0000:03:00.0 cannot be opened yet: 0000:03:00.1 of the same IOMMU group 3 is with igb: bind or unbind it too\n\
         # 0000:04:00.0 is with vfio-pci already\n"
    );
    let shown = run(&machine.sysfs(), &args(&["04:00.0", "03:00.0"], true), false).unwrap();
    assert_eq!(
        machine.relative(&shown),
        "echo  > /sys/bus/pci/devices/0000:04:00.0/driver_override\n\
         echo 0000:04:00.0 > /sys/bus/pci/devices/0000:04:00.0/driver/unbind\n\
         echo 0000:04:00.0 > /sys/bus/pci/drivers_probe\n\
         # 0000:03:00.0 is with the kernel already\n"
    );
    assert_eq!(machine.contents(), before);
}

#[test]
fn what_is_used_is_never_taken() {
    let machine = Machine::with_controllers();
    let before = machine.contents();
    for (address, expected) in [
        (
            "01:00.0",
            "0000:01:00.0 holds the disk that this machine runs from (nvme0n1 is mounted on /boot/efi): it is never taken",
        ),
        (
            "02:00.0",
            "0000:02:00.0 is in use: nvme1n1 is held by dm-3: unmount it, switch its swap off, or stop what stands on it",
        ),
        (
            "03:00.1",
            "0000:03:00.1 is no NVMe controller (its class is 020000): `tentpeg list` shows those of this machine",
        ),
        ("05:00.0", "0000:05:00.0 is in no IOMMU group, so nothing would keep it from memory that is not its own: "),
        ("07:00.0", "there is no PCI function 0000:07:00.0"),
    ] {
        // Behind one that could be bound: nothing is done unless all can be.
        let error = run(&machine.sysfs(), &args(&["03:00.0", address], false), true).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(machine.contents(), before);
}

#[test]
fn without_vfio_nothing_is_unbound() {
    let machine = Machine::new();
    machine.function("0000:03:00.0", "0x010802", Some("nvme"), Some(3));
    let error = Plan::bind(&machine.sysfs(), "03:00.0".parse().unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "the driver vfio-pci is not loaded: load it by `modprobe vfio-pci`");
}

/// Files do not bind a driver: the kernel did not follow, the message says so, and the override is gone again.
#[test]
fn a_kernel_that_does_not_follow_is_told_and_what_was_done_is_taken_back() {
    let machine = Machine::with_controllers();
    machine.file("sys/bus/pci/drivers/nvme/unbind", "");
    let error = run(&machine.sysfs(), &args(&["03:00.0"], false), true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0000:03:00.0 should be with vfio-pci now and is with nvme: the kernel's log (`dmesg`) says why"
    );
    assert_eq!(machine.read("sys/bus/pci/drivers/nvme/unbind"), "0000:03:00.0\n");
    assert_eq!(machine.read("sys/bus/pci/devices/0000:03:00.0/driver_override"), "\n");
    assert_eq!(machine.read("sys/bus/pci/drivers_probe"), "0000:03:00.0\n");
}

#[test]
fn a_write_that_fails_is_named_with_its_file() {
    let machine = Machine::with_controllers();
    let error = run(&machine.sysfs(), &args(&["03:00.0"], false), true).unwrap_err().to_string();
    assert_eq!(
        machine.relative(&error),
        "cannot write \"0000:03:00.0\" to /sys/bus/pci/devices/0000:03:00.0/driver/unbind: No such file or directory (os error 2)"
    );
    assert_eq!(machine.read("sys/bus/pci/devices/0000:03:00.0/driver_override"), "\n", "taken back");
}
