//! Block devices of the kernel's NVMe driver, and what they are used for.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::files::{DeviceFile, Identity};
use super::{Sysfs, names, read_text, text};

/// Where the machine starts from, and what it cannot do without.
const BOOT_PATHS: [&str; 4] = ["/", "/boot", "/boot/efi", "/usr"];

/// A namespace as the kernel's own driver offers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its name below `/dev`.
    pub name: String,
    /// Its capacity in bytes, where it says.
    pub bytes: Option<u64>,
    /// What it, its partitions and what is stacked on them are used for.
    pub uses: Vec<Use>,
}

impl BlockDevice {
    /// Whether the machine runs from it.
    pub fn is_boot_disk(&self) -> bool {
        self.uses.iter().any(|found| matches!(found, Use::Mounted { at, .. } if BOOT_PATHS.contains(&at.as_str())))
    }
}

/// A use of a block device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// A file system on it is mounted.
    Mounted {
        /// The disk, the partition, or what is stacked on it.
        device: String,
        /// Where.
        at: String,
    },
    /// The kernel swaps to it.
    Swap {
        /// The disk, the partition, or what is stacked on it.
        device: String,
    },
    /// Another block device stands on it: LVM, md, dm-crypt, a loop device.
    Held {
        /// The disk or the partition.
        device: String,
        /// The block device that stands on it.
        by: String,
    },
    /// The kernel's NVMe target shows it to other hosts.
    Exported {
        /// The disk, the partition, or what is stacked on it; or the controller.
        device: String,
        /// The subsystem of the target, by its NQN.
        by: String,
    },
    /// A process has it open.
    Open {
        /// The disk, the partition, or the file by which commands are passed to the namespace.
        device: String,
        /// The process.
        process: u32,
        /// What it is called.
        command: String,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { device, at } => write!(f, "{device} is mounted on {at}"),
            Self::Swap { device } => write!(f, "{device} is used for swap"),
            Self::Held { device, by } => write!(f, "{device} is held by {by}"),
            Self::Exported { device, by } => write!(f, "{device} is exported by the kernel's NVMe target as {by}"),
            Self::Open { device, process, command } => write!(f, "{device} is open in process {process} ({command})"),
        }
    }
}

/// A line of mountinfo, as far as it matters (proc_pid_mountinfo(5)).
struct Mount {
    numbers: String,
    at: String,
    source: Named,
}

/// A file as the kernel names it.
struct Named {
    path: String,
    /// Of a path below `/dev`, which may be a link. Others are not asked for: they may lie where no answer comes from.
    identity: Option<Identity>,
}

/// What the kernel says in one place of all devices.
struct Tables {
    mounts: Vec<Mount>,
    swaps: Vec<Named>,
    /// Loop devices, with what lies below them.
    loops: Vec<(String, Named)>,
    /// Subsystems of the kernel's NVMe target, with what they show.
    exports: Vec<(String, Named)>,
}

/// A device that something may stand on.
struct Device {
    name: String,
    /// What a mapper's device is called beside that.
    mapped: Option<String>,
    /// `259:1`.
    numbers: Option<String>,
    identities: Vec<Identity>,
}

impl Device {
    fn is(&self, file: &Named) -> bool {
        let name = file.path.strip_prefix("/dev/");
        name.is_some_and(|name| name == self.name || Some(name) == self.mapped.as_deref())
            || file.identity.is_some_and(|identity| self.identities.contains(&identity))
    }

    /// The same of a file that is known to be a device's where its last name is one's: in another mount namespace the
    /// rest of the path differs.
    fn is_behind(&self, file: &Named) -> bool {
        self.is(file) || file.path.rsplit('/').next() == Some(&self.name)
    }
}

impl Sysfs {
    /// What the kernel's own driver offers of the function with this folder: below its controllers, or, where paths to a
    /// namespace are many, below the subsystem that such a controller belongs to.
    fn offered(&self, function: &Path) -> BTreeSet<String> {
        let controllers = names(&function.join("nvme"));
        let mut found = BTreeSet::new();
        for controller in &controllers {
            found.extend(names(&function.join("nvme").join(controller)));
        }
        let subsystems = self.path("/sys/class/nvme-subsystem");
        for subsystem in names(&subsystems) {
            let members = names(&subsystems.join(subsystem));
            if controllers.iter().any(|controller| members.contains(controller)) {
                found.extend(members);
            }
        }
        found
    }

    /// The block devices of the function with this folder.
    pub(super) fn block_devices(&self, function: &Path) -> Vec<BlockDevice> {
        let disks: Vec<_> = self.offered(function).into_iter().filter(|name| is_namespace(name)).collect();
        if disks.is_empty() {
            return Vec::new();
        }
        let tables = self.tables();
        let controllers = names(&function.join("nvme"));
        disks.into_iter().map(|name| self.block_device(name, &controllers, &tables)).collect()
    }

    /// The files through which a process reaches namespaces of the function with this folder: of disks, of their
    /// partitions, and those for commands of any kind (`ng0n1`).
    pub(super) fn device_files(&self, function: &Path) -> Vec<DeviceFile> {
        let mut files = Vec::new();
        for name in self.offered(function) {
            if is_namespace(&name) {
                files.extend(self.partitions(&name).into_iter().map(DeviceFile::block));
                files.push(DeviceFile::block(name));
            } else if name.strip_prefix("ng").is_some_and(|rest| is_namespace(&format!("nvme{rest}"))) {
                files.push(DeviceFile::generic(name));
            }
        }
        files
    }

    fn partitions(&self, disk: &str) -> Vec<String> {
        let entries = names(&self.path("/sys/class/block").join(disk)).into_iter();
        entries.filter(|name| name.starts_with(disk) && name != disk).collect()
    }

    fn block_device(&self, name: String, controllers: &[String], tables: &Tables) -> BlockDevice {
        // The size is in units of 512 bytes, whatever the LBA format.
        let sectors = text(&self.path("/sys/class/block").join(&name).join("size"));
        let sectors = sectors.and_then(|text| text.parse::<u64>().ok());
        let mut uses = BTreeSet::new();
        for controller in controllers {
            // A target can pass commands on to a whole controller.
            let device = self.device(controller);
            let exports = tables.exports.iter().filter(|(_, file)| device.is(file));
            uses.extend(exports.map(|(by, _)| Use::Exported { device: controller.clone(), by: by.clone() }));
        }
        // Devices may stand on each other in a circle on an odd machine: none is looked at twice.
        let mut seen = BTreeSet::new();
        let mut waiting = vec![name.clone()];
        while let Some(device) = waiting.pop() {
            if seen.insert(device.clone()) {
                waiting.extend(self.partitions(&device));
                waiting.extend(self.collect_uses(&device, tables, &mut uses));
            }
        }
        BlockDevice {
            bytes: sectors.and_then(|sectors| sectors.checked_mul(512)),
            name,
            uses: uses.into_iter().collect(),
        }
    }

    fn device(&self, name: &str) -> Device {
        let folder = self.path("/sys/class/block").join(name);
        Device {
            name: name.to_owned(),
            mapped: text(&folder.join("dm/name")).map(|name| format!("mapper/{name}")),
            numbers: text(&folder.join("dev")),
            identities: DeviceFile::block(name.to_owned()).identities(self),
        }
    }

    /// Adds what a device is used for by itself; what stands on it.
    fn collect_uses(&self, name: &str, tables: &Tables, uses: &mut BTreeSet<Use>) -> Vec<String> {
        let device = self.device(name);
        for mount in &tables.mounts {
            // By number; by name too, because a file system of many devices (btrfs) has a number of its own.
            if device.numbers.as_ref() == Some(&mount.numbers) || device.is(&mount.source) {
                uses.insert(Use::Mounted { device: name.to_owned(), at: mount.at.clone() });
            }
        }
        if tables.swaps.iter().any(|swap| device.is(swap)) {
            uses.insert(Use::Swap { device: name.to_owned() });
        }
        let exports = tables.exports.iter().filter(|(_, file)| device.is_behind(file));
        uses.extend(exports.map(|(by, _)| Use::Exported { device: name.to_owned(), by: by.clone() }));
        let mut holders = names(&self.path("/sys/class/block").join(name).join("holders"));
        // The kernel does not count these among holders.
        let loops = tables.loops.iter().filter(|(_, file)| device.is_behind(file));
        holders.extend(loops.map(|(holder, _)| holder.clone()));
        uses.extend(holders.iter().map(|by| Use::Held { device: name.to_owned(), by: by.clone() }));
        holders
    }

    fn tables(&self) -> Tables {
        let (mounts, swaps) = (self.mounts(), self.swaps());
        let blocks = self.path("/sys/class/block");
        let backing = |name: String| {
            let path = text(&blocks.join(&name).join("loop/backing_file"))?;
            Some((name, self.named(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())))
        };
        let loops = names(&blocks).into_iter().filter(|name| name.starts_with("loop")).filter_map(backing).collect();
        Tables { mounts, swaps, loops, exports: self.exports() }
    }

    fn named(&self, path: String) -> Named {
        let identity = path.starts_with("/dev/").then(|| Identity::of(&self.path(&path)).ok()).flatten();
        Named { path, identity }
    }

    fn mounts(&self) -> Vec<Mount> {
        let lines = text(&self.path(MOUNTS)).unwrap_or_default();
        let read = |line: &str| {
            let mut fields = line.split(' ');
            let (numbers, at) = (fields.nth(2)?.to_owned(), unescape(fields.nth(1)?));
            // Optional fields end with a single hyphen; the file system's type and the source follow.
            let source = self.named(unescape(fields.skip_while(|field| *field != "-").nth(2)?));
            Some(Mount { numbers, at, source })
        };
        lines.lines().filter_map(read).collect()
    }

    fn swaps(&self) -> Vec<Named> {
        let lines = text(&self.path(SWAPS)).unwrap_or_default();
        let paths = lines.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        paths.map(|path| self.named(unescape(path))).collect()
    }

    /// What the kernel's NVMe target shows of this machine, but what is switched off.
    fn exports(&self) -> Vec<(String, Named)> {
        let subsystems = self.path("/sys/kernel/config/nvmet/subsystems");
        let mut found = Vec::new();
        for subsystem in names(&subsystems) {
            let folder = subsystems.join(&subsystem);
            let namespaces =
                names(&folder.join("namespaces")).into_iter().map(|name| folder.join("namespaces").join(name));
            for shown in namespaces.chain([folder.join("passthru")]) {
                let path = text(&shown.join("device_path")).filter(|path| path.starts_with('/'));
                if let Some(path) = path.filter(|_| text(&shown.join("enable")).as_deref() != Some("0")) {
                    found.push((subsystem.clone(), self.named(path)));
                }
            }
        }
        found
    }

    /// Why uses of disks may be there that cannot be seen.
    pub(super) fn unseen_tables(&self) -> Option<String> {
        let unread = |path: &str, may_miss: bool| match read_text(&self.path(path)) {
            Ok(_) => None,
            // A kernel that knows no swap has no list of it.
            Err(error) if may_miss && error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("{path} cannot be read: {error}")),
        };
        unread(MOUNTS, false).or_else(|| unread(SWAPS, true))
    }
}

/// The mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";
const SWAPS: &str = "/proc/swaps";

/// Whether a name is that of a namespace, `nvme0n1`: not that of a path to one (`nvme0c1n1`), nor of anything else
/// that stands beside it.
fn is_namespace(name: &str) -> bool {
    let numbers = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(controller, namespace)| number(controller) && number(namespace))
}

/// A path as procfs writes it: `\040` is a space, and so on.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        let value = octal.map(|digits| digits.iter().fold(0u32, |value, digit| value * 8 + u32::from(digit - b'0')));
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_namespaces() {
        for (name, is) in [("nvme0n1", true), ("nvme12n345", true), ("nvme0c1n1", false), ("nvme0", false)] {
            assert_eq!(is_namespace(name), is, "{name}");
        }
        for name in ["nvme0n1p1", "ng0n1", "hwmon0", "nvmen1", "nvme0n", "power", ""] {
            assert!(!is_namespace(name), "{name}");
        }
    }

    #[test]
    fn escapes_of_procfs() {
        assert_eq!(unescape(r"/a\040b\134c\011"), "/a b\\c\t");
        for odd in [r"\", r"\0", r"\04", r"\089", r"\777", "é\\04é"] {
            assert_eq!(unescape(odd), odd);
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (unescape(&text), is_namespace(&text));
        }
    }
}
