use super::*;
use crate::dma::{APERTURE, Iova, MSI_WINDOW};
use crate::dma::{Backing, HostMemory, PageSize};

const PAGE: u64 = PAGE_SIZE;

fn read<const N: usize>(reach: &Reach<'_>, address: u64, hint: &mut Hint) -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    reach.read(address, &mut bytes, hint).map(|()| bytes)
}

fn at(start: u64, len: u64) -> IovaRange {
    IovaRange::new(Iova::new(start).unwrap(), len).unwrap()
}

/// Two host pages, the bytes of each all its number.
fn two_pages() -> HostMemory {
    let memory = HostMemory::allocate_on(8192, PageSize::Ordinary).unwrap();
    for page in 0..2 {
        // SAFETY: a page of our own memory, to which nobody else has access yet.
        unsafe { memory.base().add(page * 4096).write_bytes(page as u8 + 1, 4096) };
    }
    memory
}

/// Maps `len` bytes `offset` into `memory` at `start`.
fn map(iommu: &SoftwareIommu, start: u64, memory: &HostMemory, offset: usize, len: u64, access: Access) {
    assert!(offset as u64 + len <= memory.len() as u64);
    // SAFETY: the range lies in `memory`, which each test drops after the IOMMU's last use.
    unsafe { iommu.map(at(start, len), memory.base().add(offset), access) }.unwrap();
}

#[test]
fn neighbours_in_iova_are_read_as_one_though_they_lie_apart_in_memory() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 4096, PAGE, Access::all());
    map(&iommu, 0x2_1000, &memory, 0, PAGE, Access::all());
    let table = iommu.table();
    let reach = table.reach();
    let mut hint = Hint::default();
    assert_eq!(read::<4>(&reach, 0x2_0ffe, &mut hint), Ok([2, 2, 1, 1]));
    let mut pieces = Pieces::default();
    let extents = [Extent { address: 0x2_0ff0, len: 32 }];
    let pieces = pieces.resolve(&reach, &extents, Access::DEVICE_READS).unwrap();
    assert_eq!(pieces.iter().map(Piece::len).collect::<Vec<_>>(), [16, 16]);
    assert_eq!(pieces[1].base(), memory.base());
}

#[test]
fn a_fault_names_the_first_address_that_is_not_mapped() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, 2 * PAGE, Access::all());
    let table = iommu.table();
    let reach = table.reach();
    let mut pieces = Pieces::default();
    let mut refused = |address, len| {
        pieces.resolve(&reach, &[Extent { address, len }], Access::DEVICE_READS).err().map(|fault| fault.address)
    };
    assert_eq!(refused(0x2_0000, 2 * PAGE), None);
    assert_eq!(refused(0x2_0000, 2 * PAGE + 1), Some(0x2_2000));
    assert_eq!(refused(0x1_ffff, 2), Some(0x1_ffff));
    assert_eq!(refused(0, 1), Some(0));
    assert_eq!(refused(u64::MAX, 4096), Some(u64::MAX), "no overflow at the top");
}

#[test]
fn rights_are_kept() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, PAGE, Access::DEVICE_READS);
    map(&iommu, 0x2_1000, &memory, 4096, PAGE, Access::DEVICE_WRITES);
    let table = iommu.table();
    let reach = table.reach();
    let mut hint = Hint::default();
    let denied = |address, wanted| Fault { address, wanted, kind: FaultKind::Denied };
    assert!(read::<8>(&reach, 0x2_0000, &mut hint).is_ok());
    assert_eq!(read::<8>(&reach, 0x2_1000, &mut hint), Err(denied(0x2_1000, Access::DEVICE_READS)));
    assert!(reach.publish(0x2_1000, [0; 4], &mut hint).is_ok());
    assert_eq!(reach.publish(0x2_0000, [0; 4], &mut hint), Err(denied(0x2_0000, Access::DEVICE_WRITES)));
}

#[test]
fn overlaps_and_crooked_ranges_are_refused() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, 2 * PAGE, Access::all());
    let attempt = |range, offset| {
        // SAFETY: every attempt is refused; nothing is mapped.
        unsafe { iommu.map(range, memory.base().add(offset), Access::all()) }
    };
    for (start, len) in [(0x2_0000, PAGE), (0x2_1000, PAGE), (0x1_f000, 2 * PAGE), (0x1_f000, 8 * PAGE)] {
        let range = at(start, len);
        assert_eq!(attempt(range, 0), Err(MapError::Occupied { range, mapped: at(0x2_0000, 2 * PAGE) }));
    }
    for (start, len, offset) in [(0x3_0800, PAGE, 0), (0x3_0000, 100, 0), (0x3_0000, PAGE, 8)] {
        let range = at(start, len);
        assert_eq!(attempt(range, offset), Err(MapError::Misaligned { range, page_size: PAGE }));
    }
}

#[test]
fn only_a_whole_mapping_is_unmapped() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, 2 * PAGE, Access::all());
    for range in [at(0x2_0000, PAGE), at(0x2_1000, PAGE), at(0x2_0000, 3 * PAGE), at(0x1_f000, 3 * PAGE)] {
        assert_eq!(iommu.unmap(range), Err(MapError::NotMapped { range }));
    }
    let whole = at(0x2_0000, 2 * PAGE);
    assert_eq!(iommu.unmap(whole), Ok(()));
    assert_eq!(iommu.unmap(whole), Err(MapError::NotMapped { range: whole }));
    assert!(read::<8>(&iommu.table().reach(), 0x2_0000, &mut Hint::default()).is_err());
}

#[test]
fn a_hint_never_outlives_what_it_pointed_at() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, PAGE, Access::all());
    map(&iommu, 0x4_0000, &memory, 4096, PAGE, Access::all());
    let table = iommu.table();
    let mut hint = Hint::default();
    assert_eq!(read::<1>(&table.reach(), 0x4_0000, &mut hint), Ok([2]));
    iommu.unmap(at(0x2_0000, PAGE)).unwrap();
    assert_eq!(read::<1>(&table.reach(), 0x4_0000, &mut hint), Ok([2]), "it moved in the table");
    iommu.unmap(at(0x4_0000, PAGE)).unwrap();
    assert!(read::<1>(&table.reach(), 0x4_0000, &mut hint).is_err());
}

#[test]
fn there_is_one_space_and_it_keeps_clear_of_the_msi_window() {
    let iommu = SoftwareIommu::new();
    assert!(Arc::ptr_eq(&iommu.space(), &iommu.space()));
    let window = at(MSI_WINDOW.0, MSI_WINDOW.1 - MSI_WINDOW.0);
    let space = iommu.space();
    let region = space.register(HostMemory::allocate_on(4096, PageSize::Ordinary).unwrap(), Access::all()).unwrap();
    assert!(region.iova().get() >= APERTURE.0 && region.range().end() <= APERTURE.1);
    assert!(!region.range().overlaps(window));
    let iova = region.iova().get();
    assert!(read::<8>(&iommu.table().reach(), iova, &mut Hint::default()).is_ok());
    region.release();
    assert!(read::<8>(&iommu.table().reach(), iova, &mut Hint::default()).is_err());
}

#[test]
fn a_limit_of_mappings_is_kept() {
    let (memory, iommu) = (two_pages(), SoftwareIommu::new());
    map(&iommu, 0x2_0000, &memory, 0, PAGE, Access::all());
    iommu.limit_mappings(1);
    let range = at(0x4_0000, PAGE);
    // SAFETY: it is refused; nothing is mapped.
    let refused = unsafe { iommu.map(range, memory.base(), Access::all()) };
    assert_eq!((refused, iommu.mappings()), (Err(MapError::EntryLimit { range, limit: 1 }), 1));
    iommu.unmap(at(0x2_0000, PAGE)).unwrap();
    map(&iommu, 0x4_0000, &memory, 4096, PAGE, Access::all());
    assert_eq!(iommu.mappings(), 1);
}
