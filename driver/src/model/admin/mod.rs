//! Admin commands (NVM Express Base 2.1, 5).
//!
//! One file a subject. What a command needs of the rest of the controller comes with the call; what the admin
//! commands keep between calls is here. Operations that take turns (Format NVM, Sanitize, self-tests) are taken
//! further by [`Admin::tick`]; completions that come later than their command wait here for the executor.

mod abort;
mod effects;
mod events;
mod features;
mod firmware;
mod format;
mod identify;
mod io_queues;
mod logs;
mod sanitize;
mod self_test;

use std::collections::VecDeque;
use std::time::Instant;

use super::board::Board;
use super::config::ModelConfig;
use super::faults::delayed::Delayed;
use super::iommu::{Reach, gather, write_padded};
use super::namespaces::Namespaces;
use super::orders::Order;
use super::queues::Queues;
use super::reservations::HostKey;
use super::subsystem::Role;
use super::transfer::{Transfer, permanent};
use crate::dma::Access;
use crate::spec::command::{AdminOpcode, Fuse, NSID_ALL, Psdt, Sqe};
use crate::spec::events::AsynchronousEvent;
use crate::spec::identify::Oacs;
use crate::spec::log::{CriticalWarning, SelfTestResultCode};
use crate::spec::status::{Status, StatusCode};
use abort::Aborts;
use events::Events;
use features::Features;
use firmware::Firmware;
pub use firmware::firmware_image;
use format::Formats;
use identify::Identity;
use logs::Logs;
use sanitize::Sanitize;
use self_test::SelfTests;

/// How an admin command ended.
pub(super) enum Reply {
    /// It completed, with this dword 0.
    Now(u32),
    /// No completion is posted yet.
    Later,
}

/// What a command comes to, before its data is moved.
enum Answer {
    /// Done, with this dword 0.
    Done(u32),
    /// Nothing yet.
    Later,
    /// These bytes, and zeroes up to this length.
    Data(Vec<u8>, u64),
}

/// How a command ended whose completion came later: its CID, and dword 0 or why it failed.
pub(super) type LateCompletion = (u16, Result<u32, Status>);

/// The rest of the controller, as far as admin commands concern it.
pub(super) struct Surroundings<'a, 'r> {
    pub(super) reach: &'a Reach<'r>,
    pub(super) board: &'a Board,
    pub(super) transfer: &'a mut Transfer,
    pub(super) queues: &'a mut Queues,
    pub(super) namespaces: &'a mut Namespaces,
    /// Commands that were fetched and are held back.
    pub(super) delayed: &'a mut Delayed,
}

/// What admin commands keep.
pub(super) struct Admin {
    identity: Identity,
    logs: Logs,
    events: Events,
    features: Features,
    firmware: Firmware,
    formats: Formats,
    sanitize: Sanitize,
    self_tests: SelfTests,
    aborts: Aborts,
    /// Completions that came later than their commands, to be posted.
    late: VecDeque<LateCompletion>,
    /// Most bytes that one command may move.
    max_transfer: u64,
    powered_on: Instant,
}

impl Admin {
    pub(super) fn new(config: &ModelConfig, max_transfer: u64, role: Role) -> Self {
        Self {
            identity: Identity::new(config, role),
            logs: Logs::default(),
            events: Events::new(config.aerl),
            features: Features::new(config),
            firmware: Firmware::default(),
            formats: Formats::new(config.format_delay),
            sanitize: Sanitize::new(config.sanitize_delay),
            self_tests: SelfTests::new(config.self_test_delay),
            aborts: Aborts::new(config.acl),
            late: VecDeque::new(),
            max_transfer,
            powered_on: Instant::now(),
        }
    }

    /// Sets up namespaces that another controller may have used since, for commands of this one.
    pub(super) fn enter(&self, namespaces: &mut Namespaces) {
        let (cntlid, user) = (self.identity.cntlid(), self.host());
        let extended = self.features.host_extended();
        for entry in namespaces.iter_mut() {
            entry.namespace.cached = self.features.cached();
            entry.namespace.reservations.set_user(cntlid, user, extended);
        }
    }

    /// Who uses the controller.
    fn host(&self) -> HostKey {
        HostKey::new(self.features.host_identifier(), self.identity.cntlid())
    }

    /// A reset of the controller: what waits is dropped, features are as saved or as at first, firmware that waited for
    /// a reset runs. Formats, sanitize operations and extended self-tests go on.
    pub(super) fn reset(&mut self, namespaces: &mut Namespaces) {
        self.late.clear();
        self.events.reset();
        self.aborts.reset();
        self.formats.reset();
        self.firmware.reset();
        self.self_tests.reset(self.power_on_hours());
        let host = self.host();
        for entry in namespaces.iter_mut() {
            entry.namespace.change_reservations(|reservations| reservations.forget(host));
        }
        self.features.reset(namespaces);
        self.enter(namespaces);
    }

    /// Carries out what was ordered from outside and takes operations in progress one turn further. `running` is whether
    /// the controller is ready.
    #[cold]
    pub(super) fn tick(&mut self, board: &Board, namespaces: &mut Namespaces, delayed: &mut Delayed, running: bool) {
        for order in board.take_orders() {
            self.carry_out(order, board, namespaces, delayed, running);
        }
        self.formats.tick(namespaces, &mut self.late);
        if self.sanitize.tick(board, namespaces) && running {
            self.events.raise(AsynchronousEvent::SANITIZE_OPERATION_COMPLETED);
        }
        self.self_tests.tick(board.health().failing_segment, self.power_on_hours());
        if running {
            let warning = self.critical_warning(board, namespaces);
            self.events.review(warning);
            self.events.deliver(&mut self.late);
        }
    }

    /// Whether an operation is in progress that each turn takes further.
    pub(super) fn busy(&self) -> bool {
        self.formats.busy() || self.sanitize.busy() || self.self_tests.busy()
    }

    fn carry_out(
        &mut self,
        order: Order,
        board: &Board,
        namespaces: &mut Namespaces,
        delayed: &mut Delayed,
        running: bool,
    ) {
        let changed = match order {
            Order::Add(mut entry) => {
                entry.namespace.cached = self.features.cached();
                let nsid = entry.nsid;
                namespaces.insert(*entry);
                self.enter(namespaces);
                nsid
            }
            Order::Remove(nsid) => {
                namespaces.remove(nsid);
                self.self_tests.abort_for(
                    nsid,
                    SelfTestResultCode::ABORTED_BY_NAMESPACE_REMOVAL,
                    self.power_on_hours(),
                );
                nsid
            }
            Order::Resize(nsid, size) => match namespaces.resize(nsid, size) {
                Ok(()) => nsid,
                Err(_) => return self.report(AsynchronousEvent::PERSISTENT_INTERNAL_ERROR, running),
            },
            Order::Note(nsid) => return self.note_changed(nsid, running),
            Order::NotifyReservation { nsid, kind, hosts } => {
                if running && hosts.contains(&self.host()) && !self.features.masks_reservation(nsid, kind) {
                    self.logs.notify_reservation(nsid, kind);
                    self.events.raise(AsynchronousEvent::RESERVATION_LOG_PAGE_AVAILABLE);
                }
                return;
            }
            Order::AbortPreempted { nsid, hosts } => {
                if hosts.contains(&self.host()) {
                    delayed.abort_preempted(nsid);
                }
                return;
            }
            Order::Report(event) => return self.report(event, running),
        };
        self.note_changed(changed, running);
        board.others().iter().for_each(|other| other.order(Order::Note(changed)));
    }

    /// A namespace has come, changed or gone.
    fn note_changed(&mut self, nsid: u32, running: bool) {
        if running {
            self.logs.changed_namespaces.insert(nsid);
            self.events.raise(AsynchronousEvent::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED);
        }
    }

    /// An event that no command is told about.
    #[cold]
    pub(super) fn report(&mut self, event: AsynchronousEvent, running: bool) {
        if running {
            self.logs.note_event(event);
            self.events.raise(event);
            self.events.deliver(&mut self.late);
        }
    }

    /// Whether completions are to be posted that came later than their commands.
    #[inline]
    pub(super) fn has_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// The next of them.
    pub(super) fn take_late(&mut self) -> Option<LateCompletion> {
        self.late.pop_front()
    }

    /// A command that was to be aborted has been completed so.
    #[cold]
    pub(super) fn aborted(&mut self, sqid: u16, cid: u16) {
        self.aborts.aborted(sqid, cid, &mut self.late);
    }

    /// Adds a failed command to the Error Information log.
    #[cold]
    pub(super) fn note_error(&mut self, sqid: u16, sqe: &Sqe, status: Status) {
        self.logs.note_error(sqid, sqe, status);
    }

    /// Executes a command of the Admin Submission Queue.
    pub(super) fn execute(&mut self, around: &mut Surroundings<'_, '_>, sqe: &Sqe) -> Result<Reply, Status> {
        // Admin commands use PRPs on PCIe, and none is ever fused (Base 2.1, 4.1.1).
        if sqe.fuse() != Fuse::NORMAL || sqe.psdt() != Psdt::PRP {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if self.events.waits(sqe.cid) || self.formats.waits(sqe.cid) || self.aborts.waits(sqe.cid) {
            return Err(permanent(StatusCode::COMMAND_ID_CONFLICT));
        }
        self.sanitize.allows(sqe)?;
        match self.answer(around, sqe)? {
            Answer::Done(dw0) => Ok(Reply::Now(dw0)),
            Answer::Later => Ok(Reply::Later),
            Answer::Data(bytes, len) => {
                self.send(around, sqe, &bytes, len)?;
                if sqe.admin_opcode() == AdminOpcode::GET_LOG_PAGE && !sqe.rae() {
                    self.logs.was_read(sqe.lid());
                    self.events.clear(sqe.lid());
                    self.events.deliver(&mut self.late);
                }
                Ok(Reply::Now(0))
            }
        }
    }

    fn answer(&mut self, around: &mut Surroundings<'_, '_>, sqe: &Sqe) -> Result<Answer, Status> {
        let hours = self.power_on_hours();
        match sqe.admin_opcode() {
            AdminOpcode::IDENTIFY => self.identity.page(sqe, around.namespaces, self.firmware.revision()),
            AdminOpcode::GET_LOG_PAGE => self.log_page(around, sqe),
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE => {
                let granted = self.features.granted();
                io_queues::create_completion(sqe, granted, around.board, around.transfer.page_size, around.queues)
            }
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => {
                let granted = self.features.granted();
                io_queues::create_submission(sqe, granted, around.board, around.transfer.page_size, around.queues)
            }
            AdminOpcode::DELETE_IO_COMPLETION_QUEUE => io_queues::delete_completion(sqe, around.board, around.queues),
            AdminOpcode::DELETE_IO_SUBMISSION_QUEUE => {
                let answer = io_queues::delete_submission(sqe, around.board, around.queues)?;
                self.aborts.queue_deleted(sqe.qid(), &mut self.late);
                Ok(answer)
            }
            AdminOpcode::DOORBELL_BUFFER_CONFIG if self.identity.oacs().contains(Oacs::DOORBELL_BUFFER_CONFIG) => {
                io_queues::configure_doorbell_buffers(sqe, around)
            }
            AdminOpcode::SET_FEATURES => {
                let answer = self.set_features(around, sqe)?;
                self.enter(around.namespaces);
                let warning = self.critical_warning(around.board, around.namespaces);
                self.events.review(warning);
                self.events.deliver(&mut self.late);
                Ok(answer)
            }
            AdminOpcode::GET_FEATURES => self.get_features(around, sqe),
            AdminOpcode::ABORT => self.abort(around, sqe),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => {
                self.events.request(sqe.cid)?;
                self.events.deliver(&mut self.late);
                Ok(Answer::Later)
            }
            AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD => {
                let bytes = self.receive(around, sqe, sqe.firmware_numd().count() * 4)?;
                self.firmware.download(sqe, &bytes)
            }
            AdminOpcode::FIRMWARE_COMMIT => {
                let answer = self.firmware.commit(sqe)?;
                if self.firmware.take_activated() {
                    self.events.raise(AsynchronousEvent::FIRMWARE_ACTIVATION_STARTING);
                    self.events.deliver(&mut self.late);
                }
                Ok(answer)
            }
            AdminOpcode::FORMAT_NVM => {
                let answer = self.formats.format(sqe, around.namespaces)?;
                self.self_tests.abort_for(sqe.nsid, SelfTestResultCode::ABORTED_BY_FORMAT, hours);
                Ok(answer)
            }
            AdminOpcode::SANITIZE => {
                if self.formats.busy() {
                    return Err(StatusCode::FORMAT_IN_PROGRESS.status());
                }
                if self.firmware.waits_for_reset() {
                    return Err(permanent(StatusCode::FIRMWARE_ACTIVATION_REQUIRES_CONTROLLER_LEVEL_RESET));
                }
                let no_deallocate = self.features.no_deallocate_is_warning();
                let answer = self.sanitize.command(sqe, no_deallocate, around.namespaces)?;
                if self.sanitize.busy() {
                    self.events.forget(AsynchronousEvent::SANITIZE_OPERATION_COMPLETED);
                    self.self_tests.abort_for(NSID_ALL, SelfTestResultCode::ABORTED_BY_SANITIZE, hours);
                }
                Ok(answer)
            }
            AdminOpcode::DEVICE_SELF_TEST => {
                let answer = self.self_tests.command(sqe, around.namespaces, hours)?;
                Ok(answer)
            }
            _ => Err(permanent(StatusCode::INVALID_COMMAND_OPCODE)),
        }
    }

    fn send(&self, around: &mut Surroundings<'_, '_>, sqe: &Sqe, bytes: &[u8], len: u64) -> Result<(), Status> {
        let pieces = self.resolve(around, sqe, len, Access::DEVICE_WRITES)?;
        write_padded(pieces, bytes);
        Ok(())
    }

    fn receive(&self, around: &mut Surroundings<'_, '_>, sqe: &Sqe, len: u64) -> Result<Vec<u8>, Status> {
        self.resolve(around, sqe, len, Access::DEVICE_READS).map(gather)
    }

    fn resolve<'a>(
        &self,
        around: &'a mut Surroundings<'_, '_>,
        sqe: &Sqe,
        len: u64,
        wanted: Access,
    ) -> Result<&'a [super::iommu::Piece<'a>], Status> {
        if len > self.max_transfer {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        let pieces = around.transfer.resolve(around.reach, around.board, 0, sqe, len, wanted)?;
        around.board.counters.admin_bytes.add(len);
        Ok(pieces)
    }

    /// The warnings that stand (Base 2.1, 5.1.12.1.3).
    fn critical_warning(&self, board: &Board, namespaces: &Namespaces) -> CriticalWarning {
        let health = board.health();
        let mut warning = health.critical_warning;
        warning.set(
            CriticalWarning::AVAILABLE_SPARE,
            health.available_spare < health.available_spare_threshold
                || warning.contains(CriticalWarning::AVAILABLE_SPARE),
        );
        warning.set(
            CriticalWarning::TEMPERATURE,
            self.features.too_hot_or_cold(health.temperature) || warning.contains(CriticalWarning::TEMPERATURE),
        );
        warning.set(CriticalWarning::READ_ONLY, namespaces.read_only() || warning.contains(CriticalWarning::READ_ONLY));
        warning
    }

    fn power_on_hours(&self) -> u64 {
        self.powered_on.elapsed().as_secs() / 3600
    }
}
