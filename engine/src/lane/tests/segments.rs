//! Segments over several devices, and how durable they are.

use std::time::Duration;

use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::model::{CacheConfig, Drive, IoCommandsConfig, Model, ModelConfig, SoftwareIommu, Survivors};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::status::StatusCode;

use super::*;
use crate::blocks::Blocks;
use crate::{BlockExtent, Devices, Durability, MemberLayout, OpenError, SegmentLayout};
use TransferState::{Canceled, Completed, Failed, Pending};

const BLOCK: u64 = 4096;

/// Stepped models that the test keeps, and an engine over them.
pub(super) struct Rig {
    pub(super) bench: Bench,
    models: Vec<Model>,
}

/// 64 blocks, four a command.
pub(super) fn small() -> ModelConfig {
    ModelConfig { size: 64 * BLOCK, mdts: 2, ..ModelConfig::default() }
}

pub(super) fn cached() -> ModelConfig {
    ModelConfig { cache_simulation: Some(CacheConfig { blocks: 1000, write_back: None }), ..small() }
}

/// A controller that is gone, or has lost its power, is noticed soon; a command may take its time, as this thread may
/// sleep for long on a busy machine.
fn watchful() -> EngineConfig {
    let mut config = EngineConfig { queue_entries: 16, ..EngineConfig::default() };
    config.controller.recovery.health_interval = Duration::from_millis(1);
    config
}

pub(super) fn member(device: usize, extents: &[(u64, u64)]) -> MemberLayout {
    let extents = extents.iter().map(|(slba, blocks)| BlockExtent::new(*slba, *blocks).unwrap());
    MemberLayout { device, extents: extents.collect() }
}

pub(super) fn layout(name: &str, durability: Durability, members: Vec<MemberLayout>) -> SegmentLayout {
    SegmentLayout { durability, members, chunk: 2 * BLOCK, ..SegmentLayout::whole(name, 0, 0) }
}

/// One segment on device 0, one on device 1, and a stripe of three, two blocks a chunk, 48 blocks.
pub(super) fn three(durability: Durability) -> Vec<SegmentLayout> {
    vec![
        layout("first", durability, vec![member(0, &[(0, 16)])]),
        layout("second", durability, vec![member(1, &[(40, 4), (8, 12)])]),
        layout(
            "stripe",
            durability,
            vec![member(2, &[(0, 16)]), member(0, &[(30, 10), (20, 6)]), member(1, &[(24, 16)])],
        ),
    ]
}

const STRIPE: SegmentId = SegmentId(3);

impl Rig {
    pub(super) fn new(configs: &[ModelConfig], layouts: Vec<SegmentLayout>) -> Self {
        let iommu = SoftwareIommu::new();
        let models: Vec<_> =
            configs.iter().map(|config| Model::new(config.clone(), Drive::Stepped, &iommu).unwrap()).collect();
        let mut devices = Devices::new(LaneMode::CallerDriven, watchful());
        for model in &models {
            devices.add(model.function(), true).unwrap();
        }
        let (engine, lane) = devices.start(layouts).unwrap();
        let memory = engine.allocate_memory(128 * BLOCK as usize).unwrap();
        Self { bench: Bench { engine, lane: lane.unwrap(), memory }, models }
    }

    fn on(&self, segment: SegmentId, request: Request) -> Request {
        Request { target_id: segment, ..request }
    }

    /// Has a batch run to its end.
    pub(super) fn finish(&mut self, batch: &Batch) {
        run_until(&mut self.bench.lane, |_| batch.overall().is_finished());
    }

    pub(super) fn transfer(
        &mut self,
        segment: SegmentId,
        opcode: OpCode,
        memory: u64,
        offset: u64,
        length: u64,
    ) -> Vec<TransferState> {
        let request = self.bench.request(opcode, memory, offset, length);
        let batch = self.bench.submit(&[self.on(segment, request)]);
        self.finish(&batch);
        states(&batch)
    }

    pub(super) fn flush(&mut self, segment: SegmentId) -> TransferState {
        let batch = self.bench.engine.allocate_batch(1).unwrap();
        self.bench.engine.submit_flush(&batch, segment).unwrap();
        self.finish(&batch);
        states(&batch)[0]
    }

    pub(super) fn fault(&self, device: usize, opcode: NvmOpcode, when: When, action: Action) {
        let opcode = Some(opcode.raw());
        self.models[device].faults().add(Rule { queue: CommandQueue::Io, opcode, when, action });
    }

    pub(super) fn lose_power(&self) {
        for model in &self.models {
            model.power_cut(Survivors::Nothing).unwrap();
        }
    }

    /// The devices as they are, once the engine has closed.
    fn close(self) -> (Vec<Vec<u8>>, Vec<Model>) {
        let Self { bench: Bench { engine, lane, .. }, models } = self;
        engine.close_with(lane).unwrap();
        let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
        let mut contents = Vec::new();
        for model in &models {
            let device = devices.add(model.function(), false).unwrap();
            let mut bytes = vec![0; 64 * BLOCK as usize];
            devices.get_mut(device).unwrap().blocks().unwrap().read(0, &mut bytes).unwrap();
            contents.push(bytes);
        }
        (contents, models)
    }
}

fn block_of(bytes: &[u8], block: u64) -> &[u8] {
    &bytes[(block * BLOCK) as usize..((block + 1) * BLOCK) as usize]
}

#[test]
fn a_stripe_lies_where_its_layout_says() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::None));
    assert_eq!(rig.bench.engine.segments()[2].capacity, 48 * BLOCK);
    assert_eq!(rig.bench.engine.segments()[2].chunk(), Some(2 * BLOCK));
    let length = 48 * BLOCK;
    rig.bench.fill(0, length, 9);
    let mut expected = vec![0; length as usize];
    rig.bench.memory.view().read(0, &mut expected);
    assert_eq!(rig.transfer(STRIPE, OpCode::Write, 0, 0, length), [Completed]);
    rig.bench.memory.view().fill(0xEE);
    assert_eq!(rig.transfer(STRIPE, OpCode::Read, 0, 0, length), [Completed]);
    rig.bench.check(0, length, 9);
    // From within a chunk into another, at an odd place in memory.
    assert_eq!(rig.transfer(STRIPE, OpCode::Read, 100 * BLOCK + 4, 3 * BLOCK, 7 * BLOCK), [Completed]);
    let mut found = vec![0; 7 * BLOCK as usize];
    rig.bench.memory.view().read(100 * BLOCK as usize + 4, &mut found);
    assert!(found[..] == expected[3 * BLOCK as usize..10 * BLOCK as usize]);
    let (devices, models) = rig.close();
    let homes: [(usize, Vec<u64>); 3] =
        [(2, (0..16).collect()), (0, (30..40).chain(20..26).collect()), (1, (24..40).collect())];
    for block in 0..48u64 {
        let (chunk, within) = (block / 2, block % 2);
        let (device, blocks) = &homes[(chunk % 3) as usize];
        let home = blocks[(chunk / 3 * 2 + within) as usize];
        assert!(block_of(&devices[*device], home) == block_of(&expected, block), "block {block}");
    }
    // And nowhere else.
    let filled =
        |bytes: &Vec<u8>| (0..64).filter(|block| block_of(bytes, *block).iter().any(|byte| *byte != 0)).count();
    assert_eq!(devices.iter().map(filled).sum::<usize>(), 48);
    assert!(models.iter().all(|model| model.violations().is_empty()));
}

/// Chunks of a device that follow each other there are one command, scattered in memory.
#[test]
fn a_long_read_of_a_stripe_is_few_commands() {
    let configs =
        [ModelConfig { mdts: 5, ..small() }, ModelConfig { mdts: 5, ..small() }, ModelConfig { mdts: 5, ..small() }];
    let mut rig = Rig::new(&configs, three(Durability::None));
    assert_eq!(rig.transfer(STRIPE, OpCode::Read, 0, 0, 48 * BLOCK), [Completed]);
    let reads: Vec<_> = rig.models.iter().map(|model| model.counters().reads).collect();
    assert_eq!(reads, [2, 1, 1], "the member on device 0 has two extents");
    check_both_sides(&rig);
}

#[track_caller]
fn check_both_sides(rig: &Rig) {
    for (device, model) in rig.bench.engine.devices().zip(&rig.models) {
        let (ours, theirs) = (device.counters(), model.counters());
        assert_eq!((ours.commands, ours.completions), (theirs.io_sqes, theirs.io_cqes));
        assert_eq!((ours.reads, ours.writes, ours.flushes), (theirs.reads, theirs.writes, theirs.flushes));
        assert_eq!((ours.write_zeroes, ours.deallocations), (theirs.write_zeroes, theirs.dataset_managements));
        assert_eq!((ours.bytes_read, ours.bytes_written), (theirs.read_bytes, theirs.write_bytes));
        assert_eq!(model.violations(), []);
    }
}

/// A device that fails takes its own segments with it and no other.
#[test]
fn one_device_fails_and_the_others_go_on() {
    for life in [Life::AllOnes { dma_turns: 3 }, Life::AllZeroes { dma_turns: 0 }] {
        let mut rig = Rig::new(&[small(), small(), small()], three(Durability::None));
        rig.models[1].faults().arm(At::Command(3), life);
        let engine = &rig.bench.engine;
        let batch = engine.allocate_batch(64).unwrap();
        for block in 0..16 {
            for segment in [1, 2] {
                let request = rig.bench.write(block * BLOCK, block * BLOCK, BLOCK);
                engine.submit(&batch, &[rig.on(SegmentId(segment), request)]).unwrap();
            }
        }
        let whole = rig.bench.read(64 * BLOCK, 0, 48 * BLOCK);
        engine.submit(&batch, &[rig.on(STRIPE, whole)]).unwrap();
        rig.finish(&batch);
        let states = states(&batch);
        assert!(states.iter().step_by(2).take(16).all(|state| *state == Completed), "the first segment: {states:?}");
        assert_eq!((states[31], states[32]), (Failed, Failed), "the second, and the stripe");
        // Later requests: those that touch the device fail at once, the others do not.
        assert_eq!(rig.transfer(SegmentId(1), OpCode::Read, 0, 0, 16 * BLOCK), [Completed]);
        assert_eq!(rig.transfer(SegmentId(2), OpCode::Read, 0, 0, BLOCK), [Failed]);
        assert_eq!(rig.transfer(STRIPE, OpCode::Write, 0, 0, 48 * BLOCK), [Failed]);
        assert_eq!(rig.flush(SegmentId(2)), Failed);
        assert_eq!(rig.flush(SegmentId(1)), Completed);
        assert!(rig.models.iter().all(|model| model.violations().is_empty()));
        rig.bench.engine.close_with(rig.bench.lane).unwrap_err();
    }
}

#[test]
fn a_spread_task_is_canceled_whole_or_runs_to_its_end() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::None));
    let whole = rig.bench.read(0, 0, 48 * BLOCK);
    let batch = rig.bench.submit(&[rig.on(STRIPE, whole)]);
    batch.cancel();
    rig.finish(&batch);
    assert_eq!(states(&batch), [Canceled]);
    assert_eq!(rig.bench.engine.counters().commands, 0);
    let batch = rig.bench.submit(&[rig.on(STRIPE, whole)]);
    rig.bench.lane.turn();
    batch.cancel();
    rig.finish(&batch);
    assert_eq!(states(&batch), [Completed], "it was begun everywhere");
    check_both_sides(&rig);
}

/// Whatever goes first: every task ends, and nothing is written afterwards.
#[test]
fn a_stripe_whose_lane_or_engine_goes_ends_its_tasks() {
    for lane_first in [true, false] {
        let rig = Rig::new(&[small(), small(), small()], three(Durability::Flush));
        let whole = rig.bench.read(0, 0, 48 * BLOCK);
        let writes = rig.bench.write(64 * BLOCK, 0, 48 * BLOCK);
        let batch = rig.bench.submit(&[rig.on(STRIPE, whole), rig.on(STRIPE, writes), rig.on(STRIPE, whole)]);
        let Rig { bench: Bench { engine, mut lane, memory }, models: _models } = rig;
        lane.turn();
        if lane_first {
            drop(lane);
            assert!(batch.overall().is_finished());
            drop(engine);
        } else {
            drop(engine);
            assert_eq!(states(&batch)[2], Pending, "nobody has told it");
            run_until(&mut lane, Lane::is_idle);
        }
        assert_eq!(batch.overall(), BatchStatus { tasks: 3, ended: 3, unsuccessful: 3 });
        memory.view().fill(0xEE);
    }
}

#[test]
fn closing_an_engine_of_several_devices_ends_every_task() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::Flush));
    let whole = rig.bench.write(0, 0, 48 * BLOCK);
    let batch = rig.bench.submit(&[rig.on(STRIPE, whole), rig.on(SegmentId(2), rig.bench.write(0, 0, 16 * BLOCK))]);
    rig.bench.lane.turn();
    let late = rig.bench.submit(&[rig.on(STRIPE, whole)]);
    rig.bench.engine.close_with(rig.bench.lane).unwrap();
    assert!(states(&batch).iter().all(|state| matches!(state, Completed | Canceled)), "{:?}", states(&batch));
    assert_eq!(states(&late), [Canceled]);
}

/// Each lane has a thread of its own, and one of the devices stalls.
#[test]
fn threads_serve_a_stripe_together() {
    let mut config = watchful();
    config.controller.recovery.command_timeout = Duration::from_millis(200);
    config.controller.recovery.abort_timeout = Duration::from_millis(200);
    let mut devices = Devices::new(LaneMode::Thread, config);
    for _ in 0..3 {
        devices.open("model:size=256KiB,mdts=2").unwrap();
    }
    let (engine, lane) = devices.start(three(Durability::Flush)).unwrap();
    assert!(lane.is_none());
    let memory = engine.allocate_memory(128 * BLOCK as usize).unwrap();
    engine.device(1).unwrap().faults().unwrap().add(Rule {
        queue: CommandQueue::Io,
        opcode: None,
        when: When::Nth(5),
        action: Action::Drop { execute: false },
    });
    for round in 1..20u8 {
        memory.view().slice(0, 48 * BLOCK as usize).fill(round);
        for (opcode, at) in [(OpCode::Write, 0), (OpCode::Read, 64 * BLOCK)] {
            let source = memory.address() + at;
            let request = Request { opcode, source, target_id: STRIPE, target_offset: 0, length: 48 * BLOCK };
            let batch = engine.allocate_batch(1).unwrap();
            engine.submit(&batch, &[request]).unwrap();
            assert_eq!(batch.wait(Duration::from_secs(60)).unwrap().unsuccessful, 0);
        }
        let mut found = vec![0; 48 * BLOCK as usize];
        memory.view().read(64 * BLOCK as usize, &mut found);
        assert!(found.iter().all(|byte| *byte == round), "round {round}");
    }
    assert!(engine.device(1).unwrap().recovery_counters().unwrap().interrupted >= 1);
    assert_eq!(engine.violations(), []);
    engine.close().unwrap();
}

/// One write, and a loss of power after it was COMPLETED.
#[test]
fn a_completed_write_outlives_a_loss_of_power_where_that_was_asked_for() {
    for (durability, survives) in [(Durability::None, false), (Durability::Fua, true), (Durability::Flush, true)] {
        for segment in [SegmentId(1), STRIPE] {
            let mut rig = Rig::new(&[cached(), cached(), cached()], three(durability));
            rig.bench.fill(0, 16 * BLOCK, 5);
            assert_eq!(rig.transfer(segment, OpCode::Write, 0, 0, 16 * BLOCK), [Completed]);
            rig.lose_power();
            assert_eq!(rig.transfer(segment, OpCode::Read, 64 * BLOCK, 0, 16 * BLOCK), [Completed]);
            if survives {
                rig.bench.check(64 * BLOCK, 16 * BLOCK, 5);
                assert_eq!(rig.flush(segment), Completed);
            } else {
                assert!(!rig.bench.is_touched(64 * BLOCK, 16 * BLOCK, 0), "it was in the cache only");
                // That it is lost is said once, to whoever asks for it to be durable.
                assert_eq!(rig.flush(segment), Failed);
                assert_eq!(rig.flush(segment), Completed);
            }
        }
    }
}

/// Power goes between a write's completion and the Flush that it waits for: it is written again.
#[test]
fn a_write_that_waited_for_a_flush_is_written_again_after_a_loss_of_power() {
    for lost_at in 1..12 {
        let mut rig = Rig::new(&[cached(), cached(), cached()], three(Durability::Flush));
        rig.bench.fill(0, 8 * BLOCK, 6);
        let write = rig.bench.write(0, 0, 8 * BLOCK);
        let batch = rig.bench.submit(&[rig.on(SegmentId(1), write)]);
        for _ in 0..lost_at {
            rig.bench.lane.turn();
        }
        rig.lose_power();
        rig.finish(&batch);
        assert_eq!(states(&batch), [Completed], "after {lost_at} turns");
        rig.lose_power();
        assert_eq!(rig.transfer(SegmentId(1), OpCode::Read, 64 * BLOCK, 0, 8 * BLOCK), [Completed]);
        rig.bench.check(64 * BLOCK, 8 * BLOCK, 6);
    }
}

#[test]
fn one_flush_serves_all_that_wait_and_none_is_needed_without_a_cache() {
    for (durability, cache, flushes) in [
        (Durability::Flush, true, 1..=4),
        (Durability::Flush, false, 0..=0),
        (Durability::Fua, true, 0..=0),
        (Durability::None, true, 0..=0),
    ] {
        let config = ModelConfig { volatile_write_cache: cache, ..small() };
        let mut rig = Rig::new(&[config.clone(), config.clone(), config], three(durability));
        // Apart on the device, so that each is a command.
        let writes: Vec<_> = (0..8).map(|block| rig.bench.write(block * BLOCK, block * 2 * BLOCK, BLOCK)).collect();
        let batch = rig.bench.submit(&writes);
        rig.finish(&batch);
        let counters = rig.models[0].counters();
        assert_eq!(counters.writes, 8);
        assert!(flushes.contains(&counters.flushes), "{durability:?}: {} flushes", counters.flushes);
        let fua = durability == Durability::Fua;
        assert_eq!(counters.persists >= 8, fua || !cache, "{durability:?}: {} made durable", counters.persists);
        check_both_sides(&rig);
    }
}

#[test]
fn a_flush_that_fails_fails_the_writes_that_wait_for_it() {
    let mut rig = Rig::new(&[small(), small(), small()], three(Durability::Flush));
    let status = StatusCode::WRITE_FAULT.status().with_dnr(true);
    rig.fault(0, NvmOpcode::FLUSH, When::Nth(1), Action::Status { status, execute: false });
    let (write, read) = (rig.bench.write(0, 0, BLOCK), rig.bench.read(64 * BLOCK, 8 * BLOCK, BLOCK));
    let batch = rig.bench.submit(&[write, read]);
    rig.finish(&batch);
    assert_eq!(states(&batch), [Failed, Completed]);
    assert_eq!(batch.nvme_status(0).unwrap(), Some(status));
    // One that may be retried is.
    let again = StatusCode::NAMESPACE_NOT_READY.status();
    rig.fault(0, NvmOpcode::FLUSH, When::Next(2), Action::Status { status: again, execute: false });
    assert_eq!(rig.transfer(SegmentId(1), OpCode::Write, 0, 0, BLOCK), [Completed]);
    assert_eq!(rig.transfer(STRIPE, OpCode::Write, 0, 0, 48 * BLOCK), [Completed]);
}

/// By commands, and by writes where the device has none.
#[test]
fn zeroes_and_deallocations_reach_every_member() {
    for write_zeroes in [true, false] {
        let io_commands = IoCommandsConfig { write_zeroes, ..IoCommandsConfig::default() };
        let config = ModelConfig { io_commands, ..small() };
        let mut rig = Rig::new(&[config.clone(), config.clone(), config], three(Durability::Flush));
        let engine = &rig.bench.engine;
        assert!(engine.segments()[2].deallocates && engine.segments()[2].deallocated_is_zero);
        rig.bench.fill(0, 48 * BLOCK, 4);
        assert_eq!(rig.transfer(STRIPE, OpCode::Write, 0, 0, 48 * BLOCK), [Completed]);
        let batch = rig.bench.engine.allocate_batch(2).unwrap();
        rig.bench.engine.submit_zeroes(&batch, STRIPE, 5 * BLOCK, 20 * BLOCK).unwrap();
        rig.bench.engine.submit_deallocate(&batch, STRIPE, 30 * BLOCK, 10 * BLOCK).unwrap();
        rig.finish(&batch);
        assert_eq!(states(&batch), [Completed; 2]);
        assert_eq!(rig.transfer(STRIPE, OpCode::Read, 64 * BLOCK, 0, 48 * BLOCK), [Completed]);
        for block in 0..48u64 {
            let gone = (5..25).contains(&block) || (30..40).contains(&block);
            let mut words = vec![0; (BLOCK / 8) as usize];
            rig.bench.memory.view().read_words(((64 + block) * BLOCK) as usize, &mut words);
            let expected = |(at, found): (u64, &u64)| *found == if gone { 0 } else { word(4, at) };
            assert!((block * BLOCK / 8..).zip(&words).all(expected), "block {block}");
        }
        for model in &rig.models {
            assert_eq!(model.counters().write_zeroes != 0, write_zeroes);
            assert_ne!(model.counters().dataset_managements, 0);
        }
        check_both_sides(&rig);
    }
}

/// Deallocations that waited for a Flush when the power went are issued again, each with a list of its own.
#[test]
fn deallocations_that_waited_for_a_flush_are_issued_again() {
    for lost_at in 1..8 {
        let mut rig = Rig::new(&[cached(), cached(), cached()], three(Durability::Fua));
        rig.bench.fill(0, 16 * BLOCK, 8);
        assert_eq!(rig.transfer(SegmentId(1), OpCode::Write, 0, 0, 16 * BLOCK), [Completed]);
        let batch = rig.bench.engine.allocate_batch(8).unwrap();
        for block in 0..6 {
            rig.bench.engine.submit_deallocate(&batch, SegmentId(1), block * 2 * BLOCK, BLOCK).unwrap();
        }
        for _ in 0..lost_at {
            rig.bench.lane.turn();
        }
        rig.lose_power();
        for block in 6..8 {
            rig.bench.engine.submit_deallocate(&batch, SegmentId(1), block * 2 * BLOCK, BLOCK).unwrap();
        }
        rig.finish(&batch);
        assert_eq!(batch.overall(), BatchStatus { tasks: 8, ended: 8, unsuccessful: 0 });
        rig.lose_power();
        assert_eq!(rig.transfer(SegmentId(1), OpCode::Read, 64 * BLOCK, 0, 16 * BLOCK), [Completed]);
        for block in 0..16u64 {
            let gone = !rig.bench.is_touched((64 + block) * BLOCK, BLOCK, 0);
            assert_eq!(gone, block % 2 == 0, "block {block}, power lost after {lost_at} turns");
        }
    }
}

#[test]
fn what_a_device_cannot_deallocate_is_refused() {
    let io_commands = IoCommandsConfig { dataset_management: false, ..IoCommandsConfig::default() };
    let without = ModelConfig { io_commands, ..small() };
    let rig = Rig::new(&[small(), without, small()], three(Durability::None));
    let batch = rig.bench.engine.allocate_batch(2).unwrap();
    rig.bench.engine.submit_deallocate(&batch, STRIPE, 0, BLOCK).unwrap();
    let reason = batch.refusal(0).unwrap().unwrap().to_string();
    assert!(reason.contains("without Dataset Management"), "{reason}");
    rig.bench.engine.submit_deallocate(&batch, SegmentId(1), 0, BLOCK).unwrap();
    assert_eq!(batch.refusal(1).unwrap(), None);
}

/// More reads of any bytes than there are staging buffers, over the seams of chunks.
#[test]
fn reads_of_any_bytes_go_through_staging_and_are_counted() {
    let mut layouts = three(Durability::None);
    layouts[2].unaligned_reads = true;
    let mut rig = Rig::new(&[small(), small(), small()], layouts);
    let length = 48 * BLOCK;
    rig.bench.fill(0, length, 3);
    let mut expected = vec![0; length as usize];
    rig.bench.memory.view().read(0, &mut expected);
    assert_eq!(rig.transfer(STRIPE, OpCode::Write, 0, 0, length), [Completed]);
    rig.bench.memory.view().slice(64 * BLOCK as usize, 64 * BLOCK as usize).fill(0xEE);
    let place = |read: u64| (read * 1931 % 180_000, 1 + read * 577 % 2_000, 64 * BLOCK + read * 2_048 + read % 7);
    let requests: Vec<_> = (0..100)
        .map(place)
        .map(|(offset, length, memory)| rig.on(STRIPE, rig.bench.read(memory, offset, length)))
        .collect();
    let batch = rig.bench.submit(&requests);
    rig.finish(&batch);
    assert_eq!(states(&batch), [Completed; 100]);
    let mut bytes = 0;
    for (offset, length, memory) in (0..100).map(place) {
        let mut found = vec![0; length as usize + 1];
        rig.bench.memory.view().read(memory as usize, &mut found);
        assert!(found[..length as usize] == expected[offset as usize..(offset + length) as usize], "at {offset}");
        assert_eq!(found[length as usize], 0xEE, "beside its memory");
        bytes += length;
    }
    let counters = rig.bench.engine.counters();
    assert_eq!(counters.bytes_staged, bytes);
    assert!(counters.staged_reads >= 100 && counters.staged_reads == counters.reads, "{counters:?}");
    check_both_sides(&rig);
    // Whole blocks on dwords go straight to memory, and other segments were not opened for anything else.
    assert_eq!(rig.transfer(STRIPE, OpCode::Read, 0, BLOCK, 3 * BLOCK), [Completed]);
    assert_eq!(rig.bench.engine.counters().staged_reads, counters.staged_reads);
    assert_eq!(rig.transfer(SegmentId(1), OpCode::Read, 0, 1, BLOCK), [TransferState::Invalid]);
}

#[test]
fn what_cannot_be_opened_is_refused() {
    let iommu = SoftwareIommu::new();
    let models: Vec<_> = (0..2).map(|_| Model::new(small(), Drive::Stepped, &iommu).unwrap()).collect();
    let open = |layouts| {
        let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
        for model in &models {
            devices.add(model.function(), true).unwrap();
        }
        assert_eq!(devices.as_slice().len(), 2);
        devices.start(layouts).map(drop).unwrap_err().to_string()
    };
    assert_eq!(open(Vec::new()), "0 segments: an engine serves 1 to 65536");
    assert!(open(three(Durability::None)).contains("a member on device 2: 2 devices are open"));
    let twice = vec![SegmentLayout::whole("a", 0, 64), SegmentLayout::whole("b", 0, 1)];
    assert!(open(twice).contains("block 0 of device 0 belongs to segment a and to segment b"));

    // A device with an address space of its own: memory would have another IOVA there.
    let other = Model::new(small(), Drive::Stepped, &SoftwareIommu::new()).unwrap();
    let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
    devices.add(models[0].function(), true).unwrap();
    let refused = devices.add(other.function(), true).unwrap_err();
    assert!(matches!(refused, OpenError::AddressSpace { .. }), "{refused}");
}

/// A device lends out its blocks until a lane has its queue pair.
#[test]
fn a_label_is_read_before_there_is_a_lane() {
    let mut devices = Devices::new(LaneMode::CallerDriven, EngineConfig::default());
    let number = devices.open("model:size=1MiB").unwrap();
    let device = devices.get_mut(number).unwrap();
    device.blocks().unwrap().write(3, &[7; BLOCK as usize]).unwrap();
    let (controller, namespace, _) = device.parts();
    assert_eq!((controller.queue_pairs() > 0, namespace.nsid), (true, 1));
    let whole = SegmentLayout::whole("whole", number, (1 << 20) / BLOCK);
    let (engine, lane) = devices.start(vec![whole]).unwrap();
    let memory = engine.allocate_memory(BLOCK as usize).unwrap();
    let mut bench = Bench { engine, lane: lane.unwrap(), memory };
    let batch = bench.submit(&[bench.read(0, 3 * BLOCK, BLOCK)]);
    bench.run();
    assert_eq!(states(&batch), [Completed]);
    assert!(!bench.is_touched(0, BLOCK, 7));
}

#[test]
fn any_number_of_batches_may_be_asked_for() {
    for (max_batches, expected) in [(usize::MAX, 65_536), (0, 1)] {
        let config = EngineConfig { max_batches, ..EngineConfig::default() };
        let (engine, lane) = Engine::open_caller_driven("model:size=1MiB", config).unwrap();
        let batches: Vec<_> = (0..expected).map(|_| engine.allocate_batch(0).unwrap()).collect();
        assert_eq!(engine.allocate_batch(0).unwrap_err().live, batches.len());
        engine.close_with(lane).unwrap();
    }
}
