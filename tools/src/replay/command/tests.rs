use std::time::Duration;

use tentpeg_driver::gpu::StandIn;

use super::*;
use crate::memory_place::Place;
use crate::replay::cache::{Decision, Kind};
use crate::replay::outcome::{Fault, Faults, Wrong};
use crate::replay::payload::Payload;
use crate::replay::schedule::RequestNumber;
use crate::report::{Latency, Timeline};

fn geometry() -> Geometry {
    Geometry::new(DEFAULT_SLOTS, DEFAULT_POOL, DEFAULT_BLOCK, DEFAULT_PAGE).unwrap()
}

fn outcome(faults: u64, stop: Option<Stop>) -> Outcome {
    let mismatch = Payload::new(5, 2).verify(0, &[0; 8]).unwrap_err();
    let decision = Decision { block: 5, slot: 1, kind: Kind::Read, write: 2 };
    let fault = Fault { request: RequestNumber(3), decision, wrong: Wrong::Bytes(mismatch) };
    let mut outcome = Outcome {
        totals: Totals { requests: 4, reads: 1, writes: 3, bytes_read: 4096, bytes_written: 12_288 },
        elapsed: Duration::from_secs(1),
        load_latency: Latency::default(),
        timeline: Timeline::default(),
        faults: Faults::default(),
        not_compared: 0,
        stop,
    };
    (0..faults).for_each(|_| outcome.faults.add(fault));
    outcome
}

#[test]
fn numbers_are_read_up_to_what_their_types_hold() {
    assert_eq!(at_least_one::<NonZeroU32>("4294967295"), Ok(NonZeroU32::MAX));
    assert_eq!(at_least_one::<NonZeroU64>("18446744073709551615"), Ok(NonZeroU64::MAX));
    let wrong = Err("write a whole number from 1 to 4294967295".to_owned());
    for text in ["0", "4294967296", "-1", "1.5", "", "1k"] {
        assert_eq!(at_least_one::<NonZeroU32>(text), wrong, "{text}");
    }
}

#[test]
fn a_file_is_no_memory_and_a_store_in_memory_is() {
    let in_memory = need(&["model:path=x", "model:size=512MiB"], &geometry(), false, false);
    assert_eq!((in_memory.slots, in_memory.fixed), (4096, 64 << 20));
    assert_eq!(in_memory.per_slot, (128 << 10) + CACHE_BYTES_PER_SLOT);
    assert_eq!(need(&["model:"], &geometry(), false, true).fixed, 0, "the pool is the GPU's");
    let on_disk = |hit_curve| need(&["model:path=x,size=512MiB"], &geometry(), hit_curve, false).per_slot;
    assert_eq!((on_disk(false), on_disk(true)), (CACHE_BYTES_PER_SLOT, hit_curve::BYTES_PER_SLOT));
}

#[test]
fn every_fault_is_an_error_and_the_first_are_shown() {
    let report = report(&outcome(12, None), BothSides::default());
    assert_eq!(report.errors.count(), 12);
    assert!(report.errors.messages()[0].starts_with("request 3, slot 1: block 5, write 2: byte 0"));
    assert!(report.table().contains("zero, so it was never written"));
    assert!(report.table().contains("and 2 more\n") && !report.table().contains("and 3 more"), "{}", report.table());
    assert_eq!(report.errors.messages().len(), 10);
    assert!(!report.interrupted);
}

#[test]
fn to_be_stopped_is_no_error_and_to_be_stalled_is() {
    let asked = report(&outcome(0, Some(Stop::Asked)), BothSides::default());
    assert!(asked.interrupted && asked.errors.count() == 0);
    let stop = Stop::Stalled { in_flight: 7, limit: Duration::from_secs(60) };
    let stalled = report(&outcome(0, Some(stop)), BothSides::default());
    assert!(!stalled.interrupted);
    assert_eq!(stalled.errors.messages(), ["the device has ended none of 7 blocks in flight for 60 s"]);
}

#[test]
fn room_is_counted_in_slots_or_where_there_is_none_in_bytes() {
    assert!(check_room("model:", &[512 << 20], &geometry()).is_ok());
    let message = |rooms: &[u64]| check_room("model:", rooms, &geometry()).unwrap_err().to_string();
    assert!(message(&[(512 << 20) - 1]).ends_with("or give --slots 4095 or fewer"));
    assert!(message(&[64 << 10]).ends_with("or give --block 64KiB or less"));
    // Two halves of a slot are none.
    assert!(message(&[(512 << 20) - (64 << 10), 64 << 10]).ends_with("or give --slots 4095 or fewer"));
    assert!(check_room("two", &[(512 << 20) - (64 << 10), 128 << 10], &geometry()).is_ok());
    assert!(message(&[64 << 10, 32 << 10]).ends_with("or give --block 64KiB or less"));
}

#[test]
fn hits_are_counted_of_what_ended_and_must_be_those_of_a_whole_run() {
    let source = Source::Generator { requests: 40, seed: 1 };
    let interrupted = Interrupt::default();
    interrupted.set();
    let curve = || hit_curve(&source, &geometry(), 40, &Interrupt::default());
    assert_eq!(curve().unwrap().requests, 40);
    assert_eq!(hit_curve(&source, &geometry(), 30, &interrupted).unwrap().requests, 30);
    let hits = curve().unwrap().hits();
    let errors = |reads, requests, whole| {
        let mut report = Report { reads: Some(reads), requests: Some(requests), ..Report::default() };
        add_hit_curve(&mut report, curve(), whole);
        assert!(report.plots.hit_curve.is_some());
        report.errors.summary()
    };
    assert_eq!(errors(hits, 40, true), None);
    let differ = format!("{} hits, where the trace's stack distances give {hits}", hits + 1);
    assert_eq!(errors(hits + 1, 40, true), Some(differ));
    assert_eq!(errors(hits + 1, 40, false), None, "some of it was not replayed");
    assert_eq!(errors(hits + 1, 41, true), None, "some of it was not counted");
    let mut report = Report::default();
    let gone = Source::Trace("none".into());
    add_hit_curve(&mut report, hit_curve(&gone, &geometry(), 1, &interrupted), true);
    assert!(report.errors.summary().unwrap().starts_with("no hits by the number of slots: cannot open the trace none"));
    assert_eq!(report.plots.hit_curve, None);
}

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    args: ReplayArgs,
}

#[test]
fn a_replay_through_memory_of_a_gpu_is_whole_and_compared() {
    let words = "replay --requests 60 --slots 64 --pool 16 --block 64KiB --page 16KiB";
    let args = <Line as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap().args;
    let memory = MemoryArgs { place: Place::Given(StandIn::new(64 << 20)), ..args.memory.clone() };
    let report = run(&ReplayArgs { memory, ..args }, &Interrupt::default()).unwrap();
    assert_eq!((report.errors.count(), report.requests), (0, Some(60)), "{:?}", report.errors);
    assert!(report.reads > Some(0) && report.writes > Some(0));
    assert_eq!(report.path.unwrap(), "device ↔ GPU 0 (stand-in), direct by the model's mover");
}
