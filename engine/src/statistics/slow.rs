//! The log of slow requests: what took too long, where, and through which states it went.
//!
//! Each is an event of the target `tentpeg::slow` (`tracing`), and the last ones are kept for whoever asks. No more than
//! [`A_SECOND`] of a device are told in a second; how many were not is said with the next one.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tentpeg_driver::spec::status::Status;

use super::Path;
use super::recorder::Recorder;
use crate::device::lock;
use crate::lane::CommandTasks;
use crate::segment::{Segment, SegmentLayout};
use crate::task::Work;

/// Slow requests of a device that are told in a second.
const A_SECOND: u32 = 8;
/// And that are kept.
const KEPT: usize = 32;

/// A command that took long, with the requests that it served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// The device, as it is called.
    pub device: String,
    /// The number of the device, whose lane's queue pair it went through.
    pub lane: usize,
    /// The segment's name.
    pub segment: String,
    /// By which way its bytes went.
    pub path: Path,
    /// Where in the segment the first of its requests begins, in bytes; of a Flush 0.
    pub offset: u64,
    /// Bytes of its requests.
    pub length: u64,
    /// How many requests it served.
    pub requests: u16,
    /// How long before it was issued its lane had taken in the batch, as far as is known: its requests waited no longer
    /// than that in the lane.
    pub waited: Option<Duration>,
    /// From its issue to its end, as the lane has seen both.
    pub took: Duration,
    /// How often it had been asked for before.
    pub attempts: u8,
    /// What the device said in the end.
    pub status: Status,
    /// Slow requests of the device before it that were not told.
    pub not_told: u64,
}

impl fmt::Display for SlowRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, lane, segment, path, offset, length, requests, .. } = self;
        let segment = segment.escape_debug();
        write!(
            f,
            "slow {}: {length} bytes at {offset} of segment '{segment}' on {device} (device {lane})",
            path.name()
        )?;
        if *requests > 1 {
            write!(f, ", {requests} requests")?;
        }
        if let Some(waited) = self.waited {
            write!(f, ": taken in, issued after {waited:.1?}")?;
        } else {
            write!(f, ": issued")?;
        }
        if self.attempts > 0 {
            write!(f, " (asked for {} times before)", self.attempts)?;
        }
        write!(f, ", ended after {:.1?} with status {}", self.took, self.status)?;
        match self.not_told {
            0 => Ok(()),
            more => write!(f, "; {more} more before it were not told"),
        }
    }
}

/// How many a port may tell.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    /// The second that is counted, and what was told in it.
    second: u64,
    told: u32,
    not_told: u64,
    /// Commands of this turn that were slow.
    pub(super) ended: VecDeque<(CommandTasks, Status)>,
}

impl SlowLog {
    /// Whether one may be told at this moment; if so, how many were not since the last.
    fn may_tell(&mut self, moment: Duration) -> Option<u64> {
        if self.second != moment.as_secs() {
            (self.second, self.told) = (moment.as_secs(), 0);
        }
        if self.told >= A_SECOND {
            self.not_told += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.not_told))
    }
}

impl Recorder {
    /// Keeps a slow command until its batch is at hand.
    #[cold]
    pub(crate) fn keep_slow(&mut self, token: CommandTasks, status: Status) {
        self.log.ended.push_back((token, status));
    }

    /// Whether slow commands are kept.
    #[inline]
    pub(crate) fn has_slow(&self) -> bool {
        !self.log.ended.is_empty()
    }

    /// One of those of the batch that is kept at `place`.
    pub(crate) fn take_slow(&mut self, place: u32) -> Option<(CommandTasks, Status)> {
        let (token, _) = self.log.ended.front()?;
        if token.place() == place { self.log.ended.pop_front() } else { None }
    }
}

/// What is told of a slow command besides itself.
pub(crate) struct Scene<'a> {
    /// Its batch's tasks.
    pub(crate) task: &'a dyn Fn(u32) -> Option<Work>,
    /// When its lane has taken in the batch, in ticks.
    pub(crate) taken: u64,
    pub(crate) segments: &'a [Segment],
    pub(crate) device: &'a str,
    pub(crate) lane: u8,
}

/// Tells of a command that has ended in this turn and was slow.
#[cold]
pub(crate) fn tell(recorder: &mut Recorder, scene: &Scene<'_>, token: CommandTasks, status: Status) {
    recorder.count_slow();
    let Some(not_told) = recorder.log.may_tell(recorder.moment()) else { return };
    let Some(path) = token.key.path() else { return };
    let works: Vec<Work> = token.indices().filter_map(scene.task).collect();
    let Some(first) = works.first() else { return };
    let (head, offset) = match first {
        Work::Transfer(transfer) => (transfer.head, None),
        Work::Spread(spread) => (spread.head, Some(spread.offset)),
        // Whoever withdraws memory takes tasks out of what is planned, never out of what is in flight.
        Work::Nothing => return,
    };
    let Some(segment) = scene.segments.get(head.segment()) else { return };
    let offset = offset.unwrap_or_else(|| match first {
        Work::Transfer(transfer) => {
            offset_of(&segment.layout, segment.lba_size, scene.lane.into(), transfer.slba).unwrap_or_default()
        }
        _ => 0,
    });
    let length = works.iter().map(|work| match work {
        Work::Transfer(transfer) => transfer.length,
        Work::Spread(spread) => spread.length,
        Work::Nothing => 0,
    });
    let slow = SlowRequest {
        device: scene.device.to_owned(),
        lane: scene.lane.into(),
        segment: segment.layout.name.clone(),
        path,
        offset,
        length: length.fold(0, u64::saturating_add),
        requests: token.tasks(),
        waited: recorder.before_issue(token.key, scene.taken),
        took: recorder.took(token.key),
        attempts: token.attempts(),
        status,
        not_told,
    };
    tracing::warn!(
        target: "tentpeg::slow",
        device = slow.device,
        lane = slow.lane,
        segment = slow.segment,
        offset = slow.offset,
        length = slow.length,
        took_us = slow.took.as_micros() as u64,
        "{slow}"
    );
    let mut told = lock(&recorder.shared.told);
    if told.len() == KEPT {
        told.remove(0);
    }
    told.push(slow);
}

/// Where in a segment a block of a device lies, in bytes: the other way round than its map goes, and found by a search, for
/// those few who ask. `None`: it is none of the segment's.
fn offset_of(layout: &SegmentLayout, lba_size: u64, device: usize, slba: u64) -> Option<u64> {
    let place = layout.members.iter().position(|member| member.device == device)?;
    let mut before = 0;
    let local = layout.members[place].extents.iter().find_map(|extent| {
        let within = slba.checked_sub(extent.slba()).filter(|within| *within < extent.blocks());
        let found = within.map(|within| before + within);
        before += extent.blocks();
        found
    })?;
    let members = layout.members.len() as u64;
    if members == 1 {
        return local.checked_mul(lba_size);
    }
    let chunk = (layout.chunk / lba_size).max(1);
    let block = (local / chunk).checked_mul(members)?.checked_add(place as u64)?.checked_mul(chunk)? + local % chunk;
    block.checked_mul(lba_size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{BlockExtent, MemberLayout};

    #[test]
    fn offsets_are_found_from_blocks() {
        let extents = |list: &[(u64, u64)]| -> Vec<_> {
            list.iter().map(|(slba, blocks)| BlockExtent::new(*slba, *blocks).unwrap()).collect()
        };
        let one = SegmentLayout {
            members: vec![MemberLayout { device: 2, extents: extents(&[(100, 10), (50, 5)]) }],
            ..SegmentLayout::whole("a", 0, 1)
        };
        let of_one = |device, slba| offset_of(&one, 512, device, slba);
        assert_eq!((of_one(2, 100), of_one(2, 109), of_one(2, 50)), (Some(0), Some(9 * 512), Some(10 * 512)));
        assert_eq!((of_one(2, 110), of_one(2, 99), of_one(1, 100)), (None, None, None));
        let member = |device| MemberLayout { device, extents: extents(&[(8, 8)]) };
        let stripe = SegmentLayout { members: vec![member(0), member(1), member(2)], chunk: 1024, ..one.clone() };
        // Chunks of two blocks: the device's second chunk is the segment's chunk 3 + its place.
        assert_eq!(offset_of(&stripe, 512, 1, 8), Some(2 * 512));
        assert_eq!(offset_of(&stripe, 512, 2, 11), Some((5 * 2 + 1) * 512));
    }

    #[test]
    fn no_more_than_a_few_are_told_in_a_second() {
        let mut log = SlowLog::default();
        let told =
            |log: &mut SlowLog, second| (0..20).filter_map(|_| log.may_tell(Duration::from_secs(second))).count();
        assert_eq!(told(&mut log, 5), A_SECOND as usize);
        assert_eq!(log.may_tell(Duration::from_secs(6)), Some(20 - u64::from(A_SECOND)), "what was not is said");
        assert_eq!(log.may_tell(Duration::from_secs(6)), Some(0));
    }
}
