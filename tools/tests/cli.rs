//! The command as a user runs it: its exit status, and what it says where.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A command line in which `@` is `folder`.
fn tentpeg(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tentpeg"));
    command.args(line.split_whitespace().map(|word| word.replace('@', &format!("{}/", folder.display()))));
    command
}

fn run(folder: &Path, line: &str) -> Output {
    tentpeg(folder, line).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// What it prints on success.
fn prints(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn json(folder: &Path, line: &str) -> serde_json::Value {
    serde_json::from_str(&prints(folder, line)).unwrap()
}

/// Waits until a child has a thread of this name: its signal handlers are there then.
fn wait_for_thread(child: &Child, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let has = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name);
    loop {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        if tasks.flatten().any(has) {
            return;
        }
        assert!(Instant::now() < deadline, "no thread {name}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn it_says_what_it_is_and_how_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_eq!(prints(folder, "--version"), concat!("tentpeg ", env!("CARGO_PKG_VERSION"), "\n"));
    // However the lines are broken.
    let help = |line: &str| prints(folder, line).split_whitespace().collect::<Vec<_>>().join(" ");
    let told = help("--help");
    assert!(told.contains("model:size=4GiB") && told.contains("GB/s is 10^9 bytes a second"), "{told}");
    for command in ["info", "read", "write", "bench"] {
        let text = help(&format!("{command} --help"));
        assert!(text.contains("Example") && text.contains(&format!(" tentpeg {command} model:")), "{text}");
    }
    for line in ["", "fly", "bench --depth", "bench --depth x", "bench --block 4KB", "read model:", "info"] {
        let output = run(folder, line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{line}");
    }
    for (line, message) in [
        ("bench --depth -1", "from 1 to 65536"),
        ("bench --depth x", "from 1 to 65536"),
        ("bench --batch 0", "from 1 to 65536"),
        ("bench --requests 99999999999999999999", "from 1 to 18446744073709551615"),
        ("bench --seed -5", "from 0 to 18446744073709551615"),
        ("bench --read-percent 101", "from 0 to 100"),
        ("bench --block -4KiB", "write a whole number of bytes"),
        ("replay --slots -1", "from 1 to 4294967295"),
        ("replay --page -1", "write a whole number of bytes"),
        ("read model: --offset -1 --length 4096", "write a whole number of bytes"),
        ("read model:", "not provided: --offset <SIZE> --length <SIZE>"),
        ("info --fly", "unexpected argument '--fly' found"),
    ] {
        let output = run(folder, line);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(stderr.starts_with("tentpeg: ") && stderr.matches('\n').count() == 1, "{line}: {stderr}");
        assert!(stderr.contains(message) && !stderr.contains("--help"), "{line}: {stderr}");
    }
}

#[test]
fn an_error_is_one_line_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("disk"), [7; 8192]).unwrap();
    fs::write(folder.join("in"), [1; 4097]).unwrap();
    for (line, message) in [
        ("info model:size=4GB", "GiB is probably meant"),
        ("info model:size=1GiB,path=@new", "`info` creates no file"),
        ("info model:path=@new", "`info` creates no file"),
        ("info /dev/null", "names no device"),
        ("info model:path=/dev/null", "must be a regular file"),
        ("info cuda:x", "'cuda:x' names no GPU"),
        // Without CUDA it says what of the driver is missing, and with it how many GPUs the driver shows.
        ("info cuda:4294967295", "driver"),
        ("read model:path=@disk --offset 1 --length 4096", "--offset 1B: the device has blocks of 4096 bytes"),
        ("read model:path=@disk --offset 0 --length 1TiB", "end past the 8192 bytes that there are"),
        ("read model:path=@disk --offset 0 --length 4KiB --output @in", "give --force"),
        ("write model:path=@disk,overwrite --offset 0 --input @in", "give --pad"),
        ("write model:path=@disk --offset 0 --input @in --pad", "add `,overwrite`"),
        ("write model:path=@new,size=4KiB --offset 0 --input @in --pad", "end past the 4096 bytes that there are"),
        ("bench model:path=@disk --mode write", "add `,overwrite`"),
        ("bench model:path=@new,size=1MiB --block 1KiB", "a multiple of the device's block of 4096 bytes"),
    ] {
        let output = run(folder, line);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(stderr.starts_with("tentpeg: ") && stderr.matches('\n').count() == 1, "{line}: {stderr}");
        assert!(stderr.contains(message) && output.stdout.is_empty(), "{line}: {stderr}");
    }
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["disk", "in"]);
    assert_eq!(fs::read(folder.join("disk")).unwrap(), [7; 8192]);
}

#[test]
fn info_is_a_table_or_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let table = prints(folder.path(), "info model:size=64MiB");
    for row in
        ["model number ", "capacity              64.0 MiB (67,108,864 B)\n", "MDTS ", "critical warnings     none\n"]
    {
        assert!(table.contains(row), "{row}: {table}");
    }
    let object = json(folder.path(), "info model:size=64MiB --json");
    assert_eq!((&object["capacity_bytes"], &object["block_bytes"]), (&(64 << 20).into(), &4096.into()));
}

#[test]
fn a_file_goes_through_pipes_to_a_device_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let bytes: Vec<u8> = (0..3_000_000u64).map(|at| ((at * 2_654_435_761) >> 13) as u8).collect();
    let mut write = tentpeg(folder, "write model:path=@disk,size=8MiB --offset 64KiB --length 3000000 --pad");
    let mut child = write.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        output.status.success() && stderr.starts_with("tentpeg: wrote 2.86 MiB (3,002,368 B) at 64KiB"),
        "{stderr}"
    );
    assert!(stderr.contains("4 issued, 4 SQEs fetched"), "three chunks and a flush: {stderr}");

    let output = run(folder, "read model:path=@disk --offset 64KiB --length 3002368");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stdout[..bytes.len()] == bytes && output.stdout[bytes.len()..].iter().all(|byte| *byte == 0));

    let file = fs::File::open(folder.join("disk")).unwrap();
    let output = tentpeg(folder, "write model:size=8MiB --offset 0").stdin(file).output().unwrap();
    let stderr = text(&output.stderr);
    assert!(
        output.status.success() && stderr.contains("8.00 MiB") && stderr.contains("note: "),
        "a file says how long it is: {stderr}"
    );

    let mut short = tentpeg(folder, "write model:path=@disk,overwrite --offset 0 --length 8KiB");
    let mut child = short.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&[1; 5000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "tentpeg: standard input ended after 5000 of 8192 bytes\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_bench_counts_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let line = "bench model:size=8MiB --requests 2000 --mode mixed --depth 32";
    let object = json(folder.path(), &format!("{line} --json"));
    assert_eq!(object["requests"], 2000);
    assert_eq!(object["reads"].as_u64().unwrap() + object["writes"].as_u64().unwrap(), 2000);
    for (ours, theirs) in [
        ("commands_issued", "sqes_fetched"),
        ("bytes_read_asked_for", "bytes_read_walked"),
        ("bytes_written_asked_for", "bytes_written_walked"),
    ] {
        assert!(object[ours].as_u64().unwrap() > 0 && object[ours] == object[theirs], "{ours}: {object}");
    }
    assert!(object["set_up_ns"].as_u64().unwrap() > 0 && object["peak_resident_bytes"].as_u64().unwrap() > 0);
    let table = prints(folder.path(), line);
    for label in ["requests", "GB/s", "blocks/s", "latency p99.9", "SQEs fetched", "memory used", "path of the bytes"] {
        assert!(table.contains(label), "{label}: {table}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("disk"), vec![1; 1 << 20]).unwrap();
    for (line, status) in [
        ("info model:size=1MiB", 0),
        ("bench model:size=1MiB --requests 10 --json", 0),
        // Here the bytes themselves are lost.
        ("read model:path=@disk --offset 0 --length 1MiB", 1),
    ] {
        let mut command = tentpeg(folder, line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{line}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
    }
}

#[test]
fn an_interrupt_ends_a_bench_with_the_table_so_far() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["INT", "TERM"] {
        let mut command = tentpeg(folder.path(), "bench model:size=8MiB --time 10min");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_thread(&child, "tentpeg-lane");
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(table.contains("interrupted") && table.contains("SQEs fetched"), "{table}");
    }
}

#[test]
fn an_interrupt_ends_a_write_whose_input_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("disk"), [7; 8192]).unwrap();
    let mut command = tentpeg(folder, "write model:path=@disk,overwrite --offset 0 --length 8KiB");
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Held open, so that the input does not end.
    let silent = child.stdin.take();
    wait_for_thread(&child, "tentpeg-input");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    drop(silent);
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("interrupted after 0 of 8192 bytes"), "{}", text(&output.stderr));
    assert_eq!(fs::read(folder.join("disk")).unwrap(), [7; 8192]);
}

#[test]
fn an_interrupt_ends_a_read_that_nobody_takes_and_a_write_that_nobody_gives() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("disk"), vec![1; 1 << 20]).unwrap();
    let mut command = tentpeg(folder, "read model:path=@disk --offset 0 --length 1MiB");
    // More than a pipe holds, and nobody reads it.
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_for_thread(&child, "tentpeg-output");
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let made = Command::new("mkfifo").arg(folder.join("fifo")).status().unwrap();
    assert!(made.success());
    let mut command = tentpeg(folder, "write model:path=@new,size=1MiB --offset 0 --length 8KiB --input @fifo");
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for_thread(&child, "tentpeg-input");
    signal(&child, "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!folder.join("new").exists());
}

#[test]
fn a_file_that_may_not_grow_is_an_error_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = format!(
        "ulimit -f 16384; exec {} read model:size=64MiB --offset 0 --length 32MiB --output out",
        env!("CARGO_BIN_EXE_tentpeg")
    );
    let output = Command::new("bash").args(["-c", &line]).current_dir(folder).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("out: File too large"), "{stderr}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_device_whose_file_the_host_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::File::create(folder.join("disk")).unwrap().set_len(32 << 20).unwrap();
    for other in ["label", "blank"] {
        fs::File::create(folder.join(other)).unwrap().set_len(32 << 20).unwrap();
    }
    let create = tentpeg(folder, "label create model:path=@label,overwrite").output().unwrap();
    assert!(create.status.success(), "{}", text(&create.stderr));
    for (line, how) in [
        ("label create model:path=blank,overwrite", "Write Fault"),
        ("label repair model:path=label,overwrite", "Write Fault"),
        ("label mark model:path=label,overwrite --may-be-overwritten true", "Write Fault"),
        ("segment create kv --device model:path=label,overwrite --size 4KiB", "Write Fault"),
        (
            "write model:path=disk,overwrite --offset 20MiB --input /dev/zero --length 4KiB",
            "may have been written in part",
        ),
        ("bench model:path=disk,overwrite --mode write --pattern random --requests 1000 --depth 1", "Write Fault"),
    ] {
        let line = format!("ulimit -f 16384; exec {} {line}", env!("CARGO_BIN_EXE_tentpeg"));
        let output = Command::new("bash").args(["-c", &line]).current_dir(folder).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(how) && stderr.contains(": File too large"), "{line}: {stderr}");
    }
}

#[test]
fn what_a_terminal_would_act_on_is_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let output = tentpeg(folder.path(), "info").arg("model:path=\u{1b}[31m").output().unwrap();
    assert!(text(&output.stderr).contains("\\u{1b}[31m does not exist"), "{}", text(&output.stderr));
}
