use std::fs;

use super::*;

#[test]
fn looking_at_a_device_creates_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let uri = format!("model:path={},size=1MiB", path.display());
    let open = |uri: &str| open_to_read("info", [uri].into_iter(), OpenOptions::default());
    let refused = |uri: &str| open(uri).err().unwrap().to_string();
    let message = refused(&uri);
    assert!(message.contains("store does not exist, and `info` creates no file"), "{message}");
    let message = refused(&format!("model:path={}", path.display()));
    assert!(message.contains("creates no file"), "{message}");
    assert!(!path.exists());
    assert_eq!(to_be_created(&uri).unwrap(), Some(Geometry { block: 4096, capacity: 1 << 20 }));

    fs::write(&path, vec![0; 1 << 20]).unwrap();
    for uri in [&uri, &format!("{uri},overwrite")] {
        let (engine, _) = open(uri).unwrap();
        let segment = SegmentArgs::default().of(&engine).unwrap();
        assert_eq!(Geometry::of(segment), Geometry { block: 4096, capacity: 1 << 20 });
        assert_eq!(to_be_created(uri).unwrap(), None);
        let message = require_writable(&engine, segment).unwrap_err().to_string();
        assert!(message.contains("add `,overwrite`"), "{message}");
    }
    let engine = Engine::open(&format!("{uri},overwrite"), Default::default()).unwrap();
    require_writable(&engine, SegmentArgs::default().of(&engine).unwrap()).unwrap();
    let other = SegmentArgs { segment: Some("other".to_owned()), ..SegmentArgs::default() };
    let message = other.of(&engine).unwrap_err().to_string();
    assert_eq!(message, "there is no segment 'other': there is 'whole'");
}

#[test]
fn a_null_store_has_no_bytes_to_read() {
    let open = |uri| open_to_read("read", [uri].into_iter(), OpenOptions::default()).unwrap().0;
    require_bytes("read", &open("model:size=1MiB")).unwrap();
    let message = require_bytes("read", &open("model:size=1MiB,store=null")).unwrap_err().to_string();
    assert!(message.contains("nothing to read"), "{message}");
}

#[test]
fn what_is_gone_when_the_process_ends() {
    for (uri, in_memory) in [("model:", true), ("model:store=null", false), ("model:path=x", false), ("disk", false)] {
        assert_eq!(is_in_memory(uri), in_memory, "{uri}");
    }
    assert!(to_be_created("disk").is_err());
}
