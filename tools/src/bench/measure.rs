//! Keeping requests in flight and watching them end.
//!
//! Requests go in groups, each a batch of the engine's with memory of its own. A group is submitted when the depth leaves room for all
//! of it, and its batch is dropped when all of it has ended: a batch keeps its tasks for its life, so one batch for everything would
//! grow. Latency is from a group's submit to the look at its batch that finds the request ended.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tentpeg_engine::{
    Batch, Engine, GpuSeries, GpuWordsError, Lane, Memory, OpCode, Request, Segment, SegmentId, WaitError,
};

use super::plan::{End, Plan};
use super::workload::{Transfer, Workload};
use crate::failure::{IoError, STALLED, TaskFailure};
use crate::interrupt::Interrupt;
use crate::progress;
use crate::replay::pool::PageLayout;
use crate::report::{Errors, Latency, Moved, Timeline};

/// Looks that find nothing before the thread sleeps until a batch ends.
const IDLE_LOOKS: u32 = 256;
/// How long it sleeps at most.
const NAP: Duration = Duration::from_millis(10);
/// Bytes that a GPU fills with one series of words.
const PAGE: usize = 4096;
/// How often the progress bar moves.
const BAR: Duration = Duration::from_millis(100);

/// What a measurement works with.
pub struct Rig<'a> {
    /// The devices.
    pub engine: &'a Engine,
    /// What of them is measured.
    pub segments: Vec<&'a Segment>,
    /// Its lane, when this thread turns it.
    pub lane: Option<Lane>,
    /// Memory for every request in flight.
    pub memory: &'a Memory,
    /// Whether to end early.
    pub interrupt: &'a Interrupt,
}

impl Rig<'_> {
    /// Fills the memory with random bytes, so that what is written is not all the same; a GPU's with series of words, each page
    /// with another.
    ///
    /// # Errors
    /// [`GpuWordsError`]: the GPU does not do it.
    pub fn scatter_payload(&self, seed: u64) -> Result<(), GpuWordsError> {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        if self.memory.is_gpu() {
            let pages = (0..self.memory.len() as u64).step_by(PAGE);
            let series = pages.map(|offset| {
                let words = (self.memory.len() as u64 - offset).min(PAGE as u64) / 8;
                GpuSeries { offset, words, first: rng.next_u64(), step: rng.next_u64() }
            });
            return self.engine.gpu_words(self.memory)?.fill(series);
        }
        let mut page = [0; 512];
        for offset in (0..self.memory.len()).step_by(size_of_val(&page)) {
            page.fill_with(|| rng.next_u64());
            let words = page.len().min((self.memory.len() - offset) / 8);
            self.memory.view().write_words(offset, &page[..words]);
        }
        Ok(())
    }
}

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// Reads that completed.
    pub reads: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Bytes of reads that completed.
    pub bytes_read: u64,
    /// Bytes of writes that completed.
    pub bytes_written: u64,
    /// How long requests took, however they ended.
    pub latency: Latency,
    /// What had completed when.
    pub timeline: Timeline,
    /// From the first submit to the last completion.
    pub elapsed: Duration,
    /// When the first completion was seen.
    pub first_completion: Option<Instant>,
    /// Whether the user ended it.
    pub interrupted: bool,
    /// Requests that did not complete.
    pub errors: Errors,
}

impl Measured {
    fn moved(&self) -> Moved {
        let Self { reads, writes, bytes_read, bytes_written, .. } = *self;
        Moved { reads, writes, bytes_read, bytes_written }
    }

    /// How it ended, without what was counted.
    pub fn without_counts(self) -> Self {
        Self { interrupted: self.interrupted, errors: self.errors, ..Self::default() }
    }
}

/// Requests that were submitted together.
struct Group {
    batch: Batch,
    requests: Vec<Request>,
    /// The first of its blocks of memory.
    first: u64,
    submitted: Instant,
    /// Tasks that were seen to have ended: one a page.
    ended: u32,
}

/// A group's memory and list, free for the next one.
struct Spare {
    first: u64,
    requests: Vec<Request>,
}

/// Where blocks lie in memory: side by side, or each in pages all over it.
struct Places {
    address: u64,
    page: u64,
    layout: Option<PageLayout>,
}

impl Places {
    fn new(memory: &Memory, plan: &Plan) -> Self {
        let pages = u32::try_from(memory.len() as u64 / plan.page).unwrap_or(u32::MAX);
        let per_block = plan.pages() as usize;
        let whole = pages - pages % per_block.max(1) as u32;
        let layout = (per_block > 1).then(|| PageLayout::shuffled(whole, per_block));
        Self { address: memory.address(), page: plan.page, layout }
    }

    /// Adds the requests of a transfer, one a page, of which those of a block go one after the other on the device.
    fn requests(&self, block: u64, (transfer, target_id): (Transfer, SegmentId), requests: &mut Vec<Request>) {
        let Transfer { opcode, offset, length, .. } = transfer;
        let Some(layout) = &self.layout else {
            let source = self.address + block * self.page;
            return requests.push(Request { opcode, source, target_id, target_offset: offset, length });
        };
        requests.extend((0..).zip(layout.pages(block as u32)).map(|(number, page)| Request {
            opcode,
            source: self.address + u64::from(*page) * self.page,
            target_id,
            target_offset: offset + number * self.page,
            length: self.page,
        }));
    }
}

/// Runs `plan` to its end, to the first failure or to an interrupt; whatever is in flight is waited for in each case.
///
/// # Errors
/// [`IoError`]: the engine takes no requests, or the device is silent.
pub fn run(rig: &mut Rig<'_>, plan: &Plan, workload: Workload) -> Result<Measured, IoError> {
    let bar = match plan.end {
        End::Requests(requests) => progress::over_things(requests, "requests"),
        End::Time(time) => progress::over_time(time),
    };
    let result = Run::new(rig, plan, workload).finish(rig, &bar);
    bar.finish_and_clear();
    result
}

struct Run<'a> {
    plan: &'a Plan,
    workload: Workload,
    places: Places,
    targets: Vec<SegmentId>,
    /// In the order of their submits.
    in_flight: VecDeque<Group>,
    spare: Vec<Spare>,
    /// Requests submitted.
    submitted: u64,
    /// Requests ended: a block has when all its pages have.
    ended: u64,
    began: Instant,
    measured: Measured,
}

impl<'a> Run<'a> {
    fn new(rig: &Rig<'_>, plan: &'a Plan, workload: Workload) -> Self {
        let pages = plan.pages() as usize;
        let spare = |group: u32| Spare {
            first: u64::from(group) * u64::from(plan.batch),
            requests: Vec::with_capacity(plan.batch as usize * pages),
        };
        Self {
            plan,
            workload,
            places: Places::new(rig.memory, plan),
            targets: rig.segments.iter().map(|segment| segment.id).collect(),
            in_flight: VecDeque::with_capacity(plan.groups() as usize),
            spare: (0..plan.groups()).map(spare).collect(),
            submitted: 0,
            ended: 0,
            began: Instant::now(),
            measured: Measured::default(),
        }
    }

    fn finish(mut self, rig: &mut Rig<'_>, bar: &ProgressBar) -> Result<Measured, IoError> {
        let (mut idle_looks, mut last_progress, mut last_bar) = (0, self.began, self.began);
        let mut now = self.began;
        loop {
            let open = self.may_submit(rig.interrupt, now);
            let mut moved = open && self.submit(rig.engine)?;
            if let Some(lane) = &mut rig.lane {
                lane.turn();
            }
            moved |= self.look();
            if self.in_flight.is_empty() && !self.may_submit(rig.interrupt, now) {
                break;
            }
            now = Instant::now();
            let moved_so_far = self.measured.moved();
            self.measured.timeline.look(now - self.began, moved_so_far);
            if moved {
                (idle_looks, last_progress) = (0, now);
                if now - last_bar >= BAR {
                    last_bar = now;
                    bar.set_position(match self.plan.end {
                        End::Requests(_) => self.ended,
                        End::Time(_) => (now - self.began).as_millis() as u64,
                    });
                }
                continue;
            }
            idle_looks += 1;
            self.idle(rig, idle_looks, now - last_progress)?;
        }
        // `now` is of before the last look; a run of few requests should not end before it began.
        self.measured.elapsed = self.began.elapsed();
        let moved = self.measured.moved();
        self.measured.timeline.finish(self.measured.elapsed, moved);
        self.measured.interrupted = rig.interrupt.is_set() && !self.is_complete(self.began + self.measured.elapsed);
        Ok(self.measured)
    }

    /// Whether all was submitted that the plan asks for.
    fn is_complete(&self, now: Instant) -> bool {
        match self.plan.end {
            End::Requests(requests) => self.submitted >= requests,
            End::Time(time) => now - self.began >= time,
        }
    }

    fn may_submit(&self, interrupt: &Interrupt, now: Instant) -> bool {
        !interrupt.is_set() && self.measured.errors.count() == 0 && !self.is_complete(now)
    }

    /// Submits groups as long as the depth leaves room. Whether there was one.
    fn submit(&mut self, engine: &Engine) -> Result<bool, IoError> {
        let mut any = false;
        loop {
            let size = match self.plan.end {
                End::Requests(requests) => u64::from(self.plan.batch).min(requests - self.submitted),
                End::Time(_) => self.plan.batch.into(),
            };
            if size == 0 || self.submitted - self.ended + size > self.plan.depth.into() {
                return Ok(any);
            }
            let Some(Spare { first, mut requests }) = self.spare.pop() else { return Ok(any) };
            requests.clear();
            for place in 0..size {
                let transfer = self.workload.next_transfer();
                self.places.requests(first + place, (transfer, self.targets[transfer.target]), &mut requests);
            }
            let batch = engine.allocate_batch(requests.len() as u32)?;
            let submitted = Instant::now();
            engine.submit(&batch, &requests)?;
            self.submitted += size;
            self.in_flight.push_back(Group { batch, requests, first, submitted, ended: 0 });
            any = true;
        }
    }

    /// Looks at every batch once. Whether any request has ended.
    fn look(&mut self) -> bool {
        let mut now = None;
        let mut index = 0;
        while let Some(group) = self.in_flight.get_mut(index) {
            let status = group.batch.overall();
            let more = status.ended - group.ended;
            if more > 0 {
                let now = *now.get_or_insert_with(Instant::now);
                self.measured.first_completion.get_or_insert(now);
                let pages = self.plan.pages();
                let blocks = u64::from(status.ended) / pages - u64::from(group.ended) / pages;
                self.measured.latency.record_many(now - group.submitted, blocks);
                group.ended = status.ended;
                self.ended += blocks;
            }
            if status.is_finished()
                && let Some(group) = self.in_flight.remove(index)
            {
                self.retire(group);
            } else {
                index += 1;
            }
        }
        now.is_some()
    }

    /// Counts a group that has ended, and keeps its memory for another.
    fn retire(&mut self, group: Group) {
        let failures = TaskFailure::of(&group.batch, &group.requests);
        let measured = &mut self.measured;
        for block in group.requests.chunks(self.plan.pages() as usize) {
            if failures.iter().any(|failure| failure.request.is_some_and(|request| block.contains(&request))) {
                continue;
            }
            let (requests, bytes) = match block[0].opcode {
                OpCode::Read => (&mut measured.reads, &mut measured.bytes_read),
                OpCode::Write => (&mut measured.writes, &mut measured.bytes_written),
            };
            *requests += 1;
            *bytes += block.iter().map(|request| request.length).sum::<u64>();
        }
        failures.iter().for_each(|failure| measured.errors.add(failure.to_string()));
        self.spare.push(Spare { first: group.first, requests: group.requests });
    }

    /// Gives the processor away when nothing has moved.
    fn idle(&self, rig: &Rig<'_>, looks: u32, silent: Duration) -> Result<(), IoError> {
        if silent >= STALLED {
            let left = (self.submitted - self.ended) as u32;
            return Err(WaitError { left, tasks: left, limit: STALLED }.into());
        }
        match self.in_flight.front() {
            // A lane that this thread turns moves nothing while it sleeps.
            Some(oldest) if looks > IDLE_LOOKS && rig.lane.is_none() => {
                // Not having ended is no error before the device is silent for long.
                let _ = oldest.batch.wait(NAP);
            }
            _ => thread::yield_now(),
        }
        Ok(())
    }
}
