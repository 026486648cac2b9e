//! The process that is killed. It changes the label, serves the segments that this has, works on them, shuts the
//! controller down, and begins again, until it has done its operations; then it waits for its end.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::thread;

use serde::{Deserialize, Serialize};
use tentpeg_driver::model::faults::{Action, CommandQueue, Rule, When};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_engine::administration::Administration;
use tentpeg_engine::blocks::Blocks;
use tentpeg_engine::label::{Label, LabelError, NewSegment, SegmentEntry};
use tentpeg_engine::{
    Batch, BlockExtent, Devices, Durability, Engine, EngineConfig, Lane, LaneMode, Memory, OpCode, Request,
    SegmentLayout, TransferState,
};
use uuid::Uuid;

use super::Mistake;
use super::image::{Image, text};
use super::record::{Begin, Change, MODES, Record, Work};
use crate::chaos::blocks::word;
use crate::chaos::dice::Dice;

/// Tasks in flight at the most.
const MOST_IN_FLIGHT: usize = 8;
/// Bytes of memory of each.
const SLOT: usize = 32 << 10;
/// Segments at the most.
const MOST_SEGMENTS: usize = 8;
/// Blocks of a segment at the most.
const MOST_BLOCKS: u64 = 200;

/// What a child is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) image: Image,
    /// Where chance begins.
    pub(super) seed: u64,
    /// The first number that no task has had.
    pub(super) number: u32,
    /// Tasks to submit.
    pub(super) operations: u64,
    pub(super) mistake: Option<Mistake>,
}

/// Lives as `order` says, in the JSON that the parent gives it; returns when there is nobody left to be killed by.
pub fn live(order: &str) {
    let lived = serde_json::from_str(order).map_err(text).and_then(|order: Order| Child::new(order).live());
    let last = lived.map_or_else(Record::Failed, |()| Record::Done);
    if say(&last).is_ok() {
        // The parent holds the other end for as long as it lives.
        let _ = io::stdin().read(&mut [0]);
    }
}

/// Writes a record by one write(2), so that a kill does not tear it.
fn say(record: &Record) -> Result<(), String> {
    let mut line = serde_json::to_string(record).map_err(text)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(text)
}

struct Child {
    order: Order,
    dice: Dice,
    /// Tasks submitted so far.
    done: u64,
}

/// A task that has not ended.
struct Flight {
    batch: Batch,
    number: u32,
    slot: usize,
}

/// What serves the segments.
struct Session {
    engine: Engine,
    lane: Option<Lane>,
    memory: Memory,
    segments: Vec<SegmentEntry>,
    /// Which of them are worked on.
    used: Vec<usize>,
    flights: Vec<Flight>,
    free: Vec<usize>,
}

impl Child {
    fn new(order: Order) -> Self {
        Self { dice: Dice::new(order.seed), order, done: 0 }
    }

    fn live(mut self) -> Result<(), String> {
        while self.done < self.order.operations {
            let segments = self.change_label()?;
            if !segments.is_empty() {
                self.work(segments)?;
            }
        }
        Ok(())
    }

    /// Makes some changes of the label. What segments there are then.
    fn change_label(&mut self) -> Result<Vec<SegmentEntry>, String> {
        let uri = self.order.image.writable(self.dice.word());
        let mut device = Administration::open_with(uri, &Image::options()).map_err(text)?;
        let (mut label, mut blocks) = device.change().map_err(text)?;
        for _ in 0..self.dice.below(4) {
            let change = self.draw_change(&label);
            say(&Record::Change(change.clone()))?;
            match self.make(&change, &mut label, &mut *blocks) {
                Ok(()) => say(&Record::Changed)?,
                Err(LabelError::NoSpace { .. }) => say(&Record::Refused)?,
                Err(error) => return Err(format!("{change:?}: {error}")),
            }
        }
        drop(blocks);
        let label = device.label().map_err(text)?;
        device.close().map_err(text)?;
        Ok(label.segments().cloned().collect())
    }

    fn draw_change(&mut self, label: &Label) -> Change {
        let names: Vec<&str> = label.segments().map(|segment| segment.name.as_str()).collect();
        let dice = &mut self.dice;
        let kind = dice.weighed(&[30, 40, 15, 15]);
        let free = loop {
            let name = format!("s{}", dice.below(1000));
            if !names.contains(&name.as_str()) {
                break name;
            }
        };
        let blocks = dice.between(1, MOST_BLOCKS);
        if names.is_empty() || kind == 0 && names.len() < MOST_SEGMENTS {
            let uuid = Uuid::from_u128(u128::from(dice.word()) << 64 | u128::from(dice.word()));
            return Change::Create { name: free, uuid, blocks, mode: dice.index(MODES.len()) };
        }
        let name = names[dice.index(names.len())].to_owned();
        match kind {
            0 | 1 => Change::Resize { name, blocks },
            2 => Change::Rename { name, to: free },
            _ => Change::Delete { name },
        }
    }

    fn make(&self, change: &Change, label: &mut Label, device: &mut dyn Blocks) -> Result<(), LabelError> {
        let bytes = |blocks: u64| blocks * u64::from(self.order.image.lba_size);
        match change {
            Change::Create { name, uuid, blocks, mode } => {
                let new =
                    NewSegment { name: name.clone(), uuid: *uuid, capacity: bytes(*blocks), durability: MODES[*mode] };
                label.create_segment(device, &new)
            }
            Change::Resize { name, blocks } => label.resize_segment(device, name, bytes(*blocks)),
            Change::Rename { name, to } => label.rename_segment(device, name, to),
            Change::Delete { name } => label.delete_segment(device, name),
        }
    }

    /// Serves the segments for a while.
    fn work(&mut self, segments: Vec<SegmentEntry>) -> Result<(), String> {
        let mut session = self.open(segments)?;
        let most = self.dice.between(1, MOST_IN_FLIGHT as u64) as usize;
        let until = self.done + self.dice.between(20, 150);
        while self.done < until {
            if session.flights.len() < most && self.dice.percent(60) {
                self.submit(&mut session)?;
            } else {
                session.turn()?;
            }
        }
        while !session.flights.is_empty() {
            session.turn()?;
        }
        say(&Record::Closing)?;
        let Session { engine, lane, .. } = session;
        match lane {
            Some(lane) => engine.close_with(lane),
            None => engine.close(),
        }
        .map_err(text)?;
        say(&Record::Closed)
    }

    fn open(&mut self, segments: Vec<SegmentEntry>) -> Result<Session, String> {
        let mode = self.dice.pick(&[LaneMode::Thread, LaneMode::CallerDriven]);
        let mut devices = Devices::new(mode, EngineConfig::default());
        devices.open(&self.order.image.writable(self.dice.word())).map_err(text)?;
        let layouts = segments.iter().map(|segment| self.layout(segment)).collect();
        let (engine, lane) = devices.start(layouts).map_err(text)?;
        if self.order.mistake == Some(Mistake::DeviceLies) {
            let faults = engine.device(0).and_then(|device| device.faults()).ok_or("the device is no model")?;
            faults.add(Rule {
                queue: CommandQueue::Io,
                opcode: Some(NvmOpcode::FLUSH.raw()),
                when: When::Next(u64::MAX),
                action: Action::Answer { dw0: 0 },
            });
        }
        let memory = engine.allocate_memory(MOST_IN_FLIGHT * SLOT).map_err(text)?;
        // Each Flush empties the cache of all; so some sessions leave segments that need many alone.
        let quiet = self.dice.percent(50);
        let used = |(_, segment): &(usize, &SegmentEntry)| !quiet || segment.durability != Durability::Flush;
        let mut used: Vec<usize> = segments.iter().enumerate().filter(used).map(|(place, _)| place).collect();
        if used.is_empty() {
            used = (0..segments.len()).collect();
        }
        let free = (0..MOST_IN_FLIGHT).collect();
        Ok(Session { engine, lane, memory, segments, used, flights: Vec::new(), free })
    }

    fn layout(&self, segment: &SegmentEntry) -> SegmentLayout {
        let mut left = segment.capacity;
        let mut layout = SegmentLayout::whole(&segment.name, 0, segment.capacity);
        layout.uuid = segment.uuid.into_bytes();
        layout.durability = match self.order.mistake {
            Some(Mistake::PromisesTooMuch) => Durability::None,
            _ => segment.durability,
        };
        layout.members[0].extents = segment
            .extents
            .iter()
            .filter_map(|extent| {
                // What an extent has behind the segment's end is nobody's.
                let blocks = extent.blocks().min(left);
                left -= blocks;
                BlockExtent::new(extent.slba(), blocks)
            })
            .collect();
        layout
    }

    /// Submits a task of a kind and a place that chance draws.
    fn submit(&mut self, session: &mut Session) -> Result<(), String> {
        let place = self.dice.pick(&session.used);
        let segment = &session.segments[place];
        let work = match self.dice.weighed(&[70, 15, 7, 3]) {
            0 => Work::Write,
            1 => Work::Zeroes,
            2 => Work::Deallocate,
            _ => Work::Flush,
        };
        let lba_size = u64::from(self.order.image.lba_size);
        let most = (SLOT as u64 / lba_size).min(segment.capacity);
        let length = if self.dice.percent(60) { self.dice.between(1, most.min(3)) } else { self.dice.between(1, most) };
        let first = self.dice.below(segment.capacity - length + 1);
        let blocks = if work == Work::Flush { 0..0 } else { first..first + length };
        let number = u32::try_from(u64::from(self.order.number) + self.done).map_err(text)?;
        self.done += 1;
        let (first, count) = (blocks.start, blocks.end - blocks.start);
        say(&Record::Begin(Begin { number, segment: segment.uuid, work, first, blocks: count }))?;
        session.submit(place, work, number, blocks, lba_size)
    }
}

impl Session {
    fn submit(
        &mut self,
        segment: usize,
        work: Work,
        number: u32,
        blocks: Range<u64>,
        lba_size: u64,
    ) -> Result<(), String> {
        let slot = self.free.pop().ok_or("no memory is free")?;
        let (target_offset, length) = (blocks.start * lba_size, (blocks.end - blocks.start) * lba_size);
        if work == Work::Write {
            let words = |block| (0..lba_size as usize / 8).map(move |place| word(number, block, place));
            let bytes: Vec<u8> = blocks.flat_map(words).flat_map(u64::to_le_bytes).collect();
            self.memory.view().write(slot * SLOT, &bytes);
        }
        let target_id = self.engine.segments()[segment].id;
        let batch = self.engine.allocate_batch(1).map_err(text)?;
        match work {
            Work::Write => {
                let source = self.memory.address() + (slot * SLOT) as u64;
                let request = Request { opcode: OpCode::Write, source, target_id, target_offset, length };
                self.engine.submit(&batch, &[request])
            }
            Work::Zeroes => self.engine.submit_zeroes(&batch, target_id, target_offset, length),
            Work::Deallocate => self.engine.submit_deallocate(&batch, target_id, target_offset, length),
            Work::Flush => self.engine.submit_flush(&batch, target_id),
        }
        .map_err(text)?;
        self.flights.push(Flight { batch, number, slot });
        Ok(())
    }

    /// Lets tasks go on, and says which have ended.
    fn turn(&mut self) -> Result<(), String> {
        match &mut self.lane {
            Some(lane) => {
                lane.turn();
                lane.pause();
            }
            None => thread::yield_now(),
        }
        let mut place = 0;
        while let Some(flight) = self.flights.get(place) {
            let state = flight.batch.status(0).map_err(text)?.state;
            if !state.is_terminal() {
                place += 1;
                continue;
            }
            if state != TransferState::Completed {
                let refusal = flight.batch.refusal(0).map_err(text)?;
                return Err(format!("task {} ended as {state}: {refusal:?}", flight.number));
            }
            say(&Record::End { number: flight.number })?;
            self.free.push(flight.slot);
            self.flights.remove(place);
        }
        Ok(())
    }
}
