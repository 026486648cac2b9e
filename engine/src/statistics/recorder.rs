//! What a port records on the way of a request.
//!
//! A command carries a [`Key`]: when it was issued, and which *cell* it is counted in, that of its segment and path, in one
//! word. So commands that end in a row and have one key cost a comparison each, and are counted together.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::histogram::{Buckets, Count};
use super::{Flow, Latencies, Occupancy, Path, SlowLog, SlowRequest};
use crate::clock::Clock;

/// Bits of a key that name the cell: 16 of the segment, three of the path.
const CELL_BITS: u32 = 19;
const PATH_BITS: u32 = 3;
/// A tick in nanoseconds, as a power of two: the others tell 6 days apart so.
const TICK_SHIFT: u32 = 4;

const _: () = assert!(Path::ALL.len() < 1 << PATH_BITS);

/// When a command was issued, and where it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

impl Key {
    /// That of no command: it has a path that there is not.
    pub(crate) const NONE: Self = Self(u64::MAX);

    #[inline]
    fn new(ticks: u64, segment: usize, path: Path) -> Self {
        Self(ticks << CELL_BITS | (segment as u64 & 0xFFFF) << PATH_BITS | path as u64)
    }

    fn cell(self) -> usize {
        (self.0 & ((1 << CELL_BITS) - 1)) as usize
    }

    /// Ticks from its issue to `now`.
    fn ticks_to(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 >> CELL_BITS) & (u64::MAX >> CELL_BITS)
    }

    /// Its path, where it is that of a command.
    pub(super) fn path(self) -> Option<Path> {
        Path::ALL.get((self.0 & ((1 << PATH_BITS) - 1)) as usize).copied()
    }
}

impl Default for Key {
    fn default() -> Self {
        Self::NONE
    }
}

/// What is counted of one segment and path. Made when the first command is issued there.
#[derive(Debug, Default)]
struct Cell {
    requests: Count,
    commands: Count,
    bytes: Count,
    latency: Buckets,
    longest: Count,
}

/// The cells of a port: by segment, and one more for what is of none, each for all paths.
#[derive(Debug)]
pub(crate) struct Cells(Box<[OnceLock<Box<Cell>>]>);

impl Cells {
    fn new(segments: usize) -> Self {
        Self((0..(segments + 1) << PATH_BITS).map(|_| OnceLock::new()).collect())
    }

    #[inline]
    fn at(&self, key: Key) -> Option<&Cell> {
        Some(self.0.get(key.cell())?.get_or_init(Box::default))
    }

    /// What is in each: the segment's place, the path and what went there.
    pub(super) fn read(&self) -> impl Iterator<Item = (usize, Path, Flow)> {
        self.0.iter().enumerate().filter_map(|(place, cell)| {
            let cell = cell.get()?;
            let path = *Path::ALL.get(place & ((1 << PATH_BITS) - 1))?;
            let latency = Latencies::read(&cell.latency, cell.longest.get());
            let (requests, commands, bytes) = (cell.requests.get(), cell.commands.get(), cell.bytes.get());
            Some((place >> PATH_BITS, path, Flow { requests, commands, bytes, latency }))
        })
    }
}

/// What a port has recorded, for whoever asks.
#[derive(Debug)]
pub(crate) struct PortStatistics {
    pub(crate) cells: Cells,
    turns: Count,
    in_flight: Count,
    most_in_flight: Count,
    retries: Count,
    resets: Count,
    slow: Count,
    /// The last slow requests that were told.
    pub(crate) told: Mutex<Vec<SlowRequest>>,
}

impl PortStatistics {
    /// Those of a port that has so many segments.
    pub(crate) fn new(segments: usize) -> Arc<Self> {
        Arc::new(Self {
            cells: Cells::new(segments),
            turns: Count::default(),
            in_flight: Count::default(),
            most_in_flight: Count::default(),
            retries: Count::default(),
            resets: Count::default(),
            slow: Count::default(),
            told: Mutex::default(),
        })
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy { turns: self.turns.get(), sum: self.in_flight.get(), most: self.most_in_flight.get() }
    }

    pub(crate) fn retries(&self) -> u64 {
        self.retries.get()
    }

    pub(crate) fn resets(&self) -> u64 {
        self.resets.get()
    }

    pub(crate) fn slow(&self) -> u64 {
        self.slow.get()
    }
}

/// The port's end of it: nobody else writes there.
pub(crate) struct Recorder {
    pub(super) shared: Arc<PortStatistics>,
    /// The moment of this turn in ticks; 0: nobody has looked yet.
    now: u64,
    /// Ticks from which on a command is slow.
    threshold: u64,
    pub(super) log: SlowLog,
    /// The place of what is of no segment.
    no_segment: usize,
}

impl Recorder {
    /// For a port with so many segments, of which commands are told that take as long as `slow`.
    pub(crate) fn new(shared: Arc<PortStatistics>, segments: usize, slow: Option<Duration>) -> Self {
        let threshold = slow.map_or(u64::MAX, |slow| ticks(slow).max(1));
        Self { shared, now: 0, threshold, log: SlowLog::default(), no_segment: segments }
    }

    /// A turn begins: its moment is that of the first look at the clock.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.now = 0;
    }

    /// The moment of this turn, in ticks.
    #[inline]
    pub(crate) fn now(&mut self, clock: &Clock) -> u64 {
        if self.now == 0 {
            // Never 0, which is none.
            self.now = ticks(clock.elapsed()) | 1;
        }
        self.now
    }

    /// The key of commands that are issued in this turn.
    #[inline]
    pub(crate) fn key(&mut self, clock: &Clock, segment: usize, path: Path) -> Key {
        Key::new(self.now(clock), segment, path)
    }

    /// The key of a Flush that is of no segment.
    pub(crate) fn key_of_own(&mut self, clock: &Clock) -> Key {
        self.key(clock, self.no_segment, Path::Flush)
    }

    /// Counts commands that were issued.
    pub(crate) fn issued(&self, key: Key, requests: u64, commands: u64, bytes: u64) {
        if let Some(cell) = self.shared.cells.at(key) {
            cell.requests.add(requests);
            cell.commands.add(commands);
            cell.bytes.add(bytes);
        }
    }

    /// Counts commands of one key whose ends are seen in this turn.
    // Never: it is called once for all that end together.
    #[inline(never)]
    pub(crate) fn ended(&self, key: Key, commands: u64) {
        if commands != 0
            && key != Key::NONE
            && let Some(cell) = self.shared.cells.at(key)
        {
            let nanoseconds = key.ticks_to(self.now) << TICK_SHIFT;
            cell.latency.add(nanoseconds, commands);
            cell.longest.raise(nanoseconds);
        }
    }

    /// Whether a command that ends in this turn is slow.
    #[inline]
    pub(crate) fn is_slow(&self, key: Key) -> bool {
        key != Key::NONE && key.ticks_to(self.now) >= self.threshold
    }

    /// How long a command took that ends in this turn.
    pub(super) fn took(&self, key: Key) -> Duration {
        duration(key.ticks_to(self.now))
    }

    /// How long before the issue of a command `moment` was, in ticks; `None`: it was not before.
    pub(super) fn before_issue(&self, key: Key, moment: u64) -> Option<Duration> {
        let (issued, moment) = (key.ticks_to(self.now), Key(moment << CELL_BITS).ticks_to(self.now));
        moment.checked_sub(issued).map(duration)
    }

    /// The moment of this turn.
    pub(super) fn moment(&self) -> Duration {
        duration(self.now)
    }

    /// Counts what a turn has left in flight.
    #[inline]
    pub(crate) fn occupied(&self, in_flight: u64) {
        self.shared.turns.add(1);
        self.shared.in_flight.add(in_flight);
        self.shared.most_in_flight.raise(in_flight);
    }

    /// Counts a command that is to be asked for again.
    pub(crate) fn again(&self) {
        self.shared.retries.add(1);
    }

    /// Counts a controller that was enabled anew.
    pub(crate) fn reset(&self) {
        self.shared.resets.add(1);
    }

    /// Counts a slow command.
    pub(super) fn count_slow(&self) {
        self.shared.slow.add(1);
    }
}

fn ticks(time: Duration) -> u64 {
    const A_SECOND: u64 = 1_000_000_000 >> TICK_SHIFT;
    time.as_secs().saturating_mul(A_SECOND).saturating_add(u64::from(time.subsec_nanos() >> TICK_SHIFT))
}

fn duration(ticks: u64) -> Duration {
    Duration::from_nanos(ticks.saturating_mul(1 << TICK_SHIFT))
}

#[cfg(test)]
mod tests;
