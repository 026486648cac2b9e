//! The life of a controller, on the model and on functions that nobody answers behind.

use super::*;
use crate::bus::{BusError, Doorbell};
use crate::controller::puppet::Puppet;
use crate::dma::{Access, DmaSpace, HostMemory};
use crate::model::faults::{At, Life};
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu, Violation};
use crate::queue::Extent;
use crate::spec::status::StatusCode;

struct Rig {
    // Before the space: the model's end frees nothing that is mapped.
    model: Model,
    space: Arc<DmaSpace>,
}

fn rig(config: ModelConfig) -> Rig {
    let iommu = SoftwareIommu::new();
    let model = Model::new(config, Drive::Stepped, &iommu).unwrap();
    Rig { model, space: iommu.space() }
}

impl Rig {
    fn enable(&self) -> Result<Controller, ControllerError> {
        Controller::enable(self.model.function(), ControllerConfig::default())
    }

    #[track_caller]
    fn is_clean(&self) {
        assert_eq!(self.model.violations(), []);
    }
}

/// A function whose every register reads as one value.
struct Constant(u64, Arc<DmaSpace>);

impl Function for Constant {
    fn name(&self) -> &str {
        "constant"
    }

    fn read_u32(&self, _: u64) -> u32 {
        self.0 as u32
    }

    fn write_u32(&self, _: u64, _: u32) {}

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        Err(BusError::NoRegister { offset, end: 0 })
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.1
    }

    fn revoke_doorbells(&self) {}

    fn reset(&self) -> Result<(), BusError> {
        Err(BusError::NoReset)
    }

    fn disable_bus_mastering(&self) -> Result<(), BusError> {
        Err(BusError::Gone { what: "bus mastering" })
    }

    fn enable_bus_mastering(&self) -> Result<(), BusError> {
        Err(BusError::Gone { what: "bus mastering" })
    }

    fn cut_off(&self) {}
}

#[test]
fn enabled_identified_and_shut_down() {
    let rig = rig(ModelConfig { size: 3 << 30, lba_size: 512, queues: 5, ..ModelConfig::default() });
    let mut controller = rig.enable().unwrap();
    assert_eq!(controller.queue_pairs(), 5, "fewer than asked for");
    assert_eq!(controller.limits().max_transfer, 2 << 20);
    let namespaces = controller.namespaces().unwrap();
    let [namespace] = &namespaces[..] else { panic!("one namespace") };
    let limits = namespace.limits.unwrap();
    assert_eq!((namespace.nsid, limits.lba_size(), limits.capacity()), (1, 512, 3 << 30));
    assert!(controller.smart_log().unwrap().composite_temperature.get() > 0);
    controller.shutdown().unwrap();
    rig.is_clean();
}

#[test]
fn a_controller_that_somebody_left_enabled_is_taken_over() {
    let rig = rig(ModelConfig::default());
    let first = rig.enable().unwrap();
    std::mem::forget(first);
    rig.enable().unwrap().shutdown().unwrap();
    rig.is_clean();
}

#[test]
fn dropping_a_controller_disables_it() {
    let rig = rig(ModelConfig::default());
    let controller = rig.enable().unwrap();
    let function = Arc::clone(controller.function());
    drop(controller);
    assert_eq!(function.read_u32(offset::CSTS) & 1, 0);
    rig.is_clean();
}

#[test]
fn queue_pairs_are_counted_deleted_and_used_again() {
    let rig = rig(ModelConfig { queues: 2, mqes: 15, ..ModelConfig::default() });
    let mut controller = rig.enable().unwrap();
    let mut first: QueuePair<u32> = controller.create_queue_pair(16).unwrap();
    let second: QueuePair<u32> = controller.create_queue_pair(2).unwrap();
    assert_eq!((first.qid(), second.qid()), (1, 2));
    let none = controller.create_queue_pair::<u32>(2).err().unwrap();
    assert!(matches!(none, ControllerError::NoQueueLeft { granted: 2 }), "{none}");
    controller.delete_queue_pair(&mut first).unwrap();
    let too_large = controller.create_queue_pair::<u32>(17).err().unwrap().to_string();
    assert!(too_large.contains("2 to 16 are possible"), "{too_large}");

    // A queue that is created again starts anew: the old entries in its memory are not taken for completions.
    let mut again: QueuePair<u32> = controller.create_queue_pair(3).unwrap();
    assert_eq!(again.qid(), 1);
    let memory = rig.space.register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    let extents = [Extent { iova: memory.iova(), len: 4096 }];
    for round in 0..10 {
        assert_eq!(again.poll(8, |_| panic!("nothing was asked for in round {round}")), 0);
        let read = Sqe::read(1, round, ZeroesBased::<u16>::from_raw(0));
        again.submit(read, &extents, round as u32).unwrap();
        again.ring();
        while again
            .poll(8, |completion| assert_eq!((completion.token, completion.status.is_success()), (round as u32, true)))
            == 0
        {
            rig.model.turn();
        }
    }
    assert_eq!(again.anomalies().total(), 0);
    rig.is_clean();
}

#[test]
fn a_status_of_an_admin_command_is_an_error_with_its_name() {
    let rig = rig(ModelConfig::default());
    let mut controller = rig.enable().unwrap();
    let error = controller.admin.execute(Sqe::delete_io_submission_queue(9)).unwrap_err();
    match error {
        ControllerError::Command { command, status } => {
            assert_eq!((command, status.code()), ("Delete I/O Submission Queue", StatusCode::INVALID_QUEUE_IDENTIFIER));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_controller_that_was_dropped_or_shut_down_can_be_enabled_again() {
    let rig = rig(ModelConfig::default());
    for round in 0..4 {
        let controller = rig.enable().unwrap();
        if round % 2 == 0 {
            drop(controller);
        } else {
            controller.shutdown().unwrap();
        }
    }
    rig.model.function().reset().unwrap();
    rig.enable().unwrap();
    rig.is_clean();
}

#[test]
fn a_controller_that_does_not_become_ready_is_disabled_again() {
    for life in [Life::NeverReady, Life::FatalAtEnable] {
        let rig = rig(ModelConfig { to: 0, ..ModelConfig::default() });
        rig.model.faults().arm(At::Now, life);
        let config = ControllerConfig { least_ready_timeout: Duration::from_millis(5), ..ControllerConfig::default() };
        assert!(Controller::enable(rig.model.function(), config).is_err());
        let function = rig.model.function();
        assert_eq!((function.read_u32(offset::CC) & 1, function.read_u32(offset::CSTS) & 1), (0, 0), "{life:?}");
        rig.enable().unwrap();
        rig.is_clean();
    }
}

/// Field failure 1.
#[test]
fn ready_that_never_comes_is_a_named_timeout() {
    let rig = rig(ModelConfig { ready_delay: u32::MAX, to: 1, ..ModelConfig::default() });
    let error = rig.enable().err().unwrap();
    assert_eq!(error.to_string(), "CSTS.RDY did not become 1 after CC.EN = 1 within 500 ms (CSTS reads 0x00000000)");
}

#[test]
fn a_shutdown_that_never_ends_is_a_named_timeout() {
    let rig = rig(ModelConfig { shutdown_delay: u32::MAX, ..ModelConfig::default() });
    let config = ControllerConfig { shutdown_timeout: Duration::from_millis(1), ..ControllerConfig::default() };
    let mut controller = Controller::enable(rig.model.function(), config).unwrap();
    controller.identify.rtd3e = 1000;
    let error = controller.shutdown().unwrap_err();
    assert!(matches!(error, ControllerError::Timeout { wait: Wait::ShutdownComplete, .. }), "{error}");
    assert!(error.to_string().contains("within 1 ms"), "{error}");
}

/// RTD3E and CAP.TO are the device's word: by RTD3E alone it could have a shutdown wait for 71 minutes.
#[test]
fn what_a_controller_asks_for_has_a_limit() {
    let short = Duration::from_millis(1);
    let config = ControllerConfig {
        shutdown_timeout: short,
        least_ready_timeout: short,
        longest_wait: Duration::from_millis(2),
        ..ControllerConfig::default()
    };
    let slow = rig(ModelConfig { ready_delay: u32::MAX, to: 255, ..ModelConfig::default() });
    let error = Controller::enable(slow.model.function(), config.clone()).err().unwrap().to_string();
    assert!(error.contains("within 2 ms"), "{error}");

    let rig = rig(ModelConfig { shutdown_delay: u32::MAX, ready_delay: 0, ..ModelConfig::default() });
    let mut controller = Controller::enable(rig.model.function(), config).unwrap();
    controller.identify.rtd3e = u32::MAX;
    let error = controller.shutdown().unwrap_err().to_string();
    assert!(error.contains("within 2 ms"), "{error}");
}

/// Field failure 4, as far as it is seen before anything is running.
#[test]
fn nobody_behind_the_registers() {
    for value in [0, u64::MAX] {
        let space = SoftwareIommu::new().space();
        let function = Arc::new(Constant(value, space));
        let error = Controller::enable(function, ControllerConfig::default()).err().unwrap();
        assert!(matches!(error, ControllerError::Gone { .. }), "{error}");
    }
}

#[test]
fn a_controller_that_goes_away_is_told_from_one_that_is_slow() {
    let Rig { model, space } = rig(ModelConfig { to: 1, ..ModelConfig::default() });
    let function = model.function();
    let config = ControllerConfig { admin_timeout: Duration::from_millis(5), ..ControllerConfig::default() };
    let mut controller = Controller::enable(function, config).unwrap();
    drop(model);
    let error = controller.smart_log().unwrap_err();
    assert!(matches!(error, ControllerError::Gone { cap: u64::MAX, csts: u32::MAX }), "{error}");
    // It is told anew each time: no command was sent that could be lost.
    assert!(matches!(controller.smart_log().unwrap_err(), ControllerError::Gone { .. }));
    assert!(matches!(controller.shutdown().unwrap_err(), ControllerError::Gone { .. }));
    drop(space);
}

/// Field failure 8, the admin queue's part.
#[test]
fn page_sizes_and_doorbell_strides() {
    for mpsmin in [0, 1, 4] {
        for dstrd in [0, 1, 10] {
            let rig = rig(ModelConfig { mpsmin, mpsmax: 4, dstrd, ..ModelConfig::default() });
            let mut controller = rig.enable().unwrap();
            assert_eq!(controller.limits().page_size, 4096 << mpsmin);
            controller.create_queue_pair::<()>(8).unwrap();
            controller.shutdown().unwrap();
            rig.is_clean();
        }
    }
    let rig = rig(ModelConfig { mpsmin: 5, mpsmax: 5, ..ModelConfig::default() });
    let error = rig.enable().err().unwrap();
    assert!(matches!(error, ControllerError::PageSize { min: 131_072, max: 65_536 }), "{error}");
}

/// A lane that rings after its controller was shut down rings at nobody.
#[test]
fn a_doorbell_after_a_shutdown_leads_nowhere() {
    let rig = rig(ModelConfig::default());
    let mut controller = rig.enable().unwrap();
    let mut pair: QueuePair<()> = controller.create_queue_pair(8).unwrap();
    controller.shutdown().unwrap();
    pair.submit(Sqe::flush(1), &[], ()).unwrap();
    pair.ring();
    rig.is_clean();
}

/// The negative control of `is_clean`: without revoking the doorbells the same is a violation.
#[test]
fn a_doorbell_while_the_controller_is_disabled_is_seen() {
    let rig = rig(ModelConfig::default());
    let mut controller = rig.enable().unwrap();
    let mut pair: QueuePair<()> = controller.create_queue_pair(8).unwrap();
    controller.function.write_u32(offset::CC, 0);
    pair.submit(Sqe::flush(1), &[], ()).unwrap();
    pair.ring();
    assert!(matches!(
        rig.model.violations()[..],
        [Violation::DoorbellWhileNotReady { .. } | Violation::DoorbellOfFormerEpoch { .. }]
    ));
}

/// A host without room for one more mapping leaves no controller enabled behind.
#[test]
fn a_controller_without_memory_for_it_is_not_left_enabled() {
    let identify = IdentifyController { nn: 1, ..IdentifyController::default() };
    for limit in [0, 1] {
        let puppet = Puppet::with_mappings(limit, identify.clone(), |_, _| None);
        let error = puppet.enable(ControllerConfig::default()).err().unwrap();
        assert!(error.to_string().contains("at its limit"), "{error}");
        assert!(!puppet.is_enabled(), "with {limit} mappings");
    }
    assert!(Puppet::with_mappings(2, identify, |_, _| None).enable(ControllerConfig::default()).is_ok());
}
