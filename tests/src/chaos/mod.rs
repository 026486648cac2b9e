//! The chaos test: a driver under random commands on drives that do everything wrong, against a reference.
//!
//! One thread, a stepped model and virtual time: a seed says all that happens, and the same seed does it again. A run
//! goes over *drives* of different shapes, some thousand commands each. On each, commands of several queue pairs are
//! in flight while faults of every kind are armed, the controller is reset without cause, the drive is pulled and put
//! back, queue pairs and regions come and go.
//!
//! What must hold is checked after every step: each command ends once; what a read returns is what the block may hold
//! (`blocks`); memory that no command names is not touched (`memory`), neither while the controller works nor after
//! its reach has ended; no doorbell is rung that must not be, no DMA leaves what is mapped (the model's violations);
//! IOVAs that were retired are not given out before the next enable; no error comes that nobody injected; and every
//! wait ends.
//!
//! Lies about the data itself (torn, misplaced or unexecuted with success reported) cannot be told by a driver from the
//! truth on a namespace without protection information, and with it not always. They are told to one command at a time,
//! and either the device's check must refuse it or the check of the payload must see it.
//!
//! A deliberate [`Mistake`] of the owner shows that a check can fail.

mod admin;
mod arsenal;
mod blocks;
mod commands;
mod counters;
mod dice;
mod drive;
mod flight;
mod function;
mod layout;
mod lies;
mod memory;
mod owner;
mod shape;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use clap::ValueEnum;

pub use function::Watched;

pub use counters::Counters;

use dice::Dice;
use drive::Drive;
use shape::Shape;

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where chance begins.
    pub seed: u64,
    /// Commands that are to end.
    pub operations: u64,
    /// No new drive is begun after that moment.
    pub deadline: Option<Instant>,
    /// A deliberate mistake, which the run must find.
    pub mistake: Option<Mistake>,
}

/// A mistake that an owner or a bus could make, switched on to show that the checks see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mistake {
    /// The memory of a read is used for something else while the command is in flight.
    ReusesMemoryInFlight,
    /// A region is dropped while a command names it.
    DropsRegionInFlight,
    /// A command that was interrupted is taken for ended a second time.
    EndsTwice,
    /// A write that was interrupted is taken for done.
    TrustsInterruptedWrites,
    /// A read is not compared with what was written, but with what was written before.
    ForgetsAWrite,
    /// Taking the function out of its address space does nothing.
    CutOffDoesNothing,
}

/// Why a run ended early.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The run's seed.
    pub seed: u64,
    /// Commands that had ended.
    pub operations: u64,
    /// What does not hold.
    pub what: String,
    /// The drive, and where it stood.
    pub state: String,
    /// What the run did and met until then.
    pub counters: Box<Counters>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, operations, what, state, .. } = self;
        write!(f, "seed {seed}, after {operations} operations: {what}\n{state}\nagain: chaos --seed {seed} --seeds 1")
    }
}

/// Runs one seed.
///
/// # Errors
/// [`Failure`]: something does not hold, or panicked.
pub fn run(options: &Options) -> Result<Counters, Failure> {
    let mut dice = Dice::new(options.seed);
    let mut counters = Counters::default();
    while counters.operations < options.operations && options.deadline.is_none_or(|deadline| Instant::now() < deadline)
    {
        let left = options.operations - counters.operations;
        let operations = dice.between(500, 3000).min(left);
        let shape = Shape::draw(&mut dice);
        let mut drive = Drive::new(shape, Dice::new(dice.word()), counters.faults, options.mistake)
            .map_err(|what| failure(options, &counters, what, "no drive".to_owned()))?;
        // A panic leaves the drive as it stood, to be looked at and nothing else.
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| drive.run(operations)));
        let what = match outcome {
            Ok(Ok(())) => {
                counters.add(&drive.counts());
                continue;
            }
            Ok(Err(what)) => what,
            Err(payload) => format!("a panic: {}", message(&*payload)),
        };
        let state = drive.to_string();
        counters.add(&drive.counts());
        return Err(failure(options, &counters, what, state));
    }
    Ok(counters)
}

fn failure(options: &Options, counters: &Counters, what: String, state: String) -> Failure {
    let counters = Box::new(counters.clone());
    Failure { seed: options.seed, operations: counters.operations, what, state, counters }
}

fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("of another type")
}
