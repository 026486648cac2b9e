use std::sync::Arc;

use super::super::{Attended, ControllerConfig};
use super::*;
use crate::dma::{Access, HostMemory, Iova};
use crate::model::{Drive, Model, ModelConfig, SoftwareIommu};
use crate::queue::{Extent, QueuePair};
use crate::spec::ZeroesBased;
use crate::spec::command::Sqe;

#[test]
fn what_the_registers_say_is_checked() {
    let sz = Cmbsz::default().with_szu(2).with_sz(3).with_sqs(true).with_wds(true);
    let loc = Cmbloc::default().with_bir(4).with_ofst(5);
    let buffer = decode(loc, sz).unwrap().unwrap();
    assert_eq!((buffer.size, buffer.bar, buffer.offset), (3 << 20, 4, 5 << 20));
    assert!(buffer.submission_queues && buffer.write_data);
    assert!(!buffer.completion_queues && !buffer.lists && !buffer.read_data);
    // The greatest that the fields can say fits into 64 bits.
    let most = decode(loc.with_ofst(0xF_FFFF), sz.with_szu(6).with_sz(0xF_FFFF)).unwrap().unwrap();
    assert_eq!(most.size, 0xF_FFFF << 36);
    assert_eq!(decode(loc, sz.with_sz(0)).unwrap(), None);
    for (loc, sz, field) in
        [(loc, sz.with_szu(7), "CMBSZ.SZU"), (loc.with_bir(1), sz, "CMBLOC.BIR"), (loc.with_bir(6), sz, "CMBLOC.BIR")]
    {
        let Err(ControllerError::Page { field: found, .. }) = decode(loc, sz) else { panic!("{field}") };
        assert_eq!(found, field);
    }
}

/// One command, which must succeed.
fn run(model: &Model, pair: &mut QueuePair<u32>, sqe: Sqe, iova: Iova) {
    pair.submit(sqe, &[Extent { iova, len: 4096 }], 0).unwrap();
    pair.ring();
    let mut status = None;
    while status.is_none() {
        model.turn();
        pair.poll(1, |completion| status = Some(completion.status));
    }
    assert!(status.unwrap().is_success(), "{status:?}");
}

/// A controller with a buffer of 16 pages, in a space of its own.
fn with_buffer(config: ModelConfig) -> (Model, Controller) {
    let model = Model::new(ModelConfig { cmb_pages: 16, ..config }, Drive::Stepped, &SoftwareIommu::new()).unwrap();
    let controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    (model, controller)
}

fn msc(controller: &Controller) -> Cmbmsc {
    Cmbmsc::from_bits(controller.function().read_u64(offset::CMBMSC))
}

/// A block of 4 KiB that is written from memory comes back in the buffer, 8 KiB in.
fn goes_into_the_buffer(model: &Model, controller: &mut Controller, pair: &mut QueuePair<u32>, base: IovaRange) {
    let space = Arc::clone(controller.function().dma());
    let memory = space.register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    memory.view().fill(0x77);
    let one = ZeroesBased::<u16>::from_raw(0);
    run(model, pair, Sqe::write(1, 9, one), memory.iova());
    model.memory_buffer().unwrap().fill(0);
    run(model, pair, Sqe::read(1, 9, one), base.start().checked_add(8192).unwrap());
    let mut bytes = [0; 4096];
    model.memory_buffer().unwrap().read(8192, &mut bytes);
    assert_eq!(bytes, [0x77; 4096]);
}

#[test]
fn commands_read_into_the_buffer_and_write_from_it() {
    let (model, mut controller) = with_buffer(ModelConfig::default());
    let buffer = controller.memory_buffer().unwrap().unwrap();
    assert_eq!((buffer.size, buffer.bar, buffer.offset), (16 * 4096, 2, 0));
    assert!(buffer.read_data && buffer.write_data);
    let base = controller.open_memory_buffer().unwrap();
    assert_eq!((base.len(), controller.open_memory_buffer().unwrap()), (buffer.size, base));
    let mut pair = controller.create_queue_pair(8).unwrap();
    goes_into_the_buffer(&model, &mut controller, &mut pair, base);
    // And out of it, to be seen in memory.
    let one = ZeroesBased::<u16>::from_raw(0);
    run(&model, &mut pair, Sqe::write(1, 10, one), base.start().checked_add(8192).unwrap());
    let memory = controller.function().dma().register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    run(&model, &mut pair, Sqe::read(1, 10, one), memory.iova());
    let mut bytes = [0; 4096];
    memory.view().read(0, &mut bytes);
    assert_eq!(bytes, [0x77; 4096]);
    controller.shutdown().unwrap();
    assert_eq!(model.violations(), []);
}

#[test]
fn it_is_open_at_the_same_place_after_every_recovery() {
    for flr in [false, true] {
        let (model, mut controller) = with_buffer(ModelConfig { flr, ..ModelConfig::default() });
        let base = controller.open_memory_buffer().unwrap();
        let mut pair = controller.create_queue_pair(8).unwrap();
        let attended = controller.recover(&mut [&mut pair], &mut |_| {}, "a test".to_owned());
        assert!(matches!(attended, Attended::Recovered { .. }), "{attended:?}");
        goes_into_the_buffer(&model, &mut controller, &mut pair, base);
    }
}

#[test]
fn what_is_closed_leaves_its_iovas_to_others() {
    let (model, mut controller) = with_buffer(ModelConfig::default());
    let space = Arc::clone(controller.function().dma());
    let free = space.free_iovas();
    let base = controller.open_memory_buffer().unwrap();
    assert_eq!(space.free_iovas(), free - base.len());
    controller.close_memory_buffer();
    assert!(!msc(&controller).cmse() && space.free_iovas() == free);
    controller.close_memory_buffer();
    // Memory that is mapped there now is reached, and not the buffer.
    let memory = space.register(HostMemory::allocate(16 * 4096).unwrap(), Access::all()).unwrap();
    assert_eq!(memory.range(), base);
    let mut pair = controller.create_queue_pair(8).unwrap();
    memory.view().fill(0x33);
    run(&model, &mut pair, Sqe::read(1, 9, ZeroesBased::<u16>::from_raw(0)), memory.iova());
    let mut bytes = [0xEE; 4096];
    memory.view().read(0, &mut bytes);
    assert_eq!(bytes, [0; 4096]);
    assert_eq!(model.violations(), []);
}

#[test]
fn a_controller_that_is_dropped_closes_it_and_one_that_is_gone_keeps_its_iovas() {
    let left = |opens: bool, gone: bool| {
        let (model, mut controller) = with_buffer(ModelConfig::default());
        let space = Arc::clone(controller.function().dma());
        if opens {
            controller.open_memory_buffer().unwrap();
        }
        let model = (!gone).then_some(model);
        drop(controller);
        drop(model);
        space.free_iovas()
    };
    assert_eq!(left(true, false), left(false, false));
    assert_eq!(left(true, true) + 16 * 4096, left(false, true));
}

/// A controller without a Function Level Reset comes as its former owner has left it.
#[test]
fn what_a_former_owner_had_opened_is_closed() {
    let config = ModelConfig { cmb_pages: 16, flr: false, ..ModelConfig::default() };
    let model = Model::new(config, Drive::Stepped, &SoftwareIommu::new()).unwrap();
    let former = Cmbmsc::default().with_cre(true).with_cmse(true).with_cba(1);
    model.function().write_u64(offset::CMBMSC, former.bits());
    let controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    assert!(!msc(&controller).cmse());
}

#[test]
fn a_controller_without_one_has_none() {
    let model = Model::new(ModelConfig::default(), Drive::Stepped, &SoftwareIommu::new()).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    assert_eq!(controller.memory_buffer().unwrap(), None);
    let error = controller.open_memory_buffer().unwrap_err();
    assert!(matches!(error, ControllerError::NotSupported { field: "CAP.CMBS", .. }), "{error}");
}
