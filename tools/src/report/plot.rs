//! Plots as SVG inside a page: axes, lines, steps, bars and dots.
//!
//! Colours are the page's, by class, so that one drawing serves a light and a dark page. Each plot is drawn twice, wide and narrow, with
//! text of the same size; the page shows the one for which there is room. Coordinates come from [`Axis::place`], which is never outside
//! the frame and never anything but a number, whatever is drawn.

mod flow;
mod scale;

pub(super) use flow::{Band, flow};
pub(super) use scale::{Axis, Tick, unit_of_time};

use super::page::markup::Text;

/// About the width of a character of 12 px; more than most fonts need.
const CHARACTER: f64 = 7.2;
/// The least distance between two labels one above the other.
const LINE: f64 = 14.0;

/// What is drawn in a frame, in the units of the axes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mark {
    /// A value that holds from one place to another, with the area below it.
    Steps {
        /// Its class.
        class: &'static str,
        /// From where to where, side by side, and the value.
        steps: Vec<(f64, f64, f64)>,
    },
    /// A line from point to point.
    Line {
        /// Its class.
        class: &'static str,
        /// The points.
        points: Vec<(f64, f64)>,
    },
    /// Bars from the low end of the axis.
    Bars {
        /// Their class.
        class: &'static str,
        /// From where to where, the value, and what is shown to who points at it.
        bars: Vec<(f64, f64, f64, String)>,
    },
    /// A point, with what is shown to who points at it.
    Dot {
        /// Its class.
        class: &'static str,
        /// Where.
        at: (f64, f64),
        /// What it is.
        says: String,
    },
    /// A line upwards, with a label above the frame where there is room.
    Upright {
        /// Where.
        at: f64,
        /// What it is.
        label: String,
    },
}

/// A plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plot {
    /// What it shows, in a sentence for who does not see it.
    pub(super) says: String,
    /// To the right.
    pub(super) x: Axis,
    /// Upwards.
    pub(super) y: Axis,
    /// What is in it, later ones above earlier ones.
    pub(super) marks: Vec<Mark>,
}

/// A size that plots are drawn in.
struct Sheet {
    class: &'static str,
    width: f64,
    height: f64,
}

const WIDE: Sheet = Sheet { class: "wide", width: 720.0, height: 300.0 };
const NARROW: Sheet = Sheet { class: "narrow", width: 340.0, height: 250.0 };

impl Plot {
    /// The drawings of both sizes.
    pub(super) fn svg(&self) -> String {
        [WIDE, NARROW].iter().map(|sheet| sheet.svg(&self.says, &Frame::of(self, sheet).draw(self, sheet))).collect()
    }
}

impl Sheet {
    fn svg(&self, says: &str, content: &str) -> String {
        let Self { class, width, height } = self;
        let says = Text(says);
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{says}\">\n{content}</svg>\n"
        )
    }
}

/// Where the axes lie on a sheet.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Frame {
    fn of(plot: &Plot, sheet: &Sheet) -> Self {
        let longest = plot.y.ticks.iter().map(|tick| width(&tick.label)).fold(0.0, f64::max);
        let has_labels_above = plot.marks.iter().any(|mark| matches!(mark, Mark::Upright { .. }));
        Self {
            left: (longest + 10.0).min(sheet.width / 3.0),
            right: sheet.width - 14.0,
            top: if has_labels_above { 40.0 } else { 24.0 },
            bottom: sheet.height - 44.0,
        }
    }

    fn x(&self, axis: &Axis, value: f64) -> f64 {
        self.left + axis.place(value) * (self.right - self.left)
    }

    fn y(&self, axis: &Axis, value: f64) -> f64 {
        self.bottom - axis.place(value) * (self.bottom - self.top)
    }

    fn draw(&self, plot: &Plot, sheet: &Sheet) -> String {
        let marks = plot.marks.iter().map(|mark| self.mark(plot, mark));
        let drawn = marks.chain([self.labels_above(plot, sheet)]).collect::<String>();
        self.y_axis(&plot.y) + &self.x_axis(&plot.x, sheet) + &drawn
    }

    fn y_axis(&self, axis: &Axis) -> String {
        let mut svg = text("title", 0.0, 12.0, "start", &axis.title);
        let mut last = f64::INFINITY;
        for tick in &axis.ticks {
            let y = self.y(axis, tick.value);
            svg += &line("grid", (self.left, y), (self.right, y));
            if last - y >= LINE {
                svg += &text("tick", self.left - 6.0, y + 4.0, "end", &tick.label);
                last = y;
            }
        }
        svg
    }

    fn x_axis(&self, axis: &Axis, sheet: &Sheet) -> String {
        let mut svg = String::new();
        let mut free_from = f64::NEG_INFINITY;
        for tick in &axis.ticks {
            let x = self.x(axis, tick.value);
            svg += &line("grid", (x, self.top), (x, self.bottom));
            let half = width(&tick.label) / 2.0;
            let middle = x.clamp(half, (sheet.width - half).max(half));
            if middle - half >= free_from {
                svg += &text("tick", middle, self.bottom + 19.0, "middle", &tick.label);
                free_from = middle + half + CHARACTER;
            }
        }
        svg += &line("axis", (self.left, self.bottom), (self.right, self.bottom));
        svg + &text("title", (self.left + self.right) / 2.0, self.bottom + 38.0, "middle", &axis.title)
    }

    /// The labels of upright lines, from left to right, without those for which there is no room.
    fn labels_above(&self, plot: &Plot, sheet: &Sheet) -> String {
        let mut free_from = 0.0;
        let label = |mark: &Mark| {
            let Mark::Upright { at, label } = mark else { return None };
            let half = width(label) / 2.0;
            let middle = self.x(&plot.x, *at).clamp(half, (sheet.width - half).max(half));
            (middle - half >= free_from).then(|| {
                free_from = middle + half + CHARACTER;
                text("above", middle, self.top - 6.0, "middle", label)
            })
        };
        plot.marks.iter().filter_map(label).collect()
    }

    fn mark(&self, plot: &Plot, mark: &Mark) -> String {
        let at = |(x, y): (f64, f64)| (self.x(&plot.x, x), self.y(&plot.y, y));
        match mark {
            Mark::Steps { class, steps } => {
                let corners = steps.iter().flat_map(|(from, to, y)| [at((*from, *y)), at((*to, *y))]);
                let corners: Vec<_> = corners.collect();
                let (Some((first, _)), Some((last, _))) = (corners.first(), corners.last()) else {
                    return String::new();
                };
                let area = format!("{}L{last:.1} {:.1}L{first:.1} {:.1}Z", path(&corners), self.bottom, self.bottom);
                format!(
                    "<path class=\"area {class}\" d=\"{area}\"/>\n<path class=\"line {class}\" d=\"{}\"/>\n",
                    path(&corners)
                )
            }
            Mark::Line { class, points } => {
                let points: Vec<_> = points.iter().map(|point| at(*point)).collect();
                format!("<path class=\"line {class}\" d=\"{}\"/>\n", path(&points))
            }
            Mark::Bars { class, bars } => {
                let bar = |(from, to, value, says): &(f64, f64, f64, String)| {
                    let ((left, top), (right, _)) = (at((*from, *value)), at((*to, *value)));
                    // A gap between bars, as long as there is room for one.
                    let width = (right - left - 1.0).max(0.8);
                    let height = self.bottom - top;
                    format!(
                        "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>\n",
                        Text(says)
                    )
                };
                bars.iter().map(bar).collect()
            }
            Mark::Dot { class, at: place, says } => {
                let (x, y) = at(*place);
                let says = Text(says);
                format!(
                    "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{says}</title></circle>\n"
                )
            }
            Mark::Upright { at, .. } => {
                let x = self.x(&plot.x, *at);
                line("upright", (x, self.top), (x, self.bottom))
            }
        }
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let step = |(index, (x, y)): (usize, &(f64, f64))| format!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' });
    points.iter().enumerate().map(step).collect()
}

fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n")
}

fn text(class: &str, x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n", Text(text))
}

fn width(label: &str) -> f64 {
    label.chars().count() as f64 * CHARACTER
}

#[cfg(test)]
mod tests;
