//! What has gone wrong in the life of a controller elsewhere (docs/verification.md, "Failures seen in the field"), with
//! the driver on a model whose time is virtual: deadlines of minutes take no time, and each run is the same.

use std::sync::Arc;
use std::time::Duration;

use tentpeg_driver::bus::Function;
use tentpeg_driver::controller::{Attended, Controller, ControllerConfig, ControllerError};
use tentpeg_driver::dma::{Access, HostMemory, Region};
use tentpeg_driver::model::faults::{Action, At, CommandQueue, EndlessList, Life, Rule, StrangeCid, When};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu};
use tentpeg_driver::queue::{Extent, QueuePair};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::{NvmOpcode, Sqe};
use tentpeg_driver::spec::registers::offset;
use tentpeg_tests::chaos::Watched;

struct Rig {
    model: Model,
    function: Arc<Watched>,
}

fn rig(config: ModelConfig) -> Rig {
    let model = Model::new(config, Drive::Stepped, &SoftwareIommu::new()).unwrap();
    let function = Arc::new(Watched::new(model.function()));
    Rig { model, function }
}

impl Rig {
    fn enable(&self) -> Result<Controller, ControllerError> {
        self.function.begin_step();
        Controller::enable(Arc::clone(&self.function) as Arc<dyn Function>, ControllerConfig::default())
    }

    fn befall(&self, when: When, action: Action) {
        self.model.faults().add(Rule { queue: CommandQueue::Io, opcode: Some(NvmOpcode::READ.raw()), when, action });
    }

    #[track_caller]
    fn is_clean(&self) {
        assert_eq!(self.model.violations(), []);
    }
}

/// A controller with one queue pair, and the ends of its commands: each token once, with or without success.
struct Host {
    rig: Rig,
    controller: Controller,
    pair: QueuePair<u32>,
    memory: Region<HostMemory>,
    ended: Vec<(u32, Option<bool>)>,
}

/// Bytes of a command's data: enough for a list of PRPs.
const DATA: u64 = 16 << 10;

impl Host {
    fn new(config: ModelConfig) -> Self {
        let rig = rig(config);
        let mut controller = rig.enable().unwrap();
        let pair = controller.create_queue_pair(64).unwrap();
        let memory = HostMemory::allocate(DATA as usize * 64).unwrap();
        let memory = rig.function.dma().register(memory, Access::all()).unwrap();
        Self { rig, controller, pair, memory, ended: Vec::new() }
    }

    fn submit(&mut self, tokens: std::ops::Range<u32>) {
        for token in tokens {
            let iova = self.memory.iova_at(u64::from(token % 64) * DATA).unwrap();
            let nlb = ZeroesBased::<u16>::from_count((DATA / 4096) as u32).unwrap();
            self.pair.submit(Sqe::read(1, u64::from(token), nlb), &[Extent { iova, len: DATA }], token).unwrap();
        }
        self.pair.ring();
    }

    /// Some turns of the model and of the host; time passes.
    fn turns(&mut self, turns: u32) {
        for _ in 0..turns {
            self.rig.model.turn();
            let ended = &mut self.ended;
            self.pair.poll(64, |completion| ended.push((completion.token, Some(completion.status.is_success()))));
            self.rig.function.pass(Duration::from_micros(200));
        }
    }

    fn attend(&mut self) -> Attended {
        self.rig.function.begin_step();
        let (now, ended) = (self.rig.function.milliseconds(), &mut self.ended);
        self.controller.attend(&mut [&mut self.pair], now, |token| ended.push((token, None)))
    }

    /// Turns and attends until every token below `count` has ended; each exactly once.
    #[track_caller]
    fn all_end(&mut self, count: u32) {
        for _ in 0..2000 {
            self.turns(10);
            self.attend();
            self.rig.function.pass(Duration::from_millis(100));
            if self.ended.len() >= count as usize {
                break;
            }
        }
        self.turns(100);
        let mut tokens: Vec<u32> = self.ended.iter().map(|(token, _)| *token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, Vec::from_iter(0..count), "each command ends once");
        self.rig.is_clean();
    }

    /// The pair works: so many reads succeed.
    #[track_caller]
    fn works(&mut self) {
        self.ended.clear();
        self.submit(0..32);
        self.all_end(32);
        assert!(self.ended.iter().all(|(_, success)| *success == Some(true)), "{:?}", self.ended);
    }
}

/// Row 1: RDY that does not follow EN is a named timeout, with the deadline that CAP.TO gives, or the driver's least.
#[test]
fn ready_never_sets() {
    for (to, milliseconds) in [(0, 500), (1, 500), (255, 127_500)] {
        let rig = rig(ModelConfig { to, ..ModelConfig::default() });
        rig.model.faults().arm(At::Now, Life::NeverReady);
        let error = rig.enable().err().unwrap().to_string();
        let expected =
            format!("CSTS.RDY did not become 1 after CC.EN = 1 within {milliseconds} ms (CSTS reads 0x00000000)");
        assert_eq!(error, expected);
        rig.enable().unwrap().shutdown().unwrap();
        rig.is_clean();
    }
}

/// Row 1, the other way: a controller that stays ready is stopped by its function's reset, and without one by the end of
/// its bus mastering. The shutdown says so.
#[test]
fn ready_never_clears() {
    for to in [0, 1, 255] {
        for (flr, how) in [(true, "Function Level Reset"), (false, "bus mastering")] {
            let rig = rig(ModelConfig { to, flr, ..ModelConfig::default() });
            let controller = rig.enable().unwrap();
            rig.model.faults().arm(At::Now, Life::NeverUnready);
            let error = controller.shutdown().unwrap_err();
            assert!(error.to_string().contains(how), "{error}");
            rig.is_clean();
        }
    }
}

/// Row 1: a controller that was left enabled and does not stop is an error at enable that names register and deadline.
#[test]
fn a_former_life_that_does_not_end() {
    let rig = rig(ModelConfig { to: 1, flr: false, ..ModelConfig::default() });
    std::mem::forget(rig.enable().unwrap());
    rig.model.faults().arm(At::Now, Life::NeverUnready);
    let error = rig.enable().err().unwrap().to_string();
    assert!(error.starts_with("CSTS.RDY did not become 0 after CC.EN = 0 within 500 ms"), "{error}");
}

/// Row 2: CSTS.CFS during enable, during the disable of a reset, and in the middle of I/O is not waited through.
#[test]
fn a_fatal_status_is_noticed_wherever_it_comes() {
    let starting = rig(ModelConfig { to: 255, ..ModelConfig::default() });
    starting.model.faults().arm(At::Now, Life::FatalAtEnable);
    let before = starting.function.milliseconds();
    let error = starting.enable().err().unwrap();
    assert!(matches!(error, ControllerError::Fatal { .. }), "{error}");
    assert!(starting.function.milliseconds() - before < 1000, "it was not waited through");

    for at_disable in [false, true] {
        let mut host = Host::new(ModelConfig { to: 255, ..ModelConfig::default() });
        if at_disable {
            host.rig.model.faults().arm(At::Now, Life::FatalAtDisable);
        }
        host.rig.model.faults().arm(At::Command(20), Life::Fatal);
        host.submit(0..48);
        host.all_end(48);
        assert!(host.ended.iter().any(|(_, success)| success.is_none()), "commands are interrupted");
        let counters = host.controller.recovery_counters();
        assert_eq!((counters.restarts, counters.function_resets >= u64::from(at_disable)), (1, true), "{counters:?}");
        host.works();
    }
}

/// A controller whose firmware starts anew says nothing of it: its registers do, and it gets its queues back.
#[test]
fn a_controller_that_resets_itself_is_enabled_anew() {
    for step in [At::Command(1), At::Command(20), At::Command(48), At::Turn(3), At::Access(2)] {
        let mut host = Host::new(ModelConfig::default());
        host.rig.model.faults().arm(step, Life::SelfReset);
        host.submit(0..48);
        host.all_end(48);
        // Under load it has commands to interrupt, else it is found by the look at its registers.
        host.ended.clear();
        for _ in 0..3 {
            host.rig.function.pass(Duration::from_millis(100));
            host.attend();
        }
        assert_eq!(host.controller.recovery_counters().restarts, 1, "{step:?}");
        host.works();
    }
}

/// Row 4: registers read as all ones, or all zeroes, from a random step on. Whatever the driver does then ends, each
/// command once, and the drive can be put back and used.
#[test]
fn a_drive_is_pulled_at_any_step() {
    for step in 0..120 {
        for life in [Life::AllOnes { dma_turns: 3 }, Life::AllZeroes { dma_turns: 3 }] {
            let pulled = rig(ModelConfig::default());
            pulled.model.faults().arm(At::Access(step), life);
            if let Ok(mut controller) = pulled.enable() {
                // Pulled later, or while this runs.
                pulled.function.begin_step();
                let _ = controller.smart_log();
                let _ = controller.shutdown();
            }
            pulled.is_clean();
            pulled.model.faults().clear();
            pulled.model.faults().put_back();
        }
    }
    for command in 1..40 {
        let mut host = Host::new(ModelConfig::default());
        host.rig.model.faults().arm(At::Command(command), Life::AllOnes { dma_turns: 5 });
        host.submit(0..40);
        host.all_end(40);
        assert!(host.controller.removed().is_some());
    }
}

/// Row 7: the admin queue keeps to CAP.MQES as the others do, and a controller without room for a command is told so.
#[test]
fn small_queues() {
    for mqes in [1, 2, 127, 0xFFFF] {
        let rig = rig(ModelConfig { mqes, ..ModelConfig::default() });
        let mut controller = rig.enable().unwrap();
        controller.smart_log().unwrap();
        assert!(controller.create_queue_pair::<u32>(2).is_ok());
        controller.shutdown().unwrap();
        rig.is_clean();
    }
    let error = rig(ModelConfig { mqes: 0, ..ModelConfig::default() }).enable().err().unwrap().to_string();
    assert!(error.contains("CAP.MQES is 0"), "{error}");
}

/// Row 11: CIDs that are nobody's, completions twice, a phase that is stale, SQHDs out of range; singly and under load.
#[test]
fn completions_that_nobody_asked_for() {
    let strange = |cid, instead| Action::StrangeCid { cid, instead };
    let actions = [
        strange(StrangeCid::Unknown, false),
        strange(StrangeCid::Unknown, true),
        strange(StrangeCid::OutOfRange, false),
        strange(StrangeCid::OutOfRange, true),
        Action::Duplicate { turns: 0 },
        Action::Duplicate { turns: 7 },
        Action::StalePhase { turns: Some(3) },
        Action::StalePhase { turns: None },
        Action::BadSqhd,
        Action::Drop { execute: true },
        Action::Drop { execute: false },
    ];
    for action in actions {
        for load in [1, 48] {
            for when in [When::Nth(u64::from(load)), When::Next(2)] {
                let mut host = Host::new(ModelConfig::default());
                host.rig.befall(when, action);
                host.submit(0..load);
                host.all_end(load);
                host.rig.model.faults().clear();
                host.works();
            }
        }
    }
}

/// Row 11: a queue that was created again does not take what the former one left for its own.
#[test]
fn a_queue_created_again_sees_nothing_old() {
    let mut host = Host::new(ModelConfig::default());
    // All over the ring, so that both phases are in it.
    for round in 0..3 {
        host.ended.clear();
        host.submit(0..40);
        host.all_end(40);
        host.rig.model.faults().arm(At::Now, Life::Fatal);
        host.turns(1);
        let recovered = (0..20).any(|_| {
            host.rig.function.pass(Duration::from_millis(100));
            matches!(host.attend(), Attended::Recovered { .. })
        });
        assert!(recovered, "round {round}");
        host.ended.clear();
        host.turns(20);
        assert_eq!((host.ended.len(), host.pair.anomalies().total()), (0, 0), "round {round}");
    }
    host.works();
}

/// Row 13: a list of namespaces that repeats itself, or never ends, ends with an error.
#[test]
fn namespace_lists_that_never_end() {
    for endless in [EndlessList::Cycle, EndlessList::Ascending] {
        let rig = rig(ModelConfig { nn: 1 << 20, ..ModelConfig::default() });
        let mut controller = rig.enable().unwrap();
        rig.model.faults().add(Rule {
            queue: CommandQueue::Admin,
            opcode: None,
            when: When::Next(u64::MAX),
            action: Action::EndlessList(endless),
        });
        let error = controller.namespaces().unwrap_err();
        let bounded =
            matches!(error, ControllerError::NamespaceList { .. } | ControllerError::TooManyNamespaces { .. });
        assert!(bounded, "{endless:?}: {error}");
        rig.model.faults().clear();
        assert_eq!(controller.namespaces().unwrap().len(), 1);
        rig.is_clean();
    }
}

/// Row 3, the control: what all these tests end with is not blind.
#[test]
fn a_doorbell_while_the_controller_is_not_ready_is_seen() {
    let mut host = Host::new(ModelConfig::default());
    host.rig.function.write_u32(offset::CC, 0);
    host.submit(0..1);
    assert_ne!(host.rig.model.violations(), []);
}
