//! Replays requests on an engine: the loop that drives the cache, the schedule, the pool and the device.
//!
//! It is one thread, the caller's. Each block is a batch of its own with one request a page, which the engine joins into one command.
//! Between two submits it takes what has ended, compares what was read and so frees pool blocks; it waits only when the next block may
//! not start and nothing has ended. While it fills and compares, the device works on what is in flight.
//!
//! Once it is asked to stop, it waits for what is in flight but compares no more: a large block would take long.
//!
//! A fault of one block is counted, and the replay goes on: the count says how far the damage goes. Whatever ends a replay early, what
//! is in flight ends first, unless the device no longer answers.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tentpeg_engine::{Batch, Engine, OpCode};

use super::Request;
use super::cache::{Decision, Kind, Prefix, SlotCache};
use super::geometry::Geometry;
use super::outcome::{Fault, Faults, Outcome, Stop, Totals, Wrong};
use super::payload::Payload;
use super::pool::Pool;
use super::schedule::{Io, RequestNumber, Schedule};
use super::slots::Slots;
use super::source::SourceError;
use crate::failure::{STALLED, TaskFailure};
use crate::report::{Latency, Timeline};

/// How long to wait for one block before looking at the others and at whoever watches.
const GLANCE: Duration = Duration::from_millis(1);

/// Whoever watches a replay. Called in the replay's thread, between two blocks and between two pages of one.
pub trait Observer {
    /// Whether the replay is to end now.
    fn asks_to_stop(&self) -> bool {
        false
    }

    /// A request has ended.
    fn request_ended(&mut self, _totals: &Totals) {}
}

/// Nobody watches.
impl Observer for () {}

/// A block on its way.
struct Flight {
    io: Io,
    decision: Decision,
    batch: Batch,
}

/// The load of a request in flight.
struct Load {
    began: Instant,
    /// When the last read so far was seen to have ended.
    loaded: Option<Instant>,
}

/// A replay under way.
pub struct Runner<'a, O> {
    engine: &'a Engine,
    slots: Slots,
    geometry: &'a Geometry,
    pool: &'a mut Pool,
    observer: &'a mut O,
    cache: SlotCache,
    schedule: Schedule,
    /// In the order of their submission, which is almost that of their ends.
    flights: VecDeque<Flight>,
    /// Seen to have ended, and when, but not looked at yet.
    ended: VecDeque<(Flight, Instant)>,
    loads: HashMap<RequestNumber, Load>,
    requests: Vec<tentpeg_engine::Request>,
    totals: Totals,
    load_latency: Latency,
    began: Instant,
    timeline: Timeline,
    faults: Faults,
    /// Blocks that were read when it was asked to stop.
    not_compared: u64,
}

impl<'a, O: Observer> Runner<'a, O> {
    /// A replay on `slots` of `engine`, through `pool`, with up to `in_flight` requests at a time.
    pub fn new(
        engine: &'a Engine,
        slots: Slots,
        geometry: &'a Geometry,
        pool: &'a mut Pool,
        in_flight: NonZeroU32,
        observer: &'a mut O,
    ) -> Self {
        Self {
            engine,
            slots,
            geometry,
            pool,
            observer,
            cache: SlotCache::new(geometry.slots()),
            schedule: Schedule::new(geometry.pool_blocks(), in_flight),
            flights: VecDeque::new(),
            ended: VecDeque::new(),
            loads: HashMap::new(),
            requests: Vec::with_capacity(geometry.pages_per_block()),
            totals: Totals::default(),
            load_latency: Latency::default(),
            began: Instant::now(),
            timeline: Timeline::default(),
            faults: Faults::default(),
            not_compared: 0,
        }
    }

    /// Replays `requests` to their end, or until something stops it.
    pub fn run(mut self, requests: impl IntoIterator<Item = Result<Request, SourceError>>) -> Outcome {
        self.began = Instant::now();
        let stop = self.issue_all(requests).and_then(|()| self.end_all()).err();
        let stop = match stop {
            Some(stop @ Stop::Stalled { .. }) => Some(stop),
            Some(stop) => self.end_all().err().or(Some(stop)),
            // What ended last may not have been compared.
            None => self.pool.take_error().map(Stop::from),
        };
        let elapsed = self.began.elapsed();
        self.timeline.finish(elapsed, self.totals.moved());
        Outcome {
            totals: self.totals,
            elapsed,
            load_latency: self.load_latency,
            timeline: self.timeline,
            faults: self.faults,
            not_compared: self.not_compared,
            stop,
        }
    }

    fn issue_all(&mut self, requests: impl IntoIterator<Item = Result<Request, SourceError>>) -> Result<(), Stop> {
        for request in requests {
            let Request { hash_ids } = request?;
            let number = self.begin_request()?;
            self.loads.insert(number, Load { began: Instant::now(), loaded: None });
            let mut prefix = Prefix::new();
            for block in hash_ids {
                let decision = self.cache.decide(&mut prefix, block);
                let io = self.take_room(&decision)?;
                self.submit(io, decision)?;
                self.look_at_ended();
            }
            if let Some(number) = self.schedule.end_of_request() {
                self.request_ended(number);
            }
        }
        Ok(())
    }

    /// Begins a request, after others have ended where as many are in flight as may be.
    fn begin_request(&mut self) -> Result<RequestNumber, Stop> {
        loop {
            self.check_observer()?;
            match self.schedule.begin_request() {
                Ok(number) => return Ok(number),
                Err(_) => self.wait_for_an_end()?,
            }
        }
    }

    /// Takes the slot and a pool block, after I/O that is in their way has ended.
    fn take_room(&mut self, decision: &Decision) -> Result<Io, Stop> {
        loop {
            self.check_observer()?;
            match self.schedule.issue(decision) {
                Ok(io) => return Ok(io),
                Err(_) => self.wait_for_an_end()?,
            }
        }
    }

    fn check_observer(&mut self) -> Result<(), Stop> {
        if let Some(error) = self.pool.take_error() {
            return Err(error.into());
        }
        if self.observer.asks_to_stop() { Err(Stop::Asked) } else { Ok(()) }
    }

    /// Prepares the pool block and hands it to the engine.
    fn submit(&mut self, io: Io, decision: Decision) -> Result<(), Stop> {
        let payload = Payload::new(decision.block, decision.write);
        let observer = &*self.observer;
        let stop = || observer.asks_to_stop();
        let whole = match io.kind() {
            Kind::Read => self.pool.poison(io.pool_block(), &payload, stop),
            Kind::Write => self.pool.fill(io.pool_block(), &payload, stop),
        };
        if !whole {
            self.give_up(io);
            return Err(self.pool.take_error().map_or(Stop::Asked, Stop::Gpu));
        }
        self.prepare_requests(&io);
        let submitted = self.engine.allocate_batch(self.requests.len() as u32).map_err(Stop::from).and_then(|batch| {
            self.engine.submit(&batch, &self.requests)?;
            Ok(batch)
        });
        match submitted {
            Ok(batch) => {
                self.flights.push_back(Flight { io, decision, batch });
                Ok(())
            }
            Err(stop) => {
                self.give_up(io);
                Err(stop)
            }
        }
    }

    /// Nothing of it was submitted, so nothing reaches its slot or its pool block. Its request has not been issued whole, so this does
    /// not end it.
    fn give_up(&mut self, io: Io) {
        let ended = self.schedule.complete(io);
        debug_assert_eq!(ended, None);
    }

    /// Waits for what is in flight.
    fn end_all(&mut self) -> Result<(), Stop> {
        while !self.flights.is_empty() {
            self.wait_for_an_end()?;
        }
        Ok(())
    }

    /// Returns once at least one more block has ended and has been looked at.
    fn wait_for_an_end(&mut self) -> Result<(), Stop> {
        let deadline = Instant::now() + STALLED;
        while !self.look_at_ended() {
            let now = Instant::now();
            self.sample(now);
            if now >= deadline {
                return Err(Stop::Stalled { in_flight: self.flights.len(), limit: STALLED });
            }
            if let Some(oldest) = self.flights.front() {
                // Not to end within a glance is no error.
                let _ = oldest.batch.wait(GLANCE);
            }
        }
        Ok(())
    }

    /// Looks at every block that has ended. Whether there was one.
    fn look_at_ended(&mut self) -> bool {
        let mut any = false;
        loop {
            // Again before each look, as a look takes as long as the device takes for a block or so.
            self.see_ended();
            let Some((flight, at)) = self.ended.pop_front() else { return any };
            self.look_at(flight, at);
            any = true;
        }
    }

    /// Takes the time of the blocks that have ended.
    fn see_ended(&mut self) {
        let has_ended = |flight: &Flight| flight.batch.overall().is_finished();
        let in_order = self.flights.iter().take_while(|flight| has_ended(flight)).count();
        if in_order > 0 {
            let now = Instant::now();
            self.ended.extend(self.flights.drain(..in_order).map(|flight| (flight, now)));
        } else if self.ended.is_empty()
            && let Some(overtaking) = self.flights.iter().position(has_ended)
            && let Some(flight) = self.flights.remove(overtaking)
        {
            self.ended.push_back((flight, Instant::now()));
        }
    }

    /// Compares what was read, counts, and gives back the slot and the pool block.
    fn look_at(&mut self, flight: Flight, at: Instant) {
        let Flight { io, decision, batch } = flight;
        let wrong = self.what_is_wrong(&io, &decision, &batch);
        let moved = if matches!(wrong, Some(Wrong::Task(_))) { 0 } else { self.geometry.block() };
        match io.kind() {
            Kind::Read => {
                self.totals.reads += 1;
                self.totals.bytes_read += moved;
                if let Some(load) = self.loads.get_mut(&io.request()) {
                    load.loaded = Some(at);
                }
            }
            Kind::Write => {
                self.totals.writes += 1;
                self.totals.bytes_written += moved;
            }
        }
        self.sample(at);
        if let Some(wrong) = wrong {
            self.faults.add(Fault { request: io.request(), decision, wrong });
        }
        if let Some(number) = self.schedule.complete(io) {
            self.request_ended(number);
        }
    }

    fn sample(&mut self, now: Instant) {
        self.timeline.look(now.duration_since(self.began), self.totals.moved());
    }

    fn what_is_wrong(&mut self, io: &Io, decision: &Decision, batch: &Batch) -> Option<Wrong> {
        if batch.overall().unsuccessful > 0 {
            // As they were submitted: the list has been used for others since.
            self.prepare_requests(io);
            return TaskFailure::of(batch, &self.requests).into_iter().next().map(Wrong::Task);
        }
        match io.kind() {
            Kind::Read => {
                let payload = Payload::new(decision.block, decision.write);
                let observer = &*self.observer;
                match self.pool.verify(io.pool_block(), &payload, || observer.asks_to_stop()) {
                    Ok(true) => None,
                    Ok(false) => {
                        self.not_compared += 1;
                        None
                    }
                    Err(mismatch) => Some(Wrong::Bytes(mismatch)),
                }
            }
            Kind::Write => None,
        }
    }

    /// Sets `requests` to those of a block.
    fn prepare_requests(&mut self, io: &Io) {
        let opcode = match io.kind() {
            Kind::Read => OpCode::Read,
            Kind::Write => OpCode::Write,
        };
        let (target_id, at) = self.slots.place(io.slot());
        self.pool.requests(io.pool_block(), opcode, target_id, at, &mut self.requests);
    }

    fn request_ended(&mut self, number: RequestNumber) {
        self.totals.requests += 1;
        if let Some(Load { began, loaded: Some(loaded) }) = self.loads.remove(&number) {
            self.load_latency.record(loaded.duration_since(began));
        }
        self.observer.request_ended(&self.totals);
    }
}

#[cfg(test)]
mod tests;
