//! The chaos test, as long as it is wanted.
//!
//! `chaos --seed N --seeds K` runs seeds N to N + K - 1, each the number of operations that it is told; `--seconds S`
//! goes on with further seeds until S seconds have passed. The seed is printed before it is run, and running it alone
//! does all again as it was. After each seed a line says how far it is and with which seed to go on. The end is a table
//! of counts; the exit status is 1 when anything did not hold, or, with `--check-coverage`, when a kind of fault or a
//! step of recovery occurred too seldom.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use tentpeg_tests::chaos::{Counters, Mistake, Options, run};

/// A seed takes seconds; one that takes so long hangs where no wait is.
const MOST_TIME_OF_A_SEED: Duration = Duration::from_secs(600);

/// Random commands, faults, resets and removals on models, against a reference.
#[derive(Parser)]
struct Arguments {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations of each seed.
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// How many seeds; as many as there is time for, where --seconds is given.
    #[arg(long)]
    seeds: Option<u64>,
    /// How long.
    #[arg(long)]
    seconds: Option<u64>,
    /// Fail where a kind of fault or a step of recovery occurred too seldom.
    #[arg(long)]
    check_coverage: bool,
    /// A deliberate mistake, to see that it is found.
    #[arg(long)]
    mistake: Option<Mistake>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let begin = Instant::now();
    let deadline = arguments.seconds.map(|seconds| begin + Duration::from_secs(seconds));
    let seeds = arguments.seeds.unwrap_or(if deadline.is_some() { u64::MAX } else { 1 });
    let progress = Arc::new(AtomicU64::new(0));
    watch(Arc::clone(&progress));
    let mut total = Counters::default();
    for seed in arguments.seed..arguments.seed.saturating_add(seeds) {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        print!("seed {seed}: ");
        // A line that is not whole is of use all the same when the process ends here.
        let _ = io::stdout().flush();
        let started = Instant::now();
        let options = Options { seed, operations: arguments.operations, deadline, mistake: arguments.mistake };
        match run(&options) {
            Ok(counters) => total.add(&counters),
            Err(failure) => {
                println!("FAILED\n{failure} --operations {}", arguments.operations);
                total.add(&failure.counters);
                println!("\n{total}");
                return ExitCode::FAILURE;
            }
        }
        progress.fetch_add(1, Ordering::Relaxed);
        println!(
            "{:.1} s; {} operations in {} s so far, nothing wrong; go on with --seed {}",
            started.elapsed().as_secs_f64(),
            total.operations,
            begin.elapsed().as_secs(),
            seed + 1
        );
    }
    println!("\n{total}");
    let lacking = total.lacking();
    for (what, count, least) in &lacking {
        println!("too seldom: {what}: {count}, at least {least} are wanted");
    }
    if arguments.check_coverage && !lacking.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Ends the process when no seed has ended for a long time. Waits of the driver are bounded by the harness; this is for
/// a loop that waits for nothing.
fn watch(progress: Arc<AtomicU64>) {
    thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            thread::sleep(Duration::from_secs(1));
            let now = progress.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > MOST_TIME_OF_A_SEED {
                eprintln!("\nno end of this seed after {} s: it hangs", since.elapsed().as_secs());
                std::process::exit(3);
            }
        }
    });
}
