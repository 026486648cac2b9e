//! Who holds a lock, as far as it can be seen: what an exclusive holder has written into the file, and what the kernel
//! lists in `/proc/locks` for the file's device and inode.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};
use std::{fmt, io, process};

use serde::{Deserialize, Serialize};

/// The most bytes of a record, and of a command that is shown.
const MOST: usize = 4096;
const MOST_SHOWN: usize = 160;
/// The most holders that are named.
const MOST_HOLDERS: usize = 8;
/// Looks at the kernel's list before a lock that somebody holds is taken not to be there.
const LOOKS: usize = 8;

/// A process that holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The process; in its own PID namespace, where that is another.
    pub pid: u32,
    /// Its command line, empty where it cannot be seen.
    pub command: String,
    /// Since when, in seconds since 1970, where that is known.
    pub since: Option<u64>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == process::id() {
            f.write_str("this process itself, ")?;
        }
        write!(f, "process {}", self.pid)?;
        if !self.command.is_empty() {
            write!(f, " ({})", self.command.escape_debug())?;
        }
        // Later than the year 9999 is written by nobody who means it.
        let since = self.since.filter(|since| *since < 253_402_300_800);
        match since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))) {
            Some(since) => write!(f, " since {}", humantime::format_rfc3339_seconds(since)),
            None => Ok(()),
        }
    }
}

impl Holder {
    pub(super) fn of_this_process() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
        Self { since: since.map(|since| since.as_secs()), ..Self::seen(process::id()) }
    }

    /// What `/proc` shows of a process.
    fn seen(pid: u32) -> Self {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let command: Vec<_> = words.map(String::from_utf8_lossy).collect();
        Self { pid, command: command.join(" ").chars().take(MOST_SHOWN).collect(), since: None }
    }

    /// Writes it into a file that is locked. Whoever reads it meanwhile reads nothing, or half, and goes by `/proc/locks`.
    pub(super) fn record(&self, file: &File) -> io::Result<()> {
        let record = serde_json::to_vec(self)?;
        file.set_len(0)?;
        file.write_all_at(&record, 0)
    }

    fn recorded(file: &File) -> Option<Self> {
        let mut bytes = [0; MOST];
        let len = file.read_at(&mut bytes, 0).ok()?;
        let mut holder: Self = serde_json::from_slice(&bytes[..len]).ok()?;
        holder.command = holder.command.chars().take(MOST_SHOWN).collect();
        Some(holder)
    }
}

/// Who holds the lock on `file`, which has a record in it, or had one.
pub(super) fn of(file: &File) -> Vec<Holder> {
    let (listed, recorded) = (listed(file), Holder::recorded(file));
    if listed.is_empty() {
        // Of another PID namespace, or without /proc: only the record tells.
        return recorded.into_iter().collect();
    }
    let known = |holder: Holder| recorded.as_ref().filter(|known| known.pid == holder.pid).cloned().unwrap_or(holder);
    listed.into_iter().map(known).collect()
}

/// Who holds the lock on `file` by the kernel's list.
pub(super) fn listed(file: &File) -> Vec<Holder> {
    // The kernel gives its list in pieces, by numbers: a lock that goes between two of them has it pass over another.
    let mut looks = (0..LOOKS).filter_map(|_| fs::read_to_string("/proc/locks").ok());
    let found = looks.find_map(|locks| Some(pids(&locks, file)).filter(|found| !found.is_empty()));
    found.unwrap_or_default().into_iter().map(Holder::seen).collect()
}

/// The processes that hold `file` by `flock`, of a text like `/proc/locks`.
fn pids(locks: &str, file: &File) -> Vec<u32> {
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let mut found: Vec<u32> = Vec::new();
    for line in locks.lines() {
        // 1: FLOCK  ADVISORY  WRITE 1234 fe:01:131090 0 EOF; who waits has an arrow after the number.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = fields[..] else { continue };
        let Some((device, inode)) = place.rsplit_once(':') else { continue };
        let (Ok(pid), Ok(inode)) = (pid.parse::<u32>(), inode.parse::<u64>()) else { continue };
        if pid == 0 || inode != metadata.ino() || found.contains(&pid) || found.len() == MOST_HOLDERS {
            continue;
        }
        // Some file systems (Btrfs, overlays) show files another device than the kernel lists them by.
        if device == device_of(&metadata) || has_open(pid, &metadata) {
            found.push(pid);
        }
    }
    found
}

fn device_of(metadata: &fs::Metadata) -> String {
    format!("{:02x}:{:02x}", rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()))
}

fn has_open(pid: u32, metadata: &fs::Metadata) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut opened = descriptors.flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
    opened.any(|opened| (opened.dev(), opened.ino()) == (metadata.dev(), metadata.ino()))
}

/// As a list in a sentence.
pub(super) fn list(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "a process that cannot be seen from here".to_owned();
    }
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_and_garbage_is_passed_over() {
        let file = tempfile::tempfile().unwrap();
        let metadata = file.metadata().unwrap();
        let (device, inode) = (device_of(&metadata), metadata.ino());
        let locks = format!(
            "1: FLOCK  ADVISORY  WRITE 41 {device}:{inode} 0 EOF\n\
             1: -> FLOCK  ADVISORY  WRITE 42 {device}:{inode} 0 EOF\n\
             2: POSIX  ADVISORY  WRITE 43 {device}:{inode} 0 EOF\n\
             3: FLOCK  ADVISORY  READ 44 {device}:{inode} 0 EOF\n\
             4: FLOCK  ADVISORY  READ 44 {device}:{inode} 0 EOF\n\
             5: FLOCK  ADVISORY  READ 4294967295 ff:ff:{inode} 0 EOF\n\
             6: FLOCK  ADVISORY  READ 0 {device}:{inode} 0 EOF\n\
             7: FLOCK  ADVISORY  READ -1 {device}:{inode} 0 EOF\n\
             8: FLOCK  ADVISORY  READ 45 {device}:x 0 EOF\n\
             9: FLOCK\n\n"
        );
        assert_eq!(pids(&locks, &file), [41, 44]);
        // This process has the file open, under whatever device it is listed.
        let other = format!("1: FLOCK ADVISORY READ {} ff:ff:{inode} 0 EOF", process::id());
        assert_eq!(pids(&other, &file), [process::id()]);
    }

    #[test]
    fn a_holder_is_named_and_cannot_speak_to_the_terminal() {
        let holder = |command: &str, since| Holder { pid: 1, command: command.to_owned(), since };
        assert_eq!(holder("", None).to_string(), "process 1");
        assert_eq!(holder("a b", Some(1_764_438_721)).to_string(), "process 1 (a b) since 2025-11-29T17:52:01Z");
        assert_eq!(holder("\u{1b}[31m", Some(u64::MAX)).to_string(), "process 1 (\\u{1b}[31m)");
        assert!(
            Holder { pid: process::id(), ..holder("", None) }.to_string().starts_with("this process itself, process")
        );
        assert_eq!(list(&[]), "a process that cannot be seen from here");
        assert_eq!(list(&[holder("", None), holder("", None)]), "process 1 and process 1");
    }
}
