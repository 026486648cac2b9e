//! A slice of the randomised test of segments, and proof that each of its checks can fail.

use tentpeg_engine::Durability;
use tentpeg_tests::segments::{Counters, Mistake, Options, run};

const MODES: [Durability; 3] = [Durability::None, Durability::Fua, Durability::Flush];

fn options(seed: u64, durability: Durability, mistake: Option<Mistake>) -> Options {
    Options { seed, operations: 4_000, durability, mistake }
}

#[test]
fn a_slice_in_each_mode_finds_nothing_wrong() {
    let mut total = Counters::default();
    for (seed, durability) in (1..).zip(MODES) {
        match run(&options(seed, durability, None)) {
            Ok(counters) => total.add(&counters),
            Err(failure) => panic!("{failure}\n{}", failure.counters),
        }
    }
    println!("{total}");
    for (what, count) in [
        ("blocks compared", total.blocks_checked),
        ("bytes compared", total.bytes_checked),
        ("staged reads", total.staged_reads),
        ("zeroes", total.zeroes),
        ("deallocations", total.deallocations),
        ("flushes", total.flushes),
        ("losses of power", total.power_cuts),
        ("interrupted", total.interrupted),
        ("faults", total.faults),
    ] {
        assert!(count > 0, "{what}: none");
    }
    for (what, count) in [
        ("batches canceled", total.cancels),
        ("batches freed", total.frees),
        ("memory unregistered", total.unregistrations),
        ("tasks canceled", total.canceled),
        ("staged writes", total.staged_writes),
    ] {
        assert!(count >= 20, "{what}: only {count}");
    }
}

/// A failure that is found once is found again: a seed says all that happens.
#[test]
fn a_seed_does_the_same_each_time() {
    let again = || run(&Options { operations: 1_000, ..options(5, Durability::Flush, None) }).unwrap();
    assert_eq!(again(), again());
}

#[track_caller]
fn found_as(mistake: Mistake, durability: Durability, expected: &[&str]) {
    let failure = (1..=10).find_map(|seed| run(&options(seed, durability, Some(mistake))).err());
    let failure = failure.unwrap_or_else(|| panic!("{mistake:?} was not found"));
    assert!(expected.iter().any(|text| failure.what.contains(text)), "{mistake:?} was found as: {failure}");
}

/// The control of the durable modes: what mode `none` promises is less.
#[test]
fn a_mode_that_promises_more_than_it_does_is_found() {
    for durability in [Durability::Fua, Durability::Flush] {
        found_as(Mistake::PromisesTooMuch, durability, &["right would be", "found wrong bytes"]);
    }
}

#[test]
fn a_write_that_the_reference_forgot_is_found() {
    found_as(Mistake::ForgetsAWrite, Durability::None, &["right would be", "found wrong bytes"]);
}

#[test]
fn a_byte_in_the_wrong_place_is_found() {
    found_as(Mistake::ReadsBeside, Durability::None, &["found wrong bytes", "right would be"]);
}

#[test]
fn a_batch_that_was_not_freed_is_found() {
    found_as(Mistake::FreesNothing, Durability::None, &["PENDING after its free"]);
}

/// What is read arrives in memory that the harness has taken back.
#[test]
fn memory_that_was_not_unregistered_is_found() {
    found_as(Mistake::KeepsMemoryInFlight, Durability::None, &["after it had been unregistered"]);
}
