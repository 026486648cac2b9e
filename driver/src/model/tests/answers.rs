//! A host that asks for data, lets turns pass and looks at what comes by itself.

use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use super::host::{Host, memory};
use crate::dma::Access;
use crate::spec::ZeroesBased;
use crate::spec::command::{LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::completion::Cqe;
use crate::spec::events::AsynchronousEvent;
use crate::spec::status::StatusCode;

/// Get Log Page for the first `bytes` of a page of the controller.
pub(super) fn log(lid: LogPageIdentifier, bytes: u64) -> Sqe {
    Sqe::get_log_page(lid, NSID_ALL, ZeroesBased::<u32>::from_count(bytes / 4).unwrap())
}

impl Host {
    /// Executes an admin command that returns a `T`.
    pub(super) fn fetch<T: FromBytes>(&mut self, sqe: Sqe) -> Result<T, StatusCode> {
        let data = self.memory(size_of::<T>().next_multiple_of(4096));
        data.view().fill(0xAA);
        match self.code(sqe.with_prp1(data.iova().get())) {
            StatusCode::SUCCESS => {
                let mut bytes = vec![0; size_of::<T>()];
                data.view().read(0, &mut bytes);
                Ok(T::read_from_bytes(&bytes).unwrap())
            }
            code => Err(code),
        }
    }

    /// Reads a log page as long as a `T`.
    pub(super) fn log<T: FromBytes>(&mut self, lid: LogPageIdentifier) -> T {
        self.fetch(log(lid, size_of::<T>() as u64)).unwrap()
    }

    /// Executes an admin command that takes `bytes`.
    pub(super) fn send(&mut self, sqe: Sqe, bytes: &[u8]) -> StatusCode {
        let data = memory(&Arc::clone(&self.space), bytes.len().next_multiple_of(4096), Access::DEVICE_READS);
        data.view().write(0, bytes);
        assert!(bytes.len() <= 8192, "two pages need no list");
        self.code(sqe.with_prp1(data.iova().get()).with_prp2(data.iova().get() + 4096))
    }

    /// Gives the controller an admin command that need not complete at once.
    pub(super) fn post(&mut self, sqe: Sqe) {
        self.admin.push(sqe);
        self.admin.ring();
        self.turns(2);
    }

    pub(super) fn turns(&self, turns: usize) {
        for _ in 0..turns {
            self.model.turn();
        }
    }

    /// Completions that have come by themselves.
    pub(super) fn completions(&mut self) -> Vec<Cqe> {
        self.turns(2);
        std::iter::from_fn(|| self.admin.take()).collect()
    }

    /// Events that have come by themselves.
    pub(super) fn events(&mut self) -> Vec<AsynchronousEvent> {
        let event = |cqe: Cqe| {
            assert_eq!(cqe.status.status().code(), StatusCode::SUCCESS, "{cqe:?}");
            AsynchronousEvent::from_bits(cqe.dw0)
        };
        self.completions().into_iter().map(event).collect()
    }

    /// Asks for that many events, with CIDs from 100 on.
    pub(super) fn request_events(&mut self, count: u16) {
        for cid in 100..100 + count {
            self.post(Sqe::asynchronous_event_request().with_cid(cid));
        }
    }

    /// Checks the status of each command, one after the other.
    pub(super) fn expect(&mut self, steps: impl IntoIterator<Item = (Sqe, StatusCode)>) {
        for (step, (sqe, code)) in steps.into_iter().enumerate() {
            assert_eq!(self.code(sqe), code, "step {step}: {sqe:?}");
        }
    }

    /// The bytes of the first two logical blocks of 512 of namespace `nsid`.
    pub(super) fn blocks(&self, pair: &mut super::host::Pair, nsid: u32) -> Result<Vec<u8>, StatusCode> {
        let data = self.memory(4096);
        data.view().fill(0xAA);
        match self.io_code(pair, Sqe::read(nsid, 0, super::host::count(2)).with_prp1(data.iova().get())) {
            StatusCode::SUCCESS => {
                let mut bytes = vec![0; 1024];
                data.view().read(0, bytes.as_mut_bytes());
                Ok(bytes)
            }
            code => Err(code),
        }
    }

    /// Fills them.
    pub(super) fn fill_blocks(&self, pair: &mut super::host::Pair, nsid: u32, byte: u8) -> StatusCode {
        let data = self.memory(4096);
        data.view().fill(byte);
        self.io_code(pair, Sqe::write(nsid, 0, super::host::count(2)).with_prp1(data.iova().get()))
    }
}
