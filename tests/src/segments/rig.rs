//! An engine with its devices, segments and reference, and what is done to it.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::dma::DmaView;
use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::model::{DeallocatedRead, Drive, Model, SoftwareIommu, Survivors, Violation};
use tentpeg_driver::spec::status::StatusCode;
use tentpeg_engine::{Batch, Devices, Durability, Engine, Lane, LaneMode, OpCode, Request, TransferState};

use super::areas::{AREAS, Area, SLOTS};
use super::flight::{Flight, Kind, MARGIN, POISON, ROOM, SLOT};
use super::shape::{DEVICES, Shape};
use super::{Counters, Mistake};
use crate::chaos::Watched;
use crate::chaos::blocks::{Blocks, Moment, WriteEnd, word};
use crate::chaos::dice::Dice;

/// Tasks in flight at the most.
const MOST_IN_FLIGHT: usize = AREAS * SLOTS;
/// Tasks of a batch.
const BATCH: u32 = 64;
/// Which of the segments is on all devices.
const STRIPE: usize = 2;
/// Turns without an end of anything after which nothing will come any more.
const PATIENCE: u64 = 2_000_000;

/// A rig of three devices.
pub(super) struct Rig {
    // In this order: the engine stops its controllers before the models go, and before memory does.
    pub(super) lane: Option<Lane>,
    pub(super) engine: Option<Engine>,
    pub(super) functions: Vec<Arc<Watched>>,
    models: Vec<Model>,
    pub(super) areas: Vec<Area>,
    pub(super) iommu: Arc<SoftwareIommu>,
    shape: Shape,
    /// What was promised for writes, and what the segments were opened with.
    promised: Durability,
    opened: Durability,
    pub(super) mistake: Option<Mistake>,
    pub(super) dice: Dice,
    reference: Vec<Blocks>,
    pub(super) flights: Vec<Flight>,
    pub(super) free_slots: Vec<usize>,
    /// The batch that takes the next task, and its number.
    pub(super) batch: Option<(u64, Batch)>,
    batches: u64,
    now: Moment,
    /// Turns of the lane so far.
    pub(super) turns: u64,
    pub(super) counters: Counters,
}

impl Rig {
    pub(super) fn new(
        shape: Shape,
        dice: Dice,
        promised: Durability,
        mistake: Option<Mistake>,
    ) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let iommu = SoftwareIommu::new();
        let (mut models, mut functions) = (Vec::new(), Vec::new());
        for config in &shape.models {
            let model = Model::new(config.clone(), Drive::Stepped, &iommu).map_err(|error| text(&error))?;
            functions.push(Arc::new(Watched::new(model.function())));
            models.push(model);
        }
        let mut devices = Devices::new(LaneMode::CallerDriven, shape.config.clone());
        for function in &functions {
            let function: Arc<dyn Function> = Arc::<Watched>::clone(function);
            devices.add(function, true).map_err(|error| text(&error))?;
        }
        let durability = if mistake == Some(Mistake::PromisesTooMuch) { Durability::None } else { promised };
        let (engine, lane) = devices.start(shape.layouts(durability)).map_err(|error| text(&error))?;
        let areas = Area::all(&engine, &iommu)?;
        let reference = engine.segments().iter();
        let reference = reference.map(|segment| Blocks::new(segment.capacity / segment.lba_size, segment.lba_size));
        Ok(Self {
            reference: reference.collect(),
            lane,
            engine: Some(engine),
            functions,
            models,
            areas,
            iommu,
            shape,
            promised,
            opened: durability,
            mistake,
            dice,
            flights: Vec::new(),
            free_slots: (0..MOST_IN_FLIGHT).collect(),
            batch: None,
            batches: 0,
            now: 1,
            turns: 0,
            counters: Counters { rigs: 1, ..Counters::default() },
        })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Runs so many operations, then sees whether all that is durable outlives a last loss of power.
    pub(super) fn run(&mut self, operations: u64) -> Result<(), String> {
        let mut submitted = 0;
        while submitted < operations {
            if !self.free_slots.is_empty() && self.dice.percent(60) {
                self.submit()?;
                submitted += 1;
            } else {
                self.turn()?;
            }
            self.withdraw_something()?;
            match self.dice.below(6_000) {
                0 => self.cut_power()?,
                1 | 2 => self.arm(),
                _ => {}
            }
        }
        self.settle()?;
        // What was armed and has not happened would befall the last looks.
        for model in &self.models {
            model.faults().clear();
        }
        for segment in 0..self.reference.len() {
            while self.free_slots.is_empty() {
                self.turn()?;
            }
            self.submit_kind(Kind::Flush, segment, 0..0)?;
        }
        self.settle()?;
        self.cut_power()?;
        self.read_everything()?;
        self.close()
    }

    /// Waits until nothing is in flight.
    fn settle(&mut self) -> Result<(), String> {
        let (mut turns, mut left) = (0u64, self.flights.len());
        while !self.flights.is_empty() {
            self.turn()?;
            turns = if self.flights.len() < left { 0 } else { turns + 1 };
            left = self.flights.len();
            if turns > PATIENCE {
                return Err(format!("{left} tasks do not end: the first is {:?}", self.flights[0].kind));
            }
        }
        Ok(())
    }

    /// Reads each segment from its first block to its last.
    fn read_everything(&mut self) -> Result<(), String> {
        for segment in 0..self.reference.len() {
            let (count, most) = (self.reference[segment].count(), ROOM / self.shape.lba_size);
            for first in (0..count).step_by(most as usize) {
                while self.free_slots.is_empty() {
                    self.turn()?;
                }
                self.submit_kind(Kind::Read, segment, first..count.min(first + most))?;
            }
        }
        self.settle()
    }

    fn close(&mut self) -> Result<(), String> {
        for device in self.engine.iter().flat_map(|engine| engine.devices()) {
            let counters = device.counters();
            self.counters.commands += counters.commands;
            self.counters.staged_reads += counters.staged_reads;
            self.counters.staged_writes += counters.staged_writes;
            if let Some(recovery) = device.recovery_counters() {
                self.counters.restarts += recovery.restarts;
                self.counters.interrupted += recovery.interrupted;
            }
        }
        self.counters.settled += self.reference.iter().map(|blocks| blocks.settled).sum::<u64>();
        self.counters.mixed += self.reference.iter().map(|blocks| blocks.mixed).sum::<u64>();
        self.batch = None;
        if let (Some(engine), Some(lane)) = (self.engine.take(), self.lane.take()) {
            engine.close_with(lane).map_err(|error| format!("closing: {error}"))?;
        }
        for (number, model) in self.models.iter().enumerate() {
            // Nobody has told the driver that the power went: a doorbell of the former life is no mistake of its.
            let told = |violation: &Violation| !matches!(violation, Violation::DoorbellOfFormerEpoch { .. });
            let violations: Vec<Violation> = model.violations().into_iter().filter(told).collect();
            if !violations.is_empty() {
                return Err(format!("device {number}: {violations:?}"));
            }
        }
        Ok(())
    }

    fn moment(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// Power goes and comes back, of one device or of all.
    fn cut_power(&mut self) -> Result<(), String> {
        let now = self.moment();
        let one = self.dice.percent(50).then(|| self.dice.index(DEVICES));
        let survivors = match self.dice.below(3) {
            0 => Survivors::Nothing,
            _ => Survivors::Some { seed: self.dice.word() },
        };
        for device in (0..DEVICES).filter(|device| one.is_none_or(|one| one == *device)) {
            let loss = self.models[device].power_cut(survivors).map_err(|error| format!("a loss of power: {error}"))?;
            self.counters.power_cuts += 1;
            self.counters.blocks_lost += loss.lost;
            for (blocks, devices) in self.reference.iter_mut().zip(Shape::SEGMENT_DEVICES) {
                if devices.contains(&device) {
                    blocks.lose_power(now);
                }
            }
        }
        Ok(())
    }

    /// Has something go wrong with one of the devices.
    fn arm(&mut self) {
        self.counters.faults += 1;
        let faults = self.models[self.dice.index(DEVICES)].faults();
        let nth = self.dice.between(1, 20);
        let execute = self.dice.percent(50);
        let action = match self.dice.below(6) {
            0 => Action::Drop { execute },
            1 => Action::Delay { turns: self.dice.below(100) as u32 },
            2 => Action::Duplicate { turns: self.dice.below(10) as u32 },
            3 | 4 => {
                let codes =
                    [StatusCode::NAMESPACE_NOT_READY, StatusCode::COMMAND_INTERRUPTED, StatusCode::INTERNAL_ERROR];
                Action::Status { status: self.dice.pick(&codes).status(), execute }
            }
            _ => return faults.arm(At::Command(nth), Life::Fatal),
        };
        faults.add(Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(nth), action });
    }

    /// A task of a kind and a place that chance draws.
    fn submit(&mut self) -> Result<(), String> {
        let segment = self.dice.pick(&[0, 1, 2, 2]);
        let flushes = if self.promised == Durability::None { 8 } else { 2 };
        let kind = match self.dice.weighed(&[35, 12, 35, 6, 6, flushes]) {
            0 => Kind::Read,
            1 => Kind::Unaligned { skip: 0, length: 0 },
            2 => Kind::Write,
            3 => Kind::Zeroes,
            4 => Kind::Deallocate,
            _ => return self.submit_kind(Kind::Flush, segment, 0..0),
        };
        let count = self.reference[segment].count();
        let most = (ROOM / self.shape.lba_size).min(count);
        let length = if self.dice.percent(60) { self.dice.between(1, most.min(4)) } else { self.dice.between(1, most) };
        let first = self.dice.below(count - length + 1);
        self.submit_kind(kind, segment, first..first + length)
    }

    fn submit_kind(&mut self, kind: Kind, segment: usize, blocks: std::ops::Range<u64>) -> Result<(), String> {
        let submitted = self.moment();
        if self.free_slots.is_empty() {
            return Err("no memory is free".to_owned());
        }
        let slot = self.free_slots.swap_remove(self.dice.index(self.free_slots.len()));
        let area = &self.areas[slot / SLOTS];
        let any_byte = area.takes_any_byte() && self.dice.percent(50);
        let base_address = area.address() + (slot % SLOTS * SLOT) as u64;
        let lba_size = self.shape.lba_size;
        let bytes = (blocks.end - blocks.start) * lba_size;
        let mut at = 4096 + if self.dice.percent(40) { self.dice.below(1024) * 4 } else { 0 };
        let mut kind = kind;
        if let Kind::Unaligned { .. } = kind {
            // Any bytes, to any address.
            let skip = self.dice.below(lba_size);
            kind = Kind::Unaligned { skip, length: self.dice.between(1, bytes - skip) };
            at += self.dice.below(4);
        } else if any_byte {
            at += self.dice.below(4);
        }
        let changes = matches!(kind, Kind::Write | Kind::Zeroes | Kind::Deallocate);
        let write = if changes { self.reference[segment].number() } else { 0 };
        if kind == Kind::Write {
            let words = |block| (0..lba_size as usize / 8).map(move |place| word(write, block, place));
            let bytes: Vec<u8> = blocks.clone().flat_map(words).flat_map(u64::to_le_bytes).collect();
            self.slot_view(slot).write(at as usize, &bytes);
        } else if !changes && kind != Kind::Flush {
            let all = bytes + 2 * MARGIN;
            self.slot_view(slot).slice((at - MARGIN) as usize, all as usize).fill(POISON);
        }
        if changes && !(self.mistake == Some(Mistake::ForgetsAWrite) && kind == Kind::Write && write % 500 == 0) {
            self.reference[segment].begin(write, kind != Kind::Write, blocks.clone());
        }
        let Some(engine) = &self.engine else { return Err("the engine is closed".to_owned()) };
        let (number, batch) = match self.batch.take().filter(|(_, batch)| batch.tasks() < BATCH) {
            Some(batch) => batch,
            None => {
                self.batches += 1;
                (self.batches, engine.allocate_batch(BATCH).map_err(|error| error.to_string())?)
            }
        };
        let target_id = engine.segments()[segment].id;
        let offset = blocks.start * lba_size;
        let request = |opcode, target_offset, length| Request {
            opcode,
            source: base_address + at,
            target_id,
            target_offset,
            length,
        };
        let task = match kind {
            Kind::Read => engine.submit(&batch, &[request(OpCode::Read, offset, bytes)]),
            Kind::Unaligned { skip, length } => engine.submit(&batch, &[request(OpCode::Read, offset + skip, length)]),
            Kind::Write => engine.submit(&batch, &[request(OpCode::Write, offset, bytes)]),
            Kind::Zeroes => engine.submit_zeroes(&batch, target_id, offset, bytes),
            Kind::Deallocate => engine.submit_deallocate(&batch, target_id, offset, bytes),
            Kind::Flush => engine.submit_flush(&batch, target_id),
        };
        let task = task.map_err(|error| error.to_string())?;
        self.batch = Some((number, batch.clone()));
        let bytes = if let Kind::Unaligned { length, .. } = kind { length } else { bytes };
        let given_up = false;
        self.flights.push(Flight {
            batch,
            task,
            kind,
            segment,
            blocks,
            write,
            submitted,
            slot,
            at,
            bytes,
            number,
            given_up,
        });
        Ok(())
    }

    /// The memory of a slot.
    pub(super) fn slot_view(&self, slot: usize) -> DmaView<'_> {
        self.areas[slot / SLOTS].view().slice(slot % SLOTS * SLOT, SLOT)
    }

    /// A turn of the lane, and a look at every task.
    fn turn(&mut self) -> Result<(), String> {
        for function in &self.functions {
            function.begin_step();
            // Busy turns take time, too, or a deadline would never pass under load.
            function.pass(Duration::from_micros(20));
        }
        if let Some(lane) = &mut self.lane {
            lane.turn();
            // The models have the processor after a busy turn as well: a lane that always has something to submit would
            // keep them from it.
            lane.pause();
        }
        let mut place = 0;
        while let Some(flight) = self.flights.get(place) {
            let status = flight.batch.status(flight.task).map_err(|error| error.to_string())?;
            if status.state.is_terminal() {
                self.ended_at(place)?;
            } else {
                place += 1;
            }
        }
        self.turns += 1;
        self.wake_areas()
    }

    /// The task at a place of the list has ended.
    pub(super) fn ended_at(&mut self, place: usize) -> Result<(), String> {
        let flight = &self.flights[place];
        let state = flight.batch.status(flight.task).map_err(|error| error.to_string())?.state;
        if state == TransferState::Canceled {
            self.check_untouched(place)?;
        }
        let flight = self.flights.remove(place);
        self.ended(&flight, state)?;
        if self.areas[flight.slot / SLOTS].rests.is_none() {
            self.free_slots.push(flight.slot);
        }
        Ok(())
    }

    /// A task has ended: whether it may have, and what it says.
    fn ended(&mut self, flight: &Flight, state: TransferState) -> Result<(), String> {
        let now = self.moment();
        let oldest = self.flights.iter().map(|flight| flight.submitted).min().unwrap_or(now);
        self.counters.operations += 1;
        self.counters.see(u64::from(flight.task) << 8 | state as u64);
        let counter = match flight.kind {
            Kind::Read => &mut self.counters.reads,
            Kind::Unaligned { .. } => &mut self.counters.unaligned_reads,
            Kind::Write => &mut self.counters.writes,
            Kind::Zeroes => &mut self.counters.zeroes,
            Kind::Deallocate => &mut self.counters.deallocations,
            Kind::Flush => &mut self.counters.flushes,
        };
        *counter += 1;
        let succeeded = match state {
            TransferState::Completed => true,
            TransferState::Failed => {
                self.check_failure(flight)?;
                false
            }
            // It has been looked at.
            TransferState::Canceled => false,
            _ => {
                let refusal = flight.batch.refusal(flight.task).map_err(|error| error.to_string())?;
                return Err(format!("{:?} ended as {state}: {refusal:?}", flight.kind));
            }
        };
        let blocks = &mut self.reference[flight.segment];
        match flight.kind {
            Kind::Flush if succeeded => blocks.flushed(flight.submitted, oldest),
            Kind::Flush => {}
            Kind::Read | Kind::Unaligned { .. } => {
                if succeeded {
                    self.check_read(flight, now)?;
                }
            }
            Kind::Write | Kind::Zeroes | Kind::Deallocate => {
                // A deallocation may leave what was there, unless the device says that it reads as zeroes.
                let reported = |device: &usize| self.shape.models[*device].deallocated_read == DeallocatedRead::Zeroes;
                let certain =
                    flight.kind != Kind::Deallocate || Shape::SEGMENT_DEVICES[flight.segment].iter().all(reported);
                let end = match (succeeded && certain, self.promised) {
                    _ if state == TransferState::Canceled => WriteEnd::Never,
                    (false, _) => WriteEnd::Failed,
                    (true, Durability::None) if self.shape.volatile => WriteEnd::Cached,
                    (true, _) => WriteEnd::Succeeded,
                };
                blocks.end(flight.write, flight.blocks.clone(), end, flight.submitted, now, oldest);
            }
        }
        Ok(())
    }

    /// Whether a task may have failed: something was done to its device.
    fn check_failure(&mut self, flight: &Flight) -> Result<(), String> {
        let status = flight.batch.nvme_status(flight.task).map_err(|error| error.to_string())?;
        let harmed = self.counters.faults != 0 || self.counters.power_cuts != 0;
        match (flight.kind, status) {
            (Kind::Flush, None) if self.opened == Durability::None && self.shape.volatile && harmed => {
                self.counters.flushes_failed += 1;
            }
            (_, Some(_)) if harmed => self.counters.failed += 1,
            // Of a stripe one device has begun it, and another one has given it up.
            (_, None) if flight.given_up && flight.segment == STRIPE => self.counters.failed += 1,
            (kind, status) => return Err(format!("{kind:?} failed with {status:?}, and nobody did anything")),
        }
        Ok(())
    }

    fn check_read(&mut self, flight: &Flight, now: Moment) -> Result<(), String> {
        let lba_size = self.shape.lba_size;
        let (skip, length) = match flight.kind {
            Kind::Unaligned { skip, length } => (skip, length),
            _ => (0, (flight.blocks.end - flight.blocks.start) * lba_size),
        };
        let beside = u64::from(self.mistake == Some(Mistake::ReadsBeside) && skip != 0);
        let mut found = vec![0; (MARGIN + length + MARGIN) as usize];
        self.slot_view(flight.slot).read((flight.at - MARGIN) as usize, &mut found);
        let margin = MARGIN as usize;
        let (before, behind) = (&found[..margin], &found[margin + length as usize..]);
        if before.iter().chain(behind).any(|byte| *byte != POISON) {
            return Err(format!("{:?} of {:?} has touched memory beside its own", flight.kind, flight.blocks));
        }
        let found = &found[margin - beside as usize..][..length as usize];
        let blocks = &mut self.reference[flight.segment];
        let (mut done, mut block, mut at) = (0, flight.blocks.start, skip);
        while done < length {
            let piece = (lba_size - at).min(length - done);
            let bytes = &found[done as usize..(done + piece) as usize];
            if piece == lba_size {
                let words: Vec<u64> =
                    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
                self.counters.see(words[0]);
                self.counters.blocks_checked += 1;
                blocks
                    .check(block, &words, flight.submitted, now)
                    .map_err(|wrong| format!("segment {}: {wrong}", flight.segment))?;
            } else {
                self.counters.bytes_checked += piece;
                if !blocks.may_hold(block, at as usize, bytes, flight.submitted) {
                    let Flight { segment, kind, .. } = flight;
                    return Err(format!("segment {segment}: {kind:?} found wrong bytes in block {block} from {at} on"));
                }
            }
            (done, block, at) = (done + piece, block + 1, 0);
        }
        Ok(())
    }
}
