//! A model with a mover, and with a strict one in its place: memory that stands for an accelerator's is never registered
//! as memory of this process, and every copy must be between it and what was admitted.

use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::super::faults::{Action, CommandQueue, Rule, When};
use super::super::{Drive, FaultKind, Model, ModelConfig, ModelError, SoftwareIommu, StoreConfig, Violation};
use super::host::{Host, Pair, count, small};
use crate::dma::{
    AcceleratorMemory, Access, Backing, DmaView, HostMemory, MapError, MemoryCopy, Mover, MoverError, PageSize, Region,
    RegisterError,
};
use crate::spec::command::{Cns, QueuePriority, Sqe};
use crate::spec::status::StatusCode;

const PAGE: u64 = 4096;

/// Memory of an accelerator that is none.
struct Far(HostMemory);

// SAFETY: as the host memory that it is.
unsafe impl AcceleratorMemory for Far {
    fn address(&self) -> u64 {
        self.0.base().addr().get() as u64
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl Far {
    fn view(&self) -> DmaView<'_> {
        // SAFETY: the memory outlives the view; nobody makes references to it.
        unsafe { DmaView::new(self.0.base(), self.0.len()) }
    }
}

/// What a mover was seen to do.
#[derive(Default)]
struct Seen {
    admitted: Vec<(u64, u64)>,
    /// Where the accelerator's memory lies.
    far: Vec<(u64, u64)>,
    lists: Vec<usize>,
    looks: usize,
    /// Fails from the list with this number on, or when it is looked at.
    fails: Option<(usize, bool)>,
}

/// Copies one at each look, those of a list in an order of its own.
#[derive(Default)]
struct LazyMover {
    seen: Arc<Mutex<Seen>>,
    lists: VecDeque<Vec<MemoryCopy>>,
    ended: u64,
}

impl LazyMover {
    fn copy(seen: &Seen, MemoryCopy { to, from, len, .. }: MemoryCopy) {
        let within = |ranges: &[(u64, u64)], at: u64| {
            ranges.iter().any(|(start, bytes)| at >= *start && at - start <= *bytes && bytes - (at - start) >= len)
        };
        let far = (within(&seen.far, to), within(&seen.far, from));
        let near = (within(&seen.admitted, to), within(&seen.admitted, from));
        assert!(far.0 && near.1 || far.1 && near.0, "{to:#x} from {from:#x}, {len} bytes: {far:?} {near:?}");
        let (to, from) = (ptr::with_exposed_provenance_mut::<u8>(to as usize), from as usize);
        // SAFETY: both ranges lie in memory that is mapped, as was just looked up, one in each kind.
        unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance::<u8>(from), to, len as usize) }
    }
}

impl Mover for LazyMover {
    unsafe fn admit(&mut self, base: NonNull<u8>, len: usize) -> Result<(), MoverError> {
        let base = base.as_ptr().expose_provenance() as u64;
        self.seen.lock().unwrap().admitted.push((base, len as u64));
        Ok(())
    }

    unsafe fn begin(&mut self, copies: &[MemoryCopy]) -> Result<(), MoverError> {
        let mut seen = self.seen.lock().unwrap();
        if seen.fails.is_some_and(|(list, at_look)| list <= seen.lists.len() && !at_look) {
            self.ended += self.lists.len() as u64;
            self.lists.clear();
            return Err(MoverError::new("it fell over"));
        }
        seen.lists.push(copies.len());
        self.lists.push_back(copies.to_vec());
        Ok(())
    }

    fn ended(&mut self) -> Result<u64, MoverError> {
        let mut seen = self.seen.lock().unwrap();
        seen.looks += 1;
        if seen.fails.is_some_and(|(list, at_look)| list < seen.lists.len() && at_look) {
            self.ended += self.lists.len() as u64;
            self.lists.clear();
            return Err(MoverError::new("it fell over while it worked"));
        }
        if let Some(list) = self.lists.front_mut() {
            if let Some(copy) = list.pop() {
                Self::copy(&seen, copy);
            }
            if list.is_empty() {
                self.lists.pop_front();
                self.ended += 1;
            }
        }
        Ok(self.ended)
    }
}

struct Bench {
    host: Host,
    seen: Arc<Mutex<Seen>>,
    far: Region<Far>,
}

fn far(host: &Host, seen: &Mutex<Seen>, bytes: u64, access: Access) -> Region<Far> {
    let memory = HostMemory::allocate_on(bytes as usize, PageSize::Ordinary).unwrap();
    let start = memory.base().as_ptr().expose_provenance() as u64;
    seen.lock().unwrap().far.push((start, bytes));
    host.space.register_accelerator(Far(memory), access).unwrap()
}

/// A model, its IOMMU, and what its mover is seen to do.
type Moved = (Model, Arc<SoftwareIommu>, Arc<Mutex<Seen>>);

fn model(config: ModelConfig, drive: Drive) -> Result<Moved, ModelError> {
    let (iommu, seen) = (SoftwareIommu::new(), Arc::new(Mutex::default()));
    let mover = Box::new(LazyMover { seen: Arc::clone(&seen), ..LazyMover::default() });
    Ok((Model::with_mover(config, drive, &iommu, mover)?, iommu, seen))
}

fn bench(config: ModelConfig, drive: Drive) -> Bench {
    let (model, iommu, seen) = model(config, drive).unwrap();
    let mut host = Host::of(model, iommu);
    host.enable();
    let far = far(&host, &seen, 64 * PAGE, Access::all());
    Bench { host, seen, far }
}

fn read(slba: u64, blocks: u32, address: u64) -> Sqe {
    Sqe::read(1, slba, count(blocks)).with_prp1(address)
}

fn write(slba: u64, blocks: u32, address: u64) -> Sqe {
    Sqe::write(1, slba, count(blocks)).with_prp1(address)
}

impl Bench {
    fn at(&self, offset: u64) -> u64 {
        self.far.iova().get() + offset
    }

    fn view(&self) -> DmaView<'_> {
        self.far.backing().view()
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.view().read(offset, &mut bytes);
        bytes
    }

    fn violation(&self) -> Violation {
        *self.host.model.violations().last().unwrap()
    }
}

#[test]
fn what_is_written_from_an_accelerators_memory_is_read_into_it() {
    let mut b = bench(small(), Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    let pattern: Vec<u8> = (0..1536u32).map(|i| (i * 13 + 5) as u8).collect();
    b.view().write(512, &pattern);
    assert_eq!(b.host.io_code(&mut pair, write(7, 3, b.at(512))), StatusCode::SUCCESS);
    b.view().fill(0xEE);
    assert_eq!(b.host.io_code(&mut pair, read(6, 4, b.at(1024))), StatusCode::SUCCESS);
    assert_eq!((b.bytes(1024, 512), b.bytes(1536, 1536)), (vec![0; 512], pattern));
    assert_eq!((b.bytes(1023, 1), b.bytes(3072, 1)), (vec![0xEE], vec![0xEE]), "not a byte more");
    let counters = b.host.model.counters();
    assert_eq!((counters.reads, counters.writes, counters.read_bytes, counters.write_bytes), (1, 1, 2048, 1536));
    assert_eq!((b.host.model.violations().len(), b.seen.lock().unwrap().admitted.len()), (0, 1));
}

#[test]
fn copies_are_made_as_a_list_and_completions_come_after_them() {
    let mut b = bench(small(), Drive::Stepped);
    let mut pair = b.host.io_pair(1, 32);
    for cid in 0..20u16 {
        b.view().slice(usize::from(cid) * 512, 512).fill(cid as u8 + 1);
        pair.push(write(cid.into(), 1, b.at(u64::from(cid) * 512)).with_cid(cid));
    }
    pair.ring();
    b.host.model.turn();
    {
        let seen = b.seen.lock().unwrap();
        assert_eq!(seen.lists, [20]);
        assert!(seen.looks >= 20, "each look makes one copy: {}", seen.looks);
    }
    let cids: Vec<u16> = std::iter::from_fn(|| pair.take()).map(|cqe| cqe.cid).collect();
    assert_eq!(cids, (0..20).collect::<Vec<_>>());
    let mut other = b.host.memory(16 << 10);
    assert_eq!(
        b.host.io_code(&mut pair, read(0, 20, other.iova().get()).with_prp2_list(&mut other)),
        StatusCode::SUCCESS
    );
    for block in 0..20usize {
        let mut bytes = [0; 512];
        other.view().read(block * 512, &mut bytes);
        assert!(bytes.iter().all(|byte| usize::from(*byte) == block + 1), "block {block}");
    }
}

trait WithList {
    fn with_prp2_list(self, region: &mut Region<HostMemory>) -> Self;
}

impl WithList for Sqe {
    /// PRP2 is a list of the second and third page of `region`, kept in its fourth.
    fn with_prp2_list(self, region: &mut Region<HostMemory>) -> Self {
        let start = region.iova().get();
        region.view().write_words(3 * PAGE as usize, &[start + PAGE, start + 2 * PAGE]);
        self.with_prp2(start + 3 * PAGE)
    }
}

#[test]
fn one_command_may_name_memory_of_both_kinds() {
    let mut b = bench(small(), Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    let near = b.host.memory(PAGE as usize);
    near.view().fill(0x11);
    b.view().fill(0x22);
    let sqe = write(0, 16, near.iova().get()).with_prp2(b.at(PAGE));
    assert_eq!(b.host.io_code(&mut pair, sqe), StatusCode::SUCCESS);
    let sqe = read(0, 16, b.at(0)).with_prp2(near.iova().get());
    assert_eq!(b.host.io_code(&mut pair, sqe), StatusCode::SUCCESS);
    let mut bytes = vec![0; PAGE as usize];
    near.view().read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0x22) && b.bytes(0, PAGE as usize).iter().all(|byte| *byte == 0x11));
}

#[test]
fn what_is_not_a_plain_read_or_write_does_not_reach_it() {
    let mut b = bench(small(), Drive::Stepped);
    let identify = Sqe::identify(Cns::CONTROLLER, 0).with_prp1(b.at(0));
    assert_eq!(b.host.code(identify), StatusCode::DATA_TRANSFER_ERROR);
    assert!(
        matches!(b.violation(), Violation::Dma { kind: FaultKind::Accelerator, address, .. } if address == b.at(0))
    );
    assert!(b.violation().to_string().contains("memory of an accelerator"));
    let mut pair = b.host.io_pair(1, 8);
    assert_eq!(
        b.host.io_code(&mut pair, Sqe::compare(1, 0, count(1)).with_prp1(b.at(0))),
        StatusCode::DATA_TRANSFER_ERROR
    );
    // A PRP list is read by the controller itself.
    let listed = read(0, 24, b.at(0)).with_prp2(b.at(8 * PAGE));
    assert_eq!(b.host.io_code(&mut pair, listed), StatusCode::DATA_TRANSFER_ERROR);
    assert!(b.bytes(0, 64).iter().all(|byte| *byte == 0), "nothing was moved");
    // A submission queue there stops the controller.
    let create = Sqe::create_io_submission_queue(2, count(8), b.at(0), 1, QueuePriority::URGENT);
    assert_eq!(b.host.code(create), StatusCode::SUCCESS);
    let stray = b.host.raw_pair(2, 8);
    stray.sq_bell.ring(1);
    assert!(b.host.wait(|host| host.csts().cfs()));
}

#[test]
fn rights_and_ends_are_checked_before_anything_is_moved() {
    let mut b = bench(small(), Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    let readable = far(&b.host, &b.seen, PAGE, Access::DEVICE_READS);
    assert_eq!(b.host.io_code(&mut pair, read(0, 1, readable.iova().get())), StatusCode::DATA_TRANSFER_ERROR);
    assert!(matches!(b.violation(), Violation::Dma { kind: FaultKind::Denied, .. }));
    assert_eq!(b.host.io_code(&mut pair, write(0, 1, readable.iova().get())), StatusCode::SUCCESS);
    let end = b.far.range().end();
    let sqe = read(0, 16, end - PAGE).with_prp2(end + (1 << 30));
    b.view().fill(0x33);
    assert_eq!(b.host.io_code(&mut pair, sqe), StatusCode::DATA_TRANSFER_ERROR);
    assert!(matches!(b.violation(), Violation::Dma { kind: FaultKind::Unmapped, .. }));
    assert!(b.bytes(63 * PAGE as usize, PAGE as usize).iter().all(|byte| *byte == 0x33));
    assert_eq!(b.host.io_code(&mut pair, read(1 << 40, 1, b.at(0))), StatusCode::LBA_OUT_OF_RANGE);
}

#[test]
fn a_mover_that_fails_fails_the_commands_whose_copies_it_had_and_no_others() {
    for at_look in [false, true] {
        let mut b = bench(small(), Drive::Stepped);
        let mut pair = b.host.io_pair(1, 8);
        let near = b.host.memory(PAGE as usize);
        assert_eq!(b.host.io_code(&mut pair, write(0, 1, b.at(0))), StatusCode::SUCCESS);
        b.seen.lock().unwrap().fails = Some((1, at_look));
        assert_eq!(b.host.io_code(&mut pair, read(0, 1, b.at(0))), StatusCode::DATA_TRANSFER_ERROR, "{at_look}");
        assert!(b.host.model.store_error().unwrap().contains("it fell over"));
        assert_eq!(b.host.model.counters().io_errors, 1);
        b.seen.lock().unwrap().fails = None;
        assert_eq!(b.host.io_code(&mut pair, read(0, 1, near.iova().get())), StatusCode::SUCCESS);
        assert_eq!(b.host.io_code(&mut pair, read(0, 1, b.at(0))), StatusCode::SUCCESS);
    }
}

#[test]
fn faults_befall_moved_commands_too() {
    let mut b = bench(small(), Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    b.view().fill(0x44);
    assert_eq!(b.host.io_code(&mut pair, write(0, 4, b.at(0))), StatusCode::SUCCESS);
    b.view().fill(0);
    let rule = |action| Rule { queue: CommandQueue::Io, opcode: None, when: When::Nth(1), action };
    b.host.model.faults().add(rule(Action::Torn));
    assert_eq!(b.host.io_code(&mut pair, read(0, 4, b.at(0))), StatusCode::SUCCESS);
    assert_eq!((b.bytes(1023, 1), b.bytes(1024, 1)), (vec![0x44], vec![0]), "the first half");
    b.host.model.faults().add(Rule { when: When::Nth(9), ..rule(Action::Torn) });
    assert_eq!(b.host.io_code(&mut pair, read(0, 4, b.at(0))), StatusCode::SUCCESS);
    assert_eq!(b.bytes(2047, 1), [0x44]);
}

#[test]
fn a_store_that_is_reached_stays_where_it_is() {
    let config = ModelConfig { lba_size: 4096, ..small() };
    let mut b = bench(config, Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    assert!(b.host.model.namespaces().resize(1, 32 << 20).is_ok(), "ordered");
    b.host.wait(|host| host.model.store_error().is_some());
    b.view().fill(0x55);
    for block in 0..64 {
        assert_eq!(b.host.io_code(&mut pair, write(block, 1, b.at(0))), StatusCode::SUCCESS);
    }
    // Whole pages would be given back, and the mover would keep the old ones.
    assert_eq!(b.host.io_code(&mut pair, Sqe::write_zeroes(1, 0, count(48))), StatusCode::SUCCESS);
    for (block, expected) in [(0, 0), (31, 0), (47, 0), (48, 0x55)] {
        b.view().fill(0xEE);
        assert_eq!(b.host.io_code(&mut pair, read(block, 1, b.at(0))), StatusCode::SUCCESS);
        assert!(b.bytes(0, PAGE as usize).iter().all(|byte| *byte == expected), "block {block}");
    }
}

#[test]
fn a_model_that_cannot_move_says_so() {
    let refused = |config| matches!(model(config, Drive::Stepped), Err(ModelError::NotMovable));
    let file = StoreConfig::File { path: "/nowhere".into(), writable: true };
    assert!(refused(ModelConfig { store: file, ..small() }));
    let mut with_metadata = small();
    with_metadata.metadata.size = 8;
    assert!(refused(with_metadata));
    assert!(!refused(ModelConfig { store: StoreConfig::Null, ..small() }));
}

#[test]
fn without_a_mover_an_accelerators_memory_is_refused() {
    let mut host = Host::new(small());
    let seen = Mutex::default();
    let region = far(&host, &seen, PAGE, Access::all());
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.io_code(&mut pair, read(0, 1, region.iova().get())), StatusCode::DATA_TRANSFER_ERROR);
    assert!(matches!(host.model.violations()[..], [Violation::Dma { kind: FaultKind::Accelerator, .. }]));
}

#[test]
fn memory_that_begins_or_ends_within_a_page_is_not_mapped() {
    struct Odd(u64, u64);
    // SAFETY: there is no such memory, and it is never mapped.
    unsafe impl AcceleratorMemory for Odd {
        fn address(&self) -> u64 {
            self.0
        }
        fn len(&self) -> u64 {
            self.1
        }
    }
    let host = Host::new(small());
    for (address, len) in [(4096 + 512, 4096), (0, 4096)] {
        let refused = host.space.register_accelerator(Odd(address, len), Access::all()).map(|_| ());
        assert!(matches!(refused, Err(RegisterError::Map(MapError::Misaligned { .. }))), "{address} {len}");
    }
}

#[test]
fn a_null_store_moves_nothing_and_counts_all() {
    let mut b = bench(ModelConfig { store: StoreConfig::Null, ..small() }, Drive::Stepped);
    let mut pair = b.host.io_pair(1, 8);
    assert_eq!(b.host.io_code(&mut pair, read(0, 8, b.at(0))), StatusCode::SUCCESS);
    assert_eq!((b.host.model.counters().read_bytes, b.seen.lock().unwrap().lists.len()), (4096, 0));
}

/// Several submission queues that complete to one small completion queue, more commands than it has entries.
#[test]
fn a_completion_queue_is_never_overrun() {
    let mut b = bench(small(), Drive::Stepped);
    let mut first = b.host.io_pair(1, 16);
    let shared = b.host.memory(16 << 10);
    let create = Sqe::create_io_submission_queue(2, count(16), shared.iova().get(), 1, QueuePriority::URGENT);
    assert_eq!(b.host.code(create), StatusCode::SUCCESS);
    let mut second = Pair { sq: shared, ..b.host.raw_pair(2, 16) };
    for cid in 0..12u16 {
        first.push(write(cid.into(), 1, b.at(0)).with_cid(cid));
        second.push(write(cid.into(), 1, b.at(0)).with_cid(100 + cid));
    }
    first.ring();
    second.ring();
    let mut cids = Vec::new();
    for _ in 0..10 {
        b.host.model.turn();
        cids.extend(std::iter::from_fn(|| first.take()).map(|cqe| cqe.cid));
    }
    cids.sort_unstable();
    assert_eq!(cids, (0..12).chain(100..112).collect::<Vec<_>>());
    assert_eq!(b.host.model.violations(), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Random commands by a threaded model, against a reference.
    #[test]
    fn blocks_are_what_was_last_written(
        steps in prop::collection::vec((any::<bool>(), 0u64..48, 1u32..8, 0u64..32), 1..40)
    ) {
        let mut b = bench(small(), Drive::Threaded);
        let mut pair = b.host.io_pair(1, 16);
        let mut reference = vec![0u8; 64 * 512];
        for (step, (writes, slba, blocks, place)) in steps.into_iter().enumerate() {
            let (start, len) = (slba as usize * 512, blocks as usize * 512);
            let (at, next) = (b.at(place * PAGE), b.at((place + 1) * PAGE));
            let near = b.view().slice((place * PAGE) as usize, len);
            if writes {
                near.fill(step as u8 + 1);
                reference[start..start + len].fill(step as u8 + 1);
                prop_assert_eq!(b.host.io_code(&mut pair, write(slba, blocks, at).with_prp2(next)), StatusCode::SUCCESS);
            } else {
                near.fill(0xEE);
                prop_assert_eq!(b.host.io_code(&mut pair, read(slba, blocks, at).with_prp2(next)), StatusCode::SUCCESS);
                prop_assert_eq!(&b.bytes((place * PAGE) as usize, len), &reference[start..start + len]);
            }
        }
    }
}
