//! The model against any driver.

use std::ptr::NonNull;
use std::sync::Arc;

use tentpeg_driver::bus::{Doorbell, Function};
use tentpeg_driver::dma::{Access, Backing, DmaSpace, DmaView, HostMemory, PageSize, Region};
use tentpeg_driver::model::{
    CacheConfig, Drive, FaultKind, MetadataConfig, Model, ModelConfig, ModelFunction, SglConfig, SglSupport,
    SoftwareIommu, Target, Violation,
};
use tentpeg_driver::spec::ZeroesBased;
use tentpeg_driver::spec::command::{QueuePriority, Sqe};
use tentpeg_driver::spec::registers::{Aqa, Cc, DoorbellKind, doorbell_offset, offset};
use zerocopy::{FromBytes, IntoBytes};

use super::{Input, Reached};

/// Bytes of a page, and of the guards on either side of what is mapped.
const PAGE: usize = 4096;
/// Pages of each region.
const PAGES: usize = 4;
/// What stands in guards, and in memory that the model may only read.
const UNTOUCHED: u8 = 0xC5;
/// The most steps of a run.
const STEPS: usize = 96;
/// Entries of each queue.
const ENTRIES: u32 = 16;
/// Queue pairs, the admin queues among them.
const QUEUES: usize = 3;

/// The middle of an allocation: what is mapped has neighbours that are not.
struct Middle {
    memory: HostMemory,
}

// SAFETY: the middle of memory that is itself such a backing, one page from its start and one from its end.
unsafe impl Backing for Middle {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: the allocation has PAGES + 2 pages.
        unsafe { self.memory.base().add(PAGE) }
    }

    fn len(&self) -> usize {
        PAGES * PAGE
    }
}

impl Middle {
    fn new() -> Self {
        let memory = HostMemory::allocate_on((PAGES + 2) * PAGE, PageSize::Ordinary).expect("memory");
        let middle = Self { memory };
        middle.guards().into_iter().for_each(|guard| guard.fill(UNTOUCHED));
        middle
    }

    fn guards(&self) -> [DmaView<'_>; 2] {
        // SAFETY: the allocation stays until it is dropped, and gives out no reference.
        let all = unsafe { DmaView::new(self.memory.base(), self.memory.len()) };
        [all.slice(0, PAGE), all.slice((PAGES + 1) * PAGE, PAGE)]
    }
}

fn is_untouched(view: DmaView<'_>) -> bool {
    let mut bytes = vec![0; view.len()];
    view.read(0, &mut bytes);
    bytes.iter().all(|byte| *byte == UNTOUCHED)
}

struct Pair {
    sq: Region<Middle>,
    cq: Region<Middle>,
    tail: u32,
}

struct Host {
    model: Model,
    function: Arc<ModelFunction>,
    pairs: Vec<Pair>,
    /// Read and write, read only, write only.
    data: [Region<Middle>; 3],
    /// What `data[1]` must hold: only the host writes there.
    shadow: Vec<u8>,
    bells: Vec<Box<dyn Doorbell>>,
    dstrd: u8,
}

/// Drives a stepped model with arbitrary registers, doorbells, commands and memory.
///
/// # Panics
/// When the model writes to what is not mapped for it to write, or calls unmapped what is mapped.
pub fn model_commands(data: &[u8]) -> Reached {
    let mut reached = Reached::default();
    let mut input = Input::new(data);
    let config = config(&mut input);
    let dstrd = config.dstrd;
    let iommu = SoftwareIommu::new();
    let Ok(model) = Model::new(config, Drive::Stepped, &iommu) else { return reached };
    let (function, space) = (model.function(), iommu.space());
    let region = |access| space.register(Middle::new(), access).expect("an empty address space");
    let pairs =
        (0..QUEUES).map(|_| Pair { sq: region(Access::DEVICE_READS), cq: region(Access::DEVICE_WRITES), tail: 0 });
    let data = [region(Access::all()), region(Access::DEVICE_READS), region(Access::DEVICE_WRITES)];
    let mut host =
        Host { pairs: pairs.collect(), data, shadow: vec![0; PAGES * PAGE], bells: Vec::new(), dstrd, model, function };
    if input.u8() & 1 == 0 {
        host.enable();
        host.create_queues();
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        host.step(&mut input);
    }
    for _ in 0..STEPS {
        host.model.turn();
    }
    host.check(&space);
    let counters = host.model.counters();
    reached.note("admin commands that succeeded", counters.admin_cqes - counters.admin_errors);
    reached.note("admin commands that failed", counters.admin_errors);
    reached.note("I/O commands that succeeded", counters.io_cqes - counters.io_errors);
    reached.note("I/O commands that failed", counters.io_errors);
    reached.note("accesses refused", counters.faults);
    reached.note("violations", host.model.violations().len() as u64);
    reached
}

fn config(input: &mut Input) -> ModelConfig {
    let (how, format) = (input.u8(), input.u8());
    ModelConfig {
        sgl: SglConfig {
            support: [SglSupport::Byte, SglSupport::Dword, SglSupport::NotSupported, SglSupport::Byte]
                [usize::from(format & 3)],
            bit_bucket: format & 4 == 0,
            oversize: format & 8 != 0,
            metadata_byte_aligned: true,
            metadata_sgl: true,
            offset: format & 16 != 0,
        },
        metadata: if format & 0xE0 == 0 {
            MetadataConfig::default()
        } else {
            MetadataConfig {
                size: [8, 8, 16, 64][usize::from(format >> 5 & 3)],
                extended: format & 0x80 != 0,
                protection_type: format >> 2 & 3,
                first_eight: format & 1 != 0,
            }
        },
        cache_simulation: (how & 0x10 != 0).then_some(CacheConfig { blocks: 16, write_back: Some(how.into()) }),
        size: 256 << 10,
        lba_size: if how & 1 == 0 { 512 } else { 4096 },
        mdts: if how & 2 == 0 { 5 } else { how >> 2 & 7 },
        dstrd: how >> 5,
        queues: QUEUES as u16 - 1,
        mqes: 63,
        ready_delay: u32::from(how >> 6),
        nssrs: true,
        ..ModelConfig::default()
    }
}

impl Host {
    /// As a driver does it.
    fn enable(&mut self) {
        let count = ZeroesBased::<u16>::from_count(ENTRIES).expect("not 0");
        let admin = &self.pairs[0];
        self.function.write_u32(offset::AQA, Aqa::from_bits(0).with_asqs(count).with_acqs(count).bits());
        self.function.write_u64(offset::ASQ, admin.sq.iova().get());
        self.function.write_u64(offset::ACQ, admin.cq.iova().get());
        let cc = Cc::from_bits(0).with_iosqes(6).with_iocqes(4).with_en(true);
        self.function.write_u32(offset::CC, cc.bits());
        for _ in 0..8 {
            self.model.turn();
        }
        self.renew_bells();
    }

    fn renew_bells(&mut self) {
        let both = [DoorbellKind::SubmissionTail, DoorbellKind::CompletionHead];
        let places = (0..QUEUES as u16).flat_map(|qid| both.map(|kind| (qid, kind)));
        self.bells = places
            .filter_map(|(qid, kind)| self.function.doorbell(doorbell_offset(self.dstrd, qid, kind)).ok())
            .collect();
        self.pairs.iter_mut().for_each(|pair| pair.tail = 0);
    }

    fn create_queues(&mut self) {
        let count = ZeroesBased::<u16>::from_count(ENTRIES).expect("not 0");
        for qid in 1..QUEUES as u16 {
            let pair = &self.pairs[usize::from(qid)];
            let (sq, cq) = (pair.sq.iova().get(), pair.cq.iova().get());
            self.push(0, Sqe::create_io_completion_queue(qid, count, cq, None));
            self.push(0, Sqe::create_io_submission_queue(qid, count, sq, qid, QueuePriority::URGENT));
        }
        for _ in 0..4 {
            self.model.turn();
        }
    }

    /// Writes a command and rings.
    fn push(&mut self, place: usize, sqe: Sqe) {
        let pair = &mut self.pairs[place];
        pair.sq.view().write(pair.tail as usize * 64, sqe.as_bytes());
        pair.tail = (pair.tail + 1) % ENTRIES;
        let tail = pair.tail as u16;
        if let Some(bell) = self.bells.get(place * 2) {
            bell.ring(tail);
        }
    }

    /// An address: of one of our regions mostly, with an offset.
    fn address(&self, input: &mut Input) -> u64 {
        let which = input.u8();
        let offset = u64::from(input.u16());
        let region = match which & 7 {
            0..5 => &self.data[usize::from(which & 7) % 3],
            5 => &self.pairs[usize::from(which >> 3) % QUEUES].cq,
            6 => &self.pairs[usize::from(which >> 3) % QUEUES].sq,
            _ => return input.u64(),
        };
        let start = region.iova().get();
        match which >> 6 {
            // A page of it; anywhere in it or after; near its end.
            0 | 1 => start + (offset & 3) * PAGE as u64,
            2 => start + (offset >> 1),
            _ => start + (PAGES * PAGE) as u64 - (offset & 0xFF),
        }
    }

    fn step(&mut self, input: &mut Input) {
        match input.u8() % 10 {
            0..4 => {
                let sqe = self.command(input);
                self.push(usize::from(input.u8()) % QUEUES, sqe);
                self.model.turn();
            }
            4 => {
                self.model.turn();
            }
            5 => {
                let number = usize::from(input.u8());
                let value = input.u16();
                if let Some(bell) = number.checked_rem(self.bells.len()).and_then(|number| self.bells.get(number)) {
                    bell.ring(value % 64);
                }
            }
            // Memory: a list of addresses, or any bytes.
            6 => {
                let which = usize::from(input.u8()) % 2;
                let at = usize::from(input.u16()) % (PAGES * PAGE / 8) * 8;
                for word in 0..=usize::from(input.u8()) % 8 {
                    let value = self.address(input);
                    self.write(which, at + word * 8, value.as_bytes());
                }
            }
            7 => {
                let which = usize::from(input.u8()) % 2;
                let at = usize::from(input.u16()) % (PAGES * PAGE);
                let mut bytes = vec![0; usize::from(input.u8()) % 64];
                input.fill(&mut bytes);
                self.write(which, at, &bytes);
            }
            8 => {
                let at = input.choice(&[offset::CC, offset::AQA, offset::ASQ, offset::ACQ, offset::NSSR, offset::CSTS]);
                match input.u8() & 3 {
                    0 => self.enable(),
                    1 => self.function.write_u32(offset::CC, 0),
                    2 => self.function.write_u32(at, input.u32()),
                    _ => self.function.write_u32(u64::from(input.u16()), input.u32()),
                }
                let _ = self.function.read_u32(u64::from(input.u16()));
            }
            _ => {
                let _ = match input.u8() & 3 {
                    0 => self.function.reset(),
                    1 => self.function.disable_bus_mastering(),
                    _ => self.function.enable_bus_mastering(),
                };
                self.renew_bells();
            }
        }
    }

    /// A command: any bytes, with pointers that mostly lead somewhere.
    fn command(&self, input: &mut Input) -> Sqe {
        let mut bytes = [0; 64];
        let how = input.u8();
        if how & 0x80 != 0 {
            input.fill(&mut bytes);
            return Sqe::read_from_bytes(&bytes).expect("64 bytes");
        }
        let mut sqe = Sqe { opcode: input.u8(), flags: input.u8() & 0xC3, cid: input.u16(), ..Sqe::ZERO };
        sqe.nsid = match how & 3 {
            0 | 1 => 1,
            2 => u32::MAX,
            _ => input.u8().into(),
        };
        (sqe.prp1, sqe.prp2, sqe.mptr) = (self.address(input), self.address(input), self.address(input));
        if how & 4 != 0 {
            // The second half of an SGL descriptor: length, then type.
            sqe.prp2 = u64::from(input.u16()) | u64::from(input.u8()) << 56;
        }
        (sqe.cdw10, sqe.cdw11) = (input.u16().into(), input.u16().into());
        if how & 8 != 0 {
            (sqe.cdw10, sqe.cdw11) = (input.u32(), input.u32());
        }
        sqe.cdw12 = u32::from(input.u8());
        if how & 16 != 0 {
            (sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15) = (input.u32(), input.u32(), input.u32(), input.u32());
        }
        sqe
    }

    fn write(&mut self, which: usize, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).min(PAGES * PAGE);
        let bytes = &bytes[..end - at.min(end)];
        self.data[which].view().write(at.min(end), bytes);
        if which == 1 {
            self.shadow[at.min(end)..end].copy_from_slice(bytes);
        }
    }

    fn check(&self, space: &DmaSpace) {
        assert_eq!(space.page_size() as usize, PAGE);
        let regions = || self.pairs.iter().flat_map(|pair| [&pair.sq, &pair.cq]).chain(&self.data);
        for region in regions() {
            assert!(region.backing().guards().into_iter().all(is_untouched), "a guard was written");
        }
        let mut bytes = vec![0; PAGES * PAGE];
        self.data[1].view().read(0, &mut bytes);
        assert!(bytes == self.shadow, "memory was written that the model may only read");
        for violation in self.model.violations() {
            assert!(!violation.to_string().is_empty());
            let Violation::Dma { target, address, wanted, kind } = violation else { continue };
            // An entry that is not aligned is refused too.
            if matches!(target, Target::CompletionQueue { .. }) {
                continue;
            }
            let home = regions().find(|region| {
                let range = region.range();
                (range.start().get()..range.end()).contains(&address)
            });
            match kind {
                FaultKind::Unmapped => assert!(home.is_none(), "{violation}"),
                FaultKind::Accelerator => panic!("no accelerator's memory was mapped: {violation}"),
                FaultKind::Denied => {
                    assert!(home.is_some_and(|region| !region.access().contains(wanted)), "{violation}");
                }
            }
        }
    }
}
