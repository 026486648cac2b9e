//! Tasks that did not end well, as a user is told of them.

use std::fmt;
use std::time::Duration;

use tentpeg_driver::spec::status::Status;
use tentpeg_engine::{Batch, OpCode, Request, RequestError, SubmitError, TooManyBatches, TransferState, WaitError};
use thiserror::Error;

/// A task that ended other than COMPLETED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// What it was asked for; `None`: a flush.
    pub request: Option<Request>,
    /// How it ended.
    pub state: TransferState,
    /// Why, when it is FAILED.
    pub status: Option<Status>,
    /// Why, when it is INVALID.
    pub refusal: Option<RequestError>,
}

impl std::error::Error for TaskFailure {}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request {
            Some(Request { opcode, target_offset, length, .. }) => {
                let what = match opcode {
                    OpCode::Read => "a read",
                    OpCode::Write => "a write",
                };
                write!(f, "{what} of {length} bytes at {target_offset} is {}", self.state)?;
            }
            None => write!(f, "a flush is {}", self.state)?,
        }
        if let Some(status) = self.status {
            write!(f, ": {status}")?;
        }
        if let Some(refusal) = self.refusal {
            write!(f, ": {refusal}")?;
        }
        Ok(())
    }
}

impl TaskFailure {
    /// Those of `batch`, in order of its tasks. `requests` are what was submitted to it, one a task; a task without one was a flush.
    /// To be called when every task has ended.
    pub fn of(batch: &Batch, requests: &[Request]) -> Vec<Self> {
        if batch.overall().unsuccessful == 0 {
            return Vec::new();
        }
        // A task below the batch's own count exists, so no look-up fails.
        let failure = |task: u32| {
            let state = batch.status(task).ok()?.state;
            let status = batch.nvme_status(task).ok().flatten();
            let refusal = batch.refusal(task).ok().flatten();
            let request = requests.get(task as usize).copied();
            (state != TransferState::Completed).then_some(Self { request, state, status, refusal })
        };
        (0..batch.tasks()).filter_map(failure).collect()
    }
}

/// How long a run waits for I/O that makes no progress before it gives up.
pub const STALLED: Duration = Duration::from_secs(60);

/// Why a run's I/O could not go on.
#[derive(Debug, Error)]
pub enum IoError {
    /// No batch.
    #[error(transparent)]
    Batches(#[from] TooManyBatches),
    /// No task.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The device is silent.
    #[error("the device is silent: {0}")]
    Wait(#[from] WaitError),
    /// A task did not end well.
    #[error(transparent)]
    Task(#[from] TaskFailure),
}

#[cfg(test)]
mod tests {
    use tentpeg_engine::{Engine, EngineConfig};

    use super::*;

    #[test]
    fn each_failed_task_is_named_with_its_reason() {
        let engine = Engine::open("model:size=1MiB", EngineConfig::default()).unwrap();
        let memory = engine.allocate_memory(8192).unwrap();
        let target_id = engine.segments()[0].id;
        let read = |target_offset, length| Request {
            opcode: OpCode::Read,
            source: memory.address(),
            target_id,
            target_offset,
            length,
        };
        let batch = engine.allocate_batch(4).unwrap();
        let requests = [read(0, 4096), read(1 << 20, 4096), read(0, 100)];
        engine.submit(&batch, &requests).unwrap();
        batch.wait(STALLED).unwrap();
        let failures = TaskFailure::of(&batch, &requests);
        assert_eq!(failures.len(), 2, "the first one is right");
        let messages: Vec<_> = failures.iter().map(ToString::to_string).collect();
        assert!(messages[0].starts_with("a read of 4096 bytes at 1048576 is INVALID: "), "{}", messages[0]);
        assert!(messages[1].starts_with("a read of 100 bytes at 0 is INVALID: "), "{}", messages[1]);
    }
}
