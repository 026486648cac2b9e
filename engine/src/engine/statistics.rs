//! What an engine has done, in one piece.

use super::Engine;
use crate::device::lock;
use crate::lane::LaneThread;
use crate::statistics::{Cells, DeviceStatistics, Flows, LaneStatistics, SegmentStatistics, Statistics, collect};

impl Engine {
    /// What its lanes have done since it was opened. No lane is stopped for it: what is under way may be in some of the
    /// numbers and not in others yet. Not for the way of a request: all histograms are read.
    pub fn statistics(&self) -> Statistics {
        let mut devices: Vec<_> = self
            .devices
            .iter()
            .map(|opened| DeviceStatistics {
                name: opened.info.name.clone(),
                depth: opened.info.depth,
                occupancy: opened.statistics.occupancy(),
                retries: opened.statistics.retries(),
                resets: opened.statistics.resets(),
                slow: opened.statistics.slow(),
                told: lock(&opened.statistics.told).clone(),
                flows: Flows::default(),
            })
            .collect();
        let segments = self.segments.iter();
        let mut segments: Vec<_> = segments
            .map(|segment| SegmentStatistics {
                id: segment.id,
                name: segment.layout.name.clone(),
                flows: Flows::default(),
            })
            .collect();
        let cells: Vec<&Cells> = self.devices.iter().map(|opened| &opened.statistics.cells).collect();
        collect(&cells, &mut devices, &mut segments);
        let lanes = self.lanes.iter().enumerate().map(|(number, lane)| self.lane(number, lane)).collect();
        Statistics { lanes, devices, segments }
    }

    fn lane(&self, number: usize, lane: &LaneThread) -> LaneStatistics {
        let [sleeps, called, interrupted, timed_out] = lane.sleeps().read();
        // As ports are dealt out to lanes.
        let devices = (number..self.devices.len()).step_by(self.lanes.len().max(1)).collect();
        LaneStatistics { devices, cpus: lane.cpus().cloned(), sleeps, called, interrupted, timed_out }
    }
}
