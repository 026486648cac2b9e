//! Data that is torn, misplaced, or refused by the IOMMU.

use super::super::super::faults::{Action, CommandQueue, Kind, When};
use super::super::host::{Host, Pair, small};
use super::{read, write};
use crate::dma::{HostMemory, Region};
use crate::spec::status::StatusCode;

/// Blocks of 512 bytes in a command: three pages, so that there is a PRP list.
const BLOCKS: u32 = 24;
const BYTES: usize = BLOCKS as usize * 512;

struct Rig {
    host: Host,
    pair: Pair,
    data: Region<HostMemory>,
    list: Region<HostMemory>,
}

fn rig() -> Rig {
    let mut host = Host::new(small());
    let pair = host.io_pair(1, 8);
    let (data, list) = (host.memory(BYTES), host.memory(4096));
    list.view().write_words(0, &[data.iova().get() + 4096, data.iova().get() + 8192]);
    Rig { host, pair, data, list }
}

impl Rig {
    fn write(&mut self, slba: u64, byte: u8) -> StatusCode {
        self.data.view().fill(byte);
        let command = write(slba, BLOCKS, self.data.iova().get()).with_prp2(self.list.iova().get());
        self.host.io_code(&mut self.pair, command)
    }

    /// Reads into memory full of `poison`.
    fn read(&mut self, slba: u64, poison: u8) -> (StatusCode, Vec<u8>) {
        self.data.view().fill(poison);
        let command = read(slba, BLOCKS, self.data.iova().get()).with_prp2(self.list.iova().get());
        let code = self.host.io_code(&mut self.pair, command);
        let mut bytes = vec![0; BYTES];
        self.data.view().read(0, &mut bytes);
        (code, bytes)
    }

    fn befall(&self, action: Action) {
        self.host.befall(CommandQueue::Io, None, When::Nth(1), action);
    }
}

fn halves(first: u8, second: u8) -> Vec<u8> {
    [vec![first; BYTES / 2], vec![second; BYTES / 2]].concat()
}

#[test]
fn torn_data_is_half_there_and_reported_whole() {
    let mut rig = rig();
    assert_eq!(rig.write(0, 1), StatusCode::SUCCESS);
    assert_eq!(rig.read(0, 9), (StatusCode::SUCCESS, vec![1; BYTES]), "without the fault");
    rig.befall(Action::Torn);
    assert_eq!(rig.read(0, 9), (StatusCode::SUCCESS, halves(1, 9)));
    rig.befall(Action::Torn);
    assert_eq!(rig.write(0, 2), StatusCode::SUCCESS);
    assert_eq!(rig.read(0, 9), (StatusCode::SUCCESS, halves(2, 1)));
    assert_eq!(rig.host.happened(Kind::Torn), 2);
    assert_eq!(rig.host.model.violations(), []);
}

#[test]
fn misplaced_data_comes_from_and_goes_to_elsewhere() {
    let mut rig = rig();
    let blocks = u64::from(BLOCKS);
    for (slba, byte) in [(0, 1), (blocks, 2), (2 * blocks, 3)] {
        rig.write(slba, byte);
    }
    rig.befall(Action::Misplaced { blocks });
    assert_eq!(rig.read(blocks, 9), (StatusCode::SUCCESS, vec![1; BYTES]));
    rig.befall(Action::Misplaced { blocks });
    assert_eq!(rig.read(0, 9), (StatusCode::SUCCESS, vec![2; BYTES]), "there is none earlier");
    rig.befall(Action::Misplaced { blocks });
    assert_eq!(rig.write(2 * blocks, 7), StatusCode::SUCCESS);
    assert_eq!(rig.read(2 * blocks, 9).1, vec![3; BYTES]);
    assert_eq!(rig.read(blocks, 9).1, vec![7; BYTES]);
    assert_eq!(rig.host.happened(Kind::Misplaced), 3);
}

#[test]
fn an_iommu_fault_is_told_and_is_no_violation() {
    let mut rig = rig();
    rig.write(0, 1);
    rig.befall(Action::IommuFault);
    assert_eq!(rig.read(0, 9), (StatusCode::DATA_TRANSFER_ERROR, halves(1, 9)));
    rig.befall(Action::IommuFault);
    assert_eq!(rig.write(0, 2), StatusCode::DATA_TRANSFER_ERROR);
    assert_eq!(rig.read(0, 9).1, halves(2, 1));
    assert_eq!((rig.host.happened(Kind::IommuFault), rig.host.model.counters().faults), (2, 2));
    assert_eq!(rig.host.model.violations(), []);
}

#[test]
fn only_reads_and_writes_have_data_to_spoil() {
    let mut rig = rig();
    for action in [Action::Torn, Action::IommuFault, Action::Misplaced { blocks: 1 }] {
        rig.befall(action);
    }
    rig.host.flushes(&mut rig.pair, &[1, 2, 3]);
    assert_eq!(rig.host.model.faults().counters().total(), 0);
}
