//! A controller that a test plays: registers, one admin queue, and a script that answers its commands.
//!
//! It takes its turn in [`Function::pause`], so that everything happens in the test's thread.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use zerocopy::IntoBytes;

use super::{Controller, ControllerConfig, ControllerError};
use crate::bus::{BusError, Doorbell, Function};
use crate::dma::{Access, AddressSpace, DmaSpace, DmaView, Iova, IovaAllocator, IovaRange, MapError};
use crate::spec::ZeroesBased;
use crate::spec::command::{AdminOpcode, Cns, FeatureIdentifier, Sqe};
use crate::spec::completion::StatusField;
use crate::spec::identify::{IdentifyController, IdentifyControllerNvm};
use crate::spec::registers::{Cap, Cc, CommandSets, Csts, ShutdownNotification, ShutdownStatus, offset};
use crate::spec::status::{Status, StatusCode};

/// How a command is answered.
pub(super) enum Answer {
    /// Success, with data.
    Data(Vec<u8>),
    /// Success, with dword 0.
    Result(u32),
    /// An error.
    Status(StatusCode),
    /// Not yet: a request for events.
    Hold,
}

impl Answer {
    /// Success, with that structure.
    pub(super) fn page(page: &(impl IntoBytes + zerocopy::Immutable)) -> Option<Self> {
        Some(Self::Data(page.as_bytes().to_vec()))
    }
}

/// What a test says to a command, with the data that it hands over; nothing where the usual answer will do.
type Script = Box<dyn FnMut(&Sqe, &[u8]) -> Option<Answer> + Send>;

/// The memory that is mapped for it, and how many mappings there may be.
struct Memory(Mutex<Vec<(IovaRange, usize)>>, usize);

impl AddressSpace for Memory {
    fn page_size(&self) -> u64 {
        4096
    }

    unsafe fn map(&self, range: IovaRange, base: NonNull<u8>, _: Access) -> Result<(), MapError> {
        let (mut mappings, limit) = (self.0.lock().unwrap(), self.1);
        if mappings.len() == limit {
            return Err(MapError::EntryLimit { range, limit });
        }
        mappings.push((range, base.as_ptr() as usize));
        Ok(())
    }

    fn unmap(&self, range: IovaRange) -> Result<(), MapError> {
        self.0.lock().unwrap().retain(|(mapped, _)| *mapped != range);
        Ok(())
    }
}

impl Memory {
    /// `len` bytes at `iova`; an address that is not mapped is the driver's mistake.
    fn view(&self, iova: u64, len: usize) -> DmaView<'_> {
        let mappings = self.0.lock().unwrap();
        let inside = |range: &IovaRange| range.start().get() <= iova && iova + len as u64 <= range.end();
        let (range, base) = mappings.iter().find(|(range, _)| inside(range)).expect("the address is mapped");
        let base = NonNull::new((*base + (iova - range.start().get()) as usize) as *mut u8).unwrap();
        // SAFETY: the driver keeps what it has mapped until it unmaps it, and the test, which is its only thread, does
        // not let it do so before the view is gone.
        unsafe { DmaView::new(base, len) }
    }
}

struct State {
    cap: Cap,
    cc: Cc,
    aqa: u32,
    asq: u64,
    acq: u64,
    tail: u16,
    head: u16,
    completion_tail: u16,
    phase: bool,
    identify: IdentifyController,
    script: Script,
    held: Vec<u16>,
    commands: Vec<Sqe>,
    /// How often it was given the processor since EN was last cleared, before CSTS was read.
    left_alone: u32,
    csts_read: bool,
}

/// The function; clones are of the same one.
#[derive(Clone)]
pub(super) struct Puppet {
    memory: Arc<Memory>,
    space: Arc<DmaSpace>,
    state: Arc<Mutex<State>>,
}

struct Bell(Arc<Mutex<State>>, bool);

impl Doorbell for Bell {
    fn ring(&self, value: u16) {
        if self.1 {
            self.0.lock().unwrap().tail = value;
        }
    }
}

impl Puppet {
    pub(super) fn new(
        identify: IdentifyController,
        script: impl FnMut(&Sqe, &[u8]) -> Option<Answer> + Send + 'static,
    ) -> Self {
        Self::with_mappings(usize::MAX, identify, script)
    }

    /// One whose address space holds no more than so many mappings.
    pub(super) fn with_mappings(
        limit: usize,
        identify: IdentifyController,
        script: impl FnMut(&Sqe, &[u8]) -> Option<Answer> + Send + 'static,
    ) -> Self {
        let memory = Arc::new(Memory(Mutex::default(), limit));
        let range = IovaRange::new(Iova::new(0x10_0000).unwrap(), 1 << 40).unwrap();
        let space = DmaSpace::new(Arc::clone(&memory) as Arc<dyn AddressSpace>, IovaAllocator::new(&[range], &[]));
        let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127)).with_to(1).with_css(CommandSets::NVM);
        let state = State {
            cap,
            cc: Cc::from_bits(0),
            aqa: 0,
            asq: 0,
            acq: 0,
            tail: 0,
            head: 0,
            completion_tail: 0,
            phase: true,
            identify,
            script: Box::new(script),
            held: Vec::new(),
            commands: Vec::new(),
            left_alone: 0,
            csts_read: false,
        };
        Self { memory, space, state: Arc::new(Mutex::new(state)) }
    }

    pub(super) fn enable(&self, config: ControllerConfig) -> Result<Controller, ControllerError> {
        Controller::enable(Arc::new(self.clone()), config)
    }

    /// A controller that is known to be enabled.
    #[track_caller]
    pub(super) fn controller(&self) -> Controller {
        self.enable(ControllerConfig::default()).unwrap()
    }

    /// Whether CC.EN is 1.
    pub(super) fn is_enabled(&self) -> bool {
        self.state().cc.en()
    }

    /// The commands that it has fetched, of that opcode.
    pub(super) fn fetched(&self, opcode: AdminOpcode) -> Vec<Sqe> {
        self.state().commands.iter().filter(|sqe| sqe.admin_opcode() == opcode).copied().collect()
    }

    /// How many requests for events it holds.
    pub(super) fn held(&self) -> usize {
        self.state().held.len()
    }

    /// The entries of the admin submission queue (AQA).
    pub(super) fn admin_entries(&self) -> u32 {
        (self.state().aqa & 0xFFF) + 1
    }

    /// How often it was given the processor after EN was last cleared, before anybody read CSTS.
    pub(super) fn left_alone(&self) -> u32 {
        self.state().left_alone
    }

    /// Reports an event.
    #[track_caller]
    pub(super) fn report(&self, event: u32) {
        let mut state = self.state();
        let cid = state.held.remove(0);
        self.complete(&mut state, cid, Status::SUCCESS, event);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Executes what is in the admin submission queue.
    fn turn(&self) {
        loop {
            let mut state = self.state();
            if !state.cc.en() || state.head == state.tail {
                return;
            }
            let mut words = [0u64; 8];
            self.memory.view(state.asq + u64::from(state.head) * 64, 64).read_words(0, &mut words);
            let sqe: Sqe = zerocopy::transmute!(words);
            state.head = (state.head + 1) % ((state.aqa & 0xFFF) as u16 + 1);
            state.commands.push(sqe);
            let handed = self.handed_over(&sqe);
            let answer = (state.script)(&sqe, &handed).unwrap_or_else(|| usual(&sqe, &state.identify));
            let (status, dw0) = match answer {
                Answer::Data(bytes) => {
                    self.memory.view(sqe.prp1, bytes.len()).write(0, &bytes);
                    (Status::SUCCESS, 0)
                }
                Answer::Result(dw0) => (Status::SUCCESS, dw0),
                Answer::Status(code) => (code.into(), 0),
                Answer::Hold => {
                    state.held.push(sqe.cid);
                    continue;
                }
            };
            self.complete(&mut state, sqe.cid, status, dw0);
        }
    }

    /// The data of a command that hands some over, which is contiguous for the device.
    fn handed_over(&self, sqe: &Sqe) -> Vec<u8> {
        let len = match sqe.admin_opcode() {
            AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD => sqe.firmware_numd().count() as usize * 4,
            AdminOpcode::SET_FEATURES if sqe.fid() == FeatureIdentifier::HOST_IDENTIFIER => {
                if sqe.exhid() {
                    16
                } else {
                    8
                }
            }
            _ => 0,
        };
        let mut bytes = vec![0; len];
        if len > 0 {
            self.memory.view(sqe.prp1, len).read(0, &mut bytes);
        }
        bytes
    }

    fn complete(&self, state: &mut State, cid: u16, status: Status, dw0: u32) {
        let view = self.memory.view(state.acq + u64::from(state.completion_tail) * 16, 16);
        view.write(0, &dw0.to_le_bytes());
        view.write(8, &u32::from(state.head).to_le_bytes());
        let field = StatusField::new(state.phase, status);
        view.atomic_u32(12).store(u32::from(field.bits()) << 16 | u32::from(cid), Ordering::Release);
        state.completion_tail += 1;
        if state.completion_tail == (state.aqa >> 16 & 0xFFF) as u16 + 1 {
            state.completion_tail = 0;
            state.phase = !state.phase;
        }
    }
}

/// What a controller without surprises answers.
fn usual(sqe: &Sqe, identify: &IdentifyController) -> Answer {
    match sqe.admin_opcode() {
        AdminOpcode::IDENTIFY if sqe.cns() == Cns::CONTROLLER => Answer::Data(identify.as_bytes().to_vec()),
        AdminOpcode::IDENTIFY if sqe.cns() == Cns::IO_COMMAND_SET_CONTROLLER => {
            Answer::Data(IdentifyControllerNvm::default().as_bytes().to_vec())
        }
        AdminOpcode::SET_FEATURES => Answer::Result(sqe.cdw11),
        AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST => Answer::Hold,
        AdminOpcode::CREATE_IO_COMPLETION_QUEUE | AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => Answer::Result(0),
        _ => Answer::Status(StatusCode::INVALID_COMMAND_OPCODE),
    }
}

impl Function for Puppet {
    fn name(&self) -> &str {
        "puppet"
    }

    fn read_u32(&self, at: u64) -> u32 {
        let mut state = self.state();
        let cap = state.cap.bits();
        match at {
            offset::CAP => cap as u32,
            at if at == offset::CAP + 4 => (cap >> 32) as u32,
            offset::CC => state.cc.bits(),
            offset::CSTS => {
                state.csts_read = true;
                let shut = if state.cc.shn() == ShutdownNotification::NONE {
                    ShutdownStatus::NORMAL_OPERATION
                } else {
                    ShutdownStatus::COMPLETE
                };
                Csts::from_bits(0).with_rdy(state.cc.en()).with_shst(shut).bits()
            }
            _ => 0,
        }
    }

    fn write_u32(&self, at: u64, value: u32) {
        let mut state = self.state();
        match at {
            offset::AQA => state.aqa = value,
            offset::CC => {
                state.cc = Cc::from_bits(value);
                if !state.cc.en() {
                    (state.left_alone, state.csts_read) = (0, false);
                    (state.head, state.tail, state.completion_tail, state.phase) = (0, 0, 0, true);
                    state.held.clear();
                }
            }
            _ => {}
        }
    }

    fn write_u64(&self, at: u64, value: u64) {
        match at {
            offset::ASQ => self.state().asq = value,
            offset::ACQ => self.state().acq = value,
            _ => {}
        }
    }

    fn doorbell(&self, at: u64) -> Result<Box<dyn Doorbell>, BusError> {
        Ok(Box::new(Bell(Arc::clone(&self.state), at == 0x1000)))
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.space
    }

    fn revoke_doorbells(&self) {}

    fn reset(&self) -> Result<(), BusError> {
        Err(BusError::NoReset)
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        Ok(())
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        Ok(())
    }

    fn cut_off(&self) {}

    fn pause(&self) {
        let mut state = self.state();
        state.left_alone += u32::from(!state.csts_read);
        drop(state);
        self.turn();
    }
}
