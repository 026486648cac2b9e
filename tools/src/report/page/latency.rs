//! Latency: its percentiles, and how many requests took how long.

use std::time::Duration;

use super::markup::{self, Table};
use crate::report::plot::{Axis, Mark, Plot, Tick};
use crate::report::{Distribution, LatencyRange, Report};
use crate::units::{Count, Elapsed};

const TITLE: &str = "Latency by percentile";

pub(super) fn figures(report: &Report) -> String {
    match &report.plots.latency {
        Some(latency) => percentiles(latency, report.plots.latency_of) + &histogram(latency),
        None => markup::no_figure(TITLE, "No request was timed, so there is nothing to draw."),
    }
}

fn nanoseconds(time: Duration) -> f64 {
    // The axis of times is logarithmic.
    (time.as_nanos() as f64).max(1.0)
}

/// `99.9%` of 0.999; `max` of all.
fn percent(part: f64) -> String {
    if part >= 1.0 {
        return "max".to_owned();
    }
    let text = format!("{:.4}", part * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

fn percentiles(latency: &Distribution, latency_of: &str) -> String {
    let most = latency.nines.last().map_or(1.0, |(nines, _)| *nines);
    let nines_of = |part: f64| if part >= 1.0 { most } else { (-(1.0 - part).log10()).min(most) };
    let whole_nines = (1..=most as u32).map(|nines| 1.0 - 10f64.powi(-(nines as i32)));
    let ticks = [0.0, 0.5].into_iter().chain(whole_nines);
    let ticks = ticks.map(|part| Tick { value: nines_of(part), label: percent(part) }).collect();
    let points = latency.nines.iter().map(|(nines, time)| (*nines, nanoseconds(*time))).collect();
    let dot = |(part, time): &(f64, Duration)| Mark::Dot {
        class: "all",
        at: (nines_of(*part), nanoseconds(*time)),
        says: format!("{}: {}", percent(*part), Elapsed(*time)),
    };
    let says = latency.percentiles.iter().map(|(part, time)| format!("{} {}", percent(*part), Elapsed(*time)));
    let plot = Plot {
        says: format!("Latency by percentile: {}.", says.collect::<Vec<_>>().join(", ")),
        x: Axis::linear("of the requests took no longer", most, ticks),
        y: Axis::of_times("latency", nanoseconds(latency.least), nanoseconds(latency.summary.max)),
        marks: [Mark::Line { class: "all", points }].into_iter().chain(latency.percentiles.iter().map(dot)).collect(),
    };
    let row = |(part, time): &(f64, Duration)| vec![percent(*part), Elapsed(*time).to_string()];
    let least = [vec!["min".to_owned(), Elapsed(latency.least).to_string()]];
    let table = Table {
        caption: format!("{} timed", Count(latency.summary.count)),
        columns: vec!["percentile".to_owned(), "latency".to_owned()],
        rows: least.into_iter().chain(latency.percentiles.iter().map(row)).collect(),
    };
    let about = format!(
        "Latency is of {latency_of}. Each step to the right leaves a tenth of the requests: the rare slow ones have the room. \
         A percentile is named as long as a request lies beyond it."
    );
    markup::figure(TITLE, &about, &[], &plot.svg(), &table.to_string())
}

fn histogram(latency: &Distribution) -> String {
    let count = latency.summary.count as f64;
    let share = |range: &LatencyRange| range.count as f64 * 100.0 / count;
    let time = |nanoseconds: f64| Elapsed(Duration::from_nanos(nanoseconds.round() as u64)).to_string();
    let bar = |range: &LatencyRange| {
        let says =
            format!("{} to {}: {} ({:.2}%)", time(range.from_ns), time(range.to_ns), Count(range.count), share(range));
        (range.from_ns, range.to_ns, share(range), says)
    };
    let upright = |(label, time): (&str, Duration)| Mark::Upright { at: nanoseconds(time), label: label.to_owned() };
    let summary = &latency.summary;
    let uprights = [("p50", summary.p50), ("p99", summary.p99), ("p99.9", summary.p999)].map(upright);
    let bars = Mark::Bars { class: "all", bars: latency.ranges.iter().map(bar).collect() };
    let (least, most) = match (latency.ranges.first(), latency.ranges.last()) {
        (Some(first), Some(last)) => (first.from_ns, last.to_ns),
        _ => (1.0, 1.0),
    };
    let fullest = latency.ranges.iter().map(share).fold(0.0, f64::max);
    let plot = Plot {
        says: format!("How many of {} requests took how long.", Count(latency.summary.count)),
        x: Axis::of_times("latency", least, most),
        y: Axis::from_zero("% of the requests", fullest),
        marks: [bars].into_iter().chain(uprights).collect(),
    };
    let row = |range: &LatencyRange| {
        vec![time(range.from_ns), time(range.to_ns), Count(range.count).to_string(), format!("{:.2}%", share(range))]
    };
    let table = Table {
        caption: "Ranges with any".to_owned(),
        columns: ["from", "to", "requests", "share"].map(str::to_owned).to_vec(),
        rows: latency.ranges.iter().filter(|range| range.count > 0).map(row).collect(),
    };
    let about = "Ranges are equally wide on the logarithmic axis of time.";
    markup::figure("Latency distribution", about, &[], &plot.svg(), &table.to_string())
}
