//! Lies: success, and data that is not what was asked for.
//!
//! A namespace without protection information has nothing by which a driver could tell. So each is told to a command
//! that is alone on the drive, and what must see it is the payload: a read that comes with another's words or without
//! words, a write whose blocks do not hold it afterwards.

use tentpeg_driver::model::faults::{Action, Kind, Rule};

use super::arsenal;
use super::blocks::word;
use super::commands::{Alone, Command, End, Operation};
use super::drive::{Drive, Event};

/// Steps that a command alone on a drive may take.
const MOST_STEPS: u32 = 1000;
/// How often a write is tried that puts things right.
const MOST_REPAIRS: u32 = 10;

impl Drive {
    pub(super) fn tell_a_lie(&mut self) -> Result<(), String> {
        self.come_to_rest()?;
        let max = self.max_blocks();
        let nlb = self.dice.between(1, max.min(4));
        let slba = self.dice.below(self.blocks.count() - nlb + 1);
        // What was there is then known, and is not zeroes.
        if !self.write_alone(slba, nlb)? {
            return Ok(());
        }
        let kind = self.arsenal.lie(&mut self.dice, &self.faults.counters());
        let operation = self.dice.pick(&[Operation::Read, Operation::Write]);
        let before = self.faults.counters().get(kind);
        let most = self.blocks.count();
        let lie = arsenal::lie(&mut self.dice, kind, operation.opcode().raw(), most);
        self.note(Event::Lie(kind, operation.opcode().raw()));
        self.faults.add(lie);

        let write = if operation == Operation::Write { self.blocks.number() } else { 0 };
        let told = self.run_alone(Command::new(operation, slba, nlb as u32, write))?;
        let refused = |end| matches!(end, End::Completed(status) if !status.is_success());
        if self.faults.counters().get(kind) != before + 1 {
            // A completion of before can keep a small queue from it for so long that it is aborted.
            if refused(told.end) {
                self.faults.clear();
                return Ok(());
            }
            return Err(format!("{} was armed for a command alone and did not befall it", kind.name()));
        }
        self.counters.lies += 1;
        let succeeded = |end| matches!(end, End::Completed(status) if status.is_success());
        // What tells is the read itself, or a read of what was written.
        let teller = match operation {
            Operation::Write if succeeded(told.end) => {
                self.run_alone(Command::new(Operation::Read, slba, nlb as u32, 0))?
            }
            _ => told,
        };
        let of_block = self.blocks.words();
        let right = |at: usize| word(write, slba + (at / of_block) as u64, at % of_block);
        let seen = match operation {
            Operation::Write => teller.words.iter().enumerate().any(|(at, found)| *found != right(at)),
            _ => teller.wrong.is_some(),
        };
        match teller.end {
            end if succeeded(end) && seen => self.counters.lies_seen += 1,
            end if refused(end) => self.counters.lies_refused += 1,
            end => {
                let kind = kind.name();
                return Err(format!("a lie was not seen: {kind} of {nlb} blocks from {slba}, {operation:?}, {end:?}"));
            }
        }
        if operation == Operation::Write {
            self.repair(slba, nlb, lie_distance(&lie, kind))?;
        }
        Ok(())
    }

    /// Writes anew what a lie may have spoilt.
    fn repair(&mut self, slba: u64, nlb: u64, distance: u64) -> Result<(), String> {
        let spoilt = slba.checked_sub(distance).unwrap_or(slba + distance);
        let mut places = vec![slba];
        // Where there are no such blocks the lie was refused.
        if spoilt != slba && spoilt + nlb <= self.blocks.count() {
            places.push(spoilt);
        }
        for place in places {
            let mut done = false;
            for _ in 0..MOST_REPAIRS {
                done = done || self.write_alone(place, nlb)?;
            }
            if !done {
                return Err("a write alone on a drive without faults does not succeed".to_owned());
            }
        }
        Ok(())
    }

    /// Reads every block, alone.
    pub(super) fn read_all(&mut self) -> Result<(), String> {
        let (count, max) = (self.blocks.count(), self.max_blocks());
        let mut slba = 0;
        while slba < count {
            let nlb = max.min(count - slba);
            let found = self.run_alone(Command::new(Operation::Read, slba, nlb as u32, 0))?;
            match found.end {
                End::Completed(status) if status.is_success() => slba += nlb,
                // What was done to the drive before may still show once.
                End::Interrupted => continue,
                end => return Err(format!("a read alone on the drive ended by {end:?}")),
            }
            if let Some(wrong) = found.wrong {
                return Err(format!("a wrong byte at the end: {wrong}"));
            }
        }
        Ok(())
    }

    /// Writes blocks, alone and truly. Whether it succeeded.
    fn write_alone(&mut self, slba: u64, nlb: u64) -> Result<bool, String> {
        let write = self.blocks.number();
        let done = self.run_alone(Command::new(Operation::Write, slba, nlb as u32, write))?;
        let succeeded = matches!(done.end, End::Completed(status) if status.is_success());
        if succeeded {
            self.write_is_done((slba, nlb as u32, write));
        }
        Ok(succeeded)
    }

    /// Runs one command with no other in flight, to its end.
    fn run_alone(&mut self, mut command: Command) -> Result<Alone, String> {
        self.rest()?;
        command.alone = true;
        let mut waiting = Some(command);
        self.alone = None;
        for _ in 0..MOST_STEPS {
            self.pass();
            if let Some(lane) = self.any_lane()
                && let Some(command) = waiting.take()
            {
                waiting = self.submit(lane, command)?;
                self.lanes[lane].pair.ring();
            }
            self.turns(4);
            self.poll_all()?;
            if self.alone.is_none() {
                self.attend()?;
            }
            if let Some(alone) = self.alone.take() {
                return Ok(alone);
            }
        }
        Err(format!("a command alone on the drive has not ended after {MOST_STEPS} steps"))
    }
}

/// How far a lie moves blocks.
fn lie_distance(rule: &Rule, kind: Kind) -> u64 {
    match (kind, rule.action) {
        (Kind::Misplaced, Action::Misplaced { blocks }) => blocks,
        _ => 0,
    }
}
