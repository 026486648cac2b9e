//! The randomised test of segments, as long as it is wanted.
//!
//! `segments --seed N --operations K` runs K operations in each durability mode, or in the one that `--durability`
//! names, against a reference of what every block may hold, and prints a table of counts. The digest is the same each
//! time. The exit status is 1 when anything did not hold.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tentpeg_engine::Durability;
use tentpeg_tests::segments::{Mistake, Options, run};
use tentpeg_tools::segment::Mode;

/// Random work on segments and a stripe, with faults and losses of power, against a reference.
#[derive(Parser)]
struct Arguments {
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations in each mode.
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// The mode; each of them where none is named.
    #[arg(long)]
    durability: Option<Mode>,
    /// A deliberate mistake, to see that it is found.
    #[arg(long)]
    mistake: Option<Mistake>,
}

fn main() -> ExitCode {
    let Arguments { seed, operations, durability, mistake } = Arguments::parse();
    let modes = durability.map_or(vec![Mode::None, Mode::Fua, Mode::Flush], |mode| vec![mode]);
    for durability in modes.into_iter().map(Durability::from) {
        let started = Instant::now();
        match run(&Options { seed, operations, durability, mistake }) {
            Ok(counters) => {
                let seconds = started.elapsed().as_secs_f64();
                println!("mode {durability:?}, seed {seed}: nothing wrong in {seconds:.1} s\n{counters}\n");
            }
            Err(failure) => {
                println!("FAILED: {failure}\n{}", failure.counters);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
