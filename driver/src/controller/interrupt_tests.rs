//! Interrupts of queue pairs against a model with a thread: who arms one, looks, and sleeps is woken.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::bus::BusError;
use crate::dma::{Access, DmaSpace, HostMemory, Region};
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::queue::Extent;

struct Rig {
    pair: QueuePair<u32>,
    interrupt: Box<dyn Interrupt>,
    memory: Region<HostMemory>,
    controller: Controller,
    // After the controller: it is told to stop before the model that it is goes away.
    model: Model,
    _space: Arc<DmaSpace>,
}

fn rig() -> Rig {
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig::default(), Drive::Threaded, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    let (pair, interrupt) = controller.create_queue_pair_with_interrupt(8).unwrap();
    assert_eq!(pair.vector(), Some(pair.qid()));
    let memory = iommu.space().register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    Rig { pair, interrupt: interrupt.unwrap(), memory, controller, model, _space: iommu.space() }
}

impl Rig {
    fn read(&mut self) {
        let extent = Extent { iova: self.memory.iova(), len: 4096 };
        let blocks = ZeroesBased::<u16>::from_count(1).unwrap();
        self.pair.submit(Sqe::read(1, 0, blocks), &[extent], 7).unwrap();
        self.pair.ring();
    }

    fn look(&mut self) -> usize {
        self.pair.poll(8, |completion| assert!(completion.status.is_success()))
    }

    /// Whether the interrupt comes within a limit that a sound one never reaches, or none at all.
    fn comes(&self, seconds: i64) -> bool {
        let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.interrupt, PollFlags::IN)];
        poll(&mut polled, Some(&limit)).unwrap() == 1
    }
}

#[test]
fn whoever_arms_looks_and_sleeps_is_woken_each_time() {
    let mut rig = rig();
    for _ in 0..500 {
        rig.read();
        rig.interrupt.arm().unwrap();
        // Where the completion came before, nothing need be told.
        if rig.look() == 0 {
            assert!(rig.comes(600), "it was posted after it was armed");
            assert_eq!(rig.look(), 1, "the entry comes before the interrupt");
            rig.interrupt.disarm();
            assert!(!rig.comes(0), "disarmed");
        }
        rig.interrupt.disarm();
    }
    // Who polls has none. What the last command above may still have had to tell it has told when the next one ends.
    for _ in 0..2 {
        rig.read();
        while rig.look() == 0 {
            std::thread::yield_now();
        }
        rig.interrupt.disarm();
    }
    rig.read();
    while rig.look() == 0 {
        std::thread::yield_now();
    }
    assert!(!rig.comes(0));
    let Rig { mut pair, controller, model, .. } = rig;
    let mut controller = controller;
    controller.delete_queue_pair(&mut pair).unwrap();
    controller.shutdown().unwrap();
    assert_eq!(model.violations(), []);
}

#[test]
fn who_stays_armed_is_woken_each_time_and_arming_forgets_what_was_told() {
    let mut rig = rig();
    for _ in 0..500 {
        rig.interrupt.arm().unwrap();
        rig.read();
        assert!(rig.comes(600), "it has been armed since before the command");
        assert_eq!(rig.look(), 1, "the entry comes before the interrupt");
        assert!(rig.comes(0), "looking at the queue forgets nothing");
    }
    rig.interrupt.arm().unwrap();
    assert!(!rig.comes(0), "of what has been seen");
    rig.interrupt.disarm();
    rig.interrupt.disarm();
    rig.read();
    while rig.look() == 0 {
        std::thread::yield_now();
    }
    assert!(!rig.comes(0));
}

#[test]
fn a_pair_has_its_interrupt_in_the_next_life_too() {
    let mut rig = rig();
    let ended = rig.controller.recover(&mut [&mut rig.pair], &mut |_| (), "to see".to_owned());
    assert!(matches!(ended, Attended::Recovered { .. }), "{ended:?}");
    rig.interrupt.arm().unwrap();
    rig.read();
    assert!(rig.comes(600));
    assert_eq!(rig.look(), 1);
}

#[test]
fn where_there_is_none_the_pair_is_polled() {
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig::default(), Drive::Stepped, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    let (pair, interrupt) = controller.create_queue_pair_with_interrupt::<u32>(8).unwrap();
    assert!(interrupt.is_none() && pair.vector().is_none(), "its thread would have to run it to be interrupted");
    let threaded = Model::new(ModelConfig::default(), Drive::Threaded, &iommu).unwrap();
    let vectors = u32::from(ModelConfig::default().queues) + 1;
    let error = threaded.function().interrupt(u16::MAX).map(drop).unwrap_err();
    assert_eq!(error, BusError::NoInterrupt { vector: u16::MAX, vectors });
    assert!(threaded.function().interrupt(vectors as u16 - 1).is_ok());
}
