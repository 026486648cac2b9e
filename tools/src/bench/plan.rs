//! What a bench will do: the user's wishes, checked against the devices before anything is moved.

use std::time::Duration;

use tentpeg_engine::{ByteSize, EngineConfig};
use thiserror::Error;

use super::{BenchArgs, LaneOf, Mode, Pattern, name_of};
use crate::device::Geometry;
use crate::memory_budget::{Available, Bound};
use crate::report::{Row, Value};
use crate::units::Time;

/// Requests in flight that can be asked for: more than any controller takes.
pub const MAX_DEPTH: u32 = 65_536;
/// Of 100 mixed requests, how many read unless a user says otherwise.
const READ_PERCENT: u8 = 70;
/// How long to go on unless a user says otherwise.
const TIME: Duration = Duration::from_secs(5);
/// Bytes of a request that fills the device.
const FILL_BLOCK: u64 = 128 << 10;

/// When to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// After so many requests.
    Requests(u64),
    /// After so long.
    Time(Duration),
}

/// What a bench does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The order of offsets.
    pub pattern: Pattern,
    /// Which way the bytes go.
    pub mode: Mode,
    /// Of 100 requests, how many read.
    pub read_percent: u8,
    /// Bytes of a request, a multiple of the device's block.
    pub block: u64,
    /// Bytes of a page of memory, of which a block has a whole number.
    pub page: u64,
    /// Bytes of each device, at least one block.
    pub capacities: Vec<u64>,
    /// Requests in flight, at least 1.
    pub depth: u32,
    /// Requests of a submit, 1 to the depth.
    pub batch: u32,
    /// When to end.
    pub end: End,
    /// Where random numbers start from.
    pub seed: u64,
}

/// What is wrong with what the user asks for, or too much of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// The size of a request.
    #[error("--block {}: a request is a multiple of the device's block of {block} bytes, and not 0", ByteSize(*asked))]
    Block {
        /// Bytes asked for.
        asked: u64,
        /// The device's block.
        block: u64,
    },
    /// The size of a request, and of the device.
    #[error("--block {}: the device has {}, so a request has that at most", ByteSize(*asked), ByteSize(*capacity))]
    Capacity {
        /// Bytes asked for.
        asked: u64,
        /// Bytes of the device.
        capacity: u64,
    },
    /// The size of a page.
    #[error(
        "--page {}: a block has a whole number of pages, and a page of blocks of the device: give a multiple of {device} \
         bytes that divides {}", ByteSize(*asked), ByteSize(*block)
    )]
    Page {
        /// Bytes asked for.
        asked: u64,
        /// Bytes of a request.
        block: u64,
        /// The device's block.
        device: u64,
    },
    /// The depth.
    #[error("--depth {0}: 1 to {MAX_DEPTH} requests can be in flight")]
    Depth(u32),
    /// The batch.
    #[error("--batch {batch}: 1 to {depth} requests go into a submit, as --depth is {depth}")]
    Batch {
        /// Requests of a submit asked for.
        batch: u32,
        /// Requests in flight asked for.
        depth: u32,
    },
    /// No request.
    #[error("--requests 0: make 1 request at least")]
    NoRequests,
    /// No time.
    #[error("--time 0: go on for 1ms at least")]
    NoTime,
    /// A share above all.
    #[error("--read-percent {0}: of 100 requests, 0 to 100 read")]
    ReadPercent(u8),
    /// Threads for a lane that has none.
    #[error("{0} is for lanes with threads: leave it away, or --lane caller")]
    CallerDriven(&'static str),
    /// A share of nothing.
    #[error("--read-percent is for --mode mixed: leave it away, or ask for that mode")]
    NotMixed,
    /// More memory than there is.
    #[error(
        "{} in flight, and what is written to a device in memory, need {}, but {} can be used, by {bound}: \
         give a smaller --depth, --block or device", Value::Bytes(*in_flight), Value::Bytes(*needed), Value::Bytes(*usable)
    )]
    Memory {
        /// Bytes of requests in flight.
        in_flight: u64,
        /// Bytes needed in all.
        needed: u64,
        /// Bytes that can be used.
        usable: u64,
        /// What sets those.
        bound: Bound,
    },
}

impl Plan {
    /// What `args` ask of devices, one or more.
    ///
    /// # Errors
    /// [`PlanError`]: the first thing that is wrong.
    pub fn new(args: &BenchArgs, devices: &[Geometry]) -> Result<Self, PlanError> {
        let ByteSize(block) = args.block;
        for device in devices {
            if block == 0 || !block.is_multiple_of(device.block) {
                return Err(PlanError::Block { asked: block, block: device.block });
            }
            if block > device.capacity {
                return Err(PlanError::Capacity { asked: block, capacity: device.capacity });
            }
        }
        let page = args.page.map_or(block, |ByteSize(page)| page);
        let coarsest = devices.iter().map(|device| device.block).max().unwrap_or(1);
        if page == 0 || !block.is_multiple_of(page) || !page.is_multiple_of(coarsest) {
            return Err(PlanError::Page { asked: page, block, device: coarsest });
        }
        if !(1..=MAX_DEPTH).contains(&args.depth) {
            return Err(PlanError::Depth(args.depth));
        }
        let batch = args.batch.unwrap_or((args.depth / 4).clamp(1, 32));
        if !(1..=args.depth).contains(&batch) {
            return Err(PlanError::Batch { batch, depth: args.depth });
        }
        let end = match (args.requests, args.time) {
            (Some(0), _) => return Err(PlanError::NoRequests),
            (Some(requests), _) => End::Requests(requests),
            (None, Some(Time(Duration::ZERO))) => return Err(PlanError::NoTime),
            (None, Some(Time(time))) => End::Time(time),
            (None, None) => End::Time(TIME),
        };
        let read_percent = match (args.mode, args.read_percent) {
            (Mode::Mixed, Some(percent @ 101..)) => return Err(PlanError::ReadPercent(percent)),
            (Mode::Mixed, percent) => percent.unwrap_or(READ_PERCENT),
            (Mode::Read | Mode::Write, Some(_)) => return Err(PlanError::NotMixed),
            (Mode::Read, None) => 100,
            (Mode::Write, None) => 0,
        };
        Ok(Self {
            pattern: args.pattern,
            mode: args.mode,
            read_percent,
            block,
            page,
            // A block that is a device's last and shorter would have fewer pages than the others.
            capacities: devices.iter().map(|device| device.capacity - paged(page, block, device.capacity)).collect(),
            depth: args.depth,
            batch,
            end,
            seed: args.seed,
        })
    }

    /// The plan that writes each block of the devices once, with the same memory where that is enough for one large request.
    pub fn fill(&self) -> Self {
        let memory = self.memory_bytes() as u64;
        // A multiple of the device's block like each that a request can have, as both are powers of two where it is larger.
        let block = if memory >= 2 * FILL_BLOCK && FILL_BLOCK > self.block { FILL_BLOCK } else { self.block };
        let depth = u32::try_from(memory / block).unwrap_or(MAX_DEPTH).clamp(2, 64) / 2;
        let requests = self.capacities.iter().map(|capacity| capacity.div_ceil(block)).sum();
        Self {
            pattern: Pattern::Sequential,
            mode: Mode::Write,
            read_percent: 0,
            block,
            page: block,
            depth,
            batch: depth.div_ceil(4),
            end: End::Requests(requests),
            ..self.clone()
        }
    }

    /// Pages of a block.
    pub fn pages(&self) -> u64 {
        self.block / self.page
    }

    /// Batches that can be in flight: what the depth needs, and one that is nearly done.
    pub fn groups(&self) -> u32 {
        self.depth.div_ceil(self.batch) + 1
    }

    /// Bytes of memory that requests in flight use: each has its own.
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.block.saturating_mul(u64::from(self.groups()) * u64::from(self.batch));
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Whether there is memory for it: for requests in flight, and for what is written to the devices that keep their bytes
    /// there, `in_memory` of them; of requests none where they are on a GPU.
    ///
    /// # Errors
    /// [`PlanError::Memory`].
    pub fn fits(&self, in_memory: u64, fill: bool, on_gpu: bool, available: &Available) -> Result<(), PlanError> {
        // What a GPU copies to and from has all its pages.
        let in_flight = if on_gpu { 0 } else { self.memory_bytes() as u64 };
        let written = match (fill || on_gpu, self.end) {
            (true, _) => in_memory,
            (false, _) if !self.writes() => 0,
            (false, End::Requests(requests)) => requests.saturating_mul(self.block).min(in_memory),
            (false, End::Time(_)) => in_memory,
        };
        let needed = in_flight.saturating_add(written);
        if needed > available.usable() {
            let bound = available.bound.clone();
            return Err(PlanError::Memory { in_flight, needed, usable: available.usable(), bound });
        }
        Ok(())
    }

    /// Whether any request reads.
    pub fn reads(&self) -> bool {
        self.mode != Mode::Write
    }

    /// Whether any request writes.
    pub fn writes(&self) -> bool {
        self.mode != Mode::Read
    }

    /// How a report shows it.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = vec![
            Row::both("pattern", "pattern", Value::Text(name_of(self.pattern))),
            Row::both("mode", "mode", Value::Text(name_of(self.mode))),
        ];
        if self.mode == Mode::Mixed {
            rows.push(Row::both("read_percent", "reads of 100", Value::Count(self.read_percent.into())));
        }
        rows.extend([
            Row::both("block_bytes", "block", Value::Bytes(self.block)),
            Row::json("page_bytes", Value::Bytes(self.page)),
            Row::both("depth", "depth", Value::Count(self.depth.into())),
            Row::both("batch", "batch", Value::Count(self.batch.into())),
            Row::json("seed", Value::Count(self.seed)),
        ]);
        rows
    }
}

/// What of `capacity` is no whole block, where blocks have pages.
fn paged(page: u64, block: u64, capacity: u64) -> u64 {
    if page == block { 0 } else { capacity % block }
}

/// An engine with queues, batches and lanes for what is asked; what the devices decide is found by [`Plan::new`].
///
/// # Errors
/// [`PlanError::CallerDriven`].
pub fn engine_config(args: &BenchArgs) -> Result<EngineConfig, PlanError> {
    if let (LaneOf::Caller, Some(option)) = (args.lane, args.lanes.given()) {
        return Err(PlanError::CallerDriven(option));
    }
    let defaults = EngineConfig::default();
    let depth = args.depth.min(MAX_DEPTH);
    Ok(args.lanes.configure(EngineConfig {
        queue_entries: defaults.queue_entries.max(depth + 1),
        max_batches: defaults.max_batches.max(depth as usize + 16),
        ..defaults
    }))
}
