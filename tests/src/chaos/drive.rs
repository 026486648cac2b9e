//! One drive, its owner, and the steps that they take.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::Controller;
use tentpeg_driver::model::faults::{Faults, Kind};
use tentpeg_driver::model::{Drive as Driven, Model, SoftwareIommu};
use tentpeg_driver::queue::{ControllerLimits, Limits, QueuePair};
use tentpeg_driver::spec::registers::offset;

use super::Mistake;
use super::arsenal::{Arsenal, Provocation};
use super::blocks::{Blocks, Moment};
use super::commands::{Alone, Command, End};
use super::counters::{Counters, KINDS};
use super::dice::Dice;
use super::function::Watched;
use super::memory::{Memory, Parting};
use super::shape::Shape;

/// Events that are kept for whoever reads of a failure.
const KEPT_EVENTS: usize = 80;
/// Regions at the most, and as many as there are at first.
const MOST_REGIONS: usize = 5;
const FIRST_REGIONS: usize = 3;

/// What happened, in few words.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) enum Event {
    Submitted { token: u64, qid: u16, opcode: u8, slba: u64, nlb: u32 },
    Ended { token: u64, end: End },
    Armed(Kind),
    ArmedAgainstStop,
    Lie(Kind, u8),
    Recovered(&'static str),
    Removed(&'static str),
    PutBack,
    Enabled,
    NotEnabled,
    Created(u16),
    NotCreated,
    Deleted(u16),
    NotDeleted(u16),
    Registered(usize),
    Parted(u64),
    Admin(&'static str, bool),
    ShutDown(bool),
    Dropped,
}

/// A queue pair of the owner.
pub(super) struct Lane {
    pub(super) pair: QueuePair<u64>,
    /// The controller has both its queues, as far as is known.
    pub(super) usable: bool,
}

/// A drive of one shape and all that its owner knows of it.
pub(super) struct Drive {
    pub(super) shape: Shape,
    pub(super) dice: Dice,
    pub(super) counters: Counters,
    pub(super) arsenal: Arsenal,
    pub(super) mistake: Option<Mistake>,
    pub(super) controller: Option<Controller>,
    /// Of the controller and its namespace 1, as they were found before the first fault.
    pub(super) limits: Option<(ControllerLimits, Limits)>,
    pub(super) lanes: Vec<Lane>,
    pub(super) memory: Memory,
    pub(super) blocks: Blocks,
    /// Commands that have been submitted and have not ended, by token.
    pub(super) flying: BTreeMap<u64, Command>,
    pub(super) retries: VecDeque<Command>,
    /// How the command ended that was waited for alone.
    pub(super) alone: Option<Alone>,
    pub(super) tokens: u64,
    pub(super) now: Moment,
    /// Aborts that controllers of this drive were asked for before the present one.
    pub(super) former_aborts: u64,
    pub(super) error_statuses: u64,
    pub(super) faults: Faults,
    pub(super) function: Arc<Watched>,
    pub(super) model: Model,
    provocation: Provocation,
    events: VecDeque<(Moment, Event)>,
}

impl Drive {
    pub(super) fn new(
        shape: Shape,
        mut dice: Dice,
        faults_before: [u64; KINDS],
        mistake: Option<Mistake>,
    ) -> Result<Self, String> {
        let iommu = SoftwareIommu::new();
        let model = Model::new(shape.model.clone(), Driven::Stepped, &iommu).map_err(|error| error.to_string())?;
        let faults = model.faults();
        faults.seed(dice.word());
        let function = Arc::new(Watched::new(model.function()));
        if mistake == Some(Mistake::CutOffDoesNothing) {
            function.break_cut_off();
        }
        let mut drive = Self {
            memory: Memory::new(iommu.space(), shape.page),
            blocks: Blocks::new(shape.blocks(), shape.lba_size()),
            arsenal: Arsenal::new(faults_before, shape.model.flr),
            counters: Counters { drives: 1, ..Counters::default() },
            shape,
            dice,
            mistake,
            controller: None,
            limits: None,
            lanes: Vec::new(),
            flying: BTreeMap::new(),
            retries: VecDeque::new(),
            alone: None,
            tokens: 0,
            now: 0,
            former_aborts: 0,
            error_statuses: 0,
            faults,
            function,
            model,
            provocation: Provocation::Nothing,
            events: VecDeque::new(),
        };
        for _ in 0..FIRST_REGIONS {
            drive.register()?;
        }
        Ok(drive)
    }

    /// Has `operations` commands end, in chaos; then all that is in flight, in peace, and every block is read.
    pub(super) fn run(&mut self, operations: u64) -> Result<(), String> {
        self.enable()?;
        while self.counters.operations < operations {
            self.step()?;
            self.check()?;
        }
        self.come_to_rest()?;
        self.read_all()?;
        self.part_with_all()?;
        self.check()
    }

    /// What has been counted so far.
    pub(super) fn counts(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.add_faults(&self.faults.counters(), self.faults.late_dma());
        counters.blocks_settled = self.blocks.settled;
        counters.blocks_mixed = self.blocks.mixed;
        counters.pages_checked = self.memory.pages_checked();
        counters
    }

    pub(super) fn note(&mut self, event: Event) {
        self.now += 1;
        if self.events.len() == KEPT_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back((self.now, event));
        let mut hasher = DefaultHasher::new();
        event.hash(&mut hasher);
        self.counters.note(hasher.finish());
    }

    /// Lets virtual time pass.
    pub(super) fn pass(&mut self) {
        self.now += 1;
        self.function.begin_step();
        let microseconds = self.dice.between(50, 1500);
        self.function.pass(Duration::from_micros(microseconds));
    }

    pub(super) fn turns(&mut self, turns: u64) {
        for _ in 0..turns {
            self.model.turn();
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.pass();
        match std::mem::replace(&mut self.provocation, Provocation::Nothing) {
            Provocation::Nothing => {}
            Provocation::List => return self.list_namespaces(),
            Provocation::Log => return self.read_log(),
            Provocation::Reset => return self.reset_without_cause(),
        }
        const WEIGHTS: [u64; 12] = [420, 210, 210, 80, 36, 5, 12, 4, 4, 3, 6, 3];
        match self.dice.weighed(&WEIGHTS) {
            0 => self.submit_some(),
            1 => self.poll_some(),
            2 => {
                let turns = self.dice.between(1, 4);
                self.turns(turns);
                Ok(())
            }
            3 => self.attend(),
            4 => {
                self.arm();
                Ok(())
            }
            5 => self.change_lanes(),
            6 => self.change_regions(),
            7 => self.list_namespaces(),
            8 => self.reset_without_cause(),
            9 => self.begin_anew(),
            10 => self.tell_a_lie(),
            _ => {
                self.note(Event::ArmedAgainstStop);
                self.arsenal.arm_against_stop(&mut self.dice, &self.faults);
                self.reset_without_cause()
            }
        }
    }

    fn arm(&mut self) {
        let kind = self.arsenal.draw(&mut self.dice, &self.faults.counters());
        self.note(Event::Armed(kind));
        let provocation = self.arsenal.arm(&mut self.dice, &self.faults, kind);
        // Now and then the fault has to wait for what comes by itself.
        if self.dice.percent(70) {
            self.provocation = provocation;
        }
    }

    fn register(&mut self) -> Result<(), String> {
        self.memory.register(self.shape.region_pages)?;
        self.counters.regions_registered += 1;
        self.note(Event::Registered(self.shape.region_pages));
        Ok(())
    }

    /// Registers a region, or gives one up that no command names.
    fn change_regions(&mut self) -> Result<(), String> {
        let regions = self.memory.regions();
        let in_use = self.mistake == Some(Mistake::DropsRegionInFlight);
        if regions < 2 || regions < MOST_REGIONS && self.dice.percent(50) {
            return self.register();
        }
        let parting = self.dice.pick(&[Parting::Release, Parting::Drop]);
        if let Some(range) = self.memory.part(&mut self.dice, parting, in_use)? {
            self.counters.regions_parted += 1;
            self.note(Event::Parted(range.start().get()));
            if in_use {
                self.turns(8);
            }
        }
        Ok(())
    }

    /// What must hold after every step.
    fn check(&mut self) -> Result<(), String> {
        if let Some(violation) = self.model.violations().first() {
            return Err(format!("the driver did what it must not: {violation}"));
        }
        let late = self.faults.late_dma();
        if late.foreign > 0 {
            return Err(format!("late DMA met memory that was mapped for something else since: {late:?}"));
        }
        Ok(())
    }

    /// No more faults: all that is in flight ends.
    pub(super) fn come_to_rest(&mut self) -> Result<(), String> {
        self.faults.clear();
        self.provocation = Provocation::Nothing;
        self.rest()
    }

    /// All that is in flight ends, and a lane works.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        const MOST_STEPS: u32 = 4000;
        for _ in 0..MOST_STEPS {
            if self.flying.is_empty() && self.retries.is_empty() && self.lanes.iter().any(|lane| lane.usable) {
                return Ok(());
            }
            self.pass();
            self.retry_some()?;
            self.turns(4);
            self.poll_all()?;
            self.attend()?;
            if self.lanes.iter().all(|lane| !lane.usable) {
                self.change_lanes()?;
            }
        }
        Err(format!("{} commands have not ended after {MOST_STEPS} steps without faults", self.flying.len()))
    }

    /// Gives up lanes, controller and regions, in this order, and lets the drive go on for a while.
    fn part_with_all(&mut self) -> Result<(), String> {
        self.memory.check_all()?;
        self.drop_lanes();
        self.drop_controller();
        self.turns(20);
        self.memory.check_all()?;
        while self.memory.regions() > 0 {
            self.memory.part(&mut self.dice, Parting::Drop, false)?;
        }
        self.turns(20);
        if self.flying.is_empty() { Ok(()) } else { Err("commands are in flight without a queue".to_owned()) }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the drive: {:?}", self.shape)?;
        let (cc, csts) = (self.function.read_u32(offset::CC), self.function.read_u32(offset::CSTS));
        let (idle, used) = self.memory.counts();
        writeln!(
            f,
            "moment {}, {} ms: CC {cc:#010x}, CSTS {csts:#010x}, {} lanes, pages: {idle} idle, {used} in use",
            self.now,
            self.function.milliseconds(),
            self.lanes.len()
        )?;
        if let Some(controller) = &self.controller {
            writeln!(f, "recovery: {:?}", controller.recovery_counters())?;
        }
        writeln!(f, "faults: {:?}", self.faults.counters().iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>())?;
        for (token, command) in &self.flying {
            writeln!(f, "in flight: {token}: {command}")?;
        }
        self.events.iter().try_for_each(|(moment, event)| writeln!(f, "{moment:>8}  {event:?}"))
    }
}
