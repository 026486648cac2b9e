//! Creating and deleting I/O queues, and their doorbells in memory (NVM Express Base 2.1, 5.2.1 to 5.2.5).

use super::super::board::Board;
use super::super::queues::{CompletionQueue, Queues, SubmissionQueue};
use super::super::shadow::ShadowDoorbells;
use super::super::transfer::permanent;
use super::super::violation::{Target, Violation};
use super::{Answer, Surroundings};
use crate::spec::ZeroesBased;
use crate::spec::command::{NumberOfQueues, Sqe};
use crate::spec::status::{Status, StatusCode};

/// CC.IOSQES and CC.IOCQES of the NVM Command Set: entries of 64 and 16 bytes.
const IOSQES: u8 = 6;
const IOCQES: u8 = 4;

pub(super) fn create_completion(
    sqe: &Sqe,
    granted: NumberOfQueues,
    board: &Board,
    page_size: u64,
    queues: &mut Queues,
) -> Result<Answer, Status> {
    if !in_range(sqe.qid(), granted.ncq()) || queues.completion(sqe.qid()).is_some() {
        return Err(permanent(StatusCode::INVALID_QUEUE_IDENTIFIER));
    }
    let (iocqes, mqes) = {
        let registers = board.lock_registers();
        (registers.cc().iocqes(), registers.cap().mqes())
    };
    if iocqes != IOCQES {
        return Err(permanent(StatusCode::INVALID_QUEUE_SIZE));
    }
    check_shape(sqe, mqes, page_size)?;
    // One vector a queue pair and one for the admin queues, as if there were MSI-X.
    if sqe.iv() > 0 && u32::from(sqe.iv()) > granted.ncq().count() {
        return Err(permanent(StatusCode::INVALID_INTERRUPT_VECTOR));
    }
    let mut queue = CompletionQueue::new(sqe.qid(), sqe.prp1, sqe.qsize().count());
    if sqe.ien() {
        queue.set_vector(sqe.iv());
    }
    queues.add_completion(queue, &board.doorbells);
    Ok(Answer::Done(0))
}

pub(super) fn create_submission(
    sqe: &Sqe,
    granted: NumberOfQueues,
    board: &Board,
    page_size: u64,
    queues: &mut Queues,
) -> Result<Answer, Status> {
    if !in_range(sqe.qid(), granted.nsq()) || queues.submission(sqe.qid()).is_some() {
        return Err(permanent(StatusCode::INVALID_QUEUE_IDENTIFIER));
    }
    if !in_range(sqe.cqid(), granted.ncq()) {
        return Err(permanent(StatusCode::INVALID_QUEUE_IDENTIFIER));
    }
    if queues.completion(sqe.cqid()).is_none() {
        return Err(permanent(StatusCode::COMPLETION_QUEUE_INVALID));
    }
    let (iosqes, mqes) = {
        let registers = board.lock_registers();
        (registers.cc().iosqes(), registers.cap().mqes())
    };
    if iosqes != IOSQES {
        return Err(permanent(StatusCode::INVALID_QUEUE_SIZE));
    }
    check_shape(sqe, mqes, page_size)?;
    let queue = SubmissionQueue::new(sqe.qid(), sqe.cqid(), sqe.prp1, sqe.qsize().count());
    queues.add_submission(queue, &board.doorbells);
    Ok(Answer::Done(0))
}

pub(super) fn delete_completion(sqe: &Sqe, board: &Board, queues: &mut Queues) -> Result<Answer, Status> {
    let qid = sqe.qid();
    match queues.completion(qid) {
        Some(queue) if qid != 0 && queue.users > 0 => Err(permanent(StatusCode::INVALID_QUEUE_DELETION)),
        Some(_) if qid != 0 => {
            queues.remove_completion(qid, &board.doorbells);
            Ok(Answer::Done(0))
        }
        _ => Err(permanent(StatusCode::INVALID_QUEUE_IDENTIFIER)),
    }
}

pub(super) fn delete_submission(sqe: &Sqe, board: &Board, queues: &mut Queues) -> Result<Answer, Status> {
    if sqe.qid() == 0 || queues.submission(sqe.qid()).is_none() {
        return Err(permanent(StatusCode::INVALID_QUEUE_IDENTIFIER));
    }
    // Commands are executed whole: none of this queue is in progress.
    queues.remove_submission(sqe.qid(), &board.doorbells);
    Ok(Answer::Done(0))
}

/// Doorbell Buffer Config. Queues that there are have in their shadows what was rung last.
pub(super) fn configure_doorbell_buffers(sqe: &Sqe, around: &mut Surroundings<'_, '_>) -> Result<Answer, Status> {
    let page = |address: u64| address != 0 && address.is_multiple_of(around.transfer.page_size);
    if !page(sqe.prp1) || !page(sqe.prp2) {
        return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
    }
    let Surroundings { reach, board, queues, .. } = around;
    let dstrd = board.lock_registers().cap().dstrd();
    let shadow = ShadowDoorbells::new(sqe.prp1, sqe.prp2, dstrd);
    queues.cast_shadows(reach, &board.doorbells, shadow).map_err(|fault| {
        board.counters.faults.add(1);
        board.violations.record(Violation::dma(Target::Data { sqid: 0, cid: sqe.cid }, fault));
        StatusCode::DATA_TRANSFER_ERROR.status()
    })?;
    Ok(Answer::Done(0))
}

/// Whether an I/O queue may have that identifier.
fn in_range(qid: u16, granted: ZeroesBased<u16>) -> bool {
    qid != 0 && u32::from(qid) <= granted.count()
}

/// What both kinds of queues must be like.
fn check_shape(sqe: &Sqe, mqes: ZeroesBased<u16>, page_size: u64) -> Result<(), Status> {
    if sqe.qsize().raw() == 0 || sqe.qsize() > mqes {
        return Err(permanent(StatusCode::INVALID_QUEUE_SIZE));
    }
    // CAP.CQR is 1.
    if !sqe.pc() {
        return Err(permanent(StatusCode::INVALID_FIELD_IN_COMMAND));
    }
    if !sqe.prp1.is_multiple_of(page_size) {
        return Err(permanent(StatusCode::PRP_OFFSET_INVALID));
    }
    Ok(())
}
