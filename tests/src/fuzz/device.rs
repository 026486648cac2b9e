//! A device that a fuzzer plays.
//!
//! It keeps the protocol far enough for a driver to go on: it knows where its queues lie, fetches what the doorbells
//! tell of, and answers with the right CID and phase unless the input says otherwise. What it answers (registers,
//! completion entries, structures, log pages, data) is a sound device's answer with the input's changes, or the input
//! itself. It acts within the doorbell's write: a driver that waits has to look only once, so no time passes.
//!
//! Memory it reaches through its own [`Mappings`], which refuse what is not mapped; it also tries what is.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tentpeg_driver::bus::{BusError, Doorbell, Function};
use tentpeg_driver::dma::{AddressSpace, DmaSpace, Iova, IovaAllocator, IovaRange};
use tentpeg_driver::spec::command::{AdminOpcode, Cns, FeatureIdentifier, Sqe};
use tentpeg_driver::spec::registers::{Aqa, Cap, Cc, DoorbellKind, doorbell_offset, offset};
use zerocopy::{FromBytes, IntoBytes};

use super::Input;
use super::mappings::Mappings;

/// A sound device's CAP: 64 entries, NVM command set, pages of 4 KiB to 64 KiB, time-outs of 0.
const CAP: u64 = 0x3f | 1 << 16 | 1 << 37 | 4 << 52;
/// A sound device's VS: 2.0.
const VS: u32 = 0x2_0000;
/// The end of its registers.
const END: u64 = 0x1000 + (1 << 16);
/// The most queues it keeps.
const QUEUES: usize = 8;
/// The most completions it writes at once.
const BURST: u8 = 16;

/// A queue pair as the device sees it.
#[derive(Clone, Copy, Default)]
struct Queue {
    sq: u64,
    sq_entries: u32,
    head: u32,
    cq: u64,
    cq_entries: u32,
    tail: u32,
    wrapped: bool,
}

#[derive(Default)]
struct State {
    cap: u64,
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    queues: [Queue; QUEUES],
    /// Whether every register read is the input's to change.
    strange: bool,
    /// What every register reads as, when nobody answers.
    gone: Option<u32>,
    /// Commands that wait for a completion which the input may give later: queue and CID.
    held: Vec<(usize, u16)>,
    /// Whether namespace lists go on for ever.
    endless: bool,
}

pub(super) struct Device {
    shared: Arc<Shared>,
    dma: Arc<DmaSpace>,
}

struct Shared {
    input: Arc<Mutex<Input>>,
    mappings: Arc<Mappings>,
    state: Mutex<State>,
    /// Doorbell handles of former epochs lead nowhere.
    epoch: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// A device that takes its answers from `input`.
    pub(super) fn new(input: Arc<Mutex<Input>>, mappings: Arc<Mappings>) -> Self {
        let range = |start: u64, len| Iova::new(start).and_then(|start| IovaRange::new(start, len));
        let aperture = range(0x1_0000, 1 << 40).expect("not empty");
        let translation: Arc<dyn AddressSpace> = mappings.clone();
        let dma = DmaSpace::new(translation, IovaAllocator::new(&[aperture], &[]));
        let state = {
            let mut input = lock(&input);
            let how = input.u8();
            let cap = if how & 1 != 0 { CAP ^ input.u64() } else { CAP };
            State { cap, strange: how & 2 != 0, endless: how & 4 != 0, ..State::default() }
        };
        let shared = Shared { input, mappings, state: Mutex::new(state), epoch: AtomicU32::new(0) };
        Self { shared: Arc::new(shared), dma }
    }

    /// The device does something that nobody asked for.
    pub(super) fn act(&self) {
        let (mut state, mut input) = (lock(&self.shared.state), lock(&self.shared.input));
        self.shared.stray(&mut state, &mut input);
    }
}

impl Shared {
    fn read(&self, at: u64) -> u32 {
        let (mut state, mut input) = (lock(&self.state), lock(&self.input));
        if let Some(value) = state.gone {
            return value;
        }
        let value = match at {
            offset::CAP => state.cap as u32,
            0x04 => (state.cap >> 32) as u32,
            offset::VS => VS,
            offset::CC => state.cc,
            offset::CSTS => state.csts,
            offset::AQA => state.aqa,
            _ => 0,
        };
        if !state.strange {
            return value;
        }
        match input.u8() {
            0..0xE0 => value,
            0xE0..0xF0 => value ^ 1 << (input.u8() & 31),
            0xF0..0xFC => input.u32(),
            0xFC | 0xFD => {
                state.gone = Some(u32::MAX);
                u32::MAX
            }
            _ => {
                state.gone = Some(0);
                0
            }
        }
    }

    fn write(&self, at: u64, value: u32) {
        let (mut state, mut input) = (lock(&self.state), lock(&self.input));
        let halves = |old: u64, low: bool| match low {
            true => old & !u64::from(u32::MAX) | u64::from(value),
            false => old & u64::from(u32::MAX) | u64::from(value) << 32,
        };
        match at {
            offset::CC => self.configure(&mut state, &mut input, value),
            offset::AQA => state.aqa = value,
            offset::ASQ => state.asq = halves(state.asq, true),
            0x2C => state.asq = halves(state.asq, false),
            offset::ACQ => state.acq = halves(state.acq, true),
            0x34 => state.acq = halves(state.acq, false),
            _ => {}
        }
    }

    fn configure(&self, state: &mut State, input: &mut Input, value: u32) {
        let (was, cc) = (Cc::from_bits(state.cc), Cc::from_bits(value));
        state.cc = value;
        if cc.en() && !was.en() {
            let aqa = Aqa::from_bits(state.aqa);
            state.queues = [Queue::default(); QUEUES];
            state.held.clear();
            state.queues[0] = Queue {
                sq: state.asq,
                sq_entries: aqa.asqs().count(),
                cq: state.acq,
                cq_entries: aqa.acqs().count(),
                ..Queue::default()
            };
        }
        let shutdown = u32::from(cc.shn().raw() != 0) << 3;
        state.csts = match input.u8() {
            0..0xF0 => u32::from(cc.en()) | shutdown,
            0xF0..0xF8 => state.csts,
            0xF8..0xFB => u32::from(cc.en()) | 2,
            _ => input.u32(),
        };
    }

    /// A doorbell of the present life is rung.
    fn ring(&self, qid: u16, kind: DoorbellKind, value: u16) {
        let (mut state, mut input) = (lock(&self.state), lock(&self.input));
        assert!(Cc::from_bits(state.cc).en(), "a doorbell was rung while CC.EN was 0");
        let place = usize::from(qid);
        let Some(queue) = state.queues.get(place).copied() else { return };
        if kind == DoorbellKind::CompletionHead {
            // A queue that the device was not told of, or let go of, has no size to compare with.
            assert!(queue.cq_entries == 0 || u32::from(value) < queue.cq_entries, "head {value} of CQ {qid}");
            return;
        }
        assert!(queue.sq_entries == 0 || u32::from(value) < queue.sq_entries, "tail {value} of SQ {qid}");
        while state.queues[place].sq_entries != 0 && state.queues[place].head != u32::from(value) {
            let queue = &mut state.queues[place];
            let mut bytes = [0; 64];
            let there = self.mappings.read(queue.sq + u64::from(queue.head) * 64, &mut bytes);
            assert!(there, "SQ {qid} is not mapped");
            queue.head = (queue.head + 1) % queue.sq_entries;
            let sqe = Sqe::read_from_bytes(&bytes).expect("64 bytes");
            self.answer(&mut state, &mut input, place, &sqe);
        }
    }

    fn answer(&self, state: &mut State, input: &mut Input, place: usize, sqe: &Sqe) {
        let how = input.u8();
        if place == 0 && sqe.admin_opcode() == AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST && how < 0xF0 {
            state.held.push((place, sqe.cid));
            return;
        }
        let (mut dw0, mut status) = (0, 0u16);
        if place == 0 {
            dw0 = self.admin(state, input, sqe);
        } else {
            self.mappings.write(sqe.prp1, &[how; 64]);
        }
        // Most answers are a success: else no input would get far.
        match how & 0x3F {
            0..0x30 => {}
            0x30..0x34 => status = input.u16() & !1,
            0x34 => status = 0x0B << 1,
            0x35 => return,
            0x36 => {
                if state.held.len() < 64 {
                    state.held.push((place, sqe.cid));
                }
                return;
            }
            0x37 => self.complete(state, place, sqe.cid, 0, 0, 0),
            0x38..0x3A => dw0 = input.u32(),
            0x3A => self.complete(state, place, input.u16(), 0, 0, 0),
            0x3B => return self.complete(state, place, sqe.cid, 0, 0, input.u16()),
            _ => self.stray(state, input),
        }
        self.complete(state, place, sqe.cid, dw0, status, 0);
    }

    /// Executes an admin command as far as a driver can see; its result.
    fn admin(&self, state: &mut State, input: &mut Input, sqe: &Sqe) -> u32 {
        match sqe.admin_opcode() {
            AdminOpcode::CREATE_IO_COMPLETION_QUEUE => {
                if let Some(queue) = state.queues.get_mut(sqe.qid() as usize) {
                    *queue = Queue { cq: sqe.prp1, cq_entries: sqe.qsize().count(), ..Queue::default() };
                }
            }
            AdminOpcode::CREATE_IO_SUBMISSION_QUEUE => {
                if let Some(queue) = state.queues.get_mut(sqe.qid() as usize) {
                    (queue.sq, queue.sq_entries, queue.head) = (sqe.prp1, sqe.qsize().count(), 0);
                }
            }
            AdminOpcode::DELETE_IO_SUBMISSION_QUEUE | AdminOpcode::DELETE_IO_COMPLETION_QUEUE => {
                if let Some(queue) = state.queues.get_mut(sqe.qid() as usize) {
                    *queue = Queue::default();
                }
            }
            AdminOpcode::SET_FEATURES | AdminOpcode::GET_FEATURES
                if sqe.fid() == FeatureIdentifier::NUMBER_OF_QUEUES =>
            {
                return 0x0003_0003;
            }
            AdminOpcode::GET_FEATURES => return input.u32(),
            AdminOpcode::IDENTIFY => self.data(input, sqe, identify(state, sqe)),
            AdminOpcode::GET_LOG_PAGE => self.data(input, sqe, vec![0; 4096]),
            _ => {}
        }
        0
    }

    /// Writes a structure, changed as the input says, to where the command wants it.
    fn data(&self, input: &mut Input, sqe: &Sqe, mut bytes: Vec<u8>) {
        match input.u8() {
            0..0x80 => {}
            0x80..0xF0 => {
                for _ in 0..=input.u8() & 7 {
                    let at = usize::from(input.u16()) % bytes.len();
                    let mut word = [0; 4];
                    input.fill(&mut word);
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].copy_from_slice(&word[..end - at]);
                }
            }
            0xF0..0xF8 => {
                let len = usize::from(input.u16()) % (bytes.len() + 1);
                input.fill(&mut bytes[..len]);
            }
            0xF8..0xFC => bytes.fill(0xFF),
            _ => return,
        }
        // The driver's buffer is one page, or goes on in the page of PRP2.
        for (place, page) in bytes.chunks(4096).zip([sqe.prp1, sqe.prp2]).map(|(chunk, page)| (page, chunk)) {
            for (index, piece) in page.chunks(64).enumerate() {
                self.mappings.write(place.wrapping_add(index as u64 * 64), piece);
            }
        }
    }

    /// Something that no sound device does.
    fn stray(&self, state: &mut State, input: &mut Input) {
        match input.u8() % 8 {
            // The answer to a command that it has held back.
            0 | 1 => {
                let number = usize::from(input.u8());
                if let Some(chosen) = number.checked_rem(state.held.len()) {
                    let (place, cid) = state.held.swap_remove(chosen);
                    self.complete(state, place, cid, input.u32(), input.u16() & !1, input.u16());
                }
            }
            2 => {
                let place = usize::from(input.u8()) % QUEUES;
                for _ in 0..input.u8() % BURST {
                    self.complete(state, place, input.u16(), input.u32(), input.u16() & !1, input.u16());
                }
            }
            // Into any mapping, where the driver lets it.
            3 | 4 => {
                if let Some(range) = self.mappings.range(input.u8().into()) {
                    let mut bytes = [0; 16];
                    let len = 1 + usize::from(input.u8()) % bytes.len();
                    input.fill(&mut bytes[..len]);
                    self.mappings.write(range.start().get() + u64::from(input.u32()) % range.len(), &bytes[..len]);
                }
            }
            5 => state.csts ^= input.u32(),
            6 => state.gone = input.choice(&[None, Some(u32::MAX), Some(0)]),
            _ => {
                self.mappings.write(input.u64(), &[0xA5; 8]);
            }
        }
    }

    /// Writes a completion entry where the driver looks for the next one. `sqhd` is added to the right one.
    fn complete(&self, state: &mut State, place: usize, cid: u16, dw0: u32, status: u16, sqhd: u16) {
        let queue = &mut state.queues[place];
        if queue.cq_entries == 0 {
            return;
        }
        let head = (queue.head as u16).wrapping_add(sqhd);
        let phase = u16::from(!queue.wrapped);
        let dwords = [dw0, 0, u32::from(head) | (place as u32) << 16, u32::from(cid) | u32::from(status | phase) << 16];
        if self.mappings.write(queue.cq + u64::from(queue.tail) * 16, dwords.as_bytes()) {
            queue.tail += 1;
            if queue.tail == queue.cq_entries {
                (queue.tail, queue.wrapped) = (0, !queue.wrapped);
            }
        }
    }
}

/// A sound device's answer to an Identify.
fn identify(state: &State, sqe: &Sqe) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    match sqe.cns() {
        Cns::CONTROLLER => {
            put(4, b"FUZZ");
            put(77, &[5]);
            put(80, &VS.to_le_bytes());
            // AERL, then SQES and CQES, NN, ONCS, and SGLs of any alignment.
            put(259, &[3]);
            put(512, &[0x66, 0x44]);
            put(516, &if state.endless { u32::MAX } else { 4 }.to_le_bytes());
            put(520, &[0xFF, 0x01]);
            put(536, &1u32.to_le_bytes());
        }
        Cns::NAMESPACE => {
            put(0, &1024u64.to_le_bytes());
            put(8, &1024u64.to_le_bytes());
            put(16, &1024u64.to_le_bytes());
            put(130, &[9]);
        }
        Cns::ACTIVE_NAMESPACE_LIST | Cns::ALLOCATED_NAMESPACE_LIST => {
            let most = if state.endless { 1024 } else { 1 };
            for index in 0..most {
                let nsid = sqe.nsid.wrapping_add(1 + index as u32);
                if state.endless || nsid == 1 {
                    put(index * 4, &nsid.to_le_bytes());
                }
            }
        }
        _ => {}
    }
    bytes
}

struct Bell {
    shared: Arc<Shared>,
    epoch: u32,
    qid: u16,
    kind: DoorbellKind,
}

impl Doorbell for Bell {
    fn ring(&self, value: u16) {
        if self.epoch == self.shared.epoch.load(Ordering::Relaxed) {
            self.shared.ring(self.qid, self.kind, value);
        }
    }
}

impl Function for Device {
    fn name(&self) -> &str {
        "a fuzzer's device"
    }

    fn read_u32(&self, offset: u64) -> u32 {
        self.shared.read(offset)
    }

    fn write_u32(&self, offset: u64, value: u32) {
        self.shared.write(offset, value);
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        let dstrd = Cap::from_bits(lock(&self.shared.state).cap).dstrd();
        let both = [DoorbellKind::SubmissionTail, DoorbellKind::CompletionHead];
        let found = (0..QUEUES as u16)
            .flat_map(|qid| both.map(|kind| (qid, kind)))
            .find(|(qid, kind)| doorbell_offset(dstrd, *qid, *kind) == offset);
        let (qid, kind) = found.ok_or(BusError::NoRegister { offset, end: END })?;
        let epoch = self.shared.epoch.load(Ordering::Relaxed);
        Ok(Box::new(Bell { shared: Arc::clone(&self.shared), epoch, qid, kind }))
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.dma
    }

    fn revoke_doorbells(&self) {
        self.shared.epoch.fetch_add(1, Ordering::Relaxed);
    }

    fn reset(&self) -> Result<(), BusError> {
        let (mut state, mut input) = (lock(&self.shared.state), lock(&self.shared.input));
        match input.u8() {
            0..0xC0 => {
                let State { cap, strange, endless, .. } = *state;
                *state = State { cap, strange, endless, gone: state.gone, ..State::default() };
                Ok(())
            }
            0xC0..0xE0 => Err(BusError::NoReset),
            _ => Err(BusError::Gone { what: "the reset" }),
        }
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        match lock(&self.shared.input).u8() {
            0..0xC0 => Ok(()),
            _ => Err(BusError::Gone { what: "bus mastering" }),
        }
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        self.disable_bus_mastering()
    }

    fn cut_off(&self) {
        lock(&self.shared.state).queues = [Queue::default(); QUEUES];
    }

    /// Nothing waits: what the device does, it does when a doorbell is rung.
    fn pause(&self) {}
}
