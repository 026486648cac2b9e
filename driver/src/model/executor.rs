//! The controller at work: one turn after the other.
//!
//! A turn first settles what register writes have begun, then looks at the doorbells, and only where there is work
//! takes the IOMMU's table for the rest of the turn. Commands are executed whole and in order, one queue after the
//! other; a completion queue that is full holds its submission queues up until the host has made room.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

mod faulty;
mod late;
mod moving;

use super::admin::{Admin, Reply, Surroundings};
use super::board::{Board, doorbell_event};
use super::config::{ModelConfig, ModelError};
use super::faults::CommandQueue;
use super::faults::delayed::Delayed;
use super::iommu::{Fault, Reach, Table, Window};
use super::mover::Moves;
use super::namespaces::Namespaces;
use super::queues::{CompletionQueue, Queues, SubmissionQueue};
use super::registers::{AdminQueues, Transition};
use super::subsystem::Role;
use super::transfer::Transfer;
use super::violation::{Target, Violation};
use crate::dma::{Mover, MoverError};
use crate::spec::command::{AdminOpcode, Sqe};
use crate::spec::status::Status;
use late::Late;
use moving::Executed;

/// Commands of one queue in a turn.
const QUEUE_BUDGET: usize = 64;
/// Commands of all I/O queues in a turn, so that nobody who waits to unmap waits long.
const TURN_BUDGET: usize = 256;

/// Everything that a controller is besides its registers.
pub(super) struct Executor {
    table: Arc<Table>,
    /// The controller's own memory, where it has some.
    window: Option<Arc<Window>>,
    core: Core,
}

/// What works on memory while the table is held.
struct Core {
    board: Arc<Board>,
    namespaces: Namespaces,
    transfer: Transfer,
    queues: Queues,
    admin: Admin,
    /// Commands and completions that a fault put off.
    delayed: Delayed,
    /// DMA that goes on after its end.
    late: Option<Box<Late>>,
    /// With a mover: commands whose copies are not made yet. Empty between turns.
    executed: VecDeque<Executed>,
    /// What a mover said that failed in this turn.
    move_error: Option<MoverError>,
    epoch: u32,
    /// Whether an operation is in progress that each turn takes further.
    busy: bool,
    /// Between RDY = 1 and the next reset, shutdown or fatal error.
    running: bool,
}

/// The controller met what it cannot go on with; it is recorded.
struct Fatal;

impl Executor {
    pub(super) fn new(
        config: &ModelConfig,
        role: Role,
        board: Arc<Board>,
        table: Arc<Table>,
        window: Option<Arc<Window>>,
    ) -> Result<Self, ModelError> {
        let max_transfer = config.max_transfer();
        let namespaces = match &board.subsystem {
            None => Namespaces::new(config, max_transfer)?,
            // Theirs are lent to it for each turn.
            Some(_) => Namespaces::none(config),
        };
        let admin = Admin::new(config, max_transfer, role);
        let core = Core {
            board,
            namespaces,
            transfer: Transfer::new(config.sgl),
            queues: Queues::new(config.queues),
            admin,
            delayed: Delayed::default(),
            late: None,
            executed: VecDeque::new(),
            move_error: None,
            epoch: 0,
            busy: false,
            running: false,
        };
        Ok(Self { table, window, core })
    }

    /// From now on `mover` makes the copies of plain reads and writes to and from memory of an accelerator.
    pub(super) fn set_mover(&mut self, mover: Box<dyn Mover>) -> Result<(), MoverError> {
        let stores = self.core.namespaces.set_moved();
        self.core.transfer.moves = Some(Box::new(Moves::new(mover, stores)?));
        Ok(())
    }

    /// One turn. Whether there was anything to do.
    pub(super) fn turn(&mut self) -> bool {
        let worked = if self.core.board.subsystem.is_some() { self.turn_among_others() } else { self.turn_alone() };
        let Core { queues, board, .. } = &mut self.core;
        if worked && queues.may_interrupt() {
            queues.interrupt(&board.vectors);
        }
        worked
    }

    /// A turn with the namespaces that controllers share.
    #[cold]
    fn turn_among_others(&mut self) -> bool {
        let board = Arc::clone(&self.core.board);
        let Some(subsystem) = &board.subsystem else { return false };
        let mut shared = subsystem.lock_namespaces();
        mem::swap(&mut *shared, &mut self.core.namespaces);
        self.core.admin.enter(&mut self.core.namespaces);
        let worked = self.turn_alone();
        mem::swap(&mut *shared, &mut self.core.namespaces);
        worked
    }

    #[inline]
    fn turn_alone(&mut self) -> bool {
        let settled = (self.core.busy || self.core.board.wants_attention()) && self.core.prepare(&self.table);
        if self.core.board.faults.concern_executor() {
            return self.faulty_turn() || settled;
        }
        if self.core.transfer.moves.is_some() {
            return self.moving_turn() || settled;
        }
        if !self.core.running || !self.core.look() {
            return settled;
        }
        let reach = self.table.reach_with(self.window.as_deref());
        if !self.core.board.may_access(self.core.epoch) {
            return settled;
        }
        self.core.serve(&reach) || settled
    }
}

impl Core {
    /// What a turn begins with when there is more to do than to look at the doorbells. Whether there was anything.
    #[cold]
    fn prepare(&mut self, table: &Table) -> bool {
        let settled = (self.admin.busy() || self.board.wants_attention()) && self.settle();
        self.look_at_shadows(table) || settled
    }

    /// Looks at the doorbells' shadows, where they have such. Whether there was news.
    fn look_at_shadows(&mut self, table: &Table) -> bool {
        let Self { board, queues, epoch, running, .. } = self;
        let Some(shadow) = queues.shadow.as_mut().filter(|_| *running) else { return false };
        let reach = table.reach();
        if !board.may_access(*epoch) {
            return false;
        }
        shadow.look(&reach, board, *epoch).unwrap_or_else(|fault| {
            board.counters.faults.add(1);
            board.violations.record(fault.violation());
            *running = false;
            board.lock_registers().fail();
            true
        })
    }

    /// Whether there is more to do in each turn than to look at the doorbells.
    fn is_busy(&self) -> bool {
        self.admin.busy() || self.queues.shadow.is_some()
    }

    /// Goes one turn further with what register writes, orders and long commands have begun.
    #[cold]
    fn settle(&mut self) -> bool {
        let board = Arc::clone(&self.board);
        // Held until all is done: who reads RDY = 0 or SHST = 10b must be able to rely on it.
        let mut registers = board.lock_registers();
        board.clear_attention();
        for cut in board.take_power_cuts() {
            cut.answer(self.namespaces.lose_power(cut.survivors));
        }
        match registers.tick() {
            Some(Transition::Start(queues)) => self.start(queues),
            Some(Transition::Stop) => self.stop(),
            Some(Transition::Linger(turns)) => self.linger(turns),
            Some(Transition::Fail) => self.running = false,
            Some(Transition::ShutDown) => {
                self.running = false;
                if self.namespaces.flush().is_err() {
                    registers.fail();
                }
            }
            None => {}
        }
        board.settle_faults(&mut registers);
        self.admin.tick(&board, &mut self.namespaces, &mut self.delayed, self.running);
        self.busy = self.is_busy();
        if registers.unsettled() {
            board.want_attention();
        }
        true
    }

    fn start(&mut self, admin: AdminQueues) {
        let doorbells = &self.board.doorbells;
        self.queues.add_completion(CompletionQueue::new(0, admin.acq, admin.acqs), doorbells);
        self.queues.add_submission(SubmissionQueue::new(0, 0, admin.asq, admin.asqs), doorbells);
        self.transfer.page_size = admin.page_size;
        self.admin.enter(&mut self.namespaces);
        self.epoch = doorbells.start();
        self.running = true;
    }

    fn stop(&mut self) {
        self.queues.clear(&self.board.doorbells);
        self.admin.reset(&mut self.namespaces);
        self.delayed.clear();
        self.board.faults.set_admin_dead(false);
        self.note_kept();
        self.running = false;
    }

    /// Looks at the tail doorbells. Whether there is anything to serve.
    #[inline]
    fn look(&mut self) -> bool {
        let mut found = self.admin.has_late();
        for place in 0..=self.queues.active_count() {
            let qid = if place == 0 { 0 } else { self.queues.active(place - 1) };
            if let Some((queue, _)) = self.queues.pair(qid) {
                match queue.update(&self.board.doorbells, self.epoch) {
                    Ok(more) => found |= more,
                    Err(violation) => {
                        blame(&self.board, &mut self.admin, violation);
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
        let Self { board, namespaces, transfer, queues, admin, epoch, .. } = self;
        let Some((sq, cq)) = queues.pair(qid) else { return Ok(0) };
        let (mut sqe, mut done) = (Sqe::ZERO, 0);
        let condemned = sq.has_condemned();
        while done < budget && !sq.is_empty() && has_room(board, admin, cq, *epoch) {
            sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid }, fault))?;
            board.counters.io_sqes.add(1);
            if condemned && sq.take_condemned(sqe.cid) {
                self.complete_aborted(reach, qid, &sqe)?;
                return Ok(done + 1);
            }
            let status = run_io(reach, board, namespaces, transfer, admin, qid, &sqe);
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
            if board.faults.admin_is_dead() {
                break;
            }
            let Some((sq, cq)) = queues.pair(0) else { break };
            if !has_room(board, admin, cq, *epoch) {
                break;
            }
            // What has waited first: nothing new is fetched before it has been posted.
            let (cid, outcome) = if let Some(late) = admin.take_late() {
                late
            } else if sq.is_empty() {
                break;
            } else {
                let mut sqe = Sqe::ZERO;
                sq.fetch(reach, &mut sqe).map_err(|fault| fatal(board, Target::SubmissionQueue { qid: 0 }, fault))?;
                board.counters.admin_sqes.add(1);
                worked = true;
                if sq.has_condemned() && sq.take_condemned(sqe.cid) {
                    self.complete_aborted(reach, 0, &sqe)?;
                    continue;
                }
                if let Some(action) = board.faults.befalls(CommandQueue::Admin, &sqe) {
                    self.act(reach, 0, &sqe, action)?;
                    continue;
                }
                match self.run_admin(reach, &sqe) {
                    None => continue,
                    Some(outcome) => (sqe.cid, outcome),
                }
            };
            let (dw0, status) = match outcome {
                Ok(dw0) => (dw0, Status::SUCCESS),
                Err(status) => {
                    self.board.counters.admin_errors.add(1);
                    (0, status)
                }
            };
            self.board.counters.admin_cqes.add(1);
            if let Some((sq, cq)) = self.queues.pair(0) {
                cq.post(reach, dw0, (0, sq.head(), cid), status)
                    .map_err(|fault| fatal(&self.board, Target::CompletionQueue { qid: 0 }, fault))?;
            }
            worked = true;
        }
        Ok(worked)
    }

    /// Executes an admin command; what failed is in the Error Information log. None: it completes later.
    fn run_admin(&mut self, reach: &Reach<'_>, sqe: &Sqe) -> Option<Result<u32, Status>> {
        let Self { board, namespaces, transfer, queues, admin, delayed, .. } = self;
        if sqe.admin_opcode() == AdminOpcode::DELETE_IO_SUBMISSION_QUEUE {
            // Whether that succeeds or there is no such queue: nothing of it is executed any more.
            delayed.forget(sqe.qid());
        }
        let reply = admin.execute(&mut Surroundings { reach, board, transfer, queues, namespaces, delayed }, sqe);
        self.busy = self.is_busy();
        match reply {
            Ok(Reply::Later) => None,
            Ok(Reply::Now(dw0)) => Some(Ok(dw0)),
            Err(status) => {
                self.admin.note_error(0, sqe, status);
                Some(Err(status))
            }
        }
    }
}

/// Executes a command of an I/O queue; what failed is counted and in the Error Information log.
#[inline(always)]
fn run_io(
    reach: &Reach<'_>,
    board: &Board,
    namespaces: &mut Namespaces,
    transfer: &mut Transfer,
    admin: &mut Admin,
    qid: u16,
    sqe: &Sqe,
) -> Status {
    match namespaces.execute(reach, board, transfer, qid, sqe) {
        Ok(()) => Status::SUCCESS,
        Err(status) => {
            board.counters.io_errors.add(1);
            admin.note_error(qid, sqe, status);
            status
        }
    }
}

/// Whether a completion can be posted; a head that cannot be is recorded.
#[inline]
fn has_room(board: &Board, admin: &mut Admin, queue: &mut CompletionQueue, epoch: u32) -> bool {
    queue.has_room(&board.doorbells, epoch).unwrap_or_else(|violation| {
        blame(board, admin, violation);
        false
    })
}

/// Records a violation that the controller can tell, and tells the host.
#[cold]
fn blame(board: &Board, admin: &mut Admin, violation: Violation) {
    board.violations.record(violation);
    if let Some(event) = doorbell_event(&violation) {
        admin.report(event, true);
    }
}

#[cold]
fn fatal(board: &Board, target: Target, fault: Fault) -> Fatal {
    board.counters.faults.add(1);
    board.violations.record(Violation::dma(target, fault));
    Fatal
}
