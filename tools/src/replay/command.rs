//! The command `tentpeg replay`: its options, the order of its checks, and its report.
//!
//! Nothing is written, created or allocated until everything that can be checked has been: the sizes, the whole trace, the room that a
//! device to be created will have, and the memory that store and pool will take.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use indicatif::ProgressBar;
use tentpeg_engine::{ByteSize, DeviceUri, Engine, EngineConfig, OpenOptions, Segment, StoreUri};
use thiserror::Error;

use super::generator;
use super::geometry::{Geometry, GeometryError};
use super::hit_curve::{self, HitCurve};
use super::outcome::{Outcome, Stop, Totals};
use super::pool::{Pool, PoolError};
use super::runner::{Observer, Runner};
use super::slots::Slots;
use super::source::{Source, SourceError};
use crate::both_sides::{BothSides, Start};
use crate::device::{self, DeviceError, NewFiles, NodeArgs, NotRemoved, SegmentArgs};
use crate::interrupt::Interrupt;
use crate::lanes::{self, LaneArgs};
use crate::memory_budget::{Available, MemoryError, Need};
use crate::memory_place::{self, Launches, MemoryArgs, MemoryPlaceError};
use crate::options::number;
use crate::progress;
use crate::report::file::{ReportFile, ReportFileError};
use crate::report::{Hits, MemoryUsed, Plots, Report, Row, Value};
use crate::resident::Resident;
use crate::units::Count;

/// Bytes that the cache keeps about a slot in use: an entry of a list, and twice its place in a hash table, which grows by doubling.
const CACHE_BYTES_PER_SLOT: u64 = 160;
/// Batches that the lane may still hold after their blocks have ended.
const SPARE_BATCHES: usize = 256;

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The device, such as model:path=FILE,size=1GiB; the slots lie at its beginning and are overwritten. It may be given several
    /// times: the slots lie on each in turn. By default a model in memory with room for the slots
    #[arg(long = "device", value_name = "URI")]
    pub devices: Vec<String>,
    /// Which segment.
    #[command(flatten)]
    pub segment: SegmentArgs,
    /// Who this host is.
    #[command(flatten)]
    pub node: NodeArgs,
    /// A trace to replay: a file with one JSON object a line, of which `hash_ids` names the blocks of a request. By default requests
    /// are generated
    #[arg(long, value_name = "FILE", conflicts_with_all = ["requests", "seed"])]
    pub trace: Option<PathBuf>,
    /// Requests to generate
    #[arg(long, value_name = "NUMBER", default_value_t = DEFAULT_REQUESTS, value_parser = at_least_one::<NonZeroU64>, allow_hyphen_values = true)]
    pub requests: NonZeroU64,
    /// Which of the generator's traces
    #[arg(long, value_name = "NUMBER", default_value_t = generator::DEFAULT_SEED, value_parser = number::<u64>(0, u64::MAX), allow_hyphen_values = true)]
    pub seed: u64,
    /// Blocks that the device holds; the least recently used is evicted
    #[arg(long, value_name = "BLOCKS", default_value_t = DEFAULT_SLOTS, value_parser = at_least_one::<NonZeroU32>, allow_hyphen_values = true)]
    pub slots: NonZeroU32,
    /// Blocks that the pool in memory holds; a request with more goes through it in parts
    #[arg(long, value_name = "BLOCKS", default_value_t = DEFAULT_POOL, value_parser = at_least_one::<NonZeroU32>, allow_hyphen_values = true)]
    pub pool: NonZeroU32,
    /// Requests whose reads and writes overlap
    #[arg(long, value_name = "REQUESTS", default_value_t = DEFAULT_IN_FLIGHT, value_parser = at_least_one::<NonZeroU32>, allow_hyphen_values = true)]
    pub in_flight: NonZeroU32,
    /// The lanes.
    #[command(flatten)]
    pub lanes: LaneArgs,
    /// Where the pool is.
    #[command(flatten)]
    pub memory: MemoryArgs,
    /// Bytes of a block, the KV cache of 512 tokens: contiguous on the device; a multiple of --page
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_BLOCK, allow_hyphen_values = true)]
    pub block: ByteSize,
    /// Bytes of a page of the pool, all over which the pages of a block are scattered; a multiple of 4KiB
    #[arg(long, value_name = "SIZE", default_value_t = DEFAULT_PAGE, allow_hyphen_values = true)]
    pub page: ByteSize,
    /// Write a page with plots of the run too: one file that a browser shows
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Print one JSON object, with numbers in bytes and nanoseconds, instead of a table
    #[arg(long)]
    pub json: bool,
}

const DEFAULT_REQUESTS: NonZeroU64 = NonZeroU64::new(generator::DEFAULT_REQUESTS).unwrap();
const DEFAULT_SLOTS: NonZeroU32 = NonZeroU32::new(4096).unwrap();
const DEFAULT_POOL: NonZeroU32 = NonZeroU32::new(512).unwrap();
const DEFAULT_IN_FLIGHT: NonZeroU32 = NonZeroU32::new(4).unwrap();
const DEFAULT_BLOCK: ByteSize = ByteSize(128 << 10);
const DEFAULT_PAGE: ByteSize = ByteSize(16 << 10);

/// Reads a number that is not 0.
fn at_least_one<N: FromStr>(text: &str) -> Result<N, String> {
    number(1, u64::MAX >> (64 - 8 * size_of::<N>()))(text)
}

/// Why there is no replay. Nothing was written to the device, and none was created that is there still, but where [`NotUndone`](Self::NotUndone) says so.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// Caller: sizes that do not go together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Caller: the trace.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Caller: there is no place for the page.
    #[error(transparent)]
    ReportFile(#[from] ReportFileError),
    /// Caller or host: the device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Caller: the device has no room for the slots.
    #[error(
        "{uri} has {}, but {} slots of {block} need {}: name one of at least that size, or give {}",
        ByteSize(*capacity), Count(u64::from(*slots)), ByteSize(u64::from(*slots) * block.0), fewer
    )]
    NoRoom {
        /// The devices, or the segments and their devices.
        uri: String,
        /// Their bytes.
        capacity: u64,
        /// Slots asked for.
        slots: u32,
        /// Bytes of each.
        block: ByteSize,
        /// What would fit there.
        fewer: String,
    },
    /// Caller: the device counts in larger units than the pool's pages.
    #[error("--page {page}: must be a multiple of {uri}'s {what}, which has {least}")]
    Page {
        /// The device.
        uri: String,
        /// The page asked for.
        page: ByteSize,
        /// The device's unit.
        what: &'static str,
        /// Its bytes.
        least: ByteSize,
    },
    /// Caller: more memory than there is.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Host: no memory for the pool, though enough seemed available.
    #[error("no memory for the pool: {0}")]
    Allocate(#[from] PoolError),
    /// Caller or host: the pool cannot be where it was asked for.
    #[error(transparent)]
    MemoryPlace(#[from] MemoryPlaceError),
    /// The file that was created for it is still there.
    #[error("{cause}; {left}")]
    NotUndone {
        /// Why there is no replay.
        cause: Box<ReplayError>,
        /// What is left.
        left: NotRemoved,
    },
}

/// What would fit where there is room for so many blocks, or for none in the largest room.
fn fewer(blocks: u64, largest: u64) -> String {
    match blocks {
        0 => format!("--block {} or less", ByteSize(largest)),
        1 => "--slots 1".to_owned(),
        slots => format!("--slots {slots} or fewer"),
    }
}

/// Replays to the end or until `interrupt` is set.
///
/// # Errors
/// [`ReplayError`], before anything is written. What goes wrong later is in the report.
pub fn run(args: &ReplayArgs, interrupt: &Interrupt) -> Result<Report, ReplayError> {
    let geometry = Geometry::new(args.slots, args.pool, args.block, args.page)?;
    let default = format!("model:size={}", ByteSize(geometry.store_bytes()));
    let uris: Vec<&str> = match args.devices[..] {
        [] => args.segment.devices(&default).collect(),
        ref named => named.iter().chain(&args.segment.with).map(String::as_str).collect(),
    };
    let created: Vec<_> = uris.iter().map(|uri| device::to_be_created(uri)).collect::<Result<_, _>>()?;
    if let Some(new) = created.into_iter().collect::<Option<Vec<_>>>() {
        let rooms: Vec<u64> = new.iter().map(|device| device.capacity).collect();
        check_room(&uris.join(" and "), &rooms, &geometry)?;
    }
    let report_file = args.report.as_deref().map(ReportFile::new).transpose()?;
    let source = source(args);
    if let (Some(file), Source::Trace(trace)) = (&report_file, &source) {
        file.is_not_trace(trace)?;
    }
    let requests = source.open()?;
    Available::now()?.check(&need(&uris, &geometry, report_file.is_some(), args.memory.is_gpu()))?;
    let gpu = args.memory.open()?;

    let max_batches = args.pool.get() as usize + SPARE_BATCHES;
    let config = args.lanes.configure(EngineConfig { max_batches, gpu, ..EngineConfig::default() });
    let options = OpenOptions { config, ..args.node.options() };
    let (engine, _) = Engine::open_devices(uris.iter().copied(), options).map_err(DeviceError::from)?;
    let new = NewFiles::of(&engine);
    let mut files = report_file.iter().flat_map(|file| uris.iter().map(move |uri| file.is_not_of_device(uri)));
    let apart = files.find(Result::is_err).unwrap_or(Ok(()));
    let ready = apart.map_err(ReplayError::from).and_then(|()| {
        let segments = args.segment.all_of(&engine)?;
        check_devices(&engine, &segments, &geometry)?;
        Ok((segments, Pool::allocate(&engine, &geometry)?))
    });
    let (segments, mut pool) = ready.map_err(|cause| match new.remove() {
        Ok(_) => cause,
        Err(left) => ReplayError::NotUndone { cause: Box::new(cause), left },
    })?;

    let bar = progress::over_things(requests.total(), "requests");
    let mut watch = Watch { interrupt, bar };
    let (start, launches) = (Start::of(&engine), Launches::so_far(&engine));
    let slots = Slots::of(segments.iter().copied(), &geometry);
    let outcome = Runner::new(&engine, slots, &geometry, &mut pool, args.in_flight, &mut watch).run(requests);
    let both_sides = BothSides::since(&start, &engine);
    watch.bar.finish_and_clear();

    let mut report = report(&outcome, both_sides);
    device::cause_of_failures(&engine).iter().for_each(|cause| report.errors.explain(cause));
    report.note = device::not_fenced(engine.devices().map(|device| device.info()));
    report.device = device::names(&engine);
    report.settings = settings(args, &source, &geometry);
    report.settings.extend(lanes::rows(&engine, Some(&args.lanes)));
    report.settings.extend(args.memory.rows(&engine));
    report.rows.extend(launches.rows(&engine));
    report.statistics = Some(engine.statistics());
    report.memory = Some(MemoryUsed::from(pool.memory()));
    report.path = Some(match pool.memory().is_gpu() {
        true => format!("device ↔ {}", memory_place::way(pool.memory())),
        false => path(&uris),
    });
    report.plots.block_bytes = Some(geometry.block());
    report.plots.segment = device::segment_names(&segments);
    if let Err(error) = engine.close() {
        report.errors.add(format!("the device did not close in order: {error}"));
    }
    drop(pool);
    if report_file.is_some() {
        let curve = hit_curve(&source, &geometry, outcome.totals.requests, interrupt);
        add_hit_curve(&mut report, curve, outcome.stop.is_none());
    }
    Ok(report)
}

/// Counts the hits that the first `requests` of the source have with other numbers of slots, or those up to an interrupt. That of the
/// run itself is no reason to stop: counting is quick beside replaying.
fn hit_curve(
    source: &Source,
    geometry: &Geometry,
    requests: u64,
    interrupt: &Interrupt,
) -> Result<HitCurve, SourceError> {
    let was_interrupted = interrupt.is_set();
    let ended = usize::try_from(requests).unwrap_or(usize::MAX);
    let counted = source.open()?.take(ended).take_while(|_| was_interrupted || !interrupt.is_set());
    HitCurve::of(geometry.slots(), counted)
}

/// Adds the curve, and an error where it differs from what a `whole` run has had.
fn add_hit_curve(report: &mut Report, curve: Result<HitCurve, SourceError>, whole: bool) {
    match curve {
        Ok(curve) => {
            let (counted, had) = (curve.hits(), report.reads.unwrap_or_default());
            if whole && Some(curve.requests) == report.requests && counted != had {
                report.errors.add(format!("{had} hits, where the trace's stack distances give {counted}"));
            }
            report.plots.hit_curve = Some(curve);
        }
        Err(error) => report.errors.add(format!("no hits by the number of slots: {error}")),
    }
}

fn source(args: &ReplayArgs) -> Source {
    match &args.trace {
        Some(path) => Source::Trace(path.clone()),
        None => Source::Generator { requests: args.requests.get(), seed: args.seed },
    }
}

/// Memory that the run will take.
fn need(uris: &[&str], geometry: &Geometry, hit_curve: bool, on_gpu: bool) -> Need {
    // A file's bytes are the page cache's, which gives way.
    let block = if uris.iter().any(|uri| device::is_in_memory(uri)) { geometry.block() } else { 0 };
    let run = block.saturating_add(CACHE_BYTES_PER_SLOT);
    Need {
        slots: geometry.slots().get().into(),
        // Hits are counted when the run's own memory has been given back.
        per_slot: if hit_curve { run.max(hit_curve::BYTES_PER_SLOT) } else { run },
        fixed: if on_gpu { 0 } else { geometry.pool_bytes() },
    }
}

/// Whether all slots have room on what has `rooms` bytes each. No slot lies on two.
fn check_room(uri: &str, rooms: &[u64], geometry: &Geometry) -> Result<(), ReplayError> {
    let blocks = rooms.iter().fold(0u64, |sum, room| sum.saturating_add(room / geometry.block()));
    if blocks >= geometry.slots().get().into() {
        return Ok(());
    }
    let capacity = rooms.iter().fold(0u64, |sum, room| sum.saturating_add(*room));
    let (slots, block) = (geometry.slots().get(), ByteSize(geometry.block()));
    let fewer = fewer(blocks, rooms.iter().copied().max().unwrap_or_default());
    Err(ReplayError::NoRoom { uri: uri.to_owned(), capacity, slots, block, fewer })
}

fn check_devices(engine: &Engine, segments: &[&Segment], geometry: &Geometry) -> Result<(), ReplayError> {
    device::require_bytes("replay", engine)?;
    let names = device::names(engine);
    let capacity: u64 = engine.devices().map(|device| device.info().limits.capacity()).fold(0, u64::saturating_add);
    let rooms: Vec<u64> = segments.iter().map(|segment| segment.capacity).collect();
    let whole = rooms.iter().fold(0, |sum: u64, room| sum.saturating_add(*room)) == capacity;
    let of_it = || {
        let segments: Vec<_> =
            segments.iter().map(|segment| format!("'{}'", segment.layout.name.escape_debug())).collect();
        format!("segment {} of {names}", segments.join(" and "))
    };
    check_room(&if whole { names.clone() } else { of_it() }, &rooms, geometry)?;
    segments.iter().try_for_each(|segment| device::require_writable(engine, segment))?;
    let blocks = segments.iter().map(|segment| ("logical block", segment.lba_size, names.as_str()));
    let pages = engine.devices().map(|device| device.info());
    let pages = pages.map(|info| ("memory page", info.limits.page_size(), info.name.as_str()));
    for (what, least, uri) in blocks.chain(pages) {
        if !geometry.page().is_multiple_of(least) {
            let (uri, page, least) = (uri.to_owned(), ByteSize(geometry.page()), ByteSize(least));
            return Err(ReplayError::Page { uri, page, what, least });
        }
    }
    Ok(())
}

/// The user, at a terminal.
struct Watch<'a> {
    interrupt: &'a Interrupt,
    bar: ProgressBar,
}

impl Observer for Watch<'_> {
    fn asks_to_stop(&self) -> bool {
        self.interrupt.is_set()
    }

    fn request_ended(&mut self, totals: &Totals) {
        self.bar.set_position(totals.requests);
    }
}

/// The way of the bytes, of each kind of device: a replay reads and writes.
fn path(uris: &[&str]) -> String {
    let of = |uri: &&str| match uri.parse() {
        Ok(DeviceUri::Model(model)) => match model.store {
            StoreUri::Memory => "device ↔ host memory (model, memory store)",
            StoreUri::File { .. } => "device ↔ host memory (model, file store)",
            StoreUri::Null => "none (model, null store)",
        },
        Ok(DeviceUri::Pci(_)) => "device ↔ host memory (VFIO)",
        Ok(DeviceUri::VfioUser(_)) => "device ↔ host memory (vfio-user)",
        // It is open, so its URI was right.
        Err(_) => "not known",
    };
    uris.iter().map(of).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
}

fn settings(args: &ReplayArgs, source: &Source, geometry: &Geometry) -> Vec<Row> {
    let trace = match source {
        Source::Trace(path) => path.display().to_string(),
        Source::Generator { seed, .. } => format!("generated, seed {seed}"),
    };
    vec![
        Row::both("trace", "trace", Value::Text(trace)),
        Row::both("slots", "slots", Value::Count(geometry.slots().get().into())),
        Row::both("store_bytes", "store", Value::Bytes(geometry.store_bytes())),
        Row::both("pool_blocks", "pool blocks", Value::Count(geometry.pool_blocks().get().into())),
        Row::both("block_bytes", "block", Value::Bytes(geometry.block())),
        Row::both("page_bytes", "page", Value::Bytes(geometry.page())),
        Row::both("bytes_per_token", "a token's KV cache", Value::Bytes(geometry.bytes_per_token())),
        Row::both("in_flight", "requests in flight", Value::Count(args.in_flight.get().into())),
    ]
}

fn report(outcome: &Outcome, both_sides: BothSides) -> Report {
    let totals = outcome.totals;
    let latency = outcome.load_latency.summary();
    let mut rows = Vec::new();
    const LATENCY_OF: &str = "a request's load: from its begin to the end of its last read";
    if let Some(latency) = latency {
        rows.push(Row::both("loads", "loads timed", Value::Count(latency.count)));
        rows.push(Row::table("latency is of", Value::Text(LATENCY_OF.to_owned())));
    }
    if totals.blocks() > 0 {
        let a_block = both_sides.issued.commands as f64 / totals.blocks() as f64;
        rows.push(Row::both("commands_per_block", "commands a block", Value::Ratio(a_block)));
    }
    if outcome.not_compared > 0 {
        rows.push(Row::both("reads_not_compared", "reads not compared", Value::Count(outcome.not_compared)));
    }
    let mut report = Report {
        command: "replay",
        requests: Some(totals.requests),
        hits: Some(Hits { hits: totals.reads, of: totals.blocks() }),
        reads: Some(totals.reads),
        writes: Some(totals.writes),
        bytes_read: totals.bytes_read,
        bytes_written: totals.bytes_written,
        elapsed: outcome.elapsed,
        latency,
        rows,
        peak_resident: Resident::of_this_process().map(|resident| resident.peak),
        plots: Plots {
            timeline: outcome.timeline.clone(),
            latency: outcome.load_latency.distribution(),
            latency_of: LATENCY_OF,
            ..Plots::default()
        },
        ..Report::default()
    };
    let first = outcome.faults.first();
    first.iter().for_each(|fault| report.errors.add(fault.to_string()));
    report.errors.count_more(outcome.faults.count() - first.len() as u64);
    match &outcome.stop {
        None => {}
        Some(Stop::Asked) => report.interrupted = true,
        Some(stop) => report.errors.add(stop.to_string()),
    }
    report.add_both_sides(both_sides);
    report
}

#[cfg(test)]
mod tests;
