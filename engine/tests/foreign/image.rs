//! A sparse file as a device, and what `blkid` says of it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tentpeg_engine::blocks::{Blocks, BlocksError, check_bounds};
use tentpeg_engine::foreign::{self, ForeignContents};

/// A sparse file of a folder of its own.
pub(crate) struct Image {
    folder: TempDir,
    file: File,
}

impl Image {
    pub(crate) fn new(bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = File::options().read(true).write(true).create_new(true).open(folder.path().join("image")).unwrap();
        file.set_len(bytes).unwrap();
        Self { folder, file }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn len(&self) -> u64 {
        self.file.metadata().unwrap().len()
    }

    /// Whole blocks of any size.
    pub(crate) fn round_up(&self) {
        self.file.set_len(self.len().next_multiple_of(65536)).unwrap();
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    /// What a device of such blocks with these bytes has.
    pub(crate) fn find(&self, block_size: u32) -> Vec<ForeignContents> {
        assert_eq!(self.len() % u64::from(block_size), 0);
        foreign::find(&mut FileBlocks { file: &self.file, block_size, blocks: self.len() / u64::from(block_size) })
            .unwrap()
    }

    /// The names of what there is, which no block size changes.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let found = self.find(512);
        for block_size in [4096, 65536] {
            assert_eq!(self.find(block_size), found, "with blocks of {block_size} bytes");
        }
        found.iter().map(|contents| contents.name).collect()
    }

    /// What `blkid` says; `None` where there is no `blkid`.
    pub(crate) fn blkid(&self) -> Option<HashMap<String, String>> {
        let output = Command::new("blkid").args(["-p", "-o", "export"]).arg(self.path()).env("PATH", PATH).output();
        let text = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }
}

/// Where tools are that change file systems.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

struct FileBlocks<'a> {
    file: &'a File,
    block_size: u32,
    blocks: u64,
}

impl Blocks for FileBlocks<'_> {
    fn block_size(&self) -> u32 {
        self.block_size
    }

    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn read(&mut self, slba: u64, data: &mut [u8]) -> Result<(), BlocksError> {
        check_bounds(self, "Read", slba, data.len() as u64)?;
        self.file.read_exact_at(data, slba * u64::from(self.block_size)).unwrap();
        Ok(())
    }

    fn write(&mut self, slba: u64, _: &[u8]) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly { command: "Write", slba })
    }

    fn zero(&mut self, slba: u64, _: u64) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly { command: "Write Zeroes", slba })
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        Ok(())
    }
}
