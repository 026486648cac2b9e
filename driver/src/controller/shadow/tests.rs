//! Queue pairs with doorbells in memory against the model, which sleeps until it is rung for.

use std::sync::Arc;

use super::super::quirks::{Quirk, QuirkFlags};
use super::*;
use crate::controller::{Attended, ControllerConfig};
use crate::dma::DmaSpace;
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::queue::QueuePair;
use crate::spec::command::NvmOpcode;

struct Rig {
    controller: Controller,
    // After the controller: it is told to stop before the model that it is goes away.
    model: Model,
    _space: Arc<DmaSpace>,
}

fn rig(model: ModelConfig, driver: ControllerConfig, drive: Drive) -> Rig {
    let iommu = SoftwareIommu::new();
    let model = Model::new(model, drive, &iommu).unwrap();
    let controller = Controller::enable(model.function(), driver).unwrap();
    Rig { controller, model, _space: iommu.space() }
}

fn with_shadows() -> (ModelConfig, ControllerConfig) {
    let model = ModelConfig { shadow_doorbells: true, ..ModelConfig::default() };
    (model, ControllerConfig { shadow_doorbells: true, ..ControllerConfig::default() })
}

/// Runs `commands` on `pair`, up to `depth` at a time, with `pause` between two looks.
fn run(pair: &mut QueuePair<u32>, commands: u32, depth: u32, pause: impl Fn()) {
    let (mut submitted, mut ended, mut idle) = (0, 0, 0u32);
    while ended < commands {
        while submitted < commands && submitted - ended < depth {
            pair.submit(Sqe::nvm(NvmOpcode::FLUSH, 1), &[], submitted).unwrap();
            submitted += 1;
        }
        pair.ring();
        pause();
        let before = ended;
        pair.poll(16, |completion| {
            assert!(completion.status.is_success());
            assert_eq!(completion.token, ended);
            ended += 1;
        });
        idle = if ended > before { 0 } else { idle + 1 };
        assert!(idle < 10_000_000, "command {ended} of {submitted} got no answer");
    }
}

#[test]
fn only_where_they_are_wanted_and_had() {
    for (has, wanted) in [(false, false), (true, false), (false, true), (true, true)] {
        let model = ModelConfig { shadow_doorbells: has, ..ModelConfig::default() };
        let driver = ControllerConfig { shadow_doorbells: wanted, ..ControllerConfig::default() };
        let mut rig = rig(model, driver, Drive::Stepped);
        assert_eq!(rig.controller.has_shadow_doorbells(), has && wanted);
        let mut pair = rig.controller.create_queue_pair(16).unwrap();
        run(&mut pair, 100, 8, || _ = rig.model.turn());
        rig.controller.shutdown().unwrap();
        assert_eq!(rig.model.violations(), []);
    }
}

#[test]
fn not_where_a_quirk_forbids_them() {
    static TABLE: &[Quirk] = &[Quirk {
        vendor: 0,
        device: None,
        model: "Tentpeg",
        firmware: "",
        flags: QuirkFlags::NO_SHADOW_DOORBELLS,
        reason: "a test",
    }];
    let (model, driver) = with_shadows();
    let rig = rig(model, ControllerConfig { quirks: TABLE, ..driver }, Drive::Stepped);
    assert!(!rig.controller.has_shadow_doorbells());
}

#[test]
fn a_busy_controller_is_not_rung_for() {
    let doorbells = |wanted| {
        let (model, driver) = with_shadows();
        let driver = ControllerConfig { shadow_doorbells: wanted, ..driver };
        let mut rig = rig(model, driver, Drive::Stepped);
        let mut pair = rig.controller.create_queue_pair(64).unwrap();
        run(&mut pair, 1000, 4, || _ = rig.model.turn());
        assert_eq!(rig.model.violations(), []);
        pair.counters().doorbells
    };
    let (plain, shadowed) = (doorbells(false), doorbells(true));
    assert!(shadowed * 10 < plain, "{shadowed} of {plain}");
}

#[test]
fn a_sleeping_controller_is_rung_for_each_time() {
    let (model, driver) = with_shadows();
    let mut rig = rig(model, driver, Drive::Stepped);
    for dive in [1, 3, 50] {
        let mut pair = rig.controller.create_queue_pair(8).unwrap();
        run(&mut pair, 100, 1, || (0..dive).for_each(|_| _ = rig.model.turn()));
        // The identifier is free, and its words in the buffers are used again.
        rig.controller.delete_queue_pair(&mut pair).unwrap();
    }
    assert_eq!(rig.model.violations(), []);
}

#[test]
fn buffers_are_made_known_again_after_a_reset() {
    let (model, driver) = with_shadows();
    let mut rig = rig(ModelConfig { dstrd: 2, ..model }, driver, Drive::Stepped);
    let mut pairs = [16, 8].map(|entries| rig.controller.create_queue_pair(entries).unwrap());
    for round in 0..3 {
        for pair in &mut pairs {
            run(pair, 100, 7, || _ = rig.model.turn());
            // Something is under way when the controller is stopped.
            pair.submit(Sqe::nvm(NvmOpcode::FLUSH, 1), &[], 7).unwrap();
            pair.ring();
        }
        let mut interrupted = 0;
        let [first, second] = &mut pairs;
        let attended = rig.controller.recover(&mut [first, second], &mut |_| interrupted += 1, "a test".to_owned());
        assert!(matches!(attended, Attended::Recovered { .. }), "{round}: {attended:?}");
        assert!(interrupted <= 2);
        assert!(rig.controller.has_shadow_doorbells());
    }
    rig.controller.shutdown().unwrap();
    assert_eq!(rig.model.violations(), []);
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    let (model, driver) = with_shadows();
    let mut rig = rig(model, driver, Drive::Threaded);
    let mut pair = rig.controller.create_queue_pair(8).unwrap();
    run(&mut pair, 20_000, 7, std::thread::yield_now);
    run(&mut pair, 5_000, 1, std::thread::yield_now);
    rig.controller.shutdown().unwrap();
    assert_eq!(rig.model.violations(), []);
}
