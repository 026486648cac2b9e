//! An engine whose drive reaches "GPU" memory by itself: a stand-in's, which is another function's BAR.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use tentpeg_driver::bus::Function;
use tentpeg_driver::gpu::{GpuPath, GpuPaths, StandIn, StandInWindow};
use tentpeg_driver::keeper;
use tentpeg_driver::vfio::{VfioFunction, Way};
use tentpeg_engine::administration::Administration;
use tentpeg_engine::label::{Durability, NewLabel, NewSegment};
use tentpeg_engine::ownership::lock::LockFolder;
use tentpeg_engine::{
    DeviceSource, Engine, EngineConfig, GpuOptions, GpuProof, GpuSeries, MemoryPath, OpCode, OpenOptions, Proving,
    Request,
};
use uuid::Uuid;

use super::checks::Functions;
use super::tier::open_two;
use crate::device_tests::{Ending, EngineBench, Verdict, ensure};

/// Bytes that are moved.
const LEN: u64 = 4 << 20;
/// The keeper's program, which is this one.
const KEEPER: &str = "/tmp/tentpeg-keeper";

/// Whether this process was started as the keeper of an engine.
pub fn is_keeper(program: Option<&std::ffi::OsStr>) -> bool {
    program.is_some_and(|program| std::path::Path::new(program).ends_with(keeper::PROGRAM))
}

/// By each way that the address space has: what the GPU has written goes to the drive and comes back into other memory
/// of it, after a proof with data; nothing is staged, and a keeper holds what the drive writes into.
pub(super) fn direct(functions: &Functions) -> Verdict {
    let options = OpenOptions {
        locks: Some(LockFolder::at("/tmp/locks")),
        node: Some(Uuid::from_u128(1)),
        ..OpenOptions::default()
    };
    let uri = format!("pci:{},way={},overwrite", functions.second, functions.settings.way.word());
    let mut device = Administration::open_with(uri.as_str(), &options)?;
    device.create_label(&NewLabel::default())?;
    let (mut label, mut blocks) = device.change()?;
    let segment =
        NewSegment { name: "direct".to_owned(), uuid: Uuid::nil(), capacity: LEN, durability: Durability::None };
    label.create_segment(&mut *blocks, &segment)?;
    drop(blocks);
    device.close()?;
    if !fs::exists(KEEPER)? {
        symlink(fs::read_link("/proc/self/exe")?, KEEPER)?;
    }
    let paths: &[(GpuPaths, GpuPath)] = match functions.settings.way {
        Way::Type1 => &[(GpuPaths::DMA_BUF_MMAP, GpuPath::DmaBufMmap), (GpuPaths::GDRDRV, GpuPath::Gdrdrv)],
        Way::Iommufd => &[(GpuPaths::DIRECT, GpuPath::Iommufd)],
    };
    let moved = paths.iter().try_for_each(|(allowed, path)| by(functions, &options, *allowed, *path));
    let mut device = Administration::open_with(uri.as_str(), &options)?;
    device.erase_label()?;
    device.close()?;
    moved
}

fn by(functions: &Functions, options: &OpenOptions, paths: GpuPaths, path: GpuPath) -> Verdict {
    let Functions { sysfs, settings, second, memory, bar, .. } = functions;
    let [controller, memory] = open_two(sysfs, [*second, *memory], settings.way)?;
    let (file, offset) = memory.bar_file(*bar)?;
    let window = StandInWindow { memory: Box::new(memory.bar(*bar)?), file: Arc::new(file), offset };
    let gpu = GpuOptions {
        paths,
        proving: Proving::Required,
        keeper: KEEPER.into(),
        ..GpuOptions::new(StandIn::over(window))
    };
    let config = EngineConfig { gpu: Some(gpu), ..EngineConfig::default() };
    let function = Arc::new(VfioFunction::new(Arc::new(controller))?) as Arc<dyn Function>;
    let source = DeviceSource::Function { function, writable: true };
    let (engine, lane) = Engine::open_devices([source], OpenOptions { config, ..options.clone() })?;
    let mut bench = EngineBench { engine, lane, process: None };
    let target_id = bench.engine.segments()[0].id;
    let memory = bench.engine.allocate_gpu_memory(2 * LEN as usize)?;
    let way = memory.path();
    ensure(matches!(&way, MemoryPath::Gpu { path: found, .. } if *found == path), || format!("{way}"))?;
    let proof = memory.proof();
    ensure(proof == Some(&GpuProof::Proved { devices: 1 }), || format!("{proof:?}"))?;
    let mut words = bench.engine.gpu_words(&memory)?;
    let series = |offset, first| [GpuSeries { offset, words: LEN / 8, first, step: 3 }];
    words.fill(series(0, 1))?;
    words.fill(series(LEN, 2))?;
    let request =
        |opcode, at| Request { opcode, source: memory.address() + at, target_id, target_offset: 0, length: LEN };
    bench.transfer(&[request(OpCode::Write, 0)])?;
    ensure(words.check(series(LEN, 1))?.is_some(), || "it was there before it was moved".to_owned())?;
    bench.transfer(&[request(OpCode::Read, LEN)])?;
    let wrong = words.check(series(LEN, 1))?;
    ensure(wrong.is_none(), || format!("{path}: {wrong:?}"))?;
    let staged = bench.engine.counters().bytes_staged;
    ensure(staged == 0, || format!("{path}: {staged} bytes were staged"))?;
    ensure(is_kept()?, || format!("{path}: no keeper runs"))?;
    drop((words, memory));
    bench.finish()
}

/// Whether a process runs the keeper's program.
fn is_kept() -> Result<bool, Ending> {
    for entry in fs::read_dir("/proc")? {
        let line = fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        if line.starts_with(KEEPER.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}
