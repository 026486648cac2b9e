//! A turn with a mover: commands are executed but for their copies, and completed when these are made.
//!
//! Kept apart from the turn without, which pays for none of this. Such a turn goes on as long as there are copies in
//! progress and commands to add to them, up to a limit, and ends with a wait for all of them: the table of what is mapped
//! is not let go before.

use std::mem;

use super::super::iommu::Reach;
use super::super::violation::Target;
use super::{Core, Executor, Fatal, fatal, has_room, run_io};
use crate::dma::MoverError;
use crate::spec::command::Sqe;
use crate::spec::status::{Status, StatusCode};

/// Commands of all I/O queues in a turn: many more than without a mover, as the end of a turn waits for its last copy, and
/// the link is idle from then until the driver has seen the completions. It bounds how long an unmap waits: milliseconds.
const TURN_BUDGET: usize = 1 << 15;
/// Commands after which their copies are begun, so that the next ones are looked at meanwhile.
const GROUP: usize = 32;

/// A command that was executed, but for its copies.
pub(super) struct Executed {
    sqid: u16,
    cqid: u16,
    sqhd: u16,
    sqe: Sqe,
    status: Status,
    /// The list that they are in.
    list: Option<u64>,
}

impl Executor {
    /// One turn, from the look at the doorbells on. Whether there was anything to do.
    #[cold]
    pub(super) fn moving_turn(&mut self) -> bool {
        let core = &mut self.core;
        if !core.running || !core.look() {
            return false;
        }
        let reach = self.table.reach_with(self.window.as_deref());
        if !core.board.may_access(core.epoch) {
            return false;
        }
        let served = core.serve_moving(&reach);
        // Whatever happened: no copy goes on without the table.
        let completed = core.complete_moved(&reach);
        match (served, completed) {
            (Ok(worked), Ok(())) => worked,
            _ => {
                core.running = false;
                core.board.lock_registers().fail();
                true
            }
        }
    }
}

impl Core {
    fn serve_moving(&mut self, reach: &Reach<'_>) -> Result<bool, Fatal> {
        let mut worked = self.serve_admin(reach)?;
        let mut budget = TURN_BUDGET;
        loop {
            let (first, count) = (self.queues.begin_turn(), self.queues.active_count());
            let fair = budget.div_ceil(count.max(1));
            for place in first..first + count {
                let done = self.execute_moving(reach, self.queues.active(place), budget.min(fair))?;
                worked |= done > 0;
                budget -= done;
            }
            self.begin_moves();
            self.post_made(reach)?;
            let over = self.executed.is_empty() || self.move_error.is_some();
            if over || budget == 0 || self.board.wants_attention() || !self.board.may_access(self.epoch) {
                return Ok(worked);
            }
            self.look();
        }
    }

    /// Begins the copies that were found so far, and looks at those in progress. An error is told when all is completed.
    fn begin_moves(&mut self) {
        let Self { transfer, move_error, .. } = self;
        if let (Some(moves), None) = (&mut transfer.moves, &move_error) {
            *move_error = moves.begin().and_then(|()| moves.look()).err();
        }
    }

    /// Executes up to `budget` commands of one I/O queue, but for their copies. How many there were.
    fn execute_moving(&mut self, reach: &Reach<'_>, qid: u16, budget: usize) -> Result<usize, Fatal> {
        let mut done = 0;
        while done < budget {
            let Self { board, namespaces, transfer, queues, admin, executed, epoch, .. } = self;
            let Some((sq, cq)) = queues.pair(qid) else { break };
            let cqid = cq.qid;
            if sq.is_empty() || !has_room(board, admin, cq, *epoch) {
                break;
            }
            // Several submission queues may complete to this one.
            let room = cq.room();
            if executed.len() >= room && executed.iter().filter(|executed| executed.cqid == cqid).count() >= room {
                break;
            }
            let mut sqe = Sqe::ZERO;
            sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid }, fault))?;
            board.counters.io_sqes.add(1);
            done += 1;
            if sq.has_condemned() && sq.take_condemned(sqe.cid) {
                self.complete_moved(reach)?;
                self.complete_aborted(reach, qid, &sqe)?;
                continue;
            }
            let sqhd = sq.head();
            let before = transfer.moves.as_ref().map_or(0, |moves| moves.waiting());
            let status = run_io(reach, board, namespaces, transfer, admin, qid, &sqe);
            let list = transfer.moves.as_ref().and_then(|moves| moves.list_of(before));
            executed.push_back(Executed { sqid: qid, cqid, sqhd, sqe, status, list });
            if done.is_multiple_of(GROUP) {
                self.begin_moves();
                self.post_made(reach)?;
            }
        }
        Ok(done)
    }

    /// Completes commands, in the order in which they were executed, up to the first whose copies are not made.
    fn post_made(&mut self, reach: &Reach<'_>) -> Result<(), Fatal> {
        while let Some(executed) = self.executed.front()
            && self.transfer.moves.as_ref().is_none_or(|moves| moves.is_made(executed.list))
        {
            let Some(executed) = self.executed.pop_front() else { break };
            self.post(reach, &executed, executed.status)?;
        }
        Ok(())
    }

    fn post(&mut self, reach: &Reach<'_>, executed: &Executed, status: Status) -> Result<(), Fatal> {
        let Executed { sqid, cqid, sqhd, sqe, .. } = executed;
        let Self { board, queues, .. } = self;
        // An admin command of this turn cannot have deleted the queue: those are executed first.
        let Some((_, cq)) = queues.pair(*sqid) else { return Ok(()) };
        board.counters.io_cqes.add(1);
        cq.post(reach, 0, (*sqid, *sqhd, sqe.cid), status)
            .map_err(|fault| fatal(board, Target::CompletionQueue { qid: *cqid }, fault))
    }

    /// Waits until all copies are made, and completes their commands.
    fn complete_moved(&mut self, reach: &Reach<'_>) -> Result<(), Fatal> {
        // What was begun before an error that is known already has ended with it.
        let error = self.move_error.take().or_else(|| self.finish_moves().err());
        let mut posted = Ok(());
        for executed in mem::take(&mut self.executed) {
            let made = self.transfer.moves.as_ref().is_none_or(|moves| moves.is_made(executed.list));
            let status = match &error {
                Some(error) if !made => self.not_moved(executed.sqid, &executed.sqe, executed.status, error),
                _ => executed.status,
            };
            posted = posted.and_then(|()| self.post(reach, &executed, status));
        }
        if let (Some(moves), Some(_)) = (&mut self.transfer.moves, error) {
            moves.forget();
        }
        posted
    }

    /// Makes the copies of one command at once: where a fault has it executed by itself. The status that it ends with.
    pub(super) fn move_now(&mut self, sqid: u16, sqe: &Sqe, status: Status) -> Status {
        let Err(error) = self.finish_moves() else { return status };
        if let Some(moves) = &mut self.transfer.moves {
            moves.forget();
        }
        self.not_moved(sqid, sqe, status, &error)
    }

    fn finish_moves(&mut self) -> Result<(), MoverError> {
        self.transfer.moves.as_mut().map_or(Ok(()), |moves| moves.finish())
    }

    /// The status of a command whose copies were not made, where it had no error of its own.
    #[cold]
    fn not_moved(&mut self, sqid: u16, sqe: &Sqe, status: Status, error: &MoverError) -> Status {
        if !status.is_success() {
            return status;
        }
        self.board.store_failed(&std::io::Error::other(error.to_string()));
        self.board.counters.io_errors.add(1);
        let status = StatusCode::DATA_TRANSFER_ERROR.status();
        self.admin.note_error(sqid, sqe, status);
        status
    }
}
