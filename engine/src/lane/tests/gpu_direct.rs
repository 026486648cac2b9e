//! GPU memory that devices reach by themselves: a stand-in's, by files in the place of BAR1.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tentpeg_driver::dma::{AcceleratorMemory, Access};
use tentpeg_driver::gpu::{
    Accelerator, CallerGpuMemory, CopierConfig, Gdrdrv, GdrdrvVersion, GpuPath, GpuPaths, Obstacle, StandIn,
    StandInWays, WordSeries, WritesOrdering,
};

use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::label::{NewLabel, NewSegment};
use crate::{
    BatchOptions, DeviceSource, GpuOptions, GpuProof, GpuSeries, MemoryError, MemoryPath, OpenOptions, ProofError,
    Proving, administration::Administration,
};
use TransferState::{Canceled, Completed, Failed};

const BLOCK: u64 = 4096;
/// Of Linux, on every architecture.
const ENOMEM: i32 = 12;
const ORDERED: StandInWays = StandInWays {
    mmap: true,
    gdrdrv: Some(Gdrdrv { version: GdrdrvVersion { major: 2, minor: 6 }, persistent: Some(true) }),
    bar1: 8 << 20,
    writes_ordering: WritesOrdering::Owner,
    host_flush: true,
};
const UNORDERED: StandInWays = StandInWays { writes_ordering: WritesOrdering::Nobody, ..ORDERED };

struct Rig {
    bench: Bench,
    gpu: Arc<StandIn>,
}

/// An engine over a stand-in with these ways, allowed `paths`, with memory of `len` bytes.
fn open(uri: &str, ways: StandInWays, paths: &str, len: usize) -> Rig {
    let gpu = StandIn::with_ways(64 << 20, ways);
    let options = GpuOptions { paths: paths.parse().unwrap(), ..GpuOptions::new(Arc::clone(&gpu) as _) };
    open_with(&[uri], options, gpu, len).unwrap()
}

fn open_with(uris: &[&str], options: GpuOptions, gpu: Arc<StandIn>, len: usize) -> Result<Rig, MemoryError> {
    let drain_timeout = Duration::from_millis(20);
    let config = EngineConfig { queue_entries: 16, gpu: Some(options), drain_timeout, ..EngineConfig::default() };
    let options = OpenOptions { config, lanes: LaneMode::CallerDriven, ..OpenOptions::default() };
    let (engine, lane) = Engine::open_devices(uris.iter().copied(), options).unwrap();
    let mut lane = lane.unwrap();
    let memory = engine.allocate_gpu_memory_with(len, &mut lane);
    match memory {
        Ok(memory) => Ok(Rig { bench: Bench { engine, lane, memory }, gpu }),
        Err(error) => {
            engine.close_with(lane).unwrap();
            Err(error)
        }
    }
}

fn series(offset: u64, blocks: u64, seed: u64) -> GpuSeries {
    GpuSeries { offset, words: blocks * BLOCK / 8, first: seed << 32, step: 2 * seed + 1 }
}

/// A file with a label, whose scratch extent is of 1 MiB.
fn labelled(folder: &Path) -> String {
    labelled_as(folder, "a")
}

/// As [`labelled`], with a segment of that name.
fn labelled_as(folder: &Path, segment: &str) -> String {
    let uri = file_uri(&folder.join("store"), "size=8MiB");
    let mut device = Administration::open(&uri).unwrap();
    device.create_label(&NewLabel::default()).unwrap();
    let (mut label, mut blocks) = device.change().unwrap();
    let new = NewSegment {
        name: segment.to_owned(),
        uuid: uuid::Uuid::nil(),
        capacity: 2 << 20,
        durability: crate::label::Durability::None,
    };
    label.create_segment(&mut *blocks, &new).unwrap();
    drop(blocks);
    device.close().unwrap();
    file_uri(&folder.join("store"), "overwrite")
}

/// There and back, to other places: what came is what was written, and a control is told from it.
#[track_caller]
fn goes_and_comes(rig: &mut Rig) {
    let Rig { bench, .. } = rig;
    let mut words = bench.engine.gpu_words(&bench.memory).unwrap();
    words.fill([series(0, 16, 1), series(16 * BLOCK, 16, 2)]).unwrap();
    let batch = bench.submit(&[bench.write(0, 0, 16 * BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Completed]);
    let batch = bench.submit(&(0..16).map(|at| bench.read((16 + at) * BLOCK, at * BLOCK, BLOCK)).collect::<Vec<_>>());
    bench.run();
    assert_eq!(states(&batch), [Completed; 16]);
    assert_eq!(words.check([series(16 * BLOCK, 16, 1)]).unwrap(), None);
    assert!(words.check([series(16 * BLOCK, 16, 3)]).unwrap().is_some());
}

#[test]
fn devices_reach_it_by_each_way_without_a_copy() {
    for (paths, path) in [("dma-buf", GpuPath::DmaBufMmap), ("gdrdrv", GpuPath::Gdrdrv)] {
        let mut rig = open("model:size=1MiB", ORDERED, paths, 32 * BLOCK as usize);
        assert!(matches!(rig.bench.memory.path(), MemoryPath::Gpu { path: found, .. } if found == path));
        assert!(rig.bench.memory.is_reached() && rig.bench.memory.proof().is_some());
        goes_and_comes(&mut rig);
        let counters = rig.bench.engine.counters();
        assert_eq!((counters.bytes_staged, counters.gpu_flushes, rig.gpu.flushes()), (0, 0, 0), "{paths}");
        rig.bench.close();
    }
}

/// One flush for what a turn has read, none for writes and none for host memory.
#[test]
fn where_writes_of_devices_are_not_ordered_a_turn_flushes_once() {
    let mut rig = open("model:size=1MiB", UNORDERED, "dma-buf", 32 * BLOCK as usize);
    goes_and_comes(&mut rig);
    // Sixteen reads of 15 slots in any case: two turns with completions at the least.
    let flushes = rig.gpu.flushes();
    assert!((1..=4).contains(&flushes), "{flushes}");
    assert_eq!(rig.bench.engine.counters().gpu_flushes, flushes);
    let host = rig.bench.engine.allocate_memory(BLOCK as usize).unwrap();
    let request = Request { source: host.address(), ..rig.bench.read(0, 0, BLOCK) };
    let batch = rig.bench.submit(&[request, rig.bench.write(0, 0, BLOCK)]);
    rig.bench.run();
    assert_eq!((states(&batch), rig.gpu.flushes()), (vec![Completed; 2], flushes));
    let Bench { engine, lane, memory } = &mut rig.bench;
    engine.unregister_memory_with(memory.clone(), lane);
    let batch = rig.bench.submit(&[request]);
    rig.bench.run();
    assert_eq!((states(&batch), rig.gpu.flushes()), (vec![Completed], flushes), "nothing is left to be flushed for");
    rig.bench.close();
}

/// Spread over two devices, each lane flushes for its share before it says so.
#[test]
fn shares_of_a_spread_read_are_flushed_too() {
    let gpu = StandIn::with_ways(64 << 20, UNORDERED);
    let paths = GpuPaths::DMA_BUF_MMAP;
    let options = GpuOptions { paths, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let config = EngineConfig { gpu: Some(options), ..EngineConfig::default() };
    let mut devices = Devices::new(LaneMode::CallerDriven, config);
    let members = [0, 1].map(|device| {
        devices.open("model:size=1MiB").unwrap();
        MemberLayout { device, extents: vec![BlockExtent::new(0, 256).unwrap()] }
    });
    let layout = SegmentLayout { members: members.into(), chunk: 4096, ..SegmentLayout::whole("striped", 0, 256) };
    let (engine, lane) = devices.start(vec![layout]).unwrap();
    let memory = engine.allocate_gpu_memory(32 * BLOCK as usize).unwrap();
    let mut rig = Rig { bench: Bench { engine, lane: lane.unwrap(), memory }, gpu };
    assert!(matches!(rig.bench.memory.proof(), Some(GpuProof::NotTried { reason }) if reason.contains("has not lent")));
    let mut words = rig.bench.engine.gpu_words(&rig.bench.memory).unwrap();
    words.fill([series(0, 16, 5)]).unwrap();
    for request in [rig.bench.write(0, 0, 16 * BLOCK), rig.bench.read(16 * BLOCK, 0, 16 * BLOCK)] {
        let batch = rig.bench.submit(&[request]);
        rig.bench.run();
        assert_eq!(states(&batch), [Completed]);
    }
    assert_eq!(words.check([series(16 * BLOCK, 16, 5)]).unwrap(), None);
    assert!((2..=4).contains(&rig.gpu.flushes()), "{}", rig.gpu.flushes());
    rig.bench.close();
}

#[test]
fn reads_fail_where_the_gpu_cannot_be_flushed_any_more() {
    let mut rig = open("model:size=1MiB", UNORDERED, "dma-buf", 32 * BLOCK as usize);
    rig.gpu.break_flushes();
    let host = rig.bench.engine.allocate_memory(BLOCK as usize).unwrap();
    let elsewhere = Request { source: host.address(), ..rig.bench.read(0, 0, BLOCK) };
    let batch = rig.bench.submit(&[rig.bench.read(0, 0, BLOCK), rig.bench.write(BLOCK, BLOCK, BLOCK), elsewhere]);
    rig.bench.run();
    assert_eq!(states(&batch), [Failed, Completed, Completed]);
    rig.bench.close();
}

#[test]
fn a_device_with_a_label_proves_the_way_when_memory_is_registered() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    for ways in [ORDERED, UNORDERED] {
        let mut rig = open(&uri, ways, "dma-buf", 32 * BLOCK as usize);
        assert_eq!(rig.bench.memory.proof(), Some(&GpuProof::Proved { devices: 1 }));
        let own = rig.gpu.allocate_memory(256 << 10).unwrap();
        // By the GPU's own copies, as a kernel would: what devices are given has it, too.
        let mut copier = Arc::clone(&rig.gpu).copier(CopierConfig::default()).unwrap();
        let sevens =
            WordSeries { address: own.address(), words: (256 << 10) / 8, first: 0x0707_0707_0707_0707, step: 0 };
        // SAFETY: the words lie in the memory, which nobody else uses.
        unsafe { copier.write_series(&[sevens]) }.unwrap();
        // SAFETY: the memory is dropped after the engine.
        let part = unsafe { CallerGpuMemory::new(own.address() + 8, 200_000) };
        let Bench { engine, lane, .. } = &mut rig.bench;
        let memory = engine.register_gpu_memory_with(part, Access::DEVICE_READS, lane).unwrap();
        assert_eq!(memory.proof(), Some(&GpuProof::Proved { devices: 1 }));
        assert_eq!(memory.exposed_beside(), (8, (256 << 10) - 8 - 200_000));
        let mut bytes = vec![0; 256 << 10];
        own.view().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 7), "it is as it was");
        goes_and_comes(&mut rig);
        rig.bench.engine.close_with(rig.bench.lane).unwrap();
        drop(own);
    }
}

/// What the GPU has behind its BAR is another place than its copies use: nothing fails, and nothing is right.
#[test]
fn a_way_that_leads_elsewhere_is_refused_and_nothing_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    let gpu = StandIn::with_ways(64 << 20, ORDERED);
    gpu.lead_astray();
    let options =
        |proving| GpuOptions { paths: GpuPaths::DMA_BUF_MMAP, proving, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let refused = open_with(&[&uri], options(Proving::WherePossible), Arc::clone(&gpu), 64 << 10).err();
    assert!(matches!(refused, Some(MemoryError::Proof(ProofError::Astray { .. }))), "{refused:?}");
    // The control: without the proof it is taken, and wrong.
    let mut rig = open_with(&[&uri], options(Proving::Off), gpu, 64 << 10).unwrap();
    assert_eq!(rig.bench.memory.proof(), None);
    let mut words = rig.bench.engine.gpu_words(&rig.bench.memory).unwrap();
    words.fill([series(0, 1, 1), series(BLOCK, 1, 2)]).unwrap();
    for request in [rig.bench.write(0, 0, BLOCK), rig.bench.read(BLOCK, 0, BLOCK)] {
        let batch = rig.bench.submit(&[request]);
        rig.bench.run();
        assert_eq!(states(&batch), [Completed]);
    }
    assert!(words.check([series(BLOCK, 1, 1)]).unwrap().is_some());
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
}

#[test]
fn a_proof_that_was_required_and_cannot_be_made_is_a_refusal() {
    let gpu = StandIn::with_ways(64 << 20, ORDERED);
    let options = GpuOptions {
        paths: GpuPaths::DMA_BUF_MMAP,
        proving: Proving::Required,
        ..GpuOptions::new(Arc::clone(&gpu) as _)
    };
    let error = open_with(&["model:size=1MiB"], options, gpu, 64 << 10).err().unwrap();
    assert!(error.to_string().contains("no label with a scratch extent"), "{error}");
}

/// BAR1 is counted before it is mapped, and where it is full the next way is gone, or the reason told.
#[test]
fn bar1_is_budgeted_and_free_again_with_the_memory() {
    let gpu = StandIn::with_ways(64 << 20, StandInWays { bar1: 256 << 10, ..ORDERED });
    let options = |bar1| GpuOptions { paths: GpuPaths::DMA_BUF_MMAP, bar1, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let gdrdrv_only = GpuOptions { paths: GpuPaths::GDRDRV, ..options(Some(192 << 10)) };
    let mut rig = open_with(&["model:size=1MiB"], gdrdrv_only, Arc::clone(&gpu), 128 << 10).unwrap();
    let obstacle = |error: MemoryError| match error {
        MemoryError::GpuPath(no_path) => no_path.rungs[0].obstacle.clone().unwrap(),
        other => panic!("{other}"),
    };
    let full = obstacle(rig.bench.engine.allocate_gpu_memory(128 << 10).unwrap_err());
    assert_eq!(full, Obstacle::Budget { wanted: 128 << 10, left: 64 << 10 });
    let small = rig.bench.engine.allocate_gpu_memory(64 << 10).unwrap();
    let Bench { engine, lane, memory } = &mut rig.bench;
    engine.unregister_memory_with(memory.clone(), lane);
    rig.bench.memory = rig.bench.engine.allocate_gpu_memory(128 << 10).unwrap();
    drop(small);
    rig.bench.close();
    // Without a budget the mapping itself says so.
    let options = GpuOptions { paths: GpuPaths::GDRDRV, ..options(None) };
    let error = open_with(&["model:size=1MiB"], options, Arc::clone(&gpu), 512 << 10).err().unwrap();
    assert_eq!(obstacle(error), Obstacle::Pin { errno: ENOMEM });
}

#[test]
fn what_cannot_be_gone_is_staged_where_that_is_allowed_and_told_where_it_is_not() {
    // A GPU that neither orders writes nor can be flushed.
    let blind = StandInWays { writes_ordering: WritesOrdering::Nobody, host_flush: false, ..ORDERED };
    let gpu = StandIn::with_ways(64 << 20, blind);
    let direct = GpuOptions { paths: GpuPaths::GDRDRV, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let error = open_with(&["model:size=1MiB"], direct, Arc::clone(&gpu), 64 << 10).err().unwrap();
    assert!(error.to_string().contains("the host cannot flush"), "{error}");
    let nobody = GpuOptions {
        paths: GpuPaths::GDRDRV,
        visible_to: WritesOrdering::Nobody,
        ..GpuOptions::new(Arc::clone(&gpu) as _)
    };
    open_with(&["model:size=1MiB"], nobody, gpu, 64 << 10).unwrap().bench.close();
    // Memory that is a part of GPU pages which are somebody else's.
    let mut rig = open("model:size=1MiB", ORDERED, "gdrdrv", 64 << 10);
    let own = rig.gpu.allocate_memory(64 << 10).unwrap();
    rig.gpu.cut(own.address(), 32 << 10);
    // SAFETY: it is dropped after the engine.
    let part = || unsafe { CallerGpuMemory::new(own.address(), 8192) };
    let Bench { engine, lane, .. } = &mut rig.bench;
    let error = engine.register_gpu_memory_with(part(), Access::all(), lane).unwrap_err();
    assert!(error.to_string().contains("pages of 65536 bytes of which the allocation has only a part"), "{error}");
    rig.bench.close();
}

#[test]
fn memory_that_is_unregistered_in_flight_is_mapped_until_no_device_writes_there() {
    let mut rig = open("model:size=1MiB", UNORDERED, "dma-buf", BLOCK as usize);
    let own = rig.gpu.allocate_memory(64 << 10).unwrap();
    // SAFETY: it is dropped after the engine.
    let part = unsafe { CallerGpuMemory::new(own.address(), 64 << 10) };
    let Bench { engine, lane, .. } = &mut rig.bench;
    let memory = engine.register_gpu_memory_with(part, Access::all(), lane).unwrap();
    let read = |block: u64| Request {
        source: memory.address() + block * BLOCK,
        ..rig.bench.read(0, (15 - block) * BLOCK, BLOCK)
    };
    let batch = rig.bench.submit(&(0..16).map(read).collect::<Vec<_>>());
    rig.bench.lane.turn();
    let Bench { engine, lane, .. } = &mut rig.bench;
    engine.unregister_memory_with(memory.clone(), lane);
    assert!(!memory.is_reached());
    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled)), "{:?}", states(&batch));
    rig.bench.close();
    drop(own);
}

/// Lanes with threads turn by themselves while the caller waits for the proof.
#[test]
fn lanes_with_threads_prove_and_flush_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    let gpu = StandIn::with_ways(64 << 20, UNORDERED);
    let options = GpuOptions {
        paths: GpuPaths::DMA_BUF_MMAP,
        proving: Proving::Required,
        ..GpuOptions::new(Arc::clone(&gpu) as _)
    };
    let config = EngineConfig { gpu: Some(options), ..EngineConfig::default() };
    let source = DeviceSource::from(uri.as_str());
    let (engine, _) = Engine::open_devices([source], OpenOptions { config, ..OpenOptions::default() }).unwrap();
    let memory = engine.allocate_gpu_memory(128 << 10).unwrap();
    assert_eq!(memory.proof(), Some(&GpuProof::Proved { devices: 1 }));
    // Three spots, one read into each.
    assert_eq!(engine.counters().gpu_flushes, 3);
    engine.close().unwrap();
}

/// The lane that proves a way ends others' tasks meanwhile, and their notifiers may want memory.
#[test]
fn a_notifier_has_host_memory_while_a_way_is_proved() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    let gpu = StandIn::with_ways(64 << 20, ORDERED);
    let options = GpuOptions { paths: GpuPaths::DMA_BUF_MMAP, proving: Proving::Required, ..GpuOptions::new(gpu as _) };
    let config = EngineConfig { gpu: Some(options), ..EngineConfig::default() };
    let options = OpenOptions { config, lanes: LaneMode::CallerDriven, ..OpenOptions::default() };
    let (engine, lane) = Engine::open_devices([uri.as_str()], options).unwrap();
    let (engine, mut lane) = (Arc::new(engine), lane.unwrap());
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let (weak, had) = (Arc::downgrade(&engine), Arc::<AtomicBool>::default());
    let notified = Arc::clone(&had);
    let notifier = move |_| {
        let engine = weak.upgrade().unwrap();
        notified.store(engine.allocate_memory(BLOCK as usize).is_ok(), Ordering::Relaxed);
    };
    let options = BatchOptions { notifier: Some(Box::new(notifier)), ..BatchOptions::with_capacity(1) };
    let batch = engine.allocate_batch_with(options).unwrap();
    let request = request_of(&memory, OpCode::Read, 0, 0, BLOCK);
    engine.submit(&batch, &[request]).unwrap();
    let proved = engine.allocate_gpu_memory_with(64 << 10, &mut lane).unwrap();
    assert_eq!(proved.proof(), Some(&GpuProof::Proved { devices: 1 }));
    assert!(had.load(Ordering::Relaxed));
    drop((batch, memory, proved));
    Arc::into_inner(engine).unwrap().close_with(lane).unwrap();
}

/// Who sees what devices write is one matter, whether a way leads there another.
#[test]
fn a_way_is_proved_where_nobody_is_to_see_what_devices_write_either() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    let options = |gpu: &Arc<StandIn>| GpuOptions {
        paths: GpuPaths::DMA_BUF_MMAP,
        visible_to: WritesOrdering::Nobody,
        ..GpuOptions::new(Arc::clone(gpu) as _)
    };
    let gpu = StandIn::with_ways(64 << 20, UNORDERED);
    let rig = open_with(&[&uri], options(&gpu), Arc::clone(&gpu), 128 << 10).unwrap();
    assert_eq!(rig.bench.memory.proof(), Some(&GpuProof::Proved { devices: 1 }));
    assert_eq!(rig.bench.engine.counters().gpu_flushes, 0, "by the proof itself, not by a lane");
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
    let blind = StandIn::with_ways(64 << 20, StandInWays { host_flush: false, ..UNORDERED });
    let rig = open_with(&[&uri], options(&blind), Arc::clone(&blind), 128 << 10).unwrap();
    let proof = rig.bench.memory.proof().unwrap().to_string();
    assert!(proof.contains("nobody can say when the GPU sees"), "{proof}");
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
}

/// A drive that serves nobody says nothing of the way, and keeps nobody else from memory.
#[test]
fn a_device_that_fails_every_command_is_no_reason_to_refuse_memory() {
    let folder = tempfile::tempdir().unwrap();
    let uri = labelled(folder.path());
    let mut rig = open(&uri, ORDERED, "dma-buf", 64 << 10);
    let fails = Rule {
        queue: CommandQueue::Io,
        opcode: None,
        when: When::Next(u64::MAX),
        action: Action::Status { status: StatusCode::INTERNAL_ERROR.status(), execute: false },
    };
    rig.bench.engine.faults().unwrap().add(fails);
    let Bench { engine, lane, .. } = &mut rig.bench;
    let memory = engine.allocate_gpu_memory_with(64 << 10, lane).unwrap();
    let proof = memory.proof().unwrap().to_string();
    assert!(proof.contains("does not move blocks") || proof.contains("Internal Error"), "{proof}");
    drop(memory);
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
}

/// Who is told that his read was given up has the memory back: what the device had written until then is not to come later.
#[test]
fn what_never_completes_is_flushed_for_before_it_is_given_up() {
    let mut rig = open("model:size=1MiB", UNORDERED, "dma-buf", 64 << 10);
    let never = Rule {
        queue: CommandQueue::Io,
        opcode: None,
        when: When::Next(u64::MAX),
        action: Action::Delay { turns: u32::MAX },
    };
    rig.bench.engine.faults().unwrap().add(never);
    let batch = rig.bench.submit(&[rig.bench.read(0, 0, BLOCK)]);
    rig.bench.lane.turn();
    assert_eq!(rig.gpu.flushes(), 0);
    let Bench { engine, lane, memory } = rig.bench;
    let _ = engine.close_with(lane);
    assert_eq!((states(&batch), rig.gpu.flushes()), (vec![Failed], 1));
    drop(memory);
}

/// One device after the other, whatever their blocks are.
#[test]
fn each_of_several_devices_proves_the_way() {
    let folders = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let uris = [0, 1].map(|number: usize| labelled_as(folders[number].path(), &format!("s{number}")));
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let gpu = StandIn::with_ways(64 << 20, ORDERED);
    let options = GpuOptions {
        paths: GpuPaths::DMA_BUF_MMAP,
        proving: Proving::Required,
        ..GpuOptions::new(Arc::clone(&gpu) as _)
    };
    let rig = open_with(&uris, options, gpu, 64 << 10).unwrap();
    assert_eq!(rig.bench.memory.proof(), Some(&GpuProof::Proved { devices: 2 }));
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
}
