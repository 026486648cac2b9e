//! The admin queue: one command at a time, each with a deadline, and beside it the requests for events.
//!
//! Asynchronous Event Requests stay in the controller until it has something to report. They share the queue with the
//! commands, told apart by their token; each one that completes is asked for again at once. What was reported waits
//! here, a bounded number, for [`events`](super::events) to read the log pages behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use zerocopy::{FromBytes, IntoBytes};

use super::deadline::Deadline;
use super::{ControllerError, Wait};
use crate::bus::Function;
use crate::dma::{Access, HostMemory, Region};
use crate::queue::{Anomalies, Completion, Extent, PairCounters, QueuePair};
use crate::spec::ZeroesBased;
use crate::spec::command::{Cns, LogPageIdentifier, Sqe};
use crate::spec::events::AsynchronousEvent;
use crate::spec::registers::{Csts, offset};

/// Bytes of the buffer for what admin commands return: one Identify structure.
pub(super) const DATA: usize = 4096;
/// The most events that wait to be looked at. A sound controller reports one of each type until it is cleared.
const MAX_REPORTED: usize = 64;
/// The most completions that are taken between two looks at the clock.
const BATCH: usize = 16;

/// What a command of the admin queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum AdminToken {
    /// The one that is waited for.
    #[default]
    Command,
    /// A request for events.
    Event,
}

/// The end of an admin command.
pub(super) type AdminCompletion = Completion<AdminToken>;

/// How many requests for events there are, and what came of them.
#[derive(Debug, Default)]
pub(super) struct EventRequests {
    /// How many are kept in the controller.
    wanted: usize,
    outstanding: usize,
    reported: VecDeque<AsynchronousEvent>,
    /// Requests that the controller ended with an error; they are not made again.
    pub(super) refused: u64,
    /// Events that were dropped, because too many waited.
    pub(super) overrun: u64,
}

impl EventRequests {
    fn ended(&mut self, completion: AdminCompletion) {
        self.outstanding = self.outstanding.saturating_sub(1);
        if !completion.status.is_success() {
            self.refused += 1;
            self.wanted = self.wanted.saturating_sub(1);
        } else if self.reported.len() < MAX_REPORTED {
            self.reported.push_back(AsynchronousEvent::from_bits(completion.dw0));
        } else {
            self.overrun += 1;
        }
    }

    /// Brings the requests in the controller up to what is wanted, and rings for them.
    fn renew(&mut self, pair: &mut QueuePair<AdminToken>) {
        while self.outstanding < self.wanted {
            if pair.submit(Sqe::asynchronous_event_request(), &[], AdminToken::Event).is_err() {
                break;
            }
            self.outstanding += 1;
        }
        pair.ring();
    }
}

/// The admin queue pair and the buffer that its commands return data in.
pub(super) struct AdminQueue {
    pair: QueuePair<AdminToken>,
    data: Region<HostMemory>,
    function: Arc<dyn Function>,
    timeout: Duration,
    /// A command got no answer: the device may still write to the buffer.
    lost: bool,
    events: EventRequests,
}

impl AdminQueue {
    pub(super) fn new(
        function: Arc<dyn Function>,
        pair: QueuePair<AdminToken>,
        timeout: Duration,
    ) -> Result<Self, ControllerError> {
        let data = region(&*function, DATA, Access::DEVICE_WRITES)?;
        Ok(Self { pair, data, function, timeout, lost: false, events: EventRequests::default() })
    }

    pub(super) fn counters(&self) -> PairCounters {
        self.pair.counters()
    }

    pub(super) fn anomalies(&self) -> Anomalies {
        self.pair.anomalies()
    }

    /// Whether a command got no answer: then the queue is not used again.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }

    /// The longest wait for a command.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Keeps up to `most` requests for events in the controller from now on; fewer where the queue is small, so that
    /// there is always a slot for a command and one for its abort.
    pub(super) fn request_events(&mut self, most: usize) {
        self.events.wanted = most.min(self.pair.slots().saturating_sub(2));
        self.events.renew(&mut self.pair);
    }

    /// Takes what the controller has reported, without waiting.
    pub(super) fn take_events(&mut self) -> VecDeque<AsynchronousEvent> {
        if !self.lost {
            let Self { pair, events, .. } = self;
            // No command is in flight: its completion would be of no use to anybody.
            pair.poll(BATCH, |completion| {
                if completion.token == AdminToken::Event {
                    events.ended(completion);
                }
            });
            events.renew(pair);
        }
        std::mem::take(&mut self.events.reported)
    }

    /// How the requests for events have fared.
    pub(super) fn event_requests(&self) -> &EventRequests {
        &self.events
    }

    /// Runs a command that moves no data.
    pub(super) fn execute(&mut self, sqe: Sqe) -> Result<AdminCompletion, ControllerError> {
        self.run(sqe, &[], self.timeout)
    }

    /// Runs a command that moves no data and may take as long as `limit`.
    pub(super) fn execute_within(&mut self, sqe: Sqe, limit: Duration) -> Result<AdminCompletion, ControllerError> {
        self.run(sqe, &[], limit.max(self.timeout))
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
    pub(super) fn fetch<T: FromBytes + IntoBytes>(&mut self, sqe: Sqe) -> Result<T, ControllerError> {
        const { assert!(size_of::<T>() <= DATA) };
        let mut bytes = T::new_zeroed();
        self.fetch_into(sqe, bytes.as_mut_bytes())?;
        Ok(bytes)
    }

    /// Runs a command that returns data, of which the first bytes, up to a page of them, are kept.
    pub(super) fn fetch_into(&mut self, sqe: Sqe, to: &mut [u8]) -> Result<AdminCompletion, ControllerError> {
        if !self.lost {
            // What a device does not write must not be a former answer.
            self.data.view().fill(0);
        }
        let data = Extent { iova: self.data.iova(), len: DATA as u64 };
        let completion = self.run(sqe, &[data], self.timeout)?;
        let len = to.len().min(DATA);
        self.data.view().read(0, &mut to[..len]);
        Ok(completion)
    }

    /// Memory for what a command hands to the controller.
    pub(super) fn sending(&self, len: usize) -> Result<Region<HostMemory>, ControllerError> {
        region(&*self.function, len, Access::DEVICE_READS)
    }

    /// Runs a command that hands over the first `len` bytes of `memory`. On success the controller is done with them.
    pub(super) fn send(
        &mut self,
        sqe: Sqe,
        memory: &Region<HostMemory>,
        len: u64,
    ) -> Result<AdminCompletion, ControllerError> {
        self.run(sqe, &[Extent { iova: memory.iova(), len }], self.timeout)
    }

    fn run(&mut self, sqe: Sqe, data: &[Extent], limit: Duration) -> Result<AdminCompletion, ControllerError> {
        if self.lost {
            return Err(ControllerError::AdminQueueLost);
        }
        let command = sqe.admin_opcode().name().unwrap_or("an admin command");
        let wait = Wait::Admin { command };
        // No doorbell while RDY is 0, whoever has reset the controller (invariant 5).
        if let Some(error) = ill(&*self.function, wait) {
            return Err(error);
        }
        self.pair
            .submit(sqe, data, AdminToken::Command)
            .map_err(|source| ControllerError::Submit { command, source })?;
        self.pair.ring();
        let deadline = Deadline::after(limit);
        let Self { pair, events, function, .. } = self;
        let ended = deadline.wait(&**function, || {
            let mut ended = None;
            pair.poll(BATCH, |completion| match completion.token {
                AdminToken::Command => ended = Some(completion),
                AdminToken::Event => events.ended(completion),
            });
            // Some commands may take hours: nobody waits for them where there is no controller that could end them.
            match ended {
                Some(completion) => {
                    events.renew(pair);
                    Some(Ok(completion))
                }
                None => match ill(&**function, wait) {
                    Some(error) => Some(Err(error)),
                    None => {
                        events.renew(pair);
                        None
                    }
                },
            }
        });
        let outcome = ended.unwrap_or_else(|| {
            let csts = self.function.read_u32(offset::CSTS);
            Err(ControllerError::Timeout { wait, limit: deadline.limit(), csts })
        });
        self.lost = outcome.is_err();
        let completion = outcome?;
        if !completion.status.is_success() {
            return Err(ControllerError::Command { command, status: completion.status });
        }
        Ok(completion)
    }
}

/// What the registers say against a controller that should be ready; nothing where it is.
fn ill(function: &dyn Function, wait: Wait) -> Option<ControllerError> {
    let csts = function.read_u32(offset::CSTS);
    let status = Csts::from_bits(csts);
    if csts != u32::MAX && status.rdy() && !status.cfs() {
        return None;
    }
    let cap = function.read_u64(offset::CAP);
    Some(if csts == u32::MAX || cap == u64::MAX || cap == 0 {
        ControllerError::Gone { cap, csts }
    } else if status.cfs() {
        ControllerError::Fatal { csts, wait }
    } else {
        ControllerError::NotReady { csts }
    })
}

/// Host memory that the controller can reach.
pub(super) fn region(
    function: &dyn Function,
    len: usize,
    access: Access,
) -> Result<Region<HostMemory>, ControllerError> {
    let memory = HostMemory::allocate(len).map_err(|error| ControllerError::AdminMemory(error.to_string()))?;
    function.dma().register(memory, access).map_err(|error| ControllerError::AdminMemory(error.to_string()))
}
