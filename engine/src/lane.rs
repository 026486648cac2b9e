//! Lanes: who plans batches, submits their commands and reads the completions.
//!
//! Each device of an engine has a *port*: its queue pair, its inbox of batches, and what it has of each. A [`Lane`] is
//! one poller, used by one thread, with one port or several: the lanes of an engine with threads have one each, so that
//! a device that stalls holds nobody up, unless fewer are asked for ([`LaneOptions`]); the one lane that a caller drives has
//! all of them. A lane with several turns them one after the other. A task that spans devices is planned by each port concerned, by its own share.

mod bell;
mod closing;
mod copies;
mod cpus;
mod durable;
mod ends;
mod issue;
mod lists;
mod options;
mod port;
mod recovery;
mod rounds;
mod shares;
mod sleep;
mod special;
mod thread;
mod visible;
mod withdrawal;

use std::ops::Range;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::batch::Shared;
use crate::statistics::Key;

pub(crate) use bell::{Alarm, Bell};
pub(crate) use closing::Closing;
pub use cpus::{CpuList, CpuListError};
pub(crate) use ends::{give_up_inbox, wait_for_inbox};
pub(crate) use options::deal;
pub use options::{LaneError, LaneIdle, LaneOptions, LanePin};
pub(crate) use port::{Port, PortParts};
pub(crate) use thread::LaneThread;
pub(crate) use withdrawal::{Inquiries, Withdrawal};

/// Commands that a batch may plan before the next one's turn comes.
const QUANTUM: usize = 32;
/// How often bytes are asked for again before their task fails.
const ATTEMPTS: u8 = 5;
/// Completions that one turn takes at the most, so that planning is never far.
const COMPLETIONS_A_TURN: usize = 64;

/// Batches on their way to a port. As large as the number of batches that can live, so that it cannot fill.
pub(crate) type Inbox = Arc<ArrayQueue<Arc<Shared>>>;

/// What a port must know of a command besides its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Flags(u8);

impl Flags {
    /// It is of one share of a spread task.
    const SPREAD: Self = Self(1);
    /// Once it has succeeded its blocks are in a volatile cache, and their segment is to know.
    const DIRTIES: Self = Self(2);
    /// Once it has succeeded it waits for a Flush.
    const WAITS: Self = Self(4);
    /// It has a staging buffer.
    const STAGED: Self = Self(8);
    /// It has a list of ranges.
    const LISTED: Self = Self(16);
    /// It is a Flush task's.
    const FLUSHES: Self = Self(32);
    /// It is a Flush of the port's own, for those that wait.
    const SERVES: Self = Self(64);

    #[inline]
    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Which tasks a command serves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommandTasks {
    /// Where in the first task the command begins, in bytes. Of a Flush the moment that it covers.
    planned: u64,
    /// The batch's place in the port.
    place: u32,
    first: u32,
    /// How many, at most [`MAX_EXTENTS`](crate::planning::MAX_EXTENTS).
    tasks: u16,
    /// Its staging buffer, or its list.
    resource: u16,
    /// Of a spread task, its share.
    share: u16,
    /// How often these bytes have been asked for before.
    attempts: u8,
    flags: Flags,
    /// When it was issued, and where it is counted.
    pub(crate) key: Key,
}

impl CommandTasks {
    pub(crate) fn indices(self) -> Range<u32> {
        self.first..self.first + u32::from(self.tasks)
    }

    /// The batch's place in the port.
    pub(crate) fn place(self) -> u32 {
        self.place
    }

    /// How many tasks it serves.
    pub(crate) fn tasks(self) -> u16 {
        self.tasks
    }

    /// How often its bytes have been asked for before.
    pub(crate) fn attempts(self) -> u8 {
        self.attempts
    }
}

/// One poller with its ports.
pub struct Lane {
    ports: Vec<Port>,
}

impl Lane {
    /// A lane that turns these ports.
    pub(crate) fn new(ports: Vec<Port>) -> Self {
        Self { ports }
    }

    /// One turn: of each device takes batches in, reads completions, plans, and rings the doorbells. Whether there was
    /// anything to do; after an empty turn the controllers had the processor. When the engine has closed, tasks end as
    /// FAILED.
    pub fn turn(&mut self) -> bool {
        let mut busy = false;
        for port in &mut self.ports {
            busy |= port.turn();
        }
        if !busy {
            self.pause();
        }
        busy
    }

    /// Gives the controllers the processor, as an empty turn does.
    pub fn pause(&self) {
        for port in &self.ports {
            port.pause();
        }
    }

    /// Whether nothing is planned, in flight or waiting.
    pub fn is_idle(&self) -> bool {
        self.ports.iter().all(Port::is_idle)
    }

    /// Its ports, to be closed one by one.
    pub(crate) fn into_ports(self) -> Vec<Port> {
        self.ports
    }
}

#[cfg(test)]
mod tests;
