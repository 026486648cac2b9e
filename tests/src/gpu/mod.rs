//! What is run with a GPU and no drive: memory as CUDA has it, the ways to it, copies, and the model that moves bytes to
//! and from it.
//!
//! A part is a list of checks, or of measurements, on one [`Rig`]. Where there is no GPU every part is skipped, with the
//! reason.

mod copies;
mod engine;
mod foreign;
mod kv;
mod model;
mod places;
mod rig;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tentpeg_driver::gpu::{Cuda, Gpu};

use crate::device_tests::Ending;
pub use rig::Rig;

/// The outcome of one check: what it saw, or why it did not pass.
pub type Outcome = Result<String, Ending>;

/// A line of the table.
#[derive(Debug)]
pub struct Row {
    /// What was done.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(seen) => write!(f, "{:<58} {seen}", self.name),
            Err(ending) => write!(f, "{:<58} {ending}", self.name),
        }
    }
}

/// A check with its name.
type Check = (String, Box<dyn Fn(&mut Rig) -> Outcome>);

fn check(name: impl Into<String>, run: impl Fn(&mut Rig) -> Outcome + 'static) -> Check {
    (name.into(), Box::new(run))
}

/// A failure with this text unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Ending> {
    if holds { Ok(()) } else { Err(Ending::Failed(otherwise())) }
}

/// The names of all parts, in the order in which they are run.
pub const PARTS: [&str; 8] =
    ["places", "copies", "kv", "model", "engine", "measure-copies", "measure-model", "measure-words"];

/// Runs a part on GPU 0, and tells each row when it is there.
///
/// # Errors
/// [`Ending::Skipped`] where there is no GPU, [`Ending::Failed`] where there is no such part.
pub fn run(part: &str, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>, Ending> {
    let checks = match part {
        "places" => places::checks(),
        "copies" => copies::checks(),
        "kv" => kv::checks(),
        "model" => model::checks(),
        "engine" => engine::checks(),
        "measure-words" => engine::measurements(),
        "measure-copies" => copies::measurements(),
        "measure-model" => model::measurements(),
        _ => return Err(Ending::Failed(format!("there is no part {part}: there are {}", PARTS.join(", ")))),
    };
    let absent = |error: &dyn fmt::Display| Ending::Skipped(error.to_string());
    let cuda = Cuda::load().map_err(|error| absent(&error))?;
    let gpu = Gpu::open(&cuda, 0).map_err(|error| absent(&error))?;
    let mut rig = Rig::new(gpu)?;
    let mut rows = Vec::new();
    for (name, run) in checks {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&mut rig))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Ending::Failed(format!("it panicked: {}", text.unwrap_or("with no text"))))
        });
        let row = Row { name, outcome };
        tell(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// The middle one of five runs.
fn median(mut run: impl FnMut() -> Result<f64, Ending>) -> Result<f64, Ending> {
    let mut runs = (0..5).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by(f64::total_cmp);
    Ok(runs[2])
}
