//! Abort (NVM Express Base 2.1, 5.1.1).
//!
//! An Abort finds its command where commands wait: among event requests, among those held back, or in a submission
//! queue. What it finds is completed with Command Abort Requested, and the Abort completes after it; until then it
//! counts towards the Abort Command Limit. What is executed is executed whole, so that no Abort can find it.

use std::collections::VecDeque;

use super::super::transfer::permanent;
use super::{Admin, Answer, LateCompletion, Surroundings};
use crate::spec::ZeroesBased;
use crate::spec::command::Sqe;
use crate::spec::status::{Status, StatusCode};

/// Dword 0 of an Abort that aborted nothing: Immediate Abort Not Performed.
const NOT_ABORTED: u32 = 1;

/// An Abort that waits for its command to complete.
struct Waiting {
    cid: u16,
    sqid: u16,
    aborted_cid: u16,
}

/// Abort commands that are outstanding.
pub(super) struct Aborts {
    waiting: Vec<Waiting>,
    limit: usize,
}

impl Aborts {
    /// `acl` as Identify Controller has it.
    pub(super) fn new(acl: u8) -> Self {
        Self { waiting: Vec::new(), limit: ZeroesBased::<u8>::from_raw(acl).count() as usize }
    }

    pub(super) fn reset(&mut self) {
        self.waiting.clear();
    }

    pub(super) fn waits(&self, cid: u16) -> bool {
        self.waiting.iter().any(|waiting| waiting.cid == cid)
    }

    /// A command has been completed as aborted.
    pub(super) fn aborted(&mut self, sqid: u16, cid: u16, late: &mut VecDeque<LateCompletion>) {
        self.end(late, 0, |waiting| (waiting.sqid, waiting.aborted_cid) == (sqid, cid));
    }

    /// The commands of a queue are gone without completions.
    pub(super) fn queue_deleted(&mut self, sqid: u16, late: &mut VecDeque<LateCompletion>) {
        self.end(late, NOT_ABORTED, |waiting| waiting.sqid == sqid);
    }

    fn end(&mut self, late: &mut VecDeque<LateCompletion>, dw0: u32, done: impl Fn(&Waiting) -> bool) {
        self.waiting.retain(|waiting| {
            let done = done(waiting);
            if done {
                late.push_back((waiting.cid, Ok(dw0)));
            }
            !done
        });
    }
}

impl Admin {
    pub(super) fn abort(&mut self, around: &mut Surroundings<'_, '_>, sqe: &Sqe) -> Result<Answer, Status> {
        if self.aborts.waiting.len() >= self.aborts.limit {
            return Err(permanent(StatusCode::ABORT_COMMAND_LIMIT_EXCEEDED));
        }
        let (sqid, aborted_cid) = (sqe.abort_sqid(), sqe.abort_cid());
        if sqid == 0 && self.events.abort(aborted_cid) {
            self.late.push_back((aborted_cid, Err(StatusCode::COMMAND_ABORT_REQUESTED.status())));
            self.late.push_back((sqe.cid, Ok(0)));
            return Ok(Answer::Later);
        }
        if around.delayed.abort(sqid, aborted_cid) || around.queues.condemn(around.reach, sqid, aborted_cid) {
            self.aborts.waiting.push(Waiting { cid: sqe.cid, sqid, aborted_cid });
            return Ok(Answer::Later);
        }
        Ok(Answer::Done(NOT_ABORTED))
    }
}
