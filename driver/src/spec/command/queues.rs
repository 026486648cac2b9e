//! Creating and deleting I/O queues, and their doorbells in memory (NVM Express Base 2.1, 5.2.1 to 5.2.5).

use super::{AdminOpcode, Sqe};
use crate::spec::ZeroesBased;

codes! {
    /// Queue Priority, QPRIO; counts under weighted round robin only (Base 2.1, 5.2.2).
    pub struct QueuePriority(u8) {
        URGENT = 0, "Urgent";
        HIGH = 1, "High";
        MEDIUM = 2, "Medium";
        LOW = 3, "Low";
    }
}

impl Sqe {
    /// Creates Completion Queue `qid` of `qsize` entries, physically contiguous at `prp1` (Base 2.1,
    /// 5.2.1). `iv` is its interrupt vector; without one the queue does not interrupt.
    pub const fn create_io_completion_queue(qid: u16, qsize: ZeroesBased<u16>, prp1: u64, iv: Option<u16>) -> Self {
        let sqe = Self::admin(AdminOpcode::CREATE_IO_COMPLETION_QUEUE, 0)
            .with_prp1(prp1)
            .with_qid(qid)
            .with_qsize(qsize)
            .with_pc(true);
        match iv {
            Some(iv) => sqe.with_ien(true).with_iv(iv),
            None => sqe,
        }
    }

    /// Creates Submission Queue `qid` of `qsize` entries, physically contiguous at `prp1`, whose
    /// commands complete in Completion Queue `cqid` (Base 2.1, 5.2.2).
    pub const fn create_io_submission_queue(
        qid: u16,
        qsize: ZeroesBased<u16>,
        prp1: u64,
        cqid: u16,
        qprio: QueuePriority,
    ) -> Self {
        Self::admin(AdminOpcode::CREATE_IO_SUBMISSION_QUEUE, 0)
            .with_prp1(prp1)
            .with_qid(qid)
            .with_qsize(qsize)
            .with_pc(true)
            .with_qprio(qprio)
            .with_cqid(cqid)
    }

    /// Deletes Completion Queue `qid`, whose submission queues are gone (Base 2.1, 5.2.3).
    pub const fn delete_io_completion_queue(qid: u16) -> Self {
        Self::admin(AdminOpcode::DELETE_IO_COMPLETION_QUEUE, 0).with_qid(qid)
    }

    /// Deletes Submission Queue `qid` (Base 2.1, 5.2.4).
    pub const fn delete_io_submission_queue(qid: u16) -> Self {
        Self::admin(AdminOpcode::DELETE_IO_SUBMISSION_QUEUE, 0).with_qid(qid)
    }

    /// Says where the Shadow Doorbell buffer (`prp1`) and the EventIdx buffer (`prp2`) lie, each on a memory page (Base
    /// 2.1, 5.2.5). Both are laid out as the doorbells are from their first on.
    pub const fn doorbell_buffer_config(prp1: u64, prp2: u64) -> Self {
        Self::admin(AdminOpcode::DOORBELL_BUFFER_CONFIG, 0).with_prp1(prp1).with_prp2(prp2)
    }
}

fields! {
    impl Sqe, cdw10: u32 {
        /// Create and Delete I/O Queue: Queue Identifier (Base 2.1, 5.2.1 to 5.2.4).
        qid / with_qid [0, 16]: u16;
        /// Create I/O Queue: Queue Size in entries (Base 2.1, 5.2.1 and 5.2.2).
        qsize / with_qsize [16, 16]: ZeroesBased<u16>;
    }
}

fields! {
    impl Sqe, cdw11: u32 {
        /// Create I/O Queue: Physically Contiguous (Base 2.1, 5.2.1 and 5.2.2).
        pc / with_pc [0, 1]: bool;
        /// Create I/O Completion Queue: Interrupts Enabled (Base 2.1, 5.2.1).
        ien / with_ien [1, 1]: bool;
        /// Create I/O Completion Queue: Interrupt Vector (Base 2.1, 5.2.1).
        iv / with_iv [16, 16]: u16;
        /// Create I/O Submission Queue: Queue Priority (Base 2.1, 5.2.2).
        qprio / with_qprio [1, 2]: QueuePriority;
        /// Create I/O Submission Queue: Completion Queue Identifier (Base 2.1, 5.2.2).
        cqid / with_cqid [16, 16]: u16;
    }
}

fields! {
    impl Sqe, cdw12: u32 {
        /// Create I/O Submission Queue: NVM Set Identifier (Base 2.1, 5.2.2).
        nvmsetid / with_nvmsetid [0, 16]: u16;
    }
}
