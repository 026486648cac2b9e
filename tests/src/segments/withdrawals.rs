//! What is taken back while it is in flight: tasks that are canceled, batches that are freed, memory that is unregistered.

use tentpeg_engine::{OpCode, Request, TransferState};

use super::Mistake;
use super::areas::{AREAS, SLOTS};
use super::flight::{Flight, Kind, POISON};
use super::rig::Rig;

impl Rig {
    /// Now and then one of them.
    pub(super) fn withdraw_something(&mut self) -> Result<(), String> {
        match self.dice.below(240) {
            0 | 1 => self.cancel(),
            2 => self.free()?,
            3 => self.unregister()?,
            _ => {}
        }
        Ok(())
    }

    /// Which batch a task in flight is of.
    fn any_batch(&mut self) -> Option<u64> {
        let count = self.flights.len();
        (count > 0).then(|| self.flights[self.dice.index(count)].number)
    }

    /// A batch of which some have ended and others have not is canceled. Later tasks go into another.
    fn cancel(&mut self) {
        let Some(number) = self.any_batch() else { return };
        self.counters.cancels += 1;
        self.give_up(|flight| flight == number);
        if let Some(flight) = self.flights.iter().find(|flight| flight.number == number) {
            flight.batch.cancel();
        }
    }

    /// Tasks of such batches may be CANCELED from now on.
    fn give_up(&mut self, of: impl Fn(u64) -> bool) {
        self.flights.iter_mut().filter(|flight| of(flight.number)).for_each(|flight| flight.given_up = true);
        if self.batch.as_ref().is_some_and(|(number, _)| of(*number)) {
            self.batch = None;
        }
    }

    /// A batch is freed: when that returns each of its tasks has ended.
    fn free(&mut self) -> Result<(), String> {
        let Some(number) = self.any_batch() else { return Ok(()) };
        self.counters.frees += 1;
        self.give_up(|flight| flight == number);
        let batch = self.flights.iter().find(|flight| flight.number == number).map(|flight| flight.batch.clone());
        let (Some(batch), Some(lane)) = (batch, &mut self.lane) else { return Ok(()) };
        self.functions.iter().for_each(|function| function.begin_step());
        if self.mistake != Some(Mistake::FreesNothing) {
            batch.free_with(lane);
        }
        self.all_have_ended("free", |flight| flight.number == number)
    }

    /// Memory is unregistered: when that returns each task that names it has ended, and it rests.
    fn unregister(&mut self) -> Result<(), String> {
        let area = self.dice.index(AREAS);
        let until = self.turns + self.dice.between(1, 200);
        let of_area = |slot: usize| slot / SLOTS == area;
        let names_it = |flight: &Flight| of_area(flight.slot) && flight.kind.has_memory();
        if self.areas[area].rests.is_some() || !self.flights.iter().any(names_it) {
            return Ok(());
        }
        if self.mistake == Some(Mistake::KeepsMemoryInFlight) {
            let is_read = |kind: Kind| matches!(kind, Kind::Read | Kind::Unaligned { .. });
            self.flights.retain(|flight| !of_area(flight.slot) || !is_read(flight.kind));
            self.areas[area].rest(until);
            self.free_slots.retain(|slot| !of_area(*slot));
            return Ok(());
        }
        self.counters.unregistrations += 1;
        self.flights.iter_mut().filter(|flight| names_it(flight)).for_each(|flight| flight.given_up = true);
        self.functions.iter().for_each(|function| function.begin_step());
        let (Some(engine), Some(lane)) = (&self.engine, &mut self.lane) else { return Ok(()) };
        // Bytes are looked at before the memory is anybody else's.
        engine.unregister_memory_with(self.areas[area].memory(), lane);
        self.all_have_ended("unregistration", names_it)?;
        self.areas[area].rest(until);
        self.free_slots.retain(|slot| !of_area(*slot));
        self.ask_in_vain(area)
    }

    /// Every task of those that must have ended has, and in a way in which it may have.
    fn all_have_ended(&mut self, what: &str, of: impl Fn(&Flight) -> bool) -> Result<(), String> {
        let mut place = 0;
        while let Some(flight) = self.flights.get(place) {
            if !of(flight) {
                place += 1;
                continue;
            }
            let status = flight.batch.status(flight.task).map_err(|error| error.to_string())?;
            if !status.state.is_terminal() {
                return Err(format!("{:?} is {} after its {what}", flight.kind, status.state));
            }
            self.ended_at(place)?;
        }
        Ok(())
    }

    /// A request for memory that is not registered is INVALID.
    fn ask_in_vain(&mut self, area: usize) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        let request = Request {
            opcode: OpCode::Read,
            source: self.areas[area].address(),
            target_id: engine.segments()[0].id,
            target_offset: 0,
            length: engine.segments()[0].lba_size,
        };
        let batch = engine.allocate_batch(1).map_err(|error| error.to_string())?;
        engine.submit(&batch, &[request]).map_err(|error| error.to_string())?;
        let state = batch.status(0).map_err(|error| error.to_string())?.state;
        match state {
            TransferState::Invalid => Ok(()),
            state => Err(format!("a request for memory that is not registered is {state}")),
        }
    }

    /// Memory that has rested for long enough is registered again.
    pub(super) fn wake_areas(&mut self) -> Result<(), String> {
        let Some(engine) = &self.engine else { return Ok(()) };
        for (number, area) in self.areas.iter_mut().enumerate() {
            if area.wake(engine, &self.iommu, self.turns)? {
                let taken = |slot: &usize| self.flights.iter().any(|flight| flight.slot == *slot);
                self.free_slots.retain(|slot| slot / SLOTS != number);
                self.free_slots.extend((number * SLOTS..(number + 1) * SLOTS).filter(|slot| !taken(slot)));
            }
        }
        Ok(())
    }

    /// A task was given up before anything of it was done: its memory is as it was.
    pub(super) fn check_untouched(&mut self, place: usize) -> Result<(), String> {
        let flight = &self.flights[place];
        if !flight.given_up {
            return Err(format!("{:?} is CANCELED, and nobody gave it up", flight.kind));
        }
        self.counters.canceled += 1;
        if matches!(flight.kind, Kind::Read | Kind::Unaligned { .. }) {
            let mut found = vec![0; flight.bytes as usize];
            self.slot_view(flight.slot).read(flight.at as usize, &mut found);
            if found.iter().any(|byte| *byte != POISON) {
                return Err(format!("{:?} of {:?} is CANCELED and has brought bytes", flight.kind, flight.blocks));
            }
        }
        Ok(())
    }
}
