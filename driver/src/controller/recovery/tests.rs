//! Each step of recovery, on a model behind a function whose answers can be bent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::*;
use crate::bus::{BusError, Doorbell, Function};
use crate::controller::ControllerConfig;
use crate::dma::{Access, DmaSpace, HostMemory, Region};
use crate::model::faults::{Action, At, CommandQueue, Life, Rule, StrangeCid, When};
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::queue::Extent;
use crate::spec::command::AdminOpcode;
use crate::spec::registers::NSSR_RESET;

/// Virtual time that passes with each look of a wait.
const PAUSE: Duration = Duration::from_micros(100);

/// What the function between driver and model does wrong.
#[derive(Debug, Clone, Copy, Default)]
struct Bent {
    /// CSTS.RDY reads as 1.
    ready: bool,
    /// Every register reads as all ones.
    all_ones: bool,
    /// Every register reads as all zeroes.
    all_zeroes: bool,
    /// A Function Level Reset fails, or does not exist.
    no_reset: Option<BusError>,
    /// The read after bus mastering went off does not return.
    no_read: bool,
    /// CSTS.CFS reads as 1.
    fatal: bool,
    /// The function is wanted back.
    wanted_back: bool,
    /// The bus has reported an error, and nobody has asked since.
    bus_error: bool,
}

struct Between {
    inner: Arc<dyn Function>,
    bent: Mutex<Bent>,
    /// What was done to the function, in order.
    steps: Mutex<Vec<&'static str>>,
    begun: Instant,
    /// Looks of waits so far.
    looks: AtomicU64,
}

impl Between {
    fn bend(&self, bend: impl FnOnce(&mut Bent)) {
        bend(&mut self.bent.lock().unwrap());
    }

    fn note(&self, step: &'static str) -> Bent {
        self.steps.lock().unwrap().push(step);
        *self.bent.lock().unwrap()
    }

    /// Virtual time since the beginning.
    fn time(&self) -> Duration {
        PAUSE * self.looks.load(Ordering::Relaxed) as u32
    }

    fn steps(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.steps.lock().unwrap())
    }
}

impl Function for Between {
    fn name(&self) -> &str {
        "between"
    }

    fn read_u32(&self, offset: u64) -> u32 {
        let bent = *self.bent.lock().unwrap();
        let value = self.inner.read_u32(offset);
        match offset {
            _ if bent.all_ones => u32::MAX,
            _ if bent.all_zeroes => 0,
            offset::CSTS => value | u32::from(bent.ready) | u32::from(bent.fatal) << 1,
            _ => value,
        }
    }

    fn write_u32(&self, offset: u64, value: u32) {
        if offset == offset::CC {
            let shutdown = value >> 14 & 3 != 0;
            self.note(if shutdown {
                "SHN"
            } else if value & 1 == 1 {
                "EN = 1"
            } else {
                "EN = 0"
            });
        }
        self.inner.write_u32(offset, value);
    }

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        self.inner.doorbell(offset)
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        self.inner.dma()
    }

    fn pause(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.pause();
    }

    fn now(&self) -> Instant {
        self.begun + self.time()
    }

    fn revoke_doorbells(&self) {
        self.note("revoke");
        self.inner.revoke_doorbells();
    }

    fn reset(&self) -> Result<(), BusError> {
        match self.note("reset").no_reset {
            Some(error) => Err(error),
            None => self.inner.reset(),
        }
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        if self.note("bus mastering off").no_read {
            return Err(BusError::Gone { what: "a read after bus mastering went off" });
        }
        self.inner.disable_bus_mastering()
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        self.note("bus mastering on");
        self.inner.enable_bus_mastering()
    }

    fn cut_off(&self) {
        self.note("cut off");
        self.inner.cut_off();
    }

    fn removal_requested(&self) -> bool {
        self.bent.lock().unwrap().wanted_back
    }

    fn error_reported(&self) -> bool {
        std::mem::take(&mut self.bent.lock().unwrap().bus_error)
    }
}

struct Rig {
    controller: Controller,
    pair: QueuePair<u32>,
    memory: Region<HostMemory>,
    between: Arc<Between>,
    model: Model,
}

fn rig() -> Rig {
    rig_with(ControllerConfig {
        admin_timeout: Duration::from_millis(20),
        least_ready_timeout: Duration::from_millis(20),
        ..ControllerConfig::default()
    })
}

fn rig_with(config: ControllerConfig) -> Rig {
    let iommu = SoftwareIommu::new();
    let model_config = ModelConfig { to: 1, nssrs: true, ..ModelConfig::default() };
    let model = Model::new(model_config, Drive::Stepped, &iommu).unwrap();
    let between = Arc::new(Between {
        inner: model.function(),
        bent: Mutex::default(),
        steps: Mutex::default(),
        begun: Instant::now(),
        looks: AtomicU64::new(0),
    });
    let mut controller = Controller::enable(between.clone(), config).unwrap();
    let pair = controller.create_queue_pair(16).unwrap();
    let memory = iommu.space().register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    between.steps();
    Rig { controller, pair, memory, between, model }
}

impl Rig {
    /// Submits commands that the model has not looked at yet.
    fn submit(&mut self, tokens: std::ops::Range<u32>) {
        for token in tokens {
            let read = Sqe::read(1, token.into(), ZeroesBased::<u16>::from_raw(0));
            self.pair.submit(read, &[Extent { iova: self.memory.iova(), len: 4096 }], token).unwrap();
        }
        self.pair.ring();
    }

    fn attend(&mut self, now: u32) -> (Attended, Vec<u32>) {
        let mut interrupted = Vec::new();
        let attended = self.controller.attend(&mut [&mut self.pair], now, |token| interrupted.push(token));
        (attended, interrupted)
    }

    /// The pair serves commands again.
    #[track_caller]
    fn works(&mut self) {
        self.submit(100..103);
        let mut ended = Vec::new();
        for _ in 0..100 {
            self.model.turn();
            self.pair.poll(16, |completion| {
                assert!(completion.status.is_success());
                ended.push(completion.token);
            });
        }
        assert_eq!(ended, [100, 101, 102]);
        assert_eq!(self.pair.anomalies().total(), 0);
        assert_eq!(self.model.violations(), []);
    }
}

#[test]
fn a_well_controller_is_left_alone() {
    let mut rig = rig();
    for now in (0..1000).step_by(50) {
        let (attended, interrupted) = rig.attend(now);
        assert!(matches!(attended, Attended::Fine) && interrupted.is_empty());
    }
    assert!(rig.between.steps().is_empty());
    rig.works();
}

#[test]
fn a_fatal_status_is_recovered_from_and_each_command_is_interrupted_once() {
    let mut rig = rig();
    rig.submit(0..15);
    rig.between.bend(|bent| bent.fatal = true);
    rig.between.inner.pause();
    rig.pair.poll(4, |_| ());
    let in_flight = 15 - 4;
    rig.between.bend(|bent| bent.fatal = false);
    let mut interrupted = Vec::new();
    let attended =
        rig.controller.recover(&mut [&mut rig.pair], &mut |token| interrupted.push(token), "a test".to_owned());
    assert!(matches!(attended, Attended::Recovered { how: ReachEnd::NotReady, .. }), "{attended:?}");
    interrupted.sort();
    assert_eq!(interrupted, (15 - in_flight..15).collect::<Vec<_>>());
    assert_eq!(
        rig.between.steps(),
        ["revoke", "EN = 0", "bus mastering off", "reset", "bus mastering on", "EN = 0", "EN = 1"]
    );
    rig.works();
}

#[test]
fn registers_tell_attend_what_to_do() {
    let mut rig = rig();
    rig.submit(0..3);
    rig.between.bend(|bent| bent.fatal = true);
    let (attended, interrupted) = rig.attend(1000);
    let Attended::Removed { reason, how: ReachEnd::NotReady } = attended else { panic!("{attended:?}") };
    assert!(reason.starts_with("CSTS.CFS is set (0x00000003); enabling it anew: the controller reports"), "{reason}");
    assert_eq!(interrupted, [0, 1, 2]);
    assert_eq!(rig.controller.recovery_counters().resets, 1 + 3, "the first stop, and one after each try");
}

#[test]
fn ready_that_stays_is_ended_by_a_function_level_reset() {
    let mut rig = rig();
    rig.submit(0..2);
    rig.between.bend(|bent| bent.ready = true);
    let ended = rig.controller.stop_reach();
    assert_eq!(ended.how(), ReachEnd::BusMasteringOff, "RDY reads as 1 even after the reset");
    assert_eq!(rig.between.steps(), ["revoke", "EN = 0", "reset", "bus mastering off"]);
    assert_eq!(rig.controller.removed(), Some(ReachEnd::BusMasteringOff));
}

#[test]
fn without_any_reset_bus_mastering_goes_off_and_without_that_it_is_cut_off() {
    for (no_read, how) in [(false, ReachEnd::BusMasteringOff), (true, ReachEnd::CutOff)] {
        let mut rig = rig();
        rig.submit(0..2);
        rig.between.bend(|bent| (bent.ready, bent.no_read, bent.no_reset) = (true, no_read, Some(BusError::NoReset)));
        let mut interrupted = Vec::new();
        let attended =
            rig.controller.recover(&mut [&mut rig.pair], &mut |token| interrupted.push(token), "a test".to_owned());
        assert!(matches!(attended, Attended::Removed { how: ended, .. } if ended == how), "{attended:?}");
        assert_eq!(interrupted, [0, 1]);
        // Whatever the model does now, the commands that it was told of move nothing.
        let before = rig.model.counters();
        for _ in 0..100 {
            rig.model.turn();
        }
        assert_eq!(rig.model.counters().read_bytes, before.read_bytes);
        let (attended, interrupted) = rig.attend(1_000_000);
        assert!(matches!(attended, Attended::Fine) && interrupted.is_empty(), "a removed controller stays removed");
    }
}

/// Field failure 4: registers that read as all ones.
#[test]
fn a_controller_that_is_gone_is_cut_off_at_once() {
    let mut rig = rig();
    rig.submit(0..4);
    rig.between.bend(|bent| bent.all_ones = true);
    let (attended, interrupted) = rig.attend(1000);
    let Attended::Removed { how: ReachEnd::CutOff, reason } = attended else { panic!("{attended:?}") };
    assert!(reason.contains("the controller is gone: CAP reads 0xffffffffffffffff"), "{reason}");
    assert_eq!(interrupted.len(), 4);
    assert_eq!(rig.between.steps().last(), Some(&"cut off"));
}

/// The registers look well, and what the bus says counts all the same: once.
#[test]
fn an_error_that_the_bus_reports_is_recovered_from() {
    let mut rig = rig();
    rig.submit(0..4);
    rig.between.bend(|bent| bent.bus_error = true);
    let (attended, interrupted) = rig.attend(1000);
    let Attended::Recovered { reason, .. } = attended else { panic!("{attended:?}") };
    assert!(reason.contains("the bus reports an error that cannot be corrected"), "{reason}");
    assert_eq!(interrupted, [0, 1, 2, 3]);
    assert!(matches!(rig.attend(2000).0, Attended::Fine));
    assert_eq!(rig.controller.recovery_counters().restarts, 1);
}

/// It is shut down in the orderly way, so that its caches are written, and never enabled anew: who wants it waits.
#[test]
fn a_function_that_is_wanted_back_is_shut_down_and_given_up() {
    let mut rig = rig();
    rig.submit(0..4);
    rig.between.bend(|bent| bent.wanted_back = true);
    let (attended, interrupted) = rig.attend(1000);
    let Attended::Removed { how: ReachEnd::NotReady, reason } = attended else { panic!("{attended:?}") };
    assert_eq!(reason, "the function is wanted back, to be unplugged or unbound");
    assert_eq!(rig.between.steps(), ["SHN", "revoke", "EN = 0", "bus mastering off", "cut off"]);
    // The model serves what it had been told of before it shuts down.
    let mut ended = interrupted;
    rig.pair.poll(16, |completion| ended.push(completion.token));
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3], "each has ended once");
    assert_eq!(rig.controller.removed(), Some(ReachEnd::NotReady));
    assert_eq!(rig.controller.recovery_counters().restarts, 0);
}

#[test]
fn a_command_that_is_overdue_is_aborted_before_anything_is_reset() {
    let mut rig = rig();
    rig.submit(0..1);
    let limits = RecoveryConfig::default();
    let timeout = limits.command_timeout.as_millis() as u32;
    let (attended, _) = rig.attend(timeout);
    assert!(matches!(attended, Attended::Fine));
    assert_eq!(rig.controller.recovery_counters().aborts, 0, "not yet");
    // The model serves the command and the Abort in one turn: there is nothing left to abort.
    let (attended, interrupted) = rig.attend(timeout + 1);
    assert!(matches!(attended, Attended::Fine) && interrupted.is_empty());
    assert_eq!(rig.controller.recovery_counters().aborts, 1);
    // A completion that nobody takes looks like a command that did not end after its abort.
    let (attended, interrupted) = rig.attend(timeout + 1 + limits.abort_timeout.as_millis() as u32 + 1);
    let Attended::Recovered { reason, .. } = attended else { panic!("{attended:?}") };
    assert!(reason.contains("did not end after its abort"), "{reason}");
    assert_eq!(interrupted, [0]);
    rig.works();
}

#[test]
fn an_admin_queue_that_is_lost_is_a_reason_to_recover() {
    let mut rig = rig();
    rig.model.faults().arm(At::Now, Life::DeadAdmin);
    let error = rig.controller.smart_log().unwrap_err();
    assert!(matches!(error, ControllerError::Timeout { .. }), "{error}");
    let (attended, _) = rig.attend(1);
    let Attended::Recovered { reason, how: ReachEnd::NotReady } = attended else { panic!("{attended:?}") };
    assert!(reason.starts_with("an admin command had no completion"), "{reason}");
    rig.controller.smart_log().unwrap();
    rig.works();
}

/// The owner's clock is a count of milliseconds that began anywhere, and may not have been looked at for weeks.
#[test]
fn registers_are_looked_at_whatever_the_clock_says() {
    for (first, later) in [(1 << 31, 0), (u32::MAX - 5, 0), (0, (1 << 31) + 1000), (7, 1 << 31)] {
        let mut rig = rig();
        if later != 0 {
            assert!(matches!(rig.attend(first).0, Attended::Fine));
        }
        rig.model.faults().arm(At::Now, Life::Fatal);
        let (attended, _) = rig.attend(first.wrapping_add(later));
        assert!(matches!(attended, Attended::Recovered { .. }), "at {first} and {later} after that: {attended:?}");
        rig.works();
    }
}

/// Field failure 2: an admin command is not waited for where there is nobody who could complete it.
#[test]
fn an_admin_command_does_not_wait_for_a_controller_that_is_not_well() {
    let dead = Rule {
        queue: CommandQueue::Admin,
        opcode: Some(AdminOpcode::GET_LOG_PAGE.raw()),
        when: When::Nth(1),
        action: Action::Drop { execute: false },
    };
    for (at, life, expected) in [
        (At::Now, Life::Fatal, "CSTS.CFS is set"),
        (At::Turn(5), Life::Fatal, "CSTS.CFS is set"),
        (At::Turn(5), Life::AllOnes { dma_turns: 0 }, "the controller is gone"),
        (At::Turn(5), Life::AllZeroes { dma_turns: 0 }, "the controller is gone"),
    ] {
        let mut rig = rig_with(ControllerConfig::default());
        rig.model.faults().add(dead);
        rig.model.faults().arm(at, life);
        let before = rig.between.time();
        let error = rig.controller.smart_log().unwrap_err().to_string();
        assert!(error.contains(expected), "{life:?}: {error}");
        assert!(rig.between.time() - before < Duration::from_secs(1), "{life:?}: it was waited through");
    }
}

#[test]
fn what_the_admin_queue_is_sent_that_is_nobody_s_is_counted() {
    let mut rig = rig();
    let action = Action::StrangeCid { cid: StrangeCid::OutOfRange, instead: false };
    rig.model.faults().add(Rule { queue: CommandQueue::Admin, opcode: None, when: When::Nth(1), action });
    rig.controller.smart_log().unwrap();
    assert_eq!((rig.controller.admin_anomalies().out_of_range_cid, rig.controller.admin_anomalies().total()), (1, 1));
}

/// Invariant 5, where a controller was reset by somebody else: neither a command nor an abort rings its admin doorbell.
#[test]
fn no_admin_doorbell_is_rung_after_a_reset_that_was_not_ours() {
    for overdue in [false, true] {
        let mut rig = rig();
        rig.submit(0..2);
        rig.between.inner.write_u32(offset::NSSR, NSSR_RESET);
        if overdue {
            let (attended, interrupted) = rig.attend(RecoveryConfig::default().command_timeout.as_millis() as u32 + 1);
            assert!(matches!(attended, Attended::Recovered { .. }), "{attended:?}");
            assert_eq!(interrupted, [0, 1]);
            rig.works();
        } else {
            let error = rig.controller.smart_log().unwrap_err().to_string();
            assert!(error.contains("CSTS.RDY is 0"), "{error}");
        }
        assert_eq!(rig.model.violations(), []);
    }
}

#[test]
fn a_shutdown_of_a_controller_that_is_gone_does_not_wait_and_says_so() {
    let rig = rig();
    rig.between.bend(|bent| bent.all_zeroes = true);
    let before = rig.between.time();
    let error = rig.controller.shutdown().unwrap_err();
    assert!(matches!(error, ControllerError::Gone { cap: 0, .. }), "{error}");
    assert!(rig.between.time() - before < Duration::from_secs(1), "it was waited through");
}

#[test]
fn a_shutdown_after_a_stop_says_that_it_was_none() {
    let mut rig = rig();
    rig.controller.stop_reach();
    let error = rig.controller.shutdown().unwrap_err();
    assert!(matches!(error, ControllerError::Stopped { how: ReachEnd::NotReady }), "{error}");
}

/// A controller that is given up takes nothing: what is submitted all the same ends at the next look.
#[test]
fn what_is_submitted_to_a_removed_controller_ends() {
    let mut rig = rig();
    rig.submit(0..2);
    rig.between.bend(|bent| bent.all_ones = true);
    // Whoever stopped it may have dropped the proof.
    let _ = rig.controller.stop_reach();
    assert_eq!(rig.controller.removed(), Some(ReachEnd::CutOff));
    rig.submit(2..4);
    let (attended, mut interrupted) = rig.attend(1000);
    interrupted.sort_unstable();
    assert_eq!(interrupted, [0, 1, 2, 3], "each ends once");
    assert!(matches!(attended, Attended::Removed { how: ReachEnd::CutOff, .. }), "{attended:?}");
    let (attended, interrupted) = rig.attend(1001);
    assert!(matches!(attended, Attended::Fine) && interrupted.is_empty());
}

/// Aborts are waited for one by one, and meanwhile nobody takes completions: all of them together have the deadline of
/// the step.
#[test]
fn slow_aborts_of_many_commands_have_one_deadline() {
    let recovery = RecoveryConfig { abort_timeout: Duration::from_millis(50), ..RecoveryConfig::default() };
    let overdue = recovery.command_timeout.as_millis() as u32 + 1;
    let admin_timeout = Duration::from_millis(100);
    let mut rig = rig_with(ControllerConfig { admin_timeout, recovery, ..ControllerConfig::default() });
    let rule = |queue, opcode, action| Rule { queue, opcode, when: When::Next(100), action };
    rig.model.faults().add(rule(CommandQueue::Io, None, Action::Drop { execute: false }));
    let slow = Action::Delay { turns: 300 };
    rig.model.faults().add(rule(CommandQueue::Admin, Some(AdminOpcode::ABORT.raw()), slow));
    rig.submit(0..15);
    let before = rig.between.time();
    let (attended, _) = rig.attend(overdue);
    assert!(matches!(attended, Attended::Fine), "{attended:?}");
    let took = rig.between.time() - before;
    assert!(took < Duration::from_millis(50) + admin_timeout, "the aborts took {took:?}");
    let aborts = rig.controller.recovery_counters().aborts;
    assert!((1..15).contains(&aborts), "{aborts}");
    // The next look goes on from there, or, as here, does what comes after an abort.
    let (attended, interrupted) = rig.attend(overdue + 51);
    assert!(matches!(attended, Attended::Recovered { .. }), "{attended:?}");
    assert_eq!(interrupted.len(), 15);
}
