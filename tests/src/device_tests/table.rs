//! The table of a run: test × tier.

use super::{Ending, Tier, list, word};

/// What a run has found beside what passed, each with its test, its tier and the reason.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What did not do as its test wants.
    pub failed: Vec<String>,
    /// What its tier could not run.
    pub skipped: Vec<String>,
}

/// Runs every test on every one of `tiers`, and prints the table as it comes, with the reasons at its end.
pub fn run_all(tiers: &[&dyn Tier]) -> Outcome {
    let mut outcome = Outcome::default();
    let heads: Vec<_> = tiers.iter().map(|tier| tier.name()).collect();
    println!("{:60} {}", "test", columns(&heads));
    for test in list() {
        let verdicts: Vec<_> = tiers.iter().map(|tier| test.run(*tier)).collect();
        println!("{:60} {}", test.name, columns(&verdicts.iter().map(word).collect::<Vec<_>>()));
        for (tier, verdict) in tiers.iter().zip(verdicts) {
            let Err(ending) = verdict else { continue };
            let line = format!("{} on {}: {ending}", test.name, tier.name());
            match ending {
                Ending::Failed(_) => outcome.failed.push(line),
                Ending::Skipped(_) => outcome.skipped.push(line),
            }
        }
    }
    let Outcome { failed, skipped } = &outcome;
    let reasons = [failed.as_slice(), skipped].concat().join("\n");
    println!("\n{reasons}\n{} failed, {} skipped", failed.len(), skipped.len());
    outcome
}

fn columns(cells: &[&str]) -> String {
    cells.iter().map(|cell| format!("{cell:16}")).collect::<Vec<_>>().join(" ")
}
