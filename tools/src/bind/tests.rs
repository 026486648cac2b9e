use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::machine::Machine;

/// A kernel that follows: what is written to a machine's sysfs has drivers take functions and leave them.
#[derive(Default)]
struct Kernel {
    /// A function that this driver does not take.
    spurns: Option<(&'static str, &'static str)>,
    /// A write to a file whose path ends so is refused, with an error of the operating system.
    refuses: Option<(&'static str, i32)>,
    /// No driver takes anything.
    is_idle: bool,
}

impl Kernel {
    fn write(&self, machine: &Machine, path: &Path, text: &str) -> io::Result<()> {
        if let Some((end, errno)) = self.refuses.filter(|(end, _)| path.ends_with(end)) {
            assert!(!end.is_empty());
            return Err(io::Error::from_raw_os_error(errno));
        }
        if path.ends_with("driver/unbind") {
            return fs::remove_file(path.parent().unwrap());
        }
        if path.ends_with("drivers_probe") {
            let folder = machine.sysfs().path(&format!("/sys/bus/pci/devices/{text}"));
            let only = fs::read_to_string(folder.join("driver_override"))?;
            let driver = Some(only.trim()).filter(|only| !["", "(null)"].contains(only)).unwrap_or("nvme");
            if !folder.join("driver").exists() && self.spurns != Some((text, driver)) && !self.is_idle {
                symlink(format!("../../drivers/{driver}"), folder.join("driver"))?;
            }
            return Ok(());
        }
        fs::write(path, format!("{text}\n"))
    }

    /// `tentpeg bind` or `unbind` with it.
    fn run(&self, machine: &Machine, addresses: &[&str], to_vfio: bool) -> Result<String, BindError> {
        let mut write = |path: &Path, text: &str| self.write(machine, path, text);
        run_by(&machine.sysfs(), &args(addresses, false), to_vfio, &mut write)
    }
}

/// With three controllers that nobody uses: one the kernel has, one nobody, one whose override is somebody's.
fn with_free_ones() -> Machine {
    let machine = Machine::with_controllers();
    fs::create_dir_all(machine.sysfs().path("/sys/bus/pci/drivers/nvme")).unwrap();
    machine.function("0000:08:00.0", "0x010802", None, Some(8));
    machine.function("0000:09:00.0", "0x010802", None, Some(9));
    machine.file("sys/bus/pci/devices/0000:09:00.0/driver_override", "my_driver\n");
    machine
}

/// The driver and the override of a function.
fn place(machine: &Machine, address: &str) -> (Option<String>, String) {
    let function = machine.sysfs().function(address.parse().unwrap()).unwrap();
    let only = machine.read(&format!("sys/bus/pci/devices/0000:{address}/driver_override"));
    (function.driver, only.trim().to_owned())
}

fn at(driver: &str, only: &str) -> (Option<String>, String) {
    (Some(driver.to_owned()).filter(|driver| !driver.is_empty()), only.to_owned())
}

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
    machine.function("0000:08:00.0", "0x010802", Some("uio_pci_generic"), Some(8));
    machine.function("0000:0a:00.0", "0x010802", Some("nvme"), Some(10));
    machine.disk("0000:0a:00.0", "nvme9", "nvme9n1", "259:9");
    machine.file("sys/bus/pci/devices/0000:0a:00.0/nvme/nvme9/ng9n1/dev", "");
    machine.file("dev/ng9n1", "");
    machine.process(20, "qemu-system-x86", &["/dev/null", "/dev/nvme9n1"]);
    machine.process(30, "a database", &["/dev/ng9n1"]);
    let before = machine.contents();
    for (address, expected) in [
        (
            "01:00.0",
            "0000:01:00.0 holds the disk that this machine runs from (nvme0n1 is mounted on /boot/efi): it is never taken",
        ),
        (
            "02:00.0",
            "0000:02:00.0 is in use: nvme1n1 is held by dm-3: unmount it, switch its swap off, or end what stands on it or has it open",
        ),
        (
            "03:00.1",
            "0000:03:00.1 is no NVMe controller (its class is 020000): `tentpeg list` shows those of this machine",
        ),
        (
            "08:00.0",
            "0000:08:00.0 is with the driver uio_pci_generic, which is neither the kernel's own nor one of VFIO's: end what drives it through that, then `echo 0000:08:00.0 > /sys/bus/pci/drivers/uio_pci_generic/unbind`",
        ),
        (
            "0a:00.0",
            "0000:0a:00.0 is in use: nvme9n1 is open in process 20 (qemu-system-x86), ng9n1 is open in process 30 (a database): ",
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

/// The look needs the files of the disk, the tables of mounts and swap, and all processes.
#[test]
fn a_controller_whose_use_cannot_be_seen_is_not_taken() {
    type Hide = fn(&Machine);
    let hidden: [(Hide, &str, &str); 5] = [
        (
            |m| fs::remove_file(m.sysfs().path("/dev/nvme2n1")).unwrap(),
            "/dev/nvme2n1",
            "it cannot be opened: No such file or directory (os error 2)",
        ),
        (
            |m| {
                fs::remove_file(m.sysfs().path("/dev/nvme2n1")).unwrap();
                symlink("/dev/null", m.sysfs().path("/dev/nvme2n1")).unwrap();
            },
            "/dev/nvme2n1",
            "it cannot be opened: it is another device, or none",
        ),
        (
            |m| fs::remove_file(m.sysfs().path("/proc/self/mountinfo")).unwrap(),
            "/dev/nvme2n1",
            "/proc/self/mountinfo cannot be read: No such file or directory (os error 2)",
        ),
        (
            |m| fs::create_dir_all(m.sysfs().path("/proc/swaps")).unwrap(),
            "/dev/nvme2n1",
            "/proc/swaps cannot be read: Is a directory (os error 21)",
        ),
        (|m| m.file("proc/20/fd", ""), "/dev/nvme2n1", "/proc/20/fd cannot be read: Not a directory (os error 20)"),
    ];
    for (hide, what, reason) in hidden {
        let machine = Machine::with_controllers();
        let plan = |address: &str| Plan::bind(&machine.sysfs(), address.parse().unwrap());
        assert!(plan("03:00.0").is_ok());
        hide(&machine);
        assert_eq!(
            plan("03:00.0").unwrap_err().to_string(),
            format!("cannot see whether {what} is in use: {reason}: run as root on the host, with its /dev and /proc")
        );
        // Of one that the kernel offers nothing of there is nothing to see.
        assert!(plan("04:00.0").is_ok());
    }
    let machine = Machine::with_controllers();
    fs::remove_file(machine.sysfs().path("/dev/nvme2n1")).unwrap();
    machine.file("sys/class/block/nvme2n1/hidden", "1\n");
    assert!(Plan::bind(&machine.sysfs(), "03:00.0".parse().unwrap()).is_ok(), "nobody can open what the kernel hides");
}

#[test]
fn controllers_go_to_vfio_and_back() {
    let machine = with_free_ones();
    let kernel = Kernel::default();
    kernel.run(&machine, &["03:00.0", "08:00.0", "09:00.0"], true).unwrap();
    for address in ["03:00.0", "08:00.0", "09:00.0"] {
        assert_eq!(place(&machine, address), at("vfio-pci", "vfio-pci"));
    }
    for group in [3, 8, 9] {
        machine.file(&format!("dev/vfio/{group}"), "");
    }
    kernel.run(&machine, &["03:00.0", "08:00.0", "09:00.0"], false).unwrap();
    for address in ["03:00.0", "08:00.0", "09:00.0"] {
        assert_eq!(place(&machine, address), at("nvme", ""));
    }
}

#[test]
fn a_controller_that_vfio_does_not_take_is_where_it_was() {
    let spurned = [
        ("03:00.0", "0000:03:00.0", at("nvme", "")),
        ("08:00.0", "0000:08:00.0", at("", "")),
        ("09:00.0", "0000:09:00.0", at("", "my_driver")),
    ];
    for (address, full, before) in spurned {
        let machine = with_free_ones();
        let kernel = Kernel { spurns: Some((full, "vfio-pci")), ..Kernel::default() };
        let error = kernel.run(&machine, &[address], true).unwrap_err().to_string();
        let expected = "should be with vfio-pci now and is with no driver: the kernel's log (`dmesg`) says why";
        assert_eq!(error, format!("{full} {expected}"));
        assert_eq!(place(&machine, address), before);
    }
}

#[test]
fn one_that_fails_takes_those_before_it_back_or_says_where_they_are() {
    let kernel = Kernel { spurns: Some(("0000:09:00.0", "vfio-pci")), ..Kernel::default() };
    let machine = with_free_ones();
    machine.file("dev/vfio/3", "");
    machine.file("dev/vfio/8", "");
    let error = kernel.run(&machine, &["03:00.0", "08:00.0", "09:00.0"], true).unwrap_err().to_string();
    assert!(error.starts_with("0000:09:00.0 should be with vfio-pci") && error.ends_with("says why"), "{error}");
    assert_eq!(place(&machine, "03:00.0"), at("nvme", ""));
    assert_eq!(place(&machine, "08:00.0"), at("", ""));
    assert_eq!(place(&machine, "09:00.0"), at("", "my_driver"));
    // It cannot be seen whether somebody drives the first by now.
    let machine = with_free_ones();
    let error = kernel.run(&machine, &["03:00.0", "09:00.0"], true).unwrap_err().to_string();
    let left = "; 0000:03:00.0 is with vfio-pci now: `tentpeg unbind 0000:03:00.0` gives it to the kernel";
    assert!(error.starts_with("0000:09:00.0 should be with vfio-pci") && error.ends_with(left), "{error}");
    assert_eq!(place(&machine, "03:00.0"), at("vfio-pci", ""));
}

#[test]
fn a_controller_that_neither_takes_is_told() {
    let machine = with_free_ones();
    let error = Kernel { is_idle: true, ..Kernel::default() }.run(&machine, &["03:00.0"], true).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0000:03:00.0 should be with vfio-pci now and is with no driver: the kernel's log (`dmesg`) says why; \
         0000:03:00.0 is with no driver now: `tentpeg unbind 0000:03:00.0` gives it to the kernel"
    );
}

#[test]
fn one_without_a_driver_is_given_to_the_kernels_own() {
    let machine = with_free_ones();
    let shown = run(&machine.sysfs(), &args(&["09:00.0"], true), false).unwrap();
    assert_eq!(
        machine.relative(&shown),
        "echo  > /sys/bus/pci/devices/0000:09:00.0/driver_override\n\
         echo 0000:09:00.0 > /sys/bus/pci/drivers_probe\n"
    );
    let error = Kernel { is_idle: true, ..Kernel::default() }.run(&machine, &["09:00.0"], false).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0000:09:00.0 is with no driver now, as the kernel's own did not take it: load that by `modprobe nvme`, then \
         `tentpeg unbind 0000:09:00.0`; if it is loaded, the kernel's log (`dmesg`) says why"
    );
    Kernel::default().run(&machine, &["09:00.0"], false).unwrap();
    assert_eq!(place(&machine, "09:00.0"), at("nvme", ""));
}

/// Its disk may be in use: it must not be unbound for the sake of an override that did nothing yet.
#[test]
fn one_that_the_kernel_has_stays_there_and_loses_the_override_for_vfio() {
    let machine = Machine::with_controllers();
    machine.file("sys/bus/pci/devices/0000:01:00.0/driver_override", "vfio-pci\n");
    let shown = run(&machine.sysfs(), &args(&["01:00.0"], true), false).unwrap();
    assert_eq!(machine.relative(&shown), "echo  > /sys/bus/pci/devices/0000:01:00.0/driver_override\n");
    machine.file("sys/bus/pci/devices/0000:01:00.0/driver_override", "nvme\n");
    let shown = run(&machine.sysfs(), &args(&["01:00.0"], true), false).unwrap();
    assert_eq!(shown, "# 0000:01:00.0 is with the kernel already\n");
}

#[test]
fn what_another_driver_has_is_not_with_the_kernel() {
    let machine = Machine::with_controllers();
    machine.function("0000:08:00.0", "0x010802", Some("uio_pci_generic"), Some(8));
    machine.file("sys/bus/pci/devices/0000:08:00.0/driver_override", "vfio-pci\n");
    let error = Plan::unbind(&machine.sysfs(), "08:00.0".parse().unwrap()).unwrap_err();
    assert!(matches!(&error, BindError::OtherDriver { driver, .. } if driver == "uio_pci_generic"), "{error}");
}

#[test]
fn one_that_a_variant_of_vfio_has_is_with_vfio() {
    let machine = Machine::with_controllers();
    machine.function("0000:08:00.0", "0x010802", Some("some_vfio_pci"), Some(8));
    machine.file("dev/vfio/8", "");
    let shown = run(&machine.sysfs(), &args(&["08:00.0"], true), true).unwrap();
    assert_eq!(shown, "# 0000:08:00.0 is with some_vfio_pci already\n");
    let plan = Plan::unbind(&machine.sysfs(), "08:00.0".parse().unwrap()).unwrap();
    assert_eq!(plan.to_string().lines().count(), 3, "{plan}");
}

/// Not every kernel has files of groups; then the function's own is what a process has open.
#[test]
fn what_a_process_drives_is_not_unbound_whichever_files_the_kernel_has() {
    let machine = Machine::with_controllers();
    let unbind = || Plan::unbind(&machine.sysfs(), "04:00.0".parse().unwrap()).map(drop).map_err(|e| e.to_string());
    assert_eq!(unbind(), Ok(()));
    fs::remove_file(machine.sysfs().path("/dev/vfio/4")).unwrap();
    let advice = "run as root on the host, with its /dev and /proc";
    let missing = "No such file or directory (os error 2)";
    let told = format!("cannot see whether 0000:04:00.0 is in use: /dev/vfio/4 cannot be opened: {missing}: {advice}");
    assert_eq!(unbind(), Err(told));
    // The kernel has a group's file, which is not here.
    machine.file("sys/class/vfio/4/dev", "1:3\n");
    assert_eq!(unbind(), Ok(()));
    symlink("/dev/null", machine.sysfs().path("/dev/elsewhere")).unwrap();
    machine.process(10, "tentpeg", &["/dev/elsewhere"]);
    let driven = "0000:04:00.0 is driven by another process (vfio/4 is open in process 10 (tentpeg)): end that first";
    assert_eq!(unbind(), Err(driven.to_owned()));
    fs::remove_dir_all(machine.sysfs().path("/proc/10")).unwrap();
    // The kernel has none.
    fs::remove_dir_all(machine.sysfs().path("/sys/class/vfio")).unwrap();
    machine.file("sys/bus/pci/devices/0000:04:00.0/vfio-dev/vfio0/dev", "");
    machine.file("dev/vfio/devices/vfio0", "");
    assert_eq!(unbind(), Ok(()));
    machine.process(20, "qemu-system-x86", &["/dev/vfio/devices/vfio0"]);
    let driven = "0000:04:00.0 is driven by another process (vfio/devices/vfio0 is open in process 20 (qemu-system-x86)): end that first";
    assert_eq!(unbind(), Err(driven.to_owned()));
    // A file of the group that can be opened tells nothing of a process that only has the other.
    machine.file("dev/vfio/4", "");
    assert_eq!(unbind(), Err(driven.to_owned()));
    fs::remove_file(machine.sysfs().path("/dev/vfio/4")).unwrap();
    fs::remove_dir_all(machine.sysfs().path("/proc/20")).unwrap();
    machine.file("proc/30/fd", "");
    let reason = "/proc/30/fd cannot be read: Not a directory (os error 20)";
    let told = format!("cannot see whether /dev/vfio/devices/vfio0 is in use: {reason}: {advice}");
    assert_eq!(unbind(), Err(told));
}

#[test]
fn a_write_that_is_refused_says_what_would_help() {
    for (errno, remedy) in [
        (libc::EACCES, ": run as root"),
        (
            libc::EROFS,
            ": sysfs is mounted read-only, as in a container: run on the host, or in a container that may write it (`--privileged`)",
        ),
        (libc::EIO, "(os error 5)"),
    ] {
        let machine = with_free_ones();
        let kernel = Kernel { refuses: Some(("driver_override", errno)), ..Kernel::default() };
        let error = kernel.run(&machine, &["03:00.0"], true).unwrap_err().to_string();
        assert!(error.starts_with("cannot write \"vfio-pci\" to ") && error.ends_with(remedy), "{error}");
        assert_eq!(place(&machine, "03:00.0"), at("nvme", "(null)"));
    }
}
