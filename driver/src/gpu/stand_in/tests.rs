//! What it answers.

use super::*;
use crate::gpu::WordSeries;
use crate::gpu::{CallerGpuMemory, PlaceError, locate};

#[test]
fn it_answers_about_its_addresses_as_cuda_does() {
    let gpu = StandIn::new(1 << 20);
    let memory = gpu.allocate_memory(100_000).unwrap();
    let (base, len) = (memory.address(), AcceleratorMemory::len(&*memory));
    assert_eq!(len, 128 << 10);
    assert_eq!(locate(&*gpu, 0, base + 4096, 4096).unwrap().allocations.len(), 1);
    let past = locate(&*gpu, 0, base + 4096, len).unwrap_err();
    assert!(matches!(past, PlaceError::PastAllocation { .. }), "{past}");
    assert!(matches!(locate(&*gpu, 1, base, 8), Err(PlaceError::WrongDevice { device: 0, wanted: 1, .. })));
    assert!(matches!(gpu.allocate_memory(1 << 20), Err(GpuMemoryError::NoRoom { .. })));
    let placement = locate(&*gpu, 0, base, len).unwrap();
    drop(memory);
    assert!(matches!(placement.check(&*gpu), Err(PlaceError::Gone { .. })));
    assert!(matches!(locate(&*gpu, 0, base, 8), Err(PlaceError::NotCuda { .. })));
}

#[test]
fn the_pages_of_a_part_lie_in_the_allocation_or_are_refused() {
    let gpu = StandIn::new(1 << 20);
    let memory = gpu.allocate_memory(64 << 10).unwrap();
    let of = |offset: u64, len: u64| {
        // SAFETY: the memory outlives what is made of it.
        let part = unsafe { CallerGpuMemory::new(memory.address() + offset, len) };
        let placement = part.locate(&*gpu, 0).unwrap();
        part.pages(&placement, 4096)
    };
    let pages = of(4096 + 8, 4096).unwrap();
    assert_eq!((pages.address() - memory.address(), AcceleratorMemory::len(&pages)), (4096, 8192));
    assert_eq!(pages.before(), 8);
    let whole = of(0, 64 << 10).unwrap();
    assert_eq!((whole.before(), AcceleratorMemory::len(&whole)), (0, 64 << 10));
    // SAFETY: nothing is made of it but a refusal.
    let part = unsafe { CallerGpuMemory::new(memory.address(), 64 << 10) };
    let placement = part.locate(&*gpu, 0).unwrap();
    // No allocation begins on a page of so many bytes.
    let refused = part.pages(&placement, 1 << 62).unwrap_err();
    assert!(matches!(refused, PlaceError::Pages { page, .. } if page == 1 << 62), "{refused}");
}

#[test]
fn a_word_that_is_wrong_is_counted_and_found() {
    let gpu = StandIn::new(1 << 20);
    let memory = gpu.allocate_memory(4096).unwrap();
    let mut copier = Arc::clone(&gpu).copier(CopierConfig::default()).unwrap();
    let series = |at: u64, first| WordSeries { address: memory.address() + at, words: 64, first, step: 3 };
    let all = [series(0, 5), series(512, 77)];
    // SAFETY: both lie in the memory, which nobody else uses.
    unsafe {
        copier.write_series(&all).unwrap();
        assert_eq!(copier.check_series(&all).unwrap(), None);
        memory.view().write(512 + 8, &[0xFF]);
        assert_eq!(copier.check_series(&all).unwrap(), Some((1, 1)));
    }
    assert_eq!(gpu.launches(), 3);
}
