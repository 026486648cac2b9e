//! Block devices of the kernel's NVMe driver, and what they are used for.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use super::{Sysfs, names, text};

/// How deep block devices may be stacked on each other: a cycle, which only an odd machine has, ends there.
const DEEPEST: usize = 16;

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
    /// Another block device stands on it: LVM, md, dm-crypt.
    Held {
        /// The disk or the partition.
        device: String,
        /// The block device that stands on it.
        by: String,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mounted { device, at } => write!(f, "{device} is mounted on {at}"),
            Self::Swap { device } => write!(f, "{device} is used for swap"),
            Self::Held { device, by } => write!(f, "{device} is held by {by}"),
        }
    }
}

/// A line of mountinfo, as far as it matters (proc_pid_mountinfo(5)).
struct Mount {
    numbers: String,
    at: String,
    source: String,
}

impl Sysfs {
    /// The block devices of the function with this folder: below its controllers, or, where paths to a namespace are
    /// many, below the subsystem that such a controller belongs to.
    pub(super) fn block_devices(&self, function: &Path) -> Vec<BlockDevice> {
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
        let mounts = self.mounts();
        let swaps = self.swaps();
        let disks = found.into_iter().filter(|name| is_namespace(name));
        disks.map(|name| self.block_device(name, &mounts, &swaps)).collect()
    }

    fn block_device(&self, name: String, mounts: &[Mount], swaps: &[String]) -> BlockDevice {
        let folder = self.path("/sys/class/block").join(&name);
        // The size is in units of 512 bytes, whatever the LBA format.
        let sectors = text(&folder.join("size")).and_then(|text| text.parse::<u64>().ok());
        let mut uses = BTreeSet::new();
        let partitions = names(&folder).into_iter().filter(|partition| partition.starts_with(&name));
        for device in partitions.chain([name.clone()]) {
            self.collect_uses(&device, mounts, swaps, DEEPEST, &mut uses);
        }
        BlockDevice {
            bytes: sectors.and_then(|sectors| sectors.checked_mul(512)),
            name,
            uses: uses.into_iter().collect(),
        }
    }

    /// Adds what `device` is used for, and what stands on it.
    fn collect_uses(&self, device: &str, mounts: &[Mount], swaps: &[String], depth: usize, uses: &mut BTreeSet<Use>) {
        let folder = self.path("/sys/class/block").join(device);
        let numbers = text(&folder.join("dev"));
        // A mapper's device is mounted by another name than the kernel's.
        let mapped = text(&folder.join("dm/name")).map(|name| format!("mapper/{name}"));
        let named = |source: &str| {
            let name = source.strip_prefix("/dev/");
            name.is_some_and(|name| name == device || Some(name) == mapped.as_deref())
        };
        for mount in mounts {
            // By number; by name too, because a file system of many devices (btrfs) has a number of its own.
            if numbers.as_ref() == Some(&mount.numbers) || named(&mount.source) {
                uses.insert(Use::Mounted { device: device.to_owned(), at: mount.at.clone() });
            }
        }
        if swaps.iter().any(|swap| named(swap)) {
            uses.insert(Use::Swap { device: device.to_owned() });
        }
        for holder in names(&folder.join("holders")) {
            uses.insert(Use::Held { device: device.to_owned(), by: holder.clone() });
            if let Some(depth) = depth.checked_sub(1) {
                self.collect_uses(&holder, mounts, swaps, depth, uses);
            }
        }
    }

    fn mounts(&self) -> Vec<Mount> {
        let lines = text(&self.path("/proc/self/mountinfo")).unwrap_or_default();
        let read = |line: &str| {
            let mut fields = line.split(' ');
            let (numbers, at) = (fields.nth(2)?.to_owned(), unescape(fields.nth(1)?));
            // Optional fields end with a single hyphen; the file system's type and the source follow.
            let source = unescape(fields.skip_while(|field| *field != "-").nth(2)?);
            Some(Mount { numbers, at, source })
        };
        lines.lines().filter_map(read).collect()
    }

    fn swaps(&self) -> Vec<String> {
        let lines = text(&self.path("/proc/swaps")).unwrap_or_default();
        lines.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape).collect()
    }
}

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
