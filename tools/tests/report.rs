//! `--report FILE.html` as a user asks for it: the page, what is said of it, and what is refused before a run begins.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const REPLAY: [&str; 9] = ["replay", "--slots", "64", "--pool", "16", "--block", "16KiB", "--page", "4KiB"];
const BENCH: [&str; 6] = ["bench", "model:size=1MiB", "--requests", "40", "--mode", "mixed"];

fn tentpeg(folder: &TempDir, args: &[&str], more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tentpeg")).current_dir(folder).args(args).args(more).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn a_page_is_written_beside_what_is_printed_and_its_place_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("trace <b>.jsonl"), "{\"hash_ids\":[1,2,3]}\n{\"hash_ids\":[1,2,4]}\n").unwrap();
    fs::write(folder.path().join("old.html"), "<!DOCTYPE html>\nold").unwrap();
    let runs = [
        (&REPLAY[..], &["--trace", "trace <b>.jsonl", "--report", "old.html"][..], "old.html"),
        (&BENCH[..], &["--json", "--report", "new.html"][..], "new.html"),
    ];
    for (args, more, name) in runs {
        let output = tentpeg(&folder, args, more);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(stderr, format!("tentpeg: the report is in {name}\n"));
        let page = fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        assert!(page.contains(&format!("--report {name}</code>")), "the command line");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(stdout.starts_with('{'), more.contains(&"--json"), "{stdout}");
    }
    let page = fs::read_to_string(folder.path().join("old.html")).unwrap();
    assert!(page.contains("<dt>trace</dt><dd>trace &lt;b&gt;.jsonl</dd>"));
    assert!(page.contains("Its own number of slots gave 2 (33.3%)"));
    assert_eq!(names(folder.path()), ["new.html", "old.html", "trace <b>.jsonl"]);
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_anything_is_done() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("trace"), "{\"hash_ids\":[1]}\n").unwrap();
    fs::write(folder.path().join("disk"), vec![1; 1 << 20]).unwrap();
    let disk = "model:path=disk,overwrite";
    let create = "model:path=new,size=1MiB";
    let refused: [(&[&str], &[&str], &str); 8] = [
        (&REPLAY, &["--report", "none/page.html"], "--report none/page.html: the folder none does not exist"),
        (&BENCH, &["--report", "none/page.html"], "--report none/page.html: the folder none does not exist"),
        (&REPLAY, &["--report", "folder"], "--report folder is a directory"),
        (&BENCH, &["--report", "/dev/stdout"], "--report /dev/stdout is a symbolic link"),
        (&REPLAY, &["--trace", "trace", "--report", "./trace"], "./trace is there and is no page of a report"),
        (&REPLAY, &["--device", disk, "--report", "disk"], "--report disk is there and is no page of a report"),
        (&REPLAY, &["--device", create, "--report", "new"], "--report new is the device's file of this run"),
        (&["bench"], &[create, "--mode", "write", "--report", "new"], "--report new is the device's file"),
    ];
    for (args, more, what) in refused {
        let output = tentpeg(&folder, args, more);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{more:?}: {stderr}");
        assert!(stderr.contains(what) && stderr.lines().count() == 1, "{more:?}: {stderr}");
        assert_eq!(names(folder.path()), ["disk", "folder", "trace"], "{more:?}");
    }
    assert_eq!(fs::read(folder.path().join("disk")).unwrap(), vec![1; 1 << 20]);
}
