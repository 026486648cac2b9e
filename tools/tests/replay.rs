//! `tentpeg replay` as a user runs it: the binary, its output, its exit status, and what it leaves behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// Small sizes, so that a test moves little.
const SMALL: [&str; 8] = ["--slots", "64", "--pool", "16", "--block", "16KiB", "--page", "4KiB"];

fn replay(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tentpeg"));
    command.current_dir(folder).arg("replay").args(args);
    command
}

fn json(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}; standard error: {stderr}"))
}

/// The message of a run that was refused. Nothing may be on standard output, and nothing new in the folder.
fn refusal(folder: &TempDir, args: &[&str]) -> String {
    let before = files(folder.path());
    let output = replay(folder.path(), args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {:?}", output.status);
    assert_eq!(output.stdout, b"", "{args:?}");
    assert_eq!(files(folder.path()), before, "{args:?} has written");
    if output.status.code() == Some(1) {
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("tentpeg: "), "{args:?}: {stderr}");
    }
    stderr
}

fn files(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut files: Vec<_> = entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

fn with_trace(lines: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("trace.jsonl"), lines).unwrap();
    folder
}

fn small(more: &[&'static str]) -> Vec<&'static str> {
    SMALL.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn a_generated_trace_ends_without_errors_and_both_sides_agree() {
    let folder = tempfile::tempdir().unwrap();
    let output = replay(folder.path(), &small(&["--requests", "60", "--json"]));
    let json = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"", "no progress bar where there is no terminal");
    let number = |key: &str| json[key].as_u64().unwrap_or_else(|| panic!("{key} in {json}"));
    assert_eq!((number("requests"), number("errors")), (60, 0));
    assert_eq!(json["interrupted"], false);
    assert!(number("reads") > 0);
    assert_eq!(number("blocks"), number("reads") + number("writes"));
    assert_eq!(number("bytes"), number("blocks") * (16 << 10));
    assert_eq!(number("commands_issued"), number("blocks"), "one command a block");
    assert_eq!(number("sqes_fetched"), number("blocks"));
    assert_eq!(number("bytes_read_walked"), number("reads") * (16 << 10));
    assert_eq!(number("bytes_written_walked"), number("writes") * (16 << 10));
    assert_eq!(number("bytes_per_token"), 32);
    assert!(number("latency_p50_ns") <= number("latency_max_ns"));
    assert_eq!(files(folder.path()), [], "a model in memory leaves nothing");
}

#[test]
fn the_table_has_what_a_reader_looks_for() {
    let folder = with_trace("{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1,2,4]}\n");
    let output = replay(folder.path(), &small(&["--trace", "trace.jsonl"]));
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    let row = |label: &str| {
        let line = table.lines().find(|line| line.strip_prefix(label).is_some_and(|rest| rest.starts_with("  ")));
        line.unwrap_or_else(|| panic!("no {label} in\n{table}"))[label.len()..].trim().to_owned()
    };
    assert_eq!(row("requests"), "2");
    assert_eq!(row("hits"), "2 (33.3%)");
    assert_eq!((row("reads"), row("writes")), ("2".to_owned(), "4".to_owned()));
    assert_eq!(row("commands"), "6 issued, 6 SQEs fetched");
    assert_eq!(row("commands a block"), "1.00");
    assert_eq!(row("a token's KV cache"), "32 B");
    assert_eq!(row("path of the bytes"), "device ↔ host memory (model, memory store)");
    assert_eq!(row("errors"), "0");
    assert!(row("memory used").contains("pages"));
    for label in ["bytes", "GB/s", "blocks/s", "latency p50", "latency p99", "latency p99.9", "latency max"] {
        row(label);
    }
}

#[test]
fn every_wrong_option_is_named_and_nothing_is_written() {
    let folder = with_trace("{\"hash_ids\":[1]}\n");
    let named = [
        (&["--page", "3KiB"][..], "--page 3KiB: must be a multiple of the memory page of 4KiB"),
        (&["--block", "100KiB"], "--block 100KiB: must be a multiple of --page"),
        (&["--block", "4GB"], "GiB is probably meant"),
        (&["--slots", "0"], "'--slots <BLOCKS>': write a whole number from 1 to 4294967295"),
        (&["--pool", "-1"], "'--pool <BLOCKS>': write a whole number from 1 to 4294967295"),
        (&["--in-flight", "many"], "write a whole number from 1 to 4294967295"),
        (&["--requests", "0"], "write a whole number from 1 to 18446744073709551615"),
        (&["--seed", "x"], "write a whole number from 0 to 18446744073709551615"),
        (&["--trace", "trace.jsonl", "--seed", "1"], "cannot be used with"),
        (&["--trace", "none.jsonl"], "cannot open the trace none.jsonl"),
        (&["--trace", "."], "the trace . is a directory: it must be a regular file"),
        (&["--trace", "/dev/null"], "the trace /dev/null is a device: it must be a regular file"),
        (&["--device", "disk"], "'disk' names no device: write model:"),
        (&["--device", "model:store=null"], "keeps no bytes"),
        (&["--device", "model:size=1MiB"], "4,096 slots of 128KiB need 512MiB"),
        (&["--device", "model:size=1MiB"], "give --slots 8 or fewer"),
        (&["--device", "model:size=64KiB", "--slots", "1"], "give --block 64KiB or less"),
        (&["--device", "model:path=new"], "name a size to create it"),
        (&["--device", "model:path=new,size=1MiB"], "4,096 slots of 128KiB need 512MiB"),
        (&["--device", "model:path=new,size=1GiB", "--page", "1KiB"], "--page 1KiB"),
        (&["--device", "model:path=new,size=1GiB", "--trace", "none.jsonl"], "cannot open the trace"),
        (&["--device", "model:path=new,size=1GiB", "--pool", "400000000"], "give a smaller --pool or --block"),
        (
            &["--device", "model:path=trace.jsonl,overwrite"],
            "trace.jsonl has 17 bytes, which is no multiple of the block of 4096 bytes",
        ),
        (&["--slots", "4000000000"], "or fewer"),
    ];
    for (args, what) in named {
        let message = refusal(&folder, args);
        assert!(message.contains(what), "{args:?}: {message}");
    }
}

#[test]
fn too_many_slots_are_refused_with_the_largest_number_that_fits() {
    let folder = tempfile::tempdir().unwrap();
    // More than any machine has; what fits is this machine's matter, but must be accepted as a number of slots.
    let message = refusal(&folder, &["--slots", "4000000000", "--requests", "1"]);
    let (_, largest) = message.split_once("give --slots ").unwrap();
    let largest = largest.trim_end().strip_suffix(" or fewer").unwrap().parse::<u32>().unwrap();
    assert!((1..4_000_000_000).contains(&largest), "{message}");
    // A file's bytes are no memory: as many slots in a sparse file pass that check, and the device's size is what is wrong.
    let uri = "model:path=new,size=1MiB";
    let message = refusal(&folder, &["--slots", "400000", "--block", "4KiB", "--page", "4KiB", "--device", uri]);
    assert!(message.contains("has 1MiB"), "{message}");
}

#[test]
fn wrong_traces_are_refused_with_their_line() {
    let wrong = [
        ("", "the trace holds no requests"),
        ("\n \n", "the trace holds no requests"),
        ("{\"hash_ids\":[1]}\n{\"hash_ids\":[2,", "line 2: the line is cut off"),
        ("{\"hash_ids\":[1]}\n\n{\"hash_ids\":[2,-3]}\n", "line 3, column "),
        ("{\"hash_ids\":[18446744073709551616]}\n", "a block id, a whole number from 0 to 18446744073709551615"),
        ("{\"hash_ids\":[1]}\n{\"ids\":[1]}\n", "line 2, column"),
        ("{\"hash_ids\":[1]} x\n", "line 1, column"),
    ];
    for (lines, what) in wrong {
        let folder = with_trace(lines);
        // With a device that would be created.
        let args = small(&["--trace", "trace.jsonl", "--device", "model:path=new,size=1MiB"]);
        let message = refusal(&folder, &args);
        assert!(message.contains("trace.jsonl: ") && message.contains(what), "{lines:?}: {message}");
    }
}

#[test]
fn a_trace_at_the_edges_of_its_format_is_replayed() {
    let lines = concat!(
        "{\"timestamp\":0,\"hash_ids\":[18446744073709551615,0],\"chat\":{\"hash_ids\":[7]}}\r\n",
        "\n",
        "{\"hash_ids\":[]}\n",
        "{\"input_length\":-1,\"hash_ids\":[18446744073709551615,0,0,9223372036854775808]}",
    );
    let folder = with_trace(lines);
    let output = replay(folder.path(), &small(&["--trace", "trace.jsonl", "--json"]));
    let json = json(&output);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        (&json["requests"], &json["reads"], &json["writes"], &json["errors"]),
        (&3.into(), &3.into(), &3.into(), &0.into())
    );
}

#[test]
fn a_file_is_created_once_and_written_again_only_if_the_uri_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let created = small(&["--requests", "10", "--device", "model:path=store,size=1MiB"]);
    assert_eq!(replay(folder.path(), &created).status.code(), Some(0));
    assert_eq!(fs::metadata(folder.path().join("store")).unwrap().len(), 1 << 20);

    let message = refusal(&folder, &created);
    assert!(message.contains("is open for reading only"), "{message}");
    assert!(message.contains("overwrite"), "{message}");

    let before = files(folder.path());
    let overwritten = small(&["--requests", "10", "--seed", "9", "--device", "model:path=store,overwrite", "--json"]);
    let output = replay(folder.path(), &overwritten);
    assert_eq!((output.status.code(), &json(&output)["errors"]), (Some(0), &0.into()));
    assert_ne!(files(folder.path()), before);
}

/// A replay without end on a store in a file.
struct Endless {
    folder: TempDir,
    child: Child,
}

impl Endless {
    const SLOTS: u64 = 1024;

    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut args =
            vec!["--requests", "18446744073709551615", "--slots", "1024", "--block", "4KiB", "--page", "4KiB"];
        args.extend(["--device", "model:path=store,size=4MiB"]);
        args.extend(more);
        let child = command(folder.path(), &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { folder, child }
    }

    /// Waits until something has been written to a slot.
    fn wait_for_slot(&mut self, slot: u64) {
        let path = self.folder.path().join("store");
        let written = || {
            let mut bytes = [0; 4096];
            let read = File::open(&path).and_then(|store| store.read_exact_at(&mut bytes, slot * 4096));
            read.is_ok() && bytes != [0; 4096]
        };
        while !written() {
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Presses Ctrl-C.
    fn interrupt(self) -> Output {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        self.child.wait_with_output().unwrap()
    }
}

#[test]
fn ctrl_c_ends_a_run_with_the_table_so_far() {
    let mut endless = Endless::start(&[]);
    endless.wait_for_slot(100);
    let output = endless.interrupt();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(130), "{table}");
    assert!(table.contains("\ninterrupted "), "{table}");
    assert!(table.contains("\nerrors              0\n"), "{table}");

    let mut endless = Endless::start(&["--json"]);
    endless.wait_for_slot(100);
    let output = endless.interrupt();
    let json = json(&output);
    assert_eq!((output.status.code(), &json["interrupted"]), (Some(130), &true.into()));
    assert!(json["writes"].as_u64().unwrap() > 100);
    assert_eq!(json["commands_issued"], json["sqes_fetched"], "what was in flight has ended");
}

#[test]
fn a_device_that_loses_a_block_makes_the_run_fail_and_the_table_say_where() {
    let mut endless = Endless::start(&[]);
    endless.wait_for_slot(1);
    // Slot 0 has the first block of every prompt, so it is read by every request and never written again.
    let store = File::options().write(true).open(endless.folder.path().join("store")).unwrap();
    store.write_all_at(&[0; 4096], 0).unwrap();
    endless.wait_for_slot(Endless::SLOTS - 1);
    let output = endless.interrupt();
    let (table, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(1), "{table}");
    let what = "slot 0: block 0, write 1: byte 0 of the block begins a word 0x0000000000000000 that must be ";
    assert!(stderr.contains(what) && stderr.contains("zero, so it was never written"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(table.contains(what) && table.contains("requests"), "{table}");
}

#[test]
fn a_compressed_trace_is_known_as_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("trace.jsonl.gz"), [0x1f, 0x8b, 8, 0]).unwrap();
    let message = refusal(&folder, &["--trace", "trace.jsonl.gz"]);
    assert!(message.contains("is gzip-compressed: decompress it first"), "{message}");
}
