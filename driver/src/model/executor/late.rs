//! DMA after its end: a fault (see `faults`).
//!
//! A device that says RDY = 0, or was pulled, and still moves the data of commands that it had fetched. It does so
//! through the IOMMU as it is, but sees of it only what was mapped when it was told to stop: what it then finds mapped
//! anew would be somebody else's memory, and is counted instead of touched. Blocks are not written late, so that
//! commands that would have done so do not complete either: success would be a lie.

use super::super::faults::LateDma;
use super::super::faults::delayed::{Delayed, Rest};
use super::super::iommu::{Reach, Table};
use super::super::queues::Queues;
use super::super::violation::{Target, Violation};
use super::Core;
use crate::spec::command::{NvmOpcode, Sqe};

/// What a device had in hand when it was told to stop.
pub(super) struct Late {
    queues: Queues,
    delayed: Delayed,
    epoch: u32,
    page_size: u64,
    left: u32,
    /// Mappings that had been made by then.
    watermark: u32,
    /// Resets of the function before: one more ends it.
    resets: u32,
}

impl Core {
    /// The queues are gone, but their DMA is not: it goes on for `turns`.
    #[cold]
    pub(super) fn linger(&mut self, turns: u32) {
        if !self.running {
            return self.stop();
        }
        // What was rung before the end has been fetched.
        self.look();
        let faults = &self.board.faults;
        self.late = Some(Box::new(Late {
            queues: self.queues.take(&self.board.doorbells),
            delayed: std::mem::take(&mut self.delayed),
            epoch: self.epoch,
            page_size: self.transfer.page_size,
            left: turns,
            watermark: faults.watermark(),
            resets: faults.resets(),
        }));
        self.stop();
    }

    /// One turn of late DMA: one command a queue. Whether there was any.
    pub(super) fn late_turn(&mut self, table: &Table) -> bool {
        let Some(mut late) = self.late.take() else { return false };
        let real = table.reach();
        // With the table in hand, as `may_access` is asked: a reset waits for it.
        let ended = late.left == 0 || !self.board.path_is_open() || self.board.faults.resets() != late.resets;
        if !ended {
            late.left -= 1;
            self.serve_late(&real, &mut late);
            self.late = Some(late);
        }
        self.note_kept();
        !ended
    }

    fn serve_late(&mut self, real: &Reach<'_>, late: &mut Late) {
        let former = real.as_of(late.watermark);
        let reach = former.reach();
        let page_size = std::mem::replace(&mut self.transfer.page_size, late.page_size);
        for place in 0..late.queues.active_count() {
            let qid = late.queues.active(place);
            let mut sqe = Sqe::ZERO;
            self.board.violations.divert();
            if let Some((sq, cq)) = late.queues.pair(qid)
                && !sq.is_empty()
                && cq.has_room(&self.board.doorbells, late.epoch).unwrap_or(false)
            {
                match sq.fetch(&reach, &mut sqe) {
                    Ok(()) => self.finish_late(&reach, late, qid, Rest::Execute(sqe)),
                    Err(fault) => {
                        self.board.violations.record(Violation::dma(Target::SubmissionQueue { qid }, fault));
                    }
                }
                self.count_late(real);
            } else {
                self.board.violations.end_diversion();
            }
        }
        if let Some((qid, rest)) = late.delayed.take_any() {
            self.board.violations.divert();
            self.finish_late(&reach, late, qid, rest);
            self.count_late(real);
        }
        self.transfer.page_size = page_size;
    }

    fn finish_late(&mut self, reach: &Reach<'_>, late: &mut Late, qid: u16, rest: Rest) {
        let (cid, status) = match rest {
            Rest::Execute(sqe) if qid != 0 && sqe.nvm_opcode() == NvmOpcode::READ => {
                (sqe.cid, self.run_io_apart(reach, qid, &sqe))
            }
            Rest::Complete { cid, status, .. } => (cid, status),
            Rest::Execute(_) | Rest::Show { .. } => return,
        };
        if let Some((sq, cq)) = late.queues.pair(qid)
            && let Err(fault) = cq.post(reach, 0, (qid, sq.head(), cid), status)
        {
            self.board.violations.record(Violation::dma(Target::CompletionQueue { qid: cq.qid }, fault));
        }
    }

    /// Sorts what was refused since violations were diverted: by nobody there, or by somebody else.
    fn count_late(&self, real: &Reach<'_>) {
        let mut met = LateDma::default();
        let diverted = self.board.violations.end_diversion();
        for violation in &diverted {
            if let Violation::Dma { address, .. } = violation {
                let count = if real.is_mapped(*address) { &mut met.foreign } else { &mut met.unmapped };
                *count += 1;
            }
        }
        met.held = u64::from(diverted.is_empty());
        self.board.faults.count_late(met);
    }
}
