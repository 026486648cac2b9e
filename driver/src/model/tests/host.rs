//! A host by hand: just enough to ring doorbells and look at completions, and free to do it wrongly.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::{FromBytes, IntoBytes};

use super::super::{Drive, Model, ModelConfig, ModelFunction, SoftwareIommu, Subsystem};
use crate::bus::{Doorbell, Function};
use crate::dma::{Access, DmaSpace, HostMemory, PageSize, Region};
use crate::spec::ZeroesBased;
use crate::spec::command::{QueuePriority, Sqe};
use crate::spec::completion::Cqe;
use crate::spec::registers::{Aqa, Cc, Csts, DoorbellKind, doorbell_offset, offset};
use crate::spec::status::StatusCode;

/// Turns after which what did not happen will not happen.
pub(super) const PATIENCE: usize = 1000;

/// Bytes of a small ring: a multiple of every memory page that a test sets, and aligned as much.
const RING: usize = 16 << 10;

pub(super) fn count(entries: u32) -> ZeroesBased<u16> {
    ZeroesBased::<u16>::from_count(entries).unwrap()
}

/// CC as a host of the NVM Command Set writes it, with 4 KiB pages.
pub(super) fn cc(enable: bool) -> Cc {
    Cc::default().with_en(enable).with_iosqes(6).with_iocqes(4)
}

/// A small model in memory.
pub(super) fn small() -> ModelConfig {
    ModelConfig { size: 16 << 20, lba_size: 512, queues: 4, mqes: 63, ..ModelConfig::default() }
}

/// A queue pair by hand.
pub(super) struct Pair {
    pub(super) sqid: u16,
    pub(super) size: u32,
    pub(super) sq: Region<HostMemory>,
    pub(super) cq: Region<HostMemory>,
    pub(super) tail: u32,
    pub(super) head: u32,
    pub(super) phase: bool,
    pub(super) sq_bell: Box<dyn Doorbell>,
    pub(super) cq_bell: Box<dyn Doorbell>,
}

impl Pair {
    /// Writes an SQE at the tail; the doorbell is not rung.
    pub(super) fn push(&mut self, sqe: Sqe) {
        self.sq.view().write(self.tail as usize * 64, sqe.as_bytes());
        self.tail = (self.tail + 1) % self.size;
    }

    pub(super) fn ring(&self) {
        self.sq_bell.ring(self.tail as u16);
    }

    /// The next completion, if it is there; the head doorbell is not rung.
    pub(super) fn peek(&mut self) -> Option<Cqe> {
        let at = self.head as usize * 16;
        let dw3 = self.cq.view().atomic_u32(at + 12).load(Ordering::Acquire);
        if Cqe::split_dw3(dw3).1.phase() != self.phase {
            return None;
        }
        let mut bytes = [0; 16];
        self.cq.view().read(at, &mut bytes);
        self.head = (self.head + 1) % self.size;
        if self.head == 0 {
            self.phase = !self.phase;
        }
        Some(Cqe::read_from_bytes(&bytes).unwrap())
    }

    /// The next completion, if it is there.
    pub(super) fn take(&mut self) -> Option<Cqe> {
        let cqe = self.peek();
        if cqe.is_some() {
            self.cq_bell.ring(self.head as u16);
        }
        cqe
    }
}

/// A host with one model.
pub(super) struct Host {
    pub(super) model: Model,
    pub(super) function: Arc<ModelFunction>,
    pub(super) iommu: Arc<SoftwareIommu>,
    pub(super) space: Arc<DmaSpace>,
    pub(super) admin: Pair,
}

impl Host {
    /// A host with a stepped model that is enabled.
    pub(super) fn new(config: ModelConfig) -> Self {
        Self::driven(config, Drive::Stepped)
    }

    pub(super) fn driven(config: ModelConfig, drive: Drive) -> Self {
        let mut host = Self::disabled(config, drive);
        host.enable();
        host
    }

    /// A host that has written AQA, ASQ and ACQ and nothing else.
    pub(super) fn disabled(config: ModelConfig, drive: Drive) -> Self {
        let iommu = SoftwareIommu::new();
        let model = Model::new(config, drive, &iommu).unwrap();
        Self::of(model, iommu)
    }

    /// A host with a new controller of a subsystem and an address space of its own, enabled.
    pub(super) fn with_controller_of(subsystem: &mut Subsystem, drive: Drive) -> Self {
        let iommu = SoftwareIommu::new();
        let model = subsystem.add_controller(drive, &iommu).unwrap();
        let mut host = Self::of(model, iommu);
        host.enable();
        host
    }

    pub(super) fn of(model: Model, iommu: Arc<SoftwareIommu>) -> Self {
        let (function, space) = (model.function(), iommu.space());
        let admin = pair(&function, &space, 0, 16);
        let host = Self { model, function, iommu, space, admin };
        host.set_up();
        host
    }

    /// Writes AQA, ASQ and ACQ.
    pub(super) fn set_up(&self) {
        let aqa = Aqa::default().with_asqs(count(16)).with_acqs(count(16));
        self.function.write_u32(offset::AQA, aqa.bits());
        self.function.write_u64(offset::ASQ, self.admin.sq.iova().get());
        self.function.write_u64(offset::ACQ, self.admin.cq.iova().get());
    }

    pub(super) fn csts(&self) -> Csts {
        Csts::from_bits(self.function.read_u32(offset::CSTS))
    }

    pub(super) fn write_cc(&self, cc: Cc) {
        self.function.write_u32(offset::CC, cc.bits());
    }

    /// Lets turns pass until `done`, and says whether it ever was.
    pub(super) fn wait(&self, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..PATIENCE * 1000 {
            if done(self) {
                return true;
            }
            self.function.pause();
        }
        false
    }

    pub(super) fn enable(&mut self) {
        self.enable_as(cc(true));
    }

    pub(super) fn enable_as(&mut self, cc: Cc) {
        // Rings begin anew with every enable, and so do handles.
        self.admin.cq.view().fill(0);
        (self.admin.tail, self.admin.head, self.admin.phase) = (0, 0, true);
        (self.admin.sq_bell, self.admin.cq_bell) = bells(&self.function, 0);
        self.write_cc(cc);
        assert!(self.wait(|host| host.csts().rdy()), "never ready: {:?}", self.csts());
    }

    pub(super) fn disable(&self) {
        self.write_cc(cc(false));
        assert!(self.wait(|host| !host.csts().rdy()), "never disabled: {:?}", self.csts());
    }

    /// Executes an admin command.
    pub(super) fn admin(&mut self, sqe: Sqe) -> Cqe {
        self.admin.push(sqe);
        self.admin.ring();
        for _ in 0..PATIENCE * 1000 {
            if let Some(cqe) = self.admin.take() {
                assert_eq!((cqe.sqid, cqe.cid, u32::from(cqe.sqhd)), (0, sqe.cid, self.admin.tail));
                return cqe;
            }
            self.function.pause();
        }
        panic!("no completion of {sqe:?}; violations: {:?}", self.model.violations());
    }

    /// The status code of an admin command.
    pub(super) fn code(&mut self, sqe: Sqe) -> StatusCode {
        self.admin(sqe).status.status().code()
    }

    pub(super) fn memory(&self, bytes: usize) -> Region<HostMemory> {
        memory(&self.space, bytes, Access::all())
    }

    /// A queue pair's memory and handles, of which the controller knows nothing yet.
    pub(super) fn raw_pair(&self, qid: u16, size: u32) -> Pair {
        pair(&self.function, &self.space, qid, size)
    }

    /// Creates an I/O queue pair.
    pub(super) fn io_pair(&mut self, qid: u16, size: u32) -> Pair {
        let pair = self.raw_pair(qid, size);
        let (cq, sq) = (pair.cq.iova().get(), pair.sq.iova().get());
        let code = self.code(Sqe::create_io_completion_queue(qid, count(size), cq, None));
        assert_eq!(code, StatusCode::SUCCESS);
        let code = self.code(Sqe::create_io_submission_queue(qid, count(size), sq, qid, QueuePriority::URGENT));
        assert_eq!(code, StatusCode::SUCCESS);
        pair
    }

    /// Executes one command of an I/O queue.
    pub(super) fn io(&self, pair: &mut Pair, sqe: Sqe) -> Cqe {
        pair.push(sqe);
        pair.ring();
        for _ in 0..PATIENCE * 1000 {
            if let Some(cqe) = pair.take() {
                assert_eq!((cqe.sqid, cqe.cid, u32::from(cqe.sqhd)), (pair.sqid, sqe.cid, pair.tail));
                return cqe;
            }
            self.function.pause();
        }
        panic!("no completion of {sqe:?}; violations: {:?}", self.model.violations());
    }

    /// The status code of a command of an I/O queue.
    pub(super) fn io_code(&self, pair: &mut Pair, sqe: Sqe) -> StatusCode {
        self.io(pair, sqe).status.status().code()
    }
}

pub(super) fn memory(space: &Arc<DmaSpace>, bytes: usize, access: Access) -> Region<HostMemory> {
    space.register(HostMemory::allocate_on(bytes, PageSize::Ordinary).unwrap(), access).unwrap()
}

fn bells(function: &ModelFunction, qid: u16) -> (Box<dyn Doorbell>, Box<dyn Doorbell>) {
    let dstrd = (function.read_u64(offset::CAP) >> 32) as u8 & 0xF;
    let bell = |kind| function.doorbell(doorbell_offset(dstrd, qid, kind)).unwrap();
    (bell(DoorbellKind::SubmissionTail), bell(DoorbellKind::CompletionHead))
}

fn pair(function: &ModelFunction, space: &Arc<DmaSpace>, qid: u16, size: u32) -> Pair {
    let (sq_bell, cq_bell) = bells(function, qid);
    Pair {
        sqid: qid,
        size,
        sq: memory(space, (size as usize * 64).max(RING), Access::DEVICE_READS),
        cq: memory(space, (size as usize * 16).max(RING), Access::DEVICE_WRITES),
        tail: 0,
        head: 0,
        phase: true,
        sq_bell,
        cq_bell,
    }
}
