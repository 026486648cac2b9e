//! The randomised test of segments: an engine over three devices, against a reference of what every block may hold.
//!
//! One thread, stepped models and virtual time: a seed says all that happens. A run goes over *rigs* of different shapes.
//! Each has two segments, one of them in two extents, and a stripe of three, all in one durability mode. Reads of whole
//! blocks and of any bytes, writes, zeroes, deallocations and flushes are in flight together, overlapping, while
//! commands get lost or fail, controllers die and are enabled anew, and the power goes. Their memory is the engine's, or the
//! harness's own, where it lies or through staging; and while they are in flight batches are canceled and freed, and memory
//! is unregistered.
//!
//! What must hold: a read returns what its blocks may have held while it was in flight, and touches nothing beside its
//! memory; a write that was COMPLETED in a durable mode outlives any loss of power, and in mode `none` one that a Flush
//! has followed; no task fails that nothing was done to; every task ends. What is CANCELED was given up, and has done
//! nothing; when a batch was freed, or memory unregistered, each task concerned has ended, and nothing touches the memory
//! any more.
//!
//! A deliberate [`Mistake`] shows that a check can fail.

mod areas;
mod counters;
mod flight;
mod rig;
mod shape;
mod withdrawals;

use std::fmt;
use std::panic::{self, AssertUnwindSafe};

use clap::ValueEnum;
use tentpeg_engine::Durability;

pub use counters::Counters;

use crate::chaos::dice::Dice;
use crate::chaos::message;
use rig::Rig;
use shape::Shape;

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where chance begins.
    pub seed: u64,
    /// Tasks that are to end.
    pub operations: u64,
    /// The mode of all segments.
    pub durability: Durability,
    /// A deliberate mistake, which the run must find.
    pub mistake: Option<Mistake>,
}

/// A mistake, switched on to show that the checks see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mistake {
    /// The segments are opened in mode `none`, whatever was promised.
    PromisesTooMuch,
    /// A write is not told to the reference.
    ForgetsAWrite,
    /// What a read of any bytes returns is compared from the byte before.
    ReadsBeside,
    /// A batch that is to be freed is not.
    FreesNothing,
    /// Memory that is to be unregistered is not, and is taken for unregistered.
    KeepsMemoryInFlight,
}

/// Why a run ended early.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The run's options.
    pub options: Options,
    /// What does not hold.
    pub what: String,
    /// The rig.
    pub state: String,
    /// What the run did and met until then.
    pub counters: Box<Counters>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { options, what, state, counters } = self;
        let Options { seed, operations, durability, .. } = options;
        let done = counters.operations;
        writeln!(f, "seed {seed}, mode {durability:?}, after {done} operations: {what}\n{state}")?;
        let mode = format!("{durability:?}").to_lowercase();
        write!(f, "again: segments --seed {seed} --operations {operations} --durability {mode}")
    }
}

/// Runs one seed.
///
/// # Errors
/// [`Failure`]: something does not hold, or panicked.
pub fn run(options: &Options) -> Result<Counters, Failure> {
    let mut dice = Dice::new(options.seed);
    let mut counters = Counters::default();
    let failure = |counters: &Counters, what: String, state: String| Failure {
        options: options.clone(),
        what,
        state,
        counters: Box::new(counters.clone()),
    };
    while counters.operations < options.operations {
        let operations = dice.between(2_000, 20_000).min(options.operations - counters.operations);
        let shape = Shape::draw(&mut dice);
        let state = shape.to_string();
        let rig = Rig::new(shape, Dice::new(dice.word()), options.durability, options.mistake);
        let mut rig = rig.map_err(|what| failure(&counters, what, state.clone()))?;
        // A panic leaves the rig as it stood, to be looked at and nothing else.
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| rig.run(operations)));
        counters.add(rig.counters());
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(what)) => return Err(failure(&counters, what, state)),
            Err(payload) => return Err(failure(&counters, format!("a panic: {}", message(&*payload)), state)),
        }
    }
    Ok(counters)
}
