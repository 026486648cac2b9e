//! A host with one queue pair and some memory, for tests of I/O.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::super::ModelConfig;
use super::host::{Host, Pair};
use crate::dma::{HostMemory, Region};
use crate::spec::command::{Cns, Sqe};
use crate::spec::status::StatusCode;

/// Bytes of the bench's memory.
pub(super) const MEMORY: usize = 256 << 10;

pub(super) struct Bench {
    pub(super) host: Host,
    pub(super) pair: Pair,
    pub(super) data: Region<HostMemory>,
}

pub(super) fn bench(config: ModelConfig) -> Bench {
    let mut host = Host::new(config);
    let pair = host.io_pair(1, 8);
    let data = host.memory(MEMORY);
    Bench { host, pair, data }
}

impl Bench {
    /// The status code of a command, in whose DNR bit a repetition that would help is allowed.
    pub(super) fn code(&mut self, sqe: Sqe) -> StatusCode {
        self.host.io_code(&mut self.pair, sqe)
    }

    pub(super) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.data.view().read(offset, &mut bytes);
        bytes
    }

    pub(super) fn put(&self, offset: usize, bytes: &[u8]) {
        self.data.view().write(offset, bytes);
    }

    /// The IOVA of an offset.
    pub(super) fn at(&self, offset: u64) -> u64 {
        self.data.iova().get() + offset
    }

    /// PRPs for `len` bytes from the start of the memory on: PRP2 is a list in the memory's last page.
    pub(super) fn with_prps(&self, sqe: Sqe, len: usize) -> Sqe {
        let sqe = sqe.with_prp1(self.at(0));
        match len.div_ceil(4096) {
            0 | 1 => sqe,
            2 => sqe.with_prp2(self.at(4096)),
            pages => {
                let entries: Vec<u64> = (1..pages as u64).map(|page| self.at(page * 4096)).collect();
                self.data.view().write_words(MEMORY - 4096, &entries);
                sqe.with_prp2(self.at(MEMORY as u64 - 4096))
            }
        }
    }

    /// An Identify page.
    pub(super) fn identify<T: FromBytes + IntoBytes + Immutable + KnownLayout>(&mut self, cns: Cns, nsid: u32) -> T {
        let page = self.host.memory(4096);
        let sqe = Sqe::identify(cns, nsid).with_prp1(page.iova().get());
        assert_eq!(self.host.code(sqe), StatusCode::SUCCESS);
        let mut bytes = [0; 4096];
        page.view().read(0, &mut bytes);
        T::read_from_bytes(&bytes).unwrap()
    }

    /// Enables the model again after a power cut, with a new queue pair.
    pub(super) fn power_on(&mut self) {
        use crate::bus::Function;
        use crate::spec::registers::{Aqa, offset};
        let function = &self.host.function;
        let size = super::host::count(16);
        function.enable_bus_mastering().unwrap();
        function.write_u32(offset::AQA, Aqa::default().with_asqs(size).with_acqs(size).bits());
        function.write_u64(offset::ASQ, self.host.admin.sq.iova().get());
        function.write_u64(offset::ACQ, self.host.admin.cq.iova().get());
        self.host.enable();
        self.pair = self.host.io_pair(1, 8);
    }
}
