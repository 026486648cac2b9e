//! Runs what needs a GPU and no drive, and prints a table.
//!
//! `gpu [PART...]` runs these parts, or all; `gpu --list` names them. The exit status is 1 where something failed, and 77
//! where there is no GPU, with the reason.

use std::process::ExitCode;

use tentpeg_tests::device_tests::Ending;
use tentpeg_tests::gpu::{PARTS, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{}", PARTS.join("\n"));
        return ExitCode::SUCCESS;
    }
    let parts = if arguments.is_empty() { PARTS.map(str::to_owned).to_vec() } else { arguments };
    let mut failed = false;
    for part in parts {
        println!("== {part}");
        match run(&part, |row| println!("{row}")) {
            Ok(rows) => failed |= rows.iter().any(|row| matches!(row.outcome, Err(Ending::Failed(_)))),
            Err(Ending::Skipped(reason)) => {
                println!("skipped: {reason}");
                return ExitCode::from(77);
            }
            Err(ending) => {
                println!("{ending}");
                failed = true;
            }
        }
    }
    ExitCode::from(u8::from(failed))
}
