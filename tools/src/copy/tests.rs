use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Parser;
use proptest::prelude::*;
use tempfile::TempDir;

use super::input::Input;
use super::read::ReadArgs;
use super::write::WriteArgs;
use super::*;
use crate::interrupt::Interrupt;
use crate::memory_budget::Available;

#[derive(Parser)]
struct ReadLine {
    #[command(flatten)]
    args: ReadArgs,
}

#[derive(Parser)]
struct WriteLine {
    #[command(flatten)]
    args: WriteArgs,
}

/// A folder with files to copy from and to.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn words<'a>(&self, line: &'a str) -> Vec<String> {
        let folder = self.0.path().display().to_string();
        let words = ["tentpeg"].into_iter().chain(line.split_whitespace());
        words.map(|word: &'a str| word.replace("@", &format!("{folder}/"))).collect()
    }

    /// Writes by a command line in which `@` is the folder.
    fn write(&self, line: &str) -> Result<Copied, CopyError> {
        write::run(&WriteLine::try_parse_from(self.words(line)).unwrap().args, &Interrupt::default())
    }

    fn read(&self, line: &str) -> Result<Copied, CopyError> {
        read::run(&ReadLine::try_parse_from(self.words(line)).unwrap().args, &Interrupt::default())
    }
}

/// Bytes of which no two chunks or blocks are alike.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5]).collect()
}

#[test]
fn a_file_goes_to_a_range_and_comes_back() {
    let folder = Folder::new();
    // More than the window holds, and a last chunk that is no whole one.
    let input = bytes((11 << 20) + 12288);
    folder.file("in", &input);
    let wrote = folder.write("model:path=@disk,size=32MiB --offset 1MiB --input @in").unwrap();
    let sides = wrote.report.both_sides.as_ref().unwrap();
    assert_eq!((sides.seen, sides.issued.flushes), (Some(sides.issued), 1), "a write ends with a flush");
    assert_eq!((wrote.report.errors.count(), sides.issued.bytes_written), (0, input.len() as u64));
    assert!(wrote.summary.starts_with("wrote 11.0 MiB (11,546,624 B) at 1MiB in "), "{}", wrote.summary);
    assert_eq!(wrote.note, None);
    let disk = fs::read(folder.path("disk")).unwrap();
    let (before, range, after) = (&disk[..1 << 20], &disk[1 << 20..][..input.len()], &disk[(1 << 20) + input.len()..]);
    assert!(range == input && before.iter().chain(after).all(|byte| *byte == 0));

    let read = folder.read("model:path=@disk --offset 1MiB --length 11546624 --output @out").unwrap();
    assert!(read.summary.starts_with("read 11.0 MiB"), "{}", read.summary);
    assert!(fs::read(folder.path("out")).unwrap() == input);
    assert_eq!(folder.names(), ["disk", "in", "out"]);
}

#[test]
fn a_range_in_the_middle_leaves_what_is_around_it() {
    let folder = Folder::new();
    folder.file("disk", &[0xa5; 1 << 16]);
    folder.file("in", &bytes(8192));
    folder.write("model:path=@disk,lba=512,overwrite --offset 512 --input @in --length 1KiB").unwrap();
    let disk = fs::read(folder.path("disk")).unwrap();
    assert_eq!(disk[512..1536], bytes(8192)[..1024]);
    assert!(disk[..512].iter().chain(&disk[1536..]).all(|byte| *byte == 0xa5));
}

#[test]
fn a_part_of_a_block_is_refused_or_padded() {
    let folder = Folder::new();
    folder.file("disk", &[0xa5; 1 << 16]);
    folder.file("in", &bytes(5000));
    folder.file("small", &bytes(10));
    let refused = |line: &str| folder.write(line).unwrap_err().to_string();
    let message = refused("model:path=@disk,overwrite --offset 0 --input @in");
    assert_eq!(
        message,
        "5000 bytes are no whole number of the device's blocks of 4096 bytes: \
         give --pad to add 3192 zeroes, or --length 4096 to write less"
    );
    let message = refused("model:path=@disk,overwrite --offset 0 --input @small");
    assert!(message.ends_with("give --pad to add 4086 zeroes"), "{message}");
    assert_eq!(fs::read(folder.path("disk")).unwrap(), [0xa5; 1 << 16]);
    folder.write("model:path=@disk,overwrite --offset 4KiB --input @in --pad").unwrap();
    let disk = fs::read(folder.path("disk")).unwrap();
    assert_eq!(disk[4096..9096], bytes(5000));
    assert_eq!(disk[9096..12288], [0; 3192]);
    assert_eq!(disk[12288..], [0xa5; (1 << 16) - 12288]);
}

#[test]
fn what_is_wrong_is_named_and_writes_nothing() {
    let folder = Folder::new();
    folder.file("disk", &[0xa5; 1 << 16]);
    folder.file("in", &bytes(8192));
    folder.file("empty", b"");
    for (line, message) in [
        (
            "model:path=@disk,overwrite --offset 1 --input @in",
            "--offset 1B: the device has blocks of 4096 bytes, so write a multiple, such as 0 or 4096",
        ),
        ("model:path=@disk,overwrite --offset 0 --input @empty", "there is nothing to move"),
        ("model:path=@disk,overwrite --offset 0 --input @empty --pad", "there is nothing to move"),
        (
            "model:path=@disk,overwrite --offset 60KiB --input @in",
            "8192 bytes at 61440 end past the device's 65536 bytes: from there on it has 4096",
        ),
        ("model:path=@disk,overwrite --offset 64KiB --input @in", "the last block is at 61440"),
        ("model:path=@disk,overwrite --offset 8TiB --input @in", "the last block is at 61440"),
        (
            "model:path=@disk,overwrite --offset 0 --input @in --length 12KiB",
            "in has 8192 bytes, but --length 12288 was asked for",
        ),
        ("model:path=@disk,overwrite --offset 0 --input @none", "cannot open"),
        ("model:path=@disk,overwrite --offset 0 --input @", "directory"),
        (
            "model:path=@disk,overwrite --offset 0 --input /dev/zero",
            "/dev/zero does not say how long it is: give --length",
        ),
        ("model:path=@disk,overwrite --offset 0 --input /dev/zero --length 18446744073709551615 --pad", "end past"),
        ("model:path=@disk --offset 0 --input @in", "add `,overwrite`"),
        ("model:size=1MiB,store=null --offset 0 --input @in", "nothing to write"),
        ("model:path=@new,size=4KiB --offset 0 --input @in", "8192 bytes at 0 end past the device's 4096 bytes"),
        ("model:path=@new,size=1MiB --offset 1 --input @in", "--offset 1B"),
        ("model:path=@new --offset 0 --input @in", "name a size"),
        ("disk --offset 0 --input @in", "'disk' names no device"),
    ] {
        let error = folder.write(line).unwrap_err();
        assert!(!matches!(error, CopyError::Partial { .. }), "{line}");
        assert!(error.to_string().contains(message), "{line}: {error}");
    }
    assert_eq!(fs::read(folder.path("disk")).unwrap(), [0xa5; 1 << 16]);
    for (line, message) in [
        ("model:path=@disk --offset 0 --length 0 --output @out", "there is nothing to move"),
        ("model:path=@disk --offset 0 --length 5000 --output @out", "give --length 4096 or 8192"),
        ("model:path=@disk --offset 0 --length 5 --output @out", "bytes: give --length 4096"),
        ("model:path=@disk --offset 0 --length 1MiB --output @out", "from there on it has 65536"),
        ("model:path=@disk --offset 4KiB --length 16777215TiB --output @out", "end past"),
        ("model:path=@new,size=1MiB --offset 0 --length 4KiB --output @out", "`read` creates no file"),
        ("model:size=1MiB,store=null --offset 0 --length 4KiB --output @out", "nothing to read"),
        ("model:path=@disk --offset 0 --length 4KiB --output @none/out", "none: the folder does not exist"),
    ] {
        let error = folder.read(line).unwrap_err().to_string();
        assert!(error.contains(message), "{line}: {error}");
    }
    assert_eq!(folder.names(), ["disk", "empty", "in"]);
}

#[test]
fn an_output_that_exists_is_replaced_only_by_force() {
    let folder = Folder::new();
    folder.file("disk", &bytes(8192));
    folder.file("out", b"mine");
    let line = "model:path=@disk --offset 4KiB --length 4KiB --output @out";
    let message = folder.read(line).unwrap_err().to_string();
    assert!(message.ends_with("out exists: give --force to replace it"), "{message}");
    assert_eq!(fs::read(folder.path("out")).unwrap(), b"mine");
    folder.read(&format!("{line} --force")).unwrap();
    assert_eq!(fs::read(folder.path("out")).unwrap(), bytes(8192)[4096..]);
    std::os::unix::fs::symlink("/dev/null", folder.path("link")).unwrap();
    for name in ["@link", "@", "/dev/null"] {
        let line = format!("model:path=@disk --offset 0 --length 4KiB --force --output {name}");
        let message = folder.read(&line).unwrap_err().to_string();
        assert!(message.contains("is no regular file"), "{message}");
    }
    assert_eq!(folder.names(), ["disk", "link", "out"]);
}

#[test]
fn an_interrupt_leaves_no_output_and_says_what_was_written() {
    let folder = Folder::new();
    folder.file("disk", &bytes(1 << 20));
    folder.file("in", &bytes(8192));
    let interrupt = Interrupt::default();
    interrupt.set();
    let line = folder.words("model:path=@disk --offset 0 --length 1MiB --output @out");
    let copied = read::run(&ReadLine::try_parse_from(line).unwrap().args, &interrupt).unwrap();
    assert!(copied.report.interrupted && copied.summary.starts_with("interrupted"), "{}", copied.summary);
    let line = folder.words("model:path=@disk,overwrite --offset 0 --input @in");
    let copied = write::run(&WriteLine::try_parse_from(line).unwrap().args, &interrupt).unwrap();
    assert!(copied.report.interrupted);
    assert_eq!(copied.summary, "interrupted after 0 of 8192 bytes at 0, which are not flushed");
    assert_eq!(folder.names(), ["disk", "in"]);
    assert!(fs::read(folder.path("disk")).unwrap() == bytes(1 << 20));
}

#[test]
fn a_device_in_memory_says_what_becomes_of_the_bytes() {
    let folder = Folder::new();
    folder.file("in", &bytes(4096));
    let note = folder.write("model:size=1MiB --offset 0 --input @in").unwrap().note.unwrap();
    assert!(note.contains("gone when this command ends"), "{note}");
    let note = folder.read("model:size=1MiB --offset 0 --length 4KiB --output @out").unwrap().note.unwrap();
    assert!(note.contains("is 0"), "{note}");
}

#[test]
fn the_device_s_own_file_is_neither_input_nor_output() {
    let folder = Folder::new();
    folder.file("disk", &bytes(8192));
    fs::hard_link(folder.path("disk"), folder.path("twin")).unwrap();
    std::os::unix::fs::symlink(folder.path("disk"), folder.path("link")).unwrap();
    for name in ["disk", "./disk", "twin", "link"] {
        let line = format!("model:path=@disk --offset 0 --length 4KiB --force --output @{name}");
        let message = folder.read(&line).unwrap_err().to_string();
        assert!(message.contains("the device itself lies in") && message.contains("disk: name another"), "{message}");
        let line = format!("model:path=@disk,overwrite --offset 4KiB --length 4KiB --input @{name}");
        let message = folder.write(&line).unwrap_err().to_string();
        assert!(message.contains("the device itself lies in") && message.contains("disk: name another"), "{message}");
    }
    assert_eq!(fs::read(folder.path("disk")).unwrap(), bytes(8192));
}

#[test]
fn a_file_that_a_write_created_is_gone_when_it_fails() {
    let folder = Folder::new();
    let line = "model:path=@new,size=1MiB --offset 0 --input /dev/null --length 8KiB";
    let message = folder.write(line).unwrap_err().to_string();
    assert!(message.contains("/dev/null ended after 0 of 8192 bytes; "), "{message}");
    assert!(message.ends_with("new, which was created for it, is removed again"), "{message}");
    let interrupt = Interrupt::default();
    interrupt.set();
    folder.file("in", &bytes(8192));
    let line = folder.words("model:path=@new,size=1MiB --offset 0 --input @in");
    let copied = write::run(&WriteLine::try_parse_from(line).unwrap().args, &interrupt).unwrap();
    assert!(copied.summary.ends_with("new, which was created for it, is removed again"), "{}", copied.summary);
    assert_eq!(folder.names(), ["in"]);
    folder.write("model:path=@new,size=1MiB --offset 0 --input @in").unwrap();
    // One that was there stays.
    folder.write("model:path=@new,size=1MiB,overwrite --offset 0 --input /dev/null --length 8KiB").unwrap_err();
    assert_eq!(folder.names(), ["in", "new"]);
}

#[test]
fn what_stays_in_memory_must_have_room() {
    let available = Available { bytes: 1 << 30, bound: Bound::MemAvailable };
    let most = available.usable() - (8 << 20);
    write::fits(most, &available).unwrap();
    let message = write::fits(most + 1, &available).unwrap_err().to_string();
    assert!(message.contains("can be used, by MemAvailable") && message.contains("path=FILE"), "{message}");
}

#[test]
fn a_replaced_output_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.file("disk", &bytes(8192));
    let path = folder.file("out", b"mine");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    folder.read("model:path=@disk --offset 0 --length 4KiB --force --output @out").unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_hides_its_length_needs_one() {
    let message =
        Folder::new().write("model:size=1MiB --offset 0 --pad --input /proc/cpuinfo").unwrap_err().to_string();
    assert_eq!(message, "/proc/cpuinfo does not say how long it is: give --length");
}

/// All that an input gives, or why not.
fn all_of(input: Input, length: u64, chunk: usize, at_the_end: impl FnOnce()) -> Result<Vec<u8>, CopyError> {
    let reading = input.start(length, chunk)?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < length {
        let buffer = reading.next(&Interrupt::default())?.expect("not interrupted");
        bytes.extend_from_slice(&buffer);
        reading.recycle(buffer);
    }
    at_the_end();
    reading.finish()?;
    Ok(bytes)
}

#[test]
fn an_input_that_ends_early_or_changes_is_an_error() {
    let folder = Folder::new();
    let path = folder.file("in", &bytes(100));
    let open = |path: &Path| Input::open(path).unwrap();
    assert_eq!(all_of(open(&path), 100, 33, || {}).unwrap(), bytes(100));
    assert_eq!(all_of(open(&path), 10, 33, || {}).unwrap(), bytes(10), "the rest is left");

    let input = open(&path);
    File::options().write(true).open(&path).unwrap().set_len(70).unwrap();
    let message = all_of(input, 100, 33, || {}).unwrap_err().to_string();
    assert!(message.ends_with("in ended after 70 of 100 bytes"), "{message}");

    let input = open(&path);
    assert_eq!(input.length(None).unwrap(), 70);
    File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let message = all_of(input, 70, 33, || {}).unwrap_err().to_string();
    assert!(message.ends_with("in changed while it was read: it had 70 bytes and has 74 now"), "{message}");
}

#[test]
fn a_write_that_breaks_off_says_what_it_may_have_written() {
    let folder = Folder::new();
    let path = folder.file("in", &bytes(3 << 20));
    folder.file("disk", &[0; 4 << 20]);
    let engine = Engine::open(&format!("model:path={},overwrite", folder.path("disk").display()), config()).unwrap();
    let input = Input::open(&path).unwrap();
    let length = input.length(None).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(2 << 20).unwrap();
    let range = Range { offset: 4096, length };
    let error =
        write::transfer(&engine, &engine.segments()[0], range, input, length, &Interrupt::default()).unwrap_err();
    let message = error.to_string();
    let end = 4096 + (2 << 20);
    assert!(message.contains("in ended after 2097152 of 3145728 bytes; "), "{message}");
    assert!(message.ends_with(&format!("from 4096 to {end} may have been written in part")), "{message}");
}

#[test]
fn what_is_no_file_needs_a_length() {
    let input = Input::open(Path::new("/dev/zero")).unwrap();
    assert!(matches!(input.length(None), Err(CopyError::NoLength(name)) if name == "/dev/zero"));
    assert_eq!(input.length(Some(10_000)).unwrap(), 10_000);
    assert_eq!(all_of(input, 10_000, 4096, || {}).unwrap(), vec![0; 10_000]);
    let null = Input::open(Path::new("/dev/null")).unwrap();
    assert!(matches!(all_of(null, 5, 4096, || {}), Err(CopyError::InputEnded { after: 0, of: 5, .. })));
}

proptest! {
    #[test]
    fn a_range_is_whole_blocks_within_the_device_or_is_refused(
        offset in any::<u64>(), length in any::<u64>(), small in any::<bool>(), blocks in 1u64..64, shift in 9u32..13
    ) {
        let block = 1u64 << shift;
        let device = Geometry { block, capacity: blocks * block };
        // Half of the time near the device.
        let (offset, length) = if small { (offset % 70 * block, length % 70 * block) } else { (offset, length) };
        let right = offset.is_multiple_of(block) && length.is_multiple_of(block) && length > 0
            && u128::from(offset) + u128::from(length) <= u128::from(device.capacity);
        let range = Range::new(offset, length, device, String::new);
        prop_assert_eq!(range.is_ok(), right, "{:?}", range);
        if let Err(error) = range {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
