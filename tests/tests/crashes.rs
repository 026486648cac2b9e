//! A few rounds of processes that are killed, and proof that the checks can fail.

use std::sync::{Mutex, PoisonError};

use tentpeg_tests::crash::{Counters, Failure, Mistake, Options, run};

/// One run at a time: a process that another thread starts has this one's descriptors until it executes, and with them the
/// lock of an image that is closed here meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

fn crashes(seed: u64, rounds: u64, mistake: Option<Mistake>) -> Result<Counters, Failure> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    run(&Options { seed, rounds, program: env!("CARGO_BIN_EXE_crashes").into(), folder: None, mistake })
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    let counters = crashes(1, 20, None).unwrap_or_else(|failure| panic!("{failure}\n{}", failure.counters));
    println!("{counters}");
    for (what, count) in [
        ("kills with writes in flight", counters.killed_writing),
        ("durable writes", counters.durable),
        ("changes of the label", counters.changes),
        ("blocks compared", counters.blocks),
        ("writes lost in mode none", counters.lost),
    ] {
        assert!(count > 0, "{what}: none");
    }
}

#[track_caller]
fn found(mistake: Mistake) {
    let failure = (1..=5).find_map(|seed| crashes(seed, 20, Some(mistake)).err());
    let failure = failure.unwrap_or_else(|| panic!("{mistake:?} was not found"));
    assert!(failure.what.contains("right would be"), "{mistake:?} was found as: {failure}");
}

#[test]
fn a_mode_that_promises_more_than_it_does_is_found() {
    found(Mistake::PromisesTooMuch);
}

#[test]
fn a_device_that_lies_about_flush_is_found() {
    found(Mistake::DeviceLies);
}

#[test]
fn a_write_that_the_reference_forgot_is_found() {
    found(Mistake::ForgetsAWrite);
}
