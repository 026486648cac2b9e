//! The archive that a kernel unpacks into its first file system (Linux, Documentation/driver-api/early-userspace,
//! format `newc`).

use std::fs;
use std::io;
use std::path::Path;

/// A directory that anybody can enter, a program, and an ordinary file.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// An archive under construction.
#[derive(Debug, Clone, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file that can be run.
    pub fn program(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, PROGRAM, contents);
    }

    /// Adds every file of a folder of the host, under `path`.
    ///
    /// # Errors
    /// What reading them gives.
    pub fn folder(&mut self, path: &str, folder: &Path) -> io::Result<()> {
        self.directory(path);
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
            self.entry(&format!("{path}/{name}"), FILE, &fs::read(entry.path())?);
        }
        Ok(())
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// A header of 13 numbers of 8 hexadecimal digits, the name and the contents, each padded to a multiple of 4.
    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let (links, owner, time, device) = (1, 0, 0, 0);
        let name_len = path.len() as u32 + 1;
        let numbers = [self.entries, mode, owner, owner, links, time, contents.len() as u32];
        let numbers = numbers.into_iter().chain([device; 4]).chain([name_len, 0]);
        self.bytes.extend(b"070701");
        self.bytes.extend(numbers.flat_map(|number| format!("{number:08x}").into_bytes()));
        self.bytes.extend(path.bytes().chain([0]));
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive as the kernel does: names with modes and contents, up to the trailer.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            let header = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
            assert_eq!(&header[..6], "070701");
            let number = |index: usize| u32::from_str_radix(&header[6 + index * 8..14 + index * 8], 16).unwrap();
            let (mode, len, name_len) = (number(1), number(6) as usize, number(11) as usize);
            let name = std::str::from_utf8(&bytes[at + 110..at + 110 + name_len - 1]).unwrap().to_owned();
            let start = (at + 110 + name_len).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return found;
            }
            found.push((name, mode, bytes[start..start + len].to_vec()));
            at = (start + len).next_multiple_of(4);
        }
    }

    #[test]
    fn what_is_packed_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.ko"), b"second").unwrap();
        fs::write(folder.path().join("a.ko"), b"1").unwrap();
        let mut archive = Archive::default();
        archive.program("init", b"\x7fELF!");
        archive.folder("modules", folder.path()).unwrap();
        let bytes = archive.finish();
        assert!(bytes.len().is_multiple_of(4));
        let expected = [
            ("init", PROGRAM, &b"\x7fELF!"[..]),
            ("modules", DIRECTORY, b""),
            ("modules/a.ko", FILE, b"1"),
            ("modules/b.ko", FILE, b"second"),
        ];
        let found = read(&bytes);
        let found: Vec<_> = found.iter().map(|(name, mode, contents)| (name.as_str(), *mode, &contents[..])).collect();
        assert_eq!(found, expected);
    }
}
