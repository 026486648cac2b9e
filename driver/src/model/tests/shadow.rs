//! Doorbells in memory: a shadow is looked at while there is news, and then only when the doorbell is rung.

use std::sync::atomic::{Ordering, fence};

use super::super::{Drive, ModelConfig, Target, Violation};
use super::host::{Host, PATIENCE, Pair, small};
use crate::dma::{HostMemory, Region};
use crate::spec::command::{NvmOpcode, Sqe};
use crate::spec::events::AsynchronousEvent;
use crate::spec::registers::DoorbellKind;
use crate::spec::status::StatusCode;

fn config() -> ModelConfig {
    ModelConfig { shadow_doorbells: true, ..small() }
}

fn flush(cid: u16) -> Sqe {
    Sqe::nvm(NvmOpcode::FLUSH, 1).with_cid(cid)
}

/// The two buffers, and the host's side of the protocol by hand.
struct Buffers {
    shadow: Region<HostMemory>,
    event_idx: Region<HostMemory>,
    dstrd: u8,
}

impl Buffers {
    fn new(host: &Host, dstrd: u8) -> Self {
        let bytes = 4096usize << dstrd;
        Self { shadow: host.memory(bytes), event_idx: host.memory(bytes), dstrd }
    }

    fn configured(host: &mut Host) -> Self {
        let buffers = Self::new(host, 0);
        assert_eq!(host.code(buffers.config()), StatusCode::SUCCESS);
        buffers
    }

    fn config(&self) -> Sqe {
        Sqe::doorbell_buffer_config(self.shadow.iova().get(), self.event_idx.iova().get())
    }

    fn place(&self, qid: u16, kind: DoorbellKind) -> usize {
        (2 * usize::from(qid) + kind as usize) << (2 + self.dstrd)
    }

    fn read(&self, buffer: &Region<HostMemory>, qid: u16, kind: DoorbellKind) -> u32 {
        buffer.view().atomic_u32(self.place(qid, kind)).load(Ordering::Acquire)
    }

    fn event_idx(&self, qid: u16, kind: DoorbellKind) -> u32 {
        self.read(&self.event_idx, qid, kind)
    }

    /// Writes a shadow and says whether the doorbell must be rung.
    fn write(&self, qid: u16, kind: DoorbellKind, old: u32, new: u32) -> bool {
        self.shadow.view().atomic_u32(self.place(qid, kind)).store(new, Ordering::Release);
        fence(Ordering::SeqCst);
        let (event, old, new) = (self.event_idx(qid, kind) as u16, old as u16, new as u16);
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }

    /// Submits one entry and rings where that must be. Whether it did.
    fn submit(&self, pair: &mut Pair, sqe: Sqe) -> bool {
        let old = pair.tail;
        pair.push(sqe);
        let must = self.write(pair.sqid, DoorbellKind::SubmissionTail, old, pair.tail);
        if must {
            pair.ring();
        }
        must
    }

    /// Takes one completion, if it is there, and rings where that must be.
    fn take(&self, pair: &mut Pair) -> Option<u16> {
        let old = pair.head;
        let cqe = pair.peek()?;
        assert_eq!(cqe.status.status().code(), StatusCode::SUCCESS);
        if self.write(pair.sqid, DoorbellKind::CompletionHead, old, pair.head) {
            pair.cq_bell.ring(pair.head as u16);
        }
        Some(cqe.cid)
    }
}

const TAIL: DoorbellKind = DoorbellKind::SubmissionTail;

#[test]
fn a_controller_without_the_command_has_no_shadows() {
    let mut host = Host::new(small());
    let buffers = Buffers::new(&host, 0);
    assert_eq!(host.code(buffers.config()), StatusCode::INVALID_COMMAND_OPCODE);
}

#[test]
fn buffers_lie_on_memory_pages() {
    let mut host = Host::new(config());
    let buffers = Buffers::new(&host, 0);
    let (shadow, event_idx) = (buffers.shadow.iova().get(), buffers.event_idx.iova().get());
    for (prp1, prp2) in [(shadow + 4, event_idx), (shadow, event_idx + 2048), (0, event_idx), (shadow, 0)] {
        let code = host.code(Sqe::doorbell_buffer_config(prp1, prp2));
        assert_eq!(code, StatusCode::INVALID_FIELD_IN_COMMAND, "{prp1:#x} {prp2:#x}");
    }
    assert_eq!(host.code(buffers.config()), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn the_shadow_counts_and_the_doorbell_calls() {
    let mut host = Host::new(config());
    let buffers = Buffers::configured(&mut host);
    let mut pair = host.io_pair(1, 8);
    host.turns(3);
    assert_eq!(buffers.event_idx(1, TAIL), 0);

    // A host that does not ring when it must is not served, however long it waits.
    pair.push(flush(1));
    assert!(buffers.write(1, TAIL, 0, 1), "EventIdx asks for a ring");
    host.turns(PATIENCE);
    assert_eq!(pair.peek(), None);
    // The value of the ring does not count.
    pair.sq_bell.ring(7);
    host.turns(2);
    assert_eq!(buffers.take(&mut pair), Some(1));

    // Asleep again; a ring without news in the shadow changes nothing.
    host.turns(3);
    assert_eq!(buffers.event_idx(1, TAIL), 1);
    pair.sq_bell.ring(5);
    host.turns(5);
    assert_eq!(pair.peek(), None);

    // While it is awake it looks by itself.
    assert!(buffers.submit(&mut pair, flush(2)));
    host.turns(1);
    assert!(!buffers.submit(&mut pair, flush(3)), "EventIdx is behind: no ring is asked for");
    host.turns(1);
    assert_eq!((buffers.take(&mut pair), buffers.take(&mut pair)), (Some(2), Some(3)));
    assert_eq!(host.model.violations(), []);
}

#[test]
fn rings_go_round_and_both_buffers_have_the_stride_of_doorbells() {
    for dstrd in [0, 1, 10] {
        let mut host = Host::new(ModelConfig { dstrd, ..config() });
        let buffers = Buffers::new(&host, dstrd);
        assert_eq!(host.code(buffers.config()), StatusCode::SUCCESS);
        let mut pair = host.io_pair(3, 4);
        for cid in 0..20 {
            buffers.submit(&mut pair, flush(cid));
            host.turns(1 + usize::from(cid % 5));
            assert_eq!(buffers.take(&mut pair), Some(cid), "DSTRD {dstrd}");
        }
        assert_eq!(host.model.violations(), []);
    }
}

#[test]
fn a_completion_queue_that_was_full_goes_on_when_its_shadow_moves() {
    let mut host = Host::new(config());
    let buffers = Buffers::configured(&mut host);
    let mut pair = host.io_pair(1, 4);
    let mut ended = 0;
    for round in 0..5 {
        for cid in 0..3 {
            buffers.submit(&mut pair, flush(3 * round + cid));
            host.turns(1);
        }
        // Three completions fill the queue; all of it has gone to sleep by now.
        host.turns(10);
        for _ in 0..3 {
            assert_eq!(buffers.take(&mut pair), Some(ended));
            ended += 1;
            host.turns(4);
        }
    }
    assert_eq!(host.model.violations(), []);
}

#[test]
fn queues_that_there_are_keep_their_places() {
    let mut host = Host::new(config());
    let mut pair = host.io_pair(2, 8);
    for cid in 0..5 {
        assert_eq!(host.io_code(&mut pair, flush(cid)), StatusCode::SUCCESS);
    }
    let buffers = Buffers::configured(&mut host);
    assert_eq!(buffers.read(&buffers.shadow, 2, TAIL), 5);
    assert_eq!(buffers.read(&buffers.shadow, 2, DoorbellKind::CompletionHead), 5);
    for cid in 5..20 {
        buffers.submit(&mut pair, flush(cid));
        host.turns(2);
        assert_eq!(buffers.take(&mut pair), Some(cid));
    }
    // Other buffers take their place.
    let others = Buffers::configured(&mut host);
    buffers.shadow.view().fill(0xEE);
    for cid in 20..30 {
        others.submit(&mut pair, flush(cid));
        host.turns(2);
        assert_eq!(others.take(&mut pair), Some(cid));
    }
    assert_eq!(host.model.violations(), []);
}

#[test]
fn a_reset_ends_the_shadows() {
    let mut host = Host::new(config());
    let buffers = Buffers::configured(&mut host);
    let mut pair = host.io_pair(1, 8);
    buffers.submit(&mut pair, flush(1));
    host.turns(2);
    assert_eq!(buffers.take(&mut pair), Some(1));
    host.disable();
    buffers.shadow.view().fill(0xEE);
    host.enable();
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, flush(2)), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
}

#[test]
fn a_shadow_outside_its_queue_is_a_violation_and_an_event() {
    let mut host = Host::new(config());
    host.request_events(1);
    let buffers = Buffers::configured(&mut host);
    let pair = host.io_pair(1, 8);
    host.turns(3);
    assert!(buffers.write(1, TAIL, 0, 8));
    pair.ring();
    assert_eq!(host.events(), [AsynchronousEvent::INVALID_DOORBELL_WRITE_VALUE]);
    let [Violation::DoorbellOutOfRange { doorbell, value: 8, size: 8 }] = host.model.violations()[..] else {
        panic!("{:?}", host.model.violations());
    };
    assert_eq!((doorbell.qid, doorbell.kind), (1, TAIL));
}

#[test]
fn shadows_out_of_reach_are_fatal() {
    let mut host = Host::new(config());
    let buffers = Buffers::configured(&mut host);
    let _pair = host.io_pair(1, 8);
    let event_idx = buffers.event_idx.iova().get();
    drop(buffers.event_idx);
    host.turns(3);
    assert!(host.csts().cfs());
    let violations = host.model.violations();
    let [Violation::Dma { target: Target::ShadowDoorbell { doorbell }, address, .. }] = violations[..] else {
        panic!("{violations:?}");
    };
    let place = 2 * u64::from(doorbell.qid) + doorbell.kind as u64;
    assert_eq!(address, event_idx + 4 * place);
}

/// Host and controller in two threads, both of which sleep whenever there is nothing to do.
#[test]
fn no_ring_is_missed_by_a_thread() {
    const COMMANDS: u16 = 20_000;
    let mut host = Host::driven(config(), Drive::Threaded);
    let buffers = Buffers::configured(&mut host);
    let mut pair = host.io_pair(1, 8);
    let (mut submitted, mut ended, mut idle) = (0, 0, 0);
    while ended < COMMANDS {
        if submitted < COMMANDS && submitted - ended < 7 {
            buffers.submit(&mut pair, flush(submitted));
            submitted += 1;
        }
        match buffers.take(&mut pair) {
            Some(cid) => {
                assert_eq!(cid, ended);
                (ended, idle) = (ended + 1, 0);
            }
            None => {
                idle += 1;
                assert!(idle < PATIENCE * 10_000, "command {ended} of {submitted} got no answer");
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(host.model.violations(), []);
}
