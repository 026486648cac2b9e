//! `tentpeg bench`: requests of one size, random or in sequence, as many in flight as asked for, for a time or a number of them, to
//! one device or to several in turn.
//!
//! [`plan`] checks what the user asks for against the device; [`workload`] says what each request is; [`measure`] keeps them in
//! flight. Memory does not grow with the number of requests.

pub mod beside;
pub mod measure;
pub mod plan;
pub mod workload;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use tentpeg_driver::controller::ControllerError;
use tentpeg_engine::{
    ByteSize, Engine, EngineConfig, EngineDevice, GpuWordsError, Lane, LaneMode, Memory, OpenError, OpenOptions,
    Segment,
};
use thiserror::Error;

use crate::both_sides::{BothSides, Start};
use crate::device::{self, DeviceError, Geometry, NewFiles, NodeArgs, NotRemoved, SegmentArgs, require_writable};
use crate::failure::IoError;
use crate::interrupt::Interrupt;
use crate::lanes::{self, LaneArgs};
use crate::memory_budget::Available;
use crate::memory_place::{self, Launches, MemoryArgs, MemoryPlaceError};
use crate::options::number;
use crate::report::file::{ReportFile, ReportFileError};
use crate::report::{MemoryUsed, Plots, Report, Row, Value};
use crate::resident::Resident;
use crate::units::Time;

use beside::{BesideArgs, BesideError};
use measure::{Measured, Rig};
use plan::{Plan, PlanError};
use workload::Workload;

/// In which order offsets come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Each block of the device equally likely, each time
    Random,
    /// One block after the other, and again from the start
    Sequential,
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// From the device into memory
    Read,
    /// From memory to the device
    Write,
    /// Both, by --read-percent
    Mixed,
}

/// Who turns the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LaneOf {
    /// A thread of the engine's, and one of a model's
    Thread,
    /// The thread that submits; it takes a model's turns too, so that one processor does everything
    Caller,
}

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// The device [default: model:size=1GiB]. Of several, requests go to each in turn. Writing to a file that exists needs
    /// `overwrite` in the URI, and destroys what it holds
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<String>,
    /// One more device; may be given several times
    #[arg(long = "device", value_name = "DEVICE")]
    pub more_devices: Vec<String>,
    /// Which segment.
    #[command(flatten)]
    pub segment: SegmentArgs,
    /// Who this host is.
    #[command(flatten)]
    pub node: NodeArgs,
    /// The order of offsets
    #[arg(long, value_enum, default_value_t = Pattern::Random)]
    pub pattern: Pattern,
    /// Which way the bytes go
    #[arg(long, value_enum, default_value_t = Mode::Read)]
    pub mode: Mode,
    /// Of 100 requests, how many read; with --mode mixed [default: 70]
    #[arg(long, value_name = "PERCENT", value_parser = number::<u8>(0, 100u64), allow_hyphen_values = true)]
    pub read_percent: Option<u8>,
    /// Size of a request, a multiple of the device's logical block
    #[arg(long, default_value = "4KiB", value_name = "SIZE", allow_hyphen_values = true)]
    pub block: ByteSize,
    /// Bytes of a page of memory: a block's pages lie all over the memory, and are one command where the device takes it
    /// [default: the block]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub page: Option<ByteSize>,
    /// Where the memory is.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// What else is measured.
    #[command(flatten)]
    pub beside: BesideArgs,
    /// Requests in flight
    #[arg(long, default_value_t = 128, value_parser = number::<u32>(1, plan::MAX_DEPTH), allow_hyphen_values = true)]
    pub depth: u32,
    /// Requests of one submit [default: a quarter of the depth, at most 32]
    #[arg(long, value_parser = number::<u32>(1, plan::MAX_DEPTH), allow_hyphen_values = true)]
    pub batch: Option<u32>,
    /// How long to go on, with its unit: 500ms, 10s, 2min [default: 5s]
    #[arg(long, conflicts_with = "requests", allow_hyphen_values = true)]
    pub time: Option<Time>,
    /// How many requests to make, instead of a time
    #[arg(long, value_parser = number::<u64>(1, u64::MAX), allow_hyphen_values = true)]
    pub requests: Option<u64>,
    /// Write the whole device once before, so that reads find blocks that are there
    #[arg(long)]
    pub fill: bool,
    /// Where random offsets start from; the same seed gives the same requests
    #[arg(long, default_value_t = 0, value_parser = number::<u64>(0, u64::MAX), allow_hyphen_values = true)]
    pub seed: u64,
    /// Who turns the lane
    #[arg(long, value_enum, default_value_t = LaneOf::Thread)]
    pub lane: LaneOf,
    /// The lanes that have threads.
    #[command(flatten)]
    pub lanes: LaneArgs,
    /// Write a page with plots of the run too: one file that a browser shows
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print one JSON object, in bytes and nanoseconds, instead of a table
    #[arg(long)]
    pub json: bool,
}

/// The device where none is named.
const DEFAULT_DEVICE: &str = "model:size=1GiB";

impl BenchArgs {
    /// All devices, in the order of the command line.
    pub fn devices(&self) -> Vec<&str> {
        let named = self.devices.iter().chain(&self.more_devices).map(String::as_str).collect::<Vec<_>>();
        let named = if named.is_empty() && self.segment.with.is_empty() { vec![DEFAULT_DEVICE] } else { named };
        named.into_iter().chain(self.segment.with.iter().map(String::as_str)).collect()
    }
}

/// Why there is no result.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Caller: what is asked for is wrong.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Caller: there is no place for the page.
    #[error(transparent)]
    ReportFile(#[from] ReportFileError),
    /// Caller or device: the device was not opened, or may not be written.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Host: how much memory is available is not known.
    #[error(transparent)]
    Available(#[from] crate::memory_budget::MemoryError),
    /// Host: no memory.
    #[error(transparent)]
    Memory(#[from] tentpeg_engine::MemoryError),
    /// Caller or host: the memory cannot be where it was asked for.
    #[error(transparent)]
    MemoryPlace(#[from] MemoryPlaceError),
    /// Caller or host: other ways are not measured.
    #[error(transparent)]
    Beside(#[from] BesideError),
    /// Host: the GPU does not fill its memory.
    #[error("the GPU: {0}")]
    GpuWords(#[from] GpuWordsError),
    /// Device: I/O did not go on.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Device: it did not stop in the orderly way.
    #[error("closing the device: {0}")]
    Close(ControllerError),
    /// The file that was created for it is still there.
    #[error("{cause}; {left}")]
    NotUndone {
        /// Why there is no result.
        cause: Box<BenchError>,
        /// What is left.
        left: NotRemoved,
    },
}

impl From<OpenError> for BenchError {
    fn from(error: OpenError) -> Self {
        Self::Device(error.into())
    }
}

/// Opens the devices, measures, and closes them.
///
/// # Errors
/// [`BenchError`] when there is nothing to report. Requests that failed are errors of the report.
pub fn run(args: &BenchArgs, interrupt: &Interrupt) -> Result<Report, BenchError> {
    let began = Instant::now();
    let report_file = args.report.as_deref().map(ReportFile::new).transpose()?;
    let devices = args.devices();
    let created: Vec<_> = devices.iter().map(|uri| device::to_be_created(uri)).collect::<Result<_, _>>()?;
    let known: Vec<_> = created.iter().flatten().copied().collect();
    if !known.is_empty() {
        Plan::new(args, &known)?;
    }
    let lanes = match args.lane {
        LaneOf::Thread => LaneMode::Thread,
        LaneOf::Caller => LaneMode::CallerDriven,
    };
    // What is only read need not be this node's.
    let read_only = args.mode == Mode::Read && !args.fill && known.is_empty();
    let config = EngineConfig { gpu: args.memory.open()?, ..plan::engine_config(args)? };
    let options = OpenOptions { config, lanes, read_only, ..args.node.options() };
    let (engine, lane) = Engine::open_devices(devices.iter().copied(), options)?;
    let new = NewFiles::of(&engine);
    let apart = report_file.map_or(Ok(()), |file| devices.iter().try_for_each(|uri| file.is_not_of_device(uri)));
    let measured = apart.map_err(BenchError::from).and_then(|()| measured(args, interrupt, engine, lane, began));
    measured.map_err(|cause| match new.remove() {
        Ok(_) => cause,
        Err(left) => BenchError::NotUndone { cause: Box::new(cause), left },
    })
}

/// Measures open devices, and closes them.
fn measured(
    args: &BenchArgs,
    interrupt: &Interrupt,
    engine: Engine,
    lane: Option<Lane>,
    began: Instant,
) -> Result<Report, BenchError> {
    let segments = args.segment.all_of(&engine)?;
    let plan = Plan::new(args, &segments.iter().map(|segment| Geometry::of(segment)).collect::<Vec<_>>())?;
    if args.fill {
        device::require_bytes("fill", &engine)?;
    }
    if plan.writes() || args.fill {
        segments.iter().try_for_each(|segment| require_writable(&engine, segment))?;
    }
    let in_memory = args.devices().into_iter().zip(engine.devices()).filter(|(uri, _)| device::is_in_memory(uri));
    let in_memory: Vec<u64> = in_memory.map(|(_, device)| device.info().limits.capacity()).collect();
    plan.fits(
        in_memory.iter().fold(0, |sum, bytes| bytes.saturating_add(sum)),
        args.fill,
        args.memory.is_gpu(),
        &Available::now()?,
    )?;
    let memory = match engine.gpu() {
        Some(_) => engine.allocate_gpu_memory(plan.memory_bytes())?,
        None => engine.allocate_memory(plan.memory_bytes())?,
    };
    let launches = Launches::so_far(&engine);
    let mut rig = Rig { engine: &engine, segments, lane, memory: &memory, interrupt };
    let (measured, both_sides) = go(&mut rig, &plan, args.fill)?;
    let kernels = launches.rows(&engine);
    let beside = beside::run(&args.beside, &args.memory, &mut rig, &plan)?;
    let lane = rig.lane.take();
    let mut report = report_of(&plan, &engine, &rig.segments, &memory, measured, both_sides, began);
    report.settings.push(Row::json("lane", Value::Text(name_of(args.lane))));
    let threads = (args.lane == LaneOf::Thread).then_some(&args.lanes);
    report.settings.extend(lanes::rows(&engine, threads));
    report.settings.extend(args.memory.rows(&engine));
    report.rows.extend(kernels);
    report.rows.extend(beside);
    report.statistics = Some(engine.statistics());
    close(engine, lane).map_err(BenchError::Close)?;
    Ok(report)
}

/// Fills the device where that is asked for, then measures.
fn go(rig: &mut Rig<'_>, plan: &Plan, fill: bool) -> Result<(Measured, BothSides), BenchError> {
    rig.scatter_payload(plan.seed)?;
    let mut first = None;
    let mut start = Start::of(rig.engine);
    if fill {
        let plan = plan.fill();
        let filled = measure::run(rig, &plan, Workload::new(&plan))?;
        if filled.errors.count() > 0 || filled.interrupted {
            return Ok((filled.without_counts(), BothSides::since(&start, rig.engine)));
        }
        first = filled.first_completion;
        start = Start::of(rig.engine);
    }
    let mut measured = measure::run(rig, plan, Workload::new(plan))?;
    measured.first_completion = first.or(measured.first_completion);
    Ok((measured, BothSides::since(&start, rig.engine)))
}

fn report_of(
    plan: &Plan,
    engine: &Engine,
    segments: &[&Segment],
    memory: &Memory,
    measured: Measured,
    both_sides: BothSides,
    began: Instant,
) -> Report {
    let mut report = Report {
        command: "bench",
        device: device::names(engine),
        interrupted: measured.interrupted,
        settings: plan.rows(),
        requests: Some(measured.reads + measured.writes),
        reads: plan.reads().then_some(measured.reads),
        writes: plan.writes().then_some(measured.writes),
        bytes_read: measured.bytes_read,
        bytes_written: measured.bytes_written,
        elapsed: measured.elapsed,
        set_up: measured.first_completion.map(|first| first - began),
        latency: measured.latency.summary(),
        memory: Some(MemoryUsed::from(memory)),
        peak_resident: Resident::of_this_process().map(|resident| resident.peak),
        path: Some(if memory.is_gpu() { memory_place::way(memory) } else { path(engine) }),
        errors: measured.errors,
        note: device::not_fenced(engine.devices().map(|device| device.info())),
        plots: Plots {
            block_bytes: Some(plan.block),
            segment: device::segment_names(segments),
            timeline: measured.timeline,
            latency: measured.latency.distribution(),
            latency_of: "a request: from the submit of its group until it was seen to have ended",
            hit_curve: None,
        },
        ..Report::default()
    };
    report.add_both_sides(both_sides);
    device::cause_of_failures(engine).iter().for_each(|cause| report.errors.explain(cause));
    report
}

/// Which way the bytes went, of each kind of device.
fn path(engine: &Engine) -> String {
    let path = |device: EngineDevice<'_>| match (device.info().moves_data, device.model_counters()) {
        (false, _) => "none: a null store moves no bytes",
        (true, Some(_)) => "host memory, copied by the model",
        (true, None) => "host memory, by the controller itself",
    };
    engine.devices().map(path).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
}

fn close(engine: Engine, lane: Option<Lane>) -> Result<(), ControllerError> {
    match lane {
        Some(lane) => engine.close_with(lane),
        None => engine.close(),
    }
}

/// What the command line calls it.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
