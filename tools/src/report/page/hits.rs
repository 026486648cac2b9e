//! Hits by the number of slots.

use super::markup::{self, Table};
use crate::replay::hit_curve::HitPoint;
use crate::report::plot::{Axis, Mark, Plot, Tick};
use crate::report::{Report, Value};
use crate::units::{About, Count};

const TITLE: &str = "Hit rate by the number of slots";

pub(super) fn figure(report: &Report) -> String {
    let Some(curve) = &report.plots.hit_curve else {
        return match report.hits {
            Some(_) => markup::no_figure(TITLE, "Hits were not counted: the run's errors say why."),
            // A run without a cache.
            None => String::new(),
        };
    };
    let named = || curve.points.iter().filter(|point| point.named);
    let (Some(first), Some(last)) = (curve.points.first(), curve.points.last()) else { return String::new() };
    if curve.blocks == 0 {
        return markup::no_figure(TITLE, "The requests have no blocks, so there is nothing to draw.");
    }
    let percent = |point: &HitPoint| point.hits as f64 * 100.0 / curve.blocks as f64;
    let times = |point: &HitPoint| format!("{}×", trimmed(point.slots as f64 / curve.slots as f64));
    let says = |point: &HitPoint| format!("{} slots: {:.1}%", Count(point.slots), percent(point));
    let dot = |point: &HitPoint| Mark::Dot {
        class: if point.slots == curve.slots { "this" } else { "all" },
        at: (point.slots as f64, percent(point)),
        says: says(point),
    };
    let line = curve.points.iter().map(|point| (point.slots as f64, percent(point))).collect();
    let upright = Mark::Upright { at: curve.slots as f64, label: "this run".to_owned() };
    let line = Mark::Line { class: "all", points: line };
    let ticks = named().map(|point| Tick { value: point.slots as f64, label: Count(point.slots).to_string() });
    let plot = Plot {
        says: format!("Hit rate by the number of slots. {}.", named().map(says).collect::<Vec<_>>().join(", ")),
        x: Axis::log("slots", first.slots as f64, last.slots as f64, ticks.collect()),
        y: Axis::from_zero("% of the blocks", percent(last)),
        marks: [upright, line].into_iter().chain(named().map(dot)).collect(),
    };
    let row = |point: &HitPoint| {
        let store = report
            .plots
            .block_bytes
            .map_or(String::new(), |bytes| About(bytes.saturating_mul(point.slots)).to_string());
        vec![
            Count(point.slots).to_string(),
            times(point),
            store,
            Count(point.hits).to_string(),
            format!("{:.1}%", percent(point)),
        ]
    };
    let table = Table {
        caption: format!("Of {} blocks", Count(curve.blocks)),
        columns: ["slots", "of this run", "store", "hits", "hit rate"].map(str::to_owned).to_vec(),
        rows: named().map(row).collect(),
    };
    let about = format!(
        "Counted exactly from the stack distances of {}, by the rule of the replay: least recently used, and a hit only behind \
         hits. Its own number of slots gave {}.",
        if curve.requests == 1 { "1 request".to_owned() } else { format!("{} requests", Count(curve.requests)) },
        Value::Share { part: curve.hits(), of: curve.blocks },
    );
    markup::figure(TITLE, &about, &[], &plot.svg(), &table.to_string())
}

/// Up to three digits behind the point.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
