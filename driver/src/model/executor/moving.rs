//! A turn with a mover: commands of all queues are executed, their copies made together, their completions posted last.
//!
//! Such a turn ends with a wait for the copies, which costs as much for one command as for many: one queue may have all of
//! its budget.
//!
//! Kept apart from the turn without, which pays for none of this.

use super::super::iommu::Reach;
use super::super::transfer::Transfer;
use super::super::violation::Target;
use super::{Core, Executor, Fatal, TURN_BUDGET, fatal, has_room, run_io};
use crate::spec::command::Sqe;
use crate::spec::status::{Status, StatusCode};

/// Commands after which their copies are begun, so that the next ones are looked at meanwhile.
const GROUP: usize = 32;

/// A command that was executed, but for its copies.
pub(super) struct Executed {
    sqid: u16,
    cqid: u16,
    sqhd: u16,
    sqe: Sqe,
    status: Status,
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
        let (first, count) = (self.queues.begin_turn(), self.queues.active_count());
        let mut budget = TURN_BUDGET;
        for place in first..first + count {
            let done = self.execute_moving(reach, self.queues.active(place), budget)?;
            worked |= done > 0;
            budget -= done;
            self.begin_moves();
        }
        Ok(worked)
    }

    /// Begins the copies that were found so far. An error is told when all is completed.
    fn begin_moves(&mut self) {
        let Self { transfer, move_error, .. } = self;
        if let (Some(moves), None) = (&mut transfer.moves, &move_error) {
            *move_error = moves.begin().err();
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
            let status = run_io(reach, board, namespaces, transfer, admin, qid, &sqe);
            executed.push(Executed { sqid: qid, cqid, sqhd, sqe, status });
            if executed.len().is_multiple_of(GROUP) {
                self.begin_moves();
            }
        }
        Ok(done)
    }

    /// Waits until all copies are made, and completes their commands.
    fn complete_moved(&mut self, reach: &Reach<'_>) -> Result<(), Fatal> {
        let error = finish(&mut self.transfer).or(self.move_error.take());
        let mut executed = std::mem::take(&mut self.executed);
        let mut posted = Ok(());
        for Executed { sqid, cqid, sqhd, sqe, status } in executed.drain(..) {
            let Self { board, queues, admin, .. } = self;
            let status = match &error {
                Some(error) if status.is_success() => {
                    board.store_failed(&std::io::Error::other(error.to_string()));
                    board.counters.io_errors.add(1);
                    let status = StatusCode::DATA_TRANSFER_ERROR.status();
                    admin.note_error(sqid, &sqe, status);
                    status
                }
                _ => status,
            };
            // An admin command of this turn cannot have deleted the queue: those are executed first.
            if let (Some((_, cq)), Ok(())) = (queues.pair(sqid), &posted) {
                board.counters.io_cqes.add(1);
                posted = cq
                    .post(reach, 0, (sqid, sqhd, sqe.cid), status)
                    .map_err(|fault| fatal(board, Target::CompletionQueue { qid: cqid }, fault));
            }
        }
        self.executed = executed;
        posted
    }

    /// Makes the copies of one command at once: where a fault has it executed by itself. The status that it ends with.
    pub(super) fn move_now(&mut self, sqid: u16, sqe: &Sqe, status: Status) -> Status {
        match finish(&mut self.transfer) {
            Some(error) if status.is_success() => {
                self.board.store_failed(&std::io::Error::other(error.to_string()));
                self.board.counters.io_errors.add(1);
                let status = StatusCode::DATA_TRANSFER_ERROR.status();
                self.admin.note_error(sqid, sqe, status);
                status
            }
            _ => status,
        }
    }
}

fn finish(transfer: &mut Transfer) -> Option<crate::dma::MoverError> {
    transfer.moves.as_mut().and_then(|moves| moves.finish().err())
}
