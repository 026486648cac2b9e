//! Processes of folders and links.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A machine with one disk of one partition, and a first process that has nothing open.
struct Fake(TempDir);

impl Fake {
    fn new() -> Self {
        let fake = Self(TempDir::new().unwrap());
        fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme0/nvme0n1/size", "");
        fake.file("sys/bus/pci/devices/0000:04:00.0/nvme/nvme0/ng0n1/dev", "");
        fake.file("sys/class/block/nvme0n1/nvme0n1p1/dev", "");
        // Any character device that is on each machine.
        fake.file("sys/class/nvme-generic/ng0n1/dev", "1:3\n");
        for name in ["nvme0n1", "nvme0n1p1", "nvme1n1"] {
            fake.file(&format!("dev/{name}"), "");
        }
        fake.file("proc/self/mountinfo", "");
        fake.process(1, "init", &[]);
        fake
    }

    fn file(&self, path: &str, contents: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }

    /// A process with these files open: of this machine, or, where they are there, of the one that the test runs on.
    fn process(&self, number: u32, command: &str, open: &[&str]) {
        self.file(&format!("proc/{number}/comm"), &format!("{command}\n"));
        let folder = self.0.path().join(format!("proc/{number}/fd"));
        fs::create_dir_all(&folder).unwrap();
        for (descriptor, path) in open.iter().enumerate() {
            let here = self.0.path().join(path.trim_start_matches('/'));
            let to = if here.exists() { here } else { path.into() };
            symlink(to, folder.join(descriptor.to_string())).unwrap();
        }
    }

    fn sysfs(&self) -> Sysfs {
        Sysfs::below(self.0.path())
    }

    /// Who has files of the controller open, and what was not seen.
    fn openers(&self) -> (Vec<String>, Option<String>) {
        let function = self.sysfs().function("04:00.0".parse().unwrap()).unwrap();
        let openers = self.sysfs().openers(&function.device_files);
        let uses = openers.of(&function.device_files).map(ToString::to_string).collect();
        (uses, openers.unseen().map(str::to_owned))
    }
}

#[test]
fn who_has_a_disk_a_partition_or_its_file_for_commands_open_is_named() {
    let fake = Fake::new();
    assert_eq!(fake.openers(), (vec![], None));
    fake.process(20, "qemu-system-x86", &["/dev/tty-that-is-gone", "/dev/nvme0n1", "/dev/nvme0n1"]);
    fake.process(30, "a database", &["/dev/nvme0n1p1", "/dev/null"]);
    fake.process(40, "another's", &["/dev/nvme1n1", "/dev/zero"]);
    // It is ending: its descriptors are gone.
    fake.file("proc/50/comm", "ends\n");
    fake.file("proc/version", "");
    let (mut uses, unseen) = fake.openers();
    uses.sort();
    assert_eq!(
        (uses, unseen),
        (
            [
                "ng0n1 is open in process 30 (a database)",
                "nvme0n1 is open in process 20 (qemu-system-x86)",
                "nvme0n1p1 is open in process 30 (a database)",
            ]
            .map(str::to_owned)
            .to_vec(),
            None
        )
    );
    let none = fake.sysfs().openers(&[]);
    assert_eq!(none, Openers::default(), "nothing was looked for");
}

/// A test opens a file and is not named; nor is whoever asks.
#[test]
fn the_process_that_asks_is_not_named() {
    let fake = Fake::new();
    fake.process(20, "tentpeg", &["/dev/nvme0n1"]);
    fs::remove_dir_all(fake.0.path().join("proc/self")).unwrap();
    fake.file("proc/20/mountinfo", "");
    assert_eq!(fake.openers().0.len(), 1);
    symlink("20", fake.0.path().join("proc/self")).unwrap();
    assert_eq!(fake.openers(), (vec![], None));
}

#[test]
fn what_cannot_be_seen_is_told() {
    let unseen = |change: fn(&Fake)| {
        let fake = Fake::new();
        change(&fake);
        fake.openers().1
    };
    let told = |text: &str| Some(text.to_owned());
    assert_eq!(
        unseen(|fake| fs::remove_file(fake.0.path().join("proc/self/mountinfo")).unwrap()),
        told("/proc/self/mountinfo cannot be read: No such file or directory (os error 2)")
    );
    assert_eq!(
        unseen(|fake| fs::create_dir_all(fake.0.path().join("proc/swaps")).unwrap()),
        told("/proc/swaps cannot be read: Is a directory (os error 21)")
    );
    assert_eq!(
        unseen(|fake| fake.file("proc/7/fd", "")),
        told("/proc/7/fd cannot be read: Not a directory (os error 20)")
    );
    assert_eq!(
        unseen(|fake| fs::remove_dir_all(fake.0.path().join("proc/1")).unwrap()),
        told("/proc does not show all processes")
    );
    let in_namespace = |fake: &Fake, name: &str| {
        fs::create_dir_all(fake.0.path().join("proc/self/ns")).unwrap();
        symlink(name, fake.0.path().join("proc/self/ns/pid")).unwrap();
        fake.openers().1
    };
    assert_eq!(in_namespace(&Fake::new(), FIRST_PID_NAMESPACE), None);
    assert_eq!(in_namespace(&Fake::new(), "pid:[4026532000]"), told("processes outside this container are hidden"));
}

#[test]
fn files_of_vfio_are_known_by_their_numbers_wherever_they_are() {
    let fake = Fake::new();
    let names = || {
        let function = fake.sysfs().function("04:00.0".parse().unwrap()).unwrap();
        let files = fake.sysfs().vfio_files(&function);
        let openers = fake.sysfs().openers(&files);
        let uses: Vec<_> = openers.of(&files).map(ToString::to_string).collect();
        (files.into_iter().map(|file| file.name).collect::<Vec<_>>(), uses)
    };
    let none: [String; 0] = [];
    assert_eq!(names(), (none.to_vec(), none.to_vec()));
    let folder = fake.0.path().join("sys/bus/pci/devices/0000:04:00.0");
    symlink("../../../../kernel/iommu_groups/9", folder.join("iommu_group")).unwrap();
    // A kernel that has no files of functions shows this folder, too.
    fs::create_dir_all(folder.join("vfio-dev/vfio3")).unwrap();
    assert_eq!(names(), (none.to_vec(), none.to_vec()));
    fake.file("sys/class/vfio/9/dev", "1:3\n");
    assert_eq!(names(), (vec!["vfio/9".to_owned()], none.to_vec()));
    fake.file("sys/bus/pci/devices/0000:04:00.0/vfio-dev/vfio3/dev", "1:5\n");
    fake.process(20, "qemu-system-x86", &["/dev/null"]);
    fake.process(30, "tentpeg", &["/dev/zero"]);
    let (files, mut uses) = names();
    uses.sort();
    assert_eq!(files, ["vfio/9", "vfio/devices/vfio3"]);
    let expected =
        ["vfio/9 is open in process 20 (qemu-system-x86)", "vfio/devices/vfio3 is open in process 30 (tentpeg)"];
    assert_eq!(uses, expected);
}

/// The machine that the test runs on: whatever it is, this is not the place where something fails.
#[test]
fn a_device_of_this_machine_has_its_number() {
    let null = Identity::of(Path::new("/dev/null")).unwrap();
    assert_eq!(null, Identity::Device { is_block: false, numbers: (1, 3) });
    assert_ne!(null, Identity::of(Path::new("/dev/zero")).unwrap());
    assert!(Identity::of(Path::new("/dev/there is none")).is_err());
}
