//! What an engine says that it has done: by lane, device, segment and path, and what was slow.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::spec::status::StatusCode;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::statistics::{Path, Statistics};
use crate::{OpenOptions, UnalignedReads};
use TransferState::Completed;

const BLOCK: u64 = 4096;

/// Of each path that anything went by: requests, commands, bytes, and how many latencies there are.
fn counts(flows: &crate::statistics::Flows) -> Vec<(Path, u64, u64, u64, u64)> {
    let all = flows.iter();
    all.map(|(path, flow)| (path, flow.requests, flow.commands, flow.bytes, flow.latency.count())).collect()
}

fn check(engine: &Engine) -> Statistics {
    let (statistics, counters) = (engine.statistics(), engine.counters());
    let total = statistics.flows().total();
    assert_eq!(total.commands, counters.commands);
    assert_eq!(total.latency.count(), counters.completions);
    statistics
}

#[test]
fn each_request_is_counted_with_its_segment_and_path() {
    let options = OpenOptions {
        lanes: crate::LaneMode::CallerDriven,
        unaligned_reads: UnalignedReads::All,
        ..OpenOptions::default()
    };
    let (engine, lane) = Engine::open_devices(["model:size=1MiB", "model:size=2MiB"], options).unwrap();
    let memory = engine.allocate_memory(64 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    let second = |request: Request| Request { target_id: SegmentId(2), ..request };
    let mut requests = bench.descending(8);
    requests.extend((0..4).map(|block| second(bench.write(block * BLOCK, block * BLOCK, BLOCK))));
    requests.push(second(bench.read(0, 7, 100)));
    let batch = bench.submit(&requests);
    bench.engine.submit_zeroes(&batch, SegmentId(2), 0, BLOCK).unwrap();
    bench.engine.submit_flush(&batch, SegmentId(1)).unwrap();
    bench.run();
    assert!(states(&batch).iter().all(|state| *state == Completed));
    let statistics = check(&bench.engine);
    assert_eq!(statistics.lanes, [], "the caller drives it");
    let [first, other] = [0, 1].map(|device: usize| &statistics.devices[device]);
    assert_eq!(counts(&first.flows), [(Path::DirectRead, 8, 8, 8 * BLOCK, 8), (Path::Flush, 1, 1, 0, 1)]);
    // Four writes that follow each other are one command.
    let right =
        [(Path::DirectWrite, 4, 1, 4 * BLOCK, 1), (Path::StagedRead, 1, 1, BLOCK, 1), (Path::Zeroes, 1, 1, BLOCK, 1)];
    assert_eq!(counts(&other.flows), right);
    for (segment, device) in statistics.segments.iter().zip(&statistics.devices) {
        assert_eq!(segment.flows, device.flows);
    }
    assert_eq!((statistics.segments[1].id, &*statistics.segments[1].name), (SegmentId(2), "whole-1"));
    let latency = &first.flows.by(Path::DirectRead).latency;
    assert!(latency.at(0.0) <= latency.at(0.5) && latency.at(0.5) <= latency.longest());
    assert!(latency.longest().unwrap() > Duration::ZERO);
    assert_eq!((first.retries, first.resets, first.slow, first.told.len()), (0, 0, 0, 0));
    bench.engine.close_with(bench.lane).unwrap();
}

#[test]
fn how_full_the_queue_was_is_counted_once_a_turn() {
    let mut bench = Bench::open("model:size=1MiB", 9, 16 * BLOCK as usize);
    bench.submit(&bench.descending(20));
    bench.lane.turn();
    let occupancy = check_open(&bench).devices[0].occupancy;
    assert_eq!((occupancy.turns, occupancy.sum, occupancy.most), (1, 8, 8), "a queue of 9 has 8 slots");
    bench.run();
    let device = check(&bench.engine).devices.remove(0);
    assert_eq!((device.depth, device.occupancy.most), (8, 8));
    assert!(device.occupancy.turns > 2 && device.occupancy.mean() <= 8.0);
    bench.close();
}

/// Commands are in flight still.
fn check_open(bench: &Bench) -> Statistics {
    bench.engine.statistics()
}

#[test]
fn what_was_asked_for_again_and_what_was_reset_is_counted() {
    let mut bench = Bench::open("model:size=1MiB", 64, 16 * BLOCK as usize);
    let failing = |nth| Rule {
        queue: CommandQueue::Io,
        opcode: None,
        when: When::Nth(nth),
        action: Action::Status { status: StatusCode::NAMESPACE_NOT_READY.status(), execute: false },
    };
    let faults = bench.engine.faults().unwrap();
    [2, 5].into_iter().for_each(|nth| faults.add(failing(nth)));
    let batch = bench.submit(&bench.descending(10));
    bench.run();
    assert!(states(&batch).iter().all(|state| *state == Completed));
    let device = check(&bench.engine).devices.remove(0);
    assert_eq!((device.retries, device.resets), (2, 0));
    let read = device.flows.by(Path::DirectRead);
    assert_eq!((read.requests, read.commands), (10, 12), "a request that is asked for again is one still");
    faults.arm(At::Turn(1), Life::Fatal);
    let batch = bench.submit(&bench.descending(10));
    bench.run();
    assert!(states(&batch).iter().all(|state| *state == Completed));
    assert_eq!(bench.engine.statistics().devices[0].resets, 1);
    let Bench { engine, lane, memory: _memory } = bench;
    engine.close_with(lane).unwrap();
}

#[test]
fn a_stripe_is_one_segment_on_several_devices() {
    let mut bench = Bench::striped(8 * BLOCK as usize);
    bench.submit(&[bench.write(0, 0, 8 * BLOCK)]);
    bench.run();
    let statistics = check(&bench.engine);
    assert_eq!(counts(&statistics.segments[0].flows), [(Path::DirectWrite, 1, 2, 8 * BLOCK, 2)]);
    let requests: Vec<_> = statistics.devices.iter().map(|device| device.flows.total().requests).collect();
    assert_eq!(requests, [1, 0], "one request, counted by the first of its devices");
    bench.engine.close_with(bench.lane).unwrap();
}

#[test]
fn a_request_of_several_commands_is_one_request() {
    let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
    let members = [0, 1].map(|device| {
        devices.open("model:size=1MiB,mdts=1").unwrap();
        MemberLayout { device, extents: vec![BlockExtent::new(0, 256).unwrap()] }
    });
    let layout = SegmentLayout { members: members.into(), chunk: 4096, ..SegmentLayout::whole("striped", 0, 256) };
    let (engine, lane) = devices.start(vec![layout]).unwrap();
    let memory = engine.allocate_memory(8 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    // Two commands of each device, and one of them twice.
    let status = StatusCode::NAMESPACE_NOT_READY.status();
    let action = Action::Status { status, execute: false };
    let rule = Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action };
    bench.engine.device(0).unwrap().faults().unwrap().add(rule);
    bench.submit(&[bench.write(0, 0, 8 * BLOCK)]);
    bench.run();
    let statistics = check(&bench.engine);
    assert_eq!(counts(&statistics.segments[0].flows), [(Path::DirectWrite, 1, 5, 10 * BLOCK, 5)]);
    bench.engine.close_with(bench.lane).unwrap();
}

/// A subscriber that keeps what it is told.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<(Level, String, String)>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{field}={value:?} ");
    }
}

impl Subscriber for Kept {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        self.0.lock().unwrap().push((*metadata.level(), metadata.target().to_owned(), text.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_is_slow_is_told_and_not_too_often() {
    // Other threads know the events already, and that nobody listens: what is to be heard is known before somebody does.
    let mut silent = Bench::open("model:size=1MiB", 16, BLOCK as usize);
    silent.submit(&[silent.read(0, 0, BLOCK)]);
    silent.run();
    silent.close();
    let kept = Kept::default();
    let (early, statistics) = tracing::subscriber::with_default(kept.clone(), || {
        let config = EngineConfig { slow_request: Some(Duration::ZERO), ..EngineConfig::default() };
        let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
        let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
        let mut bench = Bench { engine, lane, memory };
        bench.submit(&[bench.read(0, 5 * BLOCK, BLOCK), bench.read(BLOCK, 6 * BLOCK, BLOCK)]);
        bench.run();
        let early = check(&bench.engine);
        bench.submit(&bench.descending(200));
        bench.run();
        let statistics = check(&bench.engine);
        bench.close();
        (early, statistics)
    });
    assert_eq!(statistics.devices[0].slow, 201, "each command takes longer than no time");
    assert_eq!((early.devices[0].slow, early.devices[0].told.len()), (1, 1));
    let first = &early.devices[0].told[0];
    assert_eq!((first.path, &*first.segment, first.lane, first.attempts), (Path::DirectRead, "whole", 0, 0));
    assert_eq!((first.offset, first.length, first.requests), (5 * BLOCK, 2 * BLOCK, 2), "two requests, one command");
    assert!(first.waited.is_some() && first.took > Duration::ZERO && first.status.is_success());
    let text = first.to_string();
    assert!(text.starts_with("slow direct_read: 8192 bytes at 20480 of segment 'whole' on model:size=1MiB"), "{text}");
    assert!(
        text.contains(" (device 0), 2 requests: taken in, issued after ") && text.contains(", ended after "),
        "{text}"
    );

    let kept = kept.0.lock().unwrap();
    let of = |target: &str| kept.iter().filter(|(_, found, _)| found == target).collect::<Vec<_>>();
    let slow = of("tentpeg::slow");
    assert!(slow.len() >= 8 && slow.len() < 201, "{} were told", slow.len());
    assert!(slow[0].0 == Level::WARN && slow[0].2.contains("offset=20480") && slow[0].2.contains("length=8192"));
    let submitted = kept.iter().filter(|(level, _, text)| *level == Level::TRACE && text.contains("submitted"));
    assert_eq!(submitted.count(), 2);
}

#[test]
fn what_is_slow_tells_how_often_it_was_asked_for() {
    let config = EngineConfig { slow_request: Some(Duration::ZERO), ..EngineConfig::default() };
    let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
    let status = StatusCode::NAMESPACE_NOT_READY.status();
    let action = Action::Status { status, execute: false };
    engine.faults().unwrap().add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action });
    let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane, memory };
    bench.submit(&[bench.read(0, 0, BLOCK)]);
    bench.run();
    let device = bench.engine.statistics().devices.remove(0);
    let told: Vec<_> = device.told.iter().map(|slow| (slow.attempts, slow.status)).collect();
    assert_eq!(told, [(0, status), (1, StatusCode::SUCCESS.status())]);
    let Bench { engine, lane, memory: _memory } = bench;
    engine.close_with(lane).unwrap();
}

/// Each of its own batch; a Flush that no request asked for is nobody's.
#[test]
fn what_is_slow_is_told_of_its_request() {
    let config = EngineConfig { slow_request: Some(Duration::ZERO), ..EngineConfig::default() };
    let mut devices = Devices::new(LaneMode::CallerDriven, config);
    let device = devices.open("model:size=1MiB").unwrap();
    let layout = SegmentLayout { durability: Durability::Flush, ..SegmentLayout::whole("whole", device, 256) };
    let (engine, lane) = devices.start(vec![layout]).unwrap();
    let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    let _batches = [1, 2, 3].map(|block| bench.submit(&[bench.read(0, 2 * block * BLOCK, BLOCK)]));
    bench.run();
    bench.submit(&[bench.write(0, 9 * BLOCK, BLOCK)]);
    bench.run();
    assert_eq!(bench.engine.counters().flushes, 1);
    let device = bench.engine.statistics().devices.remove(0);
    let told: Vec<_> = device.told.iter().map(|slow| (slow.path, slow.offset / BLOCK)).collect();
    use Path::{DirectRead, DirectWrite};
    assert_eq!(told, [(DirectRead, 2), (DirectRead, 4), (DirectRead, 6), (DirectWrite, 9)]);
    bench.close();
}
