//! A namespace in a file.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::super::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};
use super::host::{Host, count, small};
use crate::spec::command::{Cns, LogPageIdentifier, NSID_ALL, Sqe};
use crate::spec::identify::{IdentifyNamespace, Nsattr};
use crate::spec::log::{CriticalWarning, SmartLog};
use crate::spec::status::StatusCode;
use zerocopy::FromBytes;

const SIZE: u64 = 1 << 20;

fn config(path: &Path, writable: bool) -> ModelConfig {
    let store = StoreConfig::File { path: path.to_owned(), writable };
    ModelConfig { size: SIZE, store, ..small() }
}

fn new_file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks");
    File::create(&path).unwrap().set_len(SIZE).unwrap();
    (folder, path)
}

#[test]
fn what_is_written_is_in_the_file_and_comes_back_with_it() {
    let (_folder, path) = new_file();
    let last = SIZE / 512 - 1;
    {
        let mut host = Host::new(config(&path, true));
        let mut pair = host.io_pair(1, 8);
        let data = host.memory(4096);
        data.view().fill(0xC3);
        let write = Sqe::write(1, last, count(1)).with_prp1(data.iova().get());
        assert_eq!(host.io_code(&mut pair, write.with_fua(true)), StatusCode::SUCCESS);
        assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    }
    let mut file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE, "the length is kept");
    let mut bytes = [0; 1024];
    file.seek(SeekFrom::Start(SIZE - 1024)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert_eq!((bytes[..512].to_vec(), bytes[512..].to_vec()), (vec![0; 512], vec![0xC3; 512]));

    let mut host = Host::new(config(&path, false));
    let mut pair = host.io_pair(1, 8);
    let data = host.memory(4096);
    let read = Sqe::read(1, last, count(1)).with_prp1(data.iova().get()).with_fua(true);
    assert_eq!(host.io_code(&mut pair, read), StatusCode::SUCCESS);
    let mut back = [0; 513];
    data.view().read(0, &mut back);
    assert_eq!((back[511], back[512]), (0xC3, 0));
}

#[test]
fn a_file_that_may_not_be_written_is_a_protected_namespace() {
    let (_folder, path) = new_file();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let mut host = Host::new(config(&path, false));
    let mut pair = host.io_pair(1, 8);
    let data = host.memory(4096);
    let write = Sqe::write(1, 0, count(1)).with_prp1(data.iova().get());
    assert_eq!(host.io_code(&mut pair, write), StatusCode::NAMESPACE_IS_WRITE_PROTECTED);
    assert_eq!(host.io_code(&mut pair, Sqe::flush(1)), StatusCode::SUCCESS);
    let mut page = [0; 4096];
    assert_eq!(host.code(Sqe::identify(Cns::NAMESPACE, 1).with_prp1(data.iova().get())), StatusCode::SUCCESS);
    data.view().read(0, &mut page);
    assert_eq!(IdentifyNamespace::read_from_bytes(&page).unwrap().nsattr, Nsattr::WRITE_PROTECTED);
    let numd = crate::spec::ZeroesBased::<u32>::from_count(128).unwrap();
    let log = Sqe::get_log_page(LogPageIdentifier::SMART_HEALTH_INFORMATION, NSID_ALL, numd);
    assert_eq!(host.code(log.with_prp1(data.iova().get())), StatusCode::SUCCESS);
    data.view().read(0, &mut page);
    assert_eq!(SmartLog::read_from_bytes(&page[..512]).unwrap().critical_warning, CriticalWarning::READ_ONLY);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before, "nothing was written");
}

#[test]
fn a_file_that_shrinks_underneath_is_a_media_error() {
    let (_folder, path) = new_file();
    let mut host = Host::new(config(&path, true));
    let mut pair = host.io_pair(1, 8);
    let data = host.memory(4096);
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert_eq!(host.model.store_error(), None);
    let read = Sqe::read(1, 100, count(1)).with_prp1(data.iova().get());
    let cqe = host.io(&mut pair, read);
    assert_eq!(cqe.status.status().code(), StatusCode::UNRECOVERED_READ_ERROR);
    assert!(!cqe.status.status().dnr(), "it may get better");
    assert_eq!(host.model.store_error(), Some(format!("the file {}: unexpected end of file", path.display())));
    assert_eq!(host.model.violations(), []);
}

#[test]
fn a_model_without_its_file_is_an_error_and_no_model() {
    let (folder, path) = new_file();
    let iommu = SoftwareIommu::new();
    let missing = folder.path().join("missing");
    for drive in [Drive::Stepped, Drive::Threaded] {
        let error = Model::new(config(&missing, true), drive, &iommu).err().unwrap().to_string();
        assert!(error.contains("cannot open") && error.contains("for reading and writing"), "{error}");
        let longer = ModelConfig { size: 2 * SIZE, ..config(&path, true) };
        assert!(Model::new(longer, drive, &iommu).err().unwrap().to_string().contains("too few"));
    }
    assert!(!missing.exists(), "nothing is created");
}

#[test]
fn a_file_has_one_model_that_writes_or_any_that_read() {
    let (_folder, path) = new_file();
    let iommu = SoftwareIommu::new();
    let open = |writable| Model::new(config(&path, writable), Drive::Stepped, &iommu);
    let in_use = |writable| open(writable).err().unwrap().to_string().contains("is in use by another process");
    let readers = [open(false).unwrap(), open(false).unwrap()];
    assert!(in_use(true));
    drop(readers);
    let writer = open(true).unwrap();
    assert!(in_use(false) && in_use(true));
    drop(writer);
    open(true).unwrap();
}
