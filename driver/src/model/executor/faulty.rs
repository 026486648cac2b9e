//! A turn with faults in it (see `faults`): what becomes of a command that one befalls.
//!
//! Kept apart from the turn without, which pays for none of this.

use super::super::faults::delayed::Rest;
use super::super::faults::{Action, At, CommandQueue, EndlessList, Life};
use super::super::iommu::{Reach, write_padded};
use super::super::violation::Target;
use super::{Core, Executor, Fatal, QUEUE_BUDGET, TURN_BUDGET, fatal, has_room, run_io};
use crate::dma::Access;
use crate::spec::command::{AdminOpcode, Sqe};
use crate::spec::identify::{ActiveNamespaceList, IDENTIFY_LENGTH};
use crate::spec::status::{Status, StatusCode};

/// NSIDs in a page of a namespace list.
const LIST_ENTRIES: u32 = (IDENTIFY_LENGTH / size_of::<u32>()) as u32;

/// How a command's completion is spoilt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spoilt {
    Not,
    Sqhd,
    /// Hidden, and shown after so many turns.
    Phase(Option<u32>),
}

impl Executor {
    /// One turn. Whether there was anything to do.
    #[cold]
    pub(super) fn faulty_turn(&mut self) -> bool {
        let core = &mut self.core;
        let mut worked = !core.board.step_faults(At::Turn(1)).is_empty();
        worked |= core.late_turn(&self.table);
        // What has just struck is settled by the next turn, before anything else.
        if core.board.wants_attention() || !core.running {
            return worked;
        }
        if !core.look() && core.delayed.is_empty() {
            return worked;
        }
        let reach = self.table.reach_with(self.window.as_deref());
        if !core.board.may_access(core.epoch) {
            return worked;
        }
        match core.serve_faulty(&reach) {
            Ok(more) => more || worked,
            Err(Fatal) => {
                core.running = false;
                core.board.lock_registers().fail();
                true
            }
        }
    }
}

impl Core {
    /// Tells those who look whether there is anything that the turn without faults would not see.
    pub(super) fn note_kept(&self) {
        self.board.faults.set_kept(!self.delayed.is_empty() || self.late.is_some());
    }

    fn serve_faulty(&mut self, reach: &Reach<'_>) -> Result<bool, Fatal> {
        let mut worked = !self.delayed.is_empty();
        self.finish_delayed(reach)?;
        worked |= self.serve_admin(reach)?;
        let (first, count) = (self.queues.begin_turn(), self.queues.active_count());
        let mut budget = TURN_BUDGET;
        for place in first..first + count {
            let done = self.serve_io_faulty(reach, self.queues.active(place), budget.min(QUEUE_BUDGET))?;
            worked |= done > 0;
            budget -= done;
            if self.board.wants_attention() {
                break;
            }
        }
        self.note_kept();
        Ok(worked)
    }

    /// Ends what is due of that which was put off.
    fn finish_delayed(&mut self, reach: &Reach<'_>) -> Result<(), Fatal> {
        self.delayed.age();
        loop {
            let Self { board, queues, admin, delayed, epoch, .. } = self;
            let due = delayed.take_due(|sqid| match queues.pair(sqid) {
                Some((_, cq)) => has_room(board, admin, cq, *epoch),
                // Its queue is gone: it ends unseen.
                None => true,
            });
            let Some((sqid, rest)) = due else { break };
            if self.queues.submission(sqid).is_none() {
                continue;
            }
            match rest {
                Rest::Execute(sqe) => {
                    if let Some((dw0, status)) = self.run(reach, sqid, &sqe) {
                        self.complete(reach, sqid, sqe.cid, (dw0, status), Spoilt::Not)?;
                    }
                }
                Rest::Complete { cid, dw0, status } => {
                    self.complete(reach, sqid, cid, (dw0, status), Spoilt::Not)?;
                    if status.code() == StatusCode::COMMAND_ABORT_REQUESTED {
                        self.admin.aborted(sqid, cid);
                    }
                }
                Rest::Show { cqid, address, dwords } => {
                    reach
                        .publish(address, dwords, &mut Default::default())
                        .map_err(|fault| fatal(&self.board, Target::CompletionQueue { qid: cqid }, fault))?;
                }
            }
        }
        self.note_kept();
        Ok(())
    }

    /// As `serve_io`, with faults.
    fn serve_io_faulty(&mut self, reach: &Reach<'_>, qid: u16, budget: usize) -> Result<usize, Fatal> {
        let mut done = 0;
        while done < budget {
            let Self { board, queues, admin, epoch, .. } = self;
            let Some((sq, cq)) = queues.pair(qid) else { break };
            if sq.is_empty() || !has_room(board, admin, cq, *epoch) {
                break;
            }
            let mut sqe = Sqe::ZERO;
            sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid }, fault))?;
            board.counters.io_sqes.add(1);
            done += 1;
            if sq.has_condemned() && sq.take_condemned(sqe.cid) {
                self.complete_aborted(reach, qid, &sqe)?;
                continue;
            }
            if board.step_faults(At::Command(1)).iter().any(Life::stops_execution) {
                break;
            }
            match board.faults.befalls(CommandQueue::Io, &sqe) {
                Some(action) => self.act(reach, qid, &sqe, action)?,
                None => {
                    if let Some(outcome) = self.run(reach, qid, &sqe) {
                        self.complete(reach, qid, sqe.cid, outcome, Spoilt::Not)?;
                    }
                }
            }
        }
        Ok(done)
    }

    /// Does to a command what a fault asks for. There is room for one completion.
    #[cold]
    pub(super) fn act(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe, action: Action) -> Result<(), Fatal> {
        self.board.faults.count(action.kind());
        let cid = sqe.cid;
        match action {
            Action::Status { status, execute } => {
                if execute {
                    self.run(reach, sqid, sqe);
                }
                self.fail_with(reach, sqid, sqe, status)?;
            }
            Action::Answer { dw0 } => self.complete(reach, sqid, cid, (dw0, Status::SUCCESS), Spoilt::Not)?,
            Action::Delay { turns } => self.delayed.keep(sqid, turns, Rest::Execute(*sqe)),
            Action::Drop { execute } => {
                if execute {
                    self.run(reach, sqid, sqe);
                }
            }
            Action::Duplicate { turns } => {
                if let Some((dw0, status)) = self.run(reach, sqid, sqe) {
                    self.complete(reach, sqid, cid, (dw0, status), Spoilt::Not)?;
                    self.delayed.keep(sqid, turns, Rest::Complete { cid, dw0, status });
                }
            }
            Action::StrangeCid { cid: strange, instead } => {
                if let Some((dw0, status)) = self.run(reach, sqid, sqe) {
                    self.complete(reach, sqid, strange.of(cid), (dw0, status), Spoilt::Not)?;
                    if !instead {
                        self.delayed.keep(sqid, 0, Rest::Complete { cid, dw0, status });
                    }
                }
            }
            Action::BadSqhd => {
                if let Some(outcome) = self.run(reach, sqid, sqe) {
                    self.complete(reach, sqid, cid, outcome, Spoilt::Sqhd)?;
                }
            }
            Action::StalePhase { turns } => {
                if let Some(outcome) = self.run(reach, sqid, sqe) {
                    self.complete(reach, sqid, cid, outcome, Spoilt::Phase(turns))?;
                }
            }
            Action::Torn => {
                let outcome = self.run_torn(reach, sqid, sqe);
                self.complete(reach, sqid, cid, outcome, Spoilt::Not)?;
            }
            Action::Misplaced { blocks } => {
                let slba = sqe.slba();
                let slba = slba.checked_sub(blocks).unwrap_or(slba.wrapping_add(blocks));
                if let Some(outcome) = self.run(reach, sqid, &sqe.with_slba(slba)) {
                    self.complete(reach, sqid, cid, outcome, Spoilt::Not)?;
                }
            }
            Action::IommuFault => {
                self.run_torn(reach, sqid, sqe);
                self.board.counters.faults.add(1);
                self.fail_with(reach, sqid, sqe, StatusCode::DATA_TRANSFER_ERROR.status())?;
            }
            Action::EndlessList(list) => {
                let after = match list {
                    EndlessList::Cycle => 0,
                    // Beyond the last NSID there is one that begins anew, which is against all rules, too.
                    EndlessList::Ascending => sqe.nsid,
                };
                let nsids = (1..=LIST_ENTRIES).map(|step| after.wrapping_add(step).max(1));
                let page = ActiveNamespaceList::from_nsids(nsids);
                self.answer_with(reach, sqe, zerocopy::IntoBytes::as_bytes(&page))?;
            }
            Action::Garbage => {
                let len = match sqe.admin_opcode() {
                    AdminOpcode::GET_LOG_PAGE => sqe.numd().count() * 4,
                    _ => IDENTIFY_LENGTH as u64,
                };
                match usize::try_from(len).ok().filter(|len| *len <= GARBAGE_LIMIT) {
                    Some(len) => self.answer_with(reach, sqe, &self.board.faults.garbage(len))?,
                    None => self.fail_with(reach, 0, sqe, StatusCode::INVALID_FIELD_IN_COMMAND.status())?,
                }
            }
        }
        self.note_kept();
        Ok(())
    }

    /// Executes a command as if no fault were. None: it completes later.
    fn run(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe) -> Option<(u32, Status)> {
        if sqid != 0 {
            return Some((0, self.run_io_apart(reach, sqid, sqe)));
        }
        let outcome = self.run_admin(reach, sqe)?;
        Some(outcome.map_or_else(|status| (0, status), |dw0| (dw0, Status::SUCCESS)))
    }

    /// Executes an I/O command, out of the way of those that no fault befalls.
    #[cold]
    #[inline(never)]
    pub(super) fn run_io_apart(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe) -> Status {
        let Self { board, namespaces, transfer, admin, .. } = self;
        run_io(reach, board, namespaces, transfer, admin, sqid, sqe)
    }

    /// Executes an I/O command with the first half of its data.
    fn run_torn(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe) -> (u32, Status) {
        self.transfer.set_torn(true);
        let status = self.run_io_apart(reach, sqid, sqe);
        self.transfer.set_torn(false);
        (0, status)
    }

    /// Completes a command that was fetched to be aborted, and the Abort that asked for it.
    #[cold]
    pub(super) fn complete_aborted(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe) -> Result<(), Fatal> {
        self.fail_with(reach, sqid, sqe, StatusCode::COMMAND_ABORT_REQUESTED.status())?;
        self.admin.aborted(sqid, sqe.cid);
        Ok(())
    }

    /// Completes a command with a status that it did not earn.
    fn fail_with(&mut self, reach: &Reach<'_>, sqid: u16, sqe: &Sqe, status: Status) -> Result<(), Fatal> {
        if !status.is_success() {
            self.admin.note_error(sqid, sqe, status);
            if sqid != 0 {
                self.board.counters.io_errors.add(1);
            }
        }
        self.complete(reach, sqid, sqe.cid, (0, status), Spoilt::Not)
    }

    /// Completes an admin command with `bytes` as its data.
    fn answer_with(&mut self, reach: &Reach<'_>, sqe: &Sqe, bytes: &[u8]) -> Result<(), Fatal> {
        let Self { board, transfer, .. } = self;
        let len = bytes.len() as u64;
        match transfer.resolve(reach, board, 0, sqe, len, Access::DEVICE_WRITES) {
            Ok(pieces) => {
                board.counters.admin_bytes.add(len);
                write_padded(pieces, bytes);
                self.complete(reach, 0, sqe.cid, (0, Status::SUCCESS), Spoilt::Not)
            }
            Err(status) => self.fail_with(reach, 0, sqe, status),
        }
    }

    /// Posts a completion, spoilt or not. A queue that its own command has deleted gets none.
    fn complete(
        &mut self,
        reach: &Reach<'_>,
        sqid: u16,
        cid: u16,
        (dw0, status): (u32, Status),
        spoilt: Spoilt,
    ) -> Result<(), Fatal> {
        let Self { board, queues, delayed, .. } = self;
        let Some((sq, cq)) = queues.pair(sqid) else { return Ok(()) };
        if sqid == 0 {
            board.counters.admin_cqes.add(1);
            board.counters.admin_errors.add(u64::from(!status.is_success()));
        } else {
            board.counters.io_cqes.add(1);
        }
        let sqhd = if spoilt == Spoilt::Sqhd { sq.bad_head(board.faults.random()) } else { sq.head() };
        let qid = cq.qid;
        let posted = match spoilt {
            Spoilt::Phase(turns) => cq.post_hidden(reach, dw0, (sqid, sqhd, cid), status).map(|(address, dwords)| {
                if let Some(turns) = turns {
                    delayed.keep(sqid, turns, Rest::Show { cqid: qid, address, dwords });
                }
            }),
            _ => cq.post(reach, dw0, (sqid, sqhd, cid), status),
        };
        posted.map_err(|fault| fatal(board, Target::CompletionQueue { qid }, fault))
    }
}

/// The longest log page that a fault fills.
const GARBAGE_LIMIT: usize = 16 << 20;
