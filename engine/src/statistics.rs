//! Statistics: what an engine has done, by lane, device, segment and path, for whoever asks at any time.
//!
//! Each port records for itself (`recorder`): it is the one writer of its words, and pays a store for each. A snapshot reads
//! them one by one and stops nobody, so it may have some of a turn before the rest. Latencies are of commands: from the
//! turn in which one was issued to the turn in which its end was seen, both by one look at the clock. How long a request
//! waited before that is the caller's to know, and told of the slow ones ([`SlowRequest`]).

mod histogram;
mod latencies;
mod recorder;
mod slow;

use std::ops::AddAssign;

pub use latencies::Latencies;
pub(crate) use recorder::{Cells, Key, PortStatistics, Recorder};
use slow::SlowLog;
pub use slow::SlowRequest;
pub(crate) use slow::{Scene, tell};

use crate::SegmentId;
use crate::lane::CpuList;
use crate::task::Operation;

/// By which way a command's bytes went, or what it did where it moved none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Path {
    /// From the device into registered memory.
    DirectRead = 0,
    /// From registered memory to the device.
    DirectWrite = 1,
    /// From the device into staging memory, and copied from there.
    StagedRead = 2,
    /// Copied into staging memory, and from there to the device.
    StagedWrite = 3,
    /// Blocks that read as zeroes afterwards.
    Zeroes = 4,
    /// Blocks that are of no use any more.
    Deallocate = 5,
    /// What was written has become durable: for a task, or for writes that waited.
    Flush = 6,
}

impl Path {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::DirectRead,
        Self::DirectWrite,
        Self::StagedRead,
        Self::StagedWrite,
        Self::Zeroes,
        Self::Deallocate,
        Self::Flush,
    ];

    /// What to call it: `direct_read` and so on.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirectRead => "direct_read",
            Self::DirectWrite => "direct_write",
            Self::StagedRead => "staged_read",
            Self::StagedWrite => "staged_write",
            Self::Zeroes => "zeroes",
            Self::Deallocate => "deallocate",
            Self::Flush => "flush",
        }
    }
}

impl From<Operation> for Path {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::DirectRead,
            Operation::Write => Self::DirectWrite,
            Operation::StagedRead => Self::StagedRead,
            Operation::StagedWrite => Self::StagedWrite,
            Operation::Zeroes => Self::Zeroes,
            Operation::Deallocate => Self::Deallocate,
            Operation::Flush => Self::Flush,
        }
    }
}

/// What went by one path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flow {
    /// Requests whose first command was issued. One that spans devices is counted by the first of them.
    pub requests: u64,
    /// Commands that were issued, those that were issued again included.
    pub commands: u64,
    /// Bytes that they moved, or that they had read as zeroes or deallocated.
    pub bytes: u64,
    /// How long they took, those whose end a device has told.
    pub latency: Latencies,
}

impl AddAssign<&Flow> for Flow {
    fn add_assign(&mut self, other: &Flow) {
        self.requests += other.requests;
        self.commands += other.commands;
        self.bytes += other.bytes;
        self.latency += &other.latency;
    }
}

/// What went by each path.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flows([Flow; Path::ALL.len()]);

impl Flows {
    /// What went by `path`.
    pub fn by(&self, path: Path) -> &Flow {
        &self.0[path as usize]
    }

    /// The paths by which anything went.
    pub fn iter(&self) -> impl Iterator<Item = (Path, &Flow)> {
        Path::ALL.into_iter().zip(&self.0).filter(|(_, flow)| flow.commands > 0)
    }

    /// All paths together.
    pub fn total(&self) -> Flow {
        self.0.iter().fold(Flow::default(), |mut total, flow| {
            total += flow;
            total
        })
    }

    fn add(&mut self, path: Path, flow: &Flow) {
        self.0[path as usize] += flow;
    }
}

/// Commands in flight after each turn in which there was something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Turns.
    pub turns: u64,
    /// Commands in flight, added up over them.
    pub sum: u64,
    /// The most.
    pub most: u64,
}

impl Occupancy {
    /// How many were in flight on average; 0 where there was no turn.
    pub fn mean(self) -> f64 {
        if self.turns == 0 { 0.0 } else { self.sum as f64 / self.turns as f64 }
    }
}

/// A lane with a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneStatistics {
    /// Its devices, by number.
    pub devices: Vec<usize>,
    /// The processors that it is pinned to, where it is.
    pub cpus: Option<CpuList>,
    /// How often it has begun to sleep.
    pub sleeps: u64,
    /// How often it has slept until somebody gave it something to do.
    pub called: u64,
    /// How often until a device interrupted it.
    pub interrupted: u64,
    /// How often until it was time to look after a controller.
    pub timed_out: u64,
}

/// A device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceStatistics {
    /// What it is called.
    pub name: String,
    /// Commands that can be in flight.
    pub depth: usize,
    /// How many were.
    pub occupancy: Occupancy,
    /// Commands that were asked for again: they had failed, alone or with others, or were interrupted.
    pub retries: u64,
    /// How often its controller was reset and enabled anew.
    pub resets: u64,
    /// Commands that took as long as [`EngineConfig::slow_request`](crate::EngineConfig::slow_request), or longer.
    pub slow: u64,
    /// The last of them that were told, the latest one last.
    pub told: Vec<SlowRequest>,
    /// What went by each path, the device's own Flushes included.
    pub flows: Flows,
}

/// A segment, on all its devices.
#[derive(Debug, Clone, PartialEq)]
pub struct SegmentStatistics {
    /// Its number.
    pub id: SegmentId,
    /// Its name.
    pub name: String,
    /// What went by each path.
    pub flows: Flows,
}

/// All that an engine has counted since it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Lanes with threads, in their order; a lane that the caller drives is not among them.
    pub lanes: Vec<LaneStatistics>,
    /// Devices, in their order.
    pub devices: Vec<DeviceStatistics>,
    /// Segments, in their order.
    pub segments: Vec<SegmentStatistics>,
}

impl Statistics {
    /// What went by each path, over all devices.
    pub fn flows(&self) -> Flows {
        let mut all = Flows::default();
        for (path, flow) in self.devices.iter().flat_map(|device| device.flows.iter()) {
            all.add(path, flow);
        }
        all
    }
}

/// Adds what ports have recorded to the devices and segments that it belongs to: of each device its port's cells, in the
/// order of the devices.
pub(crate) fn collect(cells: &[&Cells], devices: &mut [DeviceStatistics], segments: &mut [SegmentStatistics]) {
    for (cells, device) in cells.iter().zip(devices) {
        for (segment, path, flow) in cells.read() {
            device.flows.add(path, &flow);
            // The device's own Flushes are of no segment.
            if let Some(segment) = segments.get_mut(segment) {
                segment.flows.add(path, &flow);
            }
        }
    }
}
