use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;
use crate::dma::{Access, AddressSpace, Backing, HostMemory, Iova, IovaRange, PageSize};
use crate::model::SoftwareIommu;
use crate::model::iommu::{Extent, Pieces};

fn file_config(path: &Path, size: u64, writable: bool) -> ModelConfig {
    ModelConfig { size, store: StoreConfig::File { path: path.to_owned(), writable }, ..ModelConfig::default() }
}

fn refusal(config: &ModelConfig) -> String {
    Store::open(config).err().map_or_else(|| "opened".to_owned(), |error| error.to_string())
}

fn temporary(len: usize) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    fs::File::create(&path).unwrap().write_all(&vec![0x11; len]).unwrap();
    (folder, path)
}

#[test]
fn each_path_that_is_no_store_has_its_message() {
    let (folder, path) = temporary(8192);
    assert_eq!(refusal(&file_config(&path, 8192, true)), "opened");
    let short = refusal(&file_config(&path, 12288, true));
    assert!(
        short.ends_with("has 8192 bytes, too few for a namespace of 12288: make it longer or the namespace smaller")
    );
    let missing = refusal(&file_config(&folder.path().join("none"), 4096, false));
    assert!(missing.starts_with("cannot open") && missing.contains("for reading:"), "{missing}");
    assert!(refusal(&file_config(folder.path(), 4096, false)).contains("is no regular file"));
    assert!(refusal(&file_config(Path::new("/dev/zero"), 4096, true)).contains("is no regular file"));
    let fifo = folder.path().join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(refusal(&file_config(&fifo, 4096, false)).contains("is no regular file"), "and it does not block");
}

#[test]
fn more_memory_than_an_address_can_name_is_refused_with_a_reason() {
    for size in [1u64 << 62, 1 << 63, u64::MAX - 4095] {
        let message = refusal(&ModelConfig { size, ..ModelConfig::default() });
        assert!(message.contains("no room for a store of") && message.contains("ask for a smaller one"), "{message}");
    }
}

/// Moves a pattern to the store and back through pieces of odd lengths, more of them than one system call takes.
fn round_trip(store: &Store) {
    let iommu = SoftwareIommu::new();
    let memory = HostMemory::allocate_on(1 << 20, PageSize::Ordinary).unwrap();
    let range = IovaRange::new(Iova::new(0x10_0000).unwrap(), 1 << 20).unwrap();
    // SAFETY: the memory outlives the table's last use in this function.
    unsafe { iommu.map(range, memory.base(), Access::all()) }.unwrap();
    // SAFETY: only this function uses the memory, by raw pointers.
    let byte = |at: usize| unsafe { memory.base().add(at) };
    for at in 0..1 << 20 {
        // SAFETY: in bounds, see `byte`.
        unsafe { byte(at).write(((at * 31) >> 3) as u8) };
    }
    let extents: Vec<Extent> =
        (0..200u64).map(|index| Extent { address: 0x10_0000 + index * 4096, len: 4 + index * 8 }).collect();
    let total: u64 = extents.iter().map(|extent| extent.len).sum();
    let table = iommu.table();
    let reach = table.reach();
    let mut pieces = Pieces::default();
    store.write(4096, pieces.resolve(&reach, &extents, Access::DEVICE_READS).unwrap()).unwrap();
    let back = [Extent { address: 0x10_0000 + 819_200, len: total }];
    store.read(4096, pieces.resolve(&reach, &back, Access::DEVICE_WRITES).unwrap()).unwrap();
    let mut at = 819_200;
    for (index, extent) in extents.iter().enumerate() {
        for offset in 0..extent.len as usize {
            // SAFETY: in bounds, see `byte`.
            let got = unsafe { byte(at).read() };
            assert_eq!(got, (((index * 4096 + offset) * 31) >> 3) as u8, "byte {offset} of piece {index}");
            at += 1;
        }
    }
}

#[test]
fn bytes_come_back_from_memory_and_from_a_file() {
    round_trip(&Store::open(&ModelConfig { size: 1 << 20, ..ModelConfig::default() }).unwrap());
    let (_folder, path) = temporary(1 << 20);
    round_trip(&Store::open(&file_config(&path, 1 << 20, true)).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20, "the length is kept");
}
