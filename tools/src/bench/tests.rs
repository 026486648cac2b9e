use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use clap::Parser;
use proptest::prelude::*;
use tentpeg_driver::gpu::{Cuda, StandIn};
use tentpeg_engine::{EngineConfig, OpCode};

use super::plan::End;
use super::*;
use crate::memory_budget::Bound;
use crate::memory_place::Place;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: BenchArgs,
}

fn args(words: &str) -> BenchArgs {
    Line::try_parse_from(["bench"].into_iter().chain(words.split_whitespace())).unwrap().args
}

const DEVICE: Geometry = Geometry { block: 512, capacity: 1 << 20 };

pub(super) fn plan(words: &str) -> Result<Plan, PlanError> {
    Plan::new(&args(words), &[DEVICE])
}

fn report(words: &str) -> Report {
    let report = run(&args(words), &Interrupt::default()).unwrap();
    assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
    report
}

#[test]
fn what_is_wrong_is_named_with_what_would_be_right() {
    for (words, message) in [
        ("--block 0", "--block 0B: a request is a multiple of the device's block of 512 bytes, and not 0"),
        ("--block 1000", "--block 1000B: a request is a multiple of the device's block of 512 bytes, and not 0"),
        ("--block 2MiB", "--block 2MiB: the device has 1MiB, so a request has that at most"),
        (
            "--block 8KiB --page 3KiB",
            "--page 3KiB: a block has a whole number of pages, and a page of blocks of the device: give a multiple of 512 bytes that divides 8KiB",
        ),
        (
            "--block 8KiB --page 0",
            "--page 0B: a block has a whole number of pages, and a page of blocks of the device: give a multiple of 512 bytes that divides 8KiB",
        ),
        ("--depth 8 --batch 9", "--batch 9: 1 to 8 requests go into a submit, as --depth is 8"),
        ("--time 0s", "--time 0: go on for 1ms at least"),
        ("--read-percent 50", "--read-percent is for --mode mixed: leave it away, or ask for that mode"),
    ] {
        assert_eq!(plan(words).unwrap_err().to_string(), message, "{words}");
    }
    // What no command line gives.
    let message = |args: BenchArgs| Plan::new(&args, &[DEVICE]).unwrap_err().to_string();
    let all = args("--mode mixed");
    assert_eq!(message(BenchArgs { depth: 0, ..all.clone() }), "--depth 0: 1 to 65536 requests can be in flight");
    assert_eq!(message(BenchArgs { requests: Some(0), ..all.clone() }), "--requests 0: make 1 request at least");
    let message = message(BenchArgs { read_percent: Some(101), ..all });
    assert_eq!(message, "--read-percent 101: of 100 requests, 0 to 100 read");
}

#[test]
fn what_is_not_said_has_a_default() {
    let plan = plan("").unwrap();
    assert_eq!((plan.block, plan.depth, plan.batch, plan.read_percent), (4096, 128, 32, 100));
    assert_eq!(plan.end, End::Time(Duration::from_secs(5)));
    let batch = |depth: u32| super::tests::plan(&format!("--depth {depth}")).unwrap().batch;
    assert_eq!([batch(1), batch(2), batch(4), batch(64), batch(4096)], [1, 1, 1, 16, 32]);
    assert_eq!(super::tests::plan("--mode mixed").unwrap().read_percent, 70);
    assert_eq!(super::tests::plan("--mode write").unwrap().read_percent, 0);
    for words in ["--requests 1 --time 1s", "--time 5", "--block 4K", "--mode trim", "--requests -1"] {
        assert!(Line::try_parse_from(["bench"].into_iter().chain(words.split_whitespace())).is_err(), "{words}");
    }
}

#[test]
fn more_memory_than_there_is_is_refused() {
    // All but the headroom of 64 MiB can be used.
    let available = Available { bytes: (64 << 20) + (1 << 20), bound: Bound::MemAvailable };
    let fits = |words: &str, in_memory, fill| plan(words).unwrap().fits(in_memory, fill, false, &available);
    fits("--depth 4", DEVICE.capacity, false).unwrap();
    fits("--depth 4", 0, true).unwrap();
    // On a GPU what is in flight is none of the host's, and a store is there as a whole.
    plan("--depth 256").unwrap().fits(1 << 20, false, true, &available).unwrap();
    assert!(plan("--depth 4").unwrap().fits(2 << 20, false, true, &available).is_err());
    fits("--mode write --requests 200 --depth 4", DEVICE.capacity, false).unwrap();
    for (words, fill) in [("--depth 256", false), ("--mode write --depth 4", false), ("--depth 4", true)] {
        let message = fits(words, DEVICE.capacity, fill).unwrap_err().to_string();
        assert!(message.contains("but 1.00 MiB (1,048,576 B) can be used, by MemAvailable"), "{words}: {message}");
    }
}

#[test]
fn each_request_asked_for_is_made_and_counted_on_both_sides() {
    for words in [
        "model:size=8MiB --requests 1000",
        "model:size=8MiB --requests 1 --depth 1",
        "model:size=8MiB --requests 999 --depth 7 --batch 3 --block 20KiB --mode write",
        "model:size=8MiB,mdts=1 --requests 100 --block 64KiB --depth 300 --batch 300 --mode mixed",
        "model:size=8MiB --requests 500 --lane caller --pattern sequential --mode mixed --read-percent 40",
        "model:size=8MiB,store=null --requests 1000",
        "model:size=1MiB,lba=512 --requests 64 --block 512 --depth 2 --fill --lane caller",
        "model:size=1MiB model:size=3MiB --device model:size=2MiB,lba=512 --requests 1000 --mode mixed --lanes 2",
        "model:size=1MiB model:size=1MiB --requests 300 --fill --pattern sequential --lane caller",
    ] {
        let args = args(words);
        let report = report(words);
        let requests = args.requests.unwrap();
        assert_eq!(report.requests, Some(requests), "{words}");
        assert_eq!(report.bytes_read + report.bytes_written, requests * args.block.0, "{words}");
        let sides = report.both_sides.as_ref().unwrap();
        assert_eq!(sides.seen, Some(sides.issued), "{words}");
        assert_eq!((sides.issued.bytes_read, sides.issued.bytes_written), (report.bytes_read, report.bytes_written));
        assert_eq!(report.latency.unwrap().count, requests, "{words}");
        assert!(report.set_up.is_some() && !report.elapsed.is_zero() && !report.interrupted);
    }
}

#[test]
fn lanes_and_devices_that_do_not_go_together_are_told_with_what_does() {
    for (words, message) in [
        ("--lane caller --lanes 1", "--lanes is for lanes with threads: leave it away, or --lane caller"),
        ("--lanes 2", "2 lanes for 1 device: a device has one lane, so ask for 1"),
        (
            "model:size=1MiB model:size=1MiB --lanes 3",
            "3 lanes for 2 devices: a device has one lane, so ask for 1 to 2",
        ),
        (
            "model:size=1MiB model:size=4KiB --block 8KiB",
            "--block 8KiB: the device has 4KiB, so a request has that at most",
        ),
        (
            "model:size=1MiB model:size=1MiB --segment whole",
            "there is no segment 'whole': there is 'whole-0', 'whole-1'",
        ),
        (
            "model:size=1MiB --with model:size=1MiB",
            "model:size=1MiB,lba=4096,store=memory,mdts=9,queues=64 has several segments: add --segment with one of \
             'whole-0', 'whole-1'",
        ),
    ] {
        let error = run(&args(words), &Interrupt::default()).unwrap_err().to_string();
        assert_eq!(error, message, "{words}");
    }
    let one = "model:size=1MiB model:size=1MiB --segment whole-1 --requests 10";
    assert_eq!(report(one).plots.segment, "whole-1");
}

#[test]
fn requests_are_spread_over_all_devices() {
    let uris = ["model:size=2MiB", "model:size=1MiB", "model:size=1MiB"];
    for lanes in [1, 2, 3] {
        let config = EngineConfig {
            lanes: LaneArgs { lanes: Some(lanes), ..LaneArgs::default() }.options(),
            ..EngineConfig::default()
        };
        let (engine, _) = Engine::open_devices(uris, OpenOptions { config, ..OpenOptions::default() }).unwrap();
        let segments = SegmentArgs::default().all_of(&engine).unwrap();
        let plan = args("--requests 1024 --pattern sequential --batch 7");
        let plan = Plan::new(&plan, &segments.iter().map(|segment| Geometry::of(segment)).collect::<Vec<_>>()).unwrap();
        let memory = engine.allocate_memory(plan.memory_bytes()).unwrap();
        let interrupt = Interrupt::default();
        let mut rig = Rig { engine: &engine, segments, lane: None, memory: &memory, interrupt: &interrupt };
        let measured = measure::run(&mut rig, &plan, Workload::new(&plan)).unwrap();
        assert_eq!((measured.reads, measured.errors.count()), (1024, 0));
        let bytes: Vec<_> = engine.devices().map(|device| device.model_counters().unwrap().read_bytes).collect();
        assert_eq!(bytes, [2 << 20, 1 << 20, 1 << 20], "each block once");
    }
}

#[test]
fn files_of_a_run_that_came_to_nothing_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let uri = |name: &str| format!("model:path={},size=1MiB", folder.path().join(name).display());
    let words = format!("{} {} model:size=4KiB --block 8KiB", uri("one"), uri("two"));
    assert!(run(&args(&words), &Interrupt::default()).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    report(&format!("{} {} --requests 10", uri("one"), uri("two")));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    let message = run(&args(&format!("{0} {0}", uri("one"))), &Interrupt::default()).unwrap_err().to_string();
    assert!(message.contains("once more, or a copy of it"), "{message}");
}

#[test]
fn what_keeps_nothing_is_not_filled() {
    let message = run(&args("model:store=null --fill"), &Interrupt::default()).unwrap_err().to_string();
    assert!(message.contains("there is nothing to fill"), "{message}");
}

#[test]
fn a_time_ends_it() {
    let report = report("model:size=8MiB --time 20ms");
    assert!(report.requests.unwrap() > 0 && report.elapsed >= Duration::from_millis(20) && !report.interrupted);
}

#[test]
fn an_interrupt_ends_it_with_what_there_is() {
    let interrupt = Interrupt::default();
    interrupt.set();
    for fill in ["", "--fill"] {
        let report = run(&args(&format!("model:size=8MiB --requests 1000 {fill}")), &interrupt).unwrap();
        assert!(report.interrupted);
        assert_eq!((report.requests, report.latency, report.errors.count()), (Some(0), None, 0));
        assert!(report.table().contains("interrupted"), "{}", report.table());
    }
}

#[test]
fn requests_that_fail_are_errors_and_end_it() {
    let engine = Engine::open("model:size=1MiB", EngineConfig::default()).unwrap();
    // A device that is larger than the real one, so that what lies behind its end is refused.
    let plan = Plan::new(&args("--requests 10000 --depth 4"), &[Geometry { block: 4096, capacity: 1 << 30 }]).unwrap();
    let memory = engine.allocate_memory(plan.memory_bytes()).unwrap();
    let interrupt = Interrupt::default();
    let mut rig = Rig {
        engine: &engine,
        segments: vec![&engine.segments()[0]],
        lane: None,
        memory: &memory,
        interrupt: &interrupt,
    };
    let measured = measure::run(&mut rig, &plan, Workload::new(&plan)).unwrap();
    assert!(measured.errors.count() > 0 && measured.reads + measured.errors.count() < 10_000);
    assert!(measured.errors.messages()[0].contains("is INVALID"), "{:?}", measured.errors);
}

#[test]
fn a_file_that_exists_is_not_written_without_the_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    fs::write(&path, [0xa5; 1 << 16]).unwrap();
    let uri = format!("model:path={}", path.display());
    for words in ["--mode write --requests 1", "--mode mixed --requests 1", "--fill --requests 1"] {
        let message = run(&args(&format!("{uri} {words}")), &Interrupt::default()).unwrap_err().to_string();
        assert!(message.contains("add `,overwrite`"), "{message}");
    }
    assert_eq!(fs::read(&path).unwrap(), [0xa5; 1 << 16]);
    report(&format!("{uri} --requests 10"));
    report(&format!("{uri},overwrite --fill --requests 10"));
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.chunks(4096).all(|block| block != [0xa5; 4096]), "each block was filled");
}

#[test]
fn what_is_wrong_creates_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let words = format!("model:path={},size=1MiB --mode write --block 2MiB", path.display());
    assert!(run(&args(&words), &Interrupt::default()).is_err());
    assert!(!path.exists());
}

#[test]
fn a_sequence_visits_each_block_and_starts_again() {
    let plan = Plan { capacities: vec![10_240], ..plan("--pattern sequential --mode write").unwrap() };
    let mut workload = Workload::new(&plan);
    let transfers: Vec<_> = (0..4).map(|_| workload.next_transfer()).collect();
    let places: Vec<_> = transfers.iter().map(|transfer| (transfer.offset, transfer.length)).collect();
    assert_eq!(places, [(0, 4096), (4096, 4096), (8192, 2048), (0, 4096)], "the last one is what is left");
    assert!(transfers.iter().all(|transfer| transfer.opcode == OpCode::Write));
}

#[test]
fn random_offsets_reach_all_blocks_and_reads_have_their_share() {
    let plan = plan("--mode mixed --read-percent 25").unwrap();
    let mut workload = Workload::new(&plan);
    let transfers: Vec<_> = (0..10_000).map(|_| workload.next_transfer()).collect();
    assert_eq!(transfers.iter().map(|transfer| transfer.offset).collect::<HashSet<_>>().len(), 256);
    let reads = transfers.iter().filter(|transfer| transfer.opcode == OpCode::Read).count();
    assert!((2300..2700).contains(&reads), "{reads}");
    let mut again = Workload::new(&plan);
    assert!(transfers.iter().all(|transfer| again.next_transfer() == *transfer), "the same seed, the same requests");
    let other = Workload::new(&Plan { seed: 1, ..plan }).next_transfer();
    assert_ne!(other.offset, transfers[0].offset);
}

proptest! {
    #[test]
    fn requests_stay_on_the_device_and_in_memory(
        blocks in 1u64..64, more in 0u64..64, depth in 1u32..300, batch in 1u32..300, seed in any::<u64>(), random in any::<bool>()
    ) {
        let (block, capacity) = (blocks * 512, (blocks + more) * 512);
        let words = format!("--block {block} --depth {depth} --batch {} --seed {seed}", batch.min(depth));
        let pattern = if random { Pattern::Random } else { Pattern::Sequential };
        let plan = Plan { pattern, ..Plan::new(&args(&words), &[Geometry { block: 512, capacity }]).unwrap() };
        for plan in [plan.clone(), plan.fill()] {
            prop_assert!(plan.memory_bytes() as u64 >= u64::from(plan.depth) * plan.block);
            prop_assert!((1..=plan.depth).contains(&plan.batch));
            let mut workload = Workload::new(&plan);
            for _ in 0..100 {
                let transfer = workload.next_transfer();
                prop_assert!(transfer.length > 0 && transfer.length <= plan.block);
                prop_assert!(transfer.offset.is_multiple_of(512) && transfer.length.is_multiple_of(512));
                prop_assert!(transfer.offset + transfer.length <= capacity);
            }
        }
        let fill = plan.fill();
        prop_assert!(fill.memory_bytes() <= plan.memory_bytes(), "{} for {}", fill.memory_bytes(), plan.memory_bytes());
        let mut workload = Workload::new(&fill);
        let End::Requests(requests) = fill.end else { panic!("a fill has an end") };
        prop_assert_eq!((0..requests).map(|_| workload.next_transfer().length).sum::<u64>(), capacity);
    }
}

/// With a stand-in for a GPU, so that all but the GPU is there.
fn on_gpu(words: &str) -> Report {
    let gpu = StandIn::new(64 << 20);
    let args = args(words);
    let memory = MemoryArgs { place: Place::Given(gpu), ..args.memory.clone() };
    let report = run(&BenchArgs { memory, ..args }, &Interrupt::default()).unwrap();
    assert_eq!(report.errors.count(), 0, "{:?}", report.errors);
    report
}

#[test]
fn memory_of_a_gpu_is_measured_and_its_way_is_told() {
    for words in ["--mode read --fill", "--mode mixed --block 64KiB --page 16KiB"] {
        let report = on_gpu(&format!("model:size=8MiB --requests 500 --depth 8 {words}"));
        assert_eq!(report.requests, Some(500));
        let rows = report.all_rows();
        let text = |key| rows.iter().find(|row| row.key == Some(key)).map(|row| row.value.to_string());
        assert_eq!(text("memory_place").unwrap(), "stand-in");
        assert_eq!(text("path").unwrap(), "GPU 0 (stand-in), direct by the model's mover");
        let Some(Value::Count(launches)) =
            rows.iter().find(|row| row.key == Some("kernel_launches")).map(|row| row.value.clone())
        else {
            panic!("no launches")
        };
        assert!(launches > 0);
        assert!(text("prp_list_entries_walked").is_some() && report.memory.unwrap().pages == "GPU memory");
    }
}

#[test]
fn pages_of_a_block_are_one_command_and_are_counted_as_one_request() {
    let report = report("model:size=8MiB --requests 300 --block 64KiB --page 16KiB --depth 16 --mode mixed");
    let both_sides = report.both_sides.unwrap();
    // A few are joined with the one before, whose end on the device they begin at.
    let commands = both_sides.issued.commands;
    assert!(report.requests == Some(300) && (250..=300).contains(&commands), "{commands}");
    assert_eq!(report.bytes_read + report.bytes_written, 300 * (64 << 10));
    // 16 pages of 4 KiB in each: of a command's one in the command, the others in its list.
    assert_eq!(both_sides.prp_list_entries, Some(300 * 16 - commands));
    assert_eq!(report.latency.unwrap().count, 300);
}

#[test]
fn without_cuda_the_reason_is_told() {
    if Cuda::load().is_ok() {
        return;
    }
    let error = run(&args("model:size=8MiB --memory cuda:0"), &Interrupt::default()).err().unwrap().to_string();
    assert!(
        error.starts_with("--memory: no CUDA driver library") && error.contains("install NVIDIA's driver"),
        "{error}"
    );
}

#[test]
fn other_ways_are_for_reads_into_gpu_memory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let words =
        format!("model:size=8MiB --requests 10 --beside pread,io_uring --beside-file {}", file.path().display());
    let error = run(&args(&words), &Interrupt::default()).err().unwrap().to_string();
    assert!(error.contains("add --memory cuda:0"), "{error}");
    for wrong in ["--beside pread", "--beside posix --beside-file x"] {
        assert!(Line::try_parse_from(["bench"].into_iter().chain(wrong.split_whitespace())).is_err(), "{wrong}");
    }
}
