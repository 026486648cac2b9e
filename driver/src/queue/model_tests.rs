//! What the builders write, executed by the model: SGLs, metadata and protection byte for byte, commands of each kind.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::controller::{Controller, ControllerConfig, Namespace};
use crate::dma::{Access, DmaSpace, HostMemory, Region};
use crate::model::{Drive, MetadataConfig, Model, ModelConfig, SglConfig, SglSupport, SoftwareIommu};
use crate::spec::command::DatasetManagementRange;
use crate::spec::status::{Status, StatusCode};

/// Bytes of the memory that commands take pieces of.
const MEMORY: usize = 1 << 20;

struct Rig {
    // In this order: what the model can reach goes after the controller has stopped it.
    controller: Controller,
    pair: QueuePair<u32>,
    namespace: Namespace,
    limits: Limits,
    memory: Region<HostMemory>,
    model: Model,
    _space: Arc<DmaSpace>,
}

fn rig(config: ModelConfig) -> Rig {
    let iommu = SoftwareIommu::new();
    let config = ModelConfig { size: 4 << 20, ..config };
    let model = Model::new(config, Drive::Stepped, &iommu).unwrap();
    let mut controller = Controller::enable(model.function(), ControllerConfig::default()).unwrap();
    let namespace = controller.namespaces().unwrap().remove(0);
    let limits = namespace.limits.unwrap();
    let pair = controller.create_queue_pair(16).unwrap();
    let space = iommu.space();
    let memory = space.register(HostMemory::allocate(MEMORY).unwrap(), Access::all()).unwrap();
    Rig { controller, pair, namespace, limits, memory, model, _space: space }
}

impl Rig {
    /// Pieces of the memory, as offset and length.
    fn extents(&self, pieces: &[(u64, u64)]) -> Vec<Extent> {
        pieces.iter().map(|&(offset, len)| Extent { iova: self.memory.iova_at(offset).unwrap(), len }).collect()
    }

    fn run(&mut self, command: &IoCommand<'_>) -> Result<Status, IoError> {
        self.pair.submit_io(self.namespace.nsid, &self.limits, command, 1)?;
        self.pair.ring();
        let mut status = None;
        while status.is_none() {
            self.model.turn();
            self.pair.poll(4, |completion| status = Some(completion.status));
        }
        Ok(status.unwrap())
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn done(&mut self, command: &IoCommand<'_>) {
        assert_eq!(self.run(command).unwrap(), Status::SUCCESS);
    }

    fn write(&self, pieces: &[(u64, u64)], bytes: &[u8]) {
        let mut at = 0;
        for &(offset, len) in pieces {
            self.memory.view().write(offset as usize, &bytes[at..at + len as usize]);
            at += len as usize;
        }
    }

    fn read(&self, pieces: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(offset, len) in pieces {
            let start = bytes.len();
            bytes.resize(start + len as usize, 0);
            self.memory.view().read(offset as usize, &mut bytes[start..]);
        }
        bytes
    }

    #[track_caller]
    fn is_clean(&self) {
        assert_eq!(self.model.violations(), []);
        assert_eq!(self.pair.anomalies().total(), 0);
    }
}

/// Bytes that tell where they belong.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at * 31 + at / 251 + seed * 17) % 251) as u8).collect()
}

fn sgl(support: SglSupport) -> SglConfig {
    SglConfig { support, ..SglConfig::default() }
}

fn with_sgl(support: SglSupport) -> ModelConfig {
    // 8 MiB: list pages for more descriptors than one page has.
    ModelConfig { sgl: sgl(support), lba_size: 512, mdts: 11, ..ModelConfig::default() }
}

#[test]
fn scattered_bytes_go_out_and_come_back_in_place() {
    let mut rig = rig(with_sgl(SglSupport::Byte));
    // 300 pieces, more than a list page has descriptors, at odd places and of odd lengths: 8 blocks.
    let mut pieces: Vec<(u64, u64)> = (0..299).map(|index| (3 + index * 101, 13)).collect();
    pieces.push((600_001, 4096 - 299 * 13));
    assert_eq!(rig.controller.limits().pointer(&rig.extents(&pieces)), Ok(PointerKind::Sgl));
    let out = pattern(4096, 1);
    rig.write(&pieces, &out);
    let extents = rig.extents(&pieces);
    rig.done(&IoCommand::write(5, 8, &extents));
    // Back in one piece: a mistake in the order of descriptors would have been made on one side only.
    let whole = rig.extents(&[(700_000, 4096)]);
    rig.done(&IoCommand::read(5, 8, &whole));
    assert_eq!(rig.read(&[(700_000, 4096)]), out);
    rig.memory.view().fill(0xEE);
    rig.done(&IoCommand::read(5, 8, &extents));
    assert_eq!(rig.read(&pieces), out);
    assert_eq!(rig.read(&[(0, 3), (16, 88), (600_000, 1)]), vec![0xEE; 92], "and nothing beside");
    rig.done(&IoCommand::compare(5, 8, &extents));
    rig.write(&[(3, 1)], &[!out[0]]);
    assert_eq!(rig.run(&IoCommand::compare(5, 8, &extents)).unwrap().code(), StatusCode::COMPARE_FAILURE);
    rig.is_clean();
}

#[test]
fn a_controller_without_sgls_gets_none() {
    let mut rig = rig(with_sgl(SglSupport::NotSupported));
    let extents = rig.extents(&[(0, 256), (8192, 256)]);
    let error = rig.run(&IoCommand::write(0, 1, &extents)).unwrap_err();
    assert!(error.to_string().ends_with("(the controller has PRPs only: SGLS is 0)"), "{error}");
    rig.is_clean();
}

/// Field failure 21: metadata of 8, 16 and 64 bytes, protection types 0 to 3, extended and separate.
#[test]
fn metadata_and_protection_of_each_kind() {
    for size in [8u16, 16, 64] {
        for extended in [false, true] {
            for protection_type in 0..=3 {
                for first_eight in [false, true] {
                    let metadata = MetadataConfig {
                        size,
                        extended,
                        protection_type,
                        first_eight: first_eight && protection_type != 0,
                    };
                    round_trip(metadata);
                }
            }
        }
    }
}

/// Blocks and metadata out and back; where there is protection, the controller makes it, and it is checked on the way
/// back, again with wrong tags.
fn round_trip(metadata: MetadataConfig) {
    let size = u64::from(metadata.size);
    let mut rig = rig(ModelConfig { metadata, sgl: sgl(SglSupport::Dword), ..ModelConfig::default() });
    let format = rig.limits.metadata().expect("metadata");
    assert_eq!((format.size, format.placement == MetadataPlacement::Extended), (metadata.size, metadata.extended));
    assert_eq!(format.protection.is_some(), metadata.protection_type != 0);

    let (slba, nlb) = (9, 3u32);
    let block = 4096 + if metadata.extended { size } else { 0 };
    let data = [(4096, u64::from(nlb) * block)];
    let buffer = Extent { iova: rig.memory.iova_at(512 << 10).unwrap(), len: u64::from(nlb) * size };
    let moved = |command: IoCommand<'static>| if metadata.extended { command } else { command.with_metadata(buffer) };
    let out = pattern(data[0].1 as usize, size);
    rig.write(&data, &out);
    rig.write(&[(512 << 10, buffer.len)], &pattern(buffer.len as usize, 5));
    let extents: &'static [Extent] = rig.extents(&data).leak();
    let Some(protection) = format.protection else {
        rig.done(&moved(IoCommand::write(slba, nlb, extents)));
        rig.memory.view().fill(0);
        rig.done(&moved(IoCommand::read(slba, nlb, extents)));
        assert!(rig.read(&data) == out, "{metadata:?}");
        if !metadata.extended {
            assert_eq!(rig.read(&[(512 << 10, buffer.len)]), pattern(buffer.len as usize, 5));
        }
        return rig.is_clean();
    };

    let checked = Protection::checked(protection.kind, slba).with_application_tag(0x1234, 0xFFFF);
    let short = [(4096, u64::from(nlb) * 4096)];
    let strips = format.is_protection_only();
    let plain: &'static [Extent] = rig.extents(&short).leak();
    let inserted = checked.generated();
    // PRACT: what is transferred depends on whether there is more than protection information.
    let write = if strips { IoCommand::write(slba, nlb, plain) } else { moved(IoCommand::write(slba, nlb, extents)) };
    rig.done(&write.with_protection(inserted));
    rig.memory.view().fill(0);
    rig.done(&moved(IoCommand::read(slba, nlb, extents)).with_protection(checked));
    // What came back is what was written, and its protection goes out again as it is.
    rig.done(&moved(IoCommand::write(slba, nlb, extents)).with_protection(checked));
    rig.done(&IoCommand::verify(slba, nlb).with_protection(checked));
    let wrong = Protection { lbat: 0x4321, ..checked };
    let status = rig.run(&moved(IoCommand::read(slba, nlb, extents)).with_protection(wrong)).unwrap();
    assert_eq!(status.code(), StatusCode::END_TO_END_APPLICATION_TAG_CHECK_ERROR, "{metadata:?}");
    // A byte that is changed on the way is found by the guard.
    rig.write(&[(4100, 1)], &[!rig.read(&[(4100, 1)])[0]]);
    let status = rig.run(&moved(IoCommand::write(slba, nlb, extents)).with_protection(checked)).unwrap();
    assert_eq!(status.code(), StatusCode::END_TO_END_GUARD_CHECK_ERROR, "{metadata:?}");
    rig.is_clean();
}

#[test]
fn zeroes_ranges_and_flush() {
    let mut rig = rig(with_sgl(SglSupport::NotSupported));
    let block = rig.extents(&[(0, 4096)]);
    rig.write(&[(0, 4096)], &pattern(4096, 2));
    for slba in [0, 8, 16, 24] {
        rig.done(&IoCommand::write(slba, 8, &block).with_fua());
    }
    rig.done(&IoCommand::write_zeroes(8, 8, false));
    rig.done(&IoCommand::write_zeroes(16, 8, true));
    let ranges = [
        DatasetManagementRange { cattr: 0, lengthlb: 4, slba: 24 },
        DatasetManagementRange { cattr: 0, lengthlb: 4, slba: 28 },
    ];
    let list = RangeList::write(&rig.limits, &ranges, &rig.memory, 8192).unwrap();
    rig.done(&IoCommand::deallocate(&list));
    rig.done(&IoCommand::flush());
    for (slba, zero) in [(0, false), (8, true), (16, true), (24, true)] {
        rig.memory.view().fill(1);
        rig.done(&IoCommand::read(slba, 8, &block));
        let right = if zero { vec![0; 4096] } else { pattern(4096, 2) };
        assert!(rig.read(&[(0, 4096)]) == right, "from block {slba}");
    }
    rig.is_clean();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Memory cut anywhere, in any order: each byte lands where it belongs, whether by PRPs or by an SGL.
    #[test]
    fn any_cut_of_memory(
        cuts in prop::collection::vec(1u64..4000, 0..200), order in any::<u64>(), gap in 0u64..64, dword: bool, blocks in 1u32..64,
    ) {
        let align = if dword { 4 } else { 1 };
        let mut rig = rig(with_sgl(if dword { SglSupport::Dword } else { SglSupport::Byte }));
        let total = u64::from(blocks) * 512;
        let mut pieces = Vec::new();
        let (mut at, mut left) = (0u64, total);
        for cut in cuts {
            let len = (cut * align).min(left);
            if len == 0 || at + len + gap * align > MEMORY as u64 / 2 {
                break;
            }
            pieces.push((at, len));
            at += len + gap * align;
            left -= len;
        }
        if left > 0 {
            pieces.push((MEMORY as u64 / 2, left));
        }
        let turn = order as usize % pieces.len();
        pieces.rotate_left(turn);
        let out = pattern(total as usize, order % 97);
        rig.write(&pieces, &out);
        let extents = rig.extents(&pieces);
        rig.done(&IoCommand::write(3, blocks, &extents));
        rig.memory.view().fill(0xEE);
        rig.done(&IoCommand::read(3, blocks, &extents));
        prop_assert!(rig.read(&pieces) == out);
        prop_assert_eq!(rig.model.violations(), vec![]);
    }
}
