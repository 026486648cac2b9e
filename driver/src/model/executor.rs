//! The controller at work: one turn after the other.
//!
//! A turn first settles what register writes have begun, then looks at the doorbells, and only where there is work
//! takes the IOMMU's table for the rest of the turn. Commands are executed whole and in order, one queue after the
//! other; a completion queue that is full holds its submission queues up until the host has made room.

use std::sync::Arc;

use super::admin::{Admin, Reply};
use super::board::Board;
use super::config::{ModelConfig, ModelError};
use super::iommu::{Fault, Reach, Table};
use super::namespace::Namespace;
use super::queues::{CompletionQueue, Queues, SubmissionQueue};
use super::registers::{AdminQueues, Transition};
use super::transfer::Transfer;
use super::violation::{Target, Violation};
use crate::spec::command::Sqe;
use crate::spec::status::Status;

/// Commands of one queue in a turn.
const QUEUE_BUDGET: usize = 64;
/// Commands of all I/O queues in a turn, so that nobody who waits to unmap waits long.
const TURN_BUDGET: usize = 256;

/// Everything that a controller is besides its registers.
pub(super) struct Executor {
    table: Arc<Table>,
    core: Core,
}

/// What works on memory while the table is held.
struct Core {
    board: Arc<Board>,
    namespace: Namespace,
    transfer: Transfer,
    queues: Queues,
    admin: Admin,
    epoch: u32,
    /// Between RDY = 1 and the next reset, shutdown or fatal error.
    running: bool,
}

/// The controller met what it cannot go on with; it is recorded.
struct Fatal;

impl Executor {
    pub(super) fn new(config: &ModelConfig, board: Arc<Board>, table: Arc<Table>) -> Result<Self, ModelError> {
        let cap = board.lock_registers().cap();
        let max_transfer = match config.mdts {
            0 => u64::MAX,
            mdts => cap.min_page_size() << mdts,
        };
        let namespace = Namespace::new(config, max_transfer)?;
        let admin = Admin::new(config, &namespace, max_transfer);
        let core = Core {
            board,
            namespace,
            transfer: Transfer::default(),
            queues: Queues::new(config.queues),
            admin,
            epoch: 0,
            running: false,
        };
        Ok(Self { table, core })
    }

    /// One turn. Whether there was anything to do.
    pub(super) fn turn(&mut self) -> bool {
        let settled = self.core.board.wants_attention() && self.core.settle();
        if !self.core.running || !self.core.look() {
            return settled;
        }
        let reach = self.table.reach();
        if !self.core.board.may_access(self.core.epoch) {
            return settled;
        }
        self.core.serve(&reach) || settled
    }
}

impl Core {
    /// Goes one turn further with what register writes have begun.
    #[cold]
    fn settle(&mut self) -> bool {
        let board = Arc::clone(&self.board);
        // Held until all is done: who reads RDY = 0 or SHST = 10b must be able to rely on it.
        let mut registers = board.lock_registers();
        match registers.tick() {
            Some(Transition::Start(queues)) => self.start(queues),
            Some(Transition::Stop) => self.stop(),
            Some(Transition::ShutDown) => {
                self.running = false;
                if self.namespace.store.flush().is_err() {
                    registers.fail();
                }
            }
            None => {}
        }
        if !registers.unsettled() {
            board.clear_attention();
        }
        true
    }

    fn start(&mut self, admin: AdminQueues) {
        let doorbells = &self.board.doorbells;
        self.queues.add_completion(CompletionQueue::new(0, admin.acq, admin.acqs), doorbells);
        self.queues.add_submission(SubmissionQueue::new(0, 0, admin.asq, admin.asqs), doorbells);
        self.transfer.page_size = admin.page_size;
        self.epoch = doorbells.start();
        self.running = true;
    }

    fn stop(&mut self) {
        self.queues.clear(&self.board.doorbells);
        self.admin.reset(&mut self.namespace);
        self.running = false;
    }

    /// Looks at the tail doorbells. Whether there is anything to serve.
    #[inline]
    fn look(&mut self) -> bool {
        let mut found = self.admin.has_waiting();
        for place in 0..=self.queues.active_count() {
            let qid = if place == 0 { 0 } else { self.queues.active(place - 1) };
            if let Some((queue, _)) = self.queues.pair(qid) {
                match queue.update(&self.board.doorbells, self.epoch) {
                    Ok(more) => found |= more,
                    Err(violation) => {
                        self.board.violations.record(violation);
                        found = true;
                    }
                }
            }
        }
        found
    }

    #[inline]
    fn serve(&mut self, reach: &Reach<'_>) -> bool {
        self.serve_all(reach).unwrap_or_else(|Fatal| {
            self.running = false;
            self.board.lock_registers().fail();
            true
        })
    }

    #[inline]
    fn serve_all(&mut self, reach: &Reach<'_>) -> Result<bool, Fatal> {
        let mut worked = self.serve_admin(reach)?;
        let (first, count) = (self.queues.begin_turn(), self.queues.active_count());
        let mut budget = TURN_BUDGET;
        for place in first..first + count {
            let done = self.serve_io(reach, self.queues.active(place), budget.min(QUEUE_BUDGET))?;
            worked |= done > 0;
            budget -= done;
        }
        Ok(worked)
    }

    /// Executes up to `budget` commands of one I/O queue. How many there were.
    #[inline]
    fn serve_io(&mut self, reach: &Reach<'_>, qid: u16, budget: usize) -> Result<usize, Fatal> {
        let Self { board, namespace, transfer, queues, admin, epoch, .. } = self;
        let Some((sq, cq)) = queues.pair(qid) else { return Ok(0) };
        let (mut sqe, mut done) = (Sqe::ZERO, 0);
        while done < budget && !sq.is_empty() && has_room(board, cq, *epoch) {
            sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid }, fault))?;
            board.counters.io_sqes.add(1);
            let status = match namespace.execute(reach, board, transfer, qid, &sqe) {
                Ok(()) => Status::SUCCESS,
                Err(status) => {
                    board.counters.io_errors.add(1);
                    admin.note_error(qid, &sqe, status);
                    status
                }
            };
            board.counters.io_cqes.add(1);
            cq.post(reach, 0, (qid, sq.head(), sqe.cid), status)
                .map_err(|fault| fatal(board, Target::CompletionQueue { qid: cq.qid }, fault))?;
            done += 1;
        }
        Ok(done)
    }

    /// Executes up to a budget of admin commands. Whether there was one.
    fn serve_admin(&mut self, reach: &Reach<'_>) -> Result<bool, Fatal> {
        let mut worked = false;
        for _ in 0..QUEUE_BUDGET {
            let Self { board, queues, admin, epoch, .. } = self;
            let Some((sq, cq)) = queues.pair(0) else { break };
            if !has_room(board, cq, *epoch) {
                break;
            }
            // Aborted requests first: nothing new is fetched before they have been posted.
            let (cid, outcome) = if let Some((cid, status)) = admin.take_waiting() {
                (cid, Err(status))
            } else if sq.is_empty() {
                break;
            } else {
                let mut sqe = Sqe::ZERO;
                sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid: 0 }, fault))?;
                board.counters.admin_sqes.add(1);
                let reply = admin.execute(reach, board, &mut self.transfer, queues, &mut self.namespace, &sqe);
                worked = true;
                match reply {
                    Ok(Reply::Later) => continue,
                    Ok(Reply::Now(dw0)) => (sqe.cid, Ok(dw0)),
                    Err(status) => {
                        admin.note_error(0, &sqe, status);
                        (sqe.cid, Err(status))
                    }
                }
            };
            let (dw0, status) = match outcome {
                Ok(dw0) => (dw0, Status::SUCCESS),
                Err(status) => {
                    board.counters.admin_errors.add(1);
                    (0, status)
                }
            };
            board.counters.admin_cqes.add(1);
            if let Some((sq, cq)) = queues.pair(0) {
                cq.post(reach, dw0, (0, sq.head(), cid), status)
                    .map_err(|fault| fatal(board, Target::CompletionQueue { qid: 0 }, fault))?;
            }
            worked = true;
        }
        Ok(worked)
    }
}

/// Whether a completion can be posted; a head that cannot be is recorded.
#[inline]
fn has_room(board: &Board, queue: &mut CompletionQueue, epoch: u32) -> bool {
    queue.has_room(&board.doorbells, epoch).unwrap_or_else(|violation| {
        board.violations.record(violation);
        false
    })
}

#[cold]
fn fatal(board: &Board, target: Target, fault: Fault) -> Fatal {
    board.counters.faults.add(1);
    board.violations.record(Violation::dma(target, fault));
    Fatal
}
