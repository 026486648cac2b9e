//! Memory of a GPU, for which host memory stands in that nobody but its copies touches.

use std::sync::Arc;

use tentpeg_driver::dma::{AcceleratorMemory, Access, CallerMemory, Translation};
use tentpeg_driver::gpu::{
    CallerGpuMemory, GpuMemoryError, GpuPath, GpuPaths, Obstacle, PlaceError, StandIn, StandInMemory, WordSeries,
};

use super::*;
use crate::memory::own::Own;
use crate::{
    DeviceSource, GpuOptions, GpuSeries, GpuWordsError, MemoryError, MemoryPath, OpenError, OpenOptions,
    RegisterOptions, RequestError, SubmitAfterError, UnalignedReads, WrongWords,
};
use TransferState::{Canceled, Completed, Invalid};

const BLOCK: u64 = 4096;

/// An engine with a stand-in for a GPU, and GPU memory in place of a bench's own.
fn open(uri: &str, queue_entries: u32, len: usize) -> (Bench, Arc<StandIn>) {
    let gpu = StandIn::new(64 << 20);
    let config =
        EngineConfig { queue_entries, gpu: Some(GpuOptions::new(Arc::clone(&gpu) as _)), ..EngineConfig::default() };
    let options = OpenOptions {
        config,
        lanes: LaneMode::CallerDriven,
        unaligned_reads: UnalignedReads::All,
        ..OpenOptions::default()
    };
    let (engine, lane) = Engine::open_devices([uri], options).unwrap();
    let memory = engine.allocate_gpu_memory(len).unwrap();
    (Bench { engine, lane: lane.unwrap(), memory }, gpu)
}

fn series(block: u64, seed: u64) -> GpuSeries {
    GpuSeries { offset: block * BLOCK, words: BLOCK / 8, first: seed << 32, step: 2 * seed + 1 }
}

/// Memory of the caller's on the stand-in.
fn part(memory: &dyn AcceleratorMemory, offset: u64, len: u64) -> CallerGpuMemory {
    // SAFETY: each test drops the memory after its engine, or has nothing registered of it.
    unsafe { CallerGpuMemory::new(memory.address() + offset, len) }
}

/// Unregistered memory is the caller's again, whatever is left of handles: nothing writes there any more. Closes the engine.
#[track_caller]
fn close_and_see_untouched(mut bench: Bench, own: Arc<StandInMemory>) {
    let mut bytes = vec![3; AcceleratorMemory::len(&*own) as usize];
    own.view().write(0, &bytes);
    bench.run();
    bytes.fill(0);
    own.view().read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 3));
    drop(own);
    bench.close();
}

#[test]
fn what_the_gpu_has_written_is_on_the_device_and_comes_back_to_other_places() {
    let (mut bench, gpu) = open("model:size=1MiB", 16, 32 * BLOCK as usize);
    assert_eq!(bench.memory.len(), 128 << 10);
    assert!(matches!(bench.memory.path(), MemoryPath::GpuByMover { gpu } if gpu.contains("stand-in")));
    let mut words = bench.engine.gpu_words(&bench.memory).unwrap();
    words.fill((0..16).map(|block| series(block, block + 1))).unwrap();
    // Pages of one command that are scattered in memory, and ranges in several commands.
    let scattered: Vec<_> = (0..16).map(|block| bench.write(block * 7 % 16 * BLOCK, block * BLOCK, BLOCK)).collect();
    let batch = bench.submit(&scattered);
    bench.run();
    assert_eq!(states(&batch), [Completed; 16]);
    assert_eq!(bench.engine.counters().commands, 1, "the requests are joined");
    words.fill((16..32).map(|block| series(block, 99))).unwrap();
    let batch = bench.submit(&[bench.read(16 * BLOCK, 0, 16 * BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Completed]);
    let right = |seed: u64| (0..16).map(move |block| series(16 + block, block * 7 % 16 + seed));
    assert_eq!(words.check(right(1)).unwrap(), None);
    // The control: other words are not taken for these, and the first that are wrong are named.
    let wrong = words.check(right(1).take(3).chain([series(16 + 5, 77)])).unwrap();
    assert_eq!(wrong, Some(WrongWords { words: BLOCK / 8, series: 3 }));
    let mut found = [0; 3];
    words.read((16 + 1) * BLOCK + 8, &mut found).unwrap();
    assert_eq!(found, [1, 2, 3].map(|at| (8u64 << 32) + 17 * at));
    assert!(gpu_launches(&bench) > 4 && gpu.attributes_are_known(&bench.memory));
    bench.close();
}

trait Known {
    fn attributes_are_known(&self, memory: &Memory) -> bool;
}

impl Known for StandIn {
    fn attributes_are_known(&self, memory: &Memory) -> bool {
        use tentpeg_driver::gpu::PointerQueries;
        self.attributes(memory.address()).is_ok_and(|attributes| attributes.memory_type == 2)
    }
}

fn gpu_launches(bench: &Bench) -> u64 {
    bench.engine.gpu().unwrap().launches()
}

/// A device reads what is there when its command comes: what a kernel is still to write has to be waited for.
#[test]
fn requests_go_out_after_the_work_that_they_read() {
    let (mut bench, gpu) = open("model:size=1MiB", 16, 64 << 10);
    let mut words = bench.engine.gpu_words(&bench.memory).unwrap();
    words.fill([series(0, 1), series(1, 2)]).unwrap();
    let GpuSeries { words: count, first, step, .. } = series(0, 7);
    let work = WordSeries { address: bench.memory.address(), words: count, first, step };
    // SAFETY: nobody else uses the first block until it is waited for.
    let producer = unsafe { gpu.begin_work(work) };
    let batch = bench.submit(&[bench.write(0, 0, BLOCK)]);
    bench.run();
    let after = bench.engine.allocate_batch(1).unwrap();
    bench.engine.submit_after(producer, &after, &[bench.write(0, BLOCK, BLOCK)]).unwrap();
    bench.run();
    assert_eq!((states(&batch), states(&after)), (vec![Completed], vec![Completed]));
    let batch = bench.submit(&[bench.read(4 * BLOCK, 0, 2 * BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Completed]);
    let there = |seed| GpuSeries { offset: 5 * BLOCK, ..series(0, seed) };
    assert_eq!(words.check([there(7)]).unwrap(), None);
    let before = words.check([GpuSeries { offset: 4 * BLOCK, ..series(0, 1) }]).unwrap();
    assert_eq!(before, None, "the control: the first did not wait");
    let refused = bench.engine.submit_after(producer, &after, &[]);
    assert!(matches!(refused, Err(SubmitAfterError::Producer(_))), "{refused:?}");
    bench.close();
    let bench = Bench::open("model:size=1MiB", 4, 4096);
    let batch = bench.engine.allocate_batch(1).unwrap();
    assert_eq!(bench.engine.submit_after(producer, &batch, &[]), Err(SubmitAfterError::NoGpu));
    bench.close();
}

#[test]
fn memory_of_the_caller_is_registered_from_any_byte_on_and_as_often_as_he_likes() {
    let (mut bench, gpu) = open("model:size=1MiB", 16, 4096);
    let own = gpu.allocate_memory(64 << 10).unwrap();
    own.view().write(0, &[7; 64 << 10]);
    let register = |bench: &Bench, access| bench.engine.register_gpu_memory(part(&*own, 4096 + 8, 8 * BLOCK), access);
    let memory = register(&bench, Access::all()).unwrap();
    assert_eq!((memory.address(), memory.len()), (own.address() + 4096 + 8, 8 * BLOCK as usize));
    assert_eq!((memory.exposed_beside(), memory.is_gpu()), ((8, 4096 - 8), true));
    let again = register(&bench, Access::all()).unwrap();
    assert!(matches!(register(&bench, Access::DEVICE_READS), Err(MemoryError::RegisteredOtherwise { .. })));
    let request = |opcode, at: u64, block: u64| Request {
        opcode,
        source: memory.address() + at,
        target_id: SegmentId(1),
        target_offset: block * BLOCK,
        length: 2 * BLOCK,
    };
    let batch = bench.submit(&[request(OpCode::Write, 16, 0)]);
    bench.run();
    own.view().write(0, &[9; 64 << 10]);
    let second = bench.submit(&[request(OpCode::Read, 4 * BLOCK, 0)]);
    bench.run();
    assert_eq!((states(&batch), states(&second)), (vec![Completed], vec![Completed]));
    let mut found = vec![0; 64 << 10];
    own.view().read(0, &mut found);
    let begin = 4096 + 8 + 4 * 4096;
    assert!(found[begin..begin + 8192].iter().all(|byte| *byte == 7));
    assert!(found[..begin].iter().chain(&found[begin + 8192..]).all(|byte| *byte == 9));
    bench.engine.unregister_memory_with(again, &mut bench.lane);
    assert!(memory.is_reached(), "it is registered once more");
    bench.engine.unregister_memory_with(memory.clone(), &mut bench.lane);
    assert!(!memory.is_reached());
    let batch = bench.submit(&[request(OpCode::Read, 0, 0)]);
    assert_eq!(states(&batch), [Invalid]);
    bench.close();
}

#[test]
fn what_is_no_memory_of_the_gpu_is_refused_with_the_reason() {
    let (bench, gpu) = open("model:size=1MiB", 16, 4096);
    let own = gpu.allocate_memory(64 << 10).unwrap();
    let refused = |memory: CallerGpuMemory| match bench.engine.register_gpu_memory(memory, Access::all()) {
        Err(MemoryError::Place(error)) => error,
        other => panic!("{other:?}"),
    };
    let host = [0u64; 4];
    let at = |address: u64, len| {
        // SAFETY: nothing of the stand-in's is there, so nothing is registered.
        unsafe { CallerGpuMemory::new(address, len) }
    };
    assert!(matches!(refused(at(host.as_ptr().addr() as u64, 32)), PlaceError::NotCuda { .. }));
    assert!(matches!(refused(at(own.address(), 0)), PlaceError::Length { .. }));
    assert!(matches!(refused(at(own.address(), u64::MAX)), PlaceError::Length { .. }));
    assert!(matches!(refused(part(&*own, 4096, 64 << 10)), PlaceError::PastAllocation { .. }));
    assert!(matches!(
        bench.engine.register_gpu_memory(part(&*own, 0, 4096), Access::empty()),
        Err(MemoryError::NoAccess { .. })
    ));
    assert!(matches!(bench.engine.allocate_gpu_memory(1 << 40), Err(MemoryError::Gpu(GpuMemoryError::NoRoom { .. }))));
    // Registered, freed behind the engine's back, and named again.
    let memory = bench.engine.register_gpu_memory(part(&*own, 0, 8192), Access::all()).unwrap();
    assert!(matches!(
        bench.engine.register_gpu_memory(part(&*own, 4096, 8192), Access::all()),
        Err(MemoryError::Overlaps { .. })
    ));
    let address = own.address();
    drop(own);
    assert!(matches!(refused(at(address, 8192)), PlaceError::Gone { .. }));
    assert!(matches!(bench.engine.gpu_words(&memory), Err(GpuWordsError::NotAllocated { .. })));
    let mut words = bench.engine.gpu_words(&bench.memory).unwrap();
    for (offset, count) in [(bench.memory.len() as u64, 1), (4, 1), (0, u64::MAX / 4)] {
        let series = GpuSeries { offset, words: count, first: 0, step: 1 };
        assert!(matches!(words.fill([series]), Err(GpuWordsError::Outside { .. })), "{series:?}");
    }
    bench.close();
}

#[test]
fn an_engine_without_a_gpu_says_so() {
    let bench = Bench::open("model:size=1MiB", 4, 4096);
    assert!(matches!(bench.engine.allocate_gpu_memory(4096), Err(MemoryError::NoGpu)));
    assert!(matches!(bench.engine.gpu_words(&bench.memory), Err(GpuWordsError::NotAllocated { .. })));
    assert_eq!(bench.memory.path(), MemoryPath::Host);
    bench.close();
}

/// Nothing of it is touched by the host: neither by copies that a read of any bytes needs, nor by those of odd memory.
#[test]
fn what_the_host_would_have_to_copy_is_refused() {
    let (mut bench, _gpu) = open("model:size=1MiB", 16, 64 << 10);
    let odd = [bench.read(0, 100, 300), bench.read(8, 512, BLOCK), bench.write(2, 0, BLOCK), bench.read(2, 0, BLOCK)];
    let batch = bench.submit(&odd);
    bench.run();
    assert_eq!(states(&batch), [Invalid; 4]);
    let refusal = |task| batch.refusal(task).unwrap().unwrap();
    assert!(matches!(refusal(0), RequestError::HostCopy { .. }), "{}", refusal(0));
    assert!(matches!(refusal(3), RequestError::HostCopy { .. }), "{}", refusal(3));
    assert!(matches!(refusal(2), RequestError::SourceAlignment { .. }), "{}", refusal(2));
    bench.close();
}

#[test]
fn memory_that_is_unregistered_in_flight_is_let_go_when_no_copy_goes_there_any_more() {
    let (mut bench, gpu) = open("model:size=1MiB", 4, 4096);
    let own = gpu.allocate_memory(64 << 10).unwrap();
    let memory = bench.engine.register_gpu_memory(part(&*own, 0, 64 << 10), Access::all()).unwrap();
    let read = |block: u64| Request {
        opcode: OpCode::Read,
        source: memory.address() + block * BLOCK,
        target_id: SegmentId(1),
        target_offset: (15 - block) * BLOCK,
        length: BLOCK,
    };
    let batch = bench.submit(&(0..10).map(read).collect::<Vec<_>>());
    bench.lane.turn();
    let error = bench.engine.try_unregister_memory_with(memory.clone(), &mut bench.lane).unwrap_err();
    assert!((1..=10).contains(&error.tasks), "{error}");
    bench.engine.unregister_memory_with(memory.clone(), &mut bench.lane);
    assert!(!memory.is_reached());
    // Three slots.
    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled)), "{:?}", states(&batch));
    assert!(states(&batch).contains(&Canceled));
    close_and_see_untouched(bench, own);
}

#[test]
fn memory_that_is_left_registered_ends_with_the_engine() {
    let (bench, gpu) = open("model:size=1MiB", 4, 4096);
    let own = gpu.allocate_memory(64 << 10).unwrap();
    let memory = bench.engine.register_gpu_memory(part(&*own, 0, 64 << 10), Access::all()).unwrap();
    let allocated = bench.memory.clone();
    bench.close();
    assert!(!memory.is_reached() && !allocated.is_reached());
}

#[test]
fn a_device_that_cannot_reach_the_gpu_is_named_where_direct_was_demanded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let file = format!("model:path={},size=1MiB", path.display());
    let gpu = GpuOptions { paths: GpuPaths::DIRECT, ..GpuOptions::new(StandIn::new(1 << 20)) };
    let config = EngineConfig { gpu: Some(gpu), ..EngineConfig::default() };
    let options = OpenOptions { config, ..OpenOptions::default() };
    let opened = Engine::open_devices(["model:size=1MiB", &file], options);
    let Err(error @ OpenError::GpuNotReached { .. }) = opened else { panic!("it was opened") };
    let text = error.to_string();
    assert!(
        text.contains("store") && text.contains("GPU 0 (stand-in)") && text.contains("set store to memory"),
        "{text}"
    );
    assert!(!path.exists(), "nothing was created");
}

/// An engine whose devices do not reach the GPU: its memory is staged.
fn open_staged(uri: &str, queue_entries: u32, len: usize, paths: GpuPaths) -> (Bench, Arc<StandIn>) {
    let gpu = StandIn::new(64 << 20);
    let options = GpuOptions { paths, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let config = EngineConfig { queue_entries, gpu: Some(options), ..EngineConfig::default() };
    let options = OpenOptions {
        config,
        lanes: LaneMode::CallerDriven,
        unaligned_reads: UnalignedReads::All,
        ..OpenOptions::default()
    };
    let (engine, lane) = Engine::open_devices([uri], options).unwrap();
    let memory = engine.allocate_gpu_memory(len).unwrap();
    (Bench { engine, lane: lane.unwrap(), memory }, gpu)
}

#[test]
fn what_devices_do_not_reach_is_staged_by_copies_of_the_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let file = file_uri(&folder.path().join("store"), "size=4MiB");
    for (uri, paths) in [("model:size=4MiB", GpuPaths::STAGED), (&*file, GpuPaths::all())] {
        let (mut bench, _gpu) = open_staged(uri, 16, 512 * BLOCK as usize, paths);
        assert!(
            matches!(bench.memory.path(), MemoryPath::Gpu { path: GpuPath::Staged, .. }),
            "{}",
            bench.memory.path()
        );
        assert!(!bench.memory.is_reached());
        let mut words = bench.engine.gpu_words(&bench.memory).unwrap();
        words.fill((0..256).map(|block| series(block, block + 1))).unwrap();
        // More than there are slots, and requests of many buffers.
        let mut requests: Vec<_> = (0..64).map(|block| bench.write(block * BLOCK, block * BLOCK, BLOCK)).collect();
        requests.push(bench.write(64 * BLOCK, 64 * BLOCK, 192 * BLOCK));
        let batch = bench.submit(&requests);
        bench.run();
        assert_eq!(states(&batch), [Completed; 65]);
        let launches = gpu_launches(&bench);
        let batch = bench.submit(&[bench.read(256 * BLOCK, 0, 256 * BLOCK)]);
        bench.run();
        assert_eq!(states(&batch), [Completed]);
        let lists = gpu_launches(&bench) - launches;
        assert!((1..16).contains(&lists), "{lists} launches for 16 buffers");
        let back = |first: u64| {
            (0..256).map(move |block| GpuSeries { offset: (256 + block) * BLOCK, ..series(block, block + first) })
        };
        assert_eq!(words.check(back(1)).unwrap(), None);
        assert!(words.check(back(2)).unwrap().is_some(), "the control");
        let counters = bench.engine.counters();
        assert_eq!((counters.staged_writes, counters.staged_reads, counters.bytes_staged), (64 + 12, 16, 2 << 20));
        bench.close();
    }
}

/// No interrupt tells of a copy, so a lane that has one under way, has just seen one end, or has a write ready and a slot
/// for it, does not sleep.
#[test]
fn a_turn_that_has_copies_is_a_busy_one() {
    for entries in [16, 2] {
        let (mut bench, _gpu) = open_staged("model:size=1MiB", entries, 64 * BLOCK as usize, GpuPaths::STAGED);
        for opcode in [OpCode::Write, OpCode::Read] {
            let batch = bench.submit(&[bench.request(opcode, 0, 0, 64 * BLOCK)]);
            assert!(bench.lane.turn());
            let mut looks = 0;
            while !batch.overall().is_finished() {
                let port = &mut bench.lane.ports[0];
                port.complete();
                if port.copies.is_copying() || port.copies.is_busy() && port.pair.free_slots() > 0 {
                    assert!(port.turn_copies());
                    looks += 1;
                }
                bench.lane.turn();
            }
            assert!(looks > 0);
            assert_eq!(states(&batch), [Completed]);
        }
        bench.close();
    }
}

/// What comes in the meantime, and never ends, does not take the slots of writes whose bytes are in their buffers.
#[test]
fn a_write_that_has_been_copied_is_issued_before_what_has_waited_less() {
    let (mut bench, _gpu) = open_staged("model:size=1MiB", 4, 16 * BLOCK as usize, GpuPaths::STAGED);
    let host = bench.engine.allocate_memory(BLOCK as usize).unwrap();
    let read = |block: u64| Request { source: host.address(), ..bench.read(0, (255 - block % 256) * BLOCK, BLOCK) };
    let direct = bench.submit(&(0..4_000).map(read).collect::<Vec<_>>());
    let staged =
        bench.submit(&(0..8).map(|block| bench.write(block * BLOCK, block * BLOCK, BLOCK)).collect::<Vec<_>>());
    run_until(&mut bench.lane, |_| staged.overall().is_finished());
    assert!(direct.overall().ended < 2_000, "{:?}", direct.overall());
    bench.run();
    assert_eq!((states(&staged), direct.overall().unsuccessful), (vec![Completed; 8], 0));
    bench.close();
}

/// What copies to and from a GPU may be lacking where nothing is to be copied there.
#[test]
fn without_kernels_memory_of_the_host_is_staged_all_the_same() {
    let gpu = StandIn::new(64 << 20);
    gpu.lose_kernels();
    let options = GpuOptions { paths: GpuPaths::STAGED, ..GpuOptions::new(Arc::clone(&gpu) as _) };
    let config = EngineConfig { gpu: Some(options), ..EngineConfig::default() };
    let (lanes, unaligned_reads) = (LaneMode::CallerDriven, UnalignedReads::All);
    let options = OpenOptions { config, lanes, unaligned_reads, ..OpenOptions::default() };
    let (engine, lane) = Engine::open_devices(["model:size=1MiB"], options).unwrap();
    let memory = engine.allocate_memory(64 << 10).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    bench.fill(0, 8 * BLOCK, 3);
    let batch = bench.submit(&[bench.write(0, 0, 8 * BLOCK)]);
    bench.run();
    let second = bench.submit(&[bench.read(8 * BLOCK, 800, BLOCK)]);
    bench.run();
    assert_eq!((states(&batch), states(&second)), (vec![Completed], vec![Completed]));
    let mut words = vec![0; BLOCK as usize / 8];
    bench.memory.view().read_words(8 * BLOCK as usize, &mut words);
    assert!((100..).zip(&words).all(|(at, found)| *found == word(3, at)));
    for _ in 0..2 {
        let Err(MemoryError::GpuStaging(error)) = bench.engine.allocate_gpu_memory(4096) else {
            panic!("it is staged")
        };
        assert!(error.to_string().contains("compute capability"), "{error}");
    }
    bench.close();
}

/// Two engines, two GPUs: kernels of one are given no address of the other's.
#[test]
fn words_of_another_engines_gpu_are_refused() {
    let (bench, _gpu) = open("model:size=1MiB", 16, 64 << 10);
    let (other, _other_gpu) = open("model:size=1MiB", 16, 64 << 10);
    assert!(matches!(bench.engine.gpu_words(&other.memory), Err(GpuWordsError::NotAllocated { .. })));
    bench.close();
    other.close();
}

/// Whatever was registered before at that address.
#[test]
fn host_memory_that_is_registered_is_no_gpu_memory() {
    let (bench, gpu) = open("model:size=1MiB", 16, 64 << 10);
    let own = Own::new(64 << 10);
    let memory = bench.engine.register_memory(own.part(0, 64 << 10), RegisterOptions::default()).unwrap();
    // SAFETY: it is none of the GPU's, so nothing is registered.
    let named = unsafe { CallerGpuMemory::new(memory.address(), 64 << 10) };
    let refused = bench.engine.register_gpu_memory(named, Access::all());
    assert!(matches!(refused, Err(MemoryError::Place(PlaceError::NotCuda { .. }))), "{refused:?}");
    // And the other way round.
    let on_gpu = gpu.allocate_memory(64 << 10).unwrap();
    bench.engine.register_gpu_memory(part(&*on_gpu, 0, 64 << 10), Access::all()).unwrap();
    // SAFETY: nothing is registered; the stand-in's memory is the host's.
    let named = unsafe { CallerMemory::new(on_gpu.view().base(), 64 << 10) }.unwrap();
    let refused = bench.engine.register_memory(named, RegisterOptions::default());
    assert!(matches!(refused, Err(MemoryError::Overlaps { .. })), "{refused:?}");
    bench.close();
}

#[test]
fn staged_memory_of_a_gpu_may_be_on_any_byte_and_so_may_what_is_read() {
    let (mut bench, gpu) = open_staged("model:size=1MiB", 16, 4096, GpuPaths::STAGED);
    let own = gpu.allocate_memory(256 << 10).unwrap();
    let bytes: Vec<u8> = (0..128 << 10).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    own.view().write(0, &bytes);
    let memory = bench.engine.register_gpu_memory(part(&*own, 0, 256 << 10), Access::all()).unwrap();
    let again = bench.engine.register_gpu_memory(part(&*own, 0, 256 << 10), Access::all()).unwrap();
    bench.engine.unregister_memory_with(again, &mut bench.lane);
    assert_eq!((memory.exposed_beside(), memory.is_gpu()), ((0, 0), true));
    let request = |opcode, at: u64, target_offset, length| Request {
        opcode,
        source: memory.address() + at,
        target_id: SegmentId(1),
        target_offset,
        length,
    };
    let batch = bench.submit(&[request(OpCode::Write, 3, 0, 16 * BLOCK)]);
    bench.run();
    let second = bench.submit(&[request(OpCode::Read, (128 << 10) + 1, 777, 12_345)]);
    bench.run();
    assert_eq!((states(&batch), states(&second)), (vec![Completed], vec![Completed]));
    let mut found = vec![0; 12_345];
    own.view().read((128 << 10) + 1, &mut found);
    assert_eq!(found, bytes[3 + 777..3 + 777 + 12_345]);
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    bench.close();
}

#[test]
fn staged_memory_that_is_unregistered_in_flight_is_waited_for() {
    let (mut bench, gpu) = open_staged("model:size=1MiB", 4, 4096, GpuPaths::STAGED);
    let own = gpu.allocate_memory(256 << 10).unwrap();
    let memory = bench.engine.register_gpu_memory(part(&*own, 0, 256 << 10), Access::all()).unwrap();
    let request = |number: u64| Request {
        opcode: if number.is_multiple_of(2) { OpCode::Read } else { OpCode::Write },
        source: memory.address() + number * BLOCK,
        target_id: SegmentId(1),
        target_offset: number * BLOCK,
        length: BLOCK,
    };
    let batch = bench.submit(&(0..40).map(request).collect::<Vec<_>>());
    bench.lane.turn();
    bench.lane.turn();
    bench.engine.unregister_memory_with(memory, &mut bench.lane);
    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled)), "{:?}", states(&batch));
    close_and_see_untouched(bench, own);
}

/// Where devices have no mover the ladder decides; every way that was asked for is named with what is in it.
#[test]
fn where_direct_was_demanded_all_reasons_are_told() {
    let iommu = tentpeg_driver::model::SoftwareIommu::new();
    let config = tentpeg_driver::model::ModelConfig { size: 1 << 20, ..Default::default() };
    let model = tentpeg_driver::model::Model::new(config, tentpeg_driver::model::Drive::Threaded, &iommu).unwrap();
    let function = DeviceSource::Function { function: model.function(), writable: true };
    let gpu = GpuOptions { paths: GpuPaths::DIRECT, ..GpuOptions::new(StandIn::new(1 << 20)) };
    let config = EngineConfig { gpu: Some(gpu), ..EngineConfig::default() };
    let (engine, _) = Engine::open_devices([function], OpenOptions { config, ..OpenOptions::default() }).unwrap();
    let Err(MemoryError::GpuPath(no_path)) = engine.allocate_gpu_memory(4096) else { panic!("it was allocated") };
    let paths: Vec<_> = no_path.rungs.iter().map(|rung| rung.path).collect();
    assert_eq!(paths, [GpuPath::DmaBufMmap, GpuPath::Gdrdrv, GpuPath::Iommufd]);
    // A model reaches what this process maps.
    let other = Some(Obstacle::Translation { have: Translation::Process, need: Translation::Iommufd });
    let obstacles: Vec<_> = no_path.rungs.into_iter().map(|rung| rung.obstacle).collect();
    assert_eq!(obstacles, [Some(Obstacle::NoDmaBuf), Some(Obstacle::NoGdrdrv { errno: 2 }), other]);
    engine.close().unwrap();
}
