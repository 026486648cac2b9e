//! Processes that are killed, as losses of power.
//!
//! `crashes --seed N --rounds K` kills K children, one after the other, and looks each time at what is left (see
//! `tentpeg_tests::crash`). The end is a table of counts; the exit status is 1 when anything did not hold.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use tentpeg_tests::crash::{Mistake, Options, live, run};

/// Kills processes that write to an image, and looks at what is left.
#[derive(Parser)]
struct Arguments {
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Processes to kill.
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Where images lie, of 6 MiB; in memory, where it can be.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// A deliberate mistake, to see that it is found.
    #[arg(long)]
    mistake: Option<Mistake>,
    /// Be the process that is killed.
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> ExitCode {
    let Arguments { seed, rounds, folder, mistake, child } = Arguments::parse();
    if let Some(order) = child {
        live(&order);
        return ExitCode::FAILURE;
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            println!("FAILED: this program does not know where it is: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("seed {seed}, {rounds} rounds");
    let started = Instant::now();
    match run(&Options { seed, rounds, program, folder, mistake }) {
        Ok(counters) => {
            println!("nothing wrong in {:.1} s\n{counters}", started.elapsed().as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("FAILED: {failure}\n{}", failure.counters);
            ExitCode::FAILURE
        }
    }
}
