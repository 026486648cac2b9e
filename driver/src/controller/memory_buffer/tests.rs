use super::super::ControllerConfig;
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

#[test]
fn a_command_reads_into_the_buffer_that_was_found() {
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig { cmb_pages: 16, ..ModelConfig::default() }, Drive::Stepped, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    let buffer = controller.memory_buffer().unwrap().unwrap();
    assert_eq!((buffer.size, buffer.bar, buffer.offset), (16 * 4096, 2, 0));
    assert!(buffer.read_data && buffer.write_data);

    // What a user of the buffer would do: give it addresses that are nobody else's.
    let base = Iova::new(1 << 47).unwrap();
    let msc = Cmbmsc::default().with_cre(true).with_cmse(true).with_cba(base.get() >> 12);
    controller.function().write_u64(offset::CMBMSC, msc.bits());
    let mut pair = controller.create_queue_pair(8).unwrap();
    let memory = iommu.space().register(HostMemory::allocate(4096).unwrap(), Access::all()).unwrap();
    memory.view().fill(0x77);
    let one = ZeroesBased::<u16>::from_raw(0);
    run(&model, &mut pair, Sqe::write(1, 9, one), memory.iova());
    run(&model, &mut pair, Sqe::read(1, 9, one), base.checked_add(8192).unwrap());
    let mut bytes = [0; 4096];
    model.memory_buffer().unwrap().read(8192, &mut bytes);
    assert_eq!(bytes, [0x77; 4096]);
    controller.shutdown().unwrap();
    assert_eq!(model.violations(), []);
}

#[test]
fn a_controller_without_one_has_none() {
    let iommu = SoftwareIommu::new();
    let model = Model::new(ModelConfig::default(), Drive::Stepped, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    assert_eq!(controller.memory_buffer().unwrap(), None);
}
