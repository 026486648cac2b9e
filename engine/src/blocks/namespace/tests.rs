//! A namespace's blocks on models that are stepped, that run by themselves, and that do wrong.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::controller::{ControllerConfig, RecoveryConfig};
use tentpeg_driver::model::faults::{Action, At, CommandQueue, Life, Rule, When};
use tentpeg_driver::model::{
    CacheConfig, DeallocatedRead, Drive, IoCommandsConfig, MetadataConfig, Model, ModelConfig, SoftwareIommu,
    Survivors, Violation,
};
use tentpeg_driver::spec::command::NvmOpcode;
use tentpeg_driver::spec::status::StatusCode;

use super::*;

/// A device with its blocks at hand.
struct Bench {
    controller: Controller,
    pair: QueuePair<u8>,
    namespace: Namespace,
    model: Model,
    iommu: Arc<SoftwareIommu>,
    power_was_cut: bool,
}

/// 64 blocks, of which two fit into a command.
fn small() -> ModelConfig {
    ModelConfig { size: 64 * 512, lba_size: 512, mdts: 1, mpsmin: 0, ..ModelConfig::default() }
}

impl Bench {
    fn new(config: ModelConfig, drive: Drive) -> Self {
        let limit = Duration::from_millis(50);
        let recovery = RecoveryConfig {
            command_timeout: limit,
            abort_timeout: limit,
            health_interval: Duration::from_millis(1),
            ..RecoveryConfig::default()
        };
        let iommu = SoftwareIommu::new();
        let model = Model::new(config, drive, &iommu).unwrap();
        let settings = ControllerConfig { recovery, ..ControllerConfig::default() };
        let mut controller = Controller::enable(model.function(), settings).unwrap();
        let namespace = controller.namespaces().unwrap().remove(0);
        let pair = controller.create_queue_pair(2).unwrap();
        Self { controller, pair, namespace, model, iommu, power_was_cut: false }
    }

    fn blocks(&mut self) -> NamespaceBlocks<'_, u8> {
        NamespaceBlocks::new(&mut self.controller, &mut self.pair, &self.namespace, true).unwrap()
    }

    fn fault(&self, opcode: NvmOpcode, when: When, action: Action) {
        let opcode = Some(opcode.raw());
        self.model.faults().add(Rule { queue: CommandQueue::Io, opcode, when, action });
    }

    /// Nothing was done that must never be. After a loss of power a doorbell of the former life may be rung: nobody has
    /// told the driver.
    #[track_caller]
    fn check(&self) {
        let former = |violation: &Violation| matches!(violation, Violation::DoorbellOfFormerEpoch { .. });
        let (former, others): (Vec<_>, Vec<_>) = self.model.violations().into_iter().partition(former);
        assert!(others.is_empty() && (former.is_empty() || self.power_was_cut), "{former:?} {others:?}");
    }
}

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * 512).map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

fn stepped() -> Bench {
    Bench::new(small(), Drive::Stepped)
}

#[test]
fn what_is_written_is_read_in_as_many_commands_as_mdts_wants() {
    for drive in [Drive::Stepped, Drive::Threaded] {
        let mut bench = Bench::new(ModelConfig { mdts: 1, ..small() }, drive);
        let before = bench.model.counters();
        let data = pattern(40, 0);
        let mut blocks = bench.blocks();
        assert_eq!((blocks.block_size(), blocks.blocks()), (512, 64));
        blocks.write(3, &data).unwrap();
        let mut found = vec![0; data.len()];
        blocks.read(3, &mut found).unwrap();
        assert!(found == data);
        let mut beside = vec![1; 512];
        blocks.read(43, &mut beside).unwrap();
        assert_eq!(beside, [0; 512]);
        blocks.read(0, &mut []).unwrap();
        blocks.write(64, &[]).unwrap();
        let after = bench.model.counters();
        // 40 blocks, 16 a command, and the one beside.
        assert_eq!((after.writes - before.writes, after.reads - before.reads), (3, 4));
        assert_eq!(after.persists - before.persists, 3, "each with FUA");
        bench.check();
    }
}

#[test]
fn what_the_namespace_does_not_have_is_refused() {
    let mut bench = stepped();
    let mut blocks = bench.blocks();
    let bounds = |result: Result<(), BlocksError>| matches!(result, Err(BlocksError::Bounds { .. }));
    assert!(bounds(blocks.read(64, &mut [0; 512])) && bounds(blocks.read(0, &mut [0; 511])));
    assert!(bounds(blocks.write(63, &[0; 1024])) && bounds(blocks.write(u64::MAX, &[0; 1024])));
    assert!(bounds(blocks.zero(1, 64)) && bounds(blocks.zero(0, u64::MAX)) && bounds(blocks.zero(u64::MAX, 1)));
    let message = blocks.write(63, &[0; 1024]).unwrap_err().to_string();
    assert_eq!(message, "Write of 1024 bytes at block 63: the device has 64 blocks of 512 bytes");
    assert_eq!(bench.model.counters().io_sqes, 0);
}

#[test]
fn nothing_is_written_that_may_only_be_read() {
    let mut bench = stepped();
    let namespace = bench.namespace.clone();
    let mut blocks = NamespaceBlocks::new(&mut bench.controller, &mut bench.pair, &namespace, false).unwrap();
    assert_eq!(blocks.write(1, &[1; 512]), Err(BlocksError::ReadOnly { command: "Write", slba: 1 }));
    assert_eq!(blocks.zero(1, 1), Err(BlocksError::ReadOnly { command: "Write Zeroes", slba: 1 }));
    blocks.read(1, &mut [0; 512]).unwrap();
    let counters = bench.model.counters();
    assert_eq!((counters.writes, counters.write_zeroes, counters.reads), (0, 0, 1));
}

/// By Write Zeroes with and without DEAC, by writes where it is missing, and by writes where it lies or fails.
#[test]
fn zeroes_are_zeroes_whatever_the_device_has() {
    let without = IoCommandsConfig { write_zeroes: false, ..IoCommandsConfig::default() };
    let failing = Action::Status { status: StatusCode::INTERNAL_ERROR.status().with_dnr(true), execute: false };
    for (config, action, commands) in [
        (small(), None, true),
        (ModelConfig { deallocated_read: DeallocatedRead::NotReported, ..small() }, None, true),
        (ModelConfig { deallocated_read: DeallocatedRead::Ones, ..small() }, None, true),
        (ModelConfig { io_commands: without, ..small() }, None, false),
        (small(), Some(Action::Answer { dw0: 0 }), true),
        (small(), Some(failing), true),
    ] {
        let mut bench = Bench::new(config, Drive::Stepped);
        let lies = action.is_some();
        if let Some(action) = action {
            bench.fault(NvmOpcode::WRITE_ZEROES, When::Next(1000), action);
        }
        let mut blocks = bench.blocks();
        let data = pattern(64, 7);
        blocks.write(0, &data).unwrap();
        blocks.zero(5, 50).unwrap();
        let mut found = vec![1; data.len()];
        blocks.read(0, &mut found).unwrap();
        assert!(found[5 * 512..55 * 512].iter().all(|byte| *byte == 0));
        assert!(found[..5 * 512] == data[..5 * 512] && found[55 * 512..] == data[55 * 512..]);
        let counters = bench.model.counters();
        // Those that were answered or failed in place of their execution are not among them.
        assert_eq!(counters.write_zeroes != 0, commands && !lies);
        assert_eq!(counters.writes > 4, lies || !commands, "{action:?} {commands} {counters:?}");
        bench.check();
    }
}

#[test]
fn what_was_written_or_zeroed_outlives_a_loss_of_power() {
    let mut bench = Bench::new(
        ModelConfig { cache_simulation: Some(CacheConfig { blocks: 1000, write_back: None }), ..small() },
        Drive::Stepped,
    );
    let data = pattern(20, 9);
    let mut blocks = bench.blocks();
    blocks.write(0, &data).unwrap();
    blocks.zero(10, 5).unwrap();
    bench.model.power_cut(Survivors::Nothing).unwrap();
    bench.power_was_cut = true;
    let mut found = vec![0; data.len()];
    // The controller that lost its power is enabled anew on the way.
    bench.blocks().read(0, &mut found).unwrap();
    assert!(found[..10 * 512] == data[..10 * 512] && found[15 * 512..] == data[15 * 512..]);
    assert_eq!(found[10 * 512..15 * 512], [0; 5 * 512]);
    assert!(bench.controller.recovery_counters().restarts >= 1);
    bench.check();
}

#[test]
fn a_flush_is_asked_for_only_where_there_is_a_cache() {
    for volatile_write_cache in [true, false] {
        let mut bench = Bench::new(ModelConfig { volatile_write_cache, ..small() }, Drive::Stepped);
        bench.blocks().flush().unwrap();
        assert_eq!(bench.model.counters().flushes, u64::from(volatile_write_cache));
    }
}

#[test]
fn commands_that_get_lost_or_fail_for_a_while_are_asked_for_again() {
    let busy = StatusCode::NAMESPACE_NOT_READY.status();
    for drive in [Drive::Stepped, Drive::Threaded] {
        for action in [
            Action::Drop { execute: false },
            Action::Drop { execute: true },
            Action::Delay { turns: u32::MAX },
            Action::Status { status: busy, execute: false },
            Action::Duplicate { turns: 0 },
            Action::StalePhase { turns: None },
        ] {
            let mut bench = Bench::new(small(), drive);
            bench.fault(NvmOpcode::WRITE, When::Nth(2), action);
            bench.fault(NvmOpcode::READ, When::Nth(2), action);
            let data = pattern(48, 3);
            let mut blocks = bench.blocks();
            blocks.write(0, &data).unwrap();
            let mut found = vec![0; data.len()];
            blocks.read(0, &mut found).unwrap();
            assert!(found == data, "{action:?}");
            assert_eq!(bench.pair.free_slots(), bench.pair.slots(), "the pair is idle again");
            bench.check();
        }
    }
}

#[test]
fn a_controller_that_dies_is_enabled_anew() {
    let mut bench = stepped();
    bench.model.faults().arm(At::Command(2), Life::Fatal);
    let data = pattern(48, 3);
    bench.blocks().write(0, &data).unwrap();
    let mut found = vec![0; data.len()];
    bench.blocks().read(0, &mut found).unwrap();
    assert!(found == data);
    assert!(bench.controller.recovery_counters().restarts >= 1);
    bench.check();
}

/// Each ends, with words that name the command and the reason.
#[test]
fn a_device_that_fails_for_good_is_an_error() {
    let fault = StatusCode::UNRECOVERED_READ_ERROR.status();
    for (status, issued) in [(fault, u64::from(ATTEMPTS)), (fault.with_dnr(true), 1)] {
        let mut bench = stepped();
        bench.fault(NvmOpcode::READ, When::Next(1000), Action::Status { status, execute: false });
        let message = bench.blocks().read(7, &mut [0; 512]).unwrap_err().to_string();
        assert!(message.starts_with("Read at block 7: Unrecovered Read Error"), "{message}");
        assert_eq!(bench.model.counters().io_sqes, issued);
    }
    for life in [Life::AllOnes { dma_turns: 3 }, Life::AllZeroes { dma_turns: 0 }] {
        let mut bench = stepped();
        bench.model.faults().arm(At::Command(1), life);
        let mut blocks = bench.blocks();
        let message = blocks.write(7, &[1; 512]).unwrap_err().to_string();
        assert!(message.starts_with("Write at block 7: the controller is given up"), "{message}");
        let again = blocks.flush().unwrap_err().to_string();
        assert!(again.contains("given up"), "{again}");
        bench.check();
    }
}

#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let mut bench = Bench::new(
        ModelConfig { metadata: MetadataConfig { size: 8, ..Default::default() }, ..small() },
        Drive::Stepped,
    );
    let refused = NamespaceBlocks::new(&mut bench.controller, &mut bench.pair, &bench.namespace, true);
    let message = refused.map(drop).unwrap_err().to_string();
    assert_eq!(message, "namespace 1 has 8 bytes of metadata a block: it must have none (MS = 0)");

    let mut bench = stepped();
    let limits = bench.namespace.limits.unwrap();
    let memory = bench.iommu.space().register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    let extent = [Extent { iova: memory.iova(), len: 512 }];
    bench.pair.submit_io(1, &limits, &IoCommand::read(0, 1, &extent), 0).unwrap();
    let refused = NamespaceBlocks::new(&mut bench.controller, &mut bench.pair, &bench.namespace, true);
    assert_eq!(refused.map(drop).unwrap_err().to_string(), "the queue pair has 1 commands in flight: it must be idle");
}
