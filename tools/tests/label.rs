//! `tentpeg label` and `tentpeg segment` as a user runs them, on devices in files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs a command line in which `@` is `folder`.
fn run(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tentpeg"));
    command.args(line.split_whitespace().map(|word| word.replace('@', &format!("{}/", folder.display()))));
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn prints(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(folder: &Path, line: &str) -> Value {
    serde_json::from_str(&prints(folder, &format!("{line} --json"))).unwrap()
}

/// One line, which says this.
#[track_caller]
fn fails(folder: &Path, line: &str, message: &str) {
    let output = run(folder, line);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
    assert!(stderr.starts_with("tentpeg: ") && stderr.matches('\n').count() == 1, "{line}: {stderr}");
    assert!(stderr.contains(message) && output.stdout.is_empty(), "{line}: {stderr}");
}

/// A folder with labelled devices of these names.
fn labelled(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        prints(folder.path(), &format!("label create model:path=@{name},size=32MiB"));
    }
    folder
}

#[test]
fn a_label_is_made_shown_mended_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = json(folder, "label create model:path=@disk,size=32MiB");
    assert_eq!(
        (&made["segments"], &made["owner_epoch"], &made["capacity_bytes"]),
        (&0.into(), &1.into(), &(32 << 20).into())
    );
    let before = fs::read(folder.join("disk")).unwrap();
    let shown = json(folder, "label show model:path=@disk");
    assert_eq!(shown["device_uuid"], made["device_uuid"]);
    assert!(prints(folder, "label show model:path=@disk").contains("device UUID "));
    assert_eq!(json(folder, "info model:path=@disk")["label"], true);
    let info = prints(folder, "info model:path=@disk");
    assert!(info.lines().any(|line| line.starts_with("segments ") && line.ends_with(" none")), "{info}");
    fails(folder, "label create model:path=@disk,overwrite", "there is a label already");
    for command in ["create", "repair", "erase"] {
        fails(folder, &format!("label {command} model:path=@disk"), "says `overwrite`");
    }
    assert!(fs::read(folder.join("disk")).unwrap() == before, "nothing was to be written");

    let marked = json(folder, "label mark model:path=@disk,overwrite --may-be-overwritten true");
    let slots =
        marked["slots"].as_array().unwrap().iter().filter(|slot| slot.as_str().unwrap().ends_with("sequence 2"));
    assert_eq!((slots.count(), &marked["sequence"]), (2, &2.into()), "they are shown as they are now: {marked}");
    prints(folder, "label create model:path=@disk,overwrite --replace");

    // A new label is in one slot at each end.
    let slots = json(folder, "label repair model:path=@disk,overwrite");
    assert_eq!(slots["slots_written"].as_array().unwrap().len(), 2);
    assert!(prints(folder, "label repair model:path=@disk,overwrite").contains("none: each holds the label"));
    let mut torn = fs::read(folder.join("disk")).unwrap();
    torn[100] ^= 1;
    fs::write(folder.join("disk"), &torn).unwrap();
    let slots = json(folder, "label repair model:path=@disk,overwrite");
    assert_eq!(slots["slots_written"].as_array().unwrap().len(), 1);
    assert!(prints(folder, "label repair model:path=@disk,overwrite").contains("none: each holds the label"));

    prints(folder, "segment create kv --device model:path=@disk,overwrite --size 4MiB");
    let before = fs::read(folder.join("disk")).unwrap();
    fails(folder, "label erase model:path=@disk,overwrite", "has segments (kv), whose places only the label says");
    assert!(fs::read(folder.join("disk")).unwrap() == before, "nothing was to be written");
    // Nor where its label cannot be read: by a wrong block size, in a copy, or damaged in every slot.
    let unseen = "Nothing was erased: which segments would go with the label cannot be seen then";
    fails(folder, "label erase model:path=@disk,overwrite,lba=512", unseen);
    fs::copy(folder.join("disk"), folder.join("copy")).unwrap();
    fails(folder, "label erase model:path=@copy,overwrite", unseen);
    prints(folder, "label erase model:path=@copy,overwrite --with-segments");
    assert!(fs::read(folder.join("disk")).unwrap() == before, "nothing was to be written");
    prints(folder, "label erase model:path=@disk,overwrite --with-segments");
    fails(folder, "label show model:path=@disk", "there is no label");
    fails(folder, "label erase model:path=@disk,overwrite", "there is no label");
    assert_eq!(json(folder, "info model:path=@disk")["label"], false);
}

#[test]
fn a_label_is_not_for_every_device() {
    let folder = labelled(&["disk"]);
    let folder = folder.path();
    fails(folder, "label create model:size=32MiB", "gone when this command ends");
    fails(folder, "segment list --device model:path=@none", "or create it by `tentpeg label create`");
    fails(folder, "label create model:store=null,size=32MiB", "gone when this command ends");
    fails(folder, "label create model:path=@small,size=1MiB", "a label needs");
    fails(folder, "label show model:path=@none", "creates no file");
    fails(folder, "label create model:path=@new,size=32MiB --alignment 1000", "alignment is 1000: it must be");
    assert!(!folder.join("small").exists() && !folder.join("new").exists());
    let other = "--node 00000000-0000-0000-0000-000000000009";
    let before = fs::read(folder.join("disk")).unwrap();
    for line in ["label erase", "label repair", "label create --replace"] {
        fails(folder, &format!("{line} model:path=@disk,overwrite {other}"), "belongs to node");
    }
    fails(
        folder,
        &format!("segment create kv --device model:path=@disk,overwrite --size 4MiB {other}"),
        "belongs to node",
    );
    assert!(fs::read(folder.join("disk")).unwrap() == before);
}

#[test]
fn what_is_read_and_written_is_a_segment() {
    let folder = labelled(&["disk"]);
    let folder = folder.path();
    fs::write(folder.join("in"), [1; 8192]).unwrap();
    let before = fs::read(folder.join("disk")).unwrap();
    for line in ["write --offset 0 --input @in", "bench --mode write --requests 10", "replay --slots 8 --device"] {
        fails(folder, &format!("{line} model:path=@disk,overwrite"), "create one by `tentpeg segment create`");
    }
    assert!(fs::read(folder.join("disk")).unwrap() == before);
    let to = "--device model:path=@disk,overwrite";
    prints(folder, &format!("segment create a {to} --size 4MiB"));
    prints(folder, "write model:path=@disk,overwrite --offset 1MiB --input @in");
    prints(folder, &format!("segment create b {to} --size 4MiB"));
    fails(folder, "write model:path=@disk,overwrite --offset 0 --input @in", "add --segment with one of 'a', 'b'");
    fails(
        folder,
        "read model:path=@disk --offset 0 --length 4KiB --segment c",
        "there is no segment 'c': there is 'a', 'b'",
    );
    let read = |segment: &str| {
        let line = format!("read model:path=@disk --segment {segment} --offset 1MiB --length 8KiB");
        run(folder, &line).stdout
    };
    assert_eq!((read("a"), read("b")), (vec![1; 8192], vec![0; 8192]));
    fails(
        folder,
        "read model:path=@disk --segment a --offset 4MiB --length 4KiB",
        "end past the 4194304 bytes that there are",
    );
    let whole = run(folder, "read model:path=@disk --whole-device --offset 0 --length 4KiB").stdout;
    assert!(whole.starts_with(b"TENTPEG\0"));
    let output = run(folder, "bench model:path=@disk,overwrite --segment b --mode mixed --requests 100 --json");
    assert!(output.status.success());
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.starts_with("tentpeg: note: model:") && note.contains("another host is not fenced"), "{note}");
    assert_eq!(read("a"), vec![1; 8192]);
    prints(folder, "replay --device model:path=@disk,overwrite --segment b --slots 8 --block 64KiB --requests 20");
    let many = "replay --device model:path=@disk,overwrite --segment b --slots 9000 --requests 20";
    fails(folder, many, "segment 'b' of model:");
    let info = json(folder, "info model:path=@disk");
    assert_eq!((&info["fences_other_hosts"], &info["owner_epoch"]), (&false.into(), &1.into()));
    assert_eq!(info["segments"][0], "a (4MiB, none)");
}

#[test]
fn a_device_is_taken_over_when_that_is_asked_for() {
    let folder = labelled(&["disk"]);
    let folder = folder.path();
    prints(folder, "segment create kv --device model:path=@disk,overwrite --size 4MiB");
    fs::write(folder.join("in"), [1; 4096]).unwrap();
    let write = "write model:path=@disk,overwrite --offset 0 --input @in";
    let other = "--node 00000000-0000-0000-0000-000000000009";
    fails(folder, &format!("{write} {other}"), "take the device over with --take-over");
    prints(folder, &format!("{write} {other} --take-over"));
    fails(folder, write, "belongs to node 00000000-0000-0000-0000-000000000009");
    prints(folder, "read model:path=@disk --offset 0 --length 4KiB --output @out");
    assert_eq!(json(folder, "label show model:path=@disk")["owner_epoch"], 2);
    prints(folder, "label repair model:path=@disk,overwrite --take-over");
    prints(folder, "segment rename kv cache --device model:path=@disk,overwrite --take-over");
    assert_eq!(json(folder, "label show model:path=@disk")["owner_epoch"], 3);
    let marked = json(folder, "label mark model:path=@disk,overwrite --may-be-overwritten true");
    assert_eq!(marked["may_be_overwritten"], true);
    let marked = json(folder, "label mark model:path=@disk,overwrite --may-be-overwritten false");
    assert_eq!(marked["may_be_overwritten"], false);
}

#[test]
fn what_is_foreign_is_shown_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut bytes = vec![0; 32 << 20];
    bytes[..6].copy_from_slice(b"LUKS\xBA\xBE");
    bytes[6..8].copy_from_slice(&[0, 1]);
    fs::write(folder.join("disk"), &bytes).unwrap();
    let found = json(folder, "info model:path=@disk");
    assert!(found["foreign_contents"][0].as_str().unwrap().contains("LUKS"), "{found}");
    for more in ["", " --replace"] {
        fails(folder, &format!("label create model:path=@disk,overwrite{more}"), "is not written, for it holds LUKS");
    }
    // What nobody knows is not written over without a word either.
    fs::write(folder.join("data"), vec![7; 32 << 20]).unwrap();
    fails(
        folder,
        "label create model:path=@data,overwrite",
        "has something else in the place of a label (front slot 0,",
    );
    assert!(fs::read(folder.join("data")).unwrap() == vec![7; 32 << 20]);
    prints(folder, "label create model:path=@data,overwrite --replace");
    fs::write(folder.join("in"), [1; 4096]).unwrap();
    fails(folder, "write model:path=@disk,overwrite --offset 0 --input @in", "is not written, for it holds LUKS");
    assert!(fs::read(folder.join("disk")).unwrap() == bytes);
}

#[test]
fn a_segment_lives_on_one_device() {
    let folder = labelled(&["disk"]);
    let folder = folder.path();
    let (on, to) = ("--device model:path=@disk", "--device model:path=@disk,overwrite");
    let made = json(folder, &format!("segment create kv {to} --size 4MiB --durability flush"));
    assert_eq!((&made["capacity_bytes"], &made["durability"]), (&(4 << 20).into(), &"flush".into()));
    fails(folder, &format!("segment create kv {to} --size 4MiB"), "there is a segment kv already");
    fails(folder, &format!("segment create other {to} --size 1GiB"), "are free in whole units of 1MiB");
    fails(folder, &format!("segment create other {to} --size 1000"), "capacity is 1000: it must be a multiple");
    fails(folder, &format!("segment create other {to} --size 1MiB --chunk 64KiB"), "--chunk is for a stripe");
    fails(folder, &format!("segment create other {on} --size 1MiB"), "says `overwrite`");
    fails(folder, &format!("segment show other {on}"), "there is no segment 'other'");

    prints(folder, &format!("segment link kv @marker {on}"));
    let marker = fs::metadata(folder.join("marker")).unwrap();
    assert_eq!((marker.len(), marker.permissions().mode() & 0o777), (4 << 20, 0o444));

    assert_eq!(json(folder, &format!("segment check @marker {on}"))["name"], "kv");
    let output = run(folder, &format!("segment resize kv {to} --size 8MiB"));
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && note.contains("for each run tentpeg segment link kv FILE --device"), "{note}");
    fails(folder, &format!("segment check @marker {on}"), "make it again by `tentpeg segment link`");
    assert_eq!(json(folder, &format!("segment link kv @marker {on}"))["replaced"], true);
    assert_eq!(fs::metadata(folder.join("marker")).unwrap().len(), 8 << 20);
    prints(folder, &format!("segment resize kv {to} --size 4MiB --marker @marker"));
    assert_eq!(fs::metadata(folder.join("marker")).unwrap().len(), 4 << 20);
    fs::write(folder.join("no-marker"), [7; 8192]).unwrap();
    prints(folder, &format!("segment create beside {to} --size 1MiB"));
    prints(folder, &format!("segment link beside @others {on}"));
    for (marker, error) in
        [("none", "cannot open"), ("no-marker", "is no marker"), ("others", "of segment 'beside', and not of 'kv'")]
    {
        fails(folder, &format!("segment resize kv {to} --size 8MiB --marker @marker --marker @{marker}"), error);
        fails(folder, &format!("segment rename kv other {to} --marker @{marker}"), error);
    }
    prints(folder, &format!("segment delete beside {to}"));
    let shown = json(folder, &format!("segment check @marker {on}"));
    assert_eq!((&shown["name"], &shown["capacity_bytes"]), (&"kv".into(), &(4 << 20).into()), "nothing was changed");
    prints(folder, "label create model:path=@elsewhere,size=32MiB");
    fails(folder, "segment check @marker --device model:path=@elsewhere", "which is not among those named: name it");
    prints(folder, &format!("segment rename kv cache {to} --marker @marker"));
    let shown = json(folder, &format!("segment check @marker {on}"));
    assert_eq!((&shown["uuid"], &shown["generation"]), (&made["uuid"], &4.into()));
    assert_eq!(json(folder, &format!("segment durability cache fua {to}"))["durability"], "fua");
    prints(folder, &format!("segment durability cache flush {to}"));
    let list = prints(folder, &format!("segment list {on}"));
    assert!(list.starts_with("name   capacity") && list.contains("cache  4MiB      flush"), "{list}");

    prints(folder, &format!("segment delete cache {to}"));
    fails(folder, &format!("segment delete cache {to}"), "there is no segment 'cache'");
    fails(folder, &format!("segment check @marker {on}"), "which does not exist: remove it");
    assert_eq!(json(folder, &format!("segment list {on}"))["segments"], Value::Array(Vec::new()));
    prints(folder, &format!("segment create other {to} --size 4MiB"));
    fails(folder, &format!("segment link other @marker {on}"), "is the marker of segment 'cache'");
}

#[test]
fn names_are_shown_as_they_can_be_seen_and_not_all_of_many() {
    let folder = labelled(&["disk"]);
    let folder = folder.path();
    let (on, to) = ("--device model:path=@disk", "--device model:path=@disk,overwrite");
    prints(folder, &format!("segment create \u{202e}it's {to} --size 1MiB"));
    assert!(prints(folder, &format!("segment list {on}")).contains("\n\\u{202e}it\\'s  1MiB"));
    assert_eq!(json(folder, &format!("segment list {on}"))["segments"][0]["name"], "\u{202e}it's");
    assert_eq!(json(folder, &format!("segment show \u{202e}it's {on}"))["name"], "\u{202e}it's");
    let output = run(folder, &format!("segment resize \u{202e}it's {to} --size 2MiB"));
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(note.contains("segment link '\u{202e}it'\\''s' FILE --device"), "{note}");
    for number in 1..=8 {
        prints(folder, &format!("segment create s{number} {to} --size 4KiB"));
    }
    let read = "read model:path=@disk --offset 0 --length 4KiB";
    fails(folder, read, "'s6', 's7', and 1 more, which `tentpeg segment list` shows");
}

#[test]
fn a_segment_is_striped_over_several_devices() {
    let folder = labelled(&["a", "b", "c"]);
    let folder = folder.path();
    let on = "--device model:path=@a --device model:path=@b --device model:path=@c";
    let to = on.replace("--device model:path=@", "--device model:overwrite,path=@");
    fails(folder, &format!("segment create wide {to} --size 6MiB"), "add --chunk");
    fails(folder, &format!("segment create wide {to} --size 6000KiB --chunk 128KiB"), "a multiple of the chunk");
    fails(
        folder,
        "segment create wide --device model:overwrite,path=@a --device model:overwrite,path=@a --chunk 4KiB --size 6MiB",
        "name each device once",
    );
    fails(folder, "segment list --device model:path=@a --device model:path=@a", "name each device once");
    let made = json(folder, &format!("segment create wide {to} --size 6MiB --chunk 128KiB"));
    assert_eq!((&made["members"], &made["chunk_bytes"]), (&3.into(), &131_072.into()));
    let output = run(folder, &format!("segment resize wide {to} --size 7MiB"));
    let note = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && note.matches("another host is not fenced").count() == 1, "{note}");
    assert!(["a,", "b,", "c,"].iter().all(|disk| note.contains(&format!("/{disk}"))), "{note}");
    fails(folder, &format!("segment resize wide {to} --size 999MiB"), "/a: 330MiB are wanted, and 26MiB are free");
    prints(folder, &format!("segment rename wide broad {to}"));
    let shown = json(folder, &format!("segment show broad {on}"));
    assert_eq!((&shown["uuid"], &shown["capacity_bytes"]), (&made["uuid"], &(7 << 20).into()));
    prints(folder, &format!("segment link broad @marker {on}"));
    assert_eq!(fs::metadata(folder.join("marker")).unwrap().len(), 7 << 20);

    let two = "--device model:path=@a --device model:path=@b";
    fails(folder, &format!("segment show broad {two}"), "of its 3 members these are missing: 2");
    let list = json(folder, &format!("segment list {two}"));
    assert_eq!(list["not_opened"][0]["name"], "broad");
    fails(folder, "segment delete broad --device model:overwrite,path=@a", "is incomplete");

    fails(folder, &format!("segment check @marker {two}"), "of its 3 members these are missing: 2");
    assert_eq!(json(folder, &format!("segment durability broad flush {to}"))["durability"], "flush");
    fs::write(folder.join("in"), vec![7; 1 << 20]).unwrap();
    let with = "--with model:overwrite,path=@b --with model:overwrite,path=@c";
    prints(folder, &format!("write model:overwrite,path=@a {with} --offset 6MiB --input @in"));
    let with = "--with model:path=@b --with model:path=@c";
    let read = run(folder, &format!("read model:path=@a {with} --segment broad --offset 6MiB --length 1MiB"));
    assert!(read.stdout == vec![7; 1 << 20], "{}", String::from_utf8_lossy(&read.stderr));
    let missing = "read model:path=@a --segment broad --offset 0 --length 4KiB";
    fails(folder, missing, "of its 3 members these are missing: 1");
    // What is left is not taken for what was meant.
    prints(folder, "segment create plain --device model:overwrite,path=@a --size 1MiB");
    let unnamed = "write model:overwrite,path=@a --offset 0 --input @in";
    fails(
        folder,
        unnamed,
        "'plain' is not the only segment: add --segment with its name, for the striped segment broad",
    );
    prints(folder, &format!("{unnamed} --segment plain"));
    prints(folder, "label create model:path=@d,size=32MiB");
    prints(folder, "segment create broad --device model:overwrite,path=@d --size 1MiB");
    let mixed = "--device model:overwrite,path=@d --device model:overwrite,path=@a";
    fails(folder, &format!("segment delete broad {mixed}"), "2 segments are called 'broad'");
    fails(folder, &format!("segment rename broad plain {mixed}"), "2 segments are called 'broad'");
    prints(folder, "segment rename broad other --device model:overwrite,path=@d");
    for taken in ["plain", "broad"] {
        let refused = format!("there is a segment '{taken}' on these devices already");
        fails(folder, &format!("segment rename other {taken} {mixed}"), &refused);
    }
    assert_eq!(json(folder, "segment list --device model:path=@d")["segments"][0]["name"], "other");
    prints(folder, &format!("segment delete plain {mixed}"));

    fails(folder, &format!("segment forget broad {to}"), "has lost a member: remove it by `tentpeg segment delete`");
    fails(folder, &format!("segment forget none {to}"), "there is no segment 'none'");
    let unsure = "Nothing was removed: they may only not have been named";
    fails(folder, "segment forget broad --device model:overwrite,path=@c", unsure);
    prints(folder, "segment forget broad --device model:overwrite,path=@c --members-are-lost");
    assert_eq!(json(folder, "segment list --device model:path=@c")["not_opened"], Value::Array(Vec::new()));
    fails(folder, &format!("segment delete broad {to}"), "is broken");
    prints(folder, &format!("segment forget broad {to}"));
    assert_eq!(json(folder, &format!("segment list {on}"))["segments"], Value::Array(Vec::new()));
}
