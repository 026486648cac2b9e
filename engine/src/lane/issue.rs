//! How planned commands of transfers are issued, and counted.

use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::status::StatusCode;

use super::ends::end_part;
use super::{CommandTasks, Flags};
use crate::OpCode;
use crate::batch::Shared;
use crate::clock::Clock;
use crate::counters::SharedCounters;
use crate::planning::{Ground, Step};
use crate::segment::Durability;
use crate::statistics::{Key, Path, Recorder};
use crate::task::Head;

/// Commands of transfers with one head that are issued in a row: they are counted together.
#[derive(Default)]
pub(super) struct Issued {
    pub(super) head: Head,
    pub(super) key: Key,
    pub(super) requests: u32,
    pub(super) commands: u32,
    pub(super) bytes: u64,
}

impl Issued {
    /// None yet, of transfers with this head.
    pub(super) fn begin(head: Head, recorder: &mut Recorder, clock: &Clock) -> Self {
        let path = if head.opcode() == OpCode::Write { Path::DirectWrite } else { Path::DirectRead };
        Self { head, key: recorder.key(clock, head.segment(), path), ..Self::default() }
    }

    /// There are no more of them.
    pub(super) fn end(&self, in_flight: &mut u32, counters: &SharedCounters, recorder: &Recorder) {
        if self.commands == 0 {
            return;
        }
        *in_flight += self.commands;
        let (commands, bytes) = (self.commands.into(), self.bytes);
        let opcode = if self.head.opcode() == OpCode::Write { NvmOpcode::WRITE } else { NvmOpcode::READ };
        counters.count(opcode, commands, bytes);
        recorder.issued(self.key, self.requests.into(), commands, bytes);
    }
}

/// Submits a planned command of transfers. Whether the queue took it; its tasks have ended otherwise.
// Always: a call with eight arguments costs 20 instructions a command.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "parts of the port that are borrowed one by one")]
pub(super) fn issue(
    pair: &mut QueuePair<CommandTasks>,
    batch: &Shared,
    place: u32,
    step: &Step,
    (planned, attempts): (u64, u8),
    key: Key,
    ground: &Ground,
    extents: &[Extent],
) -> bool {
    let mut token = CommandTasks {
        planned,
        place,
        first: step.first,
        tasks: step.tasks as u16,
        attempts,
        key,
        ..CommandTasks::default()
    };
    if step.head.opcode() == OpCode::Write && ground.volatile {
        token.flags = match step.head.durability() {
            Durability::None => Flags::DIRTIES,
            Durability::Fua => Flags::default(),
            Durability::Flush => Flags::WAITS,
        };
    }
    match pair.submit(step.sqe, extents, token) {
        Ok(_) => true,
        Err(error) => {
            // Admission and planning keep to `Limits`, so this is a mistake of ours; the tasks end all the same.
            debug_assert!(false, "a planned command was refused: {error}");
            for index in token.indices() {
                end_part(batch, ground.lane, index, StatusCode::INVALID_FIELD_IN_COMMAND.status().into());
            }
            false
        }
    }
}
