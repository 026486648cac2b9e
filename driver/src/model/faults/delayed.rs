//! Commands that were fetched and have not completed, and completions that are still to come.

use std::collections::VecDeque;

use crate::spec::command::Sqe;
use crate::spec::status::{Status, StatusCode};

/// What is left to do about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Rest {
    /// All of it.
    Execute(Sqe),
    /// It ended so; the CQE is to be posted.
    Complete { cid: u16, dw0: u32, status: Status },
    /// A CQE of queue `cqid` at an address is to be written again, with the right phase.
    Show { cqid: u16, address: u64, dwords: [u32; 4] },
}

struct Entry {
    sqid: u16,
    turns: u32,
    rest: Rest,
}

/// What is left to do, in the order in which it was put off.
#[derive(Default)]
pub(in crate::model) struct Delayed {
    entries: VecDeque<Entry>,
}

impl Delayed {
    pub(in crate::model) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps something of submission queue `sqid` for `turns` turns.
    pub(in crate::model) fn keep(&mut self, sqid: u16, turns: u32, rest: Rest) {
        self.entries.push_back(Entry { sqid, turns, rest });
    }

    /// Aborts a command that is kept and has not been executed: it completes with Command Abort Requested in the
    /// next turn. Whether there was one (NVM Express Base 2.1, 5.1.1).
    pub(in crate::model) fn abort(&mut self, sqid: u16, cid: u16) -> bool {
        let found = self
            .entries
            .iter_mut()
            .find(|entry| entry.sqid == sqid && matches!(entry.rest, Rest::Execute(sqe) if sqe.cid == cid));
        if let Some(entry) = found {
            entry.turns = 0;
            entry.rest = Rest::Complete { cid, dw0: 0, status: StatusCode::COMMAND_ABORT_REQUESTED.status() };
            return true;
        }
        false
    }

    /// Aborts the commands on namespace `nsid` that are kept and have not been executed, since their host was preempted:
    /// they complete in the next turn (NVM Express Base 2.1, 8.1.22.7).
    pub(in crate::model) fn abort_preempted(&mut self, nsid: u32) {
        for entry in self.entries.iter_mut().filter(|entry| entry.sqid != 0) {
            if let Rest::Execute(sqe) = entry.rest
                && sqe.nsid == nsid
            {
                let status = StatusCode::COMMAND_ABORTED_DUE_TO_PREEMPT_AND_ABORT.status();
                (entry.turns, entry.rest) = (0, Rest::Complete { cid: sqe.cid, dw0: 0, status });
            }
        }
    }

    /// Whether a command with this CID is kept.
    #[cfg(test)]
    pub(in crate::model) fn holds(&self, sqid: u16, cid: u16) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.sqid == sqid && matches!(entry.rest, Rest::Execute(sqe) if sqe.cid == cid))
    }

    /// A submission queue is gone, and what was kept of it too.
    pub(in crate::model) fn forget(&mut self, sqid: u16) {
        self.entries.retain(|entry| entry.sqid != sqid);
    }

    pub(in crate::model) fn clear(&mut self) {
        self.entries.clear();
    }

    /// A turn passes.
    pub(in crate::model) fn age(&mut self) {
        for entry in &mut self.entries {
            entry.turns = entry.turns.saturating_sub(1);
        }
    }

    /// Takes the first that is due and of a queue that is `ready`, with its queue.
    pub(in crate::model) fn take_due(&mut self, mut ready: impl FnMut(u16) -> bool) -> Option<(u16, Rest)> {
        let at = self.entries.iter().position(|entry| entry.turns == 0 && ready(entry.sqid))?;
        self.entries.remove(at).map(|entry| (entry.sqid, entry.rest))
    }

    /// Takes the oldest, due or not.
    pub(in crate::model) fn take_any(&mut self) -> Option<(u16, Rest)> {
        self.entries.pop_front().map(|entry| (entry.sqid, entry.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(cid: u16) -> Rest {
        Rest::Execute(Sqe::flush(1).with_cid(cid))
    }

    #[test]
    fn what_is_due_comes_in_order_and_what_is_not_ready_waits() {
        let mut delayed = Delayed::default();
        delayed.keep(1, 2, flush(1));
        delayed.keep(1, 1, flush(2));
        delayed.keep(2, 1, flush(3));
        assert_eq!(delayed.take_due(|_| true), None);
        delayed.age();
        assert_eq!(delayed.take_due(|sqid| sqid == 2), Some((2, flush(3))));
        assert_eq!(delayed.take_due(|_| true), Some((1, flush(2))));
        assert_eq!(delayed.take_due(|_| true), None);
        assert_eq!(delayed.take_any(), Some((1, flush(1))));
        assert!(delayed.is_empty());
    }

    #[test]
    fn a_preemption_finds_the_commands_of_its_namespace() {
        let mut delayed = Delayed::default();
        delayed.keep(0, 100, flush(1));
        delayed.keep(1, 100, flush(2));
        delayed.keep(2, 100, Rest::Execute(Sqe::flush(2).with_cid(3)));
        delayed.abort_preempted(1);
        let status = StatusCode::COMMAND_ABORTED_DUE_TO_PREEMPT_AND_ABORT.status();
        assert_eq!(delayed.take_due(|_| true), Some((1, Rest::Complete { cid: 2, dw0: 0, status })));
        assert_eq!(delayed.take_due(|_| true), None);
        assert!(delayed.holds(0, 1) && delayed.holds(2, 3));
    }

    #[test]
    fn an_abort_finds_what_has_not_been_executed() {
        let mut delayed = Delayed::default();
        delayed.keep(1, 100, flush(7));
        delayed.keep(1, 100, Rest::Complete { cid: 8, dw0: 0, status: Status::SUCCESS });
        assert!(!delayed.abort(2, 7) && !delayed.abort(1, 6) && !delayed.abort(1, 8));
        assert!(delayed.holds(1, 7));
        assert!(delayed.abort(1, 7));
        assert!(!delayed.abort(1, 7), "once");
        assert!(!delayed.holds(1, 7));
        let status = StatusCode::COMMAND_ABORT_REQUESTED.status();
        assert_eq!(delayed.take_due(|_| true), Some((1, Rest::Complete { cid: 7, dw0: 0, status })));
        delayed.keep(3, 5, flush(1));
        delayed.forget(1);
        assert_eq!(delayed.take_any(), Some((3, flush(1))));
        assert!(delayed.is_empty());
    }
}
