//! The Controller Memory Buffer: who sees it when, and that queues, lists and data may lie in it.

use zerocopy::IntoBytes;

use super::super::{ModelConfig, Target, Violation};
use super::host::{Host, count, small};
use crate::bus::Function;
use crate::spec::command::{QueuePriority, Sqe};
use crate::spec::registers::{Cap, Cmbloc, Cmbmsc, Cmbsts, Cmbsz, offset};
use crate::spec::status::StatusCode;

const BASE: u64 = 0x7000_0000_0000;
const PAGES: u32 = 64;

fn host() -> Host {
    Host::new(ModelConfig { cmb_pages: PAGES, ..small() })
}

fn open(host: &Host, base: u64) {
    let msc = Cmbmsc::default().with_cre(true).with_cmse(true).with_cba(base >> 12);
    host.function.write_u64(offset::CMBMSC, msc.bits());
}

fn size(host: &Host) -> Cmbsz {
    Cmbsz::from_bits(host.function.read_u32(offset::CMBSZ))
}

#[test]
fn a_controller_without_one_says_so() {
    let host = Host::new(small());
    assert!(!Cap::from_bits(host.function.read_u64(offset::CAP)).cmbs());
    open(&host, BASE);
    assert_eq!((host.function.read_u64(offset::CMBMSC), size(&host).bits()), (0, 0));
    assert!(host.model.memory_buffer().is_none());
}

#[test]
fn its_registers_show_when_they_are_enabled() {
    let host = host();
    assert!(Cap::from_bits(host.function.read_u64(offset::CAP)).cmbs());
    assert_eq!(size(&host).bits(), 0);
    host.function.write_u64(offset::CMBMSC, Cmbmsc::default().with_cre(true).bits());
    assert_eq!(size(&host).size(), Some(u64::from(PAGES) * 4096));
    assert!(size(&host).sqs() && size(&host).cqs() && size(&host).lists() && size(&host).rds() && size(&host).wds());
    let location = Cmbloc::from_bits(host.function.read_u32(offset::CMBLOC));
    assert_eq!((location.bir(), location.ofst()), (2, 0));
    assert_eq!(host.model.memory_buffer().unwrap().len() as u64, u64::from(PAGES) * 4096);

    open(&host, BASE);
    assert_eq!(Cmbmsc::from_bits(host.function.read_u64(offset::CMBMSC)).cba() << 12, BASE);
    assert!(!Cmbsts::from_bits(host.function.read_u32(offset::CMBSTS)).cbai());
    open(&host, u64::MAX << 12);
    assert!(Cmbsts::from_bits(host.function.read_u32(offset::CMBSTS)).cbai());
}

#[test]
fn data_is_read_into_it_and_written_from_it() {
    let mut host = host();
    open(&host, BASE);
    let mut pair = host.io_pair(1, 8);
    assert_eq!(host.fill_blocks(&mut pair, 1, 0x5A), StatusCode::SUCCESS);
    // Two blocks of 512 bytes at 3 pages in, and from there to blocks 100 and 101.
    let into = BASE + 3 * 4096;
    assert_eq!(host.io_code(&mut pair, Sqe::read(1, 0, count(2)).with_prp1(into)), StatusCode::SUCCESS);
    let buffer = host.model.memory_buffer().unwrap();
    let mut bytes = [0; 1032];
    buffer.read(3 * 4096, &mut bytes);
    assert_eq!((&bytes[..1024], &bytes[1024..]), (&[0x5A; 1024][..], &[0; 8][..]));
    buffer.write(3 * 4096, &[0xC3; 512]);
    assert_eq!(host.io_code(&mut pair, Sqe::write(1, 100, count(2)).with_prp1(into)), StatusCode::SUCCESS);
    let data = host.memory(4096);
    let read = Sqe::read(1, 100, count(2)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, read), StatusCode::SUCCESS);
    let mut bytes = [0; 1024];
    data.view().read(0, &mut bytes);
    assert_eq!((&bytes[..512], &bytes[512..]), (&[0xC3; 512][..], &[0x5A; 512][..]));

    // The last bytes of it, and one block too many.
    let end = BASE + u64::from(PAGES) * 4096;
    assert_eq!(host.io_code(&mut pair, Sqe::read(1, 0, count(1)).with_prp1(end - 512)), StatusCode::SUCCESS);
    assert_eq!(host.model.violations(), []);
    let beyond = Sqe::read(1, 0, count(2)).with_prp1(end - 512).with_prp2(end);
    assert_eq!(host.io_code(&mut pair, beyond), StatusCode::DATA_TRANSFER_ERROR);
    let [Violation::Dma { target: Target::Data { .. }, address, .. }] = host.model.violations()[..] else {
        panic!("{:?}", host.model.violations());
    };
    assert_eq!(address, end);
}

#[test]
fn queues_and_lists_lie_in_it() {
    let mut host = host();
    open(&host, BASE);
    // A submission queue of 8 entries on page 0, its completion queue on page 1, a list on page 2.
    let (sq, cq, list) = (BASE, BASE + 4096, BASE + 2 * 4096);
    let create = Sqe::create_io_completion_queue(1, count(8), cq, None);
    assert_eq!(host.code(create), StatusCode::SUCCESS);
    let create = Sqe::create_io_submission_queue(1, count(8), sq, 1, QueuePriority::URGENT);
    assert_eq!(host.code(create), StatusCode::SUCCESS);
    let buffer = host.model.memory_buffer().unwrap();
    let data = host.memory(3 * 4096);
    data.view().fill(0xEE);
    // One of its three pages lies in the buffer, too.
    for (at, address) in [data.iova().get() + 4096, BASE + 5 * 4096].into_iter().enumerate() {
        buffer.write(2 * 4096 + 8 * at, &address.to_le_bytes());
    }
    let read = Sqe::read(1, 0, count(24)).with_cid(7).with_prp1(data.iova().get()).with_prp2(list);
    buffer.write(0, read.as_bytes());
    let pair = host.raw_pair(1, 8);
    pair.sq_bell.ring(1);
    host.turns(3);
    let mut cqe = [0; 16];
    buffer.read(4096, &mut cqe);
    assert_eq!(cqe[8..], [1, 0, 1, 0, 7, 0, 1, 0], "SQHD 1, SQID 1, CID 7, phase 1 and success");
    let mut bytes = [0; 3 * 4096];
    data.view().read(0, &mut bytes);
    assert!(bytes[..8192].iter().all(|byte| *byte == 0) && bytes[8192..].iter().all(|byte| *byte == 0xEE));
    assert_eq!(host.model.violations(), []);
}

#[test]
fn it_moves_closes_and_outlives_a_controller_reset() {
    let mut host = host();
    let mut pair = host.io_pair(1, 16);
    let read = |address| Sqe::read(1, 0, count(1)).with_prp1(address);
    assert_eq!(host.io_code(&mut pair, read(BASE)), StatusCode::DATA_TRANSFER_ERROR, "closed");
    open(&host, BASE);
    assert_eq!(host.io_code(&mut pair, read(BASE)), StatusCode::SUCCESS);
    open(&host, 2 * BASE);
    assert_eq!(host.io_code(&mut pair, read(BASE)), StatusCode::DATA_TRANSFER_ERROR, "moved");
    assert_eq!(host.io_code(&mut pair, read(2 * BASE)), StatusCode::SUCCESS);
    host.disable();
    host.enable();
    let mut pair = host.io_pair(1, 16);
    assert_eq!(host.io_code(&mut pair, read(2 * BASE)), StatusCode::SUCCESS, "CMBMSC is not reset");
    host.function.reset().unwrap();
    assert_eq!((host.function.read_u64(offset::CMBMSC), size(&host).bits()), (0, 0));
}
