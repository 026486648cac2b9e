//! Where the bytes went: the path, the device and the segment, and what each side counted.

use super::markup::{self, Table};
use crate::both_sides::Side;
use crate::report::plot::{Band, flow};
use crate::report::{Report, Value};
use crate::units::{About, Count};

const TITLE: &str = "Where the bytes went";

pub(super) fn figure(report: &Report) -> String {
    let mut names = vec![
        ("path", report.path.clone().unwrap_or_else(|| "not known".to_owned())),
        ("device", report.device.clone()),
    ];
    if !report.plots.segment.is_empty() {
        names.push(("segment", report.plots.segment.clone()));
    }
    names.extend(
        report.memory.iter().map(|memory| ("memory", format!("{}, {}", Value::Bytes(memory.bytes), memory.pages))),
    );
    let reads = Band { name: "reads", to_device: false, bytes: report.bytes_read };
    let writes = Band { name: "writes", to_device: true, bytes: report.bytes_written };
    let says = format!(
        "{} read from the device into memory, {} written from memory to the device.",
        About(reads.bytes),
        About(writes.bytes)
    );
    let about = "Bands are as thick as they carry bytes of requests that completed.";
    let drawing = flow(&says, [reads, writes]) + &markup::list(names);
    markup::figure(TITLE, about, &[], &drawing, &counts(report))
}

/// What the run, the engine and the device counted of the same.
fn counts(report: &Report) -> String {
    let count = |number: u64| Count(number).to_string();
    let row = |name: &str, numbers: [Option<u64>; 2]| {
        let cell = |number: Option<u64>| number.map_or("none asked for".to_owned(), count);
        vec![name.to_owned(), cell(numbers[0]), cell(numbers[1])]
    };
    let mut rows = vec![row("blocks, by the run", [report.reads, report.writes])];
    let sides = report.both_sides.as_ref();
    let side = |rows: &mut Vec<_>, of: fn(&Side) -> [u64; 2], ours: &str, theirs: &str| {
        let Some(sides) = sides else { return };
        rows.push(row(ours, of(&sides.issued).map(Some)));
        rows.extend(sides.seen.map(|seen| row(theirs, of(&seen).map(Some))));
    };
    side(&mut rows, |side| [side.reads, side.writes], "commands issued, by the engine", "SQEs fetched, by the device");
    rows.push(row("bytes, by the run", [report.bytes_read, report.bytes_written].map(Some)));
    side(
        &mut rows,
        |side| [side.bytes_read, side.bytes_written],
        "bytes asked for, by the engine",
        "bytes covered by PRPs, by the device",
    );
    let columns = ["", "reads", "writes"].map(str::to_owned).to_vec();
    let table = Table { caption: "Counted on both sides".to_owned(), columns, rows };
    let agree = match sides {
        Some(sides) if sides.seen == Some(sides.issued) => "Both sides agree.",
        Some(sides) if sides.seen.is_some() => "Both sides differ: see the errors.",
        _ => "The device does not count, so there is one side only.",
    };
    format!("{table}<p class=\"about\">{agree}</p>\n")
}
