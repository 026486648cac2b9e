use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::both_sides::Side;

fn full() -> Report {
    let mut latency = Latency::default();
    (1..=1000).for_each(|us| latency.record(Duration::from_micros(us)));
    let side = Side {
        commands: 3000,
        reads: 1000,
        writes: 2000,
        bytes_read: 131_072_000,
        bytes_written: 262_144_000,
        flushes: 0,
    };
    let mut report = Report {
        command: "replay",
        device: "model:size=1GiB".into(),
        requests: Some(1000),
        hits: Some(Hits { hits: 1000, of: 3000 }),
        reads: Some(1000),
        writes: Some(2000),
        bytes_read: 131_072_000,
        bytes_written: 262_144_000,
        elapsed: Duration::from_secs(2),
        set_up: Some(Duration::from_micros(5300)),
        latency: latency.summary(),
        rows: vec![Row::both("slots", "slots", Value::Count(4096))],
        memory: Some(MemoryUsed { bytes: 64 << 20, pages: "ordinary pages; no hugepages free".into() }),
        peak_resident: Some(600 << 20),
        path: Some("host memory".to_owned()),
        ..Report::default()
    };
    report.add_both_sides(BothSides { issued: side, seen: Some(side), ..BothSides::default() });
    report
}

#[test]
fn a_table_for_people() {
    let expected = "\
device               model:size=1GiB
requests             1,000
blocks               3,000
hits                 1,000 (33.3%)
reads                1,000
writes               2,000
bytes                375 MiB (393,216,000 B)
time                 2.00 s
set-up to first I/O  5.30 ms
GB/s                 0.197 GB/s
blocks/s             1,500
latency p50          500 µs
latency p99          990 µs
latency p99.9        999 µs
latency max          1.00 ms
slots                4,096
commands             3,000 issued, 3,000 SQEs fetched
bytes of commands    393,216,000 asked for, 393,216,000 covered by PRPs
memory used          ordinary pages; no hugepages free
memory size          64.0 MiB (67,108,864 B)
peak resident        600 MiB (629,145,600 B)
path of the bytes    host memory
errors               0
";
    assert_eq!(full().table(), expected);
}

#[test]
fn an_object_for_programs() {
    let text = full().json();
    assert_eq!(text.matches('\n').count(), 1, "one line");
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, number) in [
        ("requests", 1000),
        ("blocks", 3000),
        ("hits", 1000),
        ("bytes", 393_216_000),
        ("bytes_read", 131_072_000),
        ("bytes_written", 262_144_000),
        ("elapsed_ns", 2_000_000_000),
        ("set_up_ns", 5_300_000),
        ("latency_max_ns", 1_000_000),
        ("slots", 4096),
        ("commands_issued", 3000),
        ("sqes_fetched", 3000),
        ("bytes_read_asked_for", 131_072_000),
        ("bytes_read_walked", 131_072_000),
        ("bytes_written_asked_for", 262_144_000),
        ("bytes_written_walked", 262_144_000),
        ("peak_resident_bytes", 629_145_600),
        ("errors", 0),
    ] {
        assert_eq!(object[key], number, "{key}");
    }
    assert_eq!(object["bytes_per_second"], 196_608_000.0);
    assert_eq!(object["interrupted"], false);
    assert_eq!(object["error_messages"], serde_json::json!([]));
    let p50 = object["latency_p50_ns"].as_u64().unwrap();
    assert!((500_000..=500_500).contains(&p50), "{p50}");
}

#[test]
fn no_key_stands_twice() {
    let rows = full().all_rows();
    let keys: Vec<_> = rows.iter().filter_map(|row| row.key).collect();
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "{keys:?}");
    assert!(keys.iter().all(|key| key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')));
}

#[test]
fn nothing_done_in_no_time_has_no_rate_and_no_percentile() {
    let report = Report {
        command: "bench",
        hits: Some(Hits { hits: 0, of: 0 }),
        reads: Some(0),
        latency: Latency::default().summary(),
        interrupted: true,
        ..Report::default()
    };
    let (table, json) = (report.table(), report.json());
    for text in [&table, &json] {
        assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("null"), "{text}");
        assert!(!text.contains("latency") && !text.contains("GB/s") && !text.contains("second"), "{text}");
    }
    assert!(table.contains("\ninterrupted  yes: "), "{table}");
    assert!(json.contains(r#""interrupted":true"#));
    let idle = Report { elapsed: Duration::from_nanos(1), reads: Some(0), ..Report::default() };
    assert!(idle.table().contains("blocks/s  0.0\n"), "{}", idle.table());
}

#[test]
fn one_side_alone_is_shown_as_one() {
    let sides =
        BothSides { issued: Side { commands: 5, bytes_read: 20480, ..Side::default() }, ..BothSides::default() };
    let mut report = Report::default();
    report.add_both_sides(sides);
    assert!(report.table().contains("commands         5\nbytes asked for  20,480\n"), "{}", report.table());
    assert!(!report.json().contains("fetched") && !report.json().contains("walked"));
}

#[test]
fn errors_are_counted_past_those_kept() {
    let mut errors = Errors::default();
    assert_eq!(errors.summary(), None);
    errors.add("first");
    assert_eq!(errors.summary().unwrap(), "first");
    (1..100).for_each(|number| errors.add(number.to_string()));
    assert_eq!((errors.count(), errors.messages().len()), (100, 16));
    assert_eq!(errors.summary().unwrap(), "first (and 99 more)");
    let report = Report { errors, ..Report::default() };
    assert!(report.table().contains("errors  100\n        first\n        1\n"), "{}", report.table());
}

#[test]
fn a_text_cannot_break_the_object() {
    let row = Row::both("text", "text", Value::Text("a \"quoted\"\nline \u{7}".into()));
    let object: serde_json::Value = serde_json::from_str(&json(&[row])).unwrap();
    assert_eq!(object["text"], "a \"quoted\"\nline \u{7}");
}

#[test]
fn what_took_longer_than_an_hour_is_still_the_maximum() {
    let mut latency = Latency::default();
    latency.record(Duration::from_secs(7200));
    latency.record_many(Duration::ZERO, 999);
    latency.record_many(Duration::from_secs(1), 0);
    let summary = latency.summary().unwrap();
    assert_eq!((summary.count, summary.p50, summary.max), (1000, Duration::ZERO, Duration::from_secs(7200)));
}

proptest! {
    #[test]
    fn percentiles_are_near_and_in_order(mut values in prop::collection::vec(0u64..10_000_000_000, 1..200)) {
        let mut latency = Latency::default();
        values.iter().for_each(|ns| latency.record(Duration::from_nanos(*ns)));
        let summary = latency.summary().unwrap();
        values.sort_unstable();
        let exact = values[(values.len() - 1) / 2] as f64;
        let p50 = summary.p50.as_nanos() as f64;
        prop_assert!((p50 - exact).abs() <= exact / 1000.0 + 1.0, "{} for {}", p50, exact);
        prop_assert!(summary.p50 <= summary.p99 && summary.p99 <= summary.p999 && summary.p999 <= summary.max);
        prop_assert_eq!(summary.max.as_nanos() as u64, *values.last().unwrap());
    }
}
