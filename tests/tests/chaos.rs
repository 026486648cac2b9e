//! A slice of the chaos test, and proof that each of its checks can fail.

use tentpeg_tests::chaos::{Counters, Failure, Mistake, Options, run};

/// What one seed of the slice does: some drives.
const OPERATIONS: u64 = 1000;

fn options(seed: u64, mistake: Option<Mistake>) -> Options {
    Options { seed, operations: OPERATIONS, deadline: None, mistake }
}

#[test]
fn a_few_seeds_find_nothing_wrong() {
    let mut total = Counters::default();
    for seed in [1, 2, 3, 4] {
        match run(&options(seed, None)) {
            Ok(counters) => total.add(&counters),
            Err(failure) => panic!("{failure} --operations {OPERATIONS}"),
        }
    }
    println!("{total}");
    assert!(total.operations >= 4 * OPERATIONS);
    // A slice is too short for each kind of fault to come often, but each part of the test has had its turn.
    for (what, count) in [
        ("blocks compared", total.blocks_checked),
        ("pages checked", total.pages_checked),
        ("retries", total.retries),
        ("interrupted", total.interrupted),
        ("lies seen", total.lies_seen),
        ("aborts", total.aborts),
        ("resets", total.resets),
        ("removals", total.cut_off),
        ("recoveries", total.restarts),
    ] {
        assert!(count > 0, "{what}: none");
    }
}

/// A failure that is found once is found again: a seed says all that happens.
#[test]
fn a_seed_does_the_same_each_time() {
    let again = || run(&Options { operations: 500, ..options(7, None) }).unwrap();
    assert_eq!(again(), again());
}

/// Runs seeds with a mistake until it is found.
#[track_caller]
fn found(mistake: Mistake) -> Failure {
    (1..=10)
        .find_map(|seed| run(&options(seed, Some(mistake))).err())
        .unwrap_or_else(|| panic!("{mistake:?} was not found"))
}

#[track_caller]
fn found_as(mistake: Mistake, expected: &[&str]) {
    let failure = found(mistake);
    assert!(expected.iter().any(|text| failure.what.contains(text)), "{mistake:?} was found as: {failure}");
}

#[test]
fn memory_that_is_used_again_while_a_device_may_write_is_found() {
    found_as(Mistake::ReusesMemoryInFlight, &["was touched"]);
}

#[test]
fn a_region_that_is_dropped_in_flight_is_found() {
    found_as(Mistake::DropsRegionInFlight, &["is not mapped", "was dropped while a command named it"]);
}

#[test]
fn a_command_that_ends_twice_is_found() {
    found_as(Mistake::EndsTwice, &["ended twice"]);
}

#[test]
fn a_write_that_was_interrupted_and_taken_for_done_is_found() {
    found_as(Mistake::TrustsInterruptedWrites, &["a wrong byte"]);
}

#[test]
fn a_write_that_the_reference_forgot_is_found() {
    found_as(Mistake::ForgetsAWrite, &["a wrong byte"]);
}

#[test]
fn a_bus_that_does_not_cut_off_is_found() {
    found_as(Mistake::CutOffDoesNothing, &["was touched", "mapped for something else"]);
}
