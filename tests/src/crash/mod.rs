//! A process that is killed, as a loss of power: an image whose device has its volatile write cache in the process.
//!
//! A run goes over *images* of different shapes, and on each over rounds. In each round a parent starts a child, which
//! opens the image, changes its label, and writes, zeroes, deallocates and flushes segments of every durability mode. The
//! child says what it is about to do, and what has been acknowledged. At a moment that chance draws it gets SIGKILL. What
//! its device had not written is gone then: the cache writes back about half, in any order, block by block. The parent
//! opens the image, and looks at all of it.
//!
//! What must hold: the label opens; a change of it that was acknowledged is there, and one in flight is there wholly or not
//! at all; a write that was acknowledged in a durable mode is there, byte for byte, and so is one in mode `none` that an
//! acknowledged flush, submitted after it, or a shutdown has followed; of a write in flight each block has all or nothing;
//! no segment shows what another has written. And as a control: mode `none` does lose writes.
//!
//! Chance draws the same for the same seed; the moment of the kill is the machine's as well. A deliberate [`Mistake`]
//! shows that a check can fail.

mod child;
mod counters;
mod image;
mod process;
mod record;
mod reference;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

pub use child::live;
pub use counters::Counters;

use crate::chaos::dice::Dice;
use child::Order;
use image::{Image, text};
use process::Process;
use record::Record;
use reference::Reference;

/// Rounds on one image.
const ROUNDS_OF_AN_IMAGE: u64 = 20;
/// Rounds after which mode `none` must have lost something.
const ROUNDS_TO_LOSE_IN: u64 = 20;
/// Tasks of a child at the most.
const MOST_OPERATIONS: u64 = 600;
/// Memory that files can lie in: a kill takes nothing from it, and nobody has to wait for a disk.
const MEMORY: &str = "/dev/shm";

/// What a run is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where chance begins; each image takes the next.
    pub seed: u64,
    /// Children that are killed.
    pub rounds: u64,
    /// What is started as a child, with `--child` and what to give to [`live`].
    pub program: PathBuf,
    /// Where images lie: /dev/shm where there is one, else the folder for temporary files.
    pub folder: Option<PathBuf>,
    /// A deliberate mistake, which the run must find.
    pub mistake: Option<Mistake>,
}

/// A mistake, switched on to show that the checks see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Mistake {
    /// The segments are opened in mode `none`, whatever was promised.
    PromisesTooMuch,
    /// The device completes Flush with success and does nothing.
    DeviceLies,
    /// A write is not told to the reference.
    ForgetsAWrite,
}

/// Why a run ended early.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed of the image.
    pub seed: u64,
    /// Rounds on it, with the one that failed.
    pub rounds: u64,
    /// What does not hold.
    pub what: String,
    /// What the run did and met until then.
    pub counters: Box<Counters>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, rounds, what, .. } = self;
        writeln!(f, "seed {seed}, round {rounds}: {what}")?;
        write!(f, "again, but for the moments of the kills: crashes --seed {seed} --rounds {rounds}")
    }
}

/// Runs so many rounds.
///
/// # Errors
/// [`Failure`]: something does not hold.
pub fn run(options: &Options) -> Result<Counters, Failure> {
    let mut counters = Counters::default();
    let mut seed = options.seed;
    let failure =
        |seed, rounds, what, counters: &Counters| Failure { seed, rounds, what, counters: Box::new(counters.clone()) };
    while counters.rounds < options.rounds {
        let rounds = ROUNDS_OF_AN_IMAGE.min(options.rounds - counters.rounds);
        counters.images += 1;
        let before = counters.rounds;
        run_image(options, seed, rounds, &mut counters)
            .map_err(|what| failure(seed, counters.rounds - before, what, &counters))?;
        seed = seed.wrapping_add(1);
    }
    if options.rounds >= ROUNDS_TO_LOSE_IN && counters.lost == 0 {
        let what = "no write in mode none was lost: the kills were no losses of power".to_owned();
        return Err(failure(options.seed, options.rounds, what, &counters));
    }
    Ok(counters)
}

/// Runs rounds on an image of its own.
fn run_image(options: &Options, seed: u64, rounds: u64, counters: &mut Counters) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let memory = Path::new(MEMORY);
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None if memory.is_dir() => tempfile::tempdir_in(memory),
        None => tempfile::tempdir(),
    };
    let folder = folder.map_err(text)?;
    let image = Image::draw(folder.path().join("image"), &mut dice);
    image.create(&mut dice)?;
    let mut reference = Reference::new(image.lba_size, &image.segments()?, options.mistake);
    let mut number = 1;
    for _ in 0..rounds {
        counters.rounds += 1;
        let operations = dice.between(1, MOST_OPERATIONS);
        let order = Order { image: image.clone(), seed: dice.word(), number, operations, mistake: options.mistake };
        // The last of its tasks may be in a session that goes on beyond.
        number += MOST_OPERATIONS as u32 * 2;
        let process = Process::start(&options.program, &order)?;
        until_killed(process, &mut dice, &mut reference, counters)?;
        look(&image, &mut reference, counters)?;
    }
    // What was left by the children before it each has opened so.
    image.open_for_changes()
}

/// Which records count towards a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// All.
    Any,
    /// Those of changes of the label that begin.
    Change,
    /// Those of shutdowns that begin.
    Closing,
}

/// Hears a child out, and kills it at a moment that chance draws: after a number of records, and some time.
fn until_killed(
    mut process: Process,
    dice: &mut Dice,
    reference: &mut Reference,
    counters: &mut Counters,
) -> Result<(), String> {
    let aim = [Aim::Any, Aim::Change, Aim::Closing][dice.weighed(&[60, 25, 15])];
    let most = if aim == Aim::Any { dice.pick(&[20, 200, 1_000]) } else { 4 };
    let mut left = dice.between(1, most);
    let longest = dice.pick(&[100, 1_000, 10_000]);
    let delay = Duration::from_micros(dice.below(longest));
    while let Some(record) = process.next()? {
        let counts = match (&record, aim) {
            // There will be nothing more to aim at.
            (Record::Done, _) => {
                left = left.min(1);
                true
            }
            (_, Aim::Any) | (Record::Change(_), Aim::Change) | (Record::Closing, Aim::Closing) => true,
            _ => false,
        };
        reference.hear(record, counters)?;
        if counts && left > 0 {
            left -= 1;
            if left == 0 {
                thread::sleep(delay);
                process.kill()?;
            }
        }
    }
    process.reap()
}

/// Opens what a killed child has left, and looks at all of it.
fn look(image: &Image, reference: &mut Reference, counters: &mut Counters) -> Result<(), String> {
    let segments = image.segments()?;
    reference.killed(&segments, counters)?;
    let mut lost = BTreeSet::new();
    image.read(&segments, |segment, block, words| {
        reference.check(&segments[segment], block, words, &mut lost, counters)
    })?;
    counters.lost += lost.len() as u64;
    reference.settled(counters);
    Ok(())
}
