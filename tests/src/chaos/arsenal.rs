//! Which fault is armed next, and with what numbers.
//!
//! Kinds that have happened least are armed most, so that a long run meets each of them often. Faults that show only
//! when the owner does something (a list that never ends, a reset that fails) name what would provoke them.

use tentpeg_driver::model::faults::{
    Action, At, CommandQueue, EndlessList, FaultCounters, Faults, Kind, Life, Rule, StrangeCid, When,
};
use tentpeg_driver::spec::command::AdminOpcode;
use tentpeg_driver::spec::status::{Status, StatusCode};

use super::counters::KINDS;
use super::dice::Dice;

/// What the owner can do so that a fault shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provocation {
    /// Nothing in particular.
    Nothing,
    /// List the namespaces.
    List,
    /// Ask for a log page.
    Log,
    /// Reset the controller without cause.
    Reset,
}

/// Kinds that make success of a read or write a lie. They are armed for one command at a time, with none beside it.
pub(super) const LIES: [Kind; 3] = [Kind::Torn, Kind::Misplaced, Kind::Answer];

/// Codes that a command may fail with.
const CODES: [StatusCode; 9] = [
    StatusCode::NAMESPACE_NOT_READY,
    StatusCode::INTERNAL_ERROR,
    StatusCode::COMMAND_INTERRUPTED,
    StatusCode::DATA_TRANSFER_ERROR,
    StatusCode::WRITE_FAULT,
    StatusCode::UNRECOVERED_READ_ERROR,
    StatusCode::INVALID_FIELD_IN_COMMAND,
    StatusCode::COMMAND_ABORT_REQUESTED,
    StatusCode::INTERNAL_PATH_ERROR,
];

/// Arms faults on a model.
pub(super) struct Arsenal {
    /// How often each kind happened on former models.
    before: [u64; KINDS],
    /// Whether a controller without Function Level Reset is at hand: then late DMA after RDY = 0 cannot be ended by
    /// the driver, and is not asked for.
    pub(super) has_reset: bool,
}

impl Arsenal {
    pub(super) fn new(before: [u64; KINDS], has_reset: bool) -> Self {
        Self { before, has_reset }
    }

    /// One of two kinds drawn: that which has happened less.
    pub(super) fn draw(&self, dice: &mut Dice, now: &FaultCounters) -> Kind {
        let (one, other) = (dice.pick(&Kind::ALL), dice.pick(&Kind::ALL));
        let happened = |kind: Kind| self.before[kind as usize] + now.get(kind);
        let kind = if happened(other) < happened(one) { other } else { one };
        match kind {
            Kind::Torn | Kind::Misplaced => Kind::Status,
            Kind::EarlyUnready if !self.has_reset => Kind::Fatal,
            _ => kind,
        }
    }

    /// The kind of lie that has been told least, or now and then another.
    pub(super) fn lie(&self, dice: &mut Dice, now: &FaultCounters) -> Kind {
        let first = dice.pick(&LIES);
        if dice.percent(40) {
            return first;
        }
        LIES.into_iter().min_by_key(|kind| self.before[*kind as usize] + now.get(*kind)).unwrap_or(first)
    }

    /// Arms a fault of that kind.
    pub(super) fn arm(&self, dice: &mut Dice, faults: &Faults, kind: Kind) -> Provocation {
        match life(dice, kind) {
            Some((life, provocation)) => {
                faults.arm(at(dice, kind), life);
                provocation
            }
            None => {
                let (rule, provocation) = rule(dice, kind);
                faults.add(rule);
                provocation
            }
        }
    }

    /// Arms several faults that meet at one stop of the controller, so that its mildest ways do not work.
    pub(super) fn arm_against_stop(&self, dice: &mut Dice, faults: &Faults) {
        let stuck = dice.pick(&[Life::NeverUnready, Life::FatalAtDisable]);
        faults.arm(At::Now, stuck);
        match dice.below(5) {
            0 => {}
            1 => faults.arm(At::Now, Life::ResetLost),
            2 | 3 => faults.arm(At::Now, Life::ResetFails),
            _ => {
                faults.arm(At::Now, Life::ResetFails);
                faults.arm(At::Now, Life::LostRead);
            }
        }
    }
}

/// When a fault of the controller happens.
fn at(dice: &mut Dice, kind: Kind) -> At {
    match kind {
        // These wait for their step by themselves.
        Kind::ResetFails | Kind::ResetLost | Kind::LostRead if dice.percent(50) => At::Now,
        Kind::FatalAtDisable | Kind::NeverUnready | Kind::EarlyUnready if dice.percent(50) => At::Now,
        _ => match dice.below(4) {
            0 => At::Now,
            1 => At::Turn(dice.between(1, 40)),
            2 => At::Access(dice.between(1, 60)),
            _ => At::Command(dice.between(1, 30)),
        },
    }
}

fn life(dice: &mut Dice, kind: Kind) -> Option<(Life, Provocation)> {
    let dma_turns = dice.below(60) as u32;
    // A drive that was pulled and goes on is noticed sooner or later; sooner, there is more left for it to do.
    let soon = dice.pick(&[Provocation::Nothing, Provocation::Reset]);
    Some(match kind {
        Kind::Fatal => (Life::Fatal, Provocation::Nothing),
        Kind::SelfReset => (Life::SelfReset, Provocation::Nothing),
        Kind::AllOnes => (Life::AllOnes { dma_turns }, soon),
        Kind::AllZeroes => (Life::AllZeroes { dma_turns }, soon),
        Kind::DeadAdmin => (Life::DeadAdmin, Provocation::Log),
        Kind::FatalAtEnable => (Life::FatalAtEnable, Provocation::Reset),
        Kind::NeverReady => (Life::NeverReady, Provocation::Reset),
        Kind::FatalAtDisable => (Life::FatalAtDisable, Provocation::Reset),
        Kind::NeverUnready => (Life::NeverUnready, Provocation::Reset),
        Kind::EarlyUnready => (Life::EarlyUnready { dma_turns }, Provocation::Reset),
        Kind::ResetFails => (Life::ResetFails, Provocation::Reset),
        Kind::ResetLost => (Life::ResetLost, Provocation::Reset),
        Kind::LostRead => (Life::LostRead, Provocation::Reset),
        _ => return None,
    })
}

/// A rule of a kind that is no lie.
fn rule(dice: &mut Dice, kind: Kind) -> (Rule, Provocation) {
    let when = match dice.below(3) {
        0 => When::Nth(dice.between(1, 12)),
        1 => When::Next(dice.between(1, 2)),
        _ => When::Chance { per_million: 150_000, times: dice.between(1, 3) },
    };
    let queue = if dice.percent(15) { CommandQueue::Admin } else { CommandQueue::Io };
    let provocation = if queue == CommandQueue::Admin { Provocation::Log } else { Provocation::Nothing };
    let any = |queue, action| (Rule { queue, opcode: None, when, action }, provocation);
    match kind {
        Kind::Answer => {
            // Abort that says "not aborted", and a number of queues out of nothing. Others would have the driver use
            // queues that are not there.
            let (opcode, dw0) = dice.pick(&[
                (AdminOpcode::ABORT, 1),
                (AdminOpcode::SET_FEATURES, 0),
                (AdminOpcode::SET_FEATURES, u32::MAX),
                (AdminOpcode::GET_LOG_PAGE, 0),
                (AdminOpcode::IDENTIFY, 0),
            ]);
            let rule =
                Rule { queue: CommandQueue::Admin, opcode: Some(opcode.raw()), when, action: Action::Answer { dw0 } };
            (rule, if opcode == AdminOpcode::SET_FEATURES { Provocation::Reset } else { Provocation::Log })
        }
        Kind::Delay => any(queue, Action::Delay { turns: dice.between(0, 400) as u32 }),
        Kind::Drop => any(queue, Action::Drop { execute: dice.percent(50) }),
        Kind::Duplicate => any(queue, Action::Duplicate { turns: dice.below(20) as u32 }),
        Kind::UnknownCid | Kind::OutOfRangeCid => {
            let cid = if kind == Kind::UnknownCid { StrangeCid::Unknown } else { StrangeCid::OutOfRange };
            any(queue, Action::StrangeCid { cid, instead: dice.percent(30) })
        }
        Kind::BadSqhd => any(queue, Action::BadSqhd),
        Kind::StalePhase => {
            let turns = if dice.percent(30) { None } else { Some(dice.between(1, 40) as u32) };
            any(queue, Action::StalePhase { turns })
        }
        Kind::IommuFault => any(CommandQueue::Io, Action::IommuFault),
        Kind::EndlessList => {
            let list = dice.pick(&[EndlessList::Cycle, EndlessList::Ascending]);
            (any(CommandQueue::Admin, Action::EndlessList(list)).0, Provocation::List)
        }
        Kind::Garbage => {
            let provocation = dice.pick(&[Provocation::List, Provocation::Log, Provocation::Reset]);
            (any(CommandQueue::Admin, Action::Garbage).0, provocation)
        }
        _ => any(queue, Action::Status { status: status(dice), execute: dice.percent(50) }),
    }
}

/// A lie of that kind to the next read, or write.
pub(super) fn lie(dice: &mut Dice, kind: Kind, opcode: u8, most_blocks: u64) -> Rule {
    let action = match kind {
        Kind::Torn => Action::Torn,
        Kind::Misplaced => Action::Misplaced { blocks: dice.between(1, most_blocks) },
        _ => Action::Answer { dw0: dice.word() as u32 },
    };
    Rule { queue: CommandQueue::Io, opcode: Some(opcode), when: When::Next(1), action }
}

/// Any status but success.
fn status(dice: &mut Dice) -> Status {
    let status = if dice.percent(70) {
        dice.pick(&CODES).status().with_dnr(dice.percent(30))
    } else {
        Status::from_bits(dice.word() as u16)
    };
    if status.is_success() { StatusCode::INTERNAL_ERROR.status() } else { status }
}
