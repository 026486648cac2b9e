//! Admin commands (NVM Express Base 2.1, 5).
//!
//! One file a subject. What a command needs of the rest of the controller comes with the call; what the admin
//! commands keep between calls is here.

mod features;
mod identify;
mod io_queues;
mod logs;

use std::collections::VecDeque;
use std::time::Instant;

use super::board::Board;
use super::config::ModelConfig;
use super::iommu::{Reach, write_padded};
use super::namespace::Namespace;
use super::queues::Queues;
use super::transfer::{Transfer, permanent};
use crate::dma::Access;
use crate::spec::command::{AdminOpcode, Fuse, NumberOfQueues, Psdt, Sqe};
use crate::spec::status::{Status, StatusCode};
use identify::Identity;
use logs::ErrorLog;

/// How an admin command ended.
pub(super) enum Reply {
    /// It completed, with this dword 0.
    Now(u32),
    /// It waits for an event; no completion is posted yet.
    Later,
}

/// What admin commands keep.
pub(super) struct Admin {
    identity: Identity,
    errors: ErrorLog,
    /// I/O queues that a driver may create.
    granted: NumberOfQueues,
    /// I/O queue pairs that the controller has.
    queues: u16,
    /// CIDs of Asynchronous Event Requests that wait for an event.
    event_requests: Vec<u16>,
    event_limit: usize,
    /// Completions of commands that were aborted, to be posted.
    waiting: VecDeque<(u16, Status)>,
    /// Most bytes that one command may move.
    max_transfer: u64,
    has_cache: bool,
    powered_on: Instant,
}

impl Admin {
    pub(super) fn new(config: &ModelConfig, namespace: &Namespace, max_transfer: u64) -> Self {
        Self {
            identity: Identity::new(config, namespace),
            errors: ErrorLog::default(),
            granted: features::all_queues(config.queues),
            queues: config.queues,
            event_requests: Vec::new(),
            event_limit: usize::from(config.aerl) + 1,
            waiting: VecDeque::new(),
            max_transfer,
            has_cache: config.volatile_write_cache,
            powered_on: Instant::now(),
        }
    }

    /// A reset of the controller: what waits is dropped, and features are as they were at first.
    pub(super) fn reset(&mut self, namespace: &mut Namespace) {
        self.event_requests.clear();
        self.waiting.clear();
        self.granted = features::all_queues(self.queues);
        namespace.cached = self.has_cache;
    }

    /// Whether completions of aborted commands are to be posted.
    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next of them.
    pub(super) fn take_waiting(&mut self) -> Option<(u16, Status)> {
        self.waiting.pop_front()
    }

    /// Adds a failed command to the Error Information log.
    #[cold]
    pub(super) fn note_error(&mut self, sqid: u16, sqe: &Sqe, status: Status) {
        self.errors.note(sqid, sqe, status);
    }

    /// Executes a command of the Admin Submission Queue.
    pub(super) fn execute(
        &mut self,
        reach: &Reach<'_>,
        board: &Board,
        transfer: &mut Transfer,
        queues: &mut Queues,
        namespace: &mut Namespace,
        sqe: &Sqe,
    ) -> Result<Reply, Status> {
        // Admin commands use PRPs on PCIe, and none is ever fused (Base 2.1, 4.1.1).
        if sqe.fuse() != Fuse::NORMAL || sqe.psdt() != Psdt::PRP {
            return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
        }
        if self.event_requests.contains(&sqe.cid) {
            return Err(permanent(StatusCode::COMMAND_ID_CONFLICT));
        }
        let mut send = |bytes: &[u8], len: u64| {
            if len > self.max_transfer {
                return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
            }
            let pieces = transfer.resolve(reach, board, 0, sqe, len, Access::DEVICE_WRITES)?;
            board.counters.admin_bytes.add(len);
            write_padded(pieces, bytes);
            Ok(Reply::Now(0))
        };
        match sqe.admin_opcode() {
            AdminOpcode::IDENTIFY => {
                let page = self.identity.page(sqe, namespace)?;
                send(&page[..], page.len() as u64)
            }
            AdminOpcode::GET_LOG_PAGE => {
                let (bytes, len) = logs::page(sqe, &self.errors, &board.counters, namespace, self.powered_on)?;
                send(&bytes, len)
            }
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE => {
                io_queues::create_completion(sqe, self.granted, board, transfer.page_size, queues)
            }
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => {
                io_queues::create_submission(sqe, self.granted, board, transfer.page_size, queues)
            }
            AdminOpcode::DELETE_IO_COMPLETION_QUEUE => io_queues::delete_completion(sqe, board, queues),
            AdminOpcode::DELETE_IO_SUBMISSION_QUEUE => io_queues::delete_submission(sqe, board, queues),
            AdminOpcode::SET_FEATURES => self.set_features(sqe, queues, namespace),
            AdminOpcode::GET_FEATURES => self.get_features(sqe, namespace),
            AdminOpcode::ABORT => Ok(self.abort(sqe)),
            AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => self.request_event(sqe),
            _ => Err(permanent(StatusCode::INVALID_COMMAND_OPCODE)),
        }
    }

    /// Abort (Base 2.1, 5.1.1). Commands are executed whole, so only event requests are ever found waiting.
    fn abort(&mut self, sqe: &Sqe) -> Reply {
        let found = self.event_requests.iter().position(|cid| *cid == sqe.abort_cid());
        match found.filter(|_| sqe.abort_sqid() == 0) {
            Some(at) => {
                let cid = self.event_requests.remove(at);
                self.waiting.push_back((cid, StatusCode::COMMAND_ABORT_REQUESTED.status()));
                Reply::Now(0)
            }
            None => Reply::Now(1),
        }
    }

    /// Asynchronous Event Request (Base 2.1, 5.1.2): kept until there is an event.
    fn request_event(&mut self, sqe: &Sqe) -> Result<Reply, Status> {
        if self.event_requests.len() >= self.event_limit {
            return Err(permanent(StatusCode::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED));
        }
        self.event_requests.push(sqe.cid);
        Ok(Reply::Later)
    }
}
