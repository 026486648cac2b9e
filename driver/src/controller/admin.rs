//! The admin queue: one command at a time, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use super::deadline::Deadline;
use super::{ControllerError, Wait};
use crate::bus::Function;
use crate::dma::{Access, HostMemory, Region};
use crate::queue::{Completion, Extent, PairCounters, QueuePair};
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, LogPageIdentifier, Sqe};
use crate::spec::registers::offset;

/// Bytes of the buffer for what admin commands return: one Identify structure.
const DATA: usize = 4096;

/// The admin queue pair and the buffer that its commands return data in.
pub(super) struct AdminQueue {
    pair: QueuePair<()>,
    data: Region<HostMemory>,
    function: Arc<dyn Function>,
    timeout: Duration,
    /// A command got no answer: the device may still write to the buffer.
    lost: bool,
}

impl AdminQueue {
    pub(super) fn new(
        function: Arc<dyn Function>,
        pair: QueuePair<()>,
        timeout: Duration,
    ) -> Result<Self, ControllerError> {
        let memory = HostMemory::allocate(DATA).map_err(|error| ControllerError::AdminMemory(error.to_string()))?;
        let data = function
            .dma()
            .register(memory, Access::DEVICE_WRITES)
            .map_err(|error| ControllerError::AdminMemory(error.to_string()))?;
        Ok(Self { pair, data, function, timeout, lost: false })
    }

    pub(super) fn counters(&self) -> PairCounters {
        self.pair.counters()
    }

    /// Whether a command got no answer: then the queue is not used again.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Runs a command that moves no data.
    pub(super) fn execute(&mut self, sqe: Sqe) -> Result<Completion<()>, ControllerError> {
        self.run(sqe, &[])
    }

    /// Asks for an Identify structure.
    pub(super) fn identify<T: FromBytes + IntoBytes>(&mut self, cns: Cns, nsid: u32) -> Result<T, ControllerError> {
        self.fetch(Sqe::identify(cns, nsid))
    }

    /// Asks for the start of a log page, as much of it as a `T` has.
    pub(super) fn log_page<T: FromBytes + IntoBytes>(
        &mut self,
        lid: LogPageIdentifier,
        nsid: u32,
    ) -> Result<T, ControllerError> {
        let dwords = const { (size_of::<T>() / 4) as u32 };
        let numd = ZeroesBased::<u32>::from_raw(dwords - 1);
        self.fetch(Sqe::get_log_page(lid, nsid, numd))
    }

    /// Runs a command that returns a `T`, of a page at the most.
    fn fetch<T: FromBytes + IntoBytes>(&mut self, sqe: Sqe) -> Result<T, ControllerError> {
        const { assert!(size_of::<T>() <= DATA) };
        if !self.lost {
            // What a device does not write must not be a former answer.
            self.data.view().fill(0);
        }
        let data = Extent { iova: self.data.iova(), len: DATA as u64 };
        self.run(sqe, &[data])?;
        let mut bytes = T::new_zeroed();
        self.data.view().read(0, bytes.as_mut_bytes());
        Ok(bytes)
    }

    fn run(&mut self, sqe: Sqe, data: &[Extent]) -> Result<Completion<()>, ControllerError> {
        if self.lost {
            return Err(ControllerError::AdminQueueLost);
        }
        let command = sqe.admin_opcode().name().unwrap_or("an admin command");
        self.pair.submit(sqe, data, ()).map_err(|source| ControllerError::Submit { command, source })?;
        self.pair.ring();
        let deadline = Deadline::after(self.timeout);
        let pair = &mut self.pair;
        let ended = deadline.wait(&*self.function, || {
            let mut ended = None;
            pair.poll(1, |completion| ended = Some(completion));
            ended
        });
        let Some(completion) = ended else {
            self.lost = true;
            let wait = Wait::Admin { command };
            let csts = self.function.read_u32(offset::CSTS);
            let cap = self.function.read_u64(offset::CAP);
            return Err(if csts == u32::MAX || cap == u64::MAX || cap == 0 {
                ControllerError::Gone { cap, csts }
            } else {
                ControllerError::Timeout { wait, limit: deadline.limit(), csts }
            });
        };
        if !completion.status.is_success() {
            return Err(ControllerError::Command { command, status: completion.status });
        }
        Ok(completion)
    }
}
