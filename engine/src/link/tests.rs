use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

use proptest::prelude::*;
use rustix::fs::XattrFlags;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

const GIB: u64 = 1 << 30;

fn marker(segment: &str, uuid: u128, capacity: u64) -> Marker {
    Marker { device: Uuid::from_u128(0xD), segment: segment.to_owned(), uuid: Uuid::from_u128(uuid), capacity }
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kv");
    (folder, path)
}

/// Nothing half-made is left beside it.
#[track_caller]
fn is_alone(folder: &TempDir, names: &[&str]) {
    let mut left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, names);
}

#[test]
fn a_marker_is_what_tent_looks_at_and_says_what_it_is() {
    let (folder, path) = place();
    let kv = marker("kv", 1, 4 * GIB);
    let made = create(&path, &kv).unwrap();
    assert!(!made.replaced);
    let metadata = fs::symlink_metadata(&path).unwrap();
    assert!(metadata.is_file() && metadata.len() == 4 * GIB && metadata.blocks() * 512 < 1 << 20, "{metadata:?}");
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o444);
    let mut head = vec![0; 512];
    File::open(&path).unwrap().read_exact_at(&mut head, 0).unwrap();
    let text = String::from_utf8(head).unwrap();
    let json = format!(
        "{{\"version\":1,\"device\":\"{}\",\"segment\":\"kv\",\"uuid\":\"{}\",\"capacity\":4294967296}}",
        kv.device, kv.uuid
    );
    assert_eq!(text.trim_end_matches('\0'), format!("TENTPEG-SEGMENT\n{json}\n"));
    if made.attribute {
        let mut attribute = vec![0; 4096];
        let len = rustix::fs::getxattr(&path, ATTRIBUTE, &mut attribute[..]).unwrap();
        assert_eq!(&attribute[..len], text.trim_end_matches('\0').as_bytes());
    }
    assert_eq!(read(&path).unwrap(), kv);
    assert_eq!(resolve(&path, |marker| Some(marker.clone())).unwrap(), kv);
    is_alone(&folder, &["kv"]);
}

#[test]
fn it_is_right_again_after_a_resize_and_a_rename() {
    let (folder, path) = place();
    create(&path, &marker("kv", 1, GIB)).unwrap();
    let now = marker("cache", 1, 2 * GIB);
    let error = resolve(&path, |_| Some(now.clone())).unwrap_err();
    assert!(matches!(error, LinkError::Size { size: GIB, capacity, .. } if capacity == 2 * GIB), "{error}");
    assert!(error.to_string().contains("make it again"), "{error}");
    assert!(refresh(&path, &now).unwrap().replaced);
    assert_eq!((resolve(&path, |_| Some(now.clone())).unwrap(), read(&path).unwrap()), (now.clone(), now.clone()));
    // Smaller too, and by the other name of the same act.
    assert!(create(&path, &marker("cache", 1, GIB)).unwrap().replaced);
    assert_eq!(fs::metadata(&path).unwrap().len(), GIB);
    // A name alone is for people.
    assert_eq!(resolve(&path, |_| Some(marker("other", 1, GIB))).unwrap().segment, "other");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o444);
    is_alone(&folder, &["kv"]);
    let error = refresh(&folder.path().join("none"), &now).unwrap_err();
    assert!(
        matches!(&error, LinkError::Kernel { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
}

#[test]
fn one_that_names_a_segment_that_is_gone_is_refused() {
    let (_folder, path) = place();
    create(&path, &marker("kv\u{1b}", 1, GIB)).unwrap();
    let message = resolve(&path, |_| None).unwrap_err().to_string();
    assert!(message.contains("segment 'kv\\u{1b}' (00000000-0000-0000-0000-000000000001)"), "{message}");
    assert!(message.contains("does not exist: remove it"), "{message}");
    // One of the same name is another segment.
    assert!(matches!(resolve(&path, |_| Some(marker("kv", 2, GIB))), Err(LinkError::Gone { .. })));
}

#[test]
fn what_is_not_ours_is_never_replaced() {
    let (folder, path) = place();
    let kv = marker("kv", 1, GIB);
    let exists = |says: &str| {
        for outcome in [create(&path, &kv), refresh(&path, &kv)] {
            match outcome {
                Err(error @ LinkError::Exists { .. }) => assert!(error.to_string().contains(says), "{error}"),
                other => panic!("{other:?}"),
            }
        }
    };
    for contents in ["", "precious", "TENTPEG-SEGMENT\n", "TENTPEG-SEGMENT\n{\"version\":1}\n"] {
        fs::write(&path, contents).unwrap();
        exists("is no marker of a segment");
        assert_eq!(fs::read_to_string(&path).unwrap(), contents);
    }
    fs::remove_file(&path).unwrap();
    symlink(folder.path().join("elsewhere"), &path).unwrap();
    exists("is a link");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    exists("is a folder");
    fs::remove_dir(&path).unwrap();

    create(&path, &marker("other", 2, GIB)).unwrap();
    let error = create(&path, &kv).unwrap_err();
    assert!(matches!(&error, LinkError::OtherSegment { segment, .. } if segment == "other"), "{error}");
    assert_eq!(read(&path).unwrap(), marker("other", 2, GIB));
    is_alone(&folder, &["kv"]);
}

/// A marker that was spoilt, by `spoil`, and why it is not read.
fn spoilt(spoil: impl FnOnce(&File)) -> LinkError {
    let (_folder, path) = place();
    create(&path, &marker("kv", 1, GIB)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    spoil(&OpenOptions::new().write(true).open(&path).unwrap());
    let error = read(&path).unwrap_err();
    assert!(resolve(&path, |marker| Some(marker.clone())).is_err());
    error
}

#[test]
fn what_was_changed_afterwards_is_refused() {
    let size = spoilt(|file| file.set_len(GIB - 1).unwrap());
    assert!(matches!(size, LinkError::Size { size, capacity: GIB, .. } if size == GIB - 1), "{size}");
    let garbage = spoilt(|file| file.write_all_at(b"x", 0).unwrap());
    assert!(matches!(garbage, LinkError::NotMarker { .. }), "{garbage}");
    let cut = spoilt(|file| file.set_len(30).unwrap());
    assert!(cut.to_string().contains("second line does not end"), "{cut}");
    let newer = spoilt(|file| file.write_all_at(b"{\"version\":2,\"else\":[]}\n", 16).unwrap());
    assert!(matches!(newer, LinkError::Newer { version: 2, .. }), "{newer}");
    let (_folder, path) = place();
    if create(&path, &marker("kv", 1, GIB)).unwrap().attribute {
        let other = spoilt(|file| {
            rustix::fs::fsetxattr(file, ATTRIBUTE, b"TENTPEG-SEGMENT\n{}\n", XattrFlags::empty()).unwrap();
        });
        assert!(matches!(other, LinkError::Disagrees { .. }), "{other}");
        // A copy without it is as good.
        rustix::fs::removexattr(&path, ATTRIBUTE).unwrap();
        read(&path).unwrap();
    }
    assert!(matches!(read(Path::new("/dev/null")), Err(LinkError::NotMarker { .. })));
    assert!(matches!(read(Path::new("/")), Err(LinkError::NotMarker { .. })));
}

#[test]
fn sizes_that_no_file_can_have() {
    let (folder, path) = place();
    let largest = i64::MAX as u64;
    for capacity in [largest + 1, u64::MAX] {
        let error = create(&path, &marker("kv", 1, capacity)).unwrap_err();
        assert!(matches!(error, LinkError::TooLarge { capacity: named, .. } if named == capacity), "{error}");
    }
    for capacity in [largest, largest - 511, 1 << 62, 20 << 40] {
        match create(&path, &marker("kv", 1, capacity)) {
            Ok(_) => {
                assert_eq!((fs::metadata(&path).unwrap().len(), read(&path).unwrap().capacity), (capacity, capacity))
            }
            Err(LinkError::TooLarge { capacity: named, .. }) => assert_eq!(named, capacity),
            Err(error) => panic!("{error}"),
        }
    }
    let (_folder, path) = place();
    for (capacity, name) in [(0, "kv"), (100, "kv"), (GIB, "k".repeat(5000).as_str())] {
        let error = create(&path, &marker(name, 1, capacity)).unwrap_err();
        assert!(matches!(error, LinkError::TooSmall { .. }), "{error}");
        assert!(!path.exists());
    }
    // One block is enough.
    create(&path, &marker("kv", 1, 512)).unwrap();
    assert_eq!(read(&path).unwrap().capacity, 512);
    drop(folder);
}

#[test]
fn makers_at_the_same_time_leave_one_whole_marker() {
    let (folder, path) = place();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8u64)
            .map(|number| {
                let path = &path;
                // Two segments, in two sizes.
                scope.spawn(move || create(path, &marker("kv", u128::from(number % 2), GIB + number / 2 % 2 * GIB)))
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    let won = read(&path).unwrap();
    for (number, outcome) in outcomes.iter().enumerate() {
        let same = won.uuid == Uuid::from_u128(number as u128 % 2);
        match outcome {
            Ok(_) => assert!(same),
            Err(LinkError::OtherSegment { .. }) => assert!(!same),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(outcomes.iter().flatten().filter(|made| !made.replaced).count(), 1);
    is_alone(&folder, &["kv"]);
}

proptest! {
    #[test]
    fn nothing_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), begins: bool) {
        let bytes = if begins { [b"TENTPEG-SEGMENT\n", &bytes[..]].concat() } else { bytes };
        prop_assert!(Marker::parse(&bytes, Path::new("x")).is_err());
    }

    #[test]
    fn any_name_is_read_as_it_was_written(name in ".{0,120}", uuid: u128, capacity in 4096u64..) {
        let marker = marker(&name, uuid, capacity);
        let header = marker.header().unwrap();
        prop_assert_eq!(header.iter().filter(|byte| **byte == b'\n').count(), 2);
        prop_assert_eq!(Marker::parse(&header, Path::new("x")).unwrap(), marker);
    }
}
