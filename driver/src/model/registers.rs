//! The register file: what a register reads as, what a write does, and what follows some turns later (NVM Express
//! Base 2.1, 3.1.4; resets: 3.7.2).
//!
//! Plain state without threads: a write happens at once, and [`tick`](Registers::tick), once a turn, says what the
//! executor has to do about it. Doorbells are not here.

use std::sync::Arc;

use super::config::ModelConfig;
use super::faults::{Kind, Life};
use super::iommu::Window;
use super::violation::Violation;
use crate::spec::ZeroesBased;
use crate::spec::registers::{
    Aqa, ArbitrationMechanism, Cap, Cc, CommandSetSelected, CommandSets, Crto, Csts, ReadyModes, ShutdownNotification,
    ShutdownStatus, Vs, offset,
};

mod faults;
mod memory_buffer;

use faults::RegisterFaults;
use memory_buffer::MemoryBufferRegisters;

/// The version of the specification that the model follows.
pub(super) const VERSION: Vs = Vs::new(2, 1, 0);

/// How far the controller is on its way between disabled and ready. Numbers are turns left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Disabled,
    Enabling(u32),
    Ready,
    /// EN is 0 and RDY still 1.
    Disabling(u32),
    /// A fault: RDY does not follow EN.
    Stuck,
    /// Nothing helps but a reset: CFS is 1.
    Fatal,
}

/// The admin queues as they were when the controller became ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AdminQueues {
    /// Base of the submission queue.
    pub(super) asq: u64,
    /// Its entries.
    pub(super) asqs: u32,
    /// Base of the completion queue.
    pub(super) acq: u64,
    /// Its entries.
    pub(super) acqs: u32,
    /// Bytes of a memory page.
    pub(super) page_size: u64,
}

/// What the executor has to do about the registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// RDY has become 1.
    Start(AdminQueues),
    /// EN has become 0: every queue is gone. RDY follows later.
    Stop,
    /// As `Stop`, but a fault has DMA go on for so many turns.
    Linger(u32),
    /// A fatal status: nothing is executed until a reset.
    Fail,
    /// The controller has been shut down: nothing is executed until it is enabled again.
    ShutDown,
}

/// All registers but doorbells.
pub(super) struct Registers {
    cap: Cap,
    crto: Crto,
    cc: Cc,
    csts: Csts,
    aqa: Aqa,
    asq: u64,
    acq: u64,
    interrupt_mask: u32,
    phase: Phase,
    /// What the executor has not been told of.
    untold: Option<Transition>,
    /// There was an NVM Subsystem Reset, and nobody has cleared CSTS.NSSRO since.
    nssro: bool,
    pub(super) faults: RegisterFaults,
    /// Turns left of a shutdown in progress.
    shutdown: Option<u32>,
    ready_delay: u32,
    shutdown_delay: u32,
    memory_buffer: MemoryBufferRegisters,
}

impl Registers {
    pub(super) fn new(config: &ModelConfig) -> Self {
        let cap = Cap::default()
            .with_mqes(ZeroesBased::<u16>::from_raw(config.mqes))
            .with_cqr(true)
            .with_to(config.to)
            .with_dstrd(config.dstrd)
            .with_nssrs(config.nssrs)
            .with_css(CommandSets::NVM)
            .with_mpsmin(config.mpsmin)
            .with_mpsmax(config.mpsmax)
            .with_crms(ReadyModes::WITH_MEDIA);
        Self {
            cap,
            crto: Crto::default().with_crwmt(config.to.into()),
            cc: Cc::default(),
            csts: Csts::default(),
            aqa: Aqa::default(),
            asq: 0,
            acq: 0,
            interrupt_mask: 0,
            phase: Phase::Disabled,
            untold: None,
            nssro: false,
            faults: RegisterFaults::default(),
            shutdown: None,
            ready_delay: config.ready_delay,
            shutdown_delay: config.shutdown_delay,
            memory_buffer: MemoryBufferRegisters::default(),
        }
    }

    /// Gives the controller a Controller Memory Buffer.
    pub(super) fn set_memory_buffer(&mut self, window: Arc<Window>) {
        self.cap = self.cap.with_cmbs(true);
        self.memory_buffer = MemoryBufferRegisters::new(window);
    }

    pub(super) fn cap(&self) -> Cap {
        self.cap
    }

    pub(super) fn cc(&self) -> Cc {
        self.cc
    }

    /// The dword at `offset`. What the controller does not have reads as 0.
    pub(super) fn read(&self, offset: u64) -> u32 {
        let (low, high) = (|value: u64| value as u32, |value: u64| (value >> 32) as u32);
        match offset {
            offset::CAP => low(self.cap.bits()),
            CAP_HIGH => high(self.cap.bits()),
            offset::VS => VERSION.bits(),
            offset::INTMS | offset::INTMC => self.interrupt_mask,
            offset::CC => self.cc.bits(),
            offset::CSTS => self.csts.with_nssro(self.nssro).bits(),
            offset::AQA => self.aqa.bits(),
            offset::ASQ => low(self.asq),
            ASQ_HIGH => high(self.asq),
            offset::ACQ => low(self.acq),
            ACQ_HIGH => high(self.acq),
            offset::CRTO => self.crto.bits(),
            _ => self.memory_buffer.read(offset),
        }
    }

    /// Writes the dword at `offset`. A register that cannot be written keeps its value.
    pub(super) fn write(&mut self, offset: u64, value: u32) -> Result<(), Violation> {
        let low = |was: u64| was & !0xFFFF_FFFF | u64::from(value);
        let high = |was: u64| was & 0xFFFF_FFFF | u64::from(value) << 32;
        // Bits 11:0 of a queue's base are reserved.
        let base = |value: u64| value & !0xFFF;
        match offset {
            offset::INTMS => self.interrupt_mask |= value,
            offset::INTMC => self.interrupt_mask &= !value,
            offset::CC => return self.configure(Cc::from_bits(value)),
            // NSSRO is cleared by writing 1; no other field can be written.
            offset::CSTS => self.nssro &= !Csts::from_bits(value).nssro(),
            offset::AQA | offset::ASQ | ASQ_HIGH | offset::ACQ | ACQ_HIGH if self.cc.en() => {
                return Err(Violation::AdminQueueChanged { offset });
            }
            offset::AQA => self.aqa = Aqa::from_bits(value & 0x0FFF_0FFF),
            offset::ASQ => self.asq = base(low(self.asq)),
            ASQ_HIGH => self.asq = high(self.asq),
            offset::ACQ => self.acq = base(low(self.acq)),
            ACQ_HIGH => self.acq = high(self.acq),
            _ => self.memory_buffer.write(offset, value),
        }
        Ok(())
    }

    /// Whether a turn of the executor has something to do here.
    pub(super) fn unsettled(&self) -> bool {
        self.untold.is_some()
            || self.shutdown.is_some()
            || matches!(self.phase, Phase::Enabling(_) | Phase::Disabling(_))
    }

    /// One turn passes. The executor does what it is told before the registers can be read again.
    pub(super) fn tick(&mut self) -> Option<Transition> {
        if let Some(untold) = self.untold.take() {
            return Some(untold);
        }
        match self.phase {
            Phase::Enabling(0) => {
                self.phase = Phase::Ready;
                self.csts = self.csts.with_rdy(true);
                return Some(Transition::Start(AdminQueues {
                    asq: self.asq,
                    asqs: self.aqa.asqs().count(),
                    acq: self.acq,
                    acqs: self.aqa.acqs().count(),
                    page_size: self.cc.page_size(),
                }));
            }
            Phase::Enabling(left) => self.phase = Phase::Enabling(left - 1),
            Phase::Disabling(0) => {
                self.csts = Csts::default();
                self.phase = Phase::Disabled;
                if self.cc.en() {
                    // Set too early, and recorded as such; it takes effect now.
                    let _ = self.enable();
                }
            }
            Phase::Disabling(left) => self.phase = Phase::Disabling(left - 1),
            Phase::Disabled | Phase::Ready | Phase::Fatal | Phase::Stuck => {}
        }
        match self.shutdown {
            Some(0) => {
                self.shutdown = None;
                self.csts = self.csts.with_shst(ShutdownStatus::COMPLETE);
                Some(Transition::ShutDown)
            }
            left => {
                self.shutdown = left.map(|left| left - 1);
                None
            }
        }
    }

    /// The controller has met what it cannot go on with (CSTS.CFS).
    pub(super) fn fail(&mut self) {
        self.csts = self.csts.with_cfs(true);
    }

    /// A reset that leaves nothing: all is as after power on, at once.
    pub(super) fn power_on(&mut self) {
        (self.cc, self.csts, self.aqa) = (Cc::default(), Csts::default(), Aqa::default());
        (self.asq, self.acq, self.interrupt_mask) = (0, 0, 0);
        (self.phase, self.shutdown, self.untold) = (Phase::Disabled, None, Some(Transition::Stop));
        self.memory_buffer.reset();
    }

    /// The controller's firmware starts anew. Where its admin queues are is kept over a reset of a controller (Base 2.1,
    /// 3.7.2).
    pub(super) fn reset_itself(&mut self) {
        let admin_queues = (self.aqa, self.asq, self.acq);
        self.power_on();
        (self.aqa, self.asq, self.acq) = admin_queues;
    }

    fn configure(&mut self, cc: Cc) -> Result<(), Violation> {
        let was = self.cc;
        let shutdown = cc.shn() != ShutdownNotification::NONE && cc.shn() != was.shn();
        let mut verdict = Ok(());
        match (was.en(), cc.en()) {
            (false, true) => {
                self.cc = cc;
                if self.csts.rdy() {
                    return Err(Violation::EnabledWhileReady);
                }
                return self.enable();
            }
            (true, false) => {
                self.cc = cc;
                self.reset();
                return Ok(());
            }
            (true, true) => {
                // CSS, MPS, AMS and CRIME hold still while EN is 1; IOSQES and IOCQES count when a queue is created.
                if (was.bits() ^ cc.bits()) & HELD_BITS != 0 {
                    verdict = Err(Violation::ConfigurationChanged { was: was.bits(), written: cc.bits() });
                }
                self.cc = Cc::from_bits(cc.bits() & !HELD_BITS | was.bits() & HELD_BITS);
            }
            (false, false) => self.cc = cc,
        }
        if shutdown && self.csts.shst() == ShutdownStatus::NORMAL_OPERATION {
            self.csts = self.csts.with_shst(ShutdownStatus::IN_PROGRESS);
            self.shutdown = Some(self.shutdown_delay);
        }
        verdict
    }

    fn enable(&mut self) -> Result<(), Violation> {
        let verdict = self.usable();
        let fatal = verdict.is_err() || self.faults.take(Kind::FatalAtEnable).is_some();
        // A shutdown while EN was 0 ends here.
        self.shutdown = None;
        self.csts = Csts::default();
        if fatal {
            self.phase = Phase::Fatal;
            self.fail();
        } else if self.faults.take(Kind::NeverReady).is_some() {
            self.phase = Phase::Stuck;
        } else {
            self.phase = Phase::Enabling(self.ready_delay);
        }
        verdict
    }

    /// A Controller Reset: all but AQA, ASQ, ACQ and CMBMSC goes back to what it was.
    fn reset(&mut self) {
        self.interrupt_mask = 0;
        self.shutdown = None;
        if self.phase == Phase::Ready {
            self.leave_ready();
        } else if !self.csts.rdy() {
            self.csts = Csts::default();
            self.phase = Phase::Disabled;
        }
    }

    /// RDY begins to follow EN = 0, unless a fault keeps it from that.
    fn leave_ready(&mut self) {
        self.untold = Some(Transition::Stop);
        self.csts = Csts::default().with_rdy(true);
        if self.faults.take(Kind::FatalAtDisable).is_some() {
            self.phase = Phase::Fatal;
            self.fail();
        } else if self.faults.take(Kind::NeverUnready).is_some() {
            self.phase = Phase::Stuck;
        } else if let Some(Life::EarlyUnready { dma_turns }) = self.faults.take(Kind::EarlyUnready) {
            self.csts = Csts::default();
            self.phase = Phase::Disabled;
            self.untold = Some(Transition::Linger(dma_turns));
        } else {
            self.phase = Phase::Disabling(self.ready_delay);
        }
    }

    /// The drive is pulled. The executor goes on with DMA for `dma_turns`.
    pub(super) fn pull(&mut self, dma_turns: u32) {
        self.phase = Phase::Disabled;
        self.shutdown = None;
        self.untold = Some(if dma_turns > 0 { Transition::Linger(dma_turns) } else { Transition::Stop });
    }

    /// A fault: a fatal status out of nothing.
    pub(super) fn strike_fatal(&mut self) {
        self.fail();
        self.shutdown = None;
        if matches!(self.phase, Phase::Enabling(_)) {
            self.phase = Phase::Fatal;
        }
        // What has not been told is a reset, which ends all that this would.
        self.untold.get_or_insert(Transition::Fail);
    }

    /// An NVM Subsystem Reset (Base 2.1, 3.7.1).
    pub(super) fn reset_subsystem(&mut self) {
        self.power_on();
        self.nssro = true;
    }

    /// Whether the controller can work with CC, AQA, ASQ and ACQ as they are.
    fn usable(&self) -> Result<(), Violation> {
        let cc = self.cc;
        let misaligned = |base: u64| !base.is_multiple_of(cc.page_size());
        let wrong = |reason, value| Err(Violation::UnusableConfiguration { reason, value });
        if !(self.cap.mpsmin()..=self.cap.mpsmax()).contains(&cc.mps()) {
            return wrong("CC.MPS must be CAP.MPSMIN to CAP.MPSMAX", cc.mps().into());
        }
        if cc.css() != CommandSetSelected::NVM {
            return wrong("CC.CSS must be 0, the NVM Command Set", cc.css().raw().into());
        }
        if cc.ams() != ArbitrationMechanism::ROUND_ROBIN {
            return wrong("CC.AMS must be 0, round robin", cc.ams().raw().into());
        }
        if self.aqa.asqs().count() < 2 || self.aqa.acqs().count() < 2 {
            return wrong("the admin queues in AQA must have 2 entries or more", self.aqa.bits().into());
        }
        if misaligned(self.asq) || self.asq == 0 {
            return wrong("ASQ must be the address of a memory page", self.asq);
        }
        if misaligned(self.acq) || self.acq == 0 {
            return wrong("ACQ must be the address of a memory page", self.acq);
        }
        Ok(())
    }
}

const CAP_HIGH: u64 = offset::CAP + 4;
const ASQ_HIGH: u64 = offset::ASQ + 4;
const ACQ_HIGH: u64 = offset::ACQ + 4;
/// CC.CSS, CC.MPS, CC.AMS and CC.CRIME.
const HELD_BITS: u32 = 0x7 << 4 | 0xF << 7 | 0x7 << 11 | 1 << 24;

#[cfg(test)]
mod tests;
