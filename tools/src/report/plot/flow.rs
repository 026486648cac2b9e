//! Where the bytes went, as a drawing: memory, the device, and a band between them for each way, as thick as it carries bytes.

use super::{NARROW, Sheet, WIDE, text, width};
use crate::report::page::markup::Text;
use crate::units::About;

/// The thickest band.
const THICKEST: f64 = 34.0;
/// The thinnest band that carries anything.
const THINNEST: f64 = 2.0;
/// The height of a drawing.
const HEIGHT: f64 = 176.0;
/// The length of an arrow's head.
const HEAD: f64 = 14.0;

/// One way of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) struct Band {
    /// Its class, and what it is called.
    pub(in crate::report) name: &'static str,
    /// Whether it goes to the device.
    pub(in crate::report) to_device: bool,
    /// What it carries.
    pub(in crate::report) bytes: u64,
}

/// The drawings of both sizes.
pub(in crate::report) fn flow(says: &str, bands: [Band; 2]) -> String {
    let most = bands.iter().map(|band| band.bytes).max().unwrap_or_default().max(1) as f64;
    let sheet = |sheet: Sheet| {
        let sheet = Sheet { height: HEIGHT, ..sheet };
        // Room for the word in each box, the rest for what is between.
        let side = width("host memory").max(sheet.width / 5.0);
        let boxes = place(0.5, side, "memory") + &place(sheet.width - side - 0.5, side, "device");
        let between = (side + 10.0, sheet.width - side - 10.0);
        let bands = bands.iter().zip([58.0, 132.0]).map(|(band, middle)| draw(band, between, middle, most));
        sheet.svg(says, &(boxes + &bands.collect::<String>()))
    };
    [WIDE, NARROW].map(sheet).concat()
}

fn place(x: f64, side: f64, name: &str) -> String {
    let height = HEIGHT - 1.0;
    let rect =
        format!("<rect class=\"place\" x=\"{x:.1}\" y=\"0.5\" width=\"{side:.1}\" height=\"{height:.1}\" rx=\"8\"/>\n");
    rect + &text("place-name", x + side / 2.0, HEIGHT / 2.0 + 4.0, "middle", name)
}

fn draw(band: &Band, (left, right): (f64, f64), middle: f64, most: f64) -> String {
    let Band { name, to_device, bytes } = *band;
    let label = format!("{name} {}", About(bytes));
    let label = text("band-name", (left + right) / 2.0, middle - THICKEST / 2.0 - 8.0, "middle", &label);
    if bytes == 0 {
        let (class, dots) = (format!("band-none {name}"), (left, middle));
        return label + &super::line(&class, dots, (right, middle));
    }
    let half = (bytes as f64 / most * THICKEST).max(THINNEST) / 2.0;
    let (from, to) = if to_device { (left, right) } else { (right, left) };
    let neck = if to_device { to - HEAD } else { to + HEAD };
    let wing = half + 5.0;
    let points = [
        (from, middle - half),
        (neck, middle - half),
        (neck, middle - wing),
        (to, middle),
        (neck, middle + wing),
        (neck, middle + half),
        (from, middle + half),
    ];
    let says = format!("{name}: {bytes} bytes");
    let says = Text(&says);
    label + &format!("<path class=\"band {name}\" d=\"{}Z\"><title>{says}</title></path>\n", super::path(&points))
}
