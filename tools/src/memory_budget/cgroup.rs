//! What the process's cgroups leave it, in both versions of the interface and in the hybrid of the two.
//!
//! `/proc/self/mountinfo` (proc_pid_mountinfo(5)) says where the hierarchies are mounted and which part of them each mount shows,
//! `/proc/self/cgroup` (cgroups(7)) in which cgroup the process is. In a container the two can disagree, if the mount shows only what
//! is below the container's own cgroup; then the top of the mount is the nearest that can be seen.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use super::{Available, Bound, MemoryError};

/// The names of one version of the interface.
struct Version {
    limits: &'static [&'static str],
    usage: &'static str,
    droppable: &'static str,
}

const V1: Version =
    Version { limits: &["memory.limit_in_bytes"], usage: "memory.usage_in_bytes", droppable: "total_inactive_file" };

const V2: Version =
    Version { limits: &["memory.max", "memory.high"], usage: "memory.current", droppable: "inactive_file" };

/// What each limit leaves. Empty without limits, and without cgroups.
pub(super) fn available(root: &Path) -> Result<Vec<Available>, MemoryError> {
    let read = |path: &str| read_if_there(&root.join(path)).map(Option::unwrap_or_default);
    let (mounts, cgroups) = (read("proc/self/mountinfo")?, read("proc/self/cgroup")?);
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let mut found = Vec::new();
    for (version, cgroup) in cgroups.lines().filter_map(memory_cgroup) {
        for directory in levels(&mounts, &version, Path::new(cgroup)) {
            let left = left_in(&version, &under(root, &directory))?;
            found.extend(left.map(|bytes| Available { bytes, bound: Bound::Cgroup(directory) }));
        }
    }
    Ok(found)
}

/// The cgroup of a line of `/proc/self/cgroup`, if its hierarchy may control memory.
fn memory_cgroup(line: &str) -> Option<(Version, &str)> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, cgroup) = (fields.next()?, fields.next()?, fields.next()?);
    if controllers.split(',').any(|controller| controller == "memory") {
        Some((V1, cgroup))
    } else {
        (id == "0" && controllers.is_empty()).then_some((V2, cgroup))
    }
}

/// A mounted hierarchy that may control memory.
struct Mount {
    version_1: bool,
    /// The cgroup that is at the top of the mount.
    top: PathBuf,
    mounted_at: PathBuf,
}

impl Mount {
    /// A line of `mountinfo`; `None` for any other file system.
    fn parse(line: &str) -> Option<Self> {
        // 31 23 0:28 /top /mounted/at rw,relatime shared:9 - cgroup source rw,memory
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (top, mounted_at) = (unescaped(mount.next()?), unescaped(mount.next()?));
        let mut file_system = file_system.split(' ');
        let version_1 = match file_system.next()? {
            "cgroup2" => false,
            "cgroup" if file_system.nth(1)?.split(',').any(|option| option == "memory") => true,
            _ => return None,
        };
        Some(Self { version_1, top, mounted_at })
    }
}

/// A path of `mountinfo`, where space, tab, line feed and backslash are written in octal.
fn unescaped(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, after) = match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                (((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'), after)
            }
            _ => (*first, tail),
        };
        bytes.push(byte);
        rest = after;
    }
    OsString::from_vec(bytes).into()
}

/// Directories of the process's cgroup and those above it, as far as a mount shows them.
fn levels(mounts: &[Mount], version: &Version, cgroup: &Path) -> Vec<PathBuf> {
    let is_version_1 = version.usage == V1.usage;
    let mut mounts = mounts.iter().filter(|mount| mount.version_1 == is_version_1);
    let below = |mount: &Mount| {
        // A cgroup outside the process's cgroup namespace begins with `/..`; no mount shows it.
        let below = cgroup.strip_prefix(&mount.top).ok()?;
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        plain.then(|| (mount.mounted_at.clone(), below.to_owned()))
    };
    let first = mounts.clone().next().map(|mount| (mount.mounted_at.clone(), PathBuf::new()));
    let Some((mounted_at, below)) = mounts.find_map(below).or(first) else {
        return Vec::new();
    };
    below.ancestors().map(|part| mounted_at.join(part)).collect()
}

/// Bytes that the limit of the cgroup in `directory` leaves. `None` if it has no limit.
fn left_in(version: &Version, directory: &Path) -> Result<Option<u64>, MemoryError> {
    let mut limit = None;
    for name in version.limits {
        let path = directory.join(name);
        let Some(text) = read_if_there(&path)? else {
            continue;
        };
        let bytes = match text.trim() {
            "max" => continue,
            text => text.parse::<u64>().map_err(|_| malformed(path, "a number of bytes or `max`"))?,
        };
        limit = Some(limit.map_or(bytes, |other: u64| other.min(bytes)));
    }
    // Version 1 says that there is no limit by the largest whole number of pages in 63 bits.
    let Some(limit) = limit.filter(|bytes| *bytes < i64::MAX as u64 & !0xffff) else {
        return Ok(None);
    };
    let path = directory.join(version.usage);
    let used = match read_if_there(&path)? {
        Some(text) => text.trim().parse::<u64>().map_err(|_| malformed(path, "a number of bytes"))?,
        None => 0,
    };
    let path = directory.join("memory.stat");
    let droppable = match read_if_there(&path)? {
        Some(text) => text.lines().find_map(|line| line.strip_prefix(version.droppable)?.trim().parse().ok()),
        None => None,
    };
    let used = used.saturating_sub(droppable.unwrap_or(0));
    Ok(Some(limit.saturating_sub(used)))
}

/// An absolute path, looked for under another root.
fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn malformed(path: PathBuf, expected: &'static str) -> MemoryError {
    MemoryError::Malformed { path, expected }
}

fn read_if_there(path: &Path) -> Result<Option<String>, MemoryError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(MemoryError::Unreadable { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_in_mount_paths() {
        assert_eq!(unescaped(r"/a\040b\134\011c"), Path::new("/a b\\\tc"));
        assert_eq!(unescaped(r"/a\9\04"), Path::new(r"/a\9\04"));
    }

    #[test]
    fn lines_of_proc_self_cgroup() {
        let version = |line| memory_cgroup(line).map(|(version, cgroup)| (version.usage, cgroup));
        assert_eq!(version("0::/user.slice/a:b"), Some(("memory.current", "/user.slice/a:b")));
        assert_eq!(version("4:cpu,memory:/job"), Some(("memory.usage_in_bytes", "/job")));
        assert_eq!(version("9:name=memory:/"), None);
        assert_eq!(version("0"), None);
    }
}
