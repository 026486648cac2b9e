//! What the kernel says of addresses of this process (proc_pid_maps(5)).
//!
//! What backs a mapping decides whether a device may have it. Anonymous memory, memfds, System V segments and files of
//! tmpfs and hugetlbfs are memory: a pinned page stays theirs. So is a private mapping of a file that may be written, once
//! it is faulted in for writing, as each of its pages is a copy then. Any other mapping of a file, or of a device, is not.

use std::fs::File;
use std::io::{BufRead, BufReader};

use rustix::fs::{major, minor, stat, statfs};

use super::CallerMemoryError;

/// Names that the kernel has for memory whose file no folder has; they stand on a device without a number of its own.
const NAMELESS: [&str; 4] = ["/memfd:", "/SYSV", "/anon_hugepage", "/dev/zero"];
/// File systems of memory, as statfs(2) has them: tmpfs and hugetlbfs.
const MEMORY: [u64; 2] = [0x0102_1994, 0x9584_58f6];

/// What was found about memory that is all there and may be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The first address that may not be written.
    pub(super) read_only: Option<usize>,
    /// The first file of which it is a window, where that is no memory.
    pub(super) window: Option<String>,
}

/// Looks up `len` bytes at `address`.
pub(super) fn look_up(address: usize, len: usize) -> Result<Found, CallerMemoryError> {
    let maps = File::open("/proc/self/maps").map_err(|source| CallerMemoryError::Mappings { source })?;
    look_up_in(BufReader::new(maps), address, len, lies_in_memory)
}

/// As [`look_up`], in that text; `is_memory` says whether a file with a name is a file system's of memory.
fn look_up_in(
    mut maps: impl BufRead,
    address: usize,
    len: usize,
    is_memory: impl Fn(&Mapping<'_>) -> bool,
) -> Result<Found, CallerMemoryError> {
    let (mut at, end) = (address, address.saturating_add(len));
    let mut found = Found { read_only: None, window: None };
    let mut line = Vec::new();
    while at < end {
        line.clear();
        let read = maps.read_until(b'\n', &mut line).map_err(|source| CallerMemoryError::Mappings { source })?;
        let text = String::from_utf8_lossy(&line);
        let mapping = match Mapping::parse(text.trim_end_matches('\n')) {
            Some(mapping) if mapping.end <= at => continue,
            Some(mapping) if mapping.start <= at => mapping,
            None if read != 0 => continue,
            // They are sorted: what is not in this one, or not before the end, is in none.
            _ => return Err(CallerMemoryError::NotMapped { address, len, hole: at }),
        };
        if !mapping.has(0, b'r') {
            return Err(CallerMemoryError::NotReadable { address, len, at });
        }
        let writable = mapping.has(1, b'w');
        if !writable {
            found.read_only.get_or_insert(at);
        }
        let is_copy = writable && mapping.has(3, b'p');
        if found.window.is_none() && !is_copy && !mapping.is_nameless_memory() && !is_memory(&mapping) {
            found.window = Some(mapping.name.to_owned());
        }
        at = mapping.end;
    }
    Ok(found)
}

/// A line: one mapping.
struct Mapping<'a> {
    start: usize,
    end: usize,
    /// Such as `rw-p`.
    permissions: &'a str,
    device: (u32, u32),
    inode: u64,
    /// Empty where it has none.
    name: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let (permissions, rest) = rest.split_once(' ')?;
        let (_offset, rest) = rest.split_once(' ')?;
        let (device, rest) = rest.split_once(' ')?;
        let (major, minor) = device.split_once(':')?;
        let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
        let hex = |number| usize::from_str_radix(number, 16).ok();
        let short = |number| u32::from_str_radix(number, 16).ok();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            permissions,
            device: (short(major)?, short(minor)?),
            inode: inode.parse().ok()?,
            name: name.trim_start_matches(' '),
        })
    }

    fn has(&self, place: usize, permission: u8) -> bool {
        self.permissions.as_bytes().get(place) == Some(&permission)
    }

    /// Whether it is memory by its name alone.
    fn is_nameless_memory(&self) -> bool {
        // The stack, the heap, and what a process has given a name to.
        let is_named = |name: &str| self.name.starts_with(name);
        self.name.is_empty() || is_named("[") || self.device.0 == 0 && NAMELESS.into_iter().any(is_named)
    }
}

/// Whether the file of a mapping is one of a file system of memory.
fn lies_in_memory(mapping: &Mapping<'_>) -> bool {
    let (Ok(found), Ok(system)) = (stat(mapping.name), statfs(mapping.name)) else { return false };
    let same = found.st_ino == mapping.inode && (major(found.st_dev), minor(found.st_dev)) == mapping.device;
    same && MEMORY.contains(&(system.f_type as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
00001000-00003000 rw-p 00000000 00:00 0 
00003000-00004000 r--p 00000000 00:00 0                          [heap]
00004000-00005000 ---p 00000000 00:00 0 
00006000-00007000 rw-s 00000000 00:01 77                         /memfd:tentpeg (deleted)
00007000-00008000 rw-p 00001000 08:01 12                         /usr/bin/a program
00008000-00009000 r--p 00001000 08:01 12                         /usr/bin/a program
00009000-0000a000 rw-s 00000000 00:16 5                          /dev/shm/ours
0000a000-0000b000 rw-s 00000000 08:01 9                          /memfd:it is not
";

    fn look(address: usize, len: usize) -> Result<Found, String> {
        let in_memory = |mapping: &Mapping<'_>| mapping.device == (0, 0x16);
        look_up_in(MAPS.as_bytes(), address, len, in_memory).map_err(|error| error.to_string())
    }

    fn found(read_only: Option<usize>, window: Option<&str>) -> Result<Found, String> {
        Ok(Found { read_only, window: window.map(str::to_owned) })
    }

    #[test]
    fn what_memory_is_stands_in_the_list_of_mappings() {
        assert_eq!(look(0x1000, 0x2000), found(None, None));
        assert_eq!(look(0x2fff, 1), found(None, None));
        assert_eq!(look(0x2000, 0x1800), found(Some(0x3000), None));
        assert_eq!(look(0x6010, 0x1000), found(None, None), "a memfd, and a private copy of a file");
        assert_eq!(look(0x7800, 0x1000), found(Some(0x8000), Some("/usr/bin/a program")));
        assert_eq!(look(0x9000, 0x1000), found(None, None), "on tmpfs");
        assert_eq!(look(0x9000, 0x2000), found(None, Some("/memfd:it is not")), "on a disk, whatever its name says");
    }

    #[test]
    fn what_is_not_there_is_named_by_its_address() {
        for (address, len, says) in [
            (0x800, 0x1000, "nothing is mapped at 0x800"),
            (0x6000, 0x6000, "nothing is mapped at 0xb000"),
            (0x3000, 0x1001, "may not be read at 0x4000"),
            (0x5000, 1, "nothing is mapped at 0x5000"),
        ] {
            let error = look(address, len).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let empty = look_up_in(&b""[..], 0x1000, 1, |_| false).unwrap_err();
        assert!(matches!(empty, CallerMemoryError::NotMapped { hole: 0x1000, .. }), "{empty}");
    }

    /// Lines that nobody can read say nothing, and end nothing.
    #[test]
    fn a_line_that_makes_no_sense_is_passed_over() {
        let text = b"no mapping\n\xff\xfe\n00001000-00002000 rw-p 00000000 00:00 0\n";
        assert_eq!(look_up_in(&text[..], 0x1000, 0x1000, |_| false).unwrap(), Found { read_only: None, window: None });
        let text = b"\n\n";
        assert!(look_up_in(&text[..], 0x1000, 0x1000, |_| false).is_err());
    }
}
