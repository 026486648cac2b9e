//! Memory of the caller, registered where it lies.

use std::sync::Arc;

use tentpeg_driver::dma::{Access, MapError, RegisterError};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu};

use super::*;
use crate::memory::own::Own;
use crate::{Devices, InPlaceError, MemoryError, RegisterOptions, SegmentLayout};
use TransferState::{Canceled, Completed, Invalid};

const BLOCK: u64 = 4096;

/// A stepped model with an IOMMU that the test keeps, and an engine on it.
pub(super) struct Rig {
    pub(super) bench: Bench,
    pub(super) iommu: Arc<SoftwareIommu>,
    pub(super) model: Model,
}

impl Rig {
    pub(super) fn new(queue_entries: u32, model: ModelConfig) -> Self {
        let iommu = SoftwareIommu::new();
        let blocks = model.size / BLOCK;
        let model = Model::new(model, Drive::Stepped, &iommu).unwrap();
        let config = EngineConfig { queue_entries, ..EngineConfig::default() };
        let mut devices = Devices::new(LaneMode::CallerDriven, config);
        devices.add(model.function(), true).unwrap();
        let (engine, lane) = devices.start(vec![SegmentLayout::whole("whole", 0, blocks)]).unwrap();
        let memory = engine.allocate_memory(16 * BLOCK as usize).unwrap();
        Self { bench: Bench { engine, lane: lane.unwrap(), memory }, iommu, model }
    }

    fn plain() -> Self {
        Self::new(16, ModelConfig { size: 1 << 20, ..ModelConfig::default() })
    }

    /// Both sides count the same, and the model has nothing to complain of. Closes the engine.
    #[track_caller]
    pub(super) fn close(self) {
        let Self { bench: Bench { engine, lane, .. }, model, .. } = self;
        let (ours, theirs) = (engine.counters(), model.counters());
        assert_eq!((ours.commands, ours.completions), (theirs.io_sqes, theirs.io_cqes));
        assert_eq!((ours.bytes_read, ours.bytes_written), (theirs.read_bytes, theirs.write_bytes));
        assert_eq!((ours.anomalies, theirs.faults, model.violations()), (0, 0, Vec::new()));
        engine.close_with(lane).unwrap();
    }

    pub(super) fn run(&mut self, requests: &[Request]) -> Vec<TransferState> {
        let batch = self.bench.submit(requests);
        self.bench.run();
        states(&batch)
    }
}

fn request(opcode: OpCode, source: u64, block: u64, length: u64) -> Request {
    Request { opcode, source, target_id: SegmentId(1), target_offset: block * BLOCK, length }
}

#[test]
fn requests_name_any_part_of_it_and_nothing_beside_it_is_touched() {
    let own = Own::new(8 * BLOCK as usize);
    let mut rig = Rig::plain();
    own.view().fill(0x5A);
    let (begin, len) = (100u64, 6 * BLOCK as usize + 1000);
    let memory = rig.bench.engine.register_memory(own.part(begin as usize, len), RegisterOptions::default()).unwrap();
    assert_eq!((memory.address(), memory.len()), (own.address() + begin, len));
    assert_eq!(memory.exposed_beside(), (100, BLOCK as usize - 1100));
    assert_eq!((memory.staged(), memory.pages().is_none(), memory.is_reached()), (None, true, true));
    own.view().slice(104, BLOCK as usize).fill(0x11);
    let at = |offset: u64| own.address() + offset;
    let states = rig.run(&[
        request(OpCode::Write, at(104), 3, BLOCK),
        request(OpCode::Read, at(begin + len as u64 - BLOCK), 7, BLOCK),
        request(OpCode::Read, at(begin + len as u64 - BLOCK + 4), 7, BLOCK),
        request(OpCode::Read, at(96), 7, BLOCK),
        request(OpCode::Read, at(102), 7, BLOCK),
    ]);
    assert_eq!(states, [Completed, Completed, Invalid, Invalid, Invalid]);
    assert_eq!(rig.run(&[request(OpCode::Read, at(begin + 2 * BLOCK), 3, BLOCK)]), [Completed]);
    let mut bytes = vec![0; 8 * BLOCK as usize];
    own.view().read(0, &mut bytes);
    let expected = |place: u64| match place {
        place if (104..104 + BLOCK).contains(&place) => 0x11,
        place if (begin + 2 * BLOCK..begin + 3 * BLOCK).contains(&place) => 0x11,
        place if (begin + len as u64 - BLOCK..begin + len as u64).contains(&place) => 0,
        _ => 0x5A,
    };
    assert_eq!((0..).zip(&bytes).find(|(place, byte)| **byte != expected(*place)), None);
    assert_eq!(rig.bench.engine.counters().bytes_staged, 0);
    rig.close();
}

#[test]
fn what_overlaps_is_refused_and_the_same_is_counted() {
    let own = Own::new(8 * BLOCK as usize);
    let mut rig = Rig::plain();
    let page = BLOCK as usize;
    let register = |rig: &Rig, at, len, options| rig.bench.engine.register_memory(own.part(at, len), options);
    let plain = RegisterOptions::default();
    let memory = register(&rig, page, 2 * page, plain).unwrap();
    let mappings = rig.iommu.mappings();
    for (at, len) in [(0, page + 1), (page, page), (2 * page, 1), (3 * page - 1, page), (0, 8 * page), (page, 3 * page)]
    {
        let refused = register(&rig, at, len, plain).unwrap_err();
        assert!(matches!(refused, MemoryError::Overlaps { .. }), "{refused}");
        assert!(refused.to_string().contains("register the whole once"), "{refused}");
    }
    let refused = register(&rig, page, 2 * page, RegisterOptions { staging: true, ..plain }).unwrap_err();
    assert!(matches!(refused, MemoryError::RegisteredOtherwise { .. }), "{refused}");
    let refused = register(&rig, 0, 1, RegisterOptions { access: Access::empty(), ..plain }).unwrap_err();
    assert!(matches!(refused, MemoryError::NoAccess { .. }), "{refused}");
    let again = register(&rig, page, 2 * page, plain).unwrap();
    assert_eq!(rig.iommu.mappings(), mappings, "a refusal maps nothing, and nor does the same memory again");
    // What touches it is another one's, though a page may be common to both.
    let beside = register(&rig, 3 * page, 10, plain).unwrap();
    let close = register(&rig, 3 * page + 10, 10, plain).unwrap();
    assert_eq!(rig.iommu.mappings(), mappings + 2);
    let read = request(OpCode::Read, own.address() + BLOCK, 0, 2 * BLOCK);
    rig.bench.engine.unregister_memory_with(memory.clone(), &mut rig.bench.lane);
    assert_eq!(rig.run(&[read]), [Completed], "it is registered once still");
    assert_eq!(rig.bench.engine.try_unregister_memory_with(again, &mut rig.bench.lane).map_err(|e| e.tasks), Ok(()));
    assert_eq!(rig.run(&[read]), [Invalid]);
    assert!(!memory.is_reached(), "a handle that is left keeps nothing of it");
    for memory in [memory, beside, close] {
        rig.bench.engine.unregister_memory_with(memory, &mut rig.bench.lane);
    }
    assert_eq!(rig.iommu.mappings(), mappings - 1);
    // And its addresses can be registered anew, whatever way.
    register(&rig, 0, 8 * page, plain).unwrap();
    rig.close();
}

#[test]
fn a_request_does_what_the_memory_was_registered_for() {
    let own = Own::new(4 * BLOCK as usize);
    let mut rig = Rig::plain();
    let half = 2 * BLOCK as usize;
    for (at, access) in [(0, Access::DEVICE_READS), (half, Access::DEVICE_WRITES)] {
        let memory = own.part(at, half);
        rig.bench.engine.register_memory(memory, RegisterOptions { access, staging: true }).unwrap();
    }
    let to = |opcode, at: u64| request(opcode, own.address() + at, 1, BLOCK);
    let states = rig.run(&[
        to(OpCode::Write, 0),
        to(OpCode::Read, 0),
        to(OpCode::Write, 2 * BLOCK),
        to(OpCode::Read, 2 * BLOCK),
        to(OpCode::Write, 1),
        to(OpCode::Read, 1),
        to(OpCode::Write, 2 * BLOCK + 1),
        to(OpCode::Read, 2 * BLOCK + 1),
    ]);
    assert_eq!(states, [Completed, Invalid, Invalid, Completed, Completed, Invalid, Invalid, Completed]);
    rig.close();
}

#[test]
fn what_devices_cannot_be_given_is_refused() {
    let own = Own::new(4 * BLOCK as usize);
    let rig = Rig::plain();
    rig.iommu.limit_mappings(rig.iommu.mappings());
    let refused = rig.bench.engine.register_memory(own.part(0, 4096), RegisterOptions::default()).unwrap_err();
    let by_the_limit = matches!(
        refused,
        MemoryError::InPlace(InPlaceError::Register(RegisterError::Map(MapError::EntryLimit { .. })))
    );
    assert!(by_the_limit, "{refused}");
    rig.close();
}

/// Sub-ranges are found, and what is unregistered is not.
#[test]
fn registered_memory_is_found_by_its_addresses() {
    let own = Own::new(4 * BLOCK as usize);
    let mut rig = Rig::plain();
    let memory = rig.bench.engine.register_memory(own.part(8, 100), RegisterOptions::default()).unwrap();
    let engine = &rig.bench.engine;
    let found = |at: u64, len| engine.memory_at(own.address() + at, len).map(|memory| memory.address());
    assert_eq!([found(8, 100), found(107, 1), found(50, 3)], [Some(memory.address()); 3]);
    assert_eq!([found(7, 1), found(108, 1), found(8, 101), found(8, u64::MAX)], [None; 4]);
    assert_eq!(engine.memory_at(rig.bench.memory.address(), 1).map(|found| found.len()), Some(rig.bench.memory.len()));
    rig.bench.engine.unregister_memory_with(memory, &mut rig.bench.lane);
    assert!(rig.bench.engine.memory_at(own.address() + 8, 1).is_none());
    rig.close();
}

/// What was issued runs to its end, what was not is given up, and then no device reaches it, whoever has a handle.
#[test]
fn it_is_the_caller_s_again_when_it_is_unregistered_or_the_engine_closed() {
    for closes in [false, true] {
        let own = Own::new(16 * BLOCK as usize);
        let mut rig = Rig::new(4, ModelConfig { size: 1 << 20, ..ModelConfig::default() });
        let memory =
            rig.bench.engine.register_memory(own.part(0, 16 * BLOCK as usize), RegisterOptions::default()).unwrap();
        let requests: Vec<_> =
            (0..16).rev().map(|block| request(OpCode::Read, own.address() + block * BLOCK, block, BLOCK)).collect();
        let batch = rig.bench.submit(&requests);
        rig.bench.lane.turn();
        let refused = rig.bench.engine.try_unregister_memory_with(memory.clone(), &mut rig.bench.lane).unwrap_err();
        assert!(refused.tasks > 0 && memory.is_reached());
        let Rig { bench: Bench { engine, mut lane, memory: _other }, model, .. } = rig;
        if closes {
            engine.close_with(lane).unwrap();
        } else {
            engine.unregister_memory_with(memory.clone(), &mut lane);
            engine.close_with(lane).unwrap();
        }
        assert!(!memory.is_reached());
        let ended = states(&batch);
        assert!(ended.iter().all(|state| matches!(state, Completed | Canceled)), "{ended:?}");
        assert!(ended.contains(&Completed) && ended.contains(&Canceled), "{ended:?}");
        assert_eq!(model.violations(), []);
    }
}
