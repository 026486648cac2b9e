//! Against a stand-in, whose BAR1 is a file.

use std::sync::Arc;

use super::*;
use crate::dma::{Access, Backing, DmaSpace, HostMemory, MapError, RegisterError};
use crate::gpu::ladder::{Gdrdrv, GdrdrvVersion};
use crate::gpu::{
    Accelerator, CopierConfig, GPU_PAGE, StandIn, StandInMemory, StandInWays, WordSeries, WritesOrdering,
};
use crate::model::SoftwareIommu;

const GDRDRV: Gdrdrv = Gdrdrv { version: GdrdrvVersion { major: 2, minor: 5 }, persistent: Some(true) };
const WAYS: StandInWays = StandInWays {
    mmap: true,
    gdrdrv: Some(GDRDRV),
    bar1: 4 * GPU_PAGE,
    writes_ordering: WritesOrdering::AllDevices,
    host_flush: true,
};

fn memory(gpu: &Arc<StandIn>, pages: u64) -> Arc<StandInMemory> {
    gpu.allocate_memory((pages * GPU_PAGE) as usize).unwrap()
}

fn direct(gpu: &StandIn, path: GpuPath, memory: &Arc<StandInMemory>) -> Result<DirectMemory, Obstacle> {
    DirectMemory::new(gpu, path, Arc::clone(memory) as _, None).map(Option::unwrap)
}

/// A word as a device would see it, that is at the mapping.
fn word(memory: &DirectMemory, offset: usize) -> u64 {
    let Exposure::Mapping(base) = memory.exposure() else { panic!("a mapping was asked for") };
    // SAFETY: it lies in the mapping, and nobody else uses it.
    unsafe { base.add(offset).cast::<u64>().read_volatile() }
}

fn set_word(memory: &DirectMemory, offset: usize, value: u64) {
    let Exposure::Mapping(base) = memory.exposure() else { panic!("a mapping was asked for") };
    // SAFETY: as in `word`.
    unsafe { base.add(offset).cast::<u64>().write_volatile(value) }
}

#[test]
fn both_ways_lead_to_the_memory_from_its_first_byte_on() {
    let gpu = StandIn::with_ways(1 << 20, WAYS);
    for path in [GpuPath::DmaBufMmap, GpuPath::Gdrdrv] {
        let memory = memory(&gpu, 2);
        memory.view().write(GPU_PAGE as usize + 8, &7u64.to_ne_bytes());
        let direct = direct(&gpu, path, &memory).unwrap();
        assert_eq!((direct.address(), AcceleratorMemory::len(&direct)), (memory.address(), 2 * GPU_PAGE));
        assert_eq!(word(&direct, GPU_PAGE as usize + 8), 7, "{path}");
        set_word(&direct, 16, 9);
        let mut bytes = [0; 8];
        memory.view().read(16, &mut bytes);
        assert_eq!(u64::from_ne_bytes(bytes), 9, "{path}");
    }
    let memory = memory(&gpu, 1);
    assert!(DirectMemory::new(&*gpu, GpuPath::Staged, memory, None).unwrap().is_none());
}

#[test]
fn bar1_has_an_end_and_what_is_dropped_is_free_again() {
    let gpu = StandIn::with_ways(1 << 20, WAYS);
    let (large, small) = (memory(&gpu, 3), memory(&gpu, 2));
    let held = direct(&gpu, GpuPath::DmaBufMmap, &large).unwrap();
    let full = |path| direct(&gpu, path, &small).err();
    assert_eq!(full(GpuPath::DmaBufMmap), Some(Obstacle::Mmap { errno: libc::ENOMEM }));
    assert_eq!(full(GpuPath::Gdrdrv), Some(Obstacle::Pin { errno: libc::ENOMEM }));
    drop(held);
    assert_eq!(full(GpuPath::Gdrdrv), None);
    let none = StandIn::with_ways(1 << 20, StandInWays { mmap: false, ..WAYS });
    let memory = memory(&none, 1);
    assert_eq!(direct(&none, GpuPath::DmaBufMmap, &memory).err(), Some(Obstacle::Mmap { errno: 524 }));
}

/// What a device writes where writes are not ordered is there after a flush, and not before.
#[test]
fn what_is_written_by_devices_is_seen_after_a_flush() {
    let gpu = StandIn::with_ways(1 << 20, StandInWays { writes_ordering: WritesOrdering::Nobody, ..WAYS });
    let memory = memory(&gpu, 1);
    let direct = direct(&gpu, GpuPath::DmaBufMmap, &memory).unwrap();
    let mut copier = Arc::clone(&gpu).copier(CopierConfig::default()).unwrap();
    let one = |first| [WordSeries { address: memory.address() + 64, words: 1, first, step: 0 }];
    // SAFETY: the word lies in the memory, which nobody else uses.
    unsafe {
        copier.write_series(&one(1)).unwrap();
        assert_eq!(word(&direct, 64), 1, "devices read what the GPU has written");
        set_word(&direct, 64, 2);
        assert_eq!(copier.check_series(&one(1)).unwrap(), None, "it is on its way");
        gpu.flush(WritesOrdering::Owner).unwrap();
        assert_eq!(copier.check_series(&one(2)).unwrap(), None);
    }
    assert_eq!(gpu.flushes(), 1);
}

#[test]
fn a_region_of_it_is_mapped_by_what_exposes_it() {
    let gpu = StandIn::with_ways(1 << 20, WAYS);
    let iommu = SoftwareIommu::new();
    let space: Arc<DmaSpace> = iommu.space();
    let memory = memory(&gpu, 1);
    let region = space.register_accelerator(direct(&gpu, GpuPath::Gdrdrv, &memory).unwrap(), Access::all()).unwrap();
    assert_eq!(region.range().len(), GPU_PAGE);
    drop(region);
    // A model's space takes no dma-bufs.
    let exported = direct(&gpu, GpuPath::Iommufd, &memory).unwrap();
    let refused = space.register_accelerator(exported, Access::all()).err();
    assert!(matches!(refused, Some(RegisterError::Map(MapError::NoDmaBuf { .. }))), "{refused:?}");
    let host = HostMemory::allocate(4096).unwrap();
    assert!(host.file().is_some(), "what stands for BAR1 is a file");
}
