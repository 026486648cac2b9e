//! A queue pair against a device that the test plays by hand, honest or not.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::bus::Doorbell;
use crate::dma::{AddressSpace, DmaSpace, IovaAllocator, IovaRange, MapError};
use crate::queue::sgl::SglError;
use crate::spec::ZeroesBased;
use crate::spec::completion::StatusField;
use crate::spec::sgl::SglDescriptor;
use crate::spec::status::StatusCode;

/// A function without registers: it notes the doorbells that were rung.
struct Bench {
    space: Arc<DmaSpace>,
    rung: Arc<Mutex<Vec<(u64, u16)>>>,
}

struct Note {
    offset: u64,
    rung: Arc<Mutex<Vec<(u64, u16)>>>,
}

impl Doorbell for Note {
    fn ring(&self, value: u16) {
        self.rung.lock().unwrap().push((self.offset, value));
    }
}

struct Everything;

impl AddressSpace for Everything {
    fn page_size(&self) -> u64 {
        4096
    }

    unsafe fn map(&self, _: IovaRange, _: std::ptr::NonNull<u8>, _: Access) -> Result<(), MapError> {
        Ok(())
    }

    fn unmap(&self, _: IovaRange) -> Result<(), MapError> {
        Ok(())
    }
}

impl Function for Bench {
    fn name(&self) -> &str {
        "bench"
    }

    fn read_u32(&self, _: u64) -> u32 {
        u32::MAX
    }

    fn write_u32(&self, _: u64, _: u32) {}

    fn doorbell(&self, offset: u64) -> Result<Box<dyn Doorbell>, BusError> {
        if offset >= 0x2000 {
            return Err(BusError::NoRegister { offset, end: 0x2000 });
        }
        Ok(Box::new(Note { offset, rung: Arc::clone(&self.rung) }))
    }

    fn dma(&self) -> &Arc<DmaSpace> {
        &self.space
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

/// The device's side of a pair: where it is in both rings.
struct Device {
    fetched: u16,
    tail: u16,
    phase: bool,
    entries: u16,
}

impl Device {
    /// The next SQE.
    fn fetch(&mut self, pair: &QueuePair<u32>) -> Sqe {
        let mut words = [0u64; 8];
        pair.memory.view().read_words(usize::from(self.fetched) * SQE, &mut words);
        self.fetched = (self.fetched + 1) % self.entries;
        zerocopy::transmute!(words)
    }

    /// Posts a completion as the controller would.
    fn post(&mut self, pair: &QueuePair<u32>, cid: u16, status: Status, sqhd: u16) {
        self.post_for(pair, pair.qid(), cid, status, sqhd);
    }

    /// Posts a completion of a command of queue `sqid`.
    fn post_for(&mut self, pair: &QueuePair<u32>, sqid: u16, cid: u16, status: Status, sqhd: u16) {
        let at = pair.completion_offset as usize + usize::from(self.tail) * CQE;
        let view = pair.memory.view();
        view.write(at, &7u32.to_le_bytes());
        view.write(at + 8, &sqhd.to_le_bytes());
        view.write(at + 10, &sqid.to_le_bytes());
        let field = StatusField::new(self.phase, status);
        view.atomic_u32(at + 12).store(u32::from(field.bits()) << 16 | u32::from(cid), Ordering::Release);
        self.tail += 1;
        if self.tail == self.entries {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }
}

fn bench(entries: u32) -> (Bench, QueuePair<u32>, Device) {
    bench_with(entries, None)
}

fn bench_with(entries: u32, sgl: Option<SglSupport>) -> (Bench, QueuePair<u32>, Device) {
    let range = IovaRange::new(Iova::new(0x10_0000).unwrap(), 1 << 40).unwrap();
    let space = DmaSpace::new(Arc::new(Everything), IovaAllocator::new(&[range], &[]));
    let bench = Bench { space, rung: Arc::default() };
    let function: Arc<dyn Function> =
        Arc::new(Bench { space: Arc::clone(&bench.space), rung: Arc::clone(&bench.rung) });
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(1023));
    let limits = ControllerLimits { sgl, ..ControllerLimits::new(cap, 4096, 5).unwrap() };
    let pair = QueuePair::new(&function, cap, &limits, 1, entries).unwrap();
    (bench, pair, Device { fetched: 0, tail: 0, phase: true, entries: entries as u16 })
}

fn read_at(slba: u64) -> Sqe {
    Sqe::read(1, slba, ZeroesBased::<u16>::from_raw(0))
}

fn page(iova: u64) -> [Extent; 1] {
    [Extent { iova: Iova::new(iova).unwrap(), len: 4096 }]
}

#[test]
fn a_command_is_in_the_ring_before_its_doorbell_and_each_doorbell_is_rung_once() {
    let (bench, mut pair, mut device) = bench(8);
    for number in 0..5u32 {
        pair.submit(read_at(number.into()), &page(0x20_0000), number).unwrap();
    }
    assert!(bench.rung.lock().unwrap().is_empty(), "submit rings nothing");
    pair.ring();
    pair.ring();
    assert_eq!(*bench.rung.lock().unwrap(), [(0x1008, 5)], "one for five commands, and none for nothing");
    for number in 0..5 {
        let sqe = device.fetch(&pair);
        assert_eq!((sqe.slba(), sqe.prp1), (number, 0x20_0000));
        device.post(&pair, sqe.cid, Status::SUCCESS, 5);
    }
    let mut tokens = Vec::new();
    assert_eq!(pair.poll(4, |completion| tokens.push((completion.token, completion.dw0))), 4);
    assert_eq!(pair.poll(4, |completion| tokens.push((completion.token, completion.dw0))), 1);
    assert_eq!(pair.poll(4, |_| panic!("nothing is new")), 0);
    assert_eq!(tokens, [(0, 7), (1, 7), (2, 7), (3, 7), (4, 7)]);
    assert_eq!(bench.rung.lock().unwrap()[1..], [(0x100c, 4), (0x100c, 5)]);
    assert_eq!(pair.counters(), PairCounters { commands: 5, completions: 5, doorbells: 3 });
}

#[test]
fn full_slots_are_an_error_that_changes_nothing() {
    let (_, mut pair, mut device) = bench(4);
    for number in 0..3 {
        pair.submit(read_at(number), &page(0x20_0000), 0).unwrap();
    }
    assert_eq!(pair.submit(read_at(3), &page(0x20_0000), 0), Err(SubmitError::NoSlot { slots: 3 }));
    assert_eq!(pair.counters().commands, 3);
    let sqe = device.fetch(&pair);
    device.post(&pair, sqe.cid, Status::SUCCESS, 1);
    pair.poll(1, |_| ());
    pair.submit(read_at(3), &page(0x20_0000), 0).unwrap();
}

#[test]
fn memory_that_has_no_prps_takes_no_slot() {
    let (_, mut pair, _) = bench(4);
    let odd = [Extent { iova: Iova::new(0x20_0002).unwrap(), len: 512 }];
    assert!(matches!(
        pair.submit(read_at(0), &odd, 0),
        Err(SubmitError::Pointer(PointerError::Prp(PrpError::NotDwordAligned { .. })))
    ));
    assert_eq!(pair.free_slots(), 3);
    let long = [Extent { iova: Iova::new(0x20_0000).unwrap(), len: 4 << 20 }];
    assert!(matches!(
        pair.submit(read_at(0), &long, 0),
        Err(SubmitError::Pointer(PointerError::Prp(PrpError::TooManyPages { .. })))
    ));
    assert_eq!((pair.free_slots(), pair.counters().commands), (3, 0));
}

/// PRPs where they can, SGLs where they must: the descriptors lie in the slot's own list page, and PSDT says so.
#[test]
fn memory_without_prps_gets_an_sgl() {
    let (_, mut pair, mut device) = bench_with(4, Some(SglSupport { alignment: 4, max_descriptors: None }));
    let extent = |iova, len| Extent { iova: Iova::new(iova).unwrap(), len };
    let metadata = 0x77_0000;
    pair.submit(read_at(0).with_mptr(metadata), &page(0x20_0000), 0).unwrap();
    pair.submit(read_at(1).with_mptr(metadata), &[extent(0x20_0200, 512), extent(0x40_0204, 3584)], 1).unwrap();
    pair.submit(read_at(2), &[extent(0x20_0004, 4096), extent(0x20_2000, 4096), extent(0x40_0000, 8)], 2).unwrap();

    let plain = device.fetch(&pair);
    assert_eq!((plain.psdt(), plain.prp1, plain.prp2, plain.mptr), (Psdt::PRP, 0x20_0000, 0, metadata));
    for (slot, extents) in [(1, 2), (2, 3)] {
        let sqe = device.fetch(&pair);
        assert_eq!((sqe.psdt(), sqe.cid & 3), (Psdt::SGL_MPTR_BUFFER, slot));
        let at = pair.memory.iova_at((pair.lists_offset + usize::from(slot) * pair.list_bytes) as u64).unwrap();
        assert_eq!(sqe.sgl1(), SglDescriptor::last_segment(at.get(), extents * 16));
        assert_eq!(sqe.mptr, if slot == 1 { metadata } else { 0 });
        let mut words = [0; 4];
        pair.memory.view().read_words(pair.lists_offset + usize::from(slot) * pair.list_bytes, &mut words);
        let first = if slot == 1 {
            SglDescriptor::data_block(0x20_0200, 512)
        } else {
            SglDescriptor::data_block(0x20_0004, 4096)
        };
        assert_eq!(SglDescriptor::from_words([words[0], words[1]]), first);
    }
}

#[test]
fn memory_without_prps_nor_sgl_takes_no_slot() {
    let (_, mut pair, _) = bench_with(4, Some(SglSupport { alignment: 4, max_descriptors: None }));
    let odd = [Extent { iova: Iova::new(0x20_0002).unwrap(), len: 512 }];
    let error = pair.submit(read_at(0), &odd, 0).unwrap_err();
    assert_eq!(error.to_string(), "extent 0 is 512 bytes at IOVA 0x200002: both must be multiples of 4 (SGLS)");
    let longer = [Extent { iova: Iova::new(0x20_0004).unwrap(), len: 4 << 20 }];
    let error = pair.submit(read_at(0), &longer, 0).unwrap_err();
    assert_eq!(error, SubmitError::Pointer(PointerError::Sgl(SglError::TooLong { bytes: 4 << 20, max: 128 << 10 })));
    assert_eq!((pair.free_slots(), pair.counters().commands), (3, 0));
}

/// Field failure 11: each kind of completion that belongs to no command is counted and dropped.
#[test]
fn completions_that_no_sound_device_sends() {
    let (_, mut pair, mut device) = bench(8);
    let cid = pair.submit(read_at(0), &page(0x20_0000), 42).unwrap();
    device.post(&pair, 7, Status::SUCCESS, 0);
    device.post(&pair, 1, Status::SUCCESS, 0);
    device.post(&pair, cid ^ 8, Status::SUCCESS, 0);
    device.post(&pair, 0xffff, Status::SUCCESS, 0);
    assert_eq!(pair.poll(16, |_| panic!("none of them is ours")), 0);
    assert_eq!(
        pair.anomalies(),
        Anomalies { out_of_range_cid: 2, unknown_cid: 1, stale_cid: 1, wrong_sqid: 0, bad_sqhd: 0 },
        "index 7 of 7 slots, twice; a free slot; another generation"
    );
    device.post(&pair, cid, StatusCode::LBA_OUT_OF_RANGE.into(), 8);
    let mut ended = None;
    assert_eq!(pair.poll(16, |completion| ended = Some((completion.token, completion.status))), 1);
    assert_eq!(ended, Some((42, StatusCode::LBA_OUT_OF_RANGE.into())), "the command itself is not harmed");
    assert_eq!(pair.anomalies().bad_sqhd, 1, "entry 8 of 8");
    device.post(&pair, cid, Status::SUCCESS, 0);
    assert_eq!(pair.poll(16, |_| panic!("twice")), 0);
    assert_eq!(pair.anomalies().total(), 6);
}

/// Queues count their CIDs alike: the end of another queue's command would end one of ours whose memory is in use.
#[test]
fn a_completion_of_another_queue_s_command_ends_none_of_ours() {
    let (_, mut pair, mut device) = bench(8);
    let cid = pair.submit(read_at(0), &page(0x20_0000), 42).unwrap();
    device.post_for(&pair, pair.qid() + 1, cid, Status::SUCCESS, 1);
    assert_eq!(pair.poll(16, |_| panic!("it is not ours")), 0);
    assert_eq!((pair.anomalies().total(), pair.free_slots()), (1, 6));
    device.post(&pair, cid, Status::SUCCESS, 1);
    assert_eq!(pair.poll(16, |completion| assert_eq!(completion.token, 42)), 1);
}

#[test]
fn every_kind_of_anomaly_counts_once_in_the_sum() {
    let none = Anomalies::default();
    assert_eq!(none.total(), 0);
    for one in [
        Anomalies { out_of_range_cid: 1, ..none },
        Anomalies { unknown_cid: 1, ..none },
        Anomalies { stale_cid: 1, ..none },
        Anomalies { wrong_sqid: 1, ..none },
        Anomalies { bad_sqhd: 1, ..none },
    ] {
        assert_eq!(one.total(), 1, "{one:?}");
    }
}

/// Its command ended, and nobody waits for it: that is no anomaly, and the counts come even.
#[test]
fn the_end_of_a_disowned_command_is_counted_and_told_to_nobody() {
    let (_, mut pair, mut device) = bench(8);
    for round in 1..=3 {
        let cid = pair.submit(read_at(0), &page(0x20_0000), 42).unwrap();
        pair.disown(cid);
        device.post(&pair, cid, Status::SUCCESS, 1);
        assert_eq!(pair.poll(16, |_| panic!("nobody waits for it")), 0);
        assert_eq!((pair.counters().commands, pair.counters().completions), (round, round));
    }
    assert_eq!((pair.anomalies().total(), pair.free_slots()), (0, 7));
}

#[test]
fn the_iovas_of_a_deleted_pair_are_free_at_once_and_those_of_another_are_not() {
    for (deleted, again) in [(true, true), (false, false)] {
        let (bench, mut pair, _) = bench(4);
        let (iova, len) = (pair.memory.iova(), pair.memory.range().len());
        if deleted {
            pair.set_deleted();
        }
        drop(pair);
        let memory = HostMemory::allocate(len as usize).unwrap();
        assert_eq!(bench.space.register(memory, Access::all()).unwrap().iova() == iova, again, "deleted: {deleted}");
    }
}

#[test]
fn sizes_that_no_queue_has() {
    let (bench, _, _) = bench(4);
    let function: Arc<dyn Function> = Arc::new(bench);
    let cap = Cap::from_bits(0).with_mqes(ZeroesBased::<u16>::from_raw(127));
    let limits = ControllerLimits::new(cap, 4096, 5).unwrap();
    for entries in [0, 1, 129, u32::MAX] {
        let error = QueuePair::<u32>::new(&function, cap, &limits, 1, entries).err().unwrap();
        assert!(error.to_string().contains("2 to 128 are possible"), "{error}");
    }
    assert_eq!(QueuePair::<u32>::new(&function, cap, &limits, 3, 2).unwrap().qid(), 3);
    let far = QueuePair::<u32>::new(&function, cap, &limits, 0x200, 2).err().unwrap();
    assert!(far.to_string().starts_with("queue pair 512: there is no register at 0x2000"), "{far}");
}

proptest! {
    /// Whatever a device does to the completion queue, each command ends at most once and nothing panics.
    #[test]
    fn a_device_that_answers_anything(
        entries in 2u32..20,
        steps in prop::collection::vec((0u8..4, any::<u32>(), any::<u32>()), 1..300),
    ) {
        let (_, mut pair, mut device) = bench(entries);
        let mut in_flight = std::collections::HashSet::new();
        let mut number = 0;
        for (step, first, second) in steps {
            match step {
                0 => {
                    if pair.submit(read_at(0), &page(0x20_0000), number).is_ok() {
                        in_flight.insert(number);
                        number += 1;
                    }
                }
                1 => device.post(&pair, first as u16 & 0x1f, Status::from_bits(second as u16 >> 1), second as u16 & 31),
                2 => {
                    // Any dword anywhere in the queue, phase included.
                    let at = pair.completion_offset as usize + first as usize % (entries as usize * 4) * 4;
                    pair.memory.view().atomic_u32(at).store(second, Ordering::Release);
                }
                _ => {
                    pair.poll(first as usize % 64, |completion| {
                        assert!(in_flight.remove(&completion.token), "{} ended twice", completion.token);
                    });
                }
            }
            prop_assert_eq!(pair.free_slots() + in_flight.len(), pair.slots());
        }
    }
}
