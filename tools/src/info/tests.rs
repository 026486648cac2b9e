use std::collections::HashSet;

use super::*;

fn rows(uri: &str) -> Vec<Row> {
    run(&Sysfs::below("/nonexistent"), &InfoArgs { device: uri.to_owned(), json: false }).unwrap()
}

#[test]
fn a_text_of_the_form_of_a_gpu_names_one_or_is_refused() {
    for wrong in ["cuda:", "cuda:x", "cuda:+1", "cuda:-1", "cuda:99999999999", "cuda:0,size=1GiB"] {
        let error = run(&Sysfs::system(), &InfoArgs { device: wrong.to_owned(), json: false }).unwrap_err();
        let expected = format!("'{wrong}' names no GPU: write cuda: and the GPU's number, such as cuda:0");
        assert_eq!(error.to_string(), expected);
    }
}

fn value<'a>(rows: &'a [Row], key: &str) -> &'a Value {
    &rows.iter().find(|row| row.key == Some(key)).unwrap_or_else(|| panic!("no {key}")).value
}

#[test]
fn what_a_model_says_of_itself() {
    let rows = rows("model:size=64MiB,lba=512,mdts=5,queues=3");
    for (key, expected) in [
        ("capacity_bytes", Value::Bytes(64 << 20)),
        ("blocks", Value::Count((64 << 20) / 512)),
        ("block_bytes", Value::Bytes(512)),
        ("mdts_bytes", Value::Bytes(128 << 10)),
        ("max_command_bytes", Value::Bytes(128 << 10)),
        ("queue_pairs", Value::Count(3)),
        ("writable", Value::Flag(true)),
        ("keeps_data", Value::Flag(true)),
        ("critical_warnings", Value::Texts(Vec::new())),
        ("media_errors", Value::Large(0)),
    ] {
        assert_eq!(*value(&rows, key), expected, "{key}");
    }
    assert!(matches!(value(&rows, "model_number"), Value::Text(text) if !text.is_empty()));
    let keys: Vec<_> = rows.iter().filter_map(|row| row.key).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
}

#[test]
fn what_does_not_apply_is_left_out() {
    let null = rows("model:size=1MiB,store=null,mdts=0");
    assert!(null.iter().all(|row| row.key != Some("mdts_bytes")));
    assert_eq!(*value(&null, "keeps_data"), Value::Flag(false));
    assert_eq!(identifier(&[0; 8]), None);
    assert_eq!(identifier(&[0, 0x1a, 0xff]).unwrap(), "001aff");
    let mut namespace = IdentifyNamespace::default();
    assert_eq!(boundary(&namespace, 4096), None);
    namespace.noiob = 32;
    assert_eq!(boundary(&namespace, 4096).unwrap().value, Value::Bytes(128 << 10));
}

#[test]
fn warnings_and_temperature_are_in_words() {
    use tentpeg_driver::spec::log::CriticalWarning;
    let mut smart = SmartLog {
        critical_warning: CriticalWarning::TEMPERATURE | CriticalWarning::READ_ONLY,
        composite_temperature: 300.into(),
        data_units_read: u128::MAX.into(),
        ..SmartLog::default()
    };
    let table = crate::report::table(&health(&smart));
    assert!(table.contains("critical warnings     temperature, read only\n"), "{table}");
    assert!(table.contains("27 °C"), "{table}");
    smart.composite_temperature = 0.into();
    assert!(!crate::report::table(&health(&smart)).contains("temperature  "), "not reported");
}

#[test]
fn foreign_contents_are_in_words() {
    assert!(crate::report::table(&foreign(&[])).contains("foreign contents  none\n"));
    let contents = |name, at| ForeignContents { name, places: vec![at], label: None, uuid: None };
    let found = [contents("XFS", 0), contents("md RAID 1.0", 8192)];
    let rows = foreign(&found);
    assert!(crate::report::table(&rows).contains("XFS at byte 0; md RAID 1.0 at byte 8192\n"));
    let texts = ["XFS at byte 0", "md RAID 1.0 at byte 8192"].map(str::to_owned);
    assert_eq!(*value(&rows, "foreign_contents"), Value::Texts(texts.to_vec()));
}
