//! Throughput over time.

use super::markup::{self, Table};
use crate::report::plot::{Axis, Mark, Plot, unit_of_time};
use crate::report::{Interval, Report};
use crate::units::{Count, Rate};

const TITLE: &str = "Throughput over time";

/// A way that bytes went.
struct Way {
    name: &'static str,
    bytes: fn(&Interval) -> u64,
    blocks: fn(&Interval) -> u64,
}

const WAYS: [Way; 2] = [
    Way { name: "reads", bytes: |interval| interval.moved.bytes_read, blocks: |interval| interval.moved.reads },
    Way { name: "writes", bytes: |interval| interval.moved.bytes_written, blocks: |interval| interval.moved.writes },
];

impl Way {
    fn rate(&self, interval: &Interval) -> f64 {
        interval.a_second((self.bytes)(interval))
    }
}

pub(super) fn figure(report: &Report) -> String {
    let intervals = report.plots.timeline.intervals();
    let ways: Vec<_> = WAYS.iter().filter(|way| intervals.iter().any(|interval| (way.bytes)(interval) > 0)).collect();
    let (Some(last), false) = (intervals.last(), ways.is_empty()) else {
        return markup::no_figure(TITLE, "No bytes were moved, so there is nothing to draw.");
    };
    let (unit, nanoseconds) = unit_of_time(last.to);
    let at = |time: std::time::Duration| time.as_nanos() as f64 / nanoseconds;
    let steps = |way: &&Way| {
        let step = |interval: &Interval| (at(interval.from), at(interval.to), way.rate(interval) / 1e9);
        Mark::Steps { class: way.name, steps: intervals.iter().map(step).collect() }
    };
    let marks: Vec<_> = ways.iter().map(steps).collect();
    let rates = ways.iter().flat_map(|way| intervals.iter().map(|interval| way.rate(interval)));
    let most = rates.fold(0.0, f64::max);
    let plot = Plot {
        says: format!("Throughput in GB/s over {:.3} {unit}, at most {}.", at(last.to), Rate::of_bytes_a_second(most)),
        x: Axis::up_to(format!("{unit} since the run began"), at(last.to)),
        y: Axis::from_zero("GB/s", most / 1e9),
        marks,
    };
    let about = format!(
        "What had completed at the end of {} intervals, each drawn as its mean. 1 GB/s is 10⁹ bytes a second.",
        Count(intervals.len() as u64)
    );
    let names: Vec<_> = ways.iter().map(|way| way.name).collect();
    markup::figure(
        TITLE,
        &about,
        &names,
        &plot.svg(),
        &(summary(&ways, &intervals) + &all(&ways, &intervals, unit, at)),
    )
}

fn summary(ways: &[&Way], intervals: &[Interval]) -> String {
    let whole = intervals.last().map(|last| last.to.as_secs_f64()).unwrap_or_default();
    let shown = |rate: f64| Rate::of_bytes_a_second(rate).to_string();
    let row = |way: &&Way| {
        let rates = || intervals.iter().map(|interval| way.rate(interval));
        let mean = intervals.iter().map(|interval| (way.bytes)(interval) as f64).sum::<f64>() / whole;
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        vec![way.name.to_owned(), shown(mean), shown(least), shown(most)]
    };
    let columns = ["", "mean", "lowest", "highest"].map(str::to_owned).to_vec();
    Table { caption: "Throughput".to_owned(), columns, rows: ways.iter().map(row).collect() }.to_string()
}

fn all(ways: &[&Way], intervals: &[Interval], unit: &str, at: impl Fn(std::time::Duration) -> f64) -> String {
    let mut columns = vec![format!("until, {unit}")];
    for way in ways {
        columns.extend([way.name.to_owned(), format!("GB/s of {}", way.name)]);
    }
    let row = |interval: &Interval| {
        let mut row = vec![format!("{:.1}", at(interval.to))];
        for way in ways {
            row.extend([Count((way.blocks)(interval)).to_string(), format!("{:.3}", way.rate(interval) / 1e9)]);
        }
        row
    };
    Table { caption: "Each interval".to_owned(), columns, rows: intervals.iter().map(row).collect() }.to_string()
}
