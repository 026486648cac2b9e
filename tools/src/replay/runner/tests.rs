use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use proptest::prelude::*;
use tentpeg_engine::{ByteSize, EngineConfig};

use super::*;
use crate::replay::generator::Generator;
use crate::replay::payload::Holds;
use crate::replay::trace::TraceError;

const BLOCK: u64 = 32 << 10;

/// Sizes and numbers of a small replay.
#[derive(Clone, Copy, Debug)]
struct Small {
    slots: u32,
    pool_blocks: u32,
    in_flight: u32,
    page: u64,
}

const SMALL: Small = Small { slots: 16, pool_blocks: 8, in_flight: 2, page: 8 << 10 };

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn replay_on(
    uri: &str,
    small: Small,
    observer: &mut impl Observer,
    requests: impl IntoIterator<Item = Result<Request, SourceError>>,
) -> (Outcome, Engine) {
    let Small { slots, pool_blocks, in_flight, page } = small;
    let geometry = Geometry::new(number(slots), number(pool_blocks), ByteSize(BLOCK), ByteSize(page)).unwrap();
    let engine = Engine::open(uri, EngineConfig::default()).unwrap();
    let mut pool = Pool::allocate(&engine, &geometry).unwrap();
    let slots = Slots::of(engine.segments(), &geometry);
    let outcome = Runner::new(&engine, slots, &geometry, &mut pool, number(in_flight), observer).run(requests);
    (outcome, engine)
}

fn replay(small: Small, requests: &[Vec<u64>]) -> (Outcome, Engine) {
    replay_on(&format!("model:size={}", u64::from(small.slots) * BLOCK), small, &mut (), of(requests))
}

fn of(requests: &[Vec<u64>]) -> impl Iterator<Item = Result<Request, SourceError>> {
    requests.iter().map(|hash_ids| Ok(Request { hash_ids: hash_ids.clone() }))
}

/// Reads and writes by the rule alone, with a cache kept as a list from least to most recently used.
fn by_the_rule(slots: u32, requests: &[Vec<u64>]) -> (u64, u64) {
    let (mut held, mut reads, mut writes) = (Vec::new(), 0, 0);
    for hash_ids in requests {
        let mut prefix = true;
        for block in hash_ids {
            let found = held.iter().position(|other| other == block);
            prefix &= found.is_some();
            *if prefix { &mut reads } else { &mut writes } += 1;
            if let Some(at) = found {
                held.remove(at);
            }
            held.push(*block);
            if held.len() > slots as usize {
                held.remove(0);
            }
        }
    }
    (reads, writes)
}

fn assert_whole(outcome: &Outcome, engine: &Engine, requests: &[Vec<u64>], (reads, writes): (u64, u64)) {
    assert!(outcome.stop.is_none(), "{:?}", outcome.stop);
    assert_eq!(outcome.faults, Faults::default());
    let Totals { bytes_read, bytes_written, .. } = outcome.totals;
    assert_eq!(outcome.totals.requests, requests.len() as u64);
    assert_eq!((outcome.totals.reads, outcome.totals.writes), (reads, writes));
    assert_eq!((bytes_read, bytes_written), (reads * BLOCK, writes * BLOCK));
    // The model counts before it completes, so its counts are final here.
    let model = engine.model_counters().unwrap();
    assert_eq!((model.reads, model.writes), (reads, writes), "one command a block");
    assert_eq!((model.read_bytes, model.write_bytes), (bytes_read, bytes_written));
    assert_eq!(engine.violations(), []);
}

#[test]
fn what_was_written_is_read_again_and_a_load_is_timed_for_requests_with_hits() {
    let requests = [vec![1, 2, 3], vec![], vec![1, 2, 4], vec![9]];
    let (outcome, engine) = replay(SMALL, &requests);
    assert_whole(&outcome, &engine, &requests, (2, 5));
    let latency = outcome.load_latency.summary().unwrap();
    assert_eq!(latency.count, 1, "of four requests, one has hits");
    assert!(latency.p50 <= latency.max && latency.max <= outcome.elapsed);
    assert_eq!(outcome.totals.hit_rate(), Some(2.0 / 7.0));
}

#[test]
fn a_request_longer_than_the_pool_and_the_store_goes_through_both() {
    let requests = [(0..40).collect(), (0..40).collect(), vec![39, 38, 0]];
    let small = Small { slots: 5, pool_blocks: 1, in_flight: 1, page: 4 << 10 };
    let (outcome, engine) = replay(small, &requests);
    assert_whole(&outcome, &engine, &requests, (2, 81));
}

#[test]
fn ids_at_the_ends_of_64_bits_and_repeated_ids_are_ids_like_others() {
    let requests = [vec![u64::MAX, 0, u64::MAX], vec![u64::MAX, u64::MAX, 0, 1 << 63]];
    let (outcome, engine) = replay(SMALL, &requests);
    assert_whole(&outcome, &engine, &requests, (3, 4));
}

#[test]
fn no_request_at_all_is_a_replay_of_nothing() {
    let (outcome, engine) = replay(SMALL, &[]);
    assert_whole(&outcome, &engine, &[], (0, 0));
    assert_eq!((outcome.totals.hit_rate(), outcome.load_latency.summary()), (None, None));
}

#[test]
fn a_generated_trace_on_logical_blocks_of_512_bytes() {
    let requests: Vec<_> = Generator::new(3, 40).map(|request| request.hash_ids).collect();
    let small = Small { slots: 100, pool_blocks: 24, in_flight: 4, page: 16 << 10 };
    let (outcome, engine) = replay_on("model:size=8MiB,lba=512", small, &mut (), of(&requests));
    assert_whole(&outcome, &engine, &requests, by_the_rule(100, &requests));
}

#[test]
fn a_block_larger_than_a_command_takes_several() {
    // MDTS of 2^1 pages of 4 KiB.
    let requests = [vec![1, 2], vec![1, 2]];
    let small = Small { page: 4 << 10, ..SMALL };
    let (outcome, engine) = replay_on("model:size=1MiB,mdts=1", small, &mut (), of(&requests));
    assert_eq!((outcome.totals.reads, outcome.totals.writes, outcome.faults.count()), (2, 2, 0));
    assert_eq!(engine.model_counters().unwrap().io_sqes, 4 * BLOCK / 8192);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_replay_does_what_the_rule_says_and_finds_every_byte(
        slots in 1u32..24,
        pool_blocks in 1u32..12,
        in_flight in 1u32..6,
        page in prop::sample::select(vec![4u64 << 10, 8 << 10, 16 << 10, 32 << 10]),
        requests in prop::collection::vec(prop::collection::vec(0u64..16, 0..14), 0..24),
    ) {
        let (outcome, engine) = replay(Small { slots, pool_blocks, in_flight, page }, &requests);
        assert_whole(&outcome, &engine, &requests, by_the_rule(slots, &requests));
    }
}

/// Alters a file once so many requests have ended.
struct Vandal<'a, F> {
    path: &'a Path,
    after: u64,
    alter: F,
}

impl<F: Fn(&File)> Observer for Vandal<'_, F> {
    fn request_ended(&mut self, totals: &Totals) {
        if totals.requests == self.after {
            (self.alter)(&File::options().read(true).write(true).open(self.path).unwrap());
        }
    }
}

/// The faults of a replay of the blocks 1 to 4, then of the same again, with `alter` done to the store in between. Slots are first used
/// in ascending order, so block n lies in slot n - 1.
fn faults_after(alter: impl Fn(&File)) -> Faults {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let uri = format!("model:path={},size=512KiB", path.display());
    let small = Small { in_flight: 1, ..SMALL };
    let requests = [vec![1, 2, 3, 4], vec![1, 2, 3, 4], vec![5]];
    let mut vandal = Vandal { path: &path, after: 1, alter };
    let (outcome, engine) = replay_on(&uri, small, &mut vandal, of(&requests));
    assert!(outcome.stop.is_none(), "a fault does not end a replay");
    assert_eq!((outcome.totals.requests, outcome.totals.reads, outcome.totals.writes), (3, 4, 5));
    assert_eq!(engine.violations(), []);
    outcome.faults
}

fn mismatches(faults: &Faults) -> Vec<(u64, u64, Holds)> {
    let of = |fault: &Fault| match fault.wrong {
        Wrong::Bytes(mismatch) => (mismatch.block, mismatch.byte_offset, mismatch.holds),
        Wrong::Task(_) => panic!("{fault}"),
    };
    faults.first().iter().map(of).collect()
}

#[test]
fn a_store_that_is_left_alone_has_no_faults() {
    assert_eq!(faults_after(|_| ()), Faults::default());
}

#[test]
fn one_bit_flipped_in_the_store_is_found() {
    let faults = faults_after(|store| {
        let at = 2 * BLOCK + 20_001;
        let mut byte = [0];
        store.read_exact_at(&mut byte, at).unwrap();
        store.write_all_at(&[byte[0] ^ 1], at).unwrap();
    });
    assert_eq!(mismatches(&faults), [(3, 20_000, Holds::Unknown)]);
    let message = faults.first()[0].to_string();
    assert!(message.starts_with("request 1, slot 2: block 3, write 3: byte 20000 of the block"), "{message}");
}

#[test]
fn a_store_that_dropped_a_write_is_found() {
    let faults = faults_after(|store| store.write_all_at(&[0; BLOCK as usize], BLOCK).unwrap());
    assert_eq!(mismatches(&faults), [(2, 0, Holds::Zero)]);
}

#[test]
fn a_store_that_misplaced_blocks_is_found() {
    let faults = faults_after(|store| {
        let (mut first, mut last) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        store.read_exact_at(&mut first, 0).unwrap();
        store.read_exact_at(&mut last, 3 * BLOCK).unwrap();
        store.write_all_at(&last, 0).unwrap();
        store.write_all_at(&first, 3 * BLOCK).unwrap();
    });
    let from = |block| Holds::OtherPayload { block, write: block };
    assert_eq!(mismatches(&faults), [(1, 0, from(4)), (4, 0, from(1))]);
}

#[test]
fn pages_of_a_block_in_the_wrong_order_are_found() {
    let faults = faults_after(|store| {
        let mut pages = [vec![0; 8192], vec![0; 8192]];
        store.read_exact_at(&mut pages[0], 0).unwrap();
        store.read_exact_at(&mut pages[1], 8192).unwrap();
        store.write_all_at(&pages[1], 0).unwrap();
        store.write_all_at(&pages[0], 8192).unwrap();
    });
    assert_eq!(mismatches(&faults), [(1, 0, Holds::SamePayload { byte_offset: 8192 })]);
}

#[test]
fn reads_that_the_device_fails_are_counted_and_say_why() {
    let faults = faults_after(|store| store.set_len(3 * BLOCK).unwrap());
    // Block 4 was there; its slot is not any more. To write block 5 makes the file longer again.
    assert_eq!(faults.count(), 1);
    let fault = faults.first()[0];
    assert_eq!((fault.request, fault.decision.block, fault.decision.kind), (RequestNumber(1), 4, Kind::Read));
    let message = fault.to_string();
    assert!(
        message.contains("slot 3: reading block 4, write 4: a read of 8192 bytes at 98304 is FAILED: "),
        "{message}"
    );
}

#[test]
fn a_device_that_is_too_small_is_a_fault_and_not_a_panic() {
    let requests = [vec![1, 2, 3]];
    let (outcome, _engine) = replay_on("model:size=64KiB", SMALL, &mut (), of(&requests));
    assert_eq!((outcome.faults.count(), outcome.totals.bytes_written), (1, 2 * BLOCK));
    let message = outcome.faults.first()[0].to_string();
    assert!(
        message.contains("writing block 3, write 3: a write of 8192 bytes at 65536 is INVALID: target_offset 65536"),
        "{message}"
    );
}

#[test]
fn only_the_first_faults_are_kept_and_all_are_counted() {
    let requests = [(0..30).collect()];
    let (outcome, _engine) = replay_on("model:size=64KiB", Small { slots: 32, ..SMALL }, &mut (), of(&requests));
    assert_eq!((outcome.faults.count(), outcome.faults.first().len()), (28, Faults::KEPT));
}

/// Asks to stop once so many requests have ended.
struct StopAfter {
    requests: u64,
    ended: u64,
}

impl Observer for StopAfter {
    fn asks_to_stop(&self) -> bool {
        self.ended >= self.requests
    }

    fn request_ended(&mut self, totals: &Totals) {
        self.ended = totals.requests;
    }
}

#[test]
fn a_replay_that_is_stopped_ends_what_is_in_flight_and_keeps_its_counts() {
    let mut observer = StopAfter { requests: 50, ended: 0 };
    let requests = Generator::new(0, u64::MAX).map(Ok);
    let (outcome, engine) = replay_on("model:size=512KiB", SMALL, &mut observer, requests);
    assert!(matches!(outcome.stop, Some(Stop::Asked)));
    let Totals { requests, reads, writes, .. } = outcome.totals;
    assert!((50..50 + 1 + u64::from(SMALL.in_flight)).contains(&requests), "{requests}");
    assert_eq!(outcome.faults, Faults::default());
    let model = engine.model_counters().unwrap();
    assert_eq!((model.reads, model.writes), (reads, writes), "all that was issued has ended");
}

#[test]
fn a_trace_that_goes_wrong_half_way_ends_the_replay_with_what_was_before_it() {
    let wrong = SourceError::Trace { path: "t".into(), source: TraceError::CutOff { line: 3 } };
    let requests = of(&[vec![1, 2], vec![1, 2]]).chain([Err(wrong)]).chain(of(&[vec![7]])).collect::<Vec<_>>();
    let (outcome, _engine) = replay_on("model:size=512KiB", SMALL, &mut (), requests);
    let message = outcome.stop.unwrap().to_string();
    assert!(message.contains("has changed while it was replayed: t: line 3: the line is cut off"), "{message}");
    assert_eq!((outcome.totals.requests, outcome.totals.reads, outcome.totals.writes), (2, 2, 2));
}
